"""A Gaussian posterior over the weights of any network, trained by natural gradient as a torch optimiser."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, cast

import torch
from torch import Tensor, nn

from selbo import _checks
from selbo.nn import compiled
from selbo.nn.convert import Patterns, to_bayesian, variational_layers
from selbo.nn.gaussian import GaussianParameter, softplus_inverse
from selbo.random import derive

TRAINABLE: Final = (torch.float32, torch.float64)
"""Types of the parameters that can be trained."""

STATE: Final = frozenset({"step", "momentum", "precision"})
"""Names in the state of each parameter."""


@dataclass(eq=False)
class _Block:
    """Parameters of one group with the same device, type and step, stored in flat vectors of length P.

    The parameters are views of ``mean``; inside `NaturalGradient.sampled` they are views of ``sample``. A step is then
    a dozen operations, or two compiled kernels, for any number of parameters.

    Attributes:
        group: Settings.
        params: Parameters.
        step: Number of updates so far, shape ().
        mean: Means of the weights.
        momentum: Moving average of the gradient.
        precision: Curvature plus precision of the prior, per training example.
        sample: The last sample of a training step.
        scratch: Memory for intermediate results on a CPU, where new memory in every step costs more than the
            arithmetic; None on other devices, where memory of the backward pass is reused.
        has_sample: Whether ``sample`` belongs to the gradients, which have come from one sample.
        product: Sum over several samples of gradient times noise.
        norms: Norms of the gradients when the product was formed, to detect later scaling.
    """

    group: dict[str, Any]
    params: list[nn.Parameter]
    step: Tensor
    mean: Tensor
    momentum: Tensor
    precision: Tensor
    sample: Tensor
    scratch: Tensor | None
    has_sample: bool = False
    product: Tensor | None = None
    norms: list[Tensor] | None = None

    def __post_init__(self) -> None:
        self.means, self.momenta, self.precisions, self.samples = (
            _views(flat, self.params) for flat in (self.mean, self.momentum, self.precision, self.sample)
        )

    def serves(self, state: Mapping[Any, dict[str, Any]]) -> bool:
        """Whether the parameters and their state are still views of the vectors."""
        return all(
            each.data_ptr() == mean.data_ptr()
            and each.stride() == mean.stride()
            and (found := state[each]).get("step") is self.step
            and found["momentum"] is momentum
            and found["precision"] is precision
            for each, mean, momentum, precision in zip(
                self.params, self.means, self.momenta, self.precisions, strict=True
            )
        )

    def point_to(self, views: list[Tensor]) -> None:
        """Make the parameters views of another vector; no values are copied."""
        for each, view in zip(self.params, views, strict=True):
            each.data = view

    def outdate(self) -> None:
        """Make torch refuse a backward pass through results of the weights before; it does not see `point_to`."""
        for each in self.params:
            torch.autograd.graph.increment_version(each)

    def gradient(self) -> Tensor:
        """Gradients of all parameters, in the order of the vectors; zero where the loss does not use a parameter."""
        return torch.cat(
            [
                mean.new_zeros(mean.numel()) if each.grad is None else _in_memory_order(each.grad, mean.stride())
                for each, mean in zip(self.params, self.means, strict=True)
            ],
            out=self.scratch,
        )

    def has_gradient(self) -> bool:
        """Whether there is a gradient from inside `NaturalGradient.sampled`."""
        return (self.has_sample or self.product is not None) and any(each.grad is not None for each in self.params)

    def form_product(self, gradient: Tensor | None = None) -> Tensor:
        """Gradient times noise; several samples have been added up, and gradients may have been scaled since."""
        if self.product is None:
            return self.sample.sub_(self.mean).mul_(self.gradient() if gradient is None else gradient)
        assert self.norms is not None
        for each, part, norm in zip(self.params, _views(self.product, self.params), self.norms, strict=True):
            if each.grad is not None:
                part.mul_(torch.where(norm > 0, torch.linalg.vector_norm(each.grad) / norm, 1.0))
        return self.product

    def forget(self) -> None:
        """Discard what came from samples since the last step."""
        self.has_sample, self.product, self.norms = False, None, None


class NaturalGradient(torch.optim.Optimizer):
    r"""Variational online Newton: an optimiser whose result is a posterior $N(m, \sigma^2)$ over all weights.

    The method is IVON (Shen et al., ICML 2024, https://arxiv.org/abs/2402.17641). A step costs about as much as one of
    Adam, and needs two more copies of the weights. The weights of the network are the means. Inside `sampled` they are
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
        compiled: Compile the sampling and the update into one kernel each, which is fastest on CUDA. It needs
            ``capturable`` and a tensor as learning rate.

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
        compiled: bool = False,
    ) -> None:
        if compiled and not (capturable and isinstance(lr, Tensor)):
            raise ValueError(
                "`compiled` needs capturable=True and a tensor as `lr`, so that one kernel serves all steps"
            )
        self.compiled = compiled
        self._blocks: list[_Block] = []
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

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "compiled": self.compiled}

    def __setstate__(self, state: dict[str, Any]) -> None:
        kept = self.__dict__.get("compiled", False)  # `load_state_dict` passes states and groups alone
        super().__setstate__(state)
        self._blocks, self._samples, self._inside = [], 0, False
        self.compiled = state.get("compiled", kept)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a result of `state_dict`; that of another kind of optimiser is an error."""
        if any(each.keys() != STATE for each in state_dict["state"].values()):
            raise ValueError(
                "`state_dict` must be that of a NaturalGradient, but it holds the state of another kind of optimiser"
            )
        super().load_state_dict(state_dict)

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

        Gradients of a backward pass inside are kept for `step`. A backward pass outside would use other weights than
        the forward pass inside, so `step` or torch raises an error. Without gradients (`torch.no_grad`), use the
        context to predict with one sample; it then does not change the optimiser.

        Args:
            generator: Source of the noise, instead of the seed of the optimiser.
        """
        if self._inside:
            raise RuntimeError("`sampled` must not be entered again inside itself: the weights are already a sample")
        keep = torch.is_grad_enabled()
        blocks = self._packed()
        if not blocks:
            raise ValueError("`params` must hold at least one parameter that requires a gradient, but all are frozen")
        # copies: DistributedDataParallel may let gradients share the memory into which the next ones are written
        earlier = [[None if each.grad is None else each.grad.clone() for each in block.params] for block in blocks]
        with torch.no_grad():
            if keep:
                self._set_aside(blocks)
            samples = self._draw(blocks, generator, keep=keep)
        self._inside, finished = True, False
        try:
            for block, sample in zip(blocks, samples, strict=True):
                block.point_to(sample)
                if keep:
                    block.outdate()
            yield
            finished = True
        finally:
            self._inside = False
            for block, gradients in zip(blocks, earlier, strict=True):
                block.point_to(block.means)
                if keep and finished:
                    _collect(block, gradients)
                elif keep:
                    for each, gradient in zip(block.params, gradients, strict=True):
                        each.grad = gradient
            if keep and any(block.has_gradient() for block in blocks):  # without one, `step` raises the clearer error
                for block in blocks:
                    block.outdate()
        self._samples += keep

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Discard the gradients and the estimates of the curvature since the last step."""
        super().zero_grad(set_to_none)
        self._forget()

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the posterior. A parameter that the loss does not use has a gradient of zero.

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
        blocks = self._packed()
        if not any(block.has_gradient() for block in blocks):
            raise RuntimeError("`step` needs a gradient: call loss.backward() inside `with optimizer.sampled()`")
        for block in blocks:
            block.step += 1
            _update(block, compiled_kernel=self.compiled)
        self._forget()
        return loss

    def std(self, parameter: nn.Parameter) -> Tensor:
        """Posterior standard deviations of one parameter, with the shape of the parameter."""
        precision = self.precision(parameter)
        return (precision * _scale(next(group for each, group in self._trained() if each is parameter))).rsqrt()

    def precision(self, parameter: nn.Parameter) -> Tensor:
        """Curvature plus precision of the prior, per training example, of one parameter; not copied."""
        for each, group in self._trained():
            if each is parameter:
                precision: Tensor = self._state(each, group)["precision"]
                return precision
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
        parameters = dict(network.named_parameters(remove_duplicate=False))  # tied weights under each of their names
        groups = {id(each): group for each, group in self._trained()}
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

    def _packed(self) -> list[_Block]:
        """The blocks of all parameters that are not frozen; built anew if a parameter or its state was replaced."""
        parameters = list(self._trained())
        known = {id(each) for block in self._blocks for each in block.params}
        if known == {id(each) for each, _ in parameters} and all(block.serves(self.state) for block in self._blocks):
            return self._blocks
        blocks: dict[Any, list[nn.Parameter]] = {}
        groups = {}
        for each, group in parameters:
            state = self._state(each, group)
            key = (id(group), each.device, each.dtype, float(state["step"]))
            blocks.setdefault(key, []).append(each)
            groups[key] = group
        self._forget()
        self._blocks = [_pack(params, groups[key], self.state) for key, params in blocks.items()]
        return self._blocks

    def _draw(self, blocks: list[_Block], generator: torch.Generator | None, *, keep: bool) -> list[list[Tensor]]:
        """Sample all weights; a sample that is not for training has memory of its own."""
        sources: dict[torch.device, NormalNoise] = {}
        drawn = []
        for block in blocks:
            group, device = block.group, block.mean.device
            sample = block.sample if keep else torch.empty_like(block.sample)
            if self.compiled and generator is None:
                _kernel(_sample_posterior, compiled.BACKEND)(block.mean, block.precision, _scale(group), sample)
            else:
                if device not in sources:
                    if generator is not None or group["capturable"]:
                        sources[device] = NormalNoise(device, generator)
                    else:
                        seed = derive(group["seed"], "natural gradient", int(block.step), self._samples)
                        sources[device] = NormalNoise(device, seed)
                sources[device].fill(sample)
                root = torch.sqrt(block.precision, out=block.scratch)
                torch.addcdiv(block.mean, sample, root, value=_scale(group) ** -0.5, out=sample)
            drawn.append(block.samples if keep else _views(sample, block.params))
        return drawn

    def _set_aside(self, blocks: list[_Block]) -> None:
        """Before another sample, form the product of the gradients so far, and empty the gradients for the new ones."""
        for block in blocks:
            if block.has_sample:
                product = block.form_product().clone() if block.has_gradient() else None
                block.forget()
                block.product = product
            elif not block.has_gradient():  # discarded by `zero_grad` of the network: the step was skipped
                block.forget()
            else:
                block.form_product()
            for each in block.params:
                each.grad = None

    def _forget(self) -> None:
        self._samples = 0
        for block in self._blocks:
            block.forget()


@torch.no_grad()
def _collect(block: _Block, earlier: list[Tensor | None]) -> None:
    """Keep the terms of the curvature estimate, and add the gradients of this sample to earlier ones."""
    if any(each.grad is not None and each.grad.is_sparse for each in block.params):
        raise ValueError("`params` must have dense gradients, but some are sparse: pass sparse=False to the embedding")
    found = any(each.grad is not None for each in block.params)
    if block.product is None and all(each is None for each in earlier):
        block.has_sample = found
        return
    if found:
        product = block.sample.sub_(block.mean).mul_(block.gradient())
        block.product = product.clone() if block.product is None else block.product.add_(product)
    for each, before in zip(block.params, earlier, strict=True):
        if before is not None:
            each.grad = before if each.grad is None else before + each.grad
    zero = block.mean.new_zeros(())
    block.norms = [zero if each.grad is None else torch.linalg.vector_norm(each.grad) for each in block.params]


def _pack(params: list[nn.Parameter], group: dict[str, Any], state: Mapping[Any, dict[str, Any]]) -> _Block:
    """Move parameters and their state into flat vectors, of which they become views."""
    with torch.no_grad():
        mean, momentum, precision = (
            torch.cat(
                [
                    _in_memory_order(value.to(each), _dense_strides(each))
                    for each, value in zip(params, values, strict=True)
                ]
            )
            for values in (params, *([state[each][name] for each in params] for name in ("momentum", "precision")))
        )
    step = state[params[0]]["step"]
    scratch = torch.empty_like(mean) if mean.device.type == "cpu" else None
    block = _Block(group, params, step, mean, momentum, precision, torch.empty_like(mean), scratch)
    block.point_to(block.means)
    for each, average, found in zip(params, block.momenta, block.precisions, strict=True):
        state[each].update(step=step, momentum=average, precision=found)
    return block


def _views(flat: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
    """Views of a flat vector with the shapes and memory formats of parameters, one after the other.

    For torch each has a storage of its own, which is a part of the memory of the vector: safetensors refuses to save
    tensors that share a larger storage.
    """
    views, first, memory = [], flat.storage_offset() * flat.itemsize, flat.untyped_storage()
    for each in params:
        last = first + each.numel() * flat.itemsize
        own = cast(torch.UntypedStorage, memory[first:last])
        views.append(
            torch.empty(0, dtype=flat.dtype, device=flat.device).set_(own, 0, each.shape, _dense_strides(each))
        )
        first = last
    return views


def _dense_strides(tensor: Tensor) -> tuple[int, ...]:
    """Strides of a tensor if its values fill an interval of memory, else those of a contiguous one."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return torch.empty(tensor.shape, device="meta").stride()
            expected *= size
    return tensor.stride()


