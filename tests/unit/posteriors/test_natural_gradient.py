"""The natural-gradient optimiser beside a reference of ten lines, and in every way that a training loop uses it."""

from __future__ import annotations

import copy
import hashlib
import math
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_model, save_model
from torch import Tensor, nn

import selbo
from selbo.nn import compiled
from selbo.nn.convert import variational_layers
from selbo.posteriors import NaturalGradient
from selbo.posteriors.natural_gradient import NormalNoise

N = 50
SETTINGS = {"num_data": N, "prior_std": 0.8, "initial_curvature": 0.3, "betas": (0.8, 0.95)}


def reference_step(
    mean: Tensor,
    momentum: Tensor,
    curvature: Tensor,
    found: list[tuple[Tensor, Tensor]],
    step: int,
    *,
    lr: float,
    num_data: int = N,
    prior_std: float = 0.8,
    betas: tuple[float, float] = (0.8, 0.95),
    temperature: float = 1.0,
    **_: object,
) -> tuple[Tensor, Tensor, Tensor]:
    """Algorithm 1 of Shen et al. (2024), from gradients and noises (standard normal) of the draws of one step."""
    delta, scale = 1 / (num_data * prior_std**2), num_data / temperature
    sigma = 1 / (scale * (curvature + delta)).sqrt()
    gradient = sum(g for g, _ in found)
    estimate = sum(g * eps / sigma for g, eps in found)
    momentum = betas[0] * momentum + (1 - betas[0]) * gradient
    change = curvature - estimate
    curvature = (
        betas[1] * curvature + (1 - betas[1]) * estimate + (1 - betas[1]) ** 2 * change**2 / (2 * (curvature + delta))
    )
    mean = mean - lr * (momentum / (1 - betas[0] ** step) + delta * mean) / (curvature + delta)
    return mean, momentum, curvature


def toy(seed: int, *, dtype: torch.dtype = torch.float64) -> tuple[nn.Module, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng():
        network = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).to(dtype)
    with torch.no_grad():
        for each in network.parameters():
            each.copy_(torch.randn(each.shape, generator=generator) * 0.5)
    inputs = torch.randn(N, 4, generator=generator).to(dtype)
    return network, inputs, torch.randint(0, 3, (N,), generator=generator)


