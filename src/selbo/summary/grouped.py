"""Beliefs about groups: the class fractions of many groups, as one likelihood of predictions and their groups."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from selbo import _checks
from selbo._numerics import MULTINOMIAL_FLOOR, FloatArray, result_dtype, values_can_be_read, working_dtype
from selbo.summary.beliefs import Belief, checked_masses
from selbo.summary.contrast import GroupContrast, group_contrast
from selbo.summary.counts import (
    UNDERFLOW,
    exact_count_log_prob,
    gaussian_count_log_prob,
    poisson_binomial,
)
from selbo.summary.likelihood import Summary, log_dirichlet, nearest_masses
from selbo.summary.moving_average import GroupAverage
from selbo.summary.partitions import Partition

GROUP_FORMS: Final = ("dirichlet", "multinomial", "counts")

NO_GROUP: Final = -1
"""Group of a prediction that belongs to none."""

FRACTION_SUM_TOLERANCE: Final = 0.025
"""Difference from 1 that rounding may give the sum of the fractions of a group."""

TINY: Final = torch.finfo(torch.float32).tiny
"""Smallest divisor."""

EXACT_UP_TO: Final = 64
"""Default size of the largest group whose counts are evaluated exactly. The Gaussian form rewards confidence where
counts are small (docs/reference/measurements-groups.md)."""

EXACT_UP_TO_WITH_TWO: Final = 8
"""The same with two regions, where exact counts of larger groups gain nothing on real data (study `groups-small`)."""

SHORT_INTEGERS_END: Final = 2**15
"""Integers below it fit into 16 bits."""

OneBelief: TypeAlias = Belief | Sequence[float] | Tensor | FloatArray
"""A belief, or one mass per region."""

Beliefs: TypeAlias = Mapping[Any, OneBelief] | Sequence[OneBelief] | Tensor | FloatArray


class Slots(NamedTuple):
    """Where the sums of the groups of a batch are kept; there are as many slots as groups, or as rows if fewer.

    Attributes:
        rows: Slot of each row, shape (B,).
        groups: Group of each slot, shape (T,); 0 where there is none.
        used: Whether a slot has a group, shape (T,).
    """

    rows: Tensor
    groups: Tensor
    used: Tensor


class Sums(NamedTuple):
    """The groups of a batch.

    Attributes:
        slots: Where each group is kept.
        memberships: Memberships of the rows, shape (..., B, R).
        sizes: Number of rows, or sum of their weights, shape (..., T); 0 for a group that the batch does not hold.
        means: Mean memberships, and for counts mean products of two different ones, shape (..., T, columns).
    """

    slots: Slots
    memberships: Tensor
    sizes: Tensor
    means: Tensor


class ExactValues(NamedTuple):
    """Likelihood by exact counts of each slot, and where it applies, shape (..., T)."""

    values: Tensor
    applies: Tensor


class GroupedSummary(Summary):
    r"""Log-likelihood of beliefs about many groups, given the predictions of a network and the group of each.

    Each group has its own belief and its own concentration: the vote of each state, illness per ward, conversions per
    campaign. The soft histogram of the predictions of each group is compared with its belief, for all groups at once.
    Groups that a batch does not hold contribute exactly zero. With `ClassRegions`, beliefs are class fractions, and a
    network learns to classify individuals from them without a label, if fractions differ between groups.

    **Groups larger than a batch.** The histogram of m rows of a group is noisy, and a function of a noisy histogram is
    biased: the Dirichlet and the multinomial form lose about $\alpha (R - 1) / 2m$ nats and prefer predictions that
    make the histogram less noisy, which are closer to the fractions of the group. Three remedies: keep the
    concentration of a group well below m; use ``ema_decay``, a moving average per group; or use ``form="counts"``
    with ``sizes``, whose likelihood is that of a part of a group.

    Args:
        partition: The regions. `ClassRegions` for class fractions.
        beliefs: One belief per group, in the order of the groups: a tensor of masses, shape (G, R), which for
            `ClassRegions` are class fractions; or a list of beliefs or masses; or a mapping from the names of groups to
            either, see `index`. Integer names must be the groups 0 to G - 1.
        concentration: Strength of the beliefs in pseudo-observations: one number, one per group, or a mapping by name.
            It describes the source of the number, not the number of people it describes: see `elicit_concentration`.
            Fractions counted among these very rows have no error: with ``form="counts"``, state 100 times the size of
            the group or more, because a stated error that is not there rewards overconfidence.
        form: ``"dirichlet"``: the paper's likelihood per group, Eq. (5). ``"multinomial"``: concentration times the
            proportion loss, see `multinomial_log_prob`. ``"counts"``: memberships are probabilities, counts of a group
            are sums of independent samples from them, and fractions are uncertain: `exact_count_log_prob` for small
            groups (``exact_up_to``), `gaussian_count_log_prob` for larger ones. It is meant for `ClassRegions` at
            temperature 1. It accounts for the size of the group, and rewards confident predictions. Weights of rows
            are multiplicities.
        sizes: Number of rows of each group in the whole data set, shape (G,). If given, the value estimates the sum
            over all groups from those of the batch: m of the n rows of a group count m/n, and the sum is multiplied by
            the rows of the data set per row of the batch. `selbo.fit` provides them. If not given, the value is the
            sum over the groups of the batch, each taken as a whole.
        smoothing: Pseudo-observations per region, added to the ``concentration`` pseudo-observations of a belief.
            Masses of zero need it with ``form="dirichlet"``; 0.5 is a usual value. Exact counts are not smoothed.
        ema_decay: Decay of a moving average of the histogram of each group, `GroupAverage`, for groups larger than a
            batch. In training mode the likelihood is evaluated at the averages, and its gradient is applied to the
            batch.
        exact_up_to: Largest group, in rows, whose counts are evaluated exactly; by default 8 for two regions and 64
            for more. For more than two the value is a composite likelihood: the mean over regions of the
            log-likelihood of the count of each, times R - 1, the number of counts that are free. Exact evaluation is
            for whole groups; it is not used with weights, moving averages or reductions, such as several processes.
            A GPU spends time on it even if all groups of a batch are larger: then pass 0, or ``sizes``.
        reductions: Functions applied in order to sums by group, shape (..., G, columns), such as a sum over processes.
        validate: When to also validate the values of the log-probabilities: see `SummaryLikelihood`.
        name: Name in logs.

    Example:
        >>> from selbo.summary.partitions import ClassRegions
        >>> votes = {"Ohio": [0.48, 0.52], "Utah": [0.38, 0.62]}
        >>> states = GroupedSummary(ClassRegions(2), votes, concentration=500.0)
        >>> states
        GroupedSummary(
          groups=2, concentration=500, form='dirichlet'
          (partition): ClassRegions(num_classes=2, temperature=1)
        )
        >>> log_probs = torch.tensor([[0.4, 0.6], [0.5, 0.5], [0.7, 0.3]]).log()
        >>> group = states.index(["Ohio", "Ohio", "Utah"])
        >>> states(log_probs, group)
        tensor(-100.1004)
        >>> states.by_group(log_probs, group)
        tensor([   1.9741, -102.0746])
    """

    takes_groups = True
    waits_for_labels = False
    s0: Tensor
    concentration: Tensor
    uncertainty: Tensor | None
    _sizes: Tensor | None

    def __init__(
        self,
        partition: Partition,
        beliefs: Beliefs,
        concentration: float | Sequence[float] | Tensor | FloatArray | Mapping[Any, float],
        *,
        form: str = "dirichlet",
        sizes: Sequence[float] | Tensor | FloatArray | None = None,
        smoothing: float = 0.0,
        ema_decay: float | None = None,
        exact_up_to: int | None = None,
        reductions: Sequence[Callable[[Tensor], Tensor]] = (),
        validate: bool | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(partition, reductions=reductions, validate=validate, name=name)
        self.form = _checks.one_of("form", form, GROUP_FORMS)
        if exact_up_to is None:
            exact_up_to = EXACT_UP_TO if partition.num_regions > 2 else EXACT_UP_TO_WITH_TWO
        self.exact_up_to = _checks.whole("exact_up_to", exact_up_to, at_least=0)
        self.group_names, stated = _by_name(beliefs)
        s0, uncertainty = _all_masses(stated, partition, self.group_names)
        strengths = per_group("concentration", concentration, self.group_names, len(s0))
        self.smoothing = _checks.non_negative("smoothing", smoothing)
        added, total = self.smoothing, strengths.unsqueeze(-1) + self.smoothing * s0.shape[-1]
        s0 = (strengths.unsqueeze(-1) * s0 + added) / total
        if form == "dirichlet" and bool((s0 == 0).any()):
            group = int((s0 == 0).any(-1).nonzero()[0, 0])
            raise ValueError(
                f"`beliefs` must be positive for form='dirichlet', but group {self._called(group)!r} has a mass of 0: "
                "pass smoothing=0.5, or use another form"
            )
        self.register_buffer("s0", s0)
        self.register_buffer("concentration", strengths)
        self.register_buffer("uncertainty", uncertainty, persistent=False)
        counted = None if sizes is None else per_group("sizes", sizes, self.group_names, len(s0), zero=True)
        self.register_buffer("_sizes", None, persistent=False)
        self.sizes = counted
        regions = partition.num_regions
        columns = regions + (regions * (regions - 1) // 2 if form == "counts" else 0)
        self.average = None if ema_decay is None else GroupAverage(len(s0), columns, ema_decay)

    @property
    def num_groups(self) -> int:
        """G."""
        return len(self.s0)

    @property
    def sizes(self) -> Tensor | None:
        """Number of rows of each group in the whole data set, shape (G,); None if it is not known."""
        return self._sizes

    @sizes.setter
    def sizes(self, sizes: Tensor | None) -> None:
        self._sizes = sizes
        self._smallest, self._places = 1, self.exact_up_to
        if sizes is not None:
            small = sizes[(sizes >= 1) & (sizes <= self.exact_up_to)].tolist()
            self._smallest, self._places = (int(min(small)), int(max(small))) if small else (1, 0)

    def set_sizes(self, groups: Tensor, weights: Tensor | None = None) -> None:
        """Set ``sizes`` from the groups of all rows of a data set, shape (N,), and their weights, if they have any."""
        self._check_range(groups)
        rows = torch.ones(len(groups), dtype=torch.float64) if weights is None else weights.detach().double().cpu()
        known = groups.detach().long().cpu()
        counted = torch.bincount(known[known >= 0], rows[known >= 0], minlength=self.num_groups)
        self.sizes = counted.to(self.s0.device)

    def index(self, names: Sequence[Any]) -> Tensor:
        """Groups by name, as the second argument of `forward`: names of length B -> (B,) long.

        Args:
            names: Names from the mapping of beliefs. None stands for no group.
        """
        if self.group_names is None:
            raise ValueError("`index` needs beliefs by name, but they were given in order: pass their positions")
        known = {name: position for position, name in enumerate(self.group_names)} | {None: NO_GROUP}
        unknown = [name for name in names if name not in known]
        if unknown:
            raise ValueError(f"`names` must be names of groups, but got {unknown[0]!r}")
        return torch.tensor([known[name] for name in names], dtype=torch.long)

    def histograms(self, log_probs: Tensor, groups: Tensor, weights: Tensor | None = None) -> Tensor:
        """Soft histogram of each group of a batch: (..., B, K), (B,), (B,) -> (..., G, R), on the simplex.

        The histogram of a group that the batch does not hold is NaN.
        """
        sums = self._sum(log_probs, groups, weights)
        means = sums.means[..., : self.partition.num_regions]
        found = torch.where((sums.sizes > 0).unsqueeze(-1), means, 0.0)
        sizes = self._to_groups(sums.sizes, sums.slots).unsqueeze(-1)
        dense = self._to_groups(found.transpose(-1, -2), sums.slots).transpose(-1, -2)
        return torch.where(sizes > 0, dense, torch.nan).to(result_dtype(log_probs))

    def by_group(
        self, log_probs: Tensor, groups: Tensor, weights: Tensor | None = None, *, validate: bool | None = None
    ) -> Tensor:
        """Log-likelihood of each belief: (..., B, K), (B,), (B,) -> (..., G); zero for a group that is not there."""
        sums = self._sum(log_probs, groups, weights, validate)
        return self._to_groups(self._values(sums, weights), sums.slots).to(result_dtype(log_probs))

    def forward(
        self, log_probs: Tensor, groups: Tensor, weights: Tensor | None = None, *, validate: bool | None = None
    ) -> Tensor:
        """Log-likelihood of all beliefs.

        Args:
            log_probs: Log-probabilities, shape (..., B, K); leading dimensions are weight samples.
            groups: Group of each prediction, from 0 to G - 1, shape (B,); -1 for none.
            weights: Weight of each prediction in the histogram of its group, shape (B,); equal weights if not given.
            validate: Overrides the setting of the same name.

        Returns:
            Log-likelihood in nats, shape (...), summed over groups: those of the batch, or with ``sizes`` an estimate
            for all. Larger is better.
        """
        sums = self._sum(log_probs, groups, weights, validate)
        values = self._values(sums, weights)
        if self.sizes is not None:
            values = values * self._factors(sums)
        return values.sum(-1).to(result_dtype(log_probs))

    def contrast(self) -> GroupContrast:
        """How much the stated fractions differ between groups, in units of their stated precision.

        A network learns from these differences. If a ratio is far below one, it cannot.
        """
        return group_contrast(self.s0.double().cpu().numpy(), self.concentration.double().cpu().numpy())

    def to_dict(self) -> dict[str, Any]:
        """What a checkpoint must match, besides numbers and tensors, as plain data."""
        named = None if self.group_names is None else [str(each) for each in self.group_names]
        return {**super().to_dict(), "groups": named}

    def extra_repr(self) -> str:
        """Groups and settings, for ``print``."""
        low, high = self.concentration.min().item(), self.concentration.max().item()
        strength = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        options = [] if self.name is None else [f"name={self.name!r}"]
        options += [f"groups={self.num_groups}", f"concentration={strength}", f"form={self.form!r}"]
        if self.average is not None:
            options.append(f"ema_decay={self.average.decay:g}")
        return ", ".join(options)

    # --- sums by group ---

    def _sum(self, log_probs: Tensor, groups: Tensor, weights: Tensor | None, validate: bool | None = None) -> Sums:
        self._check_groups(groups, log_probs)
        memberships = self._memberships(log_probs, validate)
        wide = memberships.to(working_dtype(memberships))
        columns = [torch.ones_like(wide[..., :1]), wide]
        if self.form == "counts":
            columns.append(_products_of_two(wide))
        by_row = torch.cat(columns, -1)
        if weights is not None:
            by_row = by_row * weights.to(by_row).unsqueeze(-1)
        slots = self._slots(groups)
        by_row = by_row.movedim(-2, 0)  # on a CPU, torch adds much faster along the first dimension
        empty = by_row.new_zeros(len(slots.groups), *by_row.shape[1:])
        sums = empty.index_add(0, slots.rows, by_row).movedim(0, -2)
        for reduce in self.reductions:
            sums = reduce(sums)
        sizes = torch.where(slots.used, sums[..., 0], 0.0).detach()
        means = sums[..., 1:] / torch.where(sizes > 0, sizes, 1.0).unsqueeze(-1)
        return Sums(slots, wide, sizes, means)

    def _slots(self, groups: Tensor) -> Slots:
        """A slot per group; or if the batch has fewer rows than there are groups, a slot per group of the batch."""
        count, rows = self.num_groups, len(groups)
        groups = groups.long()
        if count <= rows or self.reductions:  # reductions need the same slots in all processes
            every = torch.arange(count + 1, device=groups.device)
            return Slots(torch.where(groups < 0, count, groups), every % count, every < count)
        ordered, order = _sorted(groups, count)
        rank = F.pad((ordered[1:] != ordered[:-1]).long().cumsum(0), (1, 0))
        own = torch.full_like(groups, NO_GROUP).scatter(0, rank, ordered)
        return Slots(torch.zeros_like(groups).scatter(0, order, rank), own.clamp(min=0), own >= 0)

    def _to_groups(self, values: Tensor, slots: Slots) -> Tensor:
        """Values by slot, zero where there is none, as values by group: (..., T) -> (..., G)."""
        return values.new_zeros(*values.shape[:-1], self.num_groups).index_add(-1, slots.groups, values)

    def _factors(self, sums: Sums) -> Tensor:
        """Factor of each slot that makes the sum over a batch an estimate of the sum over all groups."""
        assert self.sizes is not None
        total = self.sizes.to(sums.sizes)
        share = sums.sizes / torch.maximum(total.index_select(0, sums.slots.groups), sums.sizes).clamp(min=TINY)
        rows = sums.sizes.sum(-1, keepdim=True)
        return share * total.sum() / torch.where(rows > 0, rows, 1.0)

    # --- values by group ---

    def _values(self, sums: Sums, weights: Tensor | None) -> Tensor:
        """Log-likelihood of the belief of each slot; zero where there is none: (..., T)."""
        slots, _, sizes, means = sums
        averaged = self.average is not None and self.training
        if self.average is not None and averaged:
            means = self.average(means, slots.groups, sizes.reshape(-1, sizes.shape[-1])[0])
        s0 = self.s0.to(means.device).index_select(0, slots.groups).to(means)
        strength = self.concentration.to(means.device).index_select(0, slots.groups).to(means)
        here = sizes > 0
        regions = self.partition.num_regions
        # a constant for slots without a group: their gradient is zero, not NaN
        histogram = torch.where(here.unsqueeze(-1), means[..., :regions], s0)
        if self.uncertainty is not None:
            margin = self.uncertainty.to(means.device).index_select(0, slots.groups).unsqueeze(-1).to(means)
            s0 = nearest_masses(histogram.detach(), s0, margin)
        if self.form == "dirichlet":
            values = log_dirichlet(s0, strength.unsqueeze(-1) * histogram)
        elif self.form == "multinomial":
            values = strength * (s0 * histogram.clamp(min=MULTINOMIAL_FLOOR).log()).sum(-1)
        else:
            possible = self._places and weights is None and not self.reductions and not averaged
            exact = self._exact(sums, s0, strength) if possible else None
            if exact is not None and _all_true(exact.applies | ~here):
                values = exact.values
            else:
                values = self._gaussian(sums, histogram, means[..., regions:], s0, strength, whole=averaged)
                values = values if exact is None else torch.where(exact.applies, exact.values, values)
        return torch.where(here, values, 0.0)

    def _gaussian(
        self, sums: Sums, mean: Tensor, products: Tensor, s0: Tensor, strength: Tensor, *, whole: bool
    ) -> Tensor:
        """Likelihood of the counts of each slot; ``whole``: of all members of the group, whose mean is known."""
        here = sums.sizes > 0
        size = torch.where(here, sums.sizes, 1.0)
        total = size
        if self.sizes is not None:
            stated = self.sizes.to(size.device).index_select(0, sums.slots.groups).to(size)
            total = torch.maximum(torch.where(here, stated, 1.0), size)
            size = total if whole else size
        covariance = _covariance(torch.where(here.unsqueeze(-1), products, 0.0), mean.shape[-1])
        return gaussian_count_log_prob(
            size.unsqueeze(-1) * mean,
            size[..., None, None] * covariance,
            fractions=s0,
            concentration=strength,
            size=size,
            total=total,
        )

    def _exact(self, sums: Sums, s0: Tensor, strength: Tensor) -> ExactValues | None:
        """Likelihood by exact counts of the slots with a small group that is whole; None if there is none."""
        rows = sums.slots.rows
        number = torch.zeros_like(sums.slots.groups).index_add(0, rows, torch.ones_like(rows))
        small = sums.slots.used & (number > 0) & (number <= self._places)
        if self.sizes is not None:
            small = small & (self.sizes.to(rows.device).index_select(0, sums.slots.groups) <= number)
        count, places = self._room(small, number, len(rows))
        if count == 0:
            return None
        # small groups come first, and the rows of each stand side by side; the others go to an extra place
        kept = _sorted((~small).long(), 2)[1][:count]
        rank = torch.full_like(number, count).index_copy(0, kept, torch.arange(count, device=rows.device))
        ordered, order = _sorted(torch.where(small, rank, count).index_select(0, rows), count + 1)
        applies = small.index_select(0, kept)
        size = torch.where(applies, number.index_select(0, kept), 0)
        before = F.pad(size.cumsum(0), (1, 0))
        position = torch.arange(len(rows), device=rows.device) - before.index_select(0, ordered)
        place = torch.where(ordered < count, ordered * places + position, count * places)
        # the row of each place, or the one after the last for a place without a row
        source = torch.full((count * places + 1,), len(rows), device=rows.device).index_copy(0, place, order)[:-1]
        alpha = strength.index_select(0, kept).unsqueeze(-1)
        fractions, by_row = s0.index_select(-2, kept), sums.memberships.movedim(-2, 0)
        if self.smoothing:  # taken back: a smoothed zero would rule out that no member has the class
            fractions = (fractions * (alpha + self.smoothing * s0.shape[-1]) - self.smoothing).clamp(min=0) / alpha
        one = torch.ones_like(by_row[:1, ..., :1])
        if (regions := s0.shape[-1]) == 2:  # the count of one gives that of the other
            by_row, fractions = torch.cat([by_row, F.pad(one, (0, 1))]), fractions[..., 1:]
            trials = by_row.index_select(0, source).movedim(0, -2).unflatten(-2, (count, 1, places))
        else:
            by_row = torch.cat([F.pad(by_row, (0, 1)), F.pad(one, (regions, 0))])
            members = by_row.index_select(0, source).movedim(0, -2).unflatten(-2, (count, places)).transpose(-1, -2)
            others = (1 - torch.eye(regions, regions + 1, dtype=one.dtype, device=one.device)) @ members
            trials = torch.stack([others, members[..., :-1, :]], -1)
        by_region = exact_count_log_prob(
            poisson_binomial(trials),
            fraction=fractions,
            concentration=alpha,
            size=size.clamp(min=1).to(one).unsqueeze(-1),
        )
        found = by_region.mean(-1) * (regions - 1)
        applies = applies & (by_region > math.log(2 * UNDERFLOW)).all(-1)  # below, there is no gradient
        shape = (*found.shape[:-1], len(number))
        return ExactValues(
            values=found.new_zeros(shape).index_copy(-1, kept, found),
            applies=applies.new_zeros(shape).index_copy(-1, kept, applies),
        )

    def _room(self, small: Tensor, number: Tensor, rows: int) -> tuple[int, int]:
        """How many small groups there are, and the rows of the largest; on a GPU, the most that there may be."""
        if _is_readable(small):
            sizes = number[small].tolist()
            return len(sizes), max(sizes, default=0)
        return min(len(small), rows // self._smallest), self._places

    def _check_groups(self, groups: Tensor, log_probs: Tensor) -> None:
        if not isinstance(groups, Tensor) or groups.is_floating_point() or groups.dtype == torch.bool:
            came = f"dtype {groups.dtype}" if isinstance(groups, Tensor) else type(groups).__name__
            raise ValueError(f"`groups` must be a tensor of whole numbers, but got {came}{self.index_hint(groups)}")
        if log_probs.ndim >= 2 and groups.shape != log_probs.shape[-2:-1]:
            raise ValueError(
                f"`groups` must have shape {tuple(log_probs.shape[-2:-1])}, one group per prediction, but got "
                f"{tuple(groups.shape)}"
            )
        if _is_readable(groups):
            self._check_range(groups)

    def index_hint(self, groups: Any) -> str:
        """What to do about groups that are no numbers, for errors: empty if they are not given by name."""
        named = self.group_names is not None and not isinstance(groups, Tensor)
        return ": pass `summary.index(names)`" if named else ""

    def _check_range(self, groups: Tensor) -> None:
        if groups.numel() == 0:
            return
        low, high = int(groups.min()), int(groups.max())
        if low < NO_GROUP or high >= self.num_groups:
            raise ValueError(
                f"`groups` must be from 0 to {self.num_groups - 1}, or -1 for none, but got "
                f"{low if low < NO_GROUP else high}"
            )

    def _called(self, group: int) -> Any:
        return group if self.group_names is None else self.group_names[group]


def _is_readable(tensor: Tensor) -> bool:
    """Whether Python can read the values of a tensor without waiting for a GPU."""
    return tensor.device.type == "cpu" and values_can_be_read(tensor)


def _sorted(numbers: Tensor, end: int) -> tuple[Tensor, Tensor]:
    """Whole numbers from -1 to ``end`` - 1, sorted stably, and their positions: (B,) -> (B,), (B,)."""
    if end <= SHORT_INTEGERS_END and _is_readable(numbers):  # numpy sorts short integers much faster
        order = torch.from_numpy(numbers.numpy().astype(np.int16).argsort(kind="stable"))
        return numbers.index_select(0, order), order
    ordered, order = numbers.sort(stable=True)
    return ordered, order


def _products_of_two(memberships: Tensor) -> Tensor:
    """Products of the memberships of two different regions: (..., R) -> (..., R (R - 1) / 2)."""
    if memberships.shape[-1] == 2:
        return memberships[..., :1] * memberships[..., 1:]
    one, other = _pairs(memberships.shape[-1], memberships.device)
    return memberships.index_select(-1, one) * memberships.index_select(-1, other)


def _covariance(products: Tensor, regions: int) -> Tensor:
    """Covariance of one count per region, from the products of memberships, which sum to 1: (..., P) -> (..., R, R)."""
    one, other = _pairs(regions, products.device)
    upper, lower = regions * one + other, regions * other + one
    flat = products.new_zeros(*products.shape[:-1], regions * regions)
    between: Tensor = (
        flat.index_copy(-1, upper, products).index_copy(-1, lower, products).unflatten(-1, (regions, regions))
    )
    return torch.diag_embed(between.sum(-1)) - between


def _pairs(regions: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The first and the second region of each pair."""
    one, other = torch.triu_indices(regions, regions, 1, device=device)
    return one, other


