"""What the page shows: numbers of the library, claims that follow from them, warnings where they clash."""

from __future__ import annotations

import base64

import numpy as np
import pytest
from scipy import stats

from selbo.elicit.answer import answer
from selbo.elicit.captions import share
from selbo.elicit.charts import compute_intervals, confidence_masses, sample_histograms
from selbo.elicit.refused import RefusedError
from selbo.elicit.state import build_partition, read_state
from selbo.summary.beliefs import Beta, Uniform
from selbo.summary.elicitation import expect
from selbo.summary.partitions import ConfidenceBins, CornerShells, ScoreBins

THREE = {"classes": 3, "regions": "shells", "accuracy": 0.8, "fractions": [0.6, 0.3, 0.1]}


def shown(**state: object) -> dict:
    return answer("belief", state)


def plain(texts: list[str]) -> str:
    return " ".join(texts).replace("\N{NO-BREAK SPACE}", " ")


def test_s0_is_that_of_the_library() -> None:
    found = shown(accuracy=0.9, fractions=[0.8, 0.2], regions="unequal")
    masses = expect(0.9, [0.8, 0.2]).masses(ScoreBins([0.01, 0.05, 0.1, 0.9, 0.95, 0.99]))
    assert found["s0"] == masses.tolist()
    found = shown(**THREE)
    assert found["s0"] == expect(0.8, [0.6, 0.3, 0.1]).masses(CornerShells(3)).tolist()
    assert len(found["labels"]) == len(found["low"]) == len(found["high"]) == 7


def test_the_density_of_scores_is_that_of_the_beta() -> None:
    found = shown(accuracy=0.6, fractions=[0.6, 0.4])["picture"]
    beta = expect(0.6, [0.6, 0.4])
    assert isinstance(beta, Beta)
    cdf = stats.beta(beta.a, beta.b).cdf(np.arange(201) / 200)
    np.testing.assert_allclose(found["density"], 200 * np.diff(cdf), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.mean(found["density"]), 1, rtol=1e-12)


def test_the_density_of_a_histogram_is_flat_in_each_region() -> None:
    state = {"source": "draw", "heights": [1, 3], "regions": "edges", "edges": [0.25]}
    density = np.array(shown(**state)["picture"]["density"])
    np.testing.assert_allclose(density[:50], 0.25 / 0.25)
    np.testing.assert_allclose(density[50:], 0.75 / 0.75)
    state["edges"] = [0.75]
    density = np.array(shown(**state)["picture"]["density"])
    np.testing.assert_allclose(density[[0, -1]], [0.25 / 0.75, 0.75 / 0.25])


@pytest.mark.parametrize(
    ("state", "cuts"),
    [
        ({"regions": "edges", "edges": [0.2, 0.7]}, [0.2, 0.7]),
        ({"regions": "shells", "edges": [0.75]}, [0.25, 0.75]),
        ({"regions": "classes"}, [0.5]),
        ({"regions": "confidence", "edges": [0.75]}, [0.25, 0.75]),
    ],
)
def test_regions_of_two_classes_end_at_these_scores(state: dict, cuts: list[float]) -> None:
    assert shown(**state)["picture"]["cuts"] == cuts


def test_the_heat_map_is_bright_where_predictions_are() -> None:
    found = shown(**THREE)["picture"]
    shades = np.frombuffer(base64.b64decode(found["shades"]), np.uint8).reshape(found["rows"], found["columns"])
    corner_0, corner_2, centre = shades[-2, 2], shades[2, 120], shades[140, 120]
    assert corner_0 > corner_2 > centre
    assert found["names"] == ["class 0", "class 1", "class 2"]
    assert len(found["lines"]) == 6
    assert found["corners"][0][0] == "> 95 %: 21.1 %"
    assert found["inside"][0][2] == "52.5 %"


def test_the_heat_map_of_a_histogram_tells_regions_apart() -> None:
    found = shown(classes=3, regions="classes", source="draw", heights=[1, 1, 8])["picture"]
    shades = np.frombuffer(base64.b64decode(found["shades"]), np.uint8).reshape(found["rows"], found["columns"])
    assert shades[20, 120] > shades[-5, 20] == shades[-5, -20]


def test_confidence_of_many_classes() -> None:
    found = shown(classes=10, regions="shells", accuracy=0.7)["picture"]
    belief = expect(0.7, num_classes=10)
    reference = belief.masses(ConfidenceBins([0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99], 10))
    np.testing.assert_allclose(found["masses"], reference, rtol=1e-12)
    assert shown(classes=4, regions="classes", source="draw", heights=[1, 2, 3, 4])["picture"] is None


