"""CIFAR-10 and CIFAR-10-C, on tiny files in their formats; that rare classes are chosen by index, images and labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from selbo_lab.data import cifar, cifar_files
from selbo_lab.data.imbalance import imbalanced_indices
from selbo_lab.data.store import MissingData

RECORDS, HELD_OUT = 640, 320
SEVERITIES = 5


def record_images(first: int) -> np.ndarray:
    """Images whose first pixels tell which they are: of 3 x 32 x 32 bytes."""
    images = np.random.default_rng(first).integers(0, 256, (RECORDS, 3, 32, 32)).astype(np.uint8)
    images[:, 0, 0, 0], images[:, 0, 0, 1] = np.divmod(first + np.arange(RECORDS), 256)
    return images


def origin(images: torch.Tensor) -> torch.Tensor:
    return images[:, 0, 0, 0].long() * 256 + images[:, 0, 0, 1].long()


class Tiny:
    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "cifar10").mkdir(parents=True)
        labels = []
        for number, name in enumerate((*cifar_files.TRAIN_FILES, cifar_files.CIFAR_TEST_FILE)):
            each = np.random.default_rng(100 + number).permutation(np.arange(RECORDS) % 10).astype(np.uint8)
            records = np.concatenate([each[:, None], record_images(number * RECORDS).reshape(RECORDS, -1)], axis=1)
            (root / "cifar10" / name).write_bytes(records.tobytes())
            labels.append(torch.from_numpy(each.astype(np.int64)))
        self.train, self.test = torch.cat(labels[:-1]), labels[-1]

    def write_c(self, corruption: str, labels: torch.Tensor | None = None) -> np.ndarray:
        """Severity s of image i: its number in two pixels, then s."""
        (self.root / "cifar10-c").mkdir(exist_ok=True)
        images = np.zeros((SEVERITIES * RECORDS, 32, 32, 3), dtype=np.uint8)
        images[..., 5, 6, 1] = 77
        for severity in range(1, SEVERITIES + 1):
            rows = slice((severity - 1) * RECORDS, severity * RECORDS)
            images[rows, 0, 0, 0], images[rows, 0, 1, 0] = np.divmod(np.arange(RECORDS), 256)
            images[rows, 0, 2, 0] = severity
        np.save(self.root / "cifar10-c" / f"{corruption}.npy", images)
        stored = self.test.repeat(SEVERITIES) if labels is None else labels
        np.save(self.root / "cifar10-c" / "labels.npy", stored.numpy().astype(np.uint8))
        return images


@pytest.fixture
def tiny(data_root: Path, monkeypatch: pytest.MonkeyPatch) -> Tiny:
    monkeypatch.setattr(cifar_files, "RECORDS", RECORDS)
    monkeypatch.setattr(cifar, "VALIDATION_SIZE", HELD_OUT)
    return Tiny(data_root)


@pytest.fixture
def plain_corruption(monkeypatch: pytest.MonkeyPatch) -> None:
    """A corruption that leaves the pixels that tell the images apart: the third pixel becomes the severity."""

    def corrupt(images: torch.Tensor, name: str, severity: int, *, seed: int) -> torch.Tensor:
        changed = images.clone()
        changed[:, 0, 0, 2] = severity
        changed[:, 0, 0, 3] = seed + len(name)
        return changed

    monkeypatch.setattr(cifar.corruptions, "corrupt_cifar", corrupt)


# --- the files ---


def test_a_record_is_a_label_and_three_planes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cifar_files, "RECORDS", 2)
    path = tmp_path / "test_batch.bin"
    planes = [bytes([colour]) * 1024 for colour in (10, 20, 30)]
    first = bytearray(b"".join(planes))
    first[1024 + 32 * 4 + 5] = 99  # green, row 4, column 5
    path.write_bytes(b"\x07" + bytes(first) + b"\x00" + b"".join(planes))
    images, labels = cifar_files.read_batch(path)
    assert labels.tolist() == [7, 0]
    assert images[0, 1, 4, 5] == 99
    assert images[1, :, 0, 0].tolist() == [10, 20, 30]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content[:-1], "1966720 in all, but got 1966719, which is no multiple of 3073"),
        (lambda content: content[:-3073], "but got 1963647$"),
        (lambda content: content + bytes(3073), "but got 1969793$"),
        (lambda content: b"", "but got 0$"),
        (lambda content: b"\x0a" + content[1:], "labels from 0 to 9, but the largest is 10: it may be another file"),
    ],
)
def test_a_file_that_is_not_right_is_refused(tiny: Tiny, change: object, message: str) -> None:
    path = tiny.root / "cifar10" / "data_batch_3.bin"
    path.write_bytes(change(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(ValueError, match=message):
        cifar.cifar10("train")


# --- parts ---


def test_parts_are_those_of_random_split(tiny: Tiny) -> None:
    train, val, test = (cifar.cifar10(part) for part in ("train", "val", "test"))
    count = 5 * RECORDS
    reference = torch.utils.data.random_split(
        range(count),  # type: ignore[arg-type]
        [count - HELD_OUT, HELD_OUT],
        generator=torch.Generator().manual_seed(42),
    )
    assert origin(train.inputs).tolist() == list(reference[0])
    assert origin(val.inputs).tolist() == list(reference[1])
    assert origin(test.inputs).tolist() == list(range(5 * RECORDS, 6 * RECORDS))
    for part in (train, val):
        assert torch.equal(part.labels, tiny.train[origin(part.inputs)])
    assert torch.equal(test.labels, tiny.test)
    assert torch.equal(test.inputs, torch.from_numpy(record_images(5 * RECORDS)))


def test_another_seed_gives_another_split(tiny: Tiny) -> None:
    assert cifar.cifar10("val", seed=0).checksum != cifar.cifar10("val").checksum
    assert cifar.cifar10("test", seed=0).checksum == cifar.cifar10("test").checksum


def test_missing_files_say_what_to_type(data_root: Path) -> None:
    with pytest.raises(MissingData, match="selbo data get cifar10"):
        cifar.cifar10("train")


# --- rare classes ---


@pytest.fixture
def milder(monkeypatch: pytest.MonkeyPatch) -> tuple[float, ...]:
    """Ratios that leave some of 64 images of each class."""
    ratios = (1.0, 0.75, *(0.5,) * 6, 0.25, 0.25)
    monkeypatch.setattr(cifar, "IMBALANCE", ratios)
    return ratios


@pytest.mark.parametrize("part", ["train", "val", "test"])
def test_rare_classes_by_index(tiny: Tiny, milder: tuple[float, ...], part: str) -> None:
    whole, thinned = cifar.cifar10(part), cifar.cifar10_im(part)
    kept = [round(ratio * size) for ratio, size in zip(milder, whole.class_counts, strict=True)]
    assert list(thinned.class_counts) == kept
    labels = {"train": tiny.train, "val": tiny.train, "test": tiny.test}[part]
    start = 5 * RECORDS if part == "test" else 0
    assert torch.equal(thinned.labels, labels[origin(thinned.inputs) - start]), "each image has its own label"
    assert len(origin(thinned.inputs).unique()) == len(thinned)
    assert thinned.name.startswith(f"cifar10-im {part}")


@pytest.mark.parametrize("source", ["official", "generated"])
@pytest.mark.usefixtures("plain_corruption")
def test_the_corrupted_imbalanced_set_has_the_rows_of_the_clean_one(
    tiny: Tiny, milder: tuple[float, ...], source: str
) -> None:
    """What the paper's program got wrong: it took label values for rows, and so repeated the first ten images."""
    tiny.write_c("fog")
    clean, whole = cifar.cifar10_im("test"), cifar.cifar10("test")
    corrupted = cifar.cifar10_im_c("fog", 3, origin=source)
    assert torch.equal(corrupted.labels, clean.labels)
    rows = imbalanced_indices(whole.labels, milder)
    start = 0 if source == "official" else 5 * RECORDS
    assert torch.equal(origin(corrupted.inputs) - start, rows)
    assert torch.equal(origin(clean.inputs) - 5 * RECORDS, rows)
    assert torch.equal(corrupted.labels, tiny.test[rows])
    assert (corrupted.inputs[:, 0, 0, 2] == 3).all()
    assert min(corrupted.class_counts) > 0


