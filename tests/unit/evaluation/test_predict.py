"""Predictions with their uncertainty: the mean over draws by a loop, entropies that add up, nothing left changed."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from selbo.evaluation.predict import Prediction, predict
from selbo.nn import to_bayesian
from selbo.nn.gaussian import draw_noise, gaussians
from selbo.objectives import ELBO, CrossEntropy, Evidential
from selbo.objectives.likelihoods import ACTIVATIONS
from selbo.objectives.predictive import mean_over_samples, predictive_log_probs

EXACT = {"rtol": 1e-11, "atol": 1e-12}
F64 = torch.float64
DRAWS = 6
FIELDS = ("probs", "log_probs", "entropy", "expected_entropy", "mutual_information")


def close(got, expected, **tolerance) -> None:
    torch.testing.assert_close(got, expected, **(tolerance or EXACT))


def plain_net(seed: int = 1, *, norm: bool = False) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        inner = [nn.Linear(4, 5), *([nn.BatchNorm1d(5)] if norm else []), nn.Tanh(), nn.Dropout(0.5), nn.Linear(5, 3)]
        return nn.Sequential(*inner).double()


def bayesian_net(**options) -> nn.Module:
    return to_bayesian(plain_net(**options), init_std=0.5)


def inputs(count: int = 11, seed: int = 3) -> Tensor:
    return torch.randn(count, 4, generator=torch.Generator().manual_seed(seed), dtype=F64)


def noise(seed: int = 5) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def assert_same(one: Prediction, other: Prediction, **tolerance) -> None:
    for name in FIELDS:
        close(getattr(one, name), getattr(other, name), **tolerance)


def loop(x: Tensor) -> Tensor:
    """Probabilities of each draw, from matrices and nothing else: (S, B, K)."""
    bnn = bayesian_net()
    parameters = gaussians(bnn)
    draws = []
    for row in draw_noise(parameters, DRAWS, noise()):
        weights = [
            each.mean + each.std * part.reshape(each.mean.shape)
            for each, part in zip(parameters, row.split([each.mean.numel() for each in parameters]), strict=True)
        ]
        w1, b1, w2, b2 = weights
        draws.append(torch.softmax(torch.tanh(x @ w1.T + b1) @ w2.T + b2, -1))
    return torch.stack(draws).detach()


# --- values ---


def test_the_mean_over_samples() -> None:
    """Eq. (2): the mean of the softmax, not the softmax of the mean; dropout is off."""
    probs = loop(inputs())
    prediction = predict(bayesian_net(), inputs(), DRAWS, generator=noise())
    close(prediction.probs, probs.mean(0))
    close(prediction.log_probs, probs.mean(0).log())
    close(prediction.entropy, -(probs.mean(0) * probs.mean(0).log()).sum(-1))
    close(prediction.expected_entropy, -(probs * probs.log()).sum(-1).mean(0))
    between = (probs * (probs / probs.mean(0)).log()).sum(-1).mean(0)  # mean KL of the draws from their mean
    close(prediction.mutual_information, between)
    assert torch.equal(prediction.classes, probs.mean(0).argmax(-1))
    assert len(prediction) == 11
    close(predictive_log_probs(bayesian_net(), inputs(), num_samples=DRAWS, generator=noise()), probs.mean(0).log())


def test_predictions_lie_on_the_simplex_and_entropies_add_up() -> None:
    prediction = predict(bayesian_net(), 5 * inputs(50), 32, generator=noise())
    close(prediction.probs.sum(-1), torch.ones(50, dtype=F64))
    assert (prediction.probs >= 0).all()
    assert (prediction.expected_entropy >= 0).all()
    assert (prediction.mutual_information >= 0).all()
    assert (prediction.mutual_information.mean() > 0.01).all()
    close(prediction.entropy, prediction.expected_entropy + prediction.mutual_information)


def test_a_mean_whose_logarithm_no_probability_can_hold() -> None:
    log_probs = torch.tensor([[[-2000.0, 0.0]], [[-2001.0, 0.0]]], dtype=F64)
    expected = -2000 + math.log((1 + math.exp(-1)) / 2)
    assert mean_over_samples(log_probs)[0, 0].item() == pytest.approx(expected, rel=1e-14)


def test_a_plain_network_has_no_doubt_about_its_weights() -> None:
    net = plain_net()
    prediction = predict(net, inputs(), generator=noise())
    close(prediction.probs, net.eval()(inputs()).softmax(-1).detach())
    assert (prediction.mutual_information == 0).all()
    assert torch.equal(prediction.entropy, prediction.expected_entropy)


def test_one_draw_has_no_doubt_about_its_weights() -> None:
    assert (predict(bayesian_net(), inputs(), 1, generator=noise()).mutual_information == 0).all()


def test_objectives_with_a_softmax_change_nothing() -> None:
    for objective in (ELBO(9), CrossEntropy(9)):
        one = predict(bayesian_net(), inputs(), DRAWS, generator=noise(), objective=objective)
        assert_same(one, predict(bayesian_net(), inputs(), DRAWS, generator=noise()))


# --- evidence ---


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_evidence_is_normalised(activation: str) -> None:
    net, objective = plain_net(), Evidential(9, activation=activation)
    prediction = predict(net, inputs(), objective=objective, generator=noise())
    logits = net.eval()(inputs()).detach()
    evidence = {"softplus": nn.functional.softplus, "relu": torch.relu, "exp": torch.exp}[activation](logits)
    close(prediction.probs, (evidence + 1) / (evidence + 1).sum(-1, keepdim=True))
    close(prediction.entropy, prediction.expected_entropy + prediction.mutual_information)
    assert (prediction.mutual_information > 0).all()


def test_expected_entropy_of_evidence_by_monte_carlo(seed: int) -> None:
    alpha = torch.tensor([[1.5, 3.0, 1.0], [9.0, 2.0, 5.5]], dtype=F64)
    prediction = predict(nn.Identity(), alpha - 1, objective=Evidential(9, activation="relu"), generator=noise())
    rng = np.random.default_rng(seed)
    probs = torch.from_numpy(np.stack([rng.dirichlet(row, size=20_000) for row in alpha.tolist()], 1))
    entropies = torch.special.entr(probs).sum(-1)
    score = (entropies.mean(0) - prediction.expected_entropy) / (entropies.std(0) / 20_000**0.5)
    assert score.abs().max() < 5


# --- the same draws for all inputs ---


@pytest.mark.parametrize("bayesian", [False, True])
def test_blocks_and_chunks_change_nothing(bayesian: bool) -> None:
    net = bayesian_net(norm=True) if bayesian else plain_net(norm=True)
    whole = predict(net, inputs(), DRAWS, generator=noise())
    for batch_size in (1, 4, 11, 1000):
        assert_same(predict(net, inputs(), DRAWS, generator=noise(), batch_size=batch_size), whole)
    for chunk_size in (1, 4, 100):
        assert_same(predict(net, inputs(), DRAWS, generator=noise(), batch_size=4, chunk_size=chunk_size), whole)
    by_block = predictive_log_probs(net, inputs(), num_samples=DRAWS, generator=noise(), batch_size=3)
    close(by_block, whole.log_probs)


def test_blocks_share_draws_without_a_generator_too() -> None:
    """The same input in every block has the same prediction."""
    same = inputs(1).expand(5, 4)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        probs = predict(bayesian_net(), same, 2, batch_size=2).probs
        other = predict(bayesian_net(), same, 2, batch_size=2).probs
    close(probs, probs[:1].expand(5, 3))
    assert (probs - other).abs().max() > 1e-3


class Pairs(Dataset):
    """Inputs with labels, one by one."""

    def __len__(self) -> int:
        return 11

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return inputs()[index], index % 3


@pytest.mark.parametrize(
    "make",
    [
        lambda: TensorDataset(inputs()),
        lambda: TensorDataset(inputs(), torch.arange(11)),
        Pairs,
        lambda: DataLoader(TensorDataset(inputs(), torch.arange(11)), batch_size=4, generator=torch.Generator()),
        lambda: DataLoader(list(inputs()), batch_size=4, generator=torch.Generator()),  # no labels
    ],
    ids=["inputs", "pairs", "one by one", "loader", "loader of inputs"],
)
def test_data_sets_and_loaders(make) -> None:
    whole = predict(bayesian_net(), inputs(), DRAWS, generator=noise())
    assert_same(predict(bayesian_net(), make(), DRAWS, generator=noise(), batch_size=4), whole)


# --- noise ---


def test_the_generator_decides() -> None:
    bnn, generator = bayesian_net(), noise()
    first = predict(bnn, inputs(), DRAWS, generator=generator, batch_size=4)
    second = predict(bnn, inputs(), DRAWS, generator=generator, batch_size=4)
    assert_same(first, predict(bnn, inputs(), DRAWS, generator=noise(), batch_size=4), rtol=0.0, atol=0.0)
    assert (first.probs - second.probs).abs().max() > 1e-3  # it has moved on
    twice = noise()
    draw_noise(gaussians(bnn), 2 * DRAWS, twice)
    assert torch.equal(generator.get_state(), twice.get_state())  # by one set of draws a call, not one a block


@pytest.mark.parametrize("source", [inputs(), TensorDataset(inputs())], ids=["tensor", "data set"])
def test_with_a_generator_the_global_state_is_left_alone(source) -> None:
    before = torch.get_rng_state()
    predict(bayesian_net(), source, DRAWS, generator=noise())
    assert torch.equal(before, torch.get_rng_state())


# --- what is left behind ---


@pytest.mark.parametrize("bayesian", [False, True])
def test_every_module_is_left_in_its_mode(bayesian: bool) -> None:
    net = bayesian_net(norm=True) if bayesian else plain_net(norm=True)
    net.train()
    norm = next(module for module in net.modules() if isinstance(module, nn.BatchNorm1d))
    norm.eval()  # frozen by hand
    before = [module.training for module in net.modules()]
    statistics = norm.running_mean.clone()
    seen = []
    handle = net.register_forward_pre_hook(lambda module, _: seen.append({each.training for each in module.modules()}))
    prediction = predict(net, inputs(), DRAWS, generator=noise())
    assert seen == [{False}]
    with pytest.raises(RuntimeError):
        predict(net, torch.ones(3, 9, dtype=F64), generator=noise())
    handle.remove()
    assert [module.training for module in net.modules()] == before
    assert torch.equal(norm.running_mean, statistics)
    assert not prediction.probs.requires_grad
    assert all(parameter.grad is None for parameter in net.parameters())


# --- precision ---


def test_half_precision_is_near_and_answers_in_single() -> None:
    net = bayesian_net().float()
    full = predict(net, inputs().float(), DRAWS, generator=noise())
    half = predict(net, inputs().float(), DRAWS, generator=noise(), precision="bf16")
    assert {getattr(half, name).dtype for name in FIELDS} == {torch.float32}
    assert 0 < (half.probs - full.probs).abs().max() < 0.03
    close(half.probs.sum(-1), torch.ones(11), rtol=1e-5, atol=1e-5)


def test_a_network_in_half_precision_answers_in_single() -> None:
    prediction = predict(bayesian_net().bfloat16(), inputs().bfloat16(), DRAWS, generator=noise())
    assert {getattr(prediction, name).dtype for name in FIELDS} == {torch.float32}
    close(prediction.probs.sum(-1), torch.ones(11), rtol=1e-5, atol=1e-5)


# --- what is refused ---


def test_no_inputs_are_refused() -> None:
    with pytest.raises(ValueError, match=r"`inputs` must be a batch of at least one, but got shape \(0, 4\)"):
        predict(bayesian_net(), inputs()[:0], generator=noise())
    with pytest.raises(ValueError, match=r"`inputs` must be a batch of at least one, but got shape \(\)"):
        predict(bayesian_net(), torch.tensor(1.0), generator=noise())
    with pytest.raises(ValueError, match=r"`inputs` must hold at least one input, but there are none"):
        predict(bayesian_net(), TensorDataset(inputs()[:0]), generator=noise())
    with pytest.raises(ValueError, match=r"`inputs` must be a batch of at least one, but got shape \(0, 4\)"):
        predictive_log_probs(bayesian_net(), inputs()[:0], num_samples=2, generator=noise())


def test_other_things_than_inputs_are_refused() -> None:
    with pytest.raises(ValueError, match=r"`inputs` must be a tensor, a Dataset or a DataLoader, but got list"):
        predict(bayesian_net(), [1.0], generator=noise())


@pytest.mark.parametrize("number", [0, -1, 2.5])
def test_bad_numbers_are_refused(number) -> None:
    for net in (plain_net(), bayesian_net()):
        with pytest.raises(ValueError, match=r"`num_samples` must be a whole number of at least 1, but got"):
            predict(net, inputs(), number, generator=noise())
    with pytest.raises(ValueError, match=r"`batch_size` must be a whole number of at least 1, but got"):
        predict(bayesian_net(), inputs(), generator=noise(), batch_size=number)
    with pytest.raises(ValueError, match=r"`chunk_size` must be a whole number of at least 1, but got"):
        predict(bayesian_net(), inputs(), generator=noise(), chunk_size=number)


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`precision` must be one of \['bf16', 'fp32'\], but got 'fp16'"):
        predict(bayesian_net(), inputs(), generator=noise(), precision="fp16")