def _all_true(condition: Tensor) -> bool:
    """Whether a condition is seen to hold everywhere."""
    return _is_readable(condition) and bool(condition.all())


def _by_name(beliefs: Beliefs) -> tuple[tuple[Any, ...] | None, Sequence[OneBelief] | Tensor | FloatArray]:
    """Names of the groups, if there are any, and their beliefs in order."""
    if not isinstance(beliefs, Mapping):
        return None, beliefs
    whole = [each for each in beliefs if isinstance(each, (int, np.integer)) and not isinstance(each, bool)]
    if not whole:
        return tuple(beliefs), list(beliefs.values())
    if sorted(beliefs, key=repr) != sorted(range(len(beliefs)), key=repr):
        raise ValueError(
            f"integer names in `beliefs` must be the groups 0 to {len(beliefs) - 1}, because predictions are assigned "
            "to groups by these numbers: use strings for other names"
        )
    return None, [beliefs[group] for group in range(len(beliefs))]


def _all_masses(
    beliefs: Sequence[OneBelief] | Tensor | FloatArray, partition: Partition, names: tuple[Any, ...] | None
) -> tuple[Tensor, Tensor | None]:
    """Masses of all groups, (G, R), and the uncertainties of beliefs that have one, (G,)."""
    regions = partition.num_regions
    if isinstance(beliefs, (Tensor, np.ndarray)):
        return _checked_rows(torch.as_tensor(beliefs), partition), None
    if isinstance(beliefs, (str, Belief)) or not isinstance(beliefs, Sequence):
        raise ValueError(
            f"`beliefs` must be a tensor of shape (G, {regions}), a list or a mapping with one belief per group, but "
            f"got {type(beliefs).__name__}"
        )
    if not beliefs:
        raise ValueError("`beliefs` must hold at least one group, but holds none")
    rows = []
    for name, each in zip(range(len(beliefs)) if names is None else names, beliefs, strict=True):
        if isinstance(each, Belief):
            rows.append(checked_masses(each, partition))
            continue
        try:
            row = torch.as_tensor(each, dtype=torch.float64)
        except (TypeError, ValueError, RuntimeError):
            raise ValueError(f"`beliefs` must be beliefs or numbers, but group {name!r} has {each!r}") from None
        rows.append(_checked_rows(row.reshape(1, -1), partition, name)[0])
    margins = torch.tensor([getattr(each, "uncertainty", 0.0) for each in beliefs], dtype=torch.float64)
    return torch.stack(rows), margins if bool(margins.any()) else None


