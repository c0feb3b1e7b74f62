"""The figures show the numbers they were given, can be read, and leave no trace in matplotlib."""

from __future__ import annotations

import errno
import itertools
import subprocess
import sys
from pathlib import Path

import matplotlib
import matplotlib.image
import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch
from matplotlib.text import Text
from scipy import stats
from scipy.special import betainc

from selbo.plots import figures, labels, simplex, style
from selbo.plots.dirichlet import dirichlet_samples
from selbo.plots.histograms import BELIEF, every, total_variation
from selbo.plots.panels import Grid
from selbo.summary.beliefs import Beta, Dirichlet, Masses, Uniform
from selbo.summary.partitions import ClassRegions, ConfidenceBins, CornerShells, Partition, ScoreBins

pytestmark = pytest.mark.usefixtures("figure_settings")

LOPSIDED = Dirichlet([2.0, 1.1, 0.4])
ANIMALS = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
WIDTHS = pytest.mark.parametrize("width", [style.ONE_COLUMN, style.TWO_COLUMNS])


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def masses_of(partition: Partition, seed: int = 0) -> np.ndarray:
    """A lopsided histogram."""
    return np.random.default_rng(seed).dirichlet(np.linspace(0.5, 5, partition.num_regions))


def axes_of(belief: Dirichlet | Uniform, partition: Partition, **options: object) -> Axes:
    with style.figure_style():
        axes = style.new_figure(width=3.3, height=3.0).subplots()
        simplex.draw_belief(axes, belief, partition, **options)
    return axes


def visible_texts(figure: Figure) -> list[Text]:
    FigureCanvasAgg(figure).draw()  # tick labels are written when drawn
    shown = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
    inside = []
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            far = [tick for tick in axis.get_major_ticks() if not low - 1e-9 <= tick.get_loc() <= high + 1e-9]
            hidden = {id(text) for tick in far for text in (tick.label1, tick.label2)}
            hidden |= {id(t) for tick in axis.get_major_ticks() for t in (tick.label1, tick.label2) if not axes.axison}
            inside.append(hidden)
    return [text for text in shown if not any(id(text) in hidden for hidden in inside)]


def assert_readable(figure: Figure) -> None:
    """Every text has at least 7 points, lies inside the figure and on no other text."""
    texts = visible_texts(figure)
    assert texts
    assert min(text.get_fontsize() for text in texts) >= style.SMALL_SIZE
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts]
    page = figure.bbox
    outside = [name for name, b in boxes if b.x0 < -0.5 or b.y0 < -0.5 or b.x1 > page.x1 + 0.5 or b.y1 > page.y1 + 0.5]
    assert outside == []
    crossing = [
        (n, m) for (n, a), (m, b) in itertools.combinations(boxes, 2) if a.padded(-0.5).overlaps(b.padded(-0.5))
    ]
    assert crossing == []


def bars(axes: Axes) -> dict[str, np.ndarray]:
    return {c.get_label(): np.array([bar.get_height() for bar in c]) for c in axes.containers}


# --- style: no trace, and files that are whole ---


def test_reports_are_drawn_without_pyplot_and_imported_without_matplotlib() -> None:
    code = """
import sys, tempfile
import selbo.plots.figures as figures, selbo.plots.style as style
assert not any(name.startswith("matplotlib") for name in sys.modules)
import selbo
figure = figures.summary_against_histogram(selbo.ScoreBins([0.5]), [0.3, 0.7], [0.6, 0.4])
style.save_figure(figure, tempfile.mkdtemp(), "figure", formats=["png"])
assert "matplotlib.figure" in sys.modules and "matplotlib.pyplot" not in sys.modules
"""
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_missing_matplotlib_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ModuleNotFoundError, match=r"^figures need matplotlib.*pip install 'selbo\[plot\]'$"):
        figures.belief_on_simplex()


def test_a_broken_matplotlib_is_not_called_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "matplotlib.py").write_text("import no_such_package")
    monkeypatch.delitem(sys.modules, "matplotlib")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        style.require_matplotlib()