# --- corrupted ---


@pytest.mark.parametrize("severity", [1, 5])
def test_official_rows_of_a_severity(tiny: Tiny, severity: int) -> None:
    tiny.write_c("fog")
    data = cifar.cifar10_c("fog", severity)
    assert data.inputs.shape == (RECORDS, 3, 32, 32)
    assert data.inputs.is_contiguous()
    assert torch.equal(origin(data.inputs), torch.arange(RECORDS))
    assert (data.inputs[:, 0, 0, 2] == severity).all()
    assert (data.inputs[:, 1, 5, 6] == 77).all(), "row 5, column 6, green"
    assert torch.equal(data.labels, tiny.test)
    assert "official files" in data.source


@pytest.mark.usefixtures("plain_corruption")
def test_generated_where_there_is_no_official_file(tiny: Tiny) -> None:
    tiny.write_c("fog")
    data = cifar.cifar10_c("snow", 2, seed=9)
    assert (data.inputs[:, 0, 0, 2] == 2).all()
    assert (data.inputs[:, 0, 0, 3] == 9 + len("snow")).all()
    assert torch.equal(data.labels, tiny.test)
    assert "generated by selbo" in data.source
    assert "generated" in cifar.cifar10_c("fog", 2, origin="generated").source
    with pytest.raises(MissingData, match="cifar10-c"):
        cifar.cifar10_c("snow", 2, origin="official")


