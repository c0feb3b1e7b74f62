"""Samplers as optimisers of a training loop, sets of samples, and full-batch HMC; their distributions: statistical."""

from __future__ import annotations

import copy
import io
import math
from pathlib import Path

import pytest
import torch
from seeded import noise
from torch import Tensor, nn

import selbo
from selbo.posteriors import SGHMC, SGLD, SampleSet, hmc, network_log_posterior

N, PRIOR_STD = 50, 0.8
SETTINGS = {"num_data": N, "prior_std": PRIOR_STD}


def toy(seed: int = 0) -> tuple[nn.Module, Tensor, Tensor]:
    generator = noise(seed)
    with torch.random.fork_rng():
        network = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    with torch.no_grad():
        for each in network.parameters():
            each.copy_(torch.randn(each.shape, generator=generator) * 0.5)
    inputs = torch.randn(N, 4, generator=generator, dtype=torch.float64)
    return network, inputs, torch.randint(0, 3, (N,), generator=generator)


def train(network: nn.Module, optimizer: torch.optim.Optimizer, inputs: Tensor, labels: Tensor, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(inputs), labels).backward()
        optimizer.step()


def values(network: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(network.parameters()).detach().clone()


# --- the optimisers ---


@pytest.mark.parametrize("decay", [0.1, 0.7, 1.0])
def test_without_noise_steps_are_those_of_sgd(decay: float) -> None:
    network, *data = toy()
    other = copy.deepcopy(network)
    train(network, SGHMC(network.parameters(), 0.3, momentum_decay=decay, temperature=0.0, **SETTINGS), *data, 10)
    sgd = torch.optim.SGD(other.parameters(), 0.3, momentum=1 - decay, weight_decay=1 / (N * PRIOR_STD**2))
    train(other, sgd, *data, 10)
    torch.testing.assert_close(values(network), values(other), rtol=1e-12, atol=1e-12)


def test_a_cycle_is_a_cosine_that_starts_again() -> None:
    network, *data = toy()
    other = copy.deepcopy(network)
    train(network, SGLD(network.parameters(), 0.3, temperature=0.0, cycle_steps=4, **SETTINGS), *data, 10)
    sgd = torch.optim.SGD(other.parameters(), 0.3, weight_decay=1 / (N * PRIOR_STD**2))
    factors = (1.0, 0.5 + math.sqrt(0.125), 0.5, 0.5 - math.sqrt(0.125))
    scheduler = torch.optim.lr_scheduler.LambdaLR(sgd, lambda step: factors[step % 4])
    for _ in range(10):
        train(other, sgd, *data, 1)
        scheduler.step()
    torch.testing.assert_close(values(network), values(other), rtol=1e-12, atol=1e-12)


def test_the_step_of_a_single_weight_with_noise() -> None:
    """The paper's form, for one momentum: v <- (1 - a) v - eta grad U + N(0, 2 a eta T), theta <- theta + v."""
    kicks = []
    for temperature in (1.0, 4.0):
        weight, eta = nn.Parameter(torch.tensor(2.0, dtype=torch.float64)), 0.3 / N
        optimizer = SGHMC([weight], 0.3, momentum_decay=0.2, temperature=temperature, seed=5, **SETTINGS)
        velocity, found = 0.0, []
        for _ in range(3):
            before = weight.item()
            weight.grad = torch.ones_like(weight)
            optimizer.step()
            drift = (1 - 0.2) * velocity - eta * (N + before / PRIOR_STD**2)
            velocity = weight.item() - before
            found.append((velocity - drift) / math.sqrt(2 * 0.2 * eta * temperature))
        kicks.append(found)
    assert kicks[0] == pytest.approx(kicks[1], rel=1e-9)  # the same standard normal noise
    assert len({round(each, 9) for each in kicks[0]}) == 3


@pytest.mark.parametrize("kind", [SGHMC, SGLD])
def test_there_is_no_noise_outside_the_sampling_phase(kind: type[SGHMC]) -> None:
    network, *data = toy()
    paths = []
    for settings in ({}, {"seed": 1}, {"temperature": 0.0}):
        other = copy.deepcopy(network)
        optimizer = kind(other.parameters(), 0.1, cycle_steps=10, sampling_fraction=0.3, **settings, **SETTINGS)
        states, phases = [], []
        for _ in range(10):
            phases.append(optimizer.is_sampling)
            train(other, optimizer, *data, 1)
            states.append(values(other))
        assert phases == [False] * 7 + [True] * 3
        paths.append(states)
    for number in range(10):
        same = [torch.equal(paths[0][number], path[number]) for path in paths[1:]]
        assert same == [number < 7] * 2


@pytest.mark.parametrize("kind", [SGHMC, SGLD])
def test_a_resumed_run_is_the_same_run(kind: type[SGHMC]) -> None:
    network, *data = toy()
    settings = {"cycle_steps": 6, "sampling_fraction": 0.5, **SETTINGS}
    optimizer = kind(network.parameters(), 0.1, seed=3, **settings)
    train(network, optimizer, *data, 10)
    file = io.BytesIO()
    torch.save((network.state_dict(), optimizer.state_dict()), file)
    train(network, optimizer, *data, 10)

    other, *_ = toy(1)
    resumed = kind(other.parameters(), 0.1, **settings)
    file.seek(0)
    weights, state = torch.load(file, weights_only=True)
    other.load_state_dict(weights)
    resumed.load_state_dict(state)
    assert resumed.num_steps == 10
    train(other, resumed, *data, 10)
    assert torch.equal(values(network), values(other))


def test_noise_depends_on_the_seed_and_the_step_alone() -> None:
    network, *data = toy()
    found = []
    for seed in (0, 0, 1):
        other = copy.deepcopy(network)
        train(other, SGHMC(other.parameters(), seed=seed, **SETTINGS), *data, 3)
        found.append(values(other))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_groups_have_settings_and_noise_of_their_own() -> None:
    weights = [nn.Parameter(torch.zeros(3)) for _ in range(2)]
    groups = [{"params": weights[:1]}, {"params": weights[1:], "lr": 0.4, "prior_std": 0.1}]
    optimizer = SGLD(groups, 0.1, **SETTINGS)
    for each in weights:
        each.grad = torch.zeros(3)
    optimizer.step()
    assert not torch.allclose(weights[1], 2 * weights[0])
    alone = nn.Parameter(torch.zeros(3))
    alone.grad = torch.zeros(3)
    SGLD([alone], 0.4, num_data=N).step()
    assert torch.allclose(alone, 2 * weights[0])  # noise of the first group, at the second learning rate
    later = nn.Parameter(torch.zeros(2))
    optimizer.add_param_group({"params": [later]})
    assert optimizer.param_groups[2]["step"] == 1


def test_frozen_weights_stay_and_unused_ones_have_their_prior() -> None:
    frozen, unused, used = (nn.Parameter(torch.ones(2)) for _ in range(3))
    frozen.requires_grad_(False)
    optimizer = SGHMC([frozen, unused, used], temperature=0.0, momentum_decay=1.0, lr=0.1, **SETTINGS)
    used.sum().backward()
    optimizer.step()
    assert torch.equal(frozen, torch.ones(2))
    torch.testing.assert_close(unused.detach(), torch.full((2,), 1 - 0.1 / (N * PRIOR_STD**2)))
    assert frozen not in optimizer.state


def test_a_closure_is_called_once_and_its_loss_returned() -> None:
    weight = nn.Parameter(torch.ones(1))
    optimizer = SGLD([weight], **SETTINGS)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = weight.square().sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 1.0
    assert optimizer.num_steps == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_data": 0}, "`num_data` must be a whole number of at least 1"),
        ({"prior_std": 0.0}, "`prior_std` must be a finite number greater than 0"),
        ({"momentum_decay": 1.5}, "`momentum_decay` must be above 0 and at most 1"),
        ({"temperature": -1.0}, "`temperature` must be a finite number of at least 0"),
        ({"lr": -1.0}, "`lr` must be a finite number of at least 0"),
        ({"cycle_steps": 0}, "`cycle_steps` must be a whole number of at least 1"),
        ({"cycle_steps": 5, "sampling_fraction": 1.5}, "`sampling_fraction` must be above 0 and at most 1"),
        ({"sampling_fraction": 0.5}, "`sampling_fraction` needs `cycle_steps`"),
        ({"seed": -1}, "`seed` must be a whole number"),
    ],
)
def test_settings_that_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SGHMC([nn.Parameter(torch.zeros(1))], **{"num_data": N, **settings})


