"""Scores against scikit-learn, loops over pairs and examples, and hand-computed cases."""

import itertools
import math

import numpy as np
import pytest
import torch
from sklearn import metrics as sk

from selbo.metrics import (
    accuracy,
    auroc,
    brier,
    f1_macro,
    f1_micro,
    f1_per_class,
    nll,
    nll_from_log_probs,
    recall,
)
from selbo.metrics.scores import binary_auroc

BY_VALUE = [nll, brier]
BY_ORDER = [accuracy, recall, f1_per_class, f1_macro, f1_micro, auroc]


def predictions(seed, batch, weights, *, eighths=False, present=None):
    """Lopsided probabilities and labels; `eighths` makes exact ties, `present` leaves classes out of the labels."""
    rng = np.random.default_rng(seed)
    num_classes = len(weights)
    present = range(num_classes) if present is None else present
    logits = rng.normal(size=(batch, num_classes)) + np.log(weights)
    frequencies = np.array([weights[k] for k in present]) / sum(weights[k] for k in present)
    labels = rng.choice(list(present), size=batch, p=frequencies)
    labels[: len(present)] = list(present)  # each at least once
    logits[np.arange(batch), labels] += 1.0
    probs = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    if eighths:
        probs = np.floor(8 * probs) / 8
        probs[:, 0] += 1 - probs.sum(-1)
    return torch.from_numpy(probs), torch.from_numpy(labels)


CASES = [
    (37, [0.7, 0.3], {}),
    (53, [0.6, 0.25, 0.1, 0.05], {}),
    (41, [0.5, 0.3, 0.2], {"eighths": True}),
    (61, [0.1, 0.4, 0.2, 0.25, 0.05], {"present": [1, 3]}),
    (30, [0.8, 0.2], {"eighths": True}),
]


@pytest.fixture(params=CASES, ids=["binary", "four", "ties", "absent", "binary, ties"])
def case(request, seed):
    batch, weights, options = request.param
    return predictions(seed, batch, weights, **options)


# --- references ---


def pair_count(positives, negatives):
    """Fraction of ordered pairs, one by one."""
    pairs = list(itertools.product(positives.tolist(), negatives.tolist()))
    return sum(1.0 if p > n else 0.5 if p == n else 0.0 for p, n in pairs) / len(pairs)


def test_nll_and_brier_are_those_of_a_loop(case):
    probs, labels = case
    rows = list(zip(probs.tolist(), labels.tolist(), strict=True))
    loop = -sum(math.log(row[y]) if row[y] > 0 else -math.inf for row, y in rows) / len(rows)
    assert nll(probs, labels) == pytest.approx(loop, rel=1e-12)
    squares = [sum((p - (k == y)) ** 2 for k, p in enumerate(row)) for row, y in rows]
    assert brier(probs, labels) == pytest.approx(sum(squares) / len(rows), rel=1e-12)


def test_nll_is_sklearns(case):
    probs, labels = case
    if (probs.gather(1, labels[:, None]) == 0).any():
        assert nll(probs, labels) == math.inf  # sklearn clamps
        return
    assert nll(probs, labels) == pytest.approx(sk.log_loss(labels, probs, labels=range(probs.shape[1])), rel=1e-10)


def test_accuracy_recall_and_f1_are_sklearns(case):
    probs, labels = case
    guesses = probs.argmax(-1)
    present = sorted(set(labels.tolist()))
    assert accuracy(probs, labels) == pytest.approx(sk.accuracy_score(labels, guesses), rel=1e-12)
    recalls = sk.recall_score(labels, guesses, labels=present, average=None)
    f1s = sk.f1_score(labels, guesses, labels=present, average=None)
    for ours, theirs in ((recall, recalls), (f1_per_class, f1s)):
        values = ours(probs, labels)
        assert [k for k, value in enumerate(values) if value is not None] == present
        assert [values[k] for k in present] == pytest.approx(theirs.tolist(), rel=1e-12)
    macro = sk.f1_score(labels, guesses, labels=present, average="macro")
    assert f1_macro(probs, labels) == pytest.approx(macro, rel=1e-12)
    micro = sk.f1_score(labels, guesses, average="micro")
    assert f1_micro(probs, labels) == pytest.approx(micro, rel=1e-12)


