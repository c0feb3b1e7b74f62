"""The page of a study is valid, needs nothing from outside, keeps tracks apart, and hides no run."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from markupsafe import escape

import study_fakes as fakes
from selbo_lab.report import study_page, study_tables, study_takeaway
from selbo_lab.report.study_captions import FIGURE_WORDS, TRACK_WORDS
from selbo_lab.report.study_figures import STUDY_FIGURES

pytestmark = pytest.mark.usefixtures("figure_settings")

Results = dict[str, Any]
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """A page that was read: its tags are balanced, its ids different, its references inside."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.tags: list[str] = []
        self.cells: list[str] = []
        self.text = ""
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append(tag)
        self.ids += [values["id"]] if values.get("id") else []
        self.references += [values[key] or "" for key in ("href", "src", "xlink:href") if key in values]
        if tag in {"td", "th"}:
            self.cells.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if "td" in self.open or "th" in self.open:
            self.cells[-1] += data


def both_tracks(methods: Any = fakes.broken, **more: Any) -> Results:
    tracks = [fakes.comparison(methods(suite="noise", ood=("fashion",)), track=t) for t in ("published", "selbo")]
    tracks[1]["classes"] = {"common": 0.9, "rare": 0.1}
    return fakes.study(tracks, **more)


@pytest.fixture(scope="module")
def source() -> str:
    return study_page.render_study_page(fakes.typed(both_tracks()))


def test_the_page_is_balanced_and_needs_nothing_from_outside(source: str) -> None:
    page = Page(source)
    assert len(set(page.ids)) == len(page.ids)
    assert not {"script", "iframe", "object"} & set(page.tags)
    assert all(ref.startswith(("#", "data:")) for ref in page.references)
    assert {ref[1:] for ref in page.references if ref.startswith("#")} <= set(page.ids)
    assert not re.findall(r"@import|url\((?!#)", source)
    assert not re.findall(r'(?:src|href)="https?:', source)


def test_every_number_of_every_table_is_on_the_page(source: str) -> None:
    results = both_tracks()
    cells = {" ".join(re.sub("[★≈]|best|close to the|better|worse", "", cell).split()) for cell in Page(source).cells}
    entries = [
        " ".join(entry.text.split())
        for comparison in fakes.typed(results).comparisons
        for table in study_tables.build_tables(fakes.typed(results), comparison)
        for row in table.rows
        for entry in row[1:]
    ]
    assert len(entries) > 50
    assert any("±" in entry for entry in entries)
    assert [entry for entry in entries if entry not in cells] == []


def test_clear_differences_say_whether_they_are_gains(monkeypatch: pytest.MonkeyPatch) -> None:
    """In colour and in words that are heard; every other entry of the table is left alone."""
    results = both_tracks(fakes.four)
    results["comparisons"][0]["reference"] = "smoothing"
    marks = [
        entry.mark
        for comparison in fakes.typed(results).comparisons
        for table in study_tables.build_tables(fakes.typed(results), comparison)
        if table.name.startswith(("differences", "baselines"))
        for row in table.rows
        for entry in row
    ]
    assert set(marks) == {"better", "worse", ""}
    fakes.without_drawings(monkeypatch)
    source = study_page.render_study_page(fakes.typed(results))
    for kind in ("better", "worse"):
        assert source.count(f'<td class="{kind}"><span class="hidden">{kind}</span>') == marks.count(kind)
    legends = source.count('<span class="chip better" aria-hidden="true">')
    assert legends == sum(
        any(entry.mark == "better" for row in table.rows for entry in row)
        for comparison in fakes.typed(results).comparisons
        for table in study_tables.build_tables(fakes.typed(results), comparison)
    )
    assert "Bold:" not in source  # the legend says it, in colour


