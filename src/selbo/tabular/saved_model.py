"""A trained model on disk: a folder with the network, the preprocessing, its settings, metrics and report.

During training the folder holds ``settings.json``, the log and the checkpoint. The manifest ``model.json`` is written
last: a folder without it is not finished. All files are JSON or safetensors; nothing is unpickled.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from selbo import _checks
from selbo._files import columns_as_csv, replacing, require_model
from selbo.estimator import SummaryClassifier, storage
from selbo.evaluation.predict import Prediction
from selbo.results import Record
from selbo.tabular.json_files import OtherVersionError, read_json, write_json
from selbo.tabular.metrics import TrainingMetrics
from selbo.tabular.preprocessing import PREPROCESSING_FORMAT, Preprocessing
from selbo.tabular.table import Numbers, listed
from selbo.training import checkpoint
from selbo.version import __version__

FORMAT: Final = "selbo-model-3"
SETTINGS_FORMAT: Final = "selbo-training-3"
METRICS_FORMAT: Final = "selbo-metrics-1"

MANIFEST: Final = "model.json"
WEIGHTS: Final = "model.safetensors"
PREPROCESSING: Final = "preprocessing.json"
SETTINGS: Final = "settings.json"
METRICS: Final = "metrics.json"
REPORT: Final = "report.html"
TEST_PREDICTIONS: Final = "test_predictions.csv"
LOG: Final = "train.jsonl"
CHECKPOINT: Final = "checkpoint.safetensors"
LOCK: Final = ".lock"
STORED_ROWS: Final = ".rows"
"""Folder of the stored rows of a large table, during training."""

FILES: Final = (MANIFEST, WEIGHTS, PREPROCESSING, METRICS, REPORT, TEST_PREDICTIONS, LOG, CHECKPOINT, SETTINGS)
"""All files of a folder, in the order of removal: first the manifest, which marks it as complete, last the settings,
which mark it as a folder of selbo train."""

SUMMED: Final = (WEIGHTS, PREPROCESSING)
"""Files whose checksums are in the manifest."""


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            found.update(block)
    return found.hexdigest()


# --- the state of a folder ---


def inspect_folder(folder: Path, settings: dict[str, Any], *, overwrite: bool) -> str:
    """State of an output folder: ``"new"``, ``"resume"``, ``"finished"`` or ``"replace"``. Nothing is written.

    Args:
        folder: Output folder; it need not exist.
        settings: Identity of the job, as plain data.
        overwrite: Whether to replace a model with different settings or an unreadable checkpoint.

    Raises:
        ValueError: If the folder holds other files, a model with different settings, or a damaged checkpoint.
    """
    if not folder.is_dir():
        if folder.exists() or folder.is_symlink():
            raise ValueError(f"`--out` must be a folder, but {os.fspath(folder)!r} is not")
        return "new"
    entries = sorted(each.name for each in folder.iterdir() if not each.name.startswith("."))
    if not entries:
        return "new"
    try:
        found = read_json(folder / SETTINGS, kind=SETTINGS_FORMAT).get("settings")
    except OtherVersionError:
        if overwrite:
            return "replace"
        raise ValueError(
            f"{os.fspath(folder)!r} holds a model of another version of selbo: choose another folder, or replace it "
            "with --overwrite"
        ) from None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ValueError(
            f"`--out` must be a new folder, an empty one, or one of selbo train, but {os.fspath(folder)!r} holds "
            f"{listed(entries)}"
        )
    different = [key for key in [*settings, *found] if found.get(key) != settings.get(key)]
    if not different:
        if is_complete(folder):
            return "finished"
        return "resume" if _can_go_on(folder, overwrite=overwrite) else "replace"
    if overwrite:
        return "replace"
    done = "holds a model" if (folder / MANIFEST).exists() else "holds an unfinished run"
    raise ValueError(
        f"{os.fspath(folder)!r} {done} trained {_difference(different[0], found, settings)}: choose another folder, or "
        "replace it with --overwrite"
    )


def _difference(name: str, found: dict[str, Any], settings: dict[str, Any]) -> str:
    before, now = found.get(name), settings.get(name)
    if name == "data_sha256":
        return "with other data"
    if name == "test_sha256":
        return "with other rows to test on" if before and now else f"with{'' if before else 'out'} --test"
    if name == "group_fractions_sha256" and before and now:
        return "with other fractions of groups"
    if name == "unlabelled_sha256":
        return "with other unlabelled rows" if before and now else f"with{'' if before else 'out'} --unlabelled"
    return f"with --{name.replace('_', '-')} {_shown(before)}, not {_shown(now)}"


def _can_go_on(folder: Path, *, overwrite: bool) -> bool:
    """Whether an interrupted run can be resumed; raises an error if its checkpoint is damaged, unless ``overwrite``."""
    file = folder / CHECKPOINT
    if not file.exists():
        return True
    try:
        checkpoint.read_checkpoint(file)
    except ValueError as error:
        if overwrite:
            return False
        raise ValueError(
            f"the checkpoint {os.fspath(file)!r} is damaged, and training cannot resume from it: remove the file, or "
            "start again with --overwrite"
        ) from error
    return True


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value)) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{name}={each}" for name, each in value.items())
    return "none" if value is None else str(value)


def is_complete(folder: Path) -> bool:
    """Whether a folder holds all files of a finished run, and their checksums match the manifest."""
    try:
        manifest = read_json(folder / MANIFEST, kind=FORMAT)
        tested = bool(read_json(folder / METRICS, kind=METRICS_FORMAT).get("metrics"))
        optional = {CHECKPOINT} if tested else {CHECKPOINT, TEST_PREDICTIONS}
        whole = all((folder / name).is_file() for name in FILES if name not in optional)
        return whole and manifest.get("sha256") == {name: digest(folder / name) for name in SUMMED}
    except (ValueError, OSError):
        return False


def finished(folder: Path) -> TrainingMetrics:
    """Read ``metrics.json`` of a complete run; removes a leftover checkpoint."""
    (folder / CHECKPOINT).unlink(missing_ok=True)
    remove_unfinished(folder)
    shutil.rmtree(folder / STORED_ROWS, ignore_errors=True)
    content = read_json(folder / METRICS, kind=METRICS_FORMAT)
    with _naming(folder / METRICS):
        return TrainingMetrics.from_dict(content)


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Lock a folder for training, so that only one process writes to it.

    The operating system holds the lock, and releases it when the process ends for whatever reason. The hidden lock file
    is removed on exit. A lock file left by a killed process does not block others.

    Args:
        folder: An existing folder. If it is not writable, nothing is locked.

    Raises:
        ValueError: If another process holds the lock.
    """
    from filelock import FileLock, Timeout

    if not os.access(folder, os.W_OK | os.X_OK):
        yield
        return
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ValueError(
            f"another selbo train is writing to {os.fspath(folder)!r}: wait until it ends, or choose another folder"
        ) from None
    try:
        yield
    finally:
        with suppress(OSError):  # on Windows, files in use cannot be removed; FileLock removes it itself
            (folder / LOCK).unlink()
        lock.release()


