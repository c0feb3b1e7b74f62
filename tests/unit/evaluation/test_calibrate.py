"""Temperature scaling: closed form, fine grid, recovery of a known temperature, invariance, prior, bounds."""

import math

import numpy as np
import pytest
import torch
from scipy import optimize, special, stats

from selbo.evaluation import calibrate
from selbo.evaluation.calibrate import PRIOR_STRENGTH, TEMPERATURE_BOUNDS, scale, temperature
from selbo.metrics import nll_from_log_probs


def sharpened(seed, batch, factor, num_classes=3):
    """Labels drawn from softmax(logits), and logits that are `factor` times too large."""
    rng = np.random.default_rng(seed)
    logits = 1.5 * rng.normal(size=(batch, num_classes)) + np.arange(num_classes)
    cumulative = special.softmax(logits, axis=-1).cumsum(-1)
    labels = (rng.random(batch)[:, None] > cumulative[:, :-1]).sum(-1)
    return torch.from_numpy(factor * logits), torch.from_numpy(labels)


def loss(logits, labels, t):
    """By numpy and scipy."""
    log_probs = special.log_softmax(logits.numpy() / t, axis=-1)
    return -log_probs[np.arange(len(labels)), labels.numpy()].mean()


def most_likely(*arguments, **options):
    """Without a prior."""
    return temperature(*arguments, prior_strength=0, **options)


# --- the fit ---


@pytest.mark.parametrize(("right", "wrong"), [(3, 1), (7, 2), (6, 5)])
@pytest.mark.parametrize("lead", [0.5, 4.0, 9.0])
def test_a_closed_form(right, wrong, lead):
    """With one lead in the logits everywhere, the scaled lead is the log-odds of being right."""
    logits = torch.tensor([[0.0, lead]], dtype=torch.float64).expand(right + wrong, 2)
    labels = torch.tensor([1] * right + [0] * wrong)
    assert most_likely(logits, labels) == pytest.approx(lead / math.log(right / wrong), rel=1e-10)


@pytest.mark.parametrize("factor", [0.3, 1.0, 4.0])
def test_a_fine_grid_finds_the_same(seed, factor):
    logits, labels = sharpened(seed, 150, factor)
    fitted = most_likely(logits, labels)
    grid = fitted * np.exp(np.linspace(-0.5, 0.5, 2001))
    losses = [loss(logits, labels, t) for t in grid]
    assert abs(math.log(grid[int(np.argmin(losses))] / fitted)) <= 0.0005 + 1e-9  # the middle, to the grid's step
    coarse = np.exp(np.linspace(math.log(0.01), math.log(100), 400))
    assert loss(logits, labels, fitted) <= min(loss(logits, labels, t) for t in coarse)


@pytest.mark.parametrize("factor", [0.25, 1.0, 5.0])
def test_a_known_temperature_is_recovered(seed, factor):
    """In units of its standard error: 1/T is a maximum likelihood estimate, with the Fisher information of the data."""
    logits, labels = sharpened(seed, 4000, factor)
    probs = (logits / factor).softmax(-1)
    variance = (probs * logits.square()).sum(-1) - (probs * logits).sum(-1).square()
    error = 1 / variance.sum().sqrt().item()
    assert abs(1 / most_likely(logits, labels) - 1 / factor) / error < 5


def test_logits_and_log_probabilities_give_the_same(seed):
    logits, labels = sharpened(seed, 200, 3.0, num_classes=4)
    expected = temperature(logits, labels)
    shift = torch.linspace(-300, 300, 200, dtype=torch.float64)[:, None]
    assert temperature(logits.log_softmax(-1), labels) == pytest.approx(expected, rel=1e-9)
    assert temperature(logits + shift, labels) == pytest.approx(expected, rel=1e-9)
    assert temperature(logits.numpy(), labels.numpy()) == expected
    torch.testing.assert_close(scale(logits, expected), scale(logits.log_softmax(-1), expected), rtol=1e-12, atol=1e-12)


def test_the_unit_of_the_logits_is_the_unit_of_the_temperature(seed):
    logits, labels = sharpened(seed, 200, 1.0)
    assert most_likely(7 * logits, labels) == pytest.approx(7 * most_likely(logits, labels), rel=1e-10)


