"""Validates what a user states about groups: which rows belong to which group, and the class fractions of each."""

import math
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from selbo import _checks
from selbo._numerics import FloatArray
from selbo.estimator.group_units import find_unit, sums_off
from selbo.estimator.rows import GroupRows
from selbo.summary.grouped import EXACT_UP_TO, FRACTION_SUM_TOLERANCE, NO_GROUP, GroupedSummary

MOST_GROUP_CONCENTRATION: Final = 100.0
"""Largest default concentration of the fractions of a group."""

COUNTED_WITHIN: Final = 0.05
LEAST_COUNTED: Final = 3
"""How far, in rows, fractions may be from whole numbers to be taken as counted among the rows, and in how many smaller
groups at least: arbitrary fractions of two classes are so close in one of ten groups, in three by one of a thousand."""

LEAST_DIGITS: Final = 2
MOST_DIGITS: Final = 6
ROUNDED: Final = 5e-4
"""Numbers of digits that fractions are rounded to, and the rounding error of those with more, which may have been
scaled afterwards: that of three digits."""

HALF_A_ROW: Final = 0.5
"""A rounding error from which on any fraction may be a count."""

WITHOUT_ERROR: Final = 100.0
"""Concentration of fractions without an error, per row: with 16 rows, a standard deviation of .2 rows at most."""

ESTIMATED: Final = "auto"
"""Stands for a concentration that is estimated by held-out groups."""

MISSING_OF_PANDAS: Final = ("NAType", "NaTType")
"""Types of the missing values of pandas, which is not a dependency."""

NAMED_GROUPS: Final = 3
"""Number of groups that a message names."""


class StatedForMore(dict[Any, Any]):
    """Fractions by group that may state more groups than the rows have, as in cross-validation, without warning."""


class GroupStatement(NamedTuple):
    """The arguments of `SummaryClassifier.fit` about groups, as a user gave them."""

    groups: Any = None
    fractions: Any = None
    concentration: Any = None
    classes: Any = None
    sizes: Any = None
    recognise_counts: bool = True
    """Whether fractions that were counted among the rows get a larger concentration by default."""

    @property
    def is_given(self) -> bool:
        """Whether there are groups.

        Raises:
            ValueError: If an argument is given without those that it is about.
        """
        if (self.groups is None) != (self.fractions is None):
            hint = ""
            if self.groups is None:
                hint = ": in cross-validation scikit-learn passes `groups` on if `set_fit_request` asks for it"
            raise ValueError(f"`groups` and `group_fractions` must be given together, but one of them is missing{hint}")
        beside = {"group_concentration": self.concentration, "group_sizes": self.sizes, "classes": self.classes}
        for name, given in beside.items():
            if given is not None and self.groups is None:
                raise ValueError(f"`{name}` is about `group_fractions`, but none are stated")
        return self.groups is not None

    @property
    def names_classes(self) -> bool:
        """Whether the labels of the classes are stated."""
        by_class = isinstance(self.fractions, Mapping) and any(isinstance(x, Mapping) for x in self.fractions.values())
        return self.classes is not None or by_class


def is_absent(value: Any) -> bool:
    """Whether a value of a table stands for none: None, NaN, or a missing value of pandas."""
    if value is None or type(value).__name__ in MISSING_OF_PANDAS:
        return True
    return isinstance(value, (float, np.floating)) and math.isnan(value)


def one_per_row(name: str, values: Any, rows: int) -> list[Any]:
    """A column as a list.

    Raises:
        ValueError: If it has not one entry per row.
    """
    column = np.asarray(values, dtype=object)
    if column.ndim == 2 and column.shape[1] == 1:
        column = column[:, 0]
    if column.shape != (rows,):
        raise ValueError(f"`{name}` must have one entry per row of `X`, {rows}, but has shape {column.shape}")
    return list(column.tolist())


