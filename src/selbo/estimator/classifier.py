"""The scikit-learn face: a classifier for tables of numbers that is told what its predictions should look like."""

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
from selbo.training import FitResult, Validation, fit

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_is_fitted, validate_data

    from selbo.estimator.intake import take_in
except ImportError:
    raise ModuleNotFoundError(
        "SummaryClassifier needs the package scikit-learn: pip install 'selbo[sklearn]'"
    ) from None

TRUST_GRID: Final = (0.01, 0.1, 1.0, 10.0)
"""Concentrations that ``"auto"`` tries, for each training row: from next to nothing to ten times the labels."""

VALIDATION_SAMPLES: Final = 16
"""Weight draws of a validation."""


class Uncertainty(NamedTuple):
    """How uncertain each prediction is, in nats, two arrays of shape (rows,).

    Attributes:
        entropy: Of the predicted probabilities: all doubt together.
        mutual_information: The part that more data would remove: doubt about the weights. Zero for plain networks.
    """

    entropy: NDArray[np.float64]
    mutual_information: NDArray[np.float64]


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
    belongs to the labels alone, because a belief cannot tell which class is which. Features are standardised inside;
    categories have to be encoded as numbers before. Everything runs on the CPU, in double precision, and the same
    ``random_state`` gives the same classifier.

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
        validation_nll_: Of the rows held out, if there were any with ``early_stopping``; else None.
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
        self.random_state = random_state

    # --- training ---

    def fit(self, X: Any, y: Any, sample_weight: Any = None, X_unlabelled: Any = None) -> "SummaryClassifier":
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

        Returns:
            The classifier. If training fails or is interrupted, it is left as it was before.
        """
        before = dict(vars(self))
        try:
            self._fit(X, y, sample_weight, X_unlabelled)
        except BaseException:  # what was fitted earlier stays whole, and what was not stays unfitted
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        return self

    def _fit(self, X: Any, y: Any, sample_weight: Any, X_unlabelled: Any) -> None:
        check_settings(self)
        believes = METHODS[self.method].believes
        if X_unlabelled is not None and not believes:
            raise ValueError(
                f"`X_unlabelled` is for a method with a summary, which speaks of it, but the method is {self.method!r}"
            )
        rows, self.classes_, self._scale = take_in(
            self, X, y, sample_weight, X_unlabelled, marker=self.unlabelled_label, believes=believes
        )
        self.n_unlabelled_ = 0 if rows.unlabelled is None else len(rows.unlabelled)
        self._seed = self._draw_seed()
        fractions = class_fractions(self, self.classes_, rows)
        for doubt in doubts(self, self.classes_, fractions):
            warnings.warn(doubt, UserWarning, stacklevel=3)
        with few_threads(rows, self.hidden, self.batch_size):
            if not believes:
                trained = self._train(*self._divided(rows), fractions, None)
            elif isinstance(self.concentration, str):
                trained = self._train_with_best_trust(rows, fractions)
            else:
                train, val = self._divided(rows)
                trained = self._compared(self._train(train, val, fractions, self._trust(rows)), val)
        check = trained.result.label_check
        if check is not None and check.below_majority:
            warnings.warn(str(check), UserWarning, stacklevel=3)
        if trained.shortfall is not None:
            warnings.warn(f"{trained.shortfall}.", UserWarning, stacklevel=3)
        self.network_, self._objective = trained.network, trained.objective
        self.label_shift_ = trained.label_shift
        self.summary_ = trained.summaries[0] if trained.summaries else None
        self.concentration_ = trained.concentration
        self.n_iter_ = trained.result.selected_step
        self.loss_curve_ = trained.result.curve[:, 0].numpy()
        self.validation_nll_ = trained.result.val_nll

    def _trust(self, rows: Rows) -> float:
        """The concentration that was given, limited to the labels, or the default."""
        if self.concentration is None:
            stated = self.accuracy, self.class_fractions, self.belief
            if rows.unlabelled is None and all(each is None for each in stated):
                return MOST_TRUST  # what the labels say themselves; with less the NLL was higher (docs/measurements.md)
            return trust_for(rows.total, elsewhere=rows.unlabelled is not None)
        given = float(self.concentration)
        if given <= rows.total or self.overrule_labels:
            return given
        warnings.warn(
            f"the concentration {given:g} exceeds the number of labelled rows, so {rows.total:g} is used and the "
            "belief weighs as much as the labels; pass overrule_labels=True to keep it",
            UserWarning,
            stacklevel=4,
        )
        return rows.total

    def _divided(self, rows: Rows, *, always: bool = False) -> tuple[Rows, Rows | None]:
        """Rows to train on, and those held out if there is a use for them."""
        if not (self.early_stopping or always):
            return rows, None
        kept, held_out = stratified_split(rows.labels, self.validation_fraction, seed=self._seed)
        return rows[kept], rows[held_out]

    def _train_with_best_trust(self, rows: Rows, fractions: Sequence[float]) -> _Trained:
        """``concentration="auto"``: the lowest validation NLL decides."""
        train, val = self._divided(rows, always=True)
        trials = {share: self._train(train, val, fractions, share * train.total) for share in TRUST_GRID}
        best = min(trials, key=lambda share: trials[share].result.val_nll or 0.0)
        tried = self._compared(trials[best], val)
        if self.early_stopping:
            return tried
        return replace(self._train(rows, None, fractions, best * rows.total), shortfall=tried.shortfall)

    def _train(self, rows: Rows, val: Rows | None, fractions: Sequence[float], concentration: float | None) -> _Trained:
        widths = (rows.inputs.shape[1], *self.hidden, len(fractions))
        network: nn.Module = MLP(widths, generator=generator_for(self._seed, "weights"))
        if METHODS[self.method].bayesian:
            network = to_bayesian(network, prior_std=self.prior_std, init_std=INIT_STD)
        summaries: list[SummaryLikelihood] = []
        if concentration is not None:
            summaries = summaries_for(
                fractions,
                stated=self.class_fractions is not None,
                accuracy=self.accuracy,
                concentration=concentration,
                belief=self.belief,
                partition=self.partition,
                fraction_uncertainty=self._uncertainty(rows, fractions),
            )
        shift = self._label_shift(rows, fractions)
        objective, result = self._run(network.double(), rows, val=val, summaries=summaries, label_shift=shift)
        return _Trained(network.eval(), objective, result, summaries, concentration, shift)

    def _label_shift(self, rows: Rows, fractions: Sequence[float]) -> LabelShift | None:
        """What differs between labelled and unlabelled rows, if class fractions are stated about the latter."""
        if rows.unlabelled is None or self.class_fractions is None or not METHODS[self.method].believes:
            return None
        return LabelShift.from_labels(rows.labels, fractions, weights=rows.weights)

    def _uncertainty(self, rows: Rows, fractions: Sequence[float]) -> float:
        """How far the class fractions may be off: as stated; if not, a little where they are about unlabelled rows."""
        if self.fraction_uncertainty is not None:
            return float(self.fraction_uncertainty)
        about_unlabelled = rows.unlabelled is not None and self.class_fractions is not None
        return uncertainty_for(fractions) if about_unlabelled else 0.0

    def _compared(self, trained: _Trained, held_out: Rows | None) -> _Trained:
        """The same, with what the rows held out say of the stated accuracy if it is about such rows."""
        # weighted rows are no sample of single cases
        if held_out is None or held_out.unlabelled is not None or held_out.weights is not None:
            return trained
        stated = trained.summaries[0].describe().accuracy
        if stated is None:
            return trained
        seen = self._predict_rows(trained.network, trained.objective, held_out.inputs)
        verdict = check_accuracy(stated, seen.classes == held_out.labels)
        return replace(trained, shortfall=shortfall(verdict, held_out.labels))

    def _run(
        self,
        network: nn.Module,
        rows: Rows,
        *,
        val: Rows | None,
        summaries: list[SummaryLikelihood],
        label_shift: LabelShift | None,
    ) -> tuple[Objective, FitResult]:
        """Training, in place."""
        per_row = len(rows.labels) / rows.total  # what is said once, of rows that count more or less than once
        objective = objective_for(
            self.method,
            num_data=len(rows.labels),
            steps=self.steps,
            summary=summaries[0] if len(summaries) == 1 else summaries or None,
            kl_weight=self.kl_weight * per_row,
            summary_weight=per_row,
            label_shift=label_shift,
        )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="the network is correct on")  # said of the network that is kept
            return objective, fit(
                network,
                objective,
                rows.as_data(),
                None if val is None else val.as_data(),
                unlabelled=rows.unlabelled if summaries else None,
                steps=self.steps,
                batch_size=self.batch_size,
                learning_rate=self.learning_rate,
                validation=Validation(
                    every=None if self.early_stopping else self.steps,
                    num_samples=VALIDATION_SAMPLES,
                    select="last" if val is None or not self.early_stopping else "best",
                ),
                seed=derive(self._seed, "training", self.method),
                callbacks=(),
            )

    def _draw_seed(self) -> int:
        if self.random_state is None:
            return int(np.random.default_rng().integers(2**31))
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    # --- prediction ---

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable label of each row, shape (rows,)."""
        numbers = self._predict(X).classes.numpy()  # before `classes_`: says what is wrong if there are none
        labels: NDArray[Any] = self.classes_[numbers]
        return labels

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of the classes, shape (rows, classes), columns in the order of ``classes_``."""
        probs = self._predict(X).probs
        table: NDArray[np.float64] = (probs / probs.sum(-1, keepdim=True)).numpy()
        return table

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """Logarithms of the probabilities, exact where a probability underflows."""
        log_probs: NDArray[np.float64] = self._predict(X).log_probs.numpy()
        return log_probs

    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Entropy and mutual information of each prediction, in nats.

        Args:
            X: Features, shape (rows, features).

        Returns:
            Two arrays of shape (rows,).
        """
        found = self._predict(X)
        return Uncertainty(found.entropy.numpy(), found.mutual_information.numpy())

    def _predict(self, X: Any) -> Prediction:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        found = self._predict_rows(self.network_, self._objective, self._scale(X))
        if self.label_shift_ is None:
            return found
        return found.with_log_probs(self.label_shift_.to_use(found.log_probs))

    def _predict_rows(self, network: nn.Module, objective: Objective, inputs: Tensor) -> Prediction:
        return posterior_predict(
            network, inputs, self.draws, objective=objective, generator=generator_for(self._seed, "prediction")
        )
