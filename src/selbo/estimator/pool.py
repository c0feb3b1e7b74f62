"""A pool of classifiers for tables: a linear one, two forests and networks, weighted by held-out likelihood.

No single kind of classifier suits all tables. A pool predicts $\\sum_m w_m\\, p_m(y \\mid x)$, where the weights maximise
the likelihood of labels that the members have not seen: those of other folds for the linear classifier and the networks,
and those outside the bootstrap sample for the trees of a forest.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from selbo.estimator.forest import Forest
from selbo.evaluation.calibrate import temperature
from selbo.evaluation.predict import Prediction
from selbo.metrics.uncertainty import entropy
from selbo.random import derive, generator_for

MEMBERS: Final = ("linear", "random_forest", "extra_trees", "networks")

FOLDS: Final = 5

PENALTIES: Final = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)
"""Inverse strengths of the L2 penalty of the linear classifier, of which held-out likelihood chooses one."""

ROWS_TO_CHOOSE: Final = 2000
"""Number of rows on which the penalty is chosen."""

TREES: Final = 100

HIDDEN: Final = 128
RATE: Final = 0.01
BATCH: Final = 128
LARGE_BATCH: Final = 256
FEWEST_PER_BATCH: Final = 16
ROWS_SEEN: Final = 40_000
EPOCHS: Final = (20, 150)
CHECKS: Final = 40
"""The networks: hidden units, largest learning rate, rows per step (for tables, for large ones, and at least), rows per
training run within limits on the number of epochs, and how often they are compared on held-out rows."""

MANY_ROWS: Final = 8000
"""Number of rows from which batches are large."""

FARTHEST: Final = 6.0
"""Networks see standardised values up to this size: what lies beyond is extrapolation."""

FLOOR: Final = 1e-6
"""Least probability of a class, for classes that a fold lacks."""

WEIGHT_PRIOR: Final = 1.0
"""Pseudo-observations per member in the estimation of the weights."""

ROWS_AT_ONCE: Final = 1 << 14
"""Rows per pass of a prediction."""

Report = Callable[[float], object]
"""Called with the share of the work that is done."""


class Networks(nn.Module):
    """K networks with one hidden layer and a linear part, which predict the mean of their probabilities.

    Args:
        folds: Number of networks.
        num_features: Number of inputs.
        num_classes: Number of classes.
        generator: Source of the initial weights.
    """

    def __init__(
        self, folds: int, num_features: int, num_classes: int, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        scale = math.sqrt(2 / max(num_features, 1))
        first = torch.randn(folds, num_features, HIDDEN, generator=generator) * scale
        self.first, self.first_bias = nn.Parameter(first), nn.Parameter(torch.zeros(folds, 1, HIDDEN))
        self.last = nn.Parameter(torch.zeros(folds, HIDDEN, num_classes))
        self.last_bias = nn.Parameter(torch.zeros(folds, 1, num_classes))
        self.linear = nn.Parameter(torch.zeros(folds, num_features, num_classes))

    def logits(self, inputs: Tensor) -> Tensor:
        """Logits of each network for rows of its own: (folds, B, features) -> (folds, B, K)."""
        near = inputs.to(self.first).clamp(-FARTHEST, FARTHEST)
        hidden = torch.baddbmm(self.first_bias, near, self.first).relu()
        return torch.baddbmm(self.last_bias, hidden, self.last) + near @ self.linear

    def forward(self, inputs: Tensor) -> Tensor:
        """Mean log-probabilities: (B, features) -> (B, K)."""
        by_fold = self.logits(inputs.expand(len(self.first), -1, -1)).double().log_softmax(-1)
        mean: Tensor = by_fold.logsumexp(0) - math.log(len(by_fold))
        return mean


class CalibratedForest(nn.Module):
    """A forest whose fractions are smoothed by those of all rows, as one more tree, and scaled by a temperature.

    Args:
        forest: The trees.
        prior: Class fractions of the training rows, shape (K,).
        temperature: Temperature.
    """

    prior: Tensor
    temperature: Tensor

    def __init__(self, forest: Forest, prior: Tensor, temperature: float = 1.0) -> None:
        super().__init__()
        self.forest = forest
        self.register_buffer("prior", prior.double())
        self.register_buffer("temperature", torch.tensor(temperature, dtype=torch.float64))

    def forward(self, inputs: Tensor) -> Tensor:
        """Log-probabilities: (B, features) -> (B, K)."""
        return self.scaled(self.forest(inputs), len(self.forest.roots))

    def scaled(self, fractions: Tensor, num_trees: float) -> Tensor:
        """Log-probabilities from mean fractions of so many trees."""
        smooth = (fractions * num_trees + self.prior) / (num_trees + 1)
        return (smooth.log() / self.temperature).log_softmax(-1)


class Linear(nn.Linear):
    """Multinomial logistic regression in double precision."""

    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__(num_features, num_classes, dtype=torch.float64)
        self.requires_grad_(False)

    def forward(self, input: Tensor) -> Tensor:  # torch's name
        """Log-probabilities: (B, features) -> (B, K)."""
        return super().forward(input).log_softmax(-1)


class Pool(nn.Module):
    """A weighted mean of the probabilities of several classifiers of standardised rows.

    Args:
        members: Modules that return log-probabilities, by name.
        weights: Weight of each, shape (M,), summing to one.
    """

    weights: Tensor

    def __init__(self, members: dict[str, nn.Module], weights: Tensor) -> None:
        super().__init__()
        self.members = nn.ModuleDict(members)
        self.register_buffer("weights", weights.double())

    @classmethod
    def with_shapes(cls, shapes: Mapping[str, Sequence[int]], num_features: int, num_classes: int) -> "Pool":
        """A pool to load a state with the given shapes into.

        Raises:
            ValueError: If no pool for so many features and classes has these shapes.
        """
        members: dict[str, nn.Module] = {"linear": Linear(num_features, num_classes)}
        try:
            for name in ("random_forest", "extra_trees"):
                nodes, trees = (shapes[f"members.{name}.forest.{each}"][0] for each in ("branches", "roots"))
                forest = Forest.with_shapes(nodes, trees, num_classes)
                members[name] = CalibratedForest(forest, torch.zeros(num_classes))
            folds = shapes["members.networks.first"][0]
        except (KeyError, IndexError) as error:
            raise ValueError(f"a pool must have the tensor {error}") from error
        members["networks"] = Networks(folds, num_features, num_classes).requires_grad_(False)
        pool = cls(members, torch.zeros(len(members)))
        found = {name: list(each.shape) for name, each in pool.state_dict().items()}
        if found != {name: list(each) for name, each in shapes.items()}:
            raise ValueError(f"the tensors must be those of a pool for {num_features} inputs and {num_classes} classes")
        return pool.eval()

    def forward(self, inputs: Tensor) -> Tensor:
        """Log-probabilities of the pool: (B, features) -> (B, K)."""
        return mix(self.by_member(inputs), self.weights)

    def by_member(self, inputs: Tensor) -> Tensor:
        """Log-probabilities of each member: (B, features) -> (M, B, K)."""
        return torch.stack([each(inputs) for each in self.members.values()])

    @torch.no_grad()
    def predict(self, inputs: Tensor) -> Prediction:
        """Predictions; the mutual information is the disagreement of the members."""
        by_member = torch.cat([self.by_member(each) for each in inputs.split(ROWS_AT_ONCE)], dim=1)
        log_probs = mix(by_member, self.weights)
        total = entropy(log_probs=log_probs, validate=False)
        within = torch.einsum("m,mb->b", self.weights, entropy(log_probs=by_member, validate=False))
        within = torch.minimum(within, total)  # rounding
        return Prediction(log_probs.exp(), log_probs, total, within, total - within)


class FittedPool(NamedTuple):
    """A pool, and what it predicts for its training rows without having seen their labels.

    Attributes:
        pool: The pool.
        held_out: Log-probabilities of the training rows, shape (N, K).
    """

    pool: Pool
    held_out: Tensor


def mix(log_probs: Tensor, weights: Tensor) -> Tensor:
    """Logarithm of the weighted mean of probabilities: (M, B, K), (M,) -> (B, K)."""
    mean: Tensor = (log_probs + weights.log()[:, None, None]).logsumexp(0)
    return mean


def pool_weights(
    likelihoods: Tensor, row_weights: Tensor | None = None, *, prior: float = WEIGHT_PRIOR, rounds: int = 500
) -> Tensor:
    """Weights of a pool that maximise the likelihood of labels, by expectation maximisation.

    Args:
        likelihoods: Probability that each member gave to each label, shape (N, M).
        row_weights: Weight of each label, shape (N,).
        prior: Pseudo-observations per member.
        rounds: Number of iterations; the likelihood increases in each.

    Example:
        >>> pool_weights(torch.tensor([[0.9, 0.1], [0.8, 0.3], [0.7, 0.2]]), prior=0.5)
        tensor([0.8487, 0.1513])
    """
    count = likelihoods.shape[1]
    rows = torch.ones(len(likelihoods)).to(likelihoods) if row_weights is None else row_weights.to(likelihoods)
    weights = torch.full((count,), 1 / count).to(likelihoods)
    for _ in range(rounds):
        shares = likelihoods * weights
        shares = shares / shares.sum(1, keepdim=True)
        weights = (rows @ shares + prior) / (rows.sum() + prior * count)
    return weights


def fit_pool(
    inputs: Tensor,
    labels: Tensor,
    num_classes: int,
    *,
    row_weights: Tensor | None = None,
    seed: int = 0,
    report: Report = lambda share: None,
) -> FittedPool:
    """Train the members on labelled rows, and weight them.

    Args:
        inputs: Standardised features, shape (N, features).
        labels: Classes from 0 to K - 1, shape (N,); each occurs.
        num_classes: K.
        row_weights: Weight of each row, shape (N,), with mean one.
        seed: Seed for all randomness.
        report: Called with the share of the work that is done.
    """
    with _one_thread():
        return _fit_pool(inputs, labels, num_classes, row_weights, seed, report)


def _fit_pool(
    inputs: Tensor, labels: Tensor, num_classes: int, row_weights: Tensor | None, seed: int, report: Report
) -> FittedPool:
    folds = _folds(labels, seed)
    weights = torch.ones(len(labels), dtype=torch.float64) if row_weights is None else row_weights.double()
    given = inputs.double(), labels, weights, num_classes
    found = {"linear": _linear(*given, folds)}
    report(0.2)
    for name, share in (("random_forest", 0.4), ("extra_trees", 0.6)):
        found[name] = _forest(*given, name, derive(seed, name))
        report(share)
    found["networks"] = _networks(*given, folds, derive(seed, "networks"), lambda share: report(0.6 + 0.4 * share))
    held_out = torch.stack([each.held_out for each in found.values()])
    seen = held_out[:, torch.arange(len(labels)), labels].T.exp()
    mixed = pool_weights(seen, weights)
    return FittedPool(Pool({name: each.module for name, each in found.items()}, mixed), mix(held_out, mixed))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Small products are slower with more threads, which wait for each other; the trees of a forest are
    built side by side."""
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


