"""Beliefs about groups: all at once as one by one, absent groups, parts of groups, several processes' sums."""

import copy
import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats
from unit.summary.cases import GROUPS, fractions, predictions

import selbo
from selbo.summary.counts import exact_count_log_prob, gaussian_count_log_prob, poisson_binomial
from selbo.summary.grouped import GROUP_FORMS
from selbo.summary.likelihood import dirichlet_process_log_prob, multinomial_log_prob

F64 = torch.float64


class Margin(selbo.Partition):
    """A user's own: is the margin between the two likeliest classes small, middling or large?"""

    def __init__(self, num_classes):
        super().__init__()
        self.num_classes, self.num_regions = num_classes, 3

    def memberships(self, log_probs):
        top = log_probs.exp().topk(2, dim=-1).values
        margin = (top[..., 0] - top[..., 1]).unsqueeze(-1)
        return torch.softmax(torch.cat([-4 * margin, torch.zeros_like(margin), 3 * margin - 1], -1), -1)

    def assign(self, log_probs):
        return self.memberships(log_probs).argmax(-1)


PARTITIONS = {
    "two classes": selbo.ClassRegions(2),
    "four classes": selbo.ClassRegions(4, temperature=0.7),
    "scores": selbo.ScoreBins([0.2, 0.6]),
    "shells": selbo.CornerShells(3),
    "one's own": Margin(3),
}


def one_by_one(summary, log_probs, groups, weights=None):
    """The same by a loop over groups, with the likelihood of a single summary."""
    values = []
    for group in range(summary.num_groups):
        rows = groups == group
        if not rows.any():
            values.append(torch.zeros(log_probs.shape[:-2], dtype=F64))
            continue
        p = summary.partition.memberships(log_probs[..., rows, :])
        w = torch.ones(int(rows.sum()), dtype=F64) if weights is None else weights[rows]
        h = (p * w.unsqueeze(-1)).sum(-2) / w.sum()
        s0, alpha = summary.s0[group], summary.concentration[group]
        if summary.form == "dirichlet":
            values.append(dirichlet_process_log_prob(h, s0=s0, concentration=alpha))
        elif summary.form == "multinomial":
            values.append(multinomial_log_prob(h, s0=s0, concentration=alpha))
        elif len(w) <= summary.exact_up_to and weights is None:
            size, regions = torch.tensor(float(len(w)), dtype=F64), p.shape[-1]
            pmfs = [poisson_binomial(torch.stack([1 - p[..., r], p[..., r]], -1)) for r in range(regions)]
            each = [
                exact_count_log_prob(pmf, fraction=s0[r], concentration=alpha, size=size) for r, pmf in enumerate(pmfs)
            ]
            values.append(sum(each) * (regions - 1) / regions)
        else:
            spread = (torch.diag_embed(p) - p.unsqueeze(-1) * p.unsqueeze(-2)) * w[:, None, None]
            options = {"fractions": s0, "concentration": alpha, "size": w.sum(), "total": w.sum()}
            values.append(gaussian_count_log_prob((p * w.unsqueeze(-1)).sum(-2), spread.sum(-3), **options))
    return torch.stack(values, -1)


def check_equal(summary, log_probs, groups, weights=None):
    """Values and gradients of all at once are those of one by one."""
    ours, theirs = log_probs.clone().requires_grad_(), log_probs.clone().requires_grad_()
    by_group, expected = summary.by_group(ours, groups, weights), one_by_one(summary, theirs, groups, weights)
    torch.testing.assert_close(by_group, expected, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(summary(ours, groups, weights), expected.sum(-1), rtol=1e-11, atol=1e-11)
    factors = torch.linspace(0.5, 2.0, by_group.numel(), dtype=F64).reshape(by_group.shape)
    (by_group * factors).sum().backward()
    (expected * factors).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-9, atol=1e-9)
    assert not ours.grad[..., groups < 0, :].any()


