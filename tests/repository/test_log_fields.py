"""Fields of log lines: one that a log record has already would raise KeyError, but only where the level is logged."""

import ast
import logging
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("algorithms", "analytics", "backends", "collector", "contracts", "dashboard", "gateway", "migrations")
RESERVED = {*vars(logging.makeLogRecord({})), "message", "asctime"}


def fields(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of each field that is given as `extra`."""
    if "extra" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        for keyword in node.keywords if isinstance(node, ast.Call) else ():
            if keyword.arg == "extra" and isinstance(keyword.value, ast.Dict):
                for key in keyword.value.keys:
                    if isinstance(key, ast.Constant):
                        yield key.lineno, str(key.value)


def test_no_field_has_the_name_of_a_log_record_s_own() -> None:
    files = [path for package in (*PACKAGES, "tollkeeper") for path in (ROOT / package).rglob("*.py")]
    found = [(path, *field) for path in files for field in fields(path.read_text())]
    assert len(found) > 100
    assert [f"{path.relative_to(ROOT)}:{line} {name}" for path, line, name in found if name in RESERVED] == []
    assert {name for _, name in fields('log.info("x", extra={"name": 1, "reason": 2})')} & RESERVED == {"name"}
