"""Samplers of the posterior over the weights of any network: SGHMC, cyclical SGLD, and full-batch HMC as a reference.

The package `posteriors` (Apache 2.0) has SGHMC and SGLD as pure functions of a log posterior. The samplers here are
torch optimisers instead, so parameter groups, frozen parameters, learning-rate schedulers and checkpoints of an
existing training loop work. Their noise depends on a seed and the step rather than on torch's global generator, so a
resumed run is the same run, and cycles are part of them. They need no package besides torch and numpy.
"""

import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.func import functional_call

from selbo import _checks
from selbo.nn import storage
from selbo.nn.gaussian import gaussians
from selbo.posteriors.natural_gradient import NormalNoise
from selbo.posteriors.posterior import Posterior, as_logits, evaluation_mode, forward_with
from selbo.random import derive

SAMPLE_SET_FORMAT: Final = "selbo-samples-1"

SHARED_SETTINGS: Final = ("cycle_steps", "sampling_fraction", "seed", "step")
"""Settings of all parameter groups together; they are stored in each, because ``state_dict`` has them there."""

JITTER: Final = 0.2
"""Relative range of the step size of HMC: with one length, trajectories can be periods of the posterior, so that
samples hardly move."""


class SGHMC(torch.optim.Optimizer):
    r"""Stochastic gradient Hamiltonian Monte Carlo: an optimiser whose weights, step by step, are posterior samples.

    The method is that of Chen, Fox and Guestrin (ICML 2014, https://arxiv.org/abs/1402.4102), in their form with a
    learning rate and a momentum decay. With the loss $\ell$, a mean over training examples, the potential is

    $$U(\theta) = N \ell(\theta) + \frac{\lVert \theta \rVert^2}{2 \sigma_0^2}$$

    and the weights have the density $\exp(-U / T)$ in the limit of a small learning rate. With $\eta = \mathrm{lr} / N$
    and the momentum decay $a$, a step is

    $$r \leftarrow (1 - a)\, r - \sqrt{\eta}\, \nabla U(\theta) + \sqrt{2 a T}\, \epsilon, \qquad
    \theta \leftarrow \theta + \sqrt{\eta}\, r .$$

    For a constant learning rate this is the update of the paper with $v = \sqrt{\eta}\, r$. The variance of $r$ is T
    for every learning rate, so a schedule does not disturb it. Without noise it is SGD with momentum. For a Gaussian
    posterior with precision $k$ the variance is too large by the factor $1 / (1 - \eta k / (4 - 2a))$. The noise of
    gradients from batches is not estimated: it adds variance in proportion to the learning rate.

    The loss has no prior, because the update includes it. Divide a summary term by the number of training examples, as
    in ``CrossEntropy(N, summary).loss``: it is then a part of the log posterior.

    With ``cycle_steps`` the learning rate falls from ``lr`` to 0 by a cosine and starts again (Zhang et al., ICLR 2020,
    https://arxiv.org/abs/1902.03932). The first part of each cycle looks for a mode, without noise; the last one
    samples. Without it, the learning rate is ``lr``, and any scheduler of torch can change it.

    Args:
        params: Parameters of the network, or groups of them; of type float32 or float64 (use autocast for less). One
            that the loss does not use has a gradient of zero and is sampled from its prior.
        lr: Learning rate, on the scale of SGD: for a loss that is a mean.
        num_data: N, the number of training examples.
        prior_std: Standard deviation of the Gaussian prior of each weight.
        momentum_decay: Above 0, up to 1, which is SGLD; one minus the momentum of SGD.
        temperature: T; below 1 the posterior is narrower than by Bayes' rule.
        cycle_steps: Number of steps per cycle; no cycles if None.
        sampling_fraction: Share of each cycle, at its end, that has noise.
        seed: Seed for the noise, which depends only on the seed and the step.

    Example:
        >>> import selbo
        >>> generator = torch.Generator().manual_seed(0)
        >>> inputs = torch.randn(64, 4, generator=generator)
        >>> labels = (inputs[:, 0] > 0).long()
        >>> network = selbo.models.MLP((4, 8, 2), generator=generator)
        >>> optimizer = SGHMC(
        ...     network.parameters(),
        ...     num_data=64,
        ...     prior_std=1.0,
        ...     cycle_steps=50,
        ...     sampling_fraction=0.4,
        ... )
        >>> samples = SampleSet(network)
        >>> for _ in range(200):
        ...     optimizer.zero_grad()
        ...     torch.nn.functional.cross_entropy(network(inputs), labels).backward()
        ...     optimizer.step()
        ...     _ = samples.collect(optimizer, every=10)
        >>> len(samples), samples.mixture(inputs).shape
        (8, torch.Size([64, 2]))
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 0.1,
        *,
        num_data: int,
        prior_std: float = 0.15,
        momentum_decay: float = 0.1,
        temperature: float = 1.0,
        cycle_steps: int | None = None,
        sampling_fraction: float = 1.0,
        seed: int = 0,
    ) -> None:
        if cycle_steps is not None:
            _checks.whole("cycle_steps", cycle_steps, at_least=1)
        if not 0 < _checks.positive("sampling_fraction", sampling_fraction) <= 1:
            raise ValueError(f"`sampling_fraction` must be above 0 and at most 1, but got {sampling_fraction!r}")
        if cycle_steps is None and sampling_fraction != 1:
            raise ValueError("`sampling_fraction` needs `cycle_steps`, because it is a share of each cycle")
        _checks.whole("seed", seed, at_least=0)
        super().__init__(
            params,
            {
                "lr": lr,
                "num_data": num_data,
                "prior_std": prior_std,
                "momentum_decay": momentum_decay,
                "temperature": temperature,
                "cycle_steps": cycle_steps,
                "sampling_fraction": sampling_fraction,
                "seed": seed,
                "step": 0,
            },
        )

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with their own settings, and check the settings."""
        for name in SHARED_SETTINGS:
            if param_group.get(name, self.defaults[name]) != self.defaults[name]:
                raise ValueError(f"`{name}` must be the same for all parameter groups, but got {param_group[name]!r}")
        super().add_param_group(param_group)
        first, group = self.param_groups[0], self.param_groups[-1]
        try:
            _check_group(group)
        except ValueError:
            self.param_groups.pop()
            raise
        group.update({name: first[name] for name in SHARED_SETTINGS})

    @property
    def num_steps(self) -> int:
        """Number of steps so far."""
        return int(self.param_groups[0]["step"])

    @property
    def is_sampling(self) -> bool:
        """Whether the next step has noise."""
        return _has_noise(self.param_groups[0])

    def has_sample(self, every: int | None = None) -> bool:
        """Whether the weights after the last step are a sample to keep.

        Args:
            every: Keep each n-th step of the sampling phases, counted back from the end of a cycle. If None, keep the
                last step of each cycle.
        """
        group = self.param_groups[0]
        cycle, step = group["cycle_steps"], self.num_steps
        if every is None and cycle is None:
            raise ValueError("`every` must be given if the optimiser has no `cycle_steps`")
        period = cycle if every is None else _checks.whole("every", every, at_least=1)
        if step == 0 or not _has_noise({**group, "step": step - 1}):
            return False
        return bool(step % period == 0 if cycle is None else -step % cycle % period == 0)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move all weights by one step.

        Args:
            closure: Function that computes the loss and its gradient.

        Returns:
            The result of ``closure``, if given.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if all(each.grad is None for group in self.param_groups for each in group["params"] if each.requires_grad):
            raise RuntimeError("`step` needs a gradient: call loss.backward() before it")
        for number, group in enumerate(self.param_groups):
            self._move(group, number)
            group["step"] += 1
        return loss

    def _move(self, group: dict[str, Any], number: int) -> None:
        """One step of all parameters of a group, in place."""
        decay, has_noise = group["momentum_decay"], _has_noise(group)
        root = math.sqrt(float(group["lr"]) * _cosine(group) / group["num_data"])
        sources: dict[torch.device, NormalNoise] = {}
        for each in group["params"]:
            if not each.requires_grad:
                continue
            kick = each / -(group["prior_std"] ** 2)
            if each.grad is not None:
                kick.sub_(each.grad, alpha=group["num_data"])
            kick.mul_(root)
            if has_noise:
                if each.device not in sources:
                    sources[each.device] = NormalNoise(
                        each.device, derive(group["seed"], "sampler", group["step"], number)
                    )
                noise = torch.empty(each.shape, dtype=each.dtype, device=each.device)
                sources[each.device].fill(noise)
                kick.add_(noise, alpha=math.sqrt(2 * decay * group["temperature"]))
            if decay < 1:
                state = self.state[each]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(each, memory_format=torch.preserve_format)
                kick = state["momentum"].mul_(1 - decay).add_(kick)
            each.add_(kick, alpha=root)


