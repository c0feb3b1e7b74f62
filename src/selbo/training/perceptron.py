"""An engine for stored rows and a plain perceptron on the CPU: the step is written out in numpy.

A small network takes less time to compute than torch takes to record and to dispatch its operations. Here gradients and
Adam are written out, on arrays that share the memory of the weights and of the optimiser's averages, so validation and
checkpoints see them as they are.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from selbo.models import MLP
from selbo.objectives.likelihoods import Categorical
from selbo.posteriors import Deterministic
from selbo.training.stored import AnyBatches, StoredBatches

if TYPE_CHECKING:
    from selbo.training.engines import Plan

ONE_THREAD_PRODUCTS: Final = 2**23
"""Multiplications per step (rows times weights) below which a second thread does not pay off."""

Floats32 = NDArray[np.float32]


def is_written_out(plan: "Plan", batches: AnyBatches) -> bool:
    """Whether a run can be done by `PerceptronEngine`: cross-entropy of an MLP in single precision, by Adam."""
    network, optimizer = plan.posterior.network, plan.optimizer
    return (
        isinstance(batches, StoredBatches)
        and type(plan.posterior) is Deterministic
        and type(network) is MLP
        and all(type(each) in (nn.Linear, nn.ReLU) for each in network.layers)
        and all(each.dtype is torch.float32 and each.requires_grad for each in network.parameters())
        and type(plan.objective.likelihood) is Categorical
        and len(plan.objective.terms) == 0
        and type(optimizer) is torch.optim.Adam
        and len(optimizer.param_groups) == 1
        and optimizer.param_groups[0]["weight_decay"] == 0
        and not optimizer.param_groups[0]["amsgrad"]
        and (plan.device.type, plan.world, plan.precision, plan.augment) == ("cpu", 1, "fp32", None)
    )


class PerceptronEngine:
    """Runs steps of a plain perceptron; see `is_written_out`.

    Args:
        plan: Everything that a training step needs.
        batches: Stored rows.
        start: Number of steps already taken.
    """

    name = "written out"

    def __init__(self, plan: "Plan", batches: StoredBatches, *, start: int) -> None:
        self.plan, self.batches = plan, batches.from_step(start)
        self.num_data = plan.objective.num_data
        parameters = list(plan.posterior.network.parameters())
        group = plan.optimizer.param_groups[0]
        (self.beta1, self.beta2), self.eps = group["betas"], group["eps"]
        size = sum(each.numel() for each in parameters)
        self.weights, self.gradient, self.first, self.second, self.spare = (
            np.zeros(size, dtype=np.float32) for _ in range(5)
        )
        self.counters: list[Tensor] = []
        for parameter, place in zip(parameters, _places(parameters), strict=True):
            state = plan.optimizer.state[parameter]
            state.setdefault("step", torch.zeros(()))
            self.counters.append(state["step"])
            for name, flat in (("exp_avg", self.first), ("exp_avg_sq", self.second)):
                view = torch.from_numpy(flat[place]).view(parameter.shape)
                if name in state:
                    view.copy_(state[name])
                state[name] = view
            view = torch.from_numpy(self.weights[place]).view(parameter.shape)
            view.copy_(parameter.data)
            parameter.data = view
        self.count = int(self.counters[0])
        shapes = [tuple(each.shape) for each in parameters]
        whole: list[list[Floats32]] = [
            [flat[place].reshape(shape) for place, shape in zip(_places(parameters), shapes, strict=True)]
            for flat in (self.weights, self.gradient)
        ]
        self.layers = list(zip(whole[0][::2], whole[0][1::2], whole[1][::2], whole[1][1::2], strict=True))
        self.buffers: dict[int, _Buffers] = {}
        self.batch_size = batches.batch_size
        self.controller: Any = None
        with suppress(ImportError):
            from threadpoolctl import ThreadpoolController

            self.controller = ThreadpoolController()

    def run(self, start: int, stop: int, rate_at: Callable[[int], float], seconds: float) -> Tensor:
        """Run steps from ``start`` to ``stop`` or until time is up; returns their terms, (steps, terms)."""
        begin, losses = time.perf_counter(), []
        with self._few_threads():
            for step in range(start, stop):
                batch = next(self.batches)
                assert batch.labels is not None
                losses.append(self._gradient(batch.inputs.numpy(), batch.labels.numpy()))
                self._adam(rate_at(step))
                if time.perf_counter() - begin > seconds:
                    break
        for each in self.counters:
            each.fill_(self.count)
        found = torch.tensor(losses, dtype=torch.float64)
        nothing = torch.zeros_like(found)
        return torch.stack([found, -self.num_data * found, nothing, nothing], 1)

    def _few_threads(self) -> AbstractContextManager[Any]:
        """One thread for the products of small matrices: others would wait for each other longer than they compute."""
        if self.controller is None or self.batch_size * self.weights.size >= ONE_THREAD_PRODUCTS:
            return nullcontext()
        found: AbstractContextManager[Any] = self.controller.limit(limits=1, user_api="blas")
        return found

    def _gradient(self, inputs: Floats32, labels: NDArray[np.int64]) -> float:
        """Gradient of the mean cross-entropy; returns its value."""
        count = len(inputs)
        if count not in self.buffers:
            self.buffers[count] = _Buffers(count, [len(bias) for _, bias, _, _ in self.layers])
        buffers = self.buffers[count]
        values, ones, rows = buffers.values, buffers.ones, buffers.rows
        before = inputs
        for k, (weight, bias, _, _) in enumerate(self.layers):
            np.matmul(before, weight.T, out=values[k])
            values[k] += bias
            if k + 1 < len(self.layers):
                before = np.maximum(values[k], 0, out=values[k])
        logits = values[-1]
        logits -= logits.max(1, keepdims=True)
        right = logits[rows, labels]
        np.exp(logits, out=logits)
        sums = logits.sum(1)
        loss = float((np.log(sums) - right).mean(dtype=np.float64))
        logits /= sums[:, None]
        logits[rows, labels] -= 1
        logits *= np.float32(1 / count)  # now the gradient with respect to the logits
        for k in range(len(self.layers) - 1, -1, -1):
            weight, _, weight_gradient, bias_gradient = self.layers[k]
            delta = values[k] if k + 1 == len(self.layers) else buffers.deltas[k]
            np.matmul(delta.T, inputs if k == 0 else values[k - 1], out=weight_gradient)
            np.matmul(ones, delta, out=bias_gradient)
            if k:
                np.matmul(delta, weight, out=buffers.deltas[k - 1])
                np.greater(values[k - 1], 0, out=buffers.active[k - 1])
                buffers.deltas[k - 1] *= buffers.active[k - 1]
        return loss

    def _adam(self, rate: float) -> None:
        """One step of Adam, as torch takes it."""
        self.count += 1
        first, second, spare, gradient = self.first, self.second, self.spare, self.gradient
        first *= np.float32(self.beta1)
        np.multiply(gradient, np.float32(1 - self.beta1), out=spare)
        first += spare
        second *= np.float32(self.beta2)
        np.multiply(gradient, gradient, out=spare)
        spare *= np.float32(1 - self.beta2)
        second += spare
        np.sqrt(second, out=spare)
        spare *= np.float32((1 - self.beta2**self.count) ** -0.5)
        spare += np.float32(self.eps)
        np.divide(first, spare, out=spare)
        spare *= np.float32(rate / (1 - self.beta1**self.count))
        self.weights -= spare


class _Buffers:
    """Memory of a step with a given number of rows."""

    def __init__(self, count: int, widths: list[int]) -> None:
        self.values: list[Any] = [np.empty((count, width), dtype=np.float32) for width in widths]
        self.deltas: list[Any] = [np.empty((count, width), dtype=np.float32) for width in widths[:-1]]
        self.active: list[Any] = [np.empty((count, width), dtype=bool) for width in widths[:-1]]
        self.ones, self.rows = np.ones(count, dtype=np.float32), np.arange(count)


def _places(parameters: list[nn.Parameter]) -> Iterator[slice]:
    """Where each parameter stands among all of them."""
    ends = itertools.accumulate((each.numel() for each in parameters), initial=0)
    return (slice(*pair) for pair in itertools.pairwise(ends))
