"""Provenance of the numbers of a study in one line."""

from collections.abc import Iterable, Sequence

from selbo_lab.run.records import Run, RunProvenance


def provenance(seeds: Sequence[int], runs: Iterable[Run | None]) -> str:
    """One line: seeds, runs, code, machines and dates.

    Example:
        >>> provenance([0, 1], [None, None])
        'Seeds 0–1; 0 of 2 runs, 2 missing.'
    """
    listed = list(runs)
    there = [run for run in listed if run is not None]
    diverged = sum(not run.finished for run in there)
    counts = [f"{len(listed)} runs" if len(there) == len(listed) else f"{len(there)} of {len(listed)} runs"]
    counts += [f"{len(listed) - len(there)} missing"] if len(there) < len(listed) else []
    counts += [f"{diverged} diverged"] if diverged else []
    parts = [_seeds(seeds), ", ".join(counts)]
    if made := [run.made_by for run in there]:
        parts.append(f"selbo {', '.join(sorted({each.version for each in made}))}")
        parts.append(f"on {', '.join(sorted({each.machine for each in made}))}")
        days = sorted({each.time[:10] for each in made})
        parts.append(days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}")
    return f"{'; '.join(parts)}."


def _seeds(seeds: Sequence[int]) -> str:
    if len(seeds) == 1:
        return f"Seed {seeds[0]}"
    if list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"Seeds {seeds[0]}–{seeds[-1]}"
    return f"Seeds {', '.join(map(str, seeds))}"


def describe_code(made: RunProvenance) -> str:
    """Version and commit of the code of a run, if known."""
    version = "selbo" if "unknown" in made.selbo and made.code else f"selbo {made.selbo}"
    return f"{version}, commit {made.code}" if made.code else version
