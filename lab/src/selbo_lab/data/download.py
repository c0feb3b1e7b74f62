"""Download of one file: resumed where it stopped, tried again, from the next address if need be, and checked."""

import http.client
import os
import shutil
import socket
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from selbo import __version__
from selbo_lab.data.digests import BLOCK, mismatch, readable

Progress = Callable[[str, int, int | None], None]
"""Called with a label, bytes that came (negative if some had to be thrown away), and how many there are in all."""

ATTEMPTS: Final = 5
"""How often an address is tried without a byte more than before."""

FIRST_PAUSE = 1.0
"""Seconds before the second attempt; doubled each time."""

TIMEOUT: Final = 30.0
"""Seconds without a byte after which an attempt is given up."""

SPARE: Final = 64 << 20
"""Bytes that a download leaves free on the disk."""

PASSING: Final = {408, 425, 429, 500, 502, 503, 504}
"""Answers of a server that may be different a moment later."""


class DownloadError(OSError):
    """No address gave the file."""


class _Refused(Exception):  # noqa: N818
    """This address does not have the file; trying again would not help."""


class _Interrupted(Exception):  # noqa: N818
    """The connection failed; the next attempt may go on where it stopped."""


class _Response(Protocol):
    status: int
    headers: Any

    def read1(self, amount: int) -> bytes: ...


def fetch(
    urls: Sequence[str],
    part: Path,
    *,
    digest: str | None = None,
    size: int | None = None,
    label: str | None = None,
    progress: Progress | None = None,
    room: int = 0,
) -> None:
    """Download a file, check it, and leave it at ``part``.

    What an interrupted download has brought stays at ``part`` for the next attempt, in this process or another, if a
    digest will tell whether the pieces fit. Whatever is found to be wrong is deleted.

    Args:
        urls: Addresses of the same file, tried in order; http or https.
        part: Where the file goes. Only one process may write to it.
        digest: Expected, such as ``sha256:…``.
        size: Expected, in bytes.
        label: For ``progress``; the name at the end of the address if not given.
        progress: Called as bytes come.
        room: Bytes that must be free on the disk besides the file.

    Raises:
        DownloadError: No address gave the file; says for each what came instead.
        OSError: There is no room on the disk.
    """
    for url in urls:
        if urllib.parse.urlsplit(url).scheme not in {"http", "https"}:
            raise ValueError(f"`urls` must begin with https:// or http://, but got {url!r}")
    wanted = _Wanted(part, digest, size, label or file_name(urls[0]), progress or (lambda *_: None), room)
    wanted.tell(wanted.there)
    reasons = []
    for url in urls:
        reason = _try(url, wanted)
        if reason is None:
            return
        reasons.append(f"{url} ({reason})")
    raise DownloadError(f"{wanted.label} could not be downloaded: {'; '.join(reasons)}")


def file_name(url: str) -> str:
    """The name at the end of an address."""
    return urllib.parse.unquote(urllib.parse.urlsplit(url).path).rpartition("/")[2]


