"""Ensembles of Bayesian networks: mean-field or natural-gradient members, stacked and trained side by side."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from selbo.nn.convert import Patterns
from selbo.nn.gaussian import draw_noise, gaussians
from selbo.posteriors.ensemble import Ensemble
from selbo.posteriors.mean_field import MeanField
from selbo.posteriors.natural_gradient_posterior import NaturalGradientPosterior
from selbo.posteriors.posterior import Posterior, exchanged


class MeanFieldEnsemble(Ensemble):
    """An ensemble of k networks made by `to_bayesian` that `selbo.fit` trains side by side, in one process.

    As in `Ensemble`, the members are stacked and each is trained as on its own: its loss has the KL divergence of its
    own weights. A sample has one set of weights of each member, so `selbo.predict` with S samples is the mean of S k
    predictions.

    Args:
        make_network: Called without arguments once per member. Must return a new network made by `to_bayesian`, whose
            means come from torch's global random state, which is seeded for each member and restored afterwards.
        num_members: k.
        seed: Seed for the initial weights. A member depends on the seed and its number, not on k.
        summary_of: ``"members"`` or ``"mixture"``: what a summary is about, see `Ensemble`. With ``"mixture"`` it is
            about the mixture of one sample of each member.

    Example:
        >>> import selbo
        >>> inputs = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
        >>> labels = (inputs[:, 0] > 0).long()
        >>> ensemble = MeanFieldEnsemble(lambda: selbo.to_bayesian(nn.Linear(4, 2)), 3)
        >>> result = selbo.fit(
        ...     ensemble, selbo.ELBO(64), (inputs, labels), steps=100, learning_rate=0.1
        ... )
        >>> generator = torch.Generator().manual_seed(0)
        >>> ensemble.log_probs(inputs, 5, generator=generator).shape
        torch.Size([15, 64, 2])
        >>> selbo.predict(ensemble.member(1), inputs, 8, generator=generator).probs.shape
        torch.Size([64, 2])
    """

    is_bayesian = True
    can_scale = True
    can_compile = False
    of_bayesian = True

    def __init__(
        self, make_network: Callable[[], nn.Module], num_members: int, *, seed: int = 0, summary_of: str = "members"
    ) -> None:
        super().__init__(make_network, num_members, seed=seed, summary_of=summary_of)
        self._sampled = _Sampled(self.network)
        self._gaussians = gaussians(self.network)
        self.num_weights = sum(each.mean.numel() for each in self._gaussians)

    def draw_noise(self, num_samples: int, generator: torch.Generator | None) -> Tensor:  # type: ignore[override]
        """Standard normal noise for all weights of all members: (S, k, P)."""
        return draw_noise(self._gaussians, num_samples, generator).view(num_samples, self.num_members, -1)

    def forward_noise(
        self,
        inputs: Tensor,
        noise: Tensor | None,
        *,
        estimator: str = "shared",
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Outputs of each member for each sample, the members of one sample after the other: (S k, B, K)."""
        assert noise is not None
        self.require_shared(estimator)
        self._sampled.posterior._scale = self.scale

        def of_member(tensors: dict[str, Tensor], own: Tensor) -> Tensor:
            outputs: Tensor = functional_call(self._sampled, tensors, (inputs, own), tie_weights=False)
            return outputs

        by_member = torch.vmap(of_member, (0, 1), randomness="different")(self._tensors(), noise)
        outputs: Tensor = by_member.transpose(0, 1).flatten(0, 1)
        return outputs

    def kl_divergence(self) -> Tensor:
        """KL divergence from the prior, mean over members."""

        def of_member(tensors: dict[str, Tensor]) -> Tensor:
            kl: Tensor = functional_call(self._sampled, tensors, (), tie_weights=False)
            return kl

        by_member: Tensor = torch.vmap(of_member)(self._tensors())
        return by_member.mean()

    def summarised(self, log_probs: Tensor) -> Tensor:
        """Log-probabilities of members or of the mixtures of each sample: (S k, B, K) -> (S k, B, K) or (S, B, K)."""
        if self.summary_of == "members":
            return log_probs
        by_sample = log_probs.reshape(-1, self.num_members, *log_probs.shape[1:])
        return by_sample.logsumexp(1) - math.log(self.num_members)

    def settings(self) -> dict[str, Any]:
        """Number of members, what a summary is about, and prior standard deviations of the first member."""
        return {**super().settings(), "prior_std": [each.prior_std[0].item() for each in self._gaussians]}

    def _tensors(self) -> dict[str, Tensor]:
        return {f"network.{path}": getattr(module, name) for path, module, name in self._owners}


