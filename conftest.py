"""The seed contract, and guards on the global random states and on the settings of figures.

A test that draws random numbers takes the argument `seed` and makes its own generator from it. It runs with seed 0,
and must pass for every seed from 0 to 99: `SELBO_TEST_SEEDS=0-99 pytest -m stochastic`. `--only-stochastic=FOLDER`
leaves out the other tests of that folder, but for those that are marked `slow`, which `make test` does not run: one
call then runs all tests of some folders and these of others. With `--no-repeats` only the slow ones stay, for a seed
that `make test` has run with.
`--first=FOLDER` begins with the tests of that folder, so that several processes end at the same time.
`--measure=PACKAGE=FOLDER` measures which lines of the package the tests of that folder reach, and slows down no other.
"""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import random
import re
import signal
from collections.abc import Callable, Generator, Iterator
from functools import cached_property
from pathlib import Path

import pytest

SEEDS_VARIABLE = "SELBO_TEST_SEEDS"
TAKES_SEED_OR_IS_SLOW = re.compile(r"\bdef \w+\([^)]*\bseed\b|\bmark\.slow\b")
IS_SLOW = re.compile(r"\bmark\.slow\b")


def chosen_seeds() -> range:
    """The seeds of this run: one number, or an inclusive range `low-high`."""
    text = os.environ.get(SEEDS_VARIABLE, "0")
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
    if match is None:
        raise pytest.UsageError(f"{SEEDS_VARIABLE} must be a seed such as 7 or a range such as 0-99, got {text!r}")
    low, high = int(match[1]), int(match[2] or match[1])
    if high < low:
        raise pytest.UsageError(f"{SEEDS_VARIABLE} must be an increasing range, got {text!r}")
    return range(low, high + 1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--only-stochastic",
        action="append",
        default=[],
        metavar="PATH",
        help="a file or folder of which only the tests that draw random numbers or are slow are run",
    )
    parser.addoption(
        "--no-repeats",
        action="store_true",
        help="of the files and folders of --only-stochastic, run the slow tests only",
    )
    parser.addoption(
        "--first",
        action="append",
        default=[],
        metavar="PATH",
        help="a file or folder whose tests are run before all others",
    )
    parser.addoption(
        "--measure",
        metavar="PACKAGE=PATH",
        help="a package, and the file or folder of the tests that must reach its lines: writes .coverage.* of these",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import a file of which no test would stay."""
    stays = IS_SLOW if config.getoption("--no-repeats") else TAKES_SEED_OR_IS_SLOW
    if collection_path.suffix != ".py" or not is_below(collection_path, chosen_paths(config, "--only-stochastic")):
        return None
    return None if stays.search(collection_path.read_text(encoding="utf-8")) else True


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage while tests are imported, and look at none of what they made again: nothing of it ends."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def chosen_paths(config: pytest.Config, option: str) -> list[Path]:
    return [(config.rootpath / each).resolve() for each in config.getoption(option)]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    only, first = (chosen_paths(config, option) for option in ("--only-stochastic", "--first"))
    marks = ("slow",) if config.getoption("--no-repeats") else ("stochastic", "slow")
    left_out = [item for item in items if not has_mark(item, marks) and is_below(item.path, only)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        out = set(left_out)
        items[:] = [item for item in items if item not in out]
    items.sort(key=lambda item: not is_below(item.path, first))  # otherwise in their order


def has_mark(item: pytest.Item, names: tuple[str, ...]) -> bool:
    return any(item.get_closest_marker(name) for name in names)


def is_below(path: Path, folders: list[Path]) -> bool:
    return any(path == folder or folder in path.parents for folder in folders)


def pytest_report_header() -> str:
    seeds = chosen_seeds()
    text = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]}-{seeds[-1]}"
    return f"seeds of stochastic tests: {text} (set {SEEDS_VARIABLE} to change)"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        values = [pytest.param(seed, marks=pytest.mark.stochastic) for seed in chosen_seeds()]
        metafunc.parametrize("seed", values, ids=lambda seed: f"seed{seed}")


def global_states() -> dict[str, Callable[[], object]]:
    """How to look at the global random states. Imports packages here: a process that runs no tests needs none."""
    import numpy as np
    import sklearn.manifold  # noqa: F401  (its import draws random numbers, which the guard would hold against a test)
    import torch

    def numpy_state() -> object:
        name, keys, *rest = np.random.get_state()  # noqa: NPY002  (the global state is what is guarded)
        return name, keys.tobytes(), *rest

    return {
        "torch": lambda: torch.get_rng_state().numpy().tobytes(),
        "numpy": numpy_state,
        "random": random.getstate,
    }


@pytest.fixture
def figure_settings() -> Iterator[None]:
    """Fails a test that changes the settings of matplotlib."""
    import matplotlib

    before = dict.copy(matplotlib.rcParams)  # as stored: asking for the backend would choose one
    yield
    assert dict.copy(matplotlib.rcParams) == before


class GlobalStateGuard:
    """A plugin, not a plain fixture, so that it also stands around the doctests in `src`."""

    @cached_property
    def states(self) -> dict[str, Callable[[], object]]:
        return global_states()

    @pytest.fixture(autouse=True)
    def _global_random_state_is_untouched(self) -> Iterator[None]:
        before = {name: state() for name, state in self.states.items()}
        yield
        touched = [name for name, state in self.states.items() if state() != before[name]]
        assert not touched, (
            f"the global random state of {' and '.join(touched)} was touched: "
            "draw from a generator that is passed as an argument, and do not seed the global one"
        )


class Measured:
    """Coverage of a package by its own tests, beside others in one process, which it would make half as long again."""

    def __init__(self, package: str, folder: Path) -> None:
        import coverage

        self.folder = folder
        self.coverage = coverage.Coverage(source_pkgs=[package], data_suffix=True)
        self.coverage.start()  # imports reach lines as well
        found = importlib.import_module(package)
        for module in pkgutil.walk_packages(found.__path__, f"{package}."):
            importlib.import_module(module.name)
        self.coverage.stop()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        if not is_below(item.path, [self.folder]):
            return (yield)
        self.coverage.start()
        try:
            return (yield)
        finally:
            self.coverage.stop()

    def pytest_sessionfinish(self) -> None:
        self.coverage.save()


def pytest_configure(config: pytest.Config) -> None:
    chosen_seeds()  # a mistake in the variable stops the run here, in one sentence
    measured, in_charge = config.getoption("--measure"), config.getoption("numprocesses", None) is not None
    if measured and not in_charge:  # a process that hands tests to others runs none
        package, _, path = measured.partition("=")
        config.pluginmanager.register(Measured(package, (config.rootpath / path).resolve()), "measured")
    config.pluginmanager.register(GlobalStateGuard(), "global-state-guard")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # a shell's background jobs ignore it, and so would the commands that tests start and interrupt
        signal.signal(signal.SIGINT, signal.default_int_handler)
