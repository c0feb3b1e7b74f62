"""The mean-field posterior: an independent Gaussian for each weight, trained by backpropagation (`to_bayesian`)."""

from types import TracebackType
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from selbo import _checks
from selbo._compile import tensor_version
from selbo.nn.convert import mean_network, variational_layers
from selbo.nn.gaussian import draw_noise, in_prior_stds, require_gaussians, split_noise
from selbo.nn.layers import BatchRows, Sampled, SampledPass
from selbo.nn.storage import describe_structure
from selbo.posteriors.posterior import Posterior, tensor_answer

MOST_JOINED: Final = 2**16
"""Largest number of weights for which the KL of all tensors is computed at once: up to here a copy costs less than
starting more operations."""


class MeanField(Posterior):
    """The posterior of a network made by `to_bayesian`.

    Args:
        network: The network; an error if it has no Gaussian parameters.

    Example:
        >>> from selbo.nn import to_bayesian
        >>> with torch.random.fork_rng():
        ...     posterior = MeanField(to_bayesian(nn.Linear(4, 3)))
        >>> generator = torch.Generator().manual_seed(0)
        >>> with posterior.once():
        ...     logits = posterior.forward_samples(torch.ones(5, 4), 2, generator=generator)
        ...     kl = posterior.kl_divergence()
        >>> (logits.square().mean() + kl).backward()
    """

    can_scale = True

    def __init__(self, network: nn.Module) -> None:
        super().__init__(network)
        self.gaussians = require_gaussians(network)
        """The Gaussian of each tensor of weights; a shared one is listed once."""
        self.num_weights = sum(each.mean.numel() for each in self.gaussians)
        self._layers = [layer for _, layer in variational_layers(network)]
        # indices of the Gaussians of each layer; found without `id`, which would make compiled code specific to it
        self._numbers = [
            [next(i for i, each in enumerate(self.gaussians) if each is own) for own in layer.posteriors]
            for layer in self._layers
        ]
        self._kept: list[KeptStd | None] | None = None  # inside `once`

    def draw_noise(self, num_samples: int, generator: torch.Generator | None) -> Tensor:
        """Standard normal noise for all weights, one row per sample: (S, P)."""
        return draw_noise(self.gaussians, num_samples, generator)

    def forward_noise(
        self,
        inputs: Tensor,
        noise: Tensor | None,
        *,
        estimator: str = "shared",
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Logits (S, B, K) for given noise (S, P) of the weights."""
        assert noise is not None
        count, batch_size = len(noise), inputs.shape[0]
        # each row has its own memory
        folded = inputs if count == 1 else inputs.repeat(count, *[1] * (inputs.ndim - 1))
        # compiled code cannot check whether the network writes into its inputs, so it does not use the shortcut
        rows = BatchRows(count, batch_size, inputs, folded, estimator, generator, tensor_version(folded))
        stds = self.stds() if self.scale == 1 else [std * self.scale for std in self.stds()]
        _checks.unsharded("bnn", stds, "shard the whole network at once and call its unshard() before each step")
        parts = split_noise(noise, self.gaussians)
        weights = [each.reparameterise(part, std) for each, part, std in zip(self.gaussians, parts, stds, strict=True)]
        sampled = [
            Sampled(
                rows,
                dict(zip(layer.names, [weights[number] for number in numbers], strict=True)),
                dict(zip(layer.names, [stds[number] for number in numbers], strict=True)),
            )
            for layer, numbers in zip(self._layers, self._numbers, strict=True)
        ]
        with SampledPass(self._layers, sampled):
            outputs = tensor_answer(self.network(folded))
        if outputs.shape[0] != count * batch_size:
            raise ValueError(
                f"`bnn` must return one row per input, but returned {outputs.shape[0]} rows for {count * batch_size}"
            )
        logits: Tensor = outputs.unflatten(0, (count, batch_size))
        return logits

    def stds(self) -> list[Tensor]:
        """Posterior standard deviations of each tensor of weights; inside `once` they are computed once.

        They keep their autograd graph, so gradients are the same. Samples and KL then share a part of the graph, so
        differentiate them in one backward pass.
        """
        kept = self._kept
        if kept is None:
            return [each.std for each in self.gaussians]
        found = []
        for number, each in enumerate(self.gaussians):
            before = kept[number]
            if before is None or not before.serves(each.rho):
                before = kept[number] = KeptStd(each.std, each.rho, tensor_version(each.rho))
            found.append(before.std)
        return found

    def once(self) -> "Once":
        """A context in which standard deviations are computed once, for the samples and for the KL."""
        return Once(self)

    def kl_divergence(self) -> Tensor:
        """KL divergence of the posterior over all weights from their prior, second term of Eq. (1)."""
        if self.num_weights > MOST_JOINED:  # the KL of a product is the sum
            return torch.stack([each.sum() for each in self.kl_by_tensor()]).sum()
        # a few large operations instead of many small ones
        stds = zip(self.stds(), self.gaussians, strict=True)
        ratios = torch.cat([in_prior_stds(std, each).reshape(-1) for std, each in stds])
        means = torch.cat([in_prior_stds(each.mean, each).reshape(-1) for each in self.gaussians])
        return 0.5 * (ratios.square().sum() + means.square().sum() - ratios.numel()) - ratios.log().sum()

    def kl_by_tensor(self) -> list[Tensor]:
        """KL divergence per entry, for each tensor of weights."""
        return [each.kl_divergence(std) for each, std in zip(self.gaussians, self.stds(), strict=True)]

    def settings(self) -> dict[str, Any]:
        """Prior standard deviations."""
        return {"prior_std": [each.prior_std.item() for each in self.gaussians]}

    def mean_network(self) -> nn.Module:
        """See `selbo.mean_network`."""
        return mean_network(self.network)

    def structure(self) -> dict[str, Any]:
        """Structure of the network, as in `selbo.nn.save`."""
        return describe_structure(self.network)


class KeptStd(NamedTuple):
    """Standard deviations with their autograd graph, and the version of the parameter they were computed from."""

    std: Tensor
    rho: Tensor
    version: int | None

    def serves(self, rho: Tensor) -> bool:
        """Whether they are up to date for ``rho``, and have a gradient if one is needed."""
        if rho is not self.rho or tensor_version(rho) != self.version:
            return False
        return self.std.requires_grad or not (torch.is_grad_enabled() and rho.requires_grad)


class Once:
    """The context of `MeanField.once`; a class, because torch.compile traces one without a graph break."""

    def __init__(self, posterior: MeanField) -> None:
        self.posterior, self.is_outer = posterior, False

    def __enter__(self) -> None:
        # an outer context keeps its cache; compiled code is faster if it computes them twice
        self.is_outer = self.posterior._kept is None and not torch.compiler.is_compiling()
        if self.is_outer:
            self.posterior._kept = [None] * len(self.posterior.gaussians)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_outer:
            self.posterior._kept = None
