"""Stories of the demo: who is ahead, what is printed, and the page."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from selbo.report.comparison import Value
from selbo.report.stories import (
    Story,
    StoryResults,
    collect_values,
    compare_with,
    mean_text,
    render_stories,
    standings,
    stories_table,
    verdict,
)
from selbo.results import ClassificationTask, Comparison, Measurement, Outcome, Provenance

MADE = Provenance(command="selbo demo", selbo="1", python="3", torch="2", machine="m", seconds=3.0)

NLL = {
    "before": [1.0, 1.2, 1.1],
    "ours": [0.5, 0.7, 0.65],
    "noisy": [0.4, 0.9, 0.62],  # sometimes below ours, sometimes above
    "better": [0.4, 0.6, 0.56],
}


def make_story(seeds: int = 3, picture: str = "accuracy") -> Story:
    runs = [
        Outcome(
            method=method,
            seed=seed,
            conditions={
                name: Measurement(
                    level=None,
                    metrics={"nll": nll + more, "accuracy": 0.5 + seed / 100, "ece": 0.1, "confidence": 0.9},
                )
                for name, more in (("first table", 0.0), ("second", 0.1 * (method == "ours")))
            },
            seconds=1.0,
        )
        for method, values in NLL.items()
        for seed, nll in enumerate(values[:seeds])
    ]
    results = Comparison(
        title="A title",
        description="How.",
        focus="ours",
        task=ClassificationTask(num_test=5, num_classes=2, class_names=("a", "b"), class_counts=(2, 3)),
        methods=tuple(NLL),
        seeds=tuple(range(seeds)),
        runs=tuple(runs),
        clean="first table",
        made_by=MADE,
    )
    return Story(
        name="one",
        title="A <title>",
        short="one story",
        stated="Something.",
        picture=picture,
        without="before",
        conditions=("first table",) if picture == "claims" else ("first table", "second"),
        code="import selbo\nx = 1 < 2",
        results=results,
    )


def test_standings_by_the_interval_of_the_paired_difference() -> None:
    story = make_story()
    assert standings(story, "first table") == {
        "ahead of": ["before"],
        "level with": ["noisy"],
        "behind": ["better"],
    }
    for other, clear in (("before", True), ("noisy", False), ("better", True)):
        differences = [a - b for a, b in zip(NLL["ours"], NLL[other], strict=True)]
        assert (stats.ttest_1samp(differences, 0).pvalue < 0.05) == clear


def test_verdict_says_where_it_is_behind() -> None:
    first, second = verdict(make_story())
    assert first == "First table: “ours” is ahead of “before”; level with “noisy”; behind “better”."
    assert second.startswith("Second: ")
    (told,) = verdict(make_story(seeds=1))
    assert told.startswith("One seed")


def printed(story: Story) -> str:
    screen = io.StringIO()
    Console(width=80, file=screen).print(stories_table(StoryResults(title="t", stories=(story,), made_by=MADE)))
    (line,) = (line for line in screen.getvalue().splitlines() if "one story" in line)
    return line


def test_line_counts_comparisons_under_all_conditions() -> None:
    """With ours .1 worse on the second table it is still ahead of "before", and behind or level with the others."""
    story = make_story()
    expected = [0, 0, 0]
    for condition in story.conditions:
        found = standings(story, condition)
        for place, word in enumerate(("ahead of", "level with", "behind")):
            expected[place] += len(found.get(word, []))
    without, ours, *counts = printed(story).split()[2:]
    assert without.startswith("1.10±")
    assert ours.startswith(".67±")  # the mean of both tables
    assert [int(each) for each in counts] == expected
    assert sum(expected) == 6


def test_one_seed_counts_nothing() -> None:
    assert printed(make_story(seeds=1)).split()[2:] == ["1.00", ".55", "-", "-", "-"]


def test_means_stand_with_their_standard_error_and_differences_with_the_interval_of_students_t() -> None:
    assert mean_text("accuracy", Value(0.913, 0.004, 5)) == ("91.3", "± 0.4")
    story = make_story()
    other = story.others[0]
    found = compare_with(story, other, story.conditions[0])
    ours, theirs = (collect_values(story, name, story.conditions[0], "nll") for name in (story.focus, other))
    by_seed = np.subtract(ours, theirs)
    expected = stats.t.interval(0.95, len(by_seed) - 1, loc=by_seed.mean(), scale=stats.sem(by_seed))
    assert (found.low, found.high) == pytest.approx(expected)
    assert mean_text("nll", Value(None, None, 0)) == ("–", "")


@pytest.mark.parametrize("picture", ["accuracy", "claims"])
def test_page_escapes_and_has_unique_ids(picture: str) -> None:
    page = render_stories(StoryResults(title="Four & more", stories=(make_story(picture=picture),), made_by=MADE))
    assert "A &lt;title&gt;" in page
    assert "x = 1 &lt; 2" in page
    assert "Four &amp; more" in page
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert page.count('<svg viewBox="') == 4  # two pictures, each for wide and for narrow screens


def test_json_round_trip() -> None:
    found = StoryResults(title="t", stories=(make_story(),), made_by=MADE)
    assert StoryResults.from_dict(found.to_dict()) == found
