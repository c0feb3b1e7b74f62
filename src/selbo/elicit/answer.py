"""Computes everything that the page shows from its state; runs in a worker process, without state of its own."""

import re
from typing import Any, Final

from selbo.elicit.captions import claim_sentences
from selbo.elicit.charts import build_picture, compute_intervals, sample_histograms
from selbo.elicit.consistency import find_warnings
from selbo.elicit.export import build_copies
from selbo.elicit.frozen import calibrate_file
from selbo.elicit.groups import read_group_shares
from selbo.elicit.refused import RefusedError
from selbo.elicit.state import OF_SCORES, State, build_belief, build_partition, read_aloud, read_state
from selbo.elicit.uploads import count_scores, read_counts
from selbo.plots.labels import region_axis
from selbo.summary.beliefs import Belief, checked_masses
from selbo.summary.partitions import Partition

HIGHEST_BAR: Final = 100.0
"""Initial height of the highest bar when drawing."""

MOST_PARAMETERS: Final = 4
"""Maximum number of listed parameters of a Dirichlet distribution."""


def answer(task: str, content: Any, body: bytes = b"") -> dict[str, Any]:
    """Answer a request.

    Args:
        task: ``belief``, everything about a state; ``counts``, fractions from pasted text; ``groups``, fractions of
            groups from a pasted table; ``scores``, masses from a CSV file; ``calibrate``, a CSV file with corrected
            predictions.
        content: The state; for ``calibrate`` what is stated about the predictions; for ``counts`` and ``groups``
            nothing.
        body: The text or the file.

    Returns:
        Plain data for JSON.
    """
    if task == "counts":
        return read_counts(body.decode("utf-8", errors="replace"))
    if task == "groups":
        return read_group_shares(body.decode("utf-8-sig", errors="replace"))
    if task == "calibrate":
        return calibrate_file(body, content)
    state = read_state(content)
    if task == "scores":
        return count_scores(body, state)
    return shown(state)


def shown(state: State, *, partition: Partition | None = None, belief: Belief | None = None) -> dict[str, Any]:
    """Compute everything that the page shows for a state.

    Args:
        state: What was entered.
        partition: Instead of the regions of the state.
        belief: Instead of what the state says.

    Returns:
        Plain data for JSON.
    """
    regions = build_partition(state) if partition is None else partition
    believed = build_belief(state, regions) if belief is None else belief
    try:
        s0 = checked_masses(believed, regions).numpy()
    except ValueError as error:
        raise RefusedError(_on_the_page(str(error)), "regions") from error
    interval = compute_intervals(s0, state.strength)
    axis, picture = _axis(regions, state.labels), build_picture(believed, regions, s0, state.labels)
    if partition is None:  # the ranges that the page builds are those of probabilities
        if len(axis["labels"]) > len(s0):  # edges, not names
            title = f"probability of {state.labels[1]}" if state.regions in OF_SCORES else axis["title"]
            axis |= {"labels": [in_percent(text, sign="") for text in axis["labels"]], "title": f"{title}, %"}
        if picture is not None and "corners" in picture:
            picture["corners"] = [[in_percent(note) for note in notes] for notes in picture["corners"]]
    return {
        "s0": s0.tolist(),
        "low": interval[0].tolist(),
        "high": interval[1].tolist(),
        "labels": read_aloud(state, regions),
        "strength": state.strength,
        "axis": axis,
        "draws": sample_histograms(s0, state.strength, state.seed),
        "heights": [round(HIGHEST_BAR * float(mass / s0.max()), 2) for mass in s0],
        "belief": _named(believed, state.classes),
        "shares": list(state.shares),
        "levels": list(state.levels),
        "picture": picture,
        "claims": [_unbroken(text) for text in claim_sentences(state, regions, believed, s0, interval)],
        "warnings": [_unbroken(text) for text in find_warnings(state, regions, believed, s0)],
        "copies": build_copies(
            state, partition=partition, belief=believed if belief is not None or state.basis != "expect" else None
        ),
    }


def _axis(partition: Partition, names: list[str]) -> dict[str, Any]:
    axis = region_axis(partition, names)
    return {"positions": axis.positions, "labels": axis.labels, "title": axis.title, "ordered": axis.ordered}


def in_percent(text: str, *, sign: str = " %") -> str:
    """A label of probabilities, with percentages instead; the numbers of a label are below or equal to 1.

    Example:
        >>> in_percent("> .95: 21.1 %"), in_percent(".85–.95"), in_percent(".05", sign="")
        ('> 95 %: 21.1 %', '85–95 %', '5')
    """
    edges, colon, rest = text.partition(": ")
    if not re.fullmatch(r"(> |≤ )?(\d*\.\d+|[01]|1/\d+)(–(\d*\.\d+|1))?", edges):
        return text
    shown = re.sub(r"1/\d+|\d*\.\d+|[01]", lambda found: f"{100 * _value(found[0]):.6g}", edges)
    return f"{shown}{sign}{colon}{rest}"


def _value(text: str) -> float:
    above, _, below = text.partition("/")
    return float(above) / float(below or 1)


def _named(belief: Belief, num_classes: int) -> str:
    parameters = belief.dirichlet(num_classes)
    if parameters is None:
        return "a histogram of its own"
    if len(parameters) > MOST_PARAMETERS:
        return f"a Dirichlet distribution with {len(parameters)} parameters"
    return belief.label()


def _unbroken(text: str) -> str:
    """No line ends between a number and its sign."""
    space = "\N{NO-BREAK SPACE}"
    return text.replace(" %", f"{space}%").replace("> .", f">{space}.")


def _on_the_page(message: str) -> str:
    """A sentence of the library with the quotation marks of a page."""
    return f"{message.replace('`', '')}."
