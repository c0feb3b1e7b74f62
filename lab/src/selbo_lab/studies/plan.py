"""The runs of a study: tuning runs, which choose the settings, and reported runs."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, NamedTuple

from selbo_lab.studies.run_spec import DataSpec, EvaluationSpec, ModelSpec, Recipe, RunSpec
from selbo_lab.studies.study import Study, StudyMethod, Track, Variant

TUNING_SEED: Final = 1000
"""First seed of the tuning runs; no reported run uses it."""


class PlannedRun(NamedTuple):
    """A run, and its place in a study."""

    variant: str
    track: str
    method: str
    spec: RunSpec


@dataclass(frozen=True)
class StudyPart:
    """Some methods and variants of a study, by name; all where none is named."""

    methods: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()

    def check(self, study: Study) -> None:
        """Raise an error if the study lacks one of them."""
        for what, names, known in (
            ("methods", self.methods, [method.name for track in study.tracks for method in track.methods]),
            ("variants", self.variants, [variant.name for variant in study.variants]),
        ):
            for name in names:
                if name not in known:
                    there = ", ".join(dict.fromkeys(known))
                    raise ValueError(f"`--{what}` must name {what} of {study.name} ({there}), but got {name!r}")

    def specs(self, study: Study, jobs: Iterable[PlannedRun]) -> list[RunSpec]:
        """Settings of the runs that belong to it, with those that choose settings for its methods."""
        named = {*self.methods}
        reused = {method.chosen_with for track in study.tracks for method in track.methods if method.name in named}
        return [
            job.spec
            for job in jobs
            if (not named or job.method in named or (job.method in reused and not job.spec.evaluation.test))
            and (not self.variants or job.variant in self.variants)
        ]


class PlannedMethod(NamedTuple):
    """A method of a study for one of its variants, with its tuning runs and its reported runs."""

    variant: Variant
    track: Track
    method: StudyMethod

    def tuning_jobs(self) -> Iterator[PlannedRun]:
        """Tuning runs, for each candidate if there are several."""
        candidates = self.method.candidates()
        if len(candidates) > 1:
            for recipe in candidates:
                for spec in tuning_specs(self.variant, self.track, recipe):
                    yield self._run(spec)

    def final_jobs(self, seeds: Sequence[int], val_nll: Mapping[str, float | None]) -> Iterator[PlannedRun]:
        """Reported runs, with the chosen settings and all seeds."""
        recipe = chosen(self.variant, self.track, self.method, val_nll)
        for seed in seeds:
            yield self._run(RunSpec(self.variant.data, self.variant.model, recipe, self.track.evaluation, seed))

    def chosen_by(self) -> Iterator[RunSpec]:
        """The tuning runs that its settings are chosen by: its own, or those of the method that it follows."""
        followed = self.track.method(self.method.chosen_with or self.method.name)
        like = self._replace(method=self.variant.adapted(self.track, followed))
        yield from (job.spec for job in like.tuning_jobs())

    def _run(self, spec: RunSpec) -> PlannedRun:
        return PlannedRun(self.variant.name, self.track.name, self.method.name, spec)


def planned_methods(study: Study, tracks: Sequence[str]) -> Iterator[PlannedMethod]:
    """All methods of all variants of a study."""
    for variant, track in study.comparisons(tracks):
        for method in track.methods:
            yield PlannedMethod(variant, track, variant.adapted(track, method))


def tuning_jobs(study: Study, tracks: Sequence[str]) -> Iterator[PlannedRun]:
    """Tuning runs, for each candidate of each method with several candidates."""
    for planned in planned_methods(study, tracks):
        yield from planned.tuning_jobs()


def tuning_specs(variant: Variant, track: Track, recipe: Recipe) -> list[RunSpec]:
    """Runs on validation data only: on as many seeds as the variant says, or one with all validation data."""
    return list(_tuning_specs(variant.data, variant.model, recipe, track.evaluation.draws, variant.tuning_seeds))


@cache
def _tuning_specs(
    data: DataSpec, model: ModelSpec, recipe: Recipe, draws: int, tuning_seeds: int
) -> tuple[RunSpec, ...]:
    """The same objects each time, because each hashes its settings once."""
    evaluation = EvaluationSpec(draws=draws, test=False)
    data = data if tuning_seeds else replace(data, val_size=0)
    seeds = range(TUNING_SEED, TUNING_SEED + max(1, tuning_seeds))
    return tuple(RunSpec(data, model, recipe, evaluation, seed) for seed in seeds)


def tuned_nll(variant: Variant, track: Track, recipe: Recipe, val_nll: Mapping[str, float | None]) -> float | None:
    """Mean validation NLL of a recipe over its tuning runs; None if one of them diverged or is missing."""
    found = [val_nll.get(spec.id) for spec in tuning_specs(variant, track, recipe)]
    known = [nll for nll in found if nll is not None]
    return math.fsum(known) / len(known) if len(known) == len(found) else None


def final_jobs(
    study: Study, tracks: Sequence[str], seeds: Sequence[int], val_nll: Mapping[str, float | None]
) -> Iterator[PlannedRun]:
    """Reported runs: each method with its chosen settings and all seeds.

    Args:
        study: The study.
        tracks: Names of its tracks.
        seeds: Seeds of the runs.
        val_nll: Validation NLL of the tuning runs, by run id; None for a run that diverged.
    """
    for planned in planned_methods(study, tracks):
        yield from planned.final_jobs(seeds, val_nll)


def chosen(variant: Variant, track: Track, method: StudyMethod, val_nll: Mapping[str, float | None]) -> Recipe:
    """The recipe with the lowest validation NLL; recipes with a diverged run are never chosen."""
    if method.chosen_with:
        like = variant.adapted(track, track.method(method.chosen_with))
        other = chosen(variant, track, like, val_nll)
        return replace(method.recipe, **{name: getattr(other, name) for name, _ in like.grid})
    candidates = method.candidates()
    if len(candidates) == 1:
        return candidates[0]
    found = {recipe: tuned_nll(variant, track, recipe, val_nll) for recipe in candidates}
    usable = {recipe: nll for recipe, nll in found.items() if nll is not None}
    return min(usable, key=usable.__getitem__) if usable else candidates[0]
