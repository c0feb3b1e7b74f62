"""The page shows the numbers of the runs, needs nothing from outside, and is written whole or not at all."""

from __future__ import annotations

import copy
import itertools
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from jinja2 import UndefinedError
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from selbo.plots import style
from selbo.plots.methods import method_styles
from selbo.report import curves, page
from selbo.report.takeaway import takeaway
from selbo.report.templates import load_templates
from selbo.results import Comparison

pytestmark = pytest.mark.usefixtures("figure_settings")

Results = dict[str, Any]

METHODS = ["plain", "plain + temperature", "label smoothing", "evidential", "ELBO", "Summary ELBO"]
CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
LEVELS = [0.0, 0.1, 0.25, 0.6]
SHELLS = [*(f"{name} {shell}" for shell in ("> .95", ".85–.95") for name in CLASSES), "centre"]
BINS = ["≤ .3", ".3–.5", ".5–.8", ".8–.95", "> .95"]
ABOUT: dict[int, Results] = {
    len(SHELLS): {"shells": ["> .95", ".85–.95"]},
    len(BINS): {
        "scale": {"title": "largest predicted probability", "ends": ["1/10", ".3", ".5", ".8", ".95", "1"]},
    },
}
"""What a partition says about its regions, by their number."""
LIMIT = 1_500_000
WIDTHS = pytest.mark.parametrize("width", [style.ONE_COLUMN, style.TWO_COLUMNS])


def fake_run(rng: np.random.Generator, method: int, name: str, seed: int, s0: np.ndarray) -> Results:
    trust = 1.0 - 0.15 * method  # how over-confident it is
    conditions = {}
    for level in LEVELS:
        accuracy = 0.9 - 0.6 * level**1.4 + 0.004 * rng.normal()
        ece = 0.01 + 0.06 * trust + 0.5 * trust * level + 0.003 * rng.random()
        nll = 0.3 + 0.1 * trust + level + 2.5 * trust * level**1.6 + 0.01 * rng.normal()
        metrics = {"nll": nll, "accuracy": accuracy, "ece": ece, "brier": 1 - accuracy, "auroc": 0.97}
        conditions["clean" if level == 0 else f"noise {level}"] = {"level": level, "metrics": metrics}
    confidence = (np.arange(15) + 0.5) / 15
    counts = np.where(confidence < 0.1, 0, 3000 * np.exp(7 * trust * (confidence - 1))).astype(int)
    accuracy = confidence - 0.25 * trust * np.sin(np.pi * confidence)
    edges = np.linspace(0, math.log(10), 21)
    inside, outside = (
        np.histogram(rng.beta(*shape, 4000) * math.log(10), edges)[0].tolist() for shape in ((0.4, 4), (2 + method, 2))
    )
    empty = counts == 0
    return {
        "method": name,
        "seed": seed,
        "conditions": conditions,
        "histogram": rng.dirichlet(300 * s0).tolist(),
        "reliability": {
            "confidence": [None if e else float(c) for c, e in zip(confidence, empty, strict=True)],
            "accuracy": [None if e else float(a) for a, e in zip(accuracy, empty, strict=True)],
            "count": counts.tolist(),
        },
        "risk_curve": {"risk": (0.12 * (np.arange(1, 51) / 50) ** (2 - trust)).tolist(), "area": 0.03 + 0.01 * trust},
        "entropy": {"edges": edges.tolist(), "in": inside, "out": outside},
        "ood": {"auroc": 0.8 + 0.02 * method + 0.003 * rng.normal(), "fpr95": 0.3},
        "seconds": 41.0 + seed,
    }