class _Sampled(nn.Module):
    """A mean-field posterior as a module, whose tensors `functional_call` can replace by those of one member."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.posterior = MeanField(network)

    def forward(self, inputs: Tensor | None = None, noise: Tensor | None = None) -> Tensor:
        """Logits for given noise; without inputs, the KL divergence."""
        if inputs is None:
            return self.posterior.kl_divergence()
        return self.posterior.forward_noise(inputs, noise)


class _EnsembleSample(Ensemble):
    """An ensemble whose weights are one sample of each member at the moment."""

    is_sample = True


class NaturalGradientEnsemble(NaturalGradientPosterior):
    """An ensemble of k Gaussian posteriors that `selbo.fit` trains by natural gradient, side by side, in one process.

    As in `Ensemble`, the members are stacked and each is trained as on its own: the update of `NaturalGradient` is that
    of each weight alone. In each step every member has its own sample. `selbo.predict` with S samples is the mean
    of S k predictions.

    Args:
        make_network: Called without arguments once per member; must return a new deterministic network, see `Ensemble`.
        num_members: k.
        num_data: N, the number of training examples.
        seed: Seed for the initial weights. A member depends on the seed and its number, not on k.
        summary_of: ``"members"`` or ``"mixture"``: what a summary is about, see `Ensemble`. With ``"mixture"`` it is
            about the mixture of one sample of each member.
        prior_std: Standard deviation of the Gaussian prior of each weight.
        initial_curvature: Initial curvature h, per example; a larger value gives less noise in the weights.
        betas: Decay of the moving averages of the gradient and of the curvature.
        temperature: T; below 1 the posteriors are narrower than by Bayes' rule.

    Example:
        >>> import selbo
        >>> inputs = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
        >>> labels = (inputs[:, 0] > 0).long()
        >>> ensemble = NaturalGradientEnsemble(lambda: nn.Linear(4, 2), 3, num_data=64)
        >>> result = selbo.fit(
        ...     ensemble, selbo.CrossEntropy(64), (inputs, labels), steps=100, batch_size=32
        ... )
        >>> generator = torch.Generator().manual_seed(0)
        >>> ensemble.log_probs(inputs, 5, generator=generator).shape
        torch.Size([15, 64, 2])
        >>> selbo.predict(ensemble.member(1), inputs, 8, generator=generator).probs.shape
        torch.Size([64, 2])
    """

    can_compile = False

    def __init__(
        self,
        make_network: Callable[[], nn.Module],
        num_members: int,
        *,
        num_data: int,
        seed: int = 0,
        summary_of: str = "members",
        prior_std: float = 0.15,
        initial_curvature: float = 0.5,
        betas: tuple[float, float] = (0.9, 0.99999),
        temperature: float = 1.0,
    ) -> None:
        self._ensemble = _EnsembleSample(make_network, num_members, seed=seed, summary_of=summary_of)
        super().__init__(
            self._ensemble.network,
            num_data=num_data,
            prior_std=prior_std,
            initial_curvature=initial_curvature,
            betas=betas,
            temperature=temperature,
        )
        self.num_members = num_members

    def member(self, number: int) -> NaturalGradientPosterior:
        """A copy of one member, from 0, as a posterior of its own."""
        found = NaturalGradientPosterior(self._ensemble.member(number), **self._settings)
        for name, each in found.precisions().items():
            each.copy_(self.precisions()[name][number])
        return found

    def weight_sample(self) -> Posterior:
        """The ensemble for the loss of a training step, in which its weights are one sample of each member."""
        return self._ensemble

    def _forward_with(self, own: Mapping[str, Tensor], weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        with exchanged(own, weights):
            return self._ensemble.forward_noise(inputs, None)

    def use_channels_last(self) -> None:
        """Leave the weights as they are: stacked convolutions run as one with groups."""

    def settings(self) -> dict[str, Any]:
        """Settings of the natural gradient and of the ensemble."""
        return {**super().settings(), **self._ensemble.settings()}

    def mean_network(self) -> nn.Module:
        """An ensemble has no mean network."""
        raise ValueError("`bnn` must have a mean network, but an ensemble has none: use `member`")

    def bayesian_network(self, *, exclude: Patterns = None) -> nn.Module:
        """An ensemble is not one network."""
        raise ValueError("an ensemble is not one network: use `member(number).bayesian_network()`")