def test_auroc_is_sklearns_and_that_of_all_pairs(case):
    probs, labels = case
    present = [1] if probs.shape[1] == 2 else sorted(set(labels.tolist()))
    theirs = np.mean([sk.roc_auc_score(labels == k, probs[:, k]) for k in present])
    pairs = np.mean([pair_count(probs[labels == k, k], probs[labels != k, k]) for k in present])
    assert theirs == pytest.approx(pairs, rel=1e-12)
    assert auroc(probs, labels) == pytest.approx(pairs, rel=1e-12)


def test_auroc_of_all_classes_is_sklearns_macro(seed):
    probs, labels = predictions(seed, 80, [0.5, 0.3, 0.2])
    assert auroc(probs, labels) == pytest.approx(sk.roc_auc_score(labels, probs, multi_class="ovr"), rel=1e-12)


# --- known answers ---


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_auroc_of_all_classes_is_that_of_each_against_the_rest(dtype, seed):
    """To the last bit: both count pairs."""
    generator = torch.Generator().manual_seed(seed)
    for values in (7, 1000):  # many ties, few ties
        scores = torch.randint(values, (300, 6), generator=generator).to(dtype)
        scores[:, 2] = -torch.inf
        labels = torch.randint(5, (300,), generator=generator)  # no label names the last class
        areas = [binary_auroc(scores[labels == k, k], scores[labels != k, k]) for k in range(5)]
        assert auroc(scores, labels) == sum(areas) / 5


def test_a_perfect_model_on_data_that_lack_classes_has_auroc_one_and_f1_one():
    """Counting absent classes as 0, as the tables of the paper did, would give 2/5 here."""
    labels = torch.tensor([1, 1, 1, 3, 1])
    probs = 0.9 * torch.eye(5)[labels] + 0.02
    assert auroc(probs, labels) == 1.0
    assert f1_macro(probs, labels) == 1.0
    assert recall(probs, labels) == [None, 1.0, None, 1.0, None]


def test_micro_f1_is_blind_to_a_lost_class_and_macro_is_not():
    labels = torch.tensor([0] * 9 + [1])
    probs = torch.tensor([[0.9, 0.1]] * 10)
    assert f1_micro(probs, labels) == accuracy(probs, labels) == 0.9
    assert f1_macro(probs, labels) == pytest.approx(0.5 * 18 / 19, rel=1e-12)
    assert recall(probs, labels) == [1.0, 0.0]


def test_a_prediction_of_an_absent_class_costs_recall_and_adds_no_class():
    probs = torch.eye(3)[[0, 2, 1]]
    labels = torch.tensor([0, 0, 1])
    assert f1_per_class(probs, labels) == pytest.approx([2 / 3, 1.0, None])
    assert f1_macro(probs, labels) == pytest.approx(5 / 6, rel=1e-12)


