"""Why a summary needs draws that are shared by the batch: what other estimators make of its likelihood.

A random MLP 20-64-2 with a Gaussian posterior, 256 inputs, no training. Printed is the mean over 512 draws of
log DP(s0 | s_theta, alpha), and how much the mass of the last region varies from draw to draw.

    python benchmarks/estimators.py
"""

import platform

import torch
from torch import nn

import selbo

DRAWS, EDGES = 512, [0.01, 0.05, 0.10, 0.90, 0.95, 0.99]


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(256, 20, generator=generator)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
    print(f"torch {torch.__version__}, {platform.machine()}, {DRAWS} draws, seed 0\n")
    print("| posterior std | estimator | alpha = 50 | alpha = 1000 | std of the last mass | mean score |")
    print("|---|---|---|---|---|---|")
    partition, belief = selbo.ScoreBins(EDGES), selbo.Beta(0.1, 0.1)
    for std in (0.01, 0.1, 0.3):
        bnn = selbo.to_bayesian(network, init_std=std)
        for estimator in ("shared", "local", "flipout"):
            with torch.no_grad():
                logits = selbo.forward_samples(bnn, inputs, DRAWS, generator=generator, estimator=estimator)
            log_probs = logits.log_softmax(-1)
            values = [
                selbo.SummaryLikelihood(partition, belief, alpha)(log_probs).mean().item() for alpha in (50.0, 1000.0)
            ]
            masses = partition.memberships(log_probs).mean(-2)[:, -1]
            cells = " | ".join(f"{value:.1f}" for value in values)
            score = log_probs[..., 1].exp().mean().item()
            print(f"| {std} | {estimator} | {cells} | {masses.std().item():.3f} | {score:.3f} |")


if __name__ == "__main__":
    main()
