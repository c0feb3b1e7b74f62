"""Random numbers that depend only on a seed, a purpose and a step, so that any part of a run can be repeated."""

import hashlib

import torch

__all__ = ["derive", "generator_for"]


def derive(seed: int, *purpose: object) -> int:
    """A seed for one purpose, such as ``derive(0, "noise", step)``: 63 bits, unrelated between purposes."""
    digest = hashlib.sha256(repr((seed, *purpose)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator_for(seed: int, *purpose: object, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator for one purpose; on the CPU if no device is given."""
    return torch.Generator(device).manual_seed(derive(seed, *purpose))
