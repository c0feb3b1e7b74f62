"""How soft should edges be, and in which space? The summary term alone moves free logits towards s0.

The toy has no network and no labels: 2048 logits, the DP term with concentration 1000, Adam. Printed is the total
variation distance between s0 and the hard histogram at the end, the mean over seeds; 0 is perfect, 1 the worst.

Then a network: the noisy digits of `examples/digits.py`, ten classes, five seeds, with each kind of edge.

    python benchmarks/edges.py                  # about half an hour on one core
    python benchmarks/edges.py --steps 300      # a quick look
"""

import argparse
import itertools
import platform

import torch
from torch import Tensor

import selbo
from tasks import noisy_digits

PARTITIONS = {
    "10 equal bins": [i / 10 for i in range(1, 10)],
    "7 unequal bins of the paper": [0.01, 0.05, 0.10, 0.90, 0.95, 0.99],
    "7 far bins": [0.001, 0.01, 0.10, 0.90, 0.99, 0.999],
}
STARTS = {"over-confident": (6.0, 1.0), "saturated": (15.0, 1.0), "central": (0.0, 0.3)}
BELIEFS = {"uniform": selbo.Uniform(), "Beta(.2, .3)": selbo.Beta(0.2, 0.3), "Beta(5, 5)": selbo.Beta(5, 5)}


def start_logits(start: str, seed: int) -> Tensor:
    """2048 logits around plus and minus a centre."""
    generator = torch.Generator().manual_seed(seed)
    centre, spread = STARTS[start]
    sign = torch.where(torch.rand(2048, generator=generator) < 0.5, -1.0, 1.0)
    return sign * centre + spread * torch.randn(2048, generator=generator)


def train(partition: selbo.ScoreBins, belief: selbo.Beta, logits: Tensor, *, steps: int, anneal: bool) -> float:
    """Total variation of the hard histogram to s0 after training the logits on the DP term alone."""
    summary = selbo.SummaryLikelihood(partition, belief, concentration=1000.0)
    logits = logits.clone().requires_grad_()
    optimizer = torch.optim.Adam([logits], lr=0.05)
    for step in range(steps):
        if anneal:
            partition.set_slope_factor(50.0 ** (step / (steps - 1)))
        optimizer.zero_grad()
        (-summary(log_probs(logits))).backward()
        optimizer.step()
    regions = partition.assign(log_probs(logits.detach()))
    hard = torch.bincount(regions, minlength=partition.num_regions) / len(regions)
    return 0.5 * (hard - summary.s0).abs().sum().item()


def log_probs(logits: Tensor) -> Tensor:
    """Log-probabilities of two classes from the logit of the second."""
    return torch.stack([torch.nn.functional.logsigmoid(-logits), torch.nn.functional.logsigmoid(logits)], -1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, {platform.machine()}, {arguments.steps} steps, {arguments.seeds} seed(s)\n")
    cases = list(itertools.product(STARTS, BELIEFS))
    for name, edges in PARTITIONS.items():
        print(f"### {name}\n\n| space | slope factor | " + " | ".join(f"{s} to {b}" for s, b in cases) + " | worst |")
        print("|---" * (len(cases) + 3) + "|")
        for space, factor in itertools.product(("logit", "probability"), (3.0, 5.0, 7.0, 10.0, None)):
            row = []
            for start, belief in cases:
                distances = [
                    train(
                        selbo.ScoreBins(edges, space=space, slope_factor=factor or 1.0),
                        BELIEFS[belief],
                        start_logits(start, seed),
                        steps=arguments.steps,
                        anneal=factor is None,
                    )
                    for seed in range(arguments.seeds)
                ]
                row.append(sum(distances) / len(distances))
            label = "1 to 50" if factor is None else f"{factor:g}"
            print(f"| {space} | {label} | " + " | ".join(f"{d:.3f}" for d in row) + f" | {max(row):.3f} |", flush=True)
        print()
    network_table()


def network_table() -> None:
    """Noisy digits with each kind of edge."""
    edges, belief = [0.3, 0.5, 0.7, 0.9], selbo.expect(accuracy=0.7, num_classes=10)
    print("### Noisy digits\n\n| space | slope factor | NLL | accuracy | ECE |\n|---|---|---|---|---|")
    print(
        f"| no summary | | {noisy_digits.row([noisy_digits.scores(None, seed=seed) for seed in range(5)])} |",
        flush=True,
    )
    for space, factor in itertools.product(("logit", "probability"), (3.0, 5.0, 7.0, 10.0)):
        partition = selbo.ConfidenceBins(edges, num_classes=10, space=space, slope_factor=factor)
        summary = selbo.SummaryLikelihood(partition, belief, concentration=400.0)
        results = [noisy_digits.scores(summary, seed=seed) for seed in range(5)]
        print(f"| {space} | {factor:g} | {noisy_digits.row(results)} |", flush=True)


if __name__ == "__main__":
    main()
