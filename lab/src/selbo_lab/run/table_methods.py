"""Classifiers of tables: others at their defaults and tuned, and selbo's with and without a belief."""

import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from selbo import LabelShift, calibrate
from selbo.evaluation import correct_prior
from selbo_lab.run.baselines import LEAST_PROBABILITY
from selbo_lab.run.frozen import LEAST_ERROR, calibrate_as_stated
from selbo_lab.run.table_cases import TableCase
from selbo_lab.studies.run_spec import Recipe

LEAST_OF_OTHERS: Final = 1e-6
"""Minimum probability of a class, but in the votes of a forest, where it is `LEAST_PROBABILITY`."""

LEAST_STATED_FRACTION: Final = 1e-3
"""Minimum of a stated class fraction."""

STATEMENT_UP_TO: Final = 1000.0
PRIOR_OF_TEMPERATURE: Final = 50.0
"""Largest concentration of a statement about training rows, and weight of the prior of the temperature: as a
`SummaryClassifier` has them."""

CALIBRATED_TREES: Final = 300
MOST_FOLDS: Final = 5
HELD_OUT: Final = 0.2
"""Share of the labels that the temperature of an MLP is fitted to."""

TUNED: Final[Mapping[str, Mapping[str, Sequence[Any]]]] = {
    "tuned_logistic": {"C": tuple(10.0**k for k in range(-3, 5))},
    "tuned_forest": {"min_samples_leaf": (1, 3, 10, 30), "max_features": ("sqrt", 0.5)},
    "tuned_trees": {"learning_rate": (0.03, 0.1), "max_leaf_nodes": (7, 31), "max_iter": (50, 200)},
    "tuned_lightgbm": {"learning_rate": (0.03, 0.1), "num_leaves": (7, 31), "n_estimators": (50, 200)},
}
"""Settings of tuned classifiers, as many of each, among which cross-validated NLL chooses."""

SMOKE_TREES: Final = 5

SMOKE_STEPS_UP_TO: Final = 10
"""A recipe with at most so many steps is a trial."""

LogProbs = Callable[[Tensor], Tensor]
"""Log-probabilities of rows: (N, D) -> (N, K), in float64."""


@dataclass(frozen=True)
class FittedClassifier:
    """A trained classifier; call it for log-probabilities of rows.

    Attributes:
        classifier: One of scikit-learn's interface.
        least: Minimum probability of a class.
    """

    classifier: Any
    least: float
    _known: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __call__(self, rows: Tensor) -> Tensor:
        """Log-probabilities: (N, D) -> (N, K), in float64. Corrections of one classifier ask for the same rows."""
        if id(rows) not in self._known:
            self._known[id(rows)] = rows, self._log_probs(rows)
        return self._known[id(rows)][1]

    def _log_probs(self, rows: Tensor) -> Tensor:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            probs = np.asarray(self.classifier.predict_proba(_array(rows)), dtype=np.float64).clip(self.least)
        return torch.from_numpy(np.log(probs / probs.sum(-1, keepdims=True)))


def fit_table_method(
    recipe: Recipe, case: TableCase, *, seed: int, statements: Mapping[str, Any] | None = None
) -> LogProbs:
    """Train the classifier of a recipe on the labelled rows.

    Args:
        recipe: Which classifier.
        case: The rows.
        seed: Seed of its randomness.
        statements: What is stated to a `SummaryClassifier`: its ``accuracy`` and ``class_fractions``.
    """
    inputs, labels = _array(case.train.inputs), case.train.labels.numpy()
    if recipe.objective == "constant":
        shares = torch.tensor(np.bincount(labels, minlength=case.train.num_classes) / len(labels)).log()
        return lambda rows: shares.expand(len(rows), -1)
    before = random.getstate()  # imports of scikit-learn consume random numbers
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about iterations that did not converge, or statements that look odd
            if recipe.objective == "scaled_mlp":
                return _scaled_mlp(inputs, labels, seed)
            if recipe.objective in {"pool", "summary_network"}:
                classifier = _summary_classifier(recipe, seed, statements or {})
                others = None if case.unlabelled is None else _array(case.unlabelled.inputs)
                classifier.fit(inputs, labels, X_unlabelled=others)
            else:
                classifier = _untrained(recipe, labels, seed).fit(inputs, labels)
    finally:
        random.setstate(before)
    return FittedClassifier(classifier, LEAST_PROBABILITY if recipe.objective == "forest" else LEAST_OF_OTHERS)


def can_be_trained(recipe: Recipe) -> bool:
    """Whether the package of a recipe is installed."""
    return "lightgbm" not in recipe.objective or find_spec("lightgbm") is not None


def correct_for_statement(
    recipe: Recipe, found: LogProbs, case: TableCase, stated: tuple[float, ...], rows: Tensor
) -> Tensor:
    """Log-probabilities of rows, corrected for the stated class fractions as the recipe says.

    The correction ``belief`` of a pool is that of a `SummaryClassifier` with these ``class_fractions`` and the same
    seed, which would train the same pool again.
    """
    log_probs = found(rows)
    if not recipe.correction:
        return log_probs
    before = LabelShift.from_labels(case.train.labels, stated).before
    if recipe.correction == "belief":
        assert case.unlabelled is not None
        try:
            counts = torch.bincount(case.train.labels, minlength=len(stated)).tolist()
            unlabelled = found(case.unlabelled.inputs)
            return calibrate_as_stated(unlabelled, class_fractions=stated, label_counts=counts)(log_probs)
        except ValueError:  # no correction makes the predictions agree: the classifier falls back to the prior
            pass
    return correct_prior(log_probs, before, stated)


