"""Predictions of S weight draws, each shared by the whole batch, in one pass."""

from typing import Final

import torch
from torch import Tensor, nn

from selbo import _checks
from selbo._compile import in_backward, tensor_version
from selbo.nn.convert import check_bayesian, variational_layers
from selbo.nn.gaussian import GaussianParameter, SpreadsOnce, draw_noise, split_noise
from selbo.nn.layers import Rows

ESTIMATORS: Final = ("shared", "local", "flipout")


def tensor_answer(answer: object) -> Tensor:
    """What a network answered, if it is one tensor."""
    if not isinstance(answer, Tensor):
        raise ValueError(
            f"the network must answer with one tensor of logits, but gave {type(answer).__name__}: wrap it in a module "
            "that returns the logits alone"
        )
    return answer


def forward_samples(
    bnn: nn.Module,
    inputs: Tensor,
    num_samples: int,
    *,
    generator: torch.Generator | None = None,
    chunk_size: int | None = None,
    estimator: str = "shared",
) -> Tensor:
    """Logits under weights drawn from the posterior, Eq. (2) before its mean.

    Each draw is one set of weights for all inputs. The network is called once with S x B rows: layers without weights
    see one large batch, so BatchNorm in training mode takes its statistics over all draws and updates its running
    ones once; dropout has a mask for each row.

    Args:
        bnn: A network made by `to_bayesian`, whose first dimension is the batch throughout.
        inputs: Shape (B, ...).
        num_samples: S, at least 1; one draw costs one pass of the plain network.
        generator: Where the noise comes from; torch's own if not given.
        chunk_size: At most so many draws at a time, to bound memory. The draws are the same for any size; but BatchNorm
            in training mode then sees one chunk at a time.
        estimator: ``"shared"``: one set of weights a draw, for all inputs. ``"local"`` (local reparameterisation: the
            outputs of linear layers and convolutions are drawn, not their weights) and ``"flipout"`` give each input
            weights of its own. Their logits have the right distribution input by input, which is all that a data term
            needs, and less noisy gradients; but a summary is about one function, so its likelihood is wrong with them.

    Returns:
        Shape (S, B, K).

    Example:
        >>> from selbo.nn.convert import to_bayesian
        >>> with torch.random.fork_rng():
        ...     bnn = to_bayesian(nn.Linear(4, 3))
        >>> generator = torch.Generator().manual_seed(0)
        >>> forward_samples(bnn, torch.ones(5, 4), num_samples=2, generator=generator).shape
        torch.Size([2, 5, 3])
    """
    parameters = check_bayesian(bnn, num_samples)
    if not isinstance(inputs, Tensor) or inputs.ndim < 1 or inputs.shape[0] == 0:
        came = f"shape {tuple(inputs.shape)}" if isinstance(inputs, Tensor) else type(inputs).__name__
        raise ValueError(f"`inputs` must be a tensor whose first dimension is a batch of at least one, but got {came}")
    _checks.one_of("estimator", estimator, ESTIMATORS)
    if generator is not None and in_backward():
        raise ValueError(
            "`generator` must not be given where the draws are made again in the backward pass, as activation "
            "checkpointing does: it has moved on by then, while the state of torch's own is put back"
        )
    size = num_samples if chunk_size is None else _checks.whole("chunk_size", chunk_size, at_least=1)
    chunks = []
    with SpreadsOnce(parameters):  # for all chunks
        for first in range(0, num_samples, size):
            noise = draw_noise(parameters, min(size, num_samples - first), generator)
            chunks.append(forward_noise(bnn, inputs, parameters, noise, estimator=estimator, generator=generator))
            del noise  # before the next is drawn
    return chunks[0] if len(chunks) == 1 else torch.cat(chunks)


def forward_noise(
    bnn: nn.Module,
    inputs: Tensor,
    parameters: list[GaussianParameter],
    noise: Tensor,
    *,
    estimator: str = "shared",
    generator: torch.Generator | None = None,
) -> Tensor:
    """Logits (S, B, K) for given noise (S, P) of the weights."""
    count, batch_size = len(noise), inputs.shape[0]
    folded = inputs if count == 1 else inputs.repeat(count, *[1] * (inputs.ndim - 1))  # memory of its own for each row
    # a compiled network is not asked whether it writes into its inputs, so it does not get the short cut either
    rows = Rows(count, batch_size, inputs, folded, estimator, generator, tensor_version(folded))
    layers = [layer for _, layer in variational_layers(bnn)]
    try:
        for each, part in zip(parameters, split_noise(noise, parameters), strict=True):
            each.draws = each.reparameterise(part)
        for layer in layers:
            layer.rows, layer.has_drawn = rows, True
        outputs = tensor_answer(bnn(folded))
    finally:
        for each in parameters:
            each.draws = None
        for layer in layers:
            layer.rows = None
    if outputs.shape[0] != count * batch_size:
        raise ValueError(
            f"`bnn` must answer with one row an input, but gave {outputs.shape[0]} rows for {count * batch_size}"
        )
    logits: Tensor = outputs.unflatten(0, (count, batch_size))
    return logits
