"""Records of results, from one run to a whole comparison: frozen dataclasses that are validated, with JSON in and out.

Create a record from Python values, or from JSON with `Record.from_dict`, which raises a one-sentence error for invalid
data. Unknown keys are ignored; the key of an optional field may be missing.
"""

import json
import math
import sys
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache, cached_property, partial
from itertools import pairwise
from types import NoneType
from typing import Annotated, Any, Final, TypeVar

import torch

from selbo import _checks

__all__ = [
    "ClassResult",
    "ClassResults",
    "ClassificationTask",
    "Comparison",
    "ConfusionCount",
    "EntropyHistogram",
    "GroupResult",
    "Measurement",
    "MethodResult",
    "Metrics",
    "Outcome",
    "Provenance",
    "Record",
    "RegionScale",
    "ReliabilityBins",
    "RiskCurve",
    "StatedBelief",
    "StatedGroup",
    "StatedGroups",
]

RecordT = TypeVar("RecordT", bound="Record")
Metrics = Mapping[str, float | None]
"""Metrics of predictions by name, as in `selbo.evaluate`; None if a metric is not defined."""

Text = Annotated[str, "not empty"]
Count = Annotated[int, 0]
Positive = Annotated[int, 1]

KEY: Final = "key"
"""Metadata of a field: its key in JSON, if it differs from the name, for example because that is a Python keyword."""