def test_the_session_does_not_change_a_figure(tmp_path: Path) -> None:
    plain = style.save_figure(
        figures.dirichlet_process_samples(generator=generator()), tmp_path, "plain", formats=["png"]
    )
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "black", "lines.linewidth": 9, "figure.dpi": 33}):
        styled = style.save_figure(
            figures.dirichlet_process_samples(generator=generator()), tmp_path, "styled", formats=["png"]
        )
    assert plain[0].read_bytes() == styled[0].read_bytes()


def test_ticks_made_after_the_style_are_small() -> None:
    figure = figures.dirichlet_process_samples(generator=generator())
    with matplotlib.rc_context({"xtick.labelsize": 30, "ytick.labelsize": 30}):
        assert_readable(figure)


def test_a_tick_says_where_it_stands() -> None:
    """Where all values are near each other, too: 81.25 is not 81.2."""
    with style.figure_style():
        figure = style.new_figure(width=4.0, height=3.0)
        axes = figure.add_subplot()
        style.tidy(axes)
        axes.set_ylim(81.1, 82.1)
        axes.set_yticks([81.25, 81.5, 81.75, 82.0])
        figure.draw_without_rendering()
    assert [label.get_text() for label in axes.get_yticklabels()] == ["81.25", "81.5", "81.75", "82"]


def test_saving_writes_both_formats_of_the_stated_size(tmp_path: Path) -> None:
    figure = figures.summary_against_histogram(ScoreBins([0.5]), [0.3, 0.7], [0.6, 0.4])
    paths = style.save_figure(figure, tmp_path / "new" / "folder", "name")
    assert [path.name for path in paths] == ["name.png", "name.pdf"]
    pixels = matplotlib.image.imread(paths[0])
    assert pixels.shape[1] == round(style.TWO_COLUMNS * style.PIXELS_AN_INCH)
    assert pixels[..., :3].std() > 0.05  # not blank
    assert paths[1].read_bytes().startswith(b"%PDF")
    again = style.save_figure(figure, tmp_path, "name")
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in paths]


@pytest.mark.parametrize("layout", [False, True])
def test_a_figure_without_a_layout_is_drawn_once_per_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: bool
) -> None:
    with style.figure_style():
        figure = style.new_figure(width=3.0, height=2.0, layout=layout)
    figure.add_subplot()
    engine, drawn, draw = figure.get_layout_engine(), [], Figure.draw
    assert (engine is not None) == layout
    monkeypatch.setattr(Figure, "draw", lambda self, renderer: (drawn.append(1), draw(self, renderer)))
    first = style.save_figure(figure, tmp_path, "first", formats=["png", "svg"])
    assert len(drawn) == (4 if layout else 2)
    assert figure.get_layout_engine() is engine
    again = style.save_figure(figure, tmp_path, "again", formats=["png"])
    assert again[0].read_bytes() == first[0].read_bytes()


def test_saving_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = figures.summary_against_histogram(ScoreBins([0.5]), [0.3, 0.7], [0.6, 0.4])
    style.save_figure(figure, tmp_path, "name")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def broken(file: Path, *, format: str, **_: object) -> None:
        file.write_bytes(b"half a file")
        assert tmp_path / file.name != file, "the file of the reader is written to"
        if format == "pdf":
            raise OSError(errno.ENOSPC, "disk full")

    monkeypatch.setattr(figure, "savefig", broken)
    with pytest.raises(OSError, match="disk full") as full:
        style.save_figure(figure, tmp_path, "name")
    assert full.value.filename == str(tmp_path / "name.pdf")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("name", ["", "a/b", "..", "a/"])
def test_a_name_is_not_a_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=r"^`name` must be the name of a file"):
        style.save_figure(Figure(), tmp_path, name)


@pytest.mark.parametrize("formats", [["jpg"], "png", []])
def test_unknown_formats(tmp_path: Path, formats: list[str]) -> None:
    with pytest.raises(ValueError, match=r"^`formats` must be"):
        style.save_figure(Figure(), tmp_path, "name", formats=formats)


def test_a_figure_needs_room() -> None:
    with pytest.raises(ValueError, match=r"^`width` must be at least 2 inches"):
        figures.belief_on_simplex(width=1.0)


def test_the_first_three_colours_differ_on_a_grey_printout() -> None:
    from matplotlib.colors import to_rgb

    greys = sorted(float(np.dot(to_rgb(colour), [0.299, 0.587, 0.114])) for colour in style.PALETTE[:3])
    assert np.diff([0.0, *greys, 1.0]).min() > 0.15


