"""Input checks of the metrics: tensors on any device, or arrays, become checked tensors on the host.

Values keep their type; the metrics compute in double precision.
"""

from collections.abc import Hashable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from selbo import _checks

Array: TypeAlias = Tensor | npt.NDArray[Any]
"""A tensor on any device, a numpy array, or anything that numpy can convert to an array."""


def on_host(name: str, values: Array) -> Tensor:
    """Convert values to a tensor on the CPU, detached from the graph."""
    if isinstance(values, Tensor):
        return values.detach().cpu()
    if not hasattr(values, "__array__"):
        raise ValueError(f"`{name}` must be a tensor or a numpy array, but got {type(values).__name__}")
    try:
        return torch.from_numpy(np.array(values, order="C"))  # a copy: torch accepts no reversed or read-only array
    except TypeError:
        text = f"`{name}` must hold numbers, but got an array of dtype {np.asarray(values).dtype}"
        raise ValueError(f"{text}: np.searchsorted(model.classes_, y) turns names of classes into numbers") from None


def table(name: str, values: Array) -> Tensor:
    """Table with one row per example and one column per class: shape (B, K), B >= 1, K >= 2, floating point."""
    tensor = _checks.floating(name, on_host(name, values))
    if tensor.dtype not in _checks.ROW_SUM_TOLERANCE:
        raise ValueError(f"`{name}` must have one of the usual precisions, but got dtype {tensor.dtype}")
    if tensor.ndim == 1:
        raise ValueError(
            f"`{name}` must have shape (examples, classes), but got {tuple(tensor.shape)}; a binary score p becomes "
            "two columns, `stack([1 - p, p], -1)`"
        )
    if tensor.ndim != 2 or tensor.shape[1] < 2:
        raise ValueError(
            f"`{name}` must have shape (examples, classes), 2 or more classes, but got {tuple(tensor.shape)}"
        )
    if len(tensor) == 0:
        raise ValueError(f"`{name}` must hold at least one example, but got shape {tuple(tensor.shape)}")
    return tensor


def probs_table(probs: Array, *, validate: bool = True) -> Tensor:
    """Probabilities of shape (B, K); with ``validate``, on the simplex within the tolerance of their type."""
    tensor = table("probs", probs)
    if validate:
        if bool((tensor < 0).any()):
            raise ValueError(
                f"`probs` must be at least 0 everywhere, but the smallest is {float(tensor.min()):.4g}; if these are "
                "logits, pass `logits.softmax(-1)`"
            )
        _checks.on_simplex("probs", tensor)
    return tensor


def log_probs_table(log_probs: Array, *, validate: bool = True) -> Tensor:
    """Log-probabilities of shape (B, K); with ``validate``, on the simplex within the tolerance of their type."""
    tensor = table("log_probs", log_probs)
    return _checks.log_probs(tensor, num_classes=tensor.shape[1], validate=validate)


def scores_table(scores: Array, *, validate: bool = True) -> Tensor:
    """Scores of shape (B, K), of which only the order is used; with ``validate``, without NaN."""
    tensor = table("scores", scores)
    if validate:
        _no_nan("scores", tensor)
    return tensor


def as_class_labels(labels: Array, rows: Tensor, *, validate: bool = True) -> Tensor:
    """Classes of the rows of a table: whole numbers of shape (B,); with ``validate``, from 0 to K - 1."""
    tensor = on_host("labels", labels)
    if tensor.is_floating_point() or tensor.is_complex():
        raise ValueError(f"`labels` must be whole numbers, but got dtype {tensor.dtype}")
    num_examples, num_classes = rows.shape
    if tensor.shape != (num_examples,):
        raise ValueError(
            f"`labels` must have one class per example, shape ({num_examples},), but got {tuple(tensor.shape)}"
        )
    tensor = tensor.long()
    if validate:
        low, high = int(tensor.min()), int(tensor.max())
        if low < 0 or high >= num_classes:
            raise ValueError(
                f"`labels` must lie between 0 and {num_classes - 1}, one of {num_classes} classes, "
                f"but got {low if low < 0 else high}"
            )
    return tensor


def rows_by_group(groups: Sequence[Hashable] | Array, count: int) -> dict[Hashable, Tensor]:
    """Rows of each group, in the order of their first rows; there must be one group per row."""
    names = groups.tolist() if hasattr(groups, "tolist") else list(groups)
    if len(names) != count:
        raise ValueError(f"`groups` must hold one group per row, {count} in all, but got {len(names)}")
    rows: dict[Hashable, list[int]] = {}
    for place, name in enumerate(names):
        rows.setdefault(name, []).append(place)
    return {name: torch.tensor(places) for name, places in rows.items()}


def vector(name: str, values: Array) -> Tensor:
    """Finite numbers of shape (B,), B >= 1, in double precision."""
    tensor = _checks.floating(name, on_host(name, values))
    if tensor.ndim != 1 or len(tensor) == 0:
        raise ValueError(f"`{name}` must be a vector of at least one number, but got shape {tuple(tensor.shape)}")
    _no_nan(name, tensor)
    if torch.isinf(tensor).any():
        raise ValueError(f"`{name}` must be finite, but got {int(torch.isinf(tensor).sum())} infinite numbers")
    return tensor.double()


def _no_nan(name: str, tensor: Tensor) -> None:
    if torch.isnan(tensor).any():
        raise ValueError(f"`{name}` must hold numbers, but got {int(torch.isnan(tensor).sum())} NaN")


def class_numbers(labels: Array, num_classes: int) -> npt.NDArray[np.int64]:
    """Labels as numbers of known classes, shape (B,), B at least 1."""
    given = on_host("labels", labels)
    if given.ndim != 1 or len(given) == 0 or given.dtype.is_floating_point or given.dtype.is_complex:
        raise ValueError(
            f"`labels` must hold classes as whole numbers, shape (B,), B at least 1, but got {tuple(given.shape)} of "
            f"{given.dtype}"
        )
    low, high = int(given.min()), int(given.max())
    if low < 0 or high >= num_classes:
        raise ValueError(f"`labels` must be classes from 0 to {num_classes - 1}, but got {low if low < 0 else high}")
    return given.long().numpy()
