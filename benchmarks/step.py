"""What one training step costs: the authors' loop over weight draws, torch_blue, selbo, and the plain network.

A step is zero grad, forward, loss, backward, Adam. The loss is the negative Monte Carlo ELBO of one example: mean over
draws and batch of -log p, plus KL / N; the Summary ELBO subtracts the summary term / N. Contenders of one network take
turns, two rounds warm up, the median of the others is printed with the quartiles. A contender that fails is named with
its error, and the others go on.

    python benchmarks/step.py --models mlp lenet --threads 1 --peers-path DIR --json step.json
    python benchmarks/step.py --models lenet --threads 1 --no-mkldnn
    python benchmarks/step.py --device cuda --models vgg11 --predict --seconds 500 --peers-path DIR --json step.json
    python benchmarks/step.py --optimizers --device cuda --models vgg11 --json optimizers.json

`--optimizers` compares optimisers instead: deterministic networks trained by Adam and by SGD with the posterior trained
by `selbo.NaturalGradient`, without and with a summary; with peak memory and the time to the first step.

DIR holds the peers: pip install --no-deps --target DIR bayesian-torch==0.5.0 torch_blue
"""

import argparse
import contextlib
import gc
import importlib
import importlib.metadata
import json
import math
import os
import platform
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

import selbo
from selbo import models
from selbo.nn import to_bayesian
from selbo.posteriors import forward_samples

N: Final = 45_000
LEARNING_RATE: Final = 1e-3
WARM_UP_ROUNDS: Final = 2
LEAST_TIMED_S: Final = 0.02  # short steps are repeated up to this within one measurement
MOST_INNER_STEPS: Final = 50
DRAWS: Final = (32, 4, 1)
FAST_DRAWS: Final = (1, 4, 32)  # the costly one last
BUILD_SHARE: Final = 0.6  # of --seconds, for compiling and capturing; the rest is for measuring
PEAK_TFLOPS: Final = 790.0  # dense bf16 of an H200, as matrix products reach it
GIB: Final = 2**30
FREE_GIB_FOR_32_DRAWS: Final = 45.0

PREDICT_DRAWS: Final = 128
PREDICT_IMAGES: Final = 10_000
PREDICT_BATCH: Final = 10_000
AUTHORS_BATCH: Final = 2_000  # theirs for evaluation is 2048

SHAPES: Final = {"mlp": (768,), "lenet": (1, 28, 28), "vgg11": (3, 32, 32)}
CLASSES: Final = {"mlp": 2, "lenet": 2, "vgg11": 10}

PUBLISHED_PRIOR: Final = {
    "prior_mu": 0.0,
    "prior_sigma": 1.0,
    "posterior_mu_init": 0.0,
    "posterior_rho_init": -3.0,
    "type": "Reparameterization",
    "moped_enable": False,
    "moped_delta": 0.5,
}

Step = Callable[[], Any]


@dataclass
class Contender:
    """A piece of work with its times; `kept` are objects that must live as long as it does."""

    name: str
    run: Step
    objective: str
    draws: int
    engine: str
    kept: tuple[Any, ...] = ()
    inner: int = 1
    warm_up: tuple[float, float] | None = None
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    first_step_s: float | None = None
    build_s: float | None = None
    peak_mib: float | None = None


@dataclass
class Task:
    """One network, its batch and the device."""

    model: str
    device: torch.device
    batch_size: int
    inputs: Tensor
    labels: Tensor
    summary: selbo.SummaryLikelihood

    def network(self) -> nn.Module:
        generator = torch.Generator().manual_seed(0)
        classes = CLASSES[self.model]
        net: nn.Module
        if self.model == "mlp":
            net = models.MLP((768, 128, classes), generator=generator)
        elif self.model == "lenet":
            net = models.LeNet(classes, generator=generator)
        else:
            net = models.VGG11(classes, generator=generator)
        return net.to(self.device).train()

    def nll(self, log_probs: Tensor) -> Tensor:
        """Mean over draws and batch of -log p: (S, B, K) -> ()."""
        index = self.labels.expand(log_probs.shape[:-1]).unsqueeze(-1)
        return -log_probs.gather(-1, index).mean()