# --- labels ---


@pytest.mark.parametrize(
    ("partition", "expected"),
    [
        (ScoreBins([0.1, 0.25]), ["0–.1", ".1–.25", ".25–1"]),
        (ConfidenceBins([0.4], 3), ["≤ .4", "> .4"]),
        (ClassRegions(2), ["class 0", "class 1"]),
        (CornerShells(2, [0.6, 0.7, 0.8]), ["class 0 > .8", "class 1 > .8", "class 0 .7–.8", "class 1 .7–.8"]),
    ],
)
def test_region_labels(partition: Partition, expected: list[str]) -> None:
    found = partition.region_labels()
    assert found[: len(expected)] == expected
    assert len(found) == partition.num_regions


@pytest.mark.parametrize(
    "partition", [ScoreBins([0.2, 0.6]), CornerShells(4), ClassRegions(5), ConfidenceBins([0.3, 0.8], 4)]
)
def test_labels_are_in_the_order_of_the_regions(partition: Partition) -> None:
    """A prediction in the middle of a region is assigned to the region whose label says so."""
    found = partition.region_labels()
    for k in range(partition.num_classes):
        for top in (0.05, 0.45, 0.7, 0.9, 0.99):
            probs = torch.full((partition.num_classes,), (1 - top) / (partition.num_classes - 1))
            probs[k] = top
            label = found[int(partition.assign(probs.log()[None])[0])]
            confidence = float(probs.max())
            if isinstance(partition, CornerShells):
                inside = f"class {k} > .95" if top > 0.95 else f"class {k} .85–.95" if top > 0.85 else "centre"
            elif isinstance(partition, ClassRegions):
                inside = f"class {k}" if top > 0.25 else label
            elif isinstance(partition, ConfidenceBins):
                inside = "≤ .3" if confidence < 0.3 else ".3–.8" if confidence < 0.8 else "> .8"
            else:
                score = float(probs[1])
                inside = "0–.2" if score < 0.2 else ".2–.6" if score < 0.6 else ".6–1"
            assert label == inside


def test_an_unknown_partition_is_numbered() -> None:
    class Halves(Partition):
        num_classes, num_regions = 2, 2

        def memberships(self, log_probs: torch.Tensor) -> torch.Tensor:
            return log_probs.exp()

        def assign(self, log_probs: torch.Tensor) -> torch.Tensor:
            return log_probs.argmax(-1)

    assert Halves().region_labels() == ["region 0", "region 1"]
    assert_readable(figures.summary_against_histogram(Halves(), [0.5, 0.5], [0.1, 0.9]))


def test_class_names_are_one_per_class() -> None:
    with pytest.raises(ValueError, match=r"^`class_names` must hold 3 names, one per class, but got"):
        figures.summary_against_histogram(ClassRegions(3), [0.2, 0.3, 0.5], [0.2, 0.3, 0.5], class_names=["a", "b"])
    with pytest.raises(ValueError, match=r"^`class_names` must hold 3 names"):
        labels.class_labels(3, "abc")


def test_beliefs_are_named() -> None:
    assert Beta(0.5, 2).label() == "Beta(.5, 2)"
    assert Uniform().label() == "uniform"
    assert Masses([0.5, 0.5]).label() == "Masses([0.5, 0.5])"


# --- the simplex ---


def test_the_triangle_is_equilateral_and_invertible() -> None:
    corners = simplex.to_plane(np.eye(3))
    sides = [np.linalg.norm(corners[i] - corners[j]) for i, j in ((0, 1), (1, 2), (2, 0))]
    np.testing.assert_allclose(sides, 1, rtol=1e-14)
    probs = np.random.default_rng(0).dirichlet([1, 2, 3], size=(4, 5))
    np.testing.assert_allclose(simplex.from_plane(simplex.to_plane(probs)), probs, atol=1e-14)


