"""Files are whole or absent."""

from pathlib import Path

import pytest

from selbo.files import replacing


def test_a_file_appears_only_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "result.json"
    with replacing(target) as unfinished:
        unfinished.write_text("new", encoding="utf-8")
        assert not target.exists()
    assert target.read_text(encoding="utf-8") == "new"
    assert [each.name for each in tmp_path.iterdir()] == ["result.json"]


@pytest.mark.parametrize("written", [True, False])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path, written: bool) -> None:
    target = tmp_path / "result.json"
    target.write_text("old", encoding="utf-8")

    def fail() -> None:
        with replacing(target) as unfinished:
            if written:
                unfinished.write_text("half", encoding="utf-8")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert target.read_text(encoding="utf-8") == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["result.json"]
