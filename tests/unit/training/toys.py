"""Small data, networks with everything that has a state, and every objective, for the tests of training."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import selbo
from selbo.objectives import Objective

CLASSES, FEATURES = 3, 4


def blobs(
    count: int, *, seed: int = 0, classes: int = CLASSES, shape: tuple[int, ...] = (FEATURES,)
) -> tuple[Tensor, Tensor]:
    """One cloud a class, overlapping, the first class as frequent as all others together."""
    generator = torch.Generator().manual_seed(1000 + seed)
    labels = (torch.arange(count) % (2 * classes)).clamp(min=classes - 1) - (classes - 1)
    labels = labels[torch.randperm(count, generator=generator)].clamp(max=classes - 1)
    centres = torch.randn(classes, *shape, generator=torch.Generator().manual_seed(7))
    return 1.5 * centres[labels] + torch.randn(count, *shape, generator=generator), labels


def network(*, seed: int = 0, bayesian: bool = False, dropout: float = 0.2, classes: int = CLASSES) -> nn.Module:
    """A network with running statistics and dropout."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        layers = [nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, classes)]
        net = nn.Sequential(*layers)
        return selbo.to_bayesian(net) if bayesian else net


def images() -> nn.Module:
    """Convolutions with BatchNorm, without biases before it, whose gradient is only rounding."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 2, 2)),
        nn.Conv2d(1, 6, 2, padding=1, bias=False),
        nn.BatchNorm2d(6),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(6, CLASSES),
    )


def summary(
    *, ema_decay: float | None = None, classes: int = CLASSES, concentration: float = 50.0
) -> selbo.SummaryLikelihood:
    belief = selbo.expect(accuracy=0.8, num_classes=classes)
    partition = selbo.CornerShells(classes)
    return selbo.SummaryLikelihood(partition, belief, concentration, ema_decay=ema_decay, overrule_labels=True)


# Bayesian or not, and the objective for N examples of K classes
OBJECTIVES: dict[str, tuple[bool, Callable[[int, int], Objective]]] = {
    "cross-entropy": (False, lambda n, k: selbo.CrossEntropy(n)),
    "cross-entropy + summary": (False, lambda n, k: selbo.CrossEntropy(n, summary(classes=k))),
    "label smoothing": (False, lambda n, k: selbo.LabelSmoothing(0.1, n)),
    "label smoothing, Bayesian": (True, lambda n, k: selbo.LabelSmoothing(0.1, n)),
    "evidential": (False, lambda n, k: selbo.Evidential(n)),
    "ELBO": (True, lambda n, k: selbo.ELBO(n)),
    "Summary ELBO": (True, lambda n, k: selbo.SummaryELBO(summary(classes=k), n)),
    "Summary ELBO, moving average": (True, lambda n, k: selbo.SummaryELBO(summary(classes=k, ema_decay=0.9), n)),
}
if find_spec("selbo_lab") is not None:
    from selbo_lab.published import IndependentSummary

    OBJECTIVES["independent summary"] = (True, lambda n, k: IndependentSummary(selbo.Uniform(), n))


class Rows(Dataset[tuple[Tensor, int]]):
    """A data set that is not a TensorDataset; labels are plain numbers, inputs may be noisy."""

    def __init__(self, inputs: Tensor, labels: Tensor, *, noise: float = 0.0) -> None:
        self.inputs, self.labels, self.noise = inputs, labels, noise

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        row = self.inputs[index]
        if self.noise:  # as transformations of images do, from torch's own random state
            row = row + self.noise * torch.randn(row.shape)
        return row, int(self.labels[index])


def states_equal(one: nn.Module, other: nn.Module) -> bool:
    """Whether all tensors of two modules agree bit for bit."""
    ours, theirs = one.state_dict(), other.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
