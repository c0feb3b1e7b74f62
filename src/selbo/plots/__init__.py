"""Pictures of beliefs, summaries and predictions."""

from selbo.plots.figures import (
    FIGURES,
    SimplexPanel,
    belief_on_simplex,
    dirichlet_process_draws,
    summary_against_histogram,
)
from selbo.plots.style import ONE_COLUMN, TWO_COLUMNS, save

__all__ = [
    "FIGURES",
    "ONE_COLUMN",
    "TWO_COLUMNS",
    "SimplexPanel",
    "belief_on_simplex",
    "dirichlet_process_draws",
    "save",
    "summary_against_histogram",
]
