r"""A pool of classifiers for tables: a linear one, two forests and networks, weighted by held-out likelihood.

No single kind of classifier suits all tables. A pool predicts $\sum_m w_m\, p_m(y \mid x)$, where the weights maximise
the likelihood of labels that the members have not seen: those of other folds for the linear classifier and the
networks, and those outside the bootstrap sample for the trees of a forest. A mean of calibrated probabilities is less
certain than it should be, so that the pool has a temperature besides, which is fitted to the same labels.
"""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from selbo.estimator.fold_networks import LARGE_TABLE, Networks, ReportShare, RowFolds, fit_networks
from selbo.estimator.forest import Forest
from selbo.evaluation.calibrate import scale, temperature
from selbo.evaluation.predict import Prediction
from selbo.metrics.uncertainty import entropy
from selbo.random import derive, generator_for

POOL_MEMBERS: Final = ("linear", "random_forest", "extra_trees", "networks")

POOL_FOLDS: Final = 5

LINEAR_PENALTIES: Final = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)
"""Inverse strengths of the L2 penalty of the linear classifier, of which held-out likelihood chooses one."""

LINEAR_ITERATIONS: Final = 20
"""Iterations per strength. Each starts where the last stronger one ended."""

ROWS_TO_CHOOSE: Final = 1000
"""Number of rows on which the penalty is chosen."""

ROWS_TO_FIT: Final = 4000
"""Number of rows on which the linear classifier is trained to predict held-out rows: more rows change little."""

TREES_PER_FOREST: Final = 100
FEW_TREES: Final = 50
"""Trees per forest; and of a random forest, whose trees take longer, for a large table."""

ABSENT_PROBABILITY: Final = 1e-6
"""Least probability of a class, for classes that a fold lacks."""

WEIGHT_PRIOR: Final = 1.0
"""Pseudo-observations per member in the estimation of the weights."""

POOL_PRIOR: Final = 50.0
"""Weight of the prior of the temperature of a pool, whose mode is 1, in observations. The weights are fitted to the
same labels, and those of small tables tell little about a temperature."""

ROWS_AT_ONCE: Final = 1 << 14
"""Rows per pass of a prediction."""


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
    """A weighted mean of the probabilities of several classifiers of standardised rows, scaled by a temperature.

    Args:
        members: Modules that return log-probabilities, by name.
        weights: Weight of each, shape (M,), summing to one.
        temperature: Temperature of the mean.
    """

    weights: Tensor
    temperature: Tensor

    def __init__(self, members: dict[str, nn.Module], weights: Tensor, temperature: float = 1.0) -> None:
        super().__init__()
        self.members = nn.ModuleDict(members)
        self.register_buffer("weights", weights.double())
        self.register_buffer("temperature", torch.tensor(temperature, dtype=torch.float64))

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
        return scale(mix(self.by_member(inputs), self.weights), float(self.temperature))

    def by_member(self, inputs: Tensor) -> Tensor:
        """Log-probabilities of each member: (B, features) -> (M, B, K)."""
        return torch.stack([each(inputs) for each in self.members.values()])

    @torch.no_grad()
    def predict(self, inputs: Tensor) -> Prediction:
        """Predictions. The mutual information is the disagreement of the members, but at most the entropy."""
        by_member = torch.cat([self.by_member(each) for each in inputs.split(ROWS_AT_ONCE)], dim=1)
        mixed = mix(by_member, self.weights)
        within = torch.einsum("m,mb->b", self.weights, entropy(log_probs=by_member, validate=False))
        between = (entropy(log_probs=mixed, validate=False) - within).clamp(min=0.0)  # rounding
        log_probs = scale(mixed, float(self.temperature))
        total = entropy(log_probs=log_probs, validate=False)
        between = torch.minimum(between, total)
        return Prediction(log_probs.exp(), log_probs, total, total - between, between)


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
        counts = weights * ((rows / (likelihoods @ weights)) @ likelihoods)
        weights = (counts + prior) / (rows.sum() + prior * count)
    return weights


