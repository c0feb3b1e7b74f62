"""`SummaryClassifier`: scikit-learn's own checks, its company, weights, beliefs, and what is refused."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys

import joblib
import numpy as np
import polars as pl
import pytest
import torch
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from unit.estimator.small import blobs, needs_names, quick, two_groups

import selbo
from selbo.estimator.classifier import CONCENTRATION_GRID, SummaryClassifier
from selbo.estimator.intake import take_in_inputs
from selbo.presets import METHODS

# --- scikit-learn's own checks ---


@parametrize_with_checks([quick()])
def test_checks_of_scikit_learn(estimator, check) -> None:
    before = np.random.get_state()  # noqa: NPY002  (one of the checks draws from it)
    check(estimator)
    if check.func.__name__ == "check_methods_sample_order_invariance":
        np.random.set_state(before)  # noqa: NPY002


@pytest.mark.parametrize("method", METHODS)
def test_weights_and_repetitions_agree_for_every_method(method: str) -> None:
    X, y = blobs(20)
    counts = 1 + np.arange(20) % 3
    repeated = quick(method=method, concentration=5.0).fit(X.repeat(counts, 0), y.repeat(counts))
    weighted = quick(method=method, concentration=5.0).fit(X, y, sample_weight=counts)
    np.testing.assert_allclose(repeated.predict_proba(X), weighted.predict_proba(X), rtol=1e-7)


# --- its company ---


@pytest.mark.slow
def test_pipeline_grid_search_and_cross_validation() -> None:
    X, y = load_iris(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), quick())
    search = GridSearchCV(
        pipeline,
        {"summaryclassifier__accuracy": [None, 0.95], "summaryclassifier__concentration": [15.0, 75.0]},
        cv=2,
        scoring="neg_log_loss",
    ).fit(X, y)
    assert len(search.cv_results_["params"]) == 4
    assert search.predict_proba(X).shape == (150, 3)
    probs = cross_val_predict(quick(), X, y, cv=3, method="predict_proba")
    assert (probs.argmax(1) == y).mean() > 0.8


def test_calibrated_classifier() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    calibrated = CalibratedClassifierCV(quick(), cv=2).fit(X, y)
    assert calibrated.score(X, y) > 0.9


@needs_names
def test_data_frames_and_labels_of_text() -> None:
    X, y = blobs(40, classes=2)
    names = ["age", "height", "weight", "pulse"]
    labels = np.array(["healthy", "ill"])[y]
    frame = pl.DataFrame(dict(zip(names, X.T, strict=True)))
    from_polars = quick(class_fractions={"ill": 0.3, "healthy": 0.7}).fit(frame, pl.Series(labels.tolist()))
    assert from_polars.feature_names_in_.tolist() == names
    assert from_polars.classes_.tolist() == ["healthy", "ill"]
    assert set(from_polars.predict(frame)) <= {"healthy", "ill"}
    assert from_polars.summary_.s0.tolist() == pytest.approx([0.7, 0.3])
    from_numpy = quick(class_fractions=[0.7, 0.3]).fit(X, labels)
    np.testing.assert_array_equal(from_polars.predict_proba(frame), from_numpy.predict_proba(X))
    with pytest.raises(ValueError, match="feature names"):
        from_polars.predict(frame.select(reversed(names)))


def test_the_order_of_numbers_in_memory_is_without_effect() -> None:
    X, y = blobs(40, classes=2)
    fitted = quick().fit(X, y)
    by_column = np.asfortranarray(X)
    assert not by_column.flags.c_contiguous
    assert take_in_inputs(fitted, by_column).flags.c_contiguous  # else equal only on some processors
    np.testing.assert_array_equal(fitted.predict_proba(by_column), fitted.predict_proba(X))
    np.testing.assert_array_equal(quick().fit(by_column, y).predict_proba(X), fitted.predict_proba(X))


def test_data_frames_of_pandas() -> None:
    pd = pytest.importorskip("pandas")
    X, y = blobs(40)
    frame = pd.DataFrame(X, columns=list("abcd"))
    fitted = quick().fit(frame, pd.Series(y, name="label"), sample_weight=pd.Series(np.ones(40)))
    assert fitted.feature_names_in_.tolist() == list("abcd")
    np.testing.assert_array_equal(fitted.predict_proba(frame), quick().fit(X, y, np.ones(40)).predict_proba(X))


def test_pickle_joblib_and_clone() -> None:
    X, y = blobs(30)
    fitted = quick(accuracy=0.9, partition=selbo.CornerShells(3, [0.6, 0.8])).fit(X, y)
    expected = fitted.predict_proba(X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict_proba(X), expected)
    file = io.BytesIO()
    joblib.dump(fitted, file)
    file.seek(0)
    np.testing.assert_array_equal(joblib.load(file).predict_proba(X), expected)
    again = clone(fitted)
    with pytest.raises(NotFittedError):
        again.predict(X)
    np.testing.assert_array_equal(again.fit(X, y).predict_proba(X), expected)


def test_shown_as_text_and_as_html() -> None:
    assert repr(SummaryClassifier(accuracy=0.9)) == "SummaryClassifier(accuracy=0.9)"
    assert "SummaryClassifier" in quick(belief=selbo.Beta(1, 2))._repr_html_()


# --- what is the same again, and what is not ---


def test_random_states() -> None:
    X, y = blobs(30)
    first = quick(random_state=1).fit(X, y).predict_proba(X)
    np.testing.assert_array_equal(quick(random_state=1).fit(X, y).predict_proba(X), first)
    assert np.abs(quick(random_state=2).fit(X, y).predict_proba(X) - first).max() > 1e-6
    state = np.random.RandomState(3)
    moving = quick(random_state=state)
    assert np.abs(moving.fit(X, y).predict_proba(X) - moving.fit(X, y).predict_proba(X)).max() > 1e-6
    again = quick(random_state=np.random.RandomState(3)).fit(X, y)
    assert again.seed_ == quick(random_state=np.random.RandomState(3)).fit(X, y).seed_


def test_no_random_state_is_another_one_each_time() -> None:
    X, y = blobs(30)
    one, two = (quick(random_state=None).fit(X, y) for _ in range(2))  # global states: conftest.py
    assert one.seed_ != two.seed_
    np.testing.assert_array_equal(one.predict_proba(X), one.predict_proba(X))


def test_a_row_is_predicted_the_same_in_any_company() -> None:
    X, y = blobs(1500)
    fitted = quick().fit(X[:50], y[:50])
    whole = fitted.predict_proba(X)
    np.testing.assert_allclose(fitted.predict_proba(X[1400:1401]), whole[1400:1401], rtol=1e-12)


def test_threads_are_as_before() -> None:
    before = torch.get_num_threads()
    X, y = blobs(30)
    try:
        torch.set_num_threads(2)
        quick().fit(X, y)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_single_precision_gives_the_same() -> None:
    X, y = blobs(30)
    narrow = X.astype(np.float32)
    probs = quick().fit(narrow, y).predict_proba(narrow)
    assert probs.dtype == np.float64
    np.testing.assert_array_equal(probs, quick().fit(narrow.astype(np.float64), y).predict_proba(narrow))


# --- beliefs ---


def test_nothing_stated_speaks_of_classes_alone() -> None:
    X, y = blobs(40)
    fitted = quick().fit(X, y)
    assert isinstance(fitted.summary_.partition, selbo.ClassRegions)
    np.testing.assert_allclose(fitted.summary_.s0.numpy(), np.bincount(y) / 40)
    weights = np.where(y == 0, 5.0, 0.5)
    weighted = quick().fit(X, y, weights)
    expected = np.bincount(y, weights) / weights.sum()
    np.testing.assert_allclose(weighted.summary_.s0.numpy(), expected)


@pytest.mark.parametrize(("classes", "kind"), [(2, selbo.ScoreBins), (3, selbo.CornerShells)])
def test_an_accuracy_speaks_of_confidence(classes: int, kind: type) -> None:
    X, y = blobs(40, classes=classes)
    fitted = quick(accuracy=0.8, concentration=7.0).fit(X, y)
    assert isinstance(fitted.summary_.partition, kind)
    belief = selbo.expect(0.8, class_fractions=(np.bincount(y) / 40).tolist())
    torch.testing.assert_close(fitted.summary_.s0, belief.masses(fitted.summary_.partition))
    assert fitted.concentration_ == fitted.summary_.concentration.item() == 7.0


def test_a_belief_and_a_partition_of_ones_own() -> None:
    X, y = blobs(40, classes=2)
    fitted = quick(belief=selbo.Beta(0.3, 0.7), partition=selbo.ScoreBins([0.1, 0.9])).fit(X, y)
    torch.testing.assert_close(fitted.summary_.s0, selbo.Beta(0.3, 0.7).masses(selbo.ScoreBins([0.1, 0.9])))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_predicts(method: str) -> None:
    X, y = blobs(60)
    fitted = quick(method=method, accuracy=0.9, concentration=60.0).fit(X, y)
    assert (fitted.summary_ is not None) == (fitted.concentration_ is not None) == METHODS[method].believes
    assert fitted.score(X, y) > 0.6
    entropy, mutual_information = fitted.predict_uncertainty(X)
    probs = fitted.predict_proba(X)
    np.testing.assert_allclose(entropy, -(probs * np.log(probs)).sum(1), rtol=1e-9)
    np.testing.assert_allclose(fitted.predict_log_proba(X), np.log(probs), rtol=1e-9)
    assert ((mutual_information >= 0) & (mutual_information <= entropy + 1e-12)).all()
    assert (mutual_information.max() > 1e-8) == (METHODS[method].bayesian or method == "evidential")


@pytest.mark.parametrize("fractions", [None, {"ill": 0.1, "healthy": 0.9}])
def test_an_accuracy_below_that_of_a_constant_answer_is_doubted(fractions: dict[str, float] | None) -> None:
    X, _ = blobs(40)
    y = np.array(["healthy", "ill"])[(np.arange(40) % 10 == 0).astype(int)]
    with pytest.warns(
        UserWarning, match=r"^Always saying “healthy” would be right in 90 % of cases, .* accuracy of 80 %: one"
    ) as seen:
        quick(accuracy=0.8, class_fractions=fractions).fit(X, y)
    assert [each.filename for each in seen] == [__file__]
    quick(accuracy=0.896, class_fractions=fractions).fit(X, y)  # rounded
    quick(accuracy=0.8, class_fractions=fractions, method="elbo").fit(X, y)  # not used


# --- rows that are held out ---


@pytest.mark.slow
def test_early_stopping_keeps_the_best_weights() -> None:
    X, y = blobs(60)
    settings = {"steps": 200, "hidden": (64,), "method": "plain", "learning_rate": 0.05}
    stopped = quick(early_stopping=True, **settings).fit(X, y)
    assert 0 < stopped.n_iter_ < 200
    full = quick(**settings).fit(X, y)
    assert full.n_iter_ == 200
    assert full.validation_nll_ is None
    held_out = selbo.training.stratified.stratified_split(torch.from_numpy(y), 0.2, seed=stopped.seed_)[1].numpy()
    nll = -np.log(stopped.predict_proba(X[held_out])[np.arange(len(held_out)), y[held_out]]).mean()
    assert stopped.validation_nll_ == pytest.approx(nll)


@pytest.mark.slow
def test_the_best_concentration_is_chosen() -> None:
    """The belief says the opposite of the labels, so that the less it is trusted the better."""
    X, y = blobs(80, classes=2)
    settings = {"class_fractions": [0.97, 0.03], "steps": 25, "concentration": "auto"}
    refitted = quick(**settings).fit(X, y)
    assert refitted.concentration_ in {share * 80 for share in CONCENTRATION_GRID[:2]}
    assert refitted.validation_nll_ is None
    by_hand = quick(**{**settings, "concentration": refitted.concentration_}).fit(X, y)
    np.testing.assert_array_equal(refitted.predict_proba(X), by_hand.predict_proba(X))
    kept = quick(early_stopping=True, **settings).fit(X, y)
    assert kept.concentration_ in {share * 64 for share in CONCENTRATION_GRID[:2]}
    assert kept.validation_nll_ is not None


def test_auto_without_a_belief_has_nothing_to_choose() -> None:
    X, y = blobs(30)
    assert quick(method="elbo", concentration="auto").fit(X, y).concentration_ is None


# --- fits that fail ---


@pytest.mark.parametrize("failure", [selbo.training.Diverged("not finite"), KeyboardInterrupt()])
def test_a_fit_that_fails_leaves_the_classifier_as_it_was(
    failure: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise failure

    X, y = blobs(30)
    fitted, fresh = quick().fit(X, y), quick()
    expected, known = fitted.predict_proba(X), dict(vars(fitted))
    other, labels = blobs(20, classes=2, features=2)
    monkeypatch.setattr("selbo.estimator.classifier.fit", failing)
    for each in (fitted, fresh):
        with pytest.raises(type(failure)):
            each.fit(pl.DataFrame(other * 100, schema=["a", "b"]), labels)
    assert vars(fitted) == known
    np.testing.assert_array_equal(fitted.predict_proba(X), expected)
    with pytest.raises(NotFittedError):
        fresh.predict(X)


def test_a_warning_that_is_an_error_leaves_the_classifier_as_it_was() -> None:
    """As all warnings are here."""
    X, y = two_groups(0)
    bold = quick(accuracy=0.99, early_stopping=True, steps=40, validation_fraction=0.3)
    with pytest.raises(UserWarning, match="clearly below the stated 99 %"):
        bold.fit(X, y)
    with pytest.raises(NotFittedError):
        bold.predict(X)
    assert not hasattr(bold, "classes_")


def test_settings_that_are_refused_leave_the_classifier_as_it_was() -> None:
    X, y = blobs(30)
    fitted = quick().fit(X, y)
    expected = fitted.predict(X)
    with pytest.raises(ValueError, match="`class_fractions` must hold 2 numbers"):
        fitted.set_params(class_fractions=[0.2, 0.3, 0.5]).fit(X[:, :2], np.array(["a", "b"])[y % 2])
    np.testing.assert_array_equal(fitted.predict(X), expected)


# --- small and odd data ---


def test_few_rows_one_feature_a_class_once() -> None:
    X, y = np.array([[0.0], [1.0], [2.0], [3.0], [9.0]]), np.array(["a", "a", "b", "b", "c"])
    assert quick(early_stopping=True, accuracy=0.9).fit(X, y).predict_proba(X).shape == (5, 3)
    assert quick().fit(X[[0, 4]], y[[0, 4]]).predict(X[:1]).shape == (1,)
    with pytest.raises(ValueError, match="at least one class must have 2 rows"):
        quick(early_stopping=True).fit(X[[0, 4]], y[[0, 4]])


def test_constant_features_are_ignored() -> None:
    X, y = blobs(30)
    X[:, 1] = 7.0
    fitted = quick().fit(X, y)
    other = X.copy()
    other[:, 1] = -1e6
    np.testing.assert_array_equal(fitted.predict_proba(other), fitted.predict_proba(X))
    flat = quick().fit(np.ones((6, 2)), [0, 1, 1, 1, 1, 1])
    assert len(np.unique(flat.predict_proba(np.random.default_rng(0).normal(size=(3, 2))), axis=0)) == 1


def test_features_of_zeros_and_ones_stay_as_they_are() -> None:
    X, y = blobs(30)
    X[:, 1], X[:, 2] = np.arange(30) == 7, 1.0  # a rare category, and one that all rows have
    fitted = quick().fit(X, y)
    scaled = fitted.scale_(X).numpy()
    np.testing.assert_array_equal(scaled[:, 1], X[:, 1])
    np.testing.assert_array_equal(scaled[:, 2], 0)
    np.testing.assert_allclose([scaled[:, 0].mean(), scaled[:, 0].std()], [0, 1], atol=1e-12)


def test_scale_and_place_of_a_feature_do_not_matter() -> None:
    X, y = blobs(30)
    moved = quick().fit(1e6 * X - 1e8, y).predict_proba(1e6 * X - 1e8)
    np.testing.assert_allclose(moved, quick().fit(X, y).predict_proba(X), rtol=1e-5)


def test_no_hidden_layer_is_a_linear_classifier() -> None:
    X, y = blobs(30)
    assert [tuple(each.shape) for each in quick(hidden=(), method="plain").fit(X, y).network_.parameters()] == [
        (3, 4),
        (3,),
    ]


# --- what is refused ---


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "magic"}, r"`method` must be one of .*, but got 'magic'"),
        ({"concentration": "much"}, r"`concentration` must be one of \['auto'\], but got 'much'"),
        ({"concentration": 0}, r"`concentration` must be a finite number greater than 0"),
        ({"accuracy": 1.2}, r"`accuracy` must lie strictly between 0.333333 and 1"),
        ({"accuracy": 0.9, "belief": selbo.Uniform()}, r"`belief` cannot be given together with `accuracy`"),
        ({"class_fractions": [0.5, 0.5]}, r"`class_fractions` must hold 3 numbers, for \[0, 1, 2\], but holds 2"),
        ({"class_fractions": {0: 0.5, 7: 0.5}}, r"`class_fractions` must name the classes \[0, 1, 2\], but names"),
        ({"class_fractions": [0.5, 0.5, 0.5]}, r"`class_fractions` must sum to 1"),
        ({"partition": selbo.ScoreBins.equal(4)}, r"`partition` has 2 classes, but `y` holds 3: \[0, 1, 2\]"),
        ({"partition": selbo.CornerShells(3)}, r"`partition` is CornerShells, but no belief about confidence"),
        ({"partition": 5}, r"`partition` must be a partition such as selbo\.ScoreBins, but got 5"),
        ({"partition": selbo.ScoreBins}, r"`partition` must be a partition such as .*, but got <class"),
        ({"class_fractions": 0.5}, r"`class_fractions` must be a list of numbers or a mapping .*, but got 0\.5"),
        ({"class_fractions": np.array(0.5)}, r"`class_fractions` must be a list of numbers or a mapping"),
        ({"class_fractions": iter([0.2, 0.3, 0.5])}, r"`class_fractions` must be a list .*, but got <list_iterator"),
        ({"accuracy": "0.9"}, r"`accuracy` must be a number, but got '0\.9'"),
        ({"accuracy": 0.3}, r"`accuracy` must lie strictly between 0.333333 and 1"),
        ({"early_stopping": "no"}, r"`early_stopping` must be True or False, but got 'no'"),
        ({"hidden": 128}, r"`hidden` must be a list of widths such as \(128,\), but got 128"),
        ({"hidden": "64"}, r"`hidden` must be a list of widths such as \(128,\), but got '64'"),
        ({"hidden": (0,)}, r"`hidden` must be a whole number of at least 1"),
        ({"steps": 0}, r"`steps` must be a whole number of at least 1"),
        ({"prior_std": -1}, r"`prior_std` must be a finite number greater than 0"),
        ({"validation_fraction": 1}, r"`validation_fraction` must lie strictly between 0 and 1"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick(**settings).fit(*blobs(20))


def test_bad_data_are_refused() -> None:
    X, y = blobs(20)
    with pytest.raises(ValueError, match="at least 2 classes, but holds 1 class only, 'a'"):
        quick().fit(X, ["a"] * 20)
    with pytest.raises(
        ValueError, match="`sample_weight` must be at least 0, and above it for some row, but some weights are negative"
    ):
        quick().fit(X, y, -np.ones(20))
    with pytest.raises(ValueError, match="zero"):
        quick().fit(X, y, np.zeros(20))
    for weight in (1e-300, 1e300):
        with pytest.raises(ValueError, match=r"`sample_weight` must add up to between 1e-30 and 1e\+30 in each class"):
            quick().fit(X, y, np.full(20, weight))
    for label in (2.5, 7):
        with pytest.raises(ValueError, match=rf"`y` must hold labels of one kind, .*, but holds \['a', {label}\]"):
            quick().fit(X, np.array(["a", label, "b", "a"] * 5, dtype=object))
    with pytest.raises(ValueError, match="too far from those in training"):
        quick().fit(X, y).predict(X * 1e200)


def test_without_scikit_learn_the_rest_works() -> None:
    program = (
        "import sys\n"
        "sys.modules['sklearn'] = None\n"
        "import selbo\n"
        "from selbo import *\n"
        "try:\n    selbo.SummaryClassifier\n"
        "except ModuleNotFoundError as error:\n    print(error)\n"
        "try:\n    selbo.SummaryClassifer\n"
        "except AttributeError as error:\n    print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.stdout.splitlines() == [
        "SummaryClassifier and BeliefCalibrator need the package scikit-learn: pip install 'selbo[sklearn]'",
        "module 'selbo' has no attribute 'SummaryClassifer'",
    ], run.stderr


def test_it_is_a_public_name() -> None:
    assert selbo.SummaryClassifier is SummaryClassifier


def test_a_concentration_above_the_number_of_labels_is_lowered() -> None:
    X, y = blobs(60, classes=2)
    message = "the concentration 1000 exceeds the number of labelled rows, so 60 is used"
    with pytest.warns(UserWarning, match=message):
        assert quick(accuracy=0.9, concentration=1000.0).fit(X, y).concentration_ == 60
    twice = np.full(60, 2.0)
    with pytest.warns(UserWarning, match="so 120 is used"):
        assert quick(accuracy=0.9, concentration=1000.0).fit(X, y, sample_weight=twice).concentration_ == 120
    assert quick(accuracy=0.9, concentration=60.0).fit(X, y).concentration_ == 60


# --- rows held out ---


def test_weighted_rows_and_rows_without_labels_are_not_compared() -> None:
    X, y = two_groups(0)
    bold = {"accuracy": 0.99, "early_stopping": True, "steps": 40, "validation_fraction": 0.3}
    quick(**bold).fit(X, y, sample_weight=np.linspace(0.5, 1.5, len(y)))
    quick(**bold).fit(X, y, X_unlabelled=X + 1)


# --- what long fits need ---


def test_an_interrupted_fit_resumes_and_ends_the_same(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = blobs(40)
    whole = quick(accuracy=0.9).fit(X, y)
    monkeypatch.setattr("selbo.estimator.classifier.CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr("selbo.training.trainer.LOOK_EVERY_S", 0.0)  # a checkpoint after every step
    stopped, real = [], selbo.training.checkpoint.write_checkpoint

    def stop(path, *others, **more) -> None:
        real(path, *others, **more)
        stopped.append(path)
        if len(stopped) == 3:
            raise KeyboardInterrupt

    classifier, file = quick(accuracy=0.9), tmp_path / "fit.safetensors"
    with monkeypatch.context() as patch:
        patch.setattr(selbo.training.checkpoint, "write_checkpoint", stop)
        with pytest.raises(KeyboardInterrupt):
            classifier.fit(X, y, checkpoint=file)
    with pytest.raises(NotFittedError):
        classifier.predict(X)
    classifier.fit(X, y, checkpoint=file, log=tmp_path / "log.jsonl")
    np.testing.assert_array_equal(classifier.predict_proba(X), whole.predict_proba(X))
    assert (tmp_path / "log.jsonl").read_text().count("\n") == 1
    with pytest.raises(ValueError, match="belongs to another run"):
        quick(accuracy=0.8).fit(X, y, checkpoint=file)
    with pytest.raises(ValueError, match="`checkpoint` supports a single training run, but concentration='auto'"):
        quick(concentration="auto").fit(X, y, checkpoint=file)


def test_validation_rows_of_ones_own() -> None:
    X, y = blobs(90)
    labels = np.array(["a", "b", "c"])[y]
    settings = {"steps": 200, "hidden": (64,), "method": "plain", "learning_rate": 0.05, "early_stopping": True}
    fitted = quick(**settings).fit(X[:60], labels[:60], X_val=X[60:], y_val=labels[60:])
    nll = -np.log(fitted.predict_proba(X[60:])[np.arange(30), y[60:]]).mean()
    assert fitted.validation_nll_ == pytest.approx(nll)
    assert 0 < fitted.n_iter_ < 200
    unseen = quick(steps=20).fit(X[:60], labels[:60], X_val=X[60:], y_val=labels[60:])
    np.testing.assert_array_equal(unseen.predict_proba(X), quick(steps=20).fit(X[:60], labels[:60]).predict_proba(X))
    for val, message in (
        ({"X_val": X[60:]}, "`X_val` and `y_val` must be given together"),
        ({"X_val": X[60:], "y_val": labels[61:]}, "`y_val` must hold one of the labels"),
        ({"X_val": X[60:], "y_val": ["d"] * 30}, r"`y_val` must hold one of the labels \['a', 'b', 'c'\] for each of"),
        ({"X_val": X[60:, 1:], "y_val": labels[60:]}, "`X_val` must have 4 columns, as `X` has, but has 3"),
    ):
        with pytest.raises(ValueError, match=message):
            quick().fit(X[:60], labels[:60], **val)


@pytest.mark.slow
def test_a_concentration_chosen_by_rows_of_ones_own_needs_no_second_training() -> None:
    X, y = blobs(80, classes=2)
    settings = {"class_fractions": [0.97, 0.03], "steps": 50}
    chosen = quick(concentration="auto", **settings).fit(X[:60], y[:60], X_val=X[60:], y_val=y[60:])
    by_hand = quick(concentration=chosen.concentration_, **settings).fit(X[:60], y[:60])
    np.testing.assert_array_equal(chosen.predict_proba(X), by_hand.predict_proba(X))


def test_a_statement_is_what_training_uses() -> None:
    X, y = blobs(60)
    classifier = quick(accuracy=0.8, random_state=np.random.RandomState(0))
    stated = classifier.statement(X, y)
    assert not hasattr(classifier, "classes_")
    assert stated.fraction_uncertainty == 0
    np.testing.assert_allclose(stated.class_fractions, np.bincount(y) / 60)
    fitted = classifier.fit(X, y)
    torch.testing.assert_close(stated.summaries[0].s0, fitted.summary_.s0)
    assert fitted.seed_ == quick(random_state=np.random.RandomState(0)).fit(X, y).seed_  # nothing was drawn before
    with pytest.raises(ValueError, match="`accuracy` must lie strictly between"):
        quick(accuracy=0.2).statement(X, y)
    with pytest.warns(UserWarning, match="so 60 is used") as told:
        quick(accuracy=0.8, concentration=100.0).statement(X, y)
    assert told[0].filename == __file__


def test_classes_that_are_numbers_may_be_named_by_text() -> None:
    X, y = blobs(40)
    named = quick(class_fractions={"0": 0.2, "2": 0.5, "1": 0.3}).statement(X, y)
    assert named.class_fractions == pytest.approx([0.2, 0.3, 0.5])


def test_predictions_of_the_source_domain() -> None:
    X, y = blobs(60, classes=2)
    fitted = quick(class_fractions=[0.9, 0.1]).fit(X, y, X_unlabelled=X + 0.1)
    source = fitted.posterior_predictive(X, target_domain=False)
    corrected = source.with_log_probs(fitted.label_shift_.to_target(source.log_probs))
    np.testing.assert_allclose(fitted.predict_proba(X), corrected.probs.numpy())
    assert np.abs(source.probs.numpy() - fitted.predict_proba(X)).max() > 0.01


def test_it_may_decline_to_answer() -> None:
    X, y = blobs(300)
    names = np.array(["low", "mid", "high"])[y]
    classifier = quick(accuracy=0.8).fit(X[:200], names[:200])
    probs, everything = classifier.predict_proba(X[200:]), classifier.predict(X[200:])
    answers = classifier.predict(X[200:], abstain=0.05)
    given = np.array([each is not None for each in answers])
    assert everything.dtype.kind == "U"  # without abstention nothing changes
    assert answers.dtype == object
    assert 0 < given.sum() < 100
    assert (answers[given] == everything[given]).all()
    assert given.tolist() == selbo.decide.abstain(probs, max_risk=0.05)(probs).tolist()
    rule = selbo.decide.Abstention(threshold=np.inf, coverage=0.0, risk=np.nan, max_risk=0.1, confidence=0.95)
    assert set(classifier.predict(X[200:], abstain=rule)) == {None}
