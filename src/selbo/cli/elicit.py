"""`selbo elicit`: serve the elicitation page on this machine."""

import webbrowser
from typing import Annotated, Final
from urllib.parse import parse_qs, quote, urlsplit

import typer

from selbo.cli.options import Debug
from selbo.cli.output import console, note

STATED: Final = frozenset(
    (
        *("k", "name", "accuracy", "shares", "labels", "from", "heights", "masses", "rows", "claimed", "predicted"),
        *("regions", "bins", "edges", "concentration", "seed", "way", "groups", "correct"),
    )
)
"""Parameters that a link of the page may hold, see ``read`` in ``page.js``."""


def elicit(
    link: Annotated[
        str,
        typer.Argument(metavar="[LINK]", help="Link copied from the page, to open its state.", show_default=False),
    ] = "",
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; a non-local one lets other machines connect.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            help="Port to listen on; 8421 if not given, or a free port if that is taken.",
            min=0,
            max=65535,
            show_default=False,
        ),
    ] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
    debug: Debug = False,
) -> None:
    """State what you know about a task in the browser, and see what it means.

    Opens a local page. It turns the answers to three questions (what are the classes, how often could an expert be
    right, how frequent is each class) into a belief, shows and describes it, and exports it as Python or as a command.
    It also corrects a file of predictions, and reads a table of groups. Works offline; the server stores nothing.
    Press Ctrl-C to stop it.

    Example: selbo elicit --no-browser
    """
    from selbo.elicit.server import is_loopback, open_server

    fragment = extract_fragment(link)
    server = open_server(host, port)
    try:
        server.workers.start()
        if not is_loopback(host):
            note(f"{host} can be reached from other machines: anyone there can open the page, without a password")
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


def extract_fragment(link: str) -> str:
    """The part of a link after the ``#``, which does not depend on machine and port."""
    text = urlsplit(link).fragment
    if link and not STATED.intersection(parse_qs(text)):
        raise ValueError(
            f"the link must be one copied from the page, such as http://.../#k=2&accuracy=0.9, but got {link!r}"
        )
    return f"#{quote(text, safe='=&%,.+-_~')}" if text else ""
