"""`SummaryClassifier` with rows that have no label: what the belief is about, what is left alone, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from unit.estimator.small import needs_names

import selbo
from selbo.estimator import classifier as module
from selbo.estimator.classifier import SummaryClassifier
from selbo.presets import METHODS

QUICK = {"steps": 20, "num_samples": 8, "learning_rate": 0.03, "hidden": (16,), "random_state": 0}
LABELLED = 24


def quick(**others: Any) -> SummaryClassifier:
    return SummaryClassifier(**{**QUICK, **others})


def places(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """24 labelled rows, one in six of class 1; and 60 elsewhere, two in three of it, whose labels are known to us."""
    generator = np.random.default_rng(seed)

    def drawn(labels: np.ndarray) -> np.ndarray:
        return np.array([[0.0, 10.0, 5.0], [1.4, 10.0, -5.0]])[labels] + generator.normal(size=(len(labels), 3)) * [
            1,
            2,
            9,
        ]

    here, there = (np.arange(LABELLED) % 6 == 0).astype(int), (np.arange(60) % 3 > 0).astype(int)
    return drawn(here), here, drawn(there), there


def joined(marker: Any, labels: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Labelled and unlabelled rows in one table."""
    X, y, more, _ = places()
    y = y if labels is None else labels[y]
    return np.concatenate([X, more]), np.concatenate([y, np.full(len(more), marker, dtype=y.dtype)])


# --- how rows without labels are given ---


@pytest.mark.parametrize(
    ("marker", "names"), [(-1, [0, 1]), (-1.0, [0.0, 1.0]), ("unknown", ["healthy", "illness"]), (9, [-1, 1])]
)
def test_marked_rows_are_those_given_apart(marker: Any, names: list[Any]) -> None:
    X, y, more, _ = places()
    labels = np.array(names)
    settings = {"accuracy": 0.9, "class_fractions": [1 / 3, 2 / 3]}
    apart = quick(**settings).fit(X, labels[y], X_unlabelled=more)
    together = quick(**settings, unlabelled_label=marker).fit(*joined(marker, labels))
    assert apart.classes_.tolist() == together.classes_.tolist() == names
    assert apart.n_unlabelled_ == together.n_unlabelled_ == 60
    np.testing.assert_array_equal(apart.predict_proba(more), together.predict_proba(more))
    halves = quick(**settings, unlabelled_label=marker).fit(
        *(each[: LABELLED + 30] for each in joined(marker, labels)), X_unlabelled=more[30:]
    )
    np.testing.assert_array_equal(apart.predict_proba(more), halves.predict_proba(more))


@pytest.mark.parametrize("kind", [int, float])
def test_minus_one_beside_two_classes_is_none_and_a_warning_says_so(kind: type) -> None:
    X, y = joined(-1)
    with pytest.warns(
        UserWarning, match=r"^60 rows have the label -1 and are treated as unlabelled: pass unlabelled_label=-1"
    ):
        found = quick().fit(X, y.astype(kind))
    assert found.classes_.tolist() == [0, 1]
    assert found.n_unlabelled_ == 60
    said = quick(unlabelled_label=-1).fit(X, y)
    np.testing.assert_array_equal(found.predict_proba(X), said.predict_proba(X))
    assert set(said.predict(X)) <= {0, 1}


def test_minus_one_may_be_a_class() -> None:
    X, y = joined(-1)
    assert quick(unlabelled_label=False).fit(X, y).classes_.tolist() == [-1, 0, 1]
    two = quick().fit(X, np.where(y == 0, 1, -1))
    assert (two.classes_.tolist(), two.n_unlabelled_) == ([-1, 1], 0)
    assert quick().fit(X, np.array(["-1", "a", "b"])[y + 1]).classes_.tolist() == ["-1", "a", "b"]


def test_a_marker_that_marks_nothing_changes_nothing_but_warns() -> None:
    X, y, _, _ = places()
    for marker, labels in ((-1, y), ("unknown", np.array(["a", "b"])[y])):
        plain = quick().fit(X, labels)
        with pytest.warns(UserWarning, match=rf"^No label in `y` is {marker!r}, the `unlabelled_label`: all") as seen:
            other = quick(unlabelled_label=marker).fit(X, labels)
        assert seen[0].filename == __file__
        assert (other.n_unlabelled_, other.concentration_) == (0, 1000)
        np.testing.assert_array_equal(plain.predict_proba(X), other.predict_proba(X))