def _in_memory_order(tensor: Tensor, strides: tuple[int, ...]) -> Tensor:
    """The values of a tensor as a vector, in the order that they have in memory with these strides."""
    if tensor.stride() != strides:
        tensor = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)
    return tensor.as_strided((tensor.numel(),), (1,))


class NormalNoise:
    """Source of standard normal noise; on a CPU it is the same for a seed on every machine, unlike torch's.

    There, 16 random bits choose one of 65 536 normal quantiles. Their mean is 0, their variance 1 and their fourth
    moment 2.999; none is beyond 4.33.

    Args:
        device: Device of the tensors to fill.
        source: A seed, or a torch generator; torch's default one if None.
    """

    def __init__(self, device: torch.device, source: int | torch.Generator | None) -> None:
        self.generator = torch.Generator(device).manual_seed(source) if isinstance(source, int) else source

    def fill(self, tensor: Tensor) -> None:
        """Replace the values of a contiguous tensor of type float32 or float64."""
        if tensor.device.type != "cpu":
            tensor.normal_(generator=self.generator)
            return
        quantiles = _quantiles(tensor.dtype)
        for part in tensor.view(-1).split(1 << 18):  # limits the memory for indices
            words = torch.empty((part.numel() + 3) // 4, dtype=torch.int64)
            words.random_(-(2**63), None, generator=self.generator)
            torch.index_select(quantiles, 0, words.view(torch.uint16)[: part.numel()].int(), out=part)


@cache
def _quantiles(dtype: torch.dtype) -> Tensor:
    """65 536 quantiles of the standard normal distribution, scaled to variance 1.

    Rounded to float32 for float64 too, so that they do not depend on the last digits of ``ndtri``.
    """
    values = torch.special.ndtri((torch.arange(1 << 16, dtype=torch.float64) + 0.5) / (1 << 16))
    table: Tensor = (values / values.square().mean().sqrt()).float().to(dtype)
    return table


def _update(block: _Block, *, compiled_kernel: bool) -> None:
    """One step for all parameters of a block, in place."""
    group = block.group
    lr, (beta1, beta2) = group["lr"], group["betas"]
    step: float | Tensor = block.step
    if not group["capturable"]:
        lr, step = float(lr), float(block.step)
    unbiased = 1 - beta1**step
    settings = (lr / unbiased, unbiased * _delta(group), beta1, beta2, _delta(group), _scale(group))
    gradient = block.gradient()
    state = (block.mean, gradient, block.momentum, block.precision)
    if compiled_kernel and block.product is None:
        _kernel(_update_from_sample, compiled.BACKEND)(block.sample, *state, *settings)
    else:
        _update_from_product(block.form_product(gradient), *state, *settings)


# Both functions below are the update of the paper. With h = precision - delta and the estimate of the curvature
# c = product * scale * precision, its h + (1 - beta2) (c - h) + (1 - beta2)^2 (c - h)^2 / (2 precision) adds
# x + x^2 / 2 times the precision, with x = (1 - beta2) (c - h) / precision. This is at least -1/2, so the precision
# stays positive.


def _update_from_product(  # noqa: PLR0917  (as the other one)
    product: Tensor,
    mean: Tensor,
    gradient: Tensor,
    momentum: Tensor,
    precision: Tensor,
    rate: float | Tensor,
    shrinkage: float | Tensor,
    beta1: float,
    beta2: float,
    delta: float,
    scale: float,
) -> None:
    """The update in few passes over memory and without new memory; overwrites ``product`` and ``gradient``."""
    momentum.lerp_(gradient, 1 - beta1)
    weight = (1 - beta2) * scale  # x = weight (product - 1 / scale + delta / (scale precision))
    one = product.new_ones(())
    x = product.sub_(1 / scale).addcdiv_(one, precision, value=delta / scale)
    precision.addcmul_(precision, x.addcmul_(x, x, value=0.5 * weight), value=weight)
    if isinstance(shrinkage, Tensor):
        change = torch.addcmul(momentum, mean, shrinkage, out=gradient).mul_(rate)
        mean.addcdiv_(change, precision, value=-1)
    else:
        change = torch.add(momentum, mean, alpha=shrinkage, out=gradient)
        mean.addcdiv_(change, precision, value=-float(rate))


def _update_from_sample(  # noqa: PLR0917  (torch.compile takes tensors by position)
    sample: Tensor,
    mean: Tensor,
    gradient: Tensor,
    momentum: Tensor,
    precision: Tensor,
    rate: Tensor,
    shrinkage: Tensor,
    beta1: float,
    beta2: float,
    delta: float,
    scale: float,
) -> None:
    """The update as one kernel, if compiled."""
    x = (1 - beta2) * (delta / precision - 1 + (sample - mean) * gradient * scale)
    momentum.lerp_(gradient, 1 - beta1)
    precision.add_(precision * (x + 0.5 * x * x))
    mean.sub_(rate * (momentum + shrinkage * mean) / precision)


def _sample_posterior(mean: Tensor, precision: Tensor, scale: float, sample: Tensor) -> None:
    """Fill ``sample`` with weights from the posterior; one kernel, if compiled."""
    sample.copy_(mean + torch.randn_like(mean) * (precision * scale).rsqrt())


@cache
def _kernel(function: Callable[..., None], backend: str | Callable[..., object]) -> Callable[..., None]:
    """A function compiled on first use, because importing the compiler is slow."""
    return compiled.compile_function(function, backend=backend)


def _delta(group: dict[str, Any]) -> float:
    """Precision of the prior, per training example."""
    return float(1 / (group["num_data"] * group["prior_std"] ** 2))


def _scale(group: dict[str, Any]) -> float:
    """N / T, the effective number of examples of the posterior."""
    return float(group["num_data"] / group["temperature"])


def _check_group(group: dict[str, Any]) -> None:
    group["num_data"] = _checks.whole("num_data", group["num_data"], at_least=1)
    for name in ("prior_std", "initial_curvature", "temperature"):
        group[name] = _checks.positive(name, group[name])
    if not isinstance(group["lr"], Tensor) or group["lr"].device.type == "cpu":  # reading others would wait for them
        _checks.non_negative("lr", group["lr"])
    try:
        beta1, beta2 = group["betas"]
    except (TypeError, ValueError):
        raise ValueError(f"`betas` must be two numbers, but got {group['betas']!r}") from None
    for beta in (beta1, beta2):
        if not 0 <= _checks.non_negative("betas", beta) < 1:
            raise ValueError(f"`betas` must be from 0 to below 1, but got {group['betas']!r}")
    _checks.unsharded(
        "params", group["params"], "a natural gradient trains a whole network, as DistributedDataParallel has it"
    )
    for each in group["params"]:
        if each.dtype not in TRAINABLE:
            raise ValueError(
                f"`params` must be of type float32 or float64, but got {each.dtype}: for reduced precision use autocast"
            )
