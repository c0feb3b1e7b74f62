"""Regenerate the images of the documentation: `.venv/bin/python docs/figures.py`, about a minute on one core.

With the name of an image, such as `toy_repair`, only that one; `--out` writes elsewhere.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

import selbo
from selbo.plots import figures, histograms, labels, style
from selbo.plots.methods import method_styles
from selbo_lab import published

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

IMAGES = Path(__file__).parent / "images"

NUM_LOGITS = 2048
STEPS = 1500
LEARNING_RATE = 0.05
CONCENTRATION = 1000.0
ANNEALED = (1.0, 50.0)  # slope factor at the first and at the last step

READABLE = 0.7  # what is stated about the noisy digits
NUM_TRAIN = 400
CONFIDENCE_BINS = 20
RELIABILITY_BINS = 10
NUM_SHOWN = 10


def effect(*, narrow: bool = False) -> Figure:
    """Noisy digits: how sure a network is with and without a belief, beside how often it is right."""
    width, height, shape = (style.ONE_COLUMN, 4.4, (2, 1)) if narrow else (style.TWO_COLUMNS, 2.5, (1, 2))
    told = f"Labels, and “about {READABLE:.0%} can be read”".replace("%", " %")
    with style.figure_style():
        figure = style.new_figure(width=width, height=height)
        panels = figure.subplots(*shape, sharex=narrow, sharey=True)
        looks = method_styles(["deterministic", "deterministic + summary"])
        for axes, believes, look in zip(panels, (False, True), looks.values(), strict=True):
            confidence, right = read_digits(believes=believes)
            draw_confidence(axes, confidence, right, colour=look.colour)
            axes.set_title(told if believes else "Labels alone", fontweight="bold")
            if narrow or not believes:
                axes.set_ylabel("share of the test images")
        panels[-1].set_xlabel("confidence, the largest probability")
        if not narrow:
            panels[0].set_xlabel("confidence, the largest probability")
    return figure


def effect_narrow() -> Figure:
    """The same for a phone."""
    return effect(narrow=True)


@cache
def read_digits(*, believes: bool) -> tuple[np.ndarray, float]:
    """Confidence of a network in each noisy test image, and its accuracy; trained with a belief or without."""
    images, numbers = noisy_digits()
    partition = selbo.ConfidenceBins([0.3, 0.5, 0.7, 0.9], num_classes=10)
    belief = selbo.expect(accuracy=READABLE, num_classes=10)
    summary = selbo.SummaryLikelihood.for_data(partition, belief, NUM_TRAIN) if believes else None
    network = selbo.models.MLP((64, 128, 10), generator=torch.Generator().manual_seed(0))
    train = images[:NUM_TRAIN], numbers[:NUM_TRAIN]
    objective = selbo.CrossEntropy(NUM_TRAIN, summary)
    selbo.fit(network, objective, train, steps=1000, batch_size=128, learning_rate=1e-3, callbacks=())
    prediction = selbo.predict(network, images[NUM_TRAIN:])
    right = (prediction.classes == numbers[NUM_TRAIN:]).double().mean().item()
    return prediction.probs.max(-1).values.numpy(), right


def draw_confidence(axes: Axes, confidence: np.ndarray, right: float, *, colour: str) -> None:
    """A histogram of confidence, with its mean and the share of right answers as lines."""
    shares, edges = np.histogram(confidence, bins=CONFIDENCE_BINS, range=(0, 1))
    axes.stairs(shares / len(confidence), edges, fill=True, color=colour, linewidth=0)
    axes.axvline(right, color=style.INK, linewidth=1.4, label=f"right: {right:.0%}".replace("%", " %"))
    mean = confidence.mean()
    said = f"says it is right: {mean:.0%}".replace("%", " %")
    axes.axvline(mean, color=style.INK, linewidth=1.4, linestyle=(0, (2, 1.5)), label=said)
    style.tidy(axes)
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(lambda value, _: labels.number(value))
    axes.legend(loc="upper left")


def noisy_digits() -> tuple[torch.Tensor, torch.Tensor]:
    """All digits of scikit-learn, with so much noise that a third cannot be read, in random order."""
    from sklearn.datasets import load_digits

    images, numbers = (torch.tensor(array) for array in load_digits(return_X_y=True))
    generator = torch.Generator().manual_seed(0)
    noisy = images.float() / 16 + 0.4 * torch.randn(images.shape, generator=generator)
    order = torch.randperm(len(noisy), generator=generator)
    return noisy[order], numbers[order]


def frozen() -> Figure:
    """The first example of the README: how often a frozen classifier is right, by how sure it is, before and after."""
    from sklearn.datasets import load_digits
    from sklearn.naive_bayes import MultinomialNB

    X, y = load_digits(return_X_y=True)
    raw = MultinomialNB().fit(X[:500], y[:500])
    stated = selbo.BeliefCalibrator(raw, accuracy=0.8).fit(X[500:1000])
    with style.figure_style():
        figure = style.new_figure(width=style.TWO_COLUMNS, height=2.7)
        panels = figure.subplots(1, 2, sharey=True)
        looks = method_styles(["deterministic", "deterministic + summary"])
        titles = ("As predicted", "After “right in 80 % of the cases”")
        for axes, model, look, title in zip(panels, (raw, stated), looks.values(), titles, strict=True):
            draw_reliability(axes, model.predict_proba(X[1000:]), y[1000:], colour=look.colour)
            axes.set_title(title, fontweight="bold")
            axes.set_xlabel("confidence, the largest probability")
        panels[0].set_ylabel("share that is right")
    return figure


def draw_reliability(axes: Axes, probs: np.ndarray, classes: np.ndarray, *, colour: str) -> None:
    """Share of right answers by confidence; the area of a dot is the number of images."""
    confidence, right = probs.max(1), probs.argmax(1) == classes
    bins = np.minimum((confidence * RELIABILITY_BINS).astype(int), RELIABILITY_BINS - 1)
    counts = np.bincount(bins, minlength=RELIABILITY_BINS)
    means = [np.bincount(bins, each, RELIABILITY_BINS)[counts > 0] / counts[counts > 0] for each in (confidence, right)]
    axes.plot([0, 1], [0, 1], color=style.INK, linewidth=0.8, linestyle=(0, (2, 1.5)))
    axes.scatter(*means, s=600 * counts[counts > 0] / len(classes) + 6, color=colour, alpha=0.85, clip_on=False)
    said = f"says {confidence.mean():.0%}, is right {right.mean():.0%}".replace("%", " %")
    axes.text(0.03, 0.97, said, transform=axes.transAxes, va="top")
    style.tidy(axes)
    axes.set(xlim=(0, 1), ylim=(0, 1))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: labels.number(value))


def cameras() -> Figure:
    """Images of the tutorial, as its two cameras see them."""
    from sklearn.datasets import load_digits

    clean = torch.tensor(load_digits().images).float().unsqueeze(1) / 16
    noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
    with style.figure_style():
        figure = style.new_figure(width=style.TWO_COLUMNS, height=1.6)
        grid = figure.subplots(2, NUM_SHOWN)
        for row, (name, std) in zip(grid, (("good", 0.3), ("poor", 0.5)), strict=True):
            for axes, image in zip(row, (clean + std * noise)[:NUM_SHOWN, 0], strict=True):
                axes.imshow(image.numpy(), cmap="gray", vmin=-0.5, vmax=1.5)
                axes.set(xticks=[], yticks=[])
                axes.spines[:].set_visible(False)
            row[0].set_ylabel(name)
    return figure


def concentration() -> Figure:
    """What histograms a belief still allows, at three concentrations."""
    belief = selbo.expect(accuracy=0.8, class_fractions=[0.6, 0.4])
    assert isinstance(belief, selbo.Beta)
    return figures.dirichlet_process_samples(
        generator=torch.Generator().manual_seed(1), base=belief, concentrations=(10.0, 50.0, 500.0), num_bins=10
    )


def belief_on_simplex() -> Figure:
    return figures.belief_on_simplex()


def dirichlet_process_samples() -> Figure:
    return figures.dirichlet_process_samples(generator=torch.Generator().manual_seed(1))


def summary_against_histogram() -> Figure:
    """Ten classes: what someone who expects an accuracy of .9 believes, and predictions of two simulated networks."""
    generator = torch.Generator().manual_seed(0)
    partition = selbo.CornerShells(10)
    belief = selbo.expect(0.9, num_classes=10)
    directions = torch.randn(4096, 10, generator=generator) + 0.3 * torch.randn(10, generator=generator)
    summary = selbo.SummaryLikelihood(partition, belief)
    named = {
        "confident network": summary.histogram((20 * directions).log_softmax(-1)),
        "hesitant network": summary.histogram((7 * directions).log_softmax(-1)),
    }
    return figures.summary_against_histogram(partition, summary.s0, named)


def toy_repair() -> Figure:
    """Can the DP term alone move free logits to s0? Final hard histograms of three soft ones, in four cases."""
    starts = {"overconfident start": overconfident_start, "central start": central_start}
    targets = {"uniform": selbo.Uniform(), "Beta(5, 5)": selbo.Beta(5, 5)}
    bins = selbo.ScoreBins.equal(10)
    axis = labels.region_axis(bins)
    with style.figure_style():
        figure = style.new_figure(width=style.TWO_COLUMNS, height=4.6)
        grid = figure.subplots(len(targets), len(starts))
        for row, (target_name, belief) in zip(grid, targets.items(), strict=True):
            s0 = belief.masses(bins).numpy()
            for axes, (start_name, start) in zip(row, starts.items(), strict=True):
                final = {name: train(start(), belief) for name, train in CURES.items()}
                named = histograms.with_distance(s0, final)
                histograms.compare_histograms(
                    axes, s0, named, colours=style.PALETTE, axis=axis, width=style.TWO_COLUMNS / 2 - figures.MARGIN
                )
                axes.set_title(f"{start_name}, target {target_name}", pad=30)
                axes.legend(
                    *histograms.legend_entries(axes), loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0
                )
            row[0].set_ylabel("share of the predictions")
    return figure


def overconfident_start() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    sign = 2.0 * torch.randint(2, (NUM_LOGITS,), generator=generator) - 1
    return sign * (6 + torch.randn(NUM_LOGITS, generator=generator))


def central_start() -> torch.Tensor:
    return 0.3 * torch.randn(NUM_LOGITS, generator=torch.Generator().manual_seed(0))


def published_histogram(start: torch.Tensor, belief: selbo.summary.beliefs.Belief) -> np.ndarray:
    edges = selbo.ScoreBins.equal(10).edges.values
    quirks = {"pseudo_count": published.PSEUDO_COUNT, "histogram_floor": published.HISTOGRAM_FLOOR}
    return repair(start, published.PublishedSummary(published.ClosedScoreBins(edges), belief, CONCENTRATION, **quirks))


def default_slope(start: torch.Tensor, belief: selbo.summary.beliefs.Belief) -> np.ndarray:
    return repair(start, selbo.SummaryLikelihood(selbo.ScoreBins.equal(10), belief, CONCENTRATION))


def annealed_slope(start: torch.Tensor, belief: selbo.summary.beliefs.Belief) -> np.ndarray:
    return repair(start, selbo.SummaryLikelihood(selbo.ScoreBins.equal(10), belief, CONCENTRATION), anneal=True)


CURES = {"paper": published_histogram, "default": default_slope, "annealed": annealed_slope}


def repair(start: torch.Tensor, summary: selbo.SummaryLikelihood, *, anneal: bool = False) -> np.ndarray:
    """Hard histogram of free logits after training on the DP term alone."""
    logits = start.clone().requires_grad_()
    optimiser = torch.optim.Adam([logits], lr=LEARNING_RATE)
    first, last = ANNEALED
    for step in range(STEPS):
        if anneal:
            summary.partition.set_slope_factor(first * (last / first) ** (step / (STEPS - 1)))
        loss = -summary(log_probs(logits)) / NUM_LOGITS
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    regions = summary.partition.assign(log_probs(logits.detach()))
    return np.bincount(regions.numpy(), minlength=summary.partition.num_regions) / NUM_LOGITS


def log_probs(logits: torch.Tensor) -> torch.Tensor:
    return torch.stack([torch.zeros_like(logits), logits], -1).log_softmax(-1)


DRAWN: dict[str, Callable[[], Figure]] = {
    "belief_on_simplex": belief_on_simplex,
    "dirichlet_process_samples": dirichlet_process_samples,
    "cameras": cameras,
    "effect": effect,
    "frozen": frozen,
    "effect_narrow": effect_narrow,
    "summary_against_histogram": summary_against_histogram,
    "toy_repair": toy_repair,
    "concentration": concentration,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Regenerate the images of the documentation.")
    parser.add_argument("names", nargs="*", help=f"any of {', '.join(DRAWN)}; all if none is given")
    parser.add_argument("--out", type=Path, default=IMAGES)
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(DRAWN):
        parser.error(f"unknown image {sorted(unknown)}; choose from {sorted(DRAWN)}")
    torch.set_num_threads(1)  # the tensors are small: more threads only wait for each other
    for name in arguments.names or DRAWN:
        style.save_figure(DRAWN[name](), arguments.out, name, formats=["png"])


if __name__ == "__main__":
    main()