class TestOneByOne:
    @pytest.mark.parametrize("form", GROUP_FORMS)
    @pytest.mark.parametrize("name", PARTITIONS)
    def test_values_and_gradients(self, form, name):
        partition = PARTITIONS[name]
        beliefs = fractions(6, partition.num_regions)
        alpha = torch.tensor([3.0, 40.0, 7.0, 100.0, 1.0, 25.0])
        summary = selbo.GroupedSummary(partition, beliefs, alpha, form=form)
        check_equal(summary, predictions(13, partition.num_classes), GROUPS)
        check_equal(summary, predictions(3, 13, partition.num_classes, seed=1), GROUPS)

    @pytest.mark.parametrize("form", GROUP_FORMS)
    @pytest.mark.parametrize("classes", [2, 3])
    def test_more_groups_than_rows(self, form, classes):
        """The same values if groups of the batch share its few slots."""
        count = 500
        summary = selbo.GroupedSummary(selbo.ClassRegions(classes), fractions(count, classes), 30.0, form=form)
        groups = torch.where(GROUPS < 0, GROUPS, 90 * GROUPS + 7)
        check_equal(summary, predictions(2, 13, classes), groups)

    @pytest.mark.parametrize("form", GROUP_FORMS)
    @pytest.mark.parametrize("count", [6, 100])
    def test_weights(self, form, count):
        summary = selbo.GroupedSummary(selbo.ClassRegions(3), fractions(count, 3), 20.0, form=form)
        weights = torch.rand(13, generator=torch.Generator().manual_seed(2), dtype=F64) + 0.1
        check_equal(summary, predictions(13, 3), GROUPS, weights)

    @pytest.mark.parametrize("form", ["dirichlet", "multinomial"])
    def test_one_group_is_a_summary(self, form):
        partition, belief = selbo.CornerShells(3), selbo.expect(accuracy=0.8, num_classes=3)
        grouped = selbo.GroupedSummary(partition, [belief], 50.0, form=form)
        single = selbo.SummaryLikelihood(partition, belief, 50.0, form=form)
        log_probs = predictions(4, 20, 3)
        torch.testing.assert_close(
            grouped(log_probs, torch.zeros(20, dtype=torch.long)), single(log_probs), rtol=1e-12, atol=1e-12
        )

    @pytest.mark.parametrize("form", GROUP_FORMS)
    def test_only_groups_larger_than_the_limit_are_gaussian(self, form):
        summary = selbo.GroupedSummary(selbo.ClassRegions(2), fractions(6, 2), 30.0, form=form, exact_up_to=3)
        check_equal(summary, predictions(13, 2), GROUPS)

    def test_tolerances(self):
        """Within its tolerance a belief has no wish; each group has its own."""
        beliefs = [selbo.Masses([0.4, 0.6], uncertainty=0.1), selbo.Masses([0.4, 0.6])]
        summary = selbo.GroupedSummary(selbo.ClassRegions(2), beliefs, 80.0, form="multinomial")
        log_probs = torch.tensor([[0.45, 0.55]] * 2, dtype=F64).log().requires_grad_()
        summary(log_probs, torch.tensor([0, 1])).backward()
        single = [selbo.SummaryLikelihood(selbo.ClassRegions(2), each, 80.0, form="multinomial") for each in beliefs]
        again = log_probs.detach().requires_grad_()
        sum(each(again[[row]]) for row, each in enumerate(single)).backward()
        torch.testing.assert_close(log_probs.grad, again.grad, rtol=1e-11, atol=1e-11)

    @pytest.mark.parametrize("form", GROUP_FORMS)
    def test_the_order_of_rows_does_not_matter(self, form, seed):
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(13, generator=generator)
        for count in (6, 40):
            summary = selbo.GroupedSummary(selbo.ClassRegions(2), fractions(count, 2), 30.0, form=form)
            log_probs = predictions(2, 13, 2, seed=seed)
            torch.testing.assert_close(
                summary(log_probs[:, order], GROUPS[order]), summary(log_probs, GROUPS), rtol=1e-12, atol=1e-12
            )

    @pytest.mark.parametrize("form", GROUP_FORMS)
    def test_the_numbers_of_groups_do_not_matter(self, form):
        beliefs, alpha = fractions(6, 3), torch.linspace(5.0, 50.0, 6, dtype=F64)
        numbers = torch.tensor([4, 2, 0, 5, 1, 3])  # group g is called numbers[g]
        summary = selbo.GroupedSummary(selbo.ClassRegions(3), beliefs, alpha, form=form)
        back = numbers.argsort()
        other = selbo.GroupedSummary(selbo.ClassRegions(3), beliefs[back], alpha[back], form=form)
        renamed = torch.where(GROUPS < 0, GROUPS, numbers[GROUPS.clamp(min=0)])
        log_probs = predictions(13, 3)
        torch.testing.assert_close(summary(log_probs, GROUPS), other(log_probs, renamed), rtol=1e-12, atol=1e-12)


class TestAbsentGroups:
    @pytest.mark.parametrize("form", GROUP_FORMS)
    @pytest.mark.parametrize("count", [6, 100])
    def test_they_contribute_exactly_nothing(self, form, count):
        log_probs = predictions(13, 2)
        whole = selbo.GroupedSummary(selbo.ClassRegions(2), fractions(count, 2), 30.0, form=form)
        values = whole.by_group(log_probs, GROUPS)
        absent = [group for group in range(count) if group not in GROUPS.tolist()]
        assert len(absent) == count - 4
        assert torch.equal(values[absent], torch.zeros(count - 4, dtype=F64))
        there = sorted({0, 1, 3, 5})
        only = selbo.GroupedSummary(selbo.ClassRegions(2), whole.s0[there], 30.0, form=form)
        renumbered = torch.tensor([there.index(g) if g >= 0 else -1 for g in GROUPS.tolist()])
        ours, theirs = log_probs.clone().requires_grad_(), log_probs.clone().requires_grad_()
        value, expected = whole(ours, GROUPS), only(theirs, renumbered)
        assert value.item() == pytest.approx(expected.item(), rel=1e-13)
        value.backward()
        expected.backward()
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-12, atol=1e-15)

    @pytest.mark.parametrize("form", GROUP_FORMS)
    @pytest.mark.parametrize("sizes", [None, [5, 5]])
    def test_a_batch_without_any_group(self, form, sizes):
        summary = selbo.GroupedSummary(selbo.ClassRegions(2), fractions(2, 2), 30.0, form=form, sizes=sizes)
        log_probs = predictions(3, 4, 2).requires_grad_()
        value = summary(log_probs, torch.full((4,), -1))
        value.sum().backward()
        assert torch.equal(value, torch.zeros(3, dtype=F64))
        assert not log_probs.grad.any()

    @pytest.mark.parametrize("form", GROUP_FORMS)
    def test_nan_is_not_hidden(self, form):
        summary = selbo.GroupedSummary(selbo.ClassRegions(3), fractions(2, 3), 30.0, form=form, validate=False)
        log_probs = predictions(4, 3)
        log_probs[0] = math.nan
        values = summary.by_group(log_probs, torch.tensor([0, 0, 1, 1]))
        assert values.isnan().tolist() == [True, False]

    @pytest.mark.parametrize("form", GROUP_FORMS)
    def test_extreme_predictions_have_finite_values_and_gradients(self, form):
        certain = torch.tensor([[0.0, -1e30], [-math.inf, 0.0], [-1e3, 0.0], [0.0, -50.0]])
        for dtype in (torch.float32, torch.float16, F64):
            summary = selbo.GroupedSummary(
                selbo.ClassRegions(2), [[0.5, 0.5], [0.9, 0.1]], 1e5, form=form, validate=False
            )
            log_probs = certain.clone().to(dtype).detach().requires_grad_()
            value = summary(log_probs, torch.tensor([0, 0, 1, 1]))
            value.backward()
            assert value.isfinite()
            assert value.dtype == (F64 if dtype == F64 else torch.float32)
            assert log_probs.grad.isfinite().all()


