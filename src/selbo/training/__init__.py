"""Training: `fit` trains a network with an objective on data; a run can be interrupted and resumed at any step."""

from selbo.training.callbacks import Callback, EarlyStopping, JsonLines, Progress, TensorBoard
from selbo.training.checkpoint import Checkpoint
from selbo.training.engines import Optimizer
from selbo.training.fit import fit
from selbo.training.groups import GroupBatchSampler, group_order
from selbo.training.processes import start_pool
from selbo.training.trainer import Diverged, FitResult
from selbo.training.validation import Validation

__all__ = [
    "Callback",
    "Checkpoint",
    "Diverged",
    "EarlyStopping",
    "FitResult",
    "GroupBatchSampler",
    "JsonLines",
    "Optimizer",
    "Progress",
    "TensorBoard",
    "Validation",
    "fit",
    "group_order",
    "start_pool",
]
