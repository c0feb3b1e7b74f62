"""The page's server: Python's own, without a dependency. It keeps nothing: all state comes with each request.

It answers this machine only, unless told otherwise, and looks at the Host of every request: a foreign web page that
makes its own name point to this machine is refused.
"""

import errno
import ipaddress
import json
import logging
import os
import socket
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from selbo.elicit.answer import answer
from selbo.elicit.refused import RefusedError
from selbo.elicit.state import MOST_BINS, MOST_CLASSES
from selbo.elicit.workers import UnavailableError, Workers
from selbo.report import load_templates

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8421

MOST_STATE_BYTES: Final = 256 * 1024
MOST_COUNT_BYTES: Final = 64 * 1024
MOST_SCORE_BYTES: Final = 16 * 1024 * 1024
"""Maximum body sizes: a state, pasted counts, a CSV file. Longer bodies are rejected before they are read."""

BACKLOG: Final = 128
"""Connections that may wait to be accepted; the five of Python's default were too few for 50 clients at once."""

MOST_UPLOADS: Final = 4
"""Maximum number of files in memory at a time."""

SECONDS_OF_SILENCE: Final = 30.0
"""Seconds after which an idle connection is closed."""

DRAINED_BYTES: Final = 1024 * 1024
"""Bytes of a rejected body that are read and dropped, so that the browser sees the answer."""

PAGE_FILES: Final = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/charts.js": ("charts.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}