def test_certain_and_wrong_groups_learn_from_the_gaussian_form():
    """Their exact likelihood, 1e-480, is no float64: it would have no gradient."""
    log_probs = torch.tensor([[0.0, -69.0]] * 16, dtype=F64).log_softmax(-1).detach().requires_grad_()
    groups = torch.zeros(16, dtype=torch.long)
    value = selbo.GroupedSummary(selbo.ClassRegions(2), [[0.0, 1.0]], 1e6, form="counts")(log_probs, groups)
    expected = selbo.GroupedSummary(selbo.ClassRegions(2), [[0.0, 1.0]], 1e6, form="counts", exact_up_to=0)
    assert value.item() == expected(log_probs, groups).item() < -1000


@pytest.mark.parametrize("classes", [2, 3])
def test_what_hardly_happens_is_exact(classes):
    """A member of whom the network is certain: the complement of its probability would be rounded to zero."""
    log_probs = torch.tensor([[0.0, -50.0, -60.0][:classes]] * 2, dtype=F64).log_softmax(-1).requires_grad_()
    half = [[0.5, 0.5, 0.0][:classes]]
    summary = selbo.GroupedSummary(selbo.ClassRegions(classes), half, 1e9, form="counts")
    value = summary(log_probs, torch.zeros(2, dtype=torch.long))
    value.backward()
    each = math.log(2) - 50
    assert value.item() == pytest.approx(each if classes == 2 else 2 * (2 * each) / 3, rel=1e-6)
    assert log_probs.grad.abs().max() > 0.1


@pytest.mark.stochastic
@pytest.mark.parametrize(("classes", "size", "count"), [(2, 16, 2000), (3, 30, 2000), (10, 16, 800)])
def test_exact_fractions_say_how_sure_to_be_and_others_reward_confidence(classes, size, count, seed):
    """Labels are sampled from known probabilities; the likeliest power of these should be 1."""
    generator = torch.Generator().manual_seed(seed)
    log_probs = (4 * torch.randn(count * size, classes, generator=generator, dtype=F64)).log_softmax(-1)
    labels = torch.multinomial(log_probs.exp(), 1, generator=generator).squeeze(1)
    groups = torch.arange(count).repeat_interleave(size)
    counted = torch.zeros(count, classes, dtype=F64).index_add(0, groups, torch.eye(classes, dtype=F64)[labels]) / size
    powers = torch.linspace(0.5, 1.6, 12, dtype=F64)

    def likeliest(concentration, **options):
        summary = selbo.GroupedSummary(selbo.ClassRegions(classes), counted, concentration, form="counts", **options)
        values = [summary((power * log_probs).log_softmax(-1), groups) for power in powers]
        return powers[torch.stack(values).argmax()].item()

    exact, gaussian = (likeliest(1e4 * size, exact_up_to=limit) for limit in (64, 0))
    assert exact == pytest.approx(1.0, abs=0.11)
    assert gaussian >= exact  # it is off where counts are small
    if classes == 10:
        assert gaussian > 1.09
    assert likeliest(size) > 1.3


