"""Runs with a target domain, and the baselines of a belief about it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
from torch.nn.functional import nll_loss

from selbo.evaluation.calibrate import bias_corrected_temperature
from selbo.evaluation.label_shift import correct_prior, estimate_by_confusion, estimate_by_em
from selbo.evaluation.predict import Prediction, predict
from selbo.objectives import ELBO, SummaryELBO
from selbo.training import fit
from selbo_lab.data.dataset import LabelledData
from selbo_lab.run import baselines, build, evaluate, execute, tasks
from selbo_lab.run.records import Run
from selbo_lab.schedule import runner
from selbo_lab.studies.run_spec import DataSpec, EvaluationSpec, ModelSpec, Recipe, RunSpec

DATA = DataSpec(
    "sst",
    generated=True,
    labels=20,
    label_fractions=(0.8, 0.2),
    use_fractions=(0.5, 0.5),
    use_noise=0.4,
    use_accuracy=0.9,
    unlabelled=24,
    val_size=12,
)
RECIPE = Recipe("cross_entropy", steps=40, batch_size=16, learning_rate=0.003)
SPEC = RunSpec(DATA, ModelSpec("mlp", hidden=(4,)), RECIPE, EvaluationSpec(draws=3), 0)
SUMMARY = Recipe(
    "summary_elbo", steps=4, batch_size=16, bayesian=True, partition="corners", belief="expect(use)", per_example=True
)


def task() -> tasks.RunTask:
    return tasks.build_task(DATA, SPEC.evaluation, seed=0)


def log_probs(data: LabelledData | None) -> torch.Tensor:
    """What the plain network of the run says."""
    assert data is not None
    network = execute._trained(SPEC, task(), device="cpu", member=0).network
    with torch.no_grad():
        return network(data.network_inputs()).log_softmax(-1)


def numbers(result: Run) -> dict[str, Any]:
    return {key: value for key, value in result.to_dict().items() if key not in {"seconds", "made_by", "id", "spec"}}


# --- a run ---


def test_a_run_is_tested_in_both_places() -> None:
    found = execute.execute_run(SPEC)
    json.dumps(found.to_dict(), allow_nan=False)
    assert set(found.conditions) == {"clean", "use"}
    assert found.sizes == {"train": 20, "val": 12, "test": 20, "use": 32, "unlabelled": 24}
    assert set(found.data) == set(found.sizes)
    for name, data in (("clean", task().test), ("use", task().use)):
        assert data is not None
        expected = nll_loss(log_probs(data), data.labels).item()
        assert found.conditions[name].metrics["nll"] == pytest.approx(expected, rel=1e-5)
    assert sum(found.score_histogram) == 32
    assert "nll" in found.conditions["use"].scaled


def test_settings_are_chosen_by_validation_data_weighted_to_the_place_of_use() -> None:
    found = execute.execute_run(replace(SPEC, evaluation=EvaluationSpec(draws=3, test=False)))
    val = task().val
    nll = -log_probs(val).gather(1, val.labels[:, None]).squeeze(1)
    weights = torch.tensor(DATA.use_fractions)[val.labels] / torch.tensor(val.class_counts)[val.labels]
    assert val.class_counts == (10, 2)
    assert found.val.nll_at_use == pytest.approx((weights * nll).sum().item(), rel=1e-5)
    assert runner._nll_to_choose_by(found) == found.val.nll_at_use != found.val.metrics["nll"]
    one_domain = replace(found, spec=replace(SPEC, data=DataSpec("mnist35")))
    assert runner._nll_to_choose_by(one_domain) == found.val.metrics["nll"]


METHODS = {
    "plain": RECIPE,
    "em": replace(RECIPE, correction="em"),
    "self-training": replace(RECIPE, rounds=2, threshold=0.6),
    "entropy": replace(RECIPE, objective="entropy_minimisation"),
    "expectation": replace(RECIPE, objective="expectation_regularisation"),
    "label-spreading": replace(RECIPE, objective="label_spreading", neighbours=3),
    "logistic": replace(RECIPE, objective="logistic_self_training", rounds=2),
    "summary": replace(SUMMARY, summary_inputs="use", pretraining=2, summary_warmup=2),
}


@pytest.mark.parametrize("name", METHODS)
def test_no_method_looks_at_the_labels_of_the_place_of_use(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all labels of the unlabelled inputs turned round, everything but their checksum is the same."""
    spec = replace(SPEC, recipe=METHODS[name])
    before = numbers(execute.execute_run(spec))
    known = task()
    assert known.unlabelled is not None
    turned = replace(known.unlabelled, labels=1 - known.unlabelled.labels)
    monkeypatch.setattr(execute, "build_task", lambda *_, **__: replace(known, unlabelled=turned))
    after = numbers(execute.execute_run(spec))
    assert before.pop("data") != after.pop("data")
    assert after == before


