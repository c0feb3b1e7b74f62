"""`SummaryClassifier(posterior="natural_gradient")`: the same objective as the mean field, found in another way."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.utils.estimator_checks import check_sample_weight_equivalence_on_dense_data, check_sample_weights_list
from unit.estimator.test_classifier import blobs

import selbo
from selbo.posteriors import MeanField
from selbo.presets import natural_gradient_for

QUICK = {"steps": 30, "num_samples": 8, "hidden": (16,), "random_state": 0, "posterior": "natural_gradient"}


def quick(**others: object) -> selbo.SummaryClassifier:
    return selbo.SummaryClassifier(**{**QUICK, **others})


@pytest.mark.slow
def test_it_learns_with_a_belief(seed: int) -> None:
    X, y = load_iris(return_X_y=True)
    classifier = quick(accuracy=0.95, steps=300, num_samples=32, random_state=seed).fit(X, y)
    assert classifier.score(X, y) > 0.9
    assert classifier.predict_uncertainty(X).mutual_information.mean() > 1e-4
    assert classifier.concentration_ == 150
    assert isinstance(selbo.posteriors.as_posterior(classifier.network_), MeanField)


def test_its_objective_is_that_of_the_mean_field(seed: int) -> None:
    """One weight, quadratic loss: the best Gaussian under N loss + weight KL, found by natural gradient."""
    num_data, weight, prior_std, curvature, target = 50, 0.3, 0.4, 2.0, 1.5
    with torch.random.fork_rng():
        network = torch.nn.Linear(1, 200, bias=False).double()  # copies of the problem
    posterior = natural_gradient_for(network, num_data=num_data, kl_weight=weight, prior_std=prior_std)
    optimizer = posterior.train_by(lr=0.05, seed=seed)
    optimizer.param_groups[0]["betas"] = (0.9, 0.99)  # quicker
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 800)
    for _ in range(800):
        optimizer.zero_grad()
        with optimizer.sampled():
            (0.5 * curvature * (network.weight - target).square()).sum().backward()
        optimizer.step()
        schedule.step()
    precision = num_data * curvature / weight + prior_std**-2  # of the optimum
    found = posterior.stds()["weight"] ** -2
    assert found.mean().item() == pytest.approx(precision, rel=0.05)
    mean = num_data * curvature * target / weight / precision
    assert network.weight.mean().item() == pytest.approx(mean, abs=0.2 * precision**-0.5)


def test_weights_and_repetitions_agree() -> None:
    X, y = blobs(20)
    counts = np.arange(20) % 3
    counts[:3] = 1
    one = quick(accuracy=0.9, concentration=50.0, overrule_labels=True).fit(X, y, sample_weight=counts)
    rows = np.repeat(np.arange(20), counts)
    other = quick(accuracy=0.9, concentration=50.0, overrule_labels=True).fit(X[rows], y[rows])
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X), rtol=1e-6)


@pytest.mark.parametrize("check", [check_sample_weights_list, check_sample_weight_equivalence_on_dense_data])
def test_checks_of_scikit_learn(check) -> None:
    check("SummaryClassifier", quick())


def test_copies_and_pickles_predict_the_same() -> None:
    X, y = blobs(40)
    classifier = quick().fit(X, y)
    expected = classifier.predict_proba(X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(classifier)).predict_proba(X), expected)
    copied = clone(classifier)
    assert copied.get_params()["posterior"] == "natural_gradient"
    np.testing.assert_array_equal(copied.fit(X, y).predict_proba(X), expected)
    assert not np.array_equal(quick(posterior="mean_field").fit(X, y).predict_proba(X), expected)


def test_early_stopping_auto_and_unlabelled_rows() -> None:
    X, y = blobs(60)
    stopped = quick(early_stopping=True).fit(X, y)
    assert stopped.validation_nll_ is not None
    assert quick(concentration="auto", steps=5).fit(X, y).concentration_ in {0.6, 6.0, 60.0, 600.0}
    marked = quick(class_fractions=[0.2, 0.3, 0.5], unlabelled_label=-1).fit(X, np.where(np.arange(60) < 30, y, -1))
    assert marked.label_shift_ is not None
    assert marked.n_unlabelled_ == 30


def test_a_fit_resumes_from_its_checkpoint(tmp_path: Path) -> None:
    X, y = blobs(40)
    expected = quick(accuracy=0.8).fit(X, y, checkpoint=tmp_path / "run").predict_proba(X)
    again = quick(accuracy=0.8).fit(X, y, checkpoint=tmp_path / "run")
    np.testing.assert_array_equal(again.predict_proba(X), expected)
    with pytest.raises(ValueError, match="belongs to another run"):
        quick(accuracy=0.8, prior_std=0.7).fit(X, y, checkpoint=tmp_path / "run")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"posterior": "laplace"}, "`posterior` must be"),
        ({"method": "plain"}, "only for the methods 'summary_elbo' and 'elbo', but `method` is 'plain'"),
        ({"kl_weight": 0.0}, "`kl_weight` must be"),
        ({"learning_rate": 0.0}, "`learning_rate` must be"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick(**settings).fit(*blobs(20))
