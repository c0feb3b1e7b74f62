"""Counts of a group: the Poisson-binomial distribution, exact and Gaussian, with uncertain fractions."""

import itertools
import math

import pytest
import torch
from scipy import stats

from selbo.summary.counts import UNDERFLOW, exact_count_log_prob, gaussian_count_log_prob, poisson_binomial

F64 = torch.float64


def probabilities(*shape, seed=0, scale=2.0):
    generator = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(shape, generator=generator, dtype=F64)).softmax(-1)


def enumerated(p):
    """Probability of every vector of counts of n members with their own probabilities, (n, K), by trying all labels."""
    found: dict[tuple[int, ...], float] = {}
    for labels in itertools.product(range(p.shape[1]), repeat=len(p)):
        counts = tuple(labels.count(k) for k in range(p.shape[1]))
        found[counts] = found.get(counts, 0.0) + math.prod(p[i, k].item() for i, k in enumerate(labels))
    return found


class TestPoissonBinomial:
    @pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 11])
    def test_it_is_that_of_all_labels_tried(self, count):
        p = probabilities(count, 2, seed=count)
        expected = enumerated(p)
        pmf = poisson_binomial(p)
        assert pmf.shape == (count + 1,)
        for successes in range(count + 1):
            assert pmf[successes].item() == pytest.approx(expected[count - successes, successes], rel=1e-12)

    def test_equal_trials_are_a_binomial_distribution_far_into_its_tails(self):
        p = torch.tensor([1 - 1e-5, 1e-5], dtype=F64).expand(50, 2)
        expected = torch.tensor(stats.binom.logpmf(range(51), 50, 1e-5))
        torch.testing.assert_close(poisson_binomial(p).log(), expected, rtol=1e-11, atol=0)
        assert expected[-1] < -575

    def test_places_without_a_trial_change_nothing(self):
        p = probabilities(5, 2, seed=3)
        empty = torch.tensor([1.0, 0.0], dtype=F64).expand(4, 2)
        mixed = torch.cat([p[:2], empty, p[2:]])
        torch.testing.assert_close(poisson_binomial(mixed)[:6], poisson_binomial(p), rtol=1e-13, atol=0)
        assert not poisson_binomial(mixed)[6:].any()

    def test_gradients(self):
        logits = torch.randn(2, 5, 2, generator=torch.Generator().manual_seed(0), dtype=F64, requires_grad=True)
        assert torch.autograd.gradcheck(lambda x: poisson_binomial(x.softmax(-1)), logits)


def exact(p, fraction, concentration):
    numbers = [torch.tensor(float(each), dtype=F64) for each in (fraction, concentration, len(p))]
    return exact_count_log_prob(
        poisson_binomial(p), fraction=numbers[0], concentration=numbers[1], size=numbers[2]
    ).item()


class TestExact:
    @pytest.mark.parametrize("successes", range(7))
    def test_a_certain_fraction_is_one_count(self, successes):
        p = probabilities(6, 2, seed=8)
        expected = math.log(enumerated(p)[6 - successes, successes])
        assert exact(p, successes / 6, 1e9) == pytest.approx(expected, rel=1e-9)

    def test_a_group_of_one_is_a_label(self):
        p = torch.tensor([[0.3, 0.7]], dtype=F64)
        assert exact(p, 1.0, 1e6) == pytest.approx(math.log(0.7), rel=1e-12)
        assert exact(p, 0.0, 1e6) == pytest.approx(math.log(0.3), rel=1e-12)
        assert exact(p, 0.5, 1e6) == pytest.approx(math.log(0.5), rel=1e-12)  # nothing is said about one person

    def test_an_uncertain_fraction_is_a_sum_over_counts(self):
        """Weights by hand: a sample of 12 people in which a quarter belongs to class 1."""
        p, n = probabilities(7, 2, seed=2), 7
        weights = [stats.binom.pmf(3, 12, c / n) for c in range(n + 1)]
        pmf = enumerated(p)
        expected = sum(w * pmf[n - c, c] for c, w in enumerate(weights)) / sum(weights)
        assert exact(p, 0.25, 12.0) == pytest.approx(math.log(expected), rel=1e-12)

    def test_what_underflows_is_finite(self):
        p = torch.tensor([[1.0, 1e-30]] * 16, dtype=F64)
        assert exact(p, 1.0, 1e9) == pytest.approx(math.log(UNDERFLOW))

    def test_derivatives_of_improbable_counts(self):
        """log p^2 = 2 log p, whose derivative by log p is 2, and the second one 0."""
        size, certain = torch.tensor(2.0, dtype=F64), torch.tensor(1e9, dtype=F64)

        def value(log_p):
            trial = torch.stack([-torch.expm1(log_p), log_p.exp()])
            pmf = poisson_binomial(torch.stack([trial, trial]))
            return exact_count_log_prob(pmf, fraction=torch.tensor(1.0, dtype=F64), concentration=certain, size=size)

        for log_p in torch.tensor([-1.0, -100.0, -300.0], dtype=F64):
            torch.testing.assert_close(value(log_p), 2 * log_p)
            torch.testing.assert_close(torch.func.grad(value)(log_p), torch.tensor(2.0, dtype=F64))
            second = torch.autograd.functional.hessian(value, log_p)
            torch.testing.assert_close(second, torch.tensor(0.0, dtype=F64), rtol=0, atol=1e-9)

    def test_larger_tables_change_nothing(self):
        p = probabilities(3, 2, seed=1)
        pmf = poisson_binomial(p)
        padded = torch.cat([pmf, torch.zeros(4, dtype=F64)])
        numbers = {"fraction": torch.tensor(0.4, dtype=F64), "concentration": torch.tensor(5.0, dtype=F64)}
        numbers["size"] = torch.tensor(3.0, dtype=F64)
        torch.testing.assert_close(
            exact_count_log_prob(padded, **numbers), exact_count_log_prob(pmf, **numbers), rtol=1e-13, atol=0
        )


