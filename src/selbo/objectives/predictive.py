"""The posterior predictive distribution: what the draws of a network say together."""

import math
import warnings
from collections.abc import Iterable, Iterator
from typing import Final
from weakref import WeakSet

import torch
from torch import Tensor, nn

from selbo import _checks
from selbo.nn.compiled import compiled_logits
from selbo.nn.gaussian import gaussians
from selbo.objectives.objective import Objective, as_logits, draw_logits

ENGINES: Final = ("eager", "compiled")

MOST_ROWS: Final = 1 << 14
"""Draws times inputs that go through a network at a time."""

MOST_WEIGHTS: Final = 1 << 26
"""Draws times weights that exist at a time: a quarter of a GiB."""

_NOT_COMPILED: Final[WeakSet[nn.Module]] = WeakSet()
"""Networks that the compiler failed at, which it is not asked for again."""


class evaluation_mode:  # noqa: N801  (reads as a statement)
    """A network in evaluation mode for the length of a block, every module back in its own mode after it."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def __enter__(self) -> None:
        self.modes = [(module, module.training) for module in self.model.modules()]
        self.model.eval()

    def __exit__(self, *_: object) -> None:
        for module, training in self.modes:
            module.training = training


def logits_by_draw(
    model: nn.Module,
    blocks: Iterable[Tensor],
    *,
    num_samples: int,
    generator: torch.Generator | None = None,
    chunk_size: int | None = None,
    engine: str = "eager",
    rows: int | None = None,
) -> Iterator[Tensor]:
    """Logits (S, B, K) of each block of inputs, all blocks under the same S draws, so that a draw is one function.

    Call it in evaluation mode and without gradients.

    Args:
        model: A network made by `to_bayesian`, or a plain one, which has a single draw.
        blocks: Inputs on the device of the network, shape (B, ...).
        num_samples: S, the number of draws.
        generator: Where the noise comes from, on that device; one seeded by torch's global state if not given.
        chunk_size: Draws at a time; chosen to bound memory if not given. Compiled code has one at a time.
        engine: ``"eager"``, or ``"compiled"``; a network that cannot be compiled is told of once, and runs eagerly.
        rows: Inputs that compiled code takes at a time, shorter blocks being filled up; those of the first block if not
            given.
    """
    _checks.whole("num_samples", num_samples, at_least=1)
    _checks.one_of("engine", engine, ENGINES)
    if chunk_size is not None:
        _checks.whole("chunk_size", chunk_size, at_least=1)
    weights = sum(each.mean.numel() for each in gaussians(model))
    state = None
    for block in blocks:
        if block.ndim < 1 or len(block) == 0:
            raise ValueError(f"`inputs` must be a batch of at least one, but got shape {tuple(block.shape)}")
        if generator is None:
            generator = torch.Generator(block.device)
            generator.manual_seed(int(torch.randint(1 << 62, ())))
        state = generator.get_state() if state is None else state
        generator.set_state(state)
        bounded = max(1, min(MOST_ROWS // len(block), MOST_WEIGHTS // max(1, weights)))
        size = bounded if chunk_size is None else chunk_size
        rows = len(block) if rows is None else rows
        logits, failure = None, ""
        if engine == "compiled" and model not in _NOT_COMPILED:
            try:
                logits = as_logits(compiled_logits(model, block, num_samples, rows=rows, generator=generator), block)
            except Exception as error:
                failure = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
                generator.set_state(state)
        if logits is None:
            logits = draw_logits(model, block, num_samples, generator=generator, chunk_size=size)
        if failure:  # of the compiler: what is wrong with the inputs was an error in the line above
            _NOT_COMPILED.add(model)
            warnings.warn(
                f"the network could not be compiled, so it predicts eagerly, more slowly: {failure}", stacklevel=2
            )
        yield logits


def predictive_log_probs(
    model: nn.Module,
    inputs: Tensor,
    *,
    num_samples: int,
    objective: Objective | None = None,
    generator: torch.Generator | None = None,
    batch_size: int = 1024,
) -> Tensor:
    """Log of the posterior predictive probabilities, the mean of Eq. (2) over draws: (B, K).

    Without gradients and in evaluation mode.

    Args:
        model: A network made by `to_bayesian`, or a plain one.
        inputs: Shape (B, ...), on the device of the network.
        num_samples: Number of draws.
        objective: What the network was trained with, if its outputs are not logits of a softmax.
        generator: Where the noise comes from.
        batch_size: Number of inputs at a time.
    """
    blocks = inputs.split(_checks.whole("batch_size", batch_size, at_least=1))
    with torch.no_grad(), evaluation_mode(model):
        by_block = logits_by_draw(model, blocks, num_samples=num_samples, generator=generator)
        return torch.cat([mean_over_draws(log_probs_of(logits, objective)) for logits in by_block])


def log_probs_of(logits: Tensor, objective: Objective | None) -> Tensor:
    """Log-probabilities that outputs stand for: a softmax, unless the objective knows better."""
    return logits.log_softmax(-1) if objective is None else objective.log_probs(logits)


def mean_over_draws(log_probs: Tensor) -> Tensor:
    """Log of the mean probability over draws, Eq. (2): (S, B, K) -> (B, K)."""
    return log_probs.logsumexp(0) - math.log(len(log_probs))
