"""Loads the named SQL queries, one file each in `analytics/sql`; the store binds their parameters.

Placeholders such as `{{leaf_sums}}` are replaced by expressions for each kind of usage (LEAVES).
"""

import re
from functools import cache
from pathlib import Path
from typing import Final

from contracts.metering.usage import (
    CACHE_READ_LEAVES,
    CACHE_WRITE_LEAVES,
    FRESH_LEAVES,
    INPUT_LEAVES,
    LEAVES,
    MEDIA_LEAVES,
    OUTPUT_LEAVES,
    TOKEN_LEAVES,
    UNIT_LEAVES,
    Leaf,
    column_of,
    sum_in_sql,
)

_DIRECTORY: Final = Path(__file__).parent / "sql"
_PART: Final = re.compile(r"\{\{(\w+)\}\}")


def _each(form: str, between: str = ", ", leaves: tuple[Leaf, ...] = LEAVES) -> str:
    """Expand a template for each kind of usage: `$column` is its column, `$bit` two to the power of its index."""
    written = [
        form.replace("$column", column_of(leaf)).replace("$bit", str(1 << place)) for place, leaf in enumerate(leaves)
    ]
    return between.join(written)


_LISTS: Final = {
    "leaf_sums": f"[{_each('sum(toUInt64(ifNull($column, 0)))')}]",
    "leaf_counts": f"[{_each('toInt64(ifNull($column, 0))')}]",
    "leaf_bits": f"({_each('toUInt64(ifNull($column, 0) > 0) * $bit', ' + ')})",
    "unit_sums": f"[{_each('sum(toUInt64(ifNull($column, 0)))', leaves=UNIT_LEAVES)}]",
    "retried_leaf_sums": f"[{_each('sum(toUInt64(ifNull(coalesce(tries.$column, answered.$column), 0)))')}]",
    "leaf_columns": _each("$column"),
    "input_sum": f"({sum_in_sql(INPUT_LEAVES)})",
    "cached_sum": f"({sum_in_sql(CACHE_READ_LEAVES)})",
    "written_sum": f"({sum_in_sql(CACHE_WRITE_LEAVES)})",
    "media_sum": f"({sum_in_sql(MEDIA_LEAVES)})",
    "fresh_sum": f"({sum_in_sql(FRESH_LEAVES)})",
    "output_sum": f"({sum_in_sql(OUTPUT_LEAVES)})",
    "token_sum": f"({sum_in_sql(TOKEN_LEAVES)})",
    "any_input": f"coalesce({_each('$column', leaves=INPUT_LEAVES)})",
    "any_output": f"coalesce({_each('$column', leaves=OUTPUT_LEAVES)})",
    "any_unit": f"coalesce({_each('$column', leaves=UNIT_LEAVES)})",
    "input_mask": str([int(leaf in INPUT_LEAVES) for leaf in LEAVES]),
    "output_mask": str([int(leaf in OUTPUT_LEAVES) for leaf in LEAVES]),
    "token_bits": str(sum(1 << LEAVES.index(leaf) for leaf in TOKEN_LEAVES)),
    "unit_bits": str(sum(1 << LEAVES.index(leaf) for leaf in UNIT_LEAVES)),
}


@cache
def query(name: str) -> str:
    """Return the SQL of a named query; each `{{part}}` in it is replaced by the file in `analytics/sql/parts` or the
    expression of that name.

    Raises FileNotFoundError for an unknown name.
    """
    return _with_parts((_DIRECTORY / f"{name}.sql").read_text())


def query_names() -> list[str]:
    """Return the names of all queries, sorted."""
    return sorted(path.stem for path in _DIRECTORY.glob("*.sql"))


def _with_parts(text: str) -> str:
    return _PART.sub(lambda found: _part(found[1]), text)


def _part(name: str) -> str:
    if name in _LISTS:
        return _LISTS[name]
    lines = (_DIRECTORY / "parts" / f"{name}.sql").read_text().splitlines()
    return _with_parts("\n".join(line for line in lines if not line.startswith("--")))
