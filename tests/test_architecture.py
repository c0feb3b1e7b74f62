"""Imports inside `selbo` point down, and `import selbo` is light and has no side effect."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import selbo

PACKAGE = Path(__file__).parents[1] / "src" / "selbo"

# From the bottom up. A module may import lower layers and its own package; never its siblings, never upwards.
LAYERS = (
    {"_compile"},
    {"checks", "files", "numerics", "seeding", "version"},
    {"summary", "nn", "models", "metrics", "data"},
    {"objectives"},
    {"training", "evaluation"},
    {"estimator", "report", "adapters"},
    {"experiments", "elicit"},
    {"cli"},
    {"__main__"},
)
HEIGHT = {part: height for height, layer in enumerate(LAYERS) for part in layer}

OPTIONAL = {"matplotlib", "sklearn", "typer", "rich", "pandas", "lightning", "transformers", "mlflow", "tensorboard"}
SLOW = {"torch", "numpy", "scipy", "sklearn", "matplotlib", "polars", "safetensors"}
"""Packages that take long to import: none is needed to say what the command does."""
REQUIRED = {"torch", "numpy", "scipy"}


# --- the checker ---


def imported_names(tree: ast.AST, package: list[str]) -> list[tuple[int, str]]:
    """Line and absolute dotted name of everything a module imports, wherever in the file; `package` is its parent."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            names += [(node.lineno, f"{source}.{alias.name}") for alias in node.names]
    return names


def violations(root: Path) -> list[str]:
    """Sentences on every import below `root`, the folder of a package named `selbo`, that breaks the layering."""
    found = []
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        part = relative.with_suffix("").parts[0]
        if relative == Path("__init__.py"):
            continue  # the public names may come from everywhere
        if part not in HEIGHT:
            found.append(f"{relative}: '{part}' has no layer; give it one in tests/test_architecture.py")
            continue
        package = ["selbo", *relative.parent.parts]
        for line, name in imported_names(ast.parse(path.read_text(encoding="utf-8")), package):
            head, _, rest = f"{name}.".partition(".")
            target = rest.split(".")[0]
            if head != "selbo" or target == part:
                continue
            if target not in HEIGHT:
                found.append(f"{relative}:{line}: '{part}' imports the package root ({name}), which is above it")
            elif HEIGHT[target] >= HEIGHT[part]:
                where = "beside" if HEIGHT[target] == HEIGHT[part] else "above"
                found.append(f"{relative}:{line}: '{part}' imports '{target}' ({name}), which is {where} it")
    return found


def test_imports_point_down() -> None:
    assert PACKAGE.is_dir()
    assert violations(PACKAGE) == []


def test_there_is_no_utils_module() -> None:
    assert [str(p) for p in PACKAGE.rglob("*") if p.stem in {"utils", "util", "helpers", "misc"}] == []


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("summary/likelihood.py", "from selbo.objectives.elbo import ELBO", "'objectives' .* above it"),
        ("summary/likelihood.py", "from ..objectives import elbo", "'objectives' .* above it"),
        ("summary/likelihood.py", "def f():\n    import selbo.cli.main", ":2: .*'cli' .* above it"),
        ("summary/likelihood.py", "from selbo import cli", "'cli' .* above it"),
        ("summary/likelihood.py", "from ..metrics.scores import brier", "'metrics' .* beside it"),
        ("summary/likelihood.py", "from .. import SummaryELBO", "package root"),
        ("summary/likelihood.py", "import selbo", "package root"),
        ("checks.py", "from .numerics import TINY", "'numerics' .* beside it"),
        ("data/corruptions/blur.py", "from ...models.mlp import MLP", "'models' .* beside it"),
        ("novelty.py", "", "'novelty' has no layer"),
    ],
)
def test_the_checker_reports(tmp_path: Path, module: str, source: str, complaint: str) -> None:
    (tmp_path / module).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / module).write_text(source)
    (found,) = violations(tmp_path)
    assert re.search(complaint, found), found


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("__init__.py", "from selbo.summary.likelihood import SummaryLikelihood\nfrom .cli import main"),
        ("summary/__init__.py", "from .likelihood import SummaryLikelihood"),
        (
            "summary/likelihood.py",
            "import torch\nfrom ..checks import f\nfrom . import partitions\nfrom .beliefs import g",
        ),
        ("summary/likelihood.py", "import selbo.numerics\nfrom selbo.summary.partitions import Partition"),
        ("data/corruptions/blur.py", "from ..store import path\nfrom . import noise\nfrom ...checks import f"),
        ("cli/main.py", "from selbo import experiments, summary, numerics"),
    ],
)
def test_the_checker_accepts(tmp_path: Path, module: str, source: str) -> None:
    (tmp_path / module).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / module).write_text(source)
    assert violations(tmp_path) == []


