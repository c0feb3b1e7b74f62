"""The dictionary of `evaluate`: each entry against scikit-learn or a hand-computed case, what is refused, and JSON."""

import json
import math

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn import metrics as sk

from selbo import metrics
from selbo.evaluation import evaluate, evaluate_ood

KEYS = {
    "nll",
    "accuracy",
    "ece",
    "adaptive_ece",
    "classwise_ece",
    "aurc",
    "brier",
    "auroc",
    "f1_micro",
    "f1_macro",
    "recall",
    "num_examples",
}


def predictions(seed, batch, num_classes):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(batch, num_classes, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, num_classes, (batch,), generator=generator)
    return (logits + 2 * torch.nn.functional.one_hot(labels, num_classes)).softmax(-1), labels


@pytest.mark.parametrize("num_classes", [2, 4])
def test_entries_are_sklearns(seed, num_classes):
    probs, labels = predictions(seed, 57, num_classes)
    labels = labels.clamp(max=num_classes - 2) if num_classes > 2 else labels
    guesses, present = probs.argmax(-1), sorted(set(labels.tolist()))
    result = evaluate(probs, labels)
    assert set(result) == KEYS
    assert result["nll"] == pytest.approx(sk.log_loss(labels, probs, labels=range(num_classes)), rel=1e-10)
    assert result["accuracy"] == pytest.approx(sk.accuracy_score(labels, guesses), rel=1e-12)
    assert result["f1_micro"] == pytest.approx(sk.f1_score(labels, guesses, average="micro"), rel=1e-12)
    macro = sk.f1_score(labels, guesses, labels=present, average="macro")
    assert result["f1_macro"] == pytest.approx(macro, rel=1e-12)
    areas = [sk.roc_auc_score(labels == k, probs[:, k]) for k in ([1] if num_classes == 2 else present)]
    assert result["auroc"] == pytest.approx(np.mean(areas), rel=1e-12)
    recalls = sk.recall_score(labels, guesses, labels=present, average=None).tolist()
    assert [r for r in result["recall"] if r is not None] == pytest.approx(recalls, rel=1e-12)
    assert len(result["recall"]) == num_classes
    squares = [((p - np.eye(num_classes)[y]) ** 2).sum() for p, y in zip(probs.numpy(), labels, strict=True)]
    assert result["brier"] == pytest.approx(np.mean(squares), rel=1e-12)
    assert result["num_examples"] == 57
    order = probs.amax(-1).argsort(descending=True)
    wrong = (guesses != labels)[order].double().numpy()
    assert result["aurc"] == pytest.approx(np.mean([wrong[: k + 1].mean() for k in range(57)]), rel=1e-12)


def test_a_hand_computed_case():
    """Two classes of three occur; the third example is wrong, with confidence .5, alone in its bin."""
    probs = torch.tensor([[0.7, 0.2, 0.1], [0.95, 0.05, 0.0], [0.5, 0.4, 0.1]], dtype=torch.float64)
    result = evaluate(probs, torch.tensor([0, 0, 1]))
    assert result["nll"] == pytest.approx(-math.log(0.7 * 0.95 * 0.4) / 3)
    assert result["ece"] == pytest.approx((0.3 + 0.05 + 0.5) / 3)
    assert result["adaptive_ece"] == pytest.approx((0.3 + 0.05 + 0.5) / 3)
    third = 0.2 / 3  # 0, .1 and .1 share the first bin: nothing occurs
    first = (0.3 + 0.05 + 0.5) / 3
    second = (0.05 + 0.2 + 0.6) / 3
    assert result["classwise_ece"] == pytest.approx((first + second + third) / 3)
    assert result["auroc"] == 1.0
    assert result["recall"] == [1.0, 0.0, None]
    assert result["f1_macro"] == pytest.approx(0.4)
    assert result["f1_micro"] == result["accuracy"] == pytest.approx(2 / 3)


def test_the_number_of_bins_reaches_all_calibration_errors(seed):
    probs, labels = predictions(seed, 40, 3)
    for name in ("ece", "adaptive_ece", "classwise_ece"):
        for num_bins in (1, 10, 15):
            expected = getattr(metrics, name)(probs, labels, num_bins=num_bins)
            assert evaluate(probs, labels, num_bins=num_bins)[name] == expected
    assert evaluate(probs, labels) == evaluate(probs, labels, num_bins=10)


def test_log_probs_give_the_same(seed):
    probs, labels = predictions(seed, 40, 3)
    first, second = evaluate(probs, labels), evaluate(None, labels, log_probs=probs.log())
    assert {k: pytest.approx(v, rel=1e-9) for k, v in first.items()} == second
    single = evaluate(None, labels, log_probs=probs.float().log())  # rows as exact as float32 is
    assert {k: pytest.approx(v, rel=1e-4) for k, v in first.items()} == single


