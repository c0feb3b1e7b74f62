"""Records of the laboratory: a run, the runs of a method, a comparison of methods, a study; JSON in and out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from selbo.results import EntropyHistogram, Measurement, Metrics, Record, ReliabilityBins, StatedBelief
from selbo_lab.studies.paper import PaperValues
from selbo_lab.studies.run_spec import RUN_FORMAT, DataSpec, EvaluationSpec, ModelSpec, Recipe, RunSpec

FINISHED = "finished"
DIVERGED = "diverged"

CLEAN = "clean"
USE = "use"
"""Conditions without corruption: the test set of the source domain, and that of the target domain if there is one."""


# --- a run ---


@dataclass(frozen=True, kw_only=True)
class RunMeasurement(Measurement):
    """Metrics under one condition, as predicted and after temperature scaling.

    Attributes:
        scaled: Metrics at the temperature of the validation data.
        fractions: Class fractions of the target domain that predictions were corrected with.
        items: Negative log-probability of every test label.
        nll_at_use: Of validation data: NLL with every class as frequent as in the target domain.
    """

    scaled: Metrics | None = None
    fractions: tuple[float, ...] | None = None
    items: tuple[float, ...] | None = None
    nll_at_use: float | None = None

    def value(self, metric: str, *, scaled: bool = False) -> float | None:
        """A metric, if it was measured."""
        return ((self.scaled if scaled else self.metrics) or {}).get(metric)


@dataclass(frozen=True, kw_only=True)
class OODMeasurement(Record):
    """How the entropy tells out-of-distribution inputs from the test set.

    Attributes:
        name: What the inputs are.
        num_samples: Weight samples of the predictions, in and out of distribution; not known of the first runs.
        entropy: Histograms.
        metrics: As predicted.
        scaled: At the temperature of the validation data.
    """

    name: str = ""
    num_samples: Mapping[str, int] | None = field(default=None, metadata={"key": "draws"})
    entropy: EntropyHistogram | None = None
    metrics: Metrics
    scaled: Metrics | None = None

    @classmethod
    def reshaped(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """In files the metrics stand beside the other keys."""
        others = ("name", "draws", "entropy", "scaled")
        return {key: data[key] for key in others if key in data} | {
            "metrics": {key: value for key, value in data.items() if key not in others}
        }

    def to_dict(self) -> dict[str, Any]:
        """The record as files have it."""
        found = super().to_dict()
        found.update(found.pop("metrics"))
        return found


@dataclass(frozen=True, kw_only=True)
class RunHistogram(Record):
    """Share of the test predictions in each region, beside what was believed, if anything."""

    belief: StatedBelief | None
    masses: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class ScoreMap(Record):
    """Test examples in two dimensions, with their scores and labels."""

    places: tuple[tuple[float, ...], ...]
    scores: tuple[float, ...]
    labels: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class RunTimes(Record):
    """Seconds of a run; ``earlier`` are those of training before it was resumed."""

    all: float
    training: float | None = None
    evaluation: float | None = None
    earlier: float | None = None


@dataclass(frozen=True, kw_only=True)
class RunProvenance(Record):
    """Who made a run: code, packages and machine."""

    selbo: str
    code: str | None
    python: str
    torch: str
    numpy: str
    scipy: str
    machine: str
    threads: int
    time: str

    @property
    def packages(self) -> str:
        """Python and the packages that decide numbers, with their versions."""
        return f"python {self.python}, torch {self.torch}, numpy {self.numpy}, scipy {self.scipy}"

    @property
    def version(self) -> str:
        """Version and commit; a source tree that is not installed has the latter alone."""
        if not self.code:
            return self.selbo
        return self.code if "unknown" in self.selbo else f"{self.selbo} ({self.code})"


@dataclass(frozen=True, kw_only=True)
class Run(Record):
    """One run: what was asked, and what came out.

    Attributes:
        format: Of the file.
        id: Hash of ``spec``.
        spec: Everything that decides its numbers.
        data: Checksum of each part of the data.
        sizes: Examples of each part.
        made_by: Code, packages and machine.
        resumed_from: Steps that its networks were resumed from, if they were.
        status: ``finished`` or ``diverged``.
        error: Why it diverged.
        val: Validation data.
        temperature: That suits the validation data best.
        conditions: Test sets; none if the run looks at validation data only.
        ood: Out-of-distribution inputs.
        histogram: Test predictions by region.
        reliability: Of the test set; of the target domain, if there is one.
        score_histogram: Counts of the scores in equal bins.
        map: The test set in two dimensions.
        seconds: That it took.
    """

    format: str = RUN_FORMAT
    id: str
    spec: RunSpec
    data: Mapping[str, str]
    sizes: Mapping[str, int]
    made_by: RunProvenance
    resumed_from: Mapping[str, int] | None = None
    status: str
    error: str | None = None
    val: RunMeasurement | None = None
    temperature: float | None = None
    conditions: Mapping[str, RunMeasurement] = field(default_factory=dict)
    ood: Mapping[str, OODMeasurement] = field(default_factory=dict)
    histogram: RunHistogram | None = None
    reliability: ReliabilityBins | None = None
    score_histogram: tuple[int, ...] | None = None
    map: ScoreMap | None = None
    seconds: RunTimes

    @property
    def finished(self) -> bool:
        """Whether it was trained to the end."""
        return self.status == FINISHED

    @property
    def tested(self) -> bool:
        """Whether it was trained to the end, and looked at test data."""
        return self.finished and bool(self.conditions)

    @property
    def corrupted(self) -> dict[str, RunMeasurement]:
        """Conditions with corruption."""
        return {name: each for name, each in self.conditions.items() if name not in {CLEAN, USE}}

    @property
    def belief(self) -> StatedBelief | None:
        """The belief that it was trained with; one that its objective does not look at does not count."""
        return self.histogram.belief if self.histogram and self.spec.recipe.believes else None

    @property
    def training_seconds(self) -> float | None:
        """Of a finished run, those before it was resumed included."""
        if not self.finished or self.seconds.training is None:
            return None
        return self.seconds.training + (self.seconds.earlier or 0.0)

    def to_dict(self) -> dict[str, Any]:
        """The record as files have it: without test results if there are none."""
        found = super().to_dict()
        return found if self.conditions else {k: v for k, v in found.items() if k not in {"conditions", "ood"}}


# --- a study ---

STUDY_FORMAT = "selbo-study-1"


@dataclass(frozen=True, kw_only=True)
class Manifest(Record):
    """What a folder of results holds: a study, whether on generated data, its tracks and the number of seeds."""

    format: str = STUDY_FORMAT
    study: str
    generated: bool
    tracks: tuple[str, ...]
    seeds: int


@dataclass(frozen=True, kw_only=True)
class Tried(Record):
    """Settings that were tried, and their validation NLL; None if a run diverged or is missing."""

    settings: Mapping[str, Any]
    val_nll: float | None


@dataclass(frozen=True, kw_only=True)
class MethodRuns(Record):
    """A method of a comparison and its runs.

    Attributes:
        name: In files.
        title: In tables.
        note: What a reader should know.
        chosen: The settings that were chosen.
        chosen_with: Title of the method that they were chosen with, if it is another.
        tried: What was to choose from.
        recipe: With the chosen settings.
        runs: One per seed; None for a run that is not there.
    """

    name: str
    title: str
    note: str = ""
    chosen: Mapping[str, Any]
    chosen_with: str = ""
    tried: tuple[Tried, ...]
    recipe: Recipe
    runs: tuple[Run | None, ...]

    @property
    def there(self) -> list[Run]:
        """Runs that are there."""
        return [run for run in self.runs if run is not None]

    @property
    def tested(self) -> list[Run]:
        """Runs that were trained and tested."""
        return [run for run in self.there if run.tested]


@dataclass(frozen=True, kw_only=True)
class StudyComparison(Record):
    """Methods on one data set and network, with the settings of one track.

    Attributes:
        variant: Name of the data and network.
        title: In tables.
        track: ``published`` or ``selbo``.
        reference: Name of the method that others are compared with.
        focus: Name of the method that is compared with each of the others; empty if there is none.
        paper_noise: The strongest noise that the paper shows, where more was measured; 0 if that does not apply.
        paper: What the paper reports.
        data: The data set.
        classes: Fraction of each class, where some are rare.
        model: The network.
        evaluation: What networks are tested on.
        methods: In the order of the tables.
    """

    variant: str
    title: str
    track: str
    reference: str
    focus: str = ""
    paper_noise: float = 0.0
    paper: PaperValues = field(default_factory=PaperValues)
    data: DataSpec
    classes: Mapping[str, float] = field(default_factory=dict)
    model: ModelSpec
    evaluation: EvaluationSpec
    methods: tuple[MethodRuns, ...]

    def method(self, name: str) -> MethodRuns:
        """A method by name."""
        return next(each for each in self.methods if each.name == name)

    @property
    def titles(self) -> dict[str, str]:
        """Titles of the methods, by name."""
        return {method.name: method.title for method in self.methods}

    @property
    def runs(self) -> list[Run | None]:
        """All runs; None for those that are not there."""
        return [run for method in self.methods for run in method.runs]

    @property
    def there(self) -> list[Run]:
        """Runs that are there."""
        return [run for run in self.runs if run is not None]

    @property
    def tested(self) -> list[Run]:
        """Runs that were trained and tested."""
        return [run for run in self.there if run.tested]

    @property
    def has_target_domain(self) -> bool:
        """Whether labels come from one domain, and the methods are tested in another as well."""
        return bool(self.data.labels)

    @property
    def one_domain(self) -> bool:
        """Whether that other domain is the same in all respects, and there are but few labels."""
        data = self.data
        return data.label_fractions == data.use_fractions and not data.use_noise and not data.use_corruption


@dataclass(frozen=True, kw_only=True)
class StudyResults(Record):
    """All that a study found.

    Attributes:
        study: Its name.
        title: What it is about.
        paper: The tables and figures of the paper that it makes.
        generated: Whether its data are tiny ones, made on the spot.
        seeds: Of the runs that are reported.
        comparisons: One for each variant and track.
    """

    study: str
    title: str
    paper: str
    generated: bool
    seeds: tuple[int, ...]
    comparisons: tuple[StudyComparison, ...]

    @property
    def tracks(self) -> list[str]:
        """Names of its tracks."""
        return list(dict.fromkeys(each.track for each in self.comparisons))

    def of_track(self, track: str) -> list[StudyComparison]:
        """Comparisons of one track."""
        return [each for each in self.comparisons if each.track == track]
