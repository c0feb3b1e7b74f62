"""Batches: every example once an epoch, the same from any step on, whatever they come from."""

import itertools

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)
from unit.training.toys import Rows

from selbo.nn.compiled import channels_last
from selbo.training.batches import LoaderBatches, TensorBatches, checksum, make_batches, whole_set

CPU = torch.device("cpu")
N = 23


def data():
    return torch.arange(N, dtype=torch.float32).unsqueeze(1), torch.arange(N) % 3


def own(seed=5):
    return torch.Generator().manual_seed(seed)


SOURCES = {
    "tensors": data,
    "TensorDataset": lambda: TensorDataset(*data()),
    "Dataset": lambda: Rows(*data()),
    "noisy Dataset": lambda: Rows(*data(), noise=1.0),
    "DataLoader": lambda: DataLoader(Rows(*data()), batch_size=5, shuffle=True),
    "noisy DataLoader": lambda: DataLoader(Rows(*data(), noise=1.0), batch_size=5, shuffle=True),
    "DataLoader, own generator": lambda: DataLoader(Rows(*data()), batch_size=5, shuffle=True, generator=own()),
    "sampler, own generator": lambda: DataLoader(
        Rows(*data()), batch_size=5, sampler=RandomSampler(range(N), generator=own())
    ),
    "batch sampler": lambda: DataLoader(
        Rows(*data()), batch_sampler=BatchSampler(RandomSampler(range(N), generator=own()), 5, drop_last=False)
    ),
    "weighted sampler": lambda: DataLoader(
        Rows(*data()), batch_size=5, sampler=WeightedRandomSampler(torch.ones(N).tolist(), N)
    ),
    "in order": lambda: DataLoader(Rows(*data()), batch_size=5),
}


def without(*names):
    return [each for each in SOURCES if each not in names]


def make(source, *, seed=0, whole_only=False, batch_size=5):
    with torch.random.fork_rng(devices=[]):  # the noisy ones draw from it
        return make_batches(SOURCES[source](), batch_size=batch_size, device=CPU, seed=seed, whole_only=whole_only)


def take(batches, count, start=0):
    return list(itertools.islice(batches.from_step(start), count))


def same(one, other):
    kept = [(a, b) for a, b in zip(one, other, strict=True) if a is not None or b is not None]
    return len(kept) > 1 and all(torch.equal(a, b) for a, b in kept)


@pytest.mark.parametrize("source", SOURCES)
def test_a_run_that_goes_on_sees_what_an_undisturbed_one_sees(source, seed):
    whole_only = seed % 2 == 0
    straight = take(make(source, seed=seed, whole_only=whole_only), 14)
    for start in (1, 4, 5, 7, 9):
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(start)  # the global state must not matter
            later = take(make(source, seed=seed, whole_only=whole_only), 14 - start, start)
        assert all(same(a, b) for a, b in zip(straight[start:], later, strict=True))


@pytest.mark.parametrize("source", without("weighted sampler", "noisy Dataset", "noisy DataLoader"))
def test_an_epoch_has_every_example_at_most_once_in_an_order_of_its_own(source):
    batches = make(source)
    taken = take(batches, 2 * batches.per_epoch)
    first, second = (
        torch.cat([each.inputs for each in part]).flatten().tolist()
        for part in (taken[: batches.per_epoch], taken[batches.per_epoch :])
    )
    assert len(set(first)) == len(first) == len(second)
    assert (first == second) == (source == "in order")
    for inputs, labels, *_ in taken:
        assert torch.equal(inputs.flatten().long() % 3, labels)
        assert labels.dtype == torch.int64


@pytest.mark.parametrize("source", without("in order"))
def test_another_seed_is_another_order(source):
    assert not same(take(make(source), 1)[0], take(make(source, seed=1), 1)[0])
    assert same(take(make(source), 1)[0], take(make(source), 1)[0])


@pytest.mark.parametrize("source", SOURCES)
def test_the_incomplete_batch_is_dropped_for_a_summary(source):
    batches = make(source, whole_only=True)
    assert batches.per_epoch == N // 5
    assert {len(each.labels) for each in take(batches, 9)} == {5}


@pytest.mark.parametrize("source", without("tensors", "TensorDataset"))
def test_the_incomplete_batch_of_a_loader_stays_otherwise(source):
    batches = make(source)
    assert batches.per_epoch == 5
    assert [len(each.labels) for each in take(batches, 6)] == [5, 5, 5, 5, 3, 5]


def test_a_small_data_set_is_one_batch():
    for whole_only in (True, False):
        assert {len(each.labels) for each in take(make("tensors", batch_size=100, whole_only=whole_only), 3)} == {N}
        assert {len(each.labels) for each in take(make("Dataset", batch_size=100, whole_only=whole_only), 3)} == {N}


def test_processes_share_out_every_batch():
    inputs, labels = data()
    one = TensorBatches(inputs, labels, batch_size=6, seed=3)
    parts = [TensorBatches(inputs, labels, batch_size=6, seed=3, shard=(rank, 3)) for rank in range(3)]
    for whole, *shares in zip(take(one, 7), *(take(each, 7) for each in parts), strict=True):
        assert torch.equal(whole.inputs, torch.cat([each.inputs for each in shares]))


def test_batches_of_processes_are_of_one_size():
    inputs, labels = data()
    with pytest.raises(ValueError, match="`batch_size` must be a multiple of the number of processes, but got 5 for 2"):
        TensorBatches(inputs, labels, batch_size=5, seed=0, shard=(0, 2))
    assert TensorBatches(inputs, labels, batch_size=100, seed=0, shard=(0, 2)).batch_size == 22


