"""A model folder that somebody else wrote: any fault is one sentence, and nothing is built before it is checked."""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from selbo.estimator import SummaryClassifier, storage
from selbo.tabular import saved_model
from selbo.tabular.json_files import write_json
from selbo.tabular.metrics import RowCounts, TrainingMetrics, ValidationMetrics
from selbo.tabular.preprocessing import CategoryInput, NumberInput, Preprocessing

KINDS = [True, False]
PREPROCESSING = Preprocessing(
    target="ill",
    classes=("no", "perhaps", "yes"),
    numeric_target=False,
    inputs=(NumberInput("age"), CategoryInput("site", ("east", "north"))),
    left_out=("unit",),
)
METRICS = TrainingMetrics(
    metrics={"nll": 0.5, "recall": [0.5, None, 1.0], "num_examples": 6},
    temperature=1.5,
    calibrated={"nll": 0.4},
    per_class=(),
    confusion=(),
    classes=PREPROCESSING.classes,
    rows=RowCounts(train=21, val=3, test=6),
    features=3,
    method="summary_elbo",
    belief="as stated",
    warnings=(),
    contradictions=("class fractions: contradicted",),
    shortfall=None,
    validation=ValidationMetrics(nll=0.6, constant_nll=1.1, accuracy=1.0, best_temperature=1.4),
)


def write(folder: Path, *, bayesian: bool) -> Path:
    """A folder as `selbo train` leaves it, with a network that was hardly trained."""
    folder.mkdir()
    draws = np.random.default_rng(0)
    X, y = draws.normal(size=(30, 3)), np.array(PREPROCESSING.classes, dtype=object)[np.arange(30) % 3]
    classifier = SummaryClassifier(
        class_fractions={"no": 0.25, "yes": 0.5, "perhaps": 0.25},
        hidden=(5, 4),
        steps=2,
        method="summary_elbo" if bayesian else "evidential",
        random_state=0,
    )
    classifier.fit(X, y, X_unlabelled=X + 1 if bayesian else None)
    write_json(folder / saved_model.SETTINGS, {"format": saved_model.SETTINGS_FORMAT, "settings": {}})
    saved_model.write_model(
        folder,
        classifier=classifier,
        preprocessing=PREPROCESSING,
        metrics=METRICS,
        predictions={"row": []},
        write_report=lambda path: path.write_text("report", encoding="utf-8"),
        data=saved_model.TableFile(name="patients.csv", sha256="0" * 64),
        unlabelled=None,
    )
    return folder


