"""Validates the parameters of the classifier: each by itself, and against the classes of the labels."""

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from selbo import _checks
from selbo.estimator.rows import Rows
from selbo.presets import METHODS, NATURAL_GRADIENT, POSTERIORS, below_guessing
from selbo.summary.partitions import require_partition

WHOLE_GROUPS: Final = "groups"
"""Early stopping by groups that are held out as a whole."""

AUTO_BASE: Final = "auto"
POOL_BASE: Final = "pool"
NETWORK_BASE: Final = "network"
BASES: Final = (AUTO_BASE, POOL_BASE, NETWORK_BASE)
"""What a classifier is made of."""

NETWORK_SETTINGS: Final = (
    "belief",
    "partition",
    "method",
    "posterior",
    "hidden",
    "steps",
    "batch_size",
    "learning_rate",
    "kl_weight",
    "prior_std",
    "early_stopping",
    "overrule_labels",
    "device",
)
"""Parameters that only a network has."""

LABEL_STEPS: Final = 2000
"""Training steps if there are labels, unless stated otherwise."""

GROUP_ALONE_STEPS: Final = 500
"""Fewest training steps with groups and no labels, unless stated otherwise."""

GROUP_PASSES: Final = 10
"""Passes over the rows of large tables with groups and no labels, in at most `LABEL_STEPS`."""

SHARE_ROUNDING: Final = 0.005
"""Differences between an accuracy and a share below half a percentage point are taken as rounding."""


def check_settings(told: Any) -> None:
    """Reject parameters of a `SummaryClassifier` that are invalid for any data."""
    _checks.one_of("base", told.base, BASES)
    _checks.one_of("method", told.method, METHODS)
    _checks.one_of("posterior", told.posterior, POSTERIORS)
    if told.posterior == NATURAL_GRADIENT and not METHODS[told.method].bayesian:
        raise ValueError(
            f"`posterior` can be {NATURAL_GRADIENT!r} only for the methods 'summary_elbo' and 'elbo', but `method` "
            f"is {told.method!r}"
        )
    if isinstance(told.concentration, str):
        _checks.one_of("concentration", told.concentration, ("auto",))
    elif told.concentration is not None:
        _checks.positive("concentration", told.concentration)
    if told.belief is not None and (told.accuracy is not None or told.class_fractions is not None):
        raise ValueError("`belief` cannot be given together with `accuracy` or `class_fractions`: choose one")
    if told.partition is not None:
        require_partition(told.partition)
    _check_fractions(told)
    if isinstance(told.hidden, Mapping) or not _is_list(told.hidden):
        raise ValueError(f"`hidden` must be a list of widths such as (128,), but got {told.hidden!r}")
    for width in told.hidden:
        _checks.whole("hidden", width, at_least=1)
    for name in ("batch_size", "num_samples"):
        _checks.whole(name, getattr(told, name), at_least=1)
    _check_network(told)
    _checks.positive("prior_std", told.prior_std)
    _checks.fraction("validation_fraction", told.validation_fraction, low=0, high=1)
    for name, others in (("early_stopping", (WHOLE_GROUPS,)), ("overrule_labels", ())):
        _check_flag(name, getattr(told, name), others)


def _check_network(told: Any) -> None:
    """Reject invalid settings of the training of a network that have a default for each kind of data."""
    if told.steps is not None:
        _checks.whole("steps", told.steps, at_least=1)
    if told.learning_rate is not None:
        _checks.positive("learning_rate", told.learning_rate)
    if told.kl_weight is not None:
        check = _checks.positive if told.posterior == NATURAL_GRADIENT else _checks.non_negative
        check("kl_weight", told.kl_weight)


def _check_flag(name: str, value: Any, others: tuple[str, ...]) -> None:
    if not isinstance(value, (bool, np.bool_)) and not (isinstance(value, str) and value in others):
        also = "".join(f"; with groups also {each!r}" for each in others)
        raise ValueError(f"`{name}` must be True or False, but got {value!r}{also}")


