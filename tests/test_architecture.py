"""Imports point down, the laboratory uses only what `selbo` publishes, and `import selbo` is light, without effects."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import nn

import selbo

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PACKAGE = Path(__file__).parents[1] / "src" / "selbo"
LABORATORY = Path(__file__).parents[1] / "lab" / "src" / "selbo_lab"
in_a_checkout = pytest.mark.skipif(not LABORATORY.is_dir(), reason="there is no laboratory beside the library")

# From the bottom up. A module may import lower layers and its own package; never its siblings, never upwards.
LAYERS = (
    {"_compile"},
    {"_checks", "_files", "_numerics", "random", "version"},
    {"checks", "files", "summary", "nn", "models", "metrics"},
    {"posteriors"},
    {"objectives"},
    {"training", "evaluation", "presets", "results"},
    {"estimator", "plots", "integrations"},
    {"report"},
    {"demo", "tabular"},
    {"elicit"},
    {"cli"},
    {"__main__"},
)

LABORATORY_LAYERS = (
    {"data", "published", "studies"},
    {"run"},
    {"schedule", "report"},
    {"cli"},
)

Layers = tuple[set[str], ...]

OPTIONAL = {
    "matplotlib",
    "sklearn",
    "typer",
    "rich",
    "pandas",
    "lightning",
    "transformers",
    "mlflow",
    "ray",
    "tensorboard",
}
SLOW = {"torch", "numpy", "scipy", "sklearn", "matplotlib", "polars", "safetensors", "jinja2"}
"""Packages that take long to import: none is needed to say what the command does."""
REQUIRED = {"torch", "numpy", "scipy"}


# --- the checker ---


def parse(path: Path) -> ast.Module:
    """The syntax tree of a file, to be looked at and not changed: several tests share it."""
    return parse_text(path.read_text(encoding="utf-8"))


parse_text = cache(ast.parse)


@cache
def nodes(tree: ast.AST) -> list[ast.AST]:
    """All nodes of a tree, which several tests look at."""
    return list(ast.walk(tree))


def imported_names(tree: ast.AST, package: list[str]) -> list[tuple[int, str]]:
    """Line and absolute dotted name of everything a module imports, wherever in the file; `package` is its parent."""
    names = []
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            names += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            names += [(node.lineno, f"{source}.{alias.name}") for alias in node.names]
    return names


def violations(root: Path, *, name: str = "selbo", layers: Layers = LAYERS) -> list[str]:
    """Sentences on every import below `root`, the folder of a package of this name, that breaks the layering."""
    found = []
    above = {part: height for height, layer in enumerate(layers) for part in layer}
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        part = relative.with_suffix("").parts[0]
        if relative == Path("__init__.py"):
            continue  # the public names may come from everywhere
        if part not in above:
            found.append(f"{relative}: '{part}' has no layer; give it one in tests/test_architecture.py")
            continue
        package = [name, *relative.parent.parts]
        for line, imported in imported_names(parse(path), package):
            head, _, rest = f"{imported}.".partition(".")
            target = rest.split(".")[0]
            if head != name or target == part:
                continue
            if target not in above:
                found.append(f"{relative}:{line}: '{part}' imports the package root ({imported}), which is above it")
            elif above[target] >= above[part]:
                where = "beside" if above[target] == above[part] else "above"
                found.append(f"{relative}:{line}: '{part}' imports '{target}' ({imported}), which is {where} it")
    return found


def test_imports_point_down() -> None:
    assert PACKAGE.is_dir()
    assert violations(PACKAGE) == []


@in_a_checkout
def test_imports_of_the_laboratory_point_down() -> None:
    assert violations(LABORATORY, name="selbo_lab", layers=LABORATORY_LAYERS) == []


def folders(root: Path) -> set[str]:
    return {path.name for path in root.iterdir() if path.is_dir() and path.name != "__pycache__"}


def test_unit_tests_have_the_folders_of_the_package() -> None:
    assert folders(PACKAGE.parents[1] / "tests" / "unit") == folders(PACKAGE)


@in_a_checkout
def test_unit_tests_of_the_laboratory_have_the_folders_of_its_package() -> None:
    assert folders(LABORATORY.parents[1] / "tests" / "unit") == folders(LABORATORY)


def test_there_is_no_utils_module() -> None:
    names = {"utils", "util", "helpers", "misc"}
    assert [str(p) for root in (PACKAGE, LABORATORY) for p in root.rglob("*") if p.stem in names] == []


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("summary/likelihood.py", "from selbo.objectives import ELBO", "'objectives' .* above it"),
        ("summary/likelihood.py", "from ..objectives import elbo", "'objectives' .* above it"),
        ("summary/likelihood.py", "def f():\n    import selbo.cli.main", ":2: .*'cli' .* above it"),
        ("summary/likelihood.py", "from selbo import cli", "'cli' .* above it"),
        ("summary/likelihood.py", "from ..metrics.scores import brier", "'metrics' .* beside it"),
        ("summary/likelihood.py", "from .. import SummaryELBO", "package root"),
        ("summary/likelihood.py", "import selbo", "package root"),
        ("_checks.py", "from ._numerics import TINY", "'_numerics' .* beside it"),
        ("models/images/vgg.py", "from ...metrics.scores import brier", "'metrics' .* beside it"),
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
            "import torch\nfrom .._checks import f\nfrom . import partitions\nfrom .beliefs import g",
        ),
        ("summary/likelihood.py", "import selbo._numerics\nfrom selbo.summary.partitions import Partition"),
        ("models/images/vgg.py", "from ..mlp import MLP\nfrom . import noise\nfrom ..._checks import f"),
        ("cli/main.py", "from selbo import tabular, summary, _numerics"),
    ],
)
def test_the_checker_accepts(tmp_path: Path, module: str, source: str) -> None:
    (tmp_path / module).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / module).write_text(source)
    assert violations(tmp_path) == []


# --- two distributions: the laboratory stands on what the library publishes ---


def published(library: Path, module: str) -> set[str]:
    """Names in the `__all__` of `selbo` or of `selbo.<module>`, from the syntax tree; none if it has no list."""
    inside = library.joinpath(*module.split(".")[1:])
    path = inside / "__init__.py" if inside.is_dir() else inside.with_suffix(".py")
    if not path.is_file():
        return set()
    for node in parse(path).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def intrusions(laboratory: Path, library: Path) -> list[str]:
    """Sentences on everything that the laboratory takes from the library and that is not public.

    Public are `from selbo import X` and `from selbo.<module> import X`, with X in the `__all__` of that module, and the
    version. A module inside a package of the library, or a name that begins with an underscore, is not; nor is what
    begins with an underscore in a class of the library that a class of the laboratory is derived from.
    """
    found, of_library = [], classes(library)
    of_both = classes(laboratory) | of_library
    for path in sorted(laboratory.rglob("*.py")):
        tree, taken = parse(path), set[str]()
        for node in nodes(tree):
            where = f"{path.relative_to(laboratory)}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names if alias.name.partition(".")[0] == "selbo"]
                found += [f"{where}: imports the module {each}, not a name" for each in modules]
            elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "selbo":
                module, names = str(node.module), [alias.name for alias in node.names]
                taken |= {alias.asname or alias.name for alias in node.names}
                public = published(library, module) if module.count(".") < 2 and "._" not in module else set()
                hidden = [name for name in names if name not in public and (module, name) != ("selbo", "__version__")]
                found += [f"{where}: {module} does not publish {name}" for name in hidden]
        for node in nodes(tree):
            owner = ast.unparse(node.value) if isinstance(node, ast.Attribute) and node.attr.startswith("_") else ""
            if owner in taken or (owner.startswith("super(") and is_private(node.attr)):
                found.append(f"{path.relative_to(laboratory)}:{node.lineno}: {ast.unparse(node)} is private")
        for node in nodes(tree):
            above = ancestors(node, of_both) & set(of_library.values()) if isinstance(node, ast.ClassDef) else set()
            hidden = set[str]().union(*map(private_members, above))
            for line, name in sorted((each.lineno, name) for each, name in members(node)) if hidden else ():
                if name in hidden:
                    found.append(f"{path.relative_to(laboratory)}:{line}: {name} is private in a base of {node.name}")
    return found


def classes(root: Path) -> dict[str, ast.ClassDef]:
    """Classes below `root`, by name."""
    trees = (parse(path) for path in sorted(root.rglob("*.py")))
    return {node.name: node for tree in trees for node in nodes(tree) if isinstance(node, ast.ClassDef)}


def ancestors(node: ast.ClassDef, known: dict[str, ast.ClassDef]) -> set[ast.ClassDef]:
    """Classes that a class is derived from, as far as they are known by name."""
    names = [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases]
    bases = {known[name] for name in names if name in known} - {node}
    return bases.union(*(ancestors(base, known) for base in bases))


def members(node: ast.AST) -> list[tuple[ast.AST, str]]:
    """Methods and attributes of a class, where it defines, sets or uses them."""
    attributes = [each for each in nodes(node) if isinstance(each, ast.Attribute)]
    used = [(each, each.attr) for each in attributes if ast.unparse(each.value) in {"self", "cls"}]
    return used + [(each, each.name) for each in ast.iter_child_nodes(node) if isinstance(each, ast.FunctionDef)]


def private_members(node: ast.ClassDef) -> set[str]:
    """Private methods and attributes that a class defines or sets."""
    found = {name for each, name in members(node) if not isinstance(getattr(each, "ctx", None), ast.Load)}
    return set(filter(is_private, found))


@in_a_checkout
@pytest.mark.parametrize("folder", [LABORATORY, LABORATORY.parents[1] / "docs"], ids=lambda folder: folder.name)
def test_the_laboratory_uses_only_what_the_library_publishes(folder: Path) -> None:
    assert folder.is_dir()
    assert intrusions(folder, PACKAGE) == []


def test_the_library_does_not_know_the_laboratory() -> None:
    found = []
    for path in PACKAGE.rglob("*.py"):
        package = ["selbo", *path.relative_to(PACKAGE).parent.parts]
        names = imported_names(parse(path), package)
        found += [f"{path}:{line}: {name}" for line, name in names if name.partition(".")[0] == "selbo_lab"]
    assert found == []


OWN_PLOT = "from selbo.plots import Wide\nclass Own(Wide[int]):\n"


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("import selbo", "run.py:1: imports the module selbo, not a name"),
        ("import selbo.plots as p", "run.py:1: imports the module selbo.plots, not a name"),
        ("from selbo import hidden", "run.py:1: selbo does not publish hidden"),
        ("from selbo import plots", "run.py:1: selbo does not publish plots"),
        ("from selbo.plots import draw, axes", "run.py:1: selbo.plots does not publish axes"),
        ("from selbo.plots.style import draw", "run.py:1: selbo.plots.style does not publish draw"),
        ("def f():\n    from selbo._files import replacing", "run.py:2: selbo._files does not publish replacing"),
        ("from selbo.nothing import draw", "run.py:1: selbo.nothing does not publish draw"),
        ("from selbo import fit\nfit._loop()", "run.py:2: fit._loop is private"),
        ("class Own:\n    def f(self): super()._f()", "run.py:2: super()._f is private"),
        ("class Own:\n    def f(self): super(Own, self)._f()", "run.py:2: super(Own, self)._f is private"),
        (f"{OWN_PLOT}    def _draw(self): pass", "run.py:3: _draw is private in a base of Own"),
        (f"{OWN_PLOT}    def f(self): return self._size", "run.py:3: _size is private in a base of Own"),
        (f"{OWN_PLOT}    pass\nclass B(Own):\n    def _draw(self): pass", "run.py:5: _draw is private in a base of B"),
    ],
)
def test_what_the_laboratory_may_not_use(tmp_path: Path, source: str, complaint: str) -> None:
    library, laboratory = small_library(tmp_path), tmp_path / "selbo_lab"
    laboratory.mkdir()
    (laboratory / "run.py").write_text(source)
    assert intrusions(laboratory, library) == [complaint]


def test_what_the_laboratory_may_use(tmp_path: Path) -> None:
    library, laboratory = small_library(tmp_path), tmp_path / "selbo_lab"
    laboratory.mkdir()
    source = "import numpy\nfrom selbo import __version__, fit\nfrom selbo.plots import draw as d\n"
    source += f"{OWN_PLOT}    def draw(self): super().draw(self._own())\n    def _own(self): pass\n"
    (laboratory / "run.py").write_text(f"{source}from selbo.random import derive\nfrom selbo_lab import _own\nfit(d.x)")
    assert intrusions(laboratory, library) == []


def small_library(folder: Path) -> Path:
    """A library that publishes `fit`, `plots.draw`, `plots.Wide` and `random.derive`."""
    sources = {
        "__init__": '__all__ = ["fit"]',
        "plots/__init__": '__all__ = ["draw", "Wide"]',
        "plots/figures": "class Plot:\n    def __init__(self): self._size = 1\n    def _draw(self): pass",
        "plots/wide": "from selbo.plots.figures import Plot\nclass Wide(Plot): pass",
        "plots/style": '__all__ = ["draw"]',
        "random": '__all__ = ["derive"]',
        "_files": '__all__ = ["replacing"]',
    }
    for name, source in sources.items():
        path = folder / "selbo" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return folder / "selbo"


# --- two things never share a name ---

SHARED_NAMES = {
    "SummaryCallback": "the callback of Lightning, and that of transformers: a project uses one of the two",
    "evaluate": "a function of the library, and the command of the same name",
    "predict": "a function of the library, and the command of the same name",
}
"""Public names that two modules define on purpose."""


def definitions(root: Path) -> dict[str, list[str]]:
    """Modules below `root` that define a public name at their top level (class, function or constant), by name."""
    found: dict[str, list[str]] = {}
    for path in sorted(root.rglob("*.py")):
        names = set[str]()
        for node in parse(path).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                names.add(node.name)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names |= {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
        for name in names:
            if not name.startswith("_"):
                found.setdefault(name, []).append(str(path.relative_to(root.parent)))
    return found


@in_a_checkout
def test_no_public_name_is_defined_twice() -> None:
    library, laboratory = definitions(PACKAGE), definitions(LABORATORY)
    places = {name: library.get(name, []) + laboratory.get(name, []) for name in {*library, *laboratory}}
    twice = {name: modules for name, modules in places.items() if len(modules) > 1}
    assert {name: modules for name, modules in twice.items() if name not in SHARED_NAMES} == {}
    assert set(SHARED_NAMES) <= set(twice), "remove exceptions that are no longer needed"


def test_what_counts_as_a_definition(tmp_path: Path) -> None:
    lines = ["import a", "from b import c", "D: int = 1", "E, (F, _g) = 1, (2, 3)", "class H:", "    i = 1"]
    (tmp_path / "m.py").write_text("\n".join([*lines, "def j():", "    k = 1", "def _l(): pass"]))
    assert set(definitions(tmp_path)) == {"D", "E", "F", "H", "j"}


# --- every package that is imported is declared by the distribution that imports it ---

MODULES = {"mlflow-skinny": "mlflow", "scikit-learn": "sklearn", "sentence-transformers": "sentence_transformers"}
"""Names that differ between installing and importing."""
TOOLS = {"docs", "test", "dev"}
"""Extras for those who work on the library."""
INDIRECT = {"tensorboard", "sentence_transformers"}
"""Imported by torch, and by a name in a string."""


def declared_modules(project: Path) -> set[str]:
    """Modules that the dependencies of a `pyproject.toml` bring, and its extras apart from those for development."""
    stated = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    extras = stated.get("optional-dependencies", {})
    requirements = [*stated["dependencies"], *(each for name in extras if name not in TOOLS for each in extras[name])]
    names = {re.match(r"[\w-]+", each)[0] for each in requirements} - {stated["name"]}
    return {MODULES.get(name, name) for name in names}


def imported_modules(root: Path) -> set[str]:
    """Packages that are imported below `root`, neither of the standard library nor itself."""
    names = set()
    for path in root.rglob("*.py"):
        package = [root.name, *path.relative_to(root).parent.parts]
        names |= {name for _, name in imported_names(parse(path), package)}
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {root.name, "tomllib"}


@pytest.mark.parametrize("root", [PACKAGE, pytest.param(LABORATORY, marks=in_a_checkout)], ids=lambda root: root.name)
def test_dependencies_are_the_packages_that_are_imported(root: Path) -> None:
    assert imported_modules(root) == declared_modules(root.parents[1] / "pyproject.toml") - INDIRECT


def test_what_counts_as_declared_and_as_imported(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "a.py").write_text(
        "import os, numpy.linalg\nfrom .b import c\ndef f():\n    from sklearn import d"
    )
    assert imported_modules(tmp_path / "own") == {"numpy", "sklearn"}
    lines = ["[project]", "name = 'own'", "dependencies = ['numpy>=1; python_version < \"3.11\"']"]
    lines += ["[project.optional-dependencies]", "all = ['scikit-learn>=1', 'rich[x]', 'own[all]']", "dev = ['ruff']"]
    (tmp_path / "pyproject.toml").write_text("\n".join(lines))
    assert declared_modules(tmp_path / "pyproject.toml") == {"numpy", "sklearn", "rich"}


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
    for node in nodes(tree):
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
        if (names := private_torch_names(parse(path)))
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
asked = [selbo.models.__name__, selbo.summary.beliefs.Beta is selbo.Beta, hasattr(selbo, "nothing")]
for name in selbo.__all__:
    getattr(selbo, name)
print(json.dumps({
    "asked": asked,
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


def loaded_with(*names: str) -> set[str]:
    """Modules of the library and packages that are imported with some modules of the library, by the syntax trees."""
    found, waiting = set[str](), list(names)
    while waiting:
        name = waiting.pop()
        parts = name.split(".")
        path = PACKAGE.parent.joinpath(*parts)
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if parts[0] != "selbo":
            found.add(parts[0])
        elif not path.exists():  # a name in a module
            waiting.append(".".join(parts[:-1]))
        elif name not in found:
            found.add(name)
            package = ["selbo", *path.relative_to(PACKAGE).parent.parts]
            tree = run_at_import(ast.parse(path.read_text(encoding="utf-8")))
            waiting += [each for _, each in imported_names(tree, package)]
            waiting += [".".join(parts[:i]) for i in range(1, len(parts))]
    return found


def test_files_of_predictions_need_no_estimator() -> None:
    """`selbo monitor` and `selbo calibrate`, which may run every minute: scikit-learn takes as long as torch."""
    assert {"sklearn", "selbo.estimator"} <= loaded_with("selbo.tabular.workflow")
    names = ("predictions", "saved_calibration", "saved_monitor")
    found = loaded_with(*(f"selbo.tabular.{name}" for name in names))
    assert "torch" in found
    assert not {name for name in found if name.startswith(("sklearn", "matplotlib", "selbo.estimator"))}


def test_import_leaves_the_random_states_alone(fresh_import: dict[str, object]) -> None:
    assert fresh_import["untouched"]


@pytest.mark.parametrize(
    "arguments",
    [
        *("--help", "--version", "train --help", "nothing", "train --accuracy much"),
        *("train nothing.csv --target y --out model", "predict nothing new.csv", "evaluate nothing new.csv"),
        *("monitor nothing.csv --accuracy 0.9", "calibrate nothing.csv --accuracy 0.9"),
    ],
)
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
    assert sorted(names) == sorted([*selbo.__all__, "BeliefCalibrator", "SummaryClassifier"])
    assert set(selbo.__all__) <= set(dir(selbo))


def test_modules_can_be_asked_for_and_what_does_not_exist_cannot(fresh_import: dict[str, object]) -> None:
    assert fresh_import["asked"] == ["selbo.models", True, False]
    with pytest.raises(AttributeError, match=r"^module 'selbo' has no attribute 'nothing'$"):
        _ = selbo.nothing


def test_a_package_that_is_missing_is_told_and_not_taken_for_a_name_that_does_not_exist() -> None:
    code = "import sys; sys.modules['torch'] = None\nimport selbo\nselbo.metrics"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "import of torch halted" in run.stderr
