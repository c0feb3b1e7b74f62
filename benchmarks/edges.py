"""How soft should edges be, and in which space? The summary term alone moves free logits towards s0.

The toy has no network and no labels: 2048 logits, the DP term with concentration 1000, Adam. Printed is the total
variation distance between s0 and the hard histogram at the end, the mean over seeds; 0 is perfect, 1 the worst.

Then a network: the noisy digits of `examples/digits.py`, ten classes, five seeds, with each kind of edge.

    python benchmarks/edges.py                  # about twenty minutes on a busy core
    python benchmarks/edges.py --steps 300      # a quick look
    python benchmarks/edges.py --spaces logit   # half of it

Last the requirement on the default: four cases, many starts, two learning rates.

    python benchmarks/edges.py --default --seeds 20
"""

import argparse
import itertools
import platform

import torch
from torch import Tensor

import selbo
from selbo.summary.beliefs import Belief
from tasks import noisy_digits

PARTITIONS = {
    "10 equal bins": [i / 10 for i in range(1, 10)],
    "7 unequal bins of the paper": [0.01, 0.05, 0.10, 0.90, 0.95, 0.99],
    "7 far bins": [0.001, 0.01, 0.10, 0.90, 0.99, 0.999],
}
SLOPE_FACTORS = {"logit": (5.0, 10.0, 15.0, 20.0), "probability": (3.0, 5.0, 7.0, 10.0)}
STARTS = {"over-confident": (6.0, 1.0), "saturated": (15.0, 1.0), "central": (0.0, 0.3)}
BELIEFS = {"uniform": selbo.Uniform(), "Beta(.2, .3)": selbo.Beta(0.2, 0.3), "Beta(5, 5)": selbo.Beta(5, 5)}


def start_logits(start: str, seeds: int) -> Tensor:
    """2048 logits around plus and minus a centre, a row for each seed."""
    return torch.stack([_start_logits(*STARTS[start], torch.Generator().manual_seed(seed)) for seed in range(seeds)])


def _start_logits(centre: float, spread: float, generator: torch.Generator) -> Tensor:
    sign = torch.where(torch.rand(2048, generator=generator) < 0.5, -1.0, 1.0)
    return sign * centre + spread * torch.randn(2048, generator=generator)


def train(
    partition: selbo.ScoreBins,
    belief: Belief,
    logits: Tensor,
    *,
    steps: int,
    anneal: bool = False,
    lr: float = 0.05,
) -> Tensor:
    """Total variation of the hard histogram to s0 after training the logits on the DP term alone, row by row.

    Rows do not touch each other: each has its own histogram and term, and Adam looks at every number by itself.
    """
    summary = selbo.SummaryLikelihood(partition, belief, concentration=1000.0)
    logits = logits.clone().requires_grad_()
    optimizer = torch.optim.Adam([logits], lr=lr)
    for step in range(steps):
        if anneal:
            partition.set_slope_factor(50.0 ** (step / (steps - 1)))
        optimizer.zero_grad()
        (-summary(log_probs(logits))).sum().backward()
        optimizer.step()
    regions = partition.assign(log_probs(logits.detach()))
    hard = torch.nn.functional.one_hot(regions, partition.num_regions).double().mean(-2)
    return 0.5 * (hard - summary.s0).abs().sum(-1)


def log_probs(logits: Tensor) -> Tensor:
    """Log-probabilities of two classes from the logit of the second."""
    return torch.stack([torch.nn.functional.logsigmoid(-logits), torch.nn.functional.logsigmoid(logits)], -1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--spaces", nargs="+", choices=SLOPE_FACTORS, default=list(SLOPE_FACTORS))
    parser.add_argument("--default", action="store_true", help="only the default, from many starts")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, {platform.machine()}, {arguments.seeds} seed(s)\n")
    if arguments.default:
        default_table(arguments.seeds)
        return
    print(f"{arguments.steps} steps\n")
    cases = list(itertools.product(STARTS, BELIEFS))
    for name, edges in PARTITIONS.items():
        print(f"### {name}\n\n| space | slope factor | " + " | ".join(f"{s} to {b}" for s, b in cases) + " | worst |")
        print("|---" * (len(cases) + 3) + "|")
        for space, factor in kinds(arguments.spaces, annealed=True):
            partition = selbo.ScoreBins(edges, space=space, slope_factor=factor)
            starts = torch.cat([start_logits(start, arguments.seeds) for start in STARTS])
            row = {}
            for name_of_belief, belief in BELIEFS.items():
                ends = train(partition, belief, starts, steps=arguments.steps, anneal=factor is None)
                means = ends.unflatten(0, (len(STARTS), arguments.seeds)).mean(-1).tolist()
                row.update({(start, name_of_belief): mean for start, mean in zip(STARTS, means, strict=True)})
            label = "1 to 50" if factor is None else f"{factor:g}"
            cells = " | ".join(f"{row[case]:.3f}" for case in cases)
            print(f"| {space} | {label} | {cells} | {max(row.values()):.3f} |", flush=True)
        print()
    network_table(arguments.spaces)


def kinds(spaces: list[str], *, annealed: bool) -> list[tuple[str, float | None]]:
    """Space and slope factor of each row; None is a slope factor that grows."""
    return [(space, factor) for space in spaces for factor in (*SLOPE_FACTORS[space], *([None] if annealed else []))]


def default_table(seeds: int) -> None:
    """Ten equal bins and default edges: how far from s0, over seeds, at two learning rates."""
    print("| learning rate | steps | start | target | mean | worst | runs above .05 |\n|---|---|---|---|---|---|---|")
    for lr, steps in ((0.05, 1000), (0.02, 1500)):
        for start, belief in itertools.product(("over-confident", "central"), ("uniform", "Beta(5, 5)")):
            bins = selbo.ScoreBins(PARTITIONS["10 equal bins"])
            runs = train(bins, BELIEFS[belief], start_logits(start, seeds), steps=steps, lr=lr)
            cells = (lr, steps, start, belief, f"{runs.mean():.3f}", f"{runs.max():.3f}", int((runs > 0.05).sum()))
            print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def network_table(spaces: list[str]) -> None:
    """Noisy digits with each kind of edge."""
    edges, belief = [0.3, 0.5, 0.7, 0.9], selbo.expect(accuracy=0.7, num_classes=10)
    print("### Noisy digits\n\n| space | slope factor | NLL | accuracy | ECE |\n|---|---|---|---|---|")
    print(
        f"| no summary | | {noisy_digits.row([noisy_digits.scores(None, seed=seed) for seed in range(5)])} |",
        flush=True,
    )
    for space, factor in kinds(spaces, annealed=False):
        partition = selbo.ConfidenceBins(edges, num_classes=10, space=space, slope_factor=factor)
        summary = selbo.SummaryLikelihood(partition, belief, concentration=400.0)
        results = [noisy_digits.scores(summary, seed=seed) for seed in range(5)]
        print(f"| {space} | {factor:g} | {noisy_digits.row(results)} |", flush=True)


if __name__ == "__main__":
    main()
