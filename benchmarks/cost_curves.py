"""How time and memory grow: with rows, classes, groups, samples of the posterior, parameters and processes.

    python benchmarks/cost_curves.py [--out cost_curves.jsonl] [--figure docs/images] [--curves NAME ...]

Each size of each curve runs in a process of its own, on one thread: median CPU seconds of the repeats, and the largest
resident memory less what was there before. Sizes take turns, largest last. What was measured is appended to the file,
and what is in it already is not measured again. Exponents are slopes of log time and log memory against log size over
the four largest sizes, least squares, with 95 % intervals (t distribution); memory below 4 MiB is not fitted.
"""

import argparse
import importlib
import json
import math
import multiprocessing
import os
import platform
import resource
import socket
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from group_cost import step_with
from torch import nn

import selbo

LEAST_SECONDS: Final = 0.2  # of repeats
LEAST_REPEATS: Final = 3
FITTED: Final = 4
LEAST_MIB: Final = 4.0
T_95: Final = 4.303  # two degrees of freedom: four points and a line
STEPS: Final = 20  # of training with several processes, which is not repeated

IMPORTED_LATE: Final = ("scipy.special", "scipy.optimize", "scipy.fft", "selbo.estimator", "selbo.training.fit")

Work = Callable[[], Any]


class Curve(NamedTuple):
    """What grows, its sizes, and a function that builds the work of a size."""

    of: str
    sizes: tuple[int, ...]
    build: Callable[[int], Work]


def generator() -> torch.Generator:
    """A generator with seed 0."""
    return torch.Generator().manual_seed(0)


def zipf(num_classes: int) -> list[float]:
    """Fractions 1 / rank."""
    shares = 1 / np.arange(1, num_classes + 1)
    return list((shares / shares.sum()).tolist())


def epoch(rows: int) -> Work:
    """One epoch of the Summary ELBO: mean field, one sample, an MLP of 20-64-2, batches of 1024."""
    inputs, labels = torch.randn(rows, 20, generator=generator()), torch.arange(rows) % 2
    summary = selbo.SummaryLikelihood(selbo.ScoreBins.equal(10), selbo.expect(0.9), validate=False)
    objective = selbo.SummaryELBO(summary, num_data=rows)

    def run() -> None:
        bnn = selbo.to_bayesian(selbo.models.MLP((20, 64, 2), generator=generator()), prior_std=0.3)
        selbo.fit(bnn, objective, (inputs, labels), epochs=1, batch_size=1024)

    return run


def calibration(rows: int) -> Work:
    """Calibration of frozen predictions of ten classes to a belief."""
    log_probs = (3 * torch.randn(rows, 10, generator=generator())).log_softmax(-1)
    return lambda: selbo.calibrate_to_belief(log_probs, accuracy=0.7, class_fractions=[0.19, *[0.09] * 9])


def elicitation(num_classes: int) -> Work:
    """`expect` with different fractions."""
    return lambda: selbo.expect(0.75, zipf(num_classes))


def term(num_classes: int, partition: selbo.Partition, rows: int = 256) -> Work:
    """The summary term, forward and backward."""
    summary = selbo.SummaryLikelihood(partition, selbo.expect(0.75, num_classes=num_classes), validate=False)
    logits = torch.randn(rows, num_classes, generator=generator()).requires_grad_()

    def run() -> None:
        logits.grad = None
        summary(logits.log_softmax(-1)).backward()

    return run


def groups(num_groups: int) -> Work:
    """A training step with beliefs about groups: MLP 64-256-256-2, 16384 rows, Dirichlet form."""
    inputs = torch.randn(16_384, 64, generator=generator())
    network = lambda: selbo.models.MLP((64, 256, 256, 2), generator=generator())  # noqa: E731
    return step_with(network, inputs, 2, num_groups=num_groups, form="dirichlet")


def samples(num_samples: int, train: bool) -> Work:
    """A step of the Summary ELBO, or prediction, with S samples: MLP 64-256-10, 256 rows."""
    bnn = selbo.to_bayesian(selbo.models.MLP((64, 256, 10), generator=generator()), prior_std=0.3)
    inputs, labels = torch.randn(256, 64, generator=generator()), torch.arange(256) % 10
    if not train:
        return lambda: selbo.predict(bnn, inputs, num_samples=num_samples, generator=generator())
    belief = selbo.expect(0.9, num_classes=10)
    objective = selbo.SummaryELBO(selbo.SummaryLikelihood(selbo.CornerShells(10), belief, validate=False), 10_000)
    noise = generator()

    def step() -> None:
        bnn.zero_grad()
        objective(bnn, inputs, labels, num_samples=num_samples, generator=noise).loss.backward()

    return step


