"""Decision trees of scikit-learn as a torch module, so that a forest is saved as tensors and needs no pickle."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

MOST_PATHS: Final = 1 << 21
"""Largest number of rows times trees that are followed at once."""


class Forest(nn.Module):
    """The mean class fractions of the leaves of decision trees.

    Build it by `from_trees`, or by `with_shapes` to load a state. All nodes stand in one table. A leaf is its own
    child, so that every row takes as many steps as the deepest tree has.

    Args:
        branches: Left and right child of each node, shape (nodes, 2).
        features: Index of the feature that each node compares, shape (nodes,).
        thresholds: Rows with at most this value go to the left, shape (nodes,).
        fractions: Class fractions of the training rows in each leaf, shape (nodes, K); not used at other nodes.
        roots: The first node of each tree, shape (trees,).
        depth: Number of steps of the longest path, shape ().
    """

    branches: Tensor
    features: Tensor
    thresholds: Tensor
    fractions: Tensor
    roots: Tensor
    depth: Tensor

    def __init__(
        self,
        *,
        branches: Tensor,
        features: Tensor,
        thresholds: Tensor,
        fractions: Tensor,
        roots: Tensor,
        depth: Tensor,
    ) -> None:
        super().__init__()
        self.register_buffer("branches", branches)
        self.register_buffer("features", features)
        self.register_buffer("thresholds", thresholds)
        self.register_buffer("fractions", fractions)
        self.register_buffer("roots", roots)
        self.register_buffer("depth", depth)

    @classmethod
    def from_trees(cls, estimators: Sequence[Any]) -> "Forest":
        """The forest of fitted trees of scikit-learn, whose classes are 0 to K - 1.

        Args:
            estimators: ``estimators_`` of a RandomForestClassifier or an ExtraTreesClassifier.
        """
        trees = [each.tree_ for each in estimators]
        sizes = [each.node_count for each in trees]
        roots = np.cumsum([0, *sizes[:-1]])
        branches, fractions = [], []
        for tree, root in zip(trees, roots, strict=True):
            pair = np.stack([tree.children_left, tree.children_right], 1)
            itself = np.arange(tree.node_count)[:, None]
            branches.append(np.where(pair < 0, itself, pair) + root)
            counts = tree.value[:, 0]
            fractions.append((counts / counts.sum(1, keepdims=True)).astype(np.float32))
        features = np.concatenate([np.maximum(tree.feature, 0) for tree in trees])
        return cls(
            branches=torch.from_numpy(np.concatenate(branches).astype(np.int32)),
            features=torch.from_numpy(features.astype(np.int32)),
            thresholds=torch.from_numpy(np.concatenate([tree.threshold for tree in trees])),
            fractions=torch.from_numpy(np.concatenate(fractions)),
            roots=torch.from_numpy(roots.astype(np.int32)),
            depth=torch.tensor(max(tree.max_depth for tree in trees)),
        )

    @classmethod
    def with_shapes(cls, num_nodes: int, num_trees: int, num_classes: int) -> "Forest":
        """A forest of zeros, to load a state into."""

        def whole(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int32)

        return cls(
            branches=whole(num_nodes, 2),
            features=whole(num_nodes),
            thresholds=torch.zeros(num_nodes, dtype=torch.float64),
            fractions=torch.zeros(num_nodes, num_classes),
            roots=whole(num_trees),
            depth=torch.zeros((), dtype=torch.int64),
        )

    def require_sound(self, num_features: int) -> None:
        """Raise a ValueError if a node refers to a feature or a node that is not there."""
        count = len(self.features)
        limits = ((self.branches, count), (self.roots, count), (self.features, num_features), (self.depth, count))
        for each, limit in limits:
            if each.numel() and (int(each.min()) < 0 or int(each.max()) >= max(limit, 1)):
                raise ValueError("the nodes of a forest must refer to features and nodes that it has")

    def forward(self, inputs: Tensor) -> Tensor:
        """Mean fractions of the leaves: (B, features) -> (B, K)."""
        blocks = inputs.split(max(1, MOST_PATHS // len(self.roots)))
        return torch.cat([self._block(each) for each in blocks])

    def _block(self, inputs: Tensor) -> Tensor:
        rounded = inputs.float().double()  # trees compare values in single precision
        nodes = self.roots.long().expand(len(inputs), -1)
        for _ in range(int(self.depth)):
            values = rounded.gather(1, self.features[nodes].long())
            right = (values > self.thresholds[nodes]).long()
            nodes = self.branches[nodes, right].long()
        return self.fractions[nodes].double().mean(1)
