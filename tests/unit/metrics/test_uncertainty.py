"""Entropies against scipy, quadrature and mpmath, the identity that splits them, and the extremes."""

import math

import mpmath
import pytest
import torch
from scipy import integrate, stats

from selbo.metrics import (
    dirichlet_expected_entropy,
    dirichlet_mutual_information,
    entropy,
    expected_entropy,
    mutual_information,
)

ALL = [entropy, expected_entropy, mutual_information]


def draws(seed, *shape):
    generator = torch.Generator().manual_seed(seed)
    return (2 * torch.randn(*shape, generator=generator, dtype=torch.float64)).softmax(-1)


# --- entropies ---


def test_entropy_is_scipys(seed):
    probs = draws(seed, 2, 5, 3)
    expected = torch.from_numpy(stats.entropy(probs.numpy(), axis=-1))
    torch.testing.assert_close(entropy(probs), expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(entropy(log_probs=probs.log()), expected, rtol=1e-12, atol=0)


def test_the_split_is_that_of_the_kl_divergence(seed):
    """H(mean) = mean H + mean KL(draw, mean), with the KL divergences from scipy."""
    probs = draws(seed, 4, 6, 3)
    mean = probs.mean(0)
    kl = torch.from_numpy(stats.entropy(probs.numpy(), mean.expand_as(probs).numpy(), axis=-1)).mean(0)
    each = torch.from_numpy(stats.entropy(probs.numpy(), axis=-1)).mean(0)
    for given in ({"probs": probs}, {"log_probs": probs.log()}):
        torch.testing.assert_close(mutual_information(**given), kl, rtol=1e-10, atol=0)
        torch.testing.assert_close(expected_entropy(**given), each, rtol=1e-12, atol=0)
    torch.testing.assert_close(entropy(mean), each + kl, rtol=1e-12, atol=0)


def test_known_answers():
    certain = torch.tensor([1.0, 0.0, 0.0])
    assert entropy(certain) == 0
    assert str(entropy(certain).item()) == "0.0"
    assert str(entropy(log_probs=certain.log()).item()) == "0.0"
    assert entropy(torch.full((5,), 0.2)).item() == pytest.approx(math.log(5))
    disagree = torch.eye(3)[:, None]  # three draws, each certain of another class
    assert expected_entropy(disagree).item() == 0
    assert mutual_information(disagree).item() == pytest.approx(math.log(3))
    assert mutual_information(log_probs=disagree.log()).item() == pytest.approx(math.log(3))


def test_draws_that_agree_have_no_mutual_information(seed):
    probs = draws(seed, 1, 40, 7)
    for same in (probs, probs.expand(3, -1, -1), probs.float().expand(9, -1, -1)):
        for given in ({"probs": same}, {"log_probs": same.log()}):
            information = mutual_information(**given)
            assert (information >= 0).all()  # without the clamp rounding makes some negative
            assert (information < 1e-14).all() or same.dtype == torch.float32


def test_draws_and_examples_are_not_confused(seed):
    probs = draws(seed, 4, 6, 3)
    for metric in (expected_entropy, mutual_information):
        value = metric(probs)
        assert value.shape == (6,)
        torch.testing.assert_close(metric(probs[:, 2:3]), value[2:3])
        torch.testing.assert_close(metric(probs[[2, 0, 3, 1]]), value)
        torch.testing.assert_close(metric(torch.stack([probs, probs.flip(-2)])), torch.stack([value, value.flip(0)]))


@pytest.mark.parametrize("metric", ALL)
def test_log_probabilities_too_small_for_probabilities(metric):
    log_probs = torch.tensor([[[0.0, -800.0], [-math.inf, 0.0]], [[0.0, -math.inf], [0.0, -1e6]]])
    value = metric(log_probs=log_probs)
    assert value.isfinite().all()
    assert (value >= 0).all()


def test_the_entropy_of_a_tiny_probability_keeps_its_digits():
    log_probs = torch.tensor([math.log1p(-1e-40), math.log(1e-40)], dtype=torch.float64)
    assert entropy(log_probs=log_probs).item() == pytest.approx(1e-40 * 40 * math.log(10), rel=1e-12)


@pytest.mark.parametrize("metric", ALL)
def test_gradients(metric, seed):
    logits = draws(seed, 2, 3, 4).log().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: metric(x.softmax(-1)), logits)
    assert torch.autograd.gradcheck(lambda x: metric(log_probs=x.log_softmax(-1)), logits)


@pytest.mark.parametrize("metric", ALL)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_results_are_at_least_single_precision(metric, dtype, seed):
    probs = draws(seed, 2, 3, 4)
    value = metric(probs.to(dtype))
    assert value.dtype == torch.float32
    assert metric(probs).dtype == torch.float64
    rough = {torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 5e-2}[dtype]
    torch.testing.assert_close(value.double(), metric(probs), rtol=rough, atol=rough)


def test_empty_batches_pass_through():
    assert entropy(torch.zeros(0, 3)).shape == (0,)
    assert mutual_information(torch.zeros(2, 0, 3)).shape == (0,)


# --- Dirichlet ---