class _Table(NamedTuple):
    """Rows to train on: inputs (N, features), labels (N,), weights (N,), and K."""

    inputs: Tensor
    labels: Tensor
    weights: Tensor
    num_classes: int


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
    together = mix(held_out, mixed)
    shared = temperature(together, labels, weights=weights, prior_strength=POOL_PRIOR)
    pool = Pool({name: each.module for name, each in found.items()}, mixed, shared)
    return FittedPool(pool, scale(together, shared))


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
    """Logistic regression; the penalty is weakened as long as that makes held-out labels more likely."""
    count = len(table.labels)
    step = math.ceil(count / ROWS_TO_CHOOSE)
    paths = [_Logistic(table, train[::step]) for train, _ in folds]
    best, chosen, held_out = -math.inf, LINEAR_PENALTIES[0], torch.empty(0)
    for penalty in LINEAR_PENALTIES:
        found = torch.zeros(count, table.num_classes, dtype=torch.float64)
        score = 0.0
        for path, (_, test) in zip(paths, folds, strict=True):
            others = test[::step]
            found[others] = log_probs = path.fit(penalty)(table.inputs[others])
            seen = log_probs.clamp(min=math.log(ABSENT_PROBABILITY)).gather(1, table.labels[others, None])[:, 0]
            score += float(seen @ table.weights[others])
        if score < best:
            break
        best, chosen, held_out = score, penalty, found
    if step > 1:
        for train, test in folds:
            some = _Logistic(table, train[:: math.ceil(len(train) / ROWS_TO_FIT)])
            held_out[test] = some.follow(chosen)(table.inputs[test])
    module = _Logistic(table, torch.arange(count)).follow(chosen)
    return _Member(module, held_out.clamp(min=math.log(ABSENT_PROBABILITY)).log_softmax(-1))


class _Logistic:
    """Logistic regression on some rows, each fit from the last one; a class that they lack has a small probability."""

    def __init__(self, table: _Table, rows: Tensor) -> None:
        from sklearn.linear_model import LogisticRegression

        self._present = table.labels[rows].unique()
        self._rows = tuple(each[rows].numpy() for each in table[:3])
        self._shape = table.inputs.shape[1], table.num_classes
        self._model = LogisticRegression(max_iter=LINEAR_ITERATIONS, warm_start=True)

    def follow(self, penalty: float) -> Linear:
        """The fit with a penalty at the end of the path to it."""
        return [self.fit(each) for each in LINEAR_PENALTIES if each <= penalty][-1]

    def fit(self, penalty: float) -> Linear:
        """The fit with the next penalty of the path."""
        from sklearn.exceptions import ConvergenceWarning

        module, present, model = Linear(*self._shape), self._present, self._model
        module.bias.fill_(math.log(ABSENT_PROBABILITY))
        module.bias[present] = 0.0
        if len(present) > 1:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # close is enough
                model.set_params(C=penalty).fit(*self._rows)
            weight, bias = torch.from_numpy(model.coef_), torch.from_numpy(model.intercept_)
            if len(weight) == 1:  # the second of two classes against the first
                weight, bias = (torch.cat([torch.zeros_like(each), each]) for each in (weight, bias))
            module.weight[present], module.bias[present] = weight, bias
        return module


def _forest(table: _Table, kind: str, seed: int) -> _Member:
    from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

    maker = {"random_forest": RandomForestClassifier, "extra_trees": ExtraTreesClassifier}[kind]
    slow = kind == "random_forest" and len(table.labels) >= LARGE_TABLE
    trees = min(FEW_TREES, TREES_PER_FOREST) if slow else TREES_PER_FOREST
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Some inputs do not have OOB scores")
        found = maker(trees, bootstrap=True, oob_score=True, n_jobs=-1, random_state=seed % 2**32).fit(
            table.inputs.numpy(), table.labels.numpy(), table.weights.numpy()
        )
    totals = torch.bincount(table.labels, table.weights, minlength=table.num_classes)
    module = CalibratedForest(Forest.from_trees(found.estimators_), totals / totals.sum())
    unseen = torch.from_numpy(found.oob_decision_function_)
    unseen = torch.where(unseen.isnan(), module.prior, unseen)
    count = len(table.labels)
    outside = trees * (1 - 1 / count) ** count  # trees that have not seen a row
    module.temperature.fill_(temperature(module.scaled(unseen, outside), table.labels, weights=table.weights))
    return _Member(module, module.scaled(unseen, outside))


def _networks(table: _Table, folds: RowFolds, seed: int, report: ReportShare) -> _Member:
    found = fit_networks(*table, folds, generator=generator_for(seed, "networks"), report=report)
    return _Member(*found)
