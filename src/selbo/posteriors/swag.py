"""SWAG: a Gaussian whose mean and covariance are those of the weights along the last part of a training run."""

import copy
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from selbo import _checks
from selbo.nn import storage
from selbo.nn.batchnorm import batchnorm_with_statistics, estimate_batchnorm
from selbo.nn.gaussian import gaussians
from selbo.posteriors.natural_gradient import NormalNoise
from selbo.posteriors.posterior import Posterior, draw_seeds, exchanged, tensor_answer

SWAG_FORMAT: Final = "selbo-swag-1"
MOMENTS: Final = "swag/"
"""Prefix of mean, squares and deviations in the state; names of parameters contain no slash."""

MOST_KEPT: Final = 256
"""Number of samples whose BatchNorm statistics are kept, so that they are estimated once for all blocks of inputs."""


class SWAG(Posterior):
    r"""Stochastic weight averaging, Gaussian (Maddox et al., NeurIPS 2019, https://arxiv.org/abs/1902.02476).

    Train a network, then continue with SGD at a constant, rather high learning rate and call `collect` at regular
    steps, at least once per epoch. With the mean $\bar\theta$ of the collected weights, their variances $v$, and the
    deviations $D$ of the last R from the mean so far, a sample is

    $$\theta = \bar\theta + c \left( \sqrt{v / 2}\, \epsilon + \frac{1}{\sqrt{2 (R - 1)}} D \epsilon' \right)$$

    with standard normal $\epsilon$ and $\epsilon'$, and the `scale` $c$, which is 1 in the paper. Without deviations
    the variances count fully (SWAG-Diagonal). All trained weights are random, those of BatchNorm included.

    Running statistics of BatchNorm belong to one set of weights, so they are estimated again for each sample, from
    ``batchnorm_inputs``. Predictions have no gradients.

    Args:
        network: A deterministic network; not copied. Its own weights, those of the last step, are not used.
        max_rank: Largest number R of deviations; each costs a copy of the weights.
        batchnorm_inputs: Training inputs, (B, ...), on the device of the network; some thousand suffice. Needed if the
            network has BatchNorm. They are not saved.

    Example:
        >>> import selbo
        >>> generator = torch.Generator().manual_seed(0)
        >>> inputs = torch.randn(64, 4, generator=generator)
        >>> labels = (inputs[:, 0] > 0).long()
        >>> network = selbo.models.MLP((4, 8, 2), generator=generator)
        >>> swag = SWAG(network)
        >>> result = selbo.fit(
        ...     network,
        ...     selbo.CrossEntropy(64),
        ...     (inputs, labels),
        ...     steps=100,
        ...     optimizer="sgd",
        ...     learning_rate=0.1,
        ...     callbacks=[swag.collect],
        ...     log_every=5,
        ... )
        >>> swag.count, selbo.predict(swag, inputs, 16, generator=generator).probs.shape
        (20, torch.Size([64, 2]))
    """

    can_scale = True
    can_compile = False

    def __init__(self, network: nn.Module, *, max_rank: int = 20, batchnorm_inputs: Tensor | None = None) -> None:
        super().__init__(network)
        if gaussians(network):
            raise ValueError("`network` must be deterministic, but it was made by selbo.to_bayesian: pass the original")
        self.max_rank = _checks.whole("max_rank", max_rank, at_least=0)
        self.batchnorm_inputs = batchnorm_inputs
        size = sum(each.numel() for _, each in self._trained())
        if size == 0:
            raise ValueError("`network` must have at least one parameter that requires a gradient, but has none")
        first = self._trained()[0][1].detach()
        self.count = 0
        """Number of collected sets of weights."""
        self.mean = first.new_zeros(size)
        """Mean of the collected weights, one vector, shape (P,)."""
        self._squares = first.new_zeros(size)
        self._deviations: list[Tensor] = []
        self._kept: dict[tuple[int, float], dict[str, Tensor]] = {}

    @torch.no_grad()
    def collect(self, record: object = None) -> None:
        """Add the current weights to the moments.

        Args:
            record: Not used; with it, the method can be a callback of `selbo.fit`, which calls it every ``log_every``
                steps.
        """
        now = torch.cat([each.detach().reshape(-1) for _, each in self._trained()]).to(self.mean.dtype)
        if now.device != self.mean.device:  # the network was moved
            self.mean, self._squares = self.mean.to(now), self._squares.to(now)
            self._deviations = [each.to(now) for each in self._deviations]
        self.count += 1
        before = now - self.mean
        self.mean = self.mean + before / self.count
        after = now - self.mean
        self._squares = self._squares + before * after  # exact for weights that hardly vary, unlike a mean of squares
        self._deviations = [*self._deviations, after][-self.max_rank :] if self.max_rank else []
        self._kept.clear()

    @property
    def variances(self) -> Tensor:
        """Variances of the collected weights, with division by their number, shape (P,)."""
        return self._squares / max(1, self.count)

    @property
    def deviations(self) -> Tensor:
        """Deviations of the last collected weights from the mean at that time, shape (R, P)."""
        return torch.stack(self._deviations) if self._deviations else self.mean.new_zeros(0, len(self.mean))

    def draw_noise(self, num_samples: int, generator: torch.Generator | None) -> Tensor:
        """A seed for the noise of each sample, (S, 1)."""
        return draw_seeds(num_samples, self.device, generator)

    @torch.no_grad()
    def forward_noise(
        self,
        inputs: Tensor,
        noise: Tensor | None,
        *,
        estimator: str = "shared",
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Outputs of the network for each sample: (S, B, K)."""
        assert noise is not None
        self.require_shared(estimator)
        outputs = []
        for seed in noise[:, 0].tolist():
            with self._at(self.sample_weights(seed), (seed, self.scale)):
                outputs.append(tensor_answer(self.network(inputs)))
        return torch.stack(outputs)

    @torch.no_grad()
    def sample_weights(self, seed: int) -> Tensor:
        """One sample of all trained weights, in the order of the parameters, shape (P,)."""
        if self.count < 2:
            raise ValueError(f"SWAG needs weights of at least two steps, but has {self.count}: call `collect`")
        noise = torch.empty_like(self.mean)
        source = NormalNoise(self.mean.device, seed)
        source.fill(noise)
        rank = len(self._deviations)
        if rank < 2:  # without low-rank part, the diagonal is the whole covariance
            return self.mean + self.scale * self.variances.sqrt() * noise
        change = (self.variances / 2).sqrt() * noise
        coefficients = torch.empty(rank, dtype=self.mean.dtype, device=self.mean.device)
        source.fill(coefficients)
        for each, coefficient in zip(self._deviations, coefficients / math.sqrt(2 * (rank - 1)), strict=True):
            change.addcmul_(each, coefficient)
        return self.mean + self.scale * change

    @torch.no_grad()
    def mean_network(self) -> nn.Module:
        """A copy of the network at the mean of the weights, with its own BatchNorm statistics."""
        with self._at(self.mean):
            return copy.deepcopy(self.network)

    @contextmanager
    def _at(self, weights: Tensor, key: tuple[int, float] | None = None) -> Iterator[None]:
        """A context in which the network has these weights, and BatchNorm statistics that belong to them."""
        trained = self._trained()
        parts = weights.split([each.numel() for _, each in trained])
        own: dict[str, Tensor] = dict(trained)
        values = {name: part.view(each.shape) for (name, each), part in zip(trained, parts, strict=True)}
        statistics = self._statistics()
        if not statistics:
            with exchanged(own, values):
                yield
            return
        if self.batchnorm_inputs is None:
            raise ValueError(
                "`batchnorm_inputs` must be given for a network with BatchNorm: each sample needs statistics of its own"
            )
        kept = self._kept.get(key) if key is not None else None
        found = {name: each.clone() for name, each in statistics.items()} if kept is None else kept
        with exchanged({**own, **statistics}, {**values, **found}):
            if kept is None:
                estimate_batchnorm(self.network, self.batchnorm_inputs)
                if key is not None:
                    while len(self._kept) >= MOST_KEPT:
                        self._kept.pop(next(iter(self._kept)))
                    self._kept[key] = found
            yield

    def settings(self) -> dict[str, Any]:
        """Largest number of deviations."""
        return {"max_rank": self.max_rank}

    def state_dict(self) -> dict[str, Tensor]:
        """Tensors of the network, and the moments."""
        return {**self.network.state_dict(), **self._moments()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore a result of `state_dict`."""
        self.network.load_state_dict({name: each for name, each in state.items() if not name.startswith(MOMENTS)})
        self._restore(state)

    def structure(self) -> dict[str, Any]:
        """Type and shape of every tensor."""
        return self._structure(len(self._deviations))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write network and moments to one safetensors file, atomically."""
        return storage.write_tensors({**storage.unique_tensors(self.network), **self._moments()}, path, self._header())

    def load(self, path: str | os.PathLike[str]) -> None:
        """Read a file that `save` wrote for a network of the same structure."""
        shapes = storage.read_header(path)[1]
        rank = shapes.get(MOMENTS + "deviations", [0])[0]
        tensors, found = storage.read_tensors(path, self._structure(rank))
        own = {name: each for name, each in tensors.items() if not name.startswith(MOMENTS)}
        self.network.load_state_dict(own, strict=False)  # shared tensors are stored under one name
        self._restore(tensors)
        self._scale = found.get("scale", 1.0)

    def _structure(self, rank: int) -> dict[str, Any]:
        found = storage.describe_tensors(self.network, format_name=SWAG_FORMAT)
        kind, size = str(self.mean.dtype), len(self.mean)
        shapes = {"mean": [kind, [size]], "squares": [kind, [size]], "deviations": [kind, [rank, size]]}
        shapes["count"] = ["torch.int64", []]
        return {**found, "tensors": {**found["tensors"], **{MOMENTS + name: each for name, each in shapes.items()}}}

    def _moments(self) -> dict[str, Tensor]:
        return {
            MOMENTS + "mean": self.mean,
            MOMENTS + "squares": self._squares,
            MOMENTS + "deviations": self.deviations,
            MOMENTS + "count": torch.tensor(self.count),
        }

    def _restore(self, state: dict[str, Tensor]) -> None:
        self.mean = state[MOMENTS + "mean"].to(self.mean, copy=True)
        self._squares = state[MOMENTS + "squares"].to(self.mean, copy=True)
        self._deviations = list(state[MOMENTS + "deviations"].to(self.mean, copy=True))
        self.count = int(state[MOMENTS + "count"])
        self._kept.clear()

    def _trained(self) -> list[tuple[str, nn.Parameter]]:
        return [(name, each) for name, each in self.network.named_parameters() if each.requires_grad]

    def _statistics(self) -> dict[str, Tensor]:
        """Buffers of BatchNorm, by any unique name."""
        layers = batchnorm_with_statistics(self.network)
        return {f"{n}/{name}": each for n, layer in enumerate(layers) for name, each in layer.named_buffers()}
