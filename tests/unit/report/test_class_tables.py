"""Tables of classes on the page hold every count, with its interval, and stay readable for many classes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html.parser import HTMLParser
from typing import Any

import pytest

from selbo.metrics.classwise import per_class, wilson_interval
from selbo.report import class_tables
from selbo.results import ClassResult, ClassResults, ConfusionCount, GroupResult


class Cells(HTMLParser):
    """Text of the cells, row by row."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"}:
            self.rows[-1].append("")
            self.inside = True

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag not in {"td", "th"}

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.rows[-1][-1] += data


def made(names: Sequence[str], counts: dict[tuple[int, int], int]) -> ClassResults:
    scores = per_class(counts, num_classes=len(names))
    return ClassResults(
        per_class=tuple(ClassResult(name=name, **each._asdict()) for name, each in zip(names, scores, strict=True)),
        confusion=tuple(
            ConfusionCount(true=names[i], predicted=names[j], rows=rows) for (i, j), rows in counts.items()
        ),
    )


COUNTS = {(0, 0): 60, (0, 1): 12, (1, 1): 7, (1, 0): 1, (2, 0): 3}
NAMES = ["no", "<yes>", "per & haps"]


def test_recall_and_precision_stand_with_rows_and_intervals() -> None:
    rows = Cells(class_tables.class_table(made(NAMES, COUNTS).per_class)).rows[2:]
    low, high = (100 * end for end in wilson_interval(60, 72))
    assert rows[0][:3] == ["no", "72", f"83.3 [{low:.1f}, {high:.1f}]"]
    low, high = (100 * end for end in wilson_interval(7, 19))
    assert rows[1][3:] == ["19", f"36.8 [{low:.1f}, {high:.1f}]"]
    assert rows[2] == ["per & haps", "3", "0.0 [0.0, 56.1]", "0", "– never predicted"]


def test_the_matrix_holds_every_count_and_says_what_colours_mean() -> None:
    text = class_tables.confusion_table(made(NAMES, COUNTS))
    rows = Cells(text).rows
    assert rows[1] == NAMES
    assert rows[2:] == [
        ["no", "60", "12", "0", "72"],
        ["<yes>", "1", "7", "0", "8"],
        ["per & haps", "3", "0", "0", "3"],
        ["rows", "64", "19", "0", "83"],
    ]
    assert "<yes>" not in text
    kinds = re.findall(r'<td class="(right|wrong|zero)"', text)
    assert kinds == ["right", "wrong", "zero", "wrong", "right", "zero", "wrong", "zero", "zero"]
    assert 'title="12 of 72 rows of no are predicted as &lt;yes&gt;, 16.7 %"' in text
    assert text.index("</table>") < text.index('<p class="legend">')
    strengths = [int(found) for found in re.findall(r"--strength:(\d+)%", text)]
    assert max(strengths) <= class_tables.STRONGEST
    assert min(strengths) >= class_tables.FAINTEST


@pytest.mark.parametrize(("count", "matrix"), [(2, True), (20, True), (21, False), (300, False)])
def test_with_many_classes_the_most_confused_pairs_are_listed(count: int, matrix: bool) -> None:
    names = [f"class {k}" for k in range(count)]
    counts = {(k, k): 5 for k in range(count)} | {(k, (k + 1) % count): k + 1 for k in range(count)}
    found = made(names, dict(sorted(counts.items(), key=lambda each: -each[1])))
    text = class_tables.confusion_table(found)
    assert ("matrix" in text) == matrix
    if not matrix:
        rows = Cells(text).rows
        last = count - 1
        low, high = (100 * end for end in wilson_interval(count, count + 5))
        share = f"{100 * count / (count + 5):.1f} [{low:.1f}, {high:.1f}]"
        assert rows[1] == [f"class {last}", "class 0", str(count), share]
        assert len(rows) == 1 + class_tables.MOST_SHOWN_ROWS
        assert f"20 of {count} pairs" in text
    listed = Cells(class_tables.class_table(found.per_class)).rows
    assert {row[0] for row in listed} >= set(names)
    assert ("<details>" in class_tables.class_table(found.per_class)) == (count > class_tables.MOST_SHOWN_ROWS)


def test_no_confusion_is_said() -> None:
    names = [str(k) for k in range(30)]
    found = made(names, {(k, k): 2 for k in range(30)})
    assert "No test row is mistaken" in class_tables.confusion_table(found)


def group(name: str, rows: int, accuracy: float) -> GroupResult:
    metrics = {"accuracy": accuracy, "overconfidence": 0.9 - accuracy, "nll": None, "ece": 0.1}
    low, high = wilson_interval(round(accuracy * rows), rows)
    intervals = {"accuracy": (low, high), "overconfidence": (0.9 - high, 0.9 - low), "nll": None}
    return GroupResult(name=name, rows=rows, metrics=metrics, intervals=intervals)


def test_groups_stand_with_their_intervals() -> None:
    found = class_tables.group_table([group("<north>", 40, 0.5), group("south", 10, 0.9)], "site & day")
    head, north, south = Cells(found).rows
    assert head[:2] == ["site & day", "rows"]
    low, high = wilson_interval(20, 40)
    assert north[:2] == ["<north>", "40"]
    assert north[2] == f"50.0 [{100 * low:.1f}, {100 * high:.1f}]"
    assert north[3] == f"40.0 [{90 - 100 * high:.1f}, {90 - 100 * low:.1f}]"
    assert north[4] == "–"
    assert south[0] == "south"
    assert "&lt;north&gt;" in found


def test_of_many_groups_the_least_accurate_are_shown() -> None:
    groups = [group(str(k), 100, k / 100) for k in range(10, 60)]
    found = str(class_tables.group_table(groups[::-1], "k"))
    shown, folded = found.split("<details>")
    assert [row[0] for row in Cells(shown).rows[1:]] == [str(k) for k in range(10, 30)]
    assert "The other 30 groups" in folded