def test_log_probs_keep_what_probabilities_lose():
    log_probs = torch.tensor([[0.0, -1000.0], [0.0, -2000.0], [0.0, -3000.0]])
    labels = torch.tensor([1, 0, 0])
    kept = evaluate(None, labels, log_probs=log_probs)
    with pytest.warns(UserWarning, match=r"1 of 3 rows gives its label a probability of 0, .* infinite \(row 0\)"):
        lost = evaluate(log_probs.exp(), labels)
    assert lost["nll"] == math.inf
    assert kept["nll"] == pytest.approx(1000 / 3)
    assert lost["auroc"] == 0.5
    assert kept["auroc"] == 1.0


def test_one_class_only():
    result = evaluate(torch.full((4, 3), 1 / 3), torch.full((4,), 2))
    assert result["auroc"] is None
    assert result["recall"] == [None, None, 0.0]
    assert result["f1_macro"] == 0.0
    json.dumps(result, allow_nan=False)


def test_one_example():
    assert evaluate(torch.tensor([[0.25, 0.75]]), torch.tensor([1]))["ece"] == pytest.approx(0.25)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_every_precision_and_arrays(dtype, seed):
    probs, labels = predictions(seed, 40, 3)
    result = evaluate(probs.to(dtype), labels)
    assert set(json.loads(json.dumps(result, allow_nan=False))) == KEYS
    if dtype != torch.bfloat16:  # which numpy does not have
        assert evaluate(probs.to(dtype).numpy(), labels.numpy()) == result


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_tensors_on_a_device(seed):
    probs, labels = predictions(seed, 40, 3)
    assert evaluate(probs.cuda(), labels.cuda()) == evaluate(probs, labels)
    assert evaluate(probs.cuda(), labels) == evaluate(probs, labels)


def test_rows_with_an_impossible_label_are_named():
    probs, labels = torch.tensor([[1.0, 0.0]]).repeat(20, 1), (torch.arange(20) % 2 == 1).long()
    with pytest.warns(UserWarning, match=r"10 of 20 rows give .* infinite \(rows 1, 3, 5, 7, 9, \.\.\.\)"):
        evaluate(probs, labels)
    with pytest.warns(UserWarning, match=r"10 of 20 rows give .* infinite \(rows 1, 3, 5, 7, 9, \.\.\.\)"):
        evaluate(None, labels, log_probs=probs.log())


def test_json():
    with pytest.warns(UserWarning, match="NLL is infinite"):
        text = json.dumps(evaluate(torch.tensor([[1.0, 0.0]]), torch.tensor([1])))
    assert json.loads(text)["nll"] == math.inf
    assert json.loads(text)["recall"] == [None, 0.0]


def test_inputs_are_left_alone(seed):
    probs, labels = predictions(seed, 20, 3)
    copies = probs.clone(), labels.clone()
    evaluate(probs, labels)
    assert torch.equal(probs, copies[0])
    assert torch.equal(labels, copies[1])


@pytest.mark.parametrize(
    ("probs", "labels", "message"),
    [
        (torch.tensor([[0.5, 0.6]]), torch.tensor([0]), "`probs` must lie on the simplex: .* by up to 0.1"),
        (torch.tensor([[1.2, -0.2]]), torch.tensor([0]), "`probs` must be at least 0 everywhere"),
        (torch.tensor([[math.nan, 0.5]]), torch.tensor([0]), "`probs` must hold numbers, but got 1 NaN"),
        (torch.tensor([[math.inf, 0.5]]), torch.tensor([0]), "`probs` must lie on the simplex"),
        (torch.tensor([[0.5, 0.5]]), torch.tensor([2]), "`labels` must lie between 0 and 1, .* but got 2"),
        (torch.tensor([[0.5, 0.5]]), torch.tensor([-1]), "`labels` must lie between 0 and 1, .* but got -1"),
        (torch.tensor([[0.5, 0.5]]), torch.tensor([0.0]), "`labels` must be whole numbers"),
        (torch.tensor([[0.5, 0.5]]), torch.tensor([0, 1]), r"`labels` must have one class per example, shape \(1,\)"),
        (torch.tensor([0.5, 0.5]), torch.tensor([0, 1]), "a binary score p becomes two columns"),
        (torch.zeros(0, 2), torch.zeros(0).long(), "`probs` must hold at least one example"),
        (torch.full((3, 2, 2), 0.5), torch.tensor([0, 1]), r"`probs` must have shape \(examples, classes\)"),
        (None, torch.tensor([0]), "one of `probs` and `log_probs` must be given, but got neither"),
    ],
)
def test_bad_input_is_refused(probs, labels, message):
    with pytest.raises(ValueError, match=message):
        evaluate(probs, labels)


def test_bad_options_are_refused():
    probs, labels = torch.tensor([[0.5, 0.5]]), torch.tensor([0])
    with pytest.raises(ValueError, match="`num_bins` must be a whole number of at least 1, but got 0"):
        evaluate(probs, labels, num_bins=0)
    with pytest.raises(ValueError, match="one of `probs` and `log_probs` must be given, but got both"):
        evaluate(probs, labels, log_probs=probs.log())
    with pytest.raises(ValueError, match=r"`log_probs` must be logarithms .* pass `logits.log_softmax\(-1\)`"):
        evaluate(None, labels, log_probs=torch.tensor([[2.0, 1.0]]))
    with pytest.raises(ValueError, match="`log_probs` must lie on the simplex"):
        evaluate(None, labels, log_probs=torch.tensor([[-2.0, -1.0]]))