@pytest.mark.parametrize(
    ("marker", "names"), [("-1", [0, 1]), ("unknown", [False, True]), (-1, ["a", "b"]), (-1.0, [b"a", b"b"])]
)
def test_a_marker_of_another_kind_than_the_labels_is_refused(marker: Any, names: list[Any]) -> None:
    X, y, _, _ = places()
    kind = "a text" if isinstance(marker, str) else "a number"
    with pytest.raises(ValueError, match=rf"^`unlabelled_label` must have the type of .*, but {marker!r} is {kind}$"):
        quick(unlabelled_label=marker).fit(X, np.array(names)[y])


def test_false_of_numpy_is_false() -> None:
    X, y = joined(-1)
    assert quick(unlabelled_label=np.False_).fit(X, y).classes_.tolist() == [-1, 0, 1]


def test_rows_of_weight_zero_say_nothing_about_the_convention() -> None:
    X, y = joined(-1)
    without = quick().fit(X, y, (y != -1).astype(float))  # no warning: no row that counts has the label -1
    assert (without.classes_.tolist(), without.n_unlabelled_) == ([0, 1], 0)
    two = quick().fit(X, y, (y != 0).astype(float))  # -1 and 1 are two classes
    assert (two.classes_.tolist(), two.n_unlabelled_) == ([-1, 1], 0)


@needs_names
def test_data_frames() -> None:
    X, y, more, _ = places()
    names = ["a", "b", "c"]
    frame, elsewhere = (pl.DataFrame(dict(zip(names, each.T, strict=True))) for each in (X, more))
    from_frames = quick().fit(frame, y, X_unlabelled=elsewhere)
    np.testing.assert_array_equal(
        from_frames.predict_proba(elsewhere), quick().fit(X, y, X_unlabelled=more).predict_proba(more)
    )
    with pytest.raises(ValueError, match="feature names"):
        quick().fit(frame, y, X_unlabelled=elsewhere.select(reversed(names)))


def test_grid_search_with_folds_that_score_labelled_rows() -> None:
    X, y = joined(-1)
    labelled = np.flatnonzero(y != -1)
    folds = [
        (np.setdiff1d(np.arange(len(y)), labelled[test]), labelled[test])
        for _, test in StratifiedKFold(2).split(labelled, y[labelled])
    ]
    search = GridSearchCV(
        quick(unlabelled_label=-1), {"accuracy": [0.85, 0.9]}, cv=folds, scoring="neg_log_loss", error_score="raise"
    ).fit(X, y)
    assert search.best_estimator_.n_unlabelled_ == 60
    assert clone(search.best_estimator_).unlabelled_label == -1


# --- what the belief is about ---


@pytest.mark.filterwarnings("ignore:the network is correct on")  # of the training rows what is stated is wrong
@pytest.mark.slow
def test_the_belief_is_about_rows_without_labels() -> None:
    X, y, more, _ = places()
    settings = {"steps": 150, "class_fractions": [1 / 3, 2 / 3], "concentration": 200.0, "overrule_labels": True}
    apart = quick(**settings).fit(X, y, X_unlabelled=more)
    without = quick(**settings, method="elbo").fit(X, y)
    assert apart.predict_proba(more)[:, 1].mean() > 0.6  # stated: two in three
    assert without.predict_proba(more)[:, 1].mean() < 0.45
    about_training = quick(**settings).fit(X, y)
    here = apart._predict_rows(apart.network_, apart._objective, apart.scale_(X)).probs[:, 1].mean()  # not corrected
    assert about_training.predict_proba(X)[:, 1].mean() > here + 0.1


@pytest.mark.parametrize("method", [name for name, each in METHODS.items() if each.believes])
def test_predictions_are_corrected_for_the_domain_of_the_unlabelled_rows(method: str) -> None:
    X, y, more, _ = places()
    weights = 1 + y  # of class 1, two rows in seven
    found = quick(method=method, class_fractions=[1 / 3, 2 / 3]).fit(X, y, weights, X_unlabelled=more)
    assert found.label_shift_ == selbo.LabelShift([5 / 7, 2 / 7], [1 / 3, 2 / 3])
    source = found._predict_rows(found.network_, found._objective, found.scale_(more)).probs.numpy()
    odds = source[:, 1] / source[:, 0] * (2 / 3) / (1 / 3) * (5 / 7) / (2 / 7)
    np.testing.assert_allclose(found.predict_proba(more)[:, 1], odds / (1 + odds), rtol=1e-6)
    assert found.predict(more).tolist() == (odds > 1).astype(int).tolist()
    assert quick(method=method).fit(X, y, X_unlabelled=more).label_shift_ is None  # no fractions stated
    assert quick(method=method, class_fractions=[0.5, 0.5]).fit(X, y).label_shift_ is None  # about the labelled rows


