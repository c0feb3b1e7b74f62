"""How well each class is recognised, as HTML: recall and precision with their intervals, and the confusion matrix."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from selbo.metrics.classwise import wilson_interval

Plain = Mapping[str, Any]

MOST_IN_MATRIX: Final = 20
"""Classes; of more of them a matrix cannot be read, and the most confused pairs are listed instead."""

MOST_ROWS: Final = 20
"""Classes or pairs that stand open; the others are folded."""

STRONGEST: Final = 48
FAINTEST: Final = 7
"""Per cent of its full colour that a cell has at most, so that text on it can be read, and at least, if it is not 0."""

LONG_NAME: Final = 4
UPRIGHT_FROM: Final = 7
"""Longer names of so many columns stand upright."""


def class_table(scores: Sequence[Plain]) -> str:
    """Recall and precision of each class, with 95 % intervals and the number of rows; with many classes, worst first.

    Args:
        scores: Entries of ``per_class`` in ``metrics.json``.
    """
    if len(scores) <= MOST_ROWS:
        return _class_rows(scores)
    worst = sorted(scores, key=lambda each: (each["recall"] is None, each["recall"] or 0.0, -each["rows"]))
    shown, rest = worst[:MOST_ROWS], worst[MOST_ROWS:]
    under = f"The {MOST_ROWS} classes with the lowest recall."
    folded = f"<details><summary>The other {len(rest)} classes</summary>{_class_rows(rest)}</details>"
    return f'<p class="under">{under}</p>{_class_rows(shown)}{folded}'


def _class_rows(scores: Sequence[Plain]) -> str:
    body = "".join(
        f'<tr><th scope="row">{escape(each["class"])}</th><td>{each["rows"]}</td>{_share(each, "recall")}'
        f"<td>{each['predicted']}</td>{_share(each, 'precision')}</tr>"
        for each in scores
    )
    heads = (
        '<tr><th scope="col" rowspan="2">class</th><th scope="colgroup" colspan="2">of its test rows</th>'
        '<th scope="colgroup" colspan="2">of the rows predicted as it</th></tr><tr>'
        '<th scope="col" class="start">rows</th><th scope="col" class="share">recall, % [95 %]</th>'
        '<th scope="col" class="start">rows</th><th scope="col" class="share">precision, % [95 %]</th></tr>'
    )
    return (
        '<div class="scroll" role="region" aria-label="Table: recall and precision of each class" tabindex="0">'
        f'<table class="classes"><thead>{heads}</thead><tbody>{body}</tbody></table></div>'
    )


def _share(scores: Plain, key: str) -> str:
    """A share with its interval, as text and as a line from 0 to 100 %."""
    share, interval = scores[key], scores[f"{key}_interval"]
    if share is None:
        why = "no such rows" if key == "recall" else "never predicted"
        return f'<td class="share"><span class="error">– {why}</span></td>'
    low, high = interval
    shown = f'{100 * share:.1f} <span class="error">[{100 * low:.1f}, {100 * high:.1f}]</span>'
    drawn = (
        '<svg class="range" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<path class="rail" d="M0 5h100"/><path class="whisker" d="M{100 * low:.1f} 5H{100 * high:.1f}"/>'
        f'<path class="point" d="M{100 * share:.1f} 1v8"/></svg>'
    )
    return f'<td class="share"><div><span>{shown}</span>{drawn}</div></td>'


def confusion_table(confusion: Sequence[Plain], scores: Sequence[Plain]) -> str:
    """Which class is predicted as which: a matrix, or with many classes the pairs that are confused most.

    Args:
        confusion: Entries of ``confusion`` in ``metrics.json``.
        scores: Entries of ``per_class``.
    """
    if len(scores) > MOST_IN_MATRIX:
        return _pairs(confusion, {each["class"]: each["rows"] for each in scores})
    counts = {(each["true"], each["predicted"]): each["rows"] for each in confusion}
    names = [each["class"] for each in scores]
    upright = len(names) >= UPRIGHT_FROM and max(map(len, names)) > LONG_NAME
    css = ' class="upright"' if upright else ""
    heads = "".join(f'<th scope="col"{css}><span>{escape(name)}</span></th>' for name in names)
    body = "".join(
        f'<tr><th scope="row">{escape(each["class"])}</th>'
        + "".join(_cell(counts.get((each["class"], name), 0), each, name) for name in names)
        + f'<td class="sum">{each["rows"]}</td></tr>'
        for each in scores
    )
    sums = "".join(f'<td class="sum">{each["predicted"]}</td>' for each in scores)
    total = sum(each["rows"] for each in scores)
    return (
        '<div class="scroll" role="region" aria-label="Table: confusion matrix" tabindex="0"><table class="matrix">'
        f'<thead><tr><th scope="col" rowspan="2">true class</th>'
        f'<th scope="colgroup" colspan="{len(names)}">predicted class</th><th scope="col" rowspan="2">rows</th></tr>'
        f"<tr>{heads}</tr></thead><tbody>{body}</tbody>"
        f'<tfoot><tr><th scope="row">rows</th>{sums}<td class="sum">{total}</td></tr></tfoot></table></div>'
        '<p class="legend"><span><span class="chip right" aria-hidden="true"></span> predicted rightly</span>'
        '<span><span class="chip wrong" aria-hidden="true"></span> mistaken for another class</span>'
        "<span>stronger colour: a larger share of the rows of the true class</span></p>"
    )


def _cell(count: int, true: Plain, predicted: str) -> str:
    if not count:
        return '<td class="zero">0</td>'
    share = count / true["rows"]
    strength = max(FAINTEST, STRONGEST * math.sqrt(share))
    kind = "right" if true["class"] == predicted else "wrong"
    said = f"{count} of {true['rows']} rows of {true['class']} are predicted as {predicted}, {100 * share:.1f} %"
    return f'<td class="{kind}" style="--strength:{strength:.0f}%" title="{escape(said, quote=True)}">{count}</td>'


def _pairs(confusion: Sequence[Plain], rows: Mapping[str, int]) -> str:
    wrong = [each for each in confusion if each["true"] != each["predicted"]]
    if not wrong:
        return "<p>No test row is mistaken for another class.</p>"
    body = "".join(_pair(each, rows[each["true"]]) for each in wrong[:MOST_ROWS])
    heads = "".join(
        f'<th scope="col"{css}>{label}</th>'
        for label, css in (
            ("true class", ' class="first"'),
            ("predicted as", ' class="text"'),
            ("rows", ""),
            ("of the true class, % [95 %]", ""),
        )
    )
    count = sum(each["rows"] for each in wrong)
    listed = sum(each["rows"] for each in wrong[:MOST_ROWS])
    under = f"{len(wrong[:MOST_ROWS])} of {len(wrong)} pairs, with {listed} of the {count} mistaken test rows."
    return (
        f'<p class="under">{under}</p>'
        '<div class="scroll" role="region" aria-label="Table: the most confused pairs of classes" tabindex="0">'
        f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _pair(pair: Plain, of: int) -> str:
    low, high = wilson_interval(pair["rows"], of)
    share = f'{100 * pair["rows"] / of:.1f} <span class="error">[{100 * low:.1f}, {100 * high:.1f}]</span>'
    names = f'<th scope="row">{escape(pair["true"])}</th><td class="text">{escape(pair["predicted"])}</td>'
    return f"<tr>{names}<td>{pair['rows']}</td><td>{share}</td></tr>"
