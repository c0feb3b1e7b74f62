r"""A pool of classifiers for tables: a linear one, two forests and networks, weighted by held-out likelihood.

No single kind of classifier suits all tables. A pool predicts $\sum_m w_m\, p_m(y \mid x)$, where the weights maximise
the likelihood of labels that the members have not seen: those of other folds for the linear classifier and the
networks, and those outside the bootstrap sample for the trees of a forest.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from selbo.estimator.forest import Forest
from selbo.evaluation.calibrate import temperature
from selbo.evaluation.predict import Prediction
from selbo.metrics.uncertainty import entropy
from selbo.random import derive, generator_for

POOL_MEMBERS: Final = ("linear", "random_forest", "extra_trees", "networks")

POOL_FOLDS: Final = 5

LINEAR_PENALTIES: Final = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)
"""Inverse strengths of the L2 penalty of the linear classifier, of which held-out likelihood chooses one."""

ROWS_TO_CHOOSE: Final = 1000
"""Number of rows on which the penalty is chosen."""

ROWS_TO_FIT: Final = 4000
"""Number of rows on which the linear classifier is trained to predict held-out rows: more rows change little."""

TREES_PER_FOREST: Final = 100

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

LARGE_TABLE: Final = 8000
"""Number of rows from which batches are large."""

LARGEST_INPUT: Final = 6.0
"""Networks see standardised values up to this size: what lies beyond is extrapolation."""

ABSENT_PROBABILITY: Final = 1e-6
"""Least probability of a class, for classes that a fold lacks."""

WEIGHT_PRIOR: Final = 1.0
"""Pseudo-observations per member in the estimation of the weights."""

ROWS_AT_ONCE: Final = 1 << 14
"""Rows per pass of a prediction."""

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
        found: Tensor = (smooth.log() / self.temperature).log_softmax(-1)
        return found


class Linear(nn.Module):
    """Multinomial logistic regression in double precision; zero at first.

    Args:
        num_features: Number of inputs.
        num_classes: Number of classes.
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(num_classes, num_features, dtype=torch.float64))
        self.register_buffer("bias", torch.zeros(num_classes, dtype=torch.float64))

    def forward(self, inputs: Tensor) -> Tensor:
        """Log-probabilities: (B, features) -> (B, K)."""
        return F.linear(inputs, self.weight, self.bias).log_softmax(-1)


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
        tensor([0.8403, 0.1597])
    """
    count = likelihoods.shape[1]
    rows = torch.ones(len(likelihoods)).to(likelihoods) if row_weights is None else row_weights.to(likelihoods)
    weights = torch.full((count,), 1 / count).to(likelihoods)
    for _ in range(rounds):
        shares = likelihoods * weights
        shares = shares / shares.sum(1, keepdim=True)
        weights = (rows @ shares + prior) / (rows.sum() + prior * count)
    return weights


class _Table(NamedTuple):
    """Rows to train on: inputs (N, features), labels (N,), weights (N,), and K."""

    inputs: Tensor
    labels: Tensor
    weights: Tensor
    num_classes: int


RowFolds = Sequence[tuple[Tensor, Tensor]]
"""Rows to train on and rows to hold out."""


def fit_pool(
    inputs: Tensor,
    labels: Tensor,
    num_classes: int,
    *,
    row_weights: Tensor | None = None,
    seed: int = 0,
    report: ReportShare = lambda share: None,
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
    weights = torch.ones(len(labels), dtype=torch.float64) if row_weights is None else row_weights.double()
    table, folds = _Table(inputs.double(), labels, weights, num_classes), _folds(labels, seed)
    with _one_thread():
        found = {"linear": _linear(table, folds)}
        report(0.2)
        for name, share in (("random_forest", 0.4), ("extra_trees", 0.6)):
            found[name] = _forest(table, name, derive(seed, name))
            report(share)
        found["networks"] = _networks(table, folds, seed, lambda share: report(0.6 + 0.4 * share))
    held_out = torch.stack([each.held_out for each in found.values()])
    mixed = pool_weights(held_out[:, torch.arange(len(labels)), labels].T.exp(), weights)
    return FittedPool(Pool({name: each.module for name, each in found.items()}, mixed), mix(held_out, mixed))


class _Member(NamedTuple):
    module: nn.Module
    held_out: Tensor


@contextmanager
def _one_thread() -> Iterator[None]:
    """Small products are slower with more threads, which wait for each other. Trees are built side by side anyway."""
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


def _folds(labels: Tensor, seed: int) -> RowFolds:
    """As many rows of each class in every fold as possible."""
    order = torch.randperm(len(labels), generator=generator_for(seed, "folds"))
    by_class = order[labels[order].argsort(stable=True)]
    of_row = torch.empty_like(labels)
    of_row[by_class] = torch.arange(len(labels)) % POOL_FOLDS
    return [((of_row != k).nonzero()[:, 0], (of_row == k).nonzero()[:, 0]) for k in range(min(POOL_FOLDS, len(labels)))]


def _linear(table: _Table, folds: RowFolds) -> _Member:
    step = math.ceil(len(table.labels) / ROWS_TO_CHOOSE)
    scores = dict.fromkeys(LINEAR_PENALTIES, 0.0)
    for train, test in folds:
        others = test[::step]
        path = _logistic_path(table, train[::step], LINEAR_PENALTIES)
        for penalty, module in zip(LINEAR_PENALTIES, path, strict=True):
            log_probs = module(table.inputs[others]).clamp(min=math.log(ABSENT_PROBABILITY))
            scores[penalty] += float(log_probs.gather(1, table.labels[others, None])[:, 0] @ table.weights[others])
    best = max(scores, key=scores.__getitem__)
    held_out = torch.empty(len(table.labels), table.num_classes, dtype=torch.float64)
    for train, test in folds:
        (module,) = _logistic_path(table, train[:: math.ceil(len(train) / ROWS_TO_FIT)], [best])
        held_out[test] = module(table.inputs[test])
    (module,) = _logistic_path(table, torch.arange(len(table.labels)), [best])
    return _Member(module, held_out.clamp(min=math.log(ABSENT_PROBABILITY)).log_softmax(-1))


def _logistic_path(table: _Table, rows: Tensor, penalties: Sequence[float]) -> Iterator[Linear]:
    """Logistic regression on some rows, each fit from the last one; a class that they lack has a small probability."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    present = table.labels[rows].unique()
    inputs, labels, weights = (each[rows].numpy() for each in table[:3])
    model = LogisticRegression(max_iter=100, warm_start=True)
    for penalty in penalties:
        module = Linear(table.inputs.shape[1], table.num_classes)
        module.bias.fill_(math.log(ABSENT_PROBABILITY))
        module.bias[present] = 0.0
        if len(present) > 1:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # close is enough
                model.set_params(C=penalty).fit(inputs, labels, weights)
            weight, bias = torch.from_numpy(model.coef_), torch.from_numpy(model.intercept_)
            if len(weight) == 1:  # the second of two classes against the first
                weight, bias = (torch.cat([torch.zeros_like(each), each]) for each in (weight, bias))
            module.weight[present], module.bias[present] = weight, bias
        yield module


