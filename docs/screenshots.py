"""Takes the pictures of the elicitation page, docs/images/elicit/: `python docs/screenshots.py`; needs Chromium."""

from __future__ import annotations

import argparse
import math
import sys
import threading
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from selbo.elicit.server import Server

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from chromium import find_chromium, launch_chromium, open_window  # noqa: E402

PATIENTS = "#k=2&name=healthy&name=ill&accuracy=0.9&shares=0.8,0.2&concentration=100"
FINDINGS = (
    "#k=3&name=benign&name=unclear&name=malignant&accuracy=0.8&shares=0.6,0.3,0.1"
    "&labels=200&regions=shells&edges=0.7,0.9"
)
DIGITS = "#k=10&accuracy=0.7&labels=1000&regions=shells"
MODEL = "#way=predictions&accuracy=0.8"
DRAWN = (
    "#k=2&name=healthy&name=ill&accuracy=0.95&shares=0.8,0.2&from=draw&heights=100,30,10,6,5,5,0,8,10,30"
    "&labels=100&regions=equal&bins=10"
)


CERTAINTY = [math.sin(i) * 6 for i in range(300)]
"""Log-odds of a model that is too sure."""

TABLE = "\n".join(
    [
        "id,healthy,ill",
        *(f"{i},{1 / (1 + math.exp(z)):.4f},{1 / (1 + math.exp(-z)):.4f}" for i, z in enumerate(CERTAINTY)),
    ]
).encode()


class Shot(NamedTuple):
    fragment: str
    width: int
    height: int
    dark: bool = False
    at: str = "body"
    block: str = "start"
    predictions: bool = False


SHOTS = {
    "two-classes": Shot(PATIENTS, 1366, 1180),
    "three-classes-dark": Shot(FINDINGS, 1366, 1150, dark=True),
    "ten-classes": Shot(DIGITS, 1366, 1200),
    "drawn-dark": Shot(DRAWN, 1366, 1150, dark=True, at="#reset-pad", block="end"),
    "predictions": Shot(MODEL, 1366, 1000, predictions=True),
    "phone": Shot(PATIENTS, 390, 844),
    "phone-words": Shot(PATIENTS, 390, 844, at="#said"),
    "phone-triangle-dark": Shot(FINDINGS, 390, 844, dark=True, at="#picture-section"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images" / "elicit")
    out = parser.parse_args().out
    program = find_chromium()
    if program is None:
        parser.error("no Chromium is installed")
    out.mkdir(parents=True, exist_ok=True)
    server = Server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with launch_chromium(program) as browser:
            for name, shot in SHOTS.items():
                window = open_window(browser, shot.width, shot.height, dark=shot.dark)
                page = window.new_page()
                page.emulate_media(reduced_motion="reduce")  # or some figures are still fading in
                page.goto(server.url + shot.fragment)
                page.wait_for_selector("#output[aria-busy=false]")
                if shot.predictions:
                    page.set_input_files("#predictions", {"name": "model.csv", "mimeType": "text/csv", "buffer": TABLE})
                    page.wait_for_selector("#frozen-headline:not(:empty)")
                    page.wait_for_selector("#output[aria-busy=false]")
                page.evaluate(f"document.querySelector('{shot.at}').scrollIntoView({{block: '{shot.block}'}})")
                path = out / f"{name}.png"
                page.screenshot(path=path)
                window.close()
                picture = Image.open(path).convert("RGB")
                picture.quantize(256, method=Image.Quantize.MAXCOVERAGE, kmeans=3).save(path, optimize=True)
    finally:
        server.shutdown()
        server.close()


if __name__ == "__main__":
    main()
