"""A monitor sees what summaries see, changes nothing in one process, and leaves no trace."""

import copy
import pickle

import pytest
import torch
from torch import nn
from unit.training.toys import blobs, network, summary

import selbo
from selbo.integrations.monitor import Snapshot, SummaryMonitor
from selbo.random import generator_for


def predictions(seed, *shape):
    return (2 * torch.randn(*shape, 3, generator=torch.Generator().manual_seed(seed))).log_softmax(-1)


def test_it_has_the_histogram_and_the_value_of_all_batches_since(seed):
    term = summary()
    first, second, third = (predictions(seed + i, size) for i, size in enumerate((5, 11, 7)))
    with SummaryMonitor(term) as monitor:
        values = [term(each) for each in (first, second)]
        snapshot = monitor.take()["summary"]
        term(third)
        after = monitor.take()["summary"]
        assert monitor.take() == {}
    # in their sizes: the histogram of all predictions together
    torch.testing.assert_close(
        snapshot.histogram, term.histogram(torch.cat([first, second])).double(), rtol=1e-6, atol=0
    )
    assert snapshot.log_summary == pytest.approx(float(sum(values)) / 2)
    torch.testing.assert_close(after.histogram, term.histogram(third).double(), rtol=1e-6, atol=0)
    assert torch.equal(snapshot.s0, term.s0)


def test_draws_are_averaged(seed):
    term, log_probs = summary(), predictions(seed, 4, 9)
    with SummaryMonitor(term) as monitor:
        value = term(log_probs)
    snapshot = monitor.take()["summary"]
    torch.testing.assert_close(snapshot.histogram, term.histogram(log_probs).mean(0).double(), rtol=1e-6, atol=0)
    assert snapshot.log_summary == pytest.approx(float(value.mean()))


def test_it_changes_neither_value_nor_gradient(seed):
    term, log_probs = summary(), predictions(seed, 9)
    alone, watched = log_probs.clone().requires_grad_(), log_probs.clone().requires_grad_()
    expected = term(alone)
    expected.backward()
    with SummaryMonitor(term):
        value = term(watched)
        value.backward()
    assert torch.equal(value, expected)
    assert torch.equal(watched.grad, alone.grad)


def test_what_is_seen_has_no_graph(seed):
    term, log_probs = summary(), predictions(seed, 9).requires_grad_()
    with SummaryMonitor(term) as monitor:
        term(log_probs)
    assert not monitor.take()["summary"].histogram.requires_grad


def test_it_looks_at_training_alone(seed):
    term = summary()
    with SummaryMonitor(term) as monitor:
        term.eval()
        term(predictions(seed, 5))
        assert monitor.take() == {}


def test_it_leaves_everything_as_it_was(seed):
    def double(counts):
        return 2 * counts

    term, other = summary(), summary()
    other.reductions.append(double)
    both = nn.ModuleDict({"one": term, "other": other})

    def interrupted():
        with SummaryMonitor(both):
            assert len(term.reductions) == 1
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert term.reductions == []
    assert other.reductions == [double]
    assert not term._forward_hooks
    assert not other._forward_hooks


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 0, 1), (2, 1, 0)])
def test_watches_on_one_summary_may_be_closed_in_any_order(seed, order):
    def double(counts):
        return 2 * counts

    term, log_probs = summary(), predictions(seed, 6)
    term.reductions.append(double)
    expected = term(log_probs)
    monitors = [SummaryMonitor(term) for _ in order]
    open_ones = set(order)
    for number in order:
        assert torch.equal(term(log_probs), expected)
        assert {i for i, each in enumerate(monitors) if each.take()} == open_ones
        monitors[number].close()
        monitors[number].close()  # once more does nothing
        open_ones.remove(number)
    assert term.reductions == [double]
    assert not term._forward_hooks


def test_a_reduction_that_came_later_is_left_alone(seed):
    term = summary()
    monitor = SummaryMonitor(term)
    later = torch.square
    term.reductions.append(later)
    monitor.close()
    assert term.reductions == [later]
    term(predictions(seed, 6))
    assert monitor.take() == {}


