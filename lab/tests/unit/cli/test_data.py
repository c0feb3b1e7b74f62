"""`selbo data`: what is shown, what is written, and the exit codes, on a source of tiny files."""

from __future__ import annotations

import dataclasses
import io
import sys
from pathlib import Path

import pytest
import rich.style  # noqa: F401  (draws a random number when it is imported, which a test must not)
import torch
from typer.testing import CliRunner
from unit.data.servers import Behaviour, serving
from unit.data.tiny import ARCHIVE, FILES, IDX, served, tiny, tree, write

from selbo.cli import main as entry
from selbo.cli.app import app
from selbo_lab.cli import data as command
from selbo_lab.data import catalogue, embeddings, store
from selbo_lab.data.catalogue import DataSet
from selbo_lab.data.dataset import LabelledData
from selbo_lab.data.store import RawFile

STORED = {f"tiny/{name}": content for name, content in FILES.items()}
COMMANDS = {
    "list": "",
    "get": "mnist35",
    "import": "cifar10",
    "verify": "cifar10",
    "embed": "sst",
    "card": "mnist35",
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv(store.VARIABLE, str(tmp_path / "store"))
    return tmp_path / "store"


@pytest.fixture
def server(root: Path, monkeypatch: pytest.MonkeyPatch) -> Behaviour:
    """A server of the tiny source, and a catalogue of it: a set, its corrupted test part, and one without files."""
    with serving(files=served()) as server:
        source = tiny(server.address)
        published = dataclasses.replace(
            source, name="tiny-p", files=(RawFile("p.npy"),), title="published", downloads=source.downloads[:0]
        )

        def load(part: str) -> LabelledData:
            store.locate(source, "labels-ubyte.gz")
            return LabelledData(
                f"tiny {part}", torch.zeros(3, 2), torch.tensor([0, 1, 1]), ("no", "yes"), "here", "none"
            )

        def corrupted(corruption: str) -> LabelledData:
            return load("test").with_inputs(torch.ones(3, 2), name=f"tiny {corruption}")

        sets = [
            DataSet("tiny", "three tiny files", ("train", "test"), load, (source,)),
            DataSet("tiny-c", "the same, corrupted", ("test",), corrupted, (source,), (published,)),
            DataSet("built-in", "comes along", ("test",), load, ()),
        ]
        monkeypatch.setattr(catalogue, "SETS", {each.name: each for each in sets})
        monkeypatch.setattr(catalogue, "SOURCES", {each.name: each for each in (source, published)})
        yield server


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int | str | None:
    """Exit code of `selbo data` with these arguments."""
    monkeypatch.setattr(sys, "argv", ["selbo", "data", *arguments])
    with pytest.raises(SystemExit) as left:
        entry.main()
    return left.value.code


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name: str) -> None:
    result = CliRunner().invoke(app, ["data", name, "--help"], env={"COLUMNS": "80", "TERM": "dumb"})
    assert result.exit_code == 0
    assert f"Example: selbo data {name} {COMMANDS[name]}".strip() in result.output
    assert "--debug" in result.output
    assert max(map(len, result.output.splitlines())) <= 80