def make_task(model: str, device: torch.device, batch_size: int) -> Task:
    generator = torch.Generator().manual_seed(0)
    classes = CLASSES[model]
    partition = selbo.ScoreBins.equal(10) if classes == 2 else selbo.CornerShells(classes)
    summary = selbo.SummaryLikelihood(partition, selbo.expect(0.9, num_classes=classes))
    return Task(
        model,
        device,
        batch_size,
        torch.randn(batch_size, *SHAPES[model], generator=generator).to(device),
        torch.randint(classes, (batch_size,), generator=generator).to(device),
        summary.to(device),
    )


# --- one step, eager -------------------------------------------------------------------------------------------------


def eager_step(loss: Callable[[], Tensor], network: nn.Module) -> tuple[Step, torch.optim.Optimizer]:
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step, optimizer


def our_loss(task: Task, bnn: nn.Module, draws: int, objective: str, inputs: Tensor) -> Callable[[], Tensor]:
    with_summary = objective == "Summary ELBO"
    criterion = selbo.SummaryELBO(task.summary, N) if with_summary else selbo.ELBO(N)
    return lambda: criterion(bnn, inputs, task.labels, draws).loss


def plain_loss(task: Task, network: nn.Module, inputs: Tensor) -> Callable[[], Tensor]:
    return lambda: F.cross_entropy(network(inputs).float(), task.labels)


def ours(task: Task, draws: int, objective: str) -> Contender:
    bnn = to_bayesian(task.network())
    step, optimizer = eager_step(our_loss(task, bnn, draws, objective, task.inputs), bnn)
    return Contender(f"selbo, S = {draws}", step, objective, draws, "eager float32", (bnn, optimizer))


def plain(task: Task) -> Contender:
    network = task.network()
    step, optimizer = eager_step(plain_loss(task, network, task.inputs), network)
    return Contender("plain network", step, "NLL", 1, "eager float32", (network, optimizer))


# --- peers -----------------------------------------------------------------------------------------------------------


def published_network(task: Task) -> nn.Module:
    """The network in bayesian-torch: its layers where they are in line, `dnn_to_bnn` for VGG11."""
    from bayesian_torch.layers import Conv2dReparameterization, LinearReparameterization
    from bayesian_torch.models.dnn_to_bnn import dnn_to_bnn

    network = task.network().cpu()
    if task.model == "vgg11":
        dnn_to_bnn(network, PUBLISHED_PRIOR)
        return network.to(task.device)

    def convert(module: nn.Module) -> list[nn.Module]:
        if isinstance(module, nn.Linear):
            return [LinearReparameterization(module.in_features, module.out_features)]
        if isinstance(module, nn.Conv2d):
            sizes = (module.in_channels, module.out_channels, module.kernel_size[0])
            return [Conv2dReparameterization(*sizes, padding=module.padding[0])]
        children = [layer for child in module.children() for layer in convert(child)]
        return children or [module]

    layers = convert(network)
    if task.model == "lenet":
        layers.insert(next(i for i, each in enumerate(layers) if "Linear" in type(each).__name__), nn.Flatten())
    return _Published(layers).to(task.device)


class _Published(nn.Module):
    """bayesian-torch layers in a row; each returns its output and its KL."""

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor | float]:
        kl: Tensor | float = 0.0
        for layer in self.layers:
            if hasattr(layer, "kl_loss"):
                inputs, term = layer(inputs)
                kl = kl + term
            else:
                inputs = layer(inputs)
        return inputs, kl


def authors(task: Task, draws: int = 32) -> Contender:
    network = published_network(task)

    def loss() -> Tensor:
        if isinstance(network, _Published):
            outputs, terms = zip(*[network(task.inputs) for _ in range(draws)], strict=True)
            kl = torch.stack(terms).mean()
        else:
            from bayesian_torch.models.dnn_to_bnn import get_kl_loss

            outputs = [network(task.inputs) for _ in range(draws)]
            kl = get_kl_loss(network)
        return task.nll(torch.stack(list(outputs)).log_softmax(-1)) + kl / N

    step, optimizer = eager_step(loss, network)
    return Contender("authors", step, "ELBO", draws, "loop float32", (network, optimizer))


