"""The server: what it serves, to whom, and what it refuses, before it reads and after."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

from selbo.elicit import server as module
from selbo.elicit.answer import answer
from selbo.elicit.server import (
    HEADERS,
    MOST_SCORE_BYTES,
    MOST_STATE_BYTES,
    PAGE_FILES,
    Server,
    host_allowed,
    is_loopback,
    open_server,
)
from selbo.elicit.workers import UnavailableError, Workers


class InThisProcess(Workers):
    """Workers without processes: what they compute is tested elsewhere."""

    def __init__(self) -> None:
        self.closed = False

    def start(self) -> None:
        pass

    def call(self, *arguments: Any) -> dict[str, Any]:
        return answer(*arguments)

    def close(self) -> None:
        self.closed = True


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.body)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    found = Server(workers=InThisProcess())
    thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield found
    found.shutdown()
    thread.join()
    found.close()
    assert found.workers.closed


def ask(
    server: Server, method: str, path: str, body: bytes | str | None = None, headers: dict[str, str] | None = None
) -> Reply:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    try:
        connection.request(method, path, body, headers or {})
        reply = connection.getresponse()
        return Reply(reply.status, dict(reply.getheaders()), reply.read())
    finally:
        connection.close()


def belief(server: Server, state: object, **headers: str) -> Reply:
    return ask(server, "POST", "/api/belief", json.dumps(state), {"Content-Type": "application/json", **headers})


# --- what is served ---


@pytest.mark.parametrize("path", PAGE_FILES)
def test_files_come_with_the_policy(server: Server, path: str) -> None:
    reply = ask(server, "GET", path)
    assert reply.status == 200
    assert reply.headers["Content-Type"] == PAGE_FILES[path][1]
    for name, value in HEADERS.items():
        assert reply.headers[name] == value
    assert "unsafe" not in reply.headers["Content-Security-Policy"]
    assert ask(server, "HEAD", path).body == b""


def test_nothing_comes_from_outside_and_nothing_is_inline(server: Server) -> None:
    page = ask(server, "GET", "/").body.decode()
    for text in [page, *(ask(server, "GET", path).body.decode() for path in ("/page.css", "/page.js", "/charts.js"))]:
        assert set(re.findall(r"https?://[^\s\"'`]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=", page) == []
    assert "{{" not in page
    assert 'max="100"' in page
    for name in ("/page.js", "/charts.js"):
        script = ask(server, "GET", name).body.decode()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|localStorage", script)


@pytest.mark.parametrize("path", ["/nothing", "/../server.py", "/page/page.js", "//etc/passwd", "/%2e%2e/state.py"])
def test_nothing_else_is_served(server: Server, path: str) -> None:
    reply = ask(server, "GET", path)
    assert reply.status == 404
    assert reply.json["error"] == "There is nothing at this address."
    assert ask(server, "POST", path, "{}").status == 404


def test_a_belief_is_answered(server: Server) -> None:
    state = {"accuracy": 0.8, "fractions": [0.7, 0.3], "names": ["<b>", "é"]}
    reply = belief(server, state)
    assert reply.status == 200
    assert reply.json == json.loads(json.dumps(answer("belief", state)))
    assert "Set-Cookie" not in reply.headers


def test_counts_and_scores_are_answered(server: Server) -> None:
    counts = ask(server, "POST", "/api/counts", b"a 1\nb 3", {"Content-Type": "text/plain;charset=UTF-8"})
    assert counts.json["fractions"] == [0.25, 0.75]
    state = quote(json.dumps({"bins": 2}))
    scores = ask(server, "POST", f"/api/scores?state={state}", b"0.1\n0.2\n0.9", {"Content-Type": "text/csv"})
    assert scores.json["masses"] == [0.625, 0.375]


def test_two_users_at_once_do_not_see_each_other(server: Server) -> None:
    answers: dict[int, list[float]] = {}

    def use(user: int) -> None:
        for i in range(10):
            accuracy = 0.6 + 0.03 * user + 0.001 * i
            answers[10 * user + i] = belief(server, {"accuracy": accuracy}).json["s0"]

    users = [threading.Thread(target=use, args=(user,)) for user in range(4)]
    for user in users:
        user.start()
    for user in users:
        user.join()
    for user in range(4):
        for i in range(10):
            assert answers[10 * user + i] == answer("belief", {"accuracy": 0.6 + 0.03 * user + 0.001 * i})["s0"]


def test_many_clients_that_come_at_once_are_all_answered() -> None:
    """All connect before the first is accepted: none is turned away, and none has to try again."""
    found = Server(workers=InThisProcess())
    head = f"GET /icon.svg HTTP/1.1\r\nHost: 127.0.0.1:{found.server_port}\r\nConnection: close\r\n\r\n"
    clients = [socket.create_connection(("127.0.0.1", found.server_port), timeout=10) for _ in range(100)]
    thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        for client in clients:
            client.sendall(head.encode())
        assert {client.recv(15) for client in clients} == {b"HTTP/1.1 200 OK"}
    finally:
        for client in clients:
            client.close()
        found.shutdown()
        thread.join()
        found.close()


# --- bad input ---


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 50_000, "not JSON"),
        ("null", "must be an object"),
        ('{"accuracy": NaN}', "not a number"),
        ('{"accuracy": 1e999}', "finite"),
        ('{"accuracy": ' + "9" * 5000 + "}", "not JSON"),
        ('{"accuracy": "0.9"}', "must be a number"),
        ('{"names": ["\\u0000", "b"]}', "visible"),
        ('{"names": ["\\ud800", "b"]}', "visible"),
        ('{"\\ud800": 1}', "does not know the entry"),
    ],
)
def test_bad_states_are_a_sentence(server: Server, body: str, message: str) -> None:
    reply = ask(server, "POST", "/api/belief", body, {"Content-Type": "application/json"})
    assert reply.status == 400
    assert message in reply.json["error"]
    assert "Traceback" not in reply.body.decode()


def raw(server: Server, head: str, body: bytes = b"", *, wait: float = 10.0) -> bytes:
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=wait) as connection:
        connection.sendall(head.replace("\n", "\r\n").encode() + b"\r\n" + body)
        received = b""
        while part := connection.recv(65536):
            received += part
        return received


def test_ten_gigabytes_are_refused_before_they_are_read(server: Server) -> None:
    head = (
        f"POST /api/scores HTTP/1.1\nHost: 127.0.0.1:{server.server_port}\n"
        f"Content-Type: text/csv\nContent-Length: {10 * 2**30}\n"
    )
    reply = raw(server, head, b"0.5\n" * 1000)  # it answers without the rest
    assert b" 413 " in reply
    assert b"That is 10 GB, but at most 16 MB are taken" in reply


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("", b" 411 "),
        ("Content-Length: -1\n", b" 411 "),
        ("Content-Length: many\n", b" 411 "),
        ("Transfer-Encoding: chunked\n", b" 411 "),
        (f"Content-Length: {'9' * 400}\n", b" 413 "),
        (f"Content-Length: {MOST_SCORE_BYTES + 1}\n", b" 413 "),
    ],
)
def test_a_body_must_say_how_long_it_is(server: Server, header: str, status: bytes) -> None:
    head = f"POST /api/scores HTTP/1.1\nHost: 127.0.0.1:{server.server_port}\nContent-Type: text/csv\n{header}"
    assert status in raw(server, head, b"5\r\n0.5\n\r\n0\r\n\r\n")


def test_a_state_may_not_be_as_long_as_a_file(server: Server) -> None:
    reply = ask(server, "POST", "/api/belief", b" " * (MOST_STATE_BYTES + 1), {"Content-Type": "application/json"})
    assert reply.status == 413


def test_a_body_that_ends_early_leaves_the_server_well(server: Server) -> None:
    head = (
        f"POST /api/scores HTTP/1.1\nHost: 127.0.0.1:{server.server_port}\nContent-Type: text/csv\nContent-Length: 9\n"
    )
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as connection:
        connection.sendall(head.replace("\n", "\r\n").encode() + b"\r\n0.5")
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(100) == b""
    assert belief(server, {}).status == 200


def test_too_many_files_at_once_are_refused(server: Server) -> None:
    held = [server.uploads.acquire(blocking=False) for _ in range(module.MOST_UPLOADS)]
    try:
        large = b"0.5\n" * (MOST_STATE_BYTES // 4 + 1)
        assert ask(server, "POST", "/api/scores", large, {"Content-Type": "text/csv"}).status == 503
        assert belief(server, {}).status == 200  # what is small goes on
    finally:
        for _ in held:
            server.uploads.release()


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_a_form_of_another_site_cannot_ask(server: Server, kind: str) -> None:
    assert ask(server, "POST", "/api/belief", "{}", {"Content-Type": kind}).status == 415


def test_what_cannot_be_computed_now_is_said(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*_: object) -> dict[str, Any]:
        raise UnavailableError("This takes more than 10 seconds and was stopped.")

    def broken(*_: object) -> dict[str, Any]:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(server.workers, "call", late)
    reply = belief(server, {})
    assert (reply.status, reply.json["error"]) == (503, "This takes more than 10 seconds and was stopped.")
    monkeypatch.setattr(server.workers, "call", broken)
    monkeypatch.setattr(module._log, "exception", lambda *_: None)
    reply = belief(server, {})
    assert reply.status == 500
    assert b"secret" not in reply.body
    assert b"Traceback" not in reply.body


@pytest.mark.parametrize("line", ["GET", "FOO / HTTP/1.1", "GET / HTTP/9.9", "GET / HTTP/1.1 x y"])
def test_wrong_requests_get_a_sentence(server: Server, line: str) -> None:
    reply = raw(server, f"{line}\nHost: 127.0.0.1:{server.server_port}\nConnection: close\n")
    assert b'{"error": ' in reply
    assert b"Traceback" not in reply


# --- to whom ---


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("127.0.0.1:{}", True),
        ("localhost:{}", True),
        ("LOCALHOST:{}", True),
        ("localhost.:{}", True),
        ("[::1]:{}", True),
        ("127.0.0.1", False),
        ("127.0.0.1:1", False),
        ("evil.example:{}", False),
        ("localhost.evil.example:{}", False),
        ("127.0.0.1.evil.example:{}", False),
        ("user@127.0.0.1:{}", False),
        ("192.168.1.5:{}", False),
        ("", False),
        ("[::1", False),
        ("127.0.0.1:port", False),
    ],
)
def test_a_foreign_name_that_points_here_is_refused(server: Server, host: str, allowed: bool) -> None:
    reply = ask(server, "GET", "/", headers={"Host": host.format(server.server_port)})
    assert reply.status == (200 if allowed else 421)


def test_a_request_without_a_host_is_refused(server: Server) -> None:
    assert b" 421 " in raw(server, "GET / HTTP/1.1\nConnection: close\n")


@pytest.mark.parametrize(
    ("origin", "status"),
    [("http://127.0.0.1:{}", 200), ("http://evil.example", 403), ("null", 403), ("https://127.0.0.1:{}", 403)],
)
def test_another_page_is_refused(server: Server, origin: str, status: int) -> None:
    assert belief(server, {}, Origin=origin.format(server.server_port)).status == status


@pytest.mark.parametrize(
    ("host", "allowed"),
    [("192.168.1.5:80", True), ("192.168.1.5", True), ("[fe80::1]:80", True), ("evil.example:80", False)],
)
def test_when_open_to_others_addresses_are_allowed_and_foreign_names_are_not(host: str, allowed: bool) -> None:
    assert host_allowed(host, bound="0.0.0.0", port=80) == allowed
    assert host_allowed("my.machine:80", bound="my.machine", port=80)
    assert host_allowed(f"{socket.gethostname()}:80", bound="0.0.0.0", port=80)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.8.9.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("a.b", False)],
)
def test_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) == loopback


def test_the_usual_port_or_a_free_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Workers", lambda _: InThisProcess())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(module, "DEFAULT_PORT", port)
        found = open_server("127.0.0.1", None)
        assert found.server_port != port
        assert found.url == f"http://127.0.0.1:{found.server_port}/"
        found.close()
        with pytest.raises(ValueError, match=f"`--port` {port} of 127.0.0.1 cannot be used: address already in use"):
            open_server("127.0.0.1", port)


def test_addresses_for_a_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    for host, shown in (("0.0.0.0", "127.0.0.1"), ("localhost", "localhost")):
        found = Server(host, workers=InThisProcess())
        assert found.url == f"http://{shown}:{found.server_port}/"
        found.close()
