"""The scikit-learn interface: a classifier for numeric tables, trained with a belief about its predictions."""

import copy
import os
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from selbo.estimator.abstaining import answer_or_abstain
from selbo.estimator.group_doubts import doubt_groups, hardly_different
from selbo.estimator.group_intake import GroupStatement
from selbo.estimator.intake import take_in, take_in_groups, take_in_inputs, take_in_val
from selbo.estimator.pool import POOL_PRIOR, FittedPool, Pool, fit_pool
from selbo.estimator.rows import GroupRows, Rows, few_threads, resampled, score_by_groups
from selbo.estimator.settings import (
    POOL_BASE,
    WHOLE_GROUPS,
    check_for_groups,
    check_settings,
    choose_base,
    doubts,
    resolve_class_fractions,
    steps_for,
)
from selbo.evaluation.belief_calibration import TEMPERATURE_PRIOR, BeliefCalibration, fit_to_belief
from selbo.evaluation.check_belief import check_accuracy, shortfall
from selbo.evaluation.decide import Abstention
from selbo.evaluation.predict import Prediction
from selbo.evaluation.predict import predict as posterior_predict
from selbo.models import MLP
from selbo.nn import to_bayesian
from selbo.objectives import LabelShift, Objective
from selbo.posteriors import NaturalGradientPosterior
from selbo.presets import (
    INIT_STD,
    METHODS,
    MOST_CONCENTRATION,
    NATURAL_GRADIENT,
    TABULAR_RATE,
    default_concentration,
    natural_gradient_for,
    objective_for,
    summaries_for,
)
from selbo.random import derive, generator_for
from selbo.summary.beliefs import Belief
from selbo.summary.elicitation import uncertainty_for
from selbo.summary.grouped import GroupedSummary
from selbo.summary.likelihood import SummaryLikelihood
from selbo.summary.partitions import Partition
from selbo.training import Callback, Checkpoint, Diverged, FitResult, JsonLines, Progress, Validation, fit
from selbo.training.callbacks import Start
from selbo.training.stratified import stratified_split
from selbo.training.validation import Selection

CONCENTRATION_GRID: Final = (0.01, 0.1, 1.0, 10.0)
"""Concentrations per training row that ``"auto"`` tries."""

GROUP_CONCENTRATIONS: Final = tuple(round(10 ** (k / 4), 1) for k in range(2, 17))
"""Concentrations of groups that ``"auto"`` considers: 3 to 10 000, where the difference to exact fractions vanishes."""

COUNTED: Final = 10_000.0
"""Concentration of fractions that held-out groups choose by: a smaller one does not see that predictions are
overconfident."""

GROUP_FOLDS: Final = 5

KL_WEIGHTS: Final = (0.1, 0.03, 0.01)
"""Weights of the KL divergence that held-out groups choose from. The first is that of a fit with labels."""

KL_FOLDS: Final = 4
"""One of so many parts of the groups is held out to choose the weight of the KL divergence."""

TRIAL_STEPS: Final = 500
"""Fewest steps of a trial: with 125, networks of large groups had learned too little to be compared."""

EARLY_VALIDATIONS: Final = 50
"""Validations of a fit with early stopping, however many steps an epoch has."""

POOL_PARTS: Final = 100
"""Parts of the progress of a pool."""

VALIDATION_SAMPLES: Final = 16
"""Weight samples per validation."""

GROUP_TOLERANCE: Final = 0.02
"""Warn if predictions miss the fractions of groups by so much more than constant predictions do."""

CHECKPOINT_SECONDS: Final = 5.0
"""Seconds between checkpoints: the most training time lost if a fit is killed."""


class Uncertainty(NamedTuple):
    """How uncertain each prediction is, in nats, two arrays of shape (rows,).

    Attributes:
        entropy: Entropy of the predicted probabilities: the total uncertainty.
        mutual_information: The part due to uncertainty about the weights, which more data would reduce. Zero for
            deterministic networks.
    """

    entropy: NDArray[np.float64]
    mutual_information: NDArray[np.float64]


class Statement(NamedTuple):
    """The belief of a classifier about its data, in numbers.

    Attributes:
        class_fractions: Fraction of each class: as stated, or that of the labels.
        fraction_uncertainty: Uncertainty of each fraction.
        summaries: One `SummaryLikelihood`, or two: of confidence and of class fractions. Methods without a summary do
            not use them in training. Empty if only groups are stated.
        groups: The `GroupedSummary` of the fractions of groups, or None.
    """

    class_fractions: list[float]
    fraction_uncertainty: float
    summaries: list[SummaryLikelihood]
    groups: GroupedSummary | None = None


class _Running(NamedTuple):
    """Options of a fit that do not change its result."""

    checkpoint: Checkpoint | None
    callbacks: list[Callback]
    logs: bool


class _Plan(NamedTuple):
    """What is stated or chosen for one training run."""

    steps: int
    kl_weight: float
    scores: dict[float, float] | None = None
    """Log-likelihood per held-out group of each weight that was tried."""


@dataclass(frozen=True)
class _Trained:
    network: nn.Module
    objective: Objective
    result: FitResult
    summaries: list[SummaryLikelihood]
    concentration: float | None
    label_shift: LabelShift | None
    shortfall: str | None
    """A warning if the accuracy on held-out rows is clearly below the stated one."""
    groups: GroupedSummary | None
    plan: _Plan


class SummaryClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier of tables with a belief about its predictions, for use with scikit-learn.

    State what you know about the task: the expected accuracy (``accuracy``), the class fractions (``class_fractions``),
    or both. The classifier is a pool, unless ``base`` or another parameter requires a network: a linear classifier, two
    forests and five networks, weighted by the likelihood of labels that they have not seen. Its predictions are then
    corrected so that they agree with the belief and with the labels of held-out rows (`selbo.calibrate_to_belief`).

    With ``base="network"``, it is a multilayer perceptron with a posterior over its weights. It is trained by the
    Summary ELBO, so that the distribution of its predicted probabilities agrees with the belief. The first quarter of
    the steps uses the labels only, because a belief does not determine which class is which.

    Features are standardised internally, except those that hold only zeros and ones. A missing value, NaN, is replaced
    by the median of its feature; if values are missing in training, an indicator is added. In a data frame, text
    and categories become one input per category: rare ones, and those that training did not have, are pooled, and
    missing ones have their own. The same ``random_state`` gives the same classifier. The command ``selbo train``
    preprocesses a file and trains this classifier.

    No labels are needed if you know the class fractions of groups of rows, such as the vote of each state:
    pass ``groups`` and ``group_fractions`` to `fit`. The classifier of individuals is then learned from the differences
    between groups (docs/tutorials/groups.md).

    You can pass unlabelled rows to `fit`, either marked in ``y`` or as ``X_unlabelled``. They may come from another
    domain than the labelled rows. The belief is then about the unlabelled rows, not about the labelled ones. If
    ``class_fractions`` are stated too, the classifier is trained on the labels as they are, and predictions are
    corrected for the difference between the class fractions of the labels and the stated ones. Those of a network are
    corrected by `selbo.LabelShift`; those of a pool so that their mean for the unlabelled rows comes closer to the
    statement, the more so the fewer the labels and the smaller ``fraction_uncertainty``. The predictions are then valid
    for the domain of the unlabelled rows.

    If nothing is stated, the predictions of a pool are not corrected, and the belief of a network is that classes are
    predicted as often as they occur in the training labels.

    Args:
        accuracy: Expected accuracy: share of cases that can be classified correctly, strictly between 1/K and 1. With
            groups it corrects the predictions after training, unless you pass a ``partition``.
        class_fractions: Fraction of each class in the target domain, in the order of ``classes_``, or as a mapping from
            label to fraction; those of the training labels if not given.
        concentration: Prior strength of the belief, in pseudo-observations. If not given, it is the number of labelled
            rows, but at most 1000, for a belief about labelled rows. For a belief about unlabelled rows it is 1000 for
            a pool, and .3 per labelled row for a network, whose training it is part of. With ``"auto"``, a
            ``validation_fraction`` is held out, four values are tried, .01, .1, 1 and 10 per labelled row, and the one
            with the lowest validation NLL is used to train on all rows (with ``early_stopping`` the classifier of that
            trial is kept). This takes five times as long (four times with ``early_stopping``).
        belief: A belief such as `selbo.Beta`, instead of ``accuracy`` and ``class_fractions``.
        partition: Regions such as `selbo.ScoreBins`. If not given, ten equal bins of the score for two classes,
            `CornerShells` for up to 20 classes, `ConfidenceBins` for more (in addition to `ClassRegions` if class
            fractions are stated), and `ClassRegions` if the belief is only about class fractions.
        base: ``"pool"``, ``"network"``, or ``"auto"``: a pool, unless there are groups or one of the parameters below,
            up to ``prior_std``, ``belief``, ``partition``, ``early_stopping``, ``overrule_labels`` or ``device``
            differs from its default. These are for networks.
        method: ``"summary_elbo"``; or, as a baseline, ``"elbo"``, ``"plain"``, ``"plain_summary"``,
            ``"label_smoothing"`` or ``"evidential"``. Methods without a summary ignore the belief.
        posterior: How ``"summary_elbo"`` and ``"elbo"`` train the posterior over the weights: ``"mean_field"`` by
            backpropagation, or ``"natural_gradient"`` (`selbo.NaturalGradient`). Both maximise the same objective.
        hidden: Widths of the hidden layers; () for a linear classifier.
        steps: Number of training steps. If not given, 2000; with groups and no labels 500, or more for tables of more
            than 50 batches: ten passes over the rows, up to 2000.
        batch_size: Rows per step. If there are no more rows than that, every step uses all of them, and a row with
            weight 2 is the same as the row twice.
        learning_rate: Learning rate. If not given, .001 for Adam, and .1 for a natural gradient, where it decreases to
            zero (a cosine).
        kl_weight: Weight of the KL divergence; below one the posterior is tempered. If not given, .1 with labels,
            for a natural gradient, or with fewer than four groups. Otherwise, with groups alone, .1, .03 and .01 are
            tried, each without a quarter of the groups and with a quarter of the steps (at least 500, or all of fewer).
            The one that makes the fractions of these groups most likely, as if they were counted, is used to train on
            all groups. This takes two to four times as long.
        prior_std: Standard deviation of the prior over weights.
        num_samples: Weight samples per prediction; always the same ones, so that predictions do not vary between calls.
        early_stopping: Hold out a ``validation_fraction`` of the labelled rows and keep the weights of the step with
            the lowest NLL on it. Training still runs for all steps. If there are groups and no labels, a share of each
            group is held out, and the stated fractions select the step; with ``"groups"``, a share of the groups.
        validation_fraction: Share of each class to hold out, for ``early_stopping`` and ``concentration="auto"``. A
            warning is issued if the accuracy on these rows is clearly below the stated one.
        unlabelled_label: Value in ``y`` that marks unlabelled rows: -1, as elsewhere in scikit-learn, or a string such
            as ``"unknown"``; or False if every label is a class. If not given and there are at least two other labels,
            -1 marks unlabelled rows, with a warning.
        overrule_labels: Keep a ``concentration`` above the number of labelled rows. Use it for beliefs that are known
            to be right, such as counted class fractions. Otherwise the concentration is lowered to that number, with a
            warning.
        fraction_uncertainty: Uncertainty of each class fraction, if no accuracy or belief is stated: with .05, a
            fraction of .5 allows any from .45 to .55. If not given, .05 or half of the smallest fraction, whichever
            is less, if the fractions are stated about unlabelled rows, else 0. A pool uses it for unlabelled rows only;
            the labels of held-out rows stand against the statement otherwise.
        device: Device to train and predict on: ``"cpu"``, or another torch device.
        random_state: Seed for all randomness: an integer, a RandomState, or None for a different result each time.
            Numpy's global state is not used.

    Attributes:
        classes_: Labels, in the order of the columns of `predict_proba`.
        n_features_in_: Number of features.
        feature_names_in_: Names of the features, if all names in the training data are strings.
        base_: What was trained, ``"pool"`` or ``"network"``.
        calibration_: The `selbo.BeliefCalibration` that corrects the predictions of a pool, or None.
        held_out_log_proba_: Log-probabilities of the labelled training rows, each by members of the pool that were not
            trained on it, before the correction, shape (labelled rows, classes). None for a network, and for a
            classifier that was loaded from a file.
        n_unlabelled_: Number of unlabelled rows that the belief is about; 0 if it is about the training rows. With
            groups, the number of rows without a label.
        concentration_: The concentration that was used; None if the method uses no belief, or one about groups only.
        kl_weight_: The weight of the KL divergence that was used; None for a pool or a deterministic network.
        kl_scores_: Mean log-likelihood of the fractions of a held-out group for each ``kl_weight`` that was tried; None
            if none was.
        label_shift_: The `selbo.LabelShift` that corrects the predictions, or None.
        n_iter_: Step of the selected weights of a network.
        loss_curve_: Loss of each step of a network.
        validation_nll_: NLL of the labels of held-out rows: of ``X_val`` if it is given, else of the rows held out by
            ``early_stopping``, or by the cross-validation of a pool; else None.
        seconds_: Time of the fit in seconds, with all trainings that choose settings; for a resumed fit, the total.
        seed_: Seed drawn from ``random_state``; predictions use it too.
        scale_: Mean and standard deviation used to standardise features, and medians for missing values.
        encoder_: Encodes the columns of a data frame with text or categories; None if all columns were numbers.
        network_: The trained network or pool, a torch module for standardised features.
        summary_: The `selbo.SummaryLikelihood` that was used, or None. With more than 20 classes, an accuracy and class
            fractions, it is the one of the accuracy.
        groups_: Names of the groups, in the order of ``group_summary_``; None without groups.
        group_summary_: The `selbo.GroupedSummary` that was used, or None.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> classifier = SummaryClassifier(
        ...     accuracy=0.95, concentration=150.0, steps=100, learning_rate=0.01, random_state=0
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
        base: str = "auto",
        method: str = "summary_elbo",
        posterior: str = "mean_field",
        hidden: Sequence[int] = (128,),
        steps: int | None = None,
        batch_size: int = 256,
        learning_rate: float | None = None,
        kl_weight: float | None = None,
        prior_std: float = 0.2,
        num_samples: int = 128,
        early_stopping: bool | str = False,
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
        self.base = base
        self.method = method
        self.posterior = posterior
        self.hidden = hidden
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.kl_weight = kl_weight
        self.prior_std = prior_std
        self.num_samples = num_samples
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.unlabelled_label = unlabelled_label
        self.overrule_labels = overrule_labels
        self.fraction_uncertainty = fraction_uncertainty
        self.device = device
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that values may be missing."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    # --- training ---

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        X_unlabelled: Any = None,
        *,
        groups: Any = None,
        group_fractions: Any = None,
        group_concentration: "float | str | Mapping[Any, float] | None" = None,
        group_sizes: "Mapping[Any, int] | None" = None,
        classes: "Sequence[Any] | None" = None,
        X_val: Any = None,
        y_val: Any = None,
        checkpoint: "str | os.PathLike[str] | None" = None,
        log: "str | os.PathLike[str] | None" = None,
        progress: bool | None = False,
    ) -> "SummaryClassifier":
        """Train on a table of numbers and its labels, or on the class fractions of groups of its rows.

        Unlabelled rows, marked in ``y`` or passed as ``X_unlabelled``, are combined; the belief is then about them.
        Methods without a summary ignore marked rows.

        Args:
            X: Features, shape (rows, features): an array, or a pandas or polars data frame. NaN is a missing value.
            y: Labels, shape (rows,), of any type; at least two different ones. A row whose label is None, NaN or
                ``unlabelled_label`` is unlabelled. With ``groups``, all labels may be missing (None), or some of them:
                None, NaN, or -1 if it is not a class.
            sample_weight: Weight of each row, shape (rows,), in the standardisation, the class fractions, the
                likelihood and the histogram of the summary. Rows with weight 0 are left out; all other unlabelled rows
                have weight 1. With ``groups`` and some labels, weights are 0 or 1.
            X_unlabelled: Features of additional unlabelled rows, shape (more rows, features).
            groups: Group of each row, shape (rows,), of any type; None or NaN for none. Fractions are about all rows of
                a group, with and without label.
            group_fractions: Class fractions of each group, as a mapping from group to {class: fraction} or to a list of
                fractions in the order of ``classes``. Whole numbers are counts or percentages. For a pandas data frame,
                pass ``to_dict("index")`` of it.
            group_concentration: Concentration of the fractions, in pseudo-observations: one number, or a mapping from
                group to number, see `selbo.elicit_concentration`. If not given, 100, which stands for about plus or
                minus 10 points; or the number of rows of a smaller group, unless the fractions of all these are whole
                numbers of rows, which means that the rows were counted (not with a natural gradient). With ``"auto"``
                it is estimated, one number for all groups: five times, a fifth of the groups is held out, and the
                number is the one that makes their fractions most likely given the predictions for them. This takes
                six times as long, beside the choice of ``kl_weight``.
            group_sizes: Number of rows of each group that its fractions are about, as a mapping, if ``X`` holds only
                some of them. The default of ``group_concentration`` and warnings about too precise fractions use it.
            classes: Labels of the classes, for ``group_fractions`` given as lists. If not given, 0 to K - 1, or the
                sorted labels in ``y`` if these are others.
            X_val: Features of the validation rows, instead of a ``validation_fraction`` of the training rows.
            y_val: Labels of the validation rows.
            checkpoint: Checkpoint file of a network, written every few seconds. If it exists, training resumes from it,
                which requires the same data and settings. Remove it afterwards. Not supported with
                ``concentration="auto"``. What is chosen by held-out groups, ``group_concentration="auto"`` and
                ``kl_weight``, is chosen again, with the same result.
            log: File for JSON lines of a network: the terms of the objective, and the validation NLL if ``X_val`` is
                given.
            progress: Show a progress bar; None for one on a terminal only.

        Returns:
            The classifier. If training fails or is interrupted, the classifier is unchanged.
        """
        before, begin = dict(vars(self)), time.perf_counter()
        running = _Running(
            None if checkpoint is None else Checkpoint(checkpoint, every=CHECKPOINT_SECONDS),
            [Progress(progress), *([] if log is None else [JsonLines(log)])],
            logs=log is not None,
        )
        try:
            stated_groups = GroupStatement(groups, group_fractions, group_concentration, classes, group_sizes)
            rows, stated = self._take_in(X, y, sample_weight, X_unlabelled, stated_groups)
            self.seed_ = self._draw_seed()
            val = take_in_val(self, X_val, y_val, rows)
            self.base_ = choose_base(self, groups=rows.grouped is not None)
            if self.base_ == POOL_BASE:
                return self._fit_pool(rows, val, stated, running)
            trained = self._trained(rows, val, stated, running)
            check = trained.result.label_check
            if check is not None and check.below_majority:
                warnings.warn(str(check), UserWarning, stacklevel=2)
            if trained.shortfall is not None:
                warnings.warn(f"{trained.shortfall}.", UserWarning, stacklevel=2)
            if rows.grouped is not None and (doubt := self._doubt_groups(trained, rows.grouped)):
                warnings.warn(doubt, UserWarning, stacklevel=2)
            calibration: BeliefCalibration | None = None
            if rows.grouped is not None and METHODS[self.method].believes and self._corrects(rows):
                fractions = None if self.class_fractions is None else stated.class_fractions
                calibration = self._calibrated(trained, rows.grouped, fractions, self._concentration_for(rows))
        except BaseException:  # restore the earlier state, fitted or not
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        self.calibration_ = calibration
        self.held_out_log_proba_: NDArray[np.float64] | None = None
        self.network_ = trained.network
        self._objective: Objective | None = trained.objective
        self.label_shift_ = trained.label_shift
        self.summary_ = trained.summaries[0] if trained.summaries else None
        self.group_summary_ = trained.groups
        self.groups_ = None if rows.grouped is None else rows.grouped.names
        self.concentration_ = trained.concentration
        self._keep_plan(trained)
        self.n_iter_ = trained.result.selected_step
        self.loss_curve_ = trained.result.curve[:, 0].numpy()
        self.validation_nll_ = trained.result.val_nll if val is not None or len(rows.labels) else None
        self.seconds_ = trained.result.earlier_seconds + time.perf_counter() - begin
        return self

    def statement(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        X_unlabelled: Any = None,
        *,
        groups: Any = None,
        group_fractions: Any = None,
        group_concentration: "float | str | Mapping[Any, float] | None" = None,
        group_sizes: "Mapping[Any, int] | None" = None,
        classes: "Sequence[Any] | None" = None,
    ) -> Statement:
        """The belief about the given data, without training: to inspect it, or to find errors before a long fit.

        Takes the same arguments as `fit`, and raises the same errors and warnings as its start.

        Example:
            >>> stated = SummaryClassifier(accuracy=0.9).statement(
            ...     [[1.0], [2.0], [4.0]], ["a", "b", "b"]
            ... )
            >>> [round(each, 2) for each in stated.class_fractions], len(stated.summaries[0].s0)
            ([0.33, 0.67], 10)
        """
        other = copy.copy(self)
        stated_groups = GroupStatement(groups, group_fractions, group_concentration, classes, group_sizes)
        return other._take_in(X, y, sample_weight, X_unlabelled, stated_groups)[1]

    def _take_in(
        self, X: Any, y: Any, sample_weight: Any, X_unlabelled: Any, groups: GroupStatement
    ) -> tuple[Rows, Statement]:
        """Validate settings and data before training, and set classes and scale. Called by public methods."""
        check_settings(self)
        believes = METHODS[self.method].believes
        if X_unlabelled is not None and not believes:
            raise ValueError(
                f"`X_unlabelled` is for a method with a summary, which uses it, but the method is {self.method!r}"
            )
        if groups.is_given:
            check_for_groups(self, X_unlabelled)
            # a natural gradient diverges if small groups have a large concentration
            groups = groups._replace(recognise_counts=self.posterior != NATURAL_GRADIENT)
            rows, self.classes_, self.scale_ = take_in_groups(
                self, X, y, sample_weight, groups, marker=self.unlabelled_label
            )
        else:
            rows, self.classes_, self.scale_ = take_in(
                self, X, y, sample_weight, X_unlabelled, marker=self.unlabelled_label, believes=believes
            )
        self.n_unlabelled_ = rows.num_unlabelled
        fractions = resolve_class_fractions(self, self.classes_, rows)
        about_groups = [] if rows.grouped is None else doubt_groups(rows.grouped, alone=rows.groups_alone is not None)
        for doubt in [*doubts(self, self.classes_, rows, fractions), *about_groups]:
            warnings.warn(doubt, UserWarning, stacklevel=3)
        return rows, self._statement(rows, fractions, self._concentration_for(rows))

    def _statement(self, rows: Rows, fractions: list[float], concentration: float) -> Statement:
        uncertainty = self.fraction_uncertainty
        if uncertainty is None:
            about_unlabelled = rows.unlabelled is not None and self.class_fractions is not None
            uncertainty = uncertainty_for(fractions) if about_unlabelled else 0.0
        groups = None if rows.grouped is None else rows.grouped.summary()
        if groups is not None and not self._states_something:
            return Statement(fractions, uncertainty, [], groups)
        summaries = summaries_for(
            fractions,
            stated=self.class_fractions is not None,
            accuracy=self.accuracy,
            concentration=concentration,
            belief=self.belief,
            partition=self.partition,
            fraction_uncertainty=uncertainty,
        )
        return Statement(fractions, uncertainty, summaries, groups)

    @property
    def _states_something(self) -> bool:
        """Whether there is a belief about all rows, apart from groups."""
        return any(each is not None for each in (self.accuracy, self.class_fractions, self.belief))

    def _corrects(self, rows: Rows) -> bool:
        """Whether a stated accuracy corrects the predictions after training instead of being a term of it.

        As a term of the training beside groups, a true accuracy made predictions worse
        (docs/reference/measurements-groups.md). A partition of one's own asks for the term.
        """
        return rows.grouped is not None and self.accuracy is not None and self.partition is None

    def _concentration_for(self, rows: Rows) -> float:
        """The given concentration, limited to the number of labels, or the default."""
        if self.concentration is None or isinstance(self.concentration, str):
            if rows.unlabelled is None and not self._states_something:
                return MOST_CONCENTRATION  # the belief repeats the labels; see docs/reference/measurements-defaults.md
            return default_concentration(rows.evidence, elsewhere=rows.unlabelled is not None)
        return float(self.concentration if self.overrule_labels else min(self.concentration, rows.evidence))

    def _fit_pool(self, rows: Rows, val: Rows | None, stated: Statement, running: _Running) -> "SummaryClassifier":
        """Train a pool on the labels, and correct its predictions so that they agree with the belief."""
        begin, progress = time.perf_counter(), running.callbacks[0]
        progress.on_start(Start(POOL_PARTS, 0, ()))
        try:
            fitted = fit_pool(
                rows.inputs,
                rows.labels,
                len(self.classes_),
                row_weights=None if rows.weights is None else rows.weights * len(rows.labels) / rows.total,
                seed=self.seed_,
                report=lambda share: progress.on_progress(round(share * POOL_PARTS), {}),
            )
        finally:
            progress.on_end()
        self.network_, self._objective = fitted.pool, None
        self.label_shift_, self.calibration_ = self._correction(rows, stated, fitted)
        self.summary_ = stated.summaries[0] if self._states_something else None
        self.concentration_ = self._pool_concentration(rows) if self._states_something else None
        self.kl_weight_: float | None = None
        self.kl_scores_: dict[float, float] | None = None
        self.group_summary_, self.groups_, self.n_iter_ = None, None, 1
        self.loss_curve_ = np.empty(0)
        held_out, labels = fitted.held_out, rows.labels
        self.held_out_log_proba_ = held_out.numpy()
        if val is not None:
            held_out, labels = self.network_.predict(val.inputs).log_probs, val.labels
        self.validation_nll_ = -float(held_out[torch.arange(len(labels)), labels].mean())
        self.seconds_ = time.perf_counter() - begin
        return self

    def _correction(
        self, rows: Rows, stated: Statement, fitted: FittedPool
    ) -> tuple[LabelShift | None, BeliefCalibration | None]:
        """The correction of a pool by the belief: about the unlabelled rows, else about held-out labelled ones."""
        if not self._states_something:
            return None, None
        labels = None
        if rows.unlabelled is None:
            like_weights = rows.resampled()
            log_probs, labels = fitted.held_out[like_weights], rows.labels[like_weights]
            if self.accuracy is not None and rows.weights is None:
                seen = check_accuracy(self.accuracy, log_probs.argmax(-1) == labels)
                if (short := shortfall(seen, labels)) is not None:
                    warnings.warn(f"{short}.", UserWarning, stacklevel=4)
        else:
            log_probs = fitted.pool.predict(rows.unlabelled).log_probs
        fractions = stated.class_fractions if self.class_fractions is not None else None
        counts = None
        if labels is None and fractions is not None and self.accuracy is None:
            counts = torch.bincount(rows.labels, rows.weights, minlength=len(self.classes_)).tolist()
        try:
            found = fit_to_belief(
                log_probs,
                accuracy=self.accuracy,
                class_fractions=fractions,
                concentration=self._pool_concentration(rows),
                labels=labels,
                label_counts=counts,
                fraction_uncertainty=None if counts is None else stated.fraction_uncertainty,
                prior_strength=TEMPERATURE_PRIOR if labels is None else POOL_PRIOR,
            ).calibration
        except ValueError as error:
            left = "predictions are left as they are"
            shift = None
            if fractions is not None and labels is None:
                shift = LabelShift.from_labels(rows.labels, fractions, weights=rows.weights)
                left = "predictions are corrected by the class fractions of the labels and the stated ones alone"
            warnings.warn(f"{error}; {left}", UserWarning, stacklevel=4)
            return shift, None
        return None, found

    def _pool_concentration(self, rows: Rows) -> float:
        """The given concentration, or 1000 for unlabelled rows, or the number of labelled rows up to 1000."""
        if self.concentration is None:
            return MOST_CONCENTRATION if rows.unlabelled is not None else min(rows.evidence, MOST_CONCENTRATION)
        return float(self.concentration)

    def _trained(self, rows: Rows, val: Rows | None, stated: Statement, running: _Running) -> _Trained:
        """Train once, or once per concentration to try; returns the network to keep."""
        choose = METHODS[self.method].believes and isinstance(self.concentration, str)
        if choose and running.checkpoint is not None:
            raise ValueError(
                "`checkpoint` supports a single training run, but concentration='auto' trains several times"
            )
        plan = self._plan(rows, running)
        if rows.grouped is not None and rows.grouped.estimated:
            found = self._estimate_concentration(rows, running, plan)
            rows = replace(rows, grouped=rows.grouped.with_concentration(found))
            stated = self._statement(rows, stated.class_fractions, self._concentration_for(rows))
        train, alone = rows, rows.groups_alone
        if val is None and choose and alone is not None:
            raise ValueError("`concentration` must be a number if there are no labels to choose it by, but is 'auto'")
        if val is None and self.early_stopping and alone is not None:
            train, val = (
                replace(rows, grouped=each)
                for each in alone.split(
                    self.validation_fraction, seed=self.seed_, whole=self.early_stopping == WHOLE_GROUPS
                )
            )
        elif val is None and (self.early_stopping or choose):
            kept, held_out = stratified_split(rows.labels, self.validation_fraction, seed=self.seed_)
            train, val = rows[kept], rows[held_out]
        with few_threads(rows, self.hidden, self.batch_size):
            if not choose:
                return self._compared(self._train(train, val, stated, running, plan), val)
            trials = {}
            for share in CONCENTRATION_GRID:
                trial = self._statement(train, stated.class_fractions, share * train.total)
                trials[share] = self._train(train, val, trial, running, plan)
            best = min(trials, key=lambda share: trials[share].result.val_nll or 0.0)
            tried = self._compared(trials[best], val)
            if self.early_stopping or train is rows:
                return tried
            final = self._statement(rows, stated.class_fractions, best * rows.total)
            return replace(self._train(rows, None, final, running, plan), shortfall=tried.shortfall)

    def _plan(self, rows: Rows, running: _Running) -> _Plan:
        """Steps and weight of the KL divergence; held-out groups choose the weight if there is no label."""
        steps = steps_for(self, rows)
        if self.kl_weight is not None:
            return _Plan(steps, float(self.kl_weight))
        alone, mean_field = rows.groups_alone, METHODS[self.method].bayesian and self.posterior != NATURAL_GRADIENT
        folds = alone.folds(KL_FOLDS, seed=self.seed_) if alone is not None and mean_field else []
        if len(folds) < KL_FOLDS:
            return _Plan(steps, KL_WEIGHTS[0])
        trial_steps = min(steps, max(TRIAL_STEPS, steps // 4))
        scores: dict[float, float] = {}
        for weight in KL_WEIGHTS:
            try:
                held_out, log_probs = self._predict_fold(rows, folds[0], running, _Plan(trial_steps, weight))
            except Diverged:
                continue  # not a candidate
            counted = held_out.with_concentration(COUNTED).summary()
            by_group = counted.by_group(log_probs, held_out.groups, held_out.weights)
            scores[weight] = float(by_group.sum()) / len(folds[0])
        return _Plan(steps, max(scores, key=lambda each: scores[each], default=KL_WEIGHTS[0]), scores)

    def _keep_plan(self, trained: _Trained) -> None:
        """Set the attributes that say with which weight of the KL divergence a network was trained."""
        self.kl_weight_ = trained.plan.kl_weight if METHODS[self.method].bayesian else None
        self.kl_scores_ = trained.plan.scores

    def _predict_fold(self, rows: Rows, fold: Tensor, running: _Running, plan: _Plan) -> tuple[GroupRows, Tensor]:
        """Held-out groups, and log-probabilities of their rows by a network that is trained on the other groups."""
        assert rows.grouped is not None
        train = replace(rows, grouped=replace(rows.grouped.without(fold), estimated=False))
        fractions = resolve_class_fractions(self, self.classes_, train)
        stated = self._statement(train, fractions, self._concentration_for(train))
        with few_threads(rows, self.hidden, self.batch_size):
            trained = self._train(train, None, stated, _Running(None, running.callbacks[:1], logs=False), plan)
            held_out = rows.grouped.only(fold)
            seen = self._predict_rows(trained.network, trained.objective, held_out.inputs, VALIDATION_SAMPLES)
        return held_out, seen.log_probs.double()

    def _estimate_concentration(self, rows: Rows, running: _Running, plan: _Plan) -> float:
        """Concentration that makes the fractions of held-out groups most likely, given predictions for their rows."""
        assert rows.grouped is not None
        folds = rows.grouped.folds(GROUP_FOLDS, seed=self.seed_)
        if len(folds) < 2:
            raise ValueError("`group_concentration` must be a number if there is one group, but is 'auto'")
        scores = torch.zeros(len(GROUP_CONCENTRATIONS), dtype=torch.float64)
        for fold in folds:
            held_out, log_probs = self._predict_fold(rows, fold, running, plan)
            for k, strength in enumerate(GROUP_CONCENTRATIONS):
                summary = held_out.with_concentration(strength).summary()
                scores[k] += summary.by_group(log_probs, held_out.groups, held_out.weights).sum()
        return GROUP_CONCENTRATIONS[int(scores.argmax())]

    def _compared(self, trained: _Trained, held_out: Rows | None) -> _Trained:
        """Compare the stated accuracy with held-out rows, if it is about such rows, and set ``shortfall``."""
        # weighted rows are not a sample of single cases
        if held_out is None or held_out.unlabelled is not None or held_out.weights is not None or not trained.summaries:
            return trained
        if len(held_out.labels) == 0:
            return trained
        claimed = trained.summaries[0].describe().accuracy
        if claimed is None:
            return trained
        seen = self._predict_rows(trained.network, trained.objective, held_out.inputs)
        result = check_accuracy(claimed, seen.classes == held_out.labels)
        return replace(trained, shortfall=shortfall(result, held_out.labels))

    def _calibrated(
        self, trained: _Trained, rows: GroupRows, fractions: list[float] | None, concentration: float
    ) -> BeliefCalibration | None:
        """The correction by the stated accuracy, and by class fractions if they are stated, for all rows."""
        like_weights = resampled(len(rows.inputs), rows.weights)
        seen = self._predict_rows(trained.network, trained.objective, rows.inputs[like_weights])
        try:
            return fit_to_belief(
                seen.log_probs, accuracy=self.accuracy, class_fractions=fractions, concentration=concentration
            ).calibration
        except ValueError as error:
            warnings.warn(f"{error}; predictions are left as they are", UserWarning, stacklevel=3)
            return None

    def _doubt_groups(self, trained: _Trained, rows: GroupRows) -> str:
        """Warning if predictions miss the stated fractions by more than those of all rows do; otherwise empty.

        It is empty, too, if the fractions are so alike that longer training would not help, of which a user was warned.
        """
        if hardly_different(rows.fractions.numpy(), rows.concentration.numpy()):
            return ""
        seen = self._predict_rows(trained.network, trained.objective, rows.inputs, VALIDATION_SAMPLES)
        found, constant = rows.mean_errors(seen.log_probs)
        if found < constant + GROUP_TOLERANCE:
            return ""
        return (
            f"predictions miss the stated fractions of groups by {100 * found:.3g} points on average, and predicting "
            f"the same for everyone would miss them by {100 * constant:.3g}: train for longer, or lower the "
            "concentration"
        )

    def _train(self, rows: Rows, val: Rows | None, stated: Statement, running: _Running, plan: _Plan) -> _Trained:
        """One training run: the only place that builds an objective and calls `selbo.fit`."""
        natural = self.posterior == NATURAL_GRADIENT
        summaries = stated.summaries if METHODS[self.method].believes else []
        terms = [*([] if stated.groups is None else [stated.groups]), *([] if self._corrects(rows) else summaries)]
        alone = rows.groups_alone
        shift = None
        if summaries and rows.unlabelled is not None and self.class_fractions is not None:
            shift = LabelShift.from_labels(rows.labels, stated.class_fractions, weights=rows.weights)
        # scales the terms that are not sums over rows
        per_row = len(rows.labels) / rows.total if alone is None else 1.0
        num_data, num_features = len(rows.labels if alone is None else alone.inputs), rows.inputs.shape[1]
        objective = objective_for(
            self.method,
            num_data=num_data,
            steps=plan.steps,
            summary=terms[0] if len(terms) == 1 else terms or None,
            kl_weight=1.0 if natural else plan.kl_weight * per_row,  # the optimiser weighs the KL
            summary_weight=per_row,
            label_shift=shift,
        )
        model: nn.Module | NaturalGradientPosterior
        if natural:
            network = self._deterministic_network(num_features).double()
            model = natural_gradient_for(
                network, num_data=num_data, kl_weight=plan.kl_weight * per_row, prior_std=self.prior_std
            )
        else:
            model = network = self.make_network(num_features)
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", message="the network is correct on"
            )  # issued for the selected network only
            result = fit(
                model,
                objective,
                rows.as_data(),
                None if val is None else val.as_data(),
                unlabelled=rows.beside(len(terms)) if terms else None,
                groups=None if alone is None else alone.groups,
                steps=plan.steps,
                batch_size=self.batch_size,
                learning_rate=TABULAR_RATE if natural and self.learning_rate is None else self.learning_rate,
                schedule="cosine" if natural else "constant",
                validation=Validation(
                    every=self._steps_between_validations(plan.steps, logs=running.logs),
                    num_samples=VALIDATION_SAMPLES,
                    select=self._selection(rows, val),
                ),
                seed=derive(self.seed_, "training", self.method),
                device=self.device,
                checkpoint=running.checkpoint,
                callbacks=running.callbacks,
            )
        concentration = float(summaries[0].concentration) if summaries else None
        if isinstance(model, NaturalGradientPosterior):
            network = model.bayesian_network()  # all weights are in linear layers, so nothing is lost
        return _Trained(network.eval(), objective, result, summaries, concentration, shift, None, stated.groups, plan)

    def _steps_between_validations(self, steps: int, *, logs: bool) -> int | None:
        """Early stopping sees every stage: before the belief, while its weight grows, and at its full weight."""
        if self.early_stopping:
            return max(1, steps // EARLY_VALIDATIONS)
        return None if logs else steps

    def _selection(self, rows: Rows, val: Rows | None) -> str | Selection:
        """How to select weights: the last, the best for held-out labels, or without labels for held-out groups."""
        if not self.early_stopping or val is None:
            return "last"
        if val.groups_alone is None or rows.grouped is None:
            return "best"
        return score_by_groups(rows.grouped, val.groups_alone)

    def make_network(self, num_features: int) -> nn.Module:
        """An untrained network for the known classes."""
        network = self._deterministic_network(num_features)
        if METHODS[self.method].bayesian:
            network = to_bayesian(network, prior_std=self.prior_std, init_std=INIT_STD)
        return network.double()

    def _deterministic_network(self, num_features: int) -> nn.Module:
        widths = (num_features, *self.hidden, len(self.classes_))
        return MLP(widths, generator=generator_for(self.seed_, "weights"))

    def _draw_seed(self) -> int:
        if self.random_state is None:
            return int(np.random.default_rng().integers(2**31))
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    # --- prediction ---

    def predict(self, X: Any, *, abstain: "float | Abstention | None" = None) -> NDArray[Any]:
        """The most probable label of each row, shape (rows,).

        Args:
            X: Features, shape (rows, features).
            abstain: Largest share of wrong answers: the least confident rows then get None instead of a label. It is
                kept if the probabilities are calibrated. Or a rule of `selbo.decide.abstain`, which keeps it for any
                probabilities if it was fitted with labels of rows that were not trained on.
        """
        probs = self.predict_proba(X)  # before `classes_`: raises the error if not fitted
        return answer_or_abstain(self.classes_, probs, abstain)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of the classes, shape (rows, classes), columns in the order of ``classes_``."""
        probs = self.posterior_predictive(X).probs
        table: NDArray[np.float64] = (probs / probs.sum(-1, keepdim=True)).numpy()
        return table

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """Log-probabilities, exact even if a probability underflows."""
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
            target_domain: Correct the predictions by ``label_shift_``, if there is one. Otherwise the predictions are
                for the source domain, which the labels come from.
        """
        check_is_fitted(self)
        found = self._predict_rows(self.network_, self._objective, self.scale_(take_in_inputs(self, X)))
        if not target_domain and self.n_unlabelled_:
            return found
        if self.calibration_ is not None:
            return found.with_log_probs(self.calibration_(found.log_probs))
        if self.label_shift_ is not None:
            return found.with_log_probs(self.label_shift_.to_target(found.log_probs))
        return found

    def _predict_rows(
        self, network: nn.Module, objective: Objective | None, inputs: Tensor, num_samples: int | None = None
    ) -> Prediction:
        if isinstance(network, Pool):
            return network.predict(inputs)
        device = next(network.parameters()).device
        generator = generator_for(self.seed_, "prediction", device=device)
        count = num_samples or self.num_samples
        found = posterior_predict(network, inputs, count, objective=objective, generator=generator)
        return Prediction(*(each.cpu() for each in vars(found).values()))
