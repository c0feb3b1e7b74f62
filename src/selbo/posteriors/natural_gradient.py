"""A Gaussian posterior over the weights of any network, trained by natural gradient as a torch optimiser."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from selbo import _checks
from selbo.nn.convert import Patterns, to_bayesian, variational_layers
from selbo.nn.gaussian import GaussianParameter, softplus_inverse
from selbo.random import generator_for


@dataclass
class _Pending:
    """State of one parameter between a backward pass and the step.

    Attributes:
        noise: Sample minus mean, if there has been one sample; None after several.
        product: Sum over several samples of gradient times noise.
        norm: Norm of the gradient when the product was formed, to detect later scaling.
    """

    noise: Tensor | None
    product: Tensor | None = None
    norm: Tensor | None = None


class NaturalGradient(torch.optim.Optimizer):
    r"""Variational online Newton: an optimiser whose result is a posterior $N(m, \sigma^2)$ over all weights.

    The method is IVON (Shen et al., ICML 2024, https://arxiv.org/abs/2402.17641). A step costs about as much as one of
    Adam, and needs one more copy of the weights. The weights of the network are the means. Inside `sampled` they are
    one sample, the same for the whole batch, and the gradient computed there also estimates the curvature:

    $$\hat h = g \, \frac{\theta - m}{\sigma^2}, \qquad \sigma^2 = \frac{T}{N (h + \delta)}, \qquad
    \delta = \frac{1}{N \sigma_0^2} .$$

    The loss is the mean over training examples of the negative log-likelihood, without a KL: the update includes the
    prior. Divide a summary term by the number of training examples, as in ``CrossEntropy(N, summary).loss``.

    Use it like any torch optimiser, with `sampled` around the backward pass. To use several samples per step, or
    several parts of a batch, repeat this block and divide each loss by their number, because gradients add up. Gradient
    clipping, learning-rate schedulers and `torch.amp.GradScaler` work as usual. With DistributedDataParallel, gradients
    are averaged inside the backward pass, and every process has the same sample. Start each step with ``zero_grad()``
    of the optimiser, not of the network.

    Args:
        params: Parameters of the network, or groups of them; of type float32 or float64 (use autocast for less).
        lr: Learning rate. The step is divided by the curvature, so values are larger than for SGD or Adam.
        num_data: N, the number of training examples.
        prior_std: Standard deviation of the Gaussian prior of each weight.
        initial_curvature: Initial curvature h, per example; a larger value gives less noise in the weights.
        betas: Decay of the moving averages of the gradient and of the curvature.
        temperature: T; below 1 the posterior is narrower than by Bayes' rule.
        seed: Seed for the samples. They depend only on the seed, the step and the index of the sample.
        capturable: Whether steps are captured in a CUDA graph. Steps then do not depend on the host, and `sampled` uses
            torch's default generator.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> inputs = torch.randn(64, 4, generator=generator)
        >>> labels = (inputs[:, 0] > 0).long()
        >>> with torch.random.fork_rng():
        ...     network = nn.Linear(4, 2)
        >>> optimizer = NaturalGradient(network.parameters(), lr=0.1, num_data=64, prior_std=1.0)
        >>> for _ in range(20):
        ...     optimizer.zero_grad()
        ...     with optimizer.sampled():
        ...         loss = nn.functional.cross_entropy(network(inputs), labels)
        ...         loss.backward()
        ...     optimizer.step()
        >>> optimizer.std(network.weight).shape
        torch.Size([2, 4])
        >>> from selbo.posteriors import forward_samples
        >>> bnn = optimizer.bayesian_network(network)
        >>> forward_samples(bnn, inputs, num_samples=8, generator=generator).shape
        torch.Size([8, 64, 2])
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 0.1,
        *,
        num_data: int,
        prior_std: float = 0.15,
        initial_curvature: float = 0.5,
        betas: tuple[float, float] = (0.9, 0.99999),
        temperature: float = 1.0,
        seed: int = 0,
        capturable: bool = False,
    ) -> None:
        self._pending: dict[nn.Parameter, _Pending] = {}
        self._samples, self._inside = 0, False  # samples since the last step
        super().__init__(
            params,
            {
                "lr": lr,
                "num_data": num_data,
                "prior_std": prior_std,
                "initial_curvature": initial_curvature,
                "betas": betas,
                "temperature": temperature,
                "seed": _checks.whole("seed", seed, at_least=0),
                "capturable": capturable,
            },
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._pending, self._samples, self._inside = {}, 0, False

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with their own settings, and check the settings."""
        super().add_param_group(param_group)
        try:
            _check_group(self.param_groups[-1])
        except ValueError:
            self.param_groups.pop()
            raise

    @contextmanager
    def sampled(self, *, generator: torch.Generator | None = None) -> Iterator[None]:
        """A context in which the weights are one sample from the posterior; afterwards they are the means again.

        Gradients of a backward pass inside are kept for `step`. Without gradients (`torch.no_grad`), use the context to
        predict with one sample; it then does not change the optimiser.

        Args:
            generator: Source of the noise, instead of the seed of the optimiser.
        """
        if self._inside:
            raise RuntimeError("`sampled` must not be entered again inside itself: the weights are already a sample")
        keep, parameters = torch.is_grad_enabled(), list(self._trained())
        if not parameters:
            raise ValueError("`params` must hold at least one parameter that requires a gradient, but all are frozen")
        means = self._draw(parameters, generator)
        earlier = [each.grad for each, _ in parameters]
        if keep:
            for each, _ in parameters:
                each.grad = None
        self._inside, finished = True, False
        try:
            yield
            finished = True
        finally:
            self._inside = False
            with torch.no_grad():
                for (each, _), mean, gradient in zip(parameters, means, earlier, strict=True):
                    noise = each - mean
                    each.copy_(mean)
                    if keep and finished:
                        self._collect(each, noise, gradient)
                    elif keep:
                        each.grad = gradient
        self._samples += keep

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Discard the gradients and the estimates of the curvature since the last step."""
        super().zero_grad(set_to_none)
        self._pending, self._samples = {}, 0

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the posterior.

        Args:
            closure: Function that computes the loss and its gradient. It is called once, inside `sampled`.

        Returns:
            The result of ``closure``, if given.
        """
        loss = None
        if closure is not None:
            self.zero_grad()
            with torch.enable_grad(), self.sampled():
                loss = closure()
        if self._inside:
            raise RuntimeError("`step` must be called after `with optimizer.sampled()`, not inside it")
        if not self._pending:
            raise RuntimeError("`step` needs a gradient: call loss.backward() inside `with optimizer.sampled()`")
        for each, group in self._trained():
            pending = self._pending.get(each)
            if pending is not None and each.grad is not None:
                state = self._state(each, group)
                state["step"] += 1
                _update(each, each.grad, _product(pending, each.grad), state, group)
        self._pending, self._samples = {}, 0
        return loss

    def std(self, parameter: nn.Parameter) -> Tensor:
        """Posterior standard deviations of one parameter, with the shape of the parameter."""
        for each, group in self._trained():
            if each is parameter:
                return _std(self._state(each, group), group)
        raise ValueError("`parameter` must be one that this optimiser trains")

    @torch.no_grad()
    def bayesian_network(self, network: nn.Module, *, exclude: Patterns = None) -> nn.Module:
        """The trained posterior as a network that `selbo.predict`, `selbo.nn.save` and the like take.

        Its samples have the means and standard deviations found here. Layers that `to_bayesian` leaves deterministic,
        such as BatchNorm, are at their means.

        Args:
            network: The network that this optimiser trains; not changed.
            exclude: Names or patterns of layers that stay at their means, as for `to_bayesian`.
        """
        parameters, groups = dict(network.named_parameters()), {id(each): group for each, group in self._trained()}
        frozen = [name for name, each in parameters.items() if id(each) not in groups]
        if len(frozen) == len(parameters):
            raise ValueError("`network` must have parameters that this optimiser trains, but has none")
        left_out = [exclude] if isinstance(exclude, str) else list(exclude or ())
        bnn = to_bayesian(network, exclude=[*left_out, *frozen])
        for prefix, layer in variational_layers(bnn):
            for name, each in zip(layer.names, layer.posteriors, strict=True):
                gaussian = cast(GaussianParameter, each)
                parameter = parameters[f"{prefix}.{name}" if prefix else name]
                gaussian.rho.copy_(softplus_inverse(self.std(parameter)))
                gaussian.prior_std.fill_(groups[id(parameter)]["prior_std"])
        return bnn

    def _trained(self) -> Iterator[tuple[nn.Parameter, dict[str, Any]]]:
        """Parameters that are not frozen, with the settings of their group."""
        for group in self.param_groups:
            for each in group["params"]:
                if each.requires_grad:
                    yield each, group

    def _state(self, parameter: nn.Parameter, group: dict[str, Any]) -> dict[str, Any]:
        state: dict[str, Any] = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float64)
            if group["capturable"]:
                state["step"] = torch.zeros((), device=parameter.device)
            state["momentum"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
            state["precision"] = torch.full_like(
                parameter, group["initial_curvature"] + _delta(group), memory_format=torch.preserve_format
            )
        return state

    @torch.no_grad()
    def _draw(
        self, parameters: list[tuple[nn.Parameter, dict[str, Any]]], generator: torch.Generator | None
    ) -> list[Tensor]:
        """Replace the means by a sample, and return the means."""
        generators: dict[torch.device, torch.Generator | None] = {}
        means = []
        for each, group in parameters:
            state = self._state(each, group)
            if each.device not in generators:
                generators[each.device] = generator
                if generator is None and not group["capturable"]:
                    generators[each.device] = generator_for(
                        group["seed"], "natural gradient", int(state["step"]), self._samples, device=each.device
                    )
            noise = torch.randn(each.shape, generator=generators[each.device], dtype=each.dtype, device=each.device)
            means.append(each.detach().clone())
            each.addcmul_(noise, _std(state, group))
        return means

    def _collect(self, parameter: nn.Parameter, noise: Tensor, earlier: Tensor | None) -> None:
        """Store the terms of the curvature estimate, and add the gradient of this sample to an earlier one."""
        gradient, before = parameter.grad, self._pending.get(parameter)
        if earlier is None and before is None:
            if gradient is not None:
                self._pending[parameter] = _Pending(noise)
            return
        product = torch.zeros_like(noise) if gradient is None else noise * gradient
        if earlier is not None:
            if before is not None:
                product += _product(before, earlier)
            parameter.grad = earlier if gradient is None else earlier + gradient
        assert parameter.grad is not None
        self._pending[parameter] = _Pending(None, product, torch.linalg.vector_norm(parameter.grad))


def _product(pending: _Pending, gradient: Tensor) -> Tensor:
    """Sum over samples of gradient times noise; the gradient may have been clipped, unscaled or averaged since."""
    if pending.noise is not None:
        return pending.noise * gradient
    assert pending.product is not None
    assert pending.norm is not None
    now = torch.linalg.vector_norm(gradient)
    return pending.product * torch.where(pending.norm > 0, now / pending.norm, 1.0)


def _update(mean: Tensor, gradient: Tensor, product: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
    """One step for one parameter, in place."""
    momentum, precision = state["momentum"], state["precision"]
    beta1, beta2 = group["betas"]
    delta = _delta(group)
    momentum.lerp_(gradient, 1 - beta1)
    # With h = precision - delta and the estimate c = product * scale * precision, the update of the paper,
    # h + (1 - beta2) (c - h) + (1 - beta2)^2 (c - h)^2 / (2 precision), is one factor of the precision:
    # 1 - x + x^2 / 2 with x = (1 - beta2) (h - c) / precision. It is at least 1/2, so the precision stays positive.
    x = (1 - delta / precision - product * _scale(group)).mul_(1 - beta2)
    precision.mul_(x.square().mul_(0.5).sub_(x).add_(1))
    correction = 1 - beta1 ** state["step"]
    mean.sub_((momentum / correction).add_(mean, alpha=delta).div_(precision).mul_(group["lr"]))


def _delta(group: dict[str, Any]) -> float:
    """Precision of the prior, per training example."""
    return float(1 / (group["num_data"] * group["prior_std"] ** 2))


def _scale(group: dict[str, Any]) -> float:
    """N / T, the effective number of examples of the posterior."""
    return float(group["num_data"] / group["temperature"])


def _std(state: dict[str, Any], group: dict[str, Any]) -> Tensor:
    precision: Tensor = state["precision"]
    return (precision * _scale(group)).rsqrt()


def _check_group(group: dict[str, Any]) -> None:
    group["num_data"] = _checks.whole("num_data", group["num_data"], at_least=1)
    for name in ("prior_std", "initial_curvature", "temperature"):
        group[name] = _checks.positive(name, group[name])
    if not isinstance(group["lr"], Tensor):
        _checks.non_negative("lr", group["lr"])
    try:
        beta1, beta2 = group["betas"]
    except (TypeError, ValueError):
        raise ValueError(f"`betas` must be two numbers, but got {group['betas']!r}") from None
    for beta in (beta1, beta2):
        if not 0 <= _checks.non_negative("betas", beta) < 1:
            raise ValueError(f"`betas` must be from 0 to below 1, but got {group['betas']!r}")
    for each in group["params"]:
        if each.dtype not in (torch.float32, torch.float64):
            raise ValueError(
                f"`params` must be of type float32 or float64, but got {each.dtype}: for reduced precision use autocast"
            )