def clear(folder: Path) -> None:
    """Remove the files that training wrote, and nothing else."""
    remove_unfinished(folder)
    for name in FILES:
        (folder / name).unlink(missing_ok=True)


def remove_unfinished(folder: Path) -> None:
    """Remove half-written files of a killed run: ``.report.html-x8d2``, ``.metrics.json.part``."""
    for name in FILES:
        for left in folder.glob(f".{name}[-.]*"):
            if left.is_dir():
                shutil.rmtree(left)
            else:
                left.unlink()


# --- loaded models ---


@dataclass(frozen=True, kw_only=True)
class TableFile(Record):
    """A table: its name, its checksum and, if it is one of unlabelled rows, their number."""

    name: str
    sha256: str
    rows: int | None = None


@dataclass(frozen=True, kw_only=True)
class ModelManifest(Record):
    """Content of ``model.json``.

    Attributes:
        selbo: Version of selbo.
        target: The column with the labels; empty if there was none.
        classes: Names of the classes.
        belief: Description of the belief.
        temperature: Temperature fitted on the validation rows, or None; applied only on request.
        data: The table.
        unlabelled: The table of the unlabelled rows, if there is one.
        classifier: Description of the classifier, see `selbo.estimator.storage.save`.
        sha256: Checksums of the other files.
    """

    selbo: str
    target: str
    classes: tuple[str, ...]
    belief: str
    temperature: float | None
    data: TableFile
    unlabelled: TableFile | None
    classifier: dict[str, Any]
    sha256: dict[str, str]

    def __post_init__(self) -> None:
        if self.temperature is not None:
            _checks.positive("temperature", self.temperature)
        if not isinstance(self.sha256, dict) or sorted(self.sha256) != sorted(SUMMED):
            raise ValueError(f"`sha256` must hold the checksums of {' and '.join(SUMMED)}")


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Name the file in an error about its content."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)!r} is damaged: {error}") from error


@dataclass(frozen=True)
class Trained:
    """A trained model, ready to predict.

    Attributes:
        classifier: The fitted classifier, on the device to predict on.
        preprocessing: Encodes rows as features.
        manifest: Content of ``model.json``.
    """

    classifier: SummaryClassifier
    preprocessing: Preprocessing
    manifest: ModelManifest

    def predict(self, inputs: Numbers, *, num_samples: int, seed: int | None = None) -> Prediction:
        """Predict transformed rows, for the target domain if one was stated.

        Args:
            inputs: Features, shape (rows, features).
            num_samples: Number of weight samples.
            seed: Seed for the weight samples; the training seed if not given.
        """
        self.classifier.set_params(num_samples=num_samples)
        if seed is not None:
            self.classifier.seed_ = seed
        return self.classifier.posterior_predictive(inputs)


