"""Large tables: rows per second and peak memory of `selbo train`, `predict`, `evaluate` and `calibrate`, read in parts.

Makes a synthetic table of two classes, runs the four commands on it, each in a process of its own, and prints wall and
processor seconds, rows per second and the peak resident memory. Then compares the training steps of a plain network
with `MLPClassifier.partial_fit` of scikit-learn, at equal network, batch size and precision, one thread each; they take
turns, and medians of processor time are printed.

    python benchmarks/large_table.py [--rows 200000] [--columns 50] [--kind parquet] [--method plain] [--folder DIR]
"""

import argparse
import os
import platform
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import torch
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits

import selbo
from selbo.training.stored import RowStore, RowWriter

ROWS_AT_A_TIME = 250_000
COMPARED_ROWS = 102_400
REPEATS = 5


def write_rows(path: Path, rows: int, columns: int) -> None:
    """Write a table of numbers whose class depends on three of them, a part at a time."""
    parts = []
    for first in range(0, rows, ROWS_AT_A_TIME):
        draws = np.random.default_rng(first)
        values = draws.standard_normal((min(ROWS_AT_A_TIME, rows - first), columns), dtype=np.float32)
        score = values[:, 0] + values[:, 1] * values[:, 2] + 0.5 * draws.standard_normal(len(values))
        frame = pl.DataFrame({f"x{k}": values[:, k] for k in range(columns)})
        frame = frame.with_columns(pl.Series("y", np.where(score > 0, "yes", "no")))
        if path.suffix == ".csv":
            with path.open("ab") as stream:
                frame.write_csv(stream, include_header=first == 0, float_precision=6)
        else:
            parts.append(path.with_name(f"part{len(parts)}.parquet"))
            frame.write_parquet(parts[-1], compression="uncompressed")
    if parts:
        pl.scan_parquet(parts).sink_parquet(path, compression="uncompressed", row_group_size=ROWS_AT_A_TIME)
        for part in parts:
            part.unlink()


def run(name: str, rows: int, *arguments: object) -> str:
    """Run a command, and print what it took; returns what it wrote to the error stream."""
    begin = time.perf_counter()
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "selbo", *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=said
        )
        _, status, used = os.wait4(process.pid, 0)
        seconds, cpu = time.perf_counter() - begin, used.ru_utime + used.ru_stime
        said.seek(0)
        text = said.read()
    if status:
        sys.exit(f"selbo {name} failed:\n{text}")
    peak = used.ru_maxrss * 1024 / 2**30
    print(
        f"| {name} | {seconds:.0f} | {cpu:.0f} | {rows / seconds:,.0f} | {rows / cpu:,.0f} | {peak:.2f} |", flush=True
    )
    return text


def compare_steps(columns: int, hidden: int, batch_size: int) -> None:
    """Rows per second of training steps, ours and those of scikit-learn."""
    draws = np.random.default_rng(0)
    inputs = draws.standard_normal((COMPARED_ROWS, columns), dtype=np.float32)
    labels = (inputs[:, 0] + inputs[:, 1] * inputs[:, 2] > 0).astype(np.int64)
    theirs = MLPClassifier((hidden,), batch_size=batch_size, random_state=0)
    theirs.partial_fit(inputs[:batch_size], labels[:batch_size], classes=[0, 1])

    def by_batch() -> None:
        for first in range(0, COMPARED_ROWS, batch_size):
            theirs.partial_fit(inputs[first : first + batch_size], labels[first : first + batch_size])

    with tempfile.TemporaryDirectory() as folder:
        with RowWriter(Path(folder), [False] * columns) as writer:
            writer.write(inputs, labels)
        store = RowStore(Path(folder), [False] * columns)

        def ours(engine: str) -> None:
            network = selbo.models.MLP((columns, hidden, 2), generator=torch.Generator().manual_seed(0))
            objective = selbo.CrossEntropy(num_data=COMPARED_ROWS)
            selbo.fit(network, objective, store, epochs=1, batch_size=batch_size, callbacks=[], engine=engine)

        contenders: dict[str, Callable[[], object]] = {
            "selbo, stored rows": lambda: ours("auto"),
            "selbo, stored rows, eager torch": lambda: ours("eager"),
            "partial_fit, a batch per call": by_batch,
            f"partial_fit, {COMPARED_ROWS} rows per call": lambda: theirs.partial_fit(inputs, labels),
        }
        seconds: dict[str, list[float]] = {name: [] for name in contenders}
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.set_num_threads(1)
            for _ in range(REPEATS):
                for name, work in contenders.items():
                    begin = time.process_time()
                    work()
                    seconds[name].append(time.process_time() - begin)
    found = {name: COMPARED_ROWS / statistics.median(each) for name, each in seconds.items()}
    print(
        f"\nTraining steps, {columns}-{hidden}-2 units, batches of {batch_size}, float32, one thread, reading included"
    )
    print("\n| | rows per CPU second | ratio |\n|---|---:|---:|")
    for name, speed in found.items():
        print(f"| {name} | {speed:,.0f} | {found['selbo, stored rows'] / speed:.1f} |")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--kind", choices=("parquet", "csv"), default="parquet")
    parser.add_argument("--method", default="plain")
    parser.add_argument("--num-samples", type=int, default=16)
    parser.add_argument("--folder", help="folder for the files, which are removed at the end")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="large-table-", dir=options.folder))
    data, model, predictions = folder / f"rows.{options.kind}", folder / "model", folder / f"out.{options.kind}"
    try:
        write_rows(data, options.rows, options.columns)
        print(
            f"selbo {selbo.__version__}, PyTorch {torch.__version__}, {platform.machine()}, {os.cpu_count()} cores; "
            f"{options.rows} rows, {options.columns} columns, {options.kind}, {data.stat().st_size / 2**30:.2f} GiB\n"
        )
        print("| command | seconds | CPU seconds | rows per second | rows per CPU second | peak memory, GiB |")
        print("|---|---:|---:|---:|---:|---:|", flush=True)
        rows, samples = options.rows, ("--num-samples", options.num_samples)
        train = ("--target", "y", "--accuracy", 0.9, "--method", options.method, *samples, "--stream", "--out", model)
        said = run("train", rows, "train", data, *train)
        run("predict", rows, "predict", model, data, *samples, "--stream", "--out", predictions)
        run("evaluate", rows, "evaluate", model, data, *samples, "--stream", "--json")
        stated = ("--accuracy", 0.9, "--stream", "--out", folder / f"calibrated.{options.kind}")
        run("calibrate", rows, "calibrate", predictions, *stated)
        print(f"\nstages of train: {''.join(re.findall('rows per second: (.*)', said))}")
    finally:
        shutil.rmtree(folder)
    compare_steps(options.columns, 128, 256)
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 2**30
    print(f"\n(this script itself: {own:.2f} GiB)")


if __name__ == "__main__":
    main()
