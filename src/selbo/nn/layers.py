"""A layer with a posterior over its weights, and its forward pass with S weight samples.

During sampling, a batch holds the rows of all samples, one sample after the other: S x B rows. Layers without weights,
and normalisation, process them as one batch; a variational layer applies a different weight sample to each block.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from selbo._compile import disable_fast_path, has_forward_hooks, in_backward, open_checkpoints, tensor_version
from selbo.nn.gaussian import GaussianParameter
from selbo.nn.stacked import CONVOLUTIONS, convolution, convolve, embedding, linear, only_looks_up

TRANSPOSED: Final = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
VARIANCE_FLOOR: Final = 1e-16
"""Smallest variance of an output with local reparameterisation: the slope of the square root is infinite at 0."""

ATTENDED: Final = ("query", "key", "value")
ATTENTION: Final = (*ATTENDED, "key_padding_mask", "need_weights", "attn_mask")
"""Arguments of nn.MultiheadAttention in order, up to the last that can have rows."""

SUPPORTED: Final = (nn.Linear, *CONVOLUTIONS, *TRANSPOSED, nn.Embedding, nn.MultiheadAttention)


class BatchRows(NamedTuple):
    """Description of the batch during sampling.

    Attributes:
        num_samples: S, the number of samples.
        batch_size: B, the number of inputs.
        inputs: The inputs of the network, (B, ...).
        folded: The inputs repeated S times, (S x B, ...), which the network is called with.
        estimator: ``"shared"``, ``"local"`` or ``"flipout"``; see `forward_samples`.
        generator: Source of the noise of the last two estimators.
        version: Version of ``folded``, which changes if the network writes into its inputs; None if not available.
    """

    num_samples: int
    batch_size: int
    inputs: Tensor
    folded: Tensor
    estimator: str = "shared"
    generator: torch.Generator | None = None
    version: int | None = None

    def are_shared(self, inputs: Tensor) -> bool:
        """Whether these are the unmodified inputs of the network, which are the same for all samples."""
        return (
            self.num_samples > 1
            and self.version is not None
            and inputs is self.folded
            and tensor_version(inputs) == self.version
        )


class Sampled(NamedTuple):
    """Batch, weights and standard deviations of a layer during sampling.

    Attributes:
        rows: The batch.
        weights: S samples of each parameter, (S, *shape), by name.
        stds: Posterior standard deviations of each parameter, by name.
    """

    rows: BatchRows
    weights: dict[str, Tensor]
    stds: dict[str, Tensor]


class SampledPass:
    """A context in which samples go through the layers of a network, and go through them again where torch recomputes.

    Activation checkpointing (`torch.utils.checkpoint`) calls parts of a network again in the backward pass. The layers
    then have the same samples and, for the estimators with noise of their own, the same noise. Samples are kept for as
    long as the checkpoint.

    Args:
        layers: The variational layers.
        sampled: Batch, weights and standard deviations of each.
    """

    def __init__(self, layers: "Sequence[VariationalLayer]", sampled: Sequence[Sampled]) -> None:
        self.layers, self.sampled = layers, sampled
        self.rows = sampled[0].rows
        self.outer: list[Any] = []  # checkpoints around the samples, which draw them again

    def __enter__(self) -> None:
        self.outer = open_checkpoints()
        self.set_layers(self.sampled, None if torch.compiler.is_compiling() else self)

    def __exit__(self, *_: object) -> None:
        self.set_layers([None] * len(self.layers), None)

    def set_layers(self, sampled: "Sequence[Sampled | None]", own: "SampledPass | None") -> None:
        """Set what the layers use, and the pass that they tell about checkpoints."""
        for layer, each in zip(self.layers, sampled, strict=True):
            layer.sampled, layer.sampled_pass, layer.has_drawn = each, own, True

    def repeat_in_backward(self) -> bool:
        """Let open checkpoints recompute with the samples of this pass; returns whether there are any."""
        inner = [each for each in open_checkpoints() if not any(each is other for other in self.outer)]
        for each in inner:
            if not isinstance(each.recompute_fn, Recompute):
                each.recompute_fn = Recompute(each.recompute_fn, self)
        return bool(inner)


class Recompute:
    """Function of a checkpoint that computes activations again, with the samples and the noise of the forward pass.

    Args:
        function: The function.
        source: The pass, before the first layer inside the checkpoint has drawn noise.
    """

    def __init__(self, function: Callable[..., object], source: SampledPass) -> None:
        self.function, self.source = function, source
        generator = source.rows.generator
        # only estimators with noise of their own draw in a layer; torch restores the default generator itself
        self.state = None if generator is None or source.rows.estimator == "shared" else generator.get_state()

    def __call__(self, *args: Any, **kwargs: Any) -> object:
        """Call the function, with which torch ends by an exception if it has what it needs."""
        layers, rows = self.source.layers, self.source.rows._replace(version=None)
        if self.state is not None and rows.generator is not None:
            generator = torch.Generator(rows.generator.device)
            rows = rows._replace(generator=generator.set_state(self.state))
        before = [(layer.sampled, layer.sampled_pass) for layer in layers]
        self.source.set_layers([each._replace(rows=rows) for each in self.source.sampled], None)
        try:
            return self.function(*args, **kwargs)
        finally:
            for layer, (sampled, own) in zip(layers, before, strict=True):
                layer.sampled, layer.sampled_pass = sampled, own


class VariationalLayer(nn.Module):
    """Wraps a layer and replaces its parameters by Gaussian posteriors.

    By default it uses the posterior means; a posterior sets `sampled` while samples go through the network.

    Args:
        plain: The layer, which keeps its settings, such as stride and padding mode, but not its parameters.
        posteriors: The posterior of each of its parameters, by name.
    """

    def __init__(self, plain: nn.Module, posteriors: dict[str, GaussianParameter]) -> None:
        super().__init__()
        self.plain = plain
        self.names = tuple(posteriors)
        self.posteriors = nn.ModuleList(posteriors.values())
        self.sampled: Sampled | None = None  # set by a posterior while samples go through the network
        self.sampled_pass: SampledPass | None = None  # the pass, if layers may be called again for it
        self.has_drawn = False  # whether samples have gone through it
        self.is_whole = not any(True for _ in plain.parameters())  # no parameter of it stays deterministic
        self.is_sequence_first = False  # part of a transformer whose first dimension is the position
        self.train(plain.training)
        if isinstance(plain, nn.MultiheadAttention):
            disable_fast_path(self)

    def __getstate__(self) -> dict[str, Any]:
        # state of a single pass is not copied, because its autograd graph cannot be
        return {**self.__dict__, "sampled": None, "sampled_pass": None}

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the wrapped layer with the weight samples of this pass or, without samples, the posterior means."""
        sampled = self.sampled
        if sampled is None:
            if self.has_drawn and in_backward():
                raise ValueError(
                    "a variational layer was called in the backward pass, as activation checkpointing does, when its "
                    "samples are gone: pass use_reentrant=False to torch.utils.checkpoint"
                )
            return functional_call(self.plain, self._means(), args, kwargs)
        if self.sampled_pass is not None and self.sampled_pass.repeat_in_backward():
            # the inputs will be other objects when they are computed again
            sampled = sampled._replace(rows=sampled.rows._replace(version=None))
        rows, weights, _ = sampled
        if rows.estimator != "shared" and self._is_simple(nn.Linear, *CONVOLUTIONS):
            return self._local(sampled, args[0]) if rows.estimator == "local" else self._flipout(sampled, args[0])
        return self._with_samples(rows, weights, *args, **kwargs)

    def mean(self, name: str) -> Tensor:
        """Posterior mean of a parameter."""
        return self._posterior(name).mean

    def _posterior(self, name: str) -> GaussianParameter:
        posterior = self.posteriors[self.names.index(name)]
        assert isinstance(posterior, GaussianParameter)
        return posterior

    def _means(self) -> dict[str, Tensor]:
        return {name: self.mean(name) for name in self.names}

    def _with_samples(self, rows: BatchRows, samples: dict[str, Tensor], *args: Any, **kwargs: Any) -> Any:
        """Apply the wrapped layer with a different weight sample for each block of rows."""
        plain = self.plain
        if not args and "input" in kwargs:
            args = (kwargs.pop("input"),)
        if rows.num_samples == 1:
            return self._one_sample({name: value[0] for name, value in samples.items()}, *args, **kwargs)
        if isinstance(plain, nn.MultiheadAttention):
            return self._attention(rows, samples, *args, **kwargs)
        inputs = args[0]
        self._check_rows(rows, inputs)
        shared = rows.are_shared(inputs)
        if self._is_simple(nn.Linear):
            return linear(rows.inputs if shared else inputs, samples, rows.num_samples, shared=shared)
        if self._is_simple(*CONVOLUTIONS) and plain.padding_mode == "zeros":
            shared = shared and bool(plain.groups == 1)
            return convolution(plain, rows.inputs if shared else inputs, samples, rows.num_samples, shared=shared)
        if self._is_simple(nn.Embedding) and isinstance(plain, nn.Embedding) and only_looks_up(plain):
            return embedding(plain, inputs, samples, rows.num_samples)
        return self._one_by_one(rows, samples, *args, **kwargs)

    def _is_simple(self, *kinds: type[nn.Module]) -> bool:
        """Whether the layer is exactly of one of these types, fully Bayesian, and has no forward hooks."""
        plain = self.plain
        return type(plain) in kinds and self.is_whole and not has_forward_hooks(plain)

    def _one_sample(self, weights: dict[str, Tensor], *args: Any, **kwargs: Any) -> Any:
        if self._is_simple(*CONVOLUTIONS) and self.plain.padding_mode == "zeros":
            return convolve(self.plain, args[0], weights["weight"], weights.get("bias"))
        if self._is_simple(nn.Linear):  # faster than functional_call, whose overhead equals a small layer
            return nn.functional.linear(args[0], weights["weight"], weights.get("bias"))
        return functional_call(self.plain, weights, args, kwargs)

    def _check_rows(self, rows: BatchRows, inputs: Tensor) -> None:
        """Check that the first dimension can be the batch of all samples, alone or merged with positions."""
        total = rows.num_samples * rows.batch_size
        if inputs.shape[0] % total or self.is_sequence_first:
            raise ValueError(
                f"a layer was called with {inputs.shape[0]} rows during {rows.num_samples} samples for "
                f"{rows.batch_size} inputs: the first dimension must be the batch throughout the network"
            )
        if isinstance(self.plain, (*CONVOLUTIONS, *TRANSPOSED)):
            return  # the next dimension is that of channels
        positions = inputs.ndim > (1 if isinstance(self.plain, nn.Embedding) else 2)
        # S x B rows are in the second dimension; if the first has the same length, the strides show a transposition
        if positions and inputs.shape[1] == total and (inputs.shape[0] > total or _is_transposed(inputs)):
            raise ValueError(
                f"a layer was called with shape {tuple(inputs.shape)} during {rows.num_samples} samples for "
                f"{rows.batch_size} inputs, as if positions came before the batch: the first dimension must be the "
                "batch throughout the network; if it is, change the number of inputs or `chunk_size`"
            )

    def _one_by_one(self, rows: BatchRows, samples: dict[str, Tensor], *args: Any, **kwargs: Any) -> Tensor:
        inputs, *others = args
        blocks = [
            functional_call(self.plain, {name: value[s] for name, value in samples.items()}, (block, *others), kwargs)
            for s, block in enumerate(inputs.chunk(rows.num_samples))
        ]
        return torch.cat(blocks)

    def _local(self, sampled: Sampled, inputs: Tensor) -> Tensor:
        """Sample outputs instead of weights: mean and variance given the inputs, independent noise for each row."""
        rows = sampled.rows
        shared = rows.are_shared(inputs)
        given = rows.inputs if shared else inputs
        mean: Tensor = functional_call(self.plain, self._means(), (given,))
        variances = {name: std.square() for name, std in sampled.stds.items()}
        variance: Tensor = functional_call(self.plain, variances, (given.square(),))
        std = variance.clamp(min=VARIANCE_FLOOR).sqrt()
        if shared:
            mean, std = (each.expand(rows.num_samples, *each.shape).flatten(0, 1) for each in (mean, std))
        noise = torch.randn(mean.shape, generator=rows.generator, dtype=mean.dtype, device=mean.device)
        return mean + std * noise

    def _flipout(self, sampled: Sampled, inputs: Tensor) -> Tensor:
        """One sample for the whole batch, with random signs per row on its deviation from the mean."""
        rows = sampled.rows
        deviations = {name: weights - self.mean(name) for name, weights in sampled.weights.items()}
        bias = deviations.pop("bias", None)
        channels = -1 if isinstance(self.plain, nn.Linear) else 1
        mean: Tensor = functional_call(self.plain, self._means(), (inputs,))
        flipped = inputs * _signs(inputs, channels, rows.generator)
        deviation: Tensor = self._with_samples(rows, deviations, flipped)
        outputs = mean + deviation * _signs(deviation, channels, rows.generator)
        if bias is None:
            return outputs
        by_row = bias.repeat_interleave(outputs.shape[0] // rows.num_samples, 0)  # (rows, out)
        return outputs + by_row.reshape(by_row.shape[0], *[1] * (outputs.ndim - 2), -1).movedim(-1, channels)

    def _attention(self, rows: BatchRows, samples: dict[str, Tensor], *args: Any, **kwargs: Any) -> Any:
        plain, count = self.plain, rows.num_samples
        assert isinstance(plain, nn.MultiheadAttention)
        batch_dim, query = 0 if plain.batch_first else 1, args[0] if args else kwargs["query"]
        total = query.shape[batch_dim]
        if total % (count * rows.batch_size):
            raise ValueError(
                f"attention was called with {total} rows during {count} samples for {rows.batch_size} inputs: "
                "the batch must keep its size throughout the network"
            )
        if plain.batch_first:
            self._check_rows(rows, query)

        def part(name: str, value: Any, sample: int) -> Any:
            """Part of an argument for one sample; an argument without a dimension of all rows is passed unchanged."""
            dim = batch_dim if name in ATTENDED else 0
            # a mask with two dimensions is for all rows, one with three has a matrix for each row and head
            length = total * plain.num_heads if name == "attn_mask" else total
            is_split = name in ATTENTION and isinstance(value, Tensor) and value.ndim > (name == "attn_mask") * 2
            return value.chunk(count, dim)[sample] if is_split and value.shape[dim] == length else value

        results = []
        for sample in range(count):
            given = [part(name, value, sample) for name, value in zip(ATTENTION, args, strict=False)]
            named = {name: part(name, value, sample) for name, value in kwargs.items()}
            own = {name: value[sample] for name, value in samples.items()}
            results.append(functional_call(plain, own, (*given, *args[len(given) :]), named))
        outputs, weights = zip(*results, strict=True)
        return torch.cat(outputs, batch_dim), None if weights[0] is None else torch.cat(weights)

    def __getattr__(self, name: str) -> Any:
        """Settings of the wrapped layer; its parameters are the posterior means and unavailable during sampling."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            plain, names = super().__getattr__("plain"), self.__dict__["names"]
        if name in names:
            # nn.TransformerEncoderLayer only checks whether there is an `in_proj_bias`
            if self.__dict__["sampled"] is not None and name != "in_proj_bias":
                raise ValueError(
                    f"the network reads `{name}` of a variational layer directly, which has no single value during "
                    "sampling: call the layer instead, or name it in `exclude`"
                )
            return self.mean(name)
        return getattr(plain, name)


def _is_transposed(inputs: Tensor) -> bool:
    """Whether the stride of the first dimension is smaller than that of the second."""
    return 0 < inputs.stride(0) < inputs.stride(1)


def _signs(like: Tensor, channels: int, generator: torch.Generator | None) -> Tensor:
    """Random signs for each row and channel, the same at all positions."""
    shape = [1] * like.ndim
    shape[0], shape[channels] = like.shape[0], like.shape[channels]
    bits = torch.randint(2, shape, generator=generator, device=like.device)
    return (2 * bits - 1).to(like.dtype)
