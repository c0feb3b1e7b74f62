"""Notes below tables whose numbers come from different numbers of weight samples."""

from collections.abc import Iterable

from selbo_lab.report.columns import CORRUPTED, MetricColumn
from selbo_lab.run.records import StudyComparison


def sample_notes(comparison: StudyComparison, columns: Iterable[MetricColumn]) -> list[str]:
    """Note on columns predicted with fewer weight samples than the clean test set.

    Args:
        comparison: A comparison of a study.
        columns: Columns of the table.
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
        # early runs used different numbers and did not record them
        notes.append(
            f"Bayesian networks predicted OOD inputs with {fewer} weight samples and the test set with {samples}; "
            f"fewer samples lower the entropy. New runs use {samples} for both."
        )
    return notes
