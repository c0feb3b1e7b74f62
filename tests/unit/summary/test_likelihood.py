"""The Dirichlet-process likelihood of a summary, and the module around it."""

import copy
import math

import mpmath
import pytest
import torch
from torch.distributions import Dirichlet, Multinomial
from unit.summary.cases import PARTITIONS, random_log_probs

import selbo
from selbo.summary import likelihood
from selbo.summary.likelihood import dirichlet_process_log_prob, multinomial_log_prob, nearest_masses

H = torch.tensor([0.3, 0.7], dtype=torch.float64)
S0 = torch.tensor([0.2, 0.8], dtype=torch.float64)


def random_simplex(*shape, seed=0, power=3):
    values = torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).pow(power) + 1e-9
    return values / values.sum(-1, keepdim=True)


def reference(histogram, s0, concentration):
    """Log-density of a Dirichlet distribution with fifty digits."""
    with mpmath.workdps(50):
        a = [mpmath.mpf(concentration) * mpmath.mpf(float(h)) for h in histogram]
        value = mpmath.loggamma(sum(a)) - sum(mpmath.loggamma(x) for x in a)
        return value + sum((x - 1) * mpmath.log(mpmath.mpf(float(s))) for x, s in zip(a, s0, strict=True))


class TestDirichletProcess:
    """Eq. (5), evaluated on a partition by Eq. (3)."""

    @pytest.mark.parametrize("regions", [2, 7, 21])
    @pytest.mark.parametrize("concentration", [1e-3, 0.7, 10.0, 1e3, 1e4, 1e6])
    def test_equation_5_by_equation_3(self, regions, concentration):
        for seed in range(5):
            histogram, s0 = random_simplex(regions, seed=seed), random_simplex(regions, seed=seed + 100)
            for target in (s0, histogram):  # far from s0, and where the large terms cancel
                value = dirichlet_process_log_prob(histogram, s0=target, concentration=concentration).item()
                expected = reference(histogram, target, concentration)
                assert abs(value - expected) < 1e-10 * max(1, abs(expected))

    def test_torch_agrees(self):
        histogram, s0 = random_simplex(4, 6), random_simplex(6, seed=9)
        expected = Dirichlet(50.0 * histogram).log_prob(s0)
        value = dirichlet_process_log_prob(histogram, s0=s0, concentration=50.0)
        torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-10)

    def test_two_regions_are_a_beta(self):
        expected = torch.distributions.Beta(8 * 0.3, 8 * 0.7).log_prob(torch.tensor(0.2))
        assert dirichlet_process_log_prob(H, s0=S0, concentration=8.0).item() == pytest.approx(
            expected.item(), rel=1e-5
        )

    def test_the_order_of_the_arguments_matters(self):
        """Dir(s0 | alpha h) is 0.9087; Dir(h | alpha s0) would be 0.5052."""
        assert dirichlet_process_log_prob(H, s0=S0, concentration=8.0).item() == pytest.approx(0.9087, abs=1e-4)
        assert dirichlet_process_log_prob(S0, s0=H, concentration=8.0).item() == pytest.approx(0.5052, abs=1e-4)

    def test_flat_when_all_parameters_are_one(self):
        """With R regions, alpha = R and a uniform histogram the Dirichlet is flat: (R - 1)! everywhere."""
        for seed in range(3):
            value = dirichlet_process_log_prob(
                torch.full((5,), 0.2, dtype=torch.float64), s0=random_simplex(5, seed=seed), concentration=5.0
            )
            assert value.item() == pytest.approx(math.log(24.0), rel=1e-12)

    def test_it_is_a_density_of_s0(self):
        """Over s0 = (x, 1 - x) it integrates to one."""
        x = (torch.arange(200000, dtype=torch.float64) + 0.5) / 200000
        density = [
            dirichlet_process_log_prob(H, s0=torch.stack([v, 1 - v]), concentration=12.0).exp()
            for v in x[:: 200000 // 2000]
        ]
        assert torch.stack(density).mean().item() == pytest.approx(1.0, rel=2e-3)

    def test_gradients(self):
        histogram = random_simplex(3, 5).requires_grad_()
        for concentration in (0.5, 20.0, 3000.0):
            assert torch.autograd.gradcheck(
                lambda h, c=concentration: dirichlet_process_log_prob(h, s0=S0_5, concentration=c), (histogram,)
            )

    def test_gradient_is_the_digamma_formula(self):
        """alpha (log s0 - digamma(alpha h) + digamma(alpha)), audit part C."""
        histogram = random_simplex(5).requires_grad_()
        dirichlet_process_log_prob(histogram, s0=S0_5, concentration=70.0).backward()
        digamma = [float(mpmath.digamma(70.0 * h)) for h in histogram.tolist()]
        expected = 70.0 * (S0_5.log() - torch.tensor(digamma, dtype=torch.float64) + float(mpmath.digamma(70.0)))
        torch.testing.assert_close(histogram.grad, expected, rtol=1e-10, atol=1e-8)

    @pytest.mark.parametrize("concentration", [1e-3, 1.0, 1e3, 1e6])
    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
    def test_extremes_are_finite(self, concentration, dtype):
        histograms = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5], [1e-7, 0.0, 1.0], [0.2, 0.3, 0.5]], dtype=dtype)
        for s0 in ([0.5, 0.3, 0.2], [1e-12, 1 - 2e-12, 1e-12], [1 - 1e-6, 1e-6 - 1e-12, 1e-12]):
            histogram = histograms.clone().requires_grad_()
            s0 = torch.tensor(s0, dtype=torch.float64)
            value = dirichlet_process_log_prob(histogram, s0=s0, concentration=concentration)
            assert value.dtype == torch.promote_types(dtype, torch.float32)
            assert value.isfinite().all()
            value.sum().backward()
            assert histogram.grad.isfinite().all()

    def test_an_empty_region_costs_what_the_floor_says(self):
        """69 nats, less the log-mass of the region: log Gamma(1e-30) is 69.08."""
        full = dirichlet_process_log_prob(
            torch.tensor([1.0 - 1e-12, 1e-12], dtype=torch.float64), s0=S0, concentration=1e-18
        )
        empty = dirichlet_process_log_prob(torch.tensor([1.0, 0.0], dtype=torch.float64), s0=S0, concentration=1e-18)
        assert (full - empty).item() == pytest.approx(0.0, abs=1e-6)  # at the floor already
        one_region = dirichlet_process_log_prob(torch.tensor([1.0, 0.0], dtype=torch.float64), s0=S0, concentration=1.0)
        assert one_region.item() == pytest.approx(-math.log(1e30) - math.log(0.8), abs=1e-6)

    def test_the_maximum_is_nearer_to_uniform_than_s0(self):
        """Audit part C: at concentration 100 the maximiser is about (alpha s0 + 1/2) / sum, not s0."""
        s0 = torch.tensor([0.01, 0.09, 0.9], dtype=torch.float64)
        logits = s0.log().clone().requires_grad_()
        optimizer = torch.optim.LBFGS([logits], max_iter=200, line_search_fn="strong_wolfe", tolerance_grad=1e-10)

        def closure():
            optimizer.zero_grad()
            loss = -dirichlet_process_log_prob(logits.softmax(-1), s0=s0, concentration=100.0)
            loss.backward()
            return loss

        optimizer.step(closure)
        best = logits.detach().softmax(-1)
        assert best[0] > s0[0] * 1.3
        torch.testing.assert_close(best, (100 * s0 + 0.5) / 101.5, rtol=0.02, atol=2e-4)

    @pytest.mark.parametrize("regions", [10, 100])
    def test_the_maximum_has_half_an_observation_more_in_each_region(self, regions):
        """With ten observations per region or more; there the gradient is the same in each region."""
        s0 = 1 / torch.arange(1.0, regions + 1, dtype=torch.float64)
        s0, alpha = s0 / s0.sum(), 30.0 * regions
        slopes = {}
        for half in (0.0, 0.5, 1.0):
            histogram = (s0 * (alpha - half * regions) + half) / alpha
            histogram.requires_grad_()
            dirichlet_process_log_prob(histogram, s0=s0, concentration=alpha).backward()
            slopes[half] = histogram.grad.std().item()
        assert slopes[0.5] < 0.1 * min(slopes[0.0], slopes[1.0])

    def test_large_concentration_is_a_reverse_kl(self):
        """Between two histograms the difference tends to alpha times the difference of KL(h | s0)."""
        a, b, s0 = (
            random_simplex(4, seed=1, power=1),
            random_simplex(4, seed=2, power=1),
            random_simplex(4, seed=3, power=1),
        )
        kl = lambda h: (h * (h / s0).log()).sum()  # noqa: E731
        difference = dirichlet_process_log_prob(a, s0=s0, concentration=1e6) - dirichlet_process_log_prob(
            b, s0=s0, concentration=1e6
        )
        assert (difference / 1e6).item() == pytest.approx((kl(b) - kl(a)).item(), rel=1e-4)

    def test_concentration_may_be_a_tensor(self):
        expected = dirichlet_process_log_prob(H, s0=S0, concentration=8.0)
        assert dirichlet_process_log_prob(H, s0=S0, concentration=torch.tensor(8.0)).item() == expected.item()


