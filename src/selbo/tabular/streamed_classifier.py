"""Fits a `SummaryClassifier` to stored rows: the same network and objective, in single precision."""

import warnings
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from selbo.estimator import Statement, SummaryClassifier
from selbo.estimator.classifier import CHECKPOINT_SECONDS, _Running
from selbo.estimator.intake import FeatureScale
from selbo.estimator.rows import Rows
from selbo.estimator.settings import NETWORK_BASE, check_settings, doubts, resolve_class_fractions
from selbo.presets import METHODS, NATURAL_GRADIENT
from selbo.tabular.table import Numbers
from selbo.training import Checkpoint, JsonLines, Progress
from selbo.training.stored import RowStore


class _StoredRows(Rows):
    """Labels of stored rows; the inputs stay in the store."""

    store: RowStore

    def as_data(self) -> RowStore:
        """The data in the form that `selbo.fit` takes."""
        return self.store


def _rows_of(store: RowStore, unlabelled: Tensor | None) -> _StoredRows:
    rows = _StoredRows(torch.empty(0, store.num_inputs), store.labels(), None, unlabelled)
    object.__setattr__(rows, "store", store)  # the others are frozen fields
    return rows


class StreamedClassifier(SummaryClassifier):
    """A `SummaryClassifier` that is fitted to stored rows, and then behaves like any other."""

    @property
    def dtype(self) -> torch.dtype:
        """Type in which the network is trained: single precision, except for a natural gradient."""
        return torch.float64 if self.posterior == NATURAL_GRADIENT else torch.float32

    def make_network(self, num_features: int) -> nn.Module:
        """An untrained network for the known classes."""
        return super().make_network(num_features).to(self.dtype)

    def state_beliefs(
        self, store: RowStore, classes: NDArray[np.generic], scale: FeatureScale, unlabelled: Numbers | None
    ) -> tuple[Rows, Statement]:
        """The rows and the belief about them, with the errors and warnings of `SummaryClassifier.statement`.

        Args:
            store: The training rows.
            classes: Labels of the classes, sorted.
            scale: Scale of the features.
            unlabelled: Features of unlabelled rows that the belief is about, or None.
        """
        check_settings(self)
        if unlabelled is not None and not METHODS[self.method].believes:
            raise ValueError(
                f"`X_unlabelled` is for a method with a summary, which uses it, but the method is {self.method!r}"
            )
        self.classes_, self.scale_, self.encoder_ = classes, scale, None
        self.n_features_in_ = len(scale.mean)
        rows = _rows_of(store, None if unlabelled is None else scale(unlabelled).to(self.dtype))
        self.n_unlabelled_ = rows.num_unlabelled
        fractions = resolve_class_fractions(self, classes, rows)
        for doubt in doubts(self, classes, rows, fractions):
            warnings.warn(doubt, UserWarning, stacklevel=2)
        return rows, self._statement(rows, fractions, self._concentration_for(rows))

    def fit_store(
        self,
        rows: Rows,
        stated: Statement,
        val: tuple[Numbers, Tensor] | None,
        *,
        checkpoint: Path,
        log: Path,
        progress: bool | None,
    ) -> None:
        """Train on what `state_beliefs` returned.

        Args:
            rows: The training rows.
            stated: The belief.
            val: Features and classes of the validation rows, or None.
            checkpoint: Checkpoint file. If it exists, training resumes from it.
            log: File for JSON lines.
            progress: Show a progress bar; None for one on a terminal only.
        """
        running = _Running(
            Checkpoint(checkpoint, every=CHECKPOINT_SECONDS), [Progress(progress), JsonLines(log)], logs=True
        )
        self.seed_, self.base_ = self._draw_seed(), NETWORK_BASE
        held_out = None
        if val is not None:
            held_out = Rows(self.scale_(val[0]).to(self.dtype), val[1], None, rows.unlabelled)
        trained = self._trained(rows, held_out, stated, running)
        check = trained.result.label_check
        if check is not None and check.below_majority:
            warnings.warn(str(check), UserWarning, stacklevel=2)
        if trained.shortfall is not None:
            warnings.warn(f"{trained.shortfall}.", UserWarning, stacklevel=2)
        self.calibration_, self.label_shift_ = None, trained.label_shift
        self.network_, self._objective = trained.network.double(), trained.objective
        self.summary_ = trained.summaries[0] if trained.summaries else None
        self.group_summary_, self.groups_ = None, None
        self.concentration_ = trained.concentration
        self._keep_plan(trained)
        self.n_iter_ = trained.result.selected_step
        self.loss_curve_ = trained.result.curve[:, 0].numpy()
        self.validation_nll_ = trained.result.val_nll
        self.seconds_ = trained.result.seconds
