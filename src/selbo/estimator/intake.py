"""Validates the input data of the classifier and puts labelled and unlabelled rows on one scale."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_feature_names, _check_n_features, _check_sample_weight, validate_data
from torch import Tensor

from selbo._numerics import FloatArray, mean_and_std
from selbo.estimator.categories import FrameEncoder
from selbo.estimator.group_intake import GroupStatement, group_rows, is_absent, one_per_row, state_classes
from selbo.estimator.rows import Rows

CONVENTION: Final = -1
"""Label of unlabelled rows in the semi-supervised classifiers of scikit-learn."""

FAR_MEAN: Final = 3.0
FAR_STD: Final = 5.0
"""A feature is on another scale if its mean moves by more standard deviations, or its deviation by a larger factor."""

HALF_WAY: Final = 1e-12
"""Relative rounding error of a sum of weights, up to which a row is in the middle."""

LARGEST_TOTAL: Final = 1e30
"""Largest sum of the weights of a class, and the reciprocal of the smallest: within single precision."""

FEATURE_CHECKS: Final[dict[str, Any]] = {"dtype": np.float64, "order": "C", "ensure_all_finite": "allow-nan"}
"""How scikit-learn shall check features. The last bit of a matrix product depends on the order of the numbers in
memory: data frames store columns, arrays rows, and both are to give the same probabilities."""


@dataclass(frozen=True)
class FeatureScale:
    """Means and standard deviations of features; infinite for a constant feature, which carries no information.

    Features of zeros and ones are not scaled: standardisation would weigh a rare category far above a frequent one.
    A missing value, NaN, is replaced by the median. If values were missing in training, an indicator is added.

    Attributes:
        mean: Mean of each feature.
        std: Standard deviation of each feature.
        names: Names of the features, for errors.
        medians: Median of each feature; 0 if all values are missing. None if no value can be missing.
        indicators: Features that have an input which is 1 where their value is missing, and 0 elsewhere. Features
            whose values are missing in the same rows share one.
    """

    mean: FloatArray
    std: FloatArray
    names: Sequence[str] | None = None
    medians: FloatArray | None = None
    indicators: tuple[int, ...] = ()

    @classmethod
    def of(cls, X: FloatArray, weights: FloatArray | None, names: Sequence[str] | None = None) -> "FeatureScale":
        """The scale of the values of a table that are not missing, with optional row weights."""
        missing = np.isnan(X)
        found, medians = [], []
        for column, absent in zip(X.T, missing.T, strict=True):
            there = ~absent
            kept = None if weights is None else weights[there]
            values = column[there]
            moments = mean_and_std(values, kept) if len(values) else None
            found.append((0.0, 1.0) if moments and ((values == 0) | (values == 1)).all() else moments)
            medians.append(_median(values, kept))
        mean = [0.0 if each is None else each[0] for each in found]
        std = [np.inf if each is None else each[1] for each in found]
        return cls(np.array(mean), np.array(std), names, np.array(medians), _indicators(missing))

    @property
    def num_inputs(self) -> int:
        """Number of inputs of a network: features and indicators."""
        return len(self.mean) + len(self.indicators)

    def filled(self, X: FloatArray) -> FloatArray:
        """The features with medians in place of missing values."""
        return X if self.medians is None else np.where(np.isnan(X), self.medians, X)

    def __call__(self, X: FloatArray) -> Tensor:
        """Standardise features, shape (rows, inputs); those of zeros and ones are unchanged."""
        with np.errstate(over="ignore"):
            values = (self.filled(X) - self.mean) / self.std
            near = np.isfinite(values.astype(np.float32)).all(0)
        if not near.all():
            first = int(near.argmin())
            name = first if self.names is None else repr(str(self.names[first]))
            raise ValueError(f"feature {name} has values too far from those in training to be computed with")
        missing = np.isnan(X[:, list(self.indicators)])
        return torch.from_numpy(np.concatenate([values, missing], axis=1) if self.indicators else values)


def _median(values: FloatArray, weights: FloatArray | None) -> float:
    """Weighted median: a row with weight 2 is the same as the row twice; 0 without rows."""
    if len(values) == 0:
        return 0.0
    if weights is None:
        return float(np.median(values))
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weights[order])
    middle = np.searchsorted(below, [0.5 * below[-1] * (1 - HALF_WAY), 0.5 * below[-1] * (1 + HALF_WAY)])
    low, high = values[order][np.minimum(middle, len(values) - 1)]
    return float(low + (high - low) / 2)


def _indicators(missing: NDArray[np.bool_]) -> tuple[int, ...]:
    """Features with values that are missing in some rows and not in all: one for each set of rows."""
    some = np.flatnonzero(missing.any(0) & ~missing.all(0))
    patterns = {missing[:, k].tobytes(): int(k) for k in reversed(some)}
    return tuple(sorted(patterns.values()))


class Taken(NamedTuple):
    """Training rows, the labels of the classes, and the scale of the features."""

    rows: Rows
    classes: NDArray[Any]
    scale: FeatureScale


def take_in(
    estimator: Any, X: Any, y: Any, sample_weight: Any, X_unlabelled: Any, *, marker: Any, believes: bool
) -> Taken:
    """Validate the arguments of `fit`; sets the feature attributes of the estimator.

    Args:
        estimator: The calling estimator.
        X: Features.
        y: Labels.
        sample_weight: Weight of each row, or None.
        X_unlabelled: Features of additional unlabelled rows, or None.
        marker: Label of unlabelled rows; False for no such label, None for the convention.
        believes: Whether the method has a summary, which uses unlabelled rows; otherwise they are left out.
    """
    if y is None:
        validate_data(estimator, X, y)  # raises the error
    y, absent = _without_gaps(y)
    X, y = _first(estimator, X, y)
    weights = _weights(sample_weight, X)
    counted = np.ones(len(y), dtype=bool) if weights is None else weights > 0
    known = counted if absent is None else counted & ~absent
    labelled = known & ~unlabelled_rows(y, marker, known)
    if not labelled.any():
        raise ValueError(f"`y` must hold a label in some row that counts, but all rows are marked by {marker!r}")
    _comparable(y[labelled])
    check_classification_targets(y[labelled])
    classes, numbers = np.unique(y[labelled], return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"`y` must hold at least 2 classes, but holds 1 class only, {classes.tolist()[0]!r}")
    others = [X[counted & ~labelled]] if believes else []
    if X_unlabelled is not None:
        others.append(_more(estimator, "X_unlabelled", X_unlabelled))
    unlabelled = np.concatenate(others) if others else X[:0]
    kept = None if weights is None else weights[labelled]
    if kept is not None:
        _computable(kept, classes, numbers)
    every = None if kept is None else np.concatenate([kept, np.ones(len(unlabelled))])
    scale = FeatureScale.of(np.concatenate([X[labelled], unlabelled]), every, _feature_names(estimator))
    if X_unlabelled is not None:
        _same_scale(scale.filled(X[labelled]), scale.filled(others[-1]))
    rows = Rows(
        scale(X[labelled]),
        torch.from_numpy(numbers),
        None if kept is None else torch.from_numpy(kept),
        scale(unlabelled) if len(unlabelled) else None,
    )
    return Taken(rows, classes, scale)


def take_in_groups(estimator: Any, X: Any, y: Any, sample_weight: Any, stated: GroupStatement, *, marker: Any) -> Taken:
    """Validate the arguments of `fit` for a table with groups, in which labels may be missing.

    Args:
        estimator: The calling estimator; its feature attributes are set.
        X: Features.
        y: Labels, or None. None, NaN, the marker, and -1 if it is no class, stand for no label.
        sample_weight: Weight of each row, or None.
        stated: What the user states about groups.
        marker: Label of unlabelled rows; False for no such label, None for the convention.
    """
    X, _ = _first(estimator, X, None)
    weights = _weights(sample_weight, X)
    counted = np.ones(len(X), dtype=bool) if weights is None else weights > 0
    names = np.array([*one_per_row("groups", stated.groups, len(X)), None], dtype=object)[:-1]
    given = np.array([*([None] * len(X) if y is None else one_per_row("y", y, len(X))), None], dtype=object)[:-1]
    known = counted & ~np.array([is_absent(each) or _is_marker(each, marker) for each in given], dtype=bool)
    _comparable(given[known])
    if marker is None:
        known &= ~_is_convention(given, known, stated)
    classes, by_group = state_classes(stated, list(dict.fromkeys(given[known].tolist())))
    numbers = {label: k for k, label in enumerate(classes.tolist())}
    if others := [each for each in given[known].tolist() if each not in numbers]:
        raise ValueError(f"`y` must hold the classes {list(numbers)}, or None, but holds {others[0]!r}")
    kept = None if weights is None else weights[counted]
    if kept is not None and known.any() and not (kept == 1).all():
        raise ValueError(
            "`sample_weight` must be 0 or 1 for groups with some labels, but holds other weights: leave out the labels "
            "or the weights"
        )
    scale = FeatureScale.of(X[counted], kept, _feature_names(estimator))
    grouped = group_rows(stated, by_group, names[counted].tolist(), None if known.any() else kept)
    rows = Rows(
        scale(X[known]),
        torch.tensor([numbers[each] for each in given[known].tolist()], dtype=torch.long),
        None,
        grouped=replace(grouped, inputs=scale(X[counted])),
    )
    return Taken(rows, classes, scale)


def _is_marker(label: Any, marker: Any) -> bool:
    return marker is not None and not isinstance(marker, (bool, np.bool_)) and bool(label == marker)


def _is_convention(labels: NDArray[Any], known: NDArray[np.bool_], stated: GroupStatement) -> NDArray[np.bool_]:
    """Mask of the label -1, if it is not a class.

    Raises:
        ValueError: If no classes are stated, and -1 could be one of as many as there are fractions.
    """
    found: NDArray[np.bool_] = known & np.array(
        [isinstance(each, Real) and each == CONVENTION for each in labels], dtype=bool
    )
    if not found.any():
        return found
    others = list(dict.fromkeys(labels[known & ~found].tolist()))
    classes = state_classes(stated, [])[0].tolist()
    if not stated.names_classes and others and len(others) + 1 == len(classes):
        raise ValueError(
            "`y` has the label -1, which may be a class or mark unlabelled rows: pass `classes`, or "
            "unlabelled_label=-1 or False"
        )
    return found & (CONVENTION not in classes)


def take_in_val(estimator: Any, X: Any, y: Any, rows: Rows) -> Rows | None:
    """Validation rows, for an estimator with known classes and scale; None if there are none."""
    if (X is None) != (y is None):
        raise ValueError("`X_val` and `y_val` must be given together, but one of them is missing")
    if X is None:
        return None
    inputs = estimator.scale_(_more(estimator, "X_val", X))
    labels, known = np.asarray(y).tolist(), {label: k for k, label in enumerate(estimator.classes_.tolist())}
    if len(labels) != len(inputs) or not set(labels) <= set(known):
        raise ValueError(f"`y_val` must hold one of the labels {list(known)} for each of the {len(inputs)} rows")
    return replace(rows, inputs=inputs, labels=torch.tensor([known[each] for each in labels]), weights=None)


def unlabelled_rows(y: NDArray[Any], marker: Any, counted: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mask of unlabelled rows; the convention applies to rows with a positive weight only."""
    nowhere = np.zeros(len(y), dtype=bool)
    if isinstance(marker, (bool, np.bool_)) and not marker:
        return nowhere
    if marker is None:
        found = nowhere if y.dtype.kind not in "if" else (y == CONVENTION) & counted
        if not found.any() or len(np.unique(y[counted & ~found])) < 2:  # -1 and 1 are two classes
            return nowhere
        warnings.warn(
            f"{found.sum()} rows have the label -1 and are treated as unlabelled: pass unlabelled_label=-1 to confirm, "
            "or unlabelled_label=False if -1 is a class",
            UserWarning,
            stacklevel=5,
        )
        return np.asarray(found)
    is_text = isinstance(marker, str)
    if not is_text and (not isinstance(marker, Real) or marker is True or np.isnan(float(marker))):
        raise ValueError(f"`unlabelled_label` must be a label such as -1 or 'unknown', or False, but got {marker!r}")
    labels = y.tolist()
    if not any(isinstance(each, str if is_text else Real) for each in labels):
        came = "a text" if is_text else "a number"
        raise ValueError(
            f"`unlabelled_label` must have the type of the labels in `y`, such as {labels[0]!r}, "
            f"but {marker!r} is {came}"
        )
    said = np.array([each == marker for each in labels])
    if not said.any():
        warnings.warn(
            f"No label in `y` is {marker!r}, the `unlabelled_label`: all rows are treated as labelled",
            UserWarning,
            stacklevel=5,
        )
    return said