S0_5 = random_simplex(5, seed=42)


class TestMultinomial:
    def test_against_torch_up_to_its_constant(self):
        """Counts 20 s0 are whole numbers here, so torch's multinomial applies; its constant does not depend on h."""
        s0 = torch.tensor([0.1, 0.4, 0.5], dtype=torch.float64)
        values = []
        for seed in range(3):
            h = random_simplex(3, seed=seed)
            torch_value = Multinomial(20, probs=h).log_prob(20 * s0)
            values.append((multinomial_log_prob(h, s0=s0, concentration=20.0) - torch_value).item())
        assert values == pytest.approx([values[0]] * 3, rel=1e-9)

    def test_largest_exactly_at_s0(self):
        h = S0_5.clone().requires_grad_()
        multinomial_log_prob(h, s0=S0_5, concentration=9.0).backward()
        torch.testing.assert_close(h.grad, torch.full_like(S0_5, 9.0))  # constant along the simplex: stationary

    def test_empty_regions_are_finite(self):
        h = torch.tensor([1.0, 0.0]).requires_grad_()
        value = multinomial_log_prob(h, s0=S0, concentration=1e6)
        value.backward()
        assert value.isfinite()
        assert h.grad.isfinite().all()


class TestSummaryLikelihood:
    def test_is_the_density_of_the_histogram_of_the_batch(self):
        partition, belief = selbo.ScoreBins([0.2, 0.6]), selbo.Masses([0.2, 0.3, 0.5])
        summary = selbo.SummaryLikelihood(partition, belief, concentration=40.0)
        log_probs = random_log_probs(3, 17, 2)
        histogram = partition.memberships(log_probs).mean(-2)  # Eq. (20), normalised
        torch.testing.assert_close(summary.histogram(log_probs), histogram, rtol=1e-12, atol=0)
        expected = Dirichlet(40.0 * histogram).log_prob(torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64))
        torch.testing.assert_close(summary(log_probs), expected, rtol=1e-9, atol=1e-9)
        assert summary(log_probs).shape == (3,)
        assert summary(log_probs[0]).shape == ()

    def test_counts_are_sums_of_memberships(self):
        """Eq. (20), by a loop."""
        memberships = random_simplex(2, 5, 3)
        expected = torch.stack([sum(memberships[s, i] for i in range(5)) for s in range(2)])
        torch.testing.assert_close(likelihood.soft_counts(memberships), expected)

    def test_one_region_says_nothing(self):
        """With all mass in the only reachable regions the term cannot depend on where in them the scores are."""
        summary = selbo.SummaryLikelihood(selbo.ClassRegions(2, temperature=1e-4), selbo.Masses([0.5, 0.5]), 100.0)
        near, far = torch.tensor([[0.6, 0.4], [0.4, 0.6]]).log(), torch.tensor([[0.9, 0.1], [0.2, 0.8]]).log()
        torch.testing.assert_close(summary(near), summary(far))

    @pytest.mark.parametrize("form", ["dirichlet", "multinomial"])
    def test_gradient_reaches_every_prediction(self, form):
        summary = selbo.SummaryLikelihood(selbo.ScoreBins.equal(10), selbo.Uniform(), form=form)
        logits = 5 * torch.randn(64, 2, generator=torch.Generator().manual_seed(1))
        logits.requires_grad_()
        summary(logits.log_softmax(-1)).backward()
        assert logits.grad.isfinite().all()
        assert (logits.grad != 0).all()

    def test_result_types(self):
        summary = selbo.SummaryLikelihood(selbo.ScoreBins.equal(4), selbo.Uniform())
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            log_probs = random_log_probs(32, 2).to(dtype)
            expected = torch.promote_types(dtype, torch.float32)
            assert summary(log_probs).dtype == expected
            assert summary.histogram(log_probs).dtype == expected

    def test_half_precision_networks_keep_a_double_precision_summary(self):
        summary = selbo.SummaryLikelihood(selbo.ScoreBins.equal(4), selbo.Beta(5, 300)).half()
        assert summary.s0.dtype == torch.float64
        torch.testing.assert_close(summary.s0, selbo.Beta(5, 300).masses(selbo.ScoreBins.equal(4)), rtol=0, atol=0)

    def test_state_dict_and_deepcopy(self):
        def make(concentration):
            return selbo.SummaryLikelihood(selbo.ScoreBins.equal(4), selbo.Uniform(), concentration, ema_decay=0.5)

        first, second = make(10.0), make(99.0)
        first(random_log_probs(8, 2))
        second.load_state_dict(first.state_dict())
        log_probs = random_log_probs(8, 2, seed=5)
        assert torch.equal(copy.deepcopy(first)(log_probs), second(log_probs))

    def test_no_parameters_to_train(self):
        assert not list(selbo.SummaryLikelihood(selbo.ScoreBins.equal(4), selbo.Uniform()).parameters())

    def test_counts_can_be_summed_over_processes(self):
        """Two halves whose counts are added see the histogram of the whole, and its gradient."""
        partition, belief = selbo.ScoreBins.equal(5), selbo.Beta(2, 3)
        whole = selbo.SummaryLikelihood(partition, belief, 200.0)
        log_probs = random_log_probs(20, 2).requires_grad_()
        halves = log_probs[:13], log_probs[13:]
        other = likelihood.soft_counts(partition.memberships(halves[1]))
        half = selbo.SummaryLikelihood(partition, belief, 200.0, reductions=[lambda counts: counts + other])
        torch.testing.assert_close(half(halves[0]), whole(log_probs))
        expected = torch.autograd.grad(whole(log_probs), log_probs)[0]
        torch.testing.assert_close(torch.autograd.grad(half(halves[0]), log_probs)[0], expected)

    @pytest.mark.parametrize("form", ["dirichlet", "multinomial"])
    def test_a_subclass_may_normalise_and_compare_in_its_own_way(self, form):
        class Own(selbo.SummaryLikelihood):
            def normalise(self, counts):
                return super().normalise(counts + 1)

            def log_prob(self, histogram, s0):
                return super().log_prob(histogram, s0) + s0[0]

        arguments = {"partition": selbo.ScoreBins([0.3]), "belief": selbo.Masses([0.2, 0.8]), "concentration": 9.0}
        own, log_probs = Own(**arguments, form=form), random_log_probs(7, 2)
        counts = own.partition.memberships(log_probs).sum(0) + 1
        torch.testing.assert_close(own.histogram(log_probs), counts / 9)
        log_prob = {"dirichlet": dirichlet_process_log_prob, "multinomial": multinomial_log_prob}[form]
        torch.testing.assert_close(own(log_probs), log_prob(counts / 9, s0=own.s0, concentration=9.0) + 0.2)

    def test_printing_says_what_is_believed(self):
        text = repr(selbo.SummaryLikelihood(selbo.ScoreBins.equal(4), selbo.Beta(2, 3), ema_decay=0.9))
        for part in ("Beta(2, 3)", "concentration=1000", "ema_decay=0.9", "ScoreBins"):
            assert part in text


