"""Test-time adaptation: a trained network with BatchNorm is adapted to unlabelled inputs of the target domain."""

from typing import Final

import torch
from torch import Tensor, nn

from selbo.metrics import entropy
from selbo.objectives import Objective, evaluation_mode
from selbo_lab.studies.run_spec import Recipe

BatchNorm = nn.modules.batchnorm._BatchNorm

INPUTS_AT_A_TIME: Final = 1000
"""Inputs per forward pass where statistics are estimated, to bound memory; the statistics are those of all inputs."""


def adapt(
    network: nn.Module, inputs: Tensor, recipe: Recipe, *, objective: Objective, generator: torch.Generator
) -> None:
    """Adapt a trained network in place, as the recipe says; it needs no labels.

    With ``batchnorm`` the statistics of BatchNorm become those of the inputs (AdaBN, Li et al., 2017; prediction-time
    BatchNorm, Nado et al., 2020). With ``tent`` the entropy of the predictions is minimised first (Wang et al., 2021).

    Args:
        network: Deterministic, with BatchNorm.
        inputs: Unlabelled inputs of the target domain, (U, ...), on the device of the network.
        recipe: With an adaptation.
        objective: The training objective, which turns outputs into probabilities.
        generator: Source of the order of the inputs, on the CPU.
    """
    if recipe.adaptation == "tent":
        minimise_entropy(network, inputs, recipe, objective=objective, generator=generator)
    estimate_statistics(network, inputs, precision=recipe.precision)


def batchnorm_layers(network: nn.Module) -> list[BatchNorm]:
    """BatchNorm layers with statistics, in the order of the modules; raises an error if there are none."""
    layers = [each for each in network.modules() if isinstance(each, BatchNorm) and each.running_mean is not None]
    if not layers:
        raise ValueError("`adaptation` needs a network with BatchNorm, but this one has none")
    return layers


def estimate_statistics(network: nn.Module, inputs: Tensor, *, precision: str = "fp32") -> None:
    """Set the statistics of BatchNorm to the exact mean and variance over all inputs, one layer after the other.

    The statistics of a layer depend on those of the layers before it, so every layer has a forward pass of its own. A
    prediction for these inputs is then what one pass with batch statistics over all of them would give: the variance is
    that of the inputs themselves, without Bessel's correction.

    Args:
        network: Its BatchNorm layers are modules in the order in which they are called.
        inputs: (U, ...), on the device of the network.
        precision: ``"fp32"``, or ``"bf16"`` for the forward pass.
    """
    layers = batchnorm_layers(network)
    with torch.no_grad(), evaluation_mode(network):
        for layer in layers:
            moments = _Moments()
            handle = layer.register_forward_pre_hook(moments)
            try:
                for block in inputs.split(INPUTS_AT_A_TIME):
                    _forward(network, block, precision)
            finally:
                handle.remove()
            assert layer.running_mean is not None
            assert layer.running_var is not None
            mean, var = moments.mean_and_var()
            layer.running_mean.copy_(mean)
            layer.running_var.copy_(var)


class _Moments:
    """Hook that adds up the inputs of a layer and their squares by channel, in float64."""

    def __init__(self) -> None:
        self.count, self.total, self.squares = 0, torch.zeros(()), torch.zeros(())

    def __call__(self, _: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        values = arguments[0].double().transpose(0, 1).flatten(1)
        self.count += values.shape[1]
        self.total = self.total.to(values) + values.sum(1)
        self.squares = self.squares.to(values) + values.square().sum(1)

    def mean_and_var(self) -> tuple[Tensor, Tensor]:
        mean = self.total / self.count
        return mean, (self.squares / self.count - mean.square()).clamp(min=0)


def minimise_entropy(
    network: nn.Module, inputs: Tensor, recipe: Recipe, *, objective: Objective, generator: torch.Generator
) -> None:
    """Train scale and shift of BatchNorm by Adam to lower the mean entropy of predictions, as TENT does.

    BatchNorm normalises by the statistics of the batch; all other weights stay as they are, and dropout is off. Every
    epoch sees all inputs once, in a random order, in batches of about the batch size of the recipe.

    Args:
        network: Deterministic, with BatchNorm.
        inputs: (U, ...), on the device of the network.
        recipe: ``adaptation_rate``, ``adaptation_epochs``, ``batch_size`` and ``precision``.
        objective: The training objective.
        generator: Source of the order of the inputs, on the CPU.
    """
    layers = batchnorm_layers(network)
    affine = [parameter for layer in layers for parameter in (layer.weight, layer.bias) if parameter is not None]
    optimizer = torch.optim.Adam(affine, lr=recipe.adaptation_rate)
    with evaluation_mode(network):
        for layer in layers:
            layer.train()
        for _ in range(recipe.adaptation_epochs):
            order = torch.randperm(len(inputs), generator=generator).to(inputs.device)
            for batch in order.tensor_split(max(1, len(inputs) // recipe.batch_size)):
                optimizer.zero_grad()
                log_probs = objective.log_probs(_forward(network, inputs[batch], recipe.precision))
                entropy(log_probs=log_probs, validate=False).mean().backward(inputs=affine)
                optimizer.step()
    optimizer.zero_grad()


def _forward(network: nn.Module, inputs: Tensor, precision: str) -> Tensor:
    """Outputs in at least single precision."""
    with torch.autocast(inputs.device.type, torch.bfloat16, enabled=precision == "bf16"):
        outputs: Tensor = network(inputs)
    return outputs.float() if precision == "bf16" else outputs
