"""What a posterior costs for large networks: ResNet-50 and ViT-B/16 at 224 pixels, beside AdamW.

A step is zero grad, forward, loss, backward, update, written as in an ordinary loop: bfloat16 by autocast, nothing
compiled or captured. Weights and images are random, the classes are 1000. Each contender runs in a process of its own,
so that its peak memory and the time to its first step (from the start of the process) are its own.

    python benchmarks/large_networks.py --networks resnet50 vit_base_patch16_224 --batch-size 256 --json FILE
    python benchmarks/large_networks.py --device cpu --networks resnet18 --size 64 --batch-size 4 --steps 2

The networks come from timm: pip install --no-deps timm. It imports torchvision for transforms of images, and
huggingface_hub for downloads; both are replaced by empty modules where they are missing, because neither is used here.
"""

import argparse
import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import platform
import statistics
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any, Final

START: Final = time.perf_counter()
NOT_NEEDED: Final = ("torchvision", "huggingface_hub")
CLASSES: Final = 1000
NUM_DATA: Final = 1_281_167  # training images of ImageNet
ACCURACY: Final = 0.75
WARM_UP: Final = 5

CONTENDERS: Final = (
    "AdamW",
    "AdamW + summary",
    "natural gradient",
    "natural gradient + summary",
    "mean field",
    "mean field + summary",
    "AdamW, checkpointing",
    "mean field + summary, checkpointing",
)


class _Anything(type):
    """A class each of whose attributes is such a class again."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name, (), {})


class _EmptyModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules of packages that are not installed and not needed; whatever is imported from them is a class."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] in NOT_NEEDED:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _EmptyModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


class _EmptyModule(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        return getattr(_Anything("module", (), {}), name)


def build(name: str, contender: str, device: Any) -> tuple[Any, Any, Any, Any]:
    """The network, the objective, the optimiser and the summary of a contender."""
    sys.meta_path.append(_EmptyModules())  # last, so that what is installed is found first
    import timm
    import torch

    import selbo

    torch.manual_seed(0)
    network = timm.create_model(name, pretrained=False, num_classes=CLASSES)
    if contender.endswith("checkpointing"):
        network.set_grad_checkpointing(True)
    bayesian = contender.startswith("mean field")
    if bayesian:
        others = [each for each in ("cls_token", "pos_embed") if hasattr(network, each)]
        network = selbo.to_bayesian(network, exclude=others)
    network = network.to(device, memory_format=torch.channels_last).train()
    belief = selbo.expect(ACCURACY, num_classes=CLASSES)
    summary = selbo.SummaryLikelihood(selbo.CornerShells(CLASSES), belief).to(device)
    used = summary if "summary" in contender else None
    criterion: Any = selbo.CrossEntropy(NUM_DATA, used)
    if bayesian:
        criterion = selbo.ELBO(NUM_DATA) if used is None else selbo.SummaryELBO(used, NUM_DATA)
    optimizer: Any
    if contender.startswith("natural"):
        optimizer = selbo.NaturalGradient(network.parameters(), lr=0.1, num_data=NUM_DATA)
    else:
        optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, fused=True)
    return network, criterion, optimizer, summary


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Times, peak memory and start of one contender, and the cost of the summary alone."""
    import torch

    (name,), contender, device = options.networks, options.contender, torch.device(options.device)
    on_cuda = device.type == "cuda"
    network, criterion, optimizer, summary = build(name, contender, device)
    images = torch.randn(options.batch_size, 3, options.size, options.size, device=device)
    images = images.to(memory_format=torch.channels_last)
    labels = torch.randint(CLASSES, (options.batch_size,), device=device)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with optimizer.sampled() if contender.startswith("natural") else contextlib.nullcontext():
            with torch.autocast("cuda", torch.bfloat16, enabled=on_cuda):
                loss = criterion(network, images, labels).loss
            loss.backward()
        optimizer.step()

    def times(work: Any, count: int) -> list[float]:
        taken = []
        for _ in range(count):
            begin = time.perf_counter()
            work()
            if on_cuda:
                torch.cuda.synchronize()
            taken.append(1000 * (time.perf_counter() - begin))
        return taken

    times(step, 1)
    first = time.perf_counter() - START
    times(step, WARM_UP if on_cuda else 1)
    found = times(step, options.steps)
    result = {"network": name, "contender": contender, "batch_size": options.batch_size, "size": options.size}
    result |= {"median_ms": statistics.median(found), "low_ms": min(found), "high_ms": max(found)}
    result |= {"first_step_s": first, "parameters": sum(each.numel() for each in network.parameters())}
    if on_cuda:
        result["peak_mib"] = torch.cuda.max_memory_allocated() / 2**20
    if contender == "AdamW + summary":
        outputs = torch.randn(1, options.batch_size, CLASSES, device=device, requires_grad=True)
        times(lambda: summary(outputs.log_softmax(-1)).sum().backward(), WARM_UP)
        alone = times(lambda: summary(outputs.log_softmax(-1)).sum().backward(), 5 * options.steps)
        result["summary_ms"] = statistics.median(alone)
    where = torch.cuda.get_device_name() if on_cuda else platform.machine()
    return result | {"torch": torch.__version__, "timm": sys.modules["timm"].__version__, "machine": where}