def torch_blue(task: Task, draws: int = 32) -> Contender:
    from torch_blue import vi
    from torch_blue.vi.distributions import Categorical

    network: Any = task.network()
    vi.convert_to_vimodule(network, keep_weights=True)
    network.train()
    matching = vi.AnalyticalKullbackLeiblerLoss(network, Categorical(), dataset_size=N)

    def loss() -> Tensor:
        log_probs = network(task.inputs, samples=draws).as_subclass(Tensor).log_softmax(-1)
        return task.nll(log_probs) + matching.prior_matching() / N

    step, optimizer = eager_step(loss, network)
    return Contender("torch_blue", step, "ELBO", draws, "vmap float32", (network, optimizer))


# --- the fast engine: bf16, channels-last, compiled, the whole step in one CUDA graph --------------------------------


def fast_step(
    loss: Callable[[], Tensor], network: nn.Module, compiled: bool
) -> tuple[Step, torch.optim.Optimizer, tuple[Any, ...]]:
    """A replay of one captured step; the objects that it needs come along."""
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE, fused=True, capturable=True)

    def in_bf16() -> Tensor:
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            return loss()

    evaluate = torch.compile(in_bf16, dynamic=False) if compiled else in_bf16

    def step() -> Tensor:
        value = evaluate()
        value.backward()
        optimizer.step()
        return value.detach()

    def prepare() -> None:
        optimizer.zero_grad(set_to_none=True)  # so that backward writes gradients rather than adding to them

    replay, kept = capture(step, prepare)
    return replay, optimizer, (evaluate, *kept)


def capture(step: Step, prepare: Step = lambda: None) -> tuple[Step, tuple[Any, ...]]:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            prepare()
            step()
        prepare()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        result = step()
    graph.replay()
    torch.cuda.synchronize()
    if isinstance(result, Tensor) and not bool(result.isfinite().all()):
        print("  note: the captured step has a value that is not finite", flush=True)
    return graph.replay, (graph, result)


def compiled_or_not(what: str, build: Callable[[bool], Any], compiled: bool = True) -> tuple[Any, str]:
    """Built with torch.compile, or without it if that fails; and which of the two it was."""
    if compiled:
        try:
            return build(True), "compiled"
        except Exception as error:
            print(f"  torch.compile failed for {what}, captured eagerly instead: {brief(error)}", flush=True)
            clean_up()
    return build(False), "not compiled"


def fast(task: Task, draws: int, objective: str, compiled: bool = True) -> Contender:
    inputs = channels_last(task.inputs)
    is_plain = objective == "NLL"

    def build(compiled: bool) -> tuple[Any, ...]:
        network = task.network() if is_plain else to_bayesian(task.network())
        if inputs.ndim == 4:
            network = network.to(memory_format=torch.channels_last)
        loss = plain_loss(task, network, inputs) if is_plain else our_loss(task, network, draws, objective, inputs)
        return (*fast_step(loss, network, compiled), network)

    name = "plain network" if is_plain else f"selbo, S = {draws}"
    (replay, *kept), how = compiled_or_not(f"{name}, {objective}", build, compiled)
    return Contender(name, replay, objective, draws, f"bf16, {how}, CUDA graph", tuple(kept))


def channels_last(inputs: Tensor) -> Tensor:
    return inputs.contiguous(memory_format=torch.channels_last) if inputs.ndim == 4 else inputs


# --- measuring -------------------------------------------------------------------------------------------------------


class Clock:
    """What is left of the time."""

    def __init__(self, seconds: float) -> None:
        self.start, self.seconds = time.perf_counter(), seconds

    def elapsed(self) -> float:
        return time.perf_counter() - self.start

    def over(self, share: float = 1.0) -> bool:
        return self.elapsed() > share * self.seconds

    def left(self, share: float = 1.0) -> float:
        return share * self.seconds - self.elapsed()


def brief(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:300] if text else ''}"


def clean_up() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def timed(run: Step, device: torch.device, times: int = 1) -> tuple[float, float]:
    """Wall and processor seconds of one call."""
    synchronize(device)
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(times):
        run()
    synchronize(device)
    return (time.perf_counter() - wall) / times, (time.process_time() - cpu) / times


def attempt(what: str, work: Callable[[], Any]) -> Any:
    """The result, or None and a printed line."""
    start = time.perf_counter()
    try:
        result = work()
    except ModuleNotFoundError as error:
        print(f"  skipped {what}: {brief(error)} (see --peers-path)", flush=True)
    except Exception as error:
        print(f"  skipped {what}: {brief(error)}", flush=True)
    else:
        print(f"  {what}: {time.perf_counter() - start:.1f} s", flush=True)
        return result
    clean_up()
    return None


