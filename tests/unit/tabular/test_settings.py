"""What `selbo train` believes: class fractions in either form, the trust in them, and the same in words."""

from __future__ import annotations

import pytest

from selbo.tabular.settings import Settings, above_labels, build_summaries, order_fractions, read_named_fractions


@pytest.mark.parametrize(
    ("given", "rows", "about", "expected"),
    [
        (None, 60, None, 60),
        (None, 4000, None, 1000),
        (None, 4000, "the cases in clinic.csv", 1200),
        (2500.0, 60, None, 60),
        (50.0, 60, None, 50),
        (7.0, 4000, "the cases in clinic.csv", 7),
    ],
)
def test_trust_in_the_belief(given: float | None, rows: int, about: str | None, expected: float) -> None:
    settings = Settings("ill", accuracy=0.9, concentration=given)
    (summary,), words = build_summaries(settings, ["no", "yes"], shares=[0.8, 0.2], num_train=rows, about=about)
    assert summary.concentration.item() == expected
    assert words.startswith(f"About 90 % of {about or 'all cases'} can be decided rightly; ")


def test_a_concentration_above_the_number_of_labels_is_said() -> None:
    lowered = Settings("ill", accuracy=0.9, concentration=2500.0)
    assert above_labels(lowered, 60).startswith("--concentration 2500 exceeds the 60 training rows, so 60 is used")
    kept = Settings("ill", accuracy=0.9, concentration=2500.0, overrule_labels=True)
    assert build_summaries(kept, ["no", "yes"], shares=[0.8, 0.2], num_train=60)[0][0].concentration.item() == 2500
    assert "the belief can overrule the labels" in above_labels(kept, 60)
    assert above_labels(kept, 2500) == above_labels(Settings("ill"), 60) == ""


NASTY = ("b,x", "a,y", "c=d", 'it\'s "quoted"', " spaces ", "-x", "--help", "0.5")


def test_a_named_fraction_belongs_to_its_class_whatever_the_name() -> None:
    values = [0.3, 0.2, 0.15, 0.1, 0.1, 0.08, 0.05, 0.02]
    given = read_named_fractions([f"{name}={value}" for name, value in zip(NASTY, values, strict=True)])
    classes = sorted(NASTY)
    expected = [values[NASTY.index(name)] for name in classes]
    assert order_fractions(given, classes) == pytest.approx(expected)
    (summary,), words = build_summaries(Settings("x", class_fractions=given), classes, shares=[0.125] * 8, num_train=9)
    assert summary.s0.tolist() == pytest.approx(expected)
    assert (
        words == "Of all cases, the most frequent class, b,x, makes up 30 % and the rarest, class 0.5, 2 % (as stated)."
    )


@pytest.mark.parametrize("text", ["yes", "0.5", "=0.5", "yes=", "yes=many", "yes=0.5 ="])
def test_a_named_fraction_is_a_name_and_a_number(text: str) -> None:
    with pytest.raises(ValueError, match=r"^`--class-fraction` must be a class and a number such as yes=0.3, but got"):
        read_named_fractions([text])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"yes": 1.0}, "`--class-fraction` must name every class, but 'no' is missing"),
        ({"yes": 0.5, "n": 0.5}, "`--class-fraction` names 'n', which is no class"),
        ({"yes": 0.5, "no": 0.6}, "`--class-fraction` must sum to 1"),
        ({"yes": 1.5, "no": -0.5}, "`--class-fraction` must be positive"),
        ({"yes": float("nan"), "no": 0.5}, "`--class-fraction` must be a number, but got NaN"),
    ],
)
def test_named_fractions_must_fit_the_classes(given: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        order_fractions(given, ["no", "yes"])


def test_settings_with_named_fractions_can_be_compared_with_those_of_a_file() -> None:
    """In any order; without them, the entry is the text or nothing, as before there were any."""
    first, second = ({"a,b": 0.25, "c": 0.75}, {"c": 0.75, "a,b": 0.25})
    assert Settings("x", class_fractions=first).to_json() == Settings("x", class_fractions=second).to_json()
    assert Settings("x", class_fractions="0.3,0.7").to_json()["class_fractions"] == "0.3,0.7"
    assert Settings("x").to_json()["class_fractions"] is None
    assert "class_fraction" not in Settings("x").to_json()
