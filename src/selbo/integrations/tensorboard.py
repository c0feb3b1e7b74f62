"""Terms and histograms for TensorBoard."""

import os
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from selbo.integrations.loggers import Figure
from selbo.integrations.monitor import Snapshot


class TensorBoardLogger:
    """A logger for TensorBoard; unlike `selbo.training.TensorBoard`, it also writes histograms.

    The horizontal axis of a histogram is the index of the region: region r, counted from 0, is the bar from r to r + 1.

    Args:
        folder: Log folder of TensorBoard, or an open `SummaryWriter`.
    """

    def __init__(self, folder: "str | os.PathLike[str] | Any") -> None:
        if not isinstance(folder, (str, os.PathLike)):
            self.writer: Any = folder
            return
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ValueError(
                "`TensorBoardLogger` needs the package tensorboard: pip install 'selbo[tensorboard]'"
            ) from error
        self.writer = SummaryWriter(os.fspath(folder))

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Add a point to each curve."""
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def histogram(self, name: str, snapshot: Snapshot, step: int) -> None:
        """Add the masses of the regions, as ``name/predictions`` and ``name/belief``."""
        self._bars(f"{name}/predictions", snapshot.histogram, step)
        self._bars(f"{name}/belief", snapshot.s0, step)

    def figure(self, name: str, figure: Figure, step: int) -> None:
        """Add a matplotlib figure."""
        self.writer.add_figure(name, figure, step, close=False)

    def close(self) -> None:
        """Flush to the disk."""
        self.writer.close()

    def _bars(self, name: str, masses: Tensor, step: int) -> None:
        middles = torch.arange(len(masses), dtype=torch.float64) + 0.5
        self.writer.add_histogram_raw(
            name,
            min=0.0,
            max=float(len(masses)),
            num=1.0,
            sum=float(masses @ middles),
            sum_squares=float(masses @ middles**2),
            bucket_limits=[float(region + 1) for region in range(len(masses))],
            bucket_counts=masses.tolist(),
            global_step=step,
        )