class _Member(NamedTuple):
    module: nn.Module
    held_out: Tensor


def _folds(labels: Tensor, seed: int) -> list[tuple[Tensor, Tensor]]:
    """Rows to train on and rows to hold out, as many of each class in every fold as possible."""
    generator = generator_for(seed, "folds")
    order = torch.randperm(len(labels), generator=generator)
    by_class = order[labels[order].argsort(stable=True)]
    of_row = torch.empty_like(labels)
    of_row[by_class] = torch.arange(len(labels)) % min(FOLDS, len(labels))
    return [((of_row != k).nonzero()[:, 0], (of_row == k).nonzero()[:, 0]) for k in range(int(of_row.max()) + 1)]


def _linear(
    inputs: Tensor, labels: Tensor, weights: Tensor, num_classes: int, folds: list[tuple[Tensor, Tensor]]
) -> _Member:
    X, y, sample = inputs.numpy(), labels.numpy(), weights.numpy()

    def predicted(penalty: float, train: NDArray[Any], test: NDArray[Any]) -> Tensor:
        return _logistic(X[train], y[train], sample[train], num_classes, penalty)(torch.from_numpy(X[test]))

    step = max(1, math.ceil(len(y) / ROWS_TO_CHOOSE))
    scores = dict.fromkeys(PENALTIES, 0.0)
    for train, test in folds:
        some, others = train[::step].numpy(), test[::step].numpy()
        for penalty in PENALTIES:
            log_probs = predicted(penalty, some, others).clamp(min=math.log(FLOOR))
            scores[penalty] += float(log_probs[torch.arange(len(others)), y[others]] @ weights[others])
    best = max(scores, key=scores.__getitem__)
    held_out = torch.zeros(len(y), num_classes, dtype=torch.float64)
    for train, test in folds:
        held_out[test] = predicted(best, train.numpy(), test.numpy())
    return _Member(_logistic(X, y, sample, num_classes, best), held_out.clamp(min=math.log(FLOOR)).log_softmax(-1))


