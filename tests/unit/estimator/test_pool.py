"""A pool of classifiers: its weights, its members, what a belief does to it, and what is saved."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from selbo import SummaryClassifier, calibrate_to_belief
from selbo.estimator import fold_networks, storage
from selbo.estimator import pool as pools
from selbo.estimator.pool import POOL_MEMBERS, POOL_PRIOR, Pool, fit_pool, mix, pool_weights
from selbo.estimator.rows import Rows
from tests.unit.estimator.small import blobs, two_groups

FEW = {(pools, "TREES_PER_FOREST"): 10, (fold_networks, "ROWS_SEEN"): 2000, (fold_networks, "NETWORK_EPOCHS"): (2, 10)}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for (module, name), value in FEW.items():
        monkeypatch.setattr(module, name, value)


def tensors(rows: int, **others) -> tuple[torch.Tensor, torch.Tensor]:
    X, y = blobs(rows, **others)
    X = (X - X.mean(0)) / X.std(0)
    return torch.from_numpy(X), torch.from_numpy(y)


def nll(log_probs: torch.Tensor, labels: torch.Tensor) -> float:
    return -float(log_probs[torch.arange(len(labels)), labels].mean())


# --- weights ---


@pytest.mark.parametrize("weighted", [False, True])
def test_weights_maximise_the_likelihood(weighted) -> None:
    generator = torch.Generator().manual_seed(0)
    likelihoods = torch.rand(40, 3, generator=generator, dtype=torch.float64)
    rows = torch.rand(40, generator=generator, dtype=torch.float64) if weighted else torch.ones(40, dtype=torch.float64)

    def loss(z: np.ndarray) -> float:
        weights = torch.from_numpy(z).softmax(0)
        return -float(rows @ (likelihoods @ weights).log() + 1.5 * weights.log().sum())

    best = torch.from_numpy(minimize(loss, np.zeros(3), method="BFGS", options={"gtol": 1e-8}).x).softmax(0)
    found = pool_weights(likelihoods, rows if weighted else None, prior=1.5, rounds=5000)
    torch.testing.assert_close(found, best, atol=1e-5, rtol=0)


def test_a_weight_of_two_is_the_row_twice() -> None:
    likelihoods = torch.rand(10, 2, generator=torch.Generator().manual_seed(1))
    twice = pool_weights(torch.cat([likelihoods, likelihoods[:1]]))
    torch.testing.assert_close(pool_weights(likelihoods, torch.tensor([2.0] + [1.0] * 9)), twice)


# --- members ---


def test_held_out_predictions_do_not_know_the_labels() -> None:
    """Labels without any relation to the inputs: a prediction that has seen them would be right more often."""
    X, y = tensors(150, classes=2)
    y = y[torch.randperm(150, generator=torch.Generator().manual_seed(0))]
    found = fit_pool(X, y, 2)
    share = max(float((y == k).double().mean()) for k in (0, 1))
    assert nll(found.held_out, y) > -share * math.log(share) - (1 - share) * math.log(1 - share) - 0.03
    assert nll(found.pool(X), y) < nll(found.held_out, y)  # these have seen them


def test_every_member_predicts_the_classes() -> None:
    X, y = tensors(400)
    found = fit_pool(X[:200], y[:200], 3)
    by_member = found.pool.by_member(X[200:])
    assert list(found.pool.members) == list(POOL_MEMBERS)
    torch.testing.assert_close(by_member.exp().sum(-1), torch.ones(4, 200, dtype=torch.float64))
    for log_probs in by_member:
        assert (log_probs.argmax(-1) == y[200:]).double().mean() > 0.75
    mixed = mix(by_member, found.pool.weights)
    torch.testing.assert_close(found.pool(X[200:]), (mixed / found.pool.temperature).log_softmax(-1))
    assert nll(found.pool(X[200:]), y[200:]) < max(nll(each, y[200:]) for each in by_member)


def test_the_linear_member_is_logistic_regression() -> None:
    X, y = tensors(150)
    member = fit_pool(X, y, 3).pool.members["linear"]
    candidates = [LogisticRegression(C=C, max_iter=200).fit(X.numpy(), y.numpy()) for C in pools.LINEAR_PENALTIES]
    differences = [np.abs(each.predict_proba(X.numpy()) - member(X).exp().numpy()).max() for each in candidates]
    assert min(differences) < 1e-3


def test_large_tables_have_fewer_trees_of_the_slow_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "LARGE_TABLE", 60)
    monkeypatch.setattr(pools, "FEW_TREES", 6)
    X, y = tensors(60)
    trees = [len(fit_pool(X, y, 3).pool.members[each].forest.roots) for each in ("random_forest", "extra_trees")]
    assert trees == [6, 10]
    assert len(fit_pool(X[:59], y[:59], 3).pool.members["random_forest"].forest.roots) == 10


def test_more_rows_than_choose_the_penalty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every third row chooses it, and all held-out rows are predicted by fits to others."""
    monkeypatch.setattr(pools, "ROWS_TO_CHOOSE", 50)
    X, y = tensors(150)
    fitted = pools._linear(pools._Table(X, y, torch.ones(150).double(), 3), pools._folds(y, 0))
    assert bool(fitted.held_out.exp().sum(1).isclose(torch.ones(150).double()).all())
    assert 0 < nll(fitted.module(X), y) < nll(fitted.held_out, y) < math.log(3) / 2


