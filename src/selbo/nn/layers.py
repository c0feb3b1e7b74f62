"""A layer with a posterior over its weights, and how a batch of S draws goes through it.

While draws are being made, the rows of a batch are those of all draws, one draw after the other: S x B rows. Layers
without weights, and normalisation, see them as one batch; a variational layer gives each block of rows its own weights.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from selbo.nn.gaussian import GaussianParameter

CONVOLUTIONS: Final = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED: Final = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
VARIANCE_FLOOR: Final = 1e-16
"""Smallest variance of an output under local reparameterisation: the square root has no finite slope at 0."""

SUPPORTED: Final = (nn.Linear, *CONVOLUTIONS, *TRANSPOSED, nn.Embedding, nn.MultiheadAttention)


class Rows(NamedTuple):
    """What a layer must know of the batch while draws are being made.

    Attributes:
        num_samples: S, the number of draws.
        batch_size: B, the number of inputs.
        inputs: The inputs of the network, (B, ...).
        folded: The same S times over, (S x B, ...): what the network is called with.
        estimator: ``"shared"``, ``"local"`` or ``"flipout"``; see `forward_samples`.
        generator: Where the noise of the last two comes from.
        version: Of ``folded``, which changes if the network writes into its inputs; None if that cannot be seen.
    """

    num_samples: int
    batch_size: int
    inputs: Tensor
    folded: Tensor
    estimator: str = "shared"
    generator: torch.Generator | None = None
    version: int | None = None

    def are_shared(self, inputs: Tensor) -> bool:
        """Whether these are the untouched inputs of the network, the same for all draws."""
        return (
            self.num_samples > 1
            and self.version is not None
            and inputs is self.folded
            and inputs._version == self.version
        )


class VariationalLayer(nn.Module):
    """A layer of another kind with a Gaussian posterior in the place of each of its parameters.

    Called as it stands, it uses the posterior means; draws are made by `forward_samples` alone.

    Args:
        plain: The layer; kept without its parameters, so that strides, padding modes and all else keep their meaning.
        posteriors: The posterior of each of its parameters, by name.
    """

    def __init__(self, plain: nn.Module, posteriors: dict[str, GaussianParameter]) -> None:
        super().__init__()
        self.plain = plain
        self.names = tuple(posteriors)
        self.posteriors = nn.ModuleList(posteriors.values())
        self.rows: Rows | None = None  # set while `forward_samples` runs
        self.is_whole = not any(True for _ in plain.parameters())  # no parameter of it stays deterministic
        self.train(plain.training)
        if isinstance(plain, nn.MultiheadAttention):
            # nn.TransformerEncoderLayer has a fast path that would read the weights and never call this layer
            self._qkv_same_embed_dim = False

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """As the plain layer, with the weights of the draws that are being made, or else the posterior means."""
        rows = self.rows
        if rows is None:
            return functional_call(self.plain, self._means(), args, kwargs)
        if rows.estimator != "shared" and isinstance(self.plain, (nn.Linear, *CONVOLUTIONS)) and self.is_whole:
            return self._local(rows, args[0]) if rows.estimator == "local" else self._flipout(rows, args[0])
        return self._with_draws(rows, self._draws(), *args, **kwargs)

    def mean(self, name: str) -> Tensor:
        """Posterior mean of a parameter."""
        return self._posterior(name).mean

    def _posterior(self, name: str) -> GaussianParameter:
        posterior = self.posteriors[self.names.index(name)]
        assert isinstance(posterior, GaussianParameter)
        return posterior

    def _means(self) -> dict[str, Tensor]:
        return {name: self.mean(name) for name in self.names}

    def _draws(self) -> dict[str, Tensor]:
        """The draws that are being made of each parameter, (S, *shape)."""
        found = {name: self._posterior(name).draws for name in self.names}
        return {name: value for name, value in found.items() if value is not None}

    def _with_draws(self, rows: Rows, draws: dict[str, Tensor], *args: Any, **kwargs: Any) -> Any:
        """The plain layer with the weights of each draw for its block of rows."""
        plain = self.plain
        if rows.num_samples == 1:
            return functional_call(plain, {name: value[0] for name, value in draws.items()}, args, kwargs)
        if isinstance(plain, nn.MultiheadAttention):
            return self._attention(rows, draws, *args, **kwargs)
        if not args and "input" in kwargs:
            args = (kwargs.pop("input"),)
        inputs = args[0]
        if inputs.shape[0] % (rows.num_samples * rows.batch_size):
            raise ValueError(
                f"a layer was called with {inputs.shape[0]} rows while {rows.num_samples} draws of {rows.batch_size} "
                "inputs were being made: the first dimension must be the batch throughout the network"
            )
        shared, kind = rows.are_shared(inputs), type(plain)
        simple = self.is_whole and not plain._forward_hooks and not plain._forward_pre_hooks
        if simple and kind is nn.Linear:
            return linear(rows.inputs if shared else inputs, draws, rows.num_samples, shared=shared)
        if simple and isinstance(plain, CONVOLUTIONS) and kind in CONVOLUTIONS and plain.padding_mode == "zeros":
            shared = shared and plain.groups == 1
            return convolution(plain, rows.inputs if shared else inputs, draws, rows.num_samples, shared=shared)
        if simple and isinstance(plain, nn.Embedding) and kind is nn.Embedding and _only_looks_up(plain):
            return embedding(plain, inputs, draws, rows.num_samples)
        return self._one_by_one(rows, draws, *args, **kwargs)

    def _one_by_one(self, rows: Rows, draws: dict[str, Tensor], *args: Any, **kwargs: Any) -> Tensor:
        inputs, *others = args
        blocks = [
            functional_call(self.plain, {name: value[s] for name, value in draws.items()}, (block, *others), kwargs)
            for s, block in enumerate(inputs.chunk(rows.num_samples))
        ]
        return torch.cat(blocks)

    def _local(self, rows: Rows, inputs: Tensor) -> Tensor:
        """Outputs drawn instead of weights: their mean and variance given the inputs, fresh noise for every row."""
        shared = rows.are_shared(inputs)
        given = rows.inputs if shared else inputs
        mean: Tensor = functional_call(self.plain, self._means(), (given,))
        variances = {name: self._posterior(name).std.square() for name in self.names}
        variance: Tensor = functional_call(self.plain, variances, (given.square(),))
        spread = variance.clamp(min=VARIANCE_FLOOR).sqrt()
        if shared:
            mean, spread = (each.expand(rows.num_samples, *each.shape).flatten(0, 1) for each in (mean, spread))
        noise = torch.randn(mean.shape, generator=rows.generator, dtype=mean.dtype, device=mean.device)
        return mean + spread * noise

    def _flipout(self, rows: Rows, inputs: Tensor) -> Tensor:
        """One draw for the whole batch, its deviation from the mean flipped by random signs for every row."""
        deviations = {name: draws - self.mean(name) for name, draws in self._draws().items()}
        bias = deviations.pop("bias", None)
        channels = -1 if isinstance(self.plain, nn.Linear) else 1
        mean: Tensor = functional_call(self.plain, self._means(), (inputs,))
        flipped = inputs * _signs(inputs, channels, rows.generator)
        deviation: Tensor = self._with_draws(rows, deviations, flipped)
        outputs = mean + deviation * _signs(deviation, channels, rows.generator)
        if bias is None:
            return outputs
        by_row = bias.repeat_interleave(outputs.shape[0] // rows.num_samples, 0)  # (rows, out)
        return outputs + by_row.reshape(by_row.shape[0], *[1] * (outputs.ndim - 2), -1).movedim(-1, channels)

    def _attention(
        self,
        rows: Rows,
        draws: dict[str, Tensor],
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        plain, count = self.plain, rows.num_samples
        assert isinstance(plain, nn.MultiheadAttention)
        dim = 0 if plain.batch_first else 1
        if query.shape[dim] % (count * rows.batch_size):
            raise ValueError(
                f"attention was called with {query.shape[dim]} rows while {count} draws of {rows.batch_size} inputs "
                "were being made: the batch must keep its size throughout the network"
            )

        total = query.shape[dim]

        def block(tensor: Any, sample: int, dim: int = 0) -> Any:
            is_folded = isinstance(tensor, Tensor) and tensor.ndim > dim and tensor.shape[dim] == total
            return tensor.chunk(count, dim)[sample] if is_folded else tensor

        results = []
        for sample in range(count):
            masks = {name: block(mask, sample) if name == "key_padding_mask" else mask for name, mask in kwargs.items()}
            inputs = [block(each, sample, dim) for each in (query, key, value)]
            others = [block(args[0], sample), *args[1:]] if args else []
            own = {name: each[sample] for name, each in draws.items()}
            results.append(functional_call(plain, own, (*inputs, *others), masks))
        outputs, weights = zip(*results, strict=True)
        return torch.cat(outputs, dim), None if weights[0] is None else torch.cat(weights)

    def __getattr__(self, name: str) -> Any:
        """Settings of the plain layer; its parameters are the posterior means, except while draws are being made."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            plain, names = self._modules["plain"], self.__dict__["names"]
        if name in names:
            # nn.TransformerEncoderLayer only asks whether there is an `in_proj_bias`
            if self.__dict__["rows"] is not None and name != "in_proj_bias":
                raise ValueError(
                    f"the network reads `{name}` of a variational layer itself, which has no single value while draws "
                    "are being made: call the layer instead, or name it in `exclude`"
                )
            return self.mean(name)
        return getattr(plain, name)