def test_how_far_fractions_may_be_off() -> None:
    X, y, more, _ = places()
    told = {"class_fractions": [1 / 3, 2 / 3]}
    for settings, elsewhere, expected in (
        (told, True, 0.05),
        (told, False, 0.0),
        ({**told, "fraction_uncertainty": 0.0}, True, 0.0),
        ({**told, "fraction_uncertainty": 0.2}, False, 0.2),
        ({}, True, 0.0),
    ):
        found = quick(**settings).fit(X, y, X_unlabelled=more if elsewhere else None)
        assert found.summary_.belief.uncertainty == expected
    for value in (-0.1, 1.0, "little"):
        with pytest.raises(ValueError, match=r"^`fraction_uncertainty` must be a"):
            quick(**told, fraction_uncertainty=value).fit(X, y)
    with pytest.raises(ValueError, match=r"^`fraction_uncertainty` is about `class_fractions`, but none are stated$"):
        quick(fraction_uncertainty=0.1).fit(X, y)


def test_fractions_that_are_not_stated_are_those_of_the_labels() -> None:
    X, y = joined(-1)
    assert quick(unlabelled_label=-1).fit(X, y).summary_.s0.tolist() == pytest.approx([5 / 6, 1 / 6])


def test_concentration_follows_the_number_of_labels_unless_given() -> None:
    X, y, more, _ = places()
    assert quick().fit(X, y, X_unlabelled=more).concentration_ == pytest.approx(0.3 * LABELLED)
    assert quick(accuracy=0.9).fit(X, y).concentration_ == LABELLED
    assert quick(belief=selbo.Beta(0.3, 0.9)).fit(X, y).concentration_ == LABELLED
    assert quick(concentration=7.0).fit(X, y, X_unlabelled=more).concentration_ == 7
    weights = np.full(LABELLED, 2.0)
    assert quick().fit(X, y, weights, X_unlabelled=more).concentration_ == pytest.approx(0.6 * LABELLED)
    found = quick(concentration="auto").fit(X, y, X_unlabelled=more)
    assert found.concentration_ in {share * LABELLED for share in module.CONCENTRATION_GRID}


def test_concentration_grows_with_the_labels_of_another_place_but_only_to_a_thousand_with_ones_own() -> None:
    X, y, more, _ = places()
    weights = np.full(LABELLED, 15_000 / LABELLED)
    assert quick().fit(X, y, weights, X_unlabelled=more).concentration_ == pytest.approx(4500)
    assert quick(accuracy=0.9).fit(X, y, weights).concentration_ == 1000


def test_concentration_in_what_the_labels_say_themselves_is_a_thousand_unless_it_is_said_of_another_place() -> None:
    X, y, more, _ = places()
    for fractions, concentration in ((None, 1000), ([0.8, 0.2], LABELLED)):
        assert quick(class_fractions=fractions).fit(X, y).concentration_ == concentration
        found = quick(class_fractions=fractions).fit(X, y, X_unlabelled=more)
        assert found.concentration_ == pytest.approx(0.3 * LABELLED)


def test_what_training_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def spied(network: Any, objective: Any, train: Any, val: Any, **more: Any) -> Any:
        unlabelled = more["unlabelled"]
        seen.append((len(train[1]), val and len(val[1]), None if unlabelled is None else len(unlabelled)))
        return fit(network, objective, train, val, **more)

    fit = module.fit
    monkeypatch.setattr(module, "fit", spied)
    X, y = joined(-1)
    quick(unlabelled_label=-1, early_stopping=True, validation_fraction=0.25).fit(X, y)
    assert seen == [(18, 6, 60)]  # only labelled rows are held out
    seen.clear()
    quick(unlabelled_label=-1, method="elbo").fit(X, y)
    assert seen == [(LABELLED, None, None)]


