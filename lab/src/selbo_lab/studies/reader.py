"""Reads studies from TOML files; an unknown key is an error."""

import sys
import typing
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from selbo.checks import one_of
from selbo_lab.studies.paper import PaperValues
from selbo_lab.studies.run_spec import EvaluationSpec, Recipe
from selbo_lab.studies.study import TRACKS, SettingGrid, Study, StudyMethod, Track, Variant

SpecT = TypeVar("SpecT")


def names() -> list[str]:
    """Names of all studies, in the order of the paper."""
    listed = _toml("studies")["order"]
    assert isinstance(listed, list)
    return [str(name) for name in listed]


def load_study(name: str) -> Study:
    """Load a study by name; errors name its file."""
    one_of("study", name, names())
    try:
        return from_toml(_toml(name))
    except ValueError as error:
        raise ValueError(f"{name}.toml: {error}") from error


def _toml(name: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    content: dict[str, Any] = tomllib.loads((_folder() / f"{name}.toml").read_text("utf-8"))
    return content


@cache
def _folder() -> Path:
    """Folder of the studies: next to this file in an installed package, `lab/studies` in a source tree."""
    here = Path(__file__).parent
    return here if (here / "studies.toml").exists() else here.parents[2] / "studies"


def paper_values(study: str, variant: str) -> PaperValues:
    """Values that the paper reports for a variant; empty if it has no such table."""
    return PaperValues.from_dict(_toml("paper").get(study, {}).get(variant, {}))


def from_toml(content: Mapping[str, Any]) -> Study:
    """Build a study from the content of a TOML file; an unknown key is an error.

    ``tracks_of`` reuses the tracks of another file, ``variants_of`` its variants.
    """
    own = {each.name for each in fields(Study)} - {"generated"}
    parts = {part: f"{part}_of" for part in ("variants", "tracks")}
    reused = {part: _toml(content[key])[part] for part, key in parts.items() if key in content}
    _only(content, own | {*parts.values()}, "study", required=[part for part in parts if part not in reused])
    found = {**content, **reused}
    tracks = tuple(_track(name, each, f"tracks.{name}") for name, each in found["tracks"].items())
    variants = tuple(_variant(each) for each in found["variants"])
    told = {key: value for key, value in content.items() if key in own}
    return _made(Study, {**told, "variants": variants, "tracks": tracks}, "study")


def _variant(content: Mapping[str, Any]) -> Variant:
    changes = tuple(
        (key, tuple(_checked(Recipe, values, f"variants: changes.{key}").items()))
        for key, values in content.get("changes", {}).items()
    )
    return _made(Variant, {**content, "changes": changes}, "variants")


def _track(name: str, content: Mapping[str, Any], where: str) -> Track:
    one_of("track", name, TRACKS)
    keys = {"recipe", "evaluation", "reference", "focus", "methods"}
    _only(content, keys, where, required=("methods", "reference"))
    shared = content.get("recipe", {})
    methods = tuple(_method(each, shared, where) for each in content["methods"])
    known = [method.name for method in methods]
    choosing = [method.name for method in methods if not method.chosen_with]
    for method in methods:
        if method.chosen_with:
            one_of(f"chosen_with of {method.name}", method.chosen_with, choosing)
    reference = one_of("reference", content["reference"], known)
    focus = one_of("focus", content["focus"], known) if "focus" in content else ""
    evaluation = _made(EvaluationSpec, content.get("evaluation", {}), f"{where}.evaluation")
    return Track(name, methods, reference, evaluation, focus)


def _grid(content: Mapping[str, Any], where: str) -> SettingGrid:
    return tuple(
        (key, tuple(_checked(Recipe, {key: value}, where)[key] for value in values)) for key, values in content.items()
    )


def _method(content: Mapping[str, Any], shared: Mapping[str, Any], where: str) -> StudyMethod:
    own = {each.name for each in fields(StudyMethod)} - {"recipe"}
    settings = {key: value for key, value in content.items() if key not in own}
    told = {key: value for key, value in content.items() if key in own}
    label = f"{where}: method {content.get('name')!r}"
    grid = _grid(content.get("grid", {}), f"{label}, grid")
    recipe = _made(Recipe, {**shared, **settings, **{key: values[0] for key, values in grid}}, label)
    return _made(StudyMethod, {**told, "recipe": recipe, "grid": grid}, label)


def _made(kind: type[SpecT], content: Mapping[str, Any], where: str) -> SpecT:
    """Build a dataclass from a table, which may hold nested tables."""
    values = _checked(kind, content, where)
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:  # a key is missing, or the dataclass rejects a value
        raise ValueError(f"{where}: {error}") from error


def _checked(kind: type, content: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Convert values to the field types of a dataclass; raises an error for a value that does not fit.

    Integers become floats in float fields, so that 1 and 1.0 give the same run.
    """
    hints = _field_types(kind)
    _only(content, set(hints), where)  # msgspec ignores unknown keys
    values = {}
    for key, value in content.items():
        hint = hints[key]
        if is_dataclass(hint) and isinstance(value, dict):
            value = _made(typing.cast("type", hint), value, f"{where}.{key}")
        try:
            values[key] = msgspec.convert(value, hint)
        except msgspec.ValidationError as error:
            shown = str(hint) if typing.get_origin(hint) else hint.__name__
            raise ValueError(f"{where}: `{key}` must be {shown}, but got {value!r}") from error
    return values


@cache
def _field_types(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _only(content: Mapping[str, Any], known: set[str], where: str, *, required: Iterable[str] = ()) -> None:
    if unknown := sorted(set(content) - known):
        raise ValueError(f"{where}: unknown key {unknown[0]!r}; known are {', '.join(sorted(known))}")
    if missing := [name for name in required if name not in content]:
        raise ValueError(f"{where}: `{missing[0]}` must be given")