@pytest.fixture(scope="module", params=KINDS, ids=["bayesian", "plain"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("models") / "model", bayesian=request.param)


@pytest.fixture
def folder(model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(model, tmp_path / "model"))


def content(folder: Path, name: str) -> dict[str, Any]:
    return json.loads((folder / name).read_text(encoding="utf-8"))


def store(folder: Path, name: str, found: object) -> None:
    """Put JSON into a file, with a manifest that agrees."""
    (folder / name).write_text(json.dumps(found), encoding="utf-8")
    agree(folder)


def agree(folder: Path) -> None:
    manifest = content(folder, saved_model.MANIFEST)
    if isinstance(manifest, dict) and isinstance(sums := manifest.get("sha256"), dict):
        sums |= {name: saved_model.digest(folder / name) for name in sums if name in saved_model.SUMMED}
        (folder / saved_model.MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")


def use(folder: Path) -> None:
    """Load a model and predict two rows."""
    model = saved_model.load_model(folder)
    _ = model.manifest.temperature, model.manifest.data.sha256
    prediction = model.predict(np.zeros((2, 3)), num_samples=2, seed=0)
    columns = saved_model.as_columns(prediction, model.preprocessing.classes)
    assert len(columns["predicted_class"]) == 2


def test_a_model_can_be_used(model: Path) -> None:
    use(model)


# --- every entry of the two JSON files, removed and replaced ---

GONE = object()
OTHERS = (GONE, None, "text", "", -1, 0, 2**31, 2**64, 10**400, 0.5, float("nan"), True, [], {}, [[]], {"a": {}})


def places(found: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where everything inside lists and dictionaries is."""
    inside = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    for key, value in inside:
        yield (*path, key)
        yield from places(value, (*path, key))


def changed(found: Any, path: tuple[str | int, ...], value: object) -> Any:
    root = copy.deepcopy(found)
    place = root
    for key in path[:-1]:
        place = place[key]
    if value is GONE:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return root


SETTINGS = [f"classifier.settings.{name}" for name in SummaryClassifier().get_params()]
HARMLESS = {  # what prediction does not need, and what may be another: a name, a number above 0, truth
    saved_model.MANIFEST: {
        *("selbo", "target", "belief", "unlabelled", "data.name", "data.sha256", "temperature"),
        *("classifier.seed", "classifier.label_shift", "classifier.num_unlabelled", *SETTINGS),
        *("classifier.kl_weight", "classifier.kl_scores"),  # what was chosen, which predictions do not use
        *(f"classifier.settings.class_fractions.{name}" for name in PREPROCESSING.classes),
        *(f"classifier.{name}.{i}" for name in ("mean", "std", "medians") for i in range(3)),
    },
    saved_model.PREPROCESSING: {
        *("target", "numeric_target", "left_out", "left_out.0", "id_column", "inputs.0.missing"),
        *("inputs.0.name", "inputs.1.name", "inputs.1.values.0", "inputs.1.values.1"),
    },
}


@pytest.mark.parametrize("name", [saved_model.MANIFEST, saved_model.PREPROCESSING])
@pytest.mark.slow
def test_no_change_to_an_entry_is_more_than_a_sentence(folder: Path, name: str) -> None:
    before, tried, accepted = content(folder, name), 0, set()
    for path in places(before):
        for value in OTHERS:
            found = changed(before, path, value)
            if repr(found) == repr(before):
                continue
            tried += 1
            (folder / name).write_text(json.dumps(found), encoding="utf-8")
            if name != saved_model.MANIFEST:
                agree(folder)
            try:
                use(folder)
            except ValueError as error:
                assert os.fspath(folder) in str(error), (path, value)  # noqa: PT017
                assert "\n" not in str(error)  # noqa: PT017
            else:
                accepted.add(".".join(map(str, path)))
    assert tried > 200
    assert accepted <= HARMLESS[name]


@pytest.mark.parametrize(
    ("name", "key"),
    [
        *((saved_model.MANIFEST, key) for key in ("classifier", "classes", "temperature", "data", "sha256")),
        *(
            (saved_model.MANIFEST, f"classifier.{key}")
            for key in ("seed", "settings", "settings.method", "label_shift", "base", "calibration", "num_unlabelled")
        ),
        *((saved_model.MANIFEST, key) for key in ("classifier.mean", "data.sha256")),
        *((saved_model.PREPROCESSING, key) for key in ("target", "classes", "numeric_target", "inputs", "left_out")),
    ],
)
def test_a_missing_entry_is_named(folder: Path, name: str, key: str) -> None:
    (folder / name).write_text(json.dumps(changed(content(folder, name), tuple(key.split(".")), GONE)))
    if name != saved_model.MANIFEST:
        agree(folder)
    with pytest.raises(ValueError, match=rf"{name}' is damaged: `{key.removeprefix('classifier.')}`"):
        saved_model.load_model(folder)


@pytest.mark.parametrize("name", [saved_model.MANIFEST, saved_model.PREPROCESSING])
@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"text"', "{}", "[" * 100_000, '{"format": 1}', "\x00\xff"])
def test_other_content_is_refused(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text, encoding="latin-1")
    if name != saved_model.MANIFEST:
        agree(folder)
    with pytest.raises(ValueError, match=rf"{name}' (cannot be read|is not a file of selbo)"):
        saved_model.load_model(folder)


@pytest.mark.parametrize("name", [saved_model.MANIFEST, saved_model.PREPROCESSING])
def test_a_model_of_an_earlier_version_is_refused(folder: Path, name: str) -> None:
    found = content(folder, name)
    store(folder, name, {**found, "format": found["format"].replace("-3", "-2")})
    with pytest.raises(ValueError, match=rf"{name}' was written by another version of selbo: train the model again$"):
        saved_model.load_model(folder)


def test_training_into_a_folder_of_an_earlier_version(folder: Path) -> None:
    write_json(folder / saved_model.SETTINGS, {"format": "selbo-training-1", "settings": {}})
    with pytest.raises(
        ValueError, match="holds a model of another version of selbo: choose another folder, or replace"
    ):
        saved_model.inspect_folder(folder, {}, overwrite=False)
    assert saved_model.inspect_folder(folder, {}, overwrite=True) == "replace"


def test_predictions_are_for_the_target_domain(folder: Path) -> None:
    found, inputs = saved_model.load_model(folder), np.ones((2, 3))
    manifest = content(folder, saved_model.MANIFEST)
    shift = manifest["classifier"]["label_shift"]
    store(folder, saved_model.MANIFEST, changed(manifest, ("classifier", "label_shift"), None))
    source = saved_model.load_model(folder).predict(inputs, num_samples=4, seed=0).probs
    ratio = torch.tensor([0.75, 0.75, 1.5]) if shift else torch.ones(3)
    expected = source * ratio / (source * ratio).sum(-1, keepdim=True)
    torch.testing.assert_close(found.predict(inputs, num_samples=4, seed=0).probs, expected)
    assert (shift is not None) == (found.classifier.method == "summary_elbo")


def test_values_too_far_from_those_in_training_are_named(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"^feature 'site' has values too far from those in training"):
        saved_model.load_model(folder).predict(np.array([[0.0, 1.0, 1e200]]), num_samples=2)


# --- the metrics ---


def test_metrics_come_back_as_they_were(folder: Path) -> None:
    assert saved_model.finished(folder) == METRICS
    written = content(folder, saved_model.METRICS)
    assert written["shortfall"] is None
    assert "unlabelled" not in written["rows"]


@pytest.mark.parametrize("key", ["metrics", "rows", "validation.nll", "shortfall"])
def test_damaged_metrics_are_refused(folder: Path, key: str) -> None:
    found = content(folder, saved_model.METRICS)
    store(folder, saved_model.METRICS, changed(found, tuple(key.split(".")), GONE))
    with pytest.raises(ValueError, match=rf"{saved_model.METRICS}' is damaged: `{key}` must be given"):
        saved_model.finished(folder)


# --- the weights ---


@pytest.mark.parametrize("hidden", [[2**31, 4], [5, 2**62], [5], [4, 5], [1] * 10_000, [], [5, 4, 3]])
def test_no_network_is_built_that_the_file_does_not_hold(
    folder: Path, monkeypatch: pytest.MonkeyPatch, hidden: list[int]
) -> None:
    manifest = content(folder, saved_model.MANIFEST)
    store(folder, saved_model.MANIFEST, changed(manifest, ("classifier", "settings", "hidden"), hidden))
    monkeypatch.setattr(SummaryClassifier, "make_network", lambda *_: pytest.fail("a network was built"))
    with pytest.raises(ValueError, match=r"model\.safetensors' does not hold the network of this classifier"):
        saved_model.load_model(folder)


def test_a_network_of_the_other_kind_is_refused(folder: Path) -> None:
    manifest = content(folder, saved_model.MANIFEST)
    other = "plain" if manifest["classifier"]["settings"]["method"] == "summary_elbo" else "elbo"
    store(folder, saved_model.MANIFEST, changed(manifest, ("classifier", "settings", "method"), other))
    with pytest.raises(ValueError, match="does not hold the network"):
        saved_model.load_model(folder)


def test_more_inputs_than_the_network_has_are_refused(folder: Path) -> None:
    found = content(folder, saved_model.PREPROCESSING)
    found["inputs"][1]["values"].append("south")
    store(folder, saved_model.PREPROCESSING, found)
    with pytest.raises(ValueError, match="`mean`, `std` and `medians` must be lists of 4 numbers, one per feature"):
        saved_model.load_model(folder)


def test_settings_that_are_no_numbers_or_texts_are_not_saved(tmp_path: Path) -> None:
    import selbo

    classifier = SummaryClassifier(belief=selbo.Beta(2, 3), steps=2).fit([[0.0], [1.0]], [0, 1])
    with pytest.raises(ValueError, match="only settings that are numbers or texts can be saved"):
        storage.save_classifier(classifier, tmp_path / "a.safetensors")


@pytest.mark.parametrize("fault", ["missing", "added", "shape", "no header", "empty", "text"])
def test_other_weights_are_refused(folder: Path, fault: str) -> None:
    file = folder / saved_model.WEIGHTS
    tensors = load_file(file)
    name = next(iter(tensors))
    if fault == "missing":
        del tensors[name]
    elif fault == "added":
        tensors["more"] = torch.zeros(1)
    elif fault == "shape":
        tensors[name] = torch.zeros(1, 1, 1)
    if fault in {"empty", "text"}:
        file.write_bytes(b"" if fault == "empty" else b"weights" * 10)
    else:
        save_file(tensors, file)
    agree(folder)
    if fault == "no header" and not content(folder, saved_model.MANIFEST)["classifier"]["label_shift"]:
        use(folder)
        return
    with pytest.raises(ValueError, match=r"model\.safetensors'"):
        saved_model.load_model(folder)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
@pytest.mark.parametrize("name", [saved_model.MANIFEST, *saved_model.SUMMED])
def test_a_pipe_is_not_waited_for(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(ValueError, match=f"{name}' (is not a file|was changed)"):
        saved_model.load_model(folder)


@pytest.mark.parametrize("sums", [5, None, [], {"../../secret": "0"}, {"/dev/zero": "0"}])
def test_checksums_are_of_our_files_alone(folder: Path, sums: object) -> None:
    manifest = content(folder, saved_model.MANIFEST)
    (folder / saved_model.MANIFEST).write_text(json.dumps({**manifest, "sha256": sums}), encoding="utf-8")
    assert not saved_model.is_complete(folder)
    with pytest.raises(ValueError, match="`sha256` must hold the checksums of"):
        saved_model.load_model(folder)


# --- one writer at a time ---

HOLD = """
import sys, time
from pathlib import Path
from selbo.tabular.saved_model import sole_writer
with sole_writer(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
def test_a_folder_has_one_writer_until_it_ends_in_whatever_way(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, os.fspath(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == "held\n"
            with (
                pytest.raises(ValueError, match="another selbo train is writing to"),
                saved_model.sole_writer(tmp_path),
            ):
                pytest.fail("two at once")
        finally:
            other.kill()
    with saved_model.sole_writer(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []  # nor what the killed one left


def test_a_writer_that_fails_leaves_no_lock(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(RuntimeError, match="diverged"), saved_model.sole_writer(tmp_path):
            raise RuntimeError("diverged")
        assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_to_needs_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with saved_model.sole_writer(tmp_path):
        assert list(tmp_path.iterdir()) == []


def test_the_lock_is_nobody_elses_entry(tmp_path: Path) -> None:
    (tmp_path / saved_model.LOCK).touch()  # as a killed process leaves it
    assert saved_model.inspect_folder(tmp_path, {}, overwrite=False) == "new"