def fake(methods: list[str] = METHODS, seeds: tuple[int, ...] = (0, 1, 2), regions: list[str] = SHELLS) -> Results:
    """Results of a comparison, made up, that went through JSON."""
    rng = np.random.default_rng(0)
    s0 = rng.dirichlet(np.full(len(regions), 3.0))
    results = {
        "title": "Six ways to train",
        "description": "Six methods learned from few examples.\n\nThen they were asked about others.",
        "conclusion": "One of them was better.",
        "task": {
            "num_train": 2000,
            "num_test": 5000,
            "num_classes": 10,
            "class_names": CLASSES,
            "class_counts": [320, 280, 250, 230, 210, 190, 170, 140, 120, 90],
        },
        "belief": {
            "words": "Nine in ten cases can be decided.",
            "partition": "CornerShells(10)",
            "regions": regions,
            "s0": s0.tolist(),
            "concentration": 1000.0,
            **ABOUT.get(len(regions), {}),
        },
        "methods": methods,
        "seeds": list(seeds),
        "runs": [fake_run(rng, m, name, seed, s0) for m, name in enumerate(methods) for seed in seeds],
        "clean": "clean",
        "corruption": "noise, standard deviation",
        "ood_name": "digits",
        "made_by": {
            "command": "selbo compare --seeds 0 1 2",
            "selbo": "0.1.0",
            "python": "3.12.1",
            "torch": "2.13.0",
            "machine": "2 cores",
            "seconds": 761.0,
        },
    }
    return json.loads(json.dumps(results))


def fake_training() -> Results:
    """What one training leaves: no comparison, no noise, no out-of-distribution inputs, no belief."""
    results = fake(["my network"], seeds=(4,)) | {"belief": None, "conclusion": None, "corruption": None}
    del results["ood_name"]
    (run,) = results["runs"]
    run |= {"histogram": None, "ood": None, "conditions": {"clean": run["conditions"]["clean"]}}
    run["conditions"]["clean"]["level"] = None
    run["entropy"]["out"] = None
    return results


@pytest.fixture(scope="module")
def results() -> Results:
    return fake()


@pytest.fixture(scope="module")
def html(results: Results) -> str:
    return page.render_page(Comparison.from_dict(results))


@pytest.fixture(scope="module")
def training_html() -> str:
    return page.render_page(Comparison.from_dict(fake_training()))


