"""How sure the likelihood of class counts wants predictions to be, exact and Gaussian, against the labels themselves.

Labels are sampled from known probabilities, random logits with a standard deviation of 4, and counted by group. The
logits are divided by a temperature; where the likelihood of the counts is highest should be 1. Printed is that
temperature by group size: mean over the seeds and its standard error.

    python benchmarks/count_likelihood.py [--seeds 8] [--rows 24000]
"""

import argparse
import math

import torch
from torch import Tensor

import selbo
from selbo.objectives import log_prob_of_labels

SIZES = (4, 8, 16, 32, 64, 128)
TEMPERATURES = [1.02**k for k in range(-25, 26)]
SHARPNESS = 4.0


def sampled(rows: int, classes: int, seed: int) -> tuple[Tensor, Tensor]:
    """Log-probabilities, (rows, classes), and labels that were sampled from them."""
    generator = torch.Generator().manual_seed(seed)
    logits = SHARPNESS * torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    log_probs = logits.log_softmax(-1)
    return log_probs, torch.multinomial(log_probs.exp(), 1, generator=generator).squeeze(1)


def likeliest(log_probs: Tensor, labels: Tensor, size: int, exact_up_to: int) -> float:
    """The temperature at which the counts of groups of this size are likeliest."""
    count, classes = len(labels) // size, log_probs.shape[-1]
    log_probs, groups = log_probs[: count * size], torch.arange(count).repeat_interleave(size)
    one_hot = torch.nn.functional.one_hot(labels[: count * size], classes).double()
    summary = selbo.GroupedSummary(
        selbo.ClassRegions(classes),
        one_hot.reshape(count, size, classes).mean(1),
        100.0 * size,
        form="counts",
        exact_up_to=exact_up_to,
    )
    return max(TEMPERATURES, key=lambda t: summary((log_probs / t).log_softmax(-1), groups).item())


def by_labels(log_probs: Tensor, labels: Tensor) -> float:
    """The temperature at which the labels are likeliest."""
    return max(
        TEMPERATURES,
        key=lambda t: log_prob_of_labels((log_probs / t).log_softmax(-1).unsqueeze(0), labels).sum().item(),
    )


def shown(values: list[float]) -> str:
    """Mean and standard error."""
    found = torch.tensor(values)
    return f"{found.mean().item():.2f} ± {found.std().item() / math.sqrt(len(values)):.2f}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--rows", type=int, default=24_000)
    options = parser.parse_args()
    print("| classes | likelihood | " + " | ".join(map(str, SIZES)) + " |")
    for classes in (2, 3, 10):
        draws = [sampled(options.rows, classes, seed) for seed in range(options.seeds)]
        for name, limit in (("Gaussian", 0), ("exact", max(SIZES))):
            columns = [shown([likeliest(*draw, size, limit) for draw in draws]) for size in SIZES]
            print(f"| {classes} | {name} | " + " | ".join(columns) + " |", flush=True)
        print(f"| {classes} | of the labels | {shown([by_labels(*draw) for draw in draws])} |", flush=True)


if __name__ == "__main__":
    main()