class TestMovingAverage:
    def make(self, **kwargs):
        return selbo.SummaryLikelihood(selbo.ScoreBins.equal(5), selbo.Beta(2, 2), concentration=300.0, **kwargs)

    @pytest.mark.parametrize("form", ["dirichlet", "multinomial"])
    def test_the_first_batch_is_its_own_average(self, form):
        plain, averaged = self.make(form=form), self.make(form=form, ema_decay=0.9)
        log_probs = random_log_probs(16, 2).requires_grad_()
        torch.testing.assert_close(averaged(log_probs), plain(log_probs))
        averaged = self.make(form=form, ema_decay=0.9)
        torch.testing.assert_close(
            torch.autograd.grad(averaged(log_probs), log_probs), torch.autograd.grad(plain(log_probs), log_probs)
        )

    def test_value_and_gradient_by_hand(self):
        """After batches h1, h2: the average is (.8 x .2 h1 + .2 h2) / .36, the gradient c(average) times that of h2."""
        plain, averaged = self.make(), self.make(ema_decay=0.8)
        first, second = random_log_probs(16, 2), random_log_probs(24, 2, seed=7).requires_grad_()
        averaged(first)
        value = averaged(second)
        h1, h2 = plain.histogram(first), plain.histogram(second)
        average = ((0.16 * h1 + 0.2 * h2) / 0.36).detach().requires_grad_()
        expected = dirichlet_process_log_prob(average, s0=plain.s0, concentration=300.0)
        torch.testing.assert_close(value, expected)
        coefficients = torch.autograd.grad(expected, average)[0]
        surrogate = torch.autograd.grad((coefficients * h2).sum(), second)[0]
        torch.testing.assert_close(torch.autograd.grad(value, second)[0], surrogate)

    def test_draws_keep_their_own_values(self):
        averaged = self.make(ema_decay=0.5)
        log_probs = random_log_probs(3, 16, 2)
        assert averaged(log_probs).shape == (3,)
        torch.testing.assert_close(averaged.average.histogram, self.make().histogram(log_probs).mean(0))

    def test_evaluation_neither_uses_nor_changes_it(self):
        averaged = self.make(ema_decay=0.5)
        averaged(random_log_probs(16, 2))
        before = averaged.average.histogram
        averaged.eval()
        log_probs = random_log_probs(16, 2, seed=3)
        torch.testing.assert_close(averaged(log_probs), self.make()(log_probs))
        assert torch.equal(averaged.average.histogram, before)


