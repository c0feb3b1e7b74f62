"""Checkpoints: one safetensors file, replaced atomically, from which training resumes as if it had never stopped."""

import hashlib
import importlib.util
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from selbo import _checks
from selbo._files import replacing
from selbo.nn.storage import HEADER
from selbo.posteriors import Posterior
from selbo.summary.likelihood import Summary
from selbo.summary.moving_average import MovingAverage

CHECKPOINT_FORMAT: Final = "selbo-checkpoint-2"
HISTORY: Final = "history"
MOST_VALUES: Final = 1024
"""A tensor of the objective with more values is represented by a digest."""
EVERY_S: Final = 20.0
"""Default number of seconds between two checkpoints."""


class Checkpoint:
    """Where and how often `selbo.fit` saves a run.

    Args:
        path: Checkpoint file. If it exists, training resumes from it.
        every: Seconds between two checkpoints.
        at_end: Also save at the end. If False, a run longer than ``every`` leaves a checkpoint from some time before
            its end, and a shorter one leaves none.
    """

    def __init__(self, path: str | os.PathLike[str], every: float = EVERY_S, at_end: bool = True) -> None:
        check_available()
        self.path, self.every, self.at_end = Path(path), _checks.non_negative("every", every), at_end


def check_available() -> None:
    """Raise an error before training starts if checkpoints cannot be written."""
    if importlib.util.find_spec("safetensors") is None:
        raise ValueError("`checkpoint` needs the package safetensors: pip install 'selbo[train]'")


def write_checkpoint(
    path: Path, tensors: dict[str, Tensor], description: dict[str, Any], *, history: Sequence[dict[str, Any]] = ()
) -> None:
    """Replace a checkpoint atomically: write a new file next to it, flush it to disk, rename it."""
    from safetensors.torch import save

    path.parent.mkdir(parents=True, exist_ok=True)
    content = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    # the history is stored as a tensor, because the size of a safetensors header is limited
    content[HISTORY] = torch.frombuffer(bytearray(json.dumps(list(history)).encode()), dtype=torch.uint8)
    header = {HEADER: json.dumps({"format": CHECKPOINT_FORMAT, **description})}
    with replacing(path) as unfinished:
        unfinished.write_bytes(save(content, metadata=header))


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any], list[dict[str, Any]]]:
    """Tensors, description and history of a checkpoint."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            header = (file.metadata() or {}).get(HEADER)
            description = json.loads(header) if header else {}
            if description.get("format") != CHECKPOINT_FORMAT:
                raise ValueError(f"`checkpoint` must be a file written by selbo.fit, but {os.fspath(path)!r} is not")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a mapping)
        history = json.loads(tensors.pop(HISTORY).numpy().tobytes())
    except (OSError, SafetensorError, json.JSONDecodeError, UnicodeDecodeError, KeyError) as error:
        raise ValueError(
            f"`checkpoint` {os.fspath(path)!r} cannot be read: {error}; remove the file to start again"
        ) from error
    return tensors, description, history


def check_same_run(path: Path, found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Raise an error that names the first difference if a checkpoint has another model, data set or setting."""
    difference = _difference(found, expected)
    if difference is not None:
        name, before, now = difference
        raise ValueError(
            f"`checkpoint` {os.fspath(path)!r} belongs to another run: its {name} is {_short(before)}, "
            f"here it is {_short(now)}; choose another file or remove it"
        )


def _difference(found: dict[str, Any], expected: dict[str, Any]) -> tuple[str, Any, Any] | None:
    for name in [*expected, *(each for each in found if each not in expected)]:
        before, now = found.get(name), expected.get(name)
        if before == now:
            continue
        inside = _difference(before, now) if isinstance(before, dict) and isinstance(now, dict) else None
        return (f"{name}: {inside[0]}", *inside[1:]) if inside else (name, before, now)
    return None


def _short(value: Any) -> str:
    text = "none" if value is None else repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def describe_model(posterior: Posterior) -> dict[str, Any]:
    """Types and settings of all layers, shapes in the state, frozen parameters, and settings of the posterior."""
    model = posterior.network
    kinds = {name or "network": type(module).__name__ for name, module in model.named_modules()}
    shapes = {name: list(value.shape) for name, value in posterior.state_dict().items()}
    return {
        "layers": kinds,
        "shapes": shapes,
        "settings": {name or "network": _settings(module) for name, module in model.named_modules()},
        "frozen": [name for name, value in model.named_parameters() if not value.requires_grad],
        "posterior": {"kind": type(posterior).__name__, **posterior.settings()},
    }


def _settings(module: nn.Module) -> dict[str, Any]:
    """Numbers and strings that configure a torch layer. Attributes of other classes may change during training."""
    if not type(module).__module__.startswith("torch.nn."):
        return {}
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in vars(module).items()}
    kinds = (bool, int, float, str, list)
    return {k: v for k, v in plain.items() if isinstance(v, kinds) and k != "training" and not k.startswith("_")}


def describe_objective(objective: nn.Module) -> dict[str, Any]:
    """Types, settings and constants of an objective and its submodules, without its moving averages."""
    found: dict[str, Any] = {}
    for name, module in objective.named_modules():
        prefix = f"{name}." if name else ""
        found[name or "objective"] = type(module).__name__
        found |= {
            prefix + key: value
            for key, value in vars(module).items()
            if isinstance(value, (bool, int, float, str)) and key != "training" and not key.startswith("_")
        }
        if not isinstance(module, MovingAverage):  # its buffers are state, not constants
            found |= {prefix + key: _constant(value) for key, value in module.named_buffers(recurse=False)}
        if isinstance(module, Summary):
            found |= {prefix + key: value for key, value in module.to_dict().items()}
    return found


def _constant(tensor: Tensor) -> Any:
    """Values of a tensor, or of a large one a digest, such as the fractions of thousands of groups."""
    if tensor.numel() <= MOST_VALUES:
        return tensor.tolist()
    return hashlib.sha256(tensor.detach().double().cpu().numpy().tobytes()).hexdigest()


def with_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors with a prefix added to their names."""
    return {f"{prefix}.{name}": value for name, value in tensors.items()}


def without_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors whose names have a prefix, with the prefix removed."""
    start = f"{prefix}."
    return {name[len(start) :]: value for name, value in tensors.items() if name.startswith(start)}


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """State of an optimiser, by parameter index and name."""
    states = optimizer.state_dict()["state"]
    return {
        f"{index}.{name}": value if isinstance(value, Tensor) else torch.tensor(value)
        for index, state in states.items()
        for name, value in state.items()
        if value is not None
    }


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Restore the state of an optimiser; the schedule sets the learning rates."""
    states: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        index, name = key.split(".", 1)
        states.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({"state": states, "param_groups": optimizer.state_dict()["param_groups"]})
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            # fused optimisers need the same memory format for weights and averages, such as channels-last
            if value.shape == parameter.shape and value.stride() != parameter.stride():
                state[name] = torch.empty_like(parameter, dtype=value.dtype, requires_grad=False).copy_(value)