# --- foreign inputs ---


def test_entries_of_evaluate_ood_are_sklearns(seed):
    rng = np.random.default_rng(seed)
    inside, outside = rng.gamma(2.0, 0.3, size=41), 0.3 + rng.gamma(2.0, 0.4, size=17)
    result = evaluate_ood(inside, torch.from_numpy(outside))
    assert set(result) == {"entropy_difference", "auroc", "aupr_out", "aupr_in", "fpr95"}
    values = np.concatenate([inside, outside])
    is_out = np.concatenate([np.zeros(41), np.ones(17)])
    assert result["entropy_difference"] == pytest.approx(outside.mean() - inside.mean(), rel=1e-12)
    assert result["auroc"] == pytest.approx(sk.roc_auc_score(is_out, values), rel=1e-12)
    assert result["aupr_out"] == pytest.approx(sk.average_precision_score(is_out, values), rel=1e-12)
    assert result["aupr_in"] == pytest.approx(sk.average_precision_score(1 - is_out, -values), rel=1e-12)
    fpr, tpr, _ = sk.roc_curve(1 - is_out, -values, drop_intermediate=False)
    assert result["fpr95"] == pytest.approx(fpr[np.argmax(tpr >= 0.95)], rel=1e-12)
    assert json.loads(json.dumps(result, allow_nan=False)) == result


def test_evaluate_ood_refuses_probabilities():
    with pytest.raises(
        ValueError, match=r"`out_scores` must be a vector of at least one number, but got shape \(2, 3\)"
    ):
        evaluate_ood(torch.tensor([0.1]), torch.full((2, 3), 1 / 3))


# --- groups ---


@pytest.mark.parametrize("as_logs", [False, True])
def test_groups_are_evaluated_on_their_own(seed, as_logs):
    probs, labels = predictions(seed, 90, 3)
    names = np.random.default_rng(seed).choice(["a", "b", "c"], 90, p=[0.6, 0.3, 0.1])
    names[:3] = ["b", "c", "a"]
    given = (None, labels) if as_logs else (probs, labels)
    result = evaluate(*given, log_probs=probs.log() if as_logs else None, groups=names)
    assert set(result) == KEYS | {"overconfidence", "intervals", "groups"}
    assert list(result["groups"]) == ["b", "c", "a"]  # as they come
    for name, found in result["groups"].items():
        some = torch.from_numpy(names == name)
        alone = evaluate(probs[some], labels[some])
        assert found["recall"] == alone["recall"]
        assert all(found[key] == pytest.approx(alone[key], rel=1e-9) for key in KEYS - {"recall"})
        right = probs[some].argmax(-1) == labels[some]
        assert found["overconfidence"] == pytest.approx((probs[some].amax(-1) - right.double()).mean().item())
    together = evaluate(probs, labels)
    assert all(result[key] == pytest.approx(together[key], rel=1e-9) for key in KEYS)
    json.dumps(result)


def test_intervals_are_scipys(seed):
    probs, labels = predictions(seed, 40, 3)
    found = evaluate(probs, labels, groups=[0] * 40)["groups"][0]
    right = int((probs.argmax(-1) == labels).sum())
    wilson = stats.binomtest(right, 40).proportion_ci(method="wilson")
    assert found["intervals"]["accuracy"] == pytest.approx((wilson.low, wilson.high))
    confidence = probs.amax(-1).mean().item()
    assert found["intervals"]["overconfidence"] == pytest.approx((confidence - wilson.high, confidence - wilson.low))
    losses = -probs[torch.arange(40), labels].log().numpy()
    squares = ((probs.numpy() - np.eye(3)[labels]) ** 2).sum(1)
    for name, values in (("nll", losses), ("brier", squares)):
        ends = stats.t.interval(0.95, 39, values.mean(), stats.sem(values))
        assert found["intervals"][name] == pytest.approx(ends)


def test_a_group_of_one_and_an_impossible_label():
    probs, labels = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.5, 0.5]]), torch.tensor([0, 1, 0])
    with pytest.warns(UserWarning, match=r"1 of 3 rows gives its label a probability of 0, .* \(row 1\)") as said:
        found = evaluate(probs, labels, groups=torch.tensor([7, 7, 8]))
    assert [each.filename for each in said] == [__file__]
    assert found["groups"][7]["nll"] == math.inf
    assert found["groups"][7]["intervals"]["nll"] is None
    assert found["groups"][8]["intervals"]["nll"] is None
    assert found["groups"][8]["auroc"] is None
    with pytest.raises(ValueError, match="`groups` must hold one group per row, 3 in all, but got 2"):
        evaluate(probs, labels, groups=["a", "b"])
