"""A download goes on where it stopped, is tried again, and is refused if what came is wrong."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
from unit.data.servers import serving

from selbo.version import __version__
from selbo_lab.data import download
from selbo_lab.data.digests import digest_of, mismatch, readable
from selbo_lab.data.download import DownloadError, fetch, file_name

CONTENT = bytes(range(251)) * 40
SIZE = len(CONTENT)
DIGEST = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "FIRST_PAUSE", 0.0)
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def part(tmp_path: Path) -> Path:
    return tmp_path / "a.bin.part"


def test_what_comes_is_there_and_was_counted(part: Path) -> None:
    calls = []
    with serving(files={"/x/a.bin": CONTENT}) as server:
        url = f"{server.address}/x/a.bin"
        fetch([url], part, digest=DIGEST, size=SIZE, progress=lambda *call: calls.append(call))
    assert part.read_bytes() == CONTENT
    assert server.requests == [("/x/a.bin", 0)]
    assert server.agents == {f"selbo/{__version__}"}
    assert {call[0] for call in calls} == {"a.bin"}
    assert {call[2] for call in calls} == {SIZE}
    assert sum(call[1] for call in calls) == SIZE


@pytest.mark.parametrize("lengths", [True, False])
def test_a_connection_that_is_cut_is_resumed(part: Path, lengths: bool) -> None:
    calls = []
    with serving(files={"/a.bin": CONTENT}, cuts=[100, 50], lengths=lengths) as server:
        url = f"{server.address}/a.bin"
        fetch([url], part, digest=DIGEST, size=SIZE, progress=lambda *call: calls.append(call))
    assert part.read_bytes() == CONTENT
    assert server.requests == [("/a.bin", 0), ("/a.bin", 100), ("/a.bin", 150)]
    assert sum(call[1] for call in calls) == SIZE


def test_more_cuts_than_attempts_do_no_harm_while_bytes_come(part: Path) -> None:
    with serving(files={"/a.bin": CONTENT}, cuts=[10] * (download.ATTEMPTS + 3)) as server:
        fetch([f"{server.address}/a.bin"], part, digest=DIGEST)
    assert part.read_bytes() == CONTENT


def test_what_another_process_left_is_used(part: Path) -> None:
    part.write_bytes(CONTENT[:1000])
    with serving(files={"/a.bin": CONTENT}) as server:
        fetch([f"{server.address}/a.bin"], part, digest=DIGEST, size=SIZE)
    assert (part.read_bytes(), server.requests) == (CONTENT, [("/a.bin", 1000)])


@pytest.mark.parametrize("size", [None, SIZE])
def test_what_is_complete_is_only_checked(part: Path, size: int | None) -> None:
    part.write_bytes(CONTENT)
    with serving(files={"/a.bin": CONTENT}) as server:
        fetch([f"{server.address}/a.bin"], part, digest=DIGEST, size=size)
    assert part.read_bytes() == CONTENT
    assert server.requests == ([] if size else [("/a.bin", SIZE)])  # to the latter the answer is 416


@pytest.mark.parametrize("left", [b"other" * 100, b"x" * SIZE, b"x" * 2 * SIZE])
def test_a_piece_of_another_file_is_thrown_away(part: Path, left: bytes) -> None:
    part.write_bytes(left)
    with serving(files={"/a.bin": CONTENT}) as server:
        fetch([f"{server.address}/a.bin"], part, digest=DIGEST, size=SIZE)
    assert part.read_bytes() == CONTENT
    assert server.requests[-1] == ("/a.bin", 0)


def test_without_a_digest_old_pieces_are_not_trusted(part: Path) -> None:
    part.write_bytes(b"other")
    with serving(files={"/a.bin": CONTENT}) as server:
        fetch([f"{server.address}/a.bin"], part)
    assert (part.read_bytes(), server.requests) == (CONTENT, [("/a.bin", 0)])


def test_a_server_without_ranges_sends_all_of_it_again(part: Path) -> None:
    calls = []
    with serving(files={"/a.bin": CONTENT}, ranges=False, cuts=[100]) as server:
        fetch([f"{server.address}/a.bin"], part, digest=DIGEST, progress=lambda *call: calls.append(call))
    assert (part.read_bytes(), server.requests) == (CONTENT, [("/a.bin", 0), ("/a.bin", 100)])
    assert sum(call[1] for call in calls) == SIZE


def test_a_server_that_sends_another_piece_is_asked_for_all(part: Path) -> None:
    part.write_bytes(CONTENT[:1000])
    with serving(files={"/a.bin": CONTENT}, shift=5) as server:
        fetch([f"{server.address}/a.bin"], part, digest=DIGEST, size=SIZE)
    assert (part.read_bytes(), server.requests) == (CONTENT, [("/a.bin", 1000), ("/a.bin", 0)])


def test_a_server_that_never_sends_all_is_given_up(part: Path) -> None:
    with serving(files={"/a.bin": CONTENT}, ranges=False, cuts=[100] * 50) as server:
        message = (
            rf"{server.address}/a.bin \(the connection broke after 100 of {SIZE} bytes, {download.ATTEMPTS} times\)"
        )
        with pytest.raises(DownloadError, match=message):
            fetch([f"{server.address}/a.bin"], part, digest=DIGEST)
    assert len(server.requests) == download.ATTEMPTS
    assert part.read_bytes() == CONTENT[:100]  # for the next attempt


@pytest.mark.parametrize("code", [503, 429])
def test_a_server_that_is_busy_is_asked_again_after_longer_and_longer(
    part: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(download, "FIRST_PAUSE", 0.5)
    monkeypatch.setattr(download.time, "sleep", pauses.append)
    with serving(files={"/a.bin": CONTENT}, codes=[code] * 3) as server:
        fetch([f"{server.address}/a.bin"], part, digest=DIGEST)
    assert part.read_bytes() == CONTENT
    assert pauses == [0.5, 1.0, 2.0]


@pytest.mark.parametrize("code", [404, 403, 410])
def test_the_next_address_is_tried_at_once_where_the_file_is_gone(part: Path, code: int) -> None:
    with serving(files={"/a.bin": CONTENT}, codes=[code]) as server:
        fetch([f"{server.address}/old/a.bin", f"{server.address}/a.bin"], part, digest=DIGEST)
    assert part.read_bytes() == CONTENT
    assert server.requests == [("/old/a.bin", 0), ("/a.bin", 0)]


def test_the_next_address_goes_on_where_the_first_was_given_up(part: Path) -> None:
    with serving(
        files=dict.fromkeys(["/a.bin", "/b.bin"], CONTENT), cuts=[100], codes=[200, *[503] * download.ATTEMPTS]
    ) as server:
        fetch([f"{server.address}/a.bin", f"{server.address}/b.bin"], part, digest=DIGEST)
    assert part.read_bytes() == CONTENT
    assert server.requests[-1] == ("/b.bin", 100)


@pytest.mark.parametrize(
    ("content", "size", "message"),
    [
        (b"<html>Sign in</html>", SIZE, f"it has 20 bytes, not {SIZE}"),
        (CONTENT[:-1], SIZE, f"it has {SIZE - 1} bytes, not {SIZE}"),
        (CONTENT + b"x", SIZE, f"what the server has is not the file: {SIZE + 1} bytes, not {SIZE}"),
        (b"x" + CONTENT[1:], SIZE, "its digest is sha256:"),
        (b"x", None, f", not {DIGEST}"),
    ],
)
def test_wrong_content_is_refused_and_deleted(part: Path, content: bytes, size: int | None, message: str) -> None:
    with serving(files={"/a.bin": content}) as server:
        with pytest.raises(DownloadError, match=re.escape(message)) as refused:
            fetch([f"{server.address}/a.bin"], part, digest=DIGEST, size=size)
        assert f"{server.address}/a.bin" in str(refused.value)
    assert server.requests == [("/a.bin", 0)]
    assert not part.exists()


def test_more_bytes_than_expected_are_not_written(part: Path) -> None:
    message = f"it has more than {SIZE} bytes"
    with serving(files={"/a.bin": CONTENT * 3}, lengths=False) as server, pytest.raises(DownloadError, match=message):
        fetch([f"{server.address}/a.bin"], part, digest=DIGEST, size=SIZE)
    assert not part.exists()


def test_all_addresses_are_named_if_none_works(part: Path) -> None:
    message = r"a.bin could not be downloaded: .*/a.bin \(the server said 404 .*\); .*/b \(what"
    with serving(files={"/b": b"x"}) as server, pytest.raises(DownloadError, match=message):
        fetch([f"{server.address}/a.bin", f"{server.address}/b"], part, digest=DIGEST)
    assert not part.exists()


@pytest.mark.parametrize(("location", "reason"), [("file:///etc/passwd", "302"), ("ftp://127.0.0.1/x", "unknown url")])
def test_a_server_may_not_send_us_away_from_the_web(part: Path, location: str, reason: str) -> None:
    with serving(files={}, codes=[302], location=location) as server, pytest.raises(DownloadError, match=reason):
        fetch([f"{server.address}/a.bin"], part, digest=DIGEST)
    assert not part.exists()


def test_another_place_on_the_web_is_fine(part: Path) -> None:
    with serving(files={"/b": CONTENT}, codes=[302], location="/b") as server:
        fetch([f"{server.address}/a.bin"], part, digest=DIGEST)
    assert (part.read_bytes(), server.requests) == (CONTENT, [("/a.bin", 0), ("/b", 0)])


def test_nobody_answers(part: Path) -> None:
    with serving(files={}) as server:
        pass
    with pytest.raises(DownloadError, match=r"no connection: .*refused, 5 times"):
        fetch([f"{server.address}/a.bin"], part, digest=DIGEST)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://host/a", "/etc/passwd", "data:,x"])
def test_only_the_web_is_asked(part: Path, url: str) -> None:
    with pytest.raises(ValueError, match=r"`urls` must begin with https:// or http://, but got"):
        fetch([url], part)


def test_a_full_disk_is_noticed_before(part: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "SPARE", 1 << 60)
    with (
        serving(files={"/a.bin": CONTENT}) as server,
        pytest.raises(OSError, match=r"a.bin needs 9.8 KiB in .*free"),
    ):
        fetch([f"{server.address}/a.bin"], part, digest=DIGEST)
    assert not part.exists()


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
        assert digest_of(tmp_path / "x", method) == digest
        assert mismatch(tmp_path / "x", digest.upper().replace(method.upper(), method), 3) is None
        assert mismatch(tmp_path / "x", f"{method}:00") == f"its digest is {digest}, not {method}:00"
    assert mismatch(tmp_path / "x", None, 4) == "it has 3 bytes, not 4"