def built(what: str, build: Callable[[], Contender], device: torch.device) -> Contender | None:
    """A contender that has run once."""

    def work() -> Contender:
        contender = build()
        contender.run()
        synchronize(device)
        return contender

    result: Contender | None = attempt(what, work)
    return result


def build_all(task: Task, peers: bool, clock: Clock, share: float) -> list[Contender]:
    device = task.device
    makers: list[tuple[str, Callable[[], Contender]]] = []
    if peers:
        makers += [("authors", lambda: authors(task)), ("torch_blue", lambda: torch_blue(task))]
    makers += [
        (f"selbo, S = {draws}, {objective}", lambda draws=draws, objective=objective: ours(task, draws, objective))
        for draws in DRAWS
        for objective in ("ELBO", "Summary ELBO")
    ]
    makers.append(("plain network", lambda: plain(task)))
    found: list[Contender] = []
    for what, build in makers:
        if clock.over(share):
            print(f"  skipped {what}: the time for building is spent", flush=True)
        elif (contender := built(what, build, device)) is not None:
            found.append(contender)
    if device.type != "cuda":
        return found
    settings = [(1, "NLL"), *((draws, objective) for draws in FAST_DRAWS for objective in ("ELBO", "Summary ELBO"))]
    took = 0.0
    for draws, objective in settings:
        what = f"fast engine, S = {draws}, {objective}"
        if clock.over(share):
            print(f"  skipped {what}: the time for building is spent", flush=True)
            continue
        compiled = True
        if draws == 32:
            free = torch.cuda.mem_get_info()[0] / GIB
            if task.model == "vgg11" and free < FREE_GIB_FOR_32_DRAWS:
                clean_up()
                free = torch.cuda.mem_get_info()[0] / GIB
            if task.model == "vgg11" and free < FREE_GIB_FOR_32_DRAWS:
                print(f"  skipped {what}: {free:.0f} GiB are free", flush=True)
                continue
            if 8 * took > clock.left(share):
                print(f"  {what} is captured without torch.compile: compiling 4 draws took {took:.0f} s", flush=True)
                compiled = False
        start = time.perf_counter()
        contender = built(what, lambda: fast(task, draws, objective, compiled), device)  # noqa: B023
        took = max(took, time.perf_counter() - start) if draws < 32 else took
        if contender is not None:
            found.append(contender)
    return found


def measure(contenders: list[Contender], device: torch.device, repeats: int, clock: Clock, share: float) -> None:
    """Fill in the times, round by round; a contender that fails drops out."""
    alive = list(contenders)
    for repeat in range(WARM_UP_ROUNDS + repeats):
        for each in list(alive):
            if clock.over(share):
                print(f"  stopped after {max(repeat - WARM_UP_ROUNDS, 0)} rounds: time is up", flush=True)
                return
            seconds = attempt_quietly(each, device)
            if seconds is None:
                alive.remove(each)
            elif repeat < WARM_UP_ROUNDS:
                each.warm_up = (1000 * seconds[0], 1000 * seconds[1])
                each.inner = min(max(math.ceil(LEAST_TIMED_S / max(seconds[0], 1e-6)), 1), MOST_INNER_STEPS)
            else:
                each.wall.append(1000 * seconds[0])
                each.cpu.append(1000 * seconds[1])


def attempt_quietly(each: Contender, device: torch.device) -> tuple[float, float] | None:
    try:
        return timed(each.run, device, each.inner)
    except Exception as error:
        print(f"  {each.name}, {each.objective}, {each.engine} failed: {brief(error)}", flush=True)
        clean_up()
        return None


def flops(task: Task) -> int | None:
    """Floating-point operations of forward and backward of the plain network, one batch: those of one draw."""
    network = task.network()

    def count() -> int:
        with FlopCounterMode(display=False) as counter:
            plain_loss(task, network, task.inputs)().backward()
        return int(counter.get_total_flops())

    result: int | None = attempt("operations of one step, counted", count)
    return result


def quantiles(values: Sequence[float]) -> tuple[float, float, float]:
    low, median, high = torch.tensor(values, dtype=torch.float64).quantile(torch.tensor([0.25, 0.5, 0.75]).double())
    return low.item(), median.item(), high.item()