@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (0.3, 2.0), (5.0, 0.7), (40.0, 60.0)])
def test_expected_entropy_of_a_beta_is_an_integral(a, b):
    def integrand(x):
        return stats.beta.pdf(x, a, b) * stats.entropy([x, 1 - x])

    pieces = [(0, 1e-6), (1e-6, 1e-2), (1e-2, 0.5), (0.5, 0.99), (0.99, 1 - 1e-6), (1 - 1e-6, 1)]
    expected = sum(integrate.quad(integrand, *piece, epsabs=1e-13)[0] for piece in pieces)
    value = dirichlet_expected_entropy(torch.tensor([a, b], dtype=torch.float64)).item()
    assert value == pytest.approx(expected, rel=1e-7)


def test_expected_entropy_of_a_flat_dirichlet_is_a_harmonic_number():
    for k in (2, 3, 7):
        value = dirichlet_expected_entropy(torch.ones(k, dtype=torch.float64)).item()
        assert value == pytest.approx(sum(1 / i for i in range(2, k + 1)), rel=1e-12)


def test_expected_entropy_of_a_dirichlet_by_draws(seed):
    alpha = torch.tensor([[0.2, 1.5, 4.0], [3.0, 0.1, 0.4]], dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    gammas = torch._standard_gamma(alpha.expand(40_000, -1, -1), generator=generator)
    probs = gammas / gammas.sum(-1, keepdim=True)
    sample = entropy(probs)
    error = sample.std(0) / math.sqrt(len(sample))
    assert ((sample.mean(0) - dirichlet_expected_entropy(alpha)).abs() / error).max() < 5


@pytest.mark.parametrize("alpha", [(1e-8, 3e-8), (0.01, 5.0, 300.0), (1e6, 2e6), (1e-12, 1e3, 1.0, 1.0)])
def test_the_closed_forms_in_many_digits(alpha):
    with mpmath.workdps(60):
        a = [mpmath.mpf(v) for v in alpha]
        total = mpmath.fsum(a)
        expected = mpmath.digamma(total + 1) - mpmath.fsum(v / total * mpmath.digamma(v + 1) for v in a)
        information = -mpmath.fsum(v / total * mpmath.log(v / total) for v in a) - expected
    tensor = torch.tensor(alpha, dtype=torch.float64)
    assert dirichlet_expected_entropy(tensor).item() == pytest.approx(float(expected), rel=1e-10, abs=1e-14)
    assert dirichlet_mutual_information(tensor).item() == pytest.approx(float(information), rel=1e-8, abs=1e-13)


def test_the_limits_of_a_dirichlet():
    shape = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)
    sure, unsure = 1e9 * shape, 1e-9 * shape
    assert dirichlet_expected_entropy(sure).item() == pytest.approx(entropy(shape).item(), rel=1e-8)
    assert dirichlet_mutual_information(sure).item() == pytest.approx(0, abs=1e-8)
    assert dirichlet_expected_entropy(unsure).item() == pytest.approx(0, abs=1e-8)
    assert dirichlet_mutual_information(unsure).item() == pytest.approx(entropy(shape).item(), rel=1e-7)
    assert dirichlet_expected_entropy(torch.tensor([2.0, 3.0]).half()).dtype == torch.float32


# --- errors ---


@pytest.mark.parametrize("metric", ALL)
def test_exactly_one_representation_is_wanted(metric):
    probs = torch.full((2, 3, 2), 0.5)
    with pytest.raises(ValueError, match="one of `probs` and `log_probs` must be given, but got neither"):
        metric()
    with pytest.raises(ValueError, match="one of `probs` and `log_probs` must be given, but got both"):
        metric(probs, log_probs=probs.log())


@pytest.mark.parametrize("metric", ALL)
def test_values_are_checked_unless_told_not_to(metric):
    logits = torch.full((2, 3, 2), 0.7)
    with pytest.raises(ValueError, match="`probs` must lie on the simplex"):
        metric(logits)
    with pytest.raises(ValueError, match="`log_probs` must be logarithms of probabilities"):
        metric(log_probs=logits)
    with pytest.raises(ValueError, match="`probs` must hold numbers, but got 12 NaN"):
        metric(torch.full((2, 3, 2), math.nan))
    assert metric(logits, validate=False).isfinite().all()


def test_wrong_shapes_are_refused():
    with pytest.raises(
        ValueError, match=r"`probs` must have shape \(..., classes\), 2 or more classes, but got \(3, 1\)"
    ):
        entropy(torch.ones(3, 1))
    with pytest.raises(ValueError, match=r"`probs` must have shape \(..., classes\), 2 or more classes, but got \(\)"):
        entropy(torch.tensor(1.0))
    for metric in (expected_entropy, mutual_information):
        with pytest.raises(ValueError, match=r"`probs` must have shape \(..., samples, examples, classes\), 2 or more"):
            metric(torch.full((3, 2), 0.5))
        with pytest.raises(ValueError, match=r"`probs` must hold at least one sample, but got shape \(0, 3, 2\)"):
            metric(torch.zeros(0, 3, 2))
    with pytest.raises(
        ValueError, match=r"`alpha` must have shape \(..., classes\), 2 or more classes, but got \(1,\)"
    ):
        dirichlet_expected_entropy(torch.ones(1))


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("metric", [dirichlet_expected_entropy, dirichlet_mutual_information])
def test_bad_concentrations_are_refused(metric, bad):
    with pytest.raises(ValueError, match="`alpha` must be positive and finite everywhere"):
        metric(torch.tensor([1.0, bad]))
