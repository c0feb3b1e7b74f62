"""Tables of a study hold the numbers that were computed by hand, in every format, and say what is missing."""

from __future__ import annotations

import contextlib
import csv
import io
import sys
from pathlib import Path
from typing import Any

import pytest

from selbo.report import comparison
from selbo_lab.report import study_tables, table_files
from selbo_lab.report.study_tables import Entry, Head, StudyTable
from study_fakes import typed

with contextlib.suppress(ModuleNotFoundError):
    import rich.console  # here, because importing rich draws from the global `random`, which is watched around tests

Plain = dict[str, Any]

MADE_BY = {"selbo": "0.1.0", "code": None, "machine": "x86_64", "time": "2026-01-02T03:04:05Z"}
DIVERGED: Plain = {"status": "diverged", "error": "NaN", "made_by": MADE_BY, "seconds": {"all": 1.0}}


def run(nll: float | None, *, scaled: float = 0.125) -> Plain:
    def condition(level: float | None, number: float | None) -> Plain:
        metrics = {"nll": number, "accuracy": 0.875, "ece": 0.02, "brier": 0.125}
        return {"level": level, "metrics": metrics, "scaled": metrics | {"nll": scaled}}

    far = {"entropy_in": 0.1, "entropy_out": 0.6, "entropy_difference": 0.5, "auroc": 0.75}
    return {
        "status": "finished",
        "made_by": MADE_BY,
        "seconds": {"all": 9.0, "training": 5.0, "evaluation": 1.0},
        "conditions": {"clean": condition(0.0, nll), "fog 1": condition(None, 1.5), "fog 2": condition(None, 2.5)},
        "ood": {"svhn": {"name": "SVHN, digits", **far, "scaled": far}},
    }


def method(name: str, title: str, *runs: Plain | None, **more: Any) -> Plain:
    return {"name": name, "title": title, "note": "", "chosen": {}, "tried": [], "runs": list(runs), **more}


def small(track: str = "published", **more: Any) -> Plain:
    """Clean NLL: .4 (SE .1) for the reference, .25 (SE .05) for the other, of the third one run of three diverged."""
    methods = [
        method("elbo", "ELBO", run(0.2), run(0.5), run(0.5), note="A note."),
        method("summary", "S_ELBO & 50 %", run(0.15), run(0.3), run(0.3)),
        method("bad", "a | b", run(0.1), DIVERGED, run(0.1)),
    ]
    comparison = {"variant": "v", "title": "A task", "track": track, "reference": "elbo", "methods": methods}
    whole = {"study": "s", "title": "A study", "paper": "Table 9", "generated": False, "seeds": [0, 1, 2]}
    return {**whole, "comparisons": [comparison | {"data": {"name": "sst"}, "paper": {}} | more]}


PAPER: Plain = {
    "caveat": "Mind the encoder.",
    "elbo": {
        "values": {"clean.nll": [0.341, 0.024], "clean.accuracy": [0.5, 0.001], "ood.fashion.entropy_in": [0.1, 0.01]},
        "not_comparable": {},
    },
    "summary": {
        "values": {"clean.nll": [0.288, 0.002], "corrupted.nll": [0.9, 0.1], "ood.fashion.entropy_in": [0.2, 0.01]},
        "not_comparable": {"corrupted": "Ten images.", "ood": "Exchanged."},
    },
    "bad": {"values": {"clean.nll": [0.3, 0.01]}},
}


def tables(results: Plain) -> dict[str, StudyTable]:
    made = typed(results)
    return {table.name: table for table in study_tables.build_tables(made, made.comparisons[0])}


def column(table: StudyTable, head: str, group: str = "clean") -> list[Entry]:
    place = table.heads.index(Head(head, group))
    return [row[place] for row in table.rows]


