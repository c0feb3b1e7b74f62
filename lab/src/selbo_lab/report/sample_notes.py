"""Notes below tables whose numbers come from different numbers of weight samples."""

from collections.abc import Iterable

from selbo_lab.report.columns import CORRUPTED, Column
from selbo_lab.run.records import StudyComparison


def sample_notes(comparison: StudyComparison, columns: Iterable[Column]) -> list[str]:
    """Which columns of a table were predicted with fewer weight samples than the clean test set.

    Args:
        comparison: Of a study.
        columns: Those of the table.
    """
    samples, fewer = comparison.evaluation.draws, comparison.evaluation.corrupted_draws
    if not fewer or fewer == samples:
        return []
    parts, notes = {column.part for column in columns}, []
    if CORRUPTED in parts:
        notes.append(
            f"Bayesian networks predict corrupted inputs with {fewer} weight samples, clean ones with {samples}."
        )
    if "ood" in parts and any(found.num_samples is None for run in comparison.there for found in run.ood.values()):
        # of runs before both numbers were the same, which do not say how many there were
        notes.append(
            f"Bayesian networks predicted OOD inputs with {fewer} weight samples and the test set with {samples}; "
            f"fewer samples lower the entropy. New runs use {samples} for both."
        )
    return notes
