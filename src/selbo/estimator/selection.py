"""Model selection without labels: splits by group, and a score of predictions by the stated fractions of groups."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import check_random_state
from sklearn.utils.metadata_routing import MetadataRequest

from selbo import _checks
from selbo.estimator.group_intake import (
    GroupStatement,
    StatedForMore,
    as_mapping,
    group_rows,
    is_absent,
    one_per_row,
    state_classes,
)


class GroupSplit(BaseCrossValidator):  # type: ignore[misc]
    """Splits that hold out whole groups, or parts of groups, for use with scikit-learn.

    Held-out groups show whether what was learned holds for groups that were not seen, and whether fractions were
    learned that are only noise. Held-out parts of groups show whether single rows were learned by heart. Rows without a
    group are always used for training.

    Args:
        n_splits: Number of folds, at least 2.
        parts: Hold out a part of each group instead of whole groups.
        random_state: Seed for the folds: an integer, a RandomState, or None for different folds each time.

    Example:
        >>> towns = ["a", "a", "b", "b", "c", "c"]
        >>> for train, test in GroupSplit(3, random_state=0).split(
        ...     np.zeros((6, 1)), groups=towns
        ... ):
        ...     print(train, test)
        [2 3 4 5] [0 1]
        [0 1 2 3] [4 5]
        [0 1 4 5] [2 3]
    """

    __metadata_request__split = {"groups": True}  # noqa: RUF012  (how scikit-learn finds it)

    def __init__(
        self, n_splits: int = 5, *, parts: bool = False, random_state: "int | np.random.RandomState | None" = None
    ) -> None:
        self.n_splits = _checks.whole("n_splits", n_splits, at_least=2)
        self.parts = parts
        self.random_state = random_state

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Indices of training and of held-out rows, once per fold.

        Args:
            X: Features, shape (rows, features).
            y: Not used.
            groups: Group of each row, shape (rows,); None or NaN for none.
        """
        if groups is None:
            raise ValueError("`groups` must be given, one per row, but is None")
        names = one_per_row("groups", groups, len(X))
        folds = self._folds(names)
        for fold in range(self.n_splits):
            yield np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Number of folds."""
        return self.n_splits

    def _folds(self, names: list[Any]) -> NDArray[np.int64]:
        """Fold in which each row is held out; -1 for none."""
        rows: dict[Any, list[int]] = {}
        for row, name in enumerate(names):
            if not is_absent(name):
                rows.setdefault(name, []).append(row)
        seed = None if self.random_state is None else check_random_state(self.random_state).randint(2**31 - 1)
        generator = np.random.default_rng(seed)  # numpy's global state is not used
        order = [list(rows)[k] for k in generator.permutation(len(rows))]
        folds = np.full(len(names), -1)
        if self.parts:
            start = 0
            for name in order:  # dealt out in turn, so that folds are equal although groups are small
                dealt = generator.permutation(rows[name])
                folds[dealt] = (start + np.arange(len(dealt))) % self.n_splits
                start += len(dealt)
            return folds
        if len(order) < self.n_splits:
            raise ValueError(
                f"`groups` must hold at least {self.n_splits} groups, one per fold, but holds {len(order)}"
            )
        totals = np.zeros(self.n_splits)
        for name in sorted(order, key=lambda name: -len(rows[name])):
            smallest = int(totals.argmin())
            folds[rows[name]] = smallest
            totals[smallest] += len(rows[name])
        return folds


class GroupScorer:
    """Score of predictions by the stated class fractions of groups, without labels, for use with scikit-learn.

    The score is the mean log-likelihood of the fractions of a group given the predictions for its rows, in nats; larger
    is better. The likelihood is that of `SummaryClassifier`: counts of a group are sums of labels sampled from the
    predictions, and fractions are uncertain. Use it for groups, or parts of groups, that were held out, with
    `GroupSplit`.

    In `GridSearchCV` and `cross_val_score`, groups reach the splitter, the classifier and the scorer by metadata
    routing (docs/how-to/check-groups.md).

    Args:
        group_fractions: As in `SummaryClassifier.fit`.
        group_concentration: As in `SummaryClassifier.fit`. To compare classifiers, it must be the same for all.
        group_sizes: Number of rows of each group, as a mapping, if parts of groups are scored.
        classes: As in `SummaryClassifier.fit`.

    Attributes:
        group_fractions: The fractions in a form for `fit` that may state more groups than a fold has, without warning.
    """

    def __init__(
        self,
        group_fractions: "Mapping[Any, Any]",
        group_concentration: "float | Mapping[Any, float] | None" = None,
        *,
        group_sizes: "Mapping[Any, int] | None" = None,
        classes: Any = None,
    ) -> None:
        self.group_fractions = StatedForMore(as_mapping("group_fractions", group_fractions))
        self.group_concentration = group_concentration
        self.group_sizes = group_sizes
        self.classes = classes

    def __call__(self, estimator: Any, X: Any, y: Any = None, *, groups: Any = None) -> float:
        """Score a fitted classifier; labels are not used."""
        if groups is None:
            raise ValueError(
                "`groups` must be given, one per row, but is None: scikit-learn passes groups to a scorer only after "
                "sklearn.set_config(enable_metadata_routing=True)"
            )
        names = one_per_row("groups", groups, len(X))
        stated = GroupStatement(names, self.group_fractions, self.group_concentration, self.classes, self.group_sizes)
        classes, by_group = state_classes(stated, [])
        if classes.tolist() != estimator.classes_.tolist():
            raise ValueError(
                f"`estimator` must have the classes {classes.tolist()}, but has {estimator.classes_.tolist()}"
            )
        rows = group_rows(stated, by_group, names, None)
        summary = rows.summary()
        if self.group_sizes is not None:
            summary.sizes = rows.sizes
        log_probs = torch.from_numpy(np.asarray(estimator.predict_log_proba(X), dtype=np.float64))
        return float(summary.by_group(log_probs, rows.groups).sum() / len(rows.names))

    def get_metadata_routing(self) -> MetadataRequest:
        """Requests the groups from scikit-learn."""
        request = MetadataRequest(owner=self)
        request.score.add_request(param="groups", alias=True)
        return request

    def __repr__(self) -> str:
        return f"GroupScorer({len(self.group_fractions)} groups)"
