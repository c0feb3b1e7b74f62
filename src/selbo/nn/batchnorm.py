"""Running statistics of BatchNorm, estimated again for weights that were not trained with them."""

import torch
from torch import Tensor, nn

from selbo import _checks

AnyBatchNorm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d | nn.SyncBatchNorm


def batchnorm_with_statistics(network: nn.Module) -> list[AnyBatchNorm]:
    """BatchNorm layers of a network that have running statistics."""
    return [each for each in network.modules() if isinstance(each, AnyBatchNorm) and each.running_mean is not None]


@torch.no_grad()
def estimate_batchnorm(network: nn.Module, inputs: Tensor, *, batch_size: int = 1024) -> None:
    """Replace the running statistics of BatchNorm by the mean over batches of the statistics of each batch, in place.

    Needed for weights that are a mean or a sample of others. Other layers are in evaluation mode. A network without
    BatchNorm is not changed.

    Args:
        network: The network; afterwards all modules are in their previous mode.
        inputs: Training inputs, shape (B, ...), at least two, on the device of the network.
        batch_size: Number of inputs per pass.
    """
    layers = batchnorm_with_statistics(network)
    if not layers:
        return
    if len(inputs) < 2:
        raise ValueError(f"`inputs` must hold at least two inputs to estimate statistics, but got {len(inputs)}")
    parts = -(-len(inputs) // _checks.whole("batch_size", batch_size, at_least=2))
    modes = [(module, module.training) for module in network.modules()]
    momenta = [layer.momentum for layer in layers]
    try:
        network.eval()
        for layer in layers:
            layer.train()
            layer.reset_running_stats()
            layer.momentum = None  # the mean over batches
        for block in inputs.tensor_split(parts):  # of almost equal size, so none has a single input
            network(block)
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
        for module, training in modes:
            module.training = training
