"""Corrupted test sets after their published definitions, batched in torch: CIFAR-10-C's 19 kinds, MNIST-C's 15."""

from selbo_lab.data.corruptions import cifar, mnist

__all__ = ["cifar", "mnist"]
