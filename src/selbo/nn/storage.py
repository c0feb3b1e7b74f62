"""Saved Bayesian networks: tensors as safetensors, structure as JSON, without pickle."""

import json
import os
from pathlib import Path
from typing import Any, Final

from torch import Tensor, nn

from selbo._files import replacing
from selbo.nn.convert import variational_layers
from selbo.nn.gaussian import require_gaussians

NETWORK_FORMAT: Final = "selbo-bnn-1"
HEADER: Final = "selbo"
"""Name of the JSON description in the metadata of a safetensors file."""


def save(bnn: nn.Module, path: str | os.PathLike[str]) -> Path:
    """Write a Bayesian network to one file, atomically.

    Args:
        bnn: A network made by `to_bayesian`.
        path: The file; an existing file is replaced only when the new one is complete.

    Returns:
        The path.
    """
    return write_network(bnn, path, describe_structure(bnn))


def write_network(network: nn.Module, path: str | os.PathLike[str], structure: dict[str, Any]) -> Path:
    """Write the tensors of a network and its structure to one file, atomically."""
    return write_tensors(unique_tensors(network), path, structure)


def write_tensors(tensors: dict[str, Tensor], path: str | os.PathLike[str], structure: dict[str, Any]) -> Path:
    """Write tensors and the structure that they belong to, atomically."""
    safetensors = _safetensors()
    target = Path(path)
    content = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as unfinished:
        unfinished.write_bytes(safetensors.save(content, metadata={HEADER: json.dumps(structure)}))
    return target


def load(bnn: nn.Module, path: str | os.PathLike[str]) -> nn.Module:
    """Read the posterior of a saved network into one of the same structure, in place.

    Args:
        bnn: A network made by `to_bayesian` from the same architecture, with the same layers converted.
        path: A file written by `save`.

    Returns:
        ``bnn``.
    """
    read_network(bnn, path, describe_structure(bnn))
    return bnn


def read_network(network: nn.Module, path: str | os.PathLike[str], expected: dict[str, Any]) -> None:
    """Read the tensors of a saved network into one of the same structure, in place."""
    network.load_state_dict(read_tensors(path, expected)[0], strict=False)  # shared tensors are stored under one name


def read_tensors(path: str | os.PathLike[str], expected: dict[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and structure in a file; an error if the structure is not the expected one."""
    safetensors = _safetensors()
    metadata, shapes = read_header(path)
    try:
        found = json.loads(metadata[HEADER])
    except (KeyError, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"`path` must be a network saved by selbo, but {os.fspath(path)!r} has no such description")
    difference = _first_difference(expected, found)
    if not difference and shapes != {name: shape for name, (_, shape) in expected["tensors"].items()}:
        difference = "the tensors in the file are not those that its header describes"
    if difference:
        raise ValueError(f"this is not the network that was saved in {os.fspath(path)!r}: {difference}")
    tensors: dict[str, Tensor] = safetensors.load_file(path)
    return tensors, found


def read_header(path: str | os.PathLike[str]) -> tuple[dict[str, str], dict[str, list[int]]]:
    """Metadata of a safetensors file, and the shape of each of its tensors; the tensors are not read.

    Raises:
        ValueError: If the file is not a safetensors file, or is damaged.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118  (not a mapping)
            return file.metadata() or {}, shapes
    except (OSError, SafetensorError) as error:
        raise ValueError(
            f"`path` must be a network saved by selbo, but {os.fspath(path)!r} cannot be read: {error}"
        ) from error


def describe_structure(bnn: nn.Module) -> dict[str, Any]:
    """Structure that identifies a Bayesian network: its variational layers, and type and shape of every tensor."""
    require_gaussians(bnn)
    layers = {name: repr(layer.plain) for name, layer in variational_layers(bnn)}
    return {**describe_tensors(bnn, format_name=NETWORK_FORMAT), "layers": layers}


def describe_tensors(network: nn.Module, *, format_name: str) -> dict[str, Any]:
    """Structure that identifies any network: type and shape of every tensor."""
    tensors = {name: [str(value.dtype), list(value.shape)] for name, value in unique_tensors(network).items()}
    return {"format": format_name, "layers": {}, "tensors": tensors}


def unique_tensors(bnn: nn.Module) -> dict[str, Tensor]:
    """The tensors of a network, each under the first of its names."""
    seen: dict[int, str] = {}
    values = bnn.state_dict(keep_vars=True)
    for name, value in values.items():
        seen.setdefault(id(value), name)
    return {name: values[name] for name in seen.values()}


def _first_difference(expected: dict[str, Any], found: dict[str, Any]) -> str:
    if found.get("format") != expected["format"]:
        return f"the file has format {found.get('format')!r}, expected {expected['format']!r}"
    for kind in ("layers", "tensors"):
        described = found.get(kind)
        if not isinstance(described, dict):
            return f"the file does not describe its {kind}"
        for name in [*expected[kind], *described]:
            ours, theirs = expected[kind].get(name), described.get(name)
            if ours != theirs:
                return f"{name!r} is {theirs or 'missing'} in the file and {ours or 'missing'} in the network"
    return ""


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError:
        raise ImportError("saving and loading networks needs safetensors: pip install 'selbo[train]'") from None
    return safetensors.torch
