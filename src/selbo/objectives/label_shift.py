"""Label shift: the class fractions of the source domain, where labels come from, differ from the target domain's."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from selbo import _checks


@dataclass(frozen=True)
class LabelShift:
    r"""Class fractions of the source domain, where labels come from, and of the target domain.

    If the inputs of each class have the same distribution in both domains, the two posteriors differ by the ratio of
    the fractions,

    $$p_\text{use}(k \mid x) \propto p_\text{labels}(k \mid x) \, \pi'_k / \pi_k .$$

    An objective with a label shift trains the network for the source domain as usual. Its summaries are evaluated on
    the predictions for unlabelled inputs after correction to the target domain. Labels of a screening with 10 % ill
    people and a belief about a clinic with 50 % are then compatible. Correct the predictions of the trained network
    with `to_target`.

    Attributes:
        before: $\pi$, fraction of each class among the labels; positive, summing to one.
        after: $\pi'$, fraction of each class in the target domain; positive, summing to one.

    Example:
        >>> shift = LabelShift(before=[0.9, 0.1], after=[0.5, 0.5])
        >>> shift.to_target(torch.tensor([[0.9, 0.1]]).log()).exp()
        tensor([[0.5000, 0.5000]])
    """

    before: Sequence[float]
    after: Sequence[float]

    def __post_init__(self) -> None:
        for name in ("before", "after"):
            object.__setattr__(self, name, _checks.simplex(name, getattr(self, name)))
        if len(self.before) != len(self.after):
            raise ValueError(
                f"`before` and `after` must each hold one fraction per class, but hold {len(self.before)} and "
                f"{len(self.after)}"
            )

    @classmethod
    def from_labels(cls, labels: Tensor, after: Sequence[float], *, weights: Tensor | None = None) -> "LabelShift":
        """Build a shift from the class fractions of labels; a class without a label counts as half a label.

        Args:
            labels: Classes, shape (N,).
            after: Fraction of each class in the target domain.
            weights: Weight per label, shape (N,); equal weights if not given.

        Example:
            >>> LabelShift.from_labels(torch.tensor([0, 0, 0, 1]), [0.5, 0.5]).before
            (0.75, 0.25)
        """
        each = None if weights is None else weights.double().cpu()
        counts = torch.bincount(labels.long().cpu(), each, minlength=len(after)).double().clamp(min=0.5)
        if len(counts) > len(after):
            raise ValueError(f"`after` must hold one fraction per class, {len(counts)} of them, but holds {len(after)}")
        return cls(tuple((counts / counts.sum()).tolist()), after)

    @property
    def log_ratios(self) -> Tensor:
        """Logarithm of after / before, shape (K,), in float64."""
        before, after = (torch.tensor(each, dtype=torch.float64) for each in (self.before, self.after))
        return after.log() - before.log()

    def to_target(self, log_probs: Tensor) -> Tensor:
        """Correct log-probabilities of the source domain for the target domain: (..., K) -> (..., K).

        Correct the mean over weight samples rather than each sample: in trials, this gave a lower NLL.
        """
        return shifted(log_probs, self.log_ratios)


def shifted(log_probs: Tensor, log_ratios: Tensor) -> Tensor:
    """Log-probabilities with the odds of the classes multiplied by ratios: (..., K), (K,) -> (..., K)."""
    if log_probs.shape[-1] != len(log_ratios):
        raise ValueError(
            f"a label shift must hold one fraction per class, {log_probs.shape[-1]} of them, but holds "
            f"{len(log_ratios)}"
        )
    return (log_probs + log_ratios.to(log_probs)).log_softmax(-1)