class TestPartsOfGroups:
    @pytest.mark.parametrize("form", GROUP_FORMS)
    def test_the_whole_data_set_counts_once(self, form):
        sizes = [3, 1, 0, 5, 0, 3]
        options = {"form": form}
        with_sizes = selbo.GroupedSummary(selbo.ClassRegions(2), fractions(6, 2), 30.0, sizes=sizes, **options)
        without = selbo.GroupedSummary(selbo.ClassRegions(2), fractions(6, 2), 30.0, **options)
        log_probs = predictions(2, 13, 2)
        torch.testing.assert_close(with_sizes(log_probs, GROUPS), without(log_probs, GROUPS), rtol=1e-12, atol=1e-12)

    @pytest.mark.parametrize("form", GROUP_FORMS)
    def test_batches_of_whole_groups_estimate_the_sum_over_all(self, form):
        """Every batch of two of four equal groups: the mean is the value of all, exactly."""
        groups, log_probs = torch.arange(4).repeat_interleave(3), predictions(12, 2)
        summary = selbo.GroupedSummary(selbo.ClassRegions(2), fractions(4, 2), 30.0, form=form, sizes=[3] * 4)
        values = []
        for pair in itertools.combinations(range(4), 2):
            rows = (groups.unsqueeze(-1) == torch.tensor(pair)).any(-1)
            values.append(summary(log_probs[rows], groups[rows]))
        torch.testing.assert_close(torch.stack(values).mean(), summary(log_probs, groups), rtol=1e-12, atol=1e-12)

    def test_parts_count_in_proportion(self):
        """Equal predictions: every part has the same value, and all partitions of the data have the same mean."""
        log_probs = torch.tensor([[0.3, 0.7]], dtype=F64).log().expand(12, 2)
        groups = torch.tensor([0] * 9 + [1] * 3)
        summary = selbo.GroupedSummary(selbo.ClassRegions(2), fractions(2, 2), 30.0, sizes=[9, 3])
        order = torch.tensor([0, 1, 2, 9, 3, 4, 5, 6, 7, 8, 10, 11])
        batches = [summary(log_probs[rows], groups[rows]) for rows in order.split(4)]
        torch.testing.assert_close(torch.stack(batches).mean(), summary(log_probs, groups), rtol=1e-12, atol=1e-12)

    def test_counts_of_a_part_are_those_of_a_part(self):
        log_probs, groups = predictions(5, 3), torch.zeros(5, dtype=torch.long)
        p = log_probs.exp()
        spread = torch.diag_embed(p) - p.unsqueeze(-1) * p.unsqueeze(-2)
        f, n = fractions(1, 3), torch.tensor(5.0, dtype=F64)
        summary = selbo.GroupedSummary(selbo.ClassRegions(3), f, 30.0, form="counts", sizes=[20])
        expected = gaussian_count_log_prob(
            p.sum(0), spread.sum(0), fractions=f[0], concentration=torch.tensor(30.0, dtype=F64), size=n, total=4 * n
        )
        torch.testing.assert_close(summary.by_group(log_probs, groups)[0], expected, rtol=1e-12, atol=1e-12)
        two = selbo.GroupedSummary(selbo.ClassRegions(2), [[0.4, 0.6]], 30.0, form="counts", sizes=[20])
        whole = selbo.GroupedSummary(selbo.ClassRegions(2), [[0.4, 0.6]], 30.0, form="counts", exact_up_to=0)
        log_probs = predictions(5, 2)
        assert two(log_probs, groups) < whole(log_probs, groups)  # a part is less certain, and not exact

    @pytest.mark.parametrize("classes", [2, 3])
    def test_small_groups_are_exact_where_their_sizes_cannot_be_read(self, classes, monkeypatch):
        """As on a GPU: room for as many groups as there may be."""
        beliefs, groups = fractions(5, classes), torch.tensor([0] * 3 + [1] * 5 + [-1] + [2] * 2 + [4] * 3)
        log_probs = predictions(2, len(groups), classes)
        for sizes in (None, [3, 9, 2, 7, 3], [30, 9, 2, 7, 30]):
            options = {"form": "counts", "exact_up_to": 4, "sizes": sizes}
            summary = selbo.GroupedSummary(selbo.ClassRegions(classes), beliefs, 30.0, **options)
            expected = summary.by_group(log_probs, groups)
            with monkeypatch.context() as patched:
                patched.setattr("selbo.summary.grouped._is_readable", lambda tensor: False)
                found = summary.by_group(log_probs, groups)
            torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)

    def test_exact_values_are_formed_only_where_a_group_is_small(self, monkeypatch):
        summary = selbo.GroupedSummary(selbo.ClassRegions(2), fractions(2, 2), 30.0, form="counts", exact_up_to=4)
        log_probs, groups = predictions(9, 2), torch.tensor([0] * 4 + [1] * 5)
        expected, formed = summary(log_probs, groups), []
        real = summary._exact
        monkeypatch.setattr(summary, "_exact", lambda *given: formed.append(given) or real(*given))
        summary.set_sizes(groups)
        torch.testing.assert_close(summary(log_probs, groups), expected, rtol=0, atol=0)
        assert len(formed) == 1
        for sizes in ([8.0, 5.0], [8.0, 0.0]):
            summary.sizes = torch.tensor(sizes, dtype=F64)
            summary(log_probs, groups)
        assert len(formed) == 1
        summary.sizes = None
        torch.testing.assert_close(summary(log_probs, groups), expected, rtol=0, atol=0)
        assert len(formed) == 2