def choose_base(told: Any, *, groups: bool) -> str:
    """What to train: a pool, unless a setting of a network differs from its default or there are groups.

    Raises:
        ValueError: If a pool is asked for and cannot be trained with these settings.
    """
    defaults = inspect.signature(type(told).__init__).parameters
    given = [name for name in NETWORK_SETTINGS if not _same(getattr(told, name), defaults[name].default)]
    if isinstance(told.concentration, str):
        given.append("concentration")
    if groups:
        given.append("groups")
    if told.base != POOL_BASE:
        return NETWORK_BASE if told.base == NETWORK_BASE or given else POOL_BASE
    if given:
        raise ValueError(f"`{given[0]}` is for a network, but `base` is 'pool': leave it out, or choose base='network'")
    return POOL_BASE


def _same(value: Any, default: Any) -> bool:
    return value is default or (
        type(value) in (bool, int, float, str, tuple, list) and _plain(value) == _plain(default)
    )


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def steps_for(told: Any, rows: Rows) -> int:
    """Number of training steps: as stated, or the default for labels or for groups alone."""
    if told.steps is not None:
        return int(told.steps)
    alone = rows.groups_alone
    if alone is None:
        return LABEL_STEPS
    passes = math.ceil(GROUP_PASSES * len(alone.inputs) / int(told.batch_size))
    return min(max(passes, GROUP_ALONE_STEPS), LABEL_STEPS)


def check_for_groups(told: Any, X_unlabelled: Any) -> None:
    """Reject parameters of a `SummaryClassifier` that are invalid together with groups."""
    if not METHODS[told.method].believes:
        raise ValueError(f"`groups` is for a method with a summary, which uses them, but the method is {told.method!r}")
    if X_unlabelled is not None:
        raise ValueError("`X_unlabelled` cannot be given together with `groups`: append these rows to `X`")


def _check_fractions(told: Any) -> None:
    if told.class_fractions is not None and not _is_list(told.class_fractions):
        raise ValueError(
            "`class_fractions` must be a list of numbers or a mapping from label to number, "
            f"but got {told.class_fractions!r}"
        )
    if told.fraction_uncertainty is not None:
        _checks.uncertainty("fraction_uncertainty", told.fraction_uncertainty)
        if told.class_fractions is None:
            raise ValueError("`fraction_uncertainty` is about `class_fractions`, but none are stated")


def _is_list(value: Any) -> bool:
    """Whether a value is an ordered collection."""
    if isinstance(value, (str, bytes, set, frozenset)):
        return False
    try:
        return len(value) == len(list(value))
    except TypeError:
        return False


def resolve_class_fractions(told: Any, classes: NDArray[Any], rows: Rows) -> list[float]:
    """Fraction of each class: as stated, or that of the groups, or that of the training rows."""
    count, names, given = len(classes), classes.tolist(), told.class_fractions
    if told.partition is not None and told.partition.num_classes != count:
        raise ValueError(f"`partition` has {told.partition.num_classes} classes, but `y` holds {count}: {names}")
    if given is None and rows.grouped is not None:
        return rows.grouped.class_fractions
    if given is None:
        counts = torch.bincount(rows.labels, rows.weights, minlength=count).double()
        return [float(each) for each in counts / counts.sum()]
    if isinstance(given, Mapping):
        # numeric labels may be given as strings, as in a file
        labels = [str(each) for each in names] if all(isinstance(each, str) for each in given) else names
        if set(given) != set(labels):
            raise ValueError(f"`class_fractions` must name the classes {names}, but names {list(given)}")
        given = [given[each] for each in labels]
    if len(given) != count:
        raise ValueError(f"`class_fractions` must hold {count} numbers, for {names}, but holds {len(given)}")
    return list(_checks.simplex("class_fractions", given))


def doubts(told: Any, classes: NDArray[Any], rows: Rows, fractions: Sequence[float]) -> list[str]:
    """Warnings, one sentence each, about statements that are implausible or not used as given."""
    if not METHODS[told.method].believes:
        return []
    found = []
    if told.accuracy is not None and _checks.positive("accuracy", told.accuracy) > 1 / len(classes):  # else an error
        found.append(below_guessing(told.accuracy, fractions, classes.tolist(), tolerance=SHARE_ROUNDING))
    given, labels = told.concentration, rows.evidence
    lowered = choose_base(told, groups=rows.grouped is not None) == NETWORK_BASE and not told.overrule_labels
    if not isinstance(given, str) and given is not None and given > labels and lowered:
        found.append(
            f"the concentration {given:g} exceeds the number of labelled rows, so {labels:g} is used and the belief "
            "weighs as much as the labels; `overrule_labels` keeps it"
        )
    return [each for each in found if each]
