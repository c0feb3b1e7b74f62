"""Notes below tables whose numbers come from different numbers of weight samples."""

from collections.abc import Iterable

from selbo_lab.report.studies import Plain


def sample_notes(comparison: Plain, columns: Iterable[str]) -> list[str]:
    """Which columns of a table were predicted with fewer weight samples than the clean test set.

    Args:
        comparison: Of a study.
        columns: Those of the table.

    Example:
        >>> evaluation = {"draws": 128, "corrupted_draws": 8}
        >>> sample_notes({"evaluation": evaluation, "methods": []}, ["corrupted.nll"])
        ['Bayesian networks predict corrupted inputs with 8 weight samples, clean ones with 128.']
    """
    asked = comparison.get("evaluation", {})
    samples, fewer = asked.get("draws"), asked.get("corrupted_draws")
    if not fewer or fewer == samples:
        return []
    places, notes = {column.partition(".")[0] for column in columns}, []
    if "corrupted" in places:
        notes.append(
            f"Bayesian networks predict corrupted inputs with {fewer} weight samples, clean ones with {samples}."
        )
    if "ood" in places and any("draws" not in found for found in _foreign(comparison)):
        # of runs before both numbers were the same, which do not say how many there were
        notes.append(
            f"Bayesian networks predicted OOD inputs with {fewer} weight samples and the test set with {samples}; "
            f"fewer samples lower the entropy. New runs use {samples} for both."
        )
    return notes


def _foreign(comparison: Plain) -> list[Plain]:
    runs = [run for method in comparison["methods"] for run in method["runs"] if run]
    return [found for run in runs for found in (run.get("ood") or {}).values()]
