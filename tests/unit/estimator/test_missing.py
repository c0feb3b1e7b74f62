"""`SummaryClassifier` with values that are missing, categories in data frames, and labels that are None or NaN."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from unit.estimator.small import needs_names

from selbo.estimator import storage
from selbo.estimator.categories import MOST_CATEGORIES, FrameEncoder, OneHot, rows_of_a_category
from selbo.estimator.classifier import EARLY_VALIDATIONS, SummaryClassifier
from selbo.estimator.intake import FeatureScale

QUICK = {"steps": 20, "num_samples": 8, "learning_rate": 0.03, "hidden": (8,), "random_state": 0}
NAN = np.nan


def quick(**others: Any) -> SummaryClassifier:
    return SummaryClassifier(**{**QUICK, **others})


def rows(count: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    y = generator.integers(0, 2, count)
    return generator.normal(size=(count, 3)) * [1, 20, 300] + y[:, None] * [1, 0, 300] + [0, 100, -5], y


def holed(X: np.ndarray, seed: int = 1, columns: tuple[int, ...] = (0, 2)) -> np.ndarray:
    """Every fourth value of some columns is missing, in rows of each column's own."""
    X = X.copy()
    for column in columns:
        X[np.random.default_rng([seed, column]).permutation(len(X))[: len(X) // 4], column] = NAN
    return X


# --- missing values ---


def test_missing_values_are_medians_with_an_input_that_says_so() -> None:
    """The same as a table that was filled by hand, with its indicators as further features."""
    X, y = rows()
    gaps = holed(X)
    medians = np.nanmedian(gaps, axis=0)
    absent = np.isnan(gaps)
    scale = FeatureScale.of(gaps, None)
    np.testing.assert_allclose(scale.medians, medians)
    np.testing.assert_allclose(scale.mean, np.nanmean(gaps, axis=0))
    np.testing.assert_allclose(scale.std, np.nanstd(gaps, axis=0))
    assert (scale.indicators, scale.num_inputs) == ((0, 2), 5)
    found = scale(gaps).numpy()
    expected = (np.where(absent, medians, X) - np.nanmean(gaps, axis=0)) / np.nanstd(gaps, axis=0)
    np.testing.assert_allclose(found[:, :3], expected, atol=1e-12)
    np.testing.assert_array_equal(found[:, 3:], absent[:, [0, 2]])
    fitted = quick().fit(gaps, y)
    assert fitted.network_.layers[0].in_features == 5
    assert np.isfinite(fitted.predict_proba(gaps)).all()
    assert fitted.n_features_in_ == 3


def test_missing_values_teach() -> None:
    """Whether a value is there may be all that is known about the class."""
    generator = np.random.default_rng(0)
    y = np.arange(80) % 2
    X = np.where(y == 1, NAN, generator.normal(size=80))[:, None]
    fitted = quick(steps=200).fit(X, y)
    assert (fitted.predict(X) == y).all()


def test_values_that_were_never_missing_are_filled_without_an_input() -> None:
    X, y = rows()
    fitted = quick().fit(X, y)
    assert fitted.scale_.indicators == ()
    gaps = holed(X)
    filled = np.where(np.isnan(gaps), np.median(X, axis=0), gaps)
    np.testing.assert_array_equal(fitted.predict_proba(gaps), fitted.predict_proba(filled))
    np.testing.assert_array_equal(fitted.predict_proba(X), quick().fit(X, y).predict_proba(X))


def test_columns_that_are_missing_together_share_an_input_and_empty_ones_have_none() -> None:
    X = np.arange(24.0).reshape(6, 4)
    X[[1, 4], 0] = X[[1, 4], 2] = NAN
    X[2, 1] = NAN
    X[:, 3] = NAN
    scale = FeatureScale.of(X, None)
    assert scale.indicators == (0, 1)
    assert scale.medians[3] == 0
    assert np.isinf(scale.std[3])
    inputs = scale(X).numpy()
    assert inputs.shape == (6, 6)
    assert (inputs[:, 3] == 0).all()


@pytest.mark.parametrize("weights", [[1, 2, 1, 0.5], [3, 1, 1, 1], [2, 1, 2, 1], [1, 1, 1, 1]])
def test_a_weighted_median_is_that_of_repeated_rows(weights: list[float]) -> None:
    column = np.array([[5.0], [1.0], [9.0], [NAN], [2.0]])
    given = np.array([*weights[:3], 7.0, weights[3]])
    often = np.repeat(column, (2 * given).astype(int), axis=0)
    assert FeatureScale.of(column, given).medians[0] == np.nanmedian(often)


def test_missing_values_elsewhere() -> None:
    """In unlabelled and validation rows, and with groups."""
    X, y = rows()
    more = holed(X + 0.1, seed=5, columns=(1,))
    fitted = quick(class_fractions=[0.5, 0.5]).fit(X, y, X_unlabelled=more, X_val=holed(X), y_val=y)
    assert fitted.scale_.indicators == (1,)
    groups = np.arange(60) % 2
    stated = {k: [1 - y[groups == k].mean(), y[groups == k].mean()] for k in range(2)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # two groups teach little
        grouped = quick().fit(holed(X), y, groups=groups, group_fractions=stated)
    assert grouped.scale_.indicators == (0, 2)
    for wrong in (np.inf, -np.inf):
        X[3, 1] = wrong
        with pytest.raises(ValueError, match="infinity"):
            quick().fit(X, y)
        with pytest.raises(ValueError, match="infinity"):
            fitted.predict(X)


def test_a_scale_with_gaps_is_saved(tmp_path: Path) -> None:
    X, y = rows()
    gaps = holed(X)
    fitted = quick().fit(gaps, y)
    described = storage.save_classifier(fitted, tmp_path / "weights.safetensors")
    again = storage.restore(described, fitted.classes_, ["a", "b", "c"])
    storage.load_network(again, tmp_path / "weights.safetensors", device="cpu")
    np.testing.assert_array_equal(again.predict_proba(gaps), fitted.predict_proba(gaps))
    for change, message in (
        ({"medians": [1.0]}, "`mean`, `std` and `medians` must be lists of 3 numbers"),
        ({"medians": [1.0, NAN, 1.0]}, r"`medians\[1\]` must be"),
        ({"indicators": [0, 0]}, "`indicators` must be a list of different features"),
        ({"indicators": [3]}, r"`indicators\[0\]` must be one of 3 features, but is 3"),
        ({"indicators": ["a"]}, r"`indicators\[0\]` must be"),
    ):
        with pytest.raises(ValueError, match=message):
            storage.restore({**described, **change}, fitted.classes_, ["a", "b", "c"])
    other = storage.restore({**described, "indicators": [0]}, fitted.classes_, ["a", "b", "c"])
    with pytest.raises(ValueError, match="does not hold the network"):
        storage.load_network(other, tmp_path / "weights.safetensors", device="cpu")


# --- labels that are missing ---


@pytest.mark.parametrize("kind", ["nan", "none", "text", "nullable"])
def test_none_and_nan_are_no_label(kind: str) -> None:
    X, y = rows()
    known = np.arange(60) < 40
    names = np.array(["no", "yes"], dtype=object)
    labels: Any = {
        "nan": np.where(known, y, NAN),
        "none": [int(each) if there else None for each, there in zip(y, known, strict=True)],
        "text": np.where(known, names[y], None),
        "nullable": pl.Series([int(each) if there else None for each, there in zip(y, known, strict=True)]),
    }[kind]
    fitted = quick(class_fractions=[0.3, 0.7]).fit(X, labels)
    marked = quick(class_fractions=[0.3, 0.7], unlabelled_label=-1).fit(X, np.where(known, y, -1))
    assert fitted.classes_.tolist() == (["no", "yes"] if kind == "text" else [0, 1])
    assert fitted.n_unlabelled_ == 20
    np.testing.assert_array_equal(fitted.predict_proba(X), marked.predict_proba(X))


def test_gaps_beside_a_marker() -> None:
    X, y = rows()
    labels = np.where(np.arange(60) < 40, y, np.where(np.arange(60) < 50, -1, NAN))
    assert quick(unlabelled_label=-1).fit(X, labels).n_unlabelled_ == 20
    with pytest.warns(UserWarning, match="10 rows have the label -1"):
        assert quick().fit(X, labels).n_unlabelled_ == 20
    assert quick(unlabelled_label=False).fit(X, labels).classes_.tolist() == [-1, 0, 1]
    assert quick(method="plain").fit(X, np.where(np.arange(60) < 40, y, NAN)).n_unlabelled_ == 0
    with pytest.raises(ValueError, match="`y` must hold a label in some row, but all are missing"):
        quick().fit(X, [None] * 60)
    with pytest.raises(ValueError, match="infinity"):
        quick().fit(X, np.where(np.arange(60) < 40, y, np.inf))


# --- categories ---


def test_categories_of_a_column() -> None:
    column = ["b"] * 3 + ["a"] * 2 + ["c", None, NAN]
    found = OneHot.of(column)
    assert found == OneHot(("a", "b"), other=True, missing=True)
    assert found.names("x") == ["x=a", "x=b", "x=(other)", "x=(missing)"]
    np.testing.assert_array_equal(found(["a", "c", "new", None, "b"]).argmax(1), [0, 2, 2, 3, 1])
    np.testing.assert_array_equal(found(column).sum(1), 1)
    plain = OneHot.of(["a", "b"] * 3)
    np.testing.assert_array_equal(plain(["new", None, "b"]), [[0, 0], [0, 0], [0, 1]])
    assert OneHot.of([3, 1, 3, 1, 20, 20]).values == (1, 3, 20)
    many = [f"v{k}" for k in range(MOST_CATEGORIES + 5) for _ in range(20 + k)]
    assert OneHot.of(many).width == MOST_CATEGORIES + 1
    assert "v0" not in OneHot.of(many).values
    for count in range(1, 3000, 7):
        assert 2 <= rows_of_a_category(count) <= 10


def frame(count: int = 60) -> tuple[dict[str, Any], np.ndarray]:
    _, y = rows(count)
    generator = np.random.default_rng(3)
    sites = np.where(y == 1, "north", "south").astype(object)
    sites[::7] = None
    columns = {
        "age": generator.normal(size=count).tolist(),
        "site": sites.tolist(),
        "smoker": (generator.random(count) < 0.5).tolist(),
        "kind": generator.choice(["x", "y", "z"], count).tolist(),
    }
    columns["age"][3] = None
    return columns, y


def by_hand(columns: dict[str, Any]) -> np.ndarray:
    """The table that a data frame stands for."""
    age = [NAN if each is None else each for each in columns["age"]]
    sites = [[each == "north", each == "south", each is None] for each in columns["site"]]
    kinds = [[each == value for value in "xyz"] for each in columns["kind"]]
    return np.concatenate([np.array(age)[:, None], sites, np.array(columns["smoker"])[:, None], kinds], axis=1)


@needs_names
def test_data_frames_with_categories() -> None:
    columns, y = frame()
    table = pl.DataFrame(columns, schema_overrides={"kind": pl.Categorical})
    fitted = quick().fit(table, y)
    expected = quick().fit(by_hand(columns), y)
    assert (fitted.n_features_in_, fitted.feature_names_in_.tolist()) == (4, list(columns))
    np.testing.assert_array_equal(fitted.predict_proba(table), expected.predict_proba(by_hand(columns)))
    assert fitted.score(table, y) > 0.8
    without_names = np.array(list(zip(*columns.values(), strict=True)), dtype=object)
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        np.testing.assert_array_equal(fitted.predict_proba(without_names), fitted.predict_proba(table))
    new = table.with_columns(pl.lit("west").alias("site"), pl.lit(None).alias("age"))
    assert np.isfinite(fitted.predict_proba(new)).all()
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(table), fitted.predict_proba(table))
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(table.select(reversed(table.columns)))
    with (
        pytest.warns(UserWarning, match="X does not have valid feature names"),
        pytest.raises(ValueError, match="must have 4 columns"),
    ):
        fitted.predict(np.ones((2, 3)))
    with pytest.raises(ValueError, match="column 'age' of `X` must hold numbers, as in training"):
        fitted.predict(table.with_columns(pl.lit("old").alias("age")))
    with pytest.raises(ValueError, match="only a classifier that was trained on numbers can be saved"):
        storage.save_classifier(fitted, Path("never"))
    apart = quick().fit(table[:40], y[:40], X_unlabelled=table[40:], X_val=table[40:], y_val=y[40:])
    assert apart.n_unlabelled_ == 20


def test_frames_of_numbers_need_no_encoder() -> None:
    X, y = rows()
    table = pl.DataFrame(holed(X), schema=["a", "b", "c"])
    assert FrameEncoder.of(table) is None
    assert FrameEncoder.of(X) is None
    np.testing.assert_array_equal(
        quick().fit(table, y).predict_proba(table), quick().fit(holed(X), y).predict_proba(holed(X))
    )
    dates = table.with_columns(pl.date(2020, 1, 1).alias("day"))
    with pytest.raises(
        ValueError, match="column 'day' of `X` must hold numbers or categories, but holds date: turn it"
    ):
        quick().fit(dates, y)


def test_pandas_with_categories() -> None:
    pd = pytest.importorskip("pandas")
    columns, y = frame()
    table = pd.DataFrame(columns)
    table["kind"] = table["kind"].astype("category")
    found = quick().fit(table, pd.Series(y))
    np.testing.assert_array_equal(
        found.predict_proba(table), quick().fit(by_hand(columns), y).predict_proba(by_hand(columns))
    )
    numbered = pd.DataFrame({"site": pd.Series([1, 2, 3] * 20).astype("category"), "age": columns["age"]})
    assert quick().fit(numbered, y).scale_.num_inputs == 5
    nullable = pd.Series([*y[:40].tolist(), *[None] * 20], dtype="Int64")
    assert quick().fit(table, nullable).n_unlabelled_ == 20


# --- early stopping ---


def test_early_stopping_sees_every_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where an epoch is longer than the run: 50 validations, some of them before the belief has any weight."""
    from selbo.training.validation import Validator

    seen: list[int] = []
    run = Validator.run

    def watched(self: Any, step: int) -> float:
        seen.append(step)
        return run(self, step)

    monkeypatch.setattr(Validator, "run", watched)
    X, y = rows(400)
    quick(steps=100, batch_size=2, early_stopping=True, accuracy=0.8).fit(X, y)
    assert len(seen) == EARLY_VALIDATIONS
    stages = [(0, 25), (25, 50), (50, 100)]
    assert all(any(low < step <= high for step in seen) for low, high in stages)
    assert torch.tensor(seen).diff().max() == 2
