"""The system's Chromium, driven by Playwright, which downloads no browser."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, sync_playwright

NAMES = (
    "chromium-headless-shell",  # draws no windows: half the time
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
)


def find_chromium() -> str | None:
    """SELBO_TEST_BROWSER, or the first of the usual names that is installed."""
    named = os.environ.get("SELBO_TEST_BROWSER")
    return named or next((path for name in NAMES if (path := shutil.which(name))), None)


def find_axe() -> Path | None:
    """SELBO_TEST_AXE, or what .ci/browser fetched: axe-core, a checker of accessibility."""
    path = Path(os.environ.get("SELBO_TEST_AXE") or Path(__file__).parents[1] / ".cache" / "axe.min.js")
    return path if path.is_file() else None


@contextmanager
def launch_chromium(program: str) -> Iterator[Browser]:
    """A browser without a window."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program,
            args=[
                *("--disable-gpu", "--disable-dev-shm-usage"),  # for containers
                "--renderer-process-limit=1",  # a new tab takes two thirds of the time
            ],
        )
        yield browser
        browser.close()


def open_window(browser: Browser, width: int, height: int, *, dark: bool = False) -> BrowserContext:
    """An empty profile with a window of that size; a narrow one is that of a phone."""
    phone = width < 500
    return browser.new_context(
        viewport={"width": width, "height": height},
        device_scale_factor=2 if phone else 1,
        is_mobile=phone,
        color_scheme="dark" if dark else "light",
    )
