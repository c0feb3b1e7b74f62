"""How long the corrupted CIFAR-10 test sets take, and how far each is from the clean one.

Printed for every corruption: seconds a set, PSNR in dB and mean absolute change in grey levels at each severity. A set
is made, measured and dropped before the next.

    python benchmarks/corruptions.py --cifar test_batch.bin       # the test images of CIFAR-10, binary version
    python benchmarks/corruptions.py --images 1000                # smooth random images instead
    python benchmarks/corruptions.py --device cuda
"""

import argparse
import platform
import time

import torch
from torch import Tensor

from selbo_lab.data.corruptions import cifar
from selbo_lab.data.corruptions.filters import plasma_fractal

RECORD = 1 + 3 * 32 * 32  # a label, then the channels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--cifar", metavar="FILE")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--severities", type=int, nargs="+", default=list(cifar.SEVERITIES))
    parser.add_argument("--names", nargs="+", default=list(cifar.CIFAR_CORRUPTIONS))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    images = (from_file(options.cifar) if options.cifar else smooth(options.images))[: options.images]
    images = images.to(options.device)
    where = torch.cuda.get_device_name(images.device) if images.is_cuda else f"{torch.get_num_threads()} threads"
    print(f"torch {torch.__version__}, {platform.machine()}, {where}, {len(images)} images, seed {options.seed}\n")
    columns = [f"severity {severity}" for severity in options.severities]
    print(f"| corruption | s a set | {' | '.join(columns)} |")
    print("|---" * (2 + len(columns)) + "|")
    cifar.corrupt_cifar(images[:1], options.names[0], 1, seed=0)  # the device starts up
    total = 0.0
    for name in options.names:
        seconds, cells = 0.0, []
        for severity in options.severities:
            wait(images)
            start = time.perf_counter()
            corrupted = cifar.corrupt_cifar(images, name, severity, seed=options.seed)
            wait(images)
            seconds += time.perf_counter() - start
            cells.append(f"{psnr(images, corrupted):.2f} dB, {mean_change(images, corrupted):.1f}")
            del corrupted
        total += seconds
        print(f"| {name} | {seconds / len(options.severities):.2f} | {' | '.join(cells)} |", flush=True)
    print(f"\n{len(options.names) * len(options.severities)} sets in {total:.1f} s")


def from_file(path: str) -> Tensor:
    """Images of a file of CIFAR-10's binary version, shape (N, 3, 32, 32)."""
    with open(path, "rb") as file:
        records = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)
    return records.reshape(-1, RECORD)[:, 1:].reshape(-1, 3, 32, 32)


def smooth(count: int) -> Tensor:
    """Clouds, the channels alike but not the same."""
    generator = torch.Generator().manual_seed(0)
    common = plasma_fractal(count, 32, 1.5, generator)[:, None]
    own = plasma_fractal(3 * count, 32, 1.8, generator).reshape(count, 3, 32, 32)
    return ((0.7 * common + 0.3 * own) * 255).to(torch.uint8)


def psnr(clean: Tensor, corrupted: Tensor) -> float:
    """Mean over images of the peak signal-to-noise ratio in dB; an image that did not change counts as 60 dB."""
    error = (clean.float() - corrupted.float()).square().mean((1, 2, 3))
    return (10 * torch.log10(255**2 / error.clamp_min(255**2 / 1e6))).mean().item()


def mean_change(clean: Tensor, corrupted: Tensor) -> float:
    return (clean.float() - corrupted.float()).abs().mean().item()


def wait(images: Tensor) -> None:
    if images.is_cuda:
        torch.cuda.synchronize(images.device)


if __name__ == "__main__":
    main()