@pytest.mark.parametrize("name", [name for name in METHODS if name not in {"plain", "em", "label-spreading"}])
def test_methods_look_at_the_unlabelled_inputs(name: str) -> None:
    spec = replace(SPEC, recipe=METHODS[name])
    known = task()
    assert known.unlabelled is not None
    before = execute._trained(spec, known, device="cpu", member=0)
    others = replace(known, unlabelled=known.unlabelled.with_inputs(1 - known.unlabelled.inputs, name="others"))
    after = execute._trained(spec, others, device="cpu", member=0)
    assert known.use is not None
    inputs = known.use.network_inputs()
    generators = (torch.Generator().manual_seed(0) for _ in range(2))
    first, second = (
        each.network(inputs) if not spec.recipe.bayesian else predict(each.network, inputs, 2, generator=g).probs
        for each, g in zip((before, after), generators, strict=True)
    )
    assert not torch.allclose(first, second)


def test_pretraining_has_no_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def spy(network: Any, objective: Any, *args: Any, unlabelled: Any, steps: int, **kwargs: Any) -> Any:
        seen.append((type(objective), unlabelled is None, steps))
        return fit(network, objective, *args, unlabelled=unlabelled, steps=steps, **kwargs)

    monkeypatch.setattr(execute, "fit", spy)
    recipe = replace(SUMMARY, summary_inputs="use", pretraining=3)
    execute.execute_run(replace(SPEC, recipe=recipe))
    assert seen == [(ELBO, True, 3), (SummaryELBO, False, 4)]


def test_fewer_unlabelled_inputs_are_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def spy(*args: Any, unlabelled: Any, **kwargs: Any) -> Any:
        seen.append(unlabelled)
        return fit(*args, unlabelled=unlabelled, **kwargs)

    monkeypatch.setattr(execute, "fit", spy)
    for count in (5, 1000):
        recipe = replace(SUMMARY, summary_inputs="use", unlabelled_inputs=count)
        execute.execute_run(replace(SPEC, recipe=recipe))
    unlabelled = task().unlabelled
    assert unlabelled is not None
    assert torch.equal(seen[0], unlabelled.network_inputs()[:5])
    assert torch.equal(seen[1], unlabelled.network_inputs())


def test_without_a_place_of_use_there_are_no_unlabelled_inputs() -> None:
    spec = replace(SPEC, data=DataSpec("sst", generated=True), recipe=replace(SUMMARY, belief="uniform"))
    with pytest.raises(ValueError, match="must have a target domain"):
        execute.execute_run(replace(spec, recipe=replace(spec.recipe, summary_inputs="use")))


# --- corrections ---


