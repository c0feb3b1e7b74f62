"""Training with groups: batches of groups, no labels or few, posteriors, checkpoints and loaders."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from unit.training.toys import blobs, network, states_equal, summary

import selbo
from selbo.objectives import Grouped
from selbo.random import derive
from selbo.training import Callback, Checkpoint, GroupBatchSampler, group_order
from selbo.training.batches import TensorBatches, UnlabelledBatches, checksum

N, G = 60, 5
INPUTS, LABELS = blobs(N)
GROUPS = (torch.arange(N) * 7 % 13) % 6 - 1  # five groups of unequal size, and rows without one
FEW = torch.where(torch.arange(N) % 5 == 0, LABELS, -1)


def fractions() -> torch.Tensor:
    return torch.tensor([[1, 2, 3], [3, 2, 1], [1, 1, 1], [4, 1, 1], [1, 1, 4]], dtype=torch.float64) / torch.tensor(
        [[6.0], [6], [3], [6], [6]]
    )


def states(**options) -> selbo.GroupedSummary:
    return selbo.GroupedSummary(selbo.ClassRegions(3), fractions(), 15.0, **options)


class TestOrder:
    @pytest.mark.parametrize("rows", [1, 3, 100])
    def test_every_row_once_and_groups_side_by_side(self, rows, seed):
        order = group_order(GROUPS, rows, generator=torch.Generator().manual_seed(seed))
        assert sorted(order.tolist()) == list(range(N))
        taken = GROUPS[order].tolist()
        for group in range(G):
            size = taken.count(group)
            parts = -(-size // rows)
            runs = sum(1 for at, each in enumerate(taken) if each == group and (at == 0 or taken[at - 1] != group))
            assert runs <= parts  # parts of a group may meet
            if rows == 100:
                assert runs == 1
        if rows == 100:
            alone = [at for at, each in enumerate(taken) if each < 0]
            assert alone != list(range(alone[0], alone[0] + len(alone)))  # rows without a group are strewn

    def test_parts_change_from_epoch_to_epoch(self):
        batches = TensorBatches(INPUTS, None, batch_size=12, seed=1, groups=GROUPS, rows_per_group=4)
        orders = [batches.order(epoch) for epoch in (0, 1)]
        assert not torch.equal(*orders)
        assert torch.equal(batches.order(1), orders[1])
        together = [frozenset(rows.tolist()) for order in orders for rows in order.reshape(-1, 4)]
        assert len(set(together)) == len(together)

    def test_groups_stay_with_their_rows_in_all_processes(self):
        whole = TensorBatches(INPUTS, FEW, batch_size=12, seed=1, groups=GROUPS, rows_per_group=4)
        halves = [
            TensorBatches(INPUTS, FEW, batch_size=12, seed=1, groups=GROUPS, rows_per_group=4, shard=(rank, 2))
            for rank in range(2)
        ]
        for batch, *parts in zip(whole.from_step(3), *(each.from_step(3) for each in halves), strict=False):
            for place in (0, 1, 3):
                assert torch.equal(batch[place], torch.cat([part[place] for part in parts]))
            rows = [int((row == INPUTS).all(1).nonzero()) for row in batch.inputs]
            assert torch.equal(batch.groups, GROUPS[rows])
            assert torch.equal(batch.labels, FEW[rows])
            break

    def test_a_sampler_for_loaders(self):
        generator = torch.Generator().manual_seed(0)
        sampler = GroupBatchSampler(torch.arange(24) // 4, 8, 4, generator=generator)
        assert len(sampler) == len(list(sampler)) == 3
        for rows in sampler:
            assert sorted(torch.bincount(torch.tensor(rows) // 4).tolist())[-2:] == [4, 4]  # two whole groups
        assert GroupBatchSampler(torch.zeros(24).long(), 8).rows_per_group == 2
        with pytest.raises(ValueError, match="`batch_size` must be at most the number of examples, 24, but got 25"):
            GroupBatchSampler(torch.zeros(24).long(), 25)
        with pytest.raises(ValueError, match="`groups` must hold groups as whole numbers"):
            GroupBatchSampler(torch.zeros(24), 8)
        with pytest.raises(ValueError, match="`rows_per_group` must be a whole number of at least 1, but got 0"):
            GroupBatchSampler(torch.zeros(24).long(), 8, 0)


@pytest.mark.parametrize("labels", [None, FEW, LABELS], ids=["none", "few", "all"])
def test_steps_are_those_of_a_loop_by_hand(labels):
    net, by_hand = network(dropout=0.0), network(dropout=0.0)
    objective = selbo.CrossEntropy(N, [states(name="states"), summary()])
    options = {"steps": 12, "batch_size": 16, "seed": 3, "learning_rate": 0.01, "callbacks": ()}
    result = selbo.fit(net, objective, (INPUTS, labels), groups=GROUPS, rows_per_group=4, **options)

    batches = TensorBatches(INPUTS, labels, batch_size=16, seed=3, groups=GROUPS, rows_per_group=4).from_step(0)
    sizes = torch.bincount(GROUPS[GROUPS >= 0], minlength=G)
    objective = selbo.CrossEntropy(N, [states(name="states", sizes=sizes), summary()])
    optimizer = torch.optim.Adam(by_hand.parameters(), lr=0.01, fused=True)
    by_hand.train()
    for step in range(12):
        inputs, classes, _, groups = next(batches)
        optimizer.zero_grad()
        terms = objective(by_hand, inputs, classes, groups=groups, step=step, steps=12)
        terms.loss.backward()
        optimizer.step()
        assert result.curve[step, 0].item() == pytest.approx(terms.loss.item(), rel=1e-6)
    assert states_equal(net, by_hand)


def test_unlabelled_groups():
    """All labels in each batch, and groups of many other inputs."""
    far, groups = blobs(45, seed=4)[0], torch.arange(45) % G
    grouped = Grouped(far, groups)
    net, by_hand = network(dropout=0.0), network(dropout=0.0)
    options = {"steps": 5, "batch_size": 16, "seed": 3, "callbacks": (), "unlabelled_batch_size": 20}
    result = selbo.fit(
        net, selbo.CrossEntropy(N, states()), (INPUTS, LABELS), unlabelled=grouped, rows_per_group=3, **options
    )
    objective = selbo.CrossEntropy(N, states(sizes=[9] * G))
    labelled = TensorBatches(INPUTS, LABELS, batch_size=16, seed=3).from_step(0)
    own = {"batch_size": 20, "device": torch.device("cpu"), "seed": 3, "rows_per_group": 3}
    others = UnlabelledBatches(objective.assign(grouped), **own).from_step(0)
    first = TensorBatches(
        far, None, batch_size=20, seed=derive(3, "unlabelled"), groups=groups, rows_per_group=3
    ).from_step(0)
    optimizer = torch.optim.Adam(by_hand.parameters(), lr=0.001, fused=True)
    by_hand.train()
    for step in range(5):
        batch, other, again = next(labelled), next(others), next(first)
        assert torch.equal(other.tensors[0].groups, again.groups)
        optimizer.zero_grad()
        terms = objective(by_hand, batch.inputs, batch.labels, unlabelled=other, step=step, steps=5)
        terms.loss.backward()
        optimizer.step()
        assert result.curve[step, 0].item() == pytest.approx(terms.loss.item(), rel=1e-6)


class Stop(Exception):  # noqa: N818
    """Ends a session."""


def test_a_run_resumes_with_the_averages_of_its_groups(tmp_path):
    class Interrupt(Callback):
        def on_progress(self, step, terms):
            if step >= 9:
                raise Stop

    def train(net, path, *callbacks, decay=0.9, rows=4):
        objective = selbo.CrossEntropy(N, states(ema_decay=decay))
        kept = Checkpoint(path, every=0.0)
        options = {"groups": GROUPS, "rows_per_group": rows, "steps": 12, "batch_size": 16, "log_every": 3}
        result = selbo.fit(net, objective, INPUTS, checkpoint=kept, callbacks=callbacks, **options)
        return result, objective.state_dict()

    straight, broken, again = network(), network(), network(seed=4)
    _, expected = train(straight, tmp_path / "straight")
    with pytest.raises(Stop):
        train(broken, tmp_path / "run", Interrupt())
    result, found = train(again, tmp_path / "run")
    assert result.resumed_from == 6
    assert states_equal(straight, again)
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    with pytest.raises(ValueError, match="belongs to another run: its rows_per_group is 4, here it is 5"):
        train(network(), tmp_path / "run", rows=5)


def test_a_loader_with_groups():
    net, sizes = network(), torch.bincount(GROUPS[GROUPS >= 0], minlength=G)
    dataset = TensorDataset(INPUTS, FEW, GROUPS)
    sampler = GroupBatchSampler(GROUPS, 16, generator=torch.Generator().manual_seed(0))
    loader = DataLoader(dataset, batch_sampler=sampler)
    options = {"steps": 8, "callbacks": ()}
    result = selbo.fit(net, selbo.CrossEntropy(N, states(sizes=sizes)), loader, **options)
    assert result.curve.isfinite().all()
    again = network()
    selbo.fit(again, selbo.CrossEntropy(N, states(sizes=sizes)), loader, **options)
    assert states_equal(net, again)
    with pytest.raises(ValueError, match=r"`sizes` must be given to selbo\.GroupedSummary to train with a DataLoader"):
        selbo.fit(net, selbo.CrossEntropy(N, states()), loader, **options)
    with pytest.raises(ValueError, match="`groups` must be given with `train` as tensors; a DataLoader gives"):
        selbo.fit(net, selbo.CrossEntropy(N, states(sizes=sizes)), loader, groups=GROUPS, **options)


def test_a_belief_is_limited_by_labels_and_groups():
    """Of 60 examples 12 have labels, and 5 groups are worth 15 each."""
    seen = []

    def train(*beliefs, labels=FEW):
        objective = selbo.CrossEntropy(N, list(beliefs))
        last = objective.terms[-1].summary

        class Look(Callback):
            def on_progress(self, step, terms):
                seen.append(last.concentration.item())

        selbo.fit(network(), objective, (INPUTS, labels), groups=GROUPS, steps=1, callbacks=[Look()])
        return seen[-1]

    def bold():
        return selbo.SummaryLikelihood(selbo.ClassRegions(3), selbo.Masses([0.2, 0.3, 0.5]), 500.0)

    with pytest.warns(UserWarning, match="the concentration 500 exceeds the number of labels, so 87 is used"):
        assert train(states(name="states"), bold()) == 87
    with pytest.warns(UserWarning, match="so 12 is used"):
        assert train(bold()) == 12
    with pytest.warns(UserWarning, match="so 60 is used"):
        assert train(bold(), labels=LABELS) == 60
    assert train(bold(), labels=None) == 500


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "the term 'log_summary' needs the group of each input"),
        ({"groups": GROUPS[:5]}, r"`groups` must have shape \(60,\), one group per input, but got \(5,\)"),
        ({"groups": GROUPS + 1}, "`groups` must be from 0 to 4, or -1 for none, but got 5"),
        ({"groups": GROUPS, "rows_per_group": 0}, "`rows_per_group` must be a whole number of at least 1, but got 0"),
        ({"groups": GROUPS, "val": (INPUTS, None)}, "`val` must have labels, but has none"),
    ],
)
def test_refused(options, message):
    with pytest.raises(ValueError, match=message):
        selbo.fit(network(), selbo.CrossEntropy(N, states()), INPUTS, steps=1, **options)


def test_without_labels_there_must_be_something_to_learn_from():
    with pytest.raises(ValueError, match="`labels` must be given, because CrossEntropy has no further term here"):
        selbo.fit(network(), selbo.CrossEntropy(N), INPUTS, steps=1)


def test_the_ways_to_pass_no_labels_are_one():
    nets = [network() for _ in range(4)]
    given = [INPUTS, (INPUTS, None), TensorDataset(INPUTS), (INPUTS, torch.full((N,), -1))]
    for net, train in zip(nets, given, strict=True):
        selbo.fit(net, selbo.CrossEntropy(N, states()), train, groups=GROUPS, steps=3, callbacks=())
    assert all(states_equal(nets[0], each) for each in nets[1:])


def test_checksums_tell_groups_apart():
    sums = {checksum(INPUTS, None), checksum(INPUTS, LABELS), checksum(INPUTS, LABELS, None, GROUPS)}
    sums |= {checksum(INPUTS, LABELS, None, GROUPS.roll(1)), checksum(INPUTS, FEW)}
    assert len(sums) == 5


def test_a_function_selects_weights_without_labels():
    found = []

    def scored(log_probs, labels):
        assert labels is None
        found.append(-abs(len(found) - 3.0))  # the fourth validation is the best
        return found[-1]

    result = selbo.fit(
        network(),
        selbo.CrossEntropy(N, states()),
        INPUTS,
        (INPUTS, None),
        groups=GROUPS,
        steps=8,
        validation=selbo.training.Validation(every=1, select=scored),
        callbacks=(),
    )
    assert len(found) == 8
    assert result.selected_step == 4
    assert result.val_nll == 0.0
