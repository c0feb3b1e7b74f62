"""Records of the laboratory: a run, the runs of a method, a comparison of methods, a study; JSON in and out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from selbo.results import EntropyHistogram, Measurement, Metrics, Record, ReliabilityBins, StatedBelief
from selbo_lab.studies.paper import PaperValues
from selbo_lab.studies.run_spec import RUN_FORMAT, DataSpec, EvaluationSpec, ModelSpec, Recipe, RunSpec

FINISHED = "finished"
DIVERGED = "diverged"

CLEAN = "clean"
USE = "use"
"""Conditions without corruption: the test set of the source domain, and that of the target domain if there is one."""

SHIFTS = ("small shifts", "medium shifts", "large shifts")
"""Conditions for thirds of many target domains, by the distance of their class fractions from those in training."""


# --- a run ---


@dataclass(frozen=True, kw_only=True)
class RunMeasurement(Measurement):
    """Metrics under one condition, as predicted and after temperature scaling.

    Attributes:
        scaled: Metrics at the temperature of the validation data.
        fractions: Class fractions of the target domain that predictions were corrected with.
        items: Negative log-probability of every test label.
        nll_at_use: Validation NLL weighted to the class fractions of the target domain.
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
    """How well the entropy separates out-of-distribution inputs from the test set.

    Attributes:
        name: Name of the inputs.
        num_samples: Weight samples of the predictions, in and out of distribution; not known of the first runs.
        entropy: Histograms.
        metrics: Metrics of the predictions.
        scaled: Metrics at the temperature of the validation data.
    """

    name: str = ""
    num_samples: Mapping[str, int] | None = field(default=None, metadata={"key": "draws"})
    entropy: EntropyHistogram | None = None
    metrics: Metrics
    scaled: Metrics | None = None

    @classmethod
    def reshaped(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Collect the metrics, which files store next to the other keys."""
        others = ("name", "draws", "entropy", "scaled")
        return {key: data[key] for key in others if key in data} | {
            "metrics": {key: value for key, value in data.items() if key not in others}
        }

    def to_dict(self) -> dict[str, Any]:
        """The record as stored in files."""
        found = super().to_dict()
        found.update(found.pop("metrics"))
        return found


@dataclass(frozen=True, kw_only=True)
class RunHistogram(Record):
    """Share of the test predictions in each region, and the belief if there is one."""

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
    """Seconds of a run; ``earlier`` are those of training before it was resumed, ``cpu`` CPU seconds of training."""

    all: float
    training: float | None = None
    evaluation: float | None = None
    earlier: float | None = None
    cpu: float | None = None


@dataclass(frozen=True, kw_only=True)
class RunProvenance(Record):
    """Provenance of a run: code, packages and machine."""

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
        """Versions of Python and of the packages that affect the numbers."""
        return f"python {self.python}, torch {self.torch}, numpy {self.numpy}, scipy {self.scipy}"

    @property
    def version(self) -> str:
        """Version and commit; only the commit for a source tree that is not installed."""
        if not self.code:
            return self.selbo
        return self.code if "unknown" in self.selbo else f"{self.selbo} ({self.code})"


@dataclass(frozen=True, kw_only=True)
class Run(Record):
    """One run: its settings and its results.

    Attributes:
        format: Format of the file.
        id: Hash of ``spec``.
        spec: All settings that affect its numbers.
        data: Checksum of each part of the data.
        sizes: Number of examples in each part.
        made_by: Code, packages and machine.
        resumed_from: Steps that its networks were resumed from, if they were.
        status: ``finished`` or ``diverged``.
        error: Why it diverged.
        val: Results on the validation data.
        temperature: Temperature fitted on the validation data.
        conditions: Results on the test sets; empty if the run uses validation data only.
        ood: Results on out-of-distribution inputs.
        histogram: Test predictions by region.
        reliability: Reliability bins of the test set; of the target domain, if there is one.
        score_histogram: Counts of the scores in equal bins.
        map: The test set in two dimensions.
        seconds: Run times.
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
        """Whether training was completed."""
        return self.status == FINISHED

    @property
    def tested(self) -> bool:
        """Whether training was completed and test data were used."""
        return self.finished and bool(self.conditions)

    @cached_property
    def corrupted(self) -> dict[str, RunMeasurement]:
        """Conditions with corruption."""
        return {name: each for name, each in self.conditions.items() if name not in {CLEAN, USE, *SHIFTS}}

    @property
    def belief(self) -> StatedBelief | None:
        """The belief used in training; None if the objective does not use it."""
        return self.histogram.belief if self.histogram and self.spec.recipe.believes else None

    @property
    def training_seconds(self) -> float | None:
        """Training time of a finished run, including the time before it was resumed."""
        if not self.finished or self.seconds.training is None:
            return None
        return self.seconds.training + (self.seconds.earlier or 0.0)

    def to_dict(self) -> dict[str, Any]:
        """The record as stored in files: without test results if there are none."""
        found = super().to_dict()
        return found if self.conditions else {k: v for k, v in found.items() if k not in {"conditions", "ood"}}


@dataclass(frozen=True, kw_only=True)
class RunValidation(Record):
    """The part of a `Run` that settings are chosen by."""

    spec: RunSpec
    status: str
    val: RunMeasurement | None = None

    @property
    def finished(self) -> bool:
        """Whether training was completed."""
        return self.status == FINISHED


@dataclass(frozen=True, kw_only=True)
class RunCost(Record):
    """The part of a `Run` about where it was run and how long it took."""

    made_by: RunProvenance
    seconds: RunTimes


# --- a study ---

STUDY_FORMAT = "selbo-study-1"


@dataclass(frozen=True, kw_only=True)
class Manifest(Record):
    """Manifest of a results folder: the study, whether its data are generated, its tracks and number of seeds."""

    format: str = STUDY_FORMAT
    study: str
    generated: bool
    tracks: tuple[str, ...]
    seeds: int


@dataclass(frozen=True, kw_only=True)
class Tried(Record):
    """Candidate settings and their validation NLL; None if a run diverged or is missing."""

    settings: Mapping[str, Any]
    val_nll: float | None


@dataclass(frozen=True, kw_only=True)
class MethodRuns(Record):
    """A method of a comparison and its runs.

    Attributes:
        name: Name in files.
        title: Title in tables.
        note: Remark for the reader.
        chosen: The chosen settings.
        chosen_with: Title of the method whose choice of settings is reused, if it is another.
        tried: Candidate settings.
        recipe: The recipe with the chosen settings.
        runs: One run per seed; None for a missing run.
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
        title: Title in tables.
        track: ``published`` or ``selbo``.
        reference: Name of the method that others are compared with.
        focus: Name of the method that is compared with each of the others; empty if there is none.
        paper_noise: The strongest noise that the paper shows, where more was measured; 0 if that does not apply.
        paper: Values reported in the paper.
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
        """All runs; None for missing ones."""
        return [run for method in self.methods for run in method.runs]

    @property
    def there(self) -> list[Run]:
        """Runs that are there."""
        return [run for method in self.methods for run in method.there]

    @property
    def tested(self) -> list[Run]:
        """Runs that were trained and tested."""
        return [run for method in self.methods for run in method.tested]

    @property
    def has_target_domain(self) -> bool:
        """Whether there is a target domain besides the source domain that labels come from."""
        return bool(self.data.labels)

    @property
    def place(self) -> str:
        """Condition without corruption that the comparison is about: that of the target domain if there is one."""
        return USE if self.has_target_domain else CLEAN

    @property
    def one_domain(self) -> bool:
        """Whether source and target domain are the same, and only labels are scarce."""
        data = self.data
        return data.label_fractions == data.use_fractions and not data.use_noise and not data.use_corruption


@dataclass(frozen=True, kw_only=True)
class StudyResults(Record):
    """All results of a study.

    Attributes:
        study: Name of the study.
        title: Title of the study.
        paper: Tables and figures of the paper that it reproduces.
        generated: Whether its data are tiny generated ones.
        seeds: Seeds of the reported runs.
        comparisons: One comparison per variant and track.
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
