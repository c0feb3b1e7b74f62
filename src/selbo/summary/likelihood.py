"""Likelihood of a summary given predictions: their soft histogram, and log DP(s0 | s_theta, alpha)."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

import torch
from torch import Tensor

from selbo import _checks
from selbo._numerics import (
    DIRICHLET_FLOOR,
    MULTINOMIAL_FLOOR,
    PreciseModule,
    log_gamma_deficit,
    result_dtype,
    values_can_be_read,
    widen,
    working_dtype,
)
from selbo.summary.beliefs import Belief, checked_masses, require_belief
from selbo.summary.description import Claims, compute_claims
from selbo.summary.moving_average import HistogramAverage
from selbo.summary.partitions import Partition, require_partition

FORMS: Final = ("dirichlet", "multinomial")

DEFAULT_CONCENTRATION: Final = 1000.0
"""Default concentration. Training lowers it to the number of labels if that is smaller."""

DEFAULT_CONCENTRATION_PER_LABEL: Final = 0.3
"""Default concentration per label for beliefs about unlabelled target data. At this value a wrong statement does little
harm (lab/docs/results.md, class fractions stated wrongly)."""


def soft_counts(memberships: Tensor, weights: Tensor | None = None) -> Tensor:
    """Soft number of predictions in each region, Eq. (20): (..., B, R) -> (..., R), summed in double precision.

    With weights, shape (B,), each prediction is multiplied by its weight.
    """
    if weights is not None:
        memberships = memberships * weights.to(memberships).unsqueeze(-1)
    return memberships.sum(-2, dtype=working_dtype(memberships))


def normalise_counts(counts: Tensor) -> Tensor:
    """Histogram s_theta from soft counts: (..., R) -> (..., R), on the simplex.

    If all weights are zero, the histogram is uniform and has no gradient.
    """
    total = counts.sum(-1, keepdim=True)
    empty = total == 0  # not `total <= 0`: NaN predictions must give a NaN histogram, not a uniform one
    return torch.where(empty, 1 / counts.shape[-1], counts / torch.where(empty, 1.0, total))


def log_dirichlet(masses: Tensor, parameters: Tensor) -> Tensor:
    """Log-density of a Dirichlet distribution: (..., R), (..., R) -> (...), both positive, computed like Eq. (5).

    Parameters are clamped to at least `DIRICHLET_FLOOR`.
    """
    parameters = parameters.clamp(min=DIRICHLET_FLOOR)
    total = parameters.sum(-1, keepdim=True)
    kl = (parameters * (parameters / (total * masses)).log()).sum(-1)  # alpha KL(h | s0), Eq. (3)
    deficit = log_gamma_deficit(torch.cat([parameters, total], -1))
    return deficit[..., :-1].sum(-1) - deficit[..., -1] - masses.log().sum(-1) - kl


def dirichlet_process_log_prob(
    histogram: Tensor, *, s0: Tensor, concentration: float | Tensor, validate: bool = False
) -> Tensor:
    r"""Log-density of the summary under the Dirichlet process, on one partition: Eq. (5), by Eq. (3).

    Let $h$ be ``histogram``, $s_0$ be ``s0`` and $\alpha$ be ``concentration``:

    $$\log \mathrm{Dir}(s_0 \mid \alpha h_1, \ldots, \alpha h_R) = \log \Gamma(\alpha)
    - \sum_r \log \Gamma(\alpha h_r) + \sum_r (\alpha h_r - 1) \log s_{0r} .$$

    With $d(x) = x \log x - x - \log \Gamma(x)$, which grows only logarithmically, this equals

    $$-\alpha\, \mathrm{KL}(h \,\|\, s_0) - d(\alpha) + \sum_r d(\alpha h_r) - \sum_r \log s_{0r} .$$

    The function computes the second form. Its large terms have cancelled, so it is precise for a concentration of 1e6.

    Value and gradient are finite for concentrations from 1e-3 to 1e6, for empty regions and for masses of 1e-12.

    Args:
        histogram: Region masses of the predictions, shape (..., R), on the simplex.
        s0: Region masses of the summary, shape (R,) or that of ``histogram``, strictly positive, on the simplex.
        concentration: Strength of the summary, in pseudo-observations; greater than 0.
        validate: Also validate values; synchronises with the device.

    Returns:
        Log-density in nats, shape (...), float32 or wider. Larger is better.

    Example:
        >>> h, s0 = torch.tensor([0.3, 0.7]), torch.tensor([0.2, 0.8])
        >>> dirichlet_process_log_prob(h, s0=s0, concentration=8.0)
        tensor(0.9087)
    """
    h, s, alpha = _prepare(histogram, s0, concentration, validate)
    return log_dirichlet(s, alpha * h).to(result_dtype(histogram))


def multinomial_log_prob(
    histogram: Tensor, *, s0: Tensor, concentration: float | Tensor, validate: bool = False
) -> Tensor:
    r"""Log-likelihood of ``concentration`` pseudo-observations distributed as s0, without its constant.

    Let $h$ be ``histogram``: $\alpha \sum_r s_{0r} \log h_r$, that is $-\alpha\, \mathrm{KL}(s_0 \,\|\, h)$ up to a
    constant. Its maximum is exactly at $h = s_0$, while the maximum of the Dirichlet form is slightly closer to
    uniform. It is not the paper's likelihood.

    Args:
        histogram: Region masses of the predictions, shape (..., R), on the simplex.
        s0: Region masses of the summary, shape (R,) or that of ``histogram``, on the simplex.
        concentration: Number of pseudo-observations; greater than 0.
        validate: Also validate values; synchronises with the device.

    Returns:
        Log-likelihood in nats, shape (...), float32 or wider. Larger is better.

    Example:
        >>> h, s0 = torch.tensor([0.3, 0.7]), torch.tensor([0.2, 0.8])
        >>> multinomial_log_prob(h, s0=s0, concentration=8.0)
        tensor(-4.2091)
    """
    h, s, alpha = _prepare(histogram, s0, concentration, validate)
    return (alpha * (s * h.clamp(min=MULTINOMIAL_FLOOR).log()).sum(-1)).to(result_dtype(histogram))


def nearest_masses(histogram: Tensor, s0: Tensor, uncertainty: float | Tensor) -> Tensor:
    """Region masses close to a histogram, within an uncertainty of s0; the histogram itself if it is within.

    Each mass is clamped to its range. The difference of the sum from one is then distributed in proportion to the room
    that each mass has left in its range. No mass falls below a tenth of the stated one.

    Args:
        histogram: Shape (..., R), on the simplex.
        s0: Shape (R,) or that of ``histogram``, on the simplex.
        uncertainty: Largest difference of each mass from that in s0; a tensor must broadcast with both.

    Example:
        >>> half = torch.tensor([0.5, 0.5])
        >>> nearest_masses(torch.tensor([[0.7, 0.3], [0.52, 0.48]]), half, 0.05)
        tensor([[0.5500, 0.4500],
                [0.5200, 0.4800]])
    """
    stated = s0.to(histogram)
    low, high = torch.maximum(stated - uncertainty, 0.1 * stated), (stated + uncertainty).clamp(max=1.0)
    inside = torch.minimum(torch.maximum(histogram, low), high)
    lack = 1 - inside.sum(-1, keepdim=True)
    room = torch.where(lack > 0, high - inside, inside - low)
    total = room.sum(-1, keepdim=True)
    return inside + lack * room / total.clamp(min=torch.finfo(total.dtype).tiny)


def _prepare(
    histogram: Tensor, s0: Tensor, concentration: float | Tensor, validate: bool
) -> tuple[Tensor, Tensor, float | Tensor]:
    _checks.floating("histogram", histogram)
    _checks.floating("s0", s0)
    if histogram.ndim < 1 or s0.shape not in (histogram.shape[-1:], histogram.shape):
        raise ValueError(
            f"`s0` must have one mass per region of `histogram`, but got shapes {tuple(s0.shape)} "
            f"and {tuple(histogram.shape)}"
        )
    alpha = concentration if isinstance(concentration, Tensor) else _checks.positive("concentration", concentration)
    if validate:
        _checks.on_simplex("histogram", histogram)
        _checks.on_simplex("s0", s0, strictly_positive=True)
        _checks.positive("concentration", float(alpha))
    dtype = working_dtype(histogram)
    return widen(histogram, dtype), s0.to(device=histogram.device, dtype=dtype), alpha


class Summary(PreciseModule):
    """What summaries have in common; base class of `SummaryLikelihood` and `selbo.GroupedSummary`.

    Args:
        partition: The regions.
        reductions: Functions applied in order to soft counts before they are normalised.
        validate: When to also validate the values of the log-probabilities.
        name: Name in logs.
    """

    takes_groups: ClassVar[bool] = False
    """Whether it is called with the group of each prediction, after the log-probabilities."""

    waits_for_labels: ClassVar[bool] = True
    """Whether its term in an objective waits until labels, or beliefs about groups, have been fitted."""

    def __init__(
        self,
        partition: Partition,
        *,
        reductions: Sequence[Callable[[Tensor], Tensor]] = (),
        validate: bool | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        if name is not None and (not isinstance(name, str) or not name):
            raise ValueError(f"`name` must be a non-empty string, but got {name!r}")
        self.name = name
        self.partition = require_partition(partition)
        self.reductions = list(reductions)
        self.validate = validate
        self._validated = False

    def to_dict(self) -> dict[str, Any]:
        """What a checkpoint must match, besides numbers and tensors, as plain data."""
        return {"regions": self.partition.to_dict()}

    def _memberships(self, log_probs: Tensor, validate: bool | None) -> Tensor:
        """Soft memberships of a batch: (..., B, K) -> (..., B, R)."""
        validate = self.validate if validate is None else validate
        if validate is None:
            validate = not self._validated and values_can_be_read(log_probs)
        memberships: Tensor = self.partition(log_probs, validate=validate)
        self._validated = self._validated or validate
        return memberships


class SummaryLikelihood(Summary):
    r"""Log-likelihood of a belief, given the predictions of a network: log DP(s0 | s_theta, alpha), Eq. (5).

    It computes a soft histogram of the predictions of a batch over the regions of a partition and compares it with the
    belief. The result has one value per weight sample; average them, as the Summary ELBO does. The scale is that of a
    sum over the data set: with a mean loss, divide by the number of training examples.

    Args:
        partition: The regions, e.g. `ScoreBins.equal(10)`.
        belief: Expected distribution of the predictions, e.g. ``expect(accuracy=0.9)``.
        concentration: Strength of the belief, alpha, in pseudo-observations. `selbo.fit` lowers it to the number of
            labels if that is smaller, unless ``overrule_labels``.
        form: ``"dirichlet"`` (the paper) or ``"multinomial"`` (`multinomial_log_prob`).
        ema_decay: Decay of an exponential moving average of the histogram, for small batches. In training mode the
            likelihood is evaluated at the average, and its gradient is applied to the histogram of the batch.
        reductions: Functions applied in order to the soft counts, shape (..., R), before they are normalised, such as a
            sum over processes. Functions can be added to and removed from the attribute of this name.
        validate: When to also validate the values of the log-probabilities, which synchronises with the device: True
            for every batch, False for none, None for the first one outside compiled code.
        name: Name in logs, and for assigning inputs, if an objective has several summaries.
        overrule_labels: Let `selbo.fit` train with a concentration above the number of labels. For beliefs that are
            known to be correct, such as class fractions that were counted.

    Example:
        >>> from selbo.summary.beliefs import Beta
        >>> from selbo.summary.partitions import ScoreBins
        >>> summary = SummaryLikelihood(ScoreBins.equal(5), Beta(2, 2), concentration=100.0)
        >>> scores = torch.linspace(0.05, 0.95, 64)
        >>> log_probs = torch.stack([1 - scores, scores], -1).log()
        >>> # eight extreme scores are no Beta(2, 2)
        >>> summary(log_probs) > summary(log_probs.flip(0)[:8])
        tensor(True)
    """

    s0: Tensor
    concentration: Tensor

    def __init__(
        self,
        partition: Partition,
        belief: Belief,
        concentration: float = DEFAULT_CONCENTRATION,
        *,
        form: str = "dirichlet",
        ema_decay: float | None = None,
        reductions: Sequence[Callable[[Tensor], Tensor]] = (),
        validate: bool | None = None,
        name: str | None = None,
        overrule_labels: bool = False,
    ) -> None:
        super().__init__(partition, reductions=reductions, validate=validate, name=name)
        self.form = _checks.one_of("form", form, FORMS)
        self.overrule_labels = overrule_labels
        self.belief = require_belief(belief)
        s0 = checked_masses(belief, partition)
        self.register_buffer("s0", s0)
        alpha = _checks.positive("concentration", concentration)
        self.register_buffer("concentration", torch.tensor(alpha, dtype=torch.float64))
        self.average = None if ema_decay is None else HistogramAverage(partition.num_regions, ema_decay)

    @classmethod
    def for_data(
        cls,
        partition: Partition,
        belief: Belief,
        num_data: int,
        *,
        concentration_per_label: float = DEFAULT_CONCENTRATION_PER_LABEL,
        **options: Any,
    ) -> "SummaryLikelihood":
        """Build a summary whose concentration is ``concentration_per_label * num_data``.

        Args:
            partition: The regions.
            belief: Expected distribution of the predictions.
            num_data: N, the number of labelled examples, as in the objective.
            concentration_per_label: The weight of the belief relative to all labels together. A value above 1
                lets the belief overrule the labels and sets ``overrule_labels``; use it only for beliefs that are known
                to be correct.
            **options: Further arguments of `SummaryLikelihood`.

        Example:
            >>> from selbo.summary.elicitation import expect
            >>> from selbo.summary.partitions import ScoreBins
            >>> SummaryLikelihood.for_data(
            ...     ScoreBins.equal(10), expect(accuracy=0.9), 300
            ... ).concentration
            tensor(90., dtype=torch.float64)
        """
        count = _checks.whole("num_data", num_data, at_least=1)
        options.setdefault("overrule_labels", _checks.positive("concentration_per_label", concentration_per_label) > 1)
        return cls(partition, belief, concentration_per_label * count, **options)

    def describe(self, num_inputs: int | None = None, *, level: float = 0.95) -> Claims:
        """Describe what the summary claims. Read it before training: ``print(summary.describe())``.

        Args:
            num_inputs: Number of inputs for the expected deviation of their histogram from the belief; the limit of
                many if not given.
            level: Probability of the ranges.

        Example:
            >>> from selbo.summary.elicitation import expect
            >>> from selbo.summary.partitions import ScoreBins
            >>> claims = SummaryLikelihood(
            ...     ScoreBins([0.1, 0.5, 0.9]), expect(accuracy=0.9), 500.0
            ... ).describe()
            >>> claims.accuracy, claims.fractions[1], claims.confidence[0]
            ((0.9000, 0.9000), (0.5000, 0.5000), (0.9, 1.0, 0.6773))
        """
        return compute_claims(
            self.belief,
            self.partition,
            masses=self.s0.cpu().numpy(),
            concentration=self.concentration.item(),
            num_inputs=num_inputs,
            level=level,
        )

    def histogram(self, log_probs: Tensor, weights: Tensor | None = None) -> Tensor:
        """Soft histogram s_theta of a batch: (..., B, K), (B,) -> (..., R), on the simplex, float32 or wider."""
        return self._histogram(log_probs, weights).to(result_dtype(log_probs))

    def forward(self, log_probs: Tensor, weights: Tensor | None = None, *, validate: bool | None = None) -> Tensor:
        """Log-likelihood of the summary.

        Args:
            log_probs: Log-probabilities, shape (..., B, K); leading dimensions are weight samples.
            weights: Weight of each prediction in the histogram, shape (B,); equal weights if not given.
            validate: Overrides the setting of the same name.

        Returns:
            Log-likelihood in nats, shape (...). Larger is better.
        """
        histogram = self._histogram(log_probs, weights, validate)
        if self.average is not None and self.training:
            histogram = self.average(histogram)
        s0 = self.s0
        if self.belief.uncertainty:
            s0 = nearest_masses(histogram.detach(), s0, self.belief.uncertainty)
        return self.log_prob(histogram, s0).to(result_dtype(log_probs))

    # --- hooks of subclasses ---

    def normalise(self, counts: Tensor) -> Tensor:
        """Histogram from soft counts after all reductions: (..., R) -> (..., R). A subclass may override it."""
        return normalise_counts(counts)

    def log_prob(self, histogram: Tensor, s0: Tensor) -> Tensor:
        """Log-likelihood of masses, given a histogram: (..., R) -> (...). A subclass may override it.

        Args:
            histogram: Region masses of the predictions, shape (..., R).
            s0: Region masses of the belief, shape (R,), or (..., R) if it is uncertain.
        """
        likelihood = multinomial_log_prob if self.form == "multinomial" else dirichlet_process_log_prob
        return likelihood(histogram, s0=s0, concentration=self.concentration.to(histogram.device))

    def _histogram(self, log_probs: Tensor, weights: Tensor | None, validate: bool | None = None) -> Tensor:
        counts = soft_counts(self._memberships(log_probs, validate), weights)
        for reduce in self.reductions:
            counts = reduce(counts)
        return self.normalise(counts)

    def to_dict(self) -> dict[str, Any]:
        """What a checkpoint must match, besides numbers and tensors, as plain data."""
        return {**super().to_dict(), "belief": self.belief.to_dict()}

    def extra_repr(self) -> str:
        """Belief and concentration, for ``print``."""
        options = [] if self.name is None else [f"name={self.name!r}"]
        options += [f"belief={self.belief!r}", f"concentration={self.concentration.item():g}", f"form={self.form!r}"]
        if self.average is not None:
            options.append(f"ema_decay={self.average.decay:g}")
        return ", ".join(options)