def parsed(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


# --- what stands in the tables ---


def test_which_tables_there_are() -> None:
    assert list(tables(small())) == ["scores", "ood", "differences", "settings"]
    assert list(tables(small(paper=PAPER))) == ["scores", "ood", "differences", "paper", "settings"]
    scaled = ["scores-temperature", "ood-temperature", "differences", "differences-temperature"]
    assert list(tables(small("selbo"))) == ["scores", "ood", *scaled, "settings"]
    for table in tables(small("selbo", paper=PAPER)).values():
        assert {len(row) for row in table.rows} == {len(table.heads)} == {len(table.align)}
        assert table.raw


def test_the_table_of_scores() -> None:
    table = tables(small())["scores"]
    assert column(table, "NLL ↓") == [
        Entry("0.400", error="± 0.100"),
        Entry("0.250", "best", "± 0.050"),
        Entry("0.100", error="± 0.000", note="(1 of 3 diverged)"),
    ]
    assert column(table, "NLL ↓", "corrupted")[0].text == "2.000 ± 0.000"
    assert [entry.text for entry in column(table, "accuracy, % ↑")][:2] == ["87.5 ± 0.0", "87.5 ± 0.0"]
    assert "Corrupted: mean over 2 conditions of a run." in table.notes
    assert "ELBO: A note." in table.notes
    assert "Seeds 0–2; 9 runs, 1 diverged; selbo 0.1.0; on x86_64; 2026-01-02." in table.notes


@pytest.mark.parametrize(
    ("evaluation", "noted"),
    [
        ({"draws": 128, "corrupted_draws": 8}, True),
        ({"draws": 128, "corrupted_draws": 128}, False),
        ({"draws": 128, "corrupted_draws": 0}, False),
    ],
)
def test_other_numbers_of_samples_are_told(evaluation: Plain, noted: bool) -> None:
    corrupted = "Bayesian networks predict corrupted inputs with 8 weight samples, clean ones with 128."
    results = small(evaluation=evaluation, paper=PAPER, classes={"a": 0.5}, focus="summary")
    for method in results["comparisons"][0]["methods"]:
        for run in method["runs"]:
            for condition in run.get("conditions", {}).values():
                condition["recall"] = [0.9]
            run["sizes"] = {"test": 10}
    names = {name for name, table in tables(results).items() if corrupted in table.notes}
    assert names == ({"scores", "recall-corrupted", "differences", "baselines", "paper"} if noted else set())
    ood = {name for name, table in tables(results).items() if any("OOD inputs with 8" in each for each in table.notes)}
    assert ood == ({"ood", "paper"} if noted else set())
    for method in results["comparisons"][0]["methods"]:
        for run in method["runs"]:
            for found in run.get("ood", {}).values():
                found["draws"] = {"in": 128, "out": 128}
    assert not any("OOD inputs with" in note for table in tables(results).values() for note in table.notes)


def test_a_table_with_the_noise_of_the_paper_has_the_whole_range_beside_it() -> None:
    results = small("selbo", paper_noise=0.5, focus="summary")
    for each in results["comparisons"][0]["methods"]:
        for m, made in enumerate(each["runs"]):
            if made and made["status"] == "finished":
                made["conditions"]["noise 0.4"] = made["conditions"].pop("fog 1") | {"level": 0.4}
                made["conditions"]["noise 0.9"] = made["conditions"].pop("fog 2") | {"level": 0.9}
                for condition in list(made["conditions"].values())[1:]:
                    condition["metrics"] = condition["metrics"] | {"nll": condition["level"] + 0.01 * m}
    found = tables(results)
    note = "Noise ≤ 0.5, the range that the paper shows: mean over 1 strengths of a run; ≤ 0.9: over all 2."
    for name in ("scores", "scores-temperature", "differences", "differences-temperature", "baselines"):
        groups = [head.group for head in found[name].heads[1:]]
        assert list(dict.fromkeys(groups)) == ["clean", "noise ≤ 0.5", "noise ≤ 0.9"], name
        assert groups.count("noise ≤ 0.5") == groups.count("noise ≤ 0.9")
        assert note in found[name].notes
    assert column(found["scores"], "NLL ↓", "noise ≤ 0.5")[0].text == "0.410 ± 0.006"
    assert column(found["scores"], "NLL ↓", "noise ≤ 0.9")[0].text == "0.660 ± 0.006"
    assert {row["column"] for row in found["scores"].raw} >= {"corrupted ≤ 0.5.nll", "corrupted.nll"}
    text = printed(results)
    assert [each.strip() for each in text.splitlines()[1].split("noise")[1:]] == ["≤ 0.5", "≤ 0.5", "≤ 0.9"]


def test_a_row_for_each_corruption() -> None:
    results = small()
    assert "corruptions" not in tables(results), "there is one kind"
    for m, each in enumerate(results["comparisons"][0]["methods"]):
        for made in each["runs"]:
            if made["status"] == "finished":
                for s in (1, 2):
                    snow = {"nll": 1.0 - 0.25 * m + 0.5 * s, "accuracy": 0.5, "ece": 0.1}
                    made["conditions"][f"light_snow {s}"] = {"level": None, "metrics": snow, "scaled": snow}
    table = tables(results)["corruptions"]
    assert [head.label for head in table.heads] == ["corruption", "ELBO", "S_ELBO & 50 %", "a | b"]
    assert [entry.text for entry in table.rows[0]][:2] == ["fog", "2.000 ± 0.000"]
    assert table.rows[1][:3] == [
        Entry("light snow"),
        Entry("1.750", error="± 0.000"),
        Entry("1.500", "best", "± 0.000"),
    ]
    assert table.rows[1][3].mark == "", "a run of it diverged"
    assert "best of its row" in table.notes[0]
    assert "Mean over 2 strengths of a run." in table.notes[0]
    assert table.raw[0] | {"method": "elbo", "column": "fog.nll", "conditions": 2, "mean": 2.0} == table.raw[0]


def test_a_title_says_what_was_tested() -> None:
    results = small()
    assert tables(results)["scores"].title.endswith(": clean and corrupted test sets")
    for method in results["comparisons"][0]["methods"]:
        for run in method["runs"]:
            if "conditions" in run:
                run["conditions"] = {"clean": run["conditions"]["clean"]}
    assert tables(results)["scores"].title.endswith(": test set")
    assert {head.group for head in tables(results)["scores"].heads} == {"", "test"}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fashion test", "test images of FashionMNIST"),
        ("fashion test, as cifar", "test images of FashionMNIST in the form of CIFAR-10's"),
        ("svhn test", "test images of SVHN"),
        ("generated data in the shape of cifar10, foreign", "generated data in the shape of cifar10, foreign"),
    ],
)
def test_inputs_from_elsewhere_are_named_in_words(name: str, words: str) -> None:
    results = small()
    for method in results["comparisons"][0]["methods"]:
        for run in method["runs"]:
            for found in run.get("ood", {}).values():
                found["name"] = name
    assert any(note.endswith(f": {words}. Entropies in nats.") for note in tables(results)["ood"].notes)


