"""The scikit-learn face: a classifier for tables of numbers that is told what its predictions should look like."""

import copy
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from selbo.estimator.rows import Rows, few_threads
from selbo.estimator.settings import check_settings, class_fractions, doubts
from selbo.estimator.splits import stratified_split
from selbo.evaluation.check_belief import check_accuracy, shortfall
from selbo.evaluation.predict import Prediction
from selbo.evaluation.predict import predict as posterior_predict
from selbo.models import MLP
from selbo.nn import to_bayesian
from selbo.objectives import LabelShift, Objective
from selbo.presets import INIT_STD, METHODS, MOST_TRUST, objective_for, summaries_for, trust_for, uncertainty_for
from selbo.random import derive, generator_for
from selbo.summary.beliefs import Belief
from selbo.summary.likelihood import SummaryLikelihood
from selbo.summary.partitions import Partition
from selbo.training import Callback, Checkpoint, FitResult, JsonLines, Progress, Validation, fit

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_is_fitted, validate_data

    from selbo.estimator.intake import take_in, take_in_val
except ImportError:
    raise ModuleNotFoundError(
        "SummaryClassifier needs the package scikit-learn: pip install 'selbo[sklearn]'"
    ) from None

TRUST_GRID: Final = (0.01, 0.1, 1.0, 10.0)
"""Concentrations that ``"auto"`` tries, for each training row: from next to nothing to ten times the labels."""

VALIDATION_SAMPLES: Final = 16
"""Weight draws of a validation."""

CHECKPOINT_SECONDS: Final = 5.0
"""Between checkpoints: no more than that is lost if a fit is killed."""


class Uncertainty(NamedTuple):
    """How uncertain each prediction is, in nats, two arrays of shape (rows,).

    Attributes:
        entropy: Of the predicted probabilities: all doubt together.
        mutual_information: The part that more data would remove: doubt about the weights. Zero for plain networks.
    """

    entropy: NDArray[np.float64]
    mutual_information: NDArray[np.float64]


class Statement(NamedTuple):
    """What a classifier believes about data, in numbers.

    Attributes:
        class_fractions: Fraction of each class: as stated, or that of the labels.
        fraction_uncertainty: How far each of them may be off.
        summaries: What training would use, or what a method without a summary leaves out: one `SummaryLikelihood`, or
            two, of confidence and of class fractions.
    """

    class_fractions: list[float]
    fraction_uncertainty: float
    summaries: list[SummaryLikelihood]


class _Running(NamedTuple):
    """How a fit runs: what does not change its result."""

    checkpoint: Checkpoint | None
    callbacks: list[Callback]
    logs: bool


@dataclass(frozen=True)
class _Trained:
    network: nn.Module
    objective: Objective
    result: FitResult
    summaries: list[SummaryLikelihood]
    concentration: float | None
    label_shift: LabelShift | None = None
    shortfall: str | None = None
    """What to say if it clearly misses the stated accuracy on rows held out."""


class SummaryClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A neural classifier that is told what its predictions should look like, for use with scikit-learn.

    Say what you know of the task, in one number or two: how many cases can be decided rightly (``accuracy``), and how
    frequent each class is (``class_fractions``). A multilayer perceptron with a posterior over its weights is trained
    by the Summary ELBO, so that its probabilities, taken together, agree with that. The first quarter of the steps
    belongs to the labels alone, because a belief cannot tell which class is which. Features are standardised inside,
    except those of zeros and ones; categories have to be encoded as numbers before. Everything runs in double
    precision, and the same ``random_state`` gives the same classifier. The command ``selbo train`` prepares a file and
    trains this classifier.

    Rows without labels can be given to `fit`, marked in ``y`` or apart; they may come from another domain than the
    labels do. The belief is then about them, and not about the labelled rows. If ``class_fractions`` are stated, the
    network learns from the labels as they are, and predictions are corrected for the difference between the class
    fractions of the labels and those stated (`selbo.LabelShift`): they are meant for the domain of the unlabelled rows.

    With nothing stated, ``SummaryClassifier()`` only believes that classes are predicted as often as they occur in the
    training labels: no claim about confidence is made, and it behaves like a Bayesian network without a summary.

    Args:
        accuracy: Share of cases that can be decided rightly, strictly between 1/K and 1.
        class_fractions: Fraction of each class in the target domain, in the order of ``classes_``, or as a mapping from
            label to fraction; those of the training labels if not given.
        concentration: Prior strength of the belief, in pseudo-observations. If not given, .3 per labelled row for a
            belief about unlabelled rows; for one about labelled rows as many as there are, but 1000 at most; and 1000
            if nothing is stated of the labelled ones, and the belief is what their labels say. Or ``"auto"``: four
            values, 1/100, 1/10, 1 and 10 for each labelled row, are tried with a ``validation_fraction`` held out, and
            the one with the lowest validation NLL is used to train on all rows (with ``early_stopping`` the classifier
            of that trial is kept). That takes five times as long (four times with ``early_stopping``).
        belief: A belief such as `selbo.Beta`, in the place of ``accuracy`` and ``class_fractions``.
        partition: Regions such as `selbo.ScoreBins`; if not given, ten equal bins of the score for two classes,
            `CornerShells` for up to 20, `ConfidenceBins` beyond (beside `ClassRegions` if class fractions are stated),
            and `ClassRegions` if only classes are spoken of.
        method: ``"summary_elbo"``; or, to compare with, ``"elbo"``, ``"plain"``, ``"plain_summary"``,
            ``"label_smoothing"`` or ``"evidential"``. The methods without a summary ignore what is believed.
        hidden: Widths of the hidden layers; () for a linear classifier.
        steps: Of training.
        batch_size: Rows a step. If there are no more rows than that, every step sees all of them, and a row with weight
            2 is the same as the row twice.
        learning_rate: Of Adam.
        kl_weight: Factor of the KL divergence; below one the posterior is tempered.
        prior_std: Standard deviation of the prior of the weights.
        draws: Weight draws a prediction; always the same ones, so that predictions do not vary from call to call.
        early_stopping: Hold out a ``validation_fraction`` of the labelled rows and keep the weights of the step with
            the lowest NLL on it. All steps are taken nevertheless.
        validation_fraction: Share of each class to hold out, for ``early_stopping`` and ``concentration="auto"``. If
            clearly fewer of these rows are classified correctly than was stated, a warning says so.
        unlabelled_label: What stands in ``y`` for a row without label: -1, as elsewhere in scikit-learn, or a word such
            as ``"unknown"``; or False: every label is a class. If not given, -1 is no class beside two or more others,
            and a warning says so.
        overrule_labels: Keep a ``concentration`` above the number of labelled rows. For beliefs that are known to be
            right, such as class fractions that were counted. Otherwise it is lowered to that number, with a warning.
        fraction_uncertainty: How far each class fraction may be off, where no accuracy or belief is stated: with .05, a
            fraction of .5 stands for any from .45 to .55. If not given, .05 or half of the smallest fraction, whichever
            is less, if they are stated about unlabelled rows, and else 0.
        device: Where to train and predict: ``"cpu"``, or another device of torch.
        random_state: Of everything random: a whole number, a RandomState, or None for another outcome each time.
            Numpy's global state is not used.

    Attributes:
        classes_: Labels, in the order of the columns of `predict_proba`.
        n_features_in_: Number of features.
        feature_names_in_: Their names, if those of the training data are all text.
        n_unlabelled_: Number of rows without label that the belief is about; 0 if it is about the training rows.
        concentration_: The concentration that was used; None if the method does not believe.
        label_shift_: The `selbo.LabelShift` that predictions are corrected by, or None.
        n_iter_: Step that the weights are from.
        loss_curve_: Loss of each step.
        validation_nll_: Of the rows held out, if there were any with ``early_stopping`` or as ``X_val``; else None.
        seconds_: That training took; of a resumed fit, in all.
        seed_: Drawn from ``random_state``; predictions use it too.
        scale_: Mean and standard deviation that features are standardised with.
        network_: The trained network, in double precision, for standardised features.
        summary_: The `selbo.SummaryLikelihood` that was used, or None; with more than 20 classes, an accuracy and
            class fractions, that of the accuracy.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> classifier = SummaryClassifier(
        ...     accuracy=0.95, concentration=150.0, steps=400, random_state=0
        ... ).fit(X, y)
        >>> classifier.predict_proba(X).shape, bool(classifier.score(X, y) > 0.9)
        ((150, 3), True)
    """

    def __init__(
        self,
        accuracy: float | None = None,
        class_fractions: "Sequence[float] | Mapping[Any, float] | None" = None,
        concentration: "float | str | None" = None,
        *,
        belief: Belief | None = None,
        partition: Partition | None = None,
        method: str = "summary_elbo",
        hidden: Sequence[int] = (128,),
        steps: int = 2000,
        batch_size: int = 256,
        learning_rate: float = 1e-3,
        kl_weight: float = 0.1,
        prior_std: float = 0.2,
        draws: int = 128,
        early_stopping: bool = False,
        validation_fraction: float = 0.2,
        unlabelled_label: "int | float | str | bool | None" = None,
        overrule_labels: bool = False,
        fraction_uncertainty: float | None = None,
        device: str = "cpu",
        random_state: "int | np.random.RandomState | None" = None,
    ) -> None:
        self.accuracy = accuracy
        self.class_fractions = class_fractions
        self.concentration = concentration
        self.belief = belief
        self.partition = partition
        self.method = method
        self.hidden = hidden
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.kl_weight = kl_weight
        self.prior_std = prior_std
        self.draws = draws
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.unlabelled_label = unlabelled_label
        self.overrule_labels = overrule_labels
        self.fraction_uncertainty = fraction_uncertainty
        self.device = device
        self.random_state = random_state

    # --- training ---

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        X_unlabelled: Any = None,
        *,
        X_val: Any = None,
        y_val: Any = None,
        checkpoint: "str | os.PathLike[str] | None" = None,
        log: "str | os.PathLike[str] | None" = None,
        progress: bool | None = False,
    ) -> "SummaryClassifier":
        """Train on a table of numbers and its labels.

        Rows without labels, marked in ``y`` or in ``X_unlabelled``, are put together; what is believed is then about
        them. Methods without a summary leave marked rows out.

        Args:
            X: Features, shape (rows, features): an array, or a data frame of pandas or polars.
            y: Labels, shape (rows,), of any kind; at least two different ones. Where ``unlabelled_label`` stands, the
                row has none.
            sample_weight: How many times each row counts, shape (rows,): in the standardisation, the class fractions,
                the likelihood and the histogram of the summary. A row with weight 0 is left out; a row without label
                that is not counts once.
            X_unlabelled: Features of more rows without labels, shape (more rows, features).
            X_val: Features of rows to validate on, instead of a ``validation_fraction`` of the others.
            y_val: Their labels.
            checkpoint: Checkpoint file, written every few seconds. If it exists, training resumes from it; the same
                data and settings are then needed. Remove it afterwards. Not for ``concentration="auto"``.
            log: File of JSON lines: terms of the objective, and the validation NLL where ``X_val`` is given.
            progress: Show a bar; None for one on a terminal.

        Returns:
            The classifier. If training fails or is interrupted, it is left as it was before.
        """
        before = dict(vars(self))
        running = _Running(
            None if checkpoint is None else Checkpoint(checkpoint, every=CHECKPOINT_SECONDS),
            [Progress(progress), *([] if log is None else [JsonLines(log)])],
            logs=log is not None,
        )
        try:
            rows, stated = self._take_in(X, y, sample_weight, X_unlabelled)
            self.seed_ = self._draw_seed()
            val = take_in_val(self, X_val, y_val, rows)
            trained = self._trained(rows, val, stated, running)
            check = trained.result.label_check
            if check is not None and check.below_majority:
                warnings.warn(str(check), UserWarning, stacklevel=2)
            if trained.shortfall is not None:
                warnings.warn(f"{trained.shortfall}.", UserWarning, stacklevel=2)
        except BaseException:  # what was fitted earlier stays whole, and what was not stays unfitted
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        self.network_ = trained.network
        self._objective: Objective | None = trained.objective
        self.label_shift_ = trained.label_shift
        self.summary_ = trained.summaries[0] if trained.summaries else None
        self.concentration_ = trained.concentration
        self.n_iter_ = trained.result.selected_step
        self.loss_curve_ = trained.result.curve[:, 0].numpy()
        self.validation_nll_ = trained.result.val_nll
        self.seconds_ = trained.result.seconds
        return self

    def statement(self, X: Any, y: Any, sample_weight: Any = None, X_unlabelled: Any = None) -> Statement:
        """What the classifier believes about data, without training: to look at, or to find mistakes before a long fit.

        Errors and warnings are those that `fit` begins with, and the arguments are the same.

        Example:
            >>> stated = SummaryClassifier(accuracy=0.9).statement(
            ...     [[1.0], [2.0], [4.0]], ["a", "b", "b"]
            ... )
            >>> [round(each, 2) for each in stated.class_fractions], len(stated.summaries[0].s0)
            ([0.33, 0.67], 10)
        """
        other = copy.copy(self)
        return other._take_in(X, y, sample_weight, X_unlabelled)[1]

    def _take_in(self, X: Any, y: Any, sample_weight: Any, X_unlabelled: Any) -> tuple[Rows, Statement]:
        """Everything before training, checked: sets classes and scale. Called by methods that users call."""
        check_settings(self)
        believes = METHODS[self.method].believes
        if X_unlabelled is not None and not believes:
            raise ValueError(
                f"`X_unlabelled` is for a method with a summary, which speaks of it, but the method is {self.method!r}"
            )
        rows, self.classes_, self.scale_ = take_in(
            self, X, y, sample_weight, X_unlabelled, marker=self.unlabelled_label, believes=believes
        )
        self.n_unlabelled_ = 0 if rows.unlabelled is None else len(rows.unlabelled)
        fractions = class_fractions(self, self.classes_, rows)
        for doubt in doubts(self, self.classes_, rows, fractions):
            warnings.warn(doubt, UserWarning, stacklevel=3)
        return rows, self._statement(rows, fractions, self._trust(rows))

    def _statement(self, rows: Rows, fractions: list[float], concentration: float) -> Statement:
        uncertainty = self.fraction_uncertainty
        if uncertainty is None:
            about_unlabelled = rows.unlabelled is not None and self.class_fractions is not None
            uncertainty = uncertainty_for(fractions) if about_unlabelled else 0.0
        summaries = summaries_for(
            fractions,
            stated=self.class_fractions is not None,
            accuracy=self.accuracy,
            concentration=concentration,
            belief=self.belief,
            partition=self.partition,
            fraction_uncertainty=uncertainty,
        )
        return Statement(fractions, uncertainty, summaries)

    def _trust(self, rows: Rows) -> float:
        """The concentration that was given, limited to the labels, or the default."""
        if self.concentration is None or isinstance(self.concentration, str):
            stated = self.accuracy, self.class_fractions, self.belief
            if rows.unlabelled is None and all(each is None for each in stated):
                return MOST_TRUST  # what the labels say themselves; with less the NLL was higher (docs/measurements.md)
            return trust_for(rows.total, elsewhere=rows.unlabelled is not None)
        return float(self.concentration if self.overrule_labels else min(self.concentration, rows.total))

    def _trained(self, rows: Rows, val: Rows | None, stated: Statement, running: _Running) -> _Trained:
        """The network that is kept, by the rows that there are."""
        choose = METHODS[self.method].believes and isinstance(self.concentration, str)
        if choose and running.checkpoint is not None:
            raise ValueError("`checkpoint` is for one training, but concentration='auto' takes several")
        train = rows
        if val is None and (self.early_stopping or choose):
            kept, held_out = stratified_split(rows.labels, self.validation_fraction, seed=self.seed_)
            train, val = rows[kept], rows[held_out]
        with few_threads(rows, self.hidden, self.batch_size):
            if not choose:
                return self._compared(self._train(train, val, stated, running), val)
            trials = {}
            for share in TRUST_GRID:
                trial = self._statement(train, stated.class_fractions, share * train.total)
                trials[share] = self._train(train, val, trial, running)
            best = min(trials, key=lambda share: trials[share].result.val_nll or 0.0)
            tried = self._compared(trials[best], val)
            if self.early_stopping or train is rows:
                return tried
            final = self._statement(rows, stated.class_fractions, best * rows.total)
            return replace(self._train(rows, None, final, running), shortfall=tried.shortfall)

    def _compared(self, trained: _Trained, held_out: Rows | None) -> _Trained:
        """The same, with what the rows held out say of the stated accuracy if it is about such rows."""
        # weighted rows are no sample of single cases
        if held_out is None or held_out.unlabelled is not None or held_out.weights is not None or not trained.summaries:
            return trained
        claimed = trained.summaries[0].describe().accuracy
        if claimed is None:
            return trained
        seen = self._predict_rows(trained.network, trained.objective, held_out.inputs)
        verdict = check_accuracy(claimed, seen.classes == held_out.labels)
        return replace(trained, shortfall=shortfall(verdict, held_out.labels))

    def _train(self, rows: Rows, val: Rows | None, stated: Statement, running: _Running) -> _Trained:
        """One training: the only place that makes an objective and calls `selbo.fit`."""
        network = self.make_network(rows.inputs.shape[1])
        summaries = stated.summaries if METHODS[self.method].believes else []
        shift = None
        if summaries and rows.unlabelled is not None and self.class_fractions is not None:
            shift = LabelShift.from_labels(rows.labels, stated.class_fractions, weights=rows.weights)
        per_row = len(rows.labels) / rows.total  # what is said once, of rows that count more or less than once
        objective = objective_for(
            self.method,
            num_data=len(rows.labels),
            steps=self.steps,
            summary=summaries[0] if len(summaries) == 1 else summaries or None,
            kl_weight=self.kl_weight * per_row,
            summary_weight=per_row,
            label_shift=shift,
        )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="the network is correct on")  # said of the network that is kept
            result = fit(
                network,
                objective,
                rows.as_data(),
                None if val is None else val.as_data(),
                unlabelled=rows.unlabelled if summaries else None,
                steps=self.steps,
                batch_size=self.batch_size,
                learning_rate=self.learning_rate,
                validation=Validation(
                    every=None if self.early_stopping or running.logs else self.steps,
                    num_samples=VALIDATION_SAMPLES,
                    select="best" if self.early_stopping and val is not None else "last",
                ),
                seed=derive(self.seed_, "training", self.method),
                device=self.device,
                checkpoint=running.checkpoint,
                callbacks=running.callbacks,
            )
        concentration = float(summaries[0].concentration) if summaries else None
        return _Trained(network.eval(), objective, result, summaries, concentration, shift)

    def make_network(self, num_features: int) -> nn.Module:
        """A network for the classes that are known, before training."""
        widths = (num_features, *self.hidden, len(self.classes_))
        network: nn.Module = MLP(widths, generator=generator_for(self.seed_, "weights"))
        if METHODS[self.method].bayesian:
            network = to_bayesian(network, prior_std=self.prior_std, init_std=INIT_STD)
        return network.double()

    def _draw_seed(self) -> int:
        if self.random_state is None:
            return int(np.random.default_rng().integers(2**31))
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    # --- prediction ---

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable label of each row, shape (rows,)."""
        numbers = self.posterior_predictive(
            X
        ).classes.numpy()  # before `classes_`: says what is wrong if there are none
        labels: NDArray[Any] = self.classes_[numbers]
        return labels

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of the classes, shape (rows, classes), columns in the order of ``classes_``."""
        probs = self.posterior_predictive(X).probs
        table: NDArray[np.float64] = (probs / probs.sum(-1, keepdim=True)).numpy()
        return table

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """Logarithms of the probabilities, exact where a probability underflows."""
        log_probs: NDArray[np.float64] = self.posterior_predictive(X).log_probs.numpy()
        return log_probs

    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Entropy and mutual information of each prediction, in nats.

        Args:
            X: Features, shape (rows, features).

        Returns:
            Two arrays of shape (rows,).
        """
        found = self.posterior_predictive(X)
        return Uncertainty(found.entropy.numpy(), found.mutual_information.numpy())

    def posterior_predictive(self, X: Any, *, target_domain: bool = True) -> Prediction:
        """Probabilities, entropy, expected entropy and mutual information of each row, as tensors on the CPU.

        Args:
            X: Features, shape (rows, features).
            target_domain: Correct the predictions by ``label_shift_``, if there is one; without it they are those of
                the domain that the labels come from.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        found = self._predict_rows(self.network_, self._objective, self.scale_(X))
        if self.label_shift_ is None or not target_domain:
            return found
        return found.with_log_probs(self.label_shift_.to_use(found.log_probs))

    def _predict_rows(self, network: nn.Module, objective: Objective | None, inputs: Tensor) -> Prediction:
        device = next(network.parameters()).device
        generator = generator_for(self.seed_, "prediction", device=device)
        found = posterior_predict(network, inputs, self.draws, objective=objective, generator=generator)
        return Prediction(*(each.cpu() for each in vars(found).values()))