def test_a_reduction_of_the_users_own_is_kept(seed):
    calls, term = [], summary()
    term.reductions.append(lambda counts: calls.append(1) or counts.flip(-1))
    log_probs = predictions(seed, 6)
    with SummaryMonitor(term) as monitor:
        term(log_probs)
        term.eval()
        term(log_probs)
    assert len(calls) == 2
    expected = summary().histogram(log_probs).flip(-1).double()
    torch.testing.assert_close(monitor.take()["summary"].histogram, expected, rtol=1e-6, atol=0)


def test_summaries_are_found_wherever_they_are(seed):
    objective = selbo.SummaryELBO(summary(), num_data=10)
    inputs, labels = blobs(10)
    with SummaryMonitor(objective) as monitor:
        terms = objective(network(bayesian=True, dropout=0.0), inputs, labels, generator=generator_for(seed))
    assert monitor.take()["summary"].log_summary == pytest.approx(terms.log_summary.item())
    many = nn.ModuleDict({"site": summary(), "other": objective})
    with SummaryMonitor(many) as monitor:
        many["site"](predictions(seed, 5))
        assert set(monitor.take()) == {"site"}
    assert set(monitor.summaries) == {"site", "other.terms.0.summary"}
    named = [selbo.SummaryLikelihood(selbo.ClassRegions(3), selbo.Uniform(), name=name) for name in ("north", "south")]
    with SummaryMonitor(selbo.CrossEntropy(10, named)) as monitor:
        assert set(monitor.summaries) == {"summary/north", "summary/south"}
        named[1](predictions(seed, 5))
        assert set(monitor.take()["summary/south"].scalars("summary/south")) == {
            "log_summary/south",
            "summary/south_distance",
        }
    twice = nn.ModuleDict({"a": named[0], "b": selbo.CrossEntropy(10, copy.deepcopy(named[0]))})
    with SummaryMonitor(twice) as monitor:
        assert set(monitor.summaries) == {"a", "b.terms.0.summary"}


def test_a_module_without_a_summary_is_refused():
    with pytest.raises(ValueError, match=r"`module` must hold a selbo\.SummaryLikelihood as an attribute, but Flatten"):
        SummaryMonitor(nn.Flatten())


def test_a_watched_summary_can_be_copied_and_pickled(seed):
    term = summary()
    with SummaryMonitor(term):
        copied = [copy.deepcopy(term), pickle.loads(pickle.dumps(term))]
        for each in copied:
            assert torch.equal(each(predictions(seed, 5)), term(predictions(seed, 5)))


def test_distance_is_total_variation_and_names_follow_the_summary():
    snapshot = Snapshot(torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.2, 0.5, 0.3]), log_summary=-1.5)
    assert snapshot.distance == pytest.approx(0.3)
    assert snapshot.scalars() == {"log_summary": -1.5, "summary_distance": snapshot.distance}
    assert set(snapshot.scalars("site")) == {"log_site", "site_distance"}
    assert set(Snapshot(snapshot.histogram, snapshot.s0).scalars()) == {"summary_distance"}


@pytest.mark.parametrize("announced", ["1", "2"])
def test_groups_are_summed_where_several_processes_are_announced_and_left_as_they_were(announced, monkeypatch):
    """Nobody has joined yet, so that nothing is summed; the reduction is there, because it may happen later."""
    monkeypatch.setenv("WORLD_SIZE", announced)
    groups = selbo.GroupedSummary(selbo.ClassRegions(3), torch.full((4, 3), 1 / 3), 20.0)
    log_probs, which = predictions(0, 9), torch.arange(9) % 4
    expected = groups(log_probs, which)
    with SummaryMonitor(groups) as monitor:
        assert len(groups.reductions) == int(announced) - 1
        torch.testing.assert_close(groups(log_probs, which), expected)
        with SummaryMonitor(groups, gather=False):
            assert len(groups.reductions) == int(announced) - 1
    assert groups.reductions == []
    assert monitor.take() == {}