TASKS: Final = {
    "/api/belief": ("belief", MOST_STATE_BYTES, "application/json"),
    "/api/counts": ("counts", MOST_COUNT_BYTES, "text/plain"),
    "/api/groups": ("groups", MOST_STATE_BYTES, "text/plain"),
    "/api/scores": ("scores", MOST_SCORE_BYTES, "text/csv"),
    "/api/calibrate": ("calibrate", MOST_SCORE_BYTES, "text/csv"),
}
"""By path: the kind of request, the maximum body size and the type."""

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""No external resources, no inline scripts, no caching."""

_log = logging.getLogger(__name__)


class Server(ThreadingHTTPServer):
    """Serves the page until `close`.

    Args:
        host: Address to listen at.
        port: Port; any free one if 0.
        workers: Worker processes.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = BACKLOG

    def __init__(self, host: str = DEFAULT_HOST, port: int = 0, *, workers: Workers | None = None) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.host = host
        super().__init__((host, port), Handler)
        self.workers = Workers(answer) if workers is None else workers
        self.uploads = threading.BoundedSemaphore(MOST_UPLOADS)
        self.files = {path: (_file(name), kind) for path, (name, kind) in PAGE_FILES.items()}

    @property
    def url(self) -> str:
        """Address to type into a browser on this machine."""
        host = "127.0.0.1" if self.host in {"", "0.0.0.0"} else "::1" if self.host == "::" else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.server_port}/"

    def server_bind(self) -> None:
        """Bind without asking a name server for this machine's name, as the parent does."""
        if os.name == "posix":  # elsewhere it would share the port with another program
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = self.host, self.server_address[1]

    def close(self) -> None:
        """Stop listening, and end the workers."""
        self.server_close()
        self.workers.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log broken connections for debugging only."""
        _log.debug("a connection from %s broke", client_address, exc_info=True)


def open_server(host: str, port: int | None) -> Server:
    """Start a server at a port; without one, at the default port, or at any free one if that is taken."""
    try:
        return Server(host, DEFAULT_PORT if port is None else port)
    except OSError as error:
        if port is None and error.errno == errno.EADDRINUSE:
            return Server(host, 0)
        asked = f"`--host` {host}" if port is None else f"`--port` {port} of {host}"
        raise ValueError(f"{asked} cannot be used: {(error.strerror or str(error)).lower()}") from error


def is_loopback(host: str) -> bool:
    """Whether an address is a loopback address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_allowed(header: str | None, *, bound: str, port: int) -> bool:
    """Whether a Host header names this server, and not a foreign name that was made to point here.

    On loopback only its addresses and ``localhost`` do; elsewhere any address, which no name server hands out, and the
    names that this machine is known by.
    """
    try:
        parts = urlsplit(f"//{header or ''}")
        name, stated = (parts.hostname or "").rstrip("."), parts.port or 80
    except ValueError:
        return False
    if stated != port or parts.path or parts.username is not None:
        return False
    if is_loopback(name):
        return True
    if is_loopback(bound):
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name in {bound.lower(), socket.gethostname().lower(), socket.getfqdn().lower()}
    return True


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: Server
    protocol_version = "HTTP/1.1"
    timeout = SECONDS_OF_SILENCE
    server_version = "selbo"
    sys_version = ""

    def do_GET(self) -> None:
        """A file of the page."""
        if not self._welcome():
            return
        found = self.server.files.get(urlsplit(self.path).path)
        if found is None:
            self._refuse(HTTPStatus.NOT_FOUND, "There is nothing at this address.")
        else:
            self._send(HTTPStatus.OK, *found)

    def do_HEAD(self) -> None:
        """The same without the content."""
        self.do_GET()

    def do_POST(self) -> None:
        """Answer a request of the page."""
        if not self._welcome():
            return
        path = urlsplit(self.path)
        if path.path not in TASKS:
            self._refuse(HTTPStatus.NOT_FOUND, "There is nothing at this address.")
            return
        task, most, kind = TASKS[path.path]
        if self.headers.get_content_type() != kind:
            self._refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"The body must be {kind}.")
            return
        length = self._length(most)
        if length is None:
            return
        large = length > MOST_STATE_BYTES
        if large and not self.server.uploads.acquire(blocking=False):
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "Others are uploading: try again in a few seconds.")
            return
        try:
            self._answer(task, path.query, self._body(length))
        except RefusedError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error), error.field, read=True)
        except UnavailableError as error:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, str(error), read=True)
        except (ConnectionError, TimeoutError):
            self.close_connection = True
        except Exception:
            _log.exception("a request failed")
            self._refuse(
                HTTPStatus.INTERNAL_SERVER_ERROR, "Something went wrong: the terminal of selbo elicit says what."
            )
        finally:
            if large:
                self.server.uploads.release()

    def _answer(self, task: str, query: str, body: bytes) -> None:
        if task == "belief":
            found = self.server.workers.call(task, _parsed(body))
        elif task in {"counts", "groups"}:
            found = self.server.workers.call(task, None, body)
        else:
            state = parse_qs(query, max_num_fields=8).get("state", ["{}"])[0]
            found = self.server.workers.call(task, _parsed(state.encode()), body)
        self._send(HTTPStatus.OK, _written(found), "application/json")

    # --- what is checked before anything is read ---

    def _welcome(self) -> bool:
        """Whether the request is for this server, from its own page."""
        if not host_allowed(self.headers.get("Host"), bound=self.server.host, port=self.server.server_port):
            self._refuse(
                HTTPStatus.MISDIRECTED_REQUEST,
                "This server answers to the address it was started with, not to the name in this request.",
            )
            return False
        origin = self.headers.get("Origin")
        if origin is not None and origin != f"http://{self.headers.get('Host')}":
            self._refuse(HTTPStatus.FORBIDDEN, "This request comes from another page.")
            return False
        return True

    def _length(self, most: int) -> int | None:
        stated = self.headers.get("Content-Length", "")
        if self.headers.get("Transfer-Encoding") or not (stated.isascii() and stated.isdigit()):
            self._refuse(HTTPStatus.LENGTH_REQUIRED, "A request must say how long it is.")
            return None
        length = int(stated[:20])
        if length > most:
            self._refuse(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"That is {_size(length)}, but at most {_size(most)} are taken: a sample of the rows is enough.",
                {"/api/scores": "file", "/api/calibrate": "predictions"}.get(urlsplit(self.path).path, ""),
            )
            return None
        return length

    def _body(self, length: int) -> bytes:
        body = bytearray()
        while len(body) < length:
            part = self.rfile.read1(min(65536, length - len(body)))
            if not part:
                raise ConnectionError("the body ended early")
            body += part
        return bytes(body)

    # --- answers ---

    def _refuse(self, status: HTTPStatus, message: str, field: str = "", *, read: bool = False) -> None:
        if not read:  # what is left of the request would be taken for the next one
            self.close_connection = True
        self._send(status, _written({"error": message, "field": field}), "application/json")
        if not read and self.command == "POST":
            self._drain()

    def _drain(self) -> None:
        """Read and drop a little of what is still coming, so that the answer is seen before the connection closes."""
        stated = self.headers.get("Content-Length", "")
        left = min(DRAINED_BYTES, int(stated[:20])) if stated.isascii() and stated.isdigit() else 0
        try:
            self.wfile.flush()
            self.connection.settimeout(1.0)
            while left > 0:
                part = self.rfile.read1(min(65536, left))
                left = left - len(part) if part else 0
        except OSError:
            return

    def _send(self, status: HTTPStatus, content: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the parent class refuses, in the same form."""
        self.command = self.command or ""
        self._refuse(HTTPStatus(code), f"{HTTPStatus(code).phrase}.")

    def log_message(self, format: str, *args: Any) -> None:
        """Do not list requests in the terminal."""
        _log.debug(format, *args)


def _file(name: str) -> bytes:
    if name == "index.html":  # limits stand in one place
        limits = {"MOST_CLASSES": MOST_CLASSES, "MOST_BINS": MOST_BINS, "MOST_BYTES": MOST_SCORE_BYTES}
        return load_templates("selbo.elicit").get_template("page/index.html").render(limits).encode()
    return resources.files("selbo.elicit").joinpath(f"page/{name}").read_bytes()


def _parsed(text: bytes) -> Any:
    def refuse(_: str) -> None:
        raise RefusedError("The state of the page holds something that is not a number.")

    try:
        return json.loads(text, parse_constant=refuse)
    except RefusedError:
        raise
    except (ValueError, RecursionError):
        raise RefusedError("The state of the page cannot be read: it is not JSON.") from None


def _written(content: dict[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False, allow_nan=False).encode("utf-8")


def _size(count: int) -> str:
    return f"{count / 2**30:.3g} GB" if count >= 2**30 else f"{count / 2**20:.3g} MB"
