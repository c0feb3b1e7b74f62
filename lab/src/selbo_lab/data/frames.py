"""Reads tables that were pickled by pandas, without pandas and without running what a pickle asks for."""

import io
import pickle
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray


class _Inert:
    """Stands for every class and function of pandas: it keeps what it is given and does nothing."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


def _read_array(buffer: Any, dtype: "np.dtype[Any]", shape: tuple[int, ...], order: Any) -> NDArray[Any]:
    return np.frombuffer(buffer, dtype).reshape(shape, order=order)


def _reconstruct(*_: Any) -> NDArray[Any]:
    """An empty array, whose content the pickle sets."""
    return np.empty(0)


ALLOWED: Final = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.numeric", "_frombuffer"): _read_array,
    ("numpy._core.numeric", "_frombuffer"): _read_array,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("builtins", "slice"): slice,
    ("pandas.core.frame", "DataFrame"): _Inert,
    ("pandas.core.indexes.base", "_new_Index"): _Inert,
    ("pandas.core.indexes.base", "Index"): _Inert,
    ("pandas.core.indexes.range", "RangeIndex"): _Inert,
    ("pandas.core.internals.managers", "BlockManager"): _Inert,
    ("pandas._libs.internals", "_unpickle_block"): _Inert,
}
"""What a pickled table may name, and what stands for it. None of it can run code of the file."""


class _TableReader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return ALLOWED[module, name]
        except KeyError:
            raise ValueError(f"a pickled table must hold arrays alone, but this one names {module}.{name}") from None


def read_frame(content: bytes) -> dict[str, NDArray[Any]]:
    """Columns of a table that pandas pickled, by name, in their order.

    Raises:
        ValueError: If it is not such a table, or names anything that is not a part of one.
    """
    try:
        state = _TableReader(io.BytesIO(content)).load().state
        blocks, (columns, _) = state["_mgr"].arguments
        names = [str(name) for name in columns.arguments[1]["data"]]
        found: dict[str, NDArray[Any]] = {}
        for block in blocks:
            values, places, _ = block.arguments
            own = names[places] if isinstance(places, slice) else [names[int(place)] for place in places]
            found.update(zip(own, values, strict=True))
        return {name: found[name] for name in names}
    except (pickle.UnpicklingError, AttributeError, EOFError, IndexError, KeyError, TypeError) as error:
        raise ValueError(f"this is not a table that pandas pickled: {error}") from error


def csv_text(columns: dict[str, NDArray[Any]]) -> str:
    r"""A table as CSV, with an empty field for a missing number; fields hold no commas, quotes or line ends.

    Example:
        >>> csv_text(
        ...     {"name": np.array(["a", "b"], dtype=object), "share": np.array([0.5, np.nan])}
        ... )
        'name,share\na,0.5\nb,\n'
    """
    lines = [",".join(columns)]
    lines += [",".join(map(_field, row)) for row in zip(*columns.values(), strict=True)]
    return "\n".join(lines) + "\n"


def _field(value: Any) -> str:
    if isinstance(value, (float, np.floating)):
        return "" if np.isnan(value) else f"{value:g}"
    text = str(value)
    if any(mark in text for mark in ',"\r\n'):
        raise ValueError(f"a field of a table must have no comma, quote or line end, but got {text!r}")
    return text