class TestMovingAverage:
    @pytest.mark.parametrize("form", ["dirichlet", "multinomial"])
    @pytest.mark.parametrize("count", [3, 50])
    def test_each_group_has_the_average_of_a_single_summary(self, form, count):
        """Groups take turns; a group that is not there keeps its average."""
        partition = selbo.ClassRegions(3)
        beliefs = fractions(count, 3)
        grouped = selbo.GroupedSummary(partition, beliefs, 20.0, form=form, ema_decay=0.8)
        single = [
            selbo.SummaryLikelihood(partition, selbo.Masses(row.tolist()), 20.0, form=form, ema_decay=0.8)
            for row in beliefs[:3]
        ]
        for step, present in enumerate([(0, 1), (1, 2), (0, 2), (0, 1, 2), (1,)]):
            groups = torch.tensor([g for g in present for _ in range(4)] + [-1])
            ours = predictions(2, len(groups), 3, seed=step).requires_grad_()
            theirs = ours.detach().requires_grad_()
            value = grouped(ours, groups)
            expected = sum(single[g](theirs[:, groups == g]) for g in present)
            torch.testing.assert_close(value, expected, rtol=1e-11, atol=1e-11)
            value.sum().backward()
            expected.sum().backward()
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-10, atol=1e-10)
        for g in range(3):
            torch.testing.assert_close(grouped.average.histograms[g], single[g].average.histogram)
        assert count == 3 or grouped.average.histograms[3:].isnan().all()

    def test_counts_of_an_averaged_group_are_those_of_all_its_members(self):
        """Constant predictions: the average is the truth, whatever part was seen."""
        f = [[0.5, 0.2, 0.3]]
        log_probs = torch.tensor([[0.3, 0.3, 0.4]], dtype=F64).log()
        summary = selbo.GroupedSummary(
            selbo.ClassRegions(3), f, 30.0, form="counts", sizes=[40], ema_decay=0.9, exact_up_to=0
        )
        for _ in range(3):
            value = summary.by_group(log_probs.expand(5, 3), torch.zeros(5, dtype=torch.long))
        whole = selbo.GroupedSummary(selbo.ClassRegions(3), f, 30.0, form="counts", exact_up_to=0)
        expected = whole(log_probs.expand(40, 3), torch.zeros(40, dtype=torch.long))
        assert value.item() == pytest.approx(expected.item(), rel=1e-11)

    def test_it_reduces_the_bias_of_small_parts(self, seed):
        """Eight of many members per batch: the mean value is closer to that of the whole group."""
        generator = torch.Generator().manual_seed(seed)
        log_probs = predictions(4000, 2, seed=seed, scale=2.0)
        zero = torch.zeros(8, dtype=torch.long)
        beliefs = log_probs.exp().mean(0, keepdim=True)
        plain = selbo.GroupedSummary(selbo.ClassRegions(2), beliefs, 100.0, form="multinomial")
        averaged = selbo.GroupedSummary(selbo.ClassRegions(2), beliefs, 100.0, form="multinomial", ema_decay=0.98)
        truth = plain(log_probs, torch.zeros(4000, dtype=torch.long)).item()
        batches = [torch.randint(4000, (8,), generator=generator) for _ in range(300)]
        errors = [[each(log_probs[rows], zero).item() - truth for rows in batches] for each in (plain, averaged)]
        assert np.mean(errors[0]) < 5 * np.mean(errors[1][100:]) < 0
        # the docstring: alpha (R - 1) / 2m, with the variance of the predictions instead of that of labels
        variance = (log_probs.exp()[:, 1].var() / beliefs.prod()).item()
        assert np.mean(errors[0]) == pytest.approx(
            -100 * variance / 16, abs=6 * np.std(errors[0]) / math.sqrt(300) + 0.3
        )

    def test_evaluation_has_no_memory(self):
        summary = selbo.GroupedSummary(selbo.ClassRegions(2), fractions(2, 2), 20.0, ema_decay=0.9).eval()
        plain = selbo.GroupedSummary(selbo.ClassRegions(2), fractions(2, 2), 20.0)
        for seed in range(2):
            log_probs, groups = predictions(4, 2, seed=seed), torch.tensor([0, 1, 1, 0])
            assert torch.equal(summary(log_probs, groups), plain(log_probs, groups))
        assert not summary.average.weight.any()


class TestReductions:
    @pytest.mark.parametrize("form", GROUP_FORMS)
    @pytest.mark.parametrize("count", [6, 50])
    def test_the_sum_of_parts_is_the_whole(self, form, count):
        """As over two processes: what one of them adds to the sums of the other."""
        log_probs, kept = predictions(13, 3), []
        options = {"form": form, "exact_up_to": 0}
        first = selbo.GroupedSummary(
            selbo.ClassRegions(3),
            fractions(count, 3),
            20.0,
            reductions=[lambda sums: kept.append(sums) or sums],
            **options,
        )
        first(log_probs[:6], GROUPS[:6])
        second = selbo.GroupedSummary(
            selbo.ClassRegions(3), fractions(count, 3), 20.0, reductions=[lambda sums: sums + kept[0]], **options
        )
        whole = selbo.GroupedSummary(selbo.ClassRegions(3), fractions(count, 3), 20.0, **options)
        torch.testing.assert_close(second(log_probs[6:], GROUPS[6:]), whole(log_probs, GROUPS), rtol=1e-12, atol=1e-12)