def loss_of(network: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(network(inputs), labels)


def train(
    network: nn.Module,
    optimizer: NaturalGradient,
    data: tuple[Tensor, Tensor],
    steps: int,
    between: Callable[[], object] = lambda: None,
) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        with optimizer.sampled():
            loss_of(network, *data).backward()
        between()
        optimizer.step()


def values(network: nn.Module) -> Tensor:
    return torch.cat([each.detach().reshape(-1) for each in network.parameters()])


def stds(network: nn.Module, optimizer: NaturalGradient) -> Tensor:
    return torch.cat([optimizer.std(each).reshape(-1) for each in network.parameters()])


# --- the algorithm ---


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """The graphs that are compiled, by a compiler that leaves the code as it is."""
    graphs: list[object] = []

    def backend(graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., object]:
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr(compiled, "BACKEND", backend)
    torch.compiler.reset()
    with torch.random.fork_rng():
        yield graphs
    torch.compiler.reset()


FOR_GRAPHS = {"capturable": True, "lr": torch.tensor(0.2, dtype=torch.float64)}


@pytest.mark.parametrize("how", [{"lr": 0.2}, FOR_GRAPHS, {**FOR_GRAPHS, "compiled": True}])
@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_steps_are_those_of_the_reference(
    how: dict[str, object], samples: int, temperature: float, seed: int, compiles: list[object]
) -> None:
    network, inputs, labels = toy(seed)
    other = copy.deepcopy(network)
    torch.manual_seed(seed)
    optimizer = NaturalGradient(network.parameters(), **how, seed=seed, temperature=temperature, **SETTINGS)
    mean = values(network)
    momentum, curvature = torch.zeros_like(mean), torch.full_like(mean, 0.3)
    for step in range(1, 6):
        scale = N / temperature
        sigma = 1 / (scale * (curvature + 1 / (N * 0.8**2))).sqrt()
        found = []
        optimizer.zero_grad()
        for _ in range(samples):
            with optimizer.sampled():
                noise = (values(network) - mean) / sigma
                (loss_of(network, inputs, labels) / samples).backward()
            nn.utils.vector_to_parameters(mean + sigma * noise, other.parameters())
            gradients = torch.autograd.grad(loss_of(other, inputs, labels) / samples, list(other.parameters()))
            found.append((torch.cat([each.reshape(-1) for each in gradients]), noise))
        optimizer.step()
        mean, momentum, curvature = reference_step(
            mean, momentum, curvature, found, step, lr=0.2, temperature=temperature
        )
        close = 1e-6 if "capturable" in how else 1e-12  # the step is then a float32 tensor, as in torch's optimisers
        torch.testing.assert_close(values(network), mean, rtol=close, atol=close)
        expected = 1 / (scale * (curvature + 1 / (N * 0.8**2))).sqrt()
        torch.testing.assert_close(stds(network, optimizer), expected, rtol=close, atol=close)
    kernels = (1 if samples > 1 else 2) if "compiled" in how else 0
    assert len(compiles) == kernels, "one to sample, one to update from one sample; for all steps"


def test_the_curvature_estimate_is_unbiased(seed: int) -> None:
    """Its mean over draws is the diagonal of the Hessian, within five standard errors; read off a tiny change."""
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(6, 6, generator=generator, dtype=torch.float64)
    hessian = root @ root.T
    small, draws = 1e-7, 4000
    weights = nn.Parameter(torch.ones(6, draws, dtype=torch.float64))
    optimizer = NaturalGradient(
        [weights], lr=0.0, num_data=10, prior_std=1.0, initial_curvature=1.0, betas=(0.9, 1 - small), seed=seed
    )
    before = optimizer.std(weights) ** -2 / 10
    with optimizer.sampled():
        (0.5 * weights * (hessian @ weights)).sum().backward()
    optimizer.step()
    after = optimizer.std(weights) ** -2 / 10
    estimates = (after - before) / small + 1.0  # h moves by (1 - beta2) (c - h), and h is 1
    scores = (estimates.mean(1) - hessian.diagonal()) / (estimates.std(1) / draws**0.5)
    assert scores.abs().max() < 5
    assert estimates.std(1).min() > 0


@pytest.mark.parametrize("beta2", [0.0, 0.5, 0.999])
def test_the_precision_stays_positive(beta2: float, seed: int) -> None:
    """Whatever the gradients: in one step it is at most halved."""
    generator = torch.Generator().manual_seed(seed)
    weights = nn.Parameter(torch.zeros(64))
    optimizer = NaturalGradient([weights], lr=0.0, num_data=N, betas=(0.9, beta2), seed=seed)
    for _ in range(50):
        before = optimizer.std(weights)
        optimizer.zero_grad()
        with optimizer.sampled():
            weights.grad = torch.randn(64, generator=generator) * 10 ** torch.empty(64).uniform_(
                -6, 6, generator=generator
            )
        optimizer.step()
        after = optimizer.std(weights)
        assert (after > 0).all()
        assert (after < before * 2**0.5 * 1.001).all()


def test_noise_is_standard_normal_and_new_in_every_sample(seed: int) -> None:
    """Mean, variance, fourth moment and correlation of 10^5 values, within five standard errors."""
    weights, count = nn.Parameter(torch.zeros(100_000)), 100_000
    optimizer = NaturalGradient([weights], seed=seed, **SETTINGS)
    found = []
    for _ in range(2):
        with optimizer.sampled():
            found.append(weights.detach() / optimizer.std(weights))
            weights.square().sum().backward()
    for noise in found:
        assert abs(noise.mean()) < 5 / count**0.5
        assert abs(noise.square().mean() - 1) < 5 * (2 / count) ** 0.5
        assert abs(noise.pow(4).mean() - 3) < 5 * (96 / count) ** 0.5
    assert abs((found[0] * found[1]).mean()) < 5 / count**0.5


def test_noise_of_a_seed_is_the_same_on_every_machine() -> None:
    """The values themselves, so that this fails where they differ; for both types, and across parts of a tensor."""
    expected = torch.tensor([1.2460, -0.7477, 1.5563, -1.4304, -0.9785, -0.4706])
    found = {}
    for dtype in (torch.float32, torch.float64):
        found[dtype] = torch.empty(300_001, dtype=dtype)
        NormalNoise(torch.device("cpu"), 7).fill(found[dtype])
        torch.testing.assert_close(found[dtype][:6], expected.to(dtype), rtol=0, atol=5e-5)
    assert torch.equal(found[torch.float32].double(), found[torch.float64])
    digest = hashlib.sha256(found[torch.float32].numpy().tobytes()).hexdigest()
    assert digest == "ea254912a0ca9dfea238c96f5b833fd62317613e25884690db6b3b8cb3fd6cc8"


def test_noise_has_the_quantiles_of_a_normal_distribution(seed: int) -> None:
    """Largest distance of the distribution functions (Kolmogorov-Smirnov), and the correlation of neighbours."""
    count = 1_000_000
    noise = torch.empty(count)
    NormalNoise(noise.device, seed).fill(noise)
    levels = torch.special.ndtr(noise.double().sort().values)
    distance = (levels - (torch.arange(count) + 0.5) / count).abs().max()
    assert distance * count**0.5 < 2.5  # exceeded with a probability of 7e-6
    for lag in (1, 2, 3, 4):
        assert abs((noise[lag:] * noise[:-lag]).mean()) < 5 / count**0.5
    assert 4 < noise.max() < 4.33
    assert -4.33 < noise.min() < -4


# --- in a training loop ---


def test_weights_are_a_draw_inside_and_the_means_outside(seed: int) -> None:
    network, inputs, labels = toy(seed, dtype=torch.float32)
    optimizer = NaturalGradient(network.parameters(), seed=seed, **SETTINGS)
    before = values(network)
    drawn = []
    for _ in range(2):
        with optimizer.sampled():
            drawn.append(values(network))
            loss_of(network, inputs, labels).backward()
        assert torch.equal(values(network), before)
    assert not torch.equal(drawn[0], drawn[1])
    noise = (drawn[0] - before) / stds(network, optimizer)
    assert 0.5 < noise.std() < 1.5


def test_predicting_leaves_no_trace(seed: int) -> None:
    network, *data = toy(seed)
    other = copy.deepcopy(network)
    first, second = (NaturalGradient(each.parameters(), seed=seed, **SETTINGS) for each in (network, other))
    for _ in range(3):
        train(network, first, data, 1)
        train(other, second, data, 1)
        with torch.no_grad(), second.sampled(generator=torch.Generator().manual_seed(1)):
            other(data[0])
    assert torch.equal(values(network), values(other))


def test_predicting_between_gradient_and_step_leaves_no_trace(seed: int) -> None:
    network, *data = toy(seed)
    other = copy.deepcopy(network)
    first, second = (NaturalGradient(each.parameters(), seed=seed, **SETTINGS) for each in (network, other))

    def predict() -> None:
        with torch.no_grad(), second.sampled(generator=torch.Generator().manual_seed(1)):
            other(data[0])

    train(network, first, data, 3)
    train(other, second, data, 3, predict)
    assert torch.equal(values(network), values(other))


def test_a_parameter_that_the_loss_does_not_use_has_gradient_zero(seed: int) -> None:
    used, idle = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(2))
    twin, zero = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(2))
    for a, b, weight in ((used, idle, None), (twin, zero, 0.0)):
        optimizer = NaturalGradient([a, b], seed=seed, **SETTINGS)
        for _ in range(3):
            optimizer.zero_grad()
            with optimizer.sampled():
                (a.square().sum() + (0 if weight is None else weight * b.sum())).backward()
            optimizer.step()
    assert torch.equal(used, twin)
    assert torch.equal(idle, zero)
    assert (idle < 1).all(), "it approaches its prior"


