"""A set that can be made in another process, which imports it by this name."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from selbo.random import generator_for


@dataclass(frozen=True)
class SmallSet:
    name: str
    fails: bool = False

    def make(self) -> Tensor:
        if self.fails:
            raise RuntimeError("no luck")
        assert torch.get_num_threads() == 1
        return torch.randint(256, (5, 3), generator=generator_for(0, self.name)).to(torch.uint8)
