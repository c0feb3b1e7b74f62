"""Engines that run training steps: eagerly on any device; or, on CUDA, compiled and captured in one CUDA graph."""

import gc
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor, nn

from selbo import _checks
from selbo._compile import is_compiler_error
from selbo.nn.compiled import channels_last, compile_function
from selbo.objectives import Objective
from selbo.objectives.unlabelled import Assigned, UnlabelledSet
from selbo.posteriors import NaturalGradient, NaturalGradientPosterior, Posterior
from selbo.random import derive
from selbo.training.augment import crop_and_flip
from selbo.training.batches import Batch, TensorBatches, UnlabelledBatches, as_set
from selbo.training.distributed import average_gradients
from selbo.training.perceptron import PerceptronEngine, is_written_out
from selbo.training.stored import AnyBatches, StoredBatches

OPTIMIZERS: Final = ("adam", "sgd")
PRECISIONS: Final = ("fp32", "bf16")
AUGMENTATIONS: Final = {"crop_and_flip": 4, "shift_and_flip": 1}
"""The largest shift of each, in pixels."""
WARM_UP_STEPS: Final = 3
"""Eager steps before a graph is captured, so that everything created on first use exists."""
ROWS: Final = 1024
"""Number of steps whose terms stay on the device before they are copied to the host."""


MOST_TEXT: Final = 500
"""Characters of a compiler's error that a warning shows."""


@dataclass
class Plan:
    """Everything that a training step needs."""

    posterior: Posterior
    objective: Objective
    optimizer: torch.optim.Optimizer
    num_samples: int
    precision: str
    augment: str | None
    seed: int
    steps: int
    device: torch.device
    rank: int = 0
    world: int = 1
    parameters: list[nn.Parameter] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.model = self.posterior
        """Network or posterior of the loss. For a natural gradient, the weights of the network are one sample."""
        self.passes, self.samples_per_pass = 1, self.num_samples
        if isinstance(self.posterior, NaturalGradientPosterior):
            self.model = self.posterior.weight_sample()
            self.passes, self.samples_per_pass = self.num_samples, 1

    def weights(self) -> AbstractContextManager[Any]:
        """Context of a forward and a backward pass, in which a natural gradient samples the weights."""
        return self.optimizer.sampled() if isinstance(self.optimizer, NaturalGradient) else nullcontext()

    def share(self, loss: Tensor) -> Tensor:
        """Part of one pass in the loss of a step: the mean over passes, and the sum over networks side by side."""
        members = self.posterior.num_members
        loss = loss if members == 1 else loss * members
        return loss if self.passes == 1 else loss / self.passes

    def autocast(self) -> AbstractContextManager[Any]:
        """Autocast context of the forward pass."""
        if self.precision == "fp32":
            return nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False)

    def noise_purpose(self) -> tuple[object, ...]:
        """Purpose for seeding the noise: a summary needs the same weight samples in all processes."""
        return ("noise",) if self.objective.has_summary else ("noise", self.rank)


@dataclass(frozen=True)
class Optimizer:
    """Optimiser settings of `selbo.fit`.

    Attributes:
        kind: ``"adam"``, or ``"sgd"`` (Nesterov momentum).
        momentum: Momentum of SGD.
        weight_decay: Weight decay, for deterministic networks only; Bayesian networks have a prior instead.
    """

    kind: str = "adam"
    momentum: float = 0.9
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        _checks.one_of("optimizer", self.kind, OPTIMIZERS)
        _checks.non_negative("momentum", self.momentum)
        _checks.non_negative("weight_decay", self.weight_decay)

    def build(self, parameters: list[nn.Parameter], *, rate: float, on_graph: bool) -> torch.optim.Optimizer:
        """Build the torch optimiser; for a CUDA graph, its learning rate is a tensor."""
        lr: float | Tensor = torch.tensor(rate, device=parameters[0].device) if on_graph else rate
        momentum, decay = self.momentum, self.weight_decay
        if self.kind == "adam":
            # fused is fastest on both CPU and GPU (docs/reference/performance.md)
            return torch.optim.Adam(parameters, lr=lr, weight_decay=decay, fused=True, capturable=on_graph)
        return torch.optim.SGD(
            parameters, lr=lr, momentum=momentum, nesterov=momentum > 0, weight_decay=decay, fused=True
        )


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of the next step, in place if it is a tensor."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def average_passes(rows: list[Tensor]) -> Tensor:
    """Mean of the terms over the passes of a step."""
    return rows[0] if len(rows) == 1 else torch.stack(rows).mean(0)