def _comparable(labels: NDArray[Any]) -> None:
    """Reject labels that cannot be sorted, such as None among strings."""
    kinds: dict[str, Any] = {}
    for each in labels.tolist() if labels.dtype.kind == "O" else []:
        kind = "number" if isinstance(each, Real) else "text" if isinstance(each, str) else type(each).__name__
        kinds.setdefault(kind, each)
    if len(kinds) > 1:
        raise ValueError(f"`y` must hold labels of one kind, all numbers or all texts, but holds {[*kinds.values()]}")


def _computable(weights: FloatArray, classes: NDArray[Any], numbers: NDArray[np.intp]) -> None:
    """Reject weights whose sum per class is too small or too large to compute with."""
    for label, total in zip(classes.tolist(), np.bincount(numbers, weights), strict=True):
        if not 1 / LARGEST_TOTAL <= total <= LARGEST_TOTAL:
            raise ValueError(
                f"`sample_weight` must add up to between {1 / LARGEST_TOTAL:g} and {LARGEST_TOTAL:g} in each class, "
                f"but those of class {label!r} add up to {total:g}"
            )


def _weights(sample_weight: Any, X: FloatArray) -> FloatArray | None:
    if sample_weight is None:
        return None
    weights: FloatArray = _check_sample_weight(sample_weight, X, dtype=np.float64)
    if (weights < 0).any() or not (weights > 0).any():
        came = "some weights are negative" if (weights < 0).any() else "all weights are zero"
        raise ValueError(f"`sample_weight` must be at least 0, and above it for some row, but {came}")
    return weights