def state_classes(stated: GroupStatement, labels: Sequence[Any]) -> tuple[NDArray[Any], dict[Any, FloatArray]]:
    """Classes, sorted, and the fractions of each group in their order.

    Args:
        stated: What a user states about groups.
        labels: Different labels in ``y``, without missing ones. If neither ``group_fractions`` nor ``classes`` names
            the classes, they are 0 to K - 1, or these labels if they are others and K.
    """
    by_group = as_mapping("group_fractions", stated.fractions)
    if not by_group:
        raise ValueError("`group_fractions` must hold at least one group, but holds none")
    named = [isinstance(each, Mapping) for each in by_group.values()]
    if any(named) != all(named):
        raise ValueError("`group_fractions` must name the classes in all groups or in none, but does so in some")
    if all(named):
        names = list(dict.fromkeys(name for each in by_group.values() for name in each))
        if stated.classes is not None:
            given = np.asarray(stated.classes).tolist()
            if unknown := [each for each in names if each not in given]:
                raise ValueError(f"`group_fractions` must name the classes {given}, but names {unknown[0]!r}")
            names = given
        else:
            _require_known_spelling(by_group)
        rows = {group: [each.get(name, 0.0) for name in names] for group, each in by_group.items()}
    else:
        rows = {group: _numbers(group, each) for group, each in by_group.items()}
        names = _find_classes(stated.classes, labels, len(next(iter(rows.values()))))
    for group, each in rows.items():
        if len(each) != len(names):
            raise ValueError(
                f"`group_fractions` must hold {len(names)} numbers per group, for the classes {names}, but those of "
                f"{group!r} are {len(each)}"
            )
    _require_one_unit(rows)
    classes, order = np.unique(np.array(names), return_index=True)
    if len(classes) != len(names) or len(classes) < 2:
        raise ValueError(f"`classes` must be at least 2 different ones, but are {names}")
    return classes, {group: _fractions(group, each)[order] for group, each in rows.items()}


def group_rows(
    stated: GroupStatement,
    by_group: dict[Any, FloatArray],
    names: list[Any],
    weights: FloatArray | None,
) -> GroupRows:
    """Groups and their beliefs, without inputs, from the name of the group of each row; warns of doubtful ones.

    Args:
        stated: What a user states about groups.
        by_group: Fractions of each group.
        names: Group of each row; a missing value for none.
        weights: Weight of each row, or None.
    """
    present = dict.fromkeys(each for each in names if not is_absent(each))
    absent = [each for each in by_group if each not in present]
    if unknown := [each for each in present if each not in by_group]:
        hint = _another_spelling(unknown, absent)
        raise ValueError(f"`group_fractions` must state every group in `groups`, but {_named(unknown)} missing{hint}")
    kept = [each for each in by_group if each in present]
    if not kept:
        raise ValueError("`groups` must hold a group in some row, but none does")
    if absent and not isinstance(stated.fractions, StatedForMore):
        warnings.warn(
            f"`group_fractions` states groups that no row has, which are left out: {_named(absent)} absent",
            UserWarning,
            stacklevel=5,
        )
    positions = {each: position for position, each in enumerate(kept)}
    index = np.array([NO_GROUP if is_absent(each) else positions[each] for each in names])
    sizes = np.bincount(index[index >= 0], minlength=len(kept)).astype(np.float64)
    if stated.sizes is not None:
        sizes = np.maximum(sizes, _sizes(stated.sizes, kept))
    fractions = np.stack([by_group[each] for each in kept])
    counted = stated.recognise_counts and _are_counts(fractions, sizes)
    strength = _strengths(stated.concentration, kept, sizes, counted=counted)
    return GroupRows(
        inputs=torch.empty(len(names), 0),
        groups=torch.from_numpy(index),
        weights=None if weights is None else torch.from_numpy(weights),
        names=tuple(kept),
        fractions=torch.from_numpy(fractions),
        concentration=torch.from_numpy(strength),
        sizes=torch.from_numpy(sizes),
        estimated=isinstance(stated.concentration, str),
    )


def belief_about_groups(stated: GroupStatement, classes: Sequence[Any], rows: int) -> tuple[GroupedSummary, Tensor]:
    """The belief about the groups of rows that are predicted, and the group of each row.

    Fractions are counts of these rows, without an error, unless a concentration is stated.

    Args:
        stated: What a user states about groups.
        classes: Classes of the predictions, in their order.
        rows: Number of rows.
    """
    known, by_group = state_classes(stated._replace(classes=classes), [])
    found = group_rows(stated, by_group, one_per_row("groups", stated.groups, rows), None)
    if found.estimated:
        raise ValueError(
            "`group_concentration` must be a number or a mapping here, but is 'auto', which is for training"
        )
    order = [known.tolist().index(each) for each in classes]
    strength = found.concentration
    if stated.concentration is None:
        strength = WITHOUT_ERROR * _counted_sizes(found)
    stated_rows = replace(found, fractions=found.fractions[:, order], concentration=strength)
    return stated_rows.summary(exact_up_to=EXACT_UP_TO), found.groups


