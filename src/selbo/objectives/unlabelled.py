"""Assignment of inputs to terms: the training inputs, or unlabelled ones, which several terms may share."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import torch
from torch import Tensor

LABELLED: Final = "labelled"
"""Name of the training inputs."""


class Grouped(NamedTuple):
    """Unlabelled inputs whose groups are known, for beliefs about groups; use it instead of a tensor of inputs.

    Attributes:
        inputs: Shape (U, ...).
        groups: Group of each input, from 0, shape (U,); -1 for none.
    """

    inputs: Tensor
    groups: Tensor


UnlabelledSet: TypeAlias = Tensor | Grouped

Unlabelled: TypeAlias = UnlabelledSet | Mapping[str, UnlabelledSet | None] | Sequence[UnlabelledSet | None]
"""One tensor for all terms; or one per term, by name or in order, with None for the training inputs."""


class Assigned(NamedTuple):
    """Unlabelled inputs without duplicates, and which of them each term uses.

    Attributes:
        tensors: Distinct sets, tensors of shapes (U, ...) or `Grouped` ones.
        which: For each term, the index of its inputs in ``tensors``; None for the training inputs.
    """

    tensors: tuple[UnlabelledSet, ...]
    which: tuple[int | None, ...]

    def inputs(self) -> list[Tensor]:
        """The inputs of each set, shapes (U, ...)."""
        return [each.inputs if isinstance(each, Grouped) else each for each in self.tensors]

    def groups(self) -> list[Tensor | None]:
        """The groups of the inputs of each set, shapes (U,), or None."""
        return [each.groups if isinstance(each, Grouped) else None for each in self.tensors]


def assign(unlabelled: Unlabelled | Assigned | None, names: Sequence[str | None]) -> Assigned:
    """Assign inputs to terms; a tensor shared by several terms goes through the network once.

    Args:
        unlabelled: The argument of the user. A term whose name is not in a mapping uses the training inputs.
        names: Name of each term, or of its inputs; None if the term always uses the training inputs.

    Example:
        >>> here, there = torch.zeros(2, 3), torch.ones(4, 3)
        >>> assign({"a": there, "c": there, "d": here}, ["a", "b", "c", "d"]).which
        (0, None, 0, 1)
    """
    if isinstance(unlabelled, Assigned):
        return unlabelled
    tensors: list[UnlabelledSet] = []
    which: list[int | None] = []
    for each in _one_each(unlabelled, names):
        if each is None:
            which.append(None)
            continue
        inputs = each.inputs if isinstance(each, Grouped) else each
        if not isinstance(inputs, Tensor) or inputs.ndim < 1 or len(inputs) == 0:
            came = f"shape {tuple(inputs.shape)}" if isinstance(inputs, Tensor) else type(inputs).__name__
            raise ValueError(
                f"`unlabelled` must be a tensor of inputs, shape (U, ...) with U at least 1, or one per term, "
                f"but got {came}"
            )
        if isinstance(each, Grouped):
            check_group_index(each.groups, inputs)
        known = [index for index, other in enumerate(tensors) if other is each]
        which.append(known[0] if known else len(tensors))
        if not known:
            tensors.append(each)
    return Assigned(tuple(tensors), tuple(which))


def check_group_index(groups: Tensor | None, inputs: Tensor) -> None:
    """Validate shape and type of the groups of a batch, if there are any."""
    if groups is None:
        return
    if not isinstance(groups, Tensor) or groups.is_floating_point() or groups.dtype == torch.bool:
        came = groups.dtype if isinstance(groups, Tensor) else type(groups).__name__
        raise ValueError(f"`groups` must hold groups as whole numbers, but got {came}")
    if groups.shape != inputs.shape[:1]:
        raise ValueError(
            f"`groups` must have shape {tuple(inputs.shape[:1])}, one group per input, but got {tuple(groups.shape)}"
        )


def _one_each(unlabelled: Unlabelled | None, names: Sequence[str | None]) -> Sequence[UnlabelledSet | None]:
    if unlabelled is None or isinstance(unlabelled, (Tensor, Grouped)):
        return [None if name is None else unlabelled for name in names]
    if isinstance(unlabelled, Mapping):
        known = [name for name in names if name is not None]
        unknown = [name for name in unlabelled if name not in known]
        if unknown:
            raise ValueError(f"`unlabelled` must name terms or their inputs, {known}, but got {unknown[0]!r}")
        return [None if name is None else unlabelled.get(name) for name in names]
    if not isinstance(unlabelled, (list, tuple)):
        raise ValueError(
            "`unlabelled` must be a tensor of inputs, shape (U, ...) with U at least 1, or one per term, "
            f"but got {type(unlabelled).__name__}"
        )
    if len(unlabelled) != len(names):
        raise ValueError(
            f"`unlabelled` must have one entry per term, {len(names)} (None for the training inputs), "
            f"but got {len(unlabelled)}"
        )
    if any(name is None and each is not None for name, each in zip(names, unlabelled, strict=True)):
        raise ValueError("`unlabelled` must be None for a term with inputs='labelled', but there is a tensor")
    return unlabelled


def join(inputs: Tensor, tensors: Sequence[Tensor]) -> Tensor:
    """Concatenate labelled and unlabelled inputs to one batch: (B, ...), (U, ...), ... -> (B + U + ..., ...)."""
    for each in tensors:
        if each.shape[1:] != inputs.shape[1:] or each.dtype != inputs.dtype:
            raise ValueError(
                f"`unlabelled` must have shape (U, ...) with U at least 1, its entries of the shape and type of those "
                f"of `inputs`, but got {tuple(each.shape)} of {each.dtype} beside {tuple(inputs.shape)} of "
                f"{inputs.dtype}"
            )
    return torch.cat([inputs, *tensors]) if tensors else inputs
