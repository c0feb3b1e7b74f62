"""`BeliefCalibrator`: the scikit-learn face of `calibrate_to_belief`."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from selbo import BeliefCalibrator, calibrate_to_belief, decide

X, Y = load_digits(return_X_y=True)
NAMES = np.array([f"digit {k}" for k in range(10)])
TRAIN, POOL, TEST = slice(0, 400), slice(400, 1100), slice(1100, None)


@pytest.fixture(scope="module", params=["bayes", "forest", "pipeline"])
def model(request: pytest.FixtureRequest) -> object:
    kinds = {
        "bayes": GaussianNB(),
        "forest": RandomForestClassifier(20, random_state=0),
        "pipeline": make_pipeline(StandardScaler(), LogisticRegression(C=100)),
    }
    return kinds[request.param].fit(X[TRAIN], NAMES[Y[TRAIN]])


def test_a_true_accuracy_lowers_the_log_loss(model: GaussianNB) -> None:
    right = model.score(X[POOL], NAMES[Y[POOL]])
    calibrated = BeliefCalibrator(model, accuracy=right).fit(X[POOL])
    before, after = (each.predict_proba(X[TEST]).clip(1e-15, 1) for each in (model, calibrated))
    labels = NAMES[Y[TEST]]
    assert log_loss(labels, after, labels=model.classes_) < log_loss(labels, before, labels=model.classes_) - 0.01
    np.testing.assert_array_equal(calibrated.predict(X[TEST]), model.predict(X[TEST]))
    np.testing.assert_allclose(calibrated.predict_proba(X[TEST]).sum(1), 1)
    assert calibrated.score(X[TEST], labels) == model.score(X[TEST], labels)


def test_it_does_what_the_function_does(model: GaussianNB) -> None:
    fractions = {name: (2 if k < 5 else 1) / 15 for k, name in enumerate(NAMES)}
    calibrated = BeliefCalibrator(model, accuracy=0.7, class_fractions=fractions, concentration=200).fit(X[POOL])
    with np.errstate(divide="ignore"):
        log_probs = torch.from_numpy(np.log(model.predict_proba(X[POOL])))
    in_order = [fractions[name] for name in model.classes_]
    expected = calibrate_to_belief(log_probs, accuracy=0.7, class_fractions=in_order, concentration=200)
    assert calibrated.calibration_ == expected
    np.testing.assert_allclose(calibrated.predict_proba(X[POOL]), expected(log_probs).exp().numpy(), atol=1e-12)


def test_without_an_estimator_inputs_are_probabilities(model: GaussianNB) -> None:
    probs = model.predict_proba(X[POOL])
    alone = BeliefCalibrator(accuracy=0.8).fit(probs)
    np.testing.assert_allclose(
        alone.predict_proba(probs), BeliefCalibrator(model, accuracy=0.8).fit(X[POOL]).predict_proba(X[POOL])
    )
    assert alone.classes_.tolist() == list(range(10))
    with pytest.raises(ValueError, match="`X` must hold probabilities"):
        BeliefCalibrator(accuracy=0.8).fit(np.log(probs + 1e-9))


def test_a_doubtful_statement_is_a_warning_that_names_the_class() -> None:
    model = GaussianNB().fit(X[TRAIN], NAMES[Y[TRAIN]])
    with pytest.warns(UserWarning, match=r"claim an accuracy of 9\d\.\d %, far above the stated 50 %") as said:
        BeliefCalibrator(model, accuracy=0.5).fit(X[POOL])
    assert [each.filename for each in said] == [__file__]
    fractions = {"digit 3": 0.91, **{name: 0.01 for name in NAMES if name != "digit 3"}}
    threes = X[POOL][model.predict(X[POOL]) == "digit 3"]
    with pytest.warns(UserWarning, match="always answering 'digit 3' would be right in 91 % of cases"):
        BeliefCalibrator(model, accuracy=0.9, class_fractions=fractions).fit(threes)


@pytest.mark.parametrize("missing", [None, float("nan"), -1])
def test_labels_may_be_missing(missing: object) -> None:
    model = GaussianNB().fit(X[TRAIN], Y[TRAIN])
    some = np.array([*Y[POOL][:100], *[missing] * 600], dtype=object)
    with_labels = BeliefCalibrator(model, accuracy=0.7).fit(X[POOL], some)
    number = np.where(np.arange(700) < 100, Y[POOL], -1)
    with np.errstate(divide="ignore"):
        log_probs = np.log(model.predict_proba(X[POOL]))
    assert with_labels.calibration_ == calibrate_to_belief(log_probs, accuracy=0.7, labels=number)
    assert with_labels.calibration_ != BeliefCalibrator(model, accuracy=0.7).fit(X[POOL]).calibration_
    with pytest.raises(ValueError, match="but got 11"):
        BeliefCalibrator(model, accuracy=0.7).fit(X[POOL], [11] * 700)


def test_conventions_of_scikit_learn(model: GaussianNB) -> None:
    calibrator = BeliefCalibrator(model, accuracy=0.8)
    with pytest.raises(NotFittedError):
        calibrator.predict_proba(X[TEST])
    with pytest.raises(NotFittedError):
        BeliefCalibrator(GaussianNB(), accuracy=0.8).fit(X[POOL])
    copy = clone(calibrator.fit(X[POOL]))
    assert copy.estimator is model  # a fitted classifier stays fitted
    assert not hasattr(copy, "calibration_")
    assert copy.get_params()["accuracy"] == 0.8
    again = pickle.loads(pickle.dumps(calibrator))
    np.testing.assert_array_equal(again.predict_proba(X[TEST]), calibrator.predict_proba(X[TEST]))
    with pytest.raises(ValueError, match="must have the classes"):
        BeliefCalibrator(model, class_fractions={"yes": 0.5, "no": 0.5}).fit(X[POOL])
    with pytest.raises(ValueError, match="nothing is stated"):
        BeliefCalibrator(model).fit(X[POOL])


def test_an_error_about_a_class_names_it() -> None:
    class Frozen(ClassifierMixin, BaseEstimator):
        classes_ = np.array(["ham", "spam"])

        def predict_proba(self, inputs: np.ndarray) -> np.ndarray:
            return np.asarray(np.exp(inputs) / np.exp(inputs).sum(1, keepdims=True))

        def fit(self, inputs: object) -> None: ...

        def __sklearn_is_fitted__(self) -> bool:
            return True

    logits = np.random.default_rng(65).normal(size=(200, 2)) + np.array([2.0, 0.0])
    calibrator = BeliefCalibrator(Frozen(), accuracy=0.51, class_fractions=[0.999, 0.001])
    with pytest.raises(ValueError, match=r"class 'ham' is stated to be 0\.999"):
        calibrator.fit(logits)


def test_it_may_decline_to_answer(model: GaussianNB) -> None:
    calibrated = BeliefCalibrator(model, accuracy=0.8).fit(X[500:1000])
    probs, everything = calibrated.predict_proba(X[1000:]), calibrated.predict(X[1000:])
    answers = calibrated.predict(X[1000:], abstain=0.05)
    given = np.array([each is not None for each in answers])
    assert 0 < given.sum() < len(answers)
    assert (answers[given] == everything[given]).all()
    assert (1 - probs.max(1)[given]).mean() <= 0.05
    assert probs.max(1)[given].min() > probs.max(1)[~given].max()
    rule = decide.abstain(calibrated.predict_proba(X[500:1000]), max_risk=0.3, labels=Y[500:1000])
    by_rule = calibrated.predict(X[1000:], abstain=rule)
    assert [each is not None for each in by_rule] == rule(probs).tolist()
    with pytest.raises(ValueError, match="`max_risk` must lie strictly between 0 and 1"):
        calibrated.predict(X[1000:], abstain=5)


# --- class fractions of groups ---


def wards(size: int = 10) -> tuple[list[str], dict[str, dict[str, float]]]:
    """Ward of each unlabelled input, and the share of every class in each ward."""
    labels = NAMES[Y[POOL]]
    names = [f"ward {k // size}" for k in range(len(labels))]
    shares = {
        ward: {str(name): float((labels[np.array(names) == ward] == name).mean()) for name in NAMES}
        for ward in dict.fromkeys(names)
    }
    return names, shares


def test_counts_of_groups_lower_the_log_loss_without_an_accuracy(model: GaussianNB) -> None:
    names, shares = wards()
    calibrated = BeliefCalibrator(model).fit(X[POOL], groups=names, group_fractions=shares)
    labels = NAMES[Y[TEST]]
    before, after = (each.predict_proba(X[TEST]).clip(1e-15, 1) for each in (model, calibrated))
    assert log_loss(labels, after, labels=model.classes_) < log_loss(labels, before, labels=model.classes_) - 0.01
    as_lists = {ward: [share[name] for name in model.classes_] for ward, share in shares.items()}
    same = BeliefCalibrator(model).fit(X[POOL], groups=np.array(names), group_fractions=as_lists)
    np.testing.assert_allclose(same.predict_proba(X[TEST]), calibrated.predict_proba(X[TEST]), atol=1e-9)
    both = BeliefCalibrator(model, accuracy=model.score(X[POOL], NAMES[Y[POOL]]))
    both.fit(X[POOL], groups=names, group_fractions=shares, group_concentration=1000)
    assert both.calibration_.temperature != calibrated.calibration_.temperature


def test_inputs_without_a_group_are_left_out() -> None:
    model = GaussianNB().fit(X[TRAIN], NAMES[Y[TRAIN]])
    names, shares = wards()
    some = [name if k < 400 else None for k, name in enumerate(names)]
    kept = {name: share for name, share in shares.items() if name in some}
    one = BeliefCalibrator(model).fit(X[POOL], groups=some, group_fractions=kept)
    other = BeliefCalibrator(model).fit(X[POOL][:400], groups=names[:400], group_fractions=kept)
    assert one.calibration_.temperature == pytest.approx(other.calibration_.temperature, rel=1e-4)


def test_counts_of_two_classes_are_exact(seed: int) -> None:
    """A Gaussian likelihood of groups of 16 gives too low a temperature."""
    generator = np.random.default_rng(seed)
    logit = generator.normal(0, 2, 90_000)
    positive = generator.random(len(logit)) < 1 / (1 + np.exp(-logit))
    group = np.arange(len(logit)) // 16
    share = np.bincount(group, positive) / 16
    said = 1 / (1 + np.exp(-3 * logit))
    found = BeliefCalibrator().fit(
        np.stack([1 - said, said], 1), groups=group, group_fractions={k: [1 - p, p] for k, p in enumerate(share)}
    )
    assert abs(np.log(found.calibration_.temperature / 3)) < 4 * found.calibration_.log_temperature_error < 0.1


def test_counts_and_whole_percentages_are_shares() -> None:
    model = GaussianNB().fit(X[TRAIN], NAMES[Y[TRAIN]])
    names, shares = wards()
    counts = {ward: {name: round(10 * share) for name, share in each.items()} for ward, each in shares.items()}
    assert {sum(each.values()) for each in counts.values()} == {10}
    percent = {ward: {name: 10 * count for name, count in each.items()} for ward, each in counts.items()}
    found = [
        BeliefCalibrator(model).fit(X[POOL], groups=names, group_fractions=each) for each in (shares, counts, percent)
    ]
    assert len({each.calibration_.temperature for each in found}) == 1
    probs = np.full((60, 6), 0.1) + 0.4 * np.eye(6)[np.arange(60) % 6]
    one_each, rounded = (dict.fromkeys(range(10), [share] * 6) for share in (1 / 6, 0.17))  # .17 six times is 1.02
    found = [
        BeliefCalibrator().fit(probs, groups=np.arange(60) // 6, group_fractions=each) for each in (one_each, rounded)
    ]
    assert found[0].calibration_.temperature == pytest.approx(found[1].calibration_.temperature)
    with pytest.warns(UserWarning, match="which are left out: 10 is absent"):
        BeliefCalibrator().fit(
            probs, groups=np.arange(60) // 6, group_fractions=dict.fromkeys(np.arange(11), one_each[0])
        )


def test_groups_that_cannot_be_used_are_one_sentence() -> None:
    model = GaussianNB().fit(X[TRAIN], NAMES[Y[TRAIN]])
    names, shares = wards()
    missing = {name: share for name, share in shares.items() if name != "ward 3"}
    odd = {**shares, "ward 3": {"digit 0": 0.33, "digit 1": 0.67}}
    BeliefCalibrator(model).fit(X[POOL], groups=names, group_fractions=odd, group_concentration=50)
    for more, message in (
        ({"groups": names}, "`groups` and `group_fractions` must be given together"),
        ({"group_fractions": shares}, "`groups` and `group_fractions` must be given together"),
        ({"group_concentration": 5.0}, "`group_concentration` is about `group_fractions`, but none are stated"),
        ({"groups": names, "group_fractions": {**shares, "ward 3": [1] * 10}}, "must name the classes in all groups"),
        ({"groups": names, "group_fractions": odd}, "those of 'ward 3' are no counts of its 10 rows: pass complete"),
        ({"groups": names, "group_fractions": missing}, "must state every group in `groups`, but 'ward 3' is missing"),
        ({"groups": names[:5], "group_fractions": shares}, "`groups` must have one entry per row of `X`, 700"),
        ({"groups": names, "group_fractions": shares, "group_concentration": "auto"}, "'auto', which is for training"),
        ({"groups": names, "group_fractions": {ward: [0.5, 0.5] for ward in shares}}, "must hold 10 numbers per group"),
    ):
        with pytest.raises(ValueError, match=message):
            BeliefCalibrator(model).fit(X[POOL], **more)
    twice = BeliefCalibrator(model, class_fractions=[0.1] * 10)
    with pytest.raises(ValueError, match="`class_fractions` and `group_fractions` state the same"):
        twice.fit(X[POOL], groups=names, group_fractions=shares)
