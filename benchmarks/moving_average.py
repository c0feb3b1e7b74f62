"""What a small batch does to the summary term, and what a moving average of the histogram mends.

First the force on a prediction, without any network: scores from a known distribution over ten bins, a uniform s0,
concentration 1000. The force on the predictions of a region is the derivative of the log-likelihood by moving one of
them elsewhere, averaged over batches; it is compared with the force of a batch without end. Then training: a small
network on noisy digits, with the same seeds for both ways.

    python benchmarks/moving_average.py                # about ten minutes on two cores
    python benchmarks/moving_average.py --seeds 1      # quicker
"""

import argparse
import platform

import torch
from torch import Tensor

import selbo
from tasks import noisy_digits

CONCENTRATION = 1000.0
MASSES = torch.tensor([0.3, *[0.05] * 8, 0.3], dtype=torch.float64)
S0 = torch.full((10,), 0.1, dtype=torch.float64)
BATCH_SIZES = (8, 32, 64, 256)
DECAYS = (None, 0.9, 0.99)


def log_prob_and_slope(histogram: Tensor) -> tuple[Tensor, Tensor]:
    """Log-likelihood and its derivative by each region's mass."""
    h = histogram.detach().requires_grad_()
    value = selbo.dirichlet_process_log_prob(h, s0=S0, concentration=CONCENTRATION)
    return value.detach(), torch.autograd.grad(value.sum(), h)[0]


def forces(batch_size: int, decay: float | None, *, batches: int, generator: torch.Generator) -> tuple[Tensor, float]:
    """Mean force on a prediction of each region, and mean log-likelihood, once the average has run in."""
    average, weight, run_in = torch.zeros_like(MASSES), 0.0, 0 if decay is None else int(5 / (1 - decay))
    total, values = torch.zeros_like(MASSES), 0.0
    for batch in range(run_in + batches):
        regions = torch.multinomial(MASSES, batch_size, replacement=True, generator=generator)
        now = torch.bincount(regions, minlength=10).double() / batch_size
        at = now
        if decay is not None:
            average, weight = decay * average + (1 - decay) * now, decay * weight + 1 - decay
            at = average / weight
        if batch >= run_in:
            value, slope = log_prob_and_slope(at.clamp(min=1e-7))
            total += now * (slope - (now * slope).sum())
            values += value.item()
    # a batch is its own yardstick here, which alone would make the force smaller by 1 - 1/B
    return total / batches / MASSES * batch_size / (batch_size - 1), values / batches


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=5000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, {platform.machine()}, {arguments.seeds} seeds, {arguments.batches} batches\n")

    exact_value, slope = log_prob_and_slope(MASSES)
    exact = slope - (MASSES * slope).sum()
    generator = torch.Generator().manual_seed(0)
    print(
        f"Exact: log-likelihood {exact_value.item():.1f}, force {exact[0].item():.0f} (ends), {exact[5].item():.0f}\n"
    )
    print("| batch size | moving average | log-likelihood less exact | force at the ends | force in the middle |")
    print("|---|---|---|---|---|")
    for batch_size in BATCH_SIZES:
        for decay in DECAYS:
            force, value = forces(batch_size, decay, batches=arguments.batches, generator=generator)
            ends, middle = (force[0] + force[-1]) / 2, force[1:-1].mean()
            print(
                f"| {batch_size} | {'none' if decay is None else decay} | {value - exact_value.item():.1f} | "
                f"{ends.item():.0f} ({100 * (ends / exact[0]).item():.0f} %) | "
                f"{middle.item():.0f} ({100 * (middle / exact[5]).item():.0f} %) |",
                flush=True,
            )

    belief = selbo.expect(accuracy=0.7, num_classes=10)
    partition = selbo.ConfidenceBins([0.3, 0.5, 0.7, 0.9], num_classes=10)
    print("\n| batch size | summary | NLL | accuracy | ECE |\n|---|---|---|---|---|")
    for batch_size in BATCH_SIZES:
        for label, decay in (
            ("no summary", None),
            ("this batch alone", None),
            ("average, 0.9", 0.9),
            ("average, 0.99", 0.99),
        ):
            results = []
            for seed in range(arguments.seeds):
                summary = selbo.SummaryLikelihood(partition, belief, concentration=400.0, ema_decay=decay)
                term = None if label == "no summary" else summary
                results.append(noisy_digits.scores(term, seed=seed, batch_size=batch_size))
            print(f"| {batch_size} | {label} | {noisy_digits.row(results)} |", flush=True)


if __name__ == "__main__":
    main()