def test_parameters_that_are_refused() -> None:
    with pytest.raises(ValueError, match=r"float32 or float64, but got torch\.bfloat16"):
        SGHMC([nn.Parameter(torch.zeros(1, dtype=torch.bfloat16))], num_data=N)
    groups = [{"params": [nn.Parameter(torch.zeros(1))], "seed": 2}]
    with pytest.raises(ValueError, match="`seed` must be the same for all parameter groups, but got 2"):
        SGHMC(groups, num_data=N)
    with pytest.raises(RuntimeError, match="`step` needs a gradient"):
        SGHMC([nn.Parameter(torch.zeros(1))], num_data=N).step()


# --- sets of samples ---


def test_samples_are_kept_at_the_end_of_cycles_or_every_few_steps() -> None:
    weight = nn.Linear(1, 1, bias=False, device="meta").to_empty(device="cpu")
    for cycle, every, expected in ((5, None, [5, 10]), (5, 2, [3, 5, 8, 10]), (None, 3, [3, 6, 9])):
        fraction = 1.0 if cycle is None else 0.6
        optimizer = SGLD(weight.parameters(), cycle_steps=cycle, sampling_fraction=fraction, num_data=N)
        samples, found = SampleSet(weight), []
        assert not optimizer.has_sample(1)
        for step in range(1, 12):
            weight.weight.grad = torch.zeros(1, 1)
            optimizer.step()
            if samples.collect(optimizer, every=every):
                found.append(step)
        assert (found, len(samples)) == (expected, len(expected))
    with pytest.raises(ValueError, match="`every` must be given if the optimiser has no `cycle_steps`"):
        samples.collect(optimizer)