class EagerEngine:
    """Runs steps eagerly, on any device."""

    name = "eager"

    def __init__(self, plan: Plan, batches: AnyBatches, unlabelled: UnlabelledBatches | None, *, start: int) -> None:
        self.plan = plan
        self.batches = batches.from_step(start)
        self.unlabelled: Iterator[Assigned] | None = None if unlabelled is None else unlabelled.from_step(start)
        self.noise = torch.Generator(plan.device)
        self.pixels = torch.Generator(plan.device)
        self.torchs_own = [torch.default_generator]
        if plan.device.type == "cuda":
            index = torch.cuda.current_device() if plan.device.index is None else plan.device.index
            self.torchs_own.append(torch.cuda.default_generators[index])

    def run(self, start: int, stop: int, rate_at: Callable[[int], float], seconds: float) -> Tensor:
        """Run steps from ``start`` to ``stop`` or until time is up; returns their terms, (steps, terms), on the CPU."""
        begin, rows = time.perf_counter(), []
        for step in range(start, stop):
            set_rate(self.plan.optimizer, rate_at(step))
            rows.append(self._step(step))
            if time.perf_counter() - begin > seconds:
                break
        return torch.stack(rows).cpu()

    def _step(self, step: int) -> Tensor:
        plan = self.plan
        inputs, labels, weights, groups = next(self.batches)
        unlabelled = None if self.unlabelled is None else next(self.unlabelled)
        self.noise.manual_seed(derive(plan.seed, *plan.noise_purpose(), step))
        for generator in self.torchs_own:  # dropout uses the default generators
            generator.manual_seed(derive(plan.seed, "torch", plan.rank, step))
        if plan.augment is not None:
            self.pixels.manual_seed(derive(plan.seed, "augment", plan.rank, step))
            inputs = crop_and_flip(inputs, padding=AUGMENTATIONS[plan.augment], generator=self.pixels)
        plan.optimizer.zero_grad(set_to_none=True)
        rows = []
        for _ in range(plan.passes):
            with plan.weights():
                with plan.autocast():
                    terms = plan.objective(
                        plan.model,
                        inputs,
                        labels,
                        plan.samples_per_pass,
                        unlabelled=unlabelled,
                        weights=weights,
                        groups=groups,
                        generator=self.noise,
                        step=step,
                        steps=plan.steps,
                    )
                plan.share(terms.loss).backward()
                average_gradients(plan.parameters, plan.world)  # for each sample, because the curvature needs it
            rows.append(torch.stack([value.double() for value in terms.named().values()]))
        plan.optimizer.step()
        return average_passes(rows)


class CaptureFailed(RuntimeError):  # noqa: N818  (reads as a sentence)
    """A step that runs eagerly cannot be captured in a CUDA graph."""