@pytest.mark.parametrize(
    "partition",
    [
        CornerShells(3),
        CornerShells(3, [0.5, 0.6, 0.9]),
        ClassRegions(3),
        ConfidenceBins([0.5], 3),
        ConfidenceBins([0.36, 0.45, 0.7], 3),
    ],
    ids=str,
)
def test_boundaries_are_where_the_regions_change(partition: Partition) -> None:
    """Just beside every line there are two regions; and no region changes along a path that crosses no line."""
    segments = simplex.boundaries(partition)
    np.testing.assert_allclose(segments.sum(-1), 1, rtol=1e-14)
    assert segments.min() >= 0

    def regions(points: np.ndarray) -> np.ndarray:
        inside = np.clip(simplex.from_plane(points), 1e-9, None)
        return partition.assign(torch.from_numpy(inside).log()).numpy()

    start, end = np.moveaxis(simplex.to_plane(segments), 1, 0)
    along = np.linspace(0.05, 0.95, 7)[:, None, None]
    points = start + along * (end - start)
    normal = (end - start)[:, ::-1] * np.array([1, -1]) / np.linalg.norm(end - start, axis=-1, keepdims=True)
    assert (regions(points + 1e-6 * normal) != regions(points - 1e-6 * normal)).all()

    # every change between neighbours on a fine grid lies near a line
    grid = np.stack(np.meshgrid(np.linspace(0.001, 0.999, 301), np.linspace(0.001, simplex.HEIGHT, 301)), -1)
    found = regions(grid)
    both_inside = (simplex.from_plane(grid) > 1e-3).all(-1)
    change = (found[:, 1:] != found[:, :-1]) & both_inside[:, 1:] & both_inside[:, :-1]
    where = (grid[:, 1:] + grid[:, :-1])[change] / 2
    offset = where[:, None] - start
    share = np.clip((offset * (end - start)).sum(-1) / ((end - start) ** 2).sum(-1), 0, 1)
    distance = np.linalg.norm(offset - share[..., None] * (end - start), axis=-1).min(-1)
    assert distance.max() < 1 / 300


def test_the_lines_drawn_are_the_boundaries() -> None:
    (lines,) = [c for c in axes_of(LOPSIDED, CornerShells(3, [0.8])).collections if isinstance(c, LineCollection)]
    # p_0 = .8 between the sides to class 1 and to class 2, by hand
    expected = [[0.2, 0.0], [0.1, 0.2 * np.sqrt(3) / 2]]
    np.testing.assert_allclose(lines.get_segments()[0], expected, atol=1e-14)
    assert len(lines.get_segments()) == 3


def test_density_is_relative_to_the_uniform_one() -> None:
    probs = np.random.default_rng(0).dirichlet([1, 2, 3], size=6)
    reference = stats.dirichlet(LOPSIDED.concentration).logpdf(probs.T) - np.log(2)
    np.testing.assert_allclose(simplex.log_density(LOPSIDED, probs), reference, rtol=1e-12)
    assert (simplex.log_density(Uniform(), probs) == 0).all()


def test_heat_map_holds_the_density() -> None:
    belief = Dirichlet([3.0, 4.0, 5.0])
    image = axes_of(belief, ClassRegions(3), limits=(1e-30, 1e3)).images[0]
    pixels = np.asarray(image.get_array())
    rows, columns = pixels.shape
    x, y = np.meshgrid((np.arange(columns) + 0.5) / columns, (np.arange(rows) + 0.5) / rows * simplex.HEIGHT)
    inside = (simplex.from_plane(np.stack([x, y], -1)) > 0).all(-1)
    assert abs(pixels[inside].mean() - 1) < 1e-3  # relative to uniform, so the mean over the triangle is one
    mode = np.unravel_index(np.where(inside, pixels, 0).argmax(), pixels.shape)
    np.testing.assert_allclose(simplex.from_plane([x[mode], y[mode]]), np.array([2, 3, 4]) / 9, atol=5e-3)
    assert image.origin == "lower"  # row 0 is at the bottom
    np.testing.assert_allclose(image.get_extent(), [0, 1, 0, simplex.HEIGHT])


def test_infinite_and_vanishing_densities_are_clipped() -> None:
    for concentration in ([1e-3, 1e-3, 1e-3], [3e4, 3e4, 3e4]):
        axes = axes_of(Dirichlet(concentration), ClassRegions(3))
        pixels = np.asarray(axes.images[0].get_array())
        assert np.isfinite(pixels).all()
        assert pixels.min() > 0
        assert (axes.images[0].norm.vmin, axes.images[0].norm.vmax) == simplex.DENSITY_LIMITS


