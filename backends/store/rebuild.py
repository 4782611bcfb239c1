"""Rebuilds a rollup from its base, partition by partition, while the store is in use."""

import difflib
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

import msgspec

from backends.store.base_views import views_over_bases
from backends.store.checks.rollups import SKETCH_TOLERANCE, RollupPair, comparable_rows, pair_of, plain_type
from backends.store.client import StoreClient
from backends.store.copies import drop_copies
from backends.store.retention import RetentionRule, list_rules
from backends.store.snapshot import cut, snapshot_of
from backends.store.store_locks import StoreLocks
from backends.store.tables import (
    COPY_PREFIX,
    RollupView,
    StoreTable,
    find_cluster,
    list_tables,
    list_views,
    quoted,
    rows_of,
    time_column,
)
from contracts.errors import ConfigurationError

_REBUILT: Final = f"{COPY_PREFIX}rebuilt"
_SUM: Final = "SimpleAggregateFunction(sum,"
_SIDE: Final = """
SELECT {partition} AS stretch, count() AS rows,
       sum(cityHash64(formatRow('RowBinary', {hashed}))) AS checksum, {sums} AS sums
FROM {rows} GROUP BY stretch
"""
_DIFFERING: Final = """
SELECT if(base.rows = 0, rolled.stretch, base.stretch) AS part,
       rolled.rows AS rows_now, base.rows AS rows_after, rolled.sums AS sums_now, base.sums AS sums_after
FROM ({base}) AS base
FULL OUTER JOIN ({rolled}) AS rolled ON base.stretch = rolled.stretch
WHERE base.rows != rolled.rows OR base.checksum != rolled.checksum
ORDER BY part
"""
_SKETCHES: Final = """
SELECT part, count() AS rows
FROM (SELECT {partition} AS part, {keys}, {finals} FROM ({base})) AS base
INNER JOIN (SELECT {keys}, {finals} FROM {rolled}) AS rolled USING ({keys})
WHERE {differs}
GROUP BY part ORDER BY part
"""
_NEW_VALUES: Final = "SELECT count() AS rows FROM ({base}) WHERE ({keys}) NOT IN (SELECT {keys} FROM {rolled})"
_PARTITION_ID: Final = "SELECT DISTINCT _partition_id AS id FROM {{name:Identifier}} WHERE {of_partition}"
_ALONE: Final = {"insert_deduplicate": 0, "max_partitions_per_insert_block": 500}


class SumChange(msgspec.Struct, frozen=True):
    """One column's sum over a partition, as stored and as rebuilt, as decimal text."""

    column: str
    stored: str
    rebuilt: str


class PartitionChange(msgspec.Struct, frozen=True):
    """A partition that differs from its base. `sums` are those that differ."""

    partition: str
    stored_rows: int
    rebuilt_rows: int
    sums: list[SumChange]
    differing_sketches: int = 0

    def line(self) -> str:
        """Return the change as one line."""
        told = [f"{change.column} {change.stored} -> {change.rebuilt}" for change in self.sums]
        told += [f"{self.differing_sketches} sketches differ"] if self.differing_sketches else []
        if self.stored_rows != self.rebuilt_rows:
            told.insert(0, f"rows {self.stored_rows} -> {self.rebuilt_rows}")
        return f"partition {self.partition or 'all'}: {', '.join(told) or 'other values'}"


class RebuildPlan(msgspec.Struct, frozen=True):
    """The changes that a rebuild would make. `derived` are the rollups that are computed from this one."""

    rollup: str
    source: str
    changes: list[PartitionChange]
    derived: list[str]


def list_rollups(client: StoreClient) -> list[RollupView]:
    """Return the views whose targets can be rebuilt, sources before targets."""
    tables = list_tables(client)
    return _rollups(list_views(client, tables), {table.name: table for table in tables})


def _rollups(listed: list[RollupView], tables: Mapping[str, StoreTable]) -> list[RollupView]:
    views = views_over_bases(listed, tables)
    left, ordered = sorted(views, key=lambda view: view.target), list[RollupView]()
    while left:
        targets = {view.target for view in left}
        ready = [view for view in left if view.source not in targets] or left
        ordered += ready
        left = [view for view in left if view not in ready]
    return ordered


