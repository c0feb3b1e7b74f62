"""Every study of the catalogue, from end to end, on tiny data that are made on the spot."""

from __future__ import annotations

from pathlib import Path

import pytest

from selbo_lab.run.table_methods import can_be_trained
from selbo_lab.schedule import runner
from selbo_lab.studies import reader


@pytest.mark.filterwarnings("ignore:runs of LightGBM are left out")  # it is an extra
@pytest.mark.parametrize("name", reader.names())
def test_every_study_runs_in_a_trial(name: str, tmp_path: Path) -> None:
    study = runner.study_of(name, trial=True)
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