def test_masses_stand_in_or_beside_their_regions() -> None:
    partition = CornerShells(3)
    masses = LOPSIDED.masses(partition)
    texts = {
        tuple(np.round(t.xy if hasattr(t, "xy") else t.get_position(), 6)): t
        for t in axes_of(LOPSIDED, partition).texts
    }
    centre = texts[tuple(np.round(simplex.to_plane([1 / 3] * 3), 6))]
    assert centre.get_text() == labels.percent(float(masses[6]))
    for k, corner in enumerate(simplex.CORNERS):
        stack = texts[tuple(np.round(corner, 6))].get_text().split("\n")
        expected = [f"> .95: {labels.percent(float(masses[k]))}", f".85–.95: {labels.percent(float(masses[3 + k]))}"]
        assert stack[-2:] == expected


def test_masses_of_class_regions_stand_in_them() -> None:
    partition = ClassRegions(3)
    axes = axes_of(LOPSIDED, partition, class_names=["cat", "dog", "eel"])
    by_text = {text.get_text(): text for text in axes.texts}
    for k, mass in enumerate(LOPSIDED.masses(partition).tolist()):
        probs = torch.from_numpy(simplex.from_plane(by_text[labels.percent(mass)].get_position()))
        assert partition.assign(probs.log()[None]) == k
    for name, corner in zip(["cat", "dog", "eel"], simplex.CORNERS, strict=True):
        np.testing.assert_allclose(by_text[name].xy, corner, atol=1e-12)


def test_masses_of_confidence_bins_are_listed() -> None:
    partition = ConfidenceBins([0.5, 0.9], 3)
    low, middle, high = (labels.percent(mass) for mass in LOPSIDED.masses(partition).tolist())
    texts = [text.get_text() for text in axes_of(LOPSIDED, partition).texts]
    assert f"largest p\n> .9: {high}\n.5–.9: {middle}\n≤ .5: {low}" in texts


@WIDTHS
def test_belief_on_simplex(width: float) -> None:
    figure = figures.belief_on_simplex(width=width)
    *panels, bar = figure.axes
    assert len(panels) == 3
    assert figure.get_size_inches()[0] == width
    easy, hard, uneven = (panel.belief for panel in figures.paper_panels())
    assert max(easy.concentration) < 1 < min(hard.concentration)  # as in the paper
    np.testing.assert_allclose(uneven.masses(ClassRegions(3)), [0.6, 0.3, 0.1], atol=1e-8)
    for axes, panel in zip(panels, figures.paper_panels(), strict=True):
        assert panel.belief.label() in axes.get_title()
        norm = axes.images[0].norm
        assert (norm.vmin, norm.vmax) == simplex.DENSITY_LIMITS  # one scale for all
    assert "log scale, clipped at .03 and 30" in bar.get_ylabel()
    assert_readable(figure)


def test_any_belief_and_partition_of_three_classes() -> None:
    panels = [
        figures.SimplexPanel("one", Uniform(), CornerShells(3, [0.5, 0.7, 0.9])),
        figures.SimplexPanel("two", LOPSIDED, ConfidenceBins([0.4, 0.45, 0.6, 0.9], 3)),
        figures.SimplexPanel("three", LOPSIDED, ClassRegions(3)),
        figures.SimplexPanel("four", Dirichlet([50, 1e-2, 3]), CornerShells(3)),
    ]
    figure = figures.belief_on_simplex(panels, class_names=["cat", "dog", "horse"])
    assert len(figure.axes) == 5
    assert_readable(figure)


