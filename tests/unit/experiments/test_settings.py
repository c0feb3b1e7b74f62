"""What `selbo train` believes: the trust in it, and the same in words."""

from __future__ import annotations

import pytest

from selbo.experiments.settings import Settings, above_labels, belief_of


@pytest.mark.parametrize(
    ("given", "rows", "about", "expected"),
    [
        (None, 60, None, 60),
        (None, 4000, None, 1000),
        (None, 4000, "the cases in clinic.csv", 4000),
        (2500.0, 60, None, 60),
        (50.0, 60, None, 50),
        (7.0, 4000, "the cases in clinic.csv", 7),
    ],
)
def test_trust_in_the_belief(given: float | None, rows: int, about: str | None, expected: float) -> None:
    settings = Settings("ill", accuracy=0.9, concentration=given)
    (summary,), words = belief_of(settings, ["no", "yes"], shares=[0.8, 0.2], num_train=rows, about=about)
    assert summary.concentration.item() == expected
    assert words.startswith(f"About 90 % of {about or 'all cases'} can be decided rightly; ")


def test_a_concentration_above_the_number_of_labels_is_said() -> None:
    lowered = Settings("ill", accuracy=0.9, concentration=2500.0)
    assert above_labels(lowered, 60).startswith("--concentration 2500 exceeds the 60 training rows, so 60 is used")
    kept = Settings("ill", accuracy=0.9, concentration=2500.0, overrule_labels=True)
    assert belief_of(kept, ["no", "yes"], shares=[0.8, 0.2], num_train=60)[0][0].concentration.item() == 2500
    assert "the belief can overrule the labels" in above_labels(kept, 60)
    assert above_labels(kept, 2500) == above_labels(Settings("ill"), 60) == ""
