"""Training rows as tensors, and the number of threads suited to their size."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor

from selbo.objectives.unlabelled import Grouped
from selbo.random import generator_for
from selbo.summary.grouped import GroupedSummary
from selbo.summary.partitions import ClassRegions
from selbo.training.stratified import stratified_split

SMALL_STEP: Final = 2**23
"""Multiplications per step (rows times weights) below which a second thread does not pay off."""


GROUP_FORM: Final = "counts"
"""Form of the likelihood of group fractions: it accounts for the size of a group and for parts of it. With
groups of 100 and a natural gradient, the multinomial form diverged at a concentration of 1000, and this one did not."""

GROUP_SMOOTHING: Final = 1.0
"""Pseudo-observations of equal fractions, over all classes, where counts are Gaussian. Otherwise a fraction of zero is
certain at any concentration, and a natural gradient diverges in small groups."""


def resampled(count: int, weights: Tensor | None) -> Tensor:
    """Indices of so many rows, each as often as its weight says: all in order if there are no weights."""
    if weights is None:
        return torch.arange(count)
    places = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    ends = weights.double().cumsum(0)
    return torch.searchsorted(ends, places * ends[-1]).clamp(max=count - 1)


@dataclass(frozen=True)
class GroupRows:
    """All rows of a table with groups, with and without label, and the beliefs about the groups.

    Attributes:
        inputs: Standardised inputs, shape (N, features).
        groups: Group of each row, shape (N,); -1 for none.
        weights: Weight of each row, shape (N,); None if all are 1.
        names: Names of the groups.
        fractions: Class fractions of each group, shape (G, K).
        concentration: Concentration of each group, shape (G,).
        sizes: Number of rows of each group that its fractions are about, shape (G,); None for those in ``groups``.
        estimated: Whether the concentration is to be estimated by held-out groups.
    """

    inputs: Tensor
    groups: Tensor
    weights: Tensor | None
    names: tuple[Any, ...]
    fractions: Tensor
    concentration: Tensor
    sizes: Tensor | None = None
    estimated: bool = False

    @property
    def class_fractions(self) -> list[float]:
        """Class fractions of all rows that have a group."""
        rows = torch.ones(len(self.groups), dtype=torch.float64) if self.weights is None else self.weights
        known = self.groups >= 0
        sizes = torch.bincount(self.groups[known], rows[known], minlength=len(self.names))
        return [float(each) for each in sizes @ self.fractions / sizes.sum()]

    def __getitem__(self, rows: Tensor) -> "GroupRows":
        weights = None if self.weights is None else self.weights[rows]
        return replace(self, inputs=self.inputs[rows], groups=self.groups[rows], weights=weights)

    def summary(self, *, exact_up_to: int | None = None) -> GroupedSummary:
        """The likelihood of the beliefs; ``exact_up_to`` as in `GroupedSummary`."""
        count = self.fractions.shape[1]
        return GroupedSummary(
            ClassRegions(count),
            self.fractions,
            self.concentration,
            form=GROUP_FORM,
            smoothing=GROUP_SMOOTHING / count,
            exact_up_to=exact_up_to,
            name="groups",
        )

    def mean_errors(self, log_probs: Tensor) -> tuple[float, float]:
        """Mean absolute error of the fractions of groups: of log-probabilities (N, K), and of the same for everyone."""
        means = self.summary().histograms(log_probs, self.groups, self.weights)
        constant = torch.tensor(self.class_fractions, dtype=torch.float64)
        here = torch.bincount(self.groups[self.groups >= 0], minlength=len(self.names)) > 0
        found, same = ((each - self.fractions)[here].abs().mean().item() for each in (means, constant))
        return found, same

    def with_concentration(self, concentration: float) -> "GroupRows":
        """The same with one known concentration for all groups."""
        return replace(self, concentration=torch.full_like(self.concentration, concentration), estimated=False)

    def without(self, groups: Tensor) -> "GroupRows":
        """Rows that are not in certain groups."""
        return self[~torch.isin(self.groups, groups)]

    def only(self, groups: Tensor) -> "GroupRows":
        """Rows that are in certain groups."""
        return self[torch.isin(self.groups, groups)]

    def folds(self, count: int, *, seed: int) -> list[Tensor]:
        """Groups with rows, dealt out to folds at random."""
        here = self.groups[self.groups >= 0].unique()
        order = here[torch.randperm(len(here), generator=generator_for(seed, "folds of groups"))]
        return [order[k::count] for k in range(min(count, len(order)))]

    def split(self, fraction: float, *, seed: int, whole: bool = False) -> tuple["GroupRows", "GroupRows"]:
        """Training rows and held-out rows: a share of each group, but never its last row; or a share of all groups."""
        if whole:
            (chosen_groups,) = self.folds(1, seed=seed)
            if len(chosen_groups) < 2:
                raise ValueError("at least 2 groups are needed to hold one out, but there is 1")
            chosen_groups = chosen_groups[: max(1, min(round(fraction * len(chosen_groups)), len(chosen_groups) - 1))]
            return self.without(chosen_groups), self.only(chosen_groups)
        known = (self.groups >= 0).nonzero().squeeze(1)
        chosen = torch.zeros(len(self.groups), dtype=torch.bool)
        chosen[known[stratified_split(self.groups[known], fraction, seed=seed)[1]]] = True
        return self[~chosen], self[chosen]


def score_by_groups(train: GroupRows, held_out: GroupRows) -> Callable[[Tensor, Any], Tensor]:
    """Score of predictions for held-out rows: log-likelihood of the stated fractions, per row. Needs no labels."""
    summary = held_out.summary()
    parts = [train.weights, held_out.weights]
    weights = None if held_out.weights is None else torch.cat([each for each in parts if each is not None])
    summary.set_sizes(torch.cat([train.groups, held_out.groups]), weights)

    def held_out_groups(log_probs: Tensor, labels: Any) -> Tensor:
        on_cpu = log_probs.detach().cpu()
        return summary.by_group(on_cpu, held_out.groups, held_out.weights).sum() / len(held_out.groups)

    return held_out_groups


@dataclass(frozen=True)
class Rows:
    """Standardised inputs, labels and weights, and unlabelled inputs.

    ``weights`` is None if all rows have weight 1; ``unlabelled`` is None if there are no such inputs. ``grouped`` holds
    all rows if they have groups; then there may be no labels.
    """

    inputs: Tensor
    labels: Tensor
    weights: Tensor | None
    unlabelled: Tensor | None = None
    grouped: GroupRows | None = None

    def resampled(self) -> Tensor:
        """Indices of as many labelled rows, each as often as its weight says."""
        return resampled(len(self.labels), self.weights)

    @property
    def total(self) -> float:
        """Sum of the weights; the number of rows if there are none."""
        return float(len(self.labels)) if self.weights is None else float(self.weights.sum())

    @property
    def evidence(self) -> float:
        """The labels that a belief should not outweigh: sum of the weights, and concentrations of the groups."""
        return self.total + (0.0 if self.grouped is None else float(self.grouped.concentration.sum()))

    @property
    def num_unlabelled(self) -> int:
        """Number of rows without label that a belief is about."""
        if self.grouped is not None:
            return len(self.grouped.inputs) - len(self.labels)
        return 0 if self.unlabelled is None else len(self.unlabelled)

    @property
    def groups_alone(self) -> GroupRows | None:
        """The rows with groups if there is no label; otherwise None."""
        return self.grouped if len(self.labels) == 0 else None

    def __getitem__(self, rows: Tensor) -> "Rows":
        weights = None if self.weights is None else self.weights[rows]
        return replace(self, inputs=self.inputs[rows], labels=self.labels[rows], weights=weights)

    def as_data(self) -> Any:
        """The data in the form that `selbo.fit` takes."""
        alone = self.groups_alone
        inputs, labels, weights = (
            (self.inputs, self.labels, self.weights) if alone is None else (alone.inputs, None, alone.weights)
        )
        return (inputs, labels) if weights is None else (inputs, labels, weights)

    def beside(self, summaries: int) -> "Tensor | list[Grouped | Tensor | None] | None":
        """Inputs of the summaries beside the training rows, in the form that `selbo.fit` takes.

        Args:
            summaries: Number of summaries. The first is that of the groups, if there are any; the others are about
                random rows of the table.
        """
        if self.grouped is None:
            return self.unlabelled
        own = Grouped(self.grouped.inputs, self.grouped.groups) if self.groups_alone is None else None
        if own is None and summaries == 1:
            return None
        return [own, *[self.grouped.inputs] * (summaries - 1)]


@contextmanager
def few_threads(rows: Rows, hidden: Sequence[int], batch_size: int) -> Iterator[None]:
    """Use one thread for a small network, and an unchanged number for a large one; restored on exit."""
    before = torch.get_num_threads()
    widths = (rows.inputs.shape[1], *hidden)
    largest = max(a * b for a, b in zip(widths, (*hidden, 2), strict=True))
    unlabelled = 0 if rows.unlabelled is None else len(rows.unlabelled)
    grouped = 0 if rows.grouped is None else len(rows.grouped.inputs)
    together = sum(min(batch_size, each) for each in (len(rows.labels), unlabelled, grouped))
    small = together * largest < SMALL_STEP
    try:
        if small:
            torch.set_num_threads(1)
        yield
    finally:
        torch.set_num_threads(before)
