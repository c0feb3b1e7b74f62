"""Saves and loads a fitted classifier: its weights as safetensors, everything else as plain data for JSON."""

import itertools
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from selbo import _checks
from selbo._files import replacing
from selbo.estimator.classifier import SummaryClassifier
from selbo.estimator.forest import Forest
from selbo.estimator.intake import FeatureScale
from selbo.estimator.pool import Pool
from selbo.estimator.settings import NETWORK_BASE, POOL_BASE, check_settings
from selbo.evaluation.belief_calibration import BeliefCalibration
from selbo.nn import storage
from selbo.objectives import Evidential, LabelShift
from selbo.presets import METHODS

PLAIN_FORMAT: Final = "selbo-plain-1"
ENTRIES: Final = (
    "settings",
    "seed",
    "mean",
    "std",
    "medians",
    "indicators",
    "label_shift",
    "base",
    "calibration",
    "num_unlabelled",
)
"""What describes a classifier."""

ELSEWHERE: Final = ("device",)
"""Settings that are not saved."""


def export_settings(classifier: SummaryClassifier) -> dict[str, Any]:
    """The parameters of a classifier as plain data.

    Raises:
        ValueError: If one of them cannot be written as JSON.
    """
    found = {name: value for name, value in classifier.get_params().items() if name not in ELSEWHERE}
    try:
        plain: dict[str, Any] = json.loads(json.dumps(found))
    except TypeError as error:
        raise ValueError(f"only settings that are numbers or texts can be saved: {error}") from error
    return plain


def save_classifier(classifier: SummaryClassifier, path: Path) -> dict[str, Any]:
    """Write the weights atomically; returns the description that `restore` takes.

    Raises:
        ValueError: If it was trained on a data frame with text or categories.
    """
    if classifier.encoder_ is not None:
        raise ValueError(
            "only a classifier that was trained on numbers can be saved, not one of a data frame with text"
        )
    description = {
        "settings": export_settings(classifier),
        "seed": classifier.seed_,
        "mean": classifier.scale_.mean.tolist(),
        "std": [each if np.isfinite(each) else None for each in classifier.scale_.std.tolist()],
        "medians": _read_medians(classifier.scale_),
        "indicators": list(classifier.scale_.indicators),
        "label_shift": None if classifier.label_shift_ is None else asdict(classifier.label_shift_),
        "base": classifier.base_,
        "calibration": None if classifier.calibration_ is None else classifier.calibration_.to_dict(),
        "num_unlabelled": classifier.n_unlabelled_,
        "kl_weight": classifier.kl_weight_,
        "kl_scores": None if classifier.kl_scores_ is None else [list(each) for each in classifier.kl_scores_.items()],
    }
    network = classifier.network_
    if classifier.base_ == NETWORK_BASE and METHODS[classifier.method].bayesian:
        storage.save(network, path)
    else:
        from safetensors.torch import save

        tensors = {name: value.detach().cpu().contiguous() for name, value in network.state_dict().items()}
        with replacing(path) as unfinished:
            unfinished.write_bytes(save(tensors, metadata={storage.HEADER: json.dumps({"format": PLAIN_FORMAT})}))
    return description


def restore(description: Any, classes: NDArray[Any], names: Sequence[str]) -> SummaryClassifier:
    """Restore a classifier, except for its network.

    Args:
        description: Return value of `save_classifier`.
        classes: Labels of the classes, in order.
        names: Names of the features.

    Raises:
        ValueError: If an entry is missing or invalid; names the first one.
    """
    require_entries(description, ENTRIES)
    settings = description["settings"]
    require_entries(
        settings, [name for name in SummaryClassifier().get_params() if name not in ELSEWHERE], inside="settings"
    )
    mean, std, medians = (description[name] for name in ("mean", "std", "medians"))
    if not all(isinstance(each, list) and len(each) == len(names) for each in (mean, std, medians)):
        raise ValueError(f"`mean`, `std` and `medians` must be lists of {len(names)} numbers, one per feature")
    indicators = description["indicators"]
    if not isinstance(indicators, list) or len(set(map(str, indicators))) != len(indicators):
        raise ValueError("`indicators` must be a list of different features")
    for i, each in enumerate(indicators):
        if _checks.whole(f"indicators[{i}]", each, at_least=0) >= len(names):
            raise ValueError(f"`indicators[{i}]` must be one of {len(names)} features, but is {each}")
    scale = FeatureScale(
        np.array([_checks.finite(f"mean[{i}]", each) for i, each in enumerate(mean)]),
        np.array([np.inf if each is None else _checks.positive(f"std[{i}]", each) for i, each in enumerate(std)]),
        names,
        np.array([_checks.finite(f"medians[{i}]", each) for i, each in enumerate(medians)]),
        tuple(indicators),
    )
    try:
        classifier = SummaryClassifier(**settings)
    except TypeError as error:
        raise ValueError(f"`settings` must be those of a SummaryClassifier: {error}") from error
    check_settings(classifier)
    classifier.seed_, classifier.scale_, classifier.classes_ = (
        _checks.whole("seed", description["seed"], at_least=0),
        scale,
        classes,
    )
    classifier.n_features_in_, classifier.encoder_ = len(names), None
    classifier.label_shift_ = _label_shift(description["label_shift"], len(classes))
    classifier.base_ = _checks.one_of("base", description["base"], (NETWORK_BASE, POOL_BASE))
    classifier.held_out_log_proba_ = None
    classifier.calibration_ = _calibration(description["calibration"], len(classes))
    classifier.n_unlabelled_ = _checks.whole("num_unlabelled", description["num_unlabelled"], at_least=0)
    classifier.kl_weight_, classifier.kl_scores_ = _kl_choice(description)
    classifier._objective = Evidential(1) if classifier.method == "evidential" else None
    return classifier


