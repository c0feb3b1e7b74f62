"""Hugging Face Trainer: a loss function with the summary term, and a callback that logs it."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor
from torch.nn import functional as F

from selbo import _checks
from selbo._numerics import result_dtype
from selbo.integrations.loggers import Draw, Logger, log_snapshot
from selbo.integrations.monitor import SummaryMonitor
from selbo.objectives.label_priority import labels_first
from selbo.objectives.label_shift import LabelShift
from selbo.summary.likelihood import SummaryLikelihood

if TYPE_CHECKING:
    TrainerCallback = object
else:
    try:
        from transformers import TrainerCallback
    except ImportError:  # raised on instantiation: the loss and doctests need no package
        TrainerCallback = object

NO_LABEL: Final = -100
"""Label of unlabelled examples in the Trainer and its collators."""


class SummaryLoss:
    r"""Cross-entropy and a summary term, for ``Trainer(compute_loss_func=...)``.

    For models with one row of logits per example: sequence classification, image classification. The loss of one step
    of the optimiser is

    $$-\frac{1}{n} \sum_i \log p(y_i \mid x_i) - \frac{1}{N} \log \mathrm{DP}(s_0 \mid s_\theta, \alpha) ,$$

    with n labelled examples in the step. With gradient accumulation, the Trainer passes the number of labels in all
    batches of the step, and each batch is weighted by its share in both terms. Each batch has its own histogram, so
    single batches must be large enough for one. With several processes (DDP) the histogram is that of the batches of
    all of them.

    Rows labelled -100 are left out of the first term. They stay in the histogram, which needs no labels. With a
    ``label_shift`` the histogram is that of these rows alone, corrected to the target domain they come from; correct
    the predictions of the trained model with ``label_shift.to_target``.

    Training starts with the labels: the summary term has weight zero in the first quarter of the steps and its full
    weight from half of them on (`selbo.labels_first`), because a belief does not determine which class is which. A
    `SummaryCallback` sets the current step; alternatively, pass ``steps`` and the loss counts batches itself.

    Without gradients, as in evaluation, the loss is the cross-entropy only, so that ``eval_loss`` is comparable with
    that of any other model.

    Args:
        summary: The summary with the belief about the predictions.
        num_data: N, the number of labelled training examples.
        summary_weight: Weight of the summary term.
        steps: Number of batches of the whole training, if there is no `SummaryCallback`; 0 for the full weight from the
            first batch on.
        label_shift: Class fractions of the labels and of the target domain, if rows labelled -100 come from there.
        gather: Sum over processes; see `SummaryMonitor`.

    Example:
        >>> from selbo.summary.beliefs import Beta
        >>> from selbo.summary.partitions import ScoreBins
        >>> summary = SummaryLikelihood(ScoreBins.equal(5), Beta(2, 2), concentration=50.0)
        >>> loss = SummaryLoss(summary, num_data=200, steps=0)
        >>> logits, labels = (
        ...     torch.tensor([[0.0, 1.0], [0.5, 0.0], [0.0, 0.2]]),
        ...     torch.tensor([1, 0, 0]),
        ... )
        >>> by_hand = F.cross_entropy(logits, labels) - summary(logits.log_softmax(-1)) / 200
        >>> torch.testing.assert_close(loss({"logits": logits}, labels), by_hand)
    """

    def __init__(
        self,
        summary: SummaryLikelihood,
        num_data: int,
        *,
        summary_weight: float = 1.0,
        steps: int | None = None,
        label_shift: LabelShift | None = None,
        gather: bool = True,
    ) -> None:
        if not isinstance(summary, SummaryLikelihood):
            raise ValueError(f"`summary` must be a selbo.SummaryLikelihood, but got {type(summary).__name__}")
        if label_shift is not None and not isinstance(label_shift, LabelShift):
            raise ValueError(f"`label_shift` must be a selbo.LabelShift, but got {type(label_shift).__name__}")
        self.summary = summary
        self.num_data = _checks.whole("num_data", num_data, at_least=1)
        self.summary_weight = _checks.non_negative("summary_weight", summary_weight)
        self.steps = None if steps is None else _checks.whole("steps", steps, at_least=0)
        self.label_shift = label_shift
        self.step = 0
        self.follows_trainer = False
        self.monitor = SummaryMonitor(summary, gather=gather)

    def follow(self, step: int, steps: int) -> None:
        """Set the current and the total number of optimiser steps; the loss then no longer counts batches."""
        self.step, self.steps, self.follows_trainer = step, steps, True

    def __call__(self, outputs: Any, labels: Tensor | None, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        """The loss of one batch.

        Args:
            outputs: Outputs of the model, with logits of shape (B, K).
            labels: Classes, shape (B,), or -100.
            num_items_in_batch: Number of labels in all batches of the optimiser step, on all processes; that of this
                batch if not given.
        """
        logits = _logits(outputs)
        classes = _classes(labels, logits)
        log_probs = logits.to(result_dtype(logits)).log_softmax(-1)
        here = (classes != NO_LABEL).sum()
        total = _number_of_labels(num_items_in_batch, here)
        loss = F.nll_loss(log_probs, classes, ignore_index=NO_LABEL, reduction="sum") / total
        if not torch.is_grad_enabled():
            return loss
        if self.steps is None:
            raise ValueError(
                "`SummaryLoss` needs the length of training, because its term starts after the labels: add "
                "SummaryCallback(trainer) to the callbacks, or pass steps=..., the number of batches"
            )
        weight = self.summary_weight * (labels_first(self.step, self.steps) if self.steps else 1.0)
        if not self.follows_trainer:
            self.step += 1
        self.summary.to(logits.device)
        log_summary: Tensor = self.summary(self._summarised(log_probs, classes))
        return loss - weight * log_summary / self.num_data * (here / total)

    def _summarised(self, log_probs: Tensor, classes: Tensor) -> Tensor:
        """The predictions that the summary is about."""
        if self.label_shift is None:
            return log_probs
        unlabelled = log_probs[classes == NO_LABEL]
        if not len(unlabelled):
            raise ValueError(
                "`labels` must be -100 in some rows of each batch with a label shift, whose summary is about these "
                "rows, but all rows have a class"
            )
        return self.label_shift.to_target(unlabelled)


class SummaryCallback(TrainerCallback):
    """Passes the current step to a `SummaryLoss`, and logs its summary whenever the Trainer logs.

    Add it once: ``trainer.add_callback(SummaryCallback(trainer))``.

    Logs ``log_summary`` and ``summary_distance``, the total variation distance between predictions and belief, over all
    batches since the last log, to all integrations of the Trainer and its history.

    Args:
        trainer: A Trainer whose ``compute_loss_func`` is a `SummaryLoss`.
        loggers: Loggers for the histogram, e.g. `selbo.integrations.mlflow.MLflowLogger`; from the first process only.
        draw: Plots a figure of a snapshot, for instance with `selbo.plots.summary_against_histogram`.
    """

    def __init__(self, trainer: Any, *, loggers: Iterable[Logger] = (), draw: Draw | None = None) -> None:
        if TrainerCallback is object and not TYPE_CHECKING:
            raise ValueError("`SummaryCallback` needs the package transformers: pip install 'selbo[transformers]'")
        loss = getattr(trainer, "compute_loss_func", None)
        if not isinstance(loss, SummaryLoss):
            raise ValueError(
                f"`trainer` must have a SummaryLoss as its compute_loss_func, but it has {type(loss).__name__}"
            )
        self.trainer, self.loss, self.monitor = trainer, loss, loss.monitor
        self.loggers, self.draw = tuple(loggers), draw

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Set the step before each optimiser step, also after resuming."""
        self.loss.follow(state.global_step, state.max_steps)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        """Log the summary after the Trainer logged its training loss."""
        if logs is None or "loss" not in logs:  # an evaluation, the end of training, or our own line
            return
        for name, snapshot in self.monitor.take().items():
            self.trainer.log(snapshot.scalars(name))
            if state.is_world_process_zero:
                log_snapshot(self.loggers, name, snapshot, state.global_step, draw=self.draw)