def test_after_scaling_the_temperature_is_one(seed):
    logits, labels = sharpened(seed, 200, 4.0)
    scaled = scale(logits, most_likely(logits, labels))
    assert most_likely(scaled, labels) == pytest.approx(1, rel=1e-10)
    assert temperature(scaled, labels) == pytest.approx(1, rel=1e-10)  # where the prior is at its mode
    assert nll_from_log_probs(scaled, labels) < nll_from_log_probs(logits.log_softmax(-1), labels)


# --- where there is no best temperature ---


@pytest.mark.parametrize("strength", [0.0, 3.0])
def test_a_weight_is_a_number_of_rows(strength):
    logits = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(40) % 3
    counts = torch.arange(40) % 4
    repeated = temperature(
        logits.repeat_interleave(counts, 0), labels.repeat_interleave(counts), prior_strength=strength
    )
    per_row = strength * 40 / int(counts.sum())  # weights are divided by their mean
    assert temperature(logits, labels, weights=counts, prior_strength=per_row) == pytest.approx(repeated)


@pytest.mark.parametrize("weights", [[1.0], [1.0, -1.0], [0.0, 0.0], [1.0, math.nan]])
def test_weights_that_are_none_are_refused(weights):
    with pytest.raises(ValueError, match="`weights` must be 2 numbers of at least 0"):
        temperature(torch.zeros(2, 2), torch.tensor([0, 1]), weights=torch.tensor(weights))


def test_separable_data_stop_at_the_lower_bound():
    logits = torch.tensor([[2.0, 0.0, -1.0], [0.0, 0.5, 0.1], [0.0, 1.0, 3.0]])
    labels = torch.tensor([0, 1, 2])
    low, high = TEMPERATURE_BOUNDS
    assert most_likely(logits, labels) == low
    assert most_likely(1e3 * logits, labels) == low  # where the slope underflows at the lower bound
    assert most_likely(1e-6 * logits, labels) == low
    assert most_likely(logits, labels, bounds=(0.2, 3.0)) == 0.2
    assert most_likely(logits, labels.flip(0)) == high  # worse than guessing: the flatter the better
    assert most_likely(logits, labels.flip(0), bounds=(0.2, 3.0)) == 3.0


def test_an_optimum_outside_the_bounds_is_the_nearer_bound():
    logits = torch.tensor([[0.0, 4.0]]).expand(4, 2)
    labels = torch.tensor([1, 1, 1, 0])  # 4 / log 3 = 3.64
    assert most_likely(logits, labels, bounds=(0.5, 2.0)) == 2.0
    assert most_likely(logits, labels, bounds=(5.0, 9.0)) == 5.0


@pytest.mark.parametrize("row", [[0.3, 0.3, 0.3], [0.0, -math.inf, -math.inf], [1e6, 0.0, -1e6]])
def test_where_it_does_not_matter_it_is_one(row):
    log_probs = torch.tensor([row] * 5)
    labels = torch.zeros(5, dtype=torch.long)
    assert temperature(log_probs, labels) == most_likely(log_probs, labels) == 1.0
    for fit in (temperature, most_likely):
        assert fit(log_probs, labels, bounds=(2.0, 4.0)) == 2.0
        assert fit(log_probs, labels, bounds=(0.2, 0.4)) == 0.4


def test_impossible_classes_are_left_out(seed):
    logits, labels = sharpened(seed, 100, 3.0, num_classes=3)
    padded = torch.cat([logits, torch.full((100, 1), -math.inf, dtype=torch.float64)], 1)
    assert temperature(padded, labels) == pytest.approx(temperature(logits, labels), rel=1e-12)


# --- the prior ---


@pytest.mark.parametrize("strength", [0.3, PRIOR_STRENGTH, 100.0])
@pytest.mark.parametrize("factor", [0.3, 1.0, 4.0])
def test_the_posterior_is_at_its_mode(seed, factor, strength):
    """Against a minimiser of scipy, with the gamma distribution of scipy for 1/T."""
    logits, labels = sharpened(seed, 30, factor)

    def objective(log_t):
        prior = stats.gamma(1 + strength, scale=1 / strength).logpdf(math.exp(-log_t))
        return 30 * loss(logits, labels, math.exp(log_t)) - prior

    found = optimize.minimize_scalar(objective, bracket=(-1, 1), options={"xtol": 1e-9})
    assert math.log(temperature(logits, labels, prior_strength=strength)) == pytest.approx(found.x, abs=1e-6)


