"""A step of an ensemble whose members are trained side by side, and k steps of one network.

`selbo.fit` on random images, batches of 256. Milliseconds per step are the difference between a long and a short run,
which leaves out what happens once; the median over turns, in which all rows alternate. Processor time on a CPU, where
one thread is used, so that other work on the machine matters little; elapsed time on a GPU.

    python benchmarks/ensembles.py [--members 5] [--device cuda --models vgg11]
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import nn

import selbo
from selbo import models
from selbo.posteriors import Ensemble, NaturalGradientEnsemble, Posterior

N: Final = 2048
NETWORKS: Final[dict[str, tuple[tuple[int, ...], Callable[[], nn.Module]]]] = {
    "mlp": ((768,), lambda: models.MLP((768, 128, 10))),
    "lenet": ((1, 28, 28), lambda: models.LeNet(10)),
    "vgg11": ((3, 32, 32), lambda: models.VGG11(10)),
}
STEPS: Final = {"mlp": 150, "lenet": 16, "vgg11": 400}
"""Steps of the longer run; the shorter one has a quarter."""


class Row:
    """One network or k of them, trained in one way."""

    def __init__(self, model: str, natural: bool, members: int, device: torch.device) -> None:
        self.shape, self.make = NETWORKS[model]
        self.natural, self.members, self.device = natural, members, device
        generator = torch.Generator().manual_seed(0)
        self.data = (
            torch.randn(N, *self.shape, generator=generator).to(device),
            torch.randint(10, (N,), generator=generator).to(device),
        )

    def network(self) -> nn.Module | Posterior:
        if self.members == 1:
            with torch.random.fork_rng():
                return self.make()
        if self.natural:
            return NaturalGradientEnsemble(self.make, self.members, num_data=N, seed=0)
        return Ensemble(self.make, self.members, seed=0)

    def seconds(self, steps: int) -> float:
        settings: dict[str, Any] = {"steps": steps, "batch_size": 256, "callbacks": (), "device": self.device}
        if self.device.type == "cuda":
            settings |= {"precision": "bf16", "engine": "compile+cudagraph"}
        if self.natural and self.members == 1:
            settings["posterior"] = "natural_gradient"
        network, on_gpu = self.network(), self.device.type == "cuda"
        clock = time.perf_counter if on_gpu else time.process_time
        begin = clock()
        selbo.fit(network, selbo.CrossEntropy(N), self.data, **settings)
        if on_gpu:
            torch.cuda.synchronize()
        return clock() - begin

    def milliseconds(self, steps: int) -> float:
        few = steps // 4
        return 1000 * (self.seconds(steps) - self.seconds(few)) / (steps - few)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--models", nargs="+", choices=list(NETWORKS), default=["mlp", "lenet"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    device = torch.device(options.device)
    torch.set_num_threads(1)
    where = torch.cuda.get_device_name() if device.type == "cuda" else platform.machine()
    print(f"torch {torch.__version__}, {where}, {options.members} members, ms per step\n")
    print("| network | posterior | side by side | one network, times members | ratio |")
    print("|---|---|---:|---:|---:|")
    for model in options.models:
        for natural in (False, True):
            together, single = (Row(model, natural, members, device) for members in (options.members, 1))
            for row in (together, single):
                row.seconds(2)  # compiles and allocates
            turns = [
                (together.milliseconds(STEPS[model]), single.milliseconds(STEPS[model])) for _ in range(options.turns)
            ]
            one, other = (statistics.median(each) for each in zip(*turns, strict=True))
            kind, other = "natural gradient" if natural else "none", options.members * other
            print(f"| {model} | {kind} | {one:.1f} | {other:.1f} | {one / other:.2f} |", flush=True)


if __name__ == "__main__":
    main()
