"""What the summary term costs, against one forward and backward pass of a LeNet, batch 256, on this machine's CPU.

Contenders take turns; the median of the repeats is printed, with the quartiles.

    python benchmarks/summary_cost.py [--repeats 100] [--threads 2]
"""

import argparse
import platform
import time
from collections.abc import Callable

import torch
from torch import nn

import selbo
from selbo.models import LeNet


def contenders(batch_size: int) -> dict[str, Callable[[], None]]:
    """Named pieces of work, each a forward and a backward pass."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(batch_size, 1, 28, 28, generator=generator)
    work: dict[str, Callable[[], None]] = {}
    for num_classes in (2, 10):
        network = LeNet(num_classes)
        labels = torch.randint(num_classes, (batch_size,), generator=generator)

        def step(network: nn.Module = network, labels: torch.Tensor = labels) -> None:
            network.zero_grad()
            torch.nn.functional.nll_loss(network(images).log_softmax(-1), labels).backward()

        work[f"LeNet, {num_classes} classes"] = step
    partitions = {
        "10 score bins": selbo.ScoreBins.equal(10),
        "corner shells, 10 classes": selbo.CornerShells(10),
        "class regions, 10 classes": selbo.ClassRegions(10),
        "confidence bins, 10 classes": selbo.ConfidenceBins([0.3, 0.5, 0.7, 0.9], num_classes=10),
    }
    for name, partition in partitions.items():
        summary = selbo.SummaryLikelihood(partition, selbo.Uniform())
        logits = torch.randn(batch_size, partition.num_classes, generator=generator).requires_grad_()

        def term(summary: nn.Module = summary, logits: torch.Tensor = logits) -> None:
            logits.grad = None
            summary(logits.log_softmax(-1)).backward()

        work[f"summary term, {name}"] = term
    return work


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--batch-size", type=int, default=256)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(
        f"torch {torch.__version__}, {platform.machine()}, {arguments.threads} threads, batch {arguments.batch_size}\n"
    )
    work = contenders(arguments.batch_size)
    times: dict[str, list[float]] = {name: [] for name in work}
    for repeat in range(arguments.repeats + 3):
        for name, run in work.items():
            start = time.perf_counter()
            run()
            if repeat >= 3:  # the first rounds warm up
                times[name].append(1000 * (time.perf_counter() - start))
    network = torch.tensor(times["LeNet, 10 classes"]).median().item()
    print("| forward and backward | median ms | quartiles | of LeNet, 10 classes |\n|---|---|---|---|")
    for name, values in times.items():
        low, median, high = torch.tensor(values).quantile(torch.tensor([0.25, 0.5, 0.75])).tolist()
        print(f"| {name} | {median:.3f} | {low:.3f} to {high:.3f} | {100 * median / network:.2f} % |")


if __name__ == "__main__":
    main()