def correct_by_held_out(found: LogProbs, case: TableCase, rows: Tensor, statements: Mapping[str, Any]) -> Tensor:
    """Log-probabilities of rows by a pool that was told nothing, corrected by what is stated about the training rows.

    The correction is that of a `SummaryClassifier` with these statements and the same seed, which would train the same
    pool again.
    """
    assert isinstance(found, FittedClassifier)
    held_out, labels = found.classifier.held_out_log_proba_, case.train.labels
    try:
        return calibrate_as_stated(
            held_out,
            **statements,
            concentration=min(len(labels), STATEMENT_UP_TO),
            labels=labels,
            prior_strength=PRIOR_OF_TEMPERATURE,
        )(found(rows))
    except ValueError:  # no correction makes the predictions agree: the classifier leaves them as they are
        return found(rows)


def fractions_as_stated(fractions: tuple[float, ...], off: float = 0.0) -> tuple[float, ...]:
    """Class fractions as they are stated: that of class 0 is off, and none is zero."""
    rest = (1 - fractions[0] - off) / (1 - fractions[0])
    moved = np.array([fractions[0] + off, *(each * rest for each in fractions[1:])]).clip(LEAST_STATED_FRACTION)
    return tuple((moved / moved.sum()).tolist())


def stated_accuracy(log_probs: Tensor, labels: Tensor) -> float:
    """The share of right answers, where it can be stated."""
    right = (log_probs.argmax(-1) == labels).double().mean().item()
    return min(max(right, 1 / log_probs.shape[-1] + LEAST_ERROR), 1 - LEAST_ERROR)


def _summary_classifier(recipe: Recipe, seed: int, statements: Mapping[str, Any]) -> Any:
    from selbo.estimator import SummaryClassifier

    if recipe.objective == "pool":
        return SummaryClassifier(**statements, random_state=seed)
    steps: dict[str, Any] = {"steps": recipe.steps} if _is_trial(recipe) else {}
    return SummaryClassifier(**statements, base="network", random_state=seed, **steps)


def _is_trial(recipe: Recipe) -> bool:
    return recipe.steps <= SMOKE_STEPS_UP_TO


def _trees(recipe: Recipe) -> int:
    return SMOKE_TREES if _is_trial(recipe) else CALIBRATED_TREES


def _tuned(recipe: Recipe, folds: int, seed: int) -> Any:
    """A classifier with the settings that have the lowest cross-validated NLL."""
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    grid = {name: list(values[:1] if _is_trial(recipe) else values) for name, values in TUNED[recipe.objective].items()}
    match recipe.objective:
        case "tuned_logistic":
            grid = {f"logisticregression__{name}": values for name, values in grid.items()}
            classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        case "tuned_forest":
            classifier = RandomForestClassifier(_trees(recipe), random_state=seed)
        case "tuned_trees":
            classifier = HistGradientBoostingClassifier(early_stopping=False, random_state=seed)
        case _:
            classifier = _lightgbm(seed)
    return GridSearchCV(classifier, grid, scoring="neg_log_loss", cv=folds)


def _lightgbm(seed: int) -> Any:
    from lightgbm import LGBMClassifier

    return LGBMClassifier(random_state=seed, n_jobs=1, verbose=-1)


def _untrained(recipe: Recipe, labels: NDArray[np.int64], seed: int) -> Any:
    folds = max(2, min(MOST_FOLDS, int(np.bincount(labels).min())))
    if recipe.objective in TUNED:
        return _tuned(recipe, folds, seed)
    return _lightgbm(seed) if recipe.objective == "lightgbm" else _of_scikit_learn(recipe, folds, seed)


def _of_scikit_learn(recipe: Recipe, folds: int, seed: int) -> Any:
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    match recipe.objective:
        case "logistic":
            return make_pipeline(StandardScaler(), LogisticRegression(C=recipe.inverse_penalty))
        case "logistic_cv":
            return make_pipeline(StandardScaler(), LogisticRegressionCV(cv=folds, scoring="neg_log_loss"))
        case "forest":
            return RandomForestClassifier(random_state=seed)
        case "calibrated_forest":
            return CalibratedClassifierCV(RandomForestClassifier(_trees(recipe), random_state=seed), cv=folds)
        case "stopped_trees":
            return HistGradientBoostingClassifier(early_stopping=True, random_state=seed)
    raise ValueError(f"`objective` must be one for tables, but got {recipe.objective!r}")


def _scaled_mlp(inputs: NDArray[np.float64], labels: NDArray[np.int64], seed: int) -> LogProbs:
    from sklearn.model_selection import train_test_split
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    train, held_out, train_labels, held_out_labels = train_test_split(
        inputs, labels, test_size=HELD_OUT, stratify=labels, random_state=seed
    )
    fitted = make_pipeline(StandardScaler(), MLPClassifier(random_state=seed)).fit(train, train_labels)
    found = FittedClassifier(fitted, LEAST_OF_OTHERS)
    temperature = calibrate.temperature(found(torch.from_numpy(held_out)), torch.from_numpy(held_out_labels))
    return lambda rows: calibrate.scale(found(rows), temperature)


def _array(rows: Tensor) -> NDArray[np.float64]:
    return rows.double().numpy()
