"""Are the files what was written? Every part's checksums, as the store itself keeps them."""

import json
from collections.abc import Iterable
from typing import Any, Final

from backends.store.checks.finding import Finding
from backends.store.client import StoreClient
from backends.store.tables import StoreTable, quoted

_BY_PART: Final = {"check_query_single_value_result": 0}


def damaged_parts(client: StoreClient, tables: Iterable[StoreTable]) -> list[Finding]:
    """Read every part of the tables and give those whose bytes are not those that were written."""
    return [
        Finding("damaged_part", table.name, f"part {row['part_path']}: {_first_line(str(row['message']))}")
        for table in tables
        for row in _parts(client, table)
        if not row["is_passed"]
    ]


def _parts(client: StoreClient, table: StoreTable) -> list[dict[str, Any]]:
    name = table.name if table.shards is None else table.shards.local  # of a cluster what this node has
    pieces = client.stream(f"CHECK TABLE {quoted(name)}", settings=_BY_PART, form="JSONEachRow")
    return [json.loads(line) for line in b"".join(pieces).splitlines()]


def _first_line(message: str) -> str:
    return (message.splitlines() or ["no reason given"])[0][:300]
