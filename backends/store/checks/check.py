"""Runs all checks of a store's contents on one snapshot, while the store is in use."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from backends.store.base_views import views_over_bases
from backends.store.checks.damage import damaged_parts, missing_entries
from backends.store.checks.finding import Finding
from backends.store.checks.rollups import differing_rollups
from backends.store.checks.sequences import missing_numbers
from backends.store.checks.tokens import GpuLines, TokenLines, gpu_findings, gpu_lines, token_findings, token_lines
from backends.store.client import StoreClient
from backends.store.retention import list_rules
from backends.store.snapshot import snapshot_of
from backends.store.store_locks import StoreLocks
from backends.store.tables import CLAIMS, list_tables, list_views

DEFAULT_HOURS: Final = 24


class CheckReport(msgspec.Struct, frozen=True):
    """All findings, the token totals of every replica and hour, and the GPU time of every hour."""

    findings: list[Finding]
    tokens: list[TokenLines]
    gpu: list[GpuLines] = []


def check_store(
    client: StoreClient, turns: StoreLocks, hours: int, say: Callable[[str], None], data: Path | None = None
) -> CheckReport:
    """Check parts, sequence numbers, rollups, and the tokens of the last `hours`. Raises as `snapshot_of` does.

    With a data directory, also report entries that its journals and spools have lost to damage. A damaged table is
    reported and excluded from the other checks.
    """
    tables = list_tables(client)
    say(f"checksums of {len(tables)} tables")
    damaged = damaged_parts(client, tables)
    broken = {finding.where for finding in damaged}
    sound = [table for table in tables if table.name not in broken and table.name != CLAIMS]
    names = {table.name for table in sound}
    over_bases = views_over_bases(list_views(client, tables), {table.name: table for table in tables})
    views = [view for view in over_bases if {view.source, view.target} <= names]
    rules = list_rules(client) if "retention" in names else []
    findings, lines, gpu = list(damaged), list[TokenLines](), list[GpuLines]()
    if data is not None:
        findings += missing_entries(data)
    with snapshot_of(client, turns, sound, is_copied=False) as snapshot:
        if {"requests", "attempts"} <= names:
            say("numbers of engines, hosts and tries")
            findings += missing_numbers(client, snapshot)
        say(f"{len(views)} rollups against their base")
        findings += differing_rollups(client, snapshot, views, rules)
        if {"engine_steps", "requests", "attempts"} <= names:
            say(f"tokens and GPU time of the last {hours} hours")
            lines = token_lines(client, snapshot, rules, hours)
            gpu = gpu_lines(client, snapshot, rules, hours)
            findings += token_findings(lines) + gpu_findings(gpu)
    return CheckReport(findings, lines, gpu)
