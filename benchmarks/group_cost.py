"""What beliefs about many groups cost: a whole training step with 1, 1000 and 12 000 groups.

The step is that of an objective without labels: forward, backward, Adam. Contenders take turns; the median of the
repeats is printed with its quartiles, and the median of the differences from one group in the same round. On a CPU,
time is that of the processor, which other programs disturb less.

    python benchmarks/group_cost.py [--repeats 60] [--threads 1] [--device cuda]
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

import selbo

COUNTS = (1, 1000, 12_000)
WARM_UP = 3  # rounds


def step_with(
    network: Callable[[], nn.Module], inputs: Tensor, num_classes: int, *, num_groups: int, form: str
) -> Callable[[], None]:
    """A training step on inputs whose rows are spread evenly over the groups."""
    device, rows = inputs.device, len(inputs)
    generator = torch.Generator().manual_seed(0)
    groups = (torch.randperm(rows, generator=generator) % num_groups).to(device)
    fractions = torch.randn(num_groups, num_classes, generator=generator).double().softmax(-1)
    summary = selbo.GroupedSummary(selbo.ClassRegions(num_classes), fractions, 50.0, form=form, validate=False)
    objective = selbo.CrossEntropy(rows, summary).to(device)
    model = network().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        objective(model, inputs, None, groups=groups).loss.backward()
        optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize()

    return step


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    where = (
        torch.cuda.get_device_name() if device.type == "cuda" else f"{platform.machine()}, {options.threads} threads"
    )
    print(f"PyTorch {torch.__version__}, {where}, {options.repeats} repeats")
    seed = torch.Generator().manual_seed(1)
    images = torch.randn(1024, 1, 28, 28, generator=seed).to(device)
    table = torch.randn(8192, 64, generator=seed).to(device)
    tasks = {
        "LeNet, batch 1024, 10 classes": (
            lambda: selbo.models.LeNet(10, generator=torch.Generator().manual_seed(0)),
            images,
            10,
        ),
        "MLP 64-256-256-2, batch 8192": (
            lambda: selbo.models.MLP((64, 256, 256, 2), generator=torch.Generator().manual_seed(0)),
            table,
            2,
        ),
    }
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    for name, (network, inputs, classes) in tasks.items():
        for form in ("dirichlet", "multinomial", "counts"):
            steps = [step_with(network, inputs, classes, num_groups=count, form=form) for count in COUNTS]
            times: list[list[float]] = [[] for _ in COUNTS]
            for turn in range(WARM_UP + options.repeats):
                for place, step in enumerate(steps):
                    begin = clock()
                    step()
                    if turn >= WARM_UP:
                        times[place].append(1e3 * (clock() - begin))
            one = statistics.median(times[0])
            for count, found in zip(COUNTS, times, strict=True):
                low, middle, high = statistics.quantiles(found, n=4)
                extra = statistics.median(here - there for here, there in zip(found, times[0], strict=True))
                print(
                    f"{name}, {form:11} {count:6} groups: {middle:7.2f} ms ({low:.2f}-{high:.2f}), "
                    f"{100 * extra / one:+.1f} %",
                    flush=True,
                )


if __name__ == "__main__":
    main()