class TestMachinery:
    """vmap, autocast, fake tensors: no Python branch on values, nothing that would wait for a device."""

    @pytest.fixture(params=PARTITIONS.values(), ids=PARTITIONS.keys())
    def partition(self, request):
        return request.param()

    def test_vmap_over_draws(self, partition):
        summary = selbo.SummaryLikelihood(partition, selbo.Uniform(), 50.0)
        log_probs = random_log_probs(3, 12, partition.num_classes)
        torch.testing.assert_close(torch.func.vmap(summary)(log_probs), summary(log_probs))
        half = log_probs.to(torch.bfloat16)
        torch.testing.assert_close(torch.func.vmap(summary)(half), summary(half))
        gradients = torch.func.vmap(torch.func.grad(summary))(log_probs)
        looped = torch.stack([torch.func.grad(summary)(draw) for draw in log_probs])
        torch.testing.assert_close(gradients, looped)

    def test_autocast_changes_nothing(self, partition):
        summary = selbo.SummaryLikelihood(partition, selbo.Uniform(), 50.0)
        log_probs = random_log_probs(12, partition.num_classes).float()
        expected = summary(log_probs)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(summary(log_probs), expected)

    def test_the_training_path_never_looks_at_a_value(self, partition):
        """Fake tensors have shapes but no values: any Python decision on a value would raise."""
        from torch._subclasses.fake_tensor import FakeTensorMode

        summary = selbo.SummaryLikelihood(partition, selbo.Uniform(), 50.0, validate=False)
        with FakeTensorMode(allow_non_fake_inputs=True):
            log_probs = torch.empty(2, 12, partition.num_classes, requires_grad=True)
            value = summary(log_probs)
            value.sum().backward()
        assert value.shape == (2,)