# --- reporting -------------------------------------------------------------------------------------------------------


def summarise(task: Task, contenders: list[Contender], operations: int | None) -> list[dict[str, Any]]:
    on_cuda = task.device.type == "cuda"
    rows: list[dict[str, Any]] = []
    for each in contenders:
        if not each.wall and each.warm_up is None:
            continue
        wall, cpu = each.wall or [each.warm_up[0]], each.cpu or [each.warm_up[1]]
        low, median, high = quantiles(wall)
        row: dict[str, Any] = {
            "model": task.model,
            "contender": each.name,
            "objective": each.objective,
            "draws": each.draws,
            "engine": each.engine,
            "median_ms": median,
            "lower_quartile_ms": low,
            "upper_quartile_ms": high,
            "rounds": len(each.wall),
            "steps_a_round": each.inner,
        }
        if not on_cuda:
            row["median_processor_ms"] = quantiles(cpu)[1]
        if operations is not None:
            row["tflops"] = operations * each.draws / median / 1e9
        rows.append(row)
    reference = next((row for row in rows if row["contender"] == "authors"), None)
    for row in rows:
        if reference is not None:
            row["speed_up"] = reference["median_ms"] / row["median_ms"]
            if not on_cuda:
                row["speed_up_processor"] = reference["median_processor_ms"] / row["median_processor_ms"]
    pairs = {(row["contender"], row["engine"], row["objective"]): row for row in rows}
    for row in rows:
        other = pairs.get((row["contender"], row["engine"], "ELBO"))
        if row["objective"] == "Summary ELBO" and other is not None:
            row["summary_share"] = (row["median_ms"] - other["median_ms"]) / other["median_ms"]
            if not on_cuda:
                row["summary_share_processor"] = row["median_processor_ms"] / other["median_processor_ms"] - 1
    return rows


