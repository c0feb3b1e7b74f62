"""One colour, marker and line style per method, the same in every figure, table and report."""

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple
from zlib import crc32

METHOD_COLOURS: Final = ("#2a63d4", "#93420c", "#3c9d63", "#e0609f", "#505860", "#4d1a72", "#b48400", "#500a14")
"""Contrast of at least 3.3 to 1 against white, for lines, and distances of at least 21 in CIELAB, with normal sight
and with each of three kinds of colour blindness (Machado et al., 2009, severity 1). `PALETTE` is too light for it."""

METHOD_MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")

Line = Literal["-", "--", "-.", ":"]
BROKEN: Final[tuple[Line, ...]] = ("--", "-.", ":")

KNOWN: Final = (
    "summary summary-elbo",
    "elbo",
    "label-smoothing",
    "evidential",
    "ensemble",
    "plain deterministic",
    "plain-summary deterministic-summary",
    "plain-temperature deterministic-temperature",
)
"""Methods of the library, one colour each; names that share a row are one method."""


class MethodStyle(NamedTuple):
    """Style of a method in all figures."""

    colour: str
    marker: str
    line: Line = "-"


def _look(row: int, place: int) -> MethodStyle:
    """The first position of every row has a solid line and its own marker."""
    line = BROKEN[(place - 1) % len(BROKEN)] if place else "-"
    return MethodStyle(METHOD_COLOURS[row], METHOD_MARKERS[(row + place) % len(METHOD_MARKERS)], line)


def _looks(rows: Iterable[Sequence[str]]) -> dict[str, MethodStyle]:
    return {
        name: _look(row, place)
        for row, places in enumerate(rows)
        for place, names in enumerate(places)
        for name in names.split()
    }


_LOOKS: Final = _looks([names] for names in KNOWN)


def method_styles(methods: Iterable[str], further: Sequence[Sequence[str]] = ()) -> dict[str, MethodStyle]:
    """Styles of methods, by name.

    A known method has the same style in every comparison. An unknown method gets a colour from its name, or the next
    free one if another method of the comparison has it; the order of the methods does not matter. From the ninth
    unknown method on, colours repeat, with other markers and a broken line.

    Args:
        methods: Names as in `selbo.presets`, or displayed names: ``"summary_elbo"``, ``"summary"`` and
            ``"Summary ELBO"`` are the same.
        further: Further known methods: up to eight rows, one per colour, each of up to ten positions, one per
            marker. A position is a string of names that share a style, separated by blanks and written as in
            ``"summary-elbo"``. The methods of the library are at the first position of each row.

    Example:
        >>> method_styles(["plain", "ELBO"])["ELBO"]
        MethodStyle(colour='#93420c', marker='s', line='-')
        >>> method_styles(["summary"])["summary"]
        MethodStyle(colour='#2a63d4', marker='o', line='-')
        >>> method_styles(["Summary ELBO"])["Summary ELBO"]
        MethodStyle(colour='#2a63d4', marker='o', line='-')
        >>> method_styles(["tuned"], further=[["", "tuned"]])["tuned"]
        MethodStyle(colour='#2a63d4', marker='s', line='--')
    """
    if len(further) > len(METHOD_COLOURS) or any(len(places) > len(METHOD_MARKERS) for places in further):
        raise ValueError(
            f"`further` must have at most {len(METHOD_COLOURS)} rows of at most {len(METHOD_MARKERS)} positions, "
            f"but has {len(further)} rows of up to {max(map(len, further))} positions"
        )
    looks = _looks(further) | _LOOKS
    names, found = list(dict.fromkeys(methods)), dict[str, MethodStyle]()
    for name in sorted(names, key=lambda name: (_key(name) not in looks, name)):
        look, taken = looks.get(_key(name)), set(found.values())
        found[name] = _free(name, taken) if look is None or look in taken else look
    return {name: found[name] for name in names}


def _key(name: str) -> str:
    return name.lower().replace(" + ", "-").replace(" ", "-").replace("_", "-")


def _free(name: str, taken: set[MethodStyle]) -> MethodStyle:
    """A style for an unknown method: with a free colour if there is one, else a free marker, else any."""
    colours, markers = len(METHOD_COLOURS), len(METHOD_MARKERS)
    start = crc32(_key(name).encode())
    used = {each.colour for each in taken}
    for i in range(colours):
        look = _look((start + i) % colours, start // colours % markers)
        if look.colour not in used:
            return look._replace(line="-")
    every = colours * (markers - 1)  # the first position of a row has a solid line
    looks = [_look(each % colours, 1 + each // colours) for each in ((start + i) % every for i in range(every))]
    same = {(each.colour, each.marker) for each in taken}
    return next((look for look in looks if (look.colour, look.marker) not in same), looks[0])