class TestFirstBatch:
    """Values are looked at once, so that a mistake shows and training does not wait for the device."""

    @pytest.mark.parametrize(
        ("batch", "message"),
        [
            (torch.full((8, 2), math.nan), "must hold numbers, but got 16 NaN"),
            (torch.full((8, 2), 0.5), r"but got probabilities: pass `probs\.log\(\)`"),
            (torch.tensor([[2.0, -1.0]] * 8), r"if these are logits, pass `logits\.log_softmax\(-1\)`"),
            (torch.full((8, 2), -3.0), "must lie on the simplex"),
        ],
    )
    def test_what_is_no_log_probability_is_refused(self, batch, message):
        summary = selbo.SummaryLikelihood(selbo.ScoreBins.equal(5), selbo.expect(accuracy=0.9))
        for _ in range(2):  # until one was right
            with pytest.raises(ValueError, match=message):
                summary(batch)
        assert summary(torch.full((8, 2), 0.5).log()).isfinite()
        selbo.SummaryLikelihood(selbo.ScoreBins.equal(5), selbo.expect(accuracy=0.9), validate=False)(batch)

    def test_later_ones_are_not_looked_at_but_nan_stays_nan(self):
        summary = selbo.SummaryLikelihood(selbo.ScoreBins.equal(5), selbo.expect(accuracy=0.9))
        good, bad = torch.full((8, 2), 0.5).log(), torch.full((8, 2), math.nan)
        assert summary(good).isfinite()
        assert summary(bad).isnan()
        half = torch.where(torch.arange(8).unsqueeze(1) == 3, bad, good)
        assert summary(half).isnan()