def gaussian(p, fractions, concentration=1e9, total=None):
    spread = torch.diag_embed(p) - p.unsqueeze(-1) * p.unsqueeze(-2)
    size = torch.tensor(float(len(p)), dtype=F64)
    return gaussian_count_log_prob(
        p.sum(0),
        spread.sum(0),
        fractions=torch.as_tensor(fractions, dtype=F64),
        concentration=torch.tensor(float(concentration), dtype=F64),
        size=size,
        total=size if total is None else torch.tensor(float(total), dtype=F64),
    ).item()


class TestGaussian:
    def test_two_classes_are_a_normal_density(self):
        p, n = probabilities(30, 2, seed=4, scale=1.0), 30
        alpha, total, f = 40.0, 100, 0.3
        variance = (p[:, 0] * p[:, 1]).sum().item() + 1 / 12
        variance += n**2 * f * (1 - f) / (alpha + 1)  # of a Beta distribution
        variance += n * f * (1 - f) * (total - n) / (total - 1)  # of a hypergeometric distribution
        expected = stats.norm.logpdf(n * f, p[:, 1].sum().item(), math.sqrt(variance))
        assert gaussian(p, [1 - f, f], alpha, total) == pytest.approx(expected, rel=1e-9)

    def test_a_part_of_a_group_has_a_hypergeometric_variance(self):
        """Certain predictions: what is left is the part, 10 of 25 members with 40 % in class 1, and rounding."""
        p = torch.tensor([[1.0, 0.0]] * 6 + [[0.0, 1.0]] * 4, dtype=F64)
        variance = stats.hypergeom(25, 10, 10).var() + 1 / 12
        expected = stats.norm.logpdf(4, 4, math.sqrt(variance))
        assert gaussian(p, [0.6, 0.4], 1e12, 25) == pytest.approx(expected, rel=1e-9)

    @pytest.mark.parametrize("classes", [3, 4])
    def test_several_classes_are_the_density_of_all_counts_but_one(self, classes):
        p = probabilities(20, classes, seed=5)
        f = probabilities(classes, seed=6, scale=0.5)
        alpha, n = 30.0, 20
        spread = (torch.diag_embed(p) - p.unsqueeze(-1) * p.unsqueeze(-2)).sum(0)
        spread = spread + n**2 / (alpha + 1) * (torch.diag(f) - torch.outer(f, f))
        centred = torch.eye(classes, dtype=F64) - 1 / classes
        spread = (spread + centred * classes / (classes - 1) / 12).numpy()
        for left_out in range(classes):
            kept = [k for k in range(classes) if k != left_out]
            normal = stats.multivariate_normal(p.sum(0)[kept].numpy(), spread[kept][:, kept])
            assert gaussian(p, f, alpha) == pytest.approx(normal.logpdf(n * f[kept].numpy()), rel=1e-9)

    def test_several_classes_are_close_to_all_labels_tried(self):
        p = probabilities(9, 3, seed=7, scale=0.5)
        found = enumerated(p)
        likely = [(counts, mass) for counts, mass in found.items() if mass > 0.02]
        assert len(likely) > 10
        for counts, mass in likely:
            value = gaussian(p, torch.tensor(counts, dtype=F64) / 9)
            assert value == pytest.approx(math.log(mass), abs=0.25)

    def test_two_classes_are_close_to_the_exact_value(self):
        p = probabilities(16, 2, seed=9, scale=1.0)
        likely = p[:, 1].sum().item()
        for count in range(round(likely) - 3, round(likely) + 4):
            for alpha in (1e9, 60.0):
                f = count / 16
                assert gaussian(p, [1 - f, f], alpha) == pytest.approx(exact(p, f, alpha), abs=0.15)

    def test_certain_and_correct_predictions_are_best_and_finite(self):
        certain = torch.tensor([[1.0, 0.0, 0.0]] * 3 + [[0.0, 0.0, 1.0]] * 2, dtype=F64)
        f = [0.6, 0.0, 0.4]
        unsure = torch.tensor([f] * 5, dtype=F64).clamp(min=1e-6)
        assert math.isfinite(gaussian(certain, f))
        assert gaussian(certain, f) > gaussian(unsure, f)

    def test_gradients(self):
        logits = torch.randn(6, 3, generator=torch.Generator().manual_seed(1), dtype=F64, requires_grad=True)

        def value(x):
            p = x.softmax(-1)
            spread = torch.diag_embed(p) - p.unsqueeze(-1) * p.unsqueeze(-2)
            numbers = [torch.tensor(each, dtype=F64) for each in (20.0, 6.0, 9.0)]
            return gaussian_count_log_prob(
                p.sum(0),
                spread.sum(0),
                fractions=torch.tensor([0.2, 0.5, 0.3], dtype=F64),
                concentration=numbers[0],
                size=numbers[1],
                total=numbers[2],
            )

        assert torch.autograd.gradcheck(value, logits)
