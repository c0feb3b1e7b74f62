"""Third story: no labels at all, only the class fractions of groups of rows."""

import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import torch

from selbo.demo.digits import NUM_CLASSES, sklearn_datasets
from selbo.demo.telling import build_story, measure
from selbo.estimator import SummaryClassifier
from selbo.report.stories import Story
from selbo.results import Outcome, Provenance

NUM_GROUPS: Final = 40
_TRAIN_ROWS: Final = 1300
GROUP_STEPS: Final = 300
_FEW_LABELS: Final = 50

_DESCRIPTION: Final = """\
{train} handwritten digits in groups, and {test} others, without groups, to test on. “Class frequencies” gives every \
image the same probabilities."""

_BEFORE: Final = "class frequencies"
_OURS: Final = "group fractions, no labels"
_FEW: Final = f"logistic regression, {_FEW_LABELS} labels"
_ALL: Final = f"logistic regression, {_TRAIN_ROWS} labels"
_DIGITS: Final = "digits"


class GroupedDigits(NamedTuple):
    """Digits in groups.

    Attributes:
        train: Inputs and labels; only baselines see the labels.
        groups: Group of each training row.
        fractions: Fraction of each digit in each group.
        test: Inputs and labels of other rows, without groups.
    """

    train: tuple[Any, Any]
    groups: Any
    fractions: dict[int, list[float]]
    test: tuple[Any, Any]


def learn_from_groups(X: Any, groups: Any, fractions: Any, X_new: Any, *, steps: int = 300, seed: int = 0) -> Any:
    """Learn to classify single rows from the class fractions of groups."""
    model = SummaryClassifier(hidden=(64,), steps=steps, learning_rate=0.01, random_state=seed)
    model.fit(X, groups=groups, group_fractions=fractions)  # no labels
    return model.predict_proba(X_new)


_CODE_HEADER: Final = "from selbo import SummaryClassifier"


def grouped_digits(seed: int) -> GroupedDigits:
    """Digits whose classes are spread unevenly over groups."""
    X, y = sklearn_datasets("the digits come").load_digits(return_X_y=True)
    generator = np.random.default_rng(seed)
    train, test = np.split(generator.permutation(len(y)), [_TRAIN_ROWS])
    shares = generator.dirichlet([0.5] * NUM_GROUPS, size=NUM_CLASSES)  # of each class, over the groups
    groups = np.array([generator.choice(NUM_GROUPS, p=shares[label]) for label in y[train]])
    fractions = {
        int(each): (np.bincount(y[train][groups == each], minlength=NUM_CLASSES) / (groups == each).sum()).tolist()
        for each in np.unique(groups)
    }
    return GroupedDigits((X[train], y[train]), groups, fractions, (X[test], y[test]))


def run_groups(_part: str, seed: int, *, steps: int, **_options: Any) -> list[Outcome]:
    """Test all methods with one seed."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    begin = time.perf_counter()
    digits = grouped_digits(seed)
    (X, y), (X_test, y_test) = digits.train, digits.test
    frequencies = np.bincount(y, minlength=NUM_CLASSES) / len(y)
    found = {
        _BEFORE: np.tile(frequencies, (len(y_test), 1)),
        _OURS: learn_from_groups(X, digits.groups, digits.fractions, X_test, steps=min(steps, GROUP_STEPS), seed=seed),
    }
    for name, count in ((_FEW, _FEW_LABELS), (_ALL, _TRAIN_ROWS)):
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(X[:count], y[:count])
        found[name] = np.zeros((len(y_test), NUM_CLASSES))
        found[name][:, model.classes_] = model.predict_proba(X_test)
    seconds = (time.perf_counter() - begin) / len(found)
    return [
        Outcome(
            method=name,
            seed=seed,
            conditions={_DIGITS: measure(torch.as_tensor(probs, dtype=torch.float64).clamp(min=1e-12).log(), y_test)},
            seconds=seconds,
        )
        for name, probs in found.items()
    ]


def tell_groups(runs: Sequence[Outcome], seeds: Sequence[int], made_by: Provenance) -> Story:
    """The story of these runs."""
    digits = grouped_digits(seeds[0])
    return build_story(
        runs,
        seeds,
        made_by,
        name="groups",
        title="Learn from the class fractions of groups, without a label",
        short="no labels, group fractions",
        stated=f"The share of each digit in each of {len(digits.fractions)} groups of about "
        f"{round(_TRAIN_ROWS / len(digits.fractions))} images. Which image shows which digit is not known.",
        description=_DESCRIPTION.format(train=_TRAIN_ROWS, test=len(digits.test[1])),
        picture="accuracy",
        without=_BEFORE,
        conditions=(_DIGITS,),
        code=(_CODE_HEADER, learn_from_groups),
        methods=(_BEFORE, _OURS, _FEW, _ALL),
        focus=_OURS,
        labels=digits.train[1],
        num_test=len(digits.test[1]),
    )
