"""Random numbers that depend on the seed, the purpose and the step alone, so that a run can go on from any step."""

import hashlib

import torch


def derive(seed: int, *purpose: object) -> int:
    """A seed for one purpose, such as ``derive(0, "noise", step)``: 63 bits, unrelated between purposes."""
    digest = hashlib.sha256(repr((seed, *purpose)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator_for(seed: int, *purpose: object) -> torch.Generator:
    """A generator on the CPU for one purpose."""
    return torch.Generator().manual_seed(derive(seed, *purpose))
