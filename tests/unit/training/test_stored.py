"""Stored rows: what was written is read, every epoch has every row once, and runs resume at any step."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
import torch

import selbo
from selbo.training import stored
from selbo.training.batches import TensorBatches
from selbo.training.stored import RowStore, RowWriter, StoredBatches

CPU = torch.device("cpu")
FLAGS = [False, True, False, True, False]


@pytest.fixture
def rows(seed):
    draws = np.random.default_rng(seed)
    inputs = draws.normal(size=(1037, 5)).astype(np.float32)
    inputs[:, [1, 3]] = inputs[:, [1, 3]] > 0
    return inputs, (inputs[:, 0] + inputs[:, 1] > 0.5).astype(np.int64)


@pytest.fixture
def store(tmp_path, rows):
    with RowWriter(tmp_path, FLAGS) as writer:
        for first in range(0, 1037, 200):
            writer.write(rows[0][first : first + 200], rows[1][first : first + 200])
    return RowStore(tmp_path, FLAGS)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(stored, "ROWS_PER_BLOCK", 50)
    monkeypatch.setattr(stored, "SHUFFLED_ROWS", 200)


def test_what_was_written_is_read(store, rows):
    inputs, labels = store.read(0, 5000)
    np.testing.assert_array_equal(inputs, rows[0])
    np.testing.assert_array_equal(labels, rows[1])
    np.testing.assert_array_equal(store.labels(), rows[1])
    inputs, labels = store.read(1000, 100)
    np.testing.assert_array_equal(inputs, rows[0][1000:])
    some = np.array([3, 500, 1036])
    np.testing.assert_array_equal(store.rows(some)[0], rows[0][some])
    np.testing.assert_array_equal(store.rows(some)[1], rows[1][some])


@pytest.mark.parametrize("flags", [[False] * 2, [True] * 2])
def test_inputs_of_one_kind(tmp_path, flags):
    values = np.array([[0, 1], [1, 1], [1, 0]])
    with RowWriter(tmp_path, flags) as writer:
        writer.write(values, np.array([0, 1, 2]))
    found = RowStore(tmp_path, flags, dtype=torch.float64)
    np.testing.assert_array_equal(found.read(1, 9)[0], values[1:])
    np.testing.assert_array_equal(found.rows(np.array([2, 0]))[0], values[[2, 0]])
    assert found.read(0, 1)[0].dtype is torch.float64


def test_a_store_that_was_cut_is_refused(store):
    with (store.folder / stored.NUMBERS_FILE).open("ab") as file:
        file.write(b"1234")
    with pytest.raises(ValueError, match="the stored training rows are not complete"):
        RowStore(store.folder, FLAGS)


def test_a_small_store_has_the_batches_of_tensors(store, rows, seed):
    ours = StoredBatches(store, batch_size=64, seed=seed, device=CPU).from_step(0)
    whole = TensorBatches(*map(torch.from_numpy, rows), batch_size=64, seed=seed).from_step(0)
    for one, other in islice(zip(ours, whole, strict=False), 40):
        assert torch.equal(one.inputs, other.inputs)
        assert torch.equal(one.labels, other.labels)


def rows_from(batches, step):
    """The rows of an epoch, as tuples, from a step on."""
    return [tuple(row) for each in islice(batches.from_step(step), batches.per_epoch) for row in each.inputs.tolist()]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("size", [20, 33, 300])
def test_an_epoch_has_no_row_twice_and_few_are_left_out(store, size, seed):
    batches = StoredBatches(store, batch_size=size, seed=seed, device=CPU)
    first, second = (rows_from(batches, k * batches.per_epoch) for k in (0, 1))
    assert len(first) == len(set(first)) == batches.per_epoch * size
    assert len(first) > 1037 - len(batches.ends) * size
    assert first != second


@pytest.mark.usefixtures("small_blocks")
def test_rows_are_mixed(store, rows, seed):
    """A batch holds rows of several blocks, in an order that has nothing to do with the file."""
    place = {tuple(row): k for k, row in enumerate(rows[0].tolist())}
    batches = StoredBatches(store, batch_size=20, seed=seed, device=CPU)
    order = [place[row] for row in rows_from(batches, 0)]
    assert all(len({k // 50 for k in order[first : first + 20]}) > 1 for first in range(0, len(order), 20))
    assert abs(np.corrcoef(order, np.arange(len(order)))[0, 1]) < 0.9


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("step", [1, 9, 10, 49, 50, 77])
def test_batches_from_any_step(store, step, seed):
    batches = StoredBatches(store, batch_size=20, seed=seed, device=CPU)
    *_, expected = islice(batches.from_step(0), step + 1)
    found = next(batches.from_step(step))
    assert torch.equal(found.inputs, expected.inputs)
    assert torch.equal(found.labels, expected.labels)


def test_checksum_sees_inputs_and_labels(store, tmp_path, rows):
    def checksum_of(inputs, labels):
        folder = tmp_path / "other"
        folder.mkdir(exist_ok=True)
        with RowWriter(folder, FLAGS) as writer:
            writer.write(inputs, labels)
        return StoredBatches(RowStore(folder, FLAGS), batch_size=20, seed=0, device=CPU).checksum()

    own = StoredBatches(store, batch_size=20, seed=0, device=CPU).checksum()
    assert checksum_of(*rows) == own
    assert checksum_of(rows[0] + 1, rows[1]) != own
    assert checksum_of(rows[0], 1 - rows[1]) != own
    assert checksum_of(rows[0][:-1], rows[1][:-1]) != own


def test_rows_that_are_not_finite_are_named(tmp_path, rows):
    inputs = rows[0].copy()
    inputs[700, 2] = np.nan
    with RowWriter(tmp_path, FLAGS) as writer:
        writer.write(inputs, rows[1])
    batches = StoredBatches(RowStore(tmp_path, FLAGS), batch_size=20, seed=0, device=CPU)
    assert "row 700 (1 of 1037 rows)" in batches.not_finite()


# --- training ---


def trained(data, *, hidden=(7,), engine="auto", **options):
    network = selbo.models.MLP((5, *hidden, 2), generator=torch.Generator().manual_seed(1))
    options = {"steps": 60, "batch_size": 32, "callbacks": [], "engine": engine, **options}
    return network, selbo.fit(network, selbo.CrossEntropy(num_data=1037), data, **options)


def weights_of(network):
    return torch.cat([each.detach().flatten() for each in network.parameters()])


@pytest.mark.parametrize("hidden", [(), (7,), (6, 4)])
def test_the_step_that_is_written_out_is_that_of_autograd(store, rows, hidden, seed):
    network, found = trained(store, hidden=hidden, seed=seed)
    other, eager = trained(store, hidden=hidden, engine="eager", seed=seed)
    assert found.engine.startswith("written out")
    assert eager.engine.startswith("eager")
    np.testing.assert_allclose(found.curve[:, 0], eager.curve[:, 0], rtol=2e-3)
    np.testing.assert_allclose(found.curve[:10], eager.curve[:10], rtol=1e-5)
    torch.testing.assert_close(weights_of(network), weights_of(other), rtol=0.01, atol=0.005)
    memory, whole = trained(tuple(map(torch.from_numpy, rows)), hidden=hidden, seed=seed)
    assert whole.engine.startswith("eager")
    torch.testing.assert_close(weights_of(memory), weights_of(other), rtol=0, atol=0)


class KilledError(Exception):
    pass


def kill_at(step):
    def listen(record):
        if record["step"] >= step:
            raise KilledError

    return listen


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("engine", ["auto", "eager"])
def test_a_killed_run_resumes_as_if_nothing_had_happened(store, tmp_path, engine, seed):
    network, whole = trained(store, seed=seed, engine=engine, log_every=10)
    kept = selbo.training.Checkpoint(tmp_path / "run.safetensors", every=0.0)
    for step in (20, 40):
        with pytest.raises(KilledError):
            trained(store, seed=seed, engine=engine, log_every=10, checkpoint=kept, callbacks=[kill_at(step)])
    other, found = trained(store, seed=seed, engine=engine, log_every=10, checkpoint=kept)
    assert found.resumed_from > 0
    assert torch.equal(weights_of(network), weights_of(other))
    assert torch.equal(whole.curve, found.curve)


def test_other_runs_are_not_written_out(store, seed):
    assert trained(store, optimizer="sgd")[1].engine.startswith("eager")
    assert trained(store, optimizer=selbo.training.Optimizer("adam", weight_decay=0.1))[1].engine.startswith("eager")
    summary = selbo.SummaryLikelihood(selbo.ScoreBins.equal(5), selbo.Beta(1, 1), concentration=10.0)
    network = selbo.models.MLP((5, 2), generator=torch.Generator().manual_seed(1))
    found = selbo.fit(network, selbo.CrossEntropy(1037, summary), store, steps=3, callbacks=[])
    assert found.engine.startswith("eager")
    network = selbo.models.MLP((5, 4, 2), dropout=0.5, generator=torch.Generator().manual_seed(1))
    assert selbo.fit(network, selbo.CrossEntropy(1037), store, steps=3, callbacks=[]).engine.startswith("eager")


def test_groups_need_tensors(store):
    with pytest.raises(ValueError, match="`groups` must be given with `train` as tensors, but it is a store of rows"):
        trained(store, groups=torch.zeros(1037, dtype=torch.long))
