"""The posterior that `NaturalGradient` trains: a Gaussian over the weights of any network, as a `Posterior`."""

import copy
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from selbo.nn import storage
from selbo.nn.convert import Patterns
from selbo.nn.gaussian import gaussians
from selbo.posteriors.natural_gradient import TRAINABLE, NaturalGradient, NormalNoise
from selbo.posteriors.posterior import Posterior, WeightSample, forward_with

NATURAL_GRADIENT_FORMAT: Final = "selbo-natural-gradient-1"
PRECISION: Final = "precision/"
"""Prefix of the precisions in the state; names of parameters contain no slash."""


class NaturalGradientPosterior(Posterior):
    """A Gaussian posterior over the weights of any network, which `selbo.fit` trains by natural gradient.

    The network is not converted: its weights are the means, and the precisions are stored beside them. All trained
    parameters are random, those of BatchNorm included. `selbo.fit` makes this posterior from a network if it is called
    with ``posterior="natural_gradient"``; make it yourself to change its settings.

    Predictions run the network once per sample. The means are not overwritten for this, also not if the network raises
    an exception. The running statistics of BatchNorm were gathered at sampled weights during training, and every sample
    uses them as they are.

    Args:
        network: A deterministic network; not copied. Frozen parameters stay as they are.
        num_data: N, the number of training examples.
        prior_std: Standard deviation of the Gaussian prior of each weight.
        initial_curvature: Initial curvature h, per example; a larger value gives less noise in the weights.
        betas: Decay of the moving averages of the gradient and of the curvature.
        temperature: T; below 1 the posterior is narrower than by Bayes' rule.

    Attributes:
        optimizer: The optimiser, which stores the precisions.

    Example:
        >>> import selbo
        >>> generator = torch.Generator().manual_seed(0)
        >>> inputs = torch.randn(64, 4, generator=generator)
        >>> labels = (inputs[:, 0] > 0).long()
        >>> network = selbo.models.MLP((4, 8, 2), generator=generator)
        >>> posterior = NaturalGradientPosterior(network, num_data=64, prior_std=0.5)
        >>> result = selbo.fit(
        ...     posterior, selbo.CrossEntropy(64), (inputs, labels), steps=100, batch_size=32
        ... )
        >>> prediction = selbo.predict(posterior, inputs, 16, generator=generator)
        >>> bool((prediction.classes == labels).double().mean() > 0.8)
        True
    """

    can_scale = True

    def __init__(
        self,
        network: nn.Module,
        *,
        num_data: int,
        prior_std: float = 0.15,
        initial_curvature: float = 0.5,
        betas: tuple[float, float] = (0.9, 0.99999),
        temperature: float = 1.0,
    ) -> None:
        super().__init__(network)
        if gaussians(network):
            raise ValueError("`network` must be deterministic, but it was made by selbo.to_bayesian: pass the original")
        self._settings: dict[str, Any] = {
            "num_data": num_data,
            "prior_std": prior_std,
            "initial_curvature": initial_curvature,
            "betas": betas,
            "temperature": temperature,
        }
        self.optimizer = self._new_optimizer(lr=0.0)

    @property
    def num_data(self) -> int:
        """N, the number of training examples."""
        return int(self._settings["num_data"])

    def train_by(
        self, *, lr: float | Tensor, seed: int, capturable: bool = False, compiled: bool = False
    ) -> NaturalGradient:
        """A new optimiser that continues from the current means and precisions; see `NaturalGradient`."""
        before = self.precisions()
        self.optimizer = self._new_optimizer(lr=lr, seed=seed, capturable=capturable, compiled=compiled)
        for now, value in zip(self.precisions().values(), before.values(), strict=True):
            now.copy_(value)
        return self.optimizer

    def precisions(self) -> dict[str, Tensor]:
        """Curvature plus precision of the prior, per training example, of each trained parameter; not copied."""
        return {name: self.optimizer.precision(each) for name, each in self._trained()}

    def stds(self) -> dict[str, Tensor]:
        """Posterior standard deviations of each trained parameter."""
        return {name: self.optimizer.std(each) for name, each in self._trained()}

    @property
    def num_weights(self) -> int:  # type: ignore[override]
        """Number of trained weights."""
        return sum(each.numel() for _, each in self._trained())

    def draw_noise(self, num_samples: int, generator: torch.Generator | None) -> Tensor:
        """Standard normal noise for all trained weights, one row per sample: (S, P)."""
        first = next(each for _, each in self._trained())
        noise = torch.empty(num_samples, self.num_weights, dtype=first.dtype, device=first.device)
        source = NormalNoise(first.device, generator)
        for row in noise:  # one by one, so that samples do not depend on the number per pass
            source.fill(row)
        return noise

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
        self.require_shared(estimator)
        named, stds = self._trained(), self.stds()
        if self.scale != 1:
            stds = {name: std * self.scale for name, std in stds.items()}
        parts = [part.detach() for part in noise.split([each.numel() for _, each in named], 1)]
        outputs = []
        for number in range(len(noise)):
            weights = {
                name: torch.addcmul(each.detach(), stds[name], part[number].view(each.shape).to(each.dtype))
                for (name, each), part in zip(named, parts, strict=True)
            }
            outputs.append(self._forward_with(dict(named), weights, inputs))
        return torch.cat(outputs)

    def _forward_with(self, own: Mapping[str, Tensor], weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        """Outputs for one sample of the weights, (1, B, K)."""
        return forward_with(self.network, own, weights, inputs).unsqueeze(0)

    def weight_sample(self) -> Posterior:
        """The network for the loss of a training step, in which its weights are one sample."""
        return WeightSample(self.network)

    def settings(self) -> dict[str, Any]:
        """Size of the data set, prior, initial curvature, betas and temperature."""
        return {name: list(value) if name == "betas" else value for name, value in self._settings.items()}

    def mean_network(self) -> nn.Module:
        """A copy of the network at the means of the weights."""
        return copy.deepcopy(self.network)

    def bayesian_network(self, *, exclude: Patterns = None) -> nn.Module:
        """The posterior as a network made by `to_bayesian`; see `NaturalGradient.bayesian_network`."""
        return self.optimizer.bayesian_network(self.network, exclude=exclude)

    def state_dict(self) -> dict[str, Tensor]:
        """Tensors of the network, and the precisions."""
        return {**self.network.state_dict(), **{PRECISION + name: each for name, each in self.precisions().items()}}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore a result of `state_dict`."""
        self.network.load_state_dict({name: each for name, each in state.items() if not name.startswith(PRECISION)})
        for name, each in self.precisions().items():
            each.copy_(state[PRECISION + name])

    def structure(self) -> dict[str, Any]:
        """Type and shape of every tensor, and the settings."""
        found = storage.describe_tensors(self.network, format_name=NATURAL_GRADIENT_FORMAT)
        of_precisions = {PRECISION + name: [str(p.dtype), list(p.shape)] for name, p in self.precisions().items()}
        return {**found, "tensors": {**found["tensors"], **of_precisions}, "settings": self.settings()}

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the posterior to one safetensors file, atomically."""
        precisions = {PRECISION + name: each for name, each in self.precisions().items()}
        return storage.write_tensors({**storage.unique_tensors(self.network), **precisions}, path, self._header())

    def load(self, path: str | os.PathLike[str]) -> None:
        """Read a file that `save` wrote for a network of the same structure; settings are those of the file."""
        tensors, found = storage.read_tensors(path, self.structure())
        saved = {**found["settings"], "betas": tuple(found["settings"]["betas"])}
        self._settings = {name: saved[name] for name in self._settings}
        self._scale = found.get("scale", 1.0)
        self.optimizer = self._new_optimizer(lr=0.0)
        for name, each in self.precisions().items():
            each.copy_(tensors.pop(PRECISION + name))
        self.network.load_state_dict(tensors, strict=False)  # shared tensors are stored under one name

    def _trained(self) -> list[tuple[str, nn.Parameter]]:
        return [(name, each) for name, each in self.network.named_parameters() if each.requires_grad]

    def _new_optimizer(self, **settings: Any) -> NaturalGradient:
        if not self._trained():
            raise ValueError("`network` must have at least one parameter that requires a gradient, but has none")
        known = [each for each in self.network.parameters() if each.requires_grad or each.dtype in TRAINABLE]
        return NaturalGradient(known, **self._settings, **settings)  # frozen ones too, which may be thawed later
