"""A download goes on where it stopped, is tried again, and is refused if what came is wrong."""

from __future__ import annotations

import hashlib
import io
import re
import socket
from pathlib import Path

import pooch
import pytest
from unit.data.servers import serving

from selbo.version import __version__
from selbo_lab.data import download
from selbo_lab.data.digests import mismatch, readable
from selbo_lab.data.download import DownloadError, fetch, file_name

CONTENT = bytes(range(251)) * 40
SIZE = len(CONTENT)
DIGEST = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that were waited between attempts; they are only counted."""
    waited: list[float] = []
    monkeypatch.setattr("pooch.core.time.sleep", waited.append)
    monkeypatch.setattr(download, "DOWNLOAD_BLOCK", 10)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return waited


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.bin"


def part_of(path: Path) -> Path:
    return path.with_name("a.bin.part")


def test_what_comes_is_there_and_was_counted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    pooch.get_logger().setLevel("INFO")
    monkeypatch.setattr(pooch.get_logger().handlers[0], "stream", said := io.StringIO())
    with serving(files={"/x/a.bin": CONTENT}) as server:
        url = f"{server.address}/x/a.bin"
        fetch([url], path, digest=DIGEST, size=SIZE, progress=lambda *call: calls.append(call))
        fetch([url], path, digest=DIGEST, size=SIZE)  # nothing is left to do
    assert path.read_bytes() == CONTENT
    assert list(path.parent.iterdir()) == [path]
    assert server.requests == [("/x/a.bin", 0)]
    assert server.agents == {f"selbo/{__version__}"}
    assert {call[0] for call in calls} == {"a.bin"}
    assert {call[2] for call in calls} == {SIZE}
    assert sum(call[1] for call in calls) == SIZE
    assert said.getvalue() == ""


@pytest.mark.parametrize("lengths", [True, False])
def test_a_connection_that_is_cut_is_resumed(path: Path, lengths: bool, pauses: list[float]) -> None:
    calls = []
    with serving(files={"/a.bin": CONTENT}, cuts=[100, 50], lengths=lengths) as server:
        url = f"{server.address}/a.bin"
        fetch([url], path, digest=DIGEST, size=SIZE, progress=lambda *call: calls.append(call))
    assert path.read_bytes() == CONTENT
    assert server.requests == [("/a.bin", 0), ("/a.bin", 100), ("/a.bin", 150)]
    assert sum(call[1] for call in calls) == SIZE
    assert pauses == [1, 2]


def test_a_size_that_is_not_known_is_what_the_server_says(path: Path) -> None:
    calls = []
    with serving(files={"/a.bin": CONTENT}, cuts=[100]) as server:
        fetch([f"{server.address}/a.bin"], path, digest=DIGEST, progress=lambda *call: calls.append(call))
    assert path.read_bytes() == CONTENT
    assert {call[2] for call in calls} == {None, SIZE}
    assert server.requests == [("/a.bin", 0), ("/a.bin", 100)]


@pytest.mark.parametrize(
    ("there", "requests"),
    [
        (CONTENT[:1000], [1000]),
        (CONTENT, []),
        (b"x" * 1000, [1000, 0]),
        (b"x" * SIZE, [0]),
        (CONTENT + b"x", [0]),
    ],
    ids=["begun", "whole", "of another version", "whole, of another version", "too long"],
)
def test_what_an_earlier_process_has_left(path: Path, there: bytes, requests: list[int]) -> None:
    part_of(path).write_bytes(there)
    (path.parent / "tmp1234").touch()
    calls = []
    with serving(files={"/a.bin": CONTENT}) as server:
        url = f"{server.address}/a.bin"
        fetch([url], path, digest=DIGEST, size=SIZE, progress=lambda *call: calls.append(call))
    assert path.read_bytes() == CONTENT
    assert [start for _, start in server.requests] == requests
    assert sum(call[1] for call in calls) == SIZE
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("there", [CONTENT, CONTENT + b"x"])
def test_a_server_with_nothing_more_is_asked_for_all(path: Path, there: bytes) -> None:
    part_of(path).write_bytes(there)
    with serving(files={"/a.bin": CONTENT}) as server:
        fetch([f"{server.address}/a.bin"], path, digest=DIGEST)
    assert (path.read_bytes(), server.requests) == (CONTENT, [("/a.bin", len(there)), ("/a.bin", 0)])


def test_without_a_digest_nothing_is_resumed(path: Path) -> None:
    part_of(path).write_bytes(CONTENT[:1000])
    with serving(files={"/a.bin": CONTENT}) as server:
        fetch([f"{server.address}/a.bin"], path)
    assert (path.read_bytes(), server.requests) == (CONTENT, [("/a.bin", 0)])


def test_a_server_that_cannot_resume_sends_all_of_it_again(path: Path) -> None:
    calls = []
    with serving(files={"/a.bin": CONTENT}, ranges=False, cuts=[100]) as server:
        url = f"{server.address}/a.bin"
        fetch([url], path, digest=DIGEST, size=SIZE, progress=lambda *call: calls.append(call))
    assert (path.read_bytes(), server.requests) == (CONTENT, [("/a.bin", 0), ("/a.bin", 100)])
    assert sum(call[1] for call in calls) == SIZE


def test_a_server_that_never_sends_all_is_given_up(path: Path) -> None:
    with serving(files={"/a.bin": CONTENT}, ranges=False, lengths=False, cuts=[100] * 50) as server:
        message = rf"{server.address}/a.bin \(the connection failed: it ended after 100 of {SIZE} bytes\)$"
        with pytest.raises(DownloadError, match=message):
            fetch([f"{server.address}/a.bin"], path, digest=DIGEST, size=SIZE)
    assert len(server.requests) == 1 + download.RETRIES
    assert {each.name: each.read_bytes() for each in path.parent.iterdir()} == {"a.bin.part": CONTENT[:100]}


@pytest.mark.parametrize("code", [503, 429])
def test_a_server_that_is_busy_is_asked_again(path: Path, pauses: list[float], code: int) -> None:
    with serving(files={"/a.bin": CONTENT}, codes=[code] * 3) as server:
        fetch([f"{server.address}/a.bin"], path, digest=DIGEST)
    assert path.read_bytes() == CONTENT
    assert pauses == [1, 2, 3]


@pytest.mark.parametrize("code", [404, 403, 410])
def test_the_next_address_is_tried_at_once_where_the_file_is_gone(path: Path, pauses: list[float], code: int) -> None:
    with serving(files={"/a.bin": CONTENT}, codes=[code]) as server:
        fetch([f"{server.address}/old/a.bin", f"{server.address}/a.bin"], path, digest=DIGEST)
    assert path.read_bytes() == CONTENT
    assert server.requests == [("/old/a.bin", 0), ("/a.bin", 0)]
    assert pauses == []


def test_the_next_address_goes_on_where_the_first_was_given_up(path: Path) -> None:
    with serving(
        files=dict.fromkeys(["/a.bin", "/b.bin"], CONTENT), cuts=[100], codes=[200, *[503] * download.RETRIES]
    ) as server:
        fetch([f"{server.address}/a.bin", f"{server.address}/b.bin"], path, digest=DIGEST)
    assert path.read_bytes() == CONTENT
    assert server.requests[-1] == ("/b.bin", 100)


def test_an_address_with_another_file_does_not_cost_what_has_come(path: Path) -> None:
    part_of(path).write_bytes(CONTENT[:1000])
    with serving(files={"/a.bin": b"<html>Sign in</html>", "/b.bin": CONTENT}, ranges=False) as server:
        fetch([f"{server.address}/{name}.bin" for name in "ab"], path, digest=DIGEST, size=SIZE)
    assert path.read_bytes() == CONTENT
    assert server.requests == [("/a.bin", 1000), ("/b.bin", 1000)]


@pytest.mark.parametrize(
    ("content", "size", "message", "attempts"),
    [
        (b"<html>Sign in</html>", SIZE, f"what the server has is not the file: 20 bytes, not {SIZE}", 1),
        (CONTENT + b"x", SIZE, f"what the server has is not the file: {SIZE + 1} bytes, not {SIZE}", 1),
        (b"x" + CONTENT[1:], SIZE, "what came is not the file: its digest is wrong", 1 + download.RETRIES),
        (b"x", None, "what came is not the file: its digest is wrong", 1 + download.RETRIES),
    ],
)
def test_wrong_content_is_refused_and_deleted(
    path: Path, content: bytes, size: int | None, message: str, attempts: int
) -> None:
    reason = re.escape(f"/a.bin ({message})")
    with serving(files={"/a.bin": content}) as server, pytest.raises(DownloadError, match=reason):
        fetch([f"{server.address}/a.bin"], path, digest=DIGEST, size=size)
    assert server.requests == [("/a.bin", 0)] * attempts
    assert list(path.parent.iterdir()) == []


def test_all_addresses_are_named_if_none_works(path: Path) -> None:
    message = r"^a.bin could not be downloaded: .*/a.bin \(the server said 404 Not Found\); .*/b \(what came is not"
    with serving(files={"/b": b"x"}) as server, pytest.raises(DownloadError, match=message):
        fetch([f"{server.address}/a.bin", f"{server.address}/b"], path, digest=DIGEST)


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://127.0.0.1/x"])
def test_a_server_may_not_send_us_away_from_the_web(path: Path, location: str) -> None:
    message = rf"No connection adapters were found for '{location}'"
    codes = [302] * (1 + download.RETRIES)
    with serving(files={}, codes=codes, location=location) as server, pytest.raises(DownloadError, match=message):
        fetch([f"{server.address}/a.bin"], path, digest=DIGEST)
    assert list(path.parent.iterdir()) == []


def test_another_place_on_the_web_is_fine(path: Path) -> None:
    part_of(path).write_bytes(CONTENT[:1000])
    with serving(files={"/b": CONTENT}, codes=[302], location="/b") as server:
        fetch([f"{server.address}/a.bin"], path, digest=DIGEST)
    assert (path.read_bytes(), server.requests) == (CONTENT, [("/a.bin", 1000), ("/b", 1000)])


def test_nobody_answers(path: Path) -> None:
    with serving(files={}) as server:
        pass
    with pytest.raises(DownloadError, match=r"/a.bin \(the connection failed: Connection refused\)$"):
        fetch([f"{server.address}/a.bin"], path, digest=DIGEST)


def test_without_a_network_nothing_is_waited_for(
    path: Path, monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(DownloadError, match=r"/a.bin \(the connection failed: Name or service not known\)$"):
        fetch(["http://nowhere.example/a.bin"], path, digest=DIGEST)
    assert pauses == []


def test_a_full_disk_is_noticed_before(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "SPARE", 1 << 60)
    with (
        serving(files={"/a.bin": CONTENT}) as server,
        pytest.raises(OSError, match=r"^a.bin needs 10.8 KiB in .*free$"),
    ):
        fetch([f"{server.address}/a.bin"], path, digest=DIGEST, room=1000)
    assert server.requests == [("/a.bin", 0)]
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "name"),
    [("https://h/x/a%20b.tar.gz?download=1", "a b.tar.gz"), ("http://h/a#b", "a"), ("https://h/x%2Fa.zip", "a.zip")],
)
def test_names_at_the_end_of_an_address(url: str, name: str) -> None:
    assert file_name(url) == name


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "0.977 KiB"), (170498071, "163 MiB"), (2918471680, "2.72 GiB")],
)
def test_readable_sizes(size: int, text: str) -> None:
    assert readable(size) == text


def test_digests(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    digests = {
        "md5": "md5:900150983cd24fb0d6963f7d28e17f72",
        "sha1": "sha1:a9993e364706816aba3e25717850c26c9cd0d89d",
    }
    for method, digest in digests.items():
        assert mismatch(tmp_path / "x", digest.upper().replace(method.upper(), method), 3) is None
        assert mismatch(tmp_path / "x", f"{method}:00") == f"its digest is {digest}, not {method}:00"
    assert mismatch(tmp_path / "x", None, 4) == "it has 3 bytes, not 4"
