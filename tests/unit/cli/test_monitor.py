"""`selbo monitor`: exit codes, what is kept between runs, and every kind of bad input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from command_line import Run, run_command
from selbo.cli.monitor import CONTRADICTED


@pytest.fixture
def selbo(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """The command, in this process and in a folder of its own."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    return run_command(monkeypatch, capsys, "monitor")


def write_day(name: str, *, right: float, rows: int = 100, seed: int = 0, swap: bool = False) -> Path:
    """Answers of which a share is right, with all labels."""
    generator = np.random.default_rng(seed)
    spam = generator.random(rows) < 0.3
    wrong = np.arange(rows) >= round(right * rows)
    score = np.where(spam ^ wrong, 0.9, 0.1) + generator.uniform(-0.09, 0.09, rows)
    columns = {"spam": score, "ham": 1 - score, "truth": np.where(spam, "spam", "ham"), "day": [name] * rows}
    frame = pl.DataFrame({**columns, "id": np.arange(rows)})
    frame = frame.select(["truth", "ham", "spam", "day", "id"]) if swap else frame
    frame.write_csv(f"{name}.csv")
    return Path(f"{name}.csv")


STATED = ("--accuracy", 0.95, "--labels", "truth", "--state", "state.json")


def test_a_stream_that_turns_bad_changes_the_exit_code(selbo: Run) -> None:
    codes = []
    for day, right in enumerate((0.95, 0.95, 0.7, 0.7, 0.7, 0.95)):
        path = write_day(f"day{day}", right=right, seed=day, swap=day % 2 == 1)
        report = ("--report", "page.html") if day == 5 else ()  # it takes longer than the rest
        shown = selbo(path, *STATED, "--by", "day", *report)
        codes.append(shown.code)
        assert f"{100 * (day + 1)}, 100 of them new" in shown.out
    assert codes[:2] == [0, 0]
    assert codes[-1] == CONTRADICTED == codes[4]  # an alarm stays
    assert "the stream contradicts the belief, first in day" in shown.out
    assert "against the accuracy" in " ".join(shown.out.split())
    assert all(len(line) <= 80 for line in shown.out.splitlines())
    page = Path("page.html").read_text(encoding="utf-8")
    assert "The stream contradicts the belief, first in day" in page
    assert page.count("<svg") == 2
    assert not list(Path().glob(".*"))  # no lock is left


def test_restarts_find_a_change_after_many_good_days_and_name_the_first_bad_one(selbo: Run) -> None:
    days = [(0.95, f"good{k}") for k in range(40)] + [(0.8, f"bad{k}") for k in range(3)]
    whole = pl.concat([pl.read_csv(write_day(name, right=right, seed=k)) for k, (right, name) in enumerate(days)])
    whole.head(2000).write_csv("first.csv")
    whole.write_csv("both.csv")
    stated = ("--accuracy", 0.95, "--concentration", 1e4, "--labels", "truth", "--by", "day")
    assert selbo("both.csv", *stated).code == 0
    assert selbo("first.csv", *stated, "--state", "state.json", "--restarts").code == 0
    whole.tail(-2000).write_csv("second.csv")
    shown = selbo("second.csv", "--labels", "truth", "--by", "day", "--state", "state.json")  # the file knows
    assert shown.code == CONTRADICTED
    assert "against the accuracy, from bad0 on" in " ".join(shown.out.split())
    assert "first in bad" in shown.out


def test_restarts_begin_with_the_first_file(selbo: Run) -> None:
    assert selbo(write_day("day", right=0.95), *STATED).code == 0
    shown = selbo(write_day("other", right=0.95), *STATED, "--restarts")
    assert shown.code == 2
    assert "`--restarts` must be given from the first file on, but 'state.json' was begun" in shown.err


def test_the_evidence_does_not_depend_on_how_rows_arrive(selbo: Run) -> None:
    whole = pl.concat([pl.read_csv(write_day(f"part{k}", right=0.9, rows=40, seed=k)) for k in range(3)])
    whole.write_csv("whole.csv")
    totals = []
    for state, files in (("one.json", ["whole"]), ("three.json", ["part0", "part1", "part2"])):
        for name in files:
            options = ("--accuracy", 0.8, "--class-fractions", "spam=0.3,ham=0.7", "--labels", "truth")
            assert selbo(f"{name}.csv", *options, "--state", state).code == 0
        totals.append(json.loads(Path(state).read_text())["seen"])
    assert totals[0]["counts"] == totals[1]["counts"]


