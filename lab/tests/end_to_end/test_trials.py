"""Every study of the catalogue, from end to end, on tiny data that are made on the spot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from selbo_lab.run.table_methods import can_be_trained
from selbo_lab.schedule import runner
from selbo_lab.studies import reader
from selbo_lab.studies.study import Study


def with_few_grids(study: Study) -> Study:
    """Settings are chosen for one method per track and where another takes them over: it is done alike for all."""
    tracks = []
    for track in study.tracks:
        chosen = {each.name for each in [each for each in track.methods if each.grid][:1]}
        chosen |= {each.chosen_with for each in track.methods}
        methods = tuple(each if each.name in chosen else replace(each, grid=()) for each in track.methods)
        tracks.append(replace(track, methods=methods))
    return replace(study, tracks=tuple(tracks))


@pytest.mark.filterwarnings("ignore:runs of LightGBM are left out")  # it is an extra
@pytest.mark.parametrize("name", reader.names())
def test_every_study_runs_in_a_trial(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = runner.load_known_study(name, trial=True)
    if name != "sst":  # one study shows that settings are chosen for every method
        study = with_few_grids(study)
        monkeypatch.setattr(runner, "load_known_study", lambda name, trial: study)
    seeds = study.seeds if name == "sst" else 1  # one study shows that there may be several
    results = runner.run_study(study, tmp_path / name, executor="here", seeds=seeds)
    assert results.generated
    assert {each.track for each in results.comparisons} == {track.name for track in study.tracks}
    for comparison in results.comparisons:
        for method in comparison.methods:
            if not can_be_trained(method.recipe):
                continue
            assert all(run.status == "finished" and run.tested for run in method.runs)
            assert len(method.runs) == seeds