def _logits(outputs: Any) -> Tensor:
    if isinstance(outputs, dict):
        logits = outputs.get("logits")
    else:
        logits = outputs[0] if isinstance(outputs, (tuple, list)) and outputs else getattr(outputs, "logits", None)
    if not isinstance(logits, Tensor) or logits.ndim != 2 or logits.shape[-1] < 2:
        came = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(
            f"`outputs` must have logits of shape (B, K), one row per example and at least two classes, but got "
            f"{came}: token classification, language models and regression have no summary here"
        )
    return logits


def _classes(labels: Tensor | None, logits: Tensor) -> Tensor:
    if labels is None or labels.is_floating_point() or labels.numel() != len(logits):
        came = "none" if labels is None else f"{labels.dtype} of shape {tuple(labels.shape)}"
        raise ValueError(
            f"`labels` must be one class per example, integers for {len(logits)} rows of logits, but got {came}"
        )
    return labels.reshape(-1).long()


def _number_of_labels(given: Tensor | int | None, here: Tensor) -> Tensor | int:
    """Divisor of a sum over labels; at least one, so that a step without labels has a loss of zero."""
    if isinstance(given, Tensor) and given.ndim > 0:
        raise ValueError(
            "`num_items_in_batch` must be one number, but the Trainer passed one per GPU (DataParallel): "
            "start it with torchrun, or with one visible GPU"
        )
    if given is None:
        return here.clamp(min=1)
    return given.clamp(min=1) if isinstance(given, Tensor) else max(given, 1)
