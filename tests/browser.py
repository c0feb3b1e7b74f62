"""A headless Chromium, driven over its DevTools protocol through a pair of pipes: no package, no port, no driver."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import queue
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PATIENCE = 60.0
GONE = ("navigated or closed", "context was destroyed", "Cannot find context")
KEYS = {
    "Tab": ("Tab", 9, ""),
    "Enter": ("Enter", 13, "\r"),
    "Space": (" ", 32, " "),
    "Backspace": ("Backspace", 8, ""),
    "ArrowLeft": ("ArrowLeft", 37, ""),
    "ArrowUp": ("ArrowUp", 38, ""),
    "ArrowDown": ("ArrowDown", 40, ""),
    "ArrowRight": ("ArrowRight", 39, ""),
    "Home": ("Home", 36, ""),
    "End": ("End", 35, ""),
}


def find() -> str | None:
    """The browser: SELBO_TEST_BROWSER, or the first of the usual names that is installed."""
    named = os.environ.get("SELBO_TEST_BROWSER")
    return named or next((path for name in NAMES if (path := shutil.which(name))), None)


class DocumentGoneError(Exception):
    """The document that was asked made way for another one before it answered."""


class Browser:
    """One page of a browser."""

    def __init__(self, to: int, back: int) -> None:
        self.to = to
        self.number = 0
        self.session = ""
        self.answers: dict[int, queue.Queue[dict[str, Any]]] = {}
        self.events: list[dict[str, Any]] = []
        self.reader = threading.Thread(target=self._read, args=(back,), daemon=True)
        self.reader.start()

    def _read(self, back: int) -> None:
        left = b""
        while part := os.read(back, 1 << 16):
            *messages, left = (left + part).split(b"\0")
            for message in map(json.loads, messages):
                if "id" in message:
                    self.answers[message["id"]].put(message)
                else:
                    self.events.append(message)

    def send(self, method: str, /, **params: Any) -> dict[str, Any]:
        """A command of the protocol, and its answer."""
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        mine = self.answers[self.number] = queue.Queue()
        left = json.dumps(message).encode() + b"\0"
        while left:
            left = left[os.write(self.to, left) :]
        answer = mine.get(timeout=PATIENCE)
        if any(words in answer.get("error", {}).get("message", "") for words in GONE):
            raise DocumentGoneError(method)
        assert "error" not in answer, (method, answer)
        return answer["result"]

    def attach(self) -> None:
        """Open a page and speak to it from now on."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "DOM"):
            self.send(f"{domain}.enable")

    def open(self, url: str) -> None:
        """Go to an address."""
        self.send("Page.navigate", url="about:blank")  # so that another fragment is another visit
        self.send("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def leave(self, action: str) -> None:
        """Do something that opens a document, such as ``location.reload()`` or ``history.back()``, and wait for it."""
        self.js(f"window.left = true; void setTimeout(() => {{ {action} }})")
        self.until("!window.left && document.readyState === 'complete'")

    def js(self, expression: str) -> Any:
        """The value of an expression in the page."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, (expression, found["exceptionDetails"])
        return found["result"].get("value")

    def until(self, condition: str, seconds: float = PATIENCE) -> None:
        """Wait for a condition of the page, which may be opening another document meanwhile."""
        end = time.monotonic() + seconds
        while not self._holds(condition):
            assert time.monotonic() < end, f"never true: {condition}"
            time.sleep(0.05)

    def _holds(self, condition: str) -> bool:
        try:
            return self.js(f"Boolean({condition})")
        except DocumentGoneError:
            return False

    def press(self, key: str) -> None:
        """Press and release a key."""
        name, code, text = KEYS[key]
        event = {"key": name, "code": key, "windowsVirtualKeyCode": code}
        self.send("Input.dispatchKeyEvent", type="keyDown", **event, **({"text": text} if text else {}))
        self.send("Input.dispatchKeyEvent", type="keyUp", **event)

    def write(self, text: str) -> None:
        """Type text where the focus is."""
        self.send("Input.insertText", text=text)

    def drag(self, *points: tuple[float, float]) -> None:
        """Press the button at the first point, move along, release it at the last."""
        for kind, (x, y) in [("mousePressed", points[0]), *(("mouseMoved", p) for p in points[1:])]:
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)
        x, y = points[-1]
        self.send("Input.dispatchMouseEvent", type="mouseReleased", x=x, y=y, button="left", clickCount=1)

    def choose_file(self, selector: str, path: Path) -> None:
        """Put a file into a file input."""
        root = self.send("DOM.getDocument")["root"]["nodeId"]
        node = self.send("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.send("DOM.setFileInputFiles", files=[str(path)], nodeId=node)

    def look(self, width: int, height: int, *, dark: bool = False, phone: bool = False, still: bool = False) -> None:
        """Size of the window, and what the reader prefers."""
        scale = 2 if phone else 1
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=phone
        )
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if still else "no-preference"},
        ]
        self.send("Emulation.setEmulatedMedia", features=features)

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """A picture of the page."""
        picture = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **self._clip(whole))
        path.write_bytes(base64.b64decode(picture["data"]))

    def _clip(self, whole: bool) -> dict[str, Any]:
        if not whole:
            return {}
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}

    def complaints(self) -> list[str]:
        """Errors and warnings of the page so far: scripts that failed, things the policy refused."""
        found = [e["params"]["exceptionDetails"] for e in self.events if e["method"] == "Runtime.exceptionThrown"]
        logged = [e["params"]["entry"] for e in self.events if e["method"] == "Log.entryAdded"]
        return [json.dumps(each) for each in found] + [
            f"{each['level']}: {each['text']} {each.get('url', '')}" for each in logged if each["level"] != "info"
        ]

    def requests(self) -> list[str]:
        """Every address that was asked for."""
        return [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]


@contextmanager
def launched(program: str) -> Iterator[Browser]:
    """A browser with a profile of its own, which is removed afterwards."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser_in, to = _pipe()
        back, browser_out = _pipe()
        options = [
            "--headless=new",
            "--remote-debugging-pipe",
            "--no-sandbox",  # for containers; the page is our own
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-extensions",
            "--disable-background-networking",
            "--disable-component-update",
            "--hide-scrollbars",
            f"--user-data-dir={profile}",
        ]
        nowhere = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
        pipes = [(os.POSIX_SPAWN_DUP2, browser_in, 3), (os.POSIX_SPAWN_DUP2, browser_out, 4)]
        arguments = [program, *options, "about:blank"]
        process = os.posix_spawn(program, arguments, os.environ, file_actions=[*nowhere, *pipes], setsid=True)
        os.close(browser_in)
        os.close(browser_out)
        browser = Browser(to, back)
        try:
            browser.attach()
            yield browser
        finally:
            os.close(to)  # a browser whose pipe is closed goes away by itself
            _end(process)
            browser.reader.join(10)
            os.close(back)


def _pipe() -> tuple[int, int]:
    """A pipe whose ends are clear of the numbers 3 and 4, where the browser looks for its own."""
    ends = os.pipe()
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return moved[0], moved[1]


def _end(process: int) -> None:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        if os.waitpid(process, os.WNOHANG)[0]:
            return
        time.sleep(0.05)
    os.killpg(process, signal.SIGKILL)
    os.waitpid(process, 0)
