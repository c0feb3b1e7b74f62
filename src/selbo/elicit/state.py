"""The state of the page as one immutable value: part of every request and of the link, and never stored."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, Final

from selbo._checks import MASS_SUM_TOLERANCE
from selbo.elicit.refused import RefusedError
from selbo.presets import CONFIDENCE_EDGES, MOST_CONCENTRATION, default_concentration
from selbo.summary.beliefs import Belief, Beta, Dirichlet, Masses
from selbo.summary.elicitation import expect
from selbo.summary.partitions import ClassRegions, ConfidenceBins, CornerShells, Partition, ScoreBins

MOST_CLASSES: Final = 100
"""With more classes, `expect` takes too long for an interactive page; the library itself has no such limit."""

MOST_BINS: Final = 50
MOST_EDGES: Final = 50
"""Maximum number of regions that are distinguishable in a chart."""

LONGEST_NAME: Final = 60

BELIEF_SOURCES: Final = ("expect", "scores", "draw")
REGIONS: Final = ("equal", "unequal", "edges", "shells", "classes", "confidence")
OF_SCORES: Final = ("equal", "unequal", "edges")
"""Regions for two classes only."""

UNEQUAL_EDGES: Final = (0.01, 0.05, 0.10, 0.90, 0.95, 0.99)
"""Edges of bins that are finer at both ends, as in the paper."""

SHELL_THRESHOLDS: Final = (0.85, 0.95)
"""Default thresholds."""

SMALLEST_DRAWN: Final = 1e-3
"""Height of a bar drawn at zero, relative to the highest bar: a mass of zero would make a region impossible."""

HIGHEST: Final = 1e6
"""Maximum height of a bar, in any unit."""


@dataclass(frozen=True)
class State:
    """Everything that a user has entered.

    Attributes:
        classes: Number of classes.
        names: One per class, or none.
        accuracy: Expected accuracy.
        fractions: Class fractions; equal if None.
        source: Source of the belief: ``expect``, accuracy and class fractions; ``scores``, those of an earlier model;
            ``draw``, a histogram drawn by hand.
        heights: Heights of the bars drawn by hand, one per region, in any unit; those of ``expect`` if empty.
        masses: Region masses, counted in the scores of an earlier model.
        rows: Number of predictions counted.
        claimed: Mean of their largest probabilities: the accuracy that the earlier model claims.
        predicted: Share of each predicted class; unknown if empty.
        regions: One of `REGIONS`.
        bins: Number of equal bins.
        edges: Edges of bins or thresholds of shells; defaults if empty.
        num_labels: Number of labelled examples; unknown if None.
        concentration: Prior strength, in pseudo-observations; chosen by the number of labels if None.
        seed: Seed of the samples that are shown.
    """

    classes: int = 2
    names: tuple[str, ...] = ()
    accuracy: float = 0.9
    fractions: tuple[float, ...] | None = None
    source: str = "expect"
    heights: tuple[float, ...] = ()
    masses: tuple[float, ...] = ()
    rows: int = 0
    claimed: float = 0.0
    predicted: tuple[float, ...] = ()
    regions: str = "equal"
    bins: int = 10
    edges: tuple[float, ...] = ()
    num_labels: int | None = None
    concentration: float | None = None
    seed: int = 0

    @property
    def labels(self) -> list[str]:
        """Names of the classes; ``class 0`` and so on by default."""
        return list(self.names) or [f"class {k}" for k in range(self.classes)]

    @property
    def shares(self) -> tuple[float, ...]:
        """Fraction of each class."""
        return self.fractions or (1 / self.classes,) * self.classes

    @property
    def basis(self) -> str:
        """The source of the belief: accuracy and class fractions until a histogram is drawn or counted."""
        ready = {"expect": True, "scores": bool(self.masses), "draw": bool(self.heights)}
        return self.source if ready[self.source] else "expect"

    @property
    def strength(self) -> float:
        """The concentration, stated or by default; the largest default if the number of labels is unknown."""
        if self.concentration is not None:
            return self.concentration
        return MOST_CONCENTRATION if self.num_labels is None else default_concentration(self.num_labels)

    @property
    def overrules_labels(self) -> bool:
        """Whether a stated concentration is larger than the number of labels."""
        return self.concentration is not None and self.num_labels is not None and self.concentration > self.num_labels

    @property
    def levels(self) -> tuple[float, ...]:
        """Edges of the regions, with defaults."""
        if self.regions == "unequal":
            return UNEQUAL_EDGES
        if self.edges:
            return self.edges
        if self.regions == "shells":
            return SHELL_THRESHOLDS
        if self.regions == "confidence":
            return tuple(edge for edge in CONFIDENCE_EDGES if edge > 1 / self.classes)
        return UNEQUAL_EDGES


def read_state(content: object) -> State:
    """Parse the state that a browser sent; invalid input is rejected with one sentence."""
    if not isinstance(content, Mapping):
        raise RefusedError("The state of the page must be an object with named entries.")
    known = {each.name for each in fields(State)}
    if unknown := sorted(set(content) - known):
        raise RefusedError(f"The page does not know the entry {str(unknown[0])[:LONGEST_NAME]!r}.")
    classes = _whole(content.get("classes", 2), "classes", "The number of classes", 2, MOST_CLASSES)
    regions = _choice(content.get("regions", "equal"), "regions", REGIONS)
    if regions in OF_SCORES and classes > 2:
        raise RefusedError("Bins of a score are for two classes; choose other regions.", "regions")
    masses = _numbers(content.get("masses", ()), "file", "The masses")
    if masses and (min(masses) <= 0 or abs(sum(masses) - 1) > MASS_SUM_TOLERANCE):
        raise RefusedError("The masses must be positive and sum to 1.", "file")
    return State(
        classes=classes,
        names=_names(content.get("names", ()), classes),
        accuracy=_accuracy(content.get("accuracy", 0.9), classes),
        fractions=_fractions(content.get("fractions"), classes),
        source=_choice(content.get("source", "expect"), "source", BELIEF_SOURCES),
        heights=_heights(content.get("heights", ())),
        masses=masses,
        rows=_whole(content.get("rows", 0), "file", "The number of predictions", 0, 10**9),
        claimed=_between(content.get("claimed", 0.0), "file", "The mean confidence", 0.0, 1.0),
        predicted=_predicted(content.get("predicted", ()), classes),
        regions=regions,
        bins=_whole(content.get("bins", 10), "bins", "The number of bins", 2, MOST_BINS),
        edges=_edges(content.get("edges", ()), regions, classes),
        num_labels=_num_labels(content.get("num_labels")),
        concentration=_concentration(content.get("concentration")),
        seed=_whole(content.get("seed", 0), "seed", "The seed", 0, 10**9),
    )


def build_partition(state: State) -> Partition:
    """Build the partition."""
    if state.regions == "equal":
        return ScoreBins.equal(state.bins)
    if state.regions in OF_SCORES:
        return ScoreBins(state.levels)
    if state.regions == "shells":
        return CornerShells(state.classes, state.levels)
    if state.regions == "classes":
        return ClassRegions(state.classes)
    return ConfidenceBins(state.levels, state.classes)


def read_aloud(state: State, partition: Partition) -> list[str]:
    """One label per region for screen readers."""
    return partition.spoken_labels(state.labels)


def expected(state: State) -> Beta | Dirichlet:
    """The belief given by accuracy and class fractions."""
    if state.fractions is None:
        return expect(state.accuracy, num_classes=state.classes)
    return expect(state.accuracy, class_fractions=state.fractions)


def build_belief(state: State, partition: Partition) -> Belief:
    """Build the belief."""
    if state.basis == "expect":
        return expected(state)
    if state.basis == "scores":
        if len(state.masses) != partition.num_regions:
            raise RefusedError("The regions have changed since the scores were counted: choose the file again.", "file")
        return Masses(state.masses)
    if len(state.heights) != partition.num_regions:
        raise RefusedError(
            f"The histogram was drawn for {len(state.heights)} regions, but there are {partition.num_regions} now: "
            "draw it again.",
            "heights",
        )
    floor = SMALLEST_DRAWN * max(state.heights)
    raised = [max(height, floor) for height in state.heights]
    total = math.fsum(raised)
    return Masses([height / total for height in raised])


# --- one entry each ---


def _number(value: object, field: str, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise RefusedError(f"{what} must be a number, but is {_shown(value)}.", field)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise RefusedError(f"{what} must be a finite number.", field)
    return number


def _between(value: object, field: str, what: str, low: float, high: float) -> float:
    number = _number(value, field, what)
    if not low <= number <= high:
        raise RefusedError(f"{what} must lie between {low:g} and {high:g}, but is {number:g}.", field)
    return number


def _whole(value: object, field: str, what: str, low: int, high: int) -> int:
    number = _number(value, field, what)
    if number != round(number):
        raise RefusedError(f"{what} must be a whole number, but is {number:g}.", field)
    if field == "classes" and number > high:
        raise RefusedError(
            f"This page takes up to {high} classes, to answer at once, but got {number:g}: "
            "for more, call selbo.expect in Python.",
            field,
        )
    if not low <= number <= high:
        raise RefusedError(f"{what} must lie between {low} and {high}, but is {number:g}.", field)
    return round(number)


def _choice(value: object, field: str, choices: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise RefusedError(f"The {field} must be one of {', '.join(choices)}, but got {_shown(value)}.", field)
    return value


def _numbers(value: object, field: str, what: str) -> tuple[float, ...]:
    if not isinstance(value, (list, tuple)):
        raise RefusedError(f"{what} must be a list of numbers.", field)
    return tuple(_number(each, field, f"{what}: each") for each in value)


def _names(value: object, classes: int) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(each, str) for each in value):
        raise RefusedError("The names of the classes must be a list of words.", "names")
    names = [str(each).strip() for each in value]
    if not any(names):
        return ()
    if len(names) != classes:
        raise RefusedError(f"There are {classes} classes, but {len(names)} names.", "names")
    names = [name or f"class {k}" for k, name in enumerate(names)]
    for name in names:
        if len(name) > LONGEST_NAME or not name.isprintable():
            raise RefusedError(
                f"The name of a class must have at most {LONGEST_NAME} characters, all of them visible, "
                f"but got {_shown(name)}.",
                "names",
            )
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise RefusedError(f"Every class needs a name of its own, but {twice!r} is there twice.", "names")
    return tuple(names)


def _accuracy(value: object, classes: int) -> float:
    accuracy = _number(value, "accuracy", "The expected accuracy")
    if not 1 / classes < accuracy < 1:
        raise RefusedError(
            f"The expected accuracy must lie above {100 / classes:.3g} %, which guessing among {classes} classes "
            f"reaches, and below 100 %, but is {100 * accuracy:.6g} %.",
            "accuracy",
        )
    return accuracy


def _fractions(value: object, classes: int) -> tuple[float, ...] | None:
    if value is None:
        return None
    if isinstance(value, list) and (missing := value.count(None)):
        raise RefusedError(
            f"Every class needs a share above 0 %, but nothing is left for {missing} of them: lower the others, or "
            "scale all to 100 %.",
            "fractions",
        )
    fractions = _numbers(value, "fractions", "The class shares")
    if len(fractions) != classes:
        raise RefusedError(f"There are {classes} classes, but {len(fractions)} class shares.", "fractions")
    if min(fractions) <= 0:
        raise RefusedError(
            f"Every class share must be above 0 %, but one is {100 * min(fractions):.6g} %: leave out a class that "
            "never occurs, or give it a small share.",
            "fractions",
        )
    total = sum(fractions)
    if abs(total - 1) > MASS_SUM_TOLERANCE:
        raise RefusedError(f"The class shares must sum to 100 %, but their sum is {100 * total:.6g} %.", "fractions")
    return fractions


def _predicted(value: object, classes: int) -> tuple[float, ...]:
    shares = _numbers(value, "file", "The shares of the predicted classes")
    right = len(shares) == classes and min(shares) >= 0 and abs(sum(shares) - 1) <= MASS_SUM_TOLERANCE
    if shares and not right:
        raise RefusedError("The shares of the predicted classes must be one per class and sum to 1.", "file")
    return shares


def _num_labels(value: object) -> int | None:
    return None if value is None else _whole(value, "labels", "The number of labelled examples", 1, 10**9)


def _concentration(value: object) -> float | None:
    return None if value is None else _between(value, "concentration", "The number of cases", 1e-3, 1e9)


def _heights(value: object) -> tuple[float, ...]:
    heights = _numbers(value, "heights", "The heights of the bars")
    if heights and (min(heights) < 0 or not 0 < max(heights) <= HIGHEST):
        raise RefusedError(
            f"The bars must not be negative, and the highest must lie between 0 and {HIGHEST:g}.", "heights"
        )
    return heights


def _edges(value: object, regions: str, classes: int) -> tuple[float, ...]:
    if regions not in {"edges", "shells", "confidence"}:
        return ()
    what = "The thresholds" if regions == "shells" else "The edges"
    edges = _numbers(value, "edges", what)
    if len(edges) > MOST_EDGES:
        raise RefusedError(f"{what} may be at most {MOST_EDGES}, but there are {len(edges)}.", "edges")
    low = {"shells": 0.5, "confidence": 1 / classes}.get(regions, 0.0)
    inside = all((low < edge or (regions == "shells" and edge == low)) and edge < 1 for edge in edges)
    if not inside or any(second <= first for first, second in pairwise(edges)):
        reason = {"shells": ", or the shells would overlap", "confidence": ", which no largest probability is below"}
        shown = ", ".join(f"{edge:.6g}" for edge in edges)
        raise RefusedError(
            f"{what} must grow from left to right and lie between {low:.4g}{reason.get(regions, '')} and 1, "
            f"but got {shown}.",
            "edges",
        )
    return edges


def _shown(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= LONGEST_NAME else f"{text[:LONGEST_NAME]}…"
