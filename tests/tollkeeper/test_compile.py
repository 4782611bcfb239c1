"""Compiling is done where it can be, and leaves everything as it was if it cannot."""

import ast
import sysconfig
from pathlib import Path

import pytest

from backends.processes.compiled import ROOT, CompiledModules, State
from tollkeeper import compile as compiling
from tollkeeper import doctor
from tollkeeper.compile import HOT, UNREAD, CannotCompile, compile_modules, main


def found(state: State, reason: str = "why") -> CompiledModules:
    return CompiledModules(state, reason, {})


def test_every_module_named_is_there_once() -> None:
    assert [name for name in HOT if not (ROOT / f"{name}.py").is_file()] == []
    assert len(set(HOT)) == len(HOT)


def test_no_hot_module_takes_anything_from_a_library_that_is_not_read() -> None:
    # Its objects would be of any type, and what is compiled of them slower than need be.
    taken: dict[str, set[str]] = {}
    for name in HOT:
        for node in ast.walk(ast.parse((ROOT / f"{name}.py").read_text())):
            named = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            named += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for library in {one.partition(".")[0] for one in named} & set(UNREAD):
                taken.setdefault(library, set()).add(name)
    assert taken == {}


def test_without_a_compiler_it_says_so_in_a_line_and_succeeds(monkeypatch, capsys) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setattr(compiling, "find_compiled", lambda **_: found("absent"))
    assert main() == 0
    assert "run interpreted: no C compiler is installed" in capsys.readouterr().out


def test_a_fault_while_compiling_keeps_no_installation_from_running(monkeypatch, capsys) -> None:
    def fail() -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(compiling, "find_compiled", lambda **_: found("absent"))
    monkeypatch.setattr(compiling, "compile_modules", fail)
    assert main() == 0
    assert "run interpreted: OSError: [Errno 28] No space left on device" in capsys.readouterr().out


def test_without_headers_it_says_so(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    folder = tmp_path / "compiled"
    with pytest.raises(CannotCompile, match="headers"):
        compile_modules(("contracts/ids",), folder)
    assert not folder.exists()


def compiled(*names: str) -> CompiledModules:
    return CompiledModules("compiled", "48 modules", {name: Path(name) for name in names})


ALL = [module.replace("/", ".") for module in HOT] + ["tollkeeper__mypyc"]


def test_what_is_compiled_already_is_left(monkeypatch, capsys) -> None:
    monkeypatch.setattr(compiling, "find_compiled", lambda **_: compiled(*ALL))
    monkeypatch.setattr(compiling, "compile_modules", lambda: pytest.fail("compiled again"))
    assert main() == 0
    assert "48 modules" in capsys.readouterr().out


@pytest.mark.parametrize("names", [ALL[1:], [*ALL, "gateway.no_longer_hot"]])
def test_a_module_more_or_less_is_compiled_again_although_no_source_has_changed(monkeypatch, names: list[str]) -> None:
    again: list[bool] = []
    monkeypatch.setattr(compiling, "find_compiled", lambda **_: compiled(*names))
    monkeypatch.setattr(compiling, "compile_modules", lambda: again.append(True))
    assert main() == 0
    assert again


@pytest.mark.parametrize(
    ("state", "status"), [("compiled", "ok"), ("off", "ok"), ("stale", "warn"), ("absent", "warn")]
)
def test_the_doctor_tells_how_it_stands(monkeypatch, state: State, status: str) -> None:
    monkeypatch.setattr(doctor, "find_compiled", lambda **_: found(state))
    check = doctor._check_compiled({})
    assert check.status == status and "why" in check.detail
    assert ("make compile" in check.remedy) is (status == "warn")
