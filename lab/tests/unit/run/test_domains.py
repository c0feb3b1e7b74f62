"""Two places: fractions as asked for, parts that share no example, and draws that depend on data and seed alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from selbo_lab.data.dataset import LabelledData
from selbo_lab.run import domains, tasks
from selbo_lab.studies.run_spec import DataSpec, EvaluationSpec

CASE = DataSpec("sst", labels=40, label_fractions=(0.9, 0.1), use_fractions=(0.5, 0.5), unlabelled=60, val_size=20)


def part(name: str, count: int, start: int) -> LabelledData:
    """Every example is known by its first feature; class 1 is a third."""
    numbers = torch.arange(start, start + count)
    inputs = torch.stack([numbers.float(), (numbers % 7).float()], 1)
    labels = (numbers % 3 == 0).long()
    return LabelledData(name, inputs, labels, ("a", "b"), "made up", "none")


PARTS = (part("train", 300, 0), part("val", 120, 1000), part("test", 150, 2000))


def names(data: LabelledData) -> set[float]:
    return set(data.inputs[:, 0].tolist())


def test_counts_are_whole_numbers_of_the_right_sum(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for size in (0, 1, 7, 100, 999):
        shares = torch.rand(5, generator=generator, dtype=torch.float64) + 0.01
        shares = shares / shares.sum()
        counts = domains.round_counts(shares.tolist(), size)
        assert sum(counts) == size
        assert all(abs(count - size * share) < 1 for count, share in zip(counts, shares.tolist(), strict=True))


def test_parts_have_the_fractions_of_their_place() -> None:
    found = domains.split_places(CASE, *PARTS, seed=0)
    assert found.train.class_counts == (36, 4)
    assert found.val.class_counts == (18, 2)
    assert found.unlabelled.class_counts == (30, 30)
    assert found.use.class_counts == (50, 50)  # of 100 and 50
    assert found.test.class_counts == (100, 11)
    whole = domains.split_places(replace(CASE, val_size=0, unlabelled=0), *PARTS, seed=0)
    assert whole.val.class_counts == (79, 9)  # 88 of 80 and 40
    assert whole.unlabelled.class_counts == (96, 96)  # 100 of class 1, 4 of them labelled


def test_no_example_is_in_two_parts(seed: int) -> None:
    found = domains.split_places(replace(CASE, unlabelled=0), *PARTS, seed=seed)
    train, unlabelled = names(found.train), names(found.unlabelled)
    assert len(train) == 40
    assert not train & unlabelled
    assert train | unlabelled <= names(PARTS[0])
    assert names(found.val) <= names(PARTS[1])
    assert names(found.test) | names(found.use) <= names(PARTS[2])
    for each in found:
        number = each.inputs[:, 0].long()
        assert torch.equal(each.labels, (number % 3 == 0).long()), "each input with its label"


def test_the_seed_draws_all_but_the_test_sets() -> None:
    one, again, other = (domains.split_places(CASE, *PARTS, seed=seed) for seed in (1, 1, 2))
    for name in one._fields:
        assert getattr(one, name).checksum == getattr(again, name).checksum
        same = getattr(one, name).checksum == getattr(other, name).checksum
        assert same == (name in {"test", "use"})


def test_labelled_examples_do_not_depend_on_the_place_of_use() -> None:
    noisy = replace(CASE, use_noise=0.5, use_fractions=(0.2, 0.8), unlabelled=10)
    one, other = (domains.split_places(case, *PARTS, seed=0) for case in (CASE, noisy))
    for name in ("train", "val", "test"):
        assert getattr(one, name).checksum == getattr(other, name).checksum


def test_noise_is_at_the_place_of_use_alone() -> None:
    found = domains.split_places(replace(CASE, use_noise=0.25), *PARTS, seed=0)
    assert names(found.train) <= names(PARTS[0])
    assert names(found.test) <= names(PARTS[2])
    for data, whole in ((found.use, PARTS[2]), (found.unlabelled, PARTS[0])):
        assert not names(data) & names(whole)
        nearest = (data.inputs[:, 0] / 0.75).round()  # the noise is far smaller than the distance of two examples
        assert ((data.inputs[:, 0] - 0.75 * nearest).abs() < 1.5).all()


def test_without_fractions_examples_come_as_they_are() -> None:
    found = domains.split_places(DataSpec("sst", labels=100), *PARTS, seed=0)
    assert len(found.train) == 100
    assert len(found.unlabelled) == 200
    assert names(found.use) == names(found.test) == names(PARTS[2])


def test_features_are_standardised_by_the_training_part() -> None:
    found = domains.split_places(DataSpec("sst", labels=100, standardised=True), *PARTS, seed=0)
    together = torch.cat([found.train.inputs, found.unlabelled.inputs])
    torch.testing.assert_close(together.mean(0), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(together.std(0), torch.ones(2))
    assert found.test.inputs[:, 0].mean() > 10  # numbers from 2000 on


def test_more_labels_than_there_are_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"`labels` must be at most 111 to have .* but got 112"):
        domains.split_places(replace(CASE, label_fractions=(0.1, 0.9), labels=112), *PARTS, seed=0)
    with pytest.raises(ValueError, match="`labels` must be at most 300"):
        domains.split_places(DataSpec("sst", labels=301), *PARTS, seed=0)


def test_a_place_of_use_needs_labels() -> None:
    with pytest.raises(ValueError, match="`labels` must be given"):
        DataSpec("sst", use_noise=0.5)
    with pytest.raises(ValueError, match="`use_fractions` must sum to 1"):
        DataSpec("sst", labels=5, use_fractions=(0.5, 0.6))


@pytest.mark.parametrize(("name", "corruption"), [("mnist35", "fog"), ("cifar10", "fog 3")])
def test_images_are_corrupted_at_the_place_of_use(name: str, corruption: str) -> None:
    data = DataSpec(name, generated=True, labels=16, unlabelled=16)
    clean, foggy = (
        tasks.build_task(replace(data, use_corruption=each), EvaluationSpec(), seed=0) for each in ("", corruption)
    )
    assert clean.use is not None
    assert foggy.use is not None
    assert foggy.unlabelled is not None
    assert torch.equal(clean.train.inputs, foggy.train.inputs)
    assert torch.equal(clean.use.labels, foggy.use.labels)
    assert not torch.equal(clean.use.inputs, foggy.use.inputs)
    assert not torch.equal(clean.unlabelled.inputs, foggy.unlabelled.inputs)


def test_corrupted_parts_are_made_before_they_are_needed() -> None:
    data = DataSpec("cifar10", labels=16, use_corruption="fog 3")
    made = tasks.generated_sets(data, EvaluationSpec(test=False))
    assert [each.name for each in made] == ["cifar10-train-fog-3-0", "cifar10-test-fog-3-0"]
    assert tasks.generated_sets(replace(data, use_corruption=""), EvaluationSpec()) == []
    assert tasks.generated_sets(replace(data, generated=True), EvaluationSpec()) == []


@pytest.mark.parametrize("name", ["digits", "breast-cancer"])
def test_small_sets_are_split_anew_with_every_seed(name: str) -> None:
    data = DataSpec(name, labels=20)
    one, other = (tasks.build_task(data, EvaluationSpec(), seed=seed) for seed in (0, 1))
    assert len(one.test) == len(other.test) > 100
    assert one.test.checksum != other.test.checksum


def test_a_pool_may_be_drawn_one_by_one() -> None:
    pools = [domains.split_places(replace(CASE, random_pool=True), *PARTS, seed=seed) for seed in range(40)]
    counts = torch.tensor([each.unlabelled.class_counts for each in pools]).double()
    assert (counts.sum(1) == 60).all()
    assert counts[:, 0].mean().item() == pytest.approx(30, abs=3 * 3.9 / 40**0.5)
    assert 2.5 < counts[:, 0].std().item() < 5.5, "binomial: the square root of 15"
    exact = domains.split_places(CASE, *PARTS, seed=0)
    assert names(pools[0].train) == names(exact.train)
    assert not names(pools[0].train) & names(pools[0].unlabelled)