def test_the_global_state_is_left_alone():
    loader = DataLoader(Rows(*data(), noise=1.0), batch_size=5, shuffle=True)
    batches = LoaderBatches(loader, device=CPU, seed=0, whole_only=False)
    take(batches, 7)
    batches.checksum()
    whole_set("val", loader, device=CPU, seed=0)  # the guard of the test suite looks


@pytest.mark.parametrize("source", SOURCES)
def test_a_whole_set_is_the_same_each_time(source):
    one, same_again = (whole_set("val", SOURCES[source](), device=CPU, seed=4) for _ in range(2))
    assert same(one, same_again)
    assert len(one.labels) == N
    assert one.labels.dtype == torch.int64


def test_checksums_tell_data_apart():
    inputs, labels = data()
    other = inputs.clone()
    other[7] += 1e-3
    sums = {
        checksum(inputs, labels),
        checksum(inputs, labels.flip(0)),
        checksum(other, labels),
        checksum(inputs.double(), labels),
        checksum(inputs.unsqueeze(1), labels),
        checksum(inputs, labels, torch.ones(N)),
        checksum(inputs, labels, torch.arange(N).float()),
    }
    assert len(sums) == 7
    assert checksum(inputs, labels) == checksum(inputs.clone(), labels.int())


def test_weights_stay_with_their_rows_and_have_mean_one():
    inputs, labels = data()
    batches = make_batches(
        (inputs, labels, 3 * inputs[:, 0]), batch_size=5, device=CPU, seed=0, whole_only=False, shard=(1, 5)
    )
    for batch in take(batches, 9):
        torch.testing.assert_close(batch.weights, batch.inputs[:, 0] / inputs.mean())
    whole = whole_set("val", (inputs, labels, inputs[:, 0]), device=CPU, seed=0)
    assert torch.equal(whole.weights, inputs[:, 0])


class Stream(IterableDataset):
    def __iter__(self):
        return ((torch.zeros(1), 0) for _ in range(7))


class SizedStream(Stream):
    def __len__(self):
        return 12


def test_what_cannot_be_trained_on():
    def build(train, shard=(0, 1)):
        return make_batches(train, batch_size=4, device=CPU, seed=0, whole_only=False, shard=shard)

    inputs, labels = data()
    with pytest.raises(ValueError, match=r"`train` must be \(inputs, labels\), a Dataset or a DataLoader, but got int"):
        build(3)
    with pytest.raises(
        ValueError, match=r"`train` must be a pair of tensors, inputs and labels, or .* but got 4 objects"
    ):
        build((inputs, labels, inputs[:, 0], labels))
    with pytest.raises(ValueError, match=r"`weights` must be a floating-point tensor, but got dtype torch\.int64"):
        build((inputs, labels, labels))
    with pytest.raises(ValueError, match=r"`weights` must have shape \(23,\), one weight per example, but got \(5,\)"):
        build((inputs, labels, torch.ones(5)))
    for bad in (-torch.ones(N), torch.zeros(N), torch.full((N,), torch.inf)):
        with pytest.raises(ValueError, match="the weights of `train` must be finite, at least 0 and not all 0"):
            build((inputs, labels, bad))
    with pytest.raises(ValueError, match=r"`labels` must hold classes as whole numbers, but got torch\.float32"):
        build((inputs, inputs.flatten()))
    with pytest.raises(ValueError, match=r"`labels` must have shape \(B,\)"):
        build((inputs, labels[:-1]))
    with pytest.raises(ValueError, match="`train` must be a DataLoader of known length, but this one streams"):
        build(DataLoader(Stream(), batch_size=4))
    with pytest.raises(
        ValueError, match="`train` must give 3 batches per epoch, which is its length, but it gave fewer"
    ):
        take(build(DataLoader(SizedStream(), batch_size=4)), 9)
    with pytest.raises(ValueError, match="`train` must give pairs of tensors, inputs and labels, but gave Tensor"):
        take(build(DataLoader(inputs, batch_size=4)), 1)
    with pytest.raises(ValueError, match="`train` must give at least one batch per epoch"):
        build(DataLoader(Rows(inputs, labels), batch_size=100, drop_last=True))
    with pytest.raises(ValueError, match="`train` must be tensors or a TensorDataset to train with several processes"):
        build(DataLoader(Rows(inputs, labels), batch_size=4), shard=(0, 2))
    with pytest.raises(ValueError, match="`batch_size` must be a whole number of at least 1, but got 0"):
        make_batches((inputs, labels), batch_size=0, device=CPU, seed=0, whole_only=False)
    with pytest.raises(ValueError, match=r"`val` must be \(inputs, labels\), a Dataset or a DataLoader, but got str"):
        whole_set("val", "test", device=CPU, seed=0)
    with pytest.raises(ValueError, match="`val` must give pairs of tensors, inputs and labels, but gave Tensor"):
        whole_set("val", DataLoader(inputs), device=CPU, seed=0)
    with pytest.raises(ValueError, match="`val` must hold at least one example, but holds none"):
        whole_set("val", Rows(inputs[:0], labels[:0]), device=CPU, seed=0)


@pytest.mark.parametrize("channels", [1, 3])
def test_layers_keep_the_layout_of_images_with_few_channels(channels: int) -> None:
    images = torch.arange(2.0 * channels * 5 * 4).reshape(2, channels, 5, 4)
    seen = channels_last(images)
    torch.testing.assert_close(seen, images, rtol=0, atol=0)
    outputs = torch.nn.functional.conv2d(seen, torch.ones(6, channels, 3, 3))
    assert outputs.is_contiguous(memory_format=torch.channels_last)
