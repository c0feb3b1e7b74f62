"""A web server on this machine that can cut connections, fail for a while, and send wrong content."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Behaviour:
    """What the server has, and how it fails; `requests` are the paths and first bytes that were asked for."""

    files: dict[str, bytes]
    ranges: bool = True
    codes: list[int] = field(default_factory=list)
    cuts: list[int] = field(default_factory=list)
    lengths: bool = True
    delay: float = 0.0
    location: str = ""
    stall: tuple[int, threading.Event] | None = None
    requests: list[tuple[str, int]] = field(default_factory=list)
    agents: set[str] = field(default_factory=set)
    address: str = ""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
        start = int(asked[1]) if asked and self.ranges else 0
        self.requests.append((handler.path, int(asked[1]) if asked else 0))
        self.agents.add(handler.headers.get("User-Agent", ""))
        content = self.files.get(handler.path)
        code = self.codes.pop(0) if self.codes else 404 if content is None else 206 if start else 200
        if code in {200, 206} and start >= len(content or b"") > 0:
            code = 416
        handler.send_response(code)
        if code == 302:
            handler.send_header("Location", self.location)
        if code not in {200, 206}:
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        content = (content or b"")[start:]
        if code == 206:
            handler.send_header("Content-Range", f"bytes {start}-{start + len(content) - 1}/*")
        if self.lengths:
            handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        threading.Event().wait(self.delay)
        if self.stall is not None:
            size, until = self.stall
            handler.wfile.write(content[:size])
            until.wait(20)
            return
        handler.wfile.write(content[: self.cuts.pop(0) if self.cuts else None])


@contextmanager
def serving(**behaviour: object) -> Iterator[Behaviour]:
    """A server that runs for the block."""
    how = Behaviour(**behaviour)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            how.answer(self)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    how.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield how
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
