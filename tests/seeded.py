"""Generators of tests."""

import torch


def noise(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
