"""What `selbo train` believes: the trust in it, and the same in words."""

from __future__ import annotations

import pytest

from selbo.experiments.settings import Settings, belief_of


@pytest.mark.parametrize(
    ("given", "rows", "about", "expected"),
    [
        (None, 60, None, 60),
        (None, 4000, None, 1000),
        (None, 4000, "the cases in clinic.csv", 4000),
        (2500.0, 60, None, 2500),
        (7.0, 4000, "the cases in clinic.csv", 7),
    ],
)
def test_trust_in_the_belief(given: float | None, rows: int, about: str | None, expected: float) -> None:
    settings = Settings("ill", accuracy=0.9, concentration=given)
    summary, words = belief_of(settings, ["no", "yes"], shares=[0.8, 0.2], num_train=rows, about=about)
    assert summary.concentration.item() == expected
    assert words.startswith(f"About 90 % of {about or 'all cases'} can be decided rightly; ")
