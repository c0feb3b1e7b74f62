"""`selbo elicit`: the elicitation page, on this machine."""

import webbrowser
from typing import Annotated, Final
from urllib.parse import parse_qs, quote, urlsplit

import typer

from selbo.cli.options import Debug
from selbo.cli.output import console, note

STATED: Final = frozenset(
    (
        *("k", "name", "accuracy", "shares", "labels", "from", "heights", "masses", "rows", "claimed", "predicted"),
        *("regions", "bins", "edges", "trust", "seed"),
    )
)
"""What a link of the page may say, see ``read`` in ``page.js``."""


def elicit(
    link: Annotated[
        str,
        typer.Argument(metavar="[LINK]", help="A link that the page gave, to open what it says.", show_default=False),
    ] = "",
    host: Annotated[
        str, typer.Option("--host", help="Address to listen at; any but this machine's own lets others in.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(
            "--port", help="Port; 8421, or a free one if that is taken.", min=0, max=65535, show_default=False
        ),
    ] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
    debug: Debug = False,
) -> None:
    """Say what you know of a task in the browser, and see what it means.

    Opens a page of this machine: expected accuracy and class fractions, an earlier model's scores or a histogram drawn
    by hand become a belief, in pictures and in words, to be copied as Python or as a command. Works offline, and the
    server keeps nothing. Ctrl-C stops it.

    Example: selbo elicit --no-browser
    """
    from selbo.elicit.server import is_loopback, open_server

    fragment = fragment_of(link)
    server = open_server(host, port)
    try:
        server.workers.start()
        if not is_loopback(host):
            note(f"{host} can be reached from other machines: everyone there can open the page, without a password")
        address = server.url + fragment
        screen = console()
        screen.print(f"The elicitation page is at {address}", soft_wrap=True)
        screen.print("Ctrl-C stops it.")
        if not no_browser:
            webbrowser.open(address)
        server.serve_forever()
    except KeyboardInterrupt:
        console().print("Stopped.")
    finally:
        server.close()


def fragment_of(link: str) -> str:
    """What a link says, whatever machine and port it was made on; it stands after the ``#``."""
    text = urlsplit(link).fragment
    if link and not STATED.intersection(parse_qs(text)):
        raise ValueError(
            f"the link must be one that the page gave, such as http://.../#k=2&accuracy=0.9, but got {link!r}"
        )
    return f"#{quote(text, safe='=&%,.+-_~')}" if text else ""