def _counted_sizes(rows: GroupRows) -> Tensor:
    """Number of rows of each group, if its fractions can be counts of these rows."""
    assert rows.sizes is not None
    wrong = are_no_counts(rows.fractions, rows.sizes)
    if bool(wrong.any()):
        first = int(wrong.nonzero()[0, 0])
        raise ValueError(
            f"`group_fractions` must be those of the rows that are there, but those of {rows.names[first]!r} are no "
            f"counts of its {int(rows.sizes[first])} rows: pass complete groups, or state `group_concentration`"
        )
    return rows.sizes


def are_no_counts(fractions: Tensor, sizes: Tensor, *, or_unknown: bool = False) -> Tensor:
    """Which groups have fractions, (G, K), that are no whole numbers of their rows, (G,), up to rounding: (G,).

    With ``or_unknown`` also those of large groups that rounding keeps from telling, unless they are whole numbers.
    """
    counts, rounded = sizes[:, None] * fractions, _rounding_error(fractions)
    tolerance = (rounded * sizes).clamp(min=COUNTED_WITHIN) + ROUNDED  # an error of exactly half a per cent is one too
    if or_unknown:
        tolerance = torch.where(tolerance < HALF_A_ROW, tolerance, COUNTED_WITHIN)
    return ((counts - counts.round()).abs() > tolerance[:, None]).any(-1)


def _rounding_error(fractions: Tensor) -> float:
    """How far fractions with so few digits may be from what was counted."""
    for digits in range(LEAST_DIGITS, MOST_DIGITS + 1):
        scaled = 10**digits * fractions
        if float((scaled - scaled.round()).abs().max()) < 1e-6:
            return 0.5 / float(10**digits)
    return ROUNDED


def _sizes(given: Any, names: Sequence[Any]) -> FloatArray:
    """Number of rows of each group, as stated."""
    stated = as_mapping("group_sizes", given)
    if missing := [each for each in names if each not in stated]:
        raise ValueError(f"`group_sizes` must state every group in `groups`, but {_named(missing)} missing")
    return np.array([_checks.positive(f"group_sizes[{each!r}]", stated[each]) for each in names])


def _are_counts(fractions: FloatArray, sizes: FloatArray) -> bool:
    """Whether fractions were counted among the rows: they are whole numbers of rows in all of several small groups."""
    small = sizes < MOST_GROUP_CONCENTRATION
    rows = sizes[small, None] * fractions[small]
    return int(small.sum()) >= LEAST_COUNTED and bool((abs(rows - rows.round()) <= COUNTED_WITHIN).all())


def _strengths(given: Any, names: Sequence[Any], sizes: FloatArray, *, counted: bool) -> FloatArray:
    """Concentration of each group: as stated; or 100, but at most its number of rows unless these were counted.

    Fractions counted among the rows have no sampling error; to state one makes overconfident predictions likeliest.
    """
    if given is None or (isinstance(given, str) and given == ESTIMATED):
        most = np.full(len(names), MOST_GROUP_CONCENTRATION)
        return most if counted else np.minimum(sizes, most)
    if isinstance(given, Mapping):
        if missing := [each for each in names if each not in given]:
            raise ValueError(f"`group_concentration` must state every group in `groups`, but {_named(missing)} missing")
        return np.array([_checks.positive(f"group_concentration[{each!r}]", given[each]) for each in names])
    if isinstance(given, str):
        raise ValueError(
            f"`group_concentration` must be a number, a mapping from group to number, or 'auto': {given!r}"
        )
    if isinstance(given, (Sequence, np.ndarray)):
        raise ValueError("`group_concentration` must be one number, or a mapping from group to number, but is a list")
    return np.full(len(names), _checks.positive("group_concentration", given))


def as_mapping(name: str, given: Any) -> dict[Any, Any]:
    """A mapping by group.

    Raises:
        ValueError: If it is something else.
    """
    if not isinstance(given, Mapping):
        raise ValueError(f"`{name}` must be a mapping from group to its value, but got {type(given).__name__}")
    return dict(given)


def _numbers(group: Any, given: Any) -> list[Any]:
    if isinstance(given, (str, bytes)) or np.ndim(given) != 1:
        raise ValueError(
            f"`group_fractions` must hold one fraction per class for each group, but that of {group!r} is {given!r}"
        )
    return list(np.asarray(given).tolist())