# --- private APIs of torch, which may change without notice, stand in one file ---

PRIVATE_TORCH = "_compile.py"


def private_names(*things: object) -> set[str]:
    return {name for each in things for name in dir(each) if name.startswith("_") and not name.startswith("__")}


OF_MODULES = private_names(nn.MultiheadAttention(2, 1, device="meta"), nn.ModuleList())
OF_OBJECTS = OF_MODULES | private_names(torch.empty(0), torch.Generator(), torch.optim.Optimizer, torch.Size())


def private_torch_names(tree: ast.Module) -> list[str]:
    """Private names of torch in a module: its own, and those of its tensors, modules and optimisers."""
    imports = imported_names(tree, ["selbo"])
    of_torch = {name.rpartition(".")[2] for _, name in imports if name.startswith("torch.")} | {"torch"}
    found = [name for _, name in imports if name.startswith("torch.") and any(map(is_private, name.split(".")))]
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            bases = {ast.unparse(base) for base in node.bases}
            methods = [each.name for each in node.body if isinstance(each, ast.FunctionDef)]
            found += [f"def {name}" for name in methods if name in OF_MODULES and bases]
        elif isinstance(node, ast.Attribute) and is_private(node.attr):
            whole = ast.unparse(node)
            root = whole.partition(".")[0]
            known = OF_MODULES if root in {"self", "cls", "super()"} else OF_OBJECTS
            if node.attr in known or root in of_torch:
                found.append(whole)
    return found


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def test_private_names_of_torch_are_in_one_file() -> None:
    found = {
        str(path.relative_to(PACKAGE)): names
        for path in sorted(PACKAGE.rglob("*.py"))
        if (names := private_torch_names(ast.parse(path.read_text(encoding="utf-8"))))
    }
    assert set(found) == {PRIVATE_TORCH}, found


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntorch._C._current_graph_task_id()",
        "import torch\nwith torch._dynamo.config.patch(cache_size_limit=1): pass",
        "import torch._dynamo",
        "from torch._subclasses.fake_tensor import FakeTensorMode",
        "from torch.nn.modules.batchnorm import _NormBase",
        "from torch import nn\nnn.modules.batchnorm._NormBase",
        "from torch.autograd import forward_ad\nforward_ad._current_level",
        "tensor._version",
        "list(module._modules.items())",
        "self._parameters['weight'] = None",
        "class C(nn.Module):\n    def _apply(self, fn): pass",
    ],
)
def test_the_search_finds(source: str) -> None:
    assert private_torch_names(ast.parse(source))


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntorch.__version__",
        "class C:\n    def _values(self): return self._values",
        "row._replace(best=1)",
        "import os\nos._exit(1)",
    ],
)
def test_the_search_leaves_alone(source: str) -> None:
    assert private_torch_names(ast.parse(source)) == []


# --- what `import selbo` does, seen from a fresh interpreter ---

PROBE = """
import json, random, sys
import numpy, torch

def states():
    return [torch.get_rng_state().tolist(), str(numpy.random.get_state(legacy=False)), random.getstate()]

before, loaded = states(), set(sys.modules)
import selbo
for name in selbo.__all__:
    getattr(selbo, name)
print(json.dumps({
    "modules": sorted(set(sys.modules) - loaded),
    "selbo": [name for name in sys.modules if name.partition(".")[0] == "selbo"],
    "untouched": states() == before,
}))
"""


def probe(folder: Path) -> dict[str, object]:
    run = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=False, cwd=folder)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.fixture(scope="module")
