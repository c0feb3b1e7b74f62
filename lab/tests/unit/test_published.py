"""Quirks of the authors' code, against independent formulas and against numbers of the code that had them inside."""

from __future__ import annotations

import itertools
import json
import math

import mpmath
import pytest
import torch
from scipy import stats
from sklearn import metrics as sk
from torch import Tensor, nn
from torch.distributions import Beta, Dirichlet
from torch.nn import functional as F
from unit.objectives.cases import BATCH, F64, NUM_DATA, inputs, noise, plain_net
from unit.objectives.test_references import Free, close, free_logits

import selbo
from selbo.metrics import auroc
from selbo.nn import gaussians
from selbo.objectives import CrossEntropy, Objective
from selbo.posteriors import kl_divergence
from selbo.training import checkpoint
from selbo_lab.published import (
    HISTOGRAM_FLOOR,
    PSEUDO_COUNT,
    ClosedScoreBins,
    IndependentSummary,
    PublishedSummary,
    auroc_of_both_columns,
    best_f1,
    published_kl,
    with_published_kl,
    with_slope,
)


def binary(*scores: float) -> Tensor:
    score = torch.tensor(scores, dtype=torch.float64)
    return torch.stack([torch.log1p(-score), score.log()], -1)


def random_log_probs(*shape, seed=0, scale=2.0):
    generator = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(shape, generator=generator, dtype=torch.float64)).log_softmax(-1)


class TestClosedScoreBins:
    """Eq. (19): a pair of sigmoids a bin with one slope of 500, the outer edges being 0 and 1."""

    @staticmethod
    def reference(score, bounds, slope=500.0):
        with mpmath.workdps(30):
            sigmoid = lambda x: 1 / (1 + mpmath.exp(-x))  # noqa: E731
            widths = [b - a for a, b in itertools.pairwise(bounds)]
            centres = [a + w / 2 for a, w in zip(bounds, widths, strict=False)]
            return [
                float(sigmoid(slope * (score - c + w / 2)) - sigmoid(slope * (score - c - w / 2)))
                for c, w in zip(centres, widths, strict=True)
            ]

    @pytest.mark.parametrize("edges", [[i / 10 for i in range(1, 10)], [0.01, 0.05, 0.10, 0.90, 0.95, 0.99]])
    @pytest.mark.parametrize("score", [1e-6, 0.002, 0.0107, 0.0999, 0.37, 0.951, 0.9999])
    def test_equation_19(self, edges, score):
        bins = ClosedScoreBins(edges)
        expected = self.reference(score, [0.0, *edges, 1.0])
        assert bins.memberships(binary(score))[0].tolist() == pytest.approx(expected, rel=1e-9, abs=1e-12)

    def test_a_saturated_score_counts_one_half(self):
        """The audit's figures: .500 at 0, .73 at .002, .92 at .005, .993 at .01 (of the first bin, equal bins)."""
        bins = ClosedScoreBins([i / 10 for i in range(1, 10)])
        counted = bins.memberships(binary(1e-12, 0.002, 0.005, 0.01)).sum(-1)
        assert counted.tolist() == pytest.approx([0.5, 0.731, 0.924, 0.993], abs=1e-3)

    def test_the_open_form_agrees_with_it_inside(self):
        """Adjacent-category and cumulative logits differ by terms of exp(-slope x width): here exp(-50)."""
        edges = [i / 10 for i in range(1, 10)]
        closed = ClosedScoreBins(edges)
        open_ = with_slope(selbo.ScoreBins(edges, space="probability"))
        log_probs = binary(*torch.linspace(0.06, 0.94, 200).tolist())
        torch.testing.assert_close(open_.memberships(log_probs), closed.memberships(log_probs), atol=1e-10, rtol=0)

    def test_shells_of_the_published_code(self):
        """Corner, middle and centre by sigmoids of slope 500 at .95 and .85, as the audit describes them."""
        shells = with_slope(selbo.CornerShells(3, (0.85, 0.95), space="probability"))
        probs = torch.tensor(
            [[0.951, 0.04, 0.009], [0.1, 0.848, 0.052], [0.02, 0.04, 0.94], [0.4, 0.3, 0.3]], dtype=torch.float64
        )
        high, low = torch.sigmoid(500 * (probs - 0.95)), torch.sigmoid(500 * (probs - 0.85))
        expected = torch.cat([high, low - high, 1 - low.sum(-1, keepdim=True)], -1)
        torch.testing.assert_close(shells.memberships(probs.log()), expected, atol=1e-9, rtol=0)

    def test_gradients_agree_with_finite_differences(self):
        logits = torch.randn(6, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64).requires_grad_()
        bins = ClosedScoreBins([0.2, 0.7], slope=20.0)  # a slope of 500 needs steps smaller than gradcheck's
        assert torch.autograd.gradcheck(lambda x: bins.memberships(x.log_softmax(-1)), (logits,))

    def test_masses_do_not_depend_on_it(self):
        edges = [0.1, 0.6]
        expected = selbo.Beta(0.4, 2.0).masses(selbo.ScoreBins(edges))
        assert torch.equal(selbo.Beta(0.4, 2.0).masses(ClosedScoreBins(edges)), expected)

    def test_a_slope_is_one_of_probabilities(self):
        with pytest.raises(ValueError, match="`partition` must be made with space='probability'"):
            with_slope(selbo.ScoreBins([0.5]))
        with pytest.raises(ValueError, match="`slope` must be a finite number greater than 0"):
            ClosedScoreBins([0.5], slope=0.0)