def test_temperature_scaling_has_its_own_numbers() -> None:
    found = tables(small("selbo"))
    assert column(found["scores-temperature"], "NLL ↓")[0].text == "0.125 ± 0.000"
    assert {row["prediction"] for row in found["scores-temperature"].raw} == {"temperature"}
    assert {row["prediction"] for row in found["scores"].raw} == {"as predicted"}
    zero = [row for row in found["differences-temperature"].raw if row["column"] == "clean.nll"]
    assert [row["mean"] for row in zero] == [0.0, 0.0]


def test_the_tables_of_recall_are_there_where_classes_are_rare() -> None:
    results = small(classes={"common": 0.9, "rare": 0.1, "absent": 0.0})
    for each in results["comparisons"][0]["methods"]:
        for i, found in enumerate(run for run in each["runs"] if run and run["status"] == "finished"):
            found["sizes"] = {"test": 50}
            found["conditions"]["clean"]["recall"] = [0.9, 0.25 * i if each["name"] == "elbo" else 0.75, None]
            found["conditions"]["fog 1"]["recall"] = found["conditions"]["fog 2"]["recall"] = [0.5, 0.0, None]
    found = tables(results)
    assert list(found) == ["scores", "ood", "recall", "recall-corrupted", "differences", "settings"]
    clean = found["recall"]
    titles = [method["title"] for method in results["comparisons"][0]["methods"]]
    assert [head.label for head in clean.heads] == ["class", "share, %", "test examples", *titles]
    common, rare = clean.rows  # of the third class there is no example
    assert [entry.text for entry in common[:3]] == ["common", "90", "45"]
    assert rare == [
        *(Entry(text) for text in ("rare", "10", "5")),
        Entry("25.0", error="± 14.4"),
        Entry("75.0", "best", "± 0.0"),
        Entry("75.0", error="± 0.0", note="(1 of 3 diverged)"),
    ]
    assert "Bold: best of its row" in clean.notes[0]
    assert [(row["class"], row["column"]) for row in clean.raw[::3]] == [
        ("common", "clean.recall 0"),
        ("rare", "clean.recall 1"),
    ]
    corrupted = found["recall-corrupted"]
    assert [row["mean"] for row in corrupted.raw] == [0.5, 0.5, 0.5, 0.0, 0.0, 0.0]
    assert [entry.mark for entry in corrupted.rows[0][3:]] == ["best", "best", ""]
    assert not any(entry.mark for entry in corrupted.rows[1])  # nobody found one


