"""A study in seconds: tiny data made on the spot, a few steps, two seeds; for trying the machinery out."""

from dataclasses import replace
from typing import Final

from selbo.experiments.study import EvaluationSpec, Study, Track

SMOKE_STEPS: Final = 3
SMOKE_BATCH: Final = 16
SMOKE_SEEDS: Final = 2
SMOKE_DRAWS: Final = 2
SMOKE_WIDTH: Final = 1 / 32


def smoke(study: Study) -> Study:
    """The same study on tiny data that are made on the spot: everything is carried out, and nothing means anything."""
    variants = tuple(
        replace(
            variant,
            data=replace(variant.data, generated=True, train_size=0),
            model=replace(variant.model, width=SMOKE_WIDTH, hidden=tuple(8 for _ in variant.model.hidden)),
            changes=tuple((key, tuple(each for each in own if each[0] != "steps")) for key, own in variant.changes),
        )
        for variant in study.variants
    )
    return replace(
        study,
        variants=variants,
        tracks=tuple(_smoke_track(each) for each in study.tracks),
        seeds=SMOKE_SEEDS,
        generated=True,
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
