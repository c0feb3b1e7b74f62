"""All private torch APIs that the library uses, one function each, so that a new torch release affects one file."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Final

import torch
from torch import Tensor, nn

# --- the compiler ---


def keep_compiled_versions(count: int) -> AbstractContextManager[None]:
    """A context in which torch.compile keeps up to ``count`` versions of a function; outside it keeps 8."""
    patch: AbstractContextManager[None] = torch._dynamo.config.patch(cache_size_limit=count)
    return patch


def is_compiler_error(error: BaseException) -> bool:
    """Whether an exception comes from torch.compile, not from the code being compiled.

    Exceptions are recognised by the modules of their classes: importing these is slow, and they have no common base.
    """
    compilers = ("torch._dynamo.", "torch._inductor.", "torch._functorch.", "triton.")
    return any(kind.__module__.startswith(compilers) for kind in type(error).__mro__)


@torch.library.custom_op("selbo::read_buffer", mutates_args=())
def _read_buffer(buffer: Tensor) -> Tensor:
    return buffer.clone()


@_read_buffer.register_fake
def _(buffer: Tensor) -> Tensor:
    return torch.empty_like(buffer)


def read_buffer(buffer: Tensor) -> Tensor:
    """Values of a buffer before it is changed, also valid in the backward pass.

    torch.compile repeats cheap operations in the backward pass. It then reads a buffer that the forward pass has
    changed, and the gradient is wrong (https://github.com/pytorch/pytorch/pull/197039). It never repeats an unknown
    operation, such as this one. The operation is public API; it is in this file because it works around a torch bug.
    """
    if not torch.compiler.is_compiling():
        return buffer
    values: Tensor = _read_buffer(buffer)
    return values


# --- current state of torch ---


def in_backward() -> bool:
    """Whether autograd is running a backward pass, which calls a network only to recompute activations."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1


def open_checkpoints() -> list[Any]:
    """Activation checkpoints (``use_reentrant=False``) whose forward pass is running, the innermost first.

    Each has an attribute ``recompute_fn``: the function that the backward pass calls with the inputs, to compute the
    activations again. Torch calls hooks for the tensors that it saves; that of a checkpoint holds the checkpoint.
    """
    if torch.compiler.is_compiling():
        return []
    hooks: Any = torch._C._autograd
    found, removed = [], []
    while (pair := hooks._top_saved_tensors_default_hooks(True)) is not None:
        removed.append(pair)
        hooks._pop_saved_tensors_default_hooks()
        pack: Any = pair[0]
        names = getattr(getattr(pack, "__code__", None), "co_freevars", ())
        if pack.__module__ == "torch.utils.checkpoint" and "frame" in names:
            found.append(pack.__closure__[names.index("frame")].cell_contents)
    for pair in reversed(removed):
        hooks._push_saved_tensors_default_hooks(*pair)
    return found


def in_function_transform() -> bool:
    """Whether a transform of `torch.func`, such as `vmap`, is running."""
    return torch._C._functorch.peek_interpreter_stack() is not None


# --- tensors and modules ---

BatchNormBase: Final = nn.modules.batchnorm._NormBase
"""Base class of BatchNorm and InstanceNorm of every dimension."""


def tensor_version(tensor: Tensor) -> int | None:
    """Number of in-place changes of a tensor so far; None if torch does not count them."""
    return None if torch.compiler.is_compiling() or tensor.is_inference() else tensor._version


def named_children(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """Children of a module under all their names; `nn.Module.named_children` lists a shared one once."""
    return [(name, child) for name, child in module._modules.items() if child is not None]


def forward_pre_hooks(module: nn.Module) -> Iterable[Callable[..., Any]]:
    """The functions that torch calls before a module."""
    return module._forward_pre_hooks.values()


def has_forward_hooks(module: nn.Module) -> bool:
    """Whether torch calls other functions before or after a module."""
    return bool(module._forward_hooks or module._forward_pre_hooks)


def disable_fast_path(attention: nn.Module) -> None:
    """Make `nn.TransformerEncoderLayer` call its attention layer instead of reading its weights."""
    attention._qkv_same_embed_dim = False  # type: ignore[assignment]


class ConvertingModule(nn.Module):
    """A module that decides how `to`, `half`, `cuda` and the like convert its parameters and buffers."""

    def conversion(self, function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        """The function to use instead of torch's ``function``, which converts one tensor."""
        return function

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        return super()._apply(self.conversion(fn), recurse)  # type: ignore[no-untyped-call]
