"""Definition of a study: data sets, networks, methods with their grids, seeds and evaluations."""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

from selbo.checks import non_negative, one_of, whole
from selbo_lab.studies.run_spec import DataSpec, EvaluationSpec, ModelSpec, Recipe

TRACKS: Final = ("published", "selbo")

SettingGrid = tuple[tuple[str, tuple[Any, ...]], ...]
"""Settings to choose from: names, each with its values."""


@dataclass(frozen=True)
class StudyMethod:
    """A row of a table.

    Attributes:
        name: Name in files.
        title: Title in tables.
        recipe: The recipe with the first value of every setting of the grid.
        grid: Settings to choose from, by validation NLL; all combinations are tried.
        chosen_with: Another method whose chosen settings are reused, such as those of the members of an ensemble.
        note: Remark for the reader.
    """

    name: str
    title: str
    recipe: Recipe
    grid: SettingGrid = ()
    chosen_with: str = ""
    note: str = ""

    def candidates(self) -> list[Recipe]:
        """The recipes to choose from; one if there is nothing to choose."""
        return list(_recipes(self.recipe, self.grid))


@cache
def _recipes(recipe: Recipe, grid: SettingGrid) -> tuple[Recipe, ...]:
    """A recipe with all combinations of some settings; planning, choosing and reporting ask for the same ones."""
    names = [name for name, _ in grid]
    return tuple(
        replace(recipe, **dict(zip(names, values, strict=True)))
        for values in itertools.product(*(values for _, values in grid))
    )


@dataclass(frozen=True)
class Variant:
    """A data set and a network, on which all methods are compared.

    Attributes:
        name: Name in files.
        title: Title in tables.
        data: The data set.
        model: The network.
        changes: Settings that differ here, by track (``published``) or by track and method (``published.elbo``).
        tracks: Names of the tracks that it is part of; all if empty.
        tuning_seeds: Number of seeds for tuning, each with a validation set as large as in the reported runs; 0 for one
            seed and all validation data.
    """

    name: str
    title: str
    data: DataSpec
    model: ModelSpec
    changes: tuple[tuple[str, tuple[tuple[str, Any], ...]], ...] = ()
    tracks: tuple[str, ...] = ()
    tuning_seeds: int = 0

    def __post_init__(self) -> None:
        for key, _ in self.changes:
            one_of("changes", key.partition(".")[0], TRACKS)
        for name in self.tracks:
            one_of("tracks", name, TRACKS)
        whole("tuning_seeds", self.tuning_seeds, at_least=0)

    def adapted(self, track: "Track", method: StudyMethod) -> StudyMethod:
        """A method with the settings of this variant."""
        changes = dict(self.changes)
        own = {**dict(changes.get(track.name, ())), **dict(changes.get(f"{track.name}.{method.name}", ()))}
        return replace(method, recipe=replace(method.recipe, **own)) if own else method


@dataclass(frozen=True)
class Track:
    """Methods with the settings of the paper's code, or with tuned settings.

    Attributes:
        name: ``published`` or ``selbo``.
        methods: The rows of its table.
        reference: The method that others are compared with.
        evaluation: Evaluation settings.
        focus: The method that is compared with each of the others, if there is one.
    """

    name: str
    methods: tuple[StudyMethod, ...]
    reference: str
    evaluation: EvaluationSpec
    focus: str = ""

    def method(self, name: str) -> StudyMethod:
        """A method by name."""
        return next(each for each in self.methods if each.name == name)


@dataclass(frozen=True)
class Study:
    """A table of the paper, or several.

    Attributes:
        name: Name on the command line.
        title: Title of the study.
        paper: Tables and figures of the paper that it reproduces.
        variants: Data and networks.
        tracks: Its tracks.
        seeds: Default number of seeds.
        first_seed: First seed; above those whose results had been seen before the study was defined.
        generated: Whether its data are tiny generated ones.
        paper_noise: The strongest noise that the paper shows, where more was measured; 0 if that does not apply.
    """

    name: str
    title: str
    paper: str
    variants: tuple[Variant, ...]
    tracks: tuple[Track, ...]
    seeds: int = 5
    first_seed: int = 0
    generated: bool = False
    paper_noise: float = 0.0

    def __post_init__(self) -> None:
        whole("seeds", self.seeds, at_least=1)
        whole("first_seed", self.first_seed, at_least=0)
        non_negative("paper_noise", self.paper_noise)

    def seed_range(self, count: int) -> range:
        """Seeds of the reported runs."""
        return range(self.first_seed, self.first_seed + count)

    def track(self, name: str) -> Track:
        """A track by name."""
        return next(each for each in self.tracks if each.name == name)

    def comparisons(self, tracks: Iterable[str]) -> Iterator[tuple[Variant, Track]]:
        """Tables of the study: each variant with each of the named tracks that it belongs to."""
        names = frozenset(tracks)
        for variant in self.variants:
            for track in self.tracks:
                if track.name in names and (not variant.tracks or track.name in variant.tracks):
                    yield variant, track