def test_draws_are_those_of_their_seed() -> None:
    s0 = np.array([0.2, 0.8])
    assert sample_histograms(s0, 50.0, 1) == sample_histograms(s0, 50.0, 1) != sample_histograms(s0, 50.0, 2)
    np.testing.assert_allclose(np.sum(sample_histograms(s0, 50.0, 1), -1), 1)


def test_nine_draws_in_ten_lie_in_the_interval(seed: int) -> None:
    s0, concentration = np.array([0.1, 0.3, 0.6]), 40.0
    low, high = compute_intervals(s0, concentration)
    drawn = np.concatenate([sample_histograms(s0, concentration, 1000 * seed + i) for i in range(500)])
    inside = ((drawn > low) & (drawn < high)).mean(0)
    assert (np.abs(inside - 0.9) < 5 * np.sqrt(0.9 * 0.1 / len(drawn))).all()


# --- words ---


def test_claims_of_two_numbers() -> None:
    found = plain(shown(accuracy=0.9, fractions=[0.8, 0.2], names=["healthy", "ill"], concentration=500)["claims"])
    beta = expect(0.9, [0.8, 0.2])
    sure = beta.masses(ScoreBins([0.05, 0.95]))[[0, 2]].sum().item()
    open_share = beta.masses(ScoreBins([0.4, 0.6]))[1].item()
    assert f"About {100 * sure:.0f} % of cases are predicted with more than 95 % confidence" in found
    assert f"{100 * open_share:.1f} % are left open" in found
    assert "“healthy” in 80 % and “ill” in 20 % of cases" in found
    assert "right in 90 % of cases" in found
    assert "If you are as sure as after 500 cases, “ill: 0 to 10 % likely” has between" in found


def test_claims_of_the_strength_follow_the_number_of_labels() -> None:
    assert "If you are as sure as after 70 cases" in plain(shown(num_labels=70)["claims"])
    assert "If you are as sure as after 1 000 cases" in plain(shown(num_labels=70_000)["claims"])
    assert "as much as your labelled examples, and at most as 1 000 of them. With 1 000, “" in plain(shown()["claims"])
    few, many = shown(num_labels=20), shown(num_labels=2000)
    assert few["s0"] == many["s0"]
    assert few["high"][0] - few["low"][0] > 3 * (many["high"][0] - many["low"][0])


def test_claims_of_counted_scores_are_exact() -> None:
    """Regions leave open what is predicted in them; the scores themselves do not."""
    state = {"source": "scores", "masses": [0.2, 0.7, 0.1], "rows": 1234, "regions": "edges", "edges": [0.3, 0.8]}
    counted = {"claimed": 0.71, "predicted": [0.415, 0.585], "accuracy": 0.7, "fractions": [0.4, 0.6]}
    found = plain(shown(**state, **counted)["claims"])
    assert "It predicts “class 0” in 42 % and “class 1” in 58 % of cases." in found
    assert "the earlier model is right in 71 % of cases" in found
    assert " to " not in found.split("The largest share")[0]
    assert "This is what 1 234 predictions of the earlier model look like." in found
    assert shown(**state, **counted)["warnings"] == []
    other = plain(shown(**state, **{**counted, "fractions": [0.6, 0.4]})["warnings"])
    assert "This histogram predicts “class 1” in 58.5 % of cases, but its share is 40 %." in other
    older = plain(shown(**state)["claims"])  # a link from before these were in it
    assert "“class 0” in 20 to 90 % and “class 1” in 10 to 80 % of cases" in older


def test_claims_of_many_classes() -> None:
    fractions = [0.1] * 8 + [0.15, 0.05]
    found = plain(shown(classes=10, regions="shells", fractions=fractions)["claims"])
    assert "“class 8” most often, in 15 % of cases, and “class 9” least often, in 5.0 %" in found
    assert "each of the 10 classes in 10 %" in plain(shown(classes=10, regions="shells")["claims"])


def test_claims_of_a_histogram_say_what_it_leaves_open() -> None:
    state = {"source": "draw", "heights": [5, 2, 1, 2], "regions": "edges", "edges": [0.1, 0.6, 0.9], "accuracy": 0.8}
    found = plain(shown(**state)["claims"])
    assert "About 70 % of cases are predicted with more than 90 % confidence" in found
    assert "“class 0” in 50 to 70 % and “class 1” in 30 to 50 % of cases" in found
    assert "right in 79 % to 97 % of cases" in found  # .7 x .9 + .2 x .5 + .1 x .6, and .7 + .2 x .9 + .1 x .9


