"""Lightning: a callback that sums histograms over processes and logs them; the user adds the term to the loss."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from selbo import _checks
from selbo.integrations.loggers import Draw, Logger, log_snapshot
from selbo.integrations.monitor import SummaryMonitor

if TYPE_CHECKING:
    Callback = object
else:
    try:
        from lightning.pytorch import Callback
    except ImportError:  # raised on instantiation: documentation and doctests import this module without it
        Callback = object


class SummaryCallback(Callback):
    """A callback for a LightningModule whose loss has a summary term.

    A callback cannot change a loss, so add the term in ``training_step``, as in any loop, and make the summary, or an
    objective that has one, an attribute of the module. The callback finds it there. With several processes it sums the
    histogram over the batches of all of them; otherwise each process would compare its own part of the batch with the
    belief. It also logs ``log_summary`` and ``summary_distance``, the total variation distance between predictions and
    belief, both over all batches since the last log. TensorBoard and MLflow also get the histogram next to the belief.

    Args:
        every_n_steps: Batches between logs; ``log_every_n_steps`` of the trainer if not given.
        gather: Sum over processes; see `SummaryMonitor`.
        draw: Plots a figure of a snapshot, for instance with `selbo.plots.summary_against_histogram`.
        loggers: Loggers for histograms, in addition to those of the trainer.
    """

    def __init__(
        self,
        *,
        every_n_steps: int | None = None,
        gather: bool = True,
        draw: Draw | None = None,
        loggers: Iterable[Logger] = (),
    ) -> None:
        if Callback is object and not TYPE_CHECKING:
            raise ValueError("`SummaryCallback` needs the package lightning: pip install 'selbo[lightning]'")
        super().__init__()
        self.every = None if every_n_steps is None else _checks.whole("every_n_steps", every_n_steps, at_least=1)
        self.gather, self.draw, self.loggers = gather, draw, tuple(loggers)
        self.monitor: SummaryMonitor | None = None
        self.batches = 0

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Start monitoring the summaries of the module."""
        self._close()
        self.monitor, self.batches = SummaryMonitor(pl_module, gather=self.gather), 0

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Log every ``every_n_steps`` batches."""
        self.batches += 1
        every = trainer.log_every_n_steps if self.every is None else self.every
        if every and self.batches % every == 0:
            pl_module.log_dict(self._log(trainer), logger=False, on_step=True, on_epoch=False)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Log the remaining batches."""
        self._log(trainer)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Leave the module as it was."""
        self._close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Leave the module as it was."""
        self._close()

    def _log(self, trainer: Any) -> dict[str, float]:
        """Log to all loggers, from the first process; returns the values by name."""
        snapshots = {} if self.monitor is None else self.monitor.take()
        scalars = {key: value for name, each in snapshots.items() for key, value in each.scalars(name).items()}
        if scalars and trainer.is_global_zero:
            loggers = [*find_loggers(trainer.loggers), *self.loggers]
            for logger in trainer.loggers:
                logger.log_metrics(scalars, step=trainer.global_step)
            for name, each in snapshots.items():
                log_snapshot(loggers, name, each, trainer.global_step, draw=self.draw)
        return scalars

    def _close(self) -> None:
        if self.monitor is not None:
            self.monitor.close()
            self.monitor = None


def find_loggers(given: Iterable[Any]) -> list[Logger]:
    """Lightning's loggers that support histograms: those of TensorBoard and MLflow."""
    loggers: list[Logger] = []
    for logger in given:
        experiment = getattr(logger, "experiment", None)
        if hasattr(experiment, "add_histogram_raw"):
            from selbo.integrations.tensorboard import TensorBoardLogger

            loggers.append(TensorBoardLogger(experiment))
        elif hasattr(experiment, "log_batch") and hasattr(logger, "run_id"):
            from selbo.integrations.mlflow import MLflowLogger

            loggers.append(MLflowLogger(logger.run_id, client=experiment))
    return loggers
