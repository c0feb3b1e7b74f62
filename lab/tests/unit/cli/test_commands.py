"""The commands of the laboratory, as `selbo` finds them."""

from __future__ import annotations

import pytest

from selbo.cli.main import resumes
from selbo_lab.cli import reproduce


def test_which_commands_resume_after_an_interruption() -> None:
    assert resumes(["reproduce", "sst"])
    assert resumes(["data", "get", "mnist"])
    assert not resumes(["data", "list"])


@pytest.mark.parametrize(
    ("device", "models", "cores", "expected"),
    [
        ("cpu", ["vgg11"], 5, 5),
        ("cuda", ["mlp", "lenet"], 40, 14),
        ("cuda", ["lenet"], 6, 6),
        ("cuda:1", ["lenet", "vgg11"], 40, 3),
        ("cuda", ["vgg11"], 2, 2),
    ],
)
def test_runs_at_a_time(
    device: str, models: list[str], cores: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reproduce, "cores", lambda: cores)
    assert reproduce.at_a_time(device, models) == expected
