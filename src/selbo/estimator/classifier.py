"""The scikit-learn face: a classifier for tables of numbers that is told what its predictions should look like."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import nn

from selbo.data.splits import stratified_split
from selbo.estimator.rows import Rows, few_threads
from selbo.estimator.settings import check_settings, class_fractions, doubts
from selbo.evaluation.predict import Prediction
from selbo.evaluation.predict import predict as posterior_predict
from selbo.models import MLP
from selbo.nn import to_bayesian
from selbo.objectives import Objective
from selbo.objectives.methods import INIT_STD, METHODS, MOST_TRUST, objective_for, summary_for, trust_for
from selbo.seeding import derive, generator_for
from selbo.summary.beliefs import Belief
from selbo.summary.likelihood import SummaryLikelihood
from selbo.summary.partitions import Partition
from selbo.training import FitResult, fit

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

LABELS_FIRST: Final = 4
"""One part in so many of the steps is for the labels alone. Which cases belong to which class is for them to say: a
belief that outweighs them from the start is met by whatever the first weights point to (docs/sklearn.md)."""

WITHOUT_SUMMARY: Final = {"summary_elbo": "elbo", "plain_summary": "plain"}


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
    concentration: float | None


class SummaryClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A neural classifier that is told what its predictions should look like, for use with scikit-learn.

    Say what you know of the task, in one number or two: how many cases can be decided rightly (``accuracy``), and how
    frequent each class is (``class_fractions``). A multilayer perceptron with a posterior over its weights is trained
    by the Summary ELBO, so that its probabilities, taken together, agree with that; the first quarter of the
    steps is for the labels alone. Features are standardised inside; categories have to be encoded as numbers before.
    Everything runs on the CPU, in double precision, and the same ``random_state`` gives the same classifier.

    Rows without labels can be given to `fit`, marked in ``y`` or apart; they may come from another place than the
    labels do. The belief is then about them, and not about the labelled rows.

    With nothing stated, ``SummaryClassifier()`` only believes that classes are predicted as often as they occur in the
    training labels: no claim about confidence is made, and it behaves like a Bayesian network without a summary.

    Args:
        accuracy: Share of cases that can be decided rightly, strictly between 1/K and 1.
        class_fractions: Fraction of each class where the model will be used, in the order of ``classes_``, or as a
            mapping from label to fraction; those of the training labels if not given.
        concentration: Trust in the belief, in pseudo-observations. If not given, as many as there are labelled rows,
            but 1000 at most unless the belief is about unlabelled ones; and 1000 if nothing is stated of the labelled
            ones, and the belief is what their labels say. Or ``"auto"``: four values, 1/100, 1/10, 1 and 10 for each
            labelled row, are tried with a ``validation_fraction`` held out, and the one with the lowest validation NLL
            is used to train on all rows (with ``early_stopping`` the classifier of that trial is kept). That takes five
            times as long (four times with ``early_stopping``).
        belief: A belief such as `selbo.Beta`, in the place of ``accuracy`` and ``class_fractions``.
        partition: Regions such as `selbo.ScoreBins`; if not given, ten equal bins of the score for two classes,
            `CornerShells` for up to 20, `ConfidenceBins` beyond, and `ClassRegions` if only classes are spoken of.
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
        validation_fraction: Share of each class to hold out, for ``early_stopping`` and ``concentration="auto"``.
        unlabelled_label: What stands in ``y`` for a row without label: -1, as elsewhere in scikit-learn, or a word such
            as ``"unknown"``; or False: every label is a class. If not given, -1 is no class beside two or more others,
            and a warning says so.
        random_state: Of everything random: a whole number, a RandomState, or None for another outcome each time.
            Numpy's global state is not used.

    Attributes:
        classes_: Labels, in the order of the columns of `predict_proba`.
        n_features_in_: Number of features.
        feature_names_in_: Their names, if those of the training data are all text.
        n_unlabelled_: Number of rows without label that the belief is about; 0 if it is about the training rows.
        concentration_: The concentration that was used; None if the method does not believe.
        n_iter_: Step that the weights are from.
        loss_curve_: Loss of each step with the summary, or of each step if there is none.
        validation_nll_: Of the rows held out, if there were any with ``early_stopping``; else None.
        network_: The trained network, in double precision, for standardised features.
        summary_: The `selbo.SummaryLikelihood` that was used, or None.

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
                trained = self._train(*self._divided(rows), fractions, self._trust(rows))
        self.network_, self._objective = trained.network, trained.objective
        self.summary_, self.concentration_ = getattr(trained.objective, "summary", None), trained.concentration
        self.n_iter_ = self.steps - trained.result.steps + trained.result.selected_step
        self.loss_curve_ = trained.result.curve[:, 0].numpy()
        self.validation_nll_ = trained.result.val_nll

    def _trust(self, rows: Rows) -> float:
        """The concentration that was given, or what stands for none."""
        if self.concentration is not None:
            return float(self.concentration)
        stated = self.accuracy, self.class_fractions, self.belief
        if rows.unlabelled is None and all(each is None for each in stated):
            return MOST_TRUST  # what the labels say themselves; with less the NLL was higher (docs/measurements.md)
        return trust_for(rows.total, elsewhere=rows.unlabelled is not None)

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
        return trials[best] if self.early_stopping else self._train(rows, None, fractions, best * rows.total)

    def _train(self, rows: Rows, val: Rows | None, fractions: Sequence[float], concentration: float | None) -> _Trained:
        widths = (rows.inputs.shape[1], *self.hidden, len(fractions))
        network: nn.Module = MLP(widths, generator=generator_for(self._seed, "weights"))
        if METHODS[self.method].bayesian:
            network = to_bayesian(network, prior_std=self.prior_std, init_std=INIT_STD)
        summary = None
        if concentration is not None:
            summary = summary_for(
                fractions,
                accuracy=self.accuracy,
                concentration=concentration,
                belief=self.belief,
                partition=self.partition,
            )
        first = self.steps // LABELS_FIRST if summary is not None else 0
        if first > 0:
            self._run(WITHOUT_SUMMARY[self.method], network.double(), rows, steps=first)
        objective, result = self._run(
            self.method, network.double(), rows, val=val, summary=summary, steps=self.steps - first
        )
        return _Trained(network.eval(), objective, result, concentration)

    def _run(
        self,
        method: str,
        network: nn.Module,
        rows: Rows,
        *,
        val: Rows | None = None,
        summary: SummaryLikelihood | None = None,
        steps: int,
    ) -> tuple[Objective, FitResult]:
        """Some steps of training by a method, in place."""
        per_row = len(rows.labels) / rows.total  # what is said once, of rows that count more or less than once
        objective = objective_for(
            method,
            num_data=len(rows.labels),
            steps=steps,
            summary=summary,
            kl_weight=self.kl_weight * per_row,
            summary_weight=per_row,
        )
        return objective, fit(
            network,
            objective,
            rows.as_data(),
            None if val is None else val.as_data(),
            unlabelled=None if summary is None else rows.unlabelled,
            steps=steps,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            select="last" if val is None or not self.early_stopping else "best",
            val_samples=VALIDATION_SAMPLES,
            eval_every=None if self.early_stopping else steps,
            seed=derive(self._seed, "training", method),
            progress=False,
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
        return posterior_predict(
            self.network_,
            self._scale(X),
            self.draws,
            objective=self._objective,
            generator=generator_for(self._seed, "prediction"),
        )