def test_every_difference_that_is_shown_is_a_gain_or_a_loss() -> None:
    assert all(comparison.direction(each.metric) for each in study_tables.DIFFERENCES)


def test_the_table_of_differences() -> None:
    table = tables(small())["differences"]
    # differences -.05, -.2, -.2: mean -.15, standard error .05, and 4.3027 of them on each side
    assert [row[0].text for row in table.rows] == ["S_ELBO & 50 %", "a | b"]
    assert column(table, "NLL ↓")[0] == Entry("−0.1500", error="[−0.3651, +0.0651]")
    assert column(table, "NLL ↓")[1].text.endswith("(2 of 3 pairs)")
    sure = small()
    for i, each in enumerate((0.1, 0.41, 0.42)):
        sure["comparisons"][0]["methods"][1]["runs"][i] = run(each)
    assert column(tables(sure)["differences"], "NLL ↓")[0].mark == "better"
    for i in range(3):
        sure["comparisons"][0]["methods"][1]["runs"][i] = run(1.0 + i / 100)
    assert column(tables(sure)["differences"], "NLL ↓")[0].mark == "worse"
    assert "| **+0.6100 [" in table_files.markdown(tables(sure)["differences"])
    (raw,) = [row for row in table.raw if (row["method"], row["column"]) == ("summary", "clean.nll")]
    assert raw["mean"] == pytest.approx(-0.15)
    assert raw["standard_error"] == pytest.approx(0.05)
    assert (raw["reference"], raw["pairs"], raw["seeds"]) == ("elbo", 3, 3)


def test_the_table_of_baselines() -> None:
    """NLL .15, .3, .3 of the method in focus, always .125 of a baseline after temperature scaling."""
    published, ours = (tables(small(track, focus="summary")) for track in ("published", "selbo"))
    assert [row[0].text for row in published["baselines"].rows] == ["ELBO", "a | b"]
    rows = [row[0].text for row in ours["baselines"].rows]
    assert rows == ["ELBO", "ELBO, temperature", "a | b", "a | b, temperature"]
    nll = column(ours["baselines"], "NLL ↓")
    assert nll[0] == Entry("−0.1500", error="[−0.3651, +0.0651]")
    assert nll[1].text.startswith("+0.1250 [")
    (raw,) = [
        row
        for row in ours["baselines"].raw
        if (row["baseline"], row["prediction_of_baseline"], row["column"]) == ("elbo", "temperature", "clean.nll")
    ]
    assert raw["method"] == "summary"
    assert raw["mean"] == pytest.approx(0.125)
    assert "baselines" not in tables(small("selbo", focus=""))


