"""Damage on disk: table parts with wrong checksums, and entries that journals and spools have lost."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from backends.segment_log.segment_damage import FOLDER, read_losses
from backends.store.checks.finding import Finding
from backends.store.client import StoreClient
from backends.store.tables import StoreTable, quoted

_LOGS: Final = ("journal*", "journal*/dead-letters", "spool*", "budgets*")
_BY_PART: Final = {"check_query_single_value_result": 0}


def damaged_parts(client: StoreClient, tables: Iterable[StoreTable]) -> list[Finding]:
    """Read every part of the tables; return a finding for each part whose bytes have changed since it was written."""
    return [
        Finding("damaged_part", table.name, f"part {row['part_path']}: {_first_line(str(row['message']))}")
        for table in tables
        for row in _parts(client, table)
        if not row["is_passed"]
    ]


def _parts(client: StoreClient, table: StoreTable) -> list[dict[str, Any]]:
    name = table.name if table.shards is None else table.shards.local  # in a cluster, the part on this node
    pieces = client.stream(f"CHECK TABLE {quoted(name)}", settings=_BY_PART, form="JSONEachRow")
    return [json.loads(line) for line in b"".join(pieces).splitlines()]


def _first_line(message: str) -> str:
    return (message.splitlines() or ["no reason given"])[0][:300]


def missing_entries(data: Path) -> list[Finding]:
    """Return the losses of the journals, spools and budget totals in a data directory."""
    findings = []
    for pattern in _LOGS:
        for directory in sorted(data.glob(pattern)):
            for loss in read_losses(directory):
                kept = f"; the segment is kept as {FOLDER}/{loss.kept_as}" if loss.kept_as else ""
                findings.append(Finding("entries_missing", str(directory.relative_to(data)), f"{loss.line()}{kept}"))
    return findings