def test_files_without_names_of_columns(selbo: Run) -> None:
    for name, seed in (("old", 0), ("new", 1)):
        frame = pl.read_csv(write_day(name, right=0.9, seed=seed)).select("day", "spam", "ham")
        frame.write_csv(f"{name}-bare.csv", include_header=False)
        frame.write_csv(f"{name}.csv")
    named = selbo("new.csv", "--reference", "old.csv", "--state", "named.json")
    bare = selbo("new-bare.csv", "--reference", "old-bare.csv", "--no-header", "--state", "bare.json")
    assert (named.code, bare.code) == (0, 0)
    assert "100, 100 of them new" in bare.out
    seen = [json.loads(Path(f"{each}.json").read_text())["seen"] for each in ("named", "bare")]
    assert seen[0]["counts"] == seen[1]["counts"]
    by_day = ("--no-header", "--columns", "2,3", "--by", "1", "--state", "by-day.json")
    assert selbo("new-bare.csv", "--reference", "old-bare.csv", *by_day).code == 0
    assert [each["name"] for each in json.loads(Path("by-day.json").read_text())["batches"]] == ["new"]
    lost = selbo("new-bare.csv", "--reference", "old-bare.csv", "--no-header", "--by", "date")
    assert lost.code == 2
    assert "columns are called by position, column_1 to column_3" in " ".join(lost.err.split())
    shown = selbo("new-bare.csv", "--reference", "old-bare.csv")
    assert "pass `--no-header` if it is" in " ".join(shown.err.split())


def test_a_run_twice_counts_once_and_statements_may_be_left_out(selbo: Run) -> None:
    path = write_day("day", right=0.95)
    first = selbo(path, *STATED)
    before = Path("state.json").read_text()
    again = selbo(path, "--labels", "truth", "--state", "state.json")
    assert (first.code, again.code) == (0, 0)
    assert "100, 0 of them new" in again.out
    assert json.loads(before) == json.loads(Path("state.json").read_text())
    other = selbo(path, "--accuracy", 0.9, "--labels", "truth", "--state", "state.json")
    assert other.code == 2
    assert "was begun with another `--accuracy`" in other.err
    write_day("day", right=0.95, rows=60, seed=9)
    shown = selbo(path, "--labels", "truth", "--state", "state.json")
    assert "day.csv does not begin with the 100 rows that were counted before: all 60 rows count as new" in shown.err


def test_a_bad_file_leaves_the_state_as_it_was(selbo: Run) -> None:
    selbo(write_day("day", right=0.95), *STATED)
    before = Path("state.json").read_bytes()
    pl.DataFrame({"spam": [0.2, None], "ham": [0.8, 0.1], "truth": ["ham", "ham"]}).write_csv("bad.csv")
    pl.DataFrame({"spam": [0.2], "eggs": [0.8], "truth": ["ham"]}).write_csv("other.csv")
    pl.DataFrame({"spam": [0.2], "ham": [0.8], "truth": ["eggs"]}).write_csv("label.csv")
    Path("empty.csv").write_text("")
    for name, message in (
        ("bad", "must have a number in every row"),
        ("other", "there is no column for the class 'ham'"),
        ("label", "`--labels` must be classes or empty"),
        ("empty", "is empty"),
        ("none", "is not there"),
    ):
        shown = selbo(f"{name}.csv", *STATED)
        assert shown.code == 2, name
        assert message in shown.err
        assert Path("state.json").read_bytes() == before
    assert not list(Path().glob(".*"))
    assert selbo(write_day("next", right=0.95, seed=1), *STATED).code == 0


def test_a_single_score_counts_as_two_columns(selbo: Run) -> None:
    for name, seed in (("first", 0), ("second", 1)):
        frame = pl.read_csv(write_day(name, right=0.9, seed=seed))
        truth = (pl.col("truth") == "spam").cast(pl.Int64)
        frame.select("id", pl.col("spam").alias("score"), truth, amount=pl.lit(2.5)).write_csv(f"{name}-score.csv")
    stated = ("--accuracy", 0.9, "--labels", "truth", "--reference")
    two, one = ["--state", "two.json"], ["--columns", "score", "--classes", "ham,spam", "--state", "one.json"]
    shown = [selbo("first.csv", *stated, "second.csv", "--class-fractions", "spam=0.3", *two)]
    shown += [selbo("first-score.csv", *stated, "second-score.csv", "--class-fractions", "0.7,0.3", *one)]
    shown += [selbo("second.csv", "--labels", "truth", *two), selbo("second-score.csv", "--labels", "truth", *one)]
    assert [each.code for each in shown] == [0, 0, 0, 0], shown
    seen = [json.loads(Path(f"{each}.json").read_text())["seen"] for each in ("two", "one")]
    assert seen[0]["counts"]["accuracy"] == seen[1]["counts"]["accuracy"]
    assert seen[0]["counts"]["class fractions"] == seen[1]["counts"]["class fractions"][::-1]
    assert sum(seen[1]["counts"]["predictions"]) == 200


