"""Every Python block of the README, CONTRIBUTING and the documentation runs as it stands, and so does every example.

The blocks of one page run in order, in one namespace, with warnings as errors. Where a ```text block follows directly,
it is what the block prints: the same words, and numbers that are close. What a trained network says hangs on the kind
of processor, whose rounding is its own: an output under `<!-- trained -->` is compared so on the kind that
made the pages, and on others by its number of lines. A block that cannot run is preceded by `<!-- not run: reason -->`;
one that needs packages which `make test` does not install, by `<!-- needs: package, package -->`, and it runs where
they are. An example that imports such a package runs where it is. The warnings of these packages are their own, and no
errors.
"""

from __future__ import annotations

import ast
import os
import platform
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from forked_python import run_forked

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "lab" / "docs").rglob("*.md")),
]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
MAX_EXAMPLE_LINES = 80
TIMEOUT_SECONDS = 300
RELATIVE, LAST_DIGITS = 0.1, 2
MADE_ON = "aarch64"
NOT_BY_MAKE = {"accelerate", "lightning", "mlflow", "ray", "tensorboard", "transformers"}

BLOCK = re.compile(
    r"(?:<!--\s*not run(?P<colon>:)?(?P<reason>(?:(?!-->).)*)-->\s*\n)?"
    r"(?:<!--\s*needs:(?P<needs>(?:(?!-->).)*)-->\s*\n)?"
    r"(?P<indent>^[ \t]*)```(?P<language>py\w*)[^\n]*\n(?P<code>.*?)^(?P=indent)```[ \t]*$",
    re.MULTILINE | re.DOTALL,
)
SHOWN = re.compile(
    r"\s*(?:^[ \t]*(?P<trained><!-- trained -->)\s*\n)?^[ \t]*```text[^\n]*\n(?P<text>.*?)^[ \t]*```[ \t]*$",
    re.MULTILINE | re.DOTALL,
)
MARK = "\x1e"
NUMBER = re.compile(r"(?<![\w.])[-+−]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?")


def is_missing(package: str) -> bool:
    return find_spec(package) is None


def program(text: str, *, missing: Callable[[str], bool] = is_missing) -> str:
    """The Python blocks of a page as one script, each line where it stands in the page, so that errors point there."""
    lines = [""] * (text.count("\n") + 1)
    for block in BLOCK.finditer(text):
        line = text.count("\n", 0, block.start("code"))
        if block["language"] != "python":
            raise ValueError(f"line {line}: write ```python, not ```{block['language']}, so that the block is run")
        if block["reason"] is not None:
            if not (block["colon"] and block["reason"].strip()):
                raise ValueError(f"line {line}: a block that is not run needs a reason: <!-- not run: reason -->")
            continue
        packages = {each.strip() for each in (block["needs"] or "").split(",")} - {""}
        if (block["needs"] is not None and not packages) or packages - NOT_BY_MAKE:
            raise ValueError(f"line {line}: a block may need {sorted(NOT_BY_MAKE)}, but this names {sorted(packages)}")
        if any(missing(each) for each in packages):
            continue
        code = textwrap.dedent(block["code"]).splitlines()
        lines[line : line + len(code)] = code
        lines[line + len(code)] = f"print({MARK + str(line)!r})"  # in the place of the closing fence
    return "\n".join(lines)


