"""A compiled module stands for its source as long as that is what it was compiled from, and not a byte longer."""

import json
import sys
from pathlib import Path

import pytest

from backends.compiled import LIST, CompiledFinder, digest_of, find_compiled

SOURCES = ["gateway/one.py", "contracts/two.py"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in SOURCES:
        file = tmp_path / "code" / name
        file.parent.mkdir(parents=True)
        file.write_text(f"# {name}\n")
    return tmp_path / "code"


@pytest.fixture
def folder(root: Path, tmp_path: Path) -> Path:
    made = tmp_path / "compiled"
    made.mkdir()
    (made / "gateway.one.so").write_bytes(b"machine code")
    kept = {"digest": digest_of(root, SOURCES), "sources": SOURCES, "modules": {"gateway.one": "gateway.one.so"}}
    (made / LIST).write_text(json.dumps(kept))
    return made


def test_what_was_compiled_from_these_sources_is_used(folder: Path, root: Path) -> None:
    found = find_compiled(folder, root, {})
    assert found.state == "compiled"
    assert found.files == {"gateway.one": folder / "gateway.one.so"}


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("change", ["", "# gateway/one.pY\n", "# gateway/one.py\n\n"])
def test_a_source_that_differs_by_a_byte_is_not_shadowed(folder: Path, root: Path, name: str, change: str) -> None:
    (root / name).write_text(change)
    found = find_compiled(folder, root, {})
    assert (found.state, found.files) == ("stale", {})
    assert "make compile" in found.reason


def test_a_source_that_is_gone_makes_it_stale(folder: Path, root: Path) -> None:
    (root / SOURCES[1]).unlink()
    assert find_compiled(folder, root, {}).state == "stale"


def test_bytes_that_move_from_one_source_to_the_next_are_seen(folder: Path, root: Path) -> None:
    one, two = (root / name for name in sorted(SOURCES))
    whole = one.read_text() + two.read_text()
    one.write_text(whole[:5])
    two.write_text(whole[5:])
    assert find_compiled(folder, root, {}).state == "stale"


def test_a_file_that_is_missing_makes_it_stale(folder: Path, root: Path) -> None:
    (folder / "gateway.one.so").unlink()
    assert find_compiled(folder, root, {}).state == "stale"


@pytest.mark.parametrize("content", [None, "", "{", "[]", '{"digest": "", "sources": [], "modules": []}'])
def test_without_a_list_that_can_be_read_nothing_is_compiled(folder: Path, root: Path, content: str | None) -> None:
    (folder / LIST).unlink()
    if content is not None:
        (folder / LIST).write_text(content)
    found = find_compiled(folder, root, {})
    assert (found.state, found.files) == ("absent", {})


@pytest.mark.parametrize("said", ["0", "false", "off", "No"])
def test_it_is_switched_off_by_a_variable(folder: Path, root: Path, said: str) -> None:
    assert find_compiled(folder, root, {"TOLLKEEPER_COMPILED": said}).state == "off"
    assert find_compiled(folder, root, {"TOLLKEEPER_COMPILED": "1"}).state == "compiled"


def test_a_finder_finds_what_is_compiled_and_leaves_the_rest(folder: Path) -> None:
    finder = CompiledFinder({"gateway.one": folder / "gateway.one.so"})
    spec = finder.find_spec("gateway.one")
    assert spec is not None and spec.origin == str(folder / "gateway.one.so")
    assert finder.find_spec("gateway.two") is None
    assert finder not in sys.meta_path
