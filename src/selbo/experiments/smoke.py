"""A study in seconds: tiny data made on the spot, a few steps, two seeds; for trying the machinery out."""

from dataclasses import replace
from typing import Final

from selbo.experiments.run_spec import DataSpec, EvaluationSpec
from selbo.experiments.study import Study, Track, Variant

SMOKE_STEPS: Final = 3
SMOKE_BATCH: Final = 16
SMOKE_SEEDS: Final = 2
SMOKE_DRAWS: Final = 2
SMOKE_WIDTH: Final = 1 / 32
SMOKE_LABELS: Final = 16
SMOKE_UNLABELLED: Final = 16
KEPT: Final = ("steps", "pretraining", "batch_size", "precision")
"""Settings that a variant of a trial does not change."""


def smoke(study: Study) -> Study:
    """The same study on tiny data that are made on the spot: everything is carried out, and nothing means anything."""
    variants = tuple(
        replace(
            variant,
            data=_smoke_data(variant.data),
            model=replace(variant.model, width=SMOKE_WIDTH, hidden=tuple(8 for _ in variant.model.hidden)),
            changes=tuple((key, tuple(each for each in own if each[0] not in KEPT)) for key, own in variant.changes),
        )
        for variant in _one_of_each_kind(study.variants)
    )
    return replace(
        study,
        variants=variants,
        tracks=tuple(_smoke_track(each) for each in study.tracks),
        seeds=SMOKE_SEEDS,
        generated=True,
    )


def _one_of_each_kind(variants: tuple[Variant, ...]) -> list[Variant]:
    """All variants; of cases with a place of use, those that differ in more than numbers from the ones before."""
    chosen, seen = [], set[object]()
    for variant in variants:
        data = variant.data
        shifted, corrupted = data.label_fractions != data.use_fractions, bool(data.use_noise or data.use_corruption)
        kinds = {data.name, ("shifted", shifted), ("corrupted", corrupted)}
        if not data.labels or not kinds <= seen:
            chosen.append(variant)
        seen |= kinds
    return chosen


def _smoke_data(data: DataSpec) -> DataSpec:
    tiny = replace(data, generated=True, train_size=0)
    if not data.labels:
        return tiny
    labels, val_size = min(SMOKE_LABELS, data.labels), min(SMOKE_LABELS, data.val_size)
    return replace(tiny, labels=labels, val_size=val_size, unlabelled=SMOKE_UNLABELLED)


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