@pytest.mark.parametrize("size", [5, 20, 100, 1000])
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e3])
def test_separable_and_hopeless_data_have_a_temperature_too(size, unit):
    """All right: a little below 1, never at a bound. All wrong: above 1, as far as the labels say."""
    logits = unit * torch.tensor([[3.0, 0.0, -1.0]]).expand(size, 3)
    right, wrong = torch.zeros(size).long(), torch.full((size,), 2)
    assert 0.3 < temperature(logits, right) <= 1
    worse = temperature(logits, wrong)
    assert 1 < worse < math.inf
    assert loss(logits.double(), wrong, worse) < loss(logits.double(), wrong, 1.0)
    assert most_likely(logits, right) in (TEMPERATURE_BOUNDS[0], 1.0)
    assert most_likely(logits, wrong) == TEMPERATURE_BOUNDS[1]


def test_few_labels_do_little_harm(seed):
    """In expectation, over validation sets of 10 labels that are mostly all right; without the prior: disaster."""
    rng = np.random.default_rng(seed)
    margin = 2 * np.abs(3 * rng.normal(size=(200, 10)))
    logits = torch.from_numpy(np.stack([margin, np.zeros_like(margin)], -1))
    labels = torch.from_numpy((rng.random((200, 10)) > 0.95).astype(np.int64))
    test = 2 * np.abs(3 * rng.normal(size=4000))

    def expected(t):
        return 0.95 * np.logaddexp(0, -test / t).mean() + 0.05 * np.logaddexp(0, test / t).mean()

    robust, alone = (
        np.mean([expected(fit(each, those)) for each, those in zip(logits, labels, strict=True)])
        for fit in (temperature, most_likely)
    )
    assert robust < expected(1.0) + 0.05
    assert alone > expected(1.0) + 5


@pytest.mark.parametrize("factor", [0.5, 1.0, 4.0])
def test_the_prior_vanishes_with_many_labels(seed, factor):
    """As one over their number; from a thousand on, the NLL is the same to three digits."""
    gaps = []
    for size in (1000, 2000, 8000):
        logits, labels = sharpened(seed, 8000, factor)
        logits, labels = logits[:size], labels[:size]
        robust, alone = temperature(logits, labels), most_likely(logits, labels)
        gaps.append(abs(math.log(robust / alone)))
        assert gaps[-1] < 40 / size
        assert 0 <= loss(logits, labels, robust) - loss(logits, labels, alone) < 5e-4
    assert gaps[2] < max(gaps[0], 1e-3)


def test_a_stronger_prior_stays_nearer_to_one(seed):
    logits, labels = sharpened(seed, 40, 4.0)
    fitted = [temperature(logits, labels, prior_strength=strength) for strength in (0.0, 1.0, 10.0, 1e3, 1e9)]
    assert fitted == sorted(fitted, reverse=True)
    assert fitted[-1] == pytest.approx(1, abs=1e-6)
    assert temperature(logits, labels, bounds=(0.2, 1.5)) == 1.5  # bounds hold with a prior, too
    assert temperature(logits, labels, bounds=(50.0, 60.0)) == 50.0


# --- scale ---


def test_scale_is_the_softmax_of_divided_logits(seed):
    logits, _ = sharpened(seed, 12, 1.0)
    for t in (0.02, 1.0, 3.7, 80.0):
        expected = torch.from_numpy(special.log_softmax(logits.numpy() / t, axis=-1))
        torch.testing.assert_close(scale(logits, t), expected, rtol=1e-12, atol=1e-12)
        assert torch.equal(scale(logits, t).argmax(-1), logits.argmax(-1))
    assert torch.equal(scale(logits.numpy(), 2.0), scale(logits, 2.0))
    assert torch.equal(scale(logits.reshape(3, 4, 3), 2.0), scale(logits, 2.0).reshape(3, 4, 3))


