"""Conversion of any network to a Bayesian one, and back to the network at the posterior mean."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from selbo._compile import BatchNormBase, forward_pre_hooks, named_children
from selbo.nn.gaussian import GaussianParameter, Relative, gaussians, initial_std, require_gaussians, resolve_prior_std
from selbo.nn.layers import SUPPORTED, TRANSPOSED, VariationalLayer

DETERMINISTIC: Final = (
    BatchNormBase,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
)
"""Layers whose parameters stay deterministic by default: scales and shifts of normalised values."""

DEFAULT_INIT_STD: Final = 0.01
"""Initial posterior standard deviation: smaller than the weights of the usual initialisations, so that training starts
close to the deterministic network."""

Patterns = str | Sequence[str] | None
PriorStd = float | str | Mapping[str, float | str]


def to_bayesian(
    module: nn.Module,
    *,
    prior_std: PriorStd = 1.0,
    init_std: float | Relative = DEFAULT_INIT_STD,
    only: Patterns = None,
    exclude: Patterns = None,
) -> nn.Module:
    """Copy a network and give each weight a Gaussian posterior whose mean is the weight of the network.

    Linear layers, convolutions, transposed convolutions, embeddings and multi-head attention become variational;
    normalisation layers are unchanged. A layer with other parameters raises an error unless it is excluded, so no layer
    is silently left deterministic. Shared layers and weights stay shared. Frozen weights stay frozen: a weight that
    does not require a gradient keeps its mean and its initial standard deviation.

    Args:
        module: Any network; not changed.
        prior_std: Standard deviation of the prior: a number, ``"fan_in"`` for 1 / sqrt(inputs of a unit), or a mapping
            from layer names or patterns to either of them; layers that no pattern matches get 1.
        init_std: Initial standard deviation of the posteriors: a number, or `Relative` to each weight.
        only: Names or patterns of the layers to convert; ``only="head"`` gives a Bayesian last layer.
        exclude: Names or patterns of layers, or of single parameters, to leave deterministic.

    Returns:
        The Bayesian network. If called like the original network, it predicts at the posterior means; see
        `forward_samples`.

    Example:
        >>> import torch
        >>> with torch.random.fork_rng():
        ...     net = nn.Sequential(
        ...         nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)
        ...     )
        >>> bnn = to_bayesian(net, prior_std="fan_in", only="3")
        >>> print(describe(bnn))
        layer                                    kind                 Bayesian  deterministic
        0                                        Linear                      0             40
        1                                        BatchNorm1d                 0             16
        3                                        Linear                     27              0
        all                                                                 27             56
    """
    if not isinstance(module, nn.Module):
        raise ValueError(f"`module` must be a torch.nn.Module, but got {type(module).__name__}")
    conversion = _Conversion(_copy(module), prior_std, init_std, _patterns(only), _patterns(exclude) or ())
    converted = conversion.run()
    if not conversion.layers:
        supported = ", ".join(kind.__name__ for kind in SUPPORTED)
        raise ValueError(f"`module` must have a layer to convert, but {type(module).__name__} has none of {supported}")
    return converted


def _copy(module: nn.Module) -> nn.Module:
    """Copy a network whose layers may hold tensors that are computed from their parameters."""
    computed = [
        value
        for each in module.modules()
        for value in vars(each).values()
        if isinstance(value, torch.Tensor) and not value.is_leaf  # cannot be copied, and is recomputed
    ]
    return copy.deepcopy(module, {id(value): value.detach().clone() for value in computed})


def _patterns(patterns: Patterns) -> tuple[str, ...] | None:
    if patterns is None:
        return None
    return (patterns,) if isinstance(patterns, str) else tuple(patterns)


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")


class _Conversion:
    """Conversion of one network; tracks converted layers, so that shared layers and weights stay shared."""

    def __init__(
        self,
        module: nn.Module,
        prior_std: PriorStd,
        init_std: float | Relative,
        only: tuple[str, ...] | None,
        exclude: tuple[str, ...],
    ) -> None:
        self.module, self.prior_std, self.init_std = module, prior_std, init_std
        self.only, self.exclude = only, exclude
        self.decisions: dict[int, bool] = {}
        self.layers: dict[int, VariationalLayer] = {}
        self.posteriors: dict[int, GaussianParameter] = {}
        self.originals: list[nn.Parameter] = []  # kept alive, so that no other object reuses their ids

    def run(self) -> nn.Module:
        self._check_patterns()
        self._check_unsupported()
        converted = self._convert("", self.module)
        for name, parameter in converted.named_parameters():
            if id(parameter) in self.posteriors:
                raise ValueError(
                    f"`module` shares {name!r} with a layer that becomes Bayesian: convert both layers, or neither"
                )
        return converted

    def _check_patterns(self) -> None:
        names = [name for name, _ in self.module.named_modules()]
        names += [name for name, _ in self.module.named_parameters(remove_duplicate=False)]
        mapping = self.prior_std.keys() if isinstance(self.prior_std, Mapping) else ()
        for argument, patterns in (("only", self.only or ()), ("exclude", self.exclude), ("prior_std", mapping)):
            for pattern in patterns:
                if not any(_matches(name, pattern) for name in names):
                    raise ValueError(f"`{argument}` names {pattern!r}, but the network has no such layer or parameter")

    def _convert(self, name: str, module: nn.Module) -> nn.Module:
        if isinstance(module, SUPPORTED):
            chosen = self._chosen(name)
            if self.decisions.setdefault(id(module), chosen) != chosen:
                raise ValueError(f"`exclude` and `only` must agree on {name!r}, which the network uses under two names")
            return self._layer(name, module) if chosen else module
        for child_name, child in named_children(module):
            module.register_module(child_name, self._convert(f"{name}.{child_name}".lstrip("."), child))
        if isinstance(module, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
            for child in module.children():
                if isinstance(child, VariationalLayer) and isinstance(child.plain, nn.Linear):
                    child.is_sequence_first = not module.self_attn.batch_first
        return module

    def _chosen(self, name: str) -> bool:
        wanted = self.only is None or any(_matches(name, pattern) for pattern in self.only)
        return wanted and not any(_matches(name, pattern) for pattern in self.exclude)

    def _check_unsupported(self) -> None:
        """Raise an error for parameters that cannot be Bayesian; the message has the ``exclude`` to pass."""
        inside = [name for name, module in self.module.named_modules() if isinstance(module, SUPPORTED)]
        first, needed = "", list(self.exclude)
        for name, module in self.module.named_modules():
            if isinstance(module, (*SUPPORTED, *DETERMINISTIC)) or any(_matches(name, each) for each in inside):
                continue
            own = [f"{name}.{each}".lstrip(".") for each, _ in module.named_parameters(recurse=False)]
            own = [each for each in own if self._chosen(name) and self._chosen(each)]
            if not own:
                continue
            first = first or f"{own[0]!r} of a {type(module).__name__}"
            needed += [name] if name and not named_children(module) else own
        if first:
            raise ValueError(
                f"`module` has a parameter that cannot be made Bayesian, {first}: "
                f"pass exclude={needed} to leave such layers deterministic"
            )

    def _layer(self, name: str, module: nn.Module) -> VariationalLayer:
        if id(module) not in self.layers:
            self._check_own_weights(name, module)
            found = {
                own: self._posterior(f"{name}.{own}".lstrip("."), module, value)
                for own, value in module.named_parameters()
                if not any(_matches(f"{name}.{own}".lstrip("."), pattern) for pattern in self.exclude)
            }
            for own in found:
                _set_parameter(module, own, None)
            self.layers[id(module)] = VariationalLayer(module, found)
        return self.layers[id(module)]

    def _check_own_weights(self, name: str, module: nn.Module) -> None:
        """Raise an error for a layer whose weights are computed, by a parametrization or a legacy hook."""
        for part in module.modules():
            hooks = [type(hook) for hook in forward_pre_hooks(part)]
            old = [hook.__name__ for hook in hooks if hook.__module__.startswith("torch.nn.utils.")]
            if old or is_parametrized(part):
                raise ValueError(
                    f"`module` has a layer whose weights are computed from other parameters, {name!r} "
                    f"({old[0] if old else type(part).__name__}): remove this first, or name the layer in `exclude`"
                )

    def _posterior(self, name: str, module: nn.Module, value: nn.Parameter) -> GaussianParameter:
        if id(value) not in self.posteriors:
            prior = resolve_prior_std(self._prior_choice(name), fan_in=_fan_in(module))
            self.originals.append(value)
            posterior = GaussianParameter(value, initial_std(value, self.init_std), prior)
            self.posteriors[id(value)] = posterior.requires_grad_(value.requires_grad)
        return self.posteriors[id(value)]

    def _prior_choice(self, name: str) -> float | str:
        if not isinstance(self.prior_std, Mapping):
            return self.prior_std
        return next((std for pattern, std in self.prior_std.items() if _matches(name, pattern)), 1.0)


def _fan_in(module: nn.Module) -> int:
    """Number of inputs of one unit of a layer."""
    if isinstance(module, nn.Embedding):
        return 1  # one row is looked up
    if isinstance(module, nn.MultiheadAttention):
        return int(module.embed_dim)
    weight: Any = module.weight
    if isinstance(module, TRANSPOSED):
        return int(weight[:, 0].numel() // module.groups)
    return int(weight[0].numel())


def _set_parameter(module: nn.Module, name: str, value: nn.Parameter | None) -> None:
    *path, last = name.split(".")
    owner = module.get_submodule(".".join(path))
    owner.register_parameter(last, value)


def variational_layers(module: nn.Module) -> Iterator[tuple[str, VariationalLayer]]:
    """The variational layers of a network, each once, with their names."""
    for name, each in module.named_modules():
        if isinstance(each, VariationalLayer):
            yield name, each


def mean_network(bnn: nn.Module) -> nn.Module:
    """The deterministic network at the posterior mean, for deployment, without the posterior.

    Args:
        bnn: A network made by `to_bayesian`; not changed.

    Returns:
        A network with the original layers.
    """
    require_gaussians(bnn)
    network = _copy(bnn)
    parameters: dict[int, nn.Parameter] = {}
    return _restore(network, parameters, {})


def _restore(module: nn.Module, parameters: dict[int, nn.Parameter], done: dict[int, nn.Module]) -> nn.Module:
    if isinstance(module, VariationalLayer):
        if id(module) not in done:
            for name, posterior in zip(module.names, module.posteriors, strict=True):
                assert isinstance(posterior, GaussianParameter)
                value = parameters.setdefault(id(posterior), nn.Parameter(posterior.mean.detach().clone()))
                _set_parameter(module.plain, name, value)
            done[id(module)] = module.plain
        return done[id(module)]
    for name, child in named_children(module):
        module.register_module(name, _restore(child, parameters, done))
    return module


def describe(bnn: nn.Module) -> str:
    """Text table of the numbers of Bayesian and deterministic parameters, per layer."""
    lines = [f"{'layer':40} {'kind':18} {'Bayesian':>10} {'deterministic':>14}"]
    totals = [0, 0]
    inside: set[int] = set()
    counted: set[int] = set()
    for name, module in bnn.named_modules():
        if isinstance(module, VariationalLayer):
            inside.update(id(part) for part in module.modules())
            own = [each for each in gaussians(module) if id(each) not in counted]
            counted.update(id(each) for each in own)
            counts = [sum(each.mean.numel() for each in own), sum(each.numel() for each in module.plain.parameters())]
            kind = type(module.plain).__name__
        elif id(module) in inside:
            continue
        else:
            counts = [0, sum(each.numel() for each in module.parameters(recurse=False))]
            kind = type(module).__name__
        if any(counts):
            lines.append(f"{name or '(root)':40} {kind:18} {counts[0]:>10} {counts[1]:>14}")
            totals = [total + count for total, count in zip(totals, counts, strict=True)]
    lines.append(f"{'all':40} {'':18} {totals[0]:>10} {totals[1]:>14}")
    return "\n".join(lines)