def parameters(width: int, method: str) -> Work:
    """A training step at batch 32 with width² weights or so: Adam, natural gradient, or mean field with Adam."""
    net: nn.Module = nn.Sequential(
        nn.Linear(16, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2)
    )
    inputs, labels = torch.randn(32, 16, generator=generator()), torch.arange(32) % 2
    objective: selbo.objectives.Objective = selbo.CrossEntropy(10_000)
    if method == "mean field":
        net, objective = selbo.to_bayesian(net, prior_std=0.3), selbo.ELBO(10_000)
    noise = generator()
    if method == "natural gradient":
        natural = selbo.NaturalGradient(net.parameters(), lr=0.01, num_data=10_000, prior_std=0.3)

        def natural_step() -> None:
            natural.zero_grad()
            with natural.sampled():
                objective(net, inputs, labels).loss.backward()
            natural.step()

        return natural_step
    optimizer = torch.optim.Adam(net.parameters(), fused=True)

    def step() -> None:
        optimizer.zero_grad()
        objective(net, inputs, labels, generator=noise).loss.backward()
        optimizer.step()

    return step


def processes(count: int) -> Work:
    """Training with 512 rows in each process; the work returns CPU seconds per step of all processes together."""

    def run() -> float:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        context = multiprocessing.get_context("fork")
        pipes = [context.Pipe(duplex=False) for _ in range(count)]
        started = [
            context.Process(target=train_one_rank, args=(rank, count, port, there))
            for rank, (_, there) in enumerate(pipes)
        ]
        for process in started:
            process.start()
        seconds = sum(float(here.recv()) for here, _ in pipes)
        for process in started:
            process.join()
        return seconds / STEPS

    return run


def train_one_rank(rank: int, world: int, port: int, answer: Any) -> None:
    """One of several processes: train, and send the CPU seconds of training, start-up left out."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.distributed.init_process_group("gloo")
    rows = 512 * world
    inputs, labels = torch.randn(rows, 64, generator=generator()), torch.arange(rows) % 10
    summary = selbo.SummaryLikelihood(selbo.CornerShells(10), selbo.expect(0.9, num_classes=10), validate=False)
    net = selbo.models.MLP((64, 256, 256, 10), generator=generator())
    seconds = []
    for steps in (3, STEPS):  # the first run warms up
        begin = time.process_time()
        selbo.fit(net, selbo.CrossEntropy(rows, summary), (inputs, labels), steps=steps, batch_size=rows)
        seconds.append(time.process_time() - begin)
    answer.send(seconds[-1])
    torch.distributed.destroy_process_group()


CURVES: Final = {
    "training, one epoch": Curve("rows", (16_384, 32_768, 65_536, 131_072), epoch),
    "calibrate_to_belief": Curve("rows", (8_000, 32_000, 128_000, 512_000), calibration),
    "summary term": Curve("rows", (8_192, 32_768, 131_072, 524_288), lambda n: term(10, selbo.CornerShells(10), n)),
    "expect, different fractions": Curve("classes", (100, 300, 1_000, 3_000, 10_000), elicitation),
    "CornerShells": Curve("classes", (300, 1_000, 3_000, 10_000), lambda k: term(k, selbo.CornerShells(k))),
    "ClassRegions": Curve("classes", (300, 1_000, 3_000, 10_000), lambda k: term(k, selbo.ClassRegions(k))),
    "ConfidenceBins": Curve(
        "classes", (300, 1_000, 3_000, 10_000), lambda k: term(k, selbo.ConfidenceBins([0.5, 0.7, 0.9], k))
    ),
    "training step, groups": Curve("groups", (1, 100, 1_000, 4_000, 16_000), groups),
    "training step, samples": Curve("samples", (1, 4, 8, 16, 32), lambda s: samples(s, train=True)),
    "predict": Curve("samples", (16, 64, 256, 1_024), lambda s: samples(s, train=False)),
    "Adam": Curve("parameters", (512, 1_024, 2_048, 3_072), lambda w: parameters(w, "adam")),
    "natural gradient": Curve("parameters", (512, 1_024, 2_048, 3_072), lambda w: parameters(w, "natural gradient")),
    "mean field": Curve("parameters", (512, 1_024, 2_048, 3_072), lambda w: parameters(w, "mean field")),
    "training step, all processes": Curve("processes", (1, 2, 3, 4), processes),
}


def peak_mib() -> float:
    """Largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 1024)


def measure_here(name: str, size: int, answer: Any) -> None:
    """Run one size of a curve in this process, and send its median seconds and memory."""
    if CURVES[name].of == "processes":  # which fork again, so nothing may have been trained here
        answer.send((CURVES[name].build(size)(), math.nan))
        return
    epoch(64)()  # what the first training of a process sets up
    before = peak_mib()
    work = CURVES[name].build(size)
    work()
    times: list[float] = []
    while sum(times) < LEAST_SECONDS or len(times) < LEAST_REPEATS:
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    answer.send((statistics.median(times), peak_mib() - before))


