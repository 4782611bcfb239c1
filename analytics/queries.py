"""The named queries: one file each in `analytics/sql`, parameters bound by the store, never pasted in.

What has to name every kind of usage names a list instead: `{leaf_sums}`, `{leaf_bits}` and the others below, which have
no type and so are no parameters of the store.
"""

from functools import cache
from pathlib import Path
from typing import Final

from contracts.metering.usage import INPUT_LEAVES, LEAVES, OUTPUT_LEAVES, TOKEN_LEAVES, UNIT_LEAVES, Leaf, column_of

_DIRECTORY: Final = Path(__file__).parent / "sql"


def _each(form: str, between: str = ", ", leaves: tuple[Leaf, ...] = LEAVES) -> str:
    """Write a form for each kind of usage: `$column` is where it stands, `$bit` a number for the place in the list."""
    written = [
        form.replace("$column", column_of(leaf)).replace("$bit", str(1 << place)) for place, leaf in enumerate(leaves)
    ]
    return between.join(written)


_LISTS: Final = {
    "{leaf_sums}": f"[{_each('sum(toUInt64(ifNull($column, 0)))')}]",
    "{leaf_counts}": f"[{_each('toInt64(ifNull($column, 0))')}]",
    "{leaf_bits}": f"({_each('toUInt64(ifNull($column, 0) > 0) * $bit', ' + ')})",
    "{retried_leaf_sums}": f"[{_each('sum(toUInt64(ifNull(coalesce(tries.$column, answered.$column), 0)))')}]",
    "{leaf_columns}": _each("$column"),
    "{input_sum}": f"({_each('ifNull($column, 0)', ' + ', INPUT_LEAVES)})",
    "{any_input}": f"coalesce({_each('$column', leaves=INPUT_LEAVES)})",
    "{any_output}": f"coalesce({_each('$column', leaves=OUTPUT_LEAVES)})",
    "{any_unit}": f"coalesce({_each('$column', leaves=UNIT_LEAVES)})",
    "{input_leaves}": str(len(INPUT_LEAVES)),
    "{output_leaves}": str(len(OUTPUT_LEAVES)),
    "{token_leaves}": str(len(TOKEN_LEAVES)),
}


@cache
def query(name: str) -> str:
    """Read the query of that name. Raises FileNotFoundError for a name that has no file."""
    text = (_DIRECTORY / f"{name}.sql").read_text()
    for mark, listed in _LISTS.items():
        text = text.replace(mark, listed)
    return text


def query_names() -> list[str]:
    """List all queries by name."""
    return sorted(path.stem for path in _DIRECTORY.glob("*.sql"))