def test_scale_keeps_zeros_precision_and_gradients():
    log_probs = torch.tensor([0.5, 0.5, 0.0]).log()
    assert torch.equal(scale(log_probs, 3.0).exp(), torch.tensor([0.5, 0.5, 0.0]))
    assert scale(log_probs.half(), 3.0).dtype == torch.float32
    assert scale(log_probs.double(), 3.0).dtype == torch.float64
    logits = torch.tensor([[0.3, -1.0, 2.0]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: scale(x, 2.5), logits)


# --- errors ---


@pytest.mark.parametrize(
    ("log_probs", "labels", "message"),
    [
        (torch.tensor([[0.0, math.nan]]), torch.tensor([0]), "`log_probs` must be numbers below infinity"),
        (torch.tensor([[0.0, math.inf]]), torch.tensor([0]), "`log_probs` must be numbers below infinity"),
        (
            torch.tensor([[0.0, -math.inf]]),
            torch.tensor([1]),
            "must give every label some probability, but 1 have none",
        ),
        (torch.zeros(3), torch.tensor([0]), r"`log_probs` must have shape \(examples, classes\)"),
        (torch.zeros(0, 2), torch.zeros(0).long(), "`log_probs` must hold at least one example"),
        (torch.zeros(1, 2), torch.tensor([2]), "`labels` must lie between 0 and 1"),
        (torch.zeros(1, 2), torch.tensor([0, 1]), r"`labels` must have one class per example, shape \(1,\)"),
    ],
)
def test_bad_input_is_refused(log_probs, labels, message):
    with pytest.raises(ValueError, match=message):
        temperature(log_probs, labels)


def test_bad_options_are_refused():
    assert calibrate.temperature is temperature
    for t in (0.0, -1.0, math.inf, math.nan, "hot"):
        with pytest.raises(ValueError, match="`temperature` must be"):
            scale(torch.zeros(2), t)
    for strength in (-1.0, math.inf, math.nan, "weak"):
        with pytest.raises(ValueError, match="`prior_strength` must be"):
            temperature(torch.zeros(1, 2), torch.tensor([0]), prior_strength=strength)
    for bounds, message in [((2.0, 1.0), "increasing"), ((1.0, 1.0), "increasing"), ((0.0, 1.0), "greater than 0")]:
        with pytest.raises(ValueError, match=f"`bounds` must be .*{message}"):
            temperature(torch.zeros(1, 2), torch.tensor([0]), bounds=bounds)
    with pytest.raises(ValueError, match=r"`log_probs` must have shape \(..., classes\), 2 or more classes"):
        scale(torch.zeros(3, 1), 2.0)
    with pytest.raises(ValueError, match="`log_probs` must be a floating-point tensor"):
        scale(torch.zeros(3, 2, dtype=torch.long), 2.0)


class TestBiasCorrection:
    """A temperature and an offset for each class."""

    def data(self, count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(0)
        true = torch.randn(count, 3, generator=generator, dtype=torch.float64).mul(2).log_softmax(-1)
        labels = torch.multinomial(true.exp(), 1, generator=generator).squeeze(1)
        spoilt = ((true - torch.tensor([0.7, -0.2, -0.5]).double()) * 2).log_softmax(-1)
        return true, spoilt, labels

    def test_what_was_spoilt_is_found_with_many_labels(self) -> None:
        true, spoilt, labels = self.data(20000)
        found = calibrate.bias_corrected_temperature(spoilt, labels)
        assert found.temperature == pytest.approx(2.0, rel=0.05)
        assert found.biases == pytest.approx((0.7, -0.2, -0.5), abs=0.06)
        assert sum(found.biases) == pytest.approx(0.0, abs=1e-9)
        assert (found.scale(spoilt).exp() - true.exp()).abs().max() < 0.05

    def test_corrected_predictions_have_the_fractions_of_the_labels(self) -> None:
        _, spoilt, labels = self.data(2000)
        found = calibrate.bias_corrected_temperature(spoilt, labels, prior_strength=1e-6)
        fractions = torch.bincount(labels, minlength=3) / len(labels)
        torch.testing.assert_close(found.scale(spoilt).exp().mean(0), fractions.double(), atol=1e-5, rtol=0)

    def test_few_labels_move_little_and_never_to_infinity(self) -> None:
        sure = torch.tensor([[0.99, 0.01]]).log()
        found = calibrate.bias_corrected_temperature(sure.expand(3, 2), torch.zeros(3, dtype=torch.long))
        assert 0.8 < found.temperature < 1.2
        assert max(map(abs, found.biases)) < 0.1
        all_one = calibrate.bias_corrected_temperature(sure.expand(3, 2), torch.ones(3, dtype=torch.long))
        assert all(map(math.isfinite, (all_one.temperature, *all_one.biases)))
        assert all_one.biases[1] > 0

    def test_what_does_not_fit_is_told(self) -> None:
        with pytest.raises(ValueError, match="finite"):
            calibrate.bias_corrected_temperature(torch.tensor([[0.0, -torch.inf]]), torch.tensor([0]))
        with pytest.raises(ValueError, match="prior_strength"):
            calibrate.bias_corrected_temperature(torch.zeros(1, 2), torch.tensor([0]), prior_strength=0.0)