def _logistic(
    X: NDArray[Any], y: NDArray[Any], sample: NDArray[Any], num_classes: int, penalty: float
) -> Linear:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    module = Linear(X.shape[1], num_classes)
    module.weight.zero_()
    module.bias.fill_(math.log(FLOOR))
    present = np.unique(y)
    if len(present) == 1:
        module.bias[present] = 0.0
        return module
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # close is enough
        found = LogisticRegression(C=penalty, max_iter=200).fit(X, y, sample)
    weight, bias = torch.from_numpy(found.coef_), torch.from_numpy(found.intercept_)
    if len(weight) == 1:  # the second of two classes against the first
        weight, bias = torch.cat([torch.zeros_like(weight), weight]), torch.cat([torch.zeros_like(bias), bias])
    module.weight[present], module.bias[present] = weight, bias
    return module


def _forest(
    inputs: Tensor, labels: Tensor, weights: Tensor, num_classes: int, kind: str, seed: int
) -> _Member:
    from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

    maker = {"random_forest": RandomForestClassifier, "extra_trees": ExtraTreesClassifier}[kind]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Some inputs do not have OOB scores")
        found = maker(TREES, bootstrap=True, oob_score=True, n_jobs=-1, random_state=seed % 2**32).fit(
            inputs.numpy(), labels.numpy(), weights.numpy()
        )
    prior = torch.bincount(labels, weights, minlength=num_classes)
    module = CalibratedForest(Forest.from_trees(found.estimators_), prior / prior.sum())
    unseen = torch.from_numpy(found.oob_decision_function_)
    unseen = torch.where(unseen.isnan(), module.prior, unseen)
    outside = TREES * (1 - 1 / len(labels)) ** len(labels)  # trees that have not seen a row
    module.temperature.fill_(temperature(module.scaled(unseen, outside), labels))
    return _Member(module, module.scaled(unseen, outside))