def plan_rebuild(client: StoreClient, turns: StoreLocks, rollup: str) -> RebuildPlan:
    """Compare a rollup with its base at one moment, and return what a rebuild would change.

    Raises ConfigurationError if there is no rollup of this name, and as `snapshot_of` does.
    """
    view, source, target, derived = _find(client, rollup)
    with snapshot_of(client, turns, [source, target], is_copied=False) as snapshot:
        pair = pair_of(snapshot.rows_of, view, source, target)
        changes = _changes(client, pair, snapshot.at, list_rules(client))
    return RebuildPlan(rollup, source.name, changes, derived)


def rebuild(client: StoreClient, turns: StoreLocks, plan: RebuildPlan, say: Callable[[str], None]) -> None:
    """Rebuild the partitions of a plan. Collectors wait during each one; their spools keep what arrives.

    Each partition is replaced atomically from the rows of that moment, so rows that arrived since the plan are
    included, and an interrupted rebuild can be repeated. Rows whose base may have expired, or was deleted by a tenant's
    retention, stay unchanged. Raises as `StoreLocks.held` does.
    """
    view, source, target, _ = _find(client, plan.rollup)
    pair = pair_of(rows_of, view, source, target)
    rules = list_rules(client)
    with turns.alone():
        for change in plan.changes:
            drop_copies(client)
            with turns.held():
                if time_column(target) is None:
                    _add_values(client, pair)
                else:
                    _replace(client, pair, change.partition, comparable_rows(pair, _when(target), cut(client), rules))
            say(change.line())
        drop_copies(client)


def _find(client: StoreClient, rollup: str) -> tuple[RollupView, StoreTable, StoreTable, list[str]]:
    """Return a rollup's view, its source, its target, and the names of the rollups derived from it."""
    if cluster := find_cluster(client):
        raise ConfigurationError(
            f"the store is the cluster {cluster!r}, on which no rollup can be rebuilt; correct the rows by hand, or "
            "restore a backup into an empty store"
        )
    tables = {table.name: table for table in list_tables(client)}
    listed = list_views(client, [*tables.values()])
    rollups = _rollups(listed, tables)
    views = {view.target: view for view in rollups}
    view = views.get(rollup)
    if view is None:
        near = difflib.get_close_matches(rollup, views, 1)
        meant = f" (did you mean {near[0]}?)" if near else ""
        raise ConfigurationError(
            f"{rollup!r} is not a rollup of this store{meant}; `tollkeeper store rebuild --list` shows all"
        )
    return view, tables[view.source], tables[view.target], _derived(rollup, listed, rollups)


def _derived(rollup: str, views: list[RollupView], rollups: list[RollupView]) -> list[str]:
    """Return the rollups that are filled from this one, directly or indirectly."""
    found = {rollup}
    while more := {view.target for view in views if view.source in found} - found:
        found |= more
    return [view.target for view in rollups if view.target in found - {rollup}]


def _when(target: StoreTable) -> str:
    when = time_column(target)
    assert when is not None
    return when


def _partition(target: StoreTable) -> str:
    return f"toString({target.partition_key})" if target.partition_key else "''"


def _keys(target: StoreTable) -> str:
    return ", ".join(f"`{key}`" for key in target.sorting_key)


def _changes(client: StoreClient, pair: RollupPair, at: datetime, rules: list[RetentionRule]) -> list[PartitionChange]:
    target = pair.target
    if time_column(target) is None:
        asked = _NEW_VALUES.format(base=pair.base, keys=_keys(target), rolled=pair.rolled)
        new = int(str(client.query(asked)[0]["rows"]))
        (there,) = client.query(f"SELECT count() AS rows FROM {pair.rolled}")
        return [PartitionChange("", int(str(there["rows"])), int(str(there["rows"])) + new, [])] if new else []
    within = comparable_rows(pair, _when(target), at, rules)
    exact = [name for name, kind in target.columns.items() if not kind.startswith("AggregateFunction")]
    summed = [name for name, kind in target.columns.items() if kind.replace(" ", "").startswith(_SUM)]
    hashed = ", ".join(f"CAST(`{name}` AS {plain_type(target.columns[name])})" for name in exact)
    sums = f"[{', '.join(f'toString(sum(`{name}`))' for name in summed)}]" if summed else "CAST([] AS Array(String))"
    side = {"partition": _partition(target), "hashed": hashed, "sums": sums}
    rows = client.query(
        _DIFFERING.format(
            base=_SIDE.format(rows=f"({pair.base}) WHERE {within}", **side),
            rolled=_SIDE.format(rows=f"{pair.rolled} AND {within}", **side),
        )
    )
    changes = {str(row["part"]): _change(row, summed) for row in rows}
    for row in _sketches(client, pair, within):
        part, differing = str(row["part"]), int(row["rows"])
        known = changes.get(part) or PartitionChange(part, 0, 0, [])
        changes[part] = msgspec.structs.replace(known, differing_sketches=differing)
    return [changes[part] for part in sorted(changes)]


