r"""Calibration of frozen predictions to a belief, without labels: a temperature, one offset per class, or both.

Somebody who knows how often a classifier is right and how frequent the classes are knows two means of its calibrated
predictions. If $q_{ik}$ is the corrected probability of class $k$ for input $i$, and $\hat y_i$ is the answer of the
frozen classifier, then $\frac1n \sum_i q_{i \hat y_i}$ is its accuracy and $\frac1n \sum_i q_{ik}$ is the fraction of
class $k$. Corrections $q \propto p^{1/T} e^{b}$ are fitted so that these means have the stated values.

Each statement is a summary on regions in which a prediction lies with its own probability: *right* and *wrong*, or the
classes. The belief enters by the multinomial form of its likelihood, $-\alpha\, \mathrm{KL}(s_0 \,\|\, s_\theta)$,
whose maximum is where the two agree.
"""

import math
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import torch
from torch import Tensor

from selbo import _checks
from selbo.evaluation.statement_doubts import doubt_statement
from selbo.metrics.inputs import Array, on_host, rows_by_group, table
from selbo.summary._dirichlet import largest_entry, log_dirichlet_multinomial
from selbo.summary.beliefs import Belief
from selbo.summary.elicitation import uncertainty_for
from selbo.summary.estimation import EstimatedBelief
from selbo.summary.grouped import GroupedSummary
from selbo.summary.likelihood import DEFAULT_CONCENTRATION, SummaryLikelihood

UNLABELLED: Final = -1
"""Label of an input without one, as in scikit-learn."""

LARGEST_FLOOR: Final = 1e-3
"""Probabilities of zero, which no temperature changes, become half of the smallest positive one, and at most this."""

TEMPERATURE_PRIOR: Final = 1.0
"""Weight of the prior of the temperature, in observations. It decides only where the statement does not: if all answers
are right, no temperature is too low."""

OFFSET_PRIOR_SCALE: Final = 0.5
"""Scale of the Cauchy prior of offsets that are fitted to groups. Few rows do not move them far; a shift of the class
fractions that many rows show does."""

CONTRADICTION: Final = 3.0
"""A statement is refused if the closest correction is more than this many of its standard deviations away."""

ROWS_OF_FIRST_FIT: Final = 5000
"""Number of rows for the first approximation."""

ROWS_OF_PART: Final = 200
"""Number of rows that each part gives for it."""

START_RANGE: Final = (-12.0, 7.0)
"""Range of -log T in which the first approximation of the temperature is sought."""

TRIED_WITH_GROUPS: Final = range(-7, 4)
"""Values of -log T that a fit to groups may start from: the likelihood of counts has more than one maximum."""

LEAST_OF_A_CLASS: Final = 1e-6
ROUNDS_OF_OFFSETS: Final = 30
SMALLEST_MEAN: Final = 1e-300
"""For these starts: smallest fraction of a class, number of rounds in which offsets approach it, and what stands for a
mean probability of zero."""

WEIGHTS_TRIED: Final = 10
"""Parts into which the range of a weight is cut, to find the one with the minimum."""

MOST_CHANGES: Final = 100
MOST_SHORTER_CHANGES: Final = 12
LARGEST_CHANGE: Final = 2.0
CONVERGED: Final = 1e-13
FLAT: Final = 1e-10
"""Newton's method: limits on steps, on halvings and on the change of a parameter; the expected gain, per unit of
concentration, at which it ends; and the relative curvature below which a direction counts as flat."""


