"""Does a belief swap classes? Accuracy with the summary term from the first step, and with labels first."""

import argparse

import numpy as np
import torch
from torch import Tensor

import selbo
from selbo.presets import summary_for

FRACTIONS = {"balanced": (0.5, 0.5), "90:10": (0.9, 0.1), "three classes": (1 / 3, 1 / 3, 1 / 3)}
CENTRES = {2: [[0.0, 0.0], [2.6, 1.0]], 3: [[0.0, 0.0], [2.6, 0.0], [0.0, 2.6]]}
ACCURACY = {"balanced": 0.9, "90:10": 0.95, "three classes": 0.88}
LABELS, TESTED, STEPS = 200, 2000, 400


def clouds(case: str, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Gaussian clouds in three columns, one of them noise."""
    rng, fractions = np.random.default_rng(seed), FRACTIONS[case]
    labels = rng.choice(len(fractions), size=count, p=fractions)
    centres = np.pad(np.array(CENTRES[len(fractions)]), ((0, 0), (0, 1)))
    inputs = centres[labels] + rng.normal(size=(count, 3))
    return torch.tensor((inputs - 1) / 1.5, dtype=torch.float32), torch.tensor(labels)


def accuracy(case: str, times: float, seed: int, *, waits: bool) -> float:
    """Of one network, trained with a true belief at so many times the number of labels."""
    inputs, labels = clouds(case, LABELS, seed)
    summary = summary_for(FRACTIONS[case], accuracy=ACCURACY[case], concentration=times * LABELS)
    generator = torch.Generator().manual_seed(seed)
    network = selbo.models.MLP((3, 128, len(FRACTIONS[case])), generator=generator)
    network = selbo.to_bayesian(network, prior_std=0.2, init_std=0.03)
    objective = selbo.SummaryELBO(summary, LABELS, kl_weight=0.1, summary_warmup=None if waits else 0)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    for step in range(STEPS):
        optimizer.zero_grad()
        objective(network, inputs, labels, generator=generator, step=step, steps=STEPS).loss.backward()
        optimizer.step()
    tested, truth = clouds(case, TESTED, seed + 1000)
    return selbo.evaluate(selbo.predict(network, tested, 32, generator=generator).probs, truth)["accuracy"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=8, help="number of seeds")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'case':<15}{'times N':>8}  {'from the first step':>20}  {'labels first':>14}   mean (lowest)")
    for case in FRACTIONS:
        for times in (1, 3, 10):
            found = [[accuracy(case, times, s, waits=waits) for s in range(arguments.seeds)] for waits in (False, True)]
            first, waiting = (f"{np.mean(each):.3f} ({min(each):.3f})" for each in found)
            print(f"{case:<15}{times:>8}  {first:>20}  {waiting:>14}", flush=True)


if __name__ == "__main__":
    main()
