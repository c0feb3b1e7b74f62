"""All studies, read from TOML files; a key that is not known is an error."""

import sys
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from selbo_lab import checks
from selbo_lab.studies.run_spec import DataSpec, EvaluationSpec, ModelSpec, Recipe
from selbo_lab.studies.study import TRACKS, Grid, Study, StudyMethod, Track, Variant

SpecT = TypeVar("SpecT")


def names() -> list[str]:
    """Names of all studies, in the order of the paper."""
    listed = _toml("studies")["order"]
    assert isinstance(listed, list)
    return [str(name) for name in listed]


def load_study(name: str) -> Study:
    """A study by name."""
    checks.one_of("study", name, names())
    return from_toml(_toml(name), where=f"{name}.toml")


def _toml(name: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    content: dict[str, Any] = tomllib.loads((_folder() / f"{name}.toml").read_text("utf-8"))
    return content


@cache
def _folder() -> Path:
    """Where the studies are: beside this file in an installed package, in `lab/studies` in a source tree."""
    here = Path(__file__).parent
    return here if (here / "studies.toml").exists() else here.parents[2] / "studies"


def paper_values(study: str, variant: str) -> dict[str, Any]:
    """What the paper reports, by method: ``values`` by column, each (mean, standard error), and ``not_comparable``."""
    found: dict[str, Any] = _toml("paper").get(study, {}).get(variant, {})
    return found


def from_toml(content: Mapping[str, Any], *, where: str = "study") -> Study:
    """A study from the content of a TOML file; a key that is not known is an error.

    It may take the tracks of another file, ``tracks_of``, ``leave_out`` some of their methods, by name, and have
    another ``evaluation``.
    """
    known = {
        "name",
        "title",
        "paper",
        "seeds",
        "first_seed",
        "variants",
        "tracks",
        "tracks_of",
        "leave_out",
        "evaluation",
        "paper_noise",
    }
    _only(content, known, where)
    variants = tuple(_variant(each, f"{where}: variants") for each in content["variants"])
    tables = _toml(content["tracks_of"])["tracks"] if "tracks_of" in content else content["tracks"]
    tracks = tuple(_track(name, each, f"{where}: tracks.{name}") for name, each in tables.items())
    if left := tuple(content.get("leave_out", ())):
        tracks = tuple(_without(track, left) for track in tracks)
    if evaluation := content.get("evaluation"):
        made = _made(EvaluationSpec, evaluation, f"{where}: evaluation")
        tracks = tuple(replace(track, evaluation=made) for track in tracks)
    return Study(
        content["name"],
        content["title"],
        content["paper"],
        variants,
        tracks,
        checks.whole(f"{where}: seeds", content.get("seeds", 5), at_least=1),
        checks.whole(f"{where}: first_seed", content.get("first_seed", 0), at_least=0),
        paper_noise=checks.non_negative(f"{where}: paper_noise", content.get("paper_noise", 0.0)),
    )


def _variant(content: Mapping[str, Any], where: str) -> Variant:
    _only(content, {each.name for each in fields(Variant)}, where)
    changes = []
    for key, values in content.get("changes", {}).items():
        checks.one_of(f"{where}: changes", key.partition(".")[0], TRACKS)
        changes.append((key, tuple(_checked(Recipe, values, f"{where}: changes.{key}").items())))
    return Variant(
        content["name"],
        content["title"],
        _made(DataSpec, content["data"], f"{where}.data"),
        _made(ModelSpec, content["model"], f"{where}.model"),
        tuple(changes),
        tuple(checks.one_of(f"{where}: tracks", each, TRACKS) for each in content.get("tracks", ())),
        checks.whole(f"{where}: tuning_seeds", content.get("tuning_seeds", 0), at_least=0),
    )


def _track(name: str, content: Mapping[str, Any], where: str) -> Track:
    checks.one_of("track", name, TRACKS)
    _only(content, {"recipe", "evaluation", "reference", "focus", "methods"}, where)
    shared = content.get("recipe", {})
    methods = tuple(_method(each, shared, where) for each in content["methods"])
    known = [method.name for method in methods]
    for method in methods:
        if method.chosen_with:
            checks.one_of(f"chosen_with of {method.name}", method.chosen_with, known)
    reference = checks.one_of("reference", content["reference"], known)
    focus = checks.one_of("focus", content["focus"], known) if "focus" in content else ""
    evaluation = _made(EvaluationSpec, content.get("evaluation", {}), f"{where}.evaluation")
    return Track(name, methods, reference, evaluation, focus)


def _without(track: Track, names: tuple[str, ...]) -> Track:
    """A track without some methods; reference and focus, and what others are chosen with, must stay."""
    for name in names:
        checks.one_of("leave_out", name, [method.name for method in track.methods])
    methods = tuple(method for method in track.methods if method.name not in names)
    needed = {track.reference, track.focus, *(method.chosen_with for method in methods if method.chosen_with)}
    if gone := sorted(needed & set(names)):
        raise ValueError(f"`leave_out` must not name {gone[0]!r}, which others are compared with or chosen by")
    return replace(track, methods=methods)


def _grid(content: Mapping[str, Any], where: str) -> Grid:
    return tuple(
        (key, tuple(_checked(Recipe, {key: value}, where)[key] for value in values)) for key, values in content.items()
    )


def _method(content: Mapping[str, Any], shared: Mapping[str, Any], where: str) -> StudyMethod:
    own = {"name", "title", "grid", "chosen_with", "note"}
    settings = {key: value for key, value in content.items() if key not in own}
    label = f"{where}: method {content.get('name')!r}"
    grid = _grid(content.get("grid", {}), f"{label}, grid")
    recipe = _made(Recipe, {**shared, **settings, **{key: values[0] for key, values in grid}}, label)
    return StudyMethod(
        content["name"], content["title"], recipe, grid, content.get("chosen_with", ""), content.get("note", "")
    )


def _made(kind: type[SpecT], content: Mapping[str, Any], where: str) -> SpecT:
    """A dataclass from a table."""
    assert is_dataclass(kind)
    values = _checked(kind, content, where)
    if missing := [each.name for each in fields(kind) if each.name not in values and _required(each)]:
        raise ValueError(f"{where}: {', '.join(f'`{name}`' for name in missing)} must be given")
    return typing.cast("SpecT", kind(**values))


def _checked(kind: type, content: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Values for fields of a dataclass, with tuples for lists and a sentence for what does not fit."""
    hints = typing.get_type_hints(kind)
    _only(content, set(hints), where)
    values = {}
    for key, value in content.items():
        value = tuple(value) if isinstance(value, list) else value
        if not _fits(value, hints[key]):
            raise ValueError(f"{where}: `{key}` must be {_shown(hints[key])}, but got {value!r}")
        values[key] = _exact(value, hints[key])
    return values


def _required(each: Any) -> bool:
    return each.default is MISSING and each.default_factory is MISSING


def _fits(value: Any, hint: Any) -> bool:
    if isinstance(hint, types.GenericAlias) or typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)[0]
        return isinstance(value, tuple) and all(_fits(each, inner) for each in value)
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def _exact(value: Any, hint: Any) -> Any:
    """Whole numbers as floats where floats are meant, so that 1 and 1.0 are the same run."""
    if hint is float:
        return float(value)
    return tuple(float(each) for each in value) if hint == tuple[float, ...] else value


def _shown(hint: Any) -> str:
    return getattr(hint, "__name__", str(hint)) if typing.get_origin(hint) is None else str(hint)


def _only(content: Mapping[str, Any], known: set[str], where: str) -> None:
    if unknown := sorted(set(content) - known):
        raise ValueError(f"{where}: unknown key {unknown[0]!r}; known are {', '.join(sorted(known))}")