def measure(name: str, size: int) -> dict[str, Any]:
    """The same in a new process, a fork of this one, which has imported everything and run nothing."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=measure_here, args=(name, size, there))
    process.start()
    there.close()
    seconds, mib = here.recv()
    process.join()
    amount = size**2 + 20 * size if CURVES[name].of == "parameters" else size
    return {"curve": name, "of": CURVES[name].of, "size": amount, "seconds": seconds, "mib": mib}


def slope(sizes: list[int], values: list[float]) -> tuple[float, float, float] | None:
    """Exponent of the largest sizes, half the width of its interval, and the factor; None if there are too few."""
    usable = [(math.log(x), math.log(y)) for x, y in zip(sizes, values, strict=True) if y > 0][-FITTED:]
    if len(usable) < FITTED:
        return None
    x, y = np.transpose(usable)
    centred = x - x.mean()
    exponent = float(centred @ y / (centred @ centred))
    rest = y - y.mean() - exponent * centred
    error = math.sqrt(float(rest @ rest) / (FITTED - 2) / float(centred @ centred))
    return exponent, T_95 * error, math.exp(y.mean() - exponent * x.mean())


def shown(fit: tuple[float, float, float] | None) -> str:
    """An exponent with its interval, for a table."""
    return "" if fit is None else f"{fit[0]:.2f} ± {fit[1]:.2f}"


def fits(rows: list[dict[str, Any]]) -> tuple[tuple[float, float, float] | None, tuple[float, float, float] | None]:
    """Exponents of time and memory of one curve."""
    sizes = [row["size"] for row in rows]
    mib = [row["mib"] if row["mib"] >= LEAST_MIB else 0.0 for row in rows]
    return slope(sizes, [row["seconds"] for row in rows]), slope(sizes, mib)


def print_table(curves: dict[str, list[dict[str, Any]]]) -> None:
    """The largest size of each curve, and the exponents."""
    print("\n| | grows with | largest | CPU s | MiB | exponent of time | of memory |\n|---|---|---:|---:|---:|---|---|")
    for name, rows in curves.items():
        last, (seconds, mib) = rows[-1], fits(rows)
        memory = "" if math.isnan(last["mib"]) else f"{last['mib']:.0f}"
        cells = [f"{last['size']:,}", f"{last['seconds']:.3g}", memory, shown(seconds), shown(mib)]
        print("| " + " | ".join([name, last["of"], *cells]) + " |")


def draw(curves: dict[str, list[dict[str, Any]]], folder: Path) -> None:
    """Time and memory against size, one panel for each thing that grows."""
    from matplotlib.figure import Figure

    from selbo.plots import save_figure
    from selbo.plots.style import PALETTE, TWO_COLUMNS, figure_style

    kinds = list(dict.fromkeys(rows[0]["of"] for rows in curves.values()))
    with figure_style():
        figure = Figure(figsize=(TWO_COLUMNS, 4.2), layout="constrained")
        panels = figure.subplots(2, 3).ravel()
        for panel, kind in zip(panels, kinds, strict=False):
            sizes: list[int] = []
            here = {name: rows for name, rows in curves.items() if rows[0]["of"] == kind}
            for colour, (name, rows) in zip(PALETTE, here.items(), strict=False):
                sizes = [row["size"] for row in rows]
                panel.loglog(sizes, [row["seconds"] for row in rows], "o-", color=colour, ms=2.5, lw=1, label=name)
            low, high = panel.get_ylim()
            panel.set_ylim(min(low, high / 10), 6 * high)  # room for the legend
            if kind == "processes":
                panel.set_xticks(sizes, [str(size) for size in sizes])
                panel.set_xticks([], minor=True)
            panel.set_xlabel(kind)
            panel.set_ylabel("CPU seconds")
            panel.legend(frameon=False, handlelength=1, loc="upper left")
        save_figure(figure, folder, "cost_curves", formats=("png",))


def main() -> None:
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("cost_curves.jsonl"))
    parser.add_argument("--figure", type=Path, help="folder for a figure")
    parser.add_argument("--curves", nargs="+", choices=list(CURVES), default=list(CURVES))
    options = parser.parse_args()
    torch.set_num_threads(1)
    for module in IMPORTED_LATE:
        importlib.import_module(module)
    rows = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    done = {(row["curve"], row["place"]): row for row in rows}
    most = max(len(CURVES[name].sizes) for name in options.curves)
    turns = [(name, place) for place in range(most) for name in options.curves if place < len(CURVES[name].sizes)]
    for number, (name, place) in enumerate(turns):
        print(f"\r{number + 1:3} of {len(turns)}: {name:32}", end="", file=sys.stderr, flush=True)
        if (name, place) not in done:
            done[name, place] = {**measure(name, CURVES[name].sizes[place]), "place": place}
            with options.out.open("a") as file:
                file.write(json.dumps(done[name, place]) + "\n")
    print(file=sys.stderr)
    print(f"selbo {selbo.__version__}, PyTorch {torch.__version__}, {platform.machine()}, one thread")
    curves = {name: [done[name, place] for place in range(len(CURVES[name].sizes))] for name in options.curves}
    print_table(curves)
    if options.figure is not None:
        draw(curves, options.figure)


if __name__ == "__main__":
    main()