def _fractions(group: Any, given: Sequence[Any]) -> FloatArray:
    """Fractions of a group, or whole numbers of which they are the shares, normalised exactly; zero is allowed."""
    try:
        found = torch.tensor([float(each) for each in given], dtype=torch.float64)
    except (TypeError, ValueError):
        raise ValueError(f"`group_fractions` must hold numbers, but those of {group!r} are {list(given)}") from None
    if bool(found.isnan().any()):
        raise ValueError(f"`group_fractions` must hold numbers, but got {list(given)} for {group!r}")
    if bool(found.isinf().any()):
        raise ValueError(f"`group_fractions` must hold finite numbers, but got {list(given)} for {group!r}")
    total = float(found.sum())
    counts = total > 1 and bool((found == found.round()).all())
    if bool((found >= 0).all()) and not counts and not abs(total - 1) <= FRACTION_SUM_TOLERANCE:
        hint = ": divide percentages by 100" if abs(total / 100 - 1) <= FRACTION_SUM_TOLERANCE else ""
        raise ValueError(
            f"`group_fractions` must sum to 1 for each group, but those of {group!r} sum to {total:.4g}{hint}"
        )
    _checks.on_simplex(f"group_fractions[{group!r}]", found / total)
    return np.asarray((found / total).numpy())


def _require_one_unit(rows: Mapping[Any, Sequence[Any]]) -> None:
    """An error if whole numbers are neither fractions nor percentages nor counts in all groups: a typing error."""
    try:
        values = np.array(list(rows.values()), dtype=np.float64)
    except (TypeError, ValueError):  # named later
        return
    if values.ndim != 2 or not bool((np.isfinite(values) & (values >= 0)).all()):
        return
    unit = find_unit(values)
    if unit == 0:
        return
    wrong = sums_off(values.sum(1), unit) & (values == np.floor(values)).all(1)  # others are named later
    if wrong.any():
        first = int(wrong.argmax())
        raise ValueError(
            f"`group_fractions` must sum to {unit:g} for each group, as most do, but those of {list(rows)[first]!r} "
            f"sum to {values[first].sum():.4g}: if all are counts, divide each by its sum"
        )


def _require_known_spelling(by_group: Mapping[Any, Mapping[Any, Any]]) -> None:
    """An error if one group alone names a class, spelt nearly as one that it lacks and all others name."""
    counts = Counter(name for each in by_group.values() for name in each)
    nearly_all = [name for name, count in counts.items() if count == len(by_group) - 1 and isinstance(name, str)]
    for group, each in by_group.items() if nearly_all else ():
        lacking = [name for name in nearly_all if name not in each]
        for name in each:
            if counts[name] == 1 and isinstance(name, str) and (meant := get_close_matches(name, lacking, n=1)):
                raise ValueError(
                    f"`group_fractions` names the class {name!r} for {group!r} alone, where all others have "
                    f"{meant[0]!r}: correct the name, or state 0 for the class that is missing"
                )


def _another_spelling(unknown: Sequence[Any], unused: Sequence[Any]) -> str:
    """How the first names that are missing are written among those that no row has: by another type, or nearly so."""
    written = {str(each): each for each in unused}
    for name in unknown[:NAMED_GROUPS]:
        if str(name) in written:
            kinds = type(name).__name__, type(written[str(name)]).__name__
            return f": {name!r} in `groups` is of type {kinds[0]}, and in `group_fractions` of type {kinds[1]}"
        if meant := get_close_matches(str(name), written, n=1):
            return f": {meant[0]!r} is stated, which no row has"
    return ""


def _find_classes(given: Any, labels: Sequence[Any], count: int) -> list[Any]:
    """Classes of fractions that come without them, in their order."""
    if given is not None:
        return list(np.asarray(given).tolist())
    if set(labels) <= set(range(count)):
        return list(range(count))
    if len(labels) == count:
        return sorted(labels)
    raise ValueError(
        f"`classes` must be given for the {count} fractions per group, because `y` holds {len(labels)} different labels"
    )


def _named(groups: Sequence[Any]) -> str:
    """Names of groups with a verb: "'a' is", "'a', 'b' are", "'a', 'b', 'c' and 4 more are"."""
    plain = [each.item() if isinstance(each, np.generic) else each for each in groups[:NAMED_GROUPS]]
    shown = ", ".join(map(repr, plain))
    more = f" and {len(groups) - NAMED_GROUPS} more" if len(groups) > NAMED_GROUPS else ""
    return f"{shown}{more} {'is' if len(groups) == 1 else 'are'}"