class Record:
    """A frozen dataclass that is read from JSON and written as JSON."""

    @classmethod
    def from_dict(cls: type[RecordT], data: Any) -> RecordT:
        """Create a record from JSON data.

        Raises:
            ValueError: If a value is missing or invalid; the message names its location.
        """
        try:
            found: RecordT = _reader(typing.cast("Any", cls))(data)
        except ValueError as error:
            raise ValueError(_within("results", error) if str(error).startswith("``") else str(error)) from None
        return found

    def to_dict(self) -> dict[str, Any]:
        """The record as plain data for JSON; an optional field that is None is left out."""
        return {
            _key(each): _plain(value)
            for each in fields(typing.cast("Any", self))
            if (value := getattr(self, each.name)) is not None or each.default is not None
        }

    @classmethod
    def reshaped(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Convert data to the layout of the record; override this for files with another layout."""
        return data


# --- reading and writing ---


def _key(each: Any) -> str:
    return str(each.metadata.get(KEY, each.name))


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return value.to_dict()
    if is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, tuple | list) else value


def _within(place: str, error: ValueError) -> str:
    """The message of an error, with the location in front of the name that it begins with."""
    told = str(error).removeprefix("`")
    return f"`{place}{'' if told[:1] in {'`', '['} else '.'}{told}"


Reader = Callable[[Any], Any]


@cache
def _reader(hint: Any) -> Reader:
    """Function that converts plain data to a value of a type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    read: Reader = _LEAVES.get(hint, lambda data: data)
    if is_dataclass(hint):
        read = _record_reader(typing.cast("type", hint))
    elif origin is Annotated and arguments[0] is int:
        read = partial(_checks.whole, "", at_least=arguments[1])
    elif origin is tuple:
        read = _sequence_reader(_reader(arguments[0]))
    elif origin is Mapping:
        read = _mapping_reader(_reader(arguments[1]))
    elif NoneType in arguments:
        (kind,) = (_reader(each) for each in arguments if each is not NoneType)
        read = _optional_float if kind is _float else lambda data: None if data is None else kind(data)
    return read


def _record_reader(kind: type) -> Reader:
    hints = typing.get_type_hints(kind, include_extras=True)
    parts = [(each.name, _key(each), _reader(hints[each.name]), _optional(each)) for each in fields(kind) if each.init]
    reshaped = getattr(kind, "reshaped", lambda data: data)

    def read(data: Any) -> Any:
        if isinstance(data, kind):
            return data
        if not isinstance(data, Mapping):
            raise ValueError(f"`` must be a dictionary, but got {data!r}")
        given, values = reshaped(data), {}
        for name, key, convert, optional in parts:
            if key in given:
                try:
                    values[name] = convert(given[key])
                except ValueError as error:
                    raise ValueError(_within(key, error)) from None
            elif not optional:
                raise ValueError(f"`{key}` must be given, but the keys are {sorted(map(str, given))}")
        return kind(**values)

    return read


def _optional(each: Any) -> bool:
    return each.default is not MISSING or each.default_factory is not MISSING


def _sequence_reader(read: Reader) -> Reader:
    def of(data: Any) -> tuple[Any, ...]:
        if type(data) is list and _are_floats(read, data):
            return tuple(data)
        if isinstance(data, str | Mapping) or not isinstance(data, Sequence):
            raise ValueError(f"`` must be a list, but got {data!r}")
        found: list[Any] = []
        try:
            for each in data:
                found.append(read(each))  # noqa: PERF401  (an error tells how far it came)
        except ValueError as error:
            raise ValueError(_within(f"[{len(found)}]", error)) from None
        return tuple(found)

    return of


def _mapping_reader(read: Reader) -> Reader:
    def of(data: Any) -> dict[str, Any]:
        found, key = dict[str, Any](), ""
        if type(data) is dict and _are_floats(read, data.values()):
            return dict(data)
        if not isinstance(data, Mapping):
            raise ValueError(f"`` must be a dictionary, but got {data!r}")
        try:
            for key, each in data.items():
                found[key] = read(each)
        except ValueError as error:
            raise ValueError(_within(key, error)) from None
        return found

    return of


def _float(data: Any) -> float:
    if type(data) is float and math.isfinite(data):  # most of what a file of results holds
        return data
    if isinstance(data, bool) or not isinstance(data, int | float) or not abs(data) <= sys.float_info.max:
        raise ValueError(f"`` must be a finite number, but got {data!r}")
    return data


def _optional_float(data: Any) -> float | None:
    return None if data is None else _float(data)


_FLOATS: Final[dict[Reader, frozenset[type]]] = {
    _float: frozenset({float, int}),
    _optional_float: frozenset({float, int, NoneType}),
}
"""Types of values that need no conversion, if the numbers are finite."""


def _are_floats(read: Reader, values: Collection[Any]) -> bool:
    """Whether a reader of floats would return all values unchanged: a quick test for most of a file of results."""
    known = _FLOATS.get(read)
    try:
        same = known is not None and known.issuperset(map(type, values))
        return same and all(map(math.isfinite, filter(None, values)))
    except OverflowError:  # an integer above the largest float
        return False


def _text(data: Any) -> str:
    if not isinstance(data, str) or not data.strip():
        raise ValueError(f"`` must be a text that is not empty, but got {data!r}")
    return data


_LEAVES: Final[dict[Any, Reader]] = {float: _float, Text: _text}


# --- results of one run ---


@dataclass(frozen=True, kw_only=True)
class Measurement(Record):
    """Metrics under one condition.

    Attributes:
        level: Level of corruption; None if there is none.
        metrics: Metrics by name.
        recall: One number per class; None for a class that is not in the labels.
    """

    level: float | None
    metrics: Metrics
    recall: tuple[float | None, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class ReliabilityBins(Record):
    """Confidence, accuracy and number of predictions per bin; None for an empty bin."""

    confidence: tuple[float | None, ...]
    accuracy: tuple[float | None, ...]
    count: tuple[Count, ...]

    def __post_init__(self) -> None:
        for name, values in (("confidence", self.confidence), ("accuracy", self.accuracy)):
            if len(values) != len(self.count):
                raise ValueError(f"`{name}` must hold {len(self.count)} entries, one per bin, but got {len(values)}")
            for value, count in zip(values, self.count, strict=True):
                if count and value is None:
                    raise ValueError(f"`{name}` must be a finite number, but got None")
                if count and not 0 <= (value or 0.0) <= 1:
                    raise ValueError(f"`{name}` must lie between 0 and 1, but got {value!r}")


@dataclass(frozen=True, kw_only=True)
class RiskCurve(Record):
    """Error rate among the most confident predictions, at equal steps of the share that is answered, the last being 1.

    Attributes:
        risk: Error rate at each coverage 1/n, 2/n, ..., 1.
        area: Area under the exact curve.
    """

    risk: tuple[float, ...]
    area: float

    def __post_init__(self) -> None:
        if not self.risk or not all(0 <= each <= 1 for each in (*self.risk, self.area)):
            raise ValueError("`risk` and `area` must lie between 0 and 1, with at least one risk, but do not")


@dataclass(frozen=True, kw_only=True)
class EntropyHistogram(Record):
    """Histogram of the entropy of predictions, in and out of distribution.

    Attributes:
        edges: Edges of the bins, increasing.
        inside: Counts of the test set.
        outside: Counts of out-of-distribution inputs, if there are any.
    """

    edges: tuple[float, ...]
    inside: tuple[Count, ...] = field(metadata={KEY: "in"})
    outside: tuple[Count, ...] | None = field(metadata={KEY: "out"}, default=None)

    def __post_init__(self) -> None:
        if len(self.edges) < 2 or any(b <= a for a, b in pairwise(self.edges)):
            raise ValueError(f"`edges` must be at least two increasing numbers, but got {list(self.edges)}")
        for name, counts in (("in", self.inside), ("out", self.outside)):
            if counts is not None and (len(counts) != len(self.edges) - 1 or not sum(counts)):
                raise ValueError(
                    f"`{name}` must hold {len(self.edges) - 1} counts, not all of them 0, but got {list(counts)}"
                )


@dataclass(frozen=True, kw_only=True)
class ClassResult(Record):
    """How well one class is recognised; see `selbo.metrics.classwise.ClassScores`."""

    name: Text = field(metadata={KEY: "class"})
    rows: Count
    predicted: Count
    correct: Count
    recall: float | None
    recall_interval: tuple[float, float] | None
    precision: float | None
    precision_interval: tuple[float, float] | None

    def __post_init__(self) -> None:
        pairs = (("recall", self.recall, self.recall_interval), ("precision", self.precision, self.precision_interval))
        for name, share, ends in pairs:
            if share is not None and (ends is None or len(ends) != 2 or not 0 <= ends[0] <= share <= ends[1] <= 1):
                raise ValueError(f"`{name}` must lie in its interval, between 0 and 1, but got {share} and {ends}")


@dataclass(frozen=True, kw_only=True)
class ConfusionCount(Record):
    """Number of rows of one class that are predicted as another or the same class."""

    true: Text
    predicted: Text
    rows: Positive


@dataclass(frozen=True, kw_only=True)
class ClassResults(Record):
    """Results of each class, and confusion counts, the most frequent pair first."""

    per_class: tuple[ClassResult, ...]
    confusion: tuple[ConfusionCount, ...]

    def __post_init__(self) -> None:
        names = [each.name for each in self.per_class]
        for each in self.confusion:
            for key, name in (("true", each.true), ("predicted", each.predicted)):
                if name not in names:
                    raise ValueError(f"`confusion.{key}` must be one of {names}, but got {name!r}")


@dataclass(frozen=True, kw_only=True)
class GroupResult(Record):
    """Results of one group of rows.

    Attributes:
        name: The group.
        rows: Number of its rows.
        metrics: Metrics by name, as in `selbo.evaluate` with groups.
        intervals: 95 % intervals of some of them; None where there is none.
    """

    name: Text = field(metadata={KEY: "group"})
    rows: Positive
    metrics: Metrics
    intervals: Mapping[str, tuple[float, ...] | None]

    def __post_init__(self) -> None:
        for name, ends in self.intervals.items():
            if ends is not None and (len(ends) != 2 or not ends[0] <= ends[1]):
                raise ValueError(f"`intervals.{name}` must be two increasing numbers, but got {list(ends)}")


@dataclass(frozen=True, kw_only=True)
class MethodResult(Record):
    """Results of one method on the same test rows as others, such as a baseline.

    Attributes:
        name: The method.
        metrics: Metrics by name.
        intervals: 95 % intervals of some of them.
        nll_difference: Its NLL minus that of the first method, row by row; None for the first method.
        nll_difference_interval: 95 % interval of the difference.
    """

    name: Text = field(metadata={KEY: "method"})
    metrics: Metrics
    intervals: Mapping[str, tuple[float, ...] | None]
    nll_difference: float | None = None
    nll_difference_interval: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        ends = {**self.intervals, "nll_difference": self.nll_difference_interval}
        for name, found in ends.items():
            if found is not None and (len(found) != 2 or not found[0] <= found[1]):
                raise ValueError(f"`intervals.{name}` must be two increasing numbers, but got {list(found)}")


@dataclass(frozen=True, kw_only=True)
class StatedGroup(Record):
    """Stated and predicted class fractions of one group, with 95 % intervals; see `selbo.evaluation.GroupCheck`."""

    name: Text = field(metadata={KEY: "group"})
    rows: Positive
    stated: tuple[float, ...]
    stated_interval: tuple[tuple[float, float], ...]
    predicted: tuple[float, ...]
    predicted_interval: tuple[tuple[float, float], ...]
    p_value: float
    contradicted: bool

    def __post_init__(self) -> None:
        for name in ("stated", "stated_interval", "predicted", "predicted_interval"):
            if len(getattr(self, name)) != len(self.stated) or len(self.stated) < 2:
                raise ValueError(f"`{name}` must hold one entry per class, but got {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class StatedGroups(Record):
    """Stated and predicted class fractions of groups.

    Attributes:
        column: What the groups are, such as the name of a column.
        held_out: Whether the rows were not used for training.
        error: Mean absolute difference between predicted and stated fractions.
        constant_error: The same if all predictions were the class fractions of all rows.
        groups: Results of each group.
    """

    column: Text
    held_out: bool
    error: float
    constant_error: float
    groups: tuple[StatedGroup, ...]

    @property
    def contradicted(self) -> tuple[StatedGroup, ...]:
        """Groups whose stated fractions are contradicted, the smallest p-value first."""
        return tuple(sorted((each for each in self.groups if each.contradicted), key=lambda each: each.p_value))


@dataclass(frozen=True, kw_only=True)
class Outcome(Record):
    """Results of one run of a method.

    Attributes:
        method: Name of the method.
        seed: Seed of the run.
        conditions: Metrics by condition, including the clean test set.
        histogram: Fraction of the test predictions in each region of the belief.
        reliability: Reliability on the clean test set.
        risk_curve: Error rate by share of answers on the clean test set.
        entropy: Entropy of predictions, in and out of distribution.
        ood: Metrics of out-of-distribution detection.
        per_class: Results of each class; given together with ``confusion``.
        confusion: Confusion counts.
        groups: Results of groups of rows.
        grouped_by: What they are groups by, such as the name of a column.
        stated_groups: Stated and predicted fractions of groups, if fractions of groups were stated.
        baselines: This method and simple baselines on the clean test set.
        seconds: Duration of the run.
    """

    method: Text
    seed: Count
    conditions: Mapping[str, Measurement]
    histogram: tuple[float, ...] | None = None
    reliability: ReliabilityBins | None = None
    risk_curve: RiskCurve | None = None
    entropy: EntropyHistogram | None = None
    ood: Metrics | None = None
    per_class: tuple[ClassResult, ...] | None = None
    confusion: tuple[ConfusionCount, ...] | None = None
    groups: tuple[GroupResult, ...] | None = None
    grouped_by: Text | None = None
    stated_groups: StatedGroups | None = None
    baselines: tuple[MethodResult, ...] | None = None
    seconds: float

    def __post_init__(self) -> None:
        _checks.non_negative("seconds", self.seconds)

    @cached_property
    def classes(self) -> ClassResults | None:
        """Results of each class together with the confusion counts, if the run has them."""
        if self.per_class is None or self.confusion is None:
            return None
        return ClassResults(per_class=self.per_class, confusion=self.confusion)

    def value(self, condition: str, metric: str) -> float | None:
        """A metric under a condition; None if it was not measured."""
        found = self.conditions.get(condition)
        return None if found is None else found.metrics.get(metric)


# --- a comparison ---


@dataclass(frozen=True, kw_only=True)
class ClassificationTask(Record):
    """Sizes and classes of the data.

    Attributes:
        num_train: Number of training examples; None if they are not known.
        num_test: Number of test examples.
        num_classes: Number of classes.
        class_names: Names of the classes.
        class_counts: Training examples per class; test examples if those are not known.
    """

    num_train: Positive | None = None
    num_test: Positive
    num_classes: Annotated[int, 2]
    class_names: tuple[Text, ...]
    class_counts: tuple[Count, ...]

    def __post_init__(self) -> None:
        for key, given in (("class_names", len(self.class_names)), ("class_counts", len(self.class_counts))):
            if given != self.num_classes:
                raise ValueError(f"`{key}` must hold {self.num_classes} entries, one per class, but got {given}")


@dataclass(frozen=True, kw_only=True)
class RegionScale(Record):
    """The quantity whose consecutive intervals are the regions: title of its axis, and labels of the R + 1 ends."""

    title: Text
    ends: tuple[Text, ...]


@dataclass(frozen=True, kw_only=True)
class StatedBelief(Record):
    """A belief as it was stated.

    Attributes:
        words: The belief in a sentence.
        partition: Type of the partition.
        regions: One label per region.
        s0: Mass of each region.
        concentration: Strength of the belief, in pseudo-observations.
        scale: The quantity whose intervals are the regions, if there is one.
        shells: Labels of the shells, if the regions are K per shell followed by a centre.
    """

    words: Text
    partition: Text
    regions: tuple[Text, ...]
    s0: tuple[float, ...]
    concentration: float
    scale: RegionScale | None = None
    shells: tuple[Text, ...] | None = None

    def __post_init__(self) -> None:
        count = len(self.regions)
        _check_masses("s0", self.s0, regions=count)
        if self.scale is not None and len(self.scale.ends) != count + 1:
            raise ValueError(f"`scale.ends` must hold {count + 1} labels, but got {len(self.scale.ends)}")
        if self.shells is not None and (not self.shells or (count - 1) % len(self.shells)):
            raise ValueError(f"`shells` must divide the {count - 1} regions before the centre, but got {self.shells}")
        _checks.positive("concentration", self.concentration)


@dataclass(frozen=True, kw_only=True)
class Provenance(Record):
    """Origin of a comparison: command, versions, machine and time."""

    command: Text
    selbo: Text
    python: Text
    torch: Text
    machine: Text
    seconds: float

    def __post_init__(self) -> None:
        _checks.non_negative("seconds", self.seconds)


@dataclass(frozen=True, kw_only=True)
class Comparison(Record):
    """Results of a comparison of methods, or of one training: the input of tables, figures and the report page.

    Attributes:
        title: Title of the page.
        description: Description of the experiment; paragraphs are separated by blank lines.
        focus: The method that the conclusion is about.
        task: The data.
        belief: The stated belief, if there is one.
        methods: Names of the methods, in display order.
        seeds: Seeds of the runs.
        runs: One run per method and seed; some may be missing.
        clean: Name of the condition without corruption.
        corruption: Quantity that the levels of conditions measure, if there are any.
        ood_name: Name of the out-of-distribution data.
        made_by: Command, versions and machine.
        takeaway: The conclusion at the top of the page; computed if None.
        conclusion: Further text, below the table.
        notes: How the data were read, one sentence each.
    """

    title: Text
    description: Text
    focus: Text | None = None
    task: ClassificationTask
    belief: StatedBelief | None = None
    methods: tuple[Text, ...]
    seeds: tuple[Count, ...]
    runs: tuple[Outcome, ...]
    clean: Text
    corruption: Text | None = None
    ood_name: Text | None = None
    made_by: Provenance
    takeaway: Text | None = None
    conclusion: Text | None = None
    notes: tuple[Text, ...] | None = None

    def __post_init__(self) -> None:
        methods, seeds = list(self.methods), list(self.seeds)
        if not methods or not seeds or len(set(methods)) < len(methods) or len(set(seeds)) < len(seeds):
            raise ValueError(
                f"`methods` and `seeds` must each hold different entries, at least one, but got {methods}, {seeds}"
            )
        for i, run in enumerate(self.runs):
            self._check_run(f"runs[{i}]", run)
        pairs = [(run.method, run.seed) for run in self.runs]
        if repeated := [pair for pair in pairs if pairs.count(pair) > 1]:
            raise ValueError(f"`runs` must hold one run a method and seed, but got several of {repeated[0]}")
        if missing := [method for method in methods if method not in {method for method, _ in pairs}]:
            raise ValueError(f"`runs` must hold at least one run of every method, but got none of {missing[0]!r}")
        self._check_agreement()

    def of_method(self, method: str) -> list[Outcome]:
        """The runs of one method, in the order of the seeds."""
        return sorted((run for run in self.runs if run.method == method), key=lambda run: self.seeds.index(run.seed))

    def to_json(self) -> str:
        """The comparison as JSON."""
        return json.dumps(self.to_dict(), indent=1)

    @classmethod
    def from_json(cls, text: str) -> "Comparison":
        """Read a comparison from JSON, such as ``results.json`` of `selbo demo`."""
        return cls.from_dict(json.loads(text))

    def _check_run(self, name: str, run: Outcome) -> None:
        for key, value, known in (("method", run.method, self.methods), ("seed", run.seed, self.seeds)):
            if value not in known:
                raise ValueError(f"`{name}.{key}` must be one of {list(known)}, but got {value!r}")
        if self.clean not in run.conditions:
            raise ValueError(
                f"`{name}.conditions.{self.clean}` must be given, but the keys are {sorted(run.conditions)}"
            )
        if run.histogram is not None:
            if self.belief is None:
                raise ValueError(f"`{name}.histogram` must be None where `belief` is None, but got {run.histogram!r}")
            _check_masses(f"{name}.histogram", run.histogram, regions=len(self.belief.regions))
        classes, found = self.task.class_names, [each.name for each in run.per_class or ()]
        if (run.per_class is None) != (run.confusion is None):
            raise ValueError(f"`{name}.per_class` and `{name}.confusion` must be given together, but one is missing")
        if run.per_class is not None and found != list(classes):
            raise ValueError(f"`{name}.per_class` must hold one entry per class, in their order, but has {found}")
        try:
            _ = run.classes
        except ValueError as error:
            raise ValueError(_within(name, error)) from None

    def _check_agreement(self) -> None:
        """Check that levels, bins and edges are the same in all runs, because results are averaged over seeds."""
        levels: dict[str, float | None] = {}
        for i, run in enumerate(self.runs):
            for name, each in run.conditions.items():
                if levels.setdefault(name, each.level) != each.level:
                    raise ValueError(
                        f"`runs[{i}].conditions.{name}.level` must be the same in all runs, {levels[name]!r}, "
                        f"but got {each.level!r}"
                    )
        edges = [(i, run.entropy.edges) for i, run in enumerate(self.runs) if run.entropy]
        counts = [(i, len(run.reliability.count)) for i, run in enumerate(self.runs) if run.reliability]
        steps = [(i, len(run.risk_curve.risk)) for i, run in enumerate(self.runs) if run.risk_curve]
        for key, other in (
            ("entropy.edges", [i for i, each in edges if each != edges[0][1]]),
            ("reliability.count", [i for i, each in counts if each != counts[0][1]]),
            ("risk_curve.risk", [i for i, each in steps if each != steps[0][1]]),
        ):
            if other:
                raise ValueError(
                    f"`runs[{other[0]}].{key}` must have the same bins as in the other runs, but has others"
                )


def _check_masses(name: str, values: Sequence[float], *, regions: int) -> None:
    if len(values) != regions:
        raise ValueError(f"`{name}` must hold {regions} masses, one per region, but got {len(values)}")
    _checks.on_simplex(name, torch.tensor(values, dtype=torch.float64))
