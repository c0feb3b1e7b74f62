"""Type and arguments of an object as plain data, for files."""

import inspect
from collections.abc import Mapping
from typing import Any, Final

NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def describe_object(thing: object) -> dict[str, Any]:
    """Importable name and arguments of an object that stores its arguments as attributes of the same names.

    Returns:
        ``type`` and ``arguments``, as values that JSON can hold. An argument that is not stored is left out.
    """
    names = [each.name for each in inspect.signature(type(thing)).parameters.values() if each.kind in NAMED]
    return {
        "type": type_name(type(thing)),
        "arguments": {name: plain(getattr(thing, name)) for name in names if hasattr(thing, name)},
    }


def type_name(kind: type) -> str:
    """Importable name of a class: ``selbo.Beta``, ``my_module.MyBelief``."""
    module = "selbo" if kind.__module__.startswith("selbo.summary.") else kind.__module__
    return f"{module}.{kind.__qualname__}"


def plain(value: Any) -> Any:
    """Convert a value to JSON types: numbers, strings, lists and objects; anything else to the name of its type."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if hasattr(value, "to_dict"):
        return plain(value.to_dict())
    return plain(value.tolist()) if hasattr(value, "tolist") else type_name(type(value))