def test_every_coloured_table_has_its_legend_right_below(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.without_drawings(monkeypatch)
    results = both_tracks(fakes.four)
    source = study_page.render_study_page(fakes.typed(results))
    tables = re.findall(r"<table>(.*?)</table></div>(<p class=\"legend\">.*?</p>)?", source, re.DOTALL)
    coloured = [(set(re.findall(r'<td class="(best|close|better|worse)\b', body)), key) for body, key in tables]
    assert {frozenset(marks) for marks, _ in coloured} > {frozenset()}
    for marks, key in coloured:
        assert set(re.findall(r'class="chip (\w+)"', key)) - {"plain"} == marks


def test_the_conclusion_and_the_versions_stand_on_top(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.without_drawings(monkeypatch)
    results = both_tracks(fakes.four)
    source = study_page.render_study_page(fakes.typed(results))
    head = source[source.index("<header>") : source.index("</header>")]
    assert head.index("<h1>") < head.index('class="conclusion study"')
    for name, text in study_takeaway.study_takeaways(fakes.typed(results)):
        assert f"<strong>{escape(name[0].upper() + name[1:])}. </strong>{escape(text)}" in head
    assert "Runs: selbo 0.1.0, commit 0123456789ab. This page: selbo " in head
    results["generated"] = True
    assert 'class="conclusion' not in study_page.render_study_page(fakes.typed(results))


def test_titles_are_escaped(source: str) -> None:
    assert "<title>Threes &amp; &lt;fives&gt;</title>" in source
    assert "<fives>" not in source
    assert "<more>" not in source
    assert escape("LS (ε = 0.1) & <more>") in source
    assert "Table 7 &amp; its figure" in source


def test_tracks_are_apart_and_say_what_they_mean(source: str) -> None:
    published, selbo = source.index('id="net-published"'), source.index('id="net-selbo"')
    assert published < source.index(escape(TRACK_WORDS["published"])) < selbo
    assert selbo < source.index(escape(TRACK_WORDS["selbo"]))
    first, second = source[published:selbo], source[selbo:]
    assert "paper&#39;s values and ours" in first
    assert "paper&#39;s values and ours" not in second
    assert set(TRACK_WORDS) == set(study_tables.TRACK_TITLES)


def test_the_page_says_how_many_settings_were_tried(source: str) -> None:
    assert "Of the 2 settings tried for a method" in source
    nothing = fakes.study([fakes.comparison(fakes.four(1)[:2])], seeds=1)
    assert "settings tried" not in study_page.render_study_page(fakes.typed(nothing))


def test_there_is_a_way_to_every_comparison(source: str) -> None:
    assert re.findall(r'<a href="#([^"]+)">', source) == ["net-published", "net-selbo"]
    alone = fakes.study([fakes.comparison(fakes.four(1))], seeds=1)
    assert "<nav" not in study_page.render_study_page(fakes.typed(alone))


def test_runs_that_are_missing_or_diverged_are_named(source: str) -> None:
    text = Page(source).text
    assert "ELBO: seed 1 missing" in text
    assert "LS (ε = 0.1) & <more>: seeds 0, 1, 2 diverged (the loss was not finite at step 7)" in text
    assert "Summary ELBO: seed 0 diverged" in text
    whole = study_page.render_study_page(fakes.typed(fakes.study([fakes.comparison(fakes.four())])))
    assert 'class="warn"' in source
    assert 'class="warn"' not in whole


def test_a_trial_says_that_its_numbers_mean_nothing() -> None:
    results = fakes.study([fakes.comparison(fakes.four(1)[:2])], seeds=1, generated=True)
    trial, real = (study_page.render_study_page(fakes.typed(results | {"generated": each})) for each in (True, False))
    assert trial.index('class="banner"') < trial.index("<section")
    assert study_tables.TRIAL in trial
    assert 'class="banner"' not in real
    assert study_tables.TRIAL not in real


def test_the_page_says_where_the_numbers_come_from(source: str) -> None:
    text = Page(source).text
    assert "selbo 0.1.0, commit 0123456789ab" in text
    assert "python 3.12.1, torch 2.13.0, numpy 2.4.6, scipy 1.17.1" in text
    assert "a machine, 1 thread" in text
    # 12 to 14 s a finished run: two of the first method, two and three of the others; four diverged ones of 1 s
    assert f"{12 + 14 + 13 + 14 + 12 + 13 + 14 + 4 - 60} s for 11 runs" in text.replace("1 min ", "")


def test_versions_that_differ_are_counted() -> None:
    results = fakes.study([fakes.comparison(fakes.four(1))], seeds=1)
    run = results["comparisons"][0]["methods"][0]["runs"][0]
    run["made_by"] = run["made_by"] | {"machine": "another machine", "threads": 2}
    text = Page(study_page.render_study_page(fakes.typed(results))).text
    assert "another machine, 2 threads (1 run); a machine, 1 thread (3 runs)" in text


def test_settings_and_notes_are_there(source: str) -> None:
    text = Page(source).text
    assert "kl weight 0.25" in text
    assert "steps 3000" in text
    results = fakes.study([fakes.comparison(fakes.four(1))], seeds=1)
    results["comparisons"][0]["methods"][0]["note"] = "Not what the paper did."
    assert "Not what the paper did." in Page(study_page.render_study_page(fakes.typed(results))).text


def test_figures_are_drawings_with_a_label(source: str) -> None:
    labels = [unescape(label) for label in re.findall(r'<svg viewBox="[^"]+" role="img" aria-label="([^"]+)"', source)]
    assert len(labels) == 2 * 4 + 1
    assert any("For rare, the rarest, on the clean test set, recall, %: ELBO 80," in label for label in labels)
    assert any("Fashion & co" in label for label in labels)
    assert any("NLL: ELBO 0.51" in label for label in labels)  # 0.21 on average over the seeds, and a harm of 0.3
    assert set(STUDY_FIGURES) == set(FIGURE_WORDS)


def test_figures_are_folded_where_there_are_many_comparisons() -> None:
    methods = [fakes.method(0, "elbo", "ELBO", seeds=1), fakes.method(1, "other", "other", seeds=1)]
    many = [fakes.comparison(methods, variant=f"net {i}", title=f"Net {i}") for i in range(3)]
    question = "Can the stated confidence be trusted?"
    page = study_page.render_study_page(fakes.typed(fakes.study(many, seeds=1)))
    assert page.count(f"<summary>{question}</summary>") == 3
    assert f"<h3>{question}</h3>" in study_page.render_study_page(fakes.typed(fakes.study(many[:2], seeds=1)))
    assert len(set(Page(page).ids)) == len(Page(page).ids)


@pytest.mark.parametrize("results", [fakes.scores_study(), fakes.sweep_study()], ids=["scores", "alpha"])
def test_studies_of_the_paper_s_figures_have_pages(results: Results) -> None:
    page = Page(study_page.render_study_page(fakes.typed(results)))
    question = "What a belief does" if results["study"] == "scores" else "How much does the setting matter?"
    assert question in page.text


def test_a_study_that_has_not_begun_has_a_page() -> None:
    methods = fakes.four()
    for method in methods:
        method["runs"] = [None, None, None]
    page = Page(study_page.render_study_page(fakes.typed(fakes.study([fakes.comparison(methods, track="published")]))))
    assert "No run of this comparison is there yet." in page.text
    assert "figure" not in page.tags
    assert "0 of 12" in page.text


def test_the_page_is_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = fakes.study([fakes.comparison(fakes.four(1)[:1])], seeds=1)
    target = tmp_path / "new" / "report.html"
    assert study_page.write_study_page(fakes.typed(results), target) == target
    before = target.read_bytes()
    assert before.decode("utf-8").startswith("<!doctype html>")
    assert [path.name for path in target.parent.iterdir()] == ["report.html"]

    def fail(*_: object) -> str:
        raise RuntimeError("no")

    monkeypatch.setattr(study_page, "_comparison", fail)
    with pytest.raises(RuntimeError, match="no"):
        study_page.write_study_page(fakes.typed(results), target)
    assert target.read_bytes() == before
    with pytest.raises(ValueError, match="is a folder"):
        study_page.write_study_page(fakes.typed(results), tmp_path)


def test_the_same_results_are_the_same_page() -> None:
    results = fakes.study([fakes.comparison(fakes.four(1)[2:3])], seeds=1)
    assert study_page.render_study_page(fakes.typed(results)) == study_page.render_study_page(fakes.typed(results))


def test_what_stands_for_a_picture_has_the_titles_of_methods() -> None:
    words = FIGURE_WORDS["corruption"](fakes.typed(fakes.comparison(fakes.four(suite="noise"))))
    assert "Summary ELBO (expected accuracy, shells) " in words.spoken


def test_templates_escape_every_value() -> None:
    sources = [path.read_text(encoding="utf-8") for path in Path(study_page.__file__).parents[1].rglob("*.html")]
    assert sources
    assert [each for each in sources if re.search(r"\|\s*safe|autoescape", each)] == []
