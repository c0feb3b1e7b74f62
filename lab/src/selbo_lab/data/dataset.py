"""An immutable type for all data sets: inputs, labels, source and licence."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from textwrap import wrap

import torch
from torch import Tensor

BYTE_RANGE = 255.0
"""Divisor of pixels stored as bytes."""

COLUMNS = 80
"""Width of a card in characters."""


@dataclass(frozen=True)
class Normalisation:
    """Mean and standard deviation that normalise each channel of pixels in [0, 1].

    Attributes:
        mean: One number per channel.
        std: One number per channel.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True, eq=False, repr=False)
class LabelledData:
    """Inputs with labels, all on one device.

    Attributes:
        name: Description: set, part, seed, corruption.
        inputs: Images of bytes, shape (N, C, H, W), or features of floating point, shape (N, D).
        labels: Shape (N,), type int64, from 0 to the number of classes less 1.
        class_names: One name per class, in the order of the labels.
        source: Origin of the data, and how they were processed.
        licence: Known terms of use.
        normalisation: Normalisation of image channels; None keeps pixels in [0, 1], and features unchanged.
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
        """SHA-256 of inputs and labels, independent of the device."""
        digest = hashlib.sha256()
        for tensor in (self.inputs, self.labels):
            digest.update(repr((tensor.dtype, tuple(tensor.shape))).encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def network_inputs(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """Inputs for a network: bytes divided by 255, then normalised; features in the requested type."""
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
        """Network inputs and labels, as `selbo.fit` and `selbo.predict` take them."""
        return self.network_inputs(dtype), self.labels

    def rows(self, indices: Tensor | Sequence[int], *, name: str | None = None) -> "LabelledData":
        """The examples with these indices, in their order."""
        chosen = torch.as_tensor(indices, dtype=torch.int64, device=self.labels.device)
        return replace(self, name=name or self.name, inputs=self.inputs[chosen], labels=self.labels[chosen])

    def with_inputs(self, inputs: Tensor, *, name: str, source: str | None = None) -> "LabelledData":
        """A copy with the same labels and other inputs, such as corrupted ones."""
        return replace(self, name=name, inputs=inputs, source=source or self.source)

    def to(self, device: torch.device | str) -> "LabelledData":
        """A copy on another device."""
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
