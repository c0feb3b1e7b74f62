"""How strong a prior temperature scaling needs: expected NLL by the number of validation labels.

Networks are made up, so that the true probabilities are known and the NLL of a temperature needs no test labels. Logits
are normal, and too large by a factor of .5 to 5. In the first kind of task labels are drawn from the softmax of the
logits before that factor; in the second the largest logit is the label in 95 % of all cases, however large it is, which
a small validation set often does not show.

    python benchmarks/temperature.py                  # about three minutes on one core
    python benchmarks/temperature.py --repeats 10     # quicker
"""

import argparse
import itertools
import platform

import numpy as np
import torch
from torch import Tensor

from selbo.evaluation import calibrate

STRENGTHS = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0)
SIZES = (5, 10, 20, 50, 200, 1000, 2000)
FACTORS = (0.5, 1.0, 2.0, 5.0)
CLASSES = (2, 10)
KINDS = ("scaled", "flat")
STD, CORRECT, TEST_SIZE = 3.0, 0.95, 4000


def draw(
    kind: str, num_classes: int, factor: float, size: int, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, true probabilities and labels."""
    logits = STD * torch.randn(size, num_classes, generator=generator, dtype=torch.float64)
    probs = logits.softmax(-1)
    if kind == "flat":
        probs = torch.full_like(logits, (1 - CORRECT) / (num_classes - 1))
        probs.scatter_(1, logits.argmax(-1, keepdim=True), CORRECT)
    return factor * logits, probs, torch.multinomial(probs, 1, generator=generator)[:, 0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=100)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, {platform.machine()}, {arguments.repeats} validation sets for each number\n")
    worlds = list(itertools.product(KINDS, CLASSES, FACTORS))
    excess = np.zeros((len(worlds), len(SIZES), len(STRENGTHS)))  # of the expected NLL over that at T = 1
    moved = np.zeros_like(excess)
    extreme = np.zeros((2, len(STRENGTHS)))
    extreme[0] = np.inf
    for w, (kind, num_classes, factor) in enumerate(worlds):
        generator = torch.Generator().manual_seed(w)
        logits, probs, _ = draw(kind, num_classes, factor, TEST_SIZE, generator)
        grid = torch.linspace(np.log(1e-2), np.log(1e2), 401, dtype=torch.float64)
        nll = np.array([-(probs * calibrate.scale(logits, t)).sum(-1).mean().item() for t in grid.exp().tolist()])
        at_one = nll[200]
        for (n, size), _ in itertools.product(enumerate(SIZES), range(arguments.repeats)):
            val, _, labels = draw(kind, num_classes, factor, size, generator)
            fitted = [calibrate.temperature(val, labels, prior_strength=strength) for strength in STRENGTHS]
            excess[w, n] += (np.interp(np.log(fitted), grid, nll) - at_one) / arguments.repeats
            moved[w, n] += np.abs(np.log(fitted) - np.log(fitted[0])) / arguments.repeats
            extreme = np.stack([np.minimum(extreme[0], fitted), np.maximum(extreme[1], fitted)])
    for title, values in (
        ("NLL less that at T = 1, mean over tasks", excess.mean(0)),
        ("the same, worst task", excess.max(0)),
        ("difference of log T from maximum likelihood, worst task", moved.max(0)),
    ):
        print(f"{title}\n\n| labels | {' | '.join(f'c = {each:g}' for each in STRENGTHS)} |\n|{'---|' * 7}")
        for size, row in zip(SIZES, values, strict=True):
            print(f"| {size} | {' | '.join(f'{each:.3f}' for each in row)} |")
        print()
    print("lowest and highest temperature:", *(f"{a:.3g} to {b:.3g};" for a, b in extreme.T))


if __name__ == "__main__":
    main()
