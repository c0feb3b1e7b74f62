"""Training: `fit` takes a network, an objective and data, and can be stopped and started again anywhere."""

from selbo.training.fit import fit
from selbo.training.processes import pool_of
from selbo.training.trainer import Diverged, FitResult

__all__ = ["Diverged", "FitResult", "fit", "pool_of"]