def as_columns(
    prediction: Prediction, classes: Sequence[str], answered: Sequence[bool] | None = None
) -> dict[str, Sequence[Any]]:
    """Predictions as columns: the predicted class, ``p_NAME`` per class, entropy and mutual information.

    Args:
        prediction: Predictions.
        classes: Names of the classes.
        answered: Rows that are answered, all if not given; the others have no predicted class.
    """
    kept = [True] * len(prediction.probs) if answered is None else answered
    probabilities = {f"p_{name}": prediction.probs[:, k].tolist() for k, name in enumerate(classes)}
    return {
        "predicted_class": [
            classes[k] if keep else None for k, keep in zip(prediction.classes.tolist(), kept, strict=True)
        ],
        **probabilities,
        "entropy": prediction.entropy.tolist(),
        "mutual_information": prediction.mutual_information.tolist(),
    }


def load_model(folder: Path, *, device: str = "cpu") -> Trained:
    """Load a model written by `selbo train`.

    Raises:
        ValueError: If it is not a model folder, is not finished, or its files do not match.
    """
    require_model(folder)
    if not (folder / MANIFEST).exists():
        begun = (folder / SETTINGS).exists()
        todo = (
            "is not finished: run the same selbo train command again to resume"
            if begun
            else f"is not one, as it has no {MANIFEST}: train with selbo train DATA --target COLUMN --out DIR first"
        )
        raise ValueError(f"the model must be a folder made by selbo train, but {os.fspath(folder)!r} {todo}")
    content = read_json(folder / MANIFEST, kind=FORMAT)
    with _naming(folder / MANIFEST):
        manifest = ModelManifest.from_dict(content)
    for name, expected in manifest.sha256.items():
        file = folder / name
        if not file.is_file() or digest(file) != expected:
            what = "was changed or belongs to another model" if file.exists() else "is not there"
            raise ValueError(
                f"{os.fspath(file)!r} {what}: the files of a model must stay together, as selbo train wrote them"
            )
    content = read_json(folder / PREPROCESSING, kind=PREPROCESSING_FORMAT)
    with _naming(folder / PREPROCESSING):
        preprocessing = Preprocessing.from_json(content)
    if manifest.classes != preprocessing.classes:
        raise ValueError(f"{os.fspath(folder)!r} holds a {MANIFEST} and a {PREPROCESSING} of different models")
    with _naming(folder / MANIFEST):
        classifier = storage.restore(manifest.classifier, preprocessing.class_labels, preprocessing.features)
    storage.load_network(classifier, folder / WEIGHTS, device=device)
    return Trained(classifier, preprocessing, manifest)


def write_model(
    folder: Path,
    *,
    classifier: SummaryClassifier,
    preprocessing: Preprocessing,
    metrics: TrainingMetrics,
    write_report: Callable[[Path], object],
    predictions: Mapping[str, Sequence[Any]],
    data: TableFile,
    unlabelled: TableFile | None,
) -> None:
    """Write all files of a finished run, the manifest last, and remove the checkpoint.

    Args:
        folder: Output folder.
        classifier: The trained classifier.
        preprocessing: Encodes rows as features.
        metrics: Results on the test rows.
        write_report: Called with the path of the report.
        predictions: Columns of the test rows; no file is written if there are none.
        data: The table.
        unlabelled: The table of the unlabelled rows, if there is one.
    """
    description = storage.save_classifier(classifier, folder / WEIGHTS)
    write_json(folder / PREPROCESSING, preprocessing.to_json())
    write_json(folder / METRICS, {"format": METRICS_FORMAT, **metrics.to_dict()})
    write_report(folder / REPORT)
    if any(len(each) for each in predictions.values()):
        with replacing(folder / TEST_PREDICTIONS) as unfinished:
            unfinished.write_text(columns_as_csv(predictions), encoding="utf-8")
    else:
        (folder / TEST_PREDICTIONS).unlink(missing_ok=True)
    manifest = ModelManifest(
        selbo=__version__,
        target=preprocessing.target,
        classes=preprocessing.classes,
        belief=metrics.belief,
        temperature=metrics.temperature,
        data=data,
        unlabelled=unlabelled,
        classifier=description,
        sha256={name: digest(folder / name) for name in SUMMED},
    )
    write_json(folder / MANIFEST, {"format": FORMAT, **manifest.to_dict()})
    (folder / CHECKPOINT).unlink(missing_ok=True)
    remove_unfinished(folder)