def test_a_class_of_one_row_and_two_rows_in_all() -> None:
    X, y = tensors(60, classes=2)
    y = y.clone()
    y[0] = 2
    found = fit_pool(X, y, 3)
    assert bool(found.held_out.isfinite().all())
    assert bool(found.pool(X).isfinite().all())
    assert bool(fit_pool(X[:2], torch.tensor([0, 1]), 2).pool(X).isfinite().all())


def test_the_same_seed_gives_the_same_pool_and_threads_are_restored() -> None:
    X, y = tensors(80)
    before = torch.get_num_threads()
    first, second, other = (fit_pool(X, y, 3, seed=seed).pool(X) for seed in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert torch.get_num_threads() == before


def test_the_disagreement_of_members_is_the_mutual_information() -> None:
    X, y = tensors(80)
    pool = fit_pool(X, y, 3).pool
    found, by_member = pool.predict(X), pool.by_member(X)
    weights = pool.weights[:, None, None]
    joint = weights * by_member.exp()
    expected = (joint * (by_member - mix(by_member, pool.weights))).sum((0, 2))
    torch.testing.assert_close(found.mutual_information, torch.minimum(expected, found.entropy))
    torch.testing.assert_close(found.entropy, -(found.probs * found.log_probs).sum(-1))


@pytest.mark.parametrize("weighted", [False, True])
def test_the_temperature_is_the_most_probable_one(weighted: bool) -> None:
    """Given the labels of held-out rows, and the prior; a mean of predictions is too uncertain."""
    X, y = tensors(120)
    weights = torch.where(torch.arange(120) < 60, 1.5, 0.5).double() if weighted else torch.ones(120).double()
    found = fit_pool(X, y, 3, row_weights=weights if weighted else None)
    mean = found.held_out * found.pool.temperature  # up to a constant of each row

    def loss(z: np.ndarray) -> float:
        log_probs = (mean * math.exp(z[0])).log_softmax(-1)
        return POOL_PRIOR * (math.exp(z[0]) - 1 - z[0]) - float(weights @ log_probs.gather(1, y[:, None])[:, 0])

    best = math.exp(-float(minimize(loss, np.zeros(1), method="BFGS").x[0]))
    assert float(found.pool.temperature) == pytest.approx(best, abs=1e-4)
    assert float(found.pool.temperature) < 1


# --- the estimator ---


def test_a_pool_is_the_default_and_a_setting_of_a_network_asks_for_one() -> None:
    X, y = blobs(60)
    assert SummaryClassifier(random_state=0).fit(X, y).base_ == "pool"
    assert SummaryClassifier(steps=5, random_state=0).fit(X, y).base_ == "network"
    assert SummaryClassifier(hidden=[128], random_state=0).fit(X, y).base_ == "pool"
    with pytest.raises(ValueError, match="`steps` is for a network, but `base` is 'pool'"):
        SummaryClassifier(base="pool", steps=5).fit(X, y)
    with pytest.raises(ValueError, match="`base` must be one of"):
        SummaryClassifier(base="tree").fit(X, y)


def test_nothing_stated_nothing_corrected() -> None:
    X, y = blobs(80)
    found = SummaryClassifier(random_state=0).fit(X, y)
    assert found.calibration_ is None
    assert found.concentration_ is None
    torch.testing.assert_close(torch.from_numpy(found.predict_log_proba(X)), found.network_(found.scale_(X)))


def test_a_stated_accuracy_is_calibrated_with_the_labels_of_held_out_rows() -> None:
    X, y = two_groups(0)
    found = SummaryClassifier(accuracy=0.84, random_state=0).fit(X, y)
    again = fit_pool(found.scale_(X), torch.from_numpy(y), 2, seed=found.seed_)
    expected = calibrate_to_belief(
        again.held_out, accuracy=0.84, concentration=300.0, labels=y, prior_strength=POOL_PRIOR
    )
    assert found.calibration_ == expected
    assert found.validation_nll_ == pytest.approx(nll(again.held_out, torch.from_numpy(y)))
    np.testing.assert_array_equal(found.held_out_log_proba_, again.held_out)


def test_an_accuracy_that_held_out_rows_contradict_is_doubted() -> None:
    X, y = two_groups(0)
    with pytest.warns(UserWarning, match="held-out rows are classified"):
        SummaryClassifier(accuracy=0.98, random_state=0).fit(X, y)


def test_fractions_of_unlabelled_rows_are_met_there() -> None:
    X, y = two_groups(1, rows=800)
    here = np.concatenate([np.flatnonzero(y == 0)[:50], np.flatnonzero(y == 1)[:50]])
    there = np.concatenate([np.flatnonzero(y == 0)[50:300], np.flatnonzero(y == 1)[50:100]])
    found = SummaryClassifier(class_fractions=[5 / 6, 1 / 6], fraction_uncertainty=0, random_state=0).fit(
        X[here], y[here], X_unlabelled=X[there]
    )
    assert found.base_ == "pool"
    np.testing.assert_allclose(found.predict_proba(X[there]).mean(0), [5 / 6, 1 / 6], atol=1e-4)
    source = found.posterior_predictive(X[there], target_domain=False)
    assert float(source.probs[:, 1].mean()) > 0.2
    torch.testing.assert_close(source.log_probs, found.network_(found.scale_(X[there])))


def test_uncertain_fractions_are_weighed_against_the_labels() -> None:
    X, y = two_groups(1, rows=400)
    here, there = np.arange(100), np.arange(100, 400)
    found = SummaryClassifier(class_fractions=[0.8, 0.2], random_state=0).fit(X[here], y[here], X_unlabelled=X[there])
    source = found.posterior_predictive(X[there], target_domain=False).log_probs
    expected = calibrate_to_belief(
        source, class_fractions=[0.8, 0.2], label_counts=np.bincount(y[here]).tolist(), fraction_uncertainty=0.05
    )
    assert found.calibration_ == expected


def test_a_statement_out_of_reach_is_a_warning(monkeypatch) -> None:
    def refuse(*_args, **_others) -> None:
        raise ValueError("`class_fractions` cannot be reached")

    monkeypatch.setattr("selbo.estimator.classifier.fit_to_belief", refuse)
    X, y = two_groups(1, rows=200)
    with pytest.warns(UserWarning, match="cannot be reached; predictions are left as they are"):
        assert SummaryClassifier(class_fractions=[0.5, 0.5], random_state=0).fit(X, y).calibration_ is None
    with pytest.warns(UserWarning, match="cannot be reached; predictions are corrected by the class fractions"):
        found = SummaryClassifier(class_fractions=[0.9, 0.1], random_state=0).fit(X, y, X_unlabelled=X)
    assert found.label_shift_ is not None
    assert found.label_shift_.after == (0.9, 0.1)


def test_weights_count_as_repetitions_in_the_correction() -> None:
    X, y = two_groups(2, rows=200)
    weights = np.where(np.arange(200) < 100, 3.0, 1.0)
    found = SummaryClassifier(accuracy=0.84, random_state=0).fit(X, y, weights)
    again = fit_pool(
        found.scale_(X), torch.from_numpy(y), 2, row_weights=torch.from_numpy(weights / 2), seed=found.seed_
    )
    drawn = Rows(found.scale_(X), torch.from_numpy(y), torch.from_numpy(weights)).resampled()
    expected = calibrate_to_belief(
        again.held_out[drawn], accuracy=0.84, concentration=400.0, labels=y[drawn.numpy()], prior_strength=POOL_PRIOR
    )
    assert found.calibration_ == expected


def test_rows_are_drawn_as_often_as_their_weights_say() -> None:
    weights = torch.tensor([3.0, 1.0]).double().repeat_interleave(100)
    drawn = Rows(torch.zeros(200, 1), torch.zeros(200, dtype=torch.int64), weights).resampled()
    counts = torch.bincount(drawn, minlength=200)
    assert (int(counts[:100].sum()), int(counts[100:].sum())) == (150, 50)
    assert set(counts[:100].tolist()) == {1, 2}


def test_a_saved_pool_predicts_the_same(tmp_path) -> None:
    X, y = two_groups(3, rows=120)
    found = SummaryClassifier(class_fractions=[0.8, 0.2], random_state=0).fit(X[:60], y[:60], X_unlabelled=X[60:])
    description = storage.save_classifier(found, tmp_path / "weights")
    again = storage.restore(description, found.classes_, ["a", "b"])
    storage.load_network(again, tmp_path / "weights", device="cpu")
    np.testing.assert_array_equal(again.predict_proba(X), found.predict_proba(X))
    assert again.base_ == "pool"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop("members.networks.first"), "must have the tensor"),
        (lambda tensors: tensors.update(weights=torch.zeros(3)), "must be those of a pool"),
        (lambda tensors: tensors["members.extra_trees.forest.features"].fill_(9), "refer to features and nodes"),
    ],
)
def test_a_damaged_pool_is_refused(tmp_path, change, message) -> None:
    from safetensors.torch import load_file, save_file

    X, y = two_groups(3, rows=60)
    found = SummaryClassifier(random_state=0).fit(X, y)
    description = storage.save_classifier(found, tmp_path / "weights")
    tensors_of = load_file(tmp_path / "weights")
    change(tensors_of)
    save_file(tensors_of, tmp_path / "weights")
    again = storage.restore(description, found.classes_, ["a", "b"])
    with pytest.raises(ValueError, match=message):
        storage.load_network(again, tmp_path / "weights", device="cpu")


def test_a_pool_has_the_shapes_that_it_is_built_from() -> None:
    X, y = tensors(60)
    pool = fit_pool(X, y, 3).pool
    shapes = {name: list(each.shape) for name, each in pool.state_dict().items()}
    assert {name: list(each.shape) for name, each in Pool.with_shapes(shapes, 4, 3).state_dict().items()} == shapes