def test_binary_auroc_is_that_of_class_one():
    probs = torch.tensor([[0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
    assert auroc(probs, torch.tensor([0, 1, 0])) == 1.0
    assert auroc(probs, torch.tensor([1, 0, 1])) == 0.0
    assert auroc(torch.full((3, 2), 0.5), torch.tensor([0, 1, 0])) == 0.5
    saturated = torch.tensor([[1.0, 1e-20], [1.0, 1e-30]])  # column 0 has lost the order
    assert auroc(saturated, torch.tensor([1, 0])) == 1.0


@pytest.mark.parametrize("num_classes", [2, 4])
@pytest.mark.parametrize("label", [0, 1])
def test_one_class_only_has_no_auroc(num_classes, label):
    probs = torch.full((3, num_classes), 1 / num_classes)
    assert auroc(probs, torch.full((3,), label)) is None


def test_binary_auroc_of_infinite_scores():
    scores = torch.tensor([-math.inf, 0.0]), torch.tensor([-math.inf, -1.0, 1.0])
    assert binary_auroc(*scores) == pytest.approx(pair_count(*scores), rel=1e-12) == 2.5 / 6


def test_ties_of_the_largest_go_to_the_first():
    probs = torch.tensor([[0.4, 0.4, 0.2], [0.2, 0.4, 0.4]])
    assert accuracy(probs, torch.tensor([0, 1])) == 1.0
    assert accuracy(probs, torch.tensor([1, 2])) == 0.0


def test_brier_goes_from_zero_to_two():
    probs = torch.eye(3)
    assert brier(probs, torch.tensor([0, 1, 2])) == 0.0
    assert brier(probs, torch.tensor([1, 2, 0])) == 2.0


def test_brier_is_twice_the_binary_one(seed):
    probs, labels = predictions(seed, 33, [0.7, 0.3])
    assert brier(probs, labels) == pytest.approx(2 * sk.brier_score_loss(labels, probs[:, 1]), rel=1e-12)


def test_nll_of_certainty():
    sure = torch.tensor([[1.0, 0.0]])
    assert nll(sure, torch.tensor([1])) == math.inf
    assert str(nll(sure, torch.tensor([0]))) == "0.0"
    assert nll_from_log_probs(sure.log(), torch.tensor([1])) == math.inf
    assert str(nll_from_log_probs(sure.log(), torch.tensor([0]))) == "0.0"


def test_nll_from_log_probs_keeps_what_probabilities_lose():
    log_probs = torch.tensor([[0.0, -900.0], [-1000.0, 0.0]])
    assert nll(log_probs.exp(), torch.tensor([1, 1])) == math.inf
    assert nll_from_log_probs(log_probs, torch.tensor([1, 1])) == 450.0


def test_the_logarithm_of_probabilities_gives_the_same(case):
    probs, labels = case
    log_probs = probs.log()
    assert nll_from_log_probs(log_probs, labels) == pytest.approx(nll(probs, labels), rel=1e-12)
    for metric in BY_ORDER:
        assert metric(log_probs, labels) == metric(probs, labels), metric.__name__


@pytest.mark.parametrize("metric", BY_VALUE + BY_ORDER)
def test_the_order_of_examples_does_not_matter_but_that_of_classes_does(metric, seed):
    probs, labels = predictions(seed, 40, [0.6, 0.3, 0.1])
    order = torch.randperm(40, generator=torch.Generator().manual_seed(seed))
    assert metric(probs[order], labels[order]) == pytest.approx(metric(probs, labels), rel=1e-12)
    assert metric(probs, labels) != metric(probs.flip(1), labels)


# --- what may come in ---


@pytest.mark.parametrize("metric", BY_VALUE + BY_ORDER)
def test_arrays_tensors_and_precisions(metric, seed):
    probs, labels = predictions(seed, 24, [0.6, 0.3, 0.1])
    expected = metric(probs, labels)
    read_only = probs.numpy().copy()
    read_only.flags.writeable = False
    assert metric(read_only, labels.numpy().astype(np.uint8)) == expected
    assert metric(probs.numpy()[::-1], labels.numpy()[::-1]) == pytest.approx(expected, rel=1e-12)
    assert metric(probs.clone().requires_grad_(), labels.int()) == expected
    assert metric(probs.float(), labels) == pytest.approx(expected, rel=1e-6)
    value = metric(probs.half(), labels)
    assert all(type(v) is float for v in (value if isinstance(value, list) else [value]))


def test_boolean_labels_are_zero_and_one():
    probs = torch.tensor([[0.8, 0.2], [0.3, 0.7]])
    assert accuracy(probs, torch.tensor([False, True])) == 1.0


@pytest.mark.parametrize("metric", BY_VALUE + BY_ORDER)
@pytest.mark.parametrize(
    ("shape", "labels", "message"),
    [
        ((4,), (4,), r"must have shape \(examples, classes\), but got \(4,\); a binary score p becomes two columns"),
        ((4, 1), (4,), r"must have shape \(examples, classes\), 2 or more classes, but got \(4, 1\)"),
        ((2, 4, 3), (4,), r"must have shape \(examples, classes\), 2 or more classes, but got \(2, 4, 3\)"),
        ((), (4,), r"must have shape \(examples, classes\), 2 or more classes, but got \(\)"),
        ((0, 3), (0,), r"must hold at least one example, but got shape \(0, 3\)"),
        ((4, 3), (3,), r"`labels` must have one class per example, shape \(4,\), but got \(3,\)"),
        ((4, 3), (4, 3), r"`labels` must have one class per example, shape \(4,\), but got \(4, 3\)"),
        ((4, 3), (4, 1), r"`labels` must have one class per example, shape \(4,\), but got \(4, 1\)"),
    ],
)
def test_wrong_shapes_are_refused(metric, shape, labels, message):
    probs = torch.full(shape, 1 / (shape[-1] if shape else 1))
    with pytest.raises(ValueError, match=message):
        metric(probs, torch.zeros(labels, dtype=torch.long))


@pytest.mark.parametrize("metric", BY_VALUE + BY_ORDER)
@pytest.mark.parametrize(("label", "named"), [(-1, "-1"), (3, "3"), (255, "255")])
def test_labels_out_of_range_are_refused(metric, label, named):
    with pytest.raises(ValueError, match=f"`labels` must lie between 0 and 2, one of 3 classes, but got {named}"):
        metric(torch.full((2, 3), 1 / 3), torch.tensor([0, label]))


@pytest.mark.parametrize("metric", BY_VALUE + BY_ORDER)
def test_what_is_no_number_is_refused(metric):
    labels = torch.tensor([0, 1])
    with pytest.raises(ValueError, match="must hold numbers, but got 1 NaN"):
        metric(torch.tensor([[0.5, 0.5], [math.nan, 0.5]]), labels)
    with pytest.raises(ValueError, match=r"`labels` must be whole numbers, but got dtype torch.float32"):
        metric(torch.full((2, 2), 0.5), labels.float())
    with pytest.raises(ValueError, match=r"must be a floating-point tensor, but got dtype torch.int64"):
        metric(torch.eye(2).long(), labels)
    with pytest.raises(ValueError, match="must be a tensor or a numpy array, but got list"):
        metric([[0.5, 0.5], [0.5, 0.5]], labels)
    with pytest.raises(ValueError, match="must hold numbers, but got an array of dtype <U1"):
        metric(np.array([["a", "b"], ["c", "d"]]), labels)
    with pytest.raises(ValueError, match="must have one of the usual precisions"):
        metric(torch.full((2, 2), 0.5).to(torch.float8_e5m2), labels)


@pytest.mark.parametrize("metric", BY_VALUE)
def test_rows_off_the_simplex_are_refused(metric):
    labels = torch.tensor([0, 1])
    with pytest.raises(ValueError, match=r"`probs` must lie on the simplex: .* by up to 0.1"):
        metric(torch.tensor([[0.5, 0.5], [0.6, 0.5]]), labels)
    with pytest.raises(
        ValueError, match=r"`probs` must be at least 0 everywhere, but the smallest is -0.1; if these are logits"
    ):
        metric(torch.tensor([[0.5, 0.5], [-0.1, 1.1]]), labels)
    metric(torch.tensor([[0.5, 0.5], [0.5, 0.50009]]), labels)  # the tolerance of float32
    with pytest.raises(ValueError, match="simplex"):
        metric(torch.tensor([[0.5, 0.5], [0.5, 0.50009]], dtype=torch.float64), labels)


def test_logits_are_no_log_probs():
    with pytest.raises(ValueError, match=r"`log_probs` must be logarithms of probabilities, .* pass `logits.log_soft"):
        nll_from_log_probs(torch.tensor([[2.0, -1.0]]), torch.tensor([0]))
    with pytest.raises(ValueError, match=r"`log_probs` must lie on the simplex"):
        nll_from_log_probs(torch.tensor([[-2.0, -1.0]]), torch.tensor([0]))
    assert nll_from_log_probs(torch.tensor([[-2.0, -1.0]]), torch.tensor([0]), validate=False) == 2.0
