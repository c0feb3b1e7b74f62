"""The groups of the rows of a table, and how predictions for them compare with their stated fractions."""

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch

from selbo.estimator import SummaryClassifier
from selbo.evaluation.check_groups import GroupCheck, check_groups
from selbo.results import StatedGroup, StatedGroups
from selbo.summary.grouped import NO_GROUP
from selbo.tabular.groups import GroupTable
from selbo.tabular.splits import Parts
from selbo.tabular.table import Numbers

NAMED_IN_WORDS: Final = 3
"""Number of contradicted groups that a sentence names."""


@dataclass(frozen=True)
class TaskGroups:
    """The groups of the rows of a task.

    Attributes:
        table: The stated fractions.
        rows: Group of each row of the data; None for none.
        train: Group of each training row.
        held_out: Features and groups of the rows that are not used for training, with and without label.
        inputs: Features of all rows.
        sizes: Number of rows of each group, which its fractions are about.
    """

    table: GroupTable
    rows: tuple[str | None, ...]
    train: tuple[str | None, ...]
    held_out: tuple[Numbers, tuple[str | None, ...]]
    inputs: Numbers
    sizes: dict[str, int]

    @classmethod
    def of(cls, table: GroupTable, rows: Sequence[str | None], inputs: Numbers, parts: Parts) -> "TaskGroups":
        """The groups of a table that is split into parts."""
        sizes = Counter(each for each in rows if each is not None)
        train, test = (tuple(rows[row] for row in part.tolist()) for part in (parts.train, parts.test))
        return cls(table, tuple(rows), train, (inputs[parts.test], test), inputs, dict(sizes))

    @property
    def num_trained(self) -> int:
        """Number of groups with training rows."""
        return len({each for each in self.train if each is not None})

    def arguments(self, rows: Sequence[str | None]) -> dict[str, Any]:
        """Arguments of `SummaryClassifier.fit` for rows of these groups.

        Fractions are about all rows of a group: those that were counted among them are no whole numbers of some rows.
        """
        return {**self.table.arguments(rows), "group_sizes": self.sizes}


def compare_groups(groups: TaskGroups, classifier: SummaryClassifier) -> StatedGroups:
    """Compare stated with predicted fractions: of held-out rows, or of all rows if none with a group is held out."""
    held_out = any(each is not None for each in groups.held_out[1])
    inputs, of_rows = groups.held_out if held_out else (groups.inputs, groups.rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # issued before training
        stated = classifier.statement(groups.inputs, **groups.arguments(groups.rows))
    assert stated.groups is not None
    present = set(groups.rows)
    names = [name for name in groups.table.fractions if name in present]  # in the order of the statement
    place: dict[str | None, int] = {name: k for k, name in enumerate(names)} | {None: NO_GROUP}
    index = torch.tensor([place[each] for each in of_rows])
    sizes = torch.bincount(torch.tensor([place[each] for each in groups.rows if each is not None]))
    log_probs = classifier.posterior_predictive(inputs).log_probs
    checks: Sequence[GroupCheck] = check_groups(stated.groups, index, log_probs=log_probs, sizes=sizes)
    if held_out and classifier.n_unlabelled_ == len(groups.train):
        everything = torch.tensor([place[each] for each in groups.rows])
        log_probs = classifier.posterior_predictive(groups.inputs).log_probs
        checks = _with_all_rows(checks, check_groups(stated.groups, everything, log_probs=log_probs))
    shares = np.array([groups.table.fractions[names[each.group]] for each in checks])
    predicted = np.array([each.observed for each in checks])
    everyone = np.average([groups.table.fractions[each] for each in names], axis=0, weights=sizes.numpy())
    return StatedGroups(
        column=groups.table.column,
        held_out=held_out,
        error=float(abs(predicted - shares).mean()),
        constant_error=float(abs(everyone - shares).mean()),
        groups=tuple(_result(each, names[each.group], groups.table.fractions[names[each.group]]) for each in checks),
    )


def _with_all_rows(held_out: Sequence[GroupCheck], everything: Sequence[GroupCheck]) -> list[GroupCheck]:
    """Checks by held-out rows, with p-values that all rows may lower, if no label was used for training.

    A few held-out rows per group say little. Training pulls the predictions for its rows towards the stated fractions,
    so a network that does not come close to a fraction that it was trained on is strong evidence. A network that
    learned the rows by heart agrees with any fraction there, and only held-out rows show it. Hence both are tested, and
    the smaller p-value is doubled. With labels, predictions are near these in the training rows, and their variance is
    too small to test by.
    """
    p_values = {each.group: each.p_value for each in everything}
    return [replace(each, p_value=min(1.0, 2 * min(each.p_value, p_values[each.group]))) for each in held_out]


def _result(check: GroupCheck, name: str, stated: tuple[float, ...]) -> StatedGroup:
    return StatedGroup(
        name=name,
        rows=check.num_examples,
        stated=stated,
        stated_interval=check.claimed_interval,
        predicted=check.observed,
        predicted_interval=check.observed_interval,
        p_value=check.p_value,
        contradicted=check.contradicted,
    )


def groups_takeaway(found: StatedGroups, *, trained: int, labels: int) -> str:
    """Summarise how well predictions agree with the stated fractions.

    Args:
        found: The comparison.
        trained: Number of groups that were used for training; of small ones, all rows may be held out or none.
        labels: Number of labels that were used for training.
    """
    rows = sum(each.rows for each in found.groups)
    beside = f"{labels} labels" if labels else "no label"
    against = contradictions_in_words(found) or "no group is contradicted"
    kind = "held-out" if found.held_out else "training"
    return (
        f"Learned from the class fractions of {trained} groups ({found.column}) and {beside}. Predictions for {rows} "
        f"{kind} rows of {len(found.groups)} groups miss the stated fractions by {100 * found.error:.1f} points on "
        f"average; the same prediction for everyone would miss them by {100 * found.constant_error:.1f}. "
        f"{against[0].upper()}{against[1:]}."
    )


def contradictions_in_words(found: StatedGroups) -> str:
    """A sentence without its period if predictions contradict the fractions of some groups; otherwise empty."""
    against = found.contradicted
    if not against:
        return ""
    shown = []
    for each in against[:NAMED_IN_WORDS]:
        k = int(np.argmax(np.abs(np.subtract(each.predicted, each.stated))))
        k = 1 if len(each.stated) == 2 else k
        shown.append(f"{each.name} (stated {100 * each.stated[k]:.3g} %, predicted {100 * each.predicted[k]:.3g} %)")
    more = f" and {len(against) - NAMED_IN_WORDS} more" if len(against) > NAMED_IN_WORDS else ""
    first = "; begin with the first, because a wrong fraction distorts the predictions for other groups"
    return (
        f"predictions contradict the stated fractions of {len(against)} of {len(found.groups)} groups, "
        f"{', '.join(shown)}{more}: these fractions are wrong or less precise than stated, or people with the same "
        f"inputs differ between groups{first if len(against) > 1 else ''}"
    )