class Reader(HTMLParser):
    """Tags with their attributes, and the text of each table cell."""

    VOID = frozenset({"meta", "link", "br", "hr", "img", "input"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"}:
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text += data
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data


# --- numbers ---


def test_the_table_holds_the_means_and_errors_of_the_runs(results: Results, html: str) -> None:
    rows = {row[0]: row[1:] for row in Reader(html).rows[:8] if row[0] in METHODS}
    assert list(rows) == METHODS
    where = [
        ("clean", "nll", 1, 3),
        ("clean", "accuracy", 100, 1),
        ("clean", "ece", 100, 2),  # one decimal would write its standard errors as 0
        ("noise 0.6", "nll", 1, 3),
        ("noise 0.6", "ece", 100, None),
    ]
    for method, cells in rows.items():
        runs = [run for run in results["runs"] if run["method"] == method]
        for cell, (condition, metric, scale, digits) in zip(cells, where, strict=False):
            values = scale * np.array([run["conditions"][condition]["metrics"][metric] for run in runs])
            mean, error = re.search(r"([\d.]+) ± ([\d.]+)", cell).groups()
            shown = len(mean.partition(".")[2])
            assert digits in {None, shown}
            assert mean == f"{values.mean():.{shown}f}"
            assert error == f"{values.std(ddof=1) / math.sqrt(3):.{shown}f}"
        auroc = 100 * np.array([run["ood"]["auroc"] for run in runs])
        assert f"{auroc.mean():.1f} ± {auroc.std(ddof=1) / math.sqrt(3):.1f}" in cells[5]


def test_the_best_is_marked_in_words_too(results: Results, html: str) -> None:
    rows = {row[0]: row[1:] for row in Reader(html).rows[:8] if row[0] in METHODS}
    means = {
        m: np.mean([r["conditions"]["noise 0.6"]["metrics"]["nll"] for r in results["runs"] if r["method"] == m])
        for m in METHODS
    }
    marked = [method for method, cells in rows.items() if cells[3].startswith("★best")]
    assert marked == [min(means, key=means.__getitem__)]
    assert re.search(r'<td class="best[^"]*">', html)


def test_a_close_value_and_missing_runs_are_marked() -> None:
    results = fake(METHODS[:3])
    for i, run in enumerate(results["runs"]):
        run["conditions"]["clean"]["metrics"]["nll"] = [0.2, 0.5, 0.5, 0.35, 0.55, 0.45, 0.1, None, 0.1][i]
    cells = [row[1] for row in Reader(page.headline_table(Comparison.from_dict(results))).rows if row[0] in METHODS]
    assert cells == ["★best0.400 ± 0.100", "≈close to the best0.450 ± 0.058", "0.100 ± 0.000 (2 of 3 runs)"]


def test_facts_conclusion_and_provenance_are_shown(html: str) -> None:
    text = Reader(html).text.replace("\N{NARROW NO-BREAK SPACE}", " ")
    for shown in (
        "Six ways to train",
        "Then they were asked about others.",
        "2 000",
        "training examples per class, 90 to 320",
        "Nine in ten cases can be decided.",
        "Concentration α = 1000.",
        "One of them was better.",
        "selbo compare --seeds 0 1 2",
        "selbo 0.1.0, Python 3.12.1, PyTorch 2.13.0",
        "0, 1, 2",
        "12 min 41 s in all; a run: plain 42 s",
        "How it was made",
    ):
        assert shown in text
    assert text.count("How to read this") == 6
    assert html.index("<table") < html.index("One of them was better.") < html.index("Do the predictions")


# --- sections ---


def headings(text: str) -> list[str]:
    return re.findall(r"<h2>(.*?)</h2>", text)


def test_a_full_page_has_every_section(html: str) -> None:
    assert headings(html) == [
        "The result",
        "Do the predictions look like the belief?",
        "Can the stated confidence be trusted?",
        "What if it may decline to answer?",
        "What happens when the inputs get worse?",
        "Does it notice inputs that belong to no class?",
        "How it was made",
    ]


def test_sections_without_data_are_left_out(training_html: str) -> None:
    text = training_html
    assert headings(text) == [
        "The result",
        "Can the stated confidence be trusted?",
        "What if it may decline to answer?",
        "How it was made",
    ]
    assert "<table" not in text
    assert "<strong>Belief.</strong>" not in text
    assert 'class="conclusion"' not in text
    assert "One seed" in text
    (nll,) = (run["conditions"]["clean"]["metrics"]["nll"] for run in fake_training()["runs"])
    assert f"<dt>NLL</dt><dd>{nll:.3f}</dd>" in text


def test_a_test_set_is_clean_only_beside_corrupted_ones(html: str, training_html: str) -> None:
    assert "clean test set" in html
    assert "on the test set" in training_html
    assert "clean test set" not in training_html


def test_the_takeaway_stands_on_top(results: Results, html: str) -> None:
    top = html[html.index("<header>") : html.index("</header>")]
    assert top.index("<h1>") < top.index('class="conclusion"') < top.index('class="lede"')
    assert takeaway(Comparison.from_dict(results)).splitlines()[0] in top
    given = page.render_page(Comparison.from_dict(fake_training() | {"takeaway": "Best & only.\n\n- one\n- <two>"}))
    assert "<p>Best &amp; only.</p>\n<ul><li>one</li><li>&lt;two&gt;</li></ul>" in given


def test_coloured_tables_have_a_legend_right_below(html: str) -> None:
    tables = re.findall(r'<table>(.*?)</table></div>(<p class="legend">.*?</p>)?', html, re.DOTALL)
    assert len(tables) == 5  # the short one, all metrics, three of the curves
    for body, key in tables:
        assert set(re.findall(r'<td class="(best|close)\b', body)) == set(re.findall(r'class="chip (\w+)"', key))
        assert "best mean of its column" in key


@pytest.mark.parametrize("key", ["histogram", "reliability", "risk_curve", "entropy"])
def test_a_figure_without_data_is_refused_and_not_listed(results: Results, key: str) -> None:
    without = copy.deepcopy(results)
    for run in without["runs"]:
        run[key] = None
    names = {
        "histogram": "belief_histograms",
        "reliability": "reliability_diagrams",
        "risk_curve": "risk_coverage_curves",
        "entropy": "entropy_histograms",
    }
    assert curves.available_figures(Comparison.from_dict(without)) == [
        name for name in curves.COMPARISON_FIGURES if name != names[key]
    ]
    with pytest.raises(ValueError, match=f"^`results` must have `{key}` in at least one run"):
        curves.COMPARISON_FIGURES[names[key]](Comparison.from_dict(without))


def test_curves_need_levels_and_entropy_needs_inputs_from_elsewhere(results: Results) -> None:
    with pytest.raises(ValueError, match=r"^`results` must have `corruption` and conditions at several levels"):
        curves.corruption_curves(Comparison.from_dict(results | {"corruption": None}))
    with pytest.raises(ValueError, match=r"^`metrics` must name at least one metric that the runs have"):
        curves.corruption_curves(Comparison.from_dict(results), metrics=["f1"])
    with pytest.raises(ValueError, match=r"^`results` must have `entropy.out` in at least one run"):
        curves.entropy_histograms(Comparison.from_dict(fake_training()))


# --- one file, for everybody ---


def test_nothing_comes_from_outside(html: str) -> None:
    assert "http" not in html.lower()
    assert len(html.encode()) < LIMIT
    reader = Reader(html)
    assert reader.open == []
    assert not {"script", "img", "iframe", "object", "embed"} & {tag for tag, _ in reader.tags}
    for _, attributes in reader.tags:
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith(("#", "data:,"))
    assert re.findall(r"url\((?!#)", html) == []
    assert "@import" not in html


def test_ids_are_unique_and_references_are_met(html: str) -> None:
    ids = re.findall(r' id="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:url\(|href=")#([^)"]+)', html)) <= set(ids)


def test_figures_and_tables_can_be_heard(html: str) -> None:
    reader = Reader(html)
    pictures = [attributes for tag, attributes in reader.tags if tag == "svg"]
    for attributes in pictures:
        assert attributes.get("aria-hidden") == "true" or (attributes["role"] == "img" and attributes["aria-label"])
    spoken = [a["aria-label"] for a in pictures if "aria-label" in a]
    assert any("At .6:" in label and "NLL: plain" in label for label in spoken)
    assert all(attributes.get("scope") for tag, attributes in reader.tags if tag == "th")
    assert next(a for tag, a in reader.tags if tag == "html")["lang"] == "en"


def test_dark_mode_changes_every_colour_of_the_figures(html: str) -> None:
    head, body = html.split("</style>")
    assert re.findall(r"#[0-9a-fA-F]{6}\b", body) == []
    variables = set(re.findall(r"var\((--\w+)\)", html))
    light, dark = head.split("prefers-color-scheme: dark", 1)
    assert variables <= set(re.findall(r"(--\w+):", light))
    assert variables <= set(re.findall(r"(--\w+):", dark))
    declared = dict(re.findall(r"(--\w+): (#\w+)", light))
    assert all(declared[variable].lower() == colour.lower() for colour, variable in page.THEME.items())


def test_names_are_text_and_not_markup() -> None:
    bad = '<b>&"$\\frac$'  # short, so that no figure cuts it; as a formula it would be an error
    results = fake([bad, "_hidden", "深"], regions=["one $a", "$b$", "<three>"])
    results |= {"title": bad, "description": bad, "conclusion": bad, "corruption": bad, "ood_name": bad}
    results["task"]["class_names"] = [f"{bad}{k}" for k in range(10)]
    results["belief"] |= {"words": bad, "partition": bad}
    results["made_by"] |= {"command": bad, "machine": bad, "selbo": bad}
    text = page.render_page(Comparison.from_dict(results))
    assert "<b>" not in text
    reader = Reader(text)
    assert reader.open == []
    assert bad in reader.text
    assert "&lt;three&gt;" in text
    assert bad in [row[0] for row in reader.rows]


def test_templates_escape_every_value_and_miss_none() -> None:
    template = load_templates().from_string('<p title="{{ name }}">{{ name }}</p>')
    assert template.render(name='<b>"') == '<p title="&lt;b&gt;&#34;">&lt;b&gt;&#34;</p>'
    with pytest.raises(UndefinedError, match="'name' is undefined"):
        template.render()
    sources = [path.read_text(encoding="utf-8") for path in (Path(page.__file__).parents[1]).rglob("*.html")]
    assert len(sources) > 1
    assert [each for each in sources if re.search(r"\|\s*safe|autoescape", each)] == []


# --- files ---


def test_the_page_is_written_whole_or_not_at_all(
    results: Results, html: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "render_page", lambda _: html)
    target = tmp_path / "new" / "report.html"
    assert page.write_page(Comparison.from_dict(results), target) == target
    assert target.read_text(encoding="utf-8") == html
    assert [path.name for path in target.parent.iterdir()] == ["report.html"]

    def half(self: Path, text: str, **options: Any) -> int:
        with self.open("w") as file:
            file.write(text[:3])
        raise OSError("disk full")

    def refuse(self: Path, target: Path) -> Path:
        raise OSError("disk full")

    monkeypatch.setattr(page, "render_page", lambda _: "other")
    for name, failure in (("write_text", half), ("replace", refuse)):
        with monkeypatch.context() as patch:
            patch.setattr(Path, name, failure)
            with pytest.raises(OSError, match="disk full"):
                page.write_page(Comparison.from_dict(results), target)
        assert target.read_text(encoding="utf-8") == html
        assert [path.name for path in target.parent.iterdir()] == ["report.html"]

    page.write_page(Comparison.from_dict(results), str(target))
    assert target.read_text(encoding="utf-8") == "other"


def test_failures_and_folders_leave_no_file(results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Comparison) -> str:
        raise ValueError("`runs` must be given")

    monkeypatch.setattr(page, "render_page", fail)
    with pytest.raises(ValueError, match=r"^`runs` must be given"):
        page.write_page(Comparison.from_dict(results), tmp_path / "report.html")
    with pytest.raises(ValueError, match=r"^`path` must be the name of a file"):
        page.write_page(Comparison.from_dict(results), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_same_results_give_the_same_page() -> None:
    results = fake(METHODS[:2], seeds=(0, 1), regions=BINS)
    assert page.render_page(Comparison.from_dict(results)) == page.render_page(
        Comparison.from_dict(copy.deepcopy(results))
    )


# --- figures ---


def assert_readable(figure: Figure) -> None:
    """Every text has at least 7 points, lies inside the figure and on no other text."""
    FigureCanvasAgg(figure).draw()
    texts = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            far = [tick for tick in axis.get_major_ticks() if not low - 1e-9 <= tick.get_loc() <= high + 1e-9]
            hidden = {id(text) for tick in far for text in (tick.label1, tick.label2)}
            texts = [text for text in texts if id(text) not in hidden]
    assert min(text.get_fontsize() for text in texts) >= style.SMALL_SIZE
    boxes = [(text.get_text(), Text.get_window_extent(text)) for text in texts]
    frame = figure.bbox
    assert [n for n, b in boxes if b.x0 < -0.5 or b.y0 < -0.5 or b.x1 > frame.x1 + 0.5 or b.y1 > frame.y1 + 0.5] == []
    pairs = itertools.combinations(boxes, 2)
    assert [(n, m) for (n, a), (m, b) in pairs if a.padded(-0.5).overlaps(b.padded(-0.5))] == []


@WIDTHS
@pytest.mark.parametrize("name", curves.COMPARISON_FIGURES)
def test_figures_can_be_read(results: Results, name: str, width: float) -> None:
    assert_readable(curves.COMPARISON_FIGURES[name](Comparison.from_dict(results), width=width))


@WIDTHS
@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("name", ["belief_histograms", "reliability_diagrams", "risk_coverage_curves"])
def test_fewer_methods_can_be_read(name: str, count: int, width: float) -> None:
    figure = curves.COMPARISON_FIGURES[name](
        Comparison.from_dict(fake(METHODS[:count], seeds=(0,), regions=BINS)), width=width
    )
    assert figure.get_figwidth() <= width + 1e-9
    assert_readable(figure)


def named(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_risk_curves_are_means_over_the_seeds(results: Results) -> None:
    figure = curves.risk_coverage_curves(Comparison.from_dict(results))
    for axes, method in zip(figure.axes, METHODS, strict=True):
        given = [run["risk_curve"] for run in results["runs"] if run["method"] == method]
        best, drawn = axes.lines
        mean = np.mean([each["risk"] for each in given], axis=0)
        np.testing.assert_allclose(drawn.get_ydata(), 100 * mean)
        np.testing.assert_allclose(drawn.get_xdata(), np.linspace(2, 100, 50))
        # the best ranking has the same end, and no error where as many are left out as are wrong
        np.testing.assert_allclose(best.get_ydata()[-1], 100 * mean[-1])
        assert best.get_ydata()[int(50 * (1 - mean[-1])) - 1] == 0
        assert f"AURC {100 * np.mean([each['area'] for each in given]):.2f} ±" in named(axes)[1]


def test_histograms_are_means_over_the_seeds(results: Results) -> None:
    figure = curves.belief_histograms(Comparison.from_dict(results))
    s0 = np.array(results["belief"]["s0"])
    looks = method_styles(METHODS)
    for axes, method in zip(figure.axes, METHODS, strict=True):
        given = np.array([run["histogram"] for run in results["runs"] if run["method"] == method])
        drawn = {c.get_label(): [bar.get_height() for bar in c] for c in axes.containers}
        np.testing.assert_allclose(drawn["predictions"], given.mean(0), rtol=1e-12)
        np.testing.assert_array_equal(drawn["belief s₀"], s0)
        away = np.abs(given - s0).sum(1) / 2
        assert named(axes)[:2] == [method, f"distance {away.mean():.3f} ± {away.std(ddof=1) / math.sqrt(3):.3f}"]
        assert {matplotlib.colors.to_hex(bar.get_facecolor()) for bar in axes.containers[0]} == {looks[method].colour}


def test_reliability_pools_the_seeds_by_count() -> None:
    results = fake(METHODS[:1], seeds=(0, 1))
    first, second = (run["reliability"] for run in results["runs"])
    first |= {"confidence": [None, 0.4, 0.9], "accuracy": [None, 0.1, 0.8], "count": [0, 10, 300]}
    second |= {"confidence": [None, 0.8, 0.9], "accuracy": [None, 0.5, 0.6], "count": [0, 30, 100]}
    diagram, strip = curves.reliability_diagrams(Comparison.from_dict(results)).axes
    _, hollow, full = diagram.lines
    np.testing.assert_allclose(hollow.get_xydata(), [[0.7, 0.4]])  # (10 .4 + 30 .8) / 40; 20 a run are few
    np.testing.assert_allclose(full.get_xydata(), [[0.9, 0.75]])  # (300 .8 + 100 .6) / 400
    assert [bar.get_height() for bar in strip.containers[0]] == [20, 200]


def test_curves_are_means_with_a_band_of_one_error(results: Results) -> None:
    figure = curves.corruption_curves(Comparison.from_dict(results))
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["accuracy, %", "ECE, %", "NLL, nats"]
    for axes, metric, scale in zip(figure.axes, ("accuracy", "ece", "nll"), (100, 100, 1), strict=True):
        for line, band, method in zip(axes.lines, axes.collections, METHODS, strict=True):
            runs = [run["conditions"].values() for run in results["runs"] if run["method"] == method]
            values = scale * np.array([[each["metrics"][metric] for each in run] for run in runs])
            np.testing.assert_allclose(line.get_ydata(), values.mean(0), rtol=1e-12)
            np.testing.assert_array_equal(line.get_xdata(), LEVELS)
            error = values.std(0, ddof=1) / math.sqrt(3)
            drawn = band.get_paths()[0].vertices
            at_end = drawn[drawn[:, 0] == LEVELS[-1], 1]
            np.testing.assert_allclose(at_end.max() - at_end.min(), 2 * error[-1], rtol=1e-9)
    assert sorted(named(figure.axes[-1])) == sorted(METHODS)


def test_entropy_is_pooled_and_a_bar_that_is_cut_says_its_height() -> None:
    results = fake(METHODS[:1], seeds=(0, 1))
    for run, inside in zip(results["runs"], ([90, 5, 5], [70, 25, 5]), strict=True):
        run["entropy"] = {"edges": [0.0, 1.0, 2.0, 2.3], "in": inside, "out": [10, 20, 20]}
    (axes,) = curves.entropy_histograms(Comparison.from_dict(results)).axes
    filled, line = (patch.get_data().values for patch in axes.patches)
    np.testing.assert_allclose(filled, [0.8, 0.15, 0.05])
    np.testing.assert_allclose(line, [0.2, 0.4, 0.4])
    assert axes.get_ylim()[1] == pytest.approx(1.08 * 0.8)  # .8 is not more than twice .4
    for run in results["runs"]:
        run["entropy"]["out"] = [34, 33, 33]
    (axes,) = curves.entropy_histograms(Comparison.from_dict(results)).axes
    assert axes.get_ylim()[1] == pytest.approx(1.25 * 0.34)
    assert "↑ .8" in named(axes)