def linear(inputs: Tensor, draws: dict[str, Tensor], num_samples: int, *, shared: bool) -> Tensor:
    """A linear layer with S weights: rows of S blocks, or the same ``shared`` rows for all of them, to S blocks."""
    weight, bias = draws["weight"], draws.get("bias")
    if shared:  # one matrix product
        outputs = F.linear(inputs, weight.flatten(0, 1), None if bias is None else bias.flatten())
        by_draw: Tensor = outputs.unflatten(-1, (num_samples, -1)).movedim(-2, 0)  # (S, B, ..., out)
        return by_draw.flatten(0, 1)
    blocks = inputs.reshape(num_samples, -1, inputs.shape[-1])
    transposed = weight.transpose(1, 2)
    outputs = blocks @ transposed if bias is None else torch.baddbmm(bias.unsqueeze(1), blocks, transposed)
    return outputs.reshape(*inputs.shape[:-1], -1)


def convolution(
    plain: nn.Module, inputs: Tensor, draws: dict[str, Tensor], num_samples: int, *, shared: bool
) -> Tensor:
    """A convolution of any dimension with S kernels: rows of S blocks, or ``shared`` rows, to S blocks."""
    assert isinstance(plain, CONVOLUTIONS)
    weight, bias = draws["weight"], draws.get("bias")
    convolve: Callable[..., Tensor] = (F.conv1d, F.conv2d, F.conv3d)[weight.ndim - 4]
    options = {"stride": plain.stride, "padding": plain.padding, "dilation": plain.dilation}
    if inputs.device.type == "cuda" and not shared:  # few large convolutions beat one of many groups there
        blocks = [
            convolve(block, weight[s], None if bias is None else bias[s], groups=plain.groups, **options)
            for s, block in enumerate(inputs.chunk(num_samples))
        ]
        return torch.cat(blocks)
    stacked, offsets = weight.flatten(0, 1), None if bias is None else bias.flatten()
    if shared:  # one convolution with S times the channels
        outputs = convolve(inputs, stacked, offsets, **options)
    else:  # draws as groups of one convolution
        side_by_side = inputs.unflatten(0, (num_samples, -1)).transpose(0, 1).flatten(1, 2)  # (B, S C, ...)
        outputs = convolve(side_by_side, stacked, offsets, groups=num_samples * plain.groups, **options)
    by_draw: Tensor = outputs.unflatten(1, (num_samples, -1)).transpose(0, 1).flatten(0, 1)
    return by_draw


def _only_looks_up(plain: nn.Embedding) -> bool:
    """Whether a table has none of the settings that change its rows or their gradients."""
    return plain.max_norm is None and plain.padding_idx is None and not plain.scale_grad_by_freq


def embedding(plain: nn.Embedding, inputs: Tensor, draws: dict[str, Tensor], num_samples: int) -> Tensor:
    """A table look-up in S tables, laid one after the other."""
    first = torch.arange(num_samples, device=inputs.device) * plain.num_embeddings
    shifted = inputs.unflatten(0, (num_samples, -1)) + first.reshape(-1, *[1] * inputs.ndim)
    return F.embedding(shifted.flatten(0, 1), draws["weight"].flatten(0, 1))


def _signs(like: Tensor, channels: int, generator: torch.Generator | None) -> Tensor:
    """Random signs for each row and channel, the same at all positions."""
    shape = [1] * like.ndim
    shape[0], shape[channels] = like.shape[0], like.shape[channels]
    bits = torch.randint(2, shape, generator=generator, device=like.device)
    return (2 * bits - 1).to(like.dtype)
