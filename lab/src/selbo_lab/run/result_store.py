"""Storage of the results of a study: one JSON file per run, or one packed file per study."""

import json
import lzma
import os
import shutil
from collections.abc import Iterator, Set
from contextlib import suppress
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import msgspec

from selbo.files import replacing
from selbo.results import Record
from selbo_lab.run.provenance import code_version
from selbo_lab.run.records import STUDY_FORMAT, Manifest, Run, RunCost, RunValidation
from selbo_lab.studies.run_spec import RUN_FORMAT, RunSpec

StoredT = TypeVar("StoredT", bound=Record)

RUNS: Final = "runs"
STUDY_FILE: Final = "study.json"
PACKED: Final = ".jsonl.xz"
"""End of the name of a packed study: the manifest in its first line, then one run per line, sorted by id."""
UNFINISHED: Final = "unfinished"
"""Folder of checkpoints, with a subfolder per run that is removed when its result is written."""


class _Head(msgspec.Struct):
    """What identifies a run; the rest of its line is checked to be JSON and passed over."""

    format: str
    id: str


class Store:
    """Results in a folder, in the packed file next to it, or in both; runs in the folder take precedence.

    Args:
        folder: The folder; it need not exist. The packed file has the same name with the suffix ``.jsonl.xz``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = folder / RUNS
        self.packed = folder.with_name(folder.name + PACKED)

    def path(self, run_id: str) -> Path:
        """File of a run that is not packed."""
        return self.runs / f"{run_id}.json"

    def ids(self) -> set[str]:
        """Ids of the runs with results."""
        return {path.stem for path in self.runs.glob("*.json")} | self._lines.keys()

    def has(self, spec: RunSpec) -> bool:
        """Whether the result of a run exists."""
        return self.path(spec.id).is_file() or spec.id in self._lines

    def write(self, result: Run) -> None:
        """Write a result atomically."""
        self.runs.mkdir(parents=True, exist_ok=True)
        with replacing(self.path(result.id)) as unfinished:
            unfinished.write_text(_line(result.to_dict()), encoding="utf-8")

    def unfinished(self, spec: RunSpec, device: str) -> Path:
        """Folder for the checkpoints of a run; other code or another type of device does not resume from them."""
        return self.folder / UNFINISHED / f"{spec.id}-{code_version()}-{device.partition(':')[0]}"

    def forget_unfinished(self, spec: RunSpec) -> None:
        """Remove all checkpoints of a run, of any code and device."""
        for folder in (self.folder / UNFINISHED).glob(f"{spec.id}-*"):
            shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # other runs still use it
            (self.folder / UNFINISHED).rmdir()

    def read(self, spec: RunSpec) -> Run | None:
        """The result of a run, or None. Its settings are not read again: their hash is the id.

        Raises:
            ValueError: If the file is not the result of that run.
        """
        return self._read(spec.id, Run, spec=spec)

    def read_validation(self, spec: RunSpec) -> RunValidation | None:
        """The part of a result that settings are chosen by, or None; the rest is not checked.

        Raises:
            ValueError: If the file is not the result of that run.
        """
        return self._read(spec.id, RunValidation, spec=spec)

    def _read(self, run_id: str, kind: type[StoredT], **known: RunSpec) -> StoredT | None:
        wanted = {each.name for each in fields(cast(Any, kind))} - known.keys()
        found = self._content(run_id, wanted)
        try:
            return None if found is None else kind.from_dict(found | known)
        except ValueError as error:
            path = os.fspath(self.path(run_id))
            raise ValueError(f"{path!r} does not hold a run: {error}; remove it, and the run is done again") from error

    def _content(self, run_id: str, wanted: Set[str] | None = None) -> dict[str, Any] | None:
        """The content of the file of a run; of a packed one only the wanted entries."""
        path = self.path(run_id)
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            line = self._lines.get(run_id)
            if line is None:
                return None
            entries = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
            return {key: msgspec.json.decode(each) for key, each in entries.items() if wanted is None or key in wanted}
        except (OSError, ValueError) as error:
            raise ValueError(
                f"{os.fspath(path)!r} cannot be read: {error}; remove it, and the run is done again"
            ) from error
        if not isinstance(found, dict) or found.get("format") != RUN_FORMAT or found.get("id") != run_id:
            raise ValueError(
                f"{os.fspath(path)!r} is not the result of run {run_id}; remove it, and the run is done again"
            )
        return found

    def all(self) -> Iterator[Run]:
        """All results, by id."""
        return self._all(Run)

    def all_costs(self) -> Iterator[RunCost]:
        """The machine and the seconds of all runs, by id; the rest is not checked."""
        return self._all(RunCost)

    def _all(self, kind: type[StoredT]) -> Iterator[StoredT]:
        for run_id in sorted(self.ids()):
            found = self._read(run_id, kind)
            assert found is not None
            yield found

    # --- manifest ---

    def exists(self) -> bool:
        """Whether the folder or packed file holds a study."""
        return (self.folder / STUDY_FILE).exists() or self.packed.exists()

    def manifest(self) -> Manifest:
        """Name, tracks and seeds of the study.

        Raises:
            ValueError: If there is no manifest.
        """
        path = self.folder / STUDY_FILE
        try:
            text = self._packed_text[0] if self.packed.exists() and not path.exists() else path.read_text("utf-8")
            found = json.loads(text)
        except (OSError, json.JSONDecodeError) as error:
            raise ValueError(
                f"'{self.folder}' is not a folder of selbo reproduce: {STUDY_FILE} cannot be read"
            ) from error
        if not isinstance(found, dict) or found.get("format") != STUDY_FORMAT:
            raise ValueError(f"'{self.folder}' is not a folder of selbo reproduce: {STUDY_FILE} has another format")
        return Manifest.from_dict(found)

    def write_manifest(self, content: Manifest) -> None:
        """Write the manifest."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with replacing(self.folder / STUDY_FILE) as unfinished:
            unfinished.write_text(json.dumps(content.to_dict(), indent=1) + "\n", encoding="utf-8")

    # --- packed ---

    def pack(self) -> int:
        """Pack all results into one file and remove the files of single runs; returns the number of runs.

        Checkpoints of unfinished runs are kept. Nothing is removed unless the packed file is verified.
        """
        runs = [self._content(run_id) or {} for run_id in sorted(self.ids())]  # unchanged: a record may add keys
        content = [_line(each) for each in (self.manifest().to_dict(), *runs)]
        with replacing(self.packed) as unfinished:
            unfinished.write_bytes(lzma.compress("".join(content).encode(), preset=9 | lzma.PRESET_EXTREME))
            if lzma.decompress(unfinished.read_bytes()) != "".join(content).encode():
                raise ValueError(f"{os.fspath(self.packed)!r} could not be written as it should be")
        shutil.rmtree(self.runs, ignore_errors=True)
        (self.folder / STUDY_FILE).unlink(missing_ok=True)
        with suppress(OSError):  # holds a report or checkpoints
            self.folder.rmdir()
        for cached in ("_packed_text", "_lines"):
            self.__dict__.pop(cached, None)
        return len(content) - 1

    @cached_property
    def _packed_text(self) -> list[str]:
        try:
            with lzma.open(self.packed, "rt", encoding="utf-8") as file:
                found = file.read().splitlines()
        except FileNotFoundError:
            return []
        except (OSError, EOFError, lzma.LZMAError, UnicodeDecodeError) as error:
            raise ValueError(f"{os.fspath(self.packed)!r} cannot be read: {error}") from error
        if not found:
            raise ValueError(f"{os.fspath(self.packed)!r} cannot be read: it is empty")
        return found

    @cached_property
    def _lines(self) -> dict[str, str]:
        """Lines of the packed file, by run id."""
        try:
            runs = [(line, msgspec.json.decode(line, type=_Head)) for line in self._packed_text[1:]]
        except msgspec.MsgspecError as error:
            raise ValueError(f"{os.fspath(self.packed)!r} is damaged: {error}") from error
        if strange := [head for _, head in runs if head.format != RUN_FORMAT]:
            raise ValueError(f"{os.fspath(self.packed)!r} is damaged: {len(strange)} lines are not runs")
        return {head.id: line for line, head in runs}


def studies_in(folder: Path) -> list[Path]:
    """Folders of the studies at a path, packed or not: the path itself, or what it holds.

    A packed file stands for the folder that it was packed from.
    """
    if folder.name.endswith(PACKED) and folder.exists():
        folder = folder.with_name(folder.name.removesuffix(PACKED))
    if Store(folder).exists():
        return [folder]
    names = {path.parent.name for path in folder.glob(f"*/{STUDY_FILE}")}
    names |= {path.name.removesuffix(PACKED) for path in folder.glob(f"*{PACKED}")}
    return [folder / name for name in sorted(names)]


def _line(content: dict[str, Any]) -> str:
    return json.dumps(content, allow_nan=False, separators=(",", ":")) + "\n"