@dataclass(frozen=True)
class BeliefCalibration:
    """A correction of predictions, softmax(log p / T + b). Call it with log-probabilities.

    Attributes:
        temperature: T; 1 if it was not fitted.
        offsets: b, one per class, summing to 0; all 0 if they were not fitted.
        floor: Probability that replaces zeros before the correction.
        accuracy: Share of right answers that the corrected predictions claim for the answers of the classifier.
        class_fractions: Mean corrected probability of each class.
        accuracy_before: The same share, claimed by the predictions as they were.
        class_fractions_before: Their mean probability of each class.
        log_temperature_error: Standard error of log T, from the concentration of the statement, the number of inputs
            and the labels; 0 if T was not fitted. By groups and more than two classes it is that of a composite
            likelihood, and somewhat too small.
        offset_errors: Standard error of each offset.
        num_inputs: Number of inputs it was fitted on.
    """

    temperature: float
    offsets: tuple[float, ...]
    floor: float
    accuracy: float
    class_fractions: tuple[float, ...]
    accuracy_before: float
    class_fractions_before: tuple[float, ...]
    log_temperature_error: float
    offset_errors: tuple[float, ...]
    num_inputs: int

    def __call__(self, log_probs: Array) -> Tensor:
        """Corrected log-probabilities, of the same shape.

        Args:
            log_probs: Log-probabilities or logits, shape (..., K); both give the same result.
        """
        given = log_probs if isinstance(log_probs, Tensor) else on_host("log_probs", log_probs)
        _checks.floating("log_probs", given)
        if given.shape[-1:] != (len(self.offsets),):
            raise ValueError(
                f"`log_probs` must have shape (..., {len(self.offsets)}), one column for each class that the "
                f"calibration was fitted to, but got {tuple(given.shape)}"
            )
        rows = raise_zeros(given.double(), self.floor)
        offsets = torch.tensor(self.offsets, dtype=torch.float64, device=rows.device)
        return (rows / self.temperature + offsets).log_softmax(-1).to(given)

    def to_dict(self) -> dict[str, Any]:
        """The correction as JSON values, for `from_dict`."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "BeliefCalibration":
        """The correction that `to_dict` described."""
        values: dict[str, Any] = {name: tuple(each) if isinstance(each, list) else each for name, each in data.items()}
        return cls(**values)


def calibrate_to_belief(
    log_probs: Array,
    belief: Belief | SummaryLikelihood | GroupedSummary | EstimatedBelief | None = None,
    *,
    groups: Array | None = None,
    accuracy: float | None = None,
    class_fractions: Sequence[float] | None = None,
    concentration: float | None = None,
    labels: Array | None = None,
    label_counts: Sequence[float] | None = None,
    fraction_uncertainty: float | None = None,
    offsets: bool | None = None,
    prior_strength: float = TEMPERATURE_PRIOR,
) -> BeliefCalibration:
    r"""Calibrate the predictions of any classifier to what is known about it. No label is needed.

    An accuracy fits the temperature, class fractions fit the offsets, and both fit both. With $\alpha$ the
    concentration, $n$ the number of inputs, $a$ the stated accuracy and $\pi$ the stated fractions,

    $$\alpha' \mathrm{KL}\big((a, 1-a) \,\|\, (\bar q_{\hat y}, 1 - \bar q_{\hat y})\big)
    + \alpha' \mathrm{KL}(\pi \,\|\, \bar q) + c\,(1/T - 1 + \log T), \qquad \alpha' = \frac{\alpha n}{\alpha + n}$$

    is minimised, plus the negative log-likelihood of labels if there are any. Both statements hold in a population, of
    which the inputs are a sample, so they have the weight of at most $n$ observations.

    A warning says if a statement is implausible: a constant answer would reach the accuracy, labels contradict it, or
    the predictions claim one that is 35 points away from what is stated, or from what the class fractions allow.
    Smaller differences are what the correction is for.

    Args:
        log_probs: Log-probabilities or logits of unlabelled inputs, shape (n, K), as they come from the classifier.
        belief: A belief such as `selbo.expect` returns, for both statements at once; an `EstimatedBelief` such as
            `selbo.belief_from_samples` returns, with its concentration; or a `SummaryLikelihood` of any partition and
            belief, which is maximised by the temperature (and by the offsets, with ``offsets=True``); or a
            `GroupedSummary` about ``groups`` of the inputs, which is maximised by both.
        groups: Group of each input, shape (n,), with a `GroupedSummary`; -1 for none.
        accuracy: Share of these answers (the class with the largest probability) that are right.
        class_fractions: Fraction of each class among the inputs, positive, summing to one.
        concentration: Number of observations behind the stated numbers; 1000 if not given. A standard deviation s
            of the accuracy a is a concentration of a (1 - a) / s².
        labels: Classes of the inputs, shape (n,), -1 where there is none: they enter as likelihood.
        label_counts: Number of labels of each class that the classifier was trained on, if class fractions alone are
            stated. Two things follow from them. First, they may be a random sample of the target domain or not, which
            are equally probable beforehand, and what they say about $\pi$ in the first case enters $\pi$ and $u$ by the
            probability of that case given the counts. Equal counts, but for one label, say nothing. Second, prior
            correction by the counts is weighed against $\pi$: with $b^m$ the offsets that meet it, and $b^p_k = \log
            \pi_k - \log n_k$, the result is $b = b^p + w\,(b^m - b^p)$. The weight $w$, from 0 to 1, is the most
            probable one if the true fractions $\bar q$ differ from $\pi$ as its uncertainty says, and the odds of the
            classifier are off as those of the counts are: it minimises $\frac{\sum_k \pi_k (1 - \pi_k)}{K u^2}
            \mathrm{KL}(\pi \,\|\, \bar q) + \frac12 \sum_k n_k (\delta_k - \bar\delta)^2$, where $\delta_k = b_k - \log
            \bar q_k + \log n_k$ and $\bar\delta$ is its mean, weighted by $n_k$. Many labels make it prior correction,
            and a certain statement is met.
        fraction_uncertainty: u, the uncertainty of each stated fraction, with ``label_counts``; if not given, .05 or
            half of the smallest fraction, whichever is less.
        offsets: Whether offsets are fitted; if not given, where class fractions are stated.
        prior_strength: c, the weight of the prior of the temperature, whose mode is 1; 0 for none. Offsets that are
            fitted to groups have c times the logarithm of a Cauchy prior of scale .5, which keeps a few hundred inputs
            from deciding about many classes.

    Returns:
        The correction; call it with log-probabilities of the same classifier.

    Raises:
        ValueError: If nothing is stated, or no correction makes the predictions agree with the statements.

    Example:
        >>> log_probs = torch.tensor([[0.99, 0.01], [0.02, 0.98], [0.97, 0.03]]).log()
        >>> calibration = calibrate_to_belief(log_probs, accuracy=0.8, prior_strength=0)
        >>> calibration.temperature, calibration.accuracy
        (2.8604, 0.8000)
        >>> calibration(log_probs).exp()
        tensor([[0.8329, 0.1671],
                [0.2041, 0.7959],
                [0.7712, 0.2288]])
    """
    fitted = fit_to_belief(
        log_probs,
        belief,
        groups=groups,
        accuracy=accuracy,
        class_fractions=class_fractions,
        concentration=concentration,
        labels=labels,
        label_counts=label_counts,
        fraction_uncertainty=fraction_uncertainty,
        offsets=offsets,
        prior_strength=prior_strength,
    )
    for doubt in fitted.doubts:
        warnings.warn(doubt, UserWarning, stacklevel=2)
    return fitted.calibration


class FittedCalibration(NamedTuple):
    """A correction, and what is doubtful about the statement that it was fitted to.

    Attributes:
        calibration: The correction.
        doubts: Warnings, one sentence each.
    """

    calibration: BeliefCalibration
    doubts: list[str]


def fit_to_belief(
    log_probs: Array,
    belief: Belief | SummaryLikelihood | GroupedSummary | EstimatedBelief | None = None,
    *,
    groups: Array | None = None,
    accuracy: float | None = None,
    class_fractions: Sequence[float] | None = None,
    concentration: float | None = None,
    labels: Array | None = None,
    label_counts: Sequence[float] | None = None,
    fraction_uncertainty: float | None = None,
    offsets: bool | None = None,
    prior_strength: float = TEMPERATURE_PRIOR,
    classes: Sequence[object] | None = None,
) -> FittedCalibration:
    """`calibrate_to_belief` for callers that show doubts in their own way; ``classes`` are names for them."""
    given = table("log_probs", log_probs)
    if bool(given.isnan().any()) or bool((given == torch.inf).any()):
        raise ValueError("`log_probs` must be numbers below infinity, but some are NaN or inf")
    count = given.shape[1]
    strength = _checks.non_negative("prior_strength", prior_strength)
    summary = belief if isinstance(belief, (SummaryLikelihood, GroupedSummary)) else None
    by_group = isinstance(belief, GroupedSummary)
    if by_group != (groups is not None):
        raise ValueError("`groups` and a `GroupedSummary` as `belief` must be given together, but one is missing")
    if belief is not None and (class_fractions is not None or (accuracy is not None and not by_group)):
        raise ValueError("either `belief` or `accuracy` and `class_fractions` must be given, but got both")
    if isinstance(belief, Belief):
        accuracy, class_fractions = _statements(belief, count)
    elif isinstance(belief, EstimatedBelief):
        accuracy, class_fractions = belief.accuracy, belief.class_fractions
        concentration = belief.concentration if concentration is None else concentration
    known = None if labels is None else _labels(labels, given)
    if summary is None and accuracy is None and class_fractions is None and known is None:
        raise ValueError("`accuracy`, `class_fractions`, `belief` or `labels` must be given: nothing is stated")
    if label_counts is not None and (class_fractions is None or accuracy is not None or known is not None):
        raise ValueError("`label_counts` is for class fractions alone, but they are not all that is stated")
    accuracy, class_fractions = _checked_statements(accuracy, class_fractions, count)
    counts, doubt = torch.empty(0), 0.0
    if label_counts is not None:
        assert class_fractions is not None
        counts, doubt = _checked_counts(class_fractions, label_counts, fraction_uncertainty)
        class_fractions, doubt = _fractions_given_counts(class_fractions, counts, doubt)
    floor = zero_floor(given)
    rows = raise_zeros(given.double(), floor)
    alpha = _worth(concentration, len(rows))
    with_offsets = (class_fractions is not None or by_group) if offsets is None else offsets
    with_temperature = accuracy is not None or summary is not None or known is not None
    free = torch.tensor([with_temperature, *[with_offsets] * count])
    of_rows = None if groups is None else on_host("groups", groups)
    if of_rows is not None and not bool((of_rows >= 0).any()):
        raise ValueError("`groups` must hold a group in some row, but none does")
    statement = _Statement(accuracy, class_fractions, alpha, summary, strength, free, of_rows)
    answers = torch.bincount(rows.argmax(-1), minlength=count)
    _require_possible(statement, answers)
    solution, errors = _minimise(statement, rows, known)
    before, after = _means(rows, torch.zeros_like(solution)), _means(rows, solution)
    if known is None and not by_group:  # labels and groups may contradict a statement: a compromise is fitted then
        _require_agreement(statement, after)
    if doubt > 0:
        assert class_fractions is not None
        solution = _weighed(solution, rows, class_fractions, counts, doubt)
        after = _means(rows, solution)
    found = _result(solution, errors, floor=floor, before=before, after=after, num_inputs=len(rows))
    doubts = doubt_statement(
        accuracy=accuracy,
        class_fractions=class_fractions,
        claimed=found.accuracy_before,
        possible=_possible_accuracy(class_fractions, answers),
        left=(found.accuracy, max(found.class_fractions)) if by_group else None,
        correct=None if known is None else (rows.argmax(-1) == known)[known != UNLABELLED],
        tested=isinstance(belief, EstimatedBelief) or label_counts is not None,
        classes=classes,
    )
    return FittedCalibration(found, doubts)


def _result(
    solution: Tensor, errors: Tensor, *, floor: float, before: Tensor, after: Tensor, num_inputs: int
) -> BeliefCalibration:
    return BeliefCalibration(
        temperature=math.exp(-float(solution[0])),
        offsets=tuple(solution[1:].tolist()),
        floor=floor,
        accuracy=float(after[0]),
        class_fractions=tuple(after[1:].tolist()),
        accuracy_before=float(before[0]),
        class_fractions_before=tuple(before[1:].tolist()),
        log_temperature_error=float(errors[0]),
        offset_errors=tuple(errors[1:].tolist()),
        num_inputs=num_inputs,
    )


def _checked_statements(
    accuracy: float | None, class_fractions: Sequence[float] | None, count: int
) -> tuple[float | None, Sequence[float] | None]:
    if accuracy is not None:
        reason = f", which is what answers among {count} classes can reach (1/K by guessing, 1 without any error)"
        accuracy = _checks.fraction("accuracy", accuracy, low=1 / count, high=1.0, reason=reason)
    if class_fractions is not None:
        class_fractions = _checks.simplex("class_fractions", class_fractions)
        if len(class_fractions) != count:
            raise ValueError(
                f"`class_fractions` must hold {count} numbers, one for each column of `log_probs`, but got "
                f"{len(class_fractions)}"
            )
    return accuracy, class_fractions


def _worth(concentration: float | None, count: int) -> float:
    """Observations behind the stated numbers, given the number of inputs, which are a sample."""
    alpha = _checks.positive("concentration", DEFAULT_CONCENTRATION if concentration is None else concentration)
    return alpha * count / (alpha + count)


MapParts: TypeAlias = Callable[[Callable[[Array], Any]], Iterable[Any]]
"""Calls a function with the log-probabilities of every part, (n, K) each, and gives the results, in any order."""


def calibrate_in_parts(
    map_parts: MapParts,
    *,
    accuracy: float | None = None,
    class_fractions: Sequence[float] | None = None,
    concentration: float | None = None,
    prior_strength: float = TEMPERATURE_PRIOR,
) -> BeliefCalibration:
    """`calibrate_to_belief` for predictions that no machine holds at once, such as those of a Ray data set.

    The loss depends on all predictions only through sums over rows, so the parts can be anywhere. They are asked once
    for their size and a few rows, from which a first correction is fitted, and then for sums, about ten times.

    Args:
        map_parts: Calls a function with each part and gives the results. The function can be pickled.
        accuracy: Share of the answers that are right.
        class_fractions: Fraction of each class among the inputs.
        concentration: Number of observations behind the stated numbers; 1000 if not given.
        prior_strength: Weight of the prior of the temperature.

    Returns:
        The correction; the same as `calibrate_to_belief` gives for all rows, up to rounding.

    Example:
        >>> log_probs = torch.tensor([[0.99, 0.01], [0.02, 0.98], [0.97, 0.03]]).log()
        >>> parts = log_probs.split(2)
        >>> calibration = calibrate_in_parts(
        ...     lambda function: [function(part) for part in parts],
        ...     accuracy=0.8,
        ...     prior_strength=0,
        ... )
        >>> calibration.temperature, calibration.num_inputs
        (2.8604, 3)
    """
    if accuracy is None and class_fractions is None:
        raise ValueError("`accuracy` or `class_fractions` must be given: nothing is stated")
    strength = _checks.non_negative("prior_strength", prior_strength)
    overviews = [each for each in map_parts(_overview) if each.num_rows]
    if not overviews:
        raise ValueError("`map_parts` must give at least one row of predictions, but gave none")
    count, total = len(overviews[0].answers), sum(each.num_rows for each in overviews)
    if any(len(each.answers) != count for each in overviews):
        raise ValueError("`map_parts` must give predictions of the same classes in every part, but they differ")
    accuracy, class_fractions = _checked_statements(accuracy, class_fractions, count)
    floor = min(each.floor for each in overviews)
    free = torch.tensor([accuracy is not None, *[class_fractions is not None] * count])
    statement = _Statement(accuracy, class_fractions, _worth(concentration, total), None, strength, free)
    answers = torch.stack([each.answers for each in overviews]).sum(0)
    _require_possible(statement, answers)

    def sums(at: Tensor) -> RowSums:
        found = list(map_parts(partial(_sums_of_part, at=at, floor=floor)))
        return RowSums(*(torch.stack(values).sum(0) for values in zip(*found, strict=True)))

    some = raise_zeros(torch.cat([each.some for each in overviews]), floor)
    start = _start(statement, some[:: max(len(some) // ROWS_OF_FIRST_FIT, 1)], None)
    before = sums(torch.zeros(count + 1, dtype=torch.float64)).means()
    solution, hessian = _descend(statement, lambda at: statement.loss_of_sums(at, sums(at)), start)
    after = sums(solution).means()
    _require_agreement(statement, after)
    found = _result(solution, _errors(statement, hessian), floor=floor, before=before, after=after, num_inputs=total)
    for doubt in doubt_statement(
        accuracy=accuracy,
        class_fractions=class_fractions,
        claimed=found.accuracy_before,
        possible=_possible_accuracy(class_fractions, answers),
    ):
        warnings.warn(doubt, UserWarning, stacklevel=2)
    return found


class Overview(NamedTuple):
    """What is asked of a part first.

    Attributes:
        num_rows: Number of rows.
        floor: Probability that replaces zeros, by this part alone.
        answers: How often each class is the answer, shape (K,).
        some: At most a few hundred rows.
    """

    num_rows: int
    floor: float
    answers: Tensor
    some: Tensor


def _overview(log_probs: Array) -> Overview:
    given = table("log_probs", log_probs).double()
    if bool(given.isnan().any()) or bool((given == torch.inf).any()):
        raise ValueError("`log_probs` must be numbers below infinity, but some are NaN or inf")
    counts = torch.bincount(given.argmax(-1), minlength=given.shape[1])
    return Overview(len(given), zero_floor(given), counts, given[:: max(len(given) // ROWS_OF_PART, 1)].clone())


def _sums_of_part(log_probs: Array, *, at: Tensor, floor: float) -> "RowSums":
    return sum_rows(at, raise_zeros(table("log_probs", log_probs).double(), floor))


def _checked_counts(
    fractions: Sequence[float], label_counts: Sequence[float], uncertainty: float | None
) -> tuple[Tensor, float]:
    """The counts of the labels, and the uncertainty of the stated fractions."""
    if len(label_counts) != len(fractions):
        raise ValueError(f"`label_counts` must hold {len(fractions)} numbers, but got {len(label_counts)}")
    counts = [_checks.positive(f"label_counts[{k}]", each) for k, each in enumerate(label_counts)]
    doubt = uncertainty_for(fractions) if uncertainty is None else uncertainty
    return torch.tensor(counts, dtype=torch.float64), _checks.non_negative("fraction_uncertainty", doubt)


def _fractions_given_counts(fractions: Sequence[float], counts: Tensor, doubt: float) -> tuple[Sequence[float], float]:
    """Mean and uncertainty of the fractions if the labels may be a random sample of the target domain.

    Two hypotheses are equally probable beforehand: that they are one, and that all counts of as many labels are equally
    probable. Equal counts were chosen, and tell nothing.
    """
    if doubt == 0 or float(counts.max() - counts.min()) <= 1:
        return fractions, doubt
    stated = torch.tensor(fractions, dtype=torch.float64)
    prior = float((stated * (1 - stated)).mean()) / doubt**2 * stated
    evidence = log_dirichlet_multinomial(counts, prior) - log_dirichlet_multinomial(counts, torch.ones_like(counts))
    sampled = float(evidence.sigmoid())
    updated = (prior + counts) / (prior + counts).sum()
    variance = sampled * updated * (1 - updated) / (1 + (prior + counts).sum()) + (1 - sampled) * doubt**2
    variance += sampled * (1 - sampled) * (updated - stated) ** 2
    mean = sampled * updated + (1 - sampled) * stated
    return mean.tolist(), float(variance.mean().sqrt())


def _weighed(solution: Tensor, rows: Tensor, fractions: Sequence[float], counts: Tensor, doubt: float) -> Tensor:
    """Offsets between those that meet the stated fractions and those of prior correction by the labels."""
    from scipy.optimize import minimize_scalar

    stated = torch.tensor(fractions, dtype=torch.float64)
    alpha = float((stated * (1 - stated)).mean()) / doubt**2
    by_labels = stated.log() - counts.log()
    by_labels -= by_labels.mean()

    def between(weight: float) -> Tensor:
        return torch.cat([solution[:1], by_labels + weight * (solution[1:] - by_labels)])

    def loss(weight: float) -> float:
        at = between(weight)
        mean = _means(rows, at)[1:]
        error = at[1:] - mean.log() + counts.log()
        error = error - counts @ error / counts.sum()
        return alpha * _kl(fractions, mean.tolist()) + float(counts @ error**2) / 2

    tried = [k / WEIGHTS_TRIED for k in range(WEIGHTS_TRIED + 1)]
    best = min(tried, key=loss)
    near = (max(best - 1 / WEIGHTS_TRIED, 0.0), min(best + 1 / WEIGHTS_TRIED, 1.0))
    found = float(minimize_scalar(loss, bounds=near, method="bounded", options={"xatol": 1e-6}).x)
    return between(min((best, found), key=loss))


class UnreachableFractionError(ValueError):
    """No correction gives a class its stated fraction.

    Attributes:
        index: The class, from 0 to K - 1.
    """

    def __init__(self, index: int, stated: float, closest: float) -> None:
        self.index, self._stated, self._closest = index, stated, closest
        super().__init__(self.naming(f"class {index}"))

    def naming(self, name: str) -> str:
        """The error in words, with the name of the class."""
        return (
            f"`class_fractions` cannot be reached: {name} is stated to be {self._stated:.3g} of the inputs, and the "
            f"closest correction gives it a mean probability of {self._closest:.3g}"
        )


@dataclass(frozen=True)
class GroupedCalibration:
    """One correction per group. Call it with log-probabilities and the group of each row.

    Attributes:
        by_group: The correction of each group.
    """

    by_group: Mapping[Hashable, BeliefCalibration]

    def __call__(self, log_probs: Array, groups: Sequence[Hashable] | Array) -> Tensor:
        """Corrected log-probabilities, shape (B, K).

        Args:
            log_probs: Log-probabilities or logits, shape (B, K).
            groups: Group of each row, B of them, each one that the calibration was fitted to.
        """
        given = log_probs if isinstance(log_probs, Tensor) else on_host("log_probs", log_probs)
        corrected = torch.empty_like(given)
        for group, rows in rows_by_group(groups, len(given)).items():
            if group not in self.by_group:
                raise ValueError(f"`groups` must be among those that were calibrated, but got {group!r}")
            corrected[rows] = self.by_group[group](given[rows])
        return corrected


def calibrate_groups(
    log_probs: Array,
    groups: Sequence[Hashable] | Array,
    *,
    accuracy: Mapping[Any, float] | float | None = None,
    class_fractions: Mapping[Any, Sequence[float]] | Sequence[float] | None = None,
    concentration: Mapping[Any, float] | float = DEFAULT_CONCENTRATION,
) -> GroupedCalibration:
    """Calibrate the predictions of each group to what is known about that group, by `calibrate_to_belief`.

    Args:
        log_probs: Log-probabilities or logits of unlabelled inputs, shape (n, K).
        groups: Group of each row, such as a hospital or a state.
        accuracy: Accuracy of the answers, one for all groups or one for each.
        class_fractions: Class fractions, for all groups or for each.
        concentration: Number of observations behind the stated numbers, for all groups or for each.

    Example:
        >>> log_probs = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.9, 0.1], [0.6, 0.4]]).log()
        >>> half, few = [0.5, 0.5], [0.9, 0.1]
        >>> by_site = calibrate_groups(
        ...     log_probs, ["A", "A", "B", "B"], class_fractions={"A": half, "B": few}
        ... )
        >>> by_site(log_probs, ["A", "A", "B", "B"]).exp()[:, 1]
        tensor([0.2899, 0.7101, 0.0325, 0.1675])
    """
    given = table("log_probs", log_probs)
    there = rows_by_group(groups, len(given))

    def of(name: str, stated: Any, group: Hashable) -> Any:
        if not isinstance(stated, Mapping):
            return stated
        if group not in stated:
            raise ValueError(f"`{name}` must have a value for every group, but has none for {group!r}")
        return stated[group]

    def fitted(group: Hashable, rows: Tensor) -> FittedCalibration:
        stated = {"accuracy": accuracy, "class_fractions": class_fractions, "concentration": concentration}
        try:
            return fit_to_belief(given[rows], **{name: of(name, each, group) for name, each in stated.items()})
        except ValueError as error:
            raise ValueError(f"group {group!r}: {error}") from None

    found = {group: fitted(group, rows) for group, rows in there.items()}
    for group, each in found.items():
        for doubt in each.doubts:
            warnings.warn(f"group {group!r}: {doubt}", UserWarning, stacklevel=2)
    return GroupedCalibration({group: each.calibration for group, each in found.items()})


class _Local(NamedTuple):
    """A function of (-log T, offsets) at a point: value, gradient, and curvature."""

    value: float
    gradient: Tensor
    hessian: Tensor


class RowSums(NamedTuple):
    """Sums over rows at a point (-log T, offsets); those of several parts are added.

    With q the corrected probabilities of a row, y its answer, and z the derivative of log q by -log T.

    Attributes:
        num_rows: Number of rows, shape ().
        right: q_y by answer, shape (K,).
        right_slope: q_y z_y, shape ().
        right_probs: q_y q, shape (K,).
        probs: q, shape (K,).
        slopes: q z, shape (K,).
        products: q q', shape (K, K).
    """

    num_rows: Tensor
    right: Tensor
    right_slope: Tensor
    right_probs: Tensor
    probs: Tensor
    slopes: Tensor
    products: Tensor

    def means(self) -> Tensor:
        """Mean probability of the answers, then of each class."""
        return torch.cat([self.right.sum()[None], self.probs]) / self.num_rows


def sum_rows(at: Tensor, rows: Tensor) -> RowSums:
    """Sums over rows, (n, K), at a point (-log T, offsets)."""
    scores = rows * at[0].exp()
    probs = (scores + at[1:]).softmax(-1)
    around = scores - (probs * scores).sum(-1, keepdim=True)
    answers = rows.argmax(-1, keepdim=True)
    right = probs.gather(1, answers)
    return RowSums(
        num_rows=torch.tensor(len(rows), dtype=torch.float64),
        right=torch.zeros(rows.shape[1], dtype=torch.float64).index_add_(0, answers[:, 0], right[:, 0]),
        right_slope=(right * around.gather(1, answers)).sum(),
        right_probs=right[:, 0] @ probs,
        probs=probs.sum(0),
        slopes=(probs * around).sum(0),
        products=probs.T @ probs,
    )


@dataclass(frozen=True)
class _Statement:
    """What is known, and how much it weighs."""

    accuracy: float | None
    class_fractions: Sequence[float] | None
    alpha: float
    summary: SummaryLikelihood | GroupedSummary | None
    prior_strength: float
    free: Tensor
    groups: Tensor | None = None

    def margin(self, stated: float) -> float:
        """Difference from a stated share that contradicts it."""
        return CONTRADICTION * math.sqrt(stated * (1 - stated) / self.alpha)

    def loss_of_sums(self, at: Tensor, sums: RowSums) -> _Local:
        """Negative log posterior without labels, up to a constant. The curvature is exact where statements are met."""
        inverse, size, count = at[0].exp(), len(at), sums.num_rows
        value: float = self.prior_strength * float(inverse - 1 - at[0])
        gradient, hessian = torch.zeros(size, dtype=torch.float64), torch.zeros(size, size, dtype=torch.float64)
        gradient[0], hessian[0, 0] = self.prior_strength * (inverse - 1), self.prior_strength * inverse
        if self.groups is not None:
            away = at[1:] - at[1:].mean()
            spread = OFFSET_PRIOR_SCALE**2 + away**2
            pull, curvature = 2 * away / spread, 2 * (2 * OFFSET_PRIOR_SCALE**2 - spread) / spread**2
            centred = torch.eye(size - 1, dtype=torch.float64) - 1 / (size - 1)
            value += self.prior_strength * float((spread / OFFSET_PRIOR_SCALE**2).log().sum())
            gradient[1:] += self.prior_strength * centred @ pull
            hessian[1:, 1:] += self.prior_strength * centred @ curvature.diag() @ centred
        if self.accuracy is not None:
            found = min(max(float(sums.right.sum() / count), 1e-12), 1 - 1e-12)
            slope = torch.cat([sums.right_slope[None], sums.right - sums.right_probs]) / count
            value += self.alpha * _kl((self.accuracy, 1 - self.accuracy), (found, 1 - found))
            gradient += self.alpha * (found - self.accuracy) / (found * (1 - found)) * slope
            bend = self.accuracy / found**2 + (1 - self.accuracy) / (1 - found) ** 2
            hessian += self.alpha * bend * torch.outer(slope, slope)
        if self.class_fractions is not None:
            stated, mean = torch.tensor(self.class_fractions, dtype=torch.float64), sums.probs / count
            by_offset = mean.diag() - sums.products / count
            slopes = torch.cat([(sums.slopes / count)[:, None], by_offset], 1)
            value += self.alpha * _kl(self.class_fractions, mean.tolist())
            gradient -= self.alpha * slopes.T @ (stated / mean)
            hessian += self.alpha * slopes.T @ ((stated / mean**2)[:, None] * slopes)
        return _Local(value, gradient, hessian)

    def loss(self, at: Tensor, rows: Tensor, labels: Tensor | None) -> _Local:
        """Negative log posterior, up to a constant."""
        value, gradient, hessian = self.loss_of_sums(at, sum_rows(at, rows))
        size = len(at)
        if labels is not None:
            there = labels != UNLABELLED
            scores = rows * at[0].exp()
            log_probs = (scores + at[1:]).log_softmax(-1)
            probs = log_probs.exp()
            around = scores - (probs * scores).sum(-1, keepdim=True)  # derivative of log_probs by -log T
            p, z, of_label = probs[there], around[there], labels[there, None]
            value -= float(log_probs[there].gather(1, of_label).sum())
            rest = p.sum(0) - torch.bincount(of_label[:, 0], minlength=size - 1)
            gradient += torch.cat([-z.gather(1, of_label).sum(0), rest])
            cross = (p * z).sum(0)
            fisher = torch.cat([cross[:, None], p.sum(0).diag() - p.T @ p], 1)
            hessian += torch.cat([torch.cat([(p * z**2).sum()[None], cross])[None], fisher])
        if self.summary is not None:
            part = self._of_summary(at, rows)
            value, gradient, hessian = value + part.value, gradient + part.gradient, hessian + part.hessian
        return _Local(value, gradient, hessian)

    def log_likelihood(self, at: Tensor, rows: Tensor) -> Tensor:
        """Log-likelihood of any other summary."""
        assert self.summary is not None
        groups = () if self.groups is None else (self.groups,)
        found: Tensor = self.summary((rows * at[0].exp() + at[1:]).log_softmax(-1), *groups)
        return found

    def _of_summary(self, at: Tensor, rows: Tensor) -> _Local:
        """The part of any other summary, by automatic differentiation; only of what is fitted."""
        free = self.free

        def negative(values: Tensor) -> Tensor:
            return -self.log_likelihood(at.masked_scatter(free, values), rows)

        values = at[free].requires_grad_()
        loss = negative(values)
        gradient, hessian = (
            torch.zeros(len(at), dtype=torch.float64),
            torch.zeros(len(at), len(at), dtype=torch.float64),
        )
        gradient[free] = torch.autograd.grad(loss, values)[0]
        hessian[free.outer(free)] = torch.autograd.functional.hessian(negative, at[free]).flatten()
        return _Local(float(loss.detach()), gradient, hessian)


def _kl(stated: Sequence[float], found: Sequence[float]) -> float:
    return math.fsum(p * math.log(p / max(q, 1e-300)) for p, q in zip(stated, found, strict=True))


def _minimise(statement: _Statement, rows: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
    """Parameters (-log T, offsets) of least loss, first on some of the rows, then on all; and their standard errors."""
    every = max(len(rows) // ROWS_OF_FIRST_FIT, 1)
    if every > 1 and statement.groups is None:  # counts are those of whole groups
        start = _start(statement, rows[::every], None if labels is None else labels[::every])
    else:
        start = _start_of_temperature(statement, rows)
    found, hessian = _descend(statement, lambda at: statement.loss(at, rows, labels), start)
    return found, _errors(statement, hessian)


def _start(statement: _Statement, some: Tensor, labels: Tensor | None) -> Tensor:
    """A first approximation, from some of the rows."""
    start = _start_of_temperature(statement, some)
    return _descend(statement, lambda at: statement.loss(at, some, labels), start)[0]


def _start_of_temperature(statement: _Statement, rows: Tensor) -> Tensor:
    if isinstance(statement.summary, GroupedSummary):
        return _start_of_groups(statement, statement.summary, rows)
    start = torch.zeros(len(statement.free), dtype=torch.float64)
    if statement.accuracy is not None:
        start[0] = _inverse_for(statement.accuracy, rows)
    return start


def _start_of_groups(statement: _Statement, summary: GroupedSummary, rows: Tensor) -> Tensor:
    """The best of a few temperatures, with offsets that give all rows the class fractions of all groups together."""
    assert statement.groups is not None
    fractions = None
    if bool(statement.free[1]) and summary.partition.num_regions == rows.shape[1]:
        sizes = torch.bincount(statement.groups[statement.groups >= 0], minlength=summary.num_groups).double()
        fractions = (sizes @ summary.s0.double().cpu() / sizes.sum()).clamp(min=LEAST_OF_A_CLASS)
    some = rows[:: max(len(rows) // ROWS_OF_FIRST_FIT, 1)]
    starts = []
    for value in TRIED_WITH_GROUPS:
        offsets = torch.zeros(rows.shape[1], dtype=torch.float64)
        if fractions is not None:
            for _ in range(ROUNDS_OF_OFFSETS):
                means = (some * math.exp(value) + offsets).softmax(-1).mean(0)
                offsets += (fractions / means.clamp(min=SMALLEST_MEAN)).log()
        starts.append(torch.cat([torch.tensor([float(value)], dtype=torch.float64), offsets - offsets.mean()]))
    for start in sorted(starts, key=lambda start: -float(statement.log_likelihood(start, rows))):
        if bool(statement.loss(start, rows, None).hessian.isfinite().all()):
            return start
    raise ValueError(
        "`log_probs` must be less certain to be fitted to groups: no temperature makes their counts possible"
    )


def _errors(statement: _Statement, hessian: Tensor) -> Tensor:
    """Standard errors of the parameters; 0 for those that are not fitted."""
    errors = torch.zeros(len(statement.free), dtype=torch.float64)
    # offsets that are all moved by one number change nothing, so the matrix has no inverse
    inverse = torch.linalg.pinv(hessian, hermitian=True, rtol=FLAT)
    errors[statement.free] = inverse.diagonal().clamp(min=0).sqrt()
    return errors


def _inverse_for(accuracy: float, rows: Tensor) -> float:
    """-log T for an accuracy alone: a start from which no prediction is so certain that nothing moves it."""
    from scipy.optimize import brentq

    def excess(log_inverse: float) -> float:
        return (
            float(_means(rows, torch.tensor([log_inverse, *[0.0] * rows.shape[1]], dtype=torch.float64))[0]) - accuracy
        )

    low, high = START_RANGE
    if excess(low) >= 0 or excess(high) <= 0:
        return 0.0
    return float(brentq(excess, low, high, xtol=1e-3))


def _descend(statement: _Statement, loss: Callable[[Tensor], _Local], start: Tensor) -> tuple[Tensor, Tensor]:
    """Newton's method with halved steps where one does not lower the loss; returns the curvature there too."""
    free, at, local = statement.free, start, loss(start)
    for _ in range(MOST_CHANGES):
        values, vectors = torch.linalg.eigh(local.hessian[free][:, free])
        curved = values.abs() > FLAT * values.abs().max()
        step = -(vectors[:, curved] / values[curved].abs()) @ (vectors[:, curved].T @ local.gradient[free])
        step *= min(1.0, LARGEST_CHANGE / max(float(step.abs().max()), 1e-300))
        if -float(step @ local.gradient[free]) < CONVERGED * statement.alpha:
            break
        for _ in range(MOST_SHORTER_CHANGES):
            ahead = at.clone()
            ahead[free] += step
            there = loss(ahead)
            if there.value < local.value and bool(there.hessian.isfinite().all()):
                break
            step /= 2
        else:
            break
        at, local = ahead, there
    at = torch.cat([at[:1], at[1:] - at[1:].mean()])
    return at, local.hessian[free][:, free]