class TestBadInput:
    @pytest.mark.parametrize(
        ("kwargs", "message"),
        [
            ({"concentration": 0.0}, "`concentration` must be a finite number greater than 0, but got 0.0"),
            ({"concentration": -3}, "`concentration` must be a finite number greater than 0, but got -3"),
            ({"concentration": math.inf}, "`concentration` must be a finite number greater than 0"),
            ({"form": "gaussian"}, r"`form` must be one of \['dirichlet', 'multinomial'\], but got 'gaussian'"),
            ({"ema_decay": 1.0}, "`ema_decay` must lie strictly between 0 and 1, but got 1.0"),
            ({"partition": [0.1, 0.9]}, "`partition` must be a partition such as selbo.ScoreBins, but got"),
            ({"belief": [0.5, 0.5]}, "`belief` must be a belief such as selbo.Beta or selbo.Masses, but got"),
            ({"belief": selbo.Masses([0.5, 0.5])}, "states 2 masses, but the partition has 4 regions"),
        ],
    )
    def test_construction(self, kwargs, message):
        arguments = {"partition": selbo.ScoreBins.equal(4), "belief": selbo.Uniform(), **kwargs}
        with pytest.raises(ValueError, match=message):
            selbo.SummaryLikelihood(**arguments)

    def test_values_on_demand(self):
        summary = selbo.SummaryLikelihood(selbo.ScoreBins.equal(4), selbo.Uniform(), validate=True)
        with pytest.raises(ValueError, match="NaN"):
            summary(torch.full((3, 2), math.nan))
        with pytest.raises(ValueError, match="`log_probs` must have 2 classes in its last dimension"):
            summary(torch.zeros(3, 5))

    def test_density_shapes_and_types(self):
        with pytest.raises(
            ValueError, match=r"`s0` must have one mass per region of `histogram`, but got shapes \(2,\) and \(3,\)"
        ):
            dirichlet_process_log_prob(torch.ones(3) / 3, s0=S0, concentration=1.0)
        with pytest.raises(ValueError, match="`histogram` must be a floating-point tensor"):
            dirichlet_process_log_prob(torch.ones(2, dtype=torch.long), s0=S0, concentration=1.0)
        with pytest.raises(ValueError, match="`concentration` must be a finite number greater than 0"):
            dirichlet_process_log_prob(H, s0=S0, concentration=0.0)

    def test_density_values_on_demand(self):
        def call(histogram, s0, concentration=2.0):
            return dirichlet_process_log_prob(histogram, s0=s0, concentration=concentration, validate=True)

        call(H, S0)
        with pytest.raises(
            ValueError, match="`histogram` must lie on the simplex: the masses differ from a sum of 1 by up to 1"
        ):
            call(2 * H, S0)
        with pytest.raises(
            ValueError, match=r"`histogram` must be at least 0 everywhere, but the smallest mass is -0\.5"
        ):
            call(torch.tensor([-0.5, 1.5]), S0)
        with pytest.raises(ValueError, match="`s0` must be positive everywhere, but the smallest mass is 0"):
            call(H, torch.tensor([0.0, 1.0]))
        with pytest.raises(ValueError, match="`histogram` must hold numbers, but got 2 NaN"):
            call(torch.tensor([math.nan, math.nan]), S0)
        with pytest.raises(ValueError, match=r"`concentration` must be a finite number greater than 0, but got -1\.0"):
            call(H, S0, torch.tensor(-1.0))


