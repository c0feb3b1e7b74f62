"""Records of a run, from which tables, figures and the report are built."""

import math
import platform
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from selbo.evaluation.evaluate import evaluate_log_probs, evaluate_ood
from selbo.evaluation.predict import Prediction
from selbo.metrics.calibration import reliability
from selbo.metrics.classwise import confusion, per_class, wilson_interval
from selbo.metrics.selective import aurc, risk_coverage
from selbo.results import (
    ClassResult,
    ClassResults,
    ConfusionCount,
    EntropyHistogram,
    GroupResult,
    Measurement,
    MethodResult,
    Provenance,
    RegionScale,
    ReliabilityBins,
    RiskCurve,
    StatedBelief,
)
from selbo.summary.likelihood import SummaryLikelihood
from selbo.summary.partitions import Partition
from selbo.version import __version__

ENTROPY_BINS: Final = 24
RISK_STEPS: Final = 100

GROUP_METRICS: Final = ("accuracy", "overconfidence", "nll", "ece", "brier", "auroc", "f1_macro")
"""Metrics of each group."""


def compute_metrics(prediction: Prediction, labels: Tensor) -> dict[str, Any]:
    """All metrics of a test set."""
    return evaluate_log_probs(prediction.log_probs, labels)


def condition(prediction: Prediction, labels: Tensor, *, level: float | None = None) -> Measurement:
    """Metrics under one condition, with its level of corruption; values that are not finite become None.

    Args:
        prediction: Predictions for a test set.
        labels: Labels of the test set.
        level: Level of corruption.
    """
    found = compute_metrics(prediction, labels)
    recall = found.pop("recall")
    metrics = {name: _finite_or_none(value) for name, value in found.items()}
    return Measurement(level=level, metrics=metrics, recall=tuple(recall))


def by_class(prediction: Prediction, labels: Tensor, classes: Sequence[str]) -> ClassResults:
    """Recall and precision of each class with 95 % intervals, and the confusion counts."""
    counts = confusion(prediction.log_probs, labels)
    scores = per_class(counts, num_classes=len(classes))
    return ClassResults(
        per_class=tuple(ClassResult(name=name, **each._asdict()) for name, each in zip(classes, scores, strict=True)),
        confusion=tuple(
            ConfusionCount(true=classes[label], predicted=classes[guess], rows=rows)
            for (label, guess), rows in counts.items()
        ),
    )


def by_group(prediction: Prediction, labels: Tensor, groups: Sequence[str]) -> tuple[GroupResult, ...]:
    """Metrics of each group of rows with 95 % intervals, in the order of their names; numbers by size."""
    found = evaluate_log_probs(prediction.log_probs, labels, groups=groups)["groups"]
    return tuple(
        GroupResult(
            name=name,
            rows=found[name]["num_examples"],
            metrics={key: _finite_or_none(found[name][key]) for key in GROUP_METRICS},
            intervals=found[name]["intervals"],
        )
        for name in sorted(found, key=_by_size)
    )