def _forest(table: _Table, kind: str, seed: int) -> _Member:
    from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

    maker = {"random_forest": RandomForestClassifier, "extra_trees": ExtraTreesClassifier}[kind]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Some inputs do not have OOB scores")
        found = maker(TREES_PER_FOREST, bootstrap=True, oob_score=True, n_jobs=-1, random_state=seed % 2**32).fit(
            table.inputs.numpy(), table.labels.numpy(), table.weights.numpy()
        )
    totals = torch.bincount(table.labels, table.weights, minlength=table.num_classes)
    module = CalibratedForest(Forest.from_trees(found.estimators_), totals / totals.sum())
    unseen = torch.from_numpy(found.oob_decision_function_)
    unseen = torch.where(unseen.isnan(), module.prior, unseen)
    count = len(table.labels)
    outside = TREES_PER_FOREST * (1 - 1 / count) ** count  # trees that have not seen a row
    module.temperature.fill_(temperature(module.scaled(unseen, outside), table.labels))
    return _Member(module, module.scaled(unseen, outside))


def _networks(table: _Table, folds: RowFolds, seed: int, report: ReportShare) -> _Member:
    """One network per fold, trained on the others; the epoch is the one with the best held-out likelihood of all."""
    generator = generator_for(seed, "networks")
    inputs, labels, weights = table.inputs.float(), table.labels, table.weights.float()
    module = Networks(len(folds), inputs.shape[1], table.num_classes, generator)
    fewest = min(len(train) for train, _ in folds)
    size = min(
        MANY_ROWS_PER_STEP if fewest >= LARGE_TABLE else ROWS_PER_STEP, max(FEWEST_ROWS_PER_STEP, fewest // 4), fewest
    )
    per_epoch = fewest // size
    epochs = min(max(ROWS_SEEN // fewest, NETWORK_EPOCHS[0]), NETWORK_EPOCHS[1])
    optimizer = torch.optim.AdamW(module.parameters(), NETWORK_RATE, weight_decay=NETWORK_DECAY, fused=True)
    steps = epochs * per_epoch
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min(1.0, (step + 1) / (RATE_WARM_UP * steps)) * (1 + math.cos(math.pi * step / steps)) / 2,
    )
    held_out = nn.utils.rnn.pad_sequence([test for _, test in folds], batch_first=True, padding_value=-1)
    counted = (held_out >= 0) * weights[held_out]
    best, kept = math.inf, module.state_dict()
    for epoch in range(epochs):
        orders = (train[torch.randperm(len(train), generator=generator)] for train, _ in folds)
        for rows in torch.stack([each[: per_epoch * size] for each in orders]).split(size, dim=1):
            logits = module.logits(inputs[rows])
            losses = F.cross_entropy(logits.flatten(0, 1), labels[rows].flatten(), reduction="none")
            optimizer.zero_grad()
            (losses @ weights[rows].flatten() / size).backward()
            optimizer.step()
            schedule.step()
        if epoch % max(1, epochs // NETWORK_CHECKS) == 0 or epoch == epochs - 1:
            with torch.no_grad():
                log_probs = module.logits(inputs[held_out]).log_softmax(-1)
            nll = -float((log_probs.gather(-1, labels[held_out][..., None])[..., 0] * counted).sum())
            if nll < best:
                best, kept = nll, {name: each.clone() for name, each in module.state_dict().items()}
            report((epoch + 1) / epochs)
    module.load_state_dict(kept)
    module.requires_grad_(False).eval()
    log_probs = module.logits(inputs[held_out]).double().log_softmax(-1)
    found = torch.empty(len(labels), table.num_classes, dtype=torch.float64)
    for k, (_, test) in enumerate(folds):
        found[test] = log_probs[k, : len(test)]
    return _Member(module, found)
