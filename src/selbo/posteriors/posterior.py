"""What a posterior over the weights of a network is: samples of weights, and what they predict.

A kind of posterior says what its noise is (`draw_noise`) and what the network answers under it (`forward_noise`).
Chunks of samples, predictions block by block, compiled predictions, saving and loading follow from these two.
"""

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Final
from weakref import WeakSet

import torch
from torch import Tensor, nn

from selbo import _checks
from selbo._compile import in_backward, is_compiler_error
from selbo._numerics import result_dtype
from selbo.nn import compiled, storage

ESTIMATORS: Final = ("shared", "local", "flipout")

ENGINES: Final = ("eager", "compiled")

MOST_ROWS: Final = 1 << 14
"""Samples times inputs that go through a network at a time."""

MOST_WEIGHTS: Final = 1 << 26
"""Samples times weights that exist at a time: a quarter of a GiB."""

_NOT_COMPILED: Final[WeakSet[nn.Module]] = WeakSet()
"""Networks that the compiler failed at, which it is not asked for again."""


class Posterior(ABC):
    """The handle of a network and its distribution over weights: made once, handed down to all that use the network.

    A new kind defines `draw_noise` and `forward_noise`; what else it overrides depends on what it has.

    Args:
        network: The network; not copied. Its layers must not be replaced while the handle is in use.
    """

    is_bayesian: ClassVar[bool] = True
    """Whether samples differ."""

    num_weights: int = 0
    """Number of random numbers of one sample, which bounds how many samples are made at a time."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        self._first = next(iter(network.parameters()), None)

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return torch.device("cpu") if self._first is None else self._first.device

    # --- what a kind defines ---

    @abstractmethod
    def draw_noise(self, num_samples: int, generator: torch.Generator | None) -> Tensor | None:
        """The randomness of S samples, (S, ...); None if there is none, so that one sample is all there is."""

    @abstractmethod
    def forward_noise(
        self,
        inputs: Tensor,
        noise: Tensor | None,
        *,
        estimator: str = "shared",
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """What the network answers under given noise: (B, ...), (S, ...) -> (S, B, K)."""

    # --- what a kind may have ---

    def kl_divergence(self) -> Tensor | None:
        """KL divergence from the prior that the loss contains, in nats, shape (); None if it contains none."""
        return None

    def once(self) -> AbstractContextManager[object]:
        """A context in which what samples and KL share is computed once; for one step, with one backward pass."""
        return nullcontext()

    def settings(self) -> dict[str, Any]:
        """What distinguishes it from other posteriors over the same network, for a checkpoint; JSON."""
        return {}

    def mean_network(self) -> nn.Module:
        """A deterministic network at the mean of the weights, a copy."""
        raise NotImplementedError(f"{type(self).__name__} has no mean network")

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that training changes."""
        return dict(self.network.state_dict())

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Put back what `state_dict` gave."""
        self.network.load_state_dict(state)

    def structure(self) -> dict[str, Any]:
        """What a saved file must agree with: a format, layers by name, and type and shape of every tensor."""
        return storage.describe_tensors(self.network, format_name=f"selbo-{type(self).__name__.lower()}-1")

    # --- what follows ---

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it to one safetensors file, whole or not at all."""
        return storage.write(self.network, path, self.structure())

    def load(self, path: str | os.PathLike[str]) -> None:
        """Read a file that `save` wrote for a posterior of the same structure."""
        storage.read(self.network, path, self.structure())

    def forward_samples(
        self,
        inputs: Tensor,
        num_samples: int,
        *,
        generator: torch.Generator | None = None,
        chunk_size: int | None = None,
        estimator: str = "shared",
    ) -> Tensor:
        """What the network answers under S samples of its weights, (S, B, K); see `selbo.forward_samples`."""
        _checks.whole("num_samples", num_samples, at_least=1)
        if not isinstance(inputs, Tensor) or inputs.ndim < 1 or inputs.shape[0] == 0:
            came = f"shape {tuple(inputs.shape)}" if isinstance(inputs, Tensor) else type(inputs).__name__
            raise ValueError(
                f"`inputs` must be a tensor whose first dimension is a batch of at least one, but got {came}"
            )
        _checks.one_of("estimator", estimator, ESTIMATORS)
        if generator is not None and self.is_bayesian and in_backward():
            raise ValueError(
                "`generator` must not be given where the draws are made again in the backward pass, as activation "
                "checkpointing does: it has moved on by then, while the state of torch's own is put back"
            )
        size = num_samples if chunk_size is None else _checks.whole("chunk_size", chunk_size, at_least=1)
        chunks = []
        with self.once():  # for all chunks
            for first in range(0, num_samples, size):
                noise = self.draw_noise(min(size, num_samples - first), generator)
                chunks.append(self.forward_noise(inputs, noise, estimator=estimator, generator=generator))
                if noise is None:
                    break
                del noise  # before the next is drawn
        return chunks[0] if len(chunks) == 1 else torch.cat(chunks)

    def logits(
        self,
        inputs: Tensor,
        num_samples: int,
        *,
        generator: torch.Generator | None = None,
        chunk_size: int | None = None,
        estimator: str = "shared",
    ) -> Tensor:
        """`forward_samples` of a classifier: logits of at least two classes, (S, B, K), at least float32."""
        answers = self.forward_samples(
            inputs, num_samples, generator=generator, chunk_size=chunk_size, estimator=estimator
        )
        return as_logits(answers, inputs)

    def logits_by_block(
        self,
        blocks: Iterable[Tensor],
        num_samples: int,
        *,
        generator: torch.Generator | None = None,
        chunk_size: int | None = None,
        engine: str = "eager",
        rows: int | None = None,
    ) -> Iterator[Tensor]:
        """Logits (S, B, K) of each block of inputs, all blocks under the same S samples: a sample is one function.

        Call it in evaluation mode and without gradients.

        Args:
            blocks: Inputs on the device of the network, shape (B, ...).
            num_samples: S, the number of samples.
            generator: Source of the noise, on that device; one seeded by torch's global state if not given.
            chunk_size: Samples at a time; chosen to bound memory if not given. Compiled code has one at a time.
            engine: ``"eager"``, or ``"compiled"``; a network that cannot be compiled runs eagerly, after one warning.
            rows: Inputs that compiled code takes at a time, shorter blocks being filled up; those of the first block if
                not given.
        """
        _checks.whole("num_samples", num_samples, at_least=1)
        _checks.one_of("engine", engine, ENGINES)
        if chunk_size is not None:
            _checks.whole("chunk_size", chunk_size, at_least=1)
        state = None
        for block in blocks:
            if block.ndim < 1 or len(block) == 0:
                raise ValueError(f"`inputs` must be a batch of at least one, but got shape {tuple(block.shape)}")
            if generator is None:
                generator = torch.Generator(block.device)
                generator.manual_seed(int(torch.randint(1 << 62, ())))
            state = generator.get_state() if state is None else state
            generator.set_state(state)
            bounded = max(1, min(MOST_ROWS // len(block), MOST_WEIGHTS // max(1, self.num_weights)))
            size = bounded if chunk_size is None else chunk_size
            rows = len(block) if rows is None else rows
            logits, failure = None, ""
            if engine == "compiled" and self.network not in _NOT_COMPILED:
                try:
                    logits = as_logits(self._compiled_logits(block, num_samples, rows, generator), block)
                except Exception as error:
                    if not is_compiler_error(error):
                        raise
                    failure = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
                    generator.set_state(state)
            if logits is None:
                logits = self.logits(block, num_samples, generator=generator, chunk_size=size)
            if failure:  # of the compiler: what is wrong with the inputs was an error in the line above
                _NOT_COMPILED.add(self.network)
                warnings.warn(
                    f"the network could not be compiled, so it predicts eagerly, more slowly: {failure}", stacklevel=2
                )
            yield logits

    def _compiled_logits(
        self, inputs: Tensor, num_samples: int, rows: int, generator: torch.Generator | None
    ) -> Tensor:
        """One sample at a time, which is the fastest on an H200; noise is drawn outside, so it is that of eager code.

        The code is compiled for batches of ``rows``: inputs are filled up to that with copies of the last one.
        """
        count = len(inputs)
        if count < rows:
            inputs = torch.cat([inputs, inputs[-1:].expand(rows - count, *inputs.shape[1:])])
        if inputs.device.type == "cuda":
            inputs = compiled.channels_last(inputs)
        forward, samples = _compiled_forward(compiled.BACKEND), []
        for _ in range(num_samples):
            noise = self.draw_noise(1, generator)
            samples.append(forward(self, inputs, noise)[:, :count])
            if noise is None:
                break
        return torch.cat(samples)


class Deterministic(Posterior):
    """A network as it is: all probability on one set of weights."""

    is_bayesian = False

    def draw_noise(self, num_samples: int, generator: torch.Generator | None) -> None:
        """None."""

    def forward_noise(
        self,
        inputs: Tensor,
        noise: Tensor | None,
        *,
        estimator: str = "shared",
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """What the network answers, as one sample: (1, B, K)."""
        return tensor_answer(self.network(inputs)).unsqueeze(0)


def tensor_answer(answer: object) -> Tensor:
    """What a network answered, if it is one tensor."""
    if not isinstance(answer, Tensor):
        raise ValueError(
            f"the network must answer with one tensor of logits, but gave {type(answer).__name__}: wrap it in a module "
            "that returns the logits alone"
        )
    return answer


def as_logits(logits: Tensor, inputs: Tensor) -> Tensor:
    """What a network answered, if it can be logits (S, B, K), at least float32."""
    if logits.ndim != 3 or logits.shape[-1] < 2:
        raise ValueError(
            "`model` must answer with logits of shape (B, K) for at least two classes, but gave "
            f"{tuple(logits.shape[1:])} for inputs of shape {tuple(inputs.shape)}"
        )
    if logits.shape[1] != inputs.shape[0]:
        raise ValueError(
            f"`model` must answer with one row an input, but gave {logits.shape[1]} rows for {inputs.shape[0]}"
        )
    return logits.to(result_dtype(logits))


@cache
def _compiled_forward(backend: str | Callable[..., object]) -> Callable[..., Tensor]:
    """Made on first use, because it takes long to import the compiler."""
    return compiled.compile_function(_forward, backend=backend)


def _forward(posterior: Posterior, inputs: Tensor, noise: Tensor | None) -> Tensor:
    return posterior.forward_noise(inputs, noise)