def fresh_import(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    return probe(tmp_path_factory.mktemp("fresh"))


def test_public_names_load_no_optional_and_no_slow_package_besides_torch_and_numpy(
    fresh_import: dict[str, object],
) -> None:
    packages = {name.partition(".")[0] for name in fresh_import["modules"]}
    assert packages & (OPTIONAL | SLOW) - {"torch", "numpy"} == set()


def test_import_loads_no_other_package(tmp_path: Path) -> None:
    code = "import sys; before = set(sys.modules); import selbo; print(*set(sys.modules) - before)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert {name.partition(".")[0] for name in run.stdout.split()} - sys.stdlib_module_names == {"selbo"}


def run_at_import(tree: ast.Module) -> ast.Module:
    """The tree without the bodies of functions and of `if TYPE_CHECKING`."""

    class Prune(ast.NodeTransformer):
        def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
            return None

        def visit_If(self, node: ast.If) -> ast.AST:
            return ast.Pass() if "TYPE_CHECKING" in ast.unparse(node.test) else self.generic_visit(node)

    return Prune().visit(tree)


def test_import_needs_only_torch_numpy_scipy(fresh_import: dict[str, object]) -> None:
    """Judged by the imports of every `selbo` module that is loaded, so that what those three bring does not count."""
    foreign = []
    for name in fresh_import["selbo"]:
        path = PACKAGE.parent.joinpath(*name.split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        package = ["selbo", *path.relative_to(PACKAGE).parent.parts]
        imports = imported_names(run_at_import(ast.parse(path.read_text(encoding="utf-8"))), package)
        heads = {target.partition(".")[0] for _, target in imports}
        foreign += [f"{name} imports {head}" for head in heads - sys.stdlib_module_names - REQUIRED - {"selbo"}]
    assert foreign == []


def test_only_imports_that_run_are_judged() -> None:
    source = """
import a
if TYPE_CHECKING:
    import b
def f():
    import c
class C:
    import d
    def m(self):
        import e
"""
    assert [name for _, name in imported_names(run_at_import(ast.parse(source)), [])] == ["a", "d"]


def test_import_leaves_the_random_states_alone(fresh_import: dict[str, object]) -> None:
    assert fresh_import["untouched"]


@pytest.mark.parametrize("arguments", ["--help", "--version", "train --help", "nothing", "train --accuracy much"])
def test_help_and_mistakes_in_arguments_need_no_slow_package(arguments: str, tmp_path: Path) -> None:
    code = (
        "import sys\nfrom selbo.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n"
        f"    print(*sorted({SLOW | {'typer'}} & set(sys.modules)), file=sys.stderr)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, *arguments.split()], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert run.stderr.splitlines()[-1] == "typer", run.stderr


# --- public names, which are imported when they are asked for ---


def test_every_public_name_is_what_it_is_for_type_checkers() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    (block,) = (each for each in tree.body if isinstance(each, ast.If) and ast.unparse(each.test) == "TYPE_CHECKING")
    names = []
    for line in block.body:
        assert isinstance(line, ast.ImportFrom)
        for alias in line.names:
            names.append(alias.name)
            place = importlib.import_module(line.module)
            assert getattr(selbo, alias.name) is getattr(place, alias.name), alias.name
    assert sorted(names) == sorted([*selbo.__all__, "SummaryClassifier"])
    assert set(selbo.__all__) <= set(dir(selbo))


def test_modules_can_be_asked_for_and_what_does_not_exist_cannot() -> None:
    code = (
        "import selbo; print(selbo.data.__name__, selbo.summary.beliefs.Beta is selbo.Beta, hasattr(selbo, 'nothing'))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["selbo.data", "True", "False"]
    with pytest.raises(AttributeError, match=r"^module 'selbo' has no attribute 'nothing'$"):
        _ = selbo.nothing


def test_a_package_that_is_missing_is_told_and_not_taken_for_a_name_that_does_not_exist() -> None:
    code = "import sys; sys.modules['numpy'] = None\nimport selbo\nselbo.metrics"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "import of numpy halted" in run.stderr
