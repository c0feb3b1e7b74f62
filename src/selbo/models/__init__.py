"""The networks of the paper, and ResNet-20, as deterministic torch modules that return logits."""

from selbo.models.convnet import ConvNet
from selbo.models.lenet import LeNet
from selbo.models.mlp import MLP
from selbo.models.resnet import FilterResponseNorm, ResNet20
from selbo.models.vgg import VGG11

__all__ = ["MLP", "VGG11", "ConvNet", "FilterResponseNorm", "LeNet", "ResNet20"]