def test_an_error_inside_puts_the_means_back(seed: int) -> None:
    network, *data = toy(seed)
    other = copy.deepcopy(network)
    first, second = (NaturalGradient(each.parameters(), seed=seed, **SETTINGS) for each in (network, other))
    train(network, first, data, 2)
    train(other, second, data, 1)
    before = values(other)

    def fails() -> None:
        with second.sampled():
            loss_of(other, *data).backward()
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert torch.equal(values(other), before)
    train(other, second, data, 1)
    assert torch.equal(values(network), values(other)), "the failed pass has left nothing"


def test_parts_of_a_batch_under_one_draw_are_the_batch(seed: int) -> None:
    network, *data = toy(seed)
    other = copy.deepcopy(network)
    first, second = (NaturalGradient(each.parameters(), seed=seed, **SETTINGS) for each in (network, other))
    for _ in range(3):
        train(network, first, data, 1)
        second.zero_grad()
        with second.sampled():
            for part in (slice(0, 25), slice(25, 50)):
                (loss_of(other, data[0][part], data[1][part]) / 2).backward()
        second.step()
    torch.testing.assert_close(values(network), values(other), rtol=1e-10, atol=1e-12)


def test_a_closure_is_called_inside(seed: int) -> None:
    network, *data = toy(seed)
    other = copy.deepcopy(network)
    first, second = (NaturalGradient(each.parameters(), seed=seed, **SETTINGS) for each in (network, other))
    train(network, first, data, 2)

    def closure() -> Tensor:
        loss = loss_of(other, *data)
        loss.backward()
        return loss

    assert second.step(closure) > 0
    second.step(closure)
    assert torch.equal(values(network), values(other))