@pytest.mark.usefixtures("plain_corruption")
def test_sets_one_after_the_other(tiny: Tiny, milder: tuple[float, ...]) -> None:
    tiny.write_c("fog")
    found = list(cifar.corrupted_sets(["fog", "snow"], [2, 4]))
    assert [(name, severity) for name, severity, _ in found] == [("fog", 2), ("fog", 4), ("snow", 2), ("snow", 4)]
    for name, severity, data in found:
        assert torch.equal(data.inputs, cifar.cifar10_c(name, severity).inputs)
        assert ("official" in data.source) == (name == "fog") or "not the official" in data.source
    ((_, _, thinned),) = cifar.corrupted_sets(["snow"], [4], imbalance=True)
    assert torch.equal(thinned.inputs, cifar.cifar10_im_c("snow", 4).inputs)
    every = [(name, severity) for name, severity, _ in cifar.corrupted_sets()]
    assert len(set(every)) == 95


def test_official_sets_need_no_clean_images(tiny: Tiny) -> None:
    tiny.write_c("fog")
    (tiny.root / "cifar10" / "test_batch.bin").unlink()
    assert [severity for _, severity, _ in cifar.corrupted_sets(["fog"])] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"corruption": "rain", "severity": 1}, "`corruption` must be one of"),
        ({"corruption": "fog", "severity": 0}, r"`severity` must be one of \[1, 2, 3, 4, 5\], but got 0"),
        ({"corruption": "fog", "severity": "3"}, "`severity` must be one of"),
        ({"corruption": "fog", "severity": 3, "origin": "mine"}, "`origin` must be one of"),
    ],
)
def test_unknown_choices_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cifar.cifar10_c(**arguments)  # type: ignore[arg-type]


def check(tiny: Tiny, name: str) -> None:
    raw = next(raw for raw in cifar_files.CIFAR10_C.files if raw.name == name)
    assert raw.check is not None
    raw.check(tiny.root / "cifar10-c" / name)


def test_labels_must_be_those_of_the_test_part_once_a_severity(tiny: Tiny) -> None:
    tiny.write_c("fog")
    check(tiny, "labels.npy")
    shuffled = tiny.test.roll(1)
    cases = {
        "the labels of CIFAR-10's test part": shuffled.repeat(SEVERITIES),
        "the same labels for each severity": torch.cat([tiny.test.repeat(SEVERITIES - 1), shuffled]),
        "labels from 0 to 9, but got 0 to 10": torch.where(tiny.test == 3, 10, tiny.test).repeat(SEVERITIES),
        "each class equally often": torch.where(tiny.test == 3, 2, tiny.test).repeat(SEVERITIES),
    }
    for message, labels in cases.items():
        tiny.write_c("fog", labels)
        with pytest.raises(ValueError, match=message):
            check(tiny, "labels.npy")
    (tiny.root / "cifar10" / "test_batch.bin").unlink()
    tiny.write_c("fog", shuffled.repeat(SEVERITIES))
    check(tiny, "labels.npy")  # nothing to compare with


def test_images_of_another_shape_are_refused(tiny: Tiny) -> None:
    images = tiny.write_c("fog")
    check(tiny, "fog.npy")
    np.save(tiny.root / "cifar10-c" / "fog.npy", images[:RECORDS])
    with pytest.raises(ValueError, match=r"\(3200, 32, 32, 3\), but got uint8 of shape \(640, 32, 32, 3\)"):
        check(tiny, "fog.npy")


def test_the_sources_name_every_file_once() -> None:
    for source, count in ((cifar_files.CIFAR10, 6), (cifar_files.CIFAR10_C, 20)):
        names = [raw.name for raw in source.files]
        assert len(set(names)) == len(names) == count
        assert sorted(name for each in source.downloads for name in each.gives) == sorted(names)