def print_table(rows: list[dict[str, Any]]) -> None:
    for name in dict.fromkeys(row["network"] for row in rows):
        found = [row for row in rows if row["network"] == name]
        base = next((row for row in found if row["contender"] == "AdamW"), None)
        print(f"\n{name}, batch {found[0]['batch_size']}, {found[0]['size']} pixels, {found[0]['machine']}\n")
        print("| | ms a step | x AdamW | peak GiB | x AdamW | first step, s |\n|---|---|---|---|---|---|")
        for row in found:
            peak, ratio, more = row.get("peak_mib"), "", ""
            if base is not None:
                ratio = f"{row['median_ms'] / base['median_ms']:.2f}"
                more = f"{peak / base['peak_mib']:.2f}" if peak else ""
            gib = f"{peak / 1024:.1f}" if peak else ""
            first = row["first_step_s"]
            print(f"| {row['contender']} | {row['median_ms']:.1f} | {ratio} | {gib} | {more} | {first:.1f} |")
            if "summary_ms" in row:
                share = row["summary_ms"] / (base or row)["median_ms"]
                print(f"| (the summary alone) | {row['summary_ms']:.2f} | {share:.3f} | | | |")
    print(flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=["resnet50", "vit_base_patch16_224"], help="names in timm")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--size", type=int, default=224, help="pixels of an edge")
    parser.add_argument("--steps", type=int, default=20, help="timed steps of each contender")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=500.0, help="start no contender after this time")
    parser.add_argument("--json", type=Path, help="file for the results, written after each contender")
    parser.add_argument("--contender", choices=CONTENDERS, help="only this one, as a line of JSON")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if options.contender:
        print(json.dumps(measure(options)), flush=True)
        return
    rows: list[dict[str, Any]] = []
    for name in options.networks:
        for contender in CONTENDERS:
            if time.perf_counter() - START > options.seconds:
                print(f"  left out for time: {name}, {contender}", flush=True)
                continue
            command = [sys.executable, __file__, "--networks", name, "--contender", contender]
            for each in ("batch_size", "size", "steps", "device"):
                command += [f"--{each.replace('_', '-')}", str(getattr(options, each))]
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            if done.returncode:
                print(f"  failed: {name}, {contender}: {done.stderr.strip().splitlines()[-1][:300]}", flush=True)
                continue
            rows.append(json.loads(done.stdout.strip().splitlines()[-1]))
            print(f"  {name}, {contender}: {rows[-1]['median_ms']:.1f} ms", flush=True)
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1) + "\n")
    print_table(rows)


if __name__ == "__main__":
    main()
