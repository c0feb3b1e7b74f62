"""Shared parts of the stories: metrics of predictions, the code that is shown, and the record of a story."""

import inspect
import re
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from selbo.evaluation import evaluate
from selbo.report.stories import Story
from selbo.results import ClassificationTask, Comparison, Measurement, Outcome, Provenance

STORY_METRICS: Final = ("nll", "accuracy", "ece", "brier")


def measure(log_probs: Tensor, labels: Any) -> Measurement:
    """Metrics of predictions, with their mean confidence."""
    found = evaluate(None, torch.as_tensor(labels), log_probs=log_probs)
    confidence = float(log_probs.exp().amax(-1).mean())
    return Measurement(level=None, metrics={**{name: found[name] for name in STORY_METRICS}, "confidence": confidence})


def mean_measurement(found: Sequence[Measurement]) -> Measurement:
    """The mean of each metric over several models."""
    names = found[0].metrics
    return Measurement(level=None, metrics={name: fmean(each.metrics[name] or 0.0 for each in found) for name in names})


TYPES: Final = r": (?:Any|int|float|str|list\[float\])"
"""Types of the arguments of the functions that are shown."""


def shown_code(header: str, *functions: Callable[..., Any]) -> str:
    """The source of functions below their imports, without the types of their arguments."""
    return "\n\n\n".join([header, *(_untyped(inspect.getsource(each)) for each in functions)])


def _untyped(source: str) -> str:
    head, colon, body = source.strip().partition(":\n")
    head = re.sub(rf"{TYPES} = ", "=", head)
    return re.sub(rf"{TYPES}| -> .*", "", head) + colon + body


def build_story(
    runs: Sequence[Outcome],
    seeds: Sequence[int],
    made_by: Provenance,
    *,
    name: str,
    title: str,
    short: str,
    stated: str,
    description: str,
    picture: str,
    without: str,
    conditions: tuple[str, ...],
    code: tuple[Any, ...],
    methods: tuple[str, ...],
    focus: str,
    labels: Any,
    num_test: int,
) -> Story:
    """The record of a story; ``labels`` are those of its training rows, ``code`` a header and functions."""
    counts = np.bincount(labels)
    results = Comparison(
        title=title,
        description=description,
        focus=focus,
        task=ClassificationTask(
            num_train=len(labels),
            num_test=num_test,
            num_classes=len(counts),
            class_names=tuple(map(str, range(len(counts)))),
            class_counts=tuple(counts.tolist()),
        ),
        methods=methods,
        seeds=tuple(seeds),
        runs=tuple(runs),
        clean=conditions[0],
        made_by=made_by,
    )
    return Story(
        name=name,
        title=title,
        short=short,
        stated=stated,
        picture=picture,
        without=without,
        conditions=conditions,
        code=shown_code(*code),
        results=results,
    )
