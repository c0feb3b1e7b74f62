"""Time to the first steps of `selbo.fit` on a GPU, cold, and when compilation pays.

Each row is a process of its own with an empty cache of the compiler. It trains VGG11 (batch 256, bfloat16, crop and
flip, synthetic images) for 50 steps, with compiling and capturing, then for 50 and for 1050 steps again, whose
difference gives the time of a step. The last column is the number of steps after which the compiled run has caught up.

    python benchmarks/first_step.py [--methods adam natural natural-summary mean-field] [--seconds 300]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any, Final

METHODS: Final = ("adam", "natural", "natural-summary", "mean-field")
ENGINES: Final = ("cudagraph", "compile+cudagraph")
N: Final = 45_000
FEW: Final = 50
MORE: Final = 1000


def measure(method: str, engine: str) -> dict[str, Any]:
    """Seconds of the first 50 steps, and milliseconds of a later one."""
    import torch

    import selbo
    from selbo import models

    images = torch.randn(N, 3, 32, 32, device="cuda")
    labels = torch.randint(10, (N,), device="cuda")
    summary = selbo.SummaryLikelihood(selbo.CornerShells(10), selbo.expect(0.9, num_classes=10), concentration=450.0)

    def train(steps: int) -> float:
        network = models.VGG11(10, generator=torch.Generator().manual_seed(0)).cuda()
        settings: dict[str, Any] = {"steps": steps, "batch_size": 256, "precision": "bf16", "engine": engine, "seed": 0}
        settings["augment"] = "crop_and_flip"
        objective: Any = selbo.ELBO(N)
        if method == "adam":
            objective = selbo.CrossEntropy(N)
        elif method == "mean-field":
            network = selbo.to_bayesian(network)
        else:
            settings |= {"posterior": "natural_gradient", "learning_rate": 0.8}
            if method == "natural-summary":
                objective = selbo.SummaryELBO(summary.cuda(), N)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        selbo.fit(network, objective, (images, labels), **settings)
        torch.cuda.synchronize()
        return time.perf_counter() - begin

    first = train(FEW)
    again = train(FEW)
    step_ms = (train(FEW + MORE) - again) / MORE * 1000
    result = {"method": method, "engine": engine, "first_s": first, "again_s": again, "step_ms": step_ms}
    return result | {"torch": torch.__version__, "machine": torch.cuda.get_device_name()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seconds", type=float, default=300.0, help="start no row after this time")
    parser.add_argument("--one", nargs=2, metavar=("METHOD", "ENGINE"), help="only this row, as a line of JSON")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(*options.one)), flush=True)
        return
    begin, rows = time.perf_counter(), {}
    for method in options.methods:
        for engine in ENGINES:
            if time.perf_counter() - begin > options.seconds:
                print(f"  left out for time: {method}, {engine}", flush=True)
                continue
            with tempfile.TemporaryDirectory() as empty:
                caches = {"TORCHINDUCTOR_CACHE_DIR": f"{empty}/inductor", "TRITON_CACHE_DIR": f"{empty}/triton"}
                command = [sys.executable, __file__, "--one", method, engine]
                done = subprocess.run(command, check=False, capture_output=True, text=True, env=os.environ | caches)
            if done.returncode:
                print(f"  failed: {method}, {engine}: {done.stderr.strip().splitlines()[-1][:300]}", flush=True)
                continue
            rows[method, engine] = json.loads(done.stdout.strip().splitlines()[-1])
            print(json.dumps(rows[method, engine]), flush=True)
    print("\n| | engine | first 50 steps, s | once more, s | ms a step | pays after, steps |")
    print("|---|---|---:|---:|---:|---:|")
    for (method, engine), row in rows.items():
        base, after = rows.get((method, ENGINES[0])), ""
        if base is not None and engine != ENGINES[0] and row["step_ms"] < base["step_ms"]:
            after = f"{1000 * (row['first_s'] - base['first_s']) / (base['step_ms'] - row['step_ms']):.0f}"
        times = f"{row['first_s']:.1f} | {row['again_s']:.1f} | {row['step_ms']:.2f}"
        print(f"| {method} | {engine} | {times} | {after} |")
    print(flush=True)


if __name__ == "__main__":
    main()