def _same_scale(X: FloatArray, more: FloatArray) -> None:
    """Warn if unlabelled rows are on another scale than ``X``: a pipeline transforms only ``X``."""
    with np.errstate(over="ignore", invalid="ignore"):  # squares of large numbers overflow
        std = X.std(0)
        varying = std > 0
        if len(X) < 2 or not varying.any():
            return
        moved = np.abs(more.mean(0) - X.mean(0))[varying] / std[varying]
        ratio = more.std(0)[varying] / std[varying]
    off = (moved > FAR_MEAN) | (ratio > FAR_STD) | ((ratio < 1 / FAR_STD) & (ratio > 0))
    if off.mean() >= 0.5:
        warnings.warn(
            f"`X_unlabelled` is on another scale than `X` in {off.sum()} of {len(off)} features: a pipeline transforms "
            "only `X`, so inside one append these rows to `X` and mark them in `y` by unlabelled_label",
            UserWarning,
            stacklevel=6,
        )


def _first(estimator: Any, X: Any, y: Any) -> tuple[FloatArray, Any]:
    """The features of training rows as numbers, and the labels if there are any; sets what is known of the features."""
    estimator.encoder_ = FrameEncoder.of(X)
    labels = {} if y is None else {"y": y}
    if estimator.encoder_ is None:
        found = validate_data(estimator, X, **labels, **FEATURE_CHECKS)
        return (found, None) if y is None else found
    given = None if y is None else validate_data(estimator, X="no_validation", y=y)
    _check_feature_names(estimator, X, reset=True)
    _check_n_features(estimator, X, reset=True)
    numbers = check_array(estimator.encoder_(X), **FEATURE_CHECKS, input_name="X")
    check_consistent_length(numbers, given)
    return numbers, given