class TestArguments:
    def test_forms_of_beliefs(self):
        """A tensor, an array, a list, a mapping by name and one by number give the same summary."""
        rows = [[0.2, 0.8], [0.5, 0.5], [0.9, 0.1]]
        given = [
            torch.tensor(rows),
            np.array(rows),
            rows,
            [selbo.Masses(row) for row in rows],
            {"a": rows[0], "b": selbo.Masses(rows[1]), "c": torch.tensor(rows[2])},
            {2: rows[2], 0: rows[0], 1: rows[1]},
        ]
        for beliefs in given:
            summary = selbo.GroupedSummary(selbo.ClassRegions(2), beliefs, [1, 2, 3])
            torch.testing.assert_close(summary.s0, torch.tensor(rows, dtype=F64), rtol=1e-7, atol=1e-7)
            assert summary.concentration.tolist() == [1.0, 2.0, 3.0]
            assert summary.num_groups == 3

    def test_names(self):
        summary = selbo.GroupedSummary(selbo.ClassRegions(2), {"x": [0.2, 0.8], "y": [0.5, 0.5]}, {"y": 7.0, "x": 3.0})
        assert summary.group_names == ("x", "y")
        assert summary.concentration.tolist() == [3.0, 7.0]
        assert summary.index(["y", "x", None, "y"]).tolist() == [1, 0, -1, 1]
        with pytest.raises(ValueError, match="`names` must be names of groups, but got 'z'"):
            summary.index(["x", "z"])
        with pytest.raises(ValueError, match="`index` needs beliefs by name"):
            selbo.GroupedSummary(selbo.ClassRegions(2), [[0.5, 0.5]], 1.0).index(["x"])

    def test_histograms(self):
        summary = selbo.GroupedSummary(selbo.ClassRegions(3), fractions(6, 3), 1.0)
        for each in (summary, selbo.GroupedSummary(selbo.ClassRegions(3), fractions(40, 3), 1.0, form="counts")):
            log_probs = predictions(2, 13, 3)
            found = each.histograms(log_probs, GROUPS)
            assert found.shape == (2, each.num_groups, 3)
            for group in (0, 1, 3, 5):
                expected = log_probs[:, group == GROUPS].exp().mean(-2)
                torch.testing.assert_close(found[:, group], expected, rtol=1e-12, atol=1e-12)
            assert found[:, [2, 4]].isnan().all()

    def test_smoothing(self):
        options = {"smoothing": 0.5}
        summary = selbo.GroupedSummary(selbo.ClassRegions(2), [[0.0, 1.0]], 9.0, **options)
        torch.testing.assert_close(summary.s0, torch.tensor([[0.05, 0.95]], dtype=F64))
        for form in ("multinomial", "counts"):  # need none
            certain = selbo.GroupedSummary(selbo.ClassRegions(2), [[0.0, 1.0]], 9.0, form=form)
            assert certain(predictions(3, 2), torch.zeros(3, dtype=torch.long)).isfinite()

    @pytest.mark.parametrize(
        ("beliefs", "concentration", "options", "message"),
        [
            ([[0.0, 1.0]], 1.0, {}, "`beliefs` must be positive for form='dirichlet', but group 0 has a mass of 0"),
            ({"a": [0.0, 1.0]}, 1.0, {}, "but group 'a' has a mass of 0: pass smoothing=0.5"),
            ([[0.2, 0.9]], 1.0, {}, "`beliefs` must lie on the simplex, but the masses of group 0 sum to 1.1$"),
            (
                [[-0.2, 1.2]],
                1.0,
                {},
                "`beliefs` must be at least 0 everywhere, but the smallest mass of group 0 is -0.2$",
            ),
            ({"a": [0.3, 0.7], "b": [0.4, 0.7]}, 1.0, {}, "the masses of group 'b' sum to 1.1$"),
            ({"a": [30.0, 70.0]}, 1.0, {}, "group 'a' sum to 100: divide percentages by 100"),
            (torch.tensor([[0.3, 0.7], [0.2, 0.7], [0.9, 0.9]]), 1.0, {}, "of group 1 sum to 0.9$"),
            ({"a": [0.3, math.nan]}, 1.0, {}, "`beliefs` must hold numbers, but got 1 NaN for group 'a'$"),
            (torch.tensor([[0.3, 0.7], [math.nan, 0.7]]), 1.0, {}, "but got 1 NaN for group 1$"),
            ({"a": [0.3, 0.7], "b": [0.2, 0.3, 0.5]}, 1.0, {}, r"shape \(G, 2\), .* but got 3 for group 'b'$"),
            ([[0.2, 0.3, 0.5]], 1.0, {}, r"`beliefs` must have shape \(G, 2\), one mass per region of ClassRegions"),
            (torch.tensor([0.2, 0.8]), 1.0, {}, r"`beliefs` must have shape \(G, 2\)"),
            ([], 1.0, {}, "`beliefs` must hold at least one group"),
            ("ab", 1.0, {}, r"`beliefs` must be a tensor of shape \(G, 2\), a list or a mapping"),
            (["ab"], 1.0, {}, "`beliefs` must be beliefs or numbers, but group 0 has 'ab'"),
            ({3: [0.5, 0.5]}, 1.0, {}, "integer names in `beliefs` must be the groups 0 to 0"),
            ({0: [0.5, 0.5], "b": [0.5, 0.5]}, 1.0, {}, "integer names in `beliefs` must be the groups 0 to 1"),
            ([[0.5, 0.5]], 0.0, {}, "`concentration` must be finite and greater than 0, but got 0"),
            ([[0.5, 0.5]], [1.0, 2.0], {}, "`concentration` must be one number, or 1, one per group"),
            ([[0.5, 0.5]], "many", {}, "`concentration` must be a number, or one per group, but got 'many'"),
            (
                {"a": [0.5, 0.5]},
                {"b": 1.0},
                {},
                "`concentration` must have the names of `beliefs`, but 'a' is missing$",
            ),
            ({"a": [0.5, 0.5]}, {"a": 1.0, "b": 1.0}, {}, "but has 'b', which is none of them$"),
            ([[0.5, 0.5]], 1.0, {"sizes": [-1]}, "`sizes` must be finite and at least 0, but got -1"),
            ([[0.5, 0.5]], 1.0, {"form": "poisson"}, "`form` must be one of"),
            ([[0.5, 0.5]], 1.0, {"name": ""}, "`name` must be a non-empty string"),
            ([[0.5, 0.5]], 1.0, {"exact_up_to": -1}, "`exact_up_to` must be a whole number of at least 0"),
        ],
    )
    def test_refused(self, beliefs, concentration, options, message):
        with pytest.raises(ValueError, match=message):
            selbo.GroupedSummary(selbo.ClassRegions(2), beliefs, concentration, **options)

    def test_class_fractions_need_regions_of_classes(self):
        with pytest.raises(ValueError, match=r"to state class fractions use selbo.ClassRegions\(3\), or selbo.expect"):
            selbo.GroupedSummary(selbo.CornerShells(3), torch.full((4, 3), 1 / 3), 10.0)

    @pytest.mark.parametrize(
        ("groups", "message"),
        [
            (torch.tensor([0.0, 1.0]), "`groups` must be a tensor of whole numbers, but got dtype torch.float32"),
            ([0, 1], "`groups` must be a tensor of whole numbers, but got list"),
            (torch.tensor([0, 1, 1]), r"`groups` must have shape \(2,\), one group per prediction, but got \(3,\)"),
            (torch.tensor([0, 2]), "`groups` must be from 0 to 1, or -1 for none, but got 2"),
            (torch.tensor([-2, 1]), "`groups` must be from 0 to 1, or -1 for none, but got -2"),
        ],
    )
    def test_groups(self, groups, message):
        summary = selbo.GroupedSummary(selbo.ClassRegions(2), fractions(2, 2), 10.0)
        with pytest.raises(ValueError, match=message):
            summary(predictions(2, 2), groups)

    def test_names_are_no_groups(self):
        summary = selbo.GroupedSummary(selbo.ClassRegions(2), {"a": [0.5, 0.5], "b": [0.2, 0.8]}, 10.0)
        with pytest.raises(ValueError, match=r"whole numbers, but got list: pass `summary.index\(names\)`$"):
            summary(predictions(2, 2), ["a", "b"])

    @pytest.mark.parametrize("form", GROUP_FORMS)
    def test_an_empty_batch(self, form):
        summary = selbo.GroupedSummary(selbo.ClassRegions(2), fractions(2, 2), 10.0, form=form)
        empty, groups = torch.empty(0, 2), torch.empty(0, dtype=torch.long)
        with pytest.raises(ValueError, match=r"`log_probs` must not be an empty batch, but got shape \(0, 2\)"):
            summary(empty, groups)

    def test_precision_and_copies(self):
        summary = selbo.GroupedSummary(selbo.ClassRegions(2), fractions(2, 2), 10.0, ema_decay=0.9).half()
        assert {buffer.dtype for buffer in summary.buffers()} == {F64}
        assert torch.equal(copy.deepcopy(summary).s0, summary.s0)


