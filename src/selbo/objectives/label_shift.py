"""Label shift: labels come from a place where classes are otherwise frequent than where the model will be used."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from selbo import checks


@dataclass(frozen=True)
class LabelShift:
    r"""Class fractions where the labels come from and where the model will be used.

    If inputs of a class look alike in both places, the two posteriors differ by the ratio of the fractions,

    $$p_\text{labels}(k \mid x) \propto p_\text{use}(k \mid x) \, \pi_k / \pi'_k .$$

    An objective with a label shift trains a network that answers for the place of use: its log-probabilities are
    brought to the place of the labels before they are compared with labels (logit adjustment; Menon et al., 2021). So
    labels of a 90:10 screening and a belief about a 50:50 clinic do not contradict each other.

    Attributes:
        before: $\pi$, fraction of each class among the labels; positive, summing to one.
        after: $\pi'$, fraction of each class at the place of use, likewise.

    Example:
        >>> shift = LabelShift(before=[0.9, 0.1], after=[0.5, 0.5])
        >>> shift.to_labels(torch.tensor([[0.5, 0.5]]).log()).exp()
        tensor([[0.9000, 0.1000]])
    """

    before: Sequence[float]
    after: Sequence[float]

    def __post_init__(self) -> None:
        for name in ("before", "after"):
            object.__setattr__(self, name, checks.simplex(name, getattr(self, name)))
        if len(self.before) != len(self.after):
            raise ValueError(
                f"`before` and `after` must hold one fraction a class each, but hold {len(self.before)} and "
                f"{len(self.after)}"
            )

    @classmethod
    def from_labels(cls, labels: Tensor, after: Sequence[float], *, weights: Tensor | None = None) -> "LabelShift":
        """A shift from the class fractions of some labels; a class without a label counts as half a label.

        Args:
            labels: Classes, shape (N,).
            after: Fraction of each class at the place of use.
            weights: How much each label counts, shape (N,); equally if not given.

        Example:
            >>> LabelShift.from_labels(torch.tensor([0, 0, 0, 1]), [0.5, 0.5]).before
            (0.75, 0.25)
        """
        each = None if weights is None else weights.double().cpu()
        counts = torch.bincount(labels.long().cpu(), each, minlength=len(after)).double().clamp(min=0.5)
        if len(counts) > len(after):
            raise ValueError(f"`after` must hold one fraction a class, {len(counts)} of them, but holds {len(after)}")
        return cls(tuple((counts / counts.sum()).tolist()), after)

    @property
    def log_ratios(self) -> Tensor:
        """Logarithm of before / after, shape (K,), in float64."""
        before, after = (torch.tensor(each, dtype=torch.float64) for each in (self.before, self.after))
        return before.log() - after.log()

    def to_labels(self, log_probs: Tensor) -> Tensor:
        """Log-probabilities of the place of use, brought to the place that the labels come from: (..., K)."""
        return (log_probs + self.log_ratios.to(log_probs)).log_softmax(-1)

    def to_use(self, log_probs: Tensor) -> Tensor:
        """The inverse of `to_labels`."""
        return (log_probs - self.log_ratios.to(log_probs)).log_softmax(-1)