def test_corrected_predictions_are_those_of_the_same_network(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[RunSpec] = []
    really = execute._trained

    def counted(spec: RunSpec, *args: Any, **options: Any) -> evaluate.Member:
        made.append(spec)
        return really(spec, *args, **options)

    monkeypatch.setattr(execute, "_MEMORY", execute._Memory())
    monkeypatch.setattr(execute, "_trained", counted)
    specs = [replace(SPEC, recipe=replace(RECIPE, correction=how)) for how in ("", "known", "em", "bbse")]
    in_a_row = [numbers(execute.execute_run(spec)) for spec in specs]
    assert made == specs[:1]
    execute.execute_run(replace(SPEC, seed=1))
    assert made == [*specs[:1], replace(SPEC, seed=1)], "another seed, another network"
    assert numbers(execute.execute_run(specs[3])) == in_a_row[3]
    assert made[2:] == specs[3:], "only the last network is remembered"


@pytest.mark.parametrize("how", ["known", "em", "bbse"])
def test_corrections_are_of_the_place_of_use_alone(how: str) -> None:
    plain = execute.execute_run(SPEC)
    found = execute.execute_run(replace(SPEC, recipe=replace(RECIPE, correction=how)))
    assert found.conditions["clean"] == plain.conditions["clean"]
    there = task()
    before, use = (0.8, 0.2), log_probs(there.use)
    after = {
        "known": lambda: DATA.use_fractions,
        "em": lambda: estimate_by_em(log_probs(there.unlabelled), before),
        "bbse": lambda: estimate_by_confusion(log_probs(there.unlabelled), log_probs(there.val), there.val.labels),
    }[how]()
    assert there.use is not None
    assert found.conditions["use"].fractions == pytest.approx(after, abs=1e-4)
    expected = nll_loss(correct_prior(use, before, after), there.use.labels).item()
    assert found.conditions["use"].metrics["nll"] == pytest.approx(expected, rel=1e-3)
    scaled = nll_loss(correct_prior((use / plain.temperature).log_softmax(-1), before, after), there.use.labels)
    if how != "em":  # whose fractions depend on the temperature
        assert found.conditions["use"].scaled["nll"] == pytest.approx(scaled.item(), rel=1e-3)


def test_em_starts_from_the_training_labels() -> None:
    """Predictions that are neither sure nor all alike, so that what they are divided by matters."""
    scores = torch.linspace(-2, 2, 50, dtype=torch.float64)
    log_probs = torch.stack([scores, 0.3 - scores], 1).log_softmax(-1)
    zeros = torch.zeros(50, dtype=torch.float64)
    seen = Prediction(log_probs.exp(), log_probs, zeros, zeros, zeros)
    train = task().train
    correction = baselines.Correction(
        "em", train=train, known=(0.5, 0.5), unlabelled=lambda: seen, val=seen, val_labels=torch.zeros(50).long()
    )
    found = correction(seen, lambda each: each)
    assert found.fractions == pytest.approx(estimate_by_em(log_probs, (0.8, 0.2)))
    assert found.fractions != pytest.approx(estimate_by_em(log_probs, (0.5, 0.5)), abs=1e-3)
    torch.testing.assert_close(found.prediction.log_probs, correct_prior(log_probs, (0.8, 0.2), found.fractions))


# --- predictions as labels ---


def test_sure_predictions_become_labels() -> None:
    train = torch.zeros(2, 3), torch.tensor([1, 0])
    unlabelled = torch.arange(12.0).reshape(4, 3)
    probs = torch.tensor([[0.9, 0.1], [0.45, 0.55], [0.2, 0.8], [0.79, 0.21]])
    inputs, labels = baselines.with_pseudo_labels(train, unlabelled, probs.log(), 0.795)
    assert labels.tolist() == [1, 0, 0, 1]
    assert torch.equal(inputs, torch.cat([train[0], unlabelled[[0, 2]]]))


# --- scikit-learn ---


@pytest.mark.parametrize("name", ["label_spreading", "logistic_self_training"])
def test_methods_of_scikit_learn_are_what_it_computes(name: str) -> None:
    there = task()
    assert there.unlabelled is not None
    recipe = Recipe(name, neighbours=3, clamping=0.3, inverse_penalty=0.5, threshold=0.8, rounds=4)
    found = baselines.scikit_learn(recipe, there.train, there.unlabelled)
    inputs = np.concatenate([there.train.inputs.numpy(), there.unlabelled.inputs.numpy()])
    labels = np.concatenate([there.train.labels.numpy(), -np.ones(24, dtype=int)])
    if name == "label_spreading":
        own = LabelSpreading(kernel="knn", n_neighbors=3, alpha=0.3, max_iter=1000).fit(inputs, labels)
    else:
        own = SelfTrainingClassifier(LogisticRegression(C=0.5, max_iter=1000), threshold=0.8, max_iter=4)
        own.fit(inputs, labels)
    expected = own.predict_proba(there.test.inputs.numpy()).astype(np.float64).clip(1e-3)
    expected /= expected.sum(-1, keepdims=True)
    torch.testing.assert_close(
        found(there.test.inputs).exp().double(), torch.from_numpy(expected), rtol=1e-4, atol=1e-5
    )


class Silent:
    """Knows classes 0 and 2 only, and says nothing of the second input."""

    classes_ = np.array([0, 2])

    def predict_proba(self, inputs):
        return np.array([[1.0, 0.0], [np.nan, np.nan]])


def test_answers_are_never_certain_and_never_empty() -> None:
    probs = baselines.Answers(Silent(), 3)(torch.zeros(2, 4)).exp()
    least = baselines.LEAST_PROBABILITY
    torch.testing.assert_close(probs[0], torch.tensor([1.0, least, least]) / (1 + 2 * least))
    torch.testing.assert_close(probs[1], torch.full((3,), 1 / 3))


# --- what is stated about the target domain ---


def test_settings_are_chosen_by_predictions_as_they_are_reported() -> None:
    plain = execute.execute_run(SPEC)
    known = execute.execute_run(replace(SPEC, recipe=replace(RECIPE, correction="known")))
    assert plain.val.metrics == known.val.metrics, "of the place that labels come from"
    there = task()
    corrected = correct_prior(log_probs(there.val), (0.8, 0.2), DATA.use_fractions)
    by_class = [nll_loss(corrected[there.val.labels == k], there.val.labels[there.val.labels == k]) for k in (0, 1)]
    expected = sum(share * nll.item() for share, nll in zip(DATA.use_fractions, by_class, strict=True))
    assert known.val.nll_at_use == pytest.approx(expected, rel=1e-3)
    assert known.val.nll_at_use != pytest.approx(plain.val.nll_at_use, rel=1e-3)


def test_em_after_a_bias_correction_needs_no_other_temperature() -> None:
    found = execute.execute_run(replace(SPEC, recipe=replace(RECIPE, correction="em-bcts"))).conditions["use"]
    there = task()
    assert there.use is not None
    calibrated = bias_corrected_temperature(log_probs(there.val), there.val.labels)
    after = estimate_by_em(calibrated.scale(log_probs(there.unlabelled)), (0.8, 0.2))
    assert found.fractions == pytest.approx(after, abs=1e-4)
    corrected = correct_prior(calibrated.scale(log_probs(there.use)), (0.8, 0.2), after)
    assert found.metrics["nll"] == pytest.approx(nll_loss(corrected, there.use.labels).item(), rel=1e-3)
    assert found.scaled == found.metrics


def test_a_wrong_statement_reaches_all_who_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute, "_MEMORY", execute._Memory())
    wrong = replace(DATA, fractions_off=0.1)
    stated = (DATA.use_fractions[0] + 0.1, DATA.use_fractions[1] - 0.1)
    assert build.collect_told(wrong, 2).fractions == pytest.approx(stated)
    known = replace(SPEC, recipe=replace(RECIPE, correction="known"))
    found = execute.execute_run(replace(known, data=wrong)).conditions["use"]
    assert found.fractions == pytest.approx(stated)
    assert replace(known, data=wrong).training == known.training, "the network is not told"
    shift = replace(SPEC, recipe=replace(RECIPE, label_shift=True))
    assert replace(shift, data=wrong).training != shift.training


def test_the_likelihood_of_every_test_example_is_kept_on_request() -> None:
    found = execute.execute_run(replace(SPEC, evaluation=replace(SPEC.evaluation, items=True))).conditions["use"]
    assert sum(found.items) / len(found.items) == pytest.approx(found.metrics["nll"], abs=1e-4)
    assert execute.execute_run(SPEC).conditions["use"].items is None
