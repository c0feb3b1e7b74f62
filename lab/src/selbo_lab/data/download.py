"""Downloads one file with pooch: with retries, resuming, mirrors and verification."""

import shutil
import socket
import ssl
import urllib.parse
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from selbo import __version__
from selbo_lab.data.digests import readable

DownloadProgress = Callable[[str, int, int | None], None]
"""Called with a label, the received bytes (negative if some were discarded), and the total."""

RETRIES: Final = 4
"""Number of retries per address; pooch waits one second longer each time."""

DOWNLOAD_BLOCK: Final = 1 << 14
"""Bytes per block; the most that a broken connection loses."""

SPARE: Final = 64 << 20
"""Bytes that a download leaves free on disk."""

PASSING: Final = {None, 408, 425, 429, 500, 502, 503, 504}
"""Temporary server responses and failures, which are retried."""

LASTING: Final = (socket.gaierror, ssl.SSLCertVerificationError)
"""Permanent failures: no network, an unknown host, or an untrusted certificate."""


class DownloadError(OSError):
    """No address provided the file."""


def fetch(
    urls: Sequence[str],
    path: Path,
    *,
    digest: str | None = None,
    size: int | None = None,
    progress: DownloadProgress | None = None,
    room: int = 0,
) -> None:
    """Download and verify a file; an existing valid file is not downloaded again.

    What an interrupted download has brought stays beside ``path``, as ``.part``, for the next attempt, in this process
    or another, if a digest will tell whether the pieces fit. Whatever is found to be wrong is deleted.

    Args:
        urls: Addresses of the same file, tried in order; http or https.
        path: Where the file goes, in a folder that only this process writes to.
        digest: Expected, such as ``sha256:…``.
        size: Expected, in bytes.
        progress: Called as bytes come.
        room: Bytes that must be free on the disk besides the file.

    Raises:
        DownloadError: No address gave the file; says for each what came instead.
        OSError: There is no room on the disk.
    """
    import pooch
    from requests import RequestException

    pooch.get_logger().setLevel("WARNING")  # else it reports every attempt
    for stray in path.parent.glob("tmp*"):  # pooch's own, of a process that was killed
        stray.unlink()
    part = _Part(path.with_name(f"{path.name}.part"), path.name, size, progress or (lambda *_: None), room)
    if digest is None:
        part.path.unlink(missing_ok=True)  # nothing would tell whether old and new bytes belong together
    reasons = []
    for url in urls:
        registry = {"registry": {path.name: digest}, "urls": {path.name: url}}
        try:
            pooch.create(path.parent, "", **registry, retry_if_failed=RETRIES).fetch(path.name, downloader=part)
        except (DownloadError, RequestException, ValueError) as error:  # the last is pooch's on a wrong digest
            reasons.append(f"{url} ({_reason(error)})")
        else:
            return
    raise DownloadError(f"{path.name} could not be downloaded: {'; '.join(reasons)}")


def file_name(url: str) -> str:
    """The name at the end of an address."""
    return urllib.parse.unquote(urllib.parse.urlsplit(url).path).rpartition("/")[2]


class _Part:
    """What has come of a file: for pooch the downloader, which resumes, and the file that it writes to."""

    def __init__(self, path: Path, label: str, size: int | None, progress: DownloadProgress, room: int) -> None:
        self.path, self.label, self.size, self.progress, self.room = path, label, size, progress, room
        self.total, self.told = size, 0

    def __call__(self, url: str, output_file: str, _: object) -> None:
        """Receive what is missing and hand over the whole to pooch, which deletes it if the digest is wrong."""
        import pooch
        from requests import ConnectionError, RequestException

        self.tell(self.path.stat().st_size if self.path.exists() else 0)
        headers = {"User-Agent": f"selbo/{__version__}", "Accept-Encoding": "identity"}
        if self.told:
            headers["Range"] = f"bytes={self.told}-"
        if self.size is None or self.told < self.size:
            download = pooch.HTTPDownloader(chunk_size=DOWNLOAD_BLOCK, headers=headers, hooks={"response": self.begin})
            try:
                with ExitStack() as self.opened:
                    download(url, self, None)
            except RequestException as error:
                code = None if error.response is None else error.response.status_code
                if code == 416:  # nothing follows these bytes: they may be of another file
                    self.path.unlink(missing_ok=True)
                elif isinstance(_first(error), LASTING) or code not in PASSING:
                    raise DownloadError(_reason(error)) from error  # which pooch does not try again
                raise
            if self.size is not None and self.told < self.size:
                raise ConnectionError(f"it ended after {self.told} of {self.size} bytes")
        self.path.replace(output_file)

    def begin(self, response: Any, **_: object) -> None:
        """Check what a server is about to send; if that is all of the file, the old piece goes."""
        self.opened.callback(response.close)
        if response.status_code not in {200, 206}:
            return
        start = 0 if response.status_code == 200 else self.told
        length = response.headers.get("Content-Length", "")
        self.total = start + int(length) if length.isdigit() else self.size
        if self.total is not None and self.size is not None and self.total != self.size:
            raise DownloadError(f"what the server has is not the file: {self.total} bytes, not {self.size}")
        folder, needed = self.path.parent, (self.total or 0) - start + self.room
        free = shutil.disk_usage(folder).free
        if free < needed + SPARE:
            raise OSError(f"{self.label} needs {readable(needed)} in {folder}, but only {readable(free)} are free")
        self.file = self.opened.enter_context(self.path.open("ab" if start else "wb"))
        self.tell(start)

    def write(self, block: bytes) -> None:
        self.file.write(block)

    def flush(self) -> None:  # pooch does that after every block
        self.file.flush()
        self.tell(self.file.tell())

    def tell(self, there: int) -> None:
        self.progress(self.label, there - self.told, self.total)
        self.told = there


def _reason(error: Exception) -> str:
    """Why an address did not give the file, without the layers of libraries that passed it on."""
    from requests import HTTPError, RequestException

    if isinstance(error, HTTPError) and error.response is not None:
        return f"the server said {error.response.status_code} {error.response.reason}".rstrip()
    if isinstance(error, RequestException):
        first = _first(error)
        return f"the connection failed: {getattr(first, 'strerror', None) or first}"
    return str(error) if isinstance(error, DownloadError) else "what came is not the file: its digest is wrong"


def _first(error: BaseException) -> BaseException:
    """The error that others were raised from."""
    return error if error.__context__ is None else _first(error.__context__)