def _networks(
    inputs: Tensor,
    labels: Tensor,
    weights: Tensor,
    num_classes: int,
    folds: list[tuple[Tensor, Tensor]],
    seed: int,
    report: Report,
) -> _Member:
    generator = generator_for(seed, "networks")
    X, sample = inputs.float(), weights.float()
    module = Networks(len(folds), inputs.shape[1], num_classes, generator)
    fewest = min(len(train) for train, _ in folds)
    size = min(LARGE_BATCH if fewest >= MANY_ROWS else BATCH, max(FEWEST_PER_BATCH, fewest // 4), fewest)
    per_epoch = fewest // size
    epochs = min(max(ROWS_SEEN // fewest, EPOCHS[0]), EPOCHS[1])
    optimizer = torch.optim.AdamW(module.parameters(), RATE, weight_decay=1e-4, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=epochs * per_epoch, pct_start=0.1)
    held_out = nn.utils.rnn.pad_sequence([test for _, test in folds], batch_first=True, padding_value=-1)
    counted = (held_out >= 0) * sample[held_out]
    best, kept = math.inf, {}
    for epoch in range(epochs):
        order = torch.stack([train[torch.randperm(len(train), generator=generator)[: per_epoch * size]] for train, _ in folds])
        for rows in order.split(size, dim=1):
            loss = F.cross_entropy(module.logits(X[rows]).flatten(0, 1), labels[rows].flatten(), reduction="none")
            optimizer.zero_grad()
            (loss * sample[rows].flatten()).sum().div(size).backward()
            optimizer.step()
            schedule.step()
        if epoch % max(1, epochs // CHECKS) == 0 or epoch == epochs - 1:
            with torch.no_grad():
                log_probs = module.logits(X[held_out]).log_softmax(-1)
                nll = -(log_probs.gather(-1, labels[held_out][..., None])[..., 0] * counted).sum()
            if float(nll) < best:
                best, kept = float(nll), {name: each.clone() for name, each in module.state_dict().items()}
            report((epoch + 1) / epochs)
    module.load_state_dict(kept)
    found = torch.zeros(len(labels), num_classes, dtype=torch.float64)
    with torch.no_grad():
        log_probs = module.logits(X[held_out]).double().log_softmax(-1)
        for k, (_, test) in enumerate(folds):
            found[test] = log_probs[k, : len(test)]
    return _Member(module.requires_grad_(False).eval(), found)
