"""What the summary term costs, against one forward and backward pass of a LeNet, batch 256.

Contenders take turns; the median of the repeats is printed, with the quartiles. On a GPU every contender is compiled
and captured in a CUDA graph, and LeNet also runs together with the summary term.

    python benchmarks/summary_cost.py [--repeats 100] [--threads 2]
    python benchmarks/summary_cost.py --device cuda
"""

import argparse
import platform
import time
from collections.abc import Callable

import torch
from torch import nn

import selbo
from selbo.models import LeNet

Work = Callable[[], torch.Tensor]
WARM_UP = 3  # rounds
REPLAYS = 20  # of a CUDA graph in one measurement, which a clock on the host could not resolve otherwise


def contenders(batch_size: int, device: torch.device) -> dict[str, tuple[Work, list[torch.Tensor]]]:
    """Named pieces of work: a loss, and the tensors to differentiate it by."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(batch_size, 1, 28, 28, generator=generator).to(device)
    work: dict[str, tuple[Work, list[torch.Tensor]]] = {}

    def add_network(num_classes: int, summary: nn.Module | None = None) -> None:
        network = LeNet(num_classes, generator=torch.Generator().manual_seed(0)).to(device)
        labels = torch.randint(num_classes, (batch_size,), generator=generator).to(device)

        def loss() -> torch.Tensor:
            log_probs = network(images).log_softmax(-1)
            value = torch.nn.functional.nll_loss(log_probs, labels)
            return value if summary is None else value - summary(log_probs) / batch_size

        name = f"LeNet, {num_classes} classes"
        work[name if summary is None else f"{name}, with the summary term"] = loss, list(network.parameters())

    partitions = {
        "10 score bins": selbo.ScoreBins.equal(10),
        "corner shells, 10 classes": selbo.CornerShells(10),
        "class regions, 10 classes": selbo.ClassRegions(10),
        "confidence bins, 10 classes": selbo.ConfidenceBins([0.3, 0.5, 0.7, 0.9], num_classes=10),
    }
    for num_classes, partition in ((2, partitions["10 score bins"]), (10, partitions["corner shells, 10 classes"])):
        add_network(num_classes)
        if device.type == "cuda":
            add_network(num_classes, selbo.SummaryLikelihood(partition, selbo.Uniform()).to(device))
    for name, partition in partitions.items():
        summary = selbo.SummaryLikelihood(partition, selbo.Uniform()).to(device)
        logits = torch.randn(batch_size, partition.num_classes, generator=generator).to(device).requires_grad_()

        def term(summary: nn.Module = summary, logits: torch.Tensor = logits) -> torch.Tensor:
            value: torch.Tensor = summary(logits.log_softmax(-1))
            return value

        work[f"summary term, {name}"] = term, [logits]
    return work


def eager(loss: Work, leaves: list[torch.Tensor]) -> Callable[[], None]:
    """A forward and a backward pass."""

    def run() -> None:
        for leaf in leaves:
            leaf.grad = None
        loss().backward()

    return run


def captured(loss: Work, leaves: list[torch.Tensor]) -> Callable[[], None]:
    """The same, compiled, as replays of one CUDA graph; all that it reads and writes lives as long as the result."""
    run = eager(torch.compile(loss, dynamic=False), leaves)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        run()
    kept = (loss, leaves, [leaf.grad for leaf in leaves])

    def replay() -> None:
        assert kept
        for _ in range(REPLAYS):
            graph.replay()

    return replay


def measure(work: dict[str, Callable[[], None]], repeats: int, device: torch.device) -> dict[str, list[float]]:
    """Milliseconds of each piece of work, round by round."""
    is_cuda = device.type == "cuda"
    times: dict[str, list[float]] = {name: [] for name in work}
    for repeat in range(repeats + WARM_UP):
        for name, run in work.items():
            if is_cuda:
                torch.cuda.synchronize()
            start = time.perf_counter()
            run()
            if is_cuda:
                torch.cuda.synchronize()
            if repeat >= WARM_UP:
                times[name].append(1000 * (time.perf_counter() - start) / (REPLAYS if is_cuda else 1))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--batch-size", type=int, default=256)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    device = torch.device(arguments.device)
    is_cuda = device.type == "cuda"
    machine = torch.cuda.get_device_name() if is_cuda else f"{platform.machine()}, {arguments.threads} threads"
    print(f"torch {torch.__version__}, {machine}, batch {arguments.batch_size}\n")
    build = captured if is_cuda else eager
    work = {name: build(*each) for name, each in contenders(arguments.batch_size, device).items()}
    times = measure(work, arguments.repeats, device)
    network = torch.tensor(times["LeNet, 10 classes"]).median().item()
    print("| forward and backward | median ms | quartiles | of LeNet, 10 classes |\n|---|---|---|---|")
    for name, values in times.items():
        low, median, high = torch.tensor(values).quantile(torch.tensor([0.25, 0.5, 0.75])).tolist()
        print(f"| {name} | {median:.3f} | {low:.3f} to {high:.3f} | {100 * median / network:.2f} % |")


if __name__ == "__main__":
    main()
