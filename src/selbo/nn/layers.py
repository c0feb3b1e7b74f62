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
SUPPORTED: Final = (nn.Linear, *CONVOLUTIONS, *TRANSPOSED, nn.Embedding, nn.MultiheadAttention)


class Rows(NamedTuple):
    """What a layer must know of the batch while draws are being made.

    Attributes:
        num_samples: S, the number of draws.
        batch_size: B, the number of inputs.
        inputs: The inputs of the network, (B, ...).
        folded: The same S times over, (S x B, ...): what the network is called with.
    """

    num_samples: int
    batch_size: int
    inputs: Tensor
    folded: Tensor


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
        if isinstance(plain, nn.MultiheadAttention):
            # nn.TransformerEncoderLayer has a fast path that would read the weights and never call this layer
            self._qkv_same_embed_dim = False

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """As the plain layer, with the weights of the draws that are being made, or else the posterior means."""
        if self.rows is None:
            return functional_call(self.plain, self._weights(None), args, kwargs)
        if self.rows.num_samples == 1:
            return functional_call(self.plain, self._weights(0), args, kwargs)
        return self._many(self.rows, *args, **kwargs)

    def mean(self, name: str) -> Tensor:
        """Posterior mean of a parameter."""
        return self._posterior(name).mean

    def _posterior(self, name: str) -> GaussianParameter:
        posterior = self.posteriors[self.names.index(name)]
        assert isinstance(posterior, GaussianParameter)
        return posterior

    def _draws(self, name: str) -> Tensor | None:
        if name not in self.names:
            return None
        draws = self._posterior(name).draws
        assert draws is not None
        return draws

    def _weights(self, sample: int | None) -> dict[str, Tensor]:
        weights = {}
        for name in self.names:
            draws = self._posterior(name).draws
            weights[name] = self.mean(name) if sample is None or draws is None else draws[sample]
        return weights

    def _many(self, rows: Rows, *args: Any, **kwargs: Any) -> Any:
        plain = self.plain
        if isinstance(plain, nn.MultiheadAttention):
            return self._attention(rows, *args, **kwargs)
        inputs = args[0]
        if inputs.shape[0] % (rows.num_samples * rows.batch_size):
            raise ValueError(
                f"a layer was called with {inputs.shape[0]} rows while {rows.num_samples} draws of {rows.batch_size} "
                "inputs were being made: the first dimension must be the batch throughout the network"
            )
        shared = inputs is rows.folded
        if isinstance(plain, nn.Linear):
            return self._linear(rows.inputs if shared else inputs, rows.num_samples, shared)
        if isinstance(plain, CONVOLUTIONS) and plain.padding_mode == "zeros":
            return self._convolution(rows.inputs if shared and plain.groups == 1 else inputs, rows, shared)
        if isinstance(plain, nn.Embedding) and plain.max_norm is None and not plain.scale_grad_by_freq:
            return self._embedding(inputs, rows.num_samples)
        return self._one_by_one(rows, *args, **kwargs)

    def _one_by_one(self, rows: Rows, *args: Any, **kwargs: Any) -> Tensor:
        inputs, *others = args
        blocks = [
            functional_call(self.plain, self._weights(sample), (block, *others), kwargs)
            for sample, block in enumerate(inputs.chunk(rows.num_samples))
        ]
        return torch.cat(blocks)

    def _linear(self, inputs: Tensor, num_samples: int, shared: bool) -> Tensor:
        weight, bias = self._draws("weight"), self._draws("bias")
        assert weight is not None
        if shared:  # every draw meets the same inputs: one matrix product
            outputs = F.linear(inputs, weight.flatten(0, 1), None if bias is None else bias.flatten())
            by_draw: Tensor = outputs.unflatten(-1, (num_samples, -1)).movedim(-2, 0)  # (S, B, ..., out)
            return by_draw.flatten(0, 1)
        blocks = inputs.reshape(num_samples, -1, inputs.shape[-1])
        transposed = weight.transpose(1, 2)
        outputs = blocks @ transposed if bias is None else torch.baddbmm(bias.unsqueeze(1), blocks, transposed)
        return outputs.reshape(*inputs.shape[:-1], -1)

    def _convolution(self, inputs: Tensor, rows: Rows, shared: bool) -> Tensor:
        plain, count = self.plain, rows.num_samples
        assert isinstance(plain, CONVOLUTIONS)
        weight, bias = self._draws("weight"), self._draws("bias")
        assert weight is not None
        convolve: Callable[..., Tensor] = (F.conv1d, F.conv2d, F.conv3d)[weight.ndim - 4]
        stacked = weight.flatten(0, 1)
        offsets = None if bias is None else bias.flatten()
        options = {"stride": plain.stride, "padding": plain.padding, "dilation": plain.dilation}
        if shared and plain.groups == 1:  # every draw meets the same inputs: one convolution with S times the channels
            outputs = convolve(inputs, stacked, offsets, **options)
        elif inputs.device.type == "cuda":  # few large convolutions beat one of many groups there
            blocks = inputs.chunk(count)
            return torch.cat(
                [
                    convolve(block, weight[s], None if bias is None else bias[s], groups=plain.groups, **options)
                    for s, block in enumerate(blocks)
                ]
            )
        else:  # draws as groups of one convolution
            side_by_side = inputs.unflatten(0, (count, -1)).transpose(0, 1).flatten(1, 2)  # (B, S C, ...)
            outputs = convolve(side_by_side, stacked, offsets, groups=count * plain.groups, **options)
        by_draw: Tensor = outputs.unflatten(1, (count, -1)).transpose(0, 1).flatten(0, 1)
        return by_draw

    def _embedding(self, inputs: Tensor, num_samples: int) -> Tensor:
        plain = self.plain
        assert isinstance(plain, nn.Embedding)
        weight = self._draws("weight")
        assert weight is not None
        first = torch.arange(num_samples, device=inputs.device) * plain.num_embeddings
        shifted = inputs.unflatten(0, (num_samples, -1)) + first.reshape(-1, *[1] * inputs.ndim)
        return F.embedding(shifted.flatten(0, 1), weight.flatten(0, 1))

    def _attention(self, rows: Rows, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Any:
        plain, count = self.plain, rows.num_samples
        assert isinstance(plain, nn.MultiheadAttention)
        dim = 0 if plain.batch_first else 1
        if query.shape[dim] % (count * rows.batch_size):
            raise ValueError(
                f"attention was called with {query.shape[dim]} rows while {count} draws of {rows.batch_size} inputs "
                "were being made: the batch must keep its size throughout the network"
            )

        def block(tensor: Any, sample: int, dim: int = 0) -> Any:
            is_folded = isinstance(tensor, Tensor) and tensor.ndim > dim and tensor.shape[dim] == query.shape[plain_dim]
            return tensor.chunk(count, dim)[sample] if is_folded else tensor

        plain_dim = dim
        results = []
        for sample in range(count):
            masks = {name: block(mask, sample) if name == "key_padding_mask" else mask for name, mask in kwargs.items()}
            inputs = [block(each, sample, dim) for each in (query, key, value)]
            others = [block(args[0], sample), *args[1:]] if args else []
            results.append(functional_call(plain, self._weights(sample), (*inputs, *others), masks))
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