@pytest.mark.parametrize("samples", [1, 2])
def test_a_scaled_loss_gives_the_same_steps(samples: int, seed: int) -> None:
    """By torch's GradScaler, as for float16: also where gradients are unscaled early, for clipping."""
    network, *data = toy(seed)
    twins = [copy.deepcopy(network) for _ in range(2)]
    first = NaturalGradient(network.parameters(), seed=seed, **SETTINGS)
    others = [NaturalGradient(each.parameters(), seed=seed, **SETTINGS) for each in twins]
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for _ in range(3):
        first.zero_grad()
        for _ in range(samples):
            with first.sampled():
                (loss_of(network, *data) / samples).backward()
        first.step()
    for early, other, optimizer in zip((False, True), twins, others, strict=True):
        for _ in range(3):
            optimizer.zero_grad()
            for _ in range(samples):
                with optimizer.sampled():
                    scaler.scale(loss_of(other, *data) / samples).backward()
            if early:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
        torch.testing.assert_close(values(network), values(other), rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(stds(network, first), stds(other, optimizer), rtol=1e-9, atol=1e-12)


def test_a_step_that_overflows_is_left_out(seed: int) -> None:
    network, *data = toy(seed)
    optimizer = NaturalGradient(network.parameters(), seed=seed, **SETTINGS)
    train(network, optimizer, data, 1)
    before, std = values(network), stds(network, optimizer)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    optimizer.zero_grad()
    with optimizer.sampled():
        scaler.scale(loss_of(network, *data) * torch.inf).backward()
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(values(network), before)
    train(network, optimizer, data, 1)
    assert not torch.equal(values(network), before)
    assert stds(network, optimizer).isfinite().all()
    assert not torch.equal(stds(network, optimizer), std)


def test_a_step_of_several_samples_that_is_left_out_leaves_no_trace(seed: int) -> None:
    """Also if the loop calls `zero_grad` of the network, of which the optimiser hears nothing."""
    network, *data = toy(seed)
    optimizer = NaturalGradient(network.parameters(), seed=seed, **SETTINGS)
    twin = copy.deepcopy(network)
    other = NaturalGradient(twin.parameters(), seed=seed, **SETTINGS)
    for weight in (torch.nan, 0.5):  # the first step is left out
        network.zero_grad()
        for number in range(2):
            with optimizer.sampled(generator=torch.Generator().manual_seed(number)):
                (weight * loss_of(network, *data)).backward()
    optimizer.step()
    other.zero_grad()
    for number in range(2):
        with other.sampled(generator=torch.Generator().manual_seed(number)):
            (0.5 * loss_of(twin, *data)).backward()
    other.step()
    assert torch.equal(values(network), values(twin))
    assert torch.equal(stds(network, optimizer), stds(twin, other))


def test_clipping_scales_gradient_and_curvature(seed: int) -> None:
    """The same as if the loss had been that much smaller."""
    network, *data = toy(seed)
    other = copy.deepcopy(network)
    first, second = (NaturalGradient(each.parameters(), seed=seed, **SETTINGS) for each in (network, other))
    norms = []
    train(network, first, data, 1, lambda: norms.append(nn.utils.clip_grad_norm_(network.parameters(), 0.01)))
    assert norms[0] > 0.01
    second.zero_grad()
    with second.sampled():
        (loss_of(other, *data) * (0.01 / (norms[0] + 1e-6))).backward()
    second.step()
    torch.testing.assert_close(values(network), values(other), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(stds(network, first), stds(other, second), rtol=1e-9, atol=1e-12)


def test_groups_have_their_own_settings(seed: int) -> None:
    network, *data = toy(seed)
    head, body = network[2], network[0]
    optimizer = NaturalGradient(
        [{"params": body.parameters(), "lr": 0.0}, {"params": head.parameters(), "prior_std": 0.1}],
        lr=0.1,
        **SETTINGS,
    )
    before = values(network).clone()
    train(network, optimizer, data, 1)
    count = sum(each.numel() for each in body.parameters())
    assert torch.equal(values(network)[:count], before[:count])
    assert not torch.equal(values(network)[count:], before[count:])
    assert optimizer.std(head.bias).max() < optimizer.std(body.bias).min()


def test_frozen_parameters_stay(seed: int) -> None:
    network, *data = toy(seed)
    network[0].requires_grad_(requires_grad=False)
    optimizer = NaturalGradient(network.parameters(), **SETTINGS)
    before = network[0].weight.detach().clone()
    train(network, optimizer, data, 2)
    assert torch.equal(network[0].weight, before)
    network[0].requires_grad_(requires_grad=True)  # and may thaw
    train(network, optimizer, data, 1)
    assert not torch.equal(network[0].weight, before)


@pytest.mark.parametrize("how", ["state_dict", "safetensors", "deepcopy"])
def test_a_resumed_run_is_the_same_run(how: str, seed: int, tmp_path: Path) -> None:
    network, *data = toy(seed)
    whole = copy.deepcopy(network)
    train(whole, NaturalGradient(whole.parameters(), seed=seed, **SETTINGS), data, 6)
    optimizer = NaturalGradient(network.parameters(), seed=seed, **SETTINGS)
    train(network, optimizer, data, 3)
    if how == "deepcopy":
        network, optimizer = copy.deepcopy((network, optimizer))
    else:
        other = toy(seed + 1)[0]
        if how == "safetensors":
            save_model(network, str(tmp_path / "network"))
            load_model(other, tmp_path / "network")
        else:
            other.load_state_dict(network.state_dict())
        resumed = NaturalGradient(other.parameters(), seed=seed, **SETTINGS)
        torch.save(optimizer.state_dict(), tmp_path / "optimizer")
        resumed.load_state_dict(torch.load(tmp_path / "optimizer", weights_only=True))
        network, optimizer = other, resumed
    train(network, optimizer, data, 3)
    assert torch.equal(values(network), values(whole))


@pytest.mark.parametrize("how", ["state_dict", "deepcopy", "pickle"])
def test_a_compiled_optimiser_stays_compiled(how: str, seed: int) -> None:
    optimizer = NaturalGradient(toy(seed)[0].parameters(), compiled=True, **{**SETTINGS, **FOR_GRAPHS})
    if how == "state_dict":
        optimizer.load_state_dict(optimizer.state_dict())
    else:
        optimizer = copy.deepcopy(optimizer) if how == "deepcopy" else pickle.loads(pickle.dumps(optimizer))
    assert optimizer.compiled


def test_parameters_that_move_are_found_again(seed: int) -> None:
    """Another layout of the memory, as `channels_last`, in the middle of a run."""
    with torch.random.fork_rng():
        network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 36, 2)).double()
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(10, 3, 8, 8, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 2, (10,), generator=generator)
    optimizer = NaturalGradient(network.parameters(), seed=seed, **SETTINGS)
    train(network, optimizer, (inputs, labels), 2)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    std = optimizer.std(network[0].weight).clone()
    network.to(memory_format=torch.channels_last)
    torch.testing.assert_close(optimizer.std(network[0].weight), std, rtol=0, atol=0)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert network[0].weight.is_contiguous(memory_format=torch.channels_last)
    train(network, optimizer, (inputs, labels), 2)
    assert all(each.isfinite().all() for each in network.state_dict().values())