def test_autocast_changes_nothing():
    log_probs = predictions(13, 3).float()
    for form in GROUP_FORMS:
        summary = selbo.GroupedSummary(selbo.ClassRegions(3), fractions(6, 3), 20.0, form=form)
        with torch.autocast("cpu", torch.bfloat16):
            inside = summary(log_probs, GROUPS)
        assert torch.equal(inside, summary(log_probs, GROUPS))


@pytest.mark.parametrize("form", GROUP_FORMS)
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("count", [6, 40])
def test_the_training_path_never_looks_at_a_value(form, classes, count, monkeypatch):
    """Fake tensors have shapes but no values: any Python decision on a value would raise, as in a CUDA graph."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    monkeypatch.setattr("selbo.summary.grouped._is_readable", lambda tensor: False)  # on a CPU looking does no harm
    options = {"form": form, "sizes": [4] * count, "validate": False}
    for decay in (None, 0.9):
        partition = selbo.ClassRegions(classes)
        summary = selbo.GroupedSummary(partition, fractions(count, classes), 20.0, ema_decay=decay, **options)
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            log_probs = mode.from_tensor(predictions(2, 13, classes).requires_grad_())
            groups = mode.from_tensor(GROUPS)
            summary(log_probs, groups).sum().backward()


class TestElicitConcentration:
    @pytest.mark.parametrize(("fraction", "margin"), [(0.52, 0.03), (0.3, 0.05), (0.85, 0.04)])
    @pytest.mark.parametrize("level", [0.95, 0.8])
    def test_the_interval_holds_the_fraction_so_often(self, fraction, margin, level, seed):
        alpha = selbo.elicit_concentration(margin, fraction=fraction, level=level)
        truth = np.random.default_rng(seed).beta(alpha * fraction, alpha * (1 - fraction), 200_000)
        inside = np.mean(np.abs(truth - fraction) < margin)
        assert inside == pytest.approx(level, abs=0.008)  # 0.0009 of chance, and a Beta is nearly Gaussian

    def test_a_poll_has_the_concentration_of_its_people(self, seed):
        """800 people are asked, with no opinion before: what the fraction may be is a Beta distribution."""
        generator = np.random.default_rng(seed)
        truth = generator.uniform(0, 1, 2_000_000)
        fits = truth[generator.binomial(800, truth) == 416]
        alpha = selbo.elicit_concentration(count=800)
        expected = stats.beta(alpha * 0.52, alpha * 0.48).std()
        assert np.std(fits) == pytest.approx(expected, rel=5 / math.sqrt(2 * len(fits)))
        margin = stats.norm.ppf(0.975) * expected
        assert selbo.elicit_concentration(margin, fraction=0.52) == pytest.approx(alpha, rel=1e-9)

    def test_one_per_group(self):
        found = selbo.elicit_concentration([0.03, 0.06], fraction=0.5)
        assert found.tolist() == [selbo.elicit_concentration(each) for each in (0.03, 0.06)]
        summary = selbo.GroupedSummary(selbo.ClassRegions(2), fractions(2, 2), found)
        assert summary.concentration.tolist() == found.tolist()

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({}, "`margin` or `count` must be given, and not both, but got neither$"),
            ({"margin": 0.1, "count": 5}, "`margin` or `count` must be given, and not both, but got both$"),
            ({"margin": "52 % ± 3"}, "`margin` must be a number such as .03, or one per group, but got '52 % ± 3'$"),
            ({"margin": 0.03, "fraction": "52 %"}, "`fraction` must be a number such as .52, .* but got '52 %'$"),
            ({"count": [1, None, "x"]}, "`count` must be a number such as 800, or one per group, but got"),
            ({"margin": 3, "fraction": 0.52}, "informative about the fraction, but got 3: 3 points are 0.03$"),
            ({"margin": 0.03, "fraction": 52}, "`fraction` must lie strictly .* but got 52.0: 52 % is 0.52$"),
            ({"margin": 0.0}, "`margin` must be a finite number greater than 0"),
            ({"margin": 0.99}, "`margin` must be smaller to be informative about the fraction, but got 0.99$"),
            ({"margin": 0.1, "fraction": 1.0}, "`fraction` must lie strictly between 0 and 1"),
            ({"margin": 0.1, "level": 1.0}, "`level` must lie strictly between 0 and 1"),
            ({"count": -1}, "`count` must be a finite number greater than 0"),
        ],
    )
    def test_refused(self, options, message):
        with pytest.raises(ValueError, match=message):
            selbo.elicit_concentration(**options)


@pytest.mark.parametrize("form", GROUP_FORMS)
def test_the_number_of_groups_that_are_not_there_does_not_matter(form, seed):
    """Numbers above 2**15 are sorted in another way."""
    generator = torch.Generator().manual_seed(seed)
    log_probs = torch.randn(2, 30, 3, generator=generator, dtype=F64).log_softmax(-1).requires_grad_()
    few = torch.randint(3, (30,), generator=generator)
    stated = torch.rand(3, 3, generator=generator, dtype=F64) + 0.1
    stated = stated / stated.sum(-1, keepdim=True)
    found = []
    for places, count in ((torch.arange(3), 3), (torch.tensor([39_999, 5, 33_000]), 40_000)):
        beliefs = torch.full((count, 3), 1 / 3, dtype=F64).index_copy(0, places, stated)
        value = selbo.GroupedSummary(selbo.ClassRegions(3), beliefs, 20.0, form=form)(log_probs, places[few])
        found.append((value, *torch.autograd.grad(value.sum(), log_probs)))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_exact_counts_are_not_smoothed(seed):
    """Few draws that miss a class do not rule out that no member has it."""
    generator = torch.Generator().manual_seed(seed)
    log_probs = torch.randn(1200, 10, generator=generator, dtype=F64).mul(2).log_softmax(-1)
    labels = torch.multinomial(log_probs.exp(), 1, generator=generator)[:, 0]
    groups = torch.arange(1200) // 6
    shares = torch.nn.functional.one_hot(labels, 10).double().view(200, 6, 10).mean(1)
    draws = torch.multinomial(shares, 10, replacement=True, generator=generator)
    beliefs = torch.nn.functional.one_hot(draws, 10).double().mean(1)
    plain, smooth = (
        selbo.GroupedSummary(selbo.ClassRegions(10), beliefs, 10.0, form="counts", smoothing=each)
        for each in (0.0, 0.1)
    )
    torch.testing.assert_close(smooth.by_group(log_probs, groups), plain.by_group(log_probs, groups))
    values = [float(smooth((log_probs / t).log_softmax(-1), groups)) for t in (0.5, 1.0, 2.0, 4.0)]
    assert values.index(max(values)) == 1