def test_claims_name_what_regions_do_not_look_at() -> None:
    assert "how sure a prediction is will not matter" in plain(shown(regions="classes")["claims"])
    assert "which class is predicted will not matter" in plain(shown(regions="confidence")["claims"])
    drawn = plain(shown(regions="classes", source="draw", heights=[1, 1])["claims"])
    assert "confidence" not in drawn


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.5, "50 %"), (0.0994, "9.9 %"), (0.0996, "10 %"), (0.0009, "less than 0.1 %"), (0, "0 %"), (1.0, "100 %")],
)
def test_shares_in_words(value: float, text: str) -> None:
    assert share(value) == text


# --- consistency ---


def test_a_belief_that_agrees_with_itself_has_no_warning() -> None:
    assert shown(accuracy=0.9, fractions=[0.8, 0.2])["warnings"] == []
    assert shown(**THREE)["warnings"] == []


@pytest.mark.parametrize(
    ("state", "warning"),
    [
        (
            {"fractions": [0.9, 0.1], "accuracy": 0.85, "names": ["no", "yes"]},
            "Always saying “no” would be right in 90 %",
        ),
        ({"fractions": [0.7, 0.3], "accuracy": 0.71}, "but would occur in 38.2 % (its mean probability)"),
        (
            {"accuracy": 0.9999, "regions": "edges", "edges": [0.49, 0.51]},
            "Almost no prediction may fall on “class 1: 49 to 51 % likely”",
        ),
        (
            {"source": "draw", "heights": [1, 1], "regions": "edges", "edges": [0.5], "fractions": [0.8, 0.2]},
            "predicts “class 1” in 50 % of cases, but its share is 20 %",
        ),
        (
            {"source": "draw", "heights": [1, 8, 1], "regions": "edges", "edges": [0.2, 0.8]},
            "is right in 56 to 84 % of cases, but the expected accuracy is 90 %",
        ),
        ({"source": "draw", "heights": [0, 1], "regions": "edges", "edges": [0.5]}, "A bar drawn at zero"),
        (
            {"source": "scores", "masses": [0.5, 0.5], "regions": "edges", "edges": [0.5], "claimed": 0.99, "rows": 9},
            "claims to be right in 99 % of cases, more than the 90 % that you expect: if it was overconfident",
        ),
        (
            {"source": "scores", "masses": [0.5, 0.5], "regions": "edges", "edges": [0.5], "claimed": 0.6, "rows": 9},
            "60 % of cases only, less than the 90 % that you expect",
        ),
    ],
)
def test_warnings(state: dict, warning: str) -> None:
    assert warning in plain(shown(**state)["warnings"])


def test_what_no_float_can_hold_is_refused_in_a_sentence() -> None:
    with pytest.raises(RefusedError, match="puts no mass that float64 can hold on region 0") as refused:
        shown(accuracy=0.5001, regions="edges", edges=[0.01])
    assert refused.value.field == "regions"
    assert "`" not in str(refused.value)


def test_confidence_is_never_negative() -> None:
    masses = confidence_masses(np.array([1e-9, 1e-9, 1e-9]), (0.6, 0.95))
    assert (masses >= 0).all()
    assert masses.sum() == pytest.approx(1)


def test_ratios_use_the_uniform_belief() -> None:
    """A histogram drawn as the uniform belief has it is flat everywhere."""
    state = read_state({"classes": 3, "regions": "confidence", "edges": [0.5, 0.8]})
    uniform = Uniform().masses(build_partition(state)).tolist()
    found = shown(classes=3, regions="confidence", edges=[0.5, 0.8], source="draw", heights=uniform)["picture"]
    assert len(set(base64.b64decode(found["shades"]))) == 1


def test_drawing_begins_with_the_highest_bar_at_the_top() -> None:
    found = shown(accuracy=0.9)
    assert max(found["heights"]) == 100
    np.testing.assert_allclose(np.array(found["heights"]) * max(found["s0"]), 100 * np.array(found["s0"]), atol=0.01)


def test_axes_are_in_percent_and_names_of_classes_stay() -> None:
    axis = shown(regions="edges", edges=[0.005, 0.25], names=["0", "1"])["axis"]
    assert axis["labels"] == ["0", "0.5", "25", "100"]
    assert axis["title"] == "probability of 1, %"
    assert shown(regions="classes", names=["0", "1"])["axis"]["labels"] == ["0", "1"]
    axis = shown(classes=4, regions="confidence", edges=[0.5])["axis"]
    assert axis["labels"] == ["25", "50", "100"]
    assert axis["title"] == "largest predicted probability, %"


def test_the_belief_is_named() -> None:
    assert shown(accuracy=0.75)["belief"] == "Beta(1, 1)"
    assert shown(classes=9, regions="shells")["belief"] == "a Dirichlet distribution with 9 parameters"
    assert "histogram" in shown(source="draw", heights=[1] * 10)["belief"]