def imports(source: str) -> set[str]:
    """Packages that a script imports, wherever in it."""
    nodes = list(ast.walk(ast.parse(source)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    return {name.partition(".")[0] for name in names}


class Shown(NamedTuple):
    """What a page says that a block prints, and whether a network was trained for it."""

    text: str
    trained: bool

    def agrees(self, found: str, *, machine: str) -> bool:
        if self.trained and machine != MADE_ON:
            return self.text.count("\n") == found.count("\n")
        return alike(self.text, found)


def shown(text: str) -> dict[int, Shown]:
    """What a page says that its blocks print, by the line where the block begins."""
    found = {}
    for block in BLOCK.finditer(text):
        if match := SHOWN.match(text, block.end()):
            line = text.count("\n", 0, block.start("code"))
            found[line] = Shown(textwrap.dedent(match["text"]), trained=match["trained"] is not None)
    return found


def printed(output: str) -> dict[int, str]:
    """What the blocks of a page did print."""
    parts = re.split(f"{MARK}(\\d+)\n", output)
    return {int(line): text for text, line in zip(parts[::2], parts[1::2], strict=False)}


def alike(said: str, found: str) -> bool:
    """Whether two outputs have the same words, and numbers that are close; how they are aligned does not matter."""
    if NUMBER.sub("#", said).split() != NUMBER.sub("#", found).split():
        return False
    pairs = zip(NUMBER.findall(said), NUMBER.findall(found), strict=True)
    return all(_close(a.replace("−", "-"), b.replace("−", "-")) for a, b in pairs)


def _close(said: str, found: str) -> bool:
    if "e" in said:  # a tiny p-value: its size is what is meant
        return 0.1 <= float(found) / float(said) <= 10
    last = 10.0 ** -len(said.partition(".")[2]) if "." in said else 0.0  # whole numbers count something
    return abs(float(said) - float(found)) <= max(RELATIVE * abs(float(said)), (LAST_DIGITS + 0.5) * last)


def run_python(script: Path, *arguments: str, folder: Path) -> str:
    """What a script prints, with warnings as errors unless it needs packages of `NOT_BY_MAKE`."""
    if imports(script.read_text(encoding="utf-8")) & NOT_BY_MAKE:
        run = subprocess.run(
            [sys.executable, "-W", "default", str(script), *arguments],
            cwd=folder,
            env={**os.environ, "MPLBACKEND": "Agg"},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    else:
        run = run_forked(script, *arguments, folder=folder, timeout=TIMEOUT_SECONDS)
    assert run.returncode == 0, f"{script.name} failed with status {run.returncode}:\n{run.stdout}\n{run.stderr}"
    return run.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    code = program(text)
    if code.strip():  # a page without blocks has nothing to run
        script = tmp_path / f"{page.stem}.md.py"
        script.write_text(code, encoding="utf-8")
        output = run_python(script, folder=tmp_path)
        said, found, machine = shown(text), printed(output), platform.machine()
        other = [n for n in said if n in found and not said[n].agrees(found[n], machine=machine)]
        assert not other, "\n".join(f"{page.name}:{n} shows\n{said[n].text}\nbut prints\n{found[n]}" for n in other)


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_is_short(example: Path) -> None:
    assert len(example.read_text(encoding="utf-8").splitlines()) <= MAX_EXAMPLE_LINES


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_runs(example: Path, tmp_path: Path) -> None:
    special = imports(example.read_text(encoding="utf-8")) & NOT_BY_MAKE
    if missing := sorted(each for each in special if is_missing(each)):
        pytest.skip(f"{' and '.join(missing)} not installed")
    run_python(example, "--smoke", "--out", str(tmp_path / "out"), folder=tmp_path)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("import warnings\nwarnings.warn('careful')", "UserWarning: careful"),
        ("raise SystemExit('stop')", "stop"),
        ("torch.ones(2)", "name 'torch' is not defined"),
        ("import os\nos.kill(os.getpid(), 9)", "status -9"),
    ],
)
def test_a_program_that_fails_is_shown(code: str, error: str, tmp_path: Path) -> None:
    script = tmp_path / "page.md.py"
    script.write_text(f"print('before', flush=True)\n{code}", encoding="utf-8")
    with pytest.raises(AssertionError, match=r"page\.md\.py failed") as failure:
        run_python(script, folder=tmp_path)
    assert "before" in str(failure.value)
    assert error in str(failure.value)


def test_a_program_has_its_arguments_folder_and_environment(tmp_path: Path) -> None:
    script = tmp_path / "page.md.py"
    code = "import os, sys\nprint(__name__, sys.argv[1:], os.getcwd(), os.environ.get('PYTHONWARNINGS'))"
    script.write_text(code, encoding="utf-8")
    assert run_python(script, "--smoke", folder=tmp_path) == f"__main__ ['--smoke'] {tmp_path} None\n"


def test_a_command_of_a_program_has_its_own_output_and_exit_code(tmp_path: Path) -> None:
    (tmp_path / "shout.py").write_text(
        "import os, sys\nimport page_state\n"
        "print(__name__, sys.argv[1:], os.getcwd() , page_state.value)\npage_state.value = 2\n"
        "print('wrong', file=sys.stderr)\nsys.exit(3)",
        encoding="utf-8",
    )
    (tmp_path / "page_state.py").write_text("value = 0", encoding="utf-8")
    script = tmp_path / "page.md.py"
    script.write_text(
        "import subprocess, sys\nimport page_state\npage_state.value = 1\nprint('before')\n"
        "command = [sys.executable, '-m', 'shout', 'a']\n"
        "run = subprocess.run(command, capture_output=True, text=True)\n"
        "print(run.stdout, run.stderr, run.returncode, page_state.value)\n"
        "try:\n    subprocess.run(command, capture_output=True, text=True, check=True)\n"
        "except subprocess.CalledProcessError as error:\n    print(error.returncode)\n"
        "print(subprocess.run([sys.executable, '-c', 'print(7)'], capture_output=True, text=True).stdout)\n",
        encoding="utf-8",
    )
    said = f"before __main__ ['a'] {tmp_path} 1 wrong 3 1 3 7"
    assert run_python(script, folder=tmp_path).split() == said.split()


# --- the extraction itself ---


def statements(text: str, **missing: Callable[[str], bool]) -> list[str]:
    """Lines of a page's program, without the marks."""
    return [line for line in program(text, **missing).splitlines() if line and repr(MARK)[1:-1] not in line]


def test_blocks_keep_their_lines_and_share_a_namespace() -> None:
    text = "# Title\n```python\na = 1\n```\n!!! note\n\n    ```python title='x'\n    b = a\n    ```\n```text\nno\n```\n"
    assert [program(text).splitlines()[i] for i in (2, 7)] == ["a = 1", "b = a"]
    assert statements(text) == ["a = 1", "b = a"]


def test_what_a_block_prints_is_what_the_page_shows() -> None:
    text = "```python\nprint('NLL', .5)\n```\n\n```text\nNLL   0.51\n```\n"
    text += "\n```python\nprint(1)\n```\nno\n```text\n2\n```\n"
    assert shown(text) == {1: Shown("NLL   0.51\n", trained=False)}
    assert program(text).splitlines()[1:3] == ["print('NLL', .5)", "print('\\x1e1')"]
    assert printed("NLL 0.5\n\x1e1\n1\n\x1e9\n") == {1: "NLL 0.5\n", 9: "1\n"}
    assert shown(text)[1].agrees("NLL 0.5\n", machine="x86_64")


def test_what_a_trained_network_says_is_that_of_one_kind_of_processor() -> None:
    (said,) = shown("```python\nprint(.5)\n```\n\n<!-- trained -->\n```text\nNLL 0.5\n```\n").values()
    assert said == Shown("NLL 0.5\n", trained=True)
    assert said.agrees("NLL 0.5\n", machine=MADE_ON)
    assert not said.agrees("NLL 0.9\n", machine=MADE_ON)
    assert said.agrees("NLL 0.9\n", machine="riscv64")
    assert not said.agrees("NLL 0.9\nand more\n", machine="riscv64")


@pytest.mark.parametrize(
    ("said", "found", "same"),
    [
        ("NLL 0.50", "NLL 0.53", True),
        ("NLL 0.50", "NLL 0.57", False),
        ("ECE 0.01", "ECE 0.03", True),
        ("NLL 0.50", "ECE 0.50", False),
        ("[0.5, -.5]", "[0.5, -.51]", True),
        ("-0.5", "0.5", False),
        ("90 rows", "91 rows", True),
        ("3 rows", "4 rows", False),
        ("p = 1e-19", "p = 4e-19", True),
        ("p = 1e-19", "p = 1e-9", False),
        ("one line", "one line\nand another", False),
        ("layer2.bias 1", "layer3.bias 1", False),
    ],
)
def test_outputs_are_alike(said: str, found: str, same: bool) -> None:
    assert alike(said, found) == same


def test_a_block_may_be_left_out_with_a_reason() -> None:
    text = "<!-- not run: needs a download -->\n\n```python\na = 1\n```\n\n```python\nb = 2\n```\n"
    assert statements(text) == ["b = 2"]


@pytest.mark.parametrize("comment", ["<!-- not run -->", "<!-- not run: -->", "<!-- not run:  -->"])
def test_a_block_is_not_left_out_without_a_reason(comment: str) -> None:
    with pytest.raises(ValueError, match="line 2: a block that is not run needs a reason"):
        program(f"{comment}\n```python\na = 1\n```\n")


@pytest.mark.parametrize("language", ["py", "pycon", "python3"])
def test_a_block_in_another_spelling_is_an_error(language: str) -> None:
    with pytest.raises(ValueError, match="write ```python"):
        program(f"```{language}\na = 1\n```\n")


def test_a_block_runs_where_its_packages_are() -> None:
    text = "<!-- needs: mlflow, lightning -->\n```python\na = 1\n```\n\n```python\nb = 2\n```\n"
    assert statements(text, missing=lambda package: False) == ["a = 1", "b = 2"]
    assert statements(text, missing=lambda package: package == "lightning") == ["b = 2"]


@pytest.mark.parametrize("packages", ["numpy", "mlflow, numpy", " "])
def test_a_block_may_not_be_excused_by_a_package_that_is_there(packages: str) -> None:
    with pytest.raises(ValueError, match=r"line 2: a block may need .*mlflow"):
        program(f"<!-- needs: {packages} -->\n```python\na = 1\n```\n")


def test_imports_are_found_wherever_they_are() -> None:
    source = "import a.b as c, d\nfrom e.f import g\nfrom . import h\ndef i():\n    import j\n"
    assert imports(source) == {"a", "d", "e", "j"}