def test_batchnorm_sees_each_draw_once(seed: int) -> None:
    """Its running statistics are moving averages over the samples: those of the batch at the weights of each."""
    with torch.random.fork_rng():
        network = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).double()
    inputs, labels = toy(seed)[1:]
    optimizer = NaturalGradient(network.parameters(), seed=seed, **SETTINGS)
    mean, var = torch.zeros(3).double(), torch.ones(3).double()
    for _ in range(2):
        optimizer.zero_grad()
        for _ in range(3):
            with optimizer.sampled():
                hidden = inputs @ network[0].weight.detach().T + network[0].bias.detach()
                mean, var = 0.9 * mean + 0.1 * hidden.mean(0), 0.9 * var + 0.1 * hidden.var(0)
                (loss_of(network, inputs, labels) / 3).backward()
        optimizer.step()
    assert network[1].num_batches_tracked == 6
    torch.testing.assert_close(network[1].running_mean, mean, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(network[1].running_var, var, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize(("reduced", "error"), [(torch.float16, 0.01), (torch.bfloat16, 0.05)])
def test_autocast_is_close_to_float32(reduced: torch.dtype, error: float, samples: int, seed: int) -> None:
    """Relative to how far means and precisions move; float16 needs a GradScaler, since the loss is small."""
    network, *data = toy(seed, dtype=torch.float32)
    other = copy.deepcopy(network)
    start = values(network)
    first, second = (NaturalGradient(each.parameters(), seed=seed, **SETTINGS) for each in (network, other))
    initial = stds(network, first) ** -2
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16, enabled=reduced == torch.float16)
    for _ in range(10):
        first.zero_grad()
        second.zero_grad()
        for _ in range(samples):
            with first.sampled():
                (loss_of(network, *data) / samples).backward()
            with second.sampled(), torch.autocast("cpu", reduced):
                loss = nn.functional.cross_entropy(outputs := other(data[0]), data[1])
                assert outputs.dtype == reduced
                scaler.scale(loss / samples).backward()
        first.step()
        scaler.step(second)
        scaler.update()
    for found, expected, before in (
        (values(other), values(network), start),
        (stds(other, second) ** -2, stds(network, first) ** -2, initial),
    ):
        assert 0 < (found - expected).norm() < error * (expected - before).norm()
    assert other[0].weight.dtype == torch.float32


def test_one_cycle_schedules_set_rate_and_momentum(seed: int) -> None:
    """OneCycleLR lowers the first of the betas while the rate rises; the same as setting both by hand."""
    network, *data = toy(seed)
    other = copy.deepcopy(network)
    first, second = (NaturalGradient(each.parameters(), seed=seed, **SETTINGS) for each in (network, other))
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        first, max_lr=0.4, total_steps=11, pct_start=5 / 11, base_momentum=0.6, max_momentum=0.9
    )
    rising = [0.5 - 0.5 * math.cos(math.pi * step / 4) for step in range(5)]  # the share of the way to the maximum
    falling = [0.5 + 0.5 * math.cos(math.pi * step / 6) for step in range(1, 6)]
    for number, share in enumerate([*rising, *falling]):
        lowest = 0.4 / 25 if number < 5 else 0.4 / 25 / 1e4
        second.param_groups[0]["lr"] = lowest + share * (0.4 - lowest)
        second.param_groups[0]["betas"] = (0.9 - share * 0.3, 0.95)
        train(other, second, data, 1)
        train(network, first, data, 1)
        scheduler.step()
    torch.testing.assert_close(values(network), values(other), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(stds(network, first), stds(other, second), rtol=1e-10, atol=1e-12)


# --- what comes of it ---


def test_the_posterior_becomes_a_bayesian_network(seed: int) -> None:
    """Means, standard deviations and prior, and so the distribution of the logits."""
    with torch.random.fork_rng():
        network = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3)).double()
    inputs, labels = toy(seed)[1:]
    network[0].bias.requires_grad_(requires_grad=False)
    optimizer = NaturalGradient(network.parameters(), seed=seed, **SETTINGS)
    train(network, optimizer, (inputs, labels), 20)
    network.eval()
    bnn = optimizer.bayesian_network(network).eval()
    torch.testing.assert_close(bnn(inputs), network(inputs))
    by_name = {
        f"{prefix}.{name}": each
        for prefix, layer in variational_layers(bnn)
        for name, each in zip(layer.names, layer.posteriors, strict=True)
    }
    assert set(by_name) == {"0.weight", "3.weight", "3.bias"}, "what was frozen has no posterior"
    for name, each in by_name.items():
        parameter = network.get_parameter(name)
        torch.testing.assert_close(each.mean.detach(), parameter.detach(), rtol=0, atol=0)
        torch.testing.assert_close(each.std.detach(), optimizer.std(parameter), rtol=1e-6, atol=0)
        assert each.prior_std == pytest.approx(0.8)
    logits = selbo.forward_samples(bnn, inputs, 4000, generator=torch.Generator().manual_seed(seed)).detach()
    network[1].requires_grad_(requires_grad=False)  # at its means, as in the Bayesian network
    drawn = []
    generator = torch.Generator().manual_seed(seed + 1)
    for _ in range(1000):
        with torch.no_grad(), optimizer.sampled(generator=generator):
            drawn.append(network(inputs))
    found = torch.stack(drawn)
    error = (logits.var(0) / 4000 + found.var(0) / 1000).sqrt()
    assert ((logits.mean(0) - found.mean(0)) / error).abs().max() < 5
    assert (logits.std(0) / found.std(0) - 1).abs().max() < 0.15