def _means(rows: Tensor, parameters: Tensor) -> Tensor:
    """Mean probability of the answers, then of each class."""
    probs = (rows * parameters[0].exp() + parameters[1:]).softmax(-1)
    return torch.cat([probs.gather(1, rows.argmax(-1, keepdim=True)).mean(0), probs.mean(0)])


def _require_agreement(statement: _Statement, after: Tensor) -> None:
    """Raise an error if the predictions cannot be made to agree with what is stated."""
    for k, stated in enumerate(statement.class_fractions or ()):
        if abs(stated - float(after[1 + k])) > statement.margin(stated):
            raise UnreachableFractionError(k, stated, float(after[1 + k]))
    if statement.accuracy is not None and abs(statement.accuracy - float(after[0])) > statement.margin(
        statement.accuracy
    ):
        raise ValueError(
            f"`accuracy` of {statement.accuracy:g} cannot be reached: the closest correction claims {after[0]:.3g}"
        )


def _possible_accuracy(class_fractions: Sequence[float] | None, answers: Tensor) -> float:
    """Largest accuracy with these class fractions, given the number of answers by class."""
    if class_fractions is None:
        return 1.0
    shares = answers.double() / answers.sum()
    return float(torch.minimum(shares, torch.tensor(class_fractions, dtype=torch.float64)).sum())


