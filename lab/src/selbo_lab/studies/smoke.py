"""Smoke tests of studies in seconds: tiny generated data, a few steps, two seeds."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from selbo_lab.studies.run_spec import DataSpec, EvaluationSpec
from selbo_lab.studies.study import Study, StudyMethod, Track

T = TypeVar("T")

SMOKE_STEPS: Final = 3
SMOKE_BATCH: Final = 16
SMOKE_SEEDS: Final = 2
SMOKE_DRAWS: Final = 2
SMOKE_WIDTH: Final = 1 / 32
SMOKE_LABELS: Final = 16
SMOKE_UNLABELLED: Final = 16
SMOKE_GROUP: Final = 8
SMOKE_PREVALENCES: Final = 3
KEPT: Final = ("steps", "pretraining", "batch_size", "precision")
"""Settings that variants do not change in a smoke test."""

PLAIN_NUMBER: Final = re.compile(r"[0-9.]+")


def smoke(study: Study) -> Study:
    """The same study on tiny generated data: all steps run, but the results are meaningless.

    Studies with a target domain have many cases and methods that differ only in numbers: one of each kind is kept.
    """
    chosen, tracks = study.variants, study.tracks
    if any(variant.data.labels or variant.data.groups or variant.data.table for variant in chosen):
        chosen = tuple(_covering(chosen, lambda variant: _kinds_of_case(variant.data)))
        tracks = tuple(_one_of_each_kind(track) for track in tracks)
    variants = tuple(
        replace(
            variant,
            data=_smoke_data(variant.data),
            model=replace(variant.model, width=SMOKE_WIDTH, hidden=tuple(8 for _ in variant.model.hidden)),
            changes=tuple((key, tuple(each for each in own if each[0] not in KEPT)) for key, own in variant.changes),
        )
        for variant in chosen
    )
    return replace(
        study,
        variants=variants,
        tracks=tuple(_smoke_track(each) for each in tracks),
        seeds=SMOKE_SEEDS,
        generated=True,
    )


# --- one of each kind ---


def _covering(things: Sequence[T], kinds: Callable[[T], set[object]]) -> list[T]:
    """A greedy cover: few items that together have all kinds, in their order."""
    chosen: list[int] = []
    missing: set[object] = set().union(*map(kinds, things))
    while missing:
        chosen.append(max(range(len(things)), key=lambda i: len(kinds(things[i]) & missing)))
        missing -= kinds(things[chosen[-1]])
    return [things[i] for i in sorted(chosen)]


def _kinds_of_case(data: DataSpec) -> set[object]:
    shifted, corrupted = data.label_fractions != data.use_fractions, bool(data.use_noise or data.use_corruption)
    bags = data.groups if data.group_size else ""
    of_groups = (bags, data.official, bool(data.fraction_noise), bool(data.few_labels))
    return {
        data.name,
        ("simplex", bool(data.prevalences)),
        ("shifted", shifted),
        ("corrupted", corrupted),
        *enumerate(of_groups),
    }


def _kinds_of_method(method: StudyMethod) -> set[object]:
    """Text settings of a recipe without their numbers, and which of its numbers are not 0."""
    recipe = method.recipe
    told = {
        name: PLAIN_NUMBER.sub("0", value) if isinstance(value, str) else bool(value)
        for name, value in vars(recipe).items()
    }
    with_ = bool(recipe.partition), bool(recipe.rounds), bool(recipe.summary_warmup)
    return {*told.items(), (recipe.objective, *with_)}


def _one_of_each_kind(track: Track) -> Track:
    """Fewer methods, including reference and focus; settings are tuned only if another method reuses them."""
    chosen = {method.name for method in _covering(track.methods, _kinds_of_method)} | {track.reference, track.focus}
    taken = {method.chosen_with for method in track.methods if method.name in chosen}
    methods = tuple(method for method in track.methods if method.name in chosen | taken)
    kept = tuple(method if method.name in taken else replace(method, grid=()) for method in methods)
    return replace(track, methods=kept)


# --- tiny ---


def _smoke_data(data: DataSpec) -> DataSpec:
    tiny = replace(data, generated=True, train_size=0)
    if data.groups:
        size, labels = min(SMOKE_GROUP, data.group_size), min(SMOKE_LABELS, data.few_labels)
        return replace(tiny, group_size=size, least_group=0, few_labels=labels)
    if not data.labels:
        return tiny
    labels, val_size = min(SMOKE_LABELS, data.labels), min(SMOKE_LABELS, data.val_size)
    return replace(
        tiny,
        labels=labels,
        val_size=val_size,
        unlabelled=0 if data.prevalences else SMOKE_UNLABELLED,  # of every class
        prevalences=min(SMOKE_PREVALENCES, data.prevalences),
    )


def _smoke_track(track: Track) -> Track:
    methods = tuple(
        replace(
            method,
            recipe=replace(
                method.recipe,
                steps=SMOKE_STEPS,
                batch_size=SMOKE_BATCH,
                draws=1,
                precision="fp32",
                members=min(2, method.recipe.members),
                pretraining=min(SMOKE_STEPS, method.recipe.pretraining),
                rounds=min(1, method.recipe.rounds),
                neighbours=min(3, method.recipe.neighbours),
                swag_steps=min(SMOKE_STEPS - 1, method.recipe.swag_steps),
                swag_every=min(1, method.recipe.swag_steps),
            ),
            grid=tuple((name, values[:2] if i == 0 else values[:1]) for i, (name, values) in enumerate(method.grid)),
        )
        for method in track.methods
    )
    evaluation = replace(
        track.evaluation,
        draws=SMOKE_DRAWS,
        corrupted_draws=0,
        levels=track.evaluation.levels[:2],
        corruptions=_smoke_corruptions(track.evaluation),
        severities=track.evaluation.severities[:1] or ((1, 5) if "cifar" in track.evaluation.suite else ()),
    )
    return replace(track, methods=methods, evaluation=evaluation)


def _smoke_corruptions(evaluation: EvaluationSpec) -> tuple[str, ...]:
    if not evaluation.suite or evaluation.suite == "noise":
        return ()
    return evaluation.corruptions[:2] or ("brightness", "fog")
