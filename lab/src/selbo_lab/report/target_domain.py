"""Comparisons with two places: one that labels come from, and one where the model is used."""

from collections.abc import Mapping
from typing import Any


def has_use(comparison: Mapping[str, Any]) -> bool:
    """Whether labels come from one place, and the methods are tested in another as well."""
    return bool(comparison.get("data", {}).get("labels"))


def one_place(comparison: Mapping[str, Any]) -> bool:
    """Whether that other place is the same in all respects, and there are but few labels."""
    data = comparison["data"]
    same = list(data["label_fractions"]) == list(data["use_fractions"])
    return same and not data["use_noise"] and not data["use_corruption"]
