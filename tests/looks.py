"""What styles of methods must hold, whoever gives them."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from selbo.plots.methods import MethodStyle

Styles = Callable[[Iterable[str]], Mapping[str, MethodStyle]]


def assert_different(styles: Styles, names: Sequence[str]) -> None:
    """No two methods of a comparison have the same colour and marker."""
    looks = styles(names).values()
    assert len({(look.colour, look.marker) for look in looks}) == len(names)


def assert_same_everywhere(styles: Styles, comparisons: Iterable[Sequence[str]]) -> None:
    """A method looks the same whatever it is compared with."""
    for names in comparisons:
        assert styles(names) == {name: styles([name])[name] for name in names}