def small(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3)).double()


def three_samples() -> tuple[SampleSet, list[nn.Module]]:
    """A set, and the networks that its samples are copies of; they also differ in the statistics of BatchNorm."""
    network, members = small(), []
    samples = SampleSet(network)
    for seed in range(3):
        network.load_state_dict(small(seed + 1).state_dict())
        network(torch.randn(20, 4, generator=noise(seed), dtype=torch.float64) + seed)
        samples.add()
        members.append(copy.deepcopy(network).eval())
    network.load_state_dict(small(9).state_dict())
    return samples, members


def test_predictions_are_the_mixture_of_the_members() -> None:
    samples, members = three_samples()
    inputs = torch.randn(7, 4, generator=noise(), dtype=torch.float64)
    before = copy.deepcopy(samples.network.state_dict())
    with torch.no_grad():
        expected = torch.stack([each(inputs).log_softmax(-1) for each in members])
    assert torch.equal(samples.log_probs(inputs), expected)
    torch.testing.assert_close(samples.log_probs(inputs, batch_size=2), expected)
    torch.testing.assert_close(samples.mixture(inputs).exp(), expected.exp().mean(0))
    weights = torch.tensor([0.7, 0.3, 0.0], dtype=torch.float64)
    mixed = samples.mixture(inputs, weights=weights).exp()
    torch.testing.assert_close(mixed, (expected.exp() * weights[:, None, None]).sum(0))
    prediction = selbo.predict(samples, inputs, generator=noise())
    torch.testing.assert_close(prediction.probs, expected.exp().mean(0))
    assert all(torch.equal(value, before[name]) for name, value in samples.network.state_dict().items())
    assert samples.network.training


def test_belief_weights_are_weights_of_the_mixture() -> None:
    samples, _ = three_samples()
    inputs = torch.randn(30, 4, generator=noise(), dtype=torch.float64)
    summary = selbo.SummaryLikelihood(selbo.ClassRegions(3), selbo.Masses([0.6, 0.2, 0.2]), concentration=20.0)
    log_probs = samples.log_probs(inputs)
    found = selbo.belief_weights(log_probs, summary)
    torch.testing.assert_close(samples.mixture(inputs, weights=found.weights), found(log_probs))


def test_samples_are_copies_and_the_network_keeps_its_own_weights() -> None:
    network = small()
    samples = SampleSet(network)
    samples.add()
    with torch.no_grad():
        network[0].weight.zero_()
    assert samples[0]["0.weight"].abs().sum() > 0
    with pytest.raises(RuntimeError):
        samples.log_probs(torch.zeros(2, 5, dtype=torch.float64))
    assert network[0].weight.abs().sum() == 0


def test_shared_weights_are_stored_once() -> None:
    network = nn.Sequential(nn.Linear(3, 3, device="meta"), nn.Tanh(), nn.Linear(3, 3, device="meta")).to_empty(
        device="cpu"
    )
    network[2].weight = network[0].weight
    samples = SampleSet(network)
    with torch.no_grad():
        for each in network.parameters():
            each.copy_(torch.linspace(-1, 1, each.numel()).view(each.shape))
        samples.add()
        expected = network(torch.ones(2, 3)).log_softmax(-1)
        network[0].weight.zero_()
    assert set(samples[0]) == {"0.weight", "0.bias", "2.bias"}
    assert torch.equal(samples.log_probs(torch.ones(2, 3))[0], expected)


def test_a_file_holds_all_samples(tmp_path: Path) -> None:
    samples, _ = three_samples()
    inputs = torch.randn(7, 4, generator=noise(), dtype=torch.float64)
    path = samples.save(tmp_path / "samples.safetensors")
    other = SampleSet(small(4))
    other.add()
    other.load(path)
    assert len(other) == 3
    assert torch.equal(other.log_probs(inputs), samples.log_probs(inputs))
    with pytest.raises(ValueError, match="is not the network that was saved"):
        SampleSet(nn.Linear(4, 3, device="meta").to_empty(device="cpu")).load(path)
    with pytest.raises(ValueError, match="`state` must be the state of samples of the same network"):
        other.load_state_dict(small().state_dict())


