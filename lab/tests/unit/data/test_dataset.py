"""The type all data sets have."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from selbo_lab.data.dataset import LabelledData, Normalisation


def images(**changes: object) -> LabelledData:
    fields = {
        "name": "tiny test",
        "inputs": torch.arange(4 * 2 * 3 * 3, dtype=torch.uint8).reshape(4, 2, 3, 3),
        "labels": torch.tensor([0, 2, 2, 1]),
        "class_names": ("cat", "dog", "emu"),
        "source": "made by hand",
        "licence": "none needed",
        "normalisation": Normalisation(mean=(0.5, 0.25), std=(0.5, 2.0)),
    }
    return LabelledData(**{**fields, **changes})  # type: ignore[arg-type]


def test_bytes_become_normalised_pixels_channel_by_channel() -> None:
    data = images()
    inputs, labels = data.tensors(torch.float64)
    assert labels is data.labels
    for channel, (mean, std) in enumerate(((0.5, 0.5), (0.25, 2.0))):
        expected = (data.inputs[:, channel].double() / 255 - mean) / std
        torch.testing.assert_close(inputs[:, channel], expected)
    assert data.inputs.dtype == torch.uint8  # untouched


def test_without_normalisation_pixels_lie_between_zero_and_one() -> None:
    pixels = images(inputs=torch.tensor([0, 255]).byte().repeat(4, 1), normalisation=None).network_inputs()
    assert pixels.min() == 0
    assert pixels.max() == 1


def test_features_are_left_as_they_are() -> None:
    features = torch.linspace(-3, 300, 8).reshape(4, 2)
    torch.testing.assert_close(images(inputs=features, normalisation=None).network_inputs(), features)


def test_counts_include_absent_classes() -> None:
    data = images(class_names=("cat", "dog", "emu", "yak"))
    assert data.class_counts == (1, 1, 2, 0)
    assert len(data) == 4


def test_rows_follow_the_indices() -> None:
    data = images()
    chosen = data.rows([3, 0], name="two")
    assert chosen.name == "two"
    assert chosen.labels.tolist() == [1, 0]
    torch.testing.assert_close(chosen.inputs[0], data.inputs[3])


def test_checksum_sees_every_entry_and_the_order() -> None:
    data = images()
    assert data.checksum == images().checksum
    changed = data.inputs.clone()
    changed[2, 1, 2, 2] += 1
    others = [images(inputs=changed), images(labels=torch.tensor([0, 2, 1, 2])), data.rows([1, 0, 2, 3])]
    assert data.checksum not in {other.checksum for other in others}
    assert images(name="renamed").checksum == data.checksum


def test_nothing_can_be_set() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign"):
        images().name = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": torch.tensor([0, 1])}, "one label of type int64 for each input"),
        ({"labels": torch.tensor([0, 1, 2, 1], dtype=torch.int32)}, "one label of type int64"),
        ({"labels": torch.tensor([0, 1, 2, 3])}, "labels from 0 to 2, but got 0 to 3"),
        ({"labels": torch.tensor([0, 1, 2, -1])}, "labels from 0 to 2, but got -1 to 2"),
    ],
)
def test_labels_that_do_not_fit_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        images(**changes)


def test_card_says_what_a_user_should_know_in_eighty_columns() -> None:
    data = images(source="a sentence that is long enough to need a second line of the card, " * 2)
    card = str(data)
    assert all(len(line) <= 80 for line in card.splitlines())
    for fact in ("tiny test", "4, each 2 x 3 x 3 bytes", "cat 1, dog 1, emu 2", "none needed", data.checksum[:16]):
        assert fact in card
    assert repr(data) == "<LabelledData tiny test: 4 examples, 3 classes>"
