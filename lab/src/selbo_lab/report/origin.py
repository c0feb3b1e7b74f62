"""Where the numbers of a study come from, in one line."""

from collections.abc import Sequence

from selbo_lab.report.studies import Plain


def provenance(results: Plain, comparison: Plain) -> str:
    """One line: seeds, runs, code, machines and dates.

    Example:
        >>> made = {
        ...     "selbo": "0.1.0",
        ...     "code": None,
        ...     "machine": "x86_64",
        ...     "time": "2026-01-02T03:04:05Z",
        ... }
        >>> method = {"runs": [{"status": "finished", "made_by": made}, None]}
        >>> provenance({"seeds": [0, 1]}, {"methods": [method]})
        'Seeds 0–1; 1 of 2 runs, 1 missing; selbo 0.1.0; on x86_64; 2026-01-02.'
    """
    runs = [run for method in comparison["methods"] for run in method["runs"]]
    there = [run for run in runs if run is not None]
    diverged = sum(run["status"] != "finished" for run in there)
    counts = [f"{len(runs)} runs" if len(there) == len(runs) else f"{len(there)} of {len(runs)} runs"]
    counts += [f"{len(runs) - len(there)} missing"] if len(there) < len(runs) else []
    counts += [f"{diverged} diverged"] if diverged else []
    parts = [_seeds(results["seeds"]), ", ".join(counts)]
    made = [run["made_by"] for run in there]
    if made:
        parts.append(f"selbo {', '.join(sorted({_version(each) for each in made}))}")
        parts.append(f"on {', '.join(sorted({str(each['machine']) for each in made}))}")
        days = sorted({str(each["time"])[:10] for each in made})
        parts.append(days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}")
    return f"{'; '.join(parts)}."


def _seeds(seeds: Sequence[int]) -> str:
    if len(seeds) == 1:
        return f"Seed {seeds[0]}"
    if list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"Seeds {seeds[0]}–{seeds[-1]}"
    return f"Seeds {', '.join(map(str, seeds))}"


def code_of(made: Plain) -> str:
    """Version and commit of the code of a run, as far as they are known.

    Example:
        >>> code_of({"selbo": "0.1.0", "code": "0123abc"})
        'selbo 0.1.0, commit 0123abc'
        >>> code_of({"selbo": "0+unknown", "code": "0123abc"})
        'selbo, commit 0123abc'
    """
    version = "selbo" if "unknown" in made["selbo"] and made.get("code") else f"selbo {made['selbo']}"
    return f"{version}, commit {made['code']}" if made.get("code") else version


def _version(made: Plain) -> str:
    """Version and commit; a source tree that is not installed has the latter alone."""
    if not made.get("code"):
        return str(made["selbo"])
    return str(made["code"]) if "unknown" in made["selbo"] else f"{made['selbo']} ({made['code']})"