class TestUncertainMasses:
    """Masses that may be off by a stated amount."""

    @pytest.mark.parametrize("uncertainty", [0.01, 0.05, 0.3])
    @pytest.mark.parametrize("count", [2, 3, 10])
    def test_the_nearest_masses_lie_in_their_ranges(self, count: int, uncertainty: float) -> None:
        generator = torch.Generator().manual_seed(count)
        stated = torch.rand(count, generator=generator, dtype=torch.float64) + 0.05
        stated = stated / stated.sum()
        histograms = torch.rand(500, count, generator=generator, dtype=torch.float64) ** 3 + 1e-6
        histograms = histograms / histograms.sum(-1, keepdim=True)
        found = nearest_masses(histograms, stated, uncertainty)
        torch.testing.assert_close(found.sum(-1), torch.ones(500, dtype=torch.float64))
        assert ((found - stated).abs() <= uncertainty + 1e-12).all()
        assert (found >= 0.1 * stated - 1e-12).all()
        inside = ((histograms - stated).abs() <= uncertainty).all(-1) & (histograms >= 0.1 * stated).all(-1)
        torch.testing.assert_close(found[inside], histograms[inside])

    @pytest.mark.parametrize("form", ["dirichlet", "multinomial"])
    def test_there_is_no_pull_within_the_range_and_the_pull_of_its_edge_outside(self, form: str) -> None:
        partition = selbo.ClassRegions(2)
        uncertain = selbo.SummaryLikelihood(partition, selbo.Masses([0.5, 0.5], uncertainty=0.1), 300.0, form=form)
        edge = selbo.SummaryLikelihood(partition, selbo.Masses([0.6, 0.4]), 300.0, form=form)

        def pull(summary: selbo.SummaryLikelihood, share: float) -> float:
            logit = torch.tensor(math.log(share / (1 - share)), dtype=torch.float64, requires_grad=True)
            summary(torch.stack([logit, logit.new_zeros(())]).log_softmax(-1)[None]).backward()
            assert logit.grad is not None
            return logit.grad.item()

        exact = abs(pull(selbo.SummaryLikelihood(partition, selbo.Masses([0.5, 0.5]), 300.0, form=form), 0.58))
        for share in (0.42, 0.5, 0.58):
            assert abs(pull(uncertain, share)) < 0.01 * exact
        assert pull(uncertain, 0.75) == pytest.approx(pull(edge, 0.75))
        assert pull(uncertain, 0.75) < 0

    def test_what_is_no_uncertainty_is_refused(self) -> None:
        for wrong in (-0.1, 1.0):
            with pytest.raises(ValueError, match="uncertainty"):
                selbo.Masses([0.5, 0.5], uncertainty=wrong)
        assert repr(selbo.Masses([0.5, 0.5], uncertainty=0.05)) == "Masses([0.5, 0.5], uncertainty=0.05)"