class TestPublishedSummary:
    def test_without_quirks_it_is_the_library_s(self):
        log_probs, arguments = random_log_probs(3, 20, 2), (selbo.ScoreBins.equal(4), selbo.Beta(2, 3), 40.0)
        for form in ("dirichlet", "multinomial"):
            plain, same = selbo.SummaryLikelihood(*arguments, form=form), PublishedSummary(*arguments, form=form)
            assert torch.equal(plain(log_probs), same(log_probs))
            assert torch.equal(plain.histogram(log_probs), same.histogram(log_probs))

    def test_pseudo_count(self):
        summary = PublishedSummary(selbo.ClassRegions(2), selbo.Masses([0.2, 0.8]), 8.0, pseudo_count=1e-4)
        log_probs = torch.tensor([[0.3, 0.7]], dtype=torch.float64).log()
        expected = Dirichlet(torch.tensor([2.4001, 5.6001], dtype=torch.float64)).log_prob(summary.s0)
        torch.testing.assert_close(summary(log_probs), expected, rtol=1e-12, atol=0)

    def test_pooled_draws_share_a_histogram(self):
        kwargs = {"partition": selbo.CornerShells(3), "belief": selbo.Uniform(), "concentration": 30.0}
        log_probs = random_log_probs(4, 9, 3)
        pooled = PublishedSummary(**kwargs, pool_draws=True)
        flat = selbo.SummaryLikelihood(**kwargs)
        torch.testing.assert_close(pooled(log_probs), flat(log_probs.reshape(36, 3)))
        torch.testing.assert_close(pooled(log_probs[0]), flat(log_probs[0]))
        assert pooled(log_probs.expand(2, 4, 9, 3)).shape == (2,)
        assert pooled(log_probs) > flat(log_probs).mean()  # Jensen

    def test_published_options(self):
        """As the audit describes the authors' binary code: closed bins, + 1e-6, normalised, alpha h + 1e-4."""
        edges = [0.1, 0.5, 0.9]
        summary = PublishedSummary(
            ClosedScoreBins(edges),
            selbo.Beta(1, 1),
            concentration=100.0,
            pseudo_count=PSEUDO_COUNT,
            histogram_floor=HISTOGRAM_FLOOR,
        )
        log_probs = random_log_probs(33, 2, scale=4.0)
        above = torch.sigmoid(500 * (log_probs[:, 1:].exp() - torch.tensor([0.0, *edges, 1.0], dtype=torch.float64)))
        counts = (above[:, :-1] - above[:, 1:]).sum(0) + 1e-6
        histogram = counts / counts.sum()
        expected = Dirichlet(100 * histogram + 1e-4).log_prob(torch.tensor([0.1, 0.4, 0.4, 0.1], dtype=torch.float64))
        torch.testing.assert_close(summary(log_probs), expected, rtol=1e-8, atol=1e-8)

    @pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch.compile's own doing
    @pytest.mark.parametrize("partition", [ClosedScoreBins([0.1, 0.9]), selbo.CornerShells(4)], ids=["bins", "shells"])
    def test_compiles_into_one_graph(self, partition):
        torch.compiler.reset()
        quirks = {"pool_draws": True, "pseudo_count": PSEUDO_COUNT, "histogram_floor": HISTOGRAM_FLOOR}
        eager = PublishedSummary(partition, selbo.Uniform(), 50.0, **quirks)
        compiled = torch.compile(eager, fullgraph=True, backend="aot_eager")
        log_probs = random_log_probs(2, 12, partition.num_classes).requires_grad_()
        torch.testing.assert_close(compiled(log_probs), eager(log_probs))
        by_both = (torch.autograd.grad(each(log_probs).sum(), log_probs) for each in (compiled, eager))
        torch.testing.assert_close(*by_both)

    def test_printing_and_bad_input(self):
        arguments = (selbo.ScoreBins.equal(4), selbo.Beta(2, 3), 40.0)
        assert "Beta(2, 3), concentration=40, form='dirichlet', pool_draws=True" in repr(
            PublishedSummary(*arguments, pool_draws=True)
        )
        for name in ("pseudo_count", "histogram_floor"):
            with pytest.raises(ValueError, match=f"`{name}` must be a finite number of at least 0"):
                PublishedSummary(*arguments, **{name: -1e-4})

    def test_terms_of_pooled_summaries_add_up(self):
        model = selbo.to_bayesian(plain_net(), init_std=0.2)
        one = PublishedSummary(selbo.ClassRegions(3), selbo.Masses([0.5, 0.3, 0.2]), 9.0, name="one", pool_draws=True)
        two = PublishedSummary(selbo.CornerShells(3), selbo.Uniform(), 5.0, name="two", pool_draws=True)

        def log_summary(*summaries: PublishedSummary) -> Tensor:
            objective = selbo.SummaryELBO(list(summaries), NUM_DATA)
            return objective(model, inputs(), torch.arange(BATCH) % 3, 3, generator=noise()).log_summary

        close(log_summary(one, two), log_summary(one) + log_summary(two))