def _read_medians(scale: FeatureScale) -> list[float]:
    return [0.0] * len(scale.mean) if scale.medians is None else [float(each) for each in scale.medians]


def load_network(classifier: SummaryClassifier, path: Path, *, device: str) -> None:
    """Load the network of a restored classifier. It is built only if the file holds tensors of its shapes.

    Raises:
        ValueError: If the shapes differ. A damaged description could ask for a network too large for memory.
    """
    num_inputs = classifier.scale_.num_inputs
    if classifier.base_ == POOL_BASE:
        classifier.network_ = _load_pool(path, num_inputs, len(classifier.classes_))
        return
    bayesian = METHODS[classifier.method].bayesian
    widths = [num_inputs, *classifier.hidden, len(classifier.classes_)]
    if storage.read_header(path)[1] != _shapes(widths, bayesian=bayesian):
        raise ValueError(f"{os.fspath(path)!r} does not hold the network of this classifier")
    network = classifier.make_network(num_inputs)
    if bayesian:
        storage.load(network, path)
    else:
        from safetensors.torch import load_file

        network.load_state_dict(load_file(path))
    classifier.set_params(device=device)
    classifier.network_ = network.to(device).eval()


def _load_pool(path: Path, num_inputs: int, num_classes: int) -> Pool:
    from safetensors.torch import load_file

    try:
        pool = Pool.with_shapes(storage.read_header(path)[1], num_inputs, num_classes)
        pool.load_state_dict(load_file(path))
        for each in pool.modules():
            if isinstance(each, Forest):
                each.require_sound(num_inputs)
    except (ValueError, RuntimeError) as error:
        raise ValueError(f"{os.fspath(path)!r} does not hold the pool of this classifier: {error}") from error
    return pool


def require_entries(found: Any, names: Iterable[str], *, inside: str = "") -> None:
    """Reject values that are not dictionaries or lack an entry."""
    if not isinstance(found, dict):
        raise ValueError(f"`{inside}` must hold entries with names, but is something else")
    for name in names:
        if name not in found:
            raise ValueError(f"`{inside}{'.' if inside else ''}{name}` is missing")


def _calibration(found: Any, num_classes: int) -> BeliefCalibration | None:
    if found is None:
        return None
    require_entries(found, [each.name for each in fields(BeliefCalibration)], inside="calibration")
    try:
        calibration = BeliefCalibration.from_dict(found)
        calibration(np.zeros((1, num_classes)))
    except (TypeError, ValueError) as error:
        raise ValueError(f"`calibration` must be one of {num_classes} classes: {error}") from error
    return calibration


def _kl_choice(found: dict[str, Any]) -> tuple[float | None, dict[float, float] | None]:
    """The weight of the KL divergence, and the scores by which it was chosen; None in older folders."""
    weight, scores = found.get("kl_weight"), found.get("kl_scores")
    if weight is not None:
        weight = _checks.non_negative("kl_weight", weight)
    if scores is None:
        return weight, None
    if not isinstance(scores, list) or not all(isinstance(each, list) and len(each) == 2 for each in scores):
        raise ValueError("`kl_scores` must be pairs of a weight and its score")
    return weight, {
        _checks.non_negative(f"kl_scores[{i}]", each): _checks.finite(f"kl_scores[{i}]", score)
        for i, (each, score) in enumerate(scores)
    }


def _label_shift(found: Any, num_classes: int) -> LabelShift | None:
    if found is None:
        return None
    require_entries(found, ("before", "after"), inside="label_shift")
    for name in ("before", "after"):
        if not isinstance(found[name], list) or len(found[name]) != num_classes:
            raise ValueError(f"`label_shift.{name}` must be a list of {num_classes} fractions")
    return LabelShift(found["before"], found["after"])


def _shapes(widths: Sequence[int], *, bayesian: bool) -> dict[str, list[int]]:
    """Names and shapes of the tensors that `save` writes for a network, without building it."""
    found: dict[str, list[int]] = {}
    for i, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
        for k, (name, shape) in enumerate({"weight": [outputs, inputs], "bias": [outputs]}.items()):
            layer = f"layers.{2 * i}"  # between two layers is a ReLU
            if bayesian:
                posterior = f"{layer}.posteriors.{k}"
                found |= {f"{posterior}.mean": shape, f"{posterior}.rho": shape, f"{posterior}.prior_std": []}
            else:
                found[f"{layer}.{name}"] = shape
    return found