def _change(row: dict[str, Any], summed: list[str]) -> PartitionChange:
    now = row["sums_now"] or ["0"] * len(summed)
    after = row["sums_after"] or ["0"] * len(summed)
    sums = [
        SumChange(name, _shown(stored), _shown(rebuilt))
        for name, stored, rebuilt in zip(summed, now, after, strict=True)
        if Decimal(stored) != Decimal(rebuilt)
    ]
    return PartitionChange(str(row["part"]), int(row["rows_now"]), int(row["rows_after"]), sums)


def _shown(number: str) -> str:
    return f"{Decimal(number).normalize():f}" if "." in number else number


def _sketches(client: StoreClient, pair: RollupPair, within: str) -> list[dict[str, Any]]:
    states = [name for name, kind in pair.target.columns.items() if kind.startswith("AggregateFunction")]
    if not states:
        return []
    differs = " OR ".join(
        f"arrayExists((x, y) -> abs(x - y) > {SKETCH_TOLERANCE} * greatest(abs(x), abs(y)), "
        f"base.final_{name}, rolled.final_{name})"
        for name in states
    )
    return client.query(
        _SKETCHES.format(
            partition=_partition(pair.target),
            keys=_keys(pair.target),
            finals=", ".join(f"finalizeAggregation(`{name}`) AS final_{name}" for name in states),
            base=f"SELECT * FROM ({pair.base}) WHERE {within}",
            rolled=f"{pair.rolled} AND {within}",
            differs=differs,
        )
    )


def _add_values(client: StoreClient, pair: RollupPair) -> None:
    columns = ", ".join(f"`{name}`" for name in pair.target.columns)
    missing = f"({_keys(pair.target)}) NOT IN (SELECT {_keys(pair.target)} FROM {pair.rolled})"
    client.command(
        f"INSERT INTO {quoted(pair.target.name)} ({columns}) SELECT {columns} FROM ({pair.base}) WHERE {missing}",
        settings=_ALONE,
    )


def _replace(client: StoreClient, pair: RollupPair, partition: str, within: str) -> None:
    """Replace a partition atomically."""
    target, made = quoted(pair.target.name), quoted(_REBUILT)
    columns = ", ".join(f"`{name}`" for name in pair.target.columns)
    chosen = {"partition": partition}
    of_partition = f"{_partition(pair.target)} = {{partition:String}}"
    client.command(f"CREATE TABLE {made} AS {target}")
    client.command(
        f"INSERT INTO {made} ({columns}) SELECT {columns} FROM ({pair.base}) WHERE {of_partition} AND {within}",
        chosen,
        settings=_ALONE,
    )
    client.command(
        f"INSERT INTO {made} ({columns}) SELECT {columns} FROM {target} WHERE {of_partition} AND NOT ({within})",
        chosen,
        settings=_ALONE,
    )
    ask_id = _PARTITION_ID.format(of_partition=of_partition)
    if found := client.query(ask_id, {"name": _REBUILT, **chosen}):
        client.command(f"ALTER TABLE {target} REPLACE PARTITION ID '{found[0]['id']}' FROM {made}")
    elif found := client.query(ask_id, {"name": pair.target.name, **chosen}):
        client.command(f"ALTER TABLE {target} DROP PARTITION ID '{found[0]['id']}'")
    client.command(f"DROP TABLE {made} SYNC")
