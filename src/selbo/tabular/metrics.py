"""Records of the metrics of a trained model: ``metrics.json``, and the output of `selbo evaluate`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from selbo.results import ClassResult, ConfusionCount, GroupResult, MethodResult, Record, StatedGroups


@dataclass(frozen=True, kw_only=True)
class TableMetrics(Record):
    """Results on labelled rows.

    Attributes:
        metrics: Metrics by name, as in `selbo.evaluate`.
        temperature: Temperature fitted on the validation rows; None if it is not known.
        calibrated: The metrics after temperature scaling.
        per_class: Results of each class.
        confusion: Confusion counts.
        classes: Names of the classes.
        groups: Results of groups of rows, if they were asked for.
    """

    metrics: Mapping[str, Any]
    temperature: float | None
    calibrated: Mapping[str, Any] | None
    per_class: tuple[ClassResult, ...]
    confusion: tuple[ConfusionCount, ...]
    classes: tuple[str, ...]
    groups: tuple[GroupResult, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class RowCounts(Record):
    """Number of rows in each part of the data, and of those without label if there are any."""

    train: int
    val: int
    test: int
    unlabelled: int | None = None


@dataclass(frozen=True, kw_only=True)
class ValidationMetrics(Record):
    """Metrics of the validation rows: NLL, NLL of a constant prediction, accuracy, and best temperature."""

    nll: float
    constant_nll: float
    accuracy: float
    best_temperature: float


@dataclass(frozen=True, kw_only=True)
class TrainingMetrics(TableMetrics):
    """Content of ``metrics.json``: results on the test rows. There are no metrics if these have no labels.

    Attributes:
        rows: Number of rows.
        features: Number of features per row.
        method: The training method.
        belief: Description of the belief.
        warnings: Warnings of the training.
        contradictions: Contradictions between the belief and held-out rows, one sentence each.
        shortfall: A sentence if the accuracy is clearly below the stated one, for which the network may be the cause.
        validation: Metrics of the validation rows; None if there are none.
        stated_groups: Stated and predicted fractions of groups, if fractions of groups were stated.
        notes: How the table was read, one sentence each.
        baselines: The test rows by this model and by simple baselines.
    """

    rows: RowCounts
    features: int
    method: str
    belief: str
    warnings: tuple[str, ...]
    contradictions: tuple[str, ...]
    shortfall: str | None
    validation: ValidationMetrics | None
    stated_groups: StatedGroups | None = None
    notes: tuple[str, ...] = ()
    baselines: tuple[MethodResult, ...] = ()