class SGLD(SGHMC):
    r"""Stochastic gradient Langevin dynamics, with or without cycles: `SGHMC` without momentum.

    The method is that of Welling and Teh (ICML 2011) and, with ``cycle_steps``, cSGLD of Zhang et al. (ICLR 2020,
    https://arxiv.org/abs/1902.03932). With the terms of `SGHMC`, a step is

    $$\theta \leftarrow \theta - \eta \nabla U(\theta) + \sqrt{2 \eta T}\, \epsilon .$$

    It needs no memory besides the weights. SGHMC moves faster through the posterior at the same learning rate.

    Args:
        params: Parameters of the network, or groups of them.
        lr: Learning rate, on the scale of SGD.
        num_data: N, the number of training examples.
        prior_std: Standard deviation of the Gaussian prior of each weight.
        temperature: T; below 1 the posterior is narrower than by Bayes' rule.
        cycle_steps: Number of steps per cycle; no cycles if None.
        sampling_fraction: Share of each cycle, at its end, that has noise.
        seed: Seed for the noise, which depends only on the seed and the step.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 0.1,
        *,
        num_data: int,
        prior_std: float = 0.15,
        temperature: float = 1.0,
        cycle_steps: int | None = None,
        sampling_fraction: float = 1.0,
        seed: int = 0,
    ) -> None:
        super().__init__(
            params,
            lr,
            num_data=num_data,
            prior_std=prior_std,
            momentum_decay=1.0,
            temperature=temperature,
            cycle_steps=cycle_steps,
            sampling_fraction=sampling_fraction,
            seed=seed,
        )


class SampleSet(Posterior):
    """Copies of the weights of a network, such as those of a sampler: a mixture with one network per sample.

    It is a posterior that `selbo.predict`, `selbo.evaluate` and the like take instead of a network. They then use every
    sample once, with equal weights, for any ``num_samples``. Buffers, such as the running statistics of BatchNorm,
    are a part of each sample. Predictions have no gradients.

    Args:
        network: The network that the sampler trains; not copied.

    Example:
        >>> network = nn.utils.skip_init(nn.Linear, 1, 2, bias=False)
        >>> samples = SampleSet(network)
        >>> for value in (0.0, 1.0, 2.0):
        ...     _ = (
        ...         nn.init.constant_(network.weight[:1], value),
        ...         nn.init.zeros_(network.weight[1:]),
        ...     )
        ...     samples.add()
        >>> samples.log_probs(torch.ones(1, 1)).exp()[:, 0, 0]
        tensor([0.5000, 0.7311, 0.8808])
        >>> samples.mixture(torch.ones(1, 1), weights=torch.tensor([0.0, 0.5, 0.5])).exp()
        tensor([[0.8059, 0.1941]])
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__(network)
        if gaussians(network):
            raise ValueError("`network` must be deterministic, but it was made by selbo.to_bayesian: pass the original")
        self._samples: list[dict[str, Tensor]] = []

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        """Tensors of one sample, by the names that they have in the network; not copied."""
        return self._samples[number]

    def add(self) -> None:
        """Keep a copy of the current weights."""
        tensors = storage.unique_tensors(self.network)
        self._samples.append({name: each.detach().clone() for name, each in tensors.items()})

    def collect(self, optimizer: SGHMC, *, every: int | None = None) -> bool:
        """Keep a copy of the weights if the last step of a sampler gave a sample: call it after each step.

        Args:
            optimizer: The sampler.
            every: Keep each n-th step of the sampling phases; the last one of each cycle if None.

        Returns:
            Whether a copy was kept.
        """
        found = optimizer.has_sample(every)
        if found:
            self.add()
        return found

    def log_probs(
        self,
        inputs: Tensor,
        num_samples: int = 1,
        *,
        generator: torch.Generator | None = None,
        batch_size: int = 1024,
    ) -> Tensor:
        """Log-probabilities under each sample, in evaluation mode: (S, B, K).

        Pass those for inputs that a belief is about to `selbo.belief_weights`.

        Args:
            inputs: Shape (B, ...), on the device of the network.
            num_samples: Not used: there is one result per sample of the set.
            generator: Not used.
            batch_size: Number of inputs per pass.
        """
        _checks.whole("batch_size", batch_size, at_least=1)
        with evaluation_mode(self.network):
            parts = [as_logits(self.forward_noise(part, None), part) for part in inputs.split(batch_size)]
        return torch.cat(parts, 1).log_softmax(-1)

    def mixture(self, inputs: Tensor, *, weights: Tensor | None = None, batch_size: int = 1024) -> Tensor:
        """Log-probabilities of the mixture of all samples: (B, K).

        Args:
            inputs: Shape (B, ...), on the device of the network.
            weights: Weights of the samples, shape (S,), such as ``selbo.belief_weights(...).weights``; equal if None.
            batch_size: Number of inputs per pass.
        """
        count = len(self)
        logs = torch.full((count,), -math.log(max(1, count)), dtype=torch.float64)
        if weights is not None:
            if not isinstance(weights, Tensor) or weights.shape != (count,):
                came = f"shape {tuple(weights.shape)}" if isinstance(weights, Tensor) else type(weights).__name__
                raise ValueError(f"`weights` must be a tensor with one weight per sample, ({count},), but got {came}")
            _checks.on_simplex("weights", _checks.floating("weights", weights))
            logs = weights.log()
        found = self.log_probs(inputs, batch_size=batch_size)
        return (found + logs.to(found)[:, None, None]).logsumexp(0)

    # --- methods of every posterior ---

    def draw_noise(self, num_samples: int, generator: torch.Generator | None) -> None:
        """Return None: the samples are given."""

    @torch.no_grad()
    def forward_noise(
        self,
        inputs: Tensor,
        noise: Tensor | None,
        *,
        estimator: str = "shared",
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Outputs of the network for all samples: (S, B, K)."""
        self.require_shared(estimator)
        if not self._samples:
            raise ValueError("the sample set is empty: call `add` or `collect` first")
        own = storage.unique_tensors(self.network)
        return torch.stack([forward_with(self.network, own, sample, inputs) for sample in self._samples])

    def state_dict(self) -> dict[str, Tensor]:
        """Tensors of all samples; their names start with the number of the sample."""
        return {f"{number}/{name}": each for number, one in enumerate(self._samples) for name, each in one.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Replace the samples by those of a result of `state_dict`; the network is not changed."""
        own = storage.unique_tensors(self.network)
        count = len(state) // max(1, len(own))
        if set(state) != {f"{number}/{name}" for number in range(count) for name in own}:
            raise ValueError("`state` must be the state of samples of the same network, but its names differ")
        self._samples = [
            {name: state[f"{number}/{name}"].detach().to(each, copy=True) for name, each in own.items()}
            for number in range(count)
        ]

    def structure(self) -> dict[str, Any]:
        """Type and shape of every tensor of every sample."""
        return self._structure(len(self))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write all samples to one safetensors file, atomically."""
        return storage.write_tensors(self.state_dict(), path, self.structure())

    def load(self, path: str | os.PathLike[str]) -> None:
        """Replace the samples by those of a file that `save` wrote for a network of the same structure."""
        shapes = storage.read_header(path)[1]
        count = len(shapes) // max(1, len(storage.unique_tensors(self.network)))
        self.load_state_dict(storage.read_tensors(path, self._structure(count))[0])

    def _structure(self, count: int) -> dict[str, Any]:
        found = storage.describe_tensors(self.network, format_name=SAMPLE_SET_FORMAT)
        tensors = {f"{number}/{name}": each for number in range(count) for name, each in found["tensors"].items()}
        return {**found, "tensors": tensors}


@dataclass(frozen=True)
class HMCSamples:
    """Result of `hmc`.

    Attributes:
        samples: Shape (S, ..., P).
        acceptance_rate: Share of accepted proposals after the burn-in, from 0 to 1. Values from .6 to .95 are usual.
    """

    samples: Tensor
    acceptance_rate: float


def hmc(
    log_posterior: Callable[[Tensor], Tensor],
    initial: Tensor,
    *,
    num_samples: int,
    step_size: float,
    leapfrog_steps: int = 20,
    burn_in: int = 100,
    generator: torch.Generator | None = None,
) -> HMCSamples:
    """Hamiltonian Monte Carlo: leapfrog trajectories with an acceptance test, so samples have no bias by the step size.

    A reference for small problems: every step needs the gradient of the log posterior over all training examples. The
    step size is not adapted. Each trajectory multiplies it by a random factor close to 1.

    Args:
        log_posterior: Log density up to a constant, (..., P) -> (...); see `network_log_posterior`.
        initial: Initial values, shape (..., P). Leading dimensions are independent chains.
        num_samples: S, the number of samples per chain.
        step_size: Length of a leapfrog step, about a fifth of the smallest posterior standard deviation.
        leapfrog_steps: Number of leapfrog steps per sample.
        burn_in: Number of first samples that are discarded.
        generator: Source of the randomness, on the device of ``initial``; torch's default generator if not given.

    Example:
        >>> found = hmc(
        ...     lambda x: -0.5 * ((x - 3) / 0.1).square().sum(-1),
        ...     torch.full((2,), 3.0),
        ...     num_samples=100,
        ...     step_size=0.05,
        ...     generator=torch.Generator().manual_seed(0),
        ... )
        >>> bool((found.samples.mean(0) - 3).abs().max() < 0.05), found.acceptance_rate > 0.8
        (True, True)
    """
    _checks.whole("num_samples", num_samples, at_least=1)
    _checks.whole("leapfrog_steps", leapfrog_steps, at_least=1)
    _checks.whole("burn_in", burn_in, at_least=0)
    _checks.positive("step_size", step_size)
    if _checks.floating("initial", initial).ndim < 1:
        raise ValueError("`initial` must have shape (..., P), but got a single number")
    position = initial.detach().clone()
    value, gradient = _value_and_gradient(log_posterior, position)
    if not bool(value.isfinite().all()):
        raise ValueError("`log_posterior` must be finite at `initial`, but it is not")
    options: dict[str, Any] = {"generator": generator, "dtype": position.dtype, "device": position.device}
    samples, accepted = [], 0.0
    for number in range(burn_in + num_samples):
        size = step_size * (1 + JITTER * (2 * torch.rand((), **options) - 1))
        momentum = torch.randn(position.shape, **options)
        energy = 0.5 * momentum.square().sum(-1) - value
        end, end_value, end_gradient = position, value, gradient
        for _ in range(leapfrog_steps):
            momentum = momentum + 0.5 * size * end_gradient
            end = end + size * momentum
            end_value, end_gradient = _value_and_gradient(log_posterior, end)
            momentum = momentum + 0.5 * size * end_gradient
        change = energy - (0.5 * momentum.square().sum(-1) - end_value)
        accept = torch.rand(value.shape, **options).log() < change  # false for NaN, after a trajectory that diverged
        value = torch.where(accept, end_value, value)
        position = torch.where(accept.unsqueeze(-1), end, position)
        gradient = torch.where(accept.unsqueeze(-1), end_gradient, gradient)
        if number >= burn_in:
            samples.append(position)
            accepted += accept.double().mean().item()
    return HMCSamples(torch.stack(samples), accepted / num_samples)


def network_log_posterior(
    network: nn.Module, loss: Callable[[nn.Module], Tensor], *, num_data: int, prior_std: float = 0.15
) -> Callable[[Tensor], Tensor]:
    r"""The log posterior of the weights of a network, as a function of one vector, for `hmc`.

    It is $-N \ell - \lVert \theta \rVert^2 / (2 \sigma_0^2)$, the target of `SGHMC` at a temperature of 1.

    Args:
        network: The network; not changed. Frozen parameters stay as they are.
        loss: Function of the network that returns the loss over all training examples: a mean, with a summary divided
            by their number, such as ``lambda net: CrossEntropy(N, summary)(net, inputs, labels).loss``.
        num_data: N, the number of training examples.
        prior_std: Standard deviation of the Gaussian prior of each weight.

    Returns:
        A function (P,) -> (), of the vector ``parameters_to_vector`` of the trained parameters.
    """
    count = _checks.whole("num_data", num_data, at_least=1)
    precision = 1 / _checks.positive("prior_std", prior_std) ** 2
    named = [(name, each) for name, each in network.named_parameters() if each.requires_grad]
    if not named:
        raise ValueError("`network` must have at least one parameter that requires a gradient, but has none")
    total, module = sum(each.numel() for _, each in named), _Loss(network, loss)

    def log_posterior(vector: Tensor) -> Tensor:
        if vector.shape != (total,):
            raise ValueError(f"`vector` must have shape ({total},), but got {tuple(vector.shape)}")
        parts = vector.split([each.numel() for _, each in named])
        weights = {f"network.{name}": part.view(each.shape) for (name, each), part in zip(named, parts, strict=True)}
        value: Tensor = functional_call(module, weights, ())
        return -count * value - 0.5 * precision * vector.square().sum()

    return log_posterior


class _Loss(nn.Module):
    """A loss as a module, whose weights `functional_call` can replace."""

    def __init__(self, network: nn.Module, loss: Callable[[nn.Module], Tensor]) -> None:
        super().__init__()
        self.network, self.loss = network, loss

    def forward(self) -> Tensor:
        return self.loss(self.network)


def _value_and_gradient(log_posterior: Callable[[Tensor], Tensor], position: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        moving = position.detach().requires_grad_()
        value = log_posterior(moving)
        if value.shape != position.shape[:-1]:
            raise ValueError(
                f"`log_posterior` must return one value per chain, shape {tuple(position.shape[:-1])}, "
                f"but returned {tuple(value.shape)}"
            )
        (gradient,) = torch.autograd.grad(value.sum(), moving)
    return value.detach(), gradient


def _cosine(group: dict[str, Any]) -> float:
    """Factor of the learning rate in the next step: from 1 to 0 in each cycle."""
    cycle = group["cycle_steps"]
    return 1.0 if cycle is None else 0.5 * (1 + math.cos(math.pi * (group["step"] % cycle) / cycle))


def _has_noise(group: dict[str, Any]) -> bool:
    """Whether the next step is in a sampling phase, which has at least one step per cycle."""
    cycle = group["cycle_steps"]
    if cycle is None:
        return True
    return bool(group["step"] % cycle >= cycle - max(1, round(group["sampling_fraction"] * cycle)))


def _check_group(group: dict[str, Any]) -> None:
    group["num_data"] = _checks.whole("num_data", group["num_data"], at_least=1)
    for name in ("prior_std", "momentum_decay"):
        group[name] = _checks.positive(name, group[name])
    if group["momentum_decay"] > 1:
        raise ValueError(f"`momentum_decay` must be above 0 and at most 1, but got {group['momentum_decay']!r}")
    for name in ("temperature", "lr"):
        _checks.non_negative(name, group[name])
    for each in group["params"]:
        if each.dtype not in (torch.float32, torch.float64):
            raise ValueError(
                f"`params` must be of type float32 or float64, but got {each.dtype}: for reduced precision use autocast"
            )
