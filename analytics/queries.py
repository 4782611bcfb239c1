"""The named queries: one file each in `analytics/sql`, parameters bound by the store, never pasted in."""

import re
from functools import cache
from pathlib import Path
from typing import Final

_DIRECTORY: Final = Path(__file__).parent / "sql"
_PART: Final = re.compile(r"\{\{(\w+)\}\}")


@cache
def query(name: str) -> str:
    """Read the query of that name; `{{part}}` in it stands for a file of `analytics/sql/parts`, which queries share.

    Raises FileNotFoundError for a name that has no file.
    """
    return _with_parts((_DIRECTORY / f"{name}.sql").read_text())


def query_names() -> list[str]:
    """List all queries by name."""
    return sorted(path.stem for path in _DIRECTORY.glob("*.sql"))


def _with_parts(text: str) -> str:
    return _PART.sub(lambda found: _part(found[1]), text)


def _part(name: str) -> str:
    lines = (_DIRECTORY / "parts" / f"{name}.sql").read_text().splitlines()
    return _with_parts("\n".join(line for line in lines if not line.startswith("--")))