@pytest.mark.parametrize(
    ("panels", "message"),
    [
        ([], "`panels` must hold at least one panel"),
        ([("", Dirichlet([1, 2, 3, 4]), ClassRegions(4))], "`partition` must be about 3 classes .* but got 4"),
        ([("", Beta(1, 2), ScoreBins([0.5]))], "`partition` must be about 3 classes .* but got 2"),
    ],
)
def test_bad_panels(panels: list[tuple[str, Dirichlet, Partition]], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        figures.belief_on_simplex([figures.SimplexPanel(*panel) for panel in panels])


@pytest.mark.parametrize("limits", [(0.0, 1.0), (2.0, 1.0), (1.0, np.inf)])
def test_bad_limits(limits: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match=r"^`limits` must be two positive numbers, the smaller first"):
        figures.belief_on_simplex(limits=limits)


# --- draws from a Dirichlet process ---


def test_draws_have_the_right_distribution(seed: int) -> None:
    """Each share is a Beta variable, so its distribution function is uniform; by two moments, within 5 errors."""
    a, n = np.array([0.02, 0.7, 3.0, 40.0]), 4000
    drawn = dirichlet_samples(a, n, generator=generator(seed))
    np.testing.assert_allclose(drawn.sum(-1), 1, rtol=1e-12)
    uniform = betainc(a[1:], a.sum() - a[1:], drawn[:, 1:])
    assert (np.abs(uniform.mean(0) - 1 / 2) < 5 * np.sqrt(1 / 12 / n)).all()
    assert (np.abs((uniform**2).mean(0) - 1 / 3) < 5 * np.sqrt(4 / 45 / n)).all()
    variance = a[0] * (a.sum() - a[0]) / a.sum() ** 2 / (a.sum() + 1)
    assert abs(drawn[:, 0].mean() - a[0] / a.sum()) < 5 * np.sqrt(variance / n)


def test_draws_of_a_fine_partition_are_finite() -> None:
    drawn = dirichlet_samples(np.full(1000, 1e-9), 3, generator=generator())
    np.testing.assert_allclose(drawn.sum(-1), 1, rtol=1e-12)
    np.testing.assert_allclose(drawn.max(-1), 1, rtol=1e-12)  # so small a concentration leaves a single atom


@WIDTHS
def test_dirichlet_process_draws(width: float) -> None:
    options = {"concentrations": (2.0, 300.0), "num_samples": 3, "num_bins": 25, "base": Beta(2, 4), "width": width}
    figure = figures.dirichlet_process_samples(generator=generator(5), **options)
    assert len(figure.axes) == 6
    base = Beta(2, 4).masses(ScoreBins.equal(25)).numpy()
    numbers = generator(5)
    expected = [dirichlet_samples(alpha * base, 3, generator=numbers) for alpha in (2.0, 300.0)]
    shown = [bars(axes)["a sample"] for axes in figure.axes]
    np.testing.assert_array_equal(np.reshape(shown, (2, 3, 25)), expected)
    for axes in figure.axes:
        (line,) = axes.lines
        np.testing.assert_allclose(line.get_ydata(), stats.beta(2, 4).pdf(line.get_xdata()) / 25, rtol=1e-12)
    tops = [axes.get_ylim()[1] for axes in figure.axes]
    assert tops[0] == tops[1] == tops[2] > tops[3] == tops[4] == tops[5]
    assert [axes.get_title(loc="left") for axes in figure.axes[::3]] == ["concentration α = 2", "concentration α = 300"]
    assert_readable(figure)


def test_the_same_generator_gives_the_same_draws() -> None:
    first, again, other = (
        [bars(axes)["a sample"] for axes in figures.dirichlet_process_samples(generator=generator(seed)).axes]
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"concentrations": []}, "`concentrations` must hold at least one number"),
        ({"concentrations": [0.0]}, "`concentrations` must be a finite number greater than 0"),
        ({"num_samples": 0}, "`num_samples` must be a whole number of at least 1"),
        ({"num_bins": 1}, "`num_bins` must be a whole number of at least 2"),
        ({"base": Masses([0.5, 0.5])}, "`base` must be a belief such as selbo.Beta, whose density"),
        ({"base": 3}, "`base` must be a belief such as selbo.Beta or selbo.Masses, but got 3"),
        ({"base": Dirichlet([1, 2, 3])}, r".* has 3 parameters, but the partition has 2 classes"),
        ({"generator": 3}, "`generator` must be a torch.Generator"),
    ],
)
def test_bad_draws(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        figures.dirichlet_process_samples(**{"generator": generator(), **options})


# --- s0 against a histogram ---


@WIDTHS
@pytest.mark.parametrize(
    "partition",
    [ScoreBins.equal(10), ScoreBins([0.01, 0.5, 0.999]), ClassRegions(4), ConfidenceBins([0.2, 0.5, 0.9], 100)],
    ids=str,
)
def test_bars_are_the_histograms(partition: Partition, width: float) -> None:
    s0, first, second = (masses_of(partition, seed) for seed in range(3))
    figure = figures.summary_against_histogram(
        partition, torch.from_numpy(s0), {"net": torch.from_numpy(first).float(), "other": second}, width=width
    )
    (axes,) = figure.axes
    heights = bars(axes)
    names = [
        f"net, distance {total_variation(s0, first):.3f}",
        f"other, distance {total_variation(s0, second):.3f}",
    ]
    names = [name.replace(" 0.", " .") for name in names]
    assert list(heights) == [*names, BELIEF]
    np.testing.assert_allclose(heights[names[0]], first, rtol=1e-6)
    np.testing.assert_array_equal(heights[names[1]], second)
    np.testing.assert_array_equal(heights[BELIEF], s0)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [BELIEF, *names]
    (caps,) = [c for c in axes.collections if isinstance(c, LineCollection)]
    np.testing.assert_array_equal([segment[0, 1] for segment in caps.get_segments()], s0)
    for r, group in enumerate(zip(*axes.containers, strict=True)):  # bars stand in the place of their region
        assert all(r <= bar.get_x() and bar.get_x() + bar.get_width() <= r + 1 for bar in group)
    assert_readable(figure)


def test_ticks_of_intervals_are_their_edges() -> None:
    axes = figures.summary_against_histogram(ScoreBins([0.2, 0.9]), [0.2, 0.3, 0.5], [0.5, 0.3, 0.2]).axes[0]
    assert axes.get_xticks().tolist() == [0, 1, 2, 3]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0", ".2", ".9", "1"]
    axes = figures.summary_against_histogram(ConfidenceBins([0.5], 10), [0.2, 0.8], [0.5, 0.5]).axes[0]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1/10", ".5", "1"]


def test_a_few_corner_shells_share_an_axis() -> None:
    partition = CornerShells(3)
    figure = figures.summary_against_histogram(partition, masses_of(partition), masses_of(partition, 1))
    (axes,) = figure.axes
    ticks = [tick.get_text() for tick in axes.get_xticklabels()]
    assert ticks == [label.replace(" ", "\n", 2).replace("\n", " ", 1) for label in partition.region_labels()]
    assert_readable(figure)


@WIDTHS
@pytest.mark.parametrize("class_names", [None, ANIMALS])
def test_many_corner_shells_are_shown_shell_by_shell(width: float, class_names: list[str] | None) -> None:
    partition = CornerShells(10)
    s0, histogram = masses_of(partition), masses_of(partition, 1)
    figure = figures.summary_against_histogram(partition, s0, histogram, class_names=class_names, width=width)
    totals, outer, inner = figure.axes
    name = f"network, distance {total_variation(s0, histogram):.3f}".replace(" 0.", " .")
    for values, label in ((s0, BELIEF), (histogram, name)):
        expected = [values[:10].sum(), values[10:20].sum(), values[20]]
        np.testing.assert_allclose(bars(totals)[label], expected, rtol=1e-14)
        np.testing.assert_array_equal(bars(outer)[label], values[:10])
        np.testing.assert_array_equal(bars(inner)[label], values[10:20])
    assert [tick.get_text() for tick in totals.get_xticklabels()] == ["> .95", ".85–.95", "centre"]
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["all classes", "shell > .95", "shell .85–.95"]
    named = class_names or [str(k) for k in range(10)]
    assert [tick.get_text() for tick in inner.get_xticklabels()] == named
    assert_readable(figure)


@WIDTHS
@pytest.mark.parametrize("several", [False, True])
def test_a_hundred_classes_are_steps(width: float, several: bool) -> None:
    partition = CornerShells(100)
    s0, first, second = (masses_of(partition, seed) for seed in range(3))
    named = {"first": first, "second": second} if several else {"first": first}
    figure = figures.summary_against_histogram(partition, s0, named, width=width)
    steps = [[p.get_data().values for p in a.patches if isinstance(p, StepPatch)] for a in figure.axes[1:]]
    for shell, shown in enumerate(steps):
        part = slice(100 * shell, 100 * shell + 100)
        np.testing.assert_array_equal(shown, [*(values[part] for values in named.values()), s0[part]])
    assert_readable(figure)


def test_many_thresholds_stand_one_above_the_other() -> None:
    partition = CornerShells(10, [0.5, 0.7, 0.9, 0.99])
    figure = figures.summary_against_histogram(partition, masses_of(partition), masses_of(partition, 1))
    assert len(figure.axes) == 5
    assert_readable(figure)


def test_lists_numbers_and_whole_numbers_are_masses_too() -> None:
    read_only = np.broadcast_to(np.array(0.5), 2)
    axes = figures.summary_against_histogram(ScoreBins([0.5]), read_only, [0, 1]).axes[0]
    assert [heights.tolist() for heights in bars(axes).values()] == [[0, 1], [0.5, 0.5]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bins", [0.5, 0.5], [0.5, 0.5]), "`partition` must be a partition such as selbo.ScoreBins, but got 'bins'"),
        (
            (ScoreBins([0.5]), [0.2, 0.3, 0.5], [0.5, 0.5]),
            r"`s0` must hold 2 masses, one per region, but got shape \(3,\)",
        ),
        ((ScoreBins([0.5]), [0.5, 0.5], torch.ones(4, 2) / 2), r"`histogram` must hold 2 masses, .* shape \(4, 2\)"),
        ((ScoreBins([0.5]), [0.5, 0.5], [0.5, 0.6]), "`histogram` must lie on the simplex"),
        ((ScoreBins([0.5]), [0.5, 0.5], {"net": [-0.5, 1.5]}), r"`histogram\['net'\]` must be at least 0 everywhere"),
        ((ScoreBins([0.5]), [0.5, 0.5], {"net": [np.nan, 1.0]}), r"`histogram\['net'\]` must hold numbers"),
        ((ScoreBins([0.5]), ["a", "b"], [0.5, 0.5]), "`s0` must hold 2 masses"),
        ((ScoreBins([0.5]), [0.5, 0.5], {}), "`histogram` must be 1 to 6 histograms, but got 0"),
    ],
)
def test_bad_histograms(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        figures.summary_against_histogram(*arguments)


def test_total_variation_is_the_largest_difference_of_any_set() -> None:
    first, second = masses_of(ScoreBins.equal(6)), masses_of(ScoreBins.equal(6), 1)
    sets = itertools.product([False, True], repeat=6)
    brute_force = max(abs((first - second)[list(chosen)].sum()) for chosen in sets)
    assert total_variation(first, second) == pytest.approx(brute_force, rel=1e-12)


def test_every_so_many_labels() -> None:
    assert [every(x) for x in (0, 1, 1.01, 2.5, 5.5, 10, 11, 51, 200.1)] == [1, 1, 2, 5, 10, 10, 20, 100, 500]


# --- by name, and in the documentation ---


@pytest.mark.parametrize("name", figures.FIGURES)
def test_figures_by_name(name: str) -> None:
    figure = figures.FIGURES[name](generator())
    assert isinstance(figure, Figure)
    assert_readable(figure)


# --- names above panels ---


def test_long_names_of_methods_take_more_lines() -> None:
    """All panels make room for the longest name; what three lines cannot hold ends with an ellipsis."""
    long = "BatchNorm of the target domain, corrected (known fractions)"
    plain, tall = (Grid(3, width=style.TWO_COLUMNS, names=names) for names in (["ELBO"], ["ELBO", long]))
    assert plain.lines == 1
    assert tall.lines == len(tall.wrapped(long)) > 1
    assert " ".join(tall.wrapped(long)) == long
    assert tall.height > plain.height
    axes = tall.place(0)
    tall.name(axes, long, "ECE 1.2 %")
    FigureCanvasAgg(tall.figure).draw()
    name, note = axes.texts
    box = name.get_window_extent()
    assert axes.bbox.x0 - 1 <= box.x0 < box.x1 <= axes.bbox.x1 + 1
    assert note.get_window_extent().y1 <= box.y0 < box.y1 <= tall.figure.bbox.y1
    assert tall.wrapped(long * 3)[-1].endswith("…")
    assert len(tall.wrapped(long * 3)) == 3
