"""Training: `fit` takes a network, an objective and data, and can be stopped and started again anywhere."""

from selbo.training.callbacks import Callback, EarlyStopping, JsonLines, Progress, TensorBoard
from selbo.training.checkpoint import Checkpoint
from selbo.training.engines import Optimizer
from selbo.training.fit import fit
from selbo.training.processes import pool_of
from selbo.training.trainer import Diverged, FitResult
from selbo.training.validation import Validation

__all__ = [
    "Callback",
    "Checkpoint",
    "Diverged",
    "EarlyStopping",
    "FitResult",
    "JsonLines",
    "Optimizer",
    "Progress",
    "TensorBoard",
    "Validation",
    "fit",
    "pool_of",
]
