"""The Trainer of Hugging Face: a loss function that has the summary term, and a callback that logs it."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor
from torch.nn import functional as F

from selbo import _checks
from selbo._numerics import result_dtype
from selbo.integrations.loggers import Board, Draw, show
from selbo.integrations.monitor import SummaryWatch
from selbo.objectives.label_priority import labels_first
from selbo.summary.likelihood import SummaryLikelihood

if TYPE_CHECKING:
    TrainerCallback = object
else:
    try:
        from transformers import TrainerCallback
    except ImportError:  # said when a callback is made: the loss needs no package, and neither do doctests
        TrainerCallback = object

NO_LABEL: Final = -100
"""What the Trainer and its collators put where there is no label."""


class SummaryLoss:
    r"""Cross-entropy and a summary term, for ``Trainer(compute_loss_func=...)``.

    For models that answer with one row of logits an example: sequence classification, image classification. The loss of
    one step of the optimiser is

    $$-\frac{1}{n} \sum_i \log p(y_i \mid x_i) - \frac{1}{N} \log \mathrm{DP}(s_0 \mid s_\theta, \alpha) ,$$

    with n labelled examples in the step. If gradients are accumulated, the Trainer says how many labels all batches of
    the step have, and each batch counts for its share, in both terms; each has a histogram of its own, so it is the
    single batch that has to be large enough for one. With several processes (DDP) the histogram is that of the batches
    of all of them.

    Rows labelled -100 are left out of the first term. They stay in the histogram, which needs no labels.

    Labels come first: the summary term has no weight in the first quarter of the steps and its full weight from half of
    them on (`selbo.labels_first`), because a belief cannot tell which class is which. How far training is, the loss
    learns from a `SummaryCallback`, or counts by itself if it has ``steps``.

    Where no gradient is wanted, as in evaluation, the loss is the cross-entropy alone, so that ``eval_loss`` can be
    compared with that of any other model.

    Args:
        summary: What the predictions should look like.
        num_data: N, the number of labelled training examples.
        summary_weight: Factor of the summary term.
        steps: Number of batches of the whole training, if there is no `SummaryCallback`; 0 to have the term at full
            weight from the first one on.
        gather: Sum over processes; see `SummaryWatch`.

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
        gather: bool = True,
    ) -> None:
        if not isinstance(summary, SummaryLikelihood):
            raise ValueError(f"`summary` must be a selbo.SummaryLikelihood, but got {type(summary).__name__}")
        self.summary = summary
        self.num_data = _checks.whole("num_data", num_data, at_least=1)
        self.summary_weight = _checks.non_negative("summary_weight", summary_weight)
        self.steps = None if steps is None else _checks.whole("steps", steps, at_least=0)
        self.step = 0
        self.follows_trainer = False
        self.watch = SummaryWatch(summary, gather=gather)

    def follow(self, step: int, steps: int) -> None:
        """Say how far training is, in steps of the optimiser; the loss no longer counts batches then."""
        self.step, self.steps, self.follows_trainer = step, steps, True

    def __call__(self, outputs: Any, labels: Tensor | None, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        """The loss of one batch.

        Args:
            outputs: What the model answered; logits of shape (B, K).
            labels: Classes, shape (B,), or -100.
            num_items_in_batch: Labels of all batches that the step of the optimiser is made of, on all processes; those
                of this batch if not given.
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
                "`SummaryLoss` must know how long training is, because its term waits for the labels: add "
                "SummaryCallback(trainer) to the callbacks, or pass steps=..., the number of batches"
            )
        weight = self.summary_weight * (labels_first(self.step, self.steps) if self.steps else 1.0)
        if not self.follows_trainer:
            self.step += 1
        self.summary.to(logits.device)
        log_summary: Tensor = self.summary(log_probs)
        return loss - weight * log_summary / self.num_data * (here / total)


class SummaryCallback(TrainerCallback):
    """Tells a `SummaryLoss` how far training is, and logs what it saw whenever the Trainer logs.

    Add it once: ``trainer.add_callback(SummaryCallback(trainer))``.

    ``log_summary`` and ``summary_distance``, the total variation between predictions and belief, over all batches since
    the last time, go to all integrations of the Trainer and into its history.

    Args:
        trainer: Whose ``compute_loss_func`` is a `SummaryLoss`.
        boards: Where to put the histogram, e.g. `selbo.integrations.mlflow.MLflow`; from the first process only.
        draw: Makes a figure of what was seen, for instance with `selbo.plots.summary_against_histogram`.
    """

    def __init__(self, trainer: Any, *, boards: Iterable[Board] = (), draw: Draw | None = None) -> None:
        if TrainerCallback is object and not TYPE_CHECKING:
            raise ValueError("`SummaryCallback` needs the package transformers: pip install 'selbo[transformers]'")
        loss = getattr(trainer, "compute_loss_func", None)
        if not isinstance(loss, SummaryLoss):
            raise ValueError(
                f"`trainer` must have a SummaryLoss as its compute_loss_func, but it has {type(loss).__name__}"
            )
        self.trainer, self.loss, self.watch = trainer, loss, loss.watch
        self.boards, self.draw = tuple(boards), draw

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Before a step of the optimiser, of an interrupted training too."""
        self.loss.follow(state.global_step, state.max_steps)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        """After the Trainer logged its training loss, log the rest."""
        if logs is None or "loss" not in logs:  # an evaluation, the end of training, or our own line
            return
        for name, seen in self.watch.take().items():
            self.trainer.log(seen.scalars(name))
            if state.is_world_process_zero:
                show(self.boards, name, seen, state.global_step, draw=self.draw)


def _logits(outputs: Any) -> Tensor:
    if isinstance(outputs, dict):
        logits = outputs.get("logits")
    else:
        logits = outputs[0] if isinstance(outputs, (tuple, list)) and outputs else getattr(outputs, "logits", None)
    if not isinstance(logits, Tensor) or logits.ndim != 2 or logits.shape[-1] < 2:
        came = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(
            f"`outputs` must have logits of shape (B, K), one row an example and at least two classes, but got {came}: "
            "token classification, language models and regression have no summary here"
        )
    return logits


def _classes(labels: Tensor | None, logits: Tensor) -> Tensor:
    if labels is None or labels.is_floating_point() or labels.numel() != len(logits):
        came = "none" if labels is None else f"{labels.dtype} of shape {tuple(labels.shape)}"
        raise ValueError(
            f"`labels` must be one class an example, whole numbers for {len(logits)} rows of logits, but got {came}"
        )
    return labels.reshape(-1).long()


def _number_of_labels(given: Tensor | int | None, here: Tensor) -> Tensor | int:
    """What a sum over labels is divided by; at least one, so that a step without labels has a loss of zero."""
    if isinstance(given, Tensor) and given.ndim > 0:
        raise ValueError(
            "`num_items_in_batch` must be one number, but the Trainer gave one a GPU (DataParallel): "
            "start it with torchrun, or with one visible GPU"
        )
    if given is None:
        return here.clamp(min=1)
    return given.clamp(min=1) if isinstance(given, Tensor) else max(given, 1)