def _checked_rows(rows: Tensor, partition: Partition, name: Any = None) -> Tensor:
    """Masses that a user states, (G, R), or of one group that is named, normalised exactly; zero is allowed."""
    regions = partition.num_regions
    if rows.ndim != 2 or rows.shape[-1] != regions or len(rows) == 0:
        hint = ""
        if rows.shape[-1:] == (partition.num_classes,):
            hint = (
                f": to state class fractions use selbo.ClassRegions({partition.num_classes}), or selbo.expect per group"
            )
        found = f"{tuple(rows.shape)}" if name is None else f"{rows.shape[-1]} for group {name!r}"
        raise ValueError(
            f"`beliefs` must have shape (G, {regions}), one mass per region of {type(partition).__name__}, but got "
            f"{found}{hint}"
        )
    narrow = rows if rows.is_floating_point() else rows.double()
    wide = narrow.detach().double().cpu()
    sums = wide.sum(-1, keepdim=True)
    valid = ((sums - 1).abs() <= _checks.ROW_SUM_TOLERANCE[narrow.dtype]) & (wide >= 0).all(-1, keepdim=True)
    if not bool(valid.all()):  # NaN is not valid either
        first = int(valid.squeeze(-1).logical_not().nonzero()[0, 0])
        raise ValueError(f"`beliefs` {_problem_of(wide[first], first if name is None else name)}")
    return wide / sums