def _finite_or_none(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _by_size(name: str) -> tuple[float, str]:
    try:
        return float(name), name
    except ValueError:
        return math.inf, name


def group_takeaway(groups: Sequence[GroupResult]) -> str:
    """Sentences on the group with the lowest accuracy, and on groups that are clearly over- or underconfident."""
    rows = sum(each.rows for each in groups)
    accuracy = sum(each.rows * (each.metrics["accuracy"] or 0.0) for each in groups) / rows
    worst = min(groups, key=lambda each: each.metrics["accuracy"] or 0.0)
    low, high = worst.intervals["accuracy"] or (0.0, 1.0)
    ends = {each.name: each.intervals["overconfidence"] or (0.0, 0.0) for each in groups}
    sure, unsure = ([name for name, end in ends.items() if side * end[k] > 0] for side, k in ((1, 0), (-1, 1)))
    clear = [
        f"Clearly {word}: {_first_names(names)}."
        for word, names in (("overconfident", sure), ("underconfident", unsure))
        if names
    ]
    return (
        f"The accuracy is lowest in “{worst.name}”: {_percent(worst.metrics['accuracy'] or 0.0)} of {worst.rows} rows "
        f"(95 % interval {100 * low:.1f} to {_percent(high)}), against {_percent(accuracy)} of all rows. "
        + (" ".join(clear) or "No group is clearly over- or underconfident.")
    )


def _first_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(f"“{name}”" for name in names[:3]) + more


def baseline_takeaway(found: Sequence[MethodResult]) -> str:
    """One sentence per baseline: whether the first method is better, by the interval of the difference of the NLL."""
    model, said = found[0].name, []
    for each in found[1:]:
        low, high = each.nll_difference_interval or (0.0, 0.0)
        word = "no clear difference from" if low <= 0 <= high else "better than" if low > 0 else "worse than"
        numbers = f"({each.nll_difference or 0.0:+.3f} [{low:+.3f}, {high:+.3f}])"
        said.append(f"{word} {each.name} {numbers.replace('-', chr(0x2212))}")  # a minus sign, not a hyphen
    return f"{model} by NLL: {'; '.join(said)}."


def summarise_metrics(found: Sequence[ClassResult], *, most_frequent: str, confidence: float) -> str:
    """Summarise the test rows: accuracy against a constant prediction, and against the confidence.

    Args:
        found: Results of each class.
        most_frequent: Most frequent class in the training rows.
        confidence: Mean probability of the predicted classes.
    """
    rows, correct = sum(each.rows for each in found), sum(each.correct for each in found)
    low, high = wilson_interval(correct, rows)
    guessing = sum(each.rows for each in found if each.name == most_frequent) / rows
    against = "no clear difference from"
    if not low <= guessing <= high:
        against = "better than" if low > guessing else "worse than"
    sure = f"Its mean confidence, {_percent(confidence)}, agrees with that."
    if not low <= confidence <= high:
        word = "too high: it is overconfident" if confidence > high else "too low: it is underconfident"
        sure = f"Its mean confidence, {_percent(confidence)}, is {word}."
    worst = min((each for each in found if each.rows), key=lambda each: each.recall or 0.0)
    return (
        f"Right on {_percent(correct / rows)} of the {rows} test rows (95 % interval {100 * low:.1f} to "
        f"{_percent(high)}), {against} always answering “{most_frequent}”, which is right on {_percent(guessing)}. "
        f"{sure} The class recognised least is “{worst.name}”: {worst.correct} of {worst.rows} rows."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def compute_reliability(prediction: Prediction, labels: Tensor) -> ReliabilityBins:
    """Confidence, accuracy and number of predictions in ten bins of confidence."""
    bins = reliability(prediction.probs, labels)
    return ReliabilityBins(confidence=bins.confidences, accuracy=bins.accuracies, count=bins.counts)


def compute_risk_curve(prediction: Prediction, labels: Tensor) -> RiskCurve:
    """Error rate among the most confident predictions, at 100 shares of answers; equal confidences stay together."""
    coverages, risks = risk_coverage(prediction.probs, labels)
    steps = torch.arange(1, RISK_STEPS + 1, dtype=torch.float64) / RISK_STEPS
    places = torch.searchsorted(coverages, steps - 1e-9).clamp(max=len(risks) - 1)
    return RiskCurve(risk=tuple(risks[places].tolist()), area=aurc(prediction.probs, labels))


def region_masses(prediction: Prediction, partition: Partition) -> tuple[float, ...]:
    """Share of the predictions that falls in each region."""
    regions = partition.assign(prediction.log_probs.double().cpu())
    counts = torch.bincount(regions, minlength=partition.num_regions).double()
    return tuple((counts / counts.sum()).tolist())


def entropies(inside: Prediction, outside: Prediction | None) -> EntropyHistogram:
    """Histograms of the entropy of predictions, in and out of distribution, on the same bins from 0 to log K."""
    top = math.log(inside.probs.shape[-1])

    def counts(prediction: Prediction) -> tuple[int, ...]:
        places = (prediction.entropy.double() / top * ENTROPY_BINS).long().clamp(0, ENTROPY_BINS - 1)
        return tuple(torch.bincount(places.cpu(), minlength=ENTROPY_BINS).tolist())

    return EntropyHistogram(
        edges=tuple(top * i / ENTROPY_BINS for i in range(ENTROPY_BINS + 1)),
        inside=counts(inside),
        outside=None if outside is None else counts(outside),
    )


def compute_ood_metrics(inside: Prediction, outside: Prediction) -> dict[str, float]:
    """Metrics of out-of-distribution detection by entropy."""
    return evaluate_ood(inside.entropy, outside.entropy)


def describe_belief(summary: SummaryLikelihood, words: str, class_names: Sequence[str] | None = None) -> StatedBelief:
    """Describe a belief for a report."""
    scale = summary.partition.scale(class_names)
    return StatedBelief(
        words=words,
        partition=type(summary.partition).__name__,
        regions=tuple(summary.partition.region_labels(class_names)),
        s0=tuple(summary.s0.tolist()),
        concentration=float(summary.concentration),
        scale=None if scale is None else RegionScale(title=scale.title, ends=scale.ends),
        shells=tuple(summary.partition.shells()) or None,
    )


def made_by(seconds: float) -> Provenance:
    """Collect command, versions and machine."""
    name = Path(sys.argv[0]).name
    name = "selbo" if name == "__main__.py" else name  # python -m selbo
    threads = torch.get_num_threads()
    return Provenance(
        command=shlex.join([name, *sys.argv[1:]]),
        selbo=__version__,
        python=platform.python_version(),
        torch=str(torch.__version__),
        machine=f"{platform.machine()}, {threads} thread{'s' * (threads != 1)}",
        seconds=seconds,
    )
