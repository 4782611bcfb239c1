"""Check what holds for every file: it is finished, and silent about the machine it was written on."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
IGNORED = frozenset(line for line in (ROOT / ".gitignore").read_text().splitlines() if line.endswith("/"))
SKIPPED_FOLDERS = frozenset({".git", ".venv", "__pycache__", "node_modules", "results"})
SOURCE_SUFFIXES = frozenset({".py", ".sql", ".sh", ".css", ".js", ".html", ".xml", ".yaml", ".yml", ".toml", ".md"})
DOCUMENT_SUFFIXES = frozenset({".md", ".txt", ".toml", ".yaml", ".yml"})

UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|\bfor now\b|\bNotImplementedError\b")
LOCAL_PATH = re.compile(r"(?<![\w.$}~-])/(?:work|root|home|Users)/[\w.]")


def files(suffixes: frozenset[str]) -> Iterator[Path]:
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(
            name for name in folders if not is_skipped(Path(folder, name))
        )  # os.walk then leaves the others out
        yield from (Path(folder, name) for name in sorted(names) if Path(name).suffix in suffixes)


def is_skipped(folder: Path) -> bool:
    """Return whether a folder's files are nobody's to check: what Git ignores, each where .gitignore says."""
    if f"/{folder.relative_to(ROOT)}/" in IGNORED or f"{folder.name}/" in IGNORED:
        return True
    return folder.name in SKIPPED_FOLDERS or folder.name.endswith(("_cache", ".egg-info"))


def lines_with(pattern: re.Pattern[str], suffixes: frozenset[str]) -> list[str]:
    """Find the pattern in every file but this one, which has to spell out what it looks for."""
    return [
        f"{path.relative_to(ROOT)}:{number} {line.strip()[:80]}"
        for path in files(suffixes)
        if path != Path(__file__)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]


def test_nothing_is_left_unfinished() -> None:
    assert lines_with(UNFINISHED, SOURCE_SUFFIXES) == []


def test_nothing_names_a_path_of_somebody_s_machine() -> None:
    assert lines_with(LOCAL_PATH, SOURCE_SUFFIXES | DOCUMENT_SUFFIXES) == []


@pytest.mark.parametrize("text", ["see /home/me/notes.md", "cp x /root/y", "`/Users/me/x`"])
def test_a_path_of_somebody_s_machine_is_recognised(text: str) -> None:
    assert LOCAL_PATH.search(text)


@pytest.mark.parametrize(
    "text", ["GET /v1/models", "/app/gateway", "~/home/x", "https://example.org/home/x", "/homeless"]
)
def test_other_paths_are_let_through(text: str) -> None:
    assert not LOCAL_PATH.search(text)


def test_no_tests_are_a_package_of_a_products_name() -> None:
    """With `__init__.py`, tests/gateway would become the package `gateway` and hide ours."""
    made = [path.relative_to(ROOT / "tests").parts[0] for path in (ROOT / "tests").rglob("__init__.py")]
    assert [name for name in made if (ROOT / name).exists() or name == "__init__.py"] == []