def _feature_names(estimator: Any) -> Sequence[str] | None:
    """Names of the numbers of a row."""
    encoder = estimator.encoder_
    return getattr(estimator, "feature_names_in_", None) if encoder is None else encoder.features


def _more(estimator: Any, name: str, X: Any) -> FloatArray:
    """Features of further rows as numbers, NaN where a value is missing."""
    _check_feature_names(estimator, X, reset=False)
    encoder: FrameEncoder | None = getattr(estimator, "encoder_", None)
    given = X if encoder is None else encoder(X)
    found: FloatArray = check_array(given, **FEATURE_CHECKS, estimator=estimator, input_name=name)
    width = estimator.n_features_in_ if encoder is None else found.shape[1]
    if found.shape[1] != width:
        raise ValueError(f"`{name}` must have {estimator.n_features_in_} columns, as `X` has, but has {found.shape[1]}")
    return found


def take_in_inputs(estimator: Any, X: Any) -> FloatArray:
    """Features to predict from as numbers, for a fitted estimator."""
    if getattr(estimator, "encoder_", None) is not None:
        return _more(estimator, "X", X)
    found: FloatArray = validate_data(estimator, X, **FEATURE_CHECKS, reset=False)
    return found


def _without_gaps(y: Any) -> tuple[Any, NDArray[np.bool_] | None]:
    """Labels with some label in place of None and NaN, and where these are; None if there are none or only such."""
    if y is None:
        return y, None
    labels = np.asarray(y)
    if labels.ndim != 1:
        return y, None
    if labels.dtype.kind == "f":
        absent: NDArray[np.bool_] = np.isnan(labels)
    elif labels.dtype.kind == "O":
        absent = np.array([is_absent(each) for each in labels.tolist()], dtype=bool)
    else:
        return y, None
    if not absent.any():
        return y, None
    if absent.all():
        raise ValueError("`y` must hold a label in some row, but all are missing")
    there = labels[~absent]
    filled = np.where(absent, there[0], labels)
    return (filled if labels.dtype.kind == "f" else np.array(filled.tolist())), absent
