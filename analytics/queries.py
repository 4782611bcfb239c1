"""The named queries: one file each in `analytics/sql`, parameters bound by the store, never pasted in."""

from functools import cache
from pathlib import Path
from typing import Final

_DIRECTORY: Final = Path(__file__).parent / "sql"


@cache
def query(name: str) -> str:
    """Read the query of that name. Raises FileNotFoundError for a name that has no file."""
    return (_DIRECTORY / f"{name}.sql").read_text()


def query_names() -> list[str]:
    """List all queries by name."""
    return sorted(path.stem for path in _DIRECTORY.glob("*.sql"))