def _problem_of(masses: Tensor, group: Any) -> str:
    """What is wrong with the masses of a group."""
    if absent := int(masses.isnan().sum()):
        return f"must hold numbers, but got {absent} NaN for group {group!r}"
    if bool((masses < 0).any()):
        return f"must be at least 0 everywhere, but the smallest mass of group {group!r} is {masses.min().item():.4g}"
    total = masses.sum().item()
    hint = ": divide percentages by 100" if abs(total / 100 - 1) <= FRACTION_SUM_TOLERANCE else ""
    return f"must lie on the simplex, but the masses of group {group!r} sum to {total:.4g}{hint}"


def per_group(argument: str, given: Any, names: tuple[Any, ...] | None, count: int, *, zero: bool = False) -> Tensor:
    """One number per group, (G,), from one for all, a sequence, or a mapping by name."""
    if isinstance(given, Mapping):
        expected = range(count) if names is None else names
        missing = [name for name in expected if name not in given]
        more = [name for name in given if name not in expected]
        if missing or more:
            wrong = f"{missing[0]!r} is missing" if missing else f"has {more[0]!r}, which is none of them"
            raise ValueError(f"`{argument}` must have the names of `beliefs`, but {wrong}")
        given = [given[name] for name in expected]
    try:
        values = torch.as_tensor(given, dtype=torch.float64).detach().cpu()
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"`{argument}` must be a number, or one per group, but got {given!r}") from None
    if values.shape not in ((), (count,)):
        raise ValueError(
            f"`{argument}` must be one number, or {count}, one per group, but has shape {tuple(values.shape)}"
        )
    valid = values.isfinite() & ((values >= 0) if zero else (values > 0))
    if not bool(valid.all()):
        bound = "at least 0" if zero else "greater than 0"
        raise ValueError(f"`{argument}` must be finite and {bound}, but got {values[~valid].reshape(-1)[0].item():g}")
    return values.expand(count).clone()
