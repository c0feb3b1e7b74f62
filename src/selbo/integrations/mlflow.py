"""Terms and histograms for MLflow."""

import time
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from selbo.integrations.loggers import Figure
from selbo.integrations.monitor import Snapshot


class MLflowLogger:
    """A logger for an MLflow run.

    Numbers become metrics, and so do the masses of the regions, counted from 0: ``summary/predictions/region_3`` is the
    mass of the predictions by step, ``summary/belief/region_3`` its target. Figures become artifacts.

    Args:
        run_id: Id of the run; the active one (`mlflow.start_run`) if not given.
        client: An `MlflowClient`, to write to another tracking URI than the configured one.
    """

    def __init__(self, run_id: str | None = None, *, client: Any = None) -> None:
        try:
            import mlflow
            from mlflow.entities import Metric
        except ImportError as error:
            raise ValueError("`MLflowLogger` needs the package mlflow: pip install 'selbo[mlflow]'") from error
        if run_id is None:
            active = mlflow.active_run()
            if active is None:
                raise ValueError("`run_id` must be given if no run is active: call mlflow.start_run() before")
            run_id = str(active.info.run_id)
        self.run_id = run_id
        self.client: Any = mlflow.MlflowClient() if client is None else client
        self._metric = Metric
        self._beliefs: set[str] = set()

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Add a point to each metric."""
        now = int(time.time() * 1000)
        self.client.log_batch(
            self.run_id, metrics=[self._metric(name, float(value), now, step) for name, value in values.items()]
        )

    def histogram(self, name: str, snapshot: Snapshot, step: int) -> None:
        """Add the masses of the regions as ``name/predictions/region_r``, and once those of s0 as ``name/belief``."""
        self._regions(f"{name}/predictions", snapshot.histogram, step)
        if name not in self._beliefs:
            self._regions(f"{name}/belief", snapshot.s0, step)
            self._beliefs.add(name)

    def figure(self, name: str, figure: Figure, step: int) -> None:
        """Add a matplotlib figure."""
        self.client.log_figure(self.run_id, figure, f"{name}/{step:08}.png")

    def _regions(self, name: str, masses: Tensor, step: int) -> None:
        width = len(str(len(masses) - 1))
        self.scalars({f"{name}/region_{r:0{width}}": mass for r, mass in enumerate(masses.tolist())}, step)
