"""Second story: 50 labels of one domain, predictions for another one with other class fractions."""

import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from selbo.demo.digits import sklearn_datasets
from selbo.demo.telling import build_story, measure
from selbo.estimator import SummaryClassifier
from selbo.evaluation.label_shift import correct_prior
from selbo.report.stories import Story
from selbo.results import Measurement, Outcome, Provenance

_NUM_LABELS: Final = 50

_BEFORE: Final = "labels alone"
_CORRECTED: Final = "labels alone, prior correction"
_LOGISTIC: Final = "logistic regression"
_LOGISTIC_CORRECTED: Final = "logistic regression, prior correction"
_OURS: Final = "labels and class fractions"

_BREAST: Final = "breast cancer"
_DIGITS: Final = "digits"

_STATED: Final = """\
The class fractions of the target domain: half of the tumours there are malignant (among the labels, 10 %); each digit \
from 5 to 9 makes up 18 % there, and each from 0 to 4 makes up 2 % (among the labels, 10 % each)."""

_DESCRIPTION: Final = f"""\
{_NUM_LABELS} labels of the source domain; unlabelled rows and test rows of the target domain, whose class fractions \
differ. “{_BEFORE}” and “{_OURS}” are the same classifier, a pool of linear, forest and network models. A prior \
correction multiplies probabilities by the ratio of the class fractions; it gets the same fractions as ours, and no \
unlabelled rows."""


class ShiftedTable(NamedTuple):
    """A table in two domains.

    Attributes:
        source: Inputs and labels.
        target: Unlabelled inputs.
        test: Inputs of the target domain and their labels.
        before: Class fractions of the source domain.
        after: Those of the target domain.
    """

    source: tuple[Any, Any]
    target: Any
    test: tuple[Any, Any]
    before: list[float]
    after: list[float]


def adapt_to_target(X: Any, y: Any, X_target: Any, X_new: Any, *, class_fractions: list[float], seed: int = 0) -> Any:
    """Train on labels of the source domain, and state the class fractions of the target domain."""
    model = SummaryClassifier(class_fractions=class_fractions, random_state=seed)
    model.fit(X, y, X_unlabelled=X_target)  # a few labels, and rows of the target domain without any
    return model.predict_proba(X_new)


_CODE_HEADER: Final = "from selbo import SummaryClassifier"


def shifted_table(name: str, seed: int) -> ShiftedTable:
    """Breast cancer, malignant in 10 % of the source and 50 % of the target; or digits, of which 0 to 4 become rare."""
    datasets = sklearn_datasets("the tables come")
    if name == _BREAST:
        X, y = datasets.load_breast_cancer(return_X_y=True)
        y = 1 - y  # 1 is malignant
        counts, before, after = [45, 5], [0.9, 0.1], [0.5, 0.5]
        rows = (160, 254)
    else:
        X, y = datasets.load_digits(return_X_y=True)
        counts, before, after = [5] * 10, [0.1] * 10, [0.02] * 5 + [0.18] * 5
        rows = (450, 450)
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(y))
    classes = [order[y[order] == k] for k in range(len(counts))]
    source = np.concatenate([each[:count] for each, count in zip(classes, counts, strict=True)])
    taken, parts = list(counts), []
    for total in rows:
        sizes = [round(total * fraction) for fraction in after]
        parts.append(np.concatenate([each[a : a + n] for each, a, n in zip(classes, taken, sizes, strict=True)]))
        taken = [a + n for a, n in zip(taken, sizes, strict=True)]
    target, test = parts
    return ShiftedTable((X[source], y[source]), X[target], (X[test], y[test]), before, after)


def run_shift(part: str, seed: int, **_options: Any) -> list[Outcome]:
    """Test all methods on one table with one seed."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    begin = time.perf_counter()
    table = shifted_table(part, seed)
    (X, y), (X_test, y_test) = table.source, table.test
    pool = SummaryClassifier(random_state=seed).fit(X, y).predict_proba(X_test)
    logistic = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y).predict_proba(X_test)
    ours = adapt_to_target(X, y, table.target, X_test, class_fractions=table.after, seed=seed)
    predictions: dict[str, Tensor] = {}
    for name, corrected, probs in ((_BEFORE, _CORRECTED, pool), (_LOGISTIC, _LOGISTIC_CORRECTED, logistic)):
        predictions[name] = _log_probs(probs)
        predictions[corrected] = correct_prior(predictions[name], before=table.before, after=table.after)
    predictions[_OURS] = _log_probs(ours)
    seconds = (time.perf_counter() - begin) / len(predictions)
    return [
        Outcome(method=name, seed=seed, conditions={part: measure(log_probs, y_test)}, seconds=seconds)
        for name, log_probs in predictions.items()
    ]


def _log_probs(probs: Any) -> Tensor:
    return torch.as_tensor(probs, dtype=torch.float64).clamp(min=1e-12).log()


def merge_tables(runs: Sequence[Outcome]) -> list[Outcome]:
    """One outcome per method and seed, with both tables as conditions."""
    found: dict[tuple[str, int], dict[str, Measurement]] = {}
    seconds: dict[tuple[str, int], float] = {}
    for run in runs:
        key = run.method, run.seed
        found.setdefault(key, {}).update(run.conditions)
        seconds[key] = seconds.get(key, 0.0) + run.seconds
    return [
        Outcome(method=method, seed=seed, conditions=conditions, seconds=seconds[method, seed])
        for (method, seed), conditions in found.items()
    ]


def tell_shift(runs: Sequence[Outcome], seeds: Sequence[int], made_by: Provenance) -> Story:
    """The story of these runs."""
    table = shifted_table(_BREAST, seeds[0])
    return build_story(
        merge_tables(runs),
        seeds,
        made_by,
        name="shift",
        title="50 labels, and a target domain with other class fractions",
        short="50 labels, class fractions",
        stated=_STATED,
        description=_DESCRIPTION,
        picture="accuracy",
        without=_BEFORE,
        conditions=(_BREAST, _DIGITS),
        code=(_CODE_HEADER, adapt_to_target),
        methods=(_LOGISTIC, _LOGISTIC_CORRECTED, _BEFORE, _CORRECTED, _OURS),
        focus=_OURS,
        labels=table.source[1],
        num_test=len(table.test[1]),
    )