# --- the divergence ---


def test_the_published_divergence_is_the_sum_of_means() -> None:
    model = selbo.to_bayesian(plain_net(), prior_std=0.7, init_std=0.2)
    found = gaussians(model)
    assert len(found) == 4
    close(published_kl(model), torch.stack([each.kl_divergence().mean() for each in found]).sum())
    assert published_kl(model) < kl_divergence(model) / 3
    half = selbo.to_bayesian(fixed_network().to(torch.bfloat16))
    assert published_kl(half).dtype == torch.float32


SUMMARY = selbo.SummaryLikelihood(selbo.CornerShells(3, [0.6, 0.8]), selbo.Dirichlet([0.6, 0.9, 1.4]), 20.0)
PUBLISHED = {
    "elbo": lambda: selbo.ELBO(NUM_DATA, kl_weight=0.3, kl_warmup=4),
    "smoothing": lambda: selbo.LabelSmoothing(0.1, NUM_DATA),
    "summary": lambda: selbo.SummaryELBO(SUMMARY, NUM_DATA),
    "independent": lambda: IndependentSummary(selbo.Uniform(), NUM_DATA),
}


@pytest.mark.parametrize("make", PUBLISHED.values(), ids=PUBLISHED)
def test_objectives_differ_in_the_divergence_alone(make) -> None:
    model, labels = selbo.to_bayesian(plain_net(), init_std=0.2), torch.arange(BATCH) % 3
    both = (with_published_kl(make()), make())
    one, other = (each(model, inputs(), labels, 2, generator=noise(), step=1, steps=8) for each in both)
    assert torch.equal(one.log_likelihood, other.log_likelihood)
    assert one.by_name == other.by_name
    assert one.kl_weight == other.kl_weight
    close(one.kl, published_kl(model))
    close(other.kl, kl_divergence(model))


# --- each prediction by itself ---


def test_independent_summary_is_a_sum_of_densities() -> None:
    two, three, labels = plain_net(2), plain_net(3), torch.arange(BATCH) % 2
    scores = two(inputs()).softmax(-1)[:, 1]
    terms = IndependentSummary(selbo.Beta(0.1, 2.5), NUM_DATA)(two, inputs(), labels)
    close(
        terms.by_name["independent_summary"],
        NUM_DATA * Beta(*torch.tensor([0.1, 2.5], dtype=F64)).log_prob(scores).mean(),
    )
    close(terms.log_likelihood, -NUM_DATA * F.cross_entropy(two(inputs()), labels))
    concentration = torch.tensor([0.1, 2.5, 1.3], dtype=F64)
    terms = IndependentSummary(selbo.Dirichlet(concentration.tolist()), NUM_DATA)(three, inputs(), labels)
    close(
        terms.by_name["independent_summary"],
        NUM_DATA * Dirichlet(concentration).log_prob(three(inputs()).softmax(-1)).mean(),
    )
    terms = IndependentSummary(selbo.Uniform(), NUM_DATA)(three, inputs(), labels)
    close(
        terms.by_name["independent_summary"], torch.tensor(NUM_DATA * math.log(2), dtype=F64)
    )  # the simplex has an area of 1/2


