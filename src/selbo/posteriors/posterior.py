"""Base class of posteriors over the weights of a network: weight samples and their predictions.

A subclass defines its noise (`draw_noise`) and the outputs of the network for this noise (`forward_noise`). Chunks of
samples, predictions by blocks, compiled predictions, saving and loading are built on these two.
"""

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Final
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.func import functional_call

from selbo import _checks
from selbo._compile import in_backward, is_compiler_error
from selbo._numerics import result_dtype
from selbo.nn import compiled, storage

ESTIMATORS: Final = ("shared", "local", "flipout")

PREDICTION_ENGINES: Final = ("eager", "compiled")

MOST_ROWS: Final = 1 << 14
"""Largest number of samples times inputs per pass."""

MOST_WEIGHTS: Final = 1 << 26
"""Largest number of samples times weights in memory: a quarter of a GiB."""

_NOT_COMPILED: Final[WeakSet[nn.Module]] = WeakSet()
"""Networks that failed to compile and are not compiled again."""


class Posterior(ABC):
    """A network and its distribution over weights. Create it once and pass it to all functions that use the network.

    A subclass must define `draw_noise` and `forward_noise`, and may override other methods.

    Args:
        network: The network; not copied. Do not replace its layers while the posterior is in use.
    """

    is_bayesian: ClassVar[bool] = True
    """Whether samples differ."""

    can_scale: ClassVar[bool] = False
    """Whether `scale` can be changed."""

    can_compile: ClassVar[bool] = True
    """Whether predictions can be compiled; if not, they run eagerly."""

    is_sample: ClassVar[bool] = False
    """Whether the weights are one sample during training, so that a loss for Bayesian networks applies without KL."""

    num_members: int = 1
    """Number of networks trained side by side. `selbo.fit` minimises the sum of their losses, so that each is trained
    as on its own."""

    num_weights: int = 0
    """Number of random numbers per sample, which limits the number of samples per pass."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        self._first = next(iter(network.parameters()), None)
        self._scale = 1.0

    @property
    def device(self) -> torch.device:
        """Device of the network."""
        return torch.device("cpu") if self._first is None else self._first.device

    @property
    def scale(self) -> float:
        """Factor on the standard deviations of the weights in predictions; 1 for the posterior as it was trained.

        The posterior temperature is its square. `selbo.choose_scale` chooses it by a belief.
        """
        return self._scale

    @scale.setter
    def scale(self, value: float) -> None:
        if not self.can_scale:
            raise ValueError(f"`scale` must be 1 for {type(self).__name__}, which has no standard deviations")
        self._scale = _checks.positive("scale", value)

    # --- methods that a subclass must define ---

    @abstractmethod
    def draw_noise(self, num_samples: int, generator: torch.Generator | None) -> Tensor | None:
        """Noise of S samples, (S, ...); None if there is no noise, and thus only one sample."""

    @abstractmethod
    def forward_noise(
        self,
        inputs: Tensor,
        noise: Tensor | None,
        *,
        estimator: str = "shared",
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Outputs of the network for given noise: (B, ...), (S, ...) -> (S, B, K)."""

    def require_shared(self, estimator: str) -> None:
        """Raise an error unless samples are shared by the batch, for kinds that have no other estimator."""
        if estimator != "shared":
            raise ValueError(f"`estimator` must be 'shared' for {type(self).__name__}, but got {estimator!r}")

    # --- methods that a subclass may override ---

    def kl_divergence(self) -> Tensor | None:
        """KL divergence from the prior, for the loss, in nats, shape (); None if the loss has no KL term."""
        return None

    def summarised(self, log_probs: Tensor) -> Tensor:
        """Log-probabilities that a summary is about: (S, B, K) -> (S or 1, B, K)."""
        return log_probs

    def use_channels_last(self) -> None:
        """Store the weights of convolutions in the memory format that is fastest on a GPU."""
        self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def once(self) -> AbstractContextManager[object]:
        """Context that caches values shared by samples and KL; for one step, with one backward pass."""
        return nullcontext()

    def settings(self) -> dict[str, Any]:
        """Settings that distinguish it from other posteriors over the same network, for a checkpoint, as JSON."""
        return {}

    def mean_network(self) -> nn.Module:
        """A deterministic copy of the network at the mean of the weights."""
        raise ValueError(f"`bnn` must have a mean network, but {type(self).__name__} has none")

    def state_dict(self) -> dict[str, Tensor]:
        """All tensors that training changes."""
        return dict(self.network.state_dict())

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore a result of `state_dict`."""
        self.network.load_state_dict(state)

    def structure(self) -> dict[str, Any]:
        """Structure that a saved file must match: a format, layers by name, and type and shape of every tensor."""
        return storage.describe_tensors(self.network, format_name=f"selbo-{type(self).__name__.lower()}-1")

    # --- methods of every posterior ---

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the posterior to one safetensors file, atomically."""
        return storage.write_network(self.network, path, self._header())

    def load(self, path: str | os.PathLike[str]) -> None:
        """Read a file that `save` wrote for a posterior of the same structure."""
        tensors, found = storage.read_tensors(path, self.structure())
        self.network.load_state_dict(tensors, strict=False)  # shared tensors are stored under one name
        self._scale = found.get("scale", 1.0)

    def _header(self) -> dict[str, Any]:
        """The structure, and the scale if it was changed, for a file."""
        return self.structure() if self._scale == 1 else {**self.structure(), "scale": self._scale}

    def log_probs(
        self,
        inputs: Tensor,
        num_samples: int = 32,
        *,
        generator: torch.Generator | None = None,
        batch_size: int = 1024,
    ) -> Tensor:
        """Log-probabilities under each sample, without gradients and in evaluation mode: (S, B, K).

        Pass those for inputs that a belief is about to `selbo.belief_weights`.

        Args:
            inputs: Shape (B, ...), on the device of the network.
            num_samples: S, the number of samples.
            generator: Source of the noise, on that device; one seeded by torch's global state if not given.
            batch_size: Number of inputs per pass.
        """
        blocks = inputs.split(_checks.whole("batch_size", batch_size, at_least=1))
        with torch.no_grad(), evaluation_mode(self.network):
            parts = list(self.logits_by_block(blocks, num_samples, generator=generator))
        return torch.cat(parts, 1).log_softmax(-1)

    def forward_samples(
        self,
        inputs: Tensor,
        num_samples: int,
        *,
        generator: torch.Generator | None = None,
        chunk_size: int | None = None,
        estimator: str = "shared",
    ) -> Tensor:
        """Outputs of the network for S samples of its weights, (S, B, K); see `selbo.forward_samples`."""
        _checks.whole("num_samples", num_samples, at_least=1)
        if not isinstance(inputs, Tensor) or inputs.ndim < 1 or inputs.shape[0] == 0:
            came = f"shape {tuple(inputs.shape)}" if isinstance(inputs, Tensor) else type(inputs).__name__
            raise ValueError(
                f"`inputs` must be a tensor whose first dimension is a batch of at least one, but got {came}"
            )
        _checks.one_of("estimator", estimator, ESTIMATORS)
        if generator is not None and self.is_bayesian and in_backward():
            raise ValueError(
                "`generator` must not be given if samples are drawn again in the backward pass, as activation "
                "checkpointing does: only the state of torch's default generator is restored"
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
        """`forward_samples` of a classifier: logits of at least two classes, (S, B, K), float32 or wider."""
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
        """Logits (S, B, K) of each block of inputs, with the same S samples for all blocks.

        Call it in evaluation mode and without gradients.

        Args:
            blocks: Inputs on the device of the network, shape (B, ...).
            num_samples: S, the number of samples.
            generator: Source of the noise, on that device; one seeded by torch's global state if not given.
            chunk_size: Number of samples per pass; chosen to bound memory if not given. Compiled code uses 1.
            engine: ``"eager"``, or ``"compiled"``; a network that cannot be compiled runs eagerly, after one warning.
            rows: Batch size of compiled code; shorter blocks are padded to it. By default that of the first block.
        """
        _checks.whole("num_samples", num_samples, at_least=1)
        _checks.one_of("engine", engine, PREDICTION_ENGINES)
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
            if engine == "compiled" and self.can_compile and self.network not in _NOT_COMPILED:
                try:
                    logits = as_logits(self._compiled_logits(block, num_samples, rows, generator), block)
                except Exception as error:
                    if not is_compiler_error(error):
                        raise
                    failure = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
                    generator.set_state(state)
            if logits is None:
                logits = self.logits(block, num_samples, generator=generator, chunk_size=size)
            if failure:  # a failure of the compiler: bad inputs have raised an error above
                _NOT_COMPILED.add(self.network)
                warnings.warn(
                    f"the network could not be compiled, so it predicts eagerly, more slowly: {failure}", stacklevel=2
                )
            yield logits

    def _compiled_logits(
        self, inputs: Tensor, num_samples: int, rows: int, generator: torch.Generator | None
    ) -> Tensor:
        """Run one sample at a time, which is fastest on an H200; noise is drawn outside, as in eager code.

        The code is compiled for batches of ``rows``: inputs are padded with copies of the last one.
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


def draw_seeds(num_samples: int, device: torch.device, generator: torch.Generator | None) -> Tensor:
    """One seed per sample, (S, 1), for posteriors that draw their noise later; the same for any size of chunks."""
    one = [torch.randint(1 << 62, (1,), generator=generator, device=device) for _ in range(num_samples)]
    return torch.stack(one)


class Deterministic(Posterior):
    """A deterministic network: all probability is on one set of weights."""

    is_bayesian = False

    def draw_noise(self, num_samples: int, generator: torch.Generator | None) -> None:
        """Return None: there is no noise."""

    def forward_noise(
        self,
        inputs: Tensor,
        noise: Tensor | None,
        *,
        estimator: str = "shared",
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Outputs of the network, as one sample: (1, B, K)."""
        return tensor_answer(self.network(inputs)).unsqueeze(0)


class WeightSample(Deterministic):
    """A network whose weights are one sample from a posterior at the moment; its optimiser takes care of the KL."""

    is_sample = True


def forward_with(network: nn.Module, own: Mapping[str, Tensor], values: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
    """Output of a network whose tensors have other values during the call; their own values are not overwritten.

    Args:
        network: The network.
        own: Tensors of the network to exchange, by name.
        values: Their values, by the same names.
        inputs: Inputs of the network.
    """
    if torch.compiler.is_compiling():
        return tensor_answer(functional_call(network, dict(values), (inputs,)))
    # quicker than functional_call, and also right for layers that keep their own list of weights, such as LSTM
    with exchanged(own, values):
        return tensor_answer(network(inputs))


@contextmanager
def exchanged(own: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> Iterator[None]:
    """A context in which tensors have other values, by the same names; their own values are not overwritten."""
    before = [(each, each.data) for each in own.values()]
    try:
        for name, each in own.items():
            each.data = values[name]
        yield
    finally:
        for each, value in before:
            each.data = value


class evaluation_mode:  # noqa: N801  (reads as a statement)
    """Put a network in evaluation mode within a block; afterwards each module returns to its previous mode."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def __enter__(self) -> None:
        self.modes = [(module, module.training) for module in self.model.modules()]
        self.model.eval()

    def __exit__(self, *_: object) -> None:
        for module, training in self.modes:
            module.training = training


def tensor_answer(answer: object) -> Tensor:
    """Return the output of a network if it is one tensor; otherwise raise an error."""
    if not isinstance(answer, Tensor):
        raise ValueError(
            f"the network must return one tensor of logits, but returned {type(answer).__name__}: wrap it in a module "
            "that returns only the logits"
        )
    return answer


def as_logits(logits: Tensor, inputs: Tensor) -> Tensor:
    """Return outputs of a network in float32 or wider if they can be logits (S, B, K); otherwise raise an error."""
    if logits.ndim != 3 or logits.shape[-1] < 2:
        raise ValueError(
            "`model` must return logits of shape (B, K) for at least two classes, but returned "
            f"{tuple(logits.shape[1:])} for inputs of shape {tuple(inputs.shape)}"
        )
    if logits.shape[1] != inputs.shape[0]:
        raise ValueError(
            f"`model` must return one row per input, but returned {logits.shape[1]} rows for {inputs.shape[0]}"
        )
    return logits.to(result_dtype(logits))


@cache
def _compiled_forward(backend: str | Callable[..., object]) -> Callable[..., Tensor]:
    """Compiled on first use, because importing the compiler is slow."""
    return compiled.compile_function(_forward, backend=backend)


def _forward(posterior: Posterior, inputs: Tensor, noise: Tensor | None) -> Tensor:
    return posterior.forward_noise(inputs, noise)
