"""One small immutable type for all data sets: inputs, labels, and what a user should know about them."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from textwrap import wrap

import torch
from torch import Tensor

BYTE_RANGE = 255.0
"""Pixels stored as bytes are divided by it."""

COLUMNS = 80
"""Width of a card."""


@dataclass(frozen=True)
class Normalisation:
    """What is subtracted from each channel of pixels between 0 and 1, and what they are divided by after it.

    Attributes:
        mean: One number a channel.
        std: One number a channel.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True, eq=False, repr=False)
class LabelledData:
    """Inputs with labels, on one device whole.

    Attributes:
        name: What it is: set, part, seed, corruption.
        inputs: Images of bytes, shape (N, C, H, W), or features of floating point, shape (N, D).
        labels: Shape (N,), type int64, from 0 to the number of classes less 1.
        class_names: One name a class, in the order of the labels.
        source: Where the data come from, and what was done to them.
        licence: What is known about the terms of use.
        normalisation: Of images, channel by channel; None leaves pixels between 0 and 1, and features as they are.
    """

    name: str
    inputs: Tensor
    labels: Tensor
    class_names: tuple[str, ...]
    source: str
    licence: str
    normalisation: Normalisation | None = None

    def __post_init__(self) -> None:
        count, classes = len(self.labels), len(self.class_names)
        if self.labels.ndim != 1 or self.labels.dtype != torch.int64 or len(self.inputs) != count:
            raise ValueError(
                f"{self.name} must have one label of type int64 for each input, but got inputs of shape "
                f"{tuple(self.inputs.shape)} and labels of shape {tuple(self.labels.shape)}, {self.labels.dtype}"
            )
        if count and not (int(self.labels.min()) >= 0 and int(self.labels.max()) < classes):
            raise ValueError(
                f"{self.name} must have labels from 0 to {classes - 1}, "
                f"but got {int(self.labels.min())} to {int(self.labels.max())}"
            )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def num_classes(self) -> int:
        """Number of classes, whether or not each is present."""
        return len(self.class_names)

    @property
    def class_counts(self) -> tuple[int, ...]:
        """Number of examples of each class."""
        return tuple(self.labels.bincount(minlength=self.num_classes).tolist())

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of inputs and labels, whatever the device."""
        digest = hashlib.sha256()
        for tensor in (self.inputs, self.labels):
            digest.update(repr((tensor.dtype, tuple(tensor.shape))).encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def network_inputs(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """What a network takes: bytes divided by 255, then normalised; features in the type asked for."""
        if self.inputs.dtype != torch.uint8:
            return self.inputs.to(dtype)
        pixels = self.inputs.to(dtype).div_(BYTE_RANGE)
        if self.normalisation is None:
            return pixels
        mean, std = (
            torch.tensor(values, dtype=dtype, device=pixels.device).reshape(-1, 1, 1)
            for values in (self.normalisation.mean, self.normalisation.std)
        )
        return pixels.sub_(mean).div_(std)

    def tensors(self, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
        """Inputs as a network takes them, and labels: what `selbo.fit` and `selbo.predict` work with."""
        return self.network_inputs(dtype), self.labels

    def rows(self, indices: Tensor | Sequence[int], *, name: str | None = None) -> "LabelledData":
        """The examples with these indices, in their order."""
        chosen = torch.as_tensor(indices, dtype=torch.int64, device=self.labels.device)
        return replace(self, name=name or self.name, inputs=self.inputs[chosen], labels=self.labels[chosen])

    def with_inputs(self, inputs: Tensor, *, name: str, source: str | None = None) -> "LabelledData":
        """The same labels with other inputs, such as corrupted ones."""
        return replace(self, name=name, inputs=inputs, source=source or self.source)

    def to(self, device: torch.device | str) -> "LabelledData":
        """The same on another device."""
        return replace(self, inputs=self.inputs.to(device), labels=self.labels.to(device))

    def card(self) -> str:
        """Sizes, class counts, source and licence, in a few lines of at most 80 columns."""
        kind = "bytes" if self.inputs.dtype == torch.uint8 else str(self.inputs.dtype).removeprefix("torch.")
        shape = " x ".join(map(str, self.inputs.shape[1:]))
        counts = ", ".join(f"{name} {count}" for name, count in zip(self.class_names, self.class_counts, strict=True))
        facts = {
            "examples": f"{len(self)}, each {shape} {kind}",
            "classes": counts,
            "source": self.source,
            "licence": self.licence,
            "checksum": f"sha256 {self.checksum[:16]}",
        }
        lines = [self.name]
        for title, text in facts.items():
            lines += wrap(text, COLUMNS, initial_indent=f"  {title:<9} ", subsequent_indent=" " * 12)
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.card()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {len(self)} examples, {self.num_classes} classes>"
