"""Adaptation of trained networks to unlabelled inputs: statistics of BatchNorm, and TENT."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from selbo.models import MLP, VGG11, ConvNet
from selbo.objectives import CrossEntropy, Evidential
from selbo_lab.run import adaptation, execute, tasks
from selbo_lab.studies.run_spec import DataSpec, EvaluationSpec, ModelSpec, Recipe, RunSpec

DATA = DataSpec(
    "mnist35",
    generated=True,
    labels=20,
    label_fractions=(0.7, 0.3),
    use_fractions=(0.4, 0.6),
    use_corruption="fog",
    unlabelled=24,
    val_size=20,
)
RECIPE = Recipe("cross_entropy", steps=4, batch_size=8, adaptation="batchnorm")
TENT = replace(RECIPE, adaptation="tent", adaptation_rate=0.01, adaptation_epochs=3)
SPEC = RunSpec(DATA, ModelSpec("convnet"), RECIPE, EvaluationSpec(draws=1), 0)


def networks(seed: int) -> dict[str, tuple[nn.Module, Tensor]]:
    """Networks whose statistics, scales and shifts are not where they start, and inputs for each of them."""
    generator = torch.Generator().manual_seed(seed)
    found: dict[str, tuple[nn.Module, Tensor]] = {
        "vgg11": (VGG11(7, width=1 / 16, generator=generator), torch.randn(23, 3, 32, 32, generator=generator)),
        "convnet": (ConvNet(3, generator=generator), torch.randn(23, 1, 28, 28, generator=generator)),
        "vectors": (
            nn.Sequential(MLP((5, 4, 6), generator=generator), nn.BatchNorm1d(6), nn.ReLU(), nn.BatchNorm1d(6)),
            torch.randn(23, 5, generator=generator),
        ),
    }
    with torch.no_grad():
        for name, (network, _) in found.items():
            for layer in network.modules():
                if isinstance(layer, nn.Linear) and name != "vectors":
                    nn.init.normal_(layer.weight, std=layer.in_features**-0.5, generator=generator)
            for layer in batchnorm_of(network):
                layer.weight.copy_(0.5 + torch.rand(layer.num_features, generator=generator))
                layer.bias.copy_(torch.randn(layer.num_features, generator=generator))
    return {name: (network.eval(), 0.7 + 2 * inputs) for name, (network, inputs) in found.items()}


def batchnorm_of(network: nn.Module) -> list[Any]:
    return [each for each in network.modules() if type(each) in {nn.BatchNorm1d, nn.BatchNorm2d}]


def by_the_whole_pool(network: nn.Module, inputs: Tensor) -> Tensor:
    """Outputs of one pass in which BatchNorm takes its statistics from the batch, which is all inputs."""
    other = copy.deepcopy(network).eval()
    for layer in batchnorm_of(other):
        layer.train()
    with torch.no_grad():
        return other(inputs)


def mean_entropy(logits: Tensor) -> float:
    return torch.distributions.Categorical(logits=logits).entropy().mean().item()


# --- statistics ---


@pytest.mark.parametrize("name", ["vgg11", "convnet", "vectors"])
def test_statistics_are_those_of_all_inputs(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside torch's own, in one pass over all inputs at once, with momentum 1 and Bessel's correction taken out."""
    monkeypatch.setattr(adaptation, "INPUTS_AT_A_TIME", 10)  # blocks of 10, 10 and 3
    network, inputs = (each.double() for each in networks(seed)[name])
    torchs = copy.deepcopy(network).eval()
    counts: list[int] = []
    for layer in batchnorm_of(torchs):
        layer.momentum = 1.0
        layer.train()
        layer.register_forward_pre_hook(lambda _, given: counts.append(given[0].numel() // given[0].shape[1]))
    expected = torchs(inputs).detach()
    adaptation.estimate_statistics(network, inputs)
    for ours, theirs, count in zip(batchnorm_of(network), batchnorm_of(torchs), counts, strict=True):
        torch.testing.assert_close(ours.running_mean, theirs.running_mean, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(ours.running_var, theirs.running_var * (count - 1) / count, rtol=1e-10, atol=1e-12)
    assert not any(module.training for module in network.modules())
    torch.testing.assert_close(network(inputs).detach(), expected, rtol=1e-8, atol=1e-10)


def test_statistics_alone_are_changed(seed: int) -> None:
    network, inputs = networks(seed)["vgg11"]
    before = copy.deepcopy(network.state_dict())
    adaptation.estimate_statistics(network.train(), inputs)
    assert all(module.training for module in network.modules()), "the mode is the one it was in"
    changed = {name for name, value in network.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {name for name in before if name.endswith(("running_mean", "running_var"))}
    assert not any(each._forward_pre_hooks for each in network.modules())


@pytest.mark.filterwarnings("ignore:.*mkldnn")  # some processors lack half precision
def test_statistics_in_reduced_precision_are_close(seed: int) -> None:
    network, inputs = networks(seed)["vectors"]
    reduced = copy.deepcopy(network)
    adaptation.estimate_statistics(network, inputs)
    adaptation.estimate_statistics(reduced, inputs, precision="bf16")
    differ = False
    for exact, rounded in zip(batchnorm_of(network), batchnorm_of(reduced), strict=True):
        assert rounded.running_mean.dtype == torch.float32
        scale = (exact.running_var + exact.eps).sqrt()  # what the layer divides by, also where a unit is always 0
        distance = (rounded.running_mean - exact.running_mean).abs() / scale
        assert distance.max() < 0.1
        differ = differ or bool((distance > 0).any())
    assert differ


# --- TENT ---


def adapted(network: nn.Module, inputs: Tensor, recipe: Recipe = TENT, *, seed: int = 0) -> nn.Module:
    found = copy.deepcopy(network)
    generator = torch.Generator().manual_seed(seed)
    adaptation.adapt(found, inputs, recipe, objective=CrossEntropy(20), generator=generator)
    return found


@pytest.mark.parametrize("name", ["vgg11", "convnet"])
def test_tent_lowers_the_entropy(name: str, seed: int) -> None:
    network, inputs = networks(seed)[name]
    before = mean_entropy(by_the_whole_pool(network, inputs))
    after = mean_entropy(adapted(network, inputs)(inputs).detach())
    assert after < before


def test_tent_changes_scales_shifts_and_statistics_alone(seed: int) -> None:
    network, inputs = networks(seed)["vgg11"]
    network.train()
    found = adapted(network, inputs)
    assert all(module.training for module in found.modules()), "the mode is the one it was in"
    assert all(parameter.grad is None and parameter.requires_grad for parameter in found.parameters())
    before, after = network.state_dict(), found.state_dict()
    changed = {name for name in after if not torch.equal(after[name], before[name])}
    assert changed == {
        f"{name}.{each}"
        for name, module in network.named_modules()
        if isinstance(module, nn.BatchNorm2d)
        for each in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    }


def test_after_tent_statistics_are_those_of_all_inputs(seed: int) -> None:
    network, inputs = (each.double() for each in networks(seed)["vgg11"])
    found = adapted(network, inputs)
    torch.testing.assert_close(found(inputs).detach(), by_the_whole_pool(found, inputs), rtol=1e-8, atol=1e-10)


def test_a_step_of_tent_is_one_of_adam_on_the_entropy_of_a_batch(seed: int) -> None:
    """Adam's first step is its rate in the direction of the sign of the gradient, here taken by differences."""
    network, inputs = (each.double() for each in networks(seed)["vectors"])
    recipe = replace(TENT, batch_size=len(inputs), adaptation_epochs=1)
    found = adapted(network, inputs, recipe)
    for ours, start in zip(batchnorm_of(found), batchnorm_of(network), strict=True):
        for name in ("weight", "bias"):
            at = getattr(start, name)
            slope = torch.empty_like(at)
            for k in range(len(at)):
                values = []
                for by in (-1e-5, 1e-5):
                    with torch.no_grad():
                        at[k] += by
                    values.append(mean_entropy(by_the_whole_pool(network, inputs)))
                    with torch.no_grad():
                        at[k] -= by
                slope[k] = (values[1] - values[0]) / 2e-5
            clear = slope.abs() > 1e-5  # a gradient of zero has no direction
            assert clear.any()
            step = (getattr(ours, name) - at).detach()
            expected = -recipe.adaptation_rate * slope.sign()
            torch.testing.assert_close(step[clear], expected[clear], rtol=1e-2, atol=0)


@pytest.mark.parametrize(("size", "batches"), [(8, [12, 11]), (23, [23]), (50, [23]), (5, [6, 6, 6, 5])])
def test_every_epoch_of_tent_sees_all_inputs_once(size: int, batches: list[int]) -> None:
    network, inputs = networks(0)["vectors"]
    seen: list[Tensor] = []
    network.register_forward_pre_hook(lambda module, given: seen.append(given[0]) if module[1].training else None)
    adapted(network, inputs, replace(TENT, batch_size=size, adaptation_epochs=2))
    assert [len(each) for each in seen] == 2 * batches
    epochs = torch.cat(seen).reshape(2, *inputs.shape)
    for epoch in epochs:
        assert not torch.equal(epoch, inputs)
        assert torch.equal(epoch[epoch[:, 0].argsort()], inputs[inputs[:, 0].argsort()])
    assert not torch.equal(epochs[0], epochs[1])


def test_the_entropy_is_that_of_the_probabilities_of_the_objective(monkeypatch: pytest.MonkeyPatch) -> None:
    network, inputs = networks(0)["vectors"]
    objective, seen = Evidential(20), []
    monkeypatch.setattr(adaptation, "entropy", lambda *, log_probs, validate: seen.append(log_probs) or log_probs)
    recipe = replace(TENT, batch_size=50, adaptation_epochs=1)
    expected = objective.log_probs(by_the_whole_pool(network, inputs))
    adaptation.adapt(network, inputs, recipe, objective=objective, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(seen[0].exp().mean(0), expected.exp().mean(0))


# --- what is refused ---


@pytest.mark.parametrize("kind", ["batchnorm", "tent"])
def test_a_network_without_batchnorm_is_refused_before_training(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("training began")

    monkeypatch.setattr(execute, "fit", never)
    spec = replace(SPEC, model=ModelSpec("mlp", hidden=(4,)), recipe=replace(RECIPE, adaptation=kind))
    with pytest.raises(ValueError, match=r"^`adaptation` needs a network with BatchNorm, but this one has none$"):
        execute.execute_run(spec)
    with pytest.raises(ValueError, match="must have a target domain"):
        execute.execute_run(replace(SPEC, data=DataSpec("mnist35", generated=True)))


# --- runs ---


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute, "_MEMORY", execute._Memory())


def trained(spec: RunSpec) -> nn.Module:
    """The network of a run before it is adapted."""
    return execute._trained(spec, tasks.build_task(spec.data, spec.evaluation, seed=spec.seed), device="cpu", member=0)[
        0
    ]


@pytest.mark.parametrize("recipe", [RECIPE, TENT])
@pytest.mark.parametrize("looked_at", [0, 9])
def test_a_run_predicts_with_the_adapted_network(recipe: Recipe, looked_at: int) -> None:
    spec = replace(SPEC, recipe=replace(recipe, unlabelled_inputs=looked_at))
    task = tasks.build_task(DATA, SPEC.evaluation, seed=0)
    assert task.unlabelled is not None
    assert task.use is not None
    found = execute.execute_run(spec)
    json.dumps(found.to_dict(), allow_nan=False)
    inputs = task.unlabelled.network_inputs()[: looked_at or None]
    network = trained(spec)
    order = execute.generator_for(0, "adaptation", 0)
    adaptation.adapt(network, inputs, spec.recipe, objective=CrossEntropy(20), generator=order)
    network.eval()
    for where, data in (("use", task.use), ("clean", task.test)):
        with torch.no_grad():
            nll = nn.functional.cross_entropy(network(data.network_inputs()), data.labels).item()
        assert found.conditions[where].metrics["nll"] == pytest.approx(nll, rel=1e-5)
    # chosen by the validation data, classes weighted to the target domain
    with torch.no_grad():
        each = nn.functional.cross_entropy(network(task.val.network_inputs()), task.val.labels, reduction="none")
    means = [each[task.val.labels == k].mean().item() for k in (0, 1)]
    assert found.val.nll_at_use == pytest.approx(0.4 * means[0] + 0.6 * means[1], rel=1e-5)
    assert found.val.metrics["nll"] == pytest.approx(0.7 * means[0] + 0.3 * means[1], rel=1e-5)
    assert found.val.metrics["nll"] != pytest.approx(found.val.nll_at_use, rel=1e-3)


@pytest.mark.parametrize("recipe", [RECIPE, TENT])
def test_an_adaptation_goes_with_a_correction(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Corrected runs have the same adapted network, and predict otherwise in the target domain."""
    alone = execute.execute_run(replace(SPEC, recipe=recipe))
    fits: list[object] = []
    whole = execute.fit
    monkeypatch.setattr(execute, "fit", lambda *given, **named: fits.append(0) or whole(*given, **named))
    shared = execute.execute_run(replace(SPEC, recipe=replace(recipe, correction="known")))
    assert not fits
    execute._MEMORY.training = None
    anew = execute.execute_run(replace(SPEC, recipe=replace(recipe, correction="known")))
    assert len(fits) == 1
    for name in ("conditions", "val", "temperature"):
        assert getattr(shared, name) == getattr(anew, name)
    assert shared.conditions["clean"] == alone.conditions["clean"]
    assert shared.conditions["use"].metrics["nll"] != alone.conditions["use"].metrics["nll"]
    assert shared.conditions["use"].fractions == pytest.approx([0.4, 0.6])


def test_adapted_and_other_networks_are_not_confused() -> None:
    recipes = [replace(TENT, adaptation=each) for each in ("batchnorm", "tent", "")]
    one_by_one = [execute.execute_run(replace(SPEC, recipe=recipe)) for recipe in recipes]
    assert len({found.conditions["use"].metrics["nll"] for found in one_by_one}) == 3


def test_no_adaptation_looks_at_the_labels_of_the_target_domain(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = replace(SPEC, recipe=TENT)
    before = execute.execute_run(spec)
    known = tasks.build_task(DATA, SPEC.evaluation, seed=0)
    assert known.unlabelled is not None
    turned = replace(known.unlabelled, labels=1 - known.unlabelled.labels)
    monkeypatch.setattr(execute, "build_task", lambda *_, **__: replace(known, unlabelled=turned))
    execute._MEMORY.training = None
    after = execute.execute_run(spec)
    assert before.data["unlabelled"] != after.data["unlabelled"]
    assert before.conditions == after.conditions
