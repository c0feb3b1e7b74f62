"""Regenerate the galleries of corruptions in the documentation: `.venv/bin/python lab/docs/galleries.py`.

They need CIFAR-10 and MNIST in the store (`selbo data get cifar10 mnist35`); `--out` writes elsewhere.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from selbo.plots import TWO_COLUMNS, figure_style, new_figure, save_figure
from selbo_lab.data import load_set
from selbo_lab.data.corruptions import cifar, mnist

if TYPE_CHECKING:
    from matplotlib.figure import Figure

IMAGES = Path(__file__).parents[2] / "docs" / "images"
SEED = 0
PHOTOGRAPHS = (29, 13)  # a frog, and a horse
DIGITS = 6
CELL = 0.56


def cifar10_c_gallery() -> Figure:
    """Two photographs, 19 corruptions in two columns, five severities each."""
    photographs = load_set("cifar10", "test").inputs[list(PHOTOGRAPHS)]
    names = ("clean", *cifar.CIFAR_CORRUPTIONS)
    rows = {}
    for name in names:
        severities = cifar.SEVERITIES if name != "clean" else (0,)
        changed = [photographs if not s else cifar.corrupt_cifar(photographs, name, s, seed=SEED) for s in severities]
        rows[name] = [images[i] for images in changed for i in range(len(PHOTOGRAPHS))]
    return gallery(rows, columns=2, longest=len(cifar.SEVERITIES) * len(PHOTOGRAPHS))


def mnist_c_gallery() -> Figure:
    """Six test images of the two digits, clean and with 15 corruptions."""
    digits = load_set("mnist35", "test").inputs[:DIGITS]
    rows = {"clean": list(digits)}
    for name in mnist.MNIST_CORRUPTIONS:
        rows[name] = list(mnist.corrupt_mnist(digits, name, seed=SEED))
    return gallery(rows, columns=2, longest=DIGITS)


def gallery(rows: dict[str, Sequence[Tensor]], *, columns: int, longest: int) -> Figure:
    """One strip of images for each name, names above them."""
    deep = -(-len(rows) // columns)
    with figure_style():
        cell = min(CELL, TWO_COLUMNS / (columns * longest))
        figure = new_figure(width=TWO_COLUMNS, height=deep * (cell + 0.24))
        grid = figure.subplots(deep, columns, squeeze=False)
        for axes in grid.flat:
            axes.axis("off")
        for index, (name, images) in enumerate(rows.items()):
            axes = grid[index % deep][index // deep]
            pixels = np.concatenate([image.permute(1, 2, 0).numpy() for image in images], axis=1)
            blank = np.full(
                (pixels.shape[0], (longest - len(images)) * images[0].shape[-1], pixels.shape[2]), 255, "uint8"
            )
            strip = np.concatenate([pixels, blank], axis=1)
            axes.imshow(strip.squeeze(), cmap="gray", vmin=0, vmax=255, interpolation="nearest", aspect="equal")
            axes.set_title(name.replace("_", " "), loc="left", pad=2)
    return figure


DRAWN = {each.__name__: each for each in (cifar10_c_gallery, mnist_c_gallery)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=IMAGES)
    arguments = parser.parse_args()
    for name, draw in DRAWN.items():
        save_figure(draw(), arguments.out, name, formats=["png"])


if __name__ == "__main__":
    main()