def fit_scores(objective: Objective, logits: Tensor, steps: int) -> Tensor:
    """Scores that the summary term alone moves."""
    free, count = Free(logits.clone()), len(logits)
    x, labels = torch.zeros(count, 1), torch.zeros(count, dtype=torch.long)
    optimiser = torch.optim.Adam(free.parameters(), lr=0.1)
    for _ in range(steps):
        optimiser.zero_grad()
        (-sum(objective(free, x, labels).by_name.values()) / count).backward()
        optimiser.step()
    return free.logits.detach().softmax(-1)[:, 1]


@pytest.mark.parametrize(("a", "b"), [(5.0, 5.0), (6.0, 3.0)])
def test_why_a_dirichlet_process(a: float, b: float) -> None:
    """The paper's Figure 3: scored one by one, predictions gather at the mode; a summary is matched as a whole."""
    start, belief = free_logits(128, 2, scale=1.5), selbo.Beta(a, b)
    gathered = fit_scores(IndependentSummary(belief, 128), start, 250)
    mode = (a - 1) / (a + b - 2)
    assert (gathered - mode).abs().max() < 0.01

    partition = selbo.ScoreBins.equal(10)
    spread = fit_scores(CrossEntropy(128, selbo.SummaryLikelihood(partition, belief, 1000.0)), start, 250)
    exact = Beta(*torch.tensor([a, b], dtype=F64))
    assert abs(spread.mean().item() - exact.mean.item()) < 0.02
    assert abs(spread.std().item() / exact.stddev.item() - 1) < 0.15
    distance = stats.kstest(spread.numpy(), stats.beta(a, b).cdf).statistic
    assert distance < 0.1
    assert stats.kstest(gathered.numpy(), stats.beta(a, b).cdf).statistic > 0.4


def test_independent_summaries_take_a_list_of_one() -> None:
    objective, model = IndependentSummary(selbo.Dirichlet([0.6, 0.9, 1.4]), NUM_DATA), plain_net()
    losses = [
        objective(model, inputs(), torch.arange(BATCH) % 3, unlabelled=each).loss for each in ([inputs(9)], inputs(9))
    ]
    assert torch.equal(*losses)


def test_independent_summaries_pass_their_warm_up_on() -> None:
    objective = IndependentSummary(selbo.Uniform(), NUM_DATA, kl_warmup=8, summary_warmup=4)
    model = selbo.to_bayesian(plain_net())
    terms = objective(model, inputs(), torch.arange(BATCH) % 3, generator=noise(), step=1)
    assert (terms.kl_weight, terms.weights) == (2 / 8, {"independent_summary": 2 / 4})


def test_a_belief_without_a_density_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`belief` must have a density, .* but got Masses"):
        IndependentSummary(selbo.Masses([0.2, 0.8]), 9)
    objective = IndependentSummary(selbo.Beta(1, 2), 9)
    with pytest.raises(ValueError, match=r"`belief` speaks of 2 classes, but predictions have 3"):
        objective(plain_net(), inputs(), torch.arange(BATCH) % 3)


# --- scores, checkpoints and selection ---


def test_both_columns_of_two_classes_are_averaged(seed: int) -> None:
    logits = 30 * torch.randn(400, 2, generator=torch.Generator().manual_seed(seed))
    labels = logits[:, 1] - logits[:, 0] + 40 * torch.randn(400, generator=torch.Generator().manual_seed(seed + 1)) > 0
    probs = logits.float().softmax(-1)
    areas = [sk.roc_auc_score(labels == k, probs[:, k]) for k in (0, 1)]
    assert abs(areas[0] - areas[1]) > 1e-6  # many probabilities round to 1
    assert auroc(probs, labels.long()) == pytest.approx(areas[1], rel=1e-12)
    assert auroc_of_both_columns(probs, labels.long()) == pytest.approx(sum(areas) / 2, rel=1e-12)
    three = torch.rand(9, 3, generator=torch.Generator().manual_seed(seed))
    assert auroc_of_both_columns(three, torch.arange(9) % 3) == auroc(three, torch.arange(9) % 3)
    assert auroc_of_both_columns(probs, torch.zeros(400).long()) is None


def test_descriptions_of_objectives_tell_them_apart() -> None:
    bins, belief = selbo.ScoreBins([0.3, 0.6]), selbo.Masses((0.2, 0.3, 0.5))
    objectives = [
        *(
            CrossEntropy(10, PublishedSummary(each, belief, 100.0, **quirks))
            for each in (bins, ClosedScoreBins([0.3, 0.6]))
            for quirks in ({}, {"pseudo_count": 1e-4}, {"histogram_floor": 1e-6}, {"pool_draws": True})
        ),
        IndependentSummary(selbo.Beta(2, 3), 10),
        IndependentSummary(selbo.Beta(3, 2), 10),
        selbo.ELBO(10),
        with_published_kl(selbo.ELBO(10)),
    ]
    assert len({json.dumps(checkpoint.describe_objective(each)) for each in objectives}) == len(objectives)


