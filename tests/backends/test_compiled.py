"""A compiled module stands for its source as long as that is what it was compiled from, and not a byte longer."""

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.processes.compiled import LIST, ROOT, CompiledFinder, digest_of, find_compiled
from tollkeeper.compile import HOT

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


WAITS = (ast.Await, ast.Yield, ast.YieldFrom, ast.AsyncFor)


def waits_while_an_error_is_handled(node: ast.AST, *, is_handling: bool = False) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        is_handling = False
    if is_handling and isinstance(node, WAITS):
        yield f"{node.lineno}: {ast.unparse(node)}"
    for child in ast.iter_child_nodes(node):
        is_last = isinstance(node, ast.Try) and child in node.finalbody
        handles = is_handling or is_last or isinstance(child, ast.ExceptHandler)
        yield from waits_while_an_error_is_handled(child, is_handling=handles)


@pytest.mark.parametrize("module", HOT)
def test_nothing_compiled_waits_while_it_handles_an_error(module: str) -> None:
    """What is compiled does not put the error aside meanwhile: the one that runs next would seem to be handling it."""
    assert not list(waits_while_an_error_is_handled(ast.parse((ROOT / f"{module}.py").read_text())))


def test_a_wait_while_an_error_is_handled_is_found() -> None:
    source = """
async def one():
    try:
        await a
    except E:
        if b:
            await c
    finally:
        await d
    try:
        pass
    except E:
        async def later():
            await e
    await f
"""
    assert list(waits_while_an_error_is_handled(ast.parse(source))) == ["7: await c", "9: await d"]


@pytest.mark.parametrize("module", HOT)
def test_nothing_compiled_defines_a_struct_that_is_read_from_bytes(module: str) -> None:
    """The compiler keeps of a field's type no more than its class, and of a union nothing."""
    tree = ast.parse((ROOT / f"{module}.py").read_text())
    read = {
        ast.unparse(given)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] in ("decode", "Decoder", "convert")
        for given in (*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "type"))
    }
    assert not read & {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