def test_tied_weights_have_one_posterior(seed: int) -> None:
    network, *data = toy(seed)
    with torch.random.fork_rng():
        network = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)).double()
    network[1].weight = network[0].weight
    optimizer = NaturalGradient(network.parameters(), seed=seed, **SETTINGS)
    train(network, optimizer, (data[0], data[1]), 3)
    found = [
        each.std
        for _, layer in variational_layers(optimizer.bayesian_network(network))
        for name, each in zip(layer.names, layer.posteriors, strict=True)
        if name == "weight"
    ]
    torch.testing.assert_close(found[1].detach(), optimizer.std(network[1].weight), rtol=1e-6, atol=0)
    torch.testing.assert_close(found[0], found[1])


# --- mistakes ---


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"num_data": 0}, "`num_data` must be"),
        ({"prior_std": 0.0}, "`prior_std` must be"),
        ({"initial_curvature": -1.0}, "`initial_curvature` must be"),
        ({"temperature": float("nan")}, "`temperature` must be"),
        ({"betas": (0.9, 1.0)}, "`betas` must be from 0 to below 1"),
        ({"betas": 0.9}, "`betas` must be two numbers"),
        ({"lr": -1.0}, "`lr` must be"),
        ({"lr": torch.tensor(-1.0)}, "`lr` must be"),
        ({"seed": -1}, "`seed` must be"),
    ],
)
def test_settings_are_checked(changed: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NaturalGradient([nn.Parameter(torch.zeros(2))], **{**SETTINGS, **changed})


def test_a_rate_on_another_device_is_not_read() -> None:
    """That would wait for the device; a tensor on the meta device has no value to read."""
    NaturalGradient([nn.Parameter(torch.zeros(2))], **{**SETTINGS, "lr": torch.tensor(0.1, device="meta")})


def test_half_precision_weights_are_refused() -> None:
    with pytest.raises(ValueError, match="use autocast"):
        NaturalGradient([nn.Parameter(torch.zeros(2, dtype=torch.bfloat16))], num_data=N)


def test_the_state_of_another_optimiser_is_refused(seed: int) -> None:
    network, *data = toy(seed)
    adam = torch.optim.Adam(network.parameters())
    loss_of(network, *data).backward()
    adam.step()
    with pytest.raises(ValueError, match="`state_dict` must be that of a NaturalGradient"):
        NaturalGradient(network.parameters(), **SETTINGS).load_state_dict(adam.state_dict())


def test_sparse_gradients_are_refused() -> None:
    with torch.random.fork_rng():
        network = nn.EmbeddingBag(5, 3, sparse=True)
    optimizer = NaturalGradient(network.parameters(), **SETTINGS)
    with pytest.raises(ValueError, match="pass sparse=False"), optimizer.sampled():
        network(torch.tensor([[1, 2]])).sum().backward()
    assert not network.weight.isnan().any()


def test_calls_in_the_wrong_order_say_so(seed: int) -> None:
    network, *data = toy(seed)
    optimizer = NaturalGradient(network.parameters(), **SETTINGS)
    loss_of(network, *data).backward()
    with pytest.raises(RuntimeError, match=r"call loss\.backward"):
        optimizer.step()
    with optimizer.sampled():
        loss_of(network, *data).backward()
        with pytest.raises(RuntimeError, match="not inside it"):
            optimizer.step()
        with pytest.raises(RuntimeError, match="must not be entered again"), optimizer.sampled():
            pass
    with pytest.raises(ValueError, match="that this optimiser trains"):
        optimizer.std(nn.Parameter(torch.zeros(1)))
    with pytest.raises(ValueError, match="that this optimiser trains, but has none"):
        optimizer.bayesian_network(toy(seed)[0])
    network.requires_grad_(requires_grad=False)
    with pytest.raises(ValueError, match="all are frozen"), optimizer.sampled():
        pass


@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize("first", ["conv", "linear"])
def test_a_backward_pass_of_other_weights_is_an_error(first: str, samples: int, seed: int) -> None:
    """A convolution would use the weights that the network has during the backward pass; nothing must be silent."""
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng():
        start = nn.Conv2d(1, 3, 3, padding=1) if first == "conv" else nn.Linear(6, 6)
        channels = 3 if first == "conv" else 1
        network = nn.Sequential(start, nn.Conv2d(channels, 2, 3), nn.Flatten(), nn.Linear(32, 2))
    data = torch.randn(5, 1, 6, 6, generator=generator), torch.randint(0, 2, (5,), generator=generator)
    optimizer = NaturalGradient(network.parameters(), seed=seed, **SETTINGS)
    before = values(network)
    for _ in range(samples):  # all of it outside
        with optimizer.sampled():
            loss = loss_of(network, *data)
        loss.backward()
    with pytest.raises(RuntimeError, match=r"call loss\.backward"):
        optimizer.step()
    optimizer.zero_grad()  # again outside, after a backward pass inside
    for number in range(samples):
        with optimizer.sampled():
            loss = loss_of(network, *data)
            if number == 0:
                loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    optimizer.zero_grad()  # inside, but of the means
    loss = loss_of(network, *data)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"), optimizer.sampled():
        loss.backward()
    assert torch.equal(values(network), before)
    train(network, optimizer, data, 1)
    assert not torch.equal(values(network), before), "after an error, it trains on"