def test_labels_come_when_they_come(selbo: Run) -> None:
    path = write_day("day", right=0.6)
    frame = pl.read_csv(path)
    frame.with_columns(truth=pl.lit("")).write_csv(path)
    shown = selbo(path, *STATED)
    assert (shown.code, "nothing was tested yet, as there are no labels" in " ".join(shown.out.split())) == (0, True)
    frame.write_csv(path)
    later = selbo(path, *STATED)
    assert later.code == CONTRADICTED
    assert "100, 0 of them new" in later.out
    assert "100, 100 of them new" in later.out
    frame.drop("truth").head(10).write_csv("unlabelled.csv")
    assert "there is no column 'truth' in unlabelled.csv: it has no labels" in selbo("unlabelled.csv", *STATED).err


def test_a_reference_needs_no_labels(selbo: Run) -> None:
    reference = write_day("reference", right=0.9, rows=500)
    calm = selbo(write_day("calm", right=0.9, rows=300, seed=1), "--reference", reference)
    assert calm.code == 0
    pl.read_csv("calm.csv").with_columns(spam=pl.lit(0.5), ham=pl.lit(0.5)).write_csv("flat.csv")
    flat = selbo("flat.csv", "--reference", reference, "--report", "page.html")
    assert flat.code == CONTRADICTED
    assert "most of it against the likeness to the reference" in " ".join(flat.out.split())
    assert "right, %" not in Path("page.html").read_text(encoding="utf-8")


def test_a_belief_comes_from_a_file(selbo: Run) -> None:
    Path("belief.json").write_text('{"accuracy": 0.9, "class_fractions": {"ham": 0.7, "spam": 0.3}}')
    path = write_day("day", right=0.9)
    shown = selbo(path, "--belief", "belief.json", "--labels", "truth")
    by_hand = selbo(path, "--accuracy", 0.9, "--class-fractions", "spam=0.3,ham=0.7", "--labels", "truth")
    assert shown.code == 0
    assert shown.out == by_hand.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "`--accuracy`, `--class-fractions`, `--belief` or `--reference` must be given: nothing is stated"),
        (("--accuracy", 0.9), "`--labels` must name the column with known classes"),
        (("--accuracy", 90, "--labels", "truth"), "`--accuracy` must lie strictly between 0 and 1"),
        (("--accuracy", 0.9, "--labels", "trut"), "there is no column 'trut' in day.csv: did you mean 'truth'?"),
        (("--accuracy", 0.9, "--labels", "truth", "--by", "week"), "there is no column 'week'"),
        (("--accuracy", 0.9, "--labels", "truth", "--delta", 1), "`--delta` must lie strictly between 0 and 1"),
        (("--accuracy", 0.9, "--labels", "truth", "--concentration", 0), "`--concentration` must be a finite number"),
        (("--class-fractions", "0.2,0.3,0.5", "--labels", "truth"), "`--class-fractions` must hold 2 numbers"),
        (("--class-fractions", "eggs=0.3", "--labels", "truth"), "`--class-fractions` must name the classes"),
        (("--belief", "b.json", "--accuracy", 0.9), "`--belief` cannot be combined with"),
        (("--belief", "b.json"), "'b.json' is not there"),
        (("--accuracy", 0.9, "--state", "state.txt"), "`--state` must be a file that ends in .json"),
        (("--accuracy", 0.9, "--state", "damaged.json", "--labels", "truth"), "is not a file of selbo"),
        (("--accuracy", 0.9, "--report", "a.txt"), "`--report` must be a file that ends in .html"),
    ],
)
def test_bad_options(selbo: Run, options: tuple[object, ...], message: str) -> None:
    Path("damaged.json").write_text("{}")
    shown = selbo(write_day("day", right=0.9), *options)
    assert (shown.code, shown.out) == (2, "")
    assert message in shown.err