def test_f1_of_two_classes_is_that_of_class_one_and_of_more_the_accuracy() -> None:
    predicted, labels = torch.tensor([1, 1, 0, 0, 1]), torch.tensor([1, 0, 0, 1, 1])
    assert best_f1(F.one_hot(predicted, 2).double(), labels).item() == pytest.approx(2 * 2 / (3 + 3))
    assert best_f1(F.one_hot(predicted, 3).double(), labels).item() == pytest.approx(3 / 5)
    assert best_f1(F.one_hot(torch.zeros(3).long(), 2).double(), torch.zeros(3).long()).item() == 0


# --- numbers of the code that had these quirks as arguments; the published runs were made with it ---


def fixed_log_probs(*shape: int) -> Tensor:
    """From whole numbers, so that no generator of random numbers matters."""
    raw = torch.arange(math.prod(shape), dtype=torch.float64) * 7919 % 1009 / 101 - 5
    return raw.reshape(shape).log_softmax(-1)


def fixed_network() -> nn.Module:
    net = selbo.models.MLP((3, 4, 2), generator=torch.Generator().manual_seed(0)).double()
    with torch.no_grad():
        for each in net.parameters():
            each.copy_((torch.arange(each.numel(), dtype=torch.float64) % 7 / 7 - 0.4).reshape(each.shape))
    return net


def same(found: Tensor, *recorded: str) -> None:
    """To the last digits but few: processors differ in those of a logarithm."""
    assert found.reshape(-1).tolist() == pytest.approx([float.fromhex(each) for each in recorded], rel=1e-13)


def test_the_numbers_of_the_binary_histogram() -> None:
    quirks = {"pseudo_count": PSEUDO_COUNT, "histogram_floor": HISTOGRAM_FLOOR}
    summary = PublishedSummary(ClosedScoreBins([0.1, 0.5, 0.9]), selbo.Beta(0.4, 2.0), 100.0, **quirks)
    log_probs = fixed_log_probs(2, 33, 2).requires_grad_()
    value = summary(log_probs)
    same(value, "-0x1.f563fd1fa9020p+6", "-0x1.e25444a20c39ap+6")
    (gradient,) = torch.autograd.grad(value.sum(), log_probs)
    same(gradient[0, 0], "-0x1.a27a171c94c25p-3", "0x1.a27a171c94c25p-3")


def test_the_numbers_of_the_other_histograms() -> None:
    shells = with_slope(selbo.CornerShells(3, space="probability"))
    pooled = PublishedSummary(
        shells, selbo.Dirichlet([0.6, 0.9, 1.4]), 30.0, pool_draws=True, pseudo_count=PSEUDO_COUNT
    )
    same(pooled(fixed_log_probs(4, 9, 3)), "-0x1.a2adc14534aaep+4")
    steep = with_slope(selbo.ScoreBins([0.01, 0.5, 0.99], space="probability"))
    summary = selbo.SummaryLikelihood(steep, selbo.Uniform(), 50.0)
    same(summary(fixed_log_probs(2, 17, 2)), "-0x1.c9240526a339ep+6", "-0x1.977576c678a28p+6")


def test_the_numbers_of_the_divergence_and_of_single_predictions() -> None:
    bnn = selbo.to_bayesian(fixed_network(), prior_std=0.5, init_std=0.1)
    same(published_kl(bnn), "0x1.4c1ca4af665fcp+2")
    x, labels = (torch.arange(15, dtype=torch.float64) % 4 - 1.5).reshape(5, 3), torch.tensor([0, 1, 1, 0, 1])
    terms = IndependentSummary(selbo.Beta(0.7, 1.6), 60)(fixed_network(), x, labels, 2)
    same(
        torch.stack([terms.loss, terms.by_name["independent_summary"]]), "0x1.f32ac354c69c2p-1", "-0x1.4db0d26ce88ddp+4"
    )


def test_the_numbers_of_f1() -> None:
    same(best_f1(fixed_log_probs(23, 2), torch.arange(23) % 2), "0x1.1111111111111p-2")
    same(best_f1(fixed_log_probs(23, 3), torch.arange(23) % 3), "0x1.37a6f4de9bd38p-2")