def test_list_of_the_real_sets_fits_in_80_columns(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    assert run(monkeypatch, "list") == 0
    lines = out.getvalue().splitlines()
    assert max(len(line) for line in lines if not line.startswith("Store:")) <= 80
    states = {line.split()[0]: line for line in lines if line[:2].strip()}
    assert set(catalogue.SETS) < set(states)
    assert "embedded" in states["digits"]
    assert "not here" in states["cifar10"]
    assert "162 MiB" in states["cifar10"]
    assert "needs cifar10" in states["cifar10-c"]
    assert lines[-1] == f"Store: {root}"
    assert not root.exists()


@pytest.mark.parametrize(
    ("files", "states"),
    [
        ({}, ["not here", "needs tiny", "embedded"]),
        ({"tiny/train.bin": b""}, ["1 of 3 files", "needs tiny", "embedded"]),
        (STORED, ["in the store", "generated", "embedded"]),
        ({**STORED, "tiny-p/p.npy": b""}, ["in the store", "published files", "embedded"]),
    ],
)
@pytest.mark.usefixtures("server")
def test_states_of_sets(root: Path, files: dict[str, bytes], states: list[str]) -> None:
    write(root, files)
    assert [command.state(each) for each in catalogue.SETS.values()] == states


def test_sentences_can_be_loaded_once_they_are_embedded(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sst = catalogue.SETS["sst"]
    assert command.state(sst) == "not here"
    write(root, {f"sst/{raw.name}": b"" for raw in sst.sources[0].files})
    assert command.state(sst) == "not embedded"
    monkeypatch.setattr(embeddings, "list_embeddings", lambda: ["some"])
    assert command.state(sst) == "in the store"


def test_get(
    root: Path, server: Behaviour, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "get", "tiny") == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines()[:3] == [
        f"three tiny files: {root / 'tiny'}",
        "tiny test",
        "  examples  3, each 2 float32",
    ]
    assert shown.err == f"selbo: note: downloading tiny, {sum(map(len, served().values()))} bytes\n"
    assert tree(root) == STORED
    assert run(monkeypatch, "get", "tiny", "built-in") == 0
    shown = capsys.readouterr()
    assert "built-in comes with scikit-learn: there is nothing to get" in shown.out
    assert shown.err == ""
    assert len(server.requests) == 2


@pytest.mark.usefixtures("server")
def test_get_of_what_is_generated_gets_what_it_is_made_from(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "get", "tiny-c") == 0
    shown = capsys.readouterr()
    assert "  licence   none\n" in shown.out
    note = "selbo: note: tiny-c is generated; 'selbo data get tiny-p' downloads the published files\n"
    assert shown.err.endswith(note)
    assert tree(root) == STORED
    assert run(monkeypatch, "get", "tiny-p") == 2
    assert "'selbo data import tiny-p PATH' takes files you have" in capsys.readouterr().err


def test_get_that_fails(
    root: Path, server: Behaviour, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.files.clear()
    assert run(monkeypatch, "get", "tiny") == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("selbo: error: tiny.tar.gz could not be downloaded: http://127.0.0.1")
    assert error.endswith("(the server said 404 Not Found); 'selbo data import tiny PATH' takes files you have")
    assert run(monkeypatch, "get", "tiny", "wrong") == 2
    assert "`name` must be one of ['built-in', 'tiny', 'tiny-c', 'tiny-p'], but got 'wrong'" in capsys.readouterr().err
    assert tree(root) == {}


@pytest.mark.usefixtures("server")
def test_import(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    mine = write(root.parent / "mine", {"tiny.tgz": ARCHIVE, "labels-ubyte": IDX, "wrong/train.bin": b"other"})
    assert run(monkeypatch, "import", "tiny", str(mine / "tiny.tgz")) == 0
    shown = capsys.readouterr()
    assert shown.out == f"Taken: train.bin, deep/test.bin\nthree tiny files: {root / 'tiny'}\n"
    assert "selbo: note: tiny still lacks labels-ubyte.gz\n" in shown.err
    assert "'selbo data get tiny' downloads it" in shown.err
    assert run(monkeypatch, "import", "tiny", str(mine / "labels-ubyte")) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith(f"Taken: labels-ubyte\nthree tiny files: {root / 'tiny'}\ntiny test\n")
    assert shown.err == ""
    before = tree(root)
    assert run(monkeypatch, "import", "tiny", str(mine / "wrong")) == 2
    assert "train.bin is not the file of tiny: it has 5 bytes, not 1500" in capsys.readouterr().err
    assert run(monkeypatch, "import", "tiny", str(mine / "absent")) == 2
    assert "absent does not exist" in capsys.readouterr().err
    assert tree(root) == before


@pytest.mark.usefixtures("server")
def test_verify(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "verify") == 0
    assert capsys.readouterr().out == "Nothing to verify.\n"
    assert run(monkeypatch, "verify", "tiny") == 2
    assert "tiny is not in" in capsys.readouterr().err
    write(root, {**STORED, "tiny/train.bin": b"other"})
    (root / "tiny" / "deep" / "test.bin").unlink()
    for arguments in ([], ["tiny"], ["tiny-c"]):
        assert run(monkeypatch, "verify", *arguments) == 2
        shown = capsys.readouterr()
        digest = catalogue.SOURCES["tiny"].files[2].digest
        assert shown.out.splitlines() == [
            "wrong   tiny/train.bin  it has 5 bytes, not 1500",
            "missing tiny/deep/test.bin",
            f"ok      tiny/labels-ubyte.gz  {digest[:23]}",
        ]
        assert shown.err == "selbo: note: 1 files are wrong: delete them, then get or import them again\n"
    write(root, STORED)
    assert run(monkeypatch, "verify", "tiny") == 0
    assert [line[:8] for line in capsys.readouterr().out.splitlines()] == ["ok      "] * 3


@pytest.mark.usefixtures("server")
def test_card(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "card", "tiny") == 2
    assert "'selbo data get tiny' downloads it" in capsys.readouterr().err
    write(root, STORED)
    assert run(monkeypatch, "card", "tiny", "--part", "test") == 0
    assert capsys.readouterr().out.startswith("tiny test\n  examples  3, each 2 float32\n  classes   no 1, yes 2\n")
    assert run(monkeypatch, "card", "tiny-c", "--corruption", "fog") == 0
    assert capsys.readouterr().out.startswith("tiny fog\n")
    for arguments, message in (
        (["tiny", "--part", "val"], "`part` of tiny must be one of ['train', 'test'], but got 'val'"),
        (["tiny", "--severity", "2"], "'severity'"),
        (["tiny-p"], "tiny-p is a name of raw files: a card is of a data set, one of ['tiny', 'tiny-c', 'built-in']"),
    ):
        assert run(monkeypatch, "card", *arguments) == 2
        assert message in capsys.readouterr().err


def test_embed(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "embed", "mnist35", "--model", "m") == 2
    assert "only sst has sentences to embed, but got 'mnist35'" in capsys.readouterr().err
    assert run(monkeypatch, "embed", "sst", "--model", "m") == 2
    assert "'selbo data get sst' downloads it" in capsys.readouterr().err
    write(root, {f"sst/{raw.name}": b"" for raw in catalogue.SOURCES["sst"].files})
    calls = []

    def embed_sst(*arguments: object, progress: object, **options: object) -> Path:
        progress(2, 3)
        progress(3, 3)
        calls.append((arguments, options))
        return Path("x.npz")

    monkeypatch.setattr(embeddings, "embed_sst", embed_sst)
    assert run(monkeypatch, "embed", "sst", "--model", "m", "--batch-size", "7", "--device", "cpu") == 0
    assert calls == [(("m",), {"batch_size": 7, "device": "cpu"})]
    assert capsys.readouterr().out == "Embeddings: x.npz\n"


def test_bars_are_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    with command.bars() as progress:
        progress("cifar-10-binary.tar.gz", 2 << 20, 4 << 20)
        progress("cifar-10-binary.tar.gz", 2 << 20, 4 << 20)
    assert "cifar-10-binary.tar.gz" in terminal.getvalue()
    assert "4.2/4.2 MB" in terminal.getvalue()