def print_rows(task: Task, rows: list[dict[str, Any]], on_cuda: bool) -> None:
    count = max((row["rounds"] for row in rows), default=0)
    print(f"\n{task.model}, batch {task.batch_size}, {CLASSES[task.model]} classes, {count} rounds\n")
    last = "TFLOP/s | of 790" if on_cuda else "processor ms | × authors, processor"
    print(f"| contender | objective | engine | median ms | quartiles | × authors | summary term | {last} |")
    print("|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        speed_up = f"{row['speed_up']:.2f}" if "speed_up" in row else "-"
        share = "-"
        if "summary_share" in row:
            share = f"{100 * row['summary_share']:+.1f} %"
            if not on_cuda:
                share += f" (processor {100 * row['summary_share_processor']:+.1f} %)"
        if on_cuda:
            speed = row.get("tflops")
            more = "- | -" if speed is None else f"{speed:.1f} | {100 * speed / PEAK_TFLOPS:.1f} %"
        else:
            by_processor = row.get("speed_up_processor")
            more = f"{row['median_processor_ms']:.2f} | {'-' if by_processor is None else f'{by_processor:.2f}'}"
        engine = row["engine"] if row["rounds"] else f"{row['engine']} (one warm-up round only)"
        print(
            f"| {row['contender']} | {row['objective']} | {engine} | {row['median_ms']:.3f} "
            f"| {row['lower_quartile_ms']:.3f} to {row['upper_quartile_ms']:.3f} | {speed_up} | {share} | {more} |"
        )
    print("\nThe authors' step and torch_blue have 32 draws: fewer draws are less work, not only faster work.")
    print(flush=True)


# --- prediction ------------------------------------------------------------------------------------------------------


def predict(device: torch.device, peers: bool, repeats: int, clock: Clock) -> list[dict[str, Any]]:
    """Images a second of VGG11, mean over 128 draws of the probabilities; both ways draw anew for each batch."""
    print("prediction, vgg11", flush=True)
    on_cuda = device.type == "cuda"
    task = make_task("vgg11", device, PREDICT_BATCH if on_cuda else 64)
    images = torch.randn(PREDICT_IMAGES if on_cuda else task.batch_size, *SHAPES["vgg11"], device=device)
    contenders: list[Contender] = []
    passes: dict[str, int] = {}  # images times draws that one call handles

    def add(what: str, build: Callable[[], Contender], count: int) -> None:
        contender = built(what, build, device)
        if contender is not None:
            contenders.append(contender)
            passes[contender.name] = count

    if peers:
        draws = 8 if on_cuda else 2
        first = images[:AUTHORS_BATCH]
        add("authors' loop", lambda: loop_prediction(task, first, draws), len(first) * draws)
    draws = PREDICT_DRAWS if on_cuda else 2
    add("selbo", lambda: our_prediction(task, images, draws), len(images) * draws)
    measure(contenders, device, repeats, clock, 1.0)
    rows: list[dict[str, Any]] = []
    whole = PREDICT_IMAGES * PREDICT_DRAWS
    for each in contenders:
        if each.wall:
            low, median, high = (1000 * passes[each.name] / PREDICT_DRAWS / ms for ms in reversed(quantiles(each.wall)))
            row = {"contender": each.name, "engine": each.engine, "images_per_s": median}
            row |= {"lower_quartile": low, "upper_quartile": high, "timed_share": passes[each.name] / whole}
            rows.append(row)
    reference = next((row["images_per_s"] for row in rows if row["contender"] == "authors"), None)
    theirs = min(AUTHORS_BATCH, len(images))
    sizes = f"batches of {task.batch_size} (authors: {theirs})"
    print(f"\nvgg11, {PREDICT_DRAWS} draws, {PREDICT_IMAGES} images, {sizes}\n")
    print("| prediction | engine | images per s | quartiles | × authors | part of the work that was timed |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        if reference is not None:
            row["speed_up"] = row["images_per_s"] / reference
        speed_up = f"{row['speed_up']:.1f}" if "speed_up" in row else "-"
        part = "all" if row["timed_share"] == 1 else f"{100 * row['timed_share']:.3g} %, scaled"
        print(
            f"| {row['contender']} | {row['engine']} | {row['images_per_s']:.2f} "
            f"| {row['lower_quartile']:.2f} to {row['upper_quartile']:.2f} | {speed_up} | {part} |"
        )
    print(flush=True)
    return rows


def loop_prediction(task: Task, images: Tensor, draws: int) -> Contender:
    network = published_network(task).eval()

    def run() -> Tensor:
        with torch.no_grad():
            return torch.stack([network(images).softmax(-1) for _ in range(draws)]).mean(0)

    return Contender("authors", run, "prediction", draws, "loop float32", (network,))


def our_prediction(task: Task, images: Tensor, draws: int) -> Contender:
    bnn = to_bayesian(task.network()).eval()
    if task.device.type != "cuda":

        def on_cpu() -> Tensor:
            with torch.no_grad():
                return forward_samples(bnn, images, draws).softmax(-1).mean(0)

        return Contender("selbo", on_cpu, "prediction", draws, "eager float32", (bnn,))
    bnn = bnn.to(memory_format=torch.channels_last)
    batch = channels_last(task.inputs.clone())
    total = torch.zeros(len(batch), CLASSES[task.model], device=task.device)

    def build(compiled: bool) -> tuple[Step, tuple[Any, ...]]:
        def one_draw() -> Tensor:
            with torch.no_grad(), torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
                return forward_samples(bnn, batch, 1).float().softmax(-1).sum(0)

        evaluate = torch.compile(one_draw, dynamic=False) if compiled else one_draw

        def accumulate() -> Tensor:
            return total.add_(evaluate())

        replay, kept = capture(accumulate)
        return replay, (evaluate, *kept)

    (replay, kept), how = compiled_or_not("prediction", build)

    def run() -> Tensor:
        means = []
        for block in images.split(len(batch)):
            batch.copy_(block)
            total.zero_()
            for _ in range(draws):
                replay()
            means.append(total / draws)
        return torch.cat(means)

    return Contender("selbo", run, "prediction", draws, f"bf16, {how}, CUDA graph", (bnn, batch, total, kept))


# --- optimisers: deterministic networks and the posterior trained by natural gradient --------------------------------

OPTIMIZERS: Final = ("Adam", "SGD", "natural gradient")


def make_optimizer(kind: str, network: nn.Module, *, captured: bool, compiled: bool) -> torch.optim.Optimizer:
    parameters = list(network.parameters())
    rate = {"Adam": 1e-3, "SGD": 0.05, "natural gradient": 0.1}[kind]
    lr = torch.tensor(rate, device=parameters[0].device) if captured else rate
    if kind == "Adam":
        return torch.optim.Adam(parameters, lr=lr, fused=True, capturable=captured)
    if kind == "SGD":
        return torch.optim.SGD(parameters, lr=lr, momentum=0.9, nesterov=True, weight_decay=5e-4, fused=True)
    return selbo.NaturalGradient(parameters, lr=lr, num_data=N, capturable=captured, compiled=compiled)


def optimizer_contender(task: Task, kind: str, objective: str) -> Contender:
    """A step of one optimiser: eager on a CPU; on CUDA in bf16, compiled, as one CUDA graph."""
    on_cuda = task.device.type == "cuda"
    inputs = channels_last(task.inputs) if on_cuda else task.inputs
    before = torch.cuda.memory_allocated() if on_cuda else 0
    if on_cuda:
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    first: list[float] = []

    def build(compiled: bool) -> tuple[Step, tuple[Any, ...]]:
        network = task.network()
        if on_cuda and inputs.ndim == 4:
            network = network.to(memory_format=torch.channels_last)
        criterion = selbo.CrossEntropy(N, task.summary if objective == "NLL + summary" else None)
        optimizer = make_optimizer(kind, network, captured=on_cuda, compiled=compiled)

        def loss() -> Tensor:
            with torch.autocast("cuda", torch.bfloat16, cache_enabled=False, enabled=on_cuda):
                return criterion(network, inputs, task.labels).loss

        evaluate = torch.compile(loss, dynamic=False) if compiled else loss

        def step() -> Tensor:
            with optimizer.sampled() if isinstance(optimizer, selbo.NaturalGradient) else contextlib.nullcontext():
                value = evaluate()
                value.backward()
            optimizer.step()
            if not first:
                synchronize(task.device)
                first.append(time.perf_counter() - start)
            return value.detach()

        def prepare() -> None:
            optimizer.zero_grad(set_to_none=True)

        if on_cuda:
            replay, kept = capture(step, prepare)
            return replay, (network, optimizer, evaluate, *kept)

        def eager() -> None:
            prepare()
            step()

        eager()
        return eager, (network, optimizer)

    if on_cuda:
        (run, kept), how = compiled_or_not(f"{kind}, {objective}", build)
        engine = f"bf16, {how}, CUDA graph"
    else:
        (run, kept), engine = build(False), "eager float32"
    contender = Contender(kind, run, objective, 1, engine, kept)
    contender.first_step_s, contender.build_s = first[0], time.perf_counter() - start
    if on_cuda:
        contender.peak_mib = (torch.cuda.max_memory_allocated() - before) / 2**20
    return contender


def compare_optimizers(task: Task, repeats: int, clock: Clock, share: float) -> list[dict[str, Any]]:
    """Time, memory and start of each optimiser; ratios are to the deterministic network under Adam."""
    settings = [(kind, "NLL") for kind in OPTIMIZERS] + [("natural gradient", "NLL + summary")]
    contenders = []
    for kind, objective in settings:
        clean_up()
        what = f"{kind}, {objective}"
        found = built(what, lambda: optimizer_contender(task, kind, objective), task.device)  # noqa: B023
        if found is not None:
            contenders.append(found)
    measure(contenders, task.device, repeats, clock, share)
    rows: list[dict[str, Any]] = []
    for each in contenders:
        if each.wall:
            low, median, high = quantiles(each.wall)
            row: dict[str, Any] = {"model": task.model, "optimizer": each.name, "objective": each.objective}
            row |= {"engine": each.engine, "median_ms": median, "lower_quartile_ms": low, "upper_quartile_ms": high}
            row |= {"median_processor_ms": quantiles(each.cpu)[1], "rounds": len(each.wall)}
            row |= {"peak_mib": each.peak_mib, "first_step_s": each.first_step_s, "build_s": each.build_s}
            rows.append(row)
    print(f"\n{task.model}, batch {task.batch_size}, {CLASSES[task.model]} classes\n")
    on_cuda = task.device.type == "cuda"
    last = "peak MiB | × Adam" if on_cuda else "processor ms | × Adam, processor"
    print(f"| optimiser | loss | engine | median ms | quartiles | × Adam | {last} | first step s | built s |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        base = rows[0]
        name, digits = ("peak_mib", 0) if on_cuda else ("median_processor_ms", 2)
        more = f"{row[name]:.{digits}f} | {row[name] / base[name]:.2f}"
        print(
            f"| {row['optimizer']} | {row['objective']} | {row['engine']} | {row['median_ms']:.3f} "
            f"| {row['lower_quartile_ms']:.3f} to {row['upper_quartile_ms']:.3f} "
            f"| {row['median_ms'] / base['median_ms']:.2f} | {more} | {row['first_step_s']:.1f} "
            f"| {row['build_s']:.1f} |"
        )
    print(flush=True)
    return rows


# --- one command -----------------------------------------------------------------------------------------------------


def machine(device: torch.device) -> dict[str, Any]:
    return {
        "machine": platform.machine(),
        "processor": processor(),
        "processors": os.cpu_count(),
        "load_average": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "selbo": selbo.__version__,
        "peers": {name: installed(name) for name in ("bayesian-torch", "torch_blue")},
        "accelerator": torch.cuda.get_device_name() if device.type == "cuda" else None,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() if device.type == "cuda" else None,
        "matmul_precision": torch.get_float32_matmul_precision(),
        "cudnn_tf32": torch.backends.cudnn.allow_tf32,
    }


def installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    named = [line.split(":", 1)[1].strip() for line in lines if line.startswith(("model name", "CPU part"))]
    return named[0] if named else platform.processor()


def write_json(path: Path | None, results: dict[str, Any]) -> None:
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".part", delete=False, encoding="utf-8") as file:
        json.dump(results, file, indent=1)
    Path(file.name).chmod(0o644)
    Path(file.name).replace(path)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--models", nargs="*", choices=tuple(SHAPES), default=["mlp", "lenet"])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after so long, and report")
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--peers-path", type=Path, help="folder with bayesian_torch and torch_blue")
    parser.add_argument("--predict", action="store_true", help="prediction of VGG11 too")
    parser.add_argument("--optimizers", action="store_true", help="compare optimisers: Adam, SGD, natural gradient")
    parser.add_argument("--no-mkldnn", action="store_true", help="convolutions of a CPU without oneDNN")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    with torch.backends.mkldnn.flags(enabled=False) if options.no_mkldnn else contextlib.nullcontext():
        run(options)


def run(options: argparse.Namespace) -> None:
    if options.peers_path is not None:
        sys.path.append(str(options.peers_path))  # last, so that nothing else is taken from there
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    device = torch.device(options.device)
    if device.type == "cuda":
        dynamo = importlib.import_module("torch._dynamo")
        dynamo.config.recompile_limit = 64  # the contenders share their code
    results: dict[str, Any] = {"machine": machine(device)}
    results["settings"] = {
        name: str(value) if isinstance(value, Path) else value for name, value in vars(options).items()
    }
    results["settings"] |= {"N": N, "warm_up_rounds": WARM_UP_ROUNDS, "learning_rate": LEARNING_RATE}
    if math.isinf(options.seconds):
        results["settings"]["seconds"] = None
    results |= {"steps": [], "prediction": []}
    about = results["machine"]
    print(
        f"torch {about['torch']}, {about['accelerator'] or about['processor']}, {options.threads} threads, "
        f"load {about['load_average']}, float32 matmul {about['matmul_precision']}, cuDNN TF32 {about['cudnn_tf32']}"
    )
    clock = Clock(options.seconds)
    parts = len(options.models) + bool(options.predict)
    for index, model in enumerate(options.models):
        print(f"\n{model}", flush=True)
        begin, end = index / parts, (index + 1) / parts  # each network has an equal share of the time
        task = make_task(model, device, options.batch_size)
        if options.optimizers:
            results["steps"] += compare_optimizers(task, options.repeats, clock, end)
            write_json(options.json, results)
            continue
        operations = flops(task)
        contenders = build_all(task, options.peers, clock, begin + BUILD_SHARE * (end - begin))
        measure(contenders, device, options.repeats, clock, end)
        rows = summarise(task, contenders, operations)
        print_rows(task, rows, device.type == "cuda")
        results["steps"] += rows
        write_json(options.json, results)
        del contenders, task
        clean_up()
    if options.predict:
        results["prediction"] = predict(device, options.peers, min(options.repeats, 5), clock)
    results["seconds"] = clock.elapsed()
    write_json(options.json, results)


if __name__ == "__main__":
    main()