def test_what_a_sample_set_refuses() -> None:
    samples, _ = three_samples()
    inputs = torch.zeros(2, 4, dtype=torch.float64)
    with pytest.raises(ValueError, match="the sample set is empty"):
        SampleSet(small()).mixture(inputs)
    with pytest.raises(ValueError, match=r"one weight per sample, \(3,\), but got shape \(2,\)"):
        samples.mixture(inputs, weights=torch.tensor([0.5, 0.5]))
    with pytest.raises(ValueError, match="`weights` must lie on the simplex"):
        samples.mixture(inputs, weights=torch.tensor([0.5, 0.5, 0.5]))
    with pytest.raises(ValueError, match="`network` must be deterministic"):
        SampleSet(selbo.to_bayesian(nn.Linear(2, 2, device="meta").to_empty(device="cpu")))


# --- full-batch HMC ---


def test_the_log_posterior_of_a_network_includes_the_summary() -> None:
    network, inputs, labels = toy()
    summary = selbo.SummaryLikelihood(selbo.ClassRegions(3), selbo.Masses([0.6, 0.2, 0.2]), concentration=20.0)
    objective = selbo.CrossEntropy(N, summary)
    function = network_log_posterior(network, lambda net: objective(net, inputs, labels).loss, **SETTINGS)
    other, *_ = toy(1)
    with torch.no_grad():
        found = function(values(other))
        log_probs = other(inputs).log_softmax(-1)
        prior = -0.5 * (values(other) / PRIOR_STD).square().sum()
        expected = log_probs[torch.arange(N), labels].sum() + summary(log_probs) + prior
    torch.testing.assert_close(found, expected)

    # the samplers move along its gradient
    start = values(network).requires_grad_()
    (gradient,) = torch.autograd.grad(function(start), start)
    optimizer = SGLD(network.parameters(), 0.1, temperature=0.0, **SETTINGS)
    objective(network, inputs, labels).loss.backward()
    optimizer.step()
    torch.testing.assert_close((values(network) - start.detach()) * N / 0.1, gradient)


def test_hmc_of_a_network_leaves_frozen_weights_and_the_network_alone() -> None:
    network, inputs, labels = toy()
    network[0].requires_grad_(False)
    before = values(network)
    function = network_log_posterior(network, lambda net: nn.functional.cross_entropy(net(inputs), labels), **SETTINGS)
    start = nn.utils.parameters_to_vector(network[2].parameters())
    runs = [
        hmc(function, start, num_samples=4, burn_in=2, step_size=0.05, leapfrog_steps=5, generator=noise(seed))
        for seed in (0, 0, 1)
    ]
    assert runs[0].samples.shape == (4, 21)
    assert torch.equal(runs[0].samples, runs[1].samples)
    assert not torch.equal(runs[0].samples, runs[2].samples)
    assert torch.equal(values(network), before)
    assert all(each.grad is None for each in network.parameters())
    with pytest.raises(ValueError, match=r"`vector` must have shape \(21,\), but got \(3,\)"):
        function(torch.zeros(3))


def test_hmc_rejects_trajectories_that_diverge() -> None:
    found = hmc(lambda x: -0.5 * x.square().sum(-1), torch.ones(3, 2), num_samples=5, step_size=1e30, generator=noise())
    assert found.acceptance_rate == 0
    assert torch.equal(found.samples, torch.ones(5, 3, 2))


@pytest.mark.parametrize(
    ("function", "initial", "message"),
    [
        (lambda x: x.sum(), torch.zeros(3, 2), r"one value per chain, shape \(3,\), but returned \(\)"),
        (lambda x: x.log().sum(-1), torch.zeros(2), "`log_posterior` must be finite at `initial`"),
        (lambda x: x, torch.tensor(0.0), r"`initial` must have shape \(..., P\)"),
        (lambda x: x.sum(-1), torch.zeros(2, dtype=torch.int64), "`initial` must be a floating-point tensor"),
    ],
)
def test_what_hmc_refuses(function: object, initial: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        hmc(function, initial, num_samples=1, step_size=0.1, generator=noise())


def test_a_network_without_trained_weights_has_no_log_posterior() -> None:
    with pytest.raises(ValueError, match="`network` must have at least one parameter"):
        network_log_posterior(nn.Identity(), lambda net: net(torch.zeros(())), num_data=1)