def test_the_table_of_the_paper() -> None:
    table = tables(small(paper=PAPER))["paper"]
    assert [[entry.text for entry in row] for row in table.rows] == [
        ["ELBO", "clean NLL", "0.341 ± 0.024", "0.400 ± 0.100", "+0.059", "yes [1]"],
        ["ELBO", "clean accuracy, %", "50.0 ± 0.1", "87.5 ± 0.0", "+37.5", "no [1]"],
        ["ELBO", "against fashion entropy in", "0.100 ± 0.010", "–", "–", "not measured"],
        ["S_ELBO & 50 %", "clean NLL", "0.288 ± 0.002", "0.250 ± 0.050", "−0.038", "yes [1]"],
        ["S_ELBO & 50 %", "corrupted NLL", "0.900 ± 0.100", "2.000 ± 0.000", "–", "cannot be compared [2]"],
        ["S_ELBO & 50 %", "against fashion entropy in", "0.200 ± 0.010", "–", "–", "cannot be compared [3]"],
        ["a | b", "clean NLL", "0.300 ± 0.010", "0.100 ± 0.000 (1 of 3 diverged)", "−0.200", "1 of 3 diverged"],
    ]
    assert table.notes[1:4] == ["[1] Mind the encoder.", "[2] Ten images.", "[3] Exchanged."]
    assert "1.96 times its published standard error" in table.notes[0]
    assert [row["overlap"] for row in table.raw] == [True, False, None, True, None, None, None]
    assert [row["reason"] for row in table.raw][2:] == [
        "not measured",
        None,
        "Ten images.",
        "Exchanged.",
        "1 of 3 diverged",
    ]


def test_overlaps_are_counted_without_evidential_learning() -> None:
    paper = {"elbo": PAPER["elbo"], "summary": {"values": {"clean.nll": [0.288, 0.002]}}}
    results = small(paper=paper)
    note = "Intervals overlap for 2 of 3 values that can be compared"
    assert f"{note}." in tables(results)["paper"].notes
    edl = results["comparisons"][0]["methods"][1]
    edl["recipe"] = {"objective": "evidential"}
    note = "Intervals overlap for 1 of 2 values that can be compared, evidential learning left out (there 1 of 1"
    assert f"{note})." in tables(results)["paper"].notes
    edl["runs"][0]["conditions"]["clean"]["recall"] = [0.0, 1.0]
    why = "1 of 3 runs predict one class only, and so wide an interval overlaps with nearly anything"
    assert f"{note}; {why})." in tables(results)["paper"].notes


def test_without_a_caveat_nothing_is_marked() -> None:
    table = tables(small(paper={"elbo": PAPER["elbo"]}))["paper"]
    assert [row[-1].text for row in table.rows] == ["yes", "no", "not measured"]
    assert not any(note.startswith("[") for note in table.notes)


def test_the_table_of_settings() -> None:
    results = small("selbo")
    tried = [
        {"weight_decay": 0.0, "steps": 5, "val_nll": 0.5},
        {"weight_decay": 0.001, "steps": 5, "val_nll": 0.4},
        {"weight_decay": 0.01, "steps": 5, "val_nll": None},
    ]
    results["comparisons"][0]["methods"][0] |= {"tried": tried, "chosen": {"weight_decay": 0.001, "steps": 5}}
    table = tables(results)["settings"]
    assert [entry.text for entry in table.rows[0]] == [
        "ELBO",
        "weight decay 0.001; steps 5",
        "0.4000",
        "0.4000–0.5000",
        "3: weight decay 0, 0.001, 0.01; steps 5; 1 diverged or missing",
        "5.0",
    ]
    assert [entry.text for entry in table.rows[2]][1:] == ["–", "–", "–", "nothing", "5.0 (1 of 3 diverged)"]
    results["comparisons"][0]["methods"][2] |= {"chosen": {"weight_decay": 0.001}, "chosen_with": "plain"}
    again = tables(results)["settings"].rows[2]
    assert [entry.text for entry in again][1:5] == ["weight decay 0.001", "–", "–", "as plain"]
    assert [row["chosen"] for row in table.raw if row["method"] == "elbo"] == [False, True, False]


def test_one_seed_and_runs_that_are_not_there() -> None:
    results = small() | {"seeds": [0]}
    for each in results["comparisons"][0]["methods"]:
        each["runs"] = each["runs"][:1]
    results["comparisons"][0]["methods"][1]["runs"] = [None]
    found = tables(results)
    assert [entry.text for entry in column(found["scores"], "NLL ↓")] == ["0.200", "– (1 of 1 missing)", "0.100"]
    assert found["scores"].notes[0].startswith("One seed.")
    assert [entry.text for entry in column(found["differences"], "NLL ↓")] == ["– (0 of 1 pairs)", "−0.1000"]
    for each in results["comparisons"][0]["methods"]:
        each["runs"] = [None]
    assert list(tables(results)) == ["settings"]


