"""A stated accuracy beside class fractions of groups: as a correction after training, or as a term of it.

`SummaryClassifier` at its defaults on the voters of the study `groups`, of whom about 82 % can be decided: without an
accuracy; with one, which corrects the predictions; and with the same one and the default partition stated, which makes
it a term of the training. Test accuracy, NLL and ECE, means over seeds, and differences from no accuracy with 95 %
intervals.

    python benchmarks/group_accuracy.py [--seeds 250 251 252 253 254] [--jobs 2]

Needs the data set `voters` (selbo data get voters).
"""

import argparse
import platform
import warnings
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from typing import Any, Final

import numpy as np
import torch

import selbo
from selbo.random import generator_for
from selbo.report.differences import compute_difference
from selbo_lab.run.group_cases import group_case
from selbo_lab.studies import reader

CASES: Final = ("voters", "voters-official-16")
LABELS: Final = (0, 50)
METRICS: Final = ("accuracy", "nll", "ece")


def measure(case_name: str, labels: int, seed: int) -> dict[str, dict[str, float]]:
    """Test scores of the three ways for one split."""
    torch.set_num_threads(1)
    (data,) = (each.data for each in reader.load_study("groups").variants if each.name == case_name)
    case = group_case(data, seed)
    inputs, groups = case.train.inputs.numpy(), case.groups.numpy()
    known = torch.randperm(len(inputs), generator=generator_for(seed, "labels"))[:labels]
    y = np.full(len(inputs), -1)
    y[known] = case.train.labels[known]
    stated: dict[str, Any] = {"groups": groups, "group_fractions": dict(enumerate(case.fractions.tolist()))}
    if data.official:
        stated["group_concentration"] = dict(enumerate(case.concentration.tolist()))
    partition = (
        selbo.SummaryClassifier(accuracy=data.group_accuracy).statement(inputs, y, **stated).summaries[0].partition
    )
    ways: dict[str, dict[str, Any]] = {
        "none": {},
        "after training": {"accuracy": data.group_accuracy},
        "in training": {"accuracy": data.group_accuracy, "partition": partition},
    }
    found = {}
    for name, settings in ways.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            classifier = selbo.SummaryClassifier(random_state=seed, **settings)
            classifier.fit(inputs, y, **stated, progress=False)
        scores = selbo.evaluate(classifier.predict_proba(case.test.inputs.numpy()), case.test.labels.numpy())
        found[name] = {metric: scores[metric] for metric in METRICS}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=[250, 251, 252, 253, 254])
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    rows = list(product(CASES, LABELS))
    jobs = [(*row, seed) for row in rows for seed in options.seeds]
    with ProcessPoolExecutor(options.jobs) as pool:
        found = list(pool.map(measure, *zip(*jobs, strict=True)))
    print(f"torch {torch.__version__}, {platform.machine()}, seeds {options.seeds}\n")
    print("| case | labels | accuracy stated | right | NLL | ECE | right, difference | NLL, difference |")
    print("|---|---:|---|---:|---:|---:|---|---|")
    count = len(options.seeds)
    for place, (case_name, labels) in enumerate(rows):
        runs = found[place * count : (place + 1) * count]
        for way in runs[0]:
            means = {metric: float(np.mean([run[way][metric] for run in runs])) for metric in METRICS}
            cells = [f"{100 * means['accuracy']:.1f} %", f"{means['nll']:.3f}", f"{100 * means['ece']:.1f} %"]
            for metric, factor in (("accuracy", 100), ("nll", 1)):
                each = [factor * (run[way][metric] - run["none"][metric]) for run in runs]
                difference = compute_difference(each, seeds=count)
                ends = "" if difference.low is None else f", {difference.low:+.3g} to {difference.high:+.3g}"
                cells.append("" if way == "none" else f"{difference.mean:+.3g}{ends}")
            print(f"| {case_name} | {labels} | {way} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