class GraphEngine:
    """Runs the whole step, from selecting the batch to the optimiser, as one CUDA graph that the host launches.

    The first steps run eagerly and count as training steps. Then the same code is captured and replayed.
    """

    def __init__(
        self,
        plan: Plan,
        batches: TensorBatches,
        unlabelled: UnlabelledBatches | None,
        *,
        start: int,
        compiled: bool = True,
    ) -> None:
        self.plan, self.batches, self.unlabelled = plan, batches, unlabelled
        self.name = "compiled, one CUDA graph" if compiled else "one CUDA graph"
        self.eager_steps = 0
        self.taken = 0  # steps in the current call of `run`
        self.graph: torch.cuda.CUDAGraph | None = None
        self.stream = torch.cuda.Stream(plan.device)
        self.order = batches.order(start // batches.per_epoch).to(plan.device)
        self.counters = torch.zeros(3, dtype=torch.long, device=plan.device)  # step, batch in the epoch, row
        self.counters[0], self.counters[1] = start, start % batches.per_epoch
        self.steps = torch.tensor(plan.steps, device=plan.device)  # a tensor: one compiled step for runs of any length
        self.rows = torch.zeros(ROWS, len(plan.objective.term_names), dtype=torch.float64, device=plan.device)
        self.others = [] if unlabelled is None else unlabelled.sets
        self.other_orders = [each.order(start // each.per_epoch).to(plan.device) for each in self.others]
        self.other_positions = [torch.full((1,), start % each.per_epoch, device=plan.device) for each in self.others]
        self.evaluate = compile_function(self._evaluate) if compiled else self._evaluate
        torch.cuda.manual_seed(derive(plan.seed, "cuda", start))
        self.rate: float | None = None

    def run(self, start: int, stop: int, rate_at: Callable[[int], float], seconds: float) -> Tensor:
        """Run steps from ``start`` to ``stop``, at most `ROWS`; returns their terms, (steps, terms), on the CPU."""
        count, self.taken = min(stop - start, ROWS), 0
        for step in range(start, start + count):
            self._new_epochs(step)
            rate = rate_at(step)
            if rate != self.rate:
                set_rate(self.plan.optimizer, rate)
                self.rate = rate
            if self.eager_steps < WARM_UP_STEPS:
                self._eagerly()
            else:
                if self.graph is None:
                    try:
                        self._capture()
                    except torch.cuda.OutOfMemoryError:
                        raise
                    except RuntimeError as error:  # the same code has just run eagerly
                        raise CaptureFailed(f"{type(error).__name__}: {error}") from error
                assert self.graph is not None
                self.graph.replay()
            self.taken += 1
        rows = self.rows[:count].cpu()
        self.counters[2].zero_()
        return rows

    def _new_epochs(self, step: int) -> None:
        epoch, position = divmod(step, self.batches.per_epoch)
        if position == 0:
            self.order.copy_(self.batches.order(epoch))
            self.counters[1].zero_()
        for each, order, at in zip(self.others, self.other_orders, self.other_positions, strict=True):
            epoch, position = divmod(step, each.per_epoch)
            if position == 0:
                order.copy_(each.order(epoch))
                at.zero_()

    def _eagerly(self) -> None:
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            self._step()
            self.plan.optimizer.zero_grad(set_to_none=True)
        torch.cuda.current_stream().wait_stream(self.stream)
        self.eager_steps += 1

    def _capture(self) -> None:
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        try:
            with no_garbage_collected(), torch.cuda.graph(graph, stream=self.stream):
                self._step()
        except Exception:
            forget_capture(self.plan.device)
            raise
        self.graph = graph

    def _step(self) -> None:
        picked = self.order.index_select(0, self.counters[1:2]).squeeze(0)
        inputs, labels, weights, groups = self.batches.data.map(lambda each: each.index_select(0, picked))
        unlabelled: list[UnlabelledSet] = []
        for each, order, at in zip(self.others, self.other_orders, self.other_positions, strict=True):
            rows = order.index_select(0, at).squeeze(0)
            own = each.data.groups
            there = channels_last(each.inputs.index_select(0, rows))
            unlabelled.append(as_set(there, None if own is None else own.index_select(0, rows)))
            at += 1
        if self.plan.augment is not None:
            inputs = crop_and_flip(inputs, padding=AUGMENTATIONS[self.plan.augment])
        when = self.counters[0], self.steps
        batch = Batch(channels_last(inputs), labels, weights, groups)
        by_pass = []
        for _ in range(self.plan.passes):
            with self.plan.weights():
                loss, row = self.evaluate(batch, unlabelled, when)
                self.plan.share(loss).backward()
            by_pass.append(row)
        self.plan.optimizer.step()
        self.rows.index_copy_(0, self.counters[2:3], average_passes(by_pass).unsqueeze(0))
        self.counters += 1

    def _evaluate(
        self,
        batch: Batch,
        unlabelled: list[UnlabelledSet],
        when: tuple[Tensor, Tensor],
    ) -> tuple[Tensor, Tensor]:
        plan = self.plan
        assigned = None if self.unlabelled is None else Assigned(tuple(unlabelled), self.unlabelled.which)
        with plan.autocast():
            terms = plan.objective(
                plan.model,
                batch.inputs,
                batch.labels,
                plan.samples_per_pass,
                unlabelled=assigned,
                weights=batch.weights,
                groups=batch.groups,
                step=when[0],
                steps=when[1],
            )
            return terms.loss, torch.stack([value.double() for value in terms.named().values()])


class Engine:
    """Runs steps in the fastest possible way: as a CUDA graph where possible, eagerly otherwise.

    If compilation or capture fails, steps run eagerly after a warning. Other exceptions are raised.

    Args:
        plan: Everything that a training step needs.
        batches: Labelled batches.
        unlabelled: Unlabelled batches of the summaries.
        start: Number of steps already taken.
        choice: ``"auto"``, ``"eager"``, ``"cudagraph"`` (a CUDA graph without compilation) or ``"compile+cudagraph"``
            (compiled and captured; an error if that is not possible).
    """

    def __init__(
        self,
        plan: Plan,
        batches: AnyBatches,
        unlabelled: UnlabelledBatches | None,
        *,
        start: int,
        choice: str,
    ) -> None:
        self.plan, self.batches, self.unlabelled, self.choice = plan, batches, unlabelled, choice
        self.engine: EagerEngine | GraphEngine | PerceptronEngine
        if wants_graph(choice, plan.device, batches, plan.world):
            assert isinstance(batches, TensorBatches)
            self.engine = GraphEngine(plan, batches, unlabelled, start=start, compiled=choice != "cudagraph")
        elif choice != "eager" and isinstance(batches, StoredBatches) and is_written_out(plan, batches):
            self.engine = PerceptronEngine(plan, batches, start=start)
        else:
            self.engine = EagerEngine(plan, batches, unlabelled, start=start)

    @property
    def name(self) -> str:
        """Description of how steps run, for the result."""
        return f"{self.engine.name}, {self.plan.precision}, {self.plan.device.type}"

    def run(self, start: int, stop: int, rate_at: Callable[[int], float], seconds: float) -> Tensor:
        """Run steps from ``start`` to at most ``stop``; returns their terms, (steps, terms), on the CPU."""
        engine = self.engine
        try:
            return engine.run(start, stop, rate_at, seconds)
        except Exception as error:
            expected = isinstance(error, CaptureFailed) or is_compiler_error(error)
            if (
                isinstance(engine, EagerEngine | PerceptronEngine)
                or engine.graph is not None
                or self.choice == "compile+cudagraph"
                or not expected
            ):
                raise
            done = engine.taken
            torch.cuda.synchronize()
            warnings.warn(
                f"the training step could not be {engine.name}, so it runs eagerly, more slowly: "
                f"{type(error).__name__}: {' '.join(str(error).split())[:MOST_TEXT]}",
                stacklevel=2,
            )
            self.plan.optimizer.zero_grad(set_to_none=True)
            if isinstance(self.plan.optimizer, NaturalGradient):
                self.plan.optimizer.compiled = False
            self.engine = EagerEngine(self.plan, self.batches, self.unlabelled, start=start + done)
            rows = engine.rows[:done].cpu()
            if start + done < stop:
                rows = torch.cat([rows, self.engine.run(start + done, stop, rate_at, seconds)])
            return rows


@contextmanager
def no_garbage_collected() -> Iterator[None]:
    """Disable garbage collection during capture: destroying the graph of an earlier run would invalidate it."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def forget_capture(device: torch.device) -> None:
    """Reset torch's generator after a failed capture; otherwise it stays in capture mode and raises errors."""
    index = torch.cuda.current_device() if device.index is None else device.index
    torch.cuda.default_generators[index].graphsafe_set_state(torch.Generator(torch.device("cuda", index)))


def wants_graph(choice: str, device: torch.device, batches: AnyBatches, world: int) -> bool:
    """Whether to capture steps in a CUDA graph: on CUDA, in one process, with the data on the device."""
    possible = device.type == "cuda" and isinstance(batches, TensorBatches) and world == 1
    if choice == "compile+cudagraph" and not possible:
        raise ValueError(
            "`engine` can be 'compile+cudagraph' only for tensors on CUDA and one process: 'auto' uses a CUDA graph "
            "where possible"
        )
    return possible and choice != "eager"
