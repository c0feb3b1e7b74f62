"""What the demo states about frozen models, and which setting it gives each way to train: four are tried.

Of the four, the lowest mean validation NLL is taken. Seeds 10 to 14, so that no image of a test set of the demo (0 to
3) has a say in it.

    python benchmarks/demo_settings.py [--seeds 10 11 12 13 14] [--steps 600]
"""

import argparse
import statistics
from dataclasses import replace

import torch

from selbo.demo.comparison import DEMO_METHODS, STEPS, fitted, predicted
from selbo.demo.digits import noisy_digits
from selbo.demo.frozen import STATED_ACCURACIES, digit_parts, fit_frozen
from selbo.evaluation import evaluate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[10, 11, 12, 13, 14])
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print("| frozen model | accuracy | stated |")
    print("|---|---|---|")
    for name, stated in STATED_ACCURACIES.items():
        right = [fit_frozen(name, seed).score(*digit_parts(seed)[1]) for seed in options.seeds]
        print(f"| {name} | {statistics.mean(right):.3f} | {stated:g} |", flush=True)
    print()
    print("| method | setting | value | validation NLL | accuracy | ECE | |")
    print("|---|---|---|---|---|---|---|")
    for method in DEMO_METHODS:
        if method.tempered:
            continue
        rows = {}
        for value in method.tried:
            scores = []
            for seed in options.seeds:
                task = noisy_digits(seed)
                model = fitted(replace(method, value=value), task, seed=seed, steps=options.steps)
                found = evaluate(None, task.val[1], log_probs=predicted(model, task.val[0]).log_probs)
                scores.append([found["nll"], found["accuracy"], found["ece"]])
            rows[value] = [list(column) for column in zip(*scores, strict=True)]
        best = min(rows, key=lambda value: statistics.mean(rows[value][0]))
        for value, columns in rows.items():
            cells = [f"{statistics.mean(c):.3f} ± {statistics.stdev(c) / len(c) ** 0.5:.3f}" for c in columns]
            marks = ("best " if value == best else "") + ("taken" if value == method.value else "")
            print(f"| {method.name} | {method.setting} | {value:g} | {' | '.join(cells)} | {marks} |", flush=True)


if __name__ == "__main__":
    main()