@pytest.mark.parametrize("method", [name for name, each in METHODS.items() if not each.believes])
def test_methods_without_a_summary_leave_marked_rows_out(method: str) -> None:
    X, y, _, _ = places()
    alone = quick(method=method).fit(X, y)
    marked = quick(method=method, unlabelled_label=-1).fit(*joined(-1))
    assert marked.n_unlabelled_ == 0
    np.testing.assert_array_equal(alone.predict_proba(X), marked.predict_proba(X))


# --- scale and weights ---


def test_features_are_standardised_by_all_rows() -> None:
    X, y, more, _ = places()
    X = X.copy()
    X[:, 2] = 4.0  # constant where there are labels
    found = quick().fit(X, y, X_unlabelled=more)
    every = np.concatenate([X, more])
    np.testing.assert_allclose(found.scale_.mean, every.mean(0))
    np.testing.assert_allclose(found.scale_.std, every.std(0))


def test_weights_of_labelled_rows_and_of_others() -> None:
    X, y, more, _ = places()
    counts = 1 + np.arange(LABELLED) % 3
    repeated = quick(concentration=5.0).fit(X.repeat(counts, 0), y.repeat(counts), X_unlabelled=more)
    weighted = quick(concentration=5.0).fit(X, y, counts, X_unlabelled=more)
    np.testing.assert_allclose(repeated.predict_proba(X), weighted.predict_proba(X), rtol=1e-7)
    marked = quick(concentration=5.0, unlabelled_label=-1)
    all_rows, labels = joined(-1)
    others = np.full(60, 3.0)
    others[40:] = 0
    some = marked.fit(all_rows, labels, np.concatenate([counts, others]))
    assert some.n_unlabelled_ == 40
    fewer = quick(concentration=5.0).fit(X, y, counts, X_unlabelled=more[:40])
    np.testing.assert_array_equal(some.predict_proba(X), fewer.predict_proba(X))


# --- what is refused ---


def test_what_is_refused_in_a_sentence() -> None:
    X, y, more, _ = places()
    for columns in (2, 4):
        with pytest.raises(ValueError, match=f"^`X_unlabelled` must have 3 columns, as `X` has, but has {columns}$"):
            quick().fit(X, y, X_unlabelled=np.ones((5, columns)))
    with pytest.raises(ValueError, match="Input X_unlabelled contains infinity"):
        quick().fit(X, y, X_unlabelled=np.where(more > 0, more, np.inf))
    with pytest.raises(
        ValueError, match=r"^`X_unlabelled` is for a method with a summary, .*, but the method is 'elbo'$"
    ):
        quick(method="elbo").fit(X, y, X_unlabelled=more)
    with pytest.raises(
        ValueError, match=r"^`y` must hold a label in some row that counts, but all rows are marked by -1$"
    ):
        quick(unlabelled_label=-1).fit(X, np.full(LABELLED, -1))
    all_rows, labels = joined(-1)
    with pytest.raises(ValueError, match="must hold a label in some row that counts"):
        quick(unlabelled_label=-1).fit(all_rows, labels, (labels == -1).astype(float))
    with pytest.raises(ValueError, match="`y` must hold at least 2 classes, but holds 1 class only, 0"):
        quick(unlabelled_label=-1).fit(all_rows, np.minimum(labels, 0))
    for marker, shown in (([-1], r"\[-1\]"), (float("nan"), "nan"), (True, "True"), (np.True_, r"np\.True_")):
        with pytest.raises(
            ValueError,
            match=rf"^`unlabelled_label` must be a label such as -1 or 'unknown', or False, but got {shown}$",
        ):
            quick(unlabelled_label=marker).fit(X, y)


def test_unlabelled_rows_on_another_scale_are_noticed() -> None:
    """A pipeline scales X and passes X_unlabelled on as it is."""
    X, y, more, _ = places()
    scaler = StandardScaler().fit(100 * X + 500)
    pipeline = make_pipeline(StandardScaler(), quick())
    with pytest.warns(
        UserWarning, match="`X_unlabelled` is on another scale than `X` in .* a pipeline transforms only"
    ):
        pipeline.fit(100 * X + 500, y, summaryclassifier__X_unlabelled=100 * more + 500)
    pipeline.fit(100 * X + 500, y, summaryclassifier__X_unlabelled=scaler.transform(100 * more + 500))