@dataclass(frozen=True)
class _Wanted:
    """What is to be downloaded, and how much of it is there."""

    part: Path
    digest: str | None
    size: int | None
    label: str
    progress: Progress
    room: int

    @property
    def there(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def start_anew(self) -> None:
        self.tell(-self.there)
        self.part.unlink(missing_ok=True)

    def tell(self, advance: int, total: int | None = None) -> None:
        self.progress(self.label, advance, self.size if total is None else total)


def _try(url: str, wanted: _Wanted) -> str | None:
    """Download from one address; return why that failed, if it did."""
    try:
        _from_address(url, wanted)
    except (_Refused, _Interrupted) as error:
        return str(error)
    return None


def _from_address(url: str, wanted: _Wanted) -> None:
    """Try one address until the file is complete and right, or no more comes."""
    if wanted.digest is None or (wanted.size is not None and wanted.there > wanted.size):
        wanted.start_anew()  # nothing would tell whether old and new bytes belong together
    failures, furthest = 0, wanted.there
    while True:
        resumed = wanted.there > 0
        try:
            if wanted.size is None or wanted.there < wanted.size:
                _receive(url, wanted)
            wrong = mismatch(wanted.part, wanted.digest, wanted.size)
        except _Interrupted as error:
            failures = 1 if wanted.there > furthest else failures + 1
            furthest = max(furthest, wanted.there)
            if failures >= ATTEMPTS:
                raise _Interrupted(f"{error}, {ATTEMPTS} times") from error
            time.sleep(FIRST_PAUSE * 2 ** (failures - 1))
            continue
        if wrong is None:
            return
        wanted.start_anew()
        if not resumed:
            raise _Refused(f"what came is not the file: {wrong}")
        # The old piece may have been of another version: once more, from the beginning.


def _receive(url: str, wanted: _Wanted) -> None:
    """One request, for what is missing; appends to the part as far as it goes."""
    headers = {"User-Agent": f"selbo/{__version__}", "Accept-Encoding": "identity"}
    if wanted.there:
        headers["Range"] = f"bytes={wanted.there}-"
    try:
        with _opener().open(urllib.request.Request(url, headers=headers), timeout=TIMEOUT) as response:
            _store(response, wanted)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and wanted.there:  # there is nothing after what we have: complete, or of another file
            return
        kind = _Interrupted if error.code in PASSING else _Refused
        raise kind(f"the server said {error.code} {error.reason}".rstrip()) from error
    except urllib.error.URLError as error:
        raise (_Refused if _lasting(error.reason) else _Interrupted)(f"no connection: {error.reason}") from error
    except (http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError) as error:
        raise _Interrupted(f"the connection broke: {str(error) or type(error).__name__}") from error


def _lasting(reason: str | BaseException) -> bool:
    """Whether a connection would fail again: no such host, a bad certificate, or an address of another kind."""
    if isinstance(reason, socket.gaierror):
        return reason.errno != socket.EAI_AGAIN
    return isinstance(reason, (ssl.SSLCertVerificationError, str))


def _store(response: _Response, wanted: _Wanted) -> None:
    """Append the answer to the part; begin the part anew if the server sends the file from its beginning."""
    start = wanted.there
    piece = response.headers.get("Content-Range", "")
    if response.status == 206 and not piece.startswith(f"bytes {start}-"):
        wanted.start_anew()
        raise _Interrupted(f"the server sent another piece than asked for: {piece!r}")
    if response.status != 206:
        wanted.start_anew()
        start = 0
    length = response.headers.get("Content-Length")
    total = start + int(length) if length and length.isdigit() else wanted.size
    if total is not None and wanted.size is not None and total > wanted.size:
        wanted.start_anew()
        raise _Refused(f"what the server has is not the file: {total} bytes, not {wanted.size}")
    _room_for((total or 0) - start + wanted.room, wanted.part.parent, wanted.label)
    with wanted.part.open("ab") as file:
        while block := response.read1(BLOCK):
            file.write(block)
            wanted.tell(len(block), total)
            if wanted.size is not None and file.tell() > wanted.size:
                break
        file.flush()
        os.fsync(file.fileno())
        came = file.tell()
    if wanted.size is not None and came > wanted.size:
        wanted.start_anew()
        raise _Refused(f"what came is not the file: it has more than {wanted.size} bytes")
    if total is not None and came < total:
        raise _Interrupted(f"the connection broke after {came} of {total} bytes")


def _room_for(size: int, folder: Path, label: str) -> None:
    free = shutil.disk_usage(folder).free
    if free < size + SPARE:
        raise OSError(f"{label} needs {readable(size)} in {folder}, but only {readable(free)} are free")


def _opener() -> urllib.request.OpenerDirector:
    """Opens http and https alone, also where an address sends it on to another."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.UnknownHandler,
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.HTTPRedirectHandler,
        urllib.request.HTTPErrorProcessor,
    ):
        opener.add_handler(handler())
    return opener
