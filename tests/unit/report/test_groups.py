"""The picture and the table of stated and predicted fractions of groups: what is drawn, for few and many groups."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from selbo.report.groups import (
    MOST_NAMED_GROUPS,
    describe_groups,
    group_fractions,
    shown_classes,
    stated_group_table,
)
from selbo.results import StatedGroup, StatedGroups


def results_of(count: int, classes: int = 2, *, against: tuple[int, ...] = ()) -> StatedGroups:
    generator = np.random.default_rng(count)

    def intervals(values: np.ndarray, half: float) -> tuple[tuple[float, float], ...]:
        return tuple((max(0.0, each - half), min(1.0, each + half)) for each in values.tolist())

    groups = []
    for k in range(count):
        stated, predicted = generator.dirichlet(np.arange(classes) + 2.0, size=2)
        groups.append(
            StatedGroup(
                name=f"group $<{k}>$",
                rows=10 + k,
                stated=tuple(stated.tolist()),
                stated_interval=intervals(stated, 0.1),
                predicted=tuple(predicted.tolist()),
                predicted_interval=intervals(predicted, 0.05),
                p_value=0.001 * (k + 1) / count if k in against else 0.5,
                contradicted=k in against,
            )
        )
    return StatedGroups(column="town", held_out=True, error=0.02, constant_error=0.1, groups=tuple(groups))


def dots(figure: Figure, marker: str) -> np.ndarray:
    lines = [line for line in figure.axes[0].lines if line.get_marker() == marker]
    return np.concatenate([line.get_xydata() for line in lines]) if lines else np.empty((0, 2))


def test_groups_are_listed_by_their_stated_share() -> None:
    found = results_of(12, against=(3, 7))
    figure = group_fractions(found, ["no", "yes"])
    order = sorted(found.groups, key=lambda each: each.stated[1])
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == [each.name for each in order]
    np.testing.assert_allclose(dots(figure, "|"), [[each.stated[1], k] for k, each in enumerate(order)])
    agree = [[each.predicted[1], k] for k, each in enumerate(order) if not each.contradicted]
    contradict = [[each.predicted[1], k] for k, each in enumerate(order) if each.contradicted]
    np.testing.assert_allclose(dots(figure, "o"), agree)
    np.testing.assert_allclose(dots(figure, "s"), contradict)
    bold = [text.get_text() for text in figure.axes[0].get_yticklabels() if text.get_fontweight() == "bold"]
    assert set(bold) == {found.groups[3].name, found.groups[7].name}
    figure.canvas.draw()
    for legend in figure.legends:
        assert [text.get_text() for text in legend.get_texts()] == ["stated, 95 %", "predicted, 95 %", "contradicts"]


@pytest.mark.parametrize("width", [3.3, 6.8])
@pytest.mark.parametrize("count", [1, 51, MOST_NAMED_GROUPS + 1, 1000])
def test_a_picture_of_any_number_of_groups_fits(count: int, width: float) -> None:
    figure = group_fractions(results_of(count, against=(0, count // 2)), ["no", "yes"], width=width)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    named = count <= MOST_NAMED_GROUPS
    assert figure.get_figwidth() == width
    assert figure.get_figheight() < (12 if named else 4)
    renderer = canvas.get_renderer()
    for text in [*figure.axes[0].get_yticklabels(), *figure.legends[0].get_texts(), figure.axes[0].xaxis.label]:
        box = text.get_window_extent(renderer)
        assert box.x0 >= -1
        assert box.x1 <= figure.bbox.width + 1
    if named and count > 1:
        boxes = [text.get_window_extent(renderer) for text in figure.axes[0].get_yticklabels()]
        assert all(low.y1 <= high.y0 + 1 for low, high in pairwise(boxes))  # no overlap


def test_of_many_groups_the_contradicted_ones_are_named() -> None:
    figure = group_fractions(results_of(300, against=(5,)), ["no", "yes"])
    assert [text.get_text() for text in figure.axes[0].texts] == ["group $<5>$"]


def test_of_many_classes_those_that_differ_are_shown() -> None:
    found = results_of(20, 5)
    stated = np.array([each.stated for each in found.groups]).std(0)
    assert shown_classes(found) == sorted(np.argsort(-stated)[:3].tolist())
    names = list("abcde")
    figure = group_fractions(found, names)
    assert [axes.get_xlabel() for axes in figure.axes] == [f"share of {names[k]}" for k in shown_classes(found)]
    assert len(group_fractions(found, names, width=3.3).axes) == 1
    assert len(group_fractions(results_of(100, 5), names).axes) == 3


def test_the_table_escapes_names_and_shows_all_classes() -> None:
    found = results_of(3, 3)
    page = stated_group_table(found.groups, ["<a>", "b", "c"])
    assert "group $&lt;0&gt;$" in page
    assert "&lt;a&gt;, % [95 %]" in page
    assert page.count("<tr>") == 2 + 3
    assert page.count("<td>") == 3 * (2 + 2 * 3)
    assert "no, % [95 %]" not in stated_group_table(results_of(3).groups, ["no", "yes"])


def test_the_picture_in_words() -> None:
    assert describe_groups(results_of(4), ["no", "yes"]) == (
        "Stated and predicted shares of yes in 4 groups, with 95 % intervals. No group is contradicted."
    )
    assert describe_groups(results_of(4, against=(2,)), ["no", "yes"]).endswith("Contradicted: group $<2>$.")
