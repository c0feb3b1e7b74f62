"""Concentration of a belief about the target domain: from N/10 to 30 N, with and without warm-up.

Sentences of SST-2, embedded; a network 768-128-2, KL x 0.1, two draws, batches of 128. Each case trains on few labels,
or on labels of another domain, and states `expect(accuracy=...)` of 3000 unlabelled inputs of the target domain. Scores
are those of the validation part, as it is in that domain: no test sentence has a say. Seeds from 1000 on, for no study.

    python benchmarks/deployment.py                                        # about an hour on one core
    python benchmarks/deployment.py --cases "20 labels" --seeds 1000 1001  # a few minutes
"""

import argparse
import json
import platform
import statistics
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

import selbo
from selbo.random import derive, generator_for
from selbo_lab.data.dataset import LabelledData
from selbo_lab.data.sst import sst, with_noise

RATIOS = (0.1, 1.0, 3.0, 10.0, 30.0)
SEEDS = (1000, 1001, 1002)
UNLABELLED = 3000
BATCH_SIZE = 128


class Case(NamedTuple):
    """Labels to train on, what is stated about the target domain, and how that differs."""

    labels: int
    share: float = 0.5  # of class 1 among the training sentences
    noise: float = 0.0  # in the target domain
    accuracy: float = 0.88


CASES = {
    "label shift, 300": Case(300, share=0.1),
    "label shift, 1000": Case(1000, share=0.1),
    "20 labels": Case(20),
    "50 labels": Case(50),
    "noise": Case(1000, noise=0.7, accuracy=0.85),
    "noise, stated .95": Case(1000, noise=0.7, accuracy=0.95),
}


def standardised(part: str) -> LabelledData:
    """Each feature less its mean over the training part, in units of its standard deviation there (if it has any)."""
    inputs, data = sst("train").inputs, sst(part)
    return data.with_inputs(
        (data.inputs - inputs.mean(0)) / inputs.std(0).clamp(min=1e-3), name=data.name, source=data.source
    )


def parts(case: Case, seed: int) -> tuple[tuple[Tensor, Tensor], Tensor, LabelledData]:
    """Labelled sentences, unlabelled ones of the target domain (none is in both), and the validation part there."""
    train, val = standardised("train"), standardised("val")
    order = torch.randperm(len(train.labels), generator=generator_for(seed, "sentences"))
    ones = order[train.labels[order] == 1][: round(case.share * case.labels)]
    zeros = order[train.labels[order] == 0][: case.labels - len(ones)]
    chosen = torch.cat([zeros, ones])
    rest = order[~torch.isin(order, chosen)]
    balanced = torch.cat([rest[train.labels[rest] == label][: UNLABELLED // 2] for label in (0, 1)])
    elsewhere = replace(train, name="unlabelled", inputs=train.inputs[balanced], labels=train.labels[balanced])
    there = with_noise(elsewhere, case.noise, seed=seed).inputs
    return (train.inputs[chosen], train.labels[chosen]), there, with_noise(val, case.noise, seed=seed)


def scores(case: Case, *, ratio: float, warm_up: int, seed: int, steps: int) -> list[float]:
    """NLL, accuracy and ECE of one run; a ratio of 0 is the ELBO."""
    train, there, val = parts(case, seed)
    net = selbo.models.MLP((768, 128, 2), generator=generator_for(seed, "network"))
    bnn = selbo.to_bayesian(net, prior_std=0.05, init_std=0.01)
    if ratio:
        belief = selbo.expect(accuracy=case.accuracy)
        summary = selbo.SummaryLikelihood(selbo.ScoreBins.equal(10), belief, ratio * case.labels)
        objective = selbo.SummaryELBO(summary, case.labels, kl_weight=0.1, summary_warmup=warm_up)
    else:
        objective = selbo.ELBO(case.labels, kl_weight=0.1)
    selbo.fit(
        bnn,
        objective,
        train,
        unlabelled=there if ratio else None,
        steps=steps,
        batch_size=BATCH_SIZE,
        num_samples=2,
        learning_rate=2e-3,
        seed=seed,
        callbacks=(),
    )
    noise = torch.Generator().manual_seed(derive(seed, "prediction"))
    found = selbo.evaluate(selbo.predict(bnn, val.inputs, 32, generator=noise).probs, val.labels)
    return [found["nll"], found["accuracy"], found["ece"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--ratios", type=float, nargs="+", default=[0.0, *RATIOS])
    parser.add_argument("--warm-ups", type=int, nargs="+", default=[0, 500])
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--out", type=Path, help="file of JSON lines, one a run; runs that it holds are not repeated")
    options = parser.parse_args()
    torch.set_num_threads(1)
    known = {}
    if options.out is not None and options.out.exists():
        lines = [json.loads(line) for line in options.out.read_text().splitlines()]
        known = {tuple(line["run"]): line["scores"] for line in lines}
    runs = [
        (name, seed, warm_up, ratio, options.steps)
        for seed in options.seeds
        for warm_up in options.warm_ups
        for name in options.cases
        for ratio in options.ratios
        if ratio or not warm_up
    ]
    rows = defaultdict(list)
    for run in runs:
        name, seed, warm_up, ratio, steps = run
        if run not in known:
            known[run] = scores(CASES[name], ratio=ratio, warm_up=warm_up, seed=seed, steps=steps)
            if options.out is not None:
                with options.out.open("a") as file:
                    file.write(json.dumps({"run": run, "scores": known[run]}) + "\n")
        rows[name, warm_up, ratio].append(known[run])
    print(f"torch {torch.__version__}, {platform.machine()}, seeds {options.seeds}, {options.steps} steps\n")
    print("| case | warm-up | concentration / N | seeds | NLL | accuracy | ECE |\n|---|---|---|---|---|---|---|")
    for (name, warm_up, ratio), found in rows.items():
        cells = [_mean_and_error(each) for each in zip(*found, strict=True)]
        told = f"{ratio:g}" if ratio else "no belief"
        print(f"| {name} | {warm_up} | {told} | {len(found)} | {' | '.join(cells)} |")


def _mean_and_error(values: tuple[float, ...]) -> str:
    mean = f"{statistics.mean(values):.3f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values) / len(values) ** 0.5:.3f}"


if __name__ == "__main__":
    main()
