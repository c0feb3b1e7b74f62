"""Small networks for tables, one per fold, trained side by side; each predicts the rows that it has not seen.

A step of all networks takes less than a millisecond for small tables. There the time goes to the calls, not to the
arithmetic, so the derivatives and Adam are written out: a dozen calls per step, and no import of torch's compiler.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn

NETWORK_WIDTH: Final = 128
NETWORK_RATE: Final = 0.01
NETWORK_DECAY: Final = 1e-4
RATE_WARM_UP: Final = 0.1
ROWS_PER_STEP: Final = 128
MANY_ROWS_PER_STEP: Final = 256
FEWEST_ROWS_PER_STEP: Final = 16
ROWS_SEEN: Final = 40_000
NETWORK_EPOCHS: Final = (20, 150)
NETWORK_CHECKS: Final = 40
"""The networks: hidden units, largest learning rate, weight decay, share of the steps in which the rate grows, rows per
step (usually, for large tables, and at least), rows per training run within limits on the number of epochs, and how
often they are compared on held-out rows."""

ADAM_DECAYS: Final = (0.9, 0.999)
ADAM_LEAST: Final = 1e-8

LARGE_TABLE: Final = 8000
"""Number of rows from which batches are large."""

LARGEST_INPUT: Final = 6.0
"""Networks see standardised values up to this size: what lies beyond is extrapolation."""

RowFolds = Sequence[tuple[Tensor, Tensor]]
"""Rows to train on and rows to hold out."""

ReportShare = Callable[[float], object]
"""Called with the share of the work that is done."""


class Networks(nn.Module):
    """K networks with one hidden layer and a linear part, which predict the mean of their probabilities.

    Args:
        folds: Number of networks.
        num_features: Number of inputs.
        num_classes: Number of classes.
        generator: Source of the initial weights; without one they are zero, to load others.
    """

    def __init__(
        self, folds: int, num_features: int, num_classes: int, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.zeros(folds, num_features, NETWORK_WIDTH))
        if generator is not None:
            nn.init.normal_(self.first, std=math.sqrt(2 / max(num_features, 1)), generator=generator)
        self.first_bias = nn.Parameter(torch.zeros(folds, 1, NETWORK_WIDTH))
        self.last = nn.Parameter(torch.zeros(folds, NETWORK_WIDTH, num_classes))
        self.last_bias = nn.Parameter(torch.zeros(folds, 1, num_classes))
        self.linear = nn.Parameter(torch.zeros(folds, num_features, num_classes))

    def logits(self, inputs: Tensor) -> Tensor:
        """Logits of each network for rows of its own: (folds, B, features) -> (folds, B, K)."""
        near = inputs.to(self.first).clamp(-LARGEST_INPUT, LARGEST_INPUT)
        hidden = torch.baddbmm(self.first_bias, near, self.first).relu()
        return torch.baddbmm(self.last_bias, hidden, self.last) + near @ self.linear

    def forward(self, inputs: Tensor) -> Tensor:
        """Logarithm of the mean probabilities: (B, features) -> (B, K)."""
        by_fold = self.logits(inputs.expand(len(self.first), -1, -1)).double().log_softmax(-1)
        mean: Tensor = by_fold.logsumexp(0) - math.log(len(by_fold))
        return mean


class FittedNetworks(NamedTuple):
    """Networks, and the log-probabilities of each row by the one that has not seen it, shape (N, K)."""

    module: Networks
    held_out: Tensor


class StepByStep:
    """Training of networks by AdamW on the mean weighted cross-entropy.

    The weights stand in one vector, as do their derivatives; a bias is the weight of an input that is always one.

    Args:
        module: The networks. Their weights are those of the start, until `store` is called.
    """

    def __init__(self, module: Networks) -> None:
        self._module = module
        first = torch.cat([module.first, module.first_bias], 1)
        skip = torch.cat([module.linear, module.last_bias], 1)
        parts = [each.detach() for each in (first, module.last, skip)]
        self._weights = torch.cat([each.flatten() for each in parts])
        self._slopes, self._mean, self._square = (torch.zeros_like(self._weights) for _ in range(3))
        self._first, self._last, self._skip = self._views(self._weights, parts)
        self._by_first, self._by_last, self._by_skip = self._views(self._slopes, parts)
        self._steps = 0

    @staticmethod
    def _views(vector: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
        return [part.view(each.shape) for part, each in zip(vector.split([e.numel() for e in like]), like, strict=True)]

    @property
    def weights(self) -> Tensor:
        """All weights of the networks, as one vector that the next step changes."""
        return self._weights

    def differentiate(self, inputs: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        """Set and return the derivatives of the loss by the weights of the networks.

        Args:
            inputs: Inputs with a column of ones, shape (folds, B, features + 1).
            labels: Labels, shape (folds, B).
            weights: Weight of each row, divided by B, shape (folds, B).
        """
        hidden = (inputs @ self._first).relu_()
        errors = torch.baddbmm(inputs @ self._skip, hidden, self._last).softmax(-1)
        errors.scatter_add_(-1, labels[..., None], torch.full((*labels.shape, 1), -1.0))
        errors *= weights[..., None]
        across, along = inputs.transpose(1, 2), hidden.transpose(1, 2)
        torch.bmm(across, errors, out=self._by_skip)
        torch.bmm(along, errors, out=self._by_last)
        backwards = (errors @ self._last.transpose(1, 2).contiguous()).mul_(hidden.sign())  # a copy is far faster
        torch.bmm(across, backwards, out=self._by_first)
        return self._slopes

    def step(self, rate: float) -> None:
        """One step of AdamW along the derivatives that were set last."""
        self._steps += 1
        slow, slower = ADAM_DECAYS
        self._mean.lerp_(self._slopes, 1 - slow)
        self._square.mul_(slower).addcmul_(self._slopes, self._slopes, value=1 - slower)
        size = self._square.sqrt().div_(math.sqrt(1 - slower**self._steps)).add_(ADAM_LEAST)
        self._weights.mul_(1 - rate * NETWORK_DECAY)
        self._weights.addcdiv_(self._mean, size, value=-rate / (1 - slow**self._steps))

    def store(self, weights: Tensor) -> None:
        """Give the networks a vector of weights."""
        first, last, skip = self._views(weights, [self._first, self._last, self._skip])
        module = self._module
        with torch.no_grad():
            for mine, theirs in (
                (module.first, first[:, :-1]),
                (module.first_bias, first[:, -1:]),
                (module.last, last),
                (module.last_bias, skip[:, -1:]),
                (module.linear, skip[:, :-1]),
            ):
                mine.copy_(theirs)


def fit_networks(
    inputs: Tensor,
    labels: Tensor,
    row_weights: Tensor,
    num_classes: int,
    folds: RowFolds,
    *,
    generator: torch.Generator,
    report: ReportShare = lambda share: None,
) -> FittedNetworks:
    """Train one network per fold on the others; the epoch is the one with the best held-out likelihood of all.

    Args:
        inputs: Standardised features, shape (N, features).
        labels: Classes from 0 to K - 1, shape (N,).
        row_weights: Weight of each row, shape (N,).
        num_classes: K.
        folds: The rows of each network.
        generator: Source of initial weights and of the order of the rows.
        report: Called with the share of the work that is done.
    """
    module = Networks(len(folds), inputs.shape[1], num_classes, generator).requires_grad_(False)
    near = inputs.float().clamp(-LARGEST_INPUT, LARGEST_INPUT)
    near, weights = torch.cat([near, torch.ones(len(near), 1)], 1), row_weights.float()
    fewest = min(len(train) for train, _ in folds)
    usual = MANY_ROWS_PER_STEP if fewest >= LARGE_TABLE else ROWS_PER_STEP
    size = min(usual, max(FEWEST_ROWS_PER_STEP, fewest // 4), fewest)
    per_epoch = fewest // size
    epochs = min(max(ROWS_SEEN // fewest, NETWORK_EPOCHS[0]), NETWORK_EPOCHS[1])
    steps = epochs * per_epoch
    held_out = nn.utils.rnn.pad_sequence([test for _, test in folds], batch_first=True, padding_value=-1)
    counted, unseen, answers = (held_out >= 0) * weights[held_out], inputs[held_out].float(), labels[held_out]
    training, best, done = StepByStep(module), math.inf, 0
    kept = training.weights.clone()
    for epoch in range(epochs):
        orders = (train[torch.randperm(len(train), generator=generator)] for train, _ in folds)
        for rows in torch.stack([each[: per_epoch * size] for each in orders]).split(size, dim=1):
            training.differentiate(near[rows], labels[rows], weights[rows] / size)
            warm = min(1.0, (done + 1) / (RATE_WARM_UP * steps))
            training.step(NETWORK_RATE * warm * (1 + math.cos(math.pi * done / steps)) / 2)
            done += 1
        if epoch % max(1, epochs // NETWORK_CHECKS) == 0 or epoch == epochs - 1:
            training.store(training.weights)
            log_probs = module.logits(unseen).log_softmax(-1)
            nll = -float((log_probs.gather(-1, answers[..., None])[..., 0] * counted).sum())
            if nll < best:
                best, kept = nll, training.weights.clone()
            report((epoch + 1) / epochs)
    training.store(kept)
    log_probs = module.eval().logits(unseen).double().log_softmax(-1)
    found = torch.empty(len(labels), num_classes, dtype=torch.float64)
    for k, (_, test) in enumerate(folds):
        found[test] = log_probs[k, : len(test)]
    return FittedNetworks(module, found)
