"""Tables of the command fit into a terminal of 80 columns."""

from io import StringIO
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from selbo.cli.output import groups_table


def test_numbers_of_groups_are_not_cut_off() -> None:
    metrics = {"accuracy": 0.6351, "overconfidence": -0.127, "nll": 0.8761}
    intervals = {"accuracy": (0.581, 0.684), "overconfidence": (-0.204, -0.039)}
    names = ("Ward 10, emergency admissions", "Ward 1")
    groups: list[Any] = [SimpleNamespace(name=name, rows=1234, metrics=metrics, intervals=intervals) for name in names]
    shown = StringIO()
    Console(file=shown, width=80).print(groups_table(groups, "ward"))
    text = shown.getvalue()
    assert text.count("63.5 [58.1, 68.4]") == text.count("-12.7 [-20.4, -3.9]") == text.count("0.876") == 2
    assert "accuracy, % [95 %]" in text
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