@pytest.mark.parametrize("track", ["published", "selbo"])
def test_every_table_of_a_trial_says_so(track: str, tmp_path: Path) -> None:
    results = small(track, paper=PAPER) | {"generated": True}
    made = tables(results)
    assert all(study_tables.TRIAL in table.notes for table in made.values())
    assert all(row["data"] == "generated" for table in made.values() for row in table.raw)
    for path in table_files.write_tables(typed(results), tmp_path):
        text = path.read_text(encoding="utf-8")
        count = len(made) if path.suffix != ".csv" else 0
        assert text.count(study_tables.TRIAL) == count
    assert not any(study_tables.TRIAL in table.notes for table in tables(small(track)).values())


# --- formats ---


def awkward() -> StudyTable:
    heads = [Head("method"), Head("NLL ↓", "a_b"), Head("ECE, %", "a_b"), Head("x", "c")]
    row = [Entry(r"A & B_1 {50 %} #2 $3 ~^\ <>|*"), Entry("0.1", "best", "± 0.2"), Entry("−3–4", "close"), Entry("[1]")]
    return StudyTable(
        "t", "On A & B", "", heads, [row], "lrrr", ["A note_1 | 2.", "Another."], [{"a": 1, "b": 'x,"y"'}]
    )


def test_markdown() -> None:
    assert table_files.markdown(awkward()) == (
        "| method | a\\_b NLL ↓ | a\\_b ECE, % | c x |\n"
        "| :--- | ---: | ---: | ---: |\n"
        "| A & B\\_1 {50 %} #2 $3 ~^\\\\ \\<>\\|\\* | **0.1 ± 0.2** | *−3–4* | [1] |\n"
        "\n"
        "A note\\_1 \\| 2.  \n"
        "Another.\n"
    )


def test_latex() -> None:
    lines = table_files.latex(awkward(), "tab:t").splitlines()
    assert r"\caption{On A \& B.}" in lines
    assert r"\label{tab:t}" in lines
    assert r"\begin{tabular}{lrrr}" in lines
    top = lines.index(r"\toprule")
    assert lines[top + 1 : top + 6] == [
        r" & \multicolumn{2}{c}{a\_b} & \multicolumn{1}{c}{c} \\",
        r"\cmidrule(lr){2-3} \cmidrule(lr){4-4}",
        r"method & NLL $\downarrow$ & ECE, \% & x \\",
        r"\midrule",
        r"A \& B\_1 \{50 \%\} \#2 \$3 \textasciitilde{}\textasciicircum{}\textbackslash{} $<$$>$|* & "
        r"\textbf{0.1 $\pm$ 0.2} & \textit{$-$3--4} & [1] \\",
    ]
    assert table_files.latex(awkward()).isascii()
    two = awkward()._replace(heads=[Head("m"), Head("n"), Head("x", "g"), Head("y", "g")])
    assert r" &  & \multicolumn{2}{c}{g} \\" in table_files.latex(two).splitlines()
    assert r"\label" not in table_files.latex(awkward())


@pytest.mark.parametrize("track", ["published", "selbo"])
def test_latex_is_balanced_and_its_rows_are_of_one_length(track: str) -> None:
    for table in tables(small(track, paper=PAPER)).values():
        text = table_files.latex(table)
        assert text.isascii()
        bare = text.replace(r"\{", "").replace(r"\}", "").replace(r"\&", "").replace(r"\$", "")
        assert bare.count("{") == bare.count("}")
        assert bare.count("$") % 2 == 0
        body = bare[bare.index(r"\midrule") : bare.index(r"\bottomrule")].splitlines()[1:]
        assert [row.count("&") for row in body] == [len(table.heads) - 1] * len(table.rows)


