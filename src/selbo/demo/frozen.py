"""First story: five frozen scikit-learn models, before and after one stated accuracy, beside temperature scaling."""

import time
import warnings
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from selbo.demo.digits import sklearn_datasets
from selbo.demo.telling import build_story, mean_measurement, measure
from selbo.estimator import BeliefCalibrator
from selbo.evaluation import calibrate
from selbo.evaluation.belief_calibration import raise_zeros, zero_floor
from selbo.report.stories import Story
from selbo.results import Measurement, Outcome, Provenance

STATED_ACCURACIES: Final = {
    "naive Bayes": 0.90,
    "nearest neighbours": 0.95,
    "random forest": 0.95,
    "logistic regression": 0.95,
    "neural network": 0.90,
}
"""Stated accuracy of each model: that on seeds 10 to 14, which the demo does not use, rounded to 5 points
(benchmarks/demo_settings.py)."""

_TRAIN_ROWS: Final = 300
_POOL_ROWS: Final = 1000
_LABELS: Final = (20, 100, 1000)
"""Training rows of the frozen models; further rows, unlabelled for us; their labels that temperature scaling gets."""

_DESCRIPTION: Final = """\
Five scikit-learn models, trained on {train} handwritten digits and then frozen. They are corrected with {pool} \
unlabelled digits and one stated number, or by temperature scaling with the labels of 20, 100 or all of these digits, \
and tested on {test} others. Probabilities of 0 are raised to the same small number for all methods."""

_BEFORE: Final = "as predicted"
_OURS: Final = "stated accuracy, no labels"
_ALL: Final = "mean of the five models"


def calibrate_frozen(model: Any, X_unlabelled: Any, X_new: Any, accuracy: float) -> Any:
    """Correct the predictions of a model that is not trained again, by its stated accuracy."""
    calibrated = BeliefCalibrator(model, accuracy=accuracy).fit(X_unlabelled)  # no labels
    return calibrated.predict_proba(X_new)


_CODE_HEADER: Final = "from selbo import BeliefCalibrator"


def frozen_model(name: str, seed: int) -> Any:
    """One of the five models, not fitted."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.neural_network import MLPClassifier

    if name == "naive Bayes":
        return MultinomialNB()
    if name == "nearest neighbours":
        return KNeighborsClassifier()
    if name == "random forest":
        return RandomForestClassifier(random_state=seed)
    if name == "logistic regression":
        return LogisticRegression(max_iter=1000)
    return MLPClassifier((64,), max_iter=300, random_state=seed)


def digit_parts(seed: int) -> list[tuple[Any, Any]]:
    """Training rows, further rows and test rows of the digits, in an order that the seed decides."""
    X, y = sklearn_datasets("the digits come").load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    return [(X[rows], y[rows]) for rows in np.split(order, [_TRAIN_ROWS, _TRAIN_ROWS + _POOL_ROWS])]


def fit_frozen(name: str, seed: int) -> Any:
    """One of the five models, fitted to the training rows."""
    X, y = digit_parts(seed)[0]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning)  # a network that stops early is a model as good as any
        return frozen_model(name, seed).fit(X, y)


def run_frozen(_part: str, seed: int, **_options: Any) -> list[Outcome]:
    """Test all methods on all models with one seed."""
    begin = time.perf_counter()
    _, (X_pool, y_pool), (X_test, y_test) = digit_parts(seed)
    found: dict[str, dict[str, Measurement]] = {}
    for name, accuracy in STATED_ACCURACIES.items():
        model = fit_frozen(name, seed)
        pool, test = (_log_probs(model.predict_proba(each)) for each in (X_pool, X_test))
        floor = zero_floor(pool)  # the same for all methods: a single zero would make an NLL infinite
        pool, test = (raise_zeros(each, floor).log_softmax(-1) for each in (pool, test))
        predictions = {_BEFORE: test, _OURS: _log_probs(calibrate_frozen(model, X_pool, X_test, accuracy))}
        for count in _LABELS:
            fitted = calibrate.temperature(pool[:count], torch.as_tensor(y_pool[:count]))
            predictions[_scaled(count)] = calibrate.scale(test, fitted)
        for method, log_probs in predictions.items():
            found.setdefault(method, {})[name] = measure(log_probs, y_test)
    seconds = (time.perf_counter() - begin) / len(found)
    return [
        Outcome(
            method=method,
            seed=seed,
            conditions={_ALL: mean_measurement(list(by_model.values())), **by_model},
            seconds=seconds,
        )
        for method, by_model in found.items()
    ]


def _log_probs(probs: Any) -> Tensor:
    return torch.as_tensor(probs, dtype=torch.float64).log()


def _scaled(count: int) -> str:
    return f"temperature scaling, {count} labels"


def tell_frozen(runs: Sequence[Outcome], seeds: Sequence[int], made_by: Provenance) -> Story:
    """The story of these runs."""
    train, pool, test = digit_parts(seeds[0])
    return build_story(
        runs,
        seeds,
        made_by,
        name="frozen",
        title="Calibrate a frozen model by its accuracy, without a label",
        short="frozen models, stated accuracy",
        stated="How often each model is right, to 5 points: "
        + ", ".join(f"{name} {100 * accuracy:g} %" for name, accuracy in STATED_ACCURACIES.items())
        + ".",
        description=_DESCRIPTION.format(train=len(train[1]), pool=len(pool[1]), test=len(test[1])),
        picture="claims",
        without=_BEFORE,
        conditions=(_ALL,),
        code=(_CODE_HEADER, calibrate_frozen),
        methods=(_BEFORE, _OURS, *map(_scaled, _LABELS)),
        focus=_OURS,
        labels=train[1],
        num_test=len(test[1]),
    )
