"""The networks of the paper as deterministic torch modules that return logits."""

from selbo.models.convnet import ConvNet
from selbo.models.lenet import LeNet
from selbo.models.mlp import MLP
from selbo.models.vgg import VGG11

__all__ = ["MLP", "VGG11", "ConvNet", "LeNet"]