def _require_possible(statement: _Statement, answers: Tensor) -> None:
    """Raise an error if class fractions and accuracy contradict each other, given the number of answers by class."""
    if statement.accuracy is None or statement.class_fractions is None:
        return
    most = _possible_accuracy(statement.class_fractions, answers)
    if statement.accuracy > most + statement.margin(statement.accuracy):
        raise ValueError(
            f"`accuracy` of {statement.accuracy:g} cannot be reached: with these class fractions at most {most:.3g} of "
            "the answers can be right, given how often each class is the answer"
        )


def _statements(belief: Belief, num_classes: int) -> tuple[float, tuple[float, ...] | None]:
    """Accuracy and class fractions that a belief states."""
    parameters = belief.dirichlet(num_classes)
    if parameters is None:
        raise ValueError(
            "`belief` must have a density, as that of `selbo.expect` has; pass a `SummaryLikelihood` for others, "
            f"but got {belief!r}"
        )
    return largest_entry(parameters).expected, belief.class_fractions or belief.mean_probabilities(num_classes)


def _labels(labels: Array, rows: Tensor) -> Tensor | None:
    """Checked labels; None if there is not one."""
    classes = on_host("labels", labels)
    if classes.shape != rows.shape[:1] or classes.is_floating_point():
        raise ValueError(
            f"`labels` must be whole numbers of shape ({len(rows)},), one per row, but got {classes.dtype} of shape "
            f"{tuple(classes.shape)}"
        )
    if bool((classes < UNLABELLED).any()) or bool((classes >= rows.shape[1]).any()):
        raise ValueError(f"`labels` must be from 0 to {rows.shape[1] - 1}, or -1 for none, but some are not")
    return None if bool((classes == UNLABELLED).all()) else classes.long()


def zero_floor(given: Tensor) -> float:
    """Probability that replaces zeros of predictions, (..., K): half of the smallest positive one, at most 1e-3."""
    log_probs = given.double().log_softmax(-1)
    smallest = log_probs.masked_fill(log_probs == -torch.inf, 0.0).min()
    return min(LARGEST_FLOOR, math.exp(max(float(smallest), -700.0)) / 2)


def raise_zeros(log_probs: Tensor, floor: float) -> Tensor:
    """Log-probabilities with zeros raised to the floor: (..., K) -> (..., K)."""
    rows = log_probs.log_softmax(-1)
    return torch.where(rows == -torch.inf, math.log(floor), rows)