def test_csv_is_read_back(tmp_path: Path) -> None:
    assert parsed(table_files.comma_separated([awkward()])) == [{"a": "1", "b": 'x,"y"'}]
    results = small(paper=PAPER)
    second = small(variant="w")["comparisons"][0]
    results["comparisons"].append(second)
    written = {path.name: path for path in table_files.write_tables(typed(results), tmp_path)}
    rows = parsed(written["published-scores.csv"].read_text(encoding="utf-8"))
    keys = [(row["variant"], row["method"], row["column"]) for row in rows]
    assert len(set(keys)) == len(keys)
    wanted = {"clean", "corrupted"}
    assert {column for *_, column in keys} == {f"{p}.{m}" for p in wanted for m in ("nll", "accuracy", "ece", "brier")}
    found = {row["method"]: row for row in rows if (row["variant"], row["column"]) == ("v", "clean.nll")}
    assert float(found["elbo"]["mean"]) == pytest.approx(0.4, rel=1e-12)
    assert float(found["elbo"]["standard_error"]) == pytest.approx(0.1, rel=1e-12)
    assert [found["bad"][key] for key in ("runs", "seeds", "diverged", "missing")] == ["2", "3", "1", "0"]
    (paper,) = [row for row in parsed(written["published-paper.csv"].read_text()) if row["reason"] == "Ten images."]
    assert (paper["paper_mean"], paper["difference"], paper["overlap"]) == ("0.9", "", "")


def test_files_of_a_study(tmp_path: Path) -> None:
    results = small(paper=PAPER)
    results["comparisons"] += [small("selbo")["comparisons"][0], small(variant="w")["comparisons"][0]]
    folder = tmp_path / "made" / "here"
    written = table_files.write_tables(typed(results), folder)
    assert sorted(written) == sorted(folder.iterdir())
    kinds = ("scores", "ood", "differences", "paper", "settings")
    assert {path.name for path in written if path.name.startswith("published")} == {
        "published.md",
        "published.tex",
        *(f"published-{kind}.csv" for kind in kinds),
    }
    text = (folder / "published.md").read_text(encoding="utf-8")
    assert text.startswith("# A study: settings of the paper's code\n\nIn the paper: Table 9.\n")
    assert text.count("\n## A task, settings of the paper's code: ") == 5 + 4
    assert "our settings" not in text, "tracks are kept apart"
    labels = [line for line in (folder / "published.tex").read_text().splitlines() if line.startswith(r"\label")]
    assert len(set(labels)) == len(labels) == 9
    before = {path: path.read_bytes() for path in written}
    assert {path: path.read_bytes() for path in table_files.write_tables(typed(results), folder)} == before


# --- the console ---


def printed(results: Plain, width: int = 80) -> str:
    pytest.importorskip("rich")
    text = io.StringIO()
    console = rich.console.Console(file=text, width=width, color_system=None)
    console.print(study_tables.terminal_table(typed(results).comparisons[0], typed(results), width=width))
    return text.getvalue()


def test_the_console_shows_the_main_numbers() -> None:
    results = small() | {"generated": True}
    results["comparisons"][0]["methods"][0]["title"] = "A method with a name that is much too long for a line of this"
    text = printed(results)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].strip() == "A task, settings of the paper's code"
    assert lines[1].split() == ["clean", "clean", "clean", "corrupted", "corrupted"]
    assert lines[2].split() == ["method", "NLL", "acc.,", "%", "ECE,", "%", "NLL", "ECE,", "%"]
    assert ".250±.050*" in text
    assert ".100±.000†" in text
    flat = " ".join(text.split())
    assert "† a | b: 1 of 3 diverged." in flat
    assert "Mean ± standard error over 3 seeds. * best of its column." in flat
    assert study_tables.TRIAL in flat


def test_the_console_without_any_run() -> None:
    results = small()
    for each in results["comparisons"][0]["methods"]:
        each["runs"] = [None] * 3
    assert "0 of 9 runs, 9 missing." in " ".join(printed(results).split())


def test_the_console_needs_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'selbo\[cli\]'"):
        study_tables.terminal_table(typed(small()).comparisons[0], typed(small()))
