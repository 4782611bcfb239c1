"""Checks that every rollup matches its base: runs each view's query on the base, and compares with the
view's target.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from backends.store.checks.finding import Finding
from backends.store.client import StoreClient
from backends.store.retention import RetentionRule
from backends.store.snapshot import StoreSnapshot
from backends.store.tables import RollupView, StoreTable, time_column

_MARGIN: Final = timedelta(days=1)  # rows expire part by part, so a base and its rollup expire at different times
SKETCH_TOLERANCE: Final = 0.025  # for sketches with 1 % error, which depend on the order of values
_BY_TIME: Final = (
    "SELECT {when} AS stretch, count() AS rows, sum(cityHash64(formatRow('RowBinary', {hashed}))) AS checksum"
)
_DIFFERING: Final = """
SELECT toString(if(base.rows = 0, rolled.stretch, base.stretch)) AS at,
       base.rows AS base_rows, rolled.rows AS rollup_rows
FROM ({base}) AS base
FULL OUTER JOIN ({rolled}) AS rolled ON base.stretch = rolled.stretch
WHERE base.rows != rolled.rows OR base.checksum != rolled.checksum
ORDER BY at
"""
_SKETCHES: Final = """
SELECT count() AS rows
FROM (SELECT {keys}, {base_states} FROM ({base})) AS base
INNER JOIN (SELECT {keys}, {states} FROM {rolled}) AS rolled USING ({keys})
WHERE {differs}
"""
_MISSING: Final = "SELECT count() AS rows FROM ({base}) WHERE ({keys}) NOT IN (SELECT {keys} FROM {rolled})"


@dataclass(frozen=True, slots=True)
class RollupPair:
    """A view with its two tables, and both sides of the comparison as SQL to follow FROM."""

    view: RollupView
    source: StoreTable
    target: StoreTable
    base: str  # a SELECT
    rolled: str


def differing_rollups(
    client: StoreClient, snapshot: StoreSnapshot, views: list[RollupView], rules: list[RetentionRule]
) -> list[Finding]:
    """Return a finding for each view whose target differs from the result of its query on its source.

    Compares the time range in which neither has lost rows to expiry, without rows deleted by a tenant's retention.
    """
    tables = {table.name: table for table in snapshot.tables}
    findings: list[Finding] = []
    for view in views:
        source, target = tables[view.source], tables[view.target]
        if {source.name, target.name} & snapshot.filled:
            findings += _compare(client, snapshot, pair_of(snapshot.rows_of, view, source, target), rules)
    return findings


def pair_of(
    rows_of: Callable[[StoreTable], str], view: RollupView, source: StoreTable, target: StoreTable
) -> RollupPair:
    """Return the SQL of a rollup's rows as computed from its source and as stored; `rows_of` returns SQL for a table's
    rows.
    """

    def asked_of_clone(found: re.Match[str]) -> str:
        # Views read alias columns such as `price_state`, which * leaves out by default.
        rows = f"SELECT * FROM {rows_of(source)} SETTINGS asterisk_include_alias_columns = 1"
        return f"FROM ({rows}) AS {found['alias'] or source.name}"

    named = rf"\bFROM (?:`?\w+`?\.)?`?{source.name}`?(?! *\()\b(?:\s+AS\s+(?P<alias>\w+))?"
    base = re.sub(named, asked_of_clone, view.select)
    return RollupPair(view, source, target, base, rows_of(target))


def _compare(
    client: StoreClient, snapshot: StoreSnapshot, pair: RollupPair, rules: list[RetentionRule]
) -> list[Finding]:
    when = time_column(pair.target)
    keys = ", ".join(f"`{key}`" for key in pair.target.sorting_key)
    if when is None:
        (row,) = client.query(_MISSING.format(base=pair.base, keys=keys, rolled=pair.rolled))
        missing = f"{row['rows']} values of {pair.source.name} are missing"
        return [Finding("rollup_differs", pair.target.name, missing)] if row["rows"] else []
    within = comparable_rows(pair, when, snapshot.at, rules)
    shown = when if pair.target.is_collapsing else f"toStartOfHour({when})"
    exact = [name for name, kind in pair.target.columns.items() if not kind.startswith("AggregateFunction")]
    hashed = ", ".join(f"CAST(`{name}` AS {plain_type(pair.target.columns[name])})" for name in exact)
    by_time = _BY_TIME.format(when=shown, hashed=hashed)
    rows = client.query(
        _DIFFERING.format(
            base=f"{by_time} FROM ({pair.base}) WHERE {within} GROUP BY stretch",
            rolled=f"{by_time} FROM {pair.rolled} AND {within} GROUP BY stretch",
        )
    )
    if rows:
        first = rows[0]
        detail = (
            f"{len(rows)} stretches of time differ from {pair.source.name}; at {first['at']} its rows make "
            f"{first['base_rows']} groups, and {first['rollup_rows']} are there"
        )
        if first["base_rows"] == first["rollup_rows"]:
            detail += " with other sums"
        return [Finding("rollup_differs", pair.target.name, detail)]
    return _compare_sketches(client, pair, within, keys)


def _compare_sketches(client: StoreClient, pair: RollupPair, within: str, keys: str) -> list[Finding]:
    states = [name for name, kind in pair.target.columns.items() if kind.startswith("AggregateFunction")]
    if not states:
        return []
    finals = ", ".join(f"finalizeAggregation(`{name}`) AS final_{name}" for name in states)
    differs = " OR ".join(
        f"arrayExists((x, y) -> abs(x - y) > {SKETCH_TOLERANCE} * greatest(abs(x), abs(y)), "
        f"base.final_{name}, rolled.final_{name})"
        for name in states
    )
    asked = _SKETCHES.format(
        keys=keys,
        base_states=finals,
        states=finals,
        base=f"SELECT * FROM ({pair.base}) WHERE {within}",
        rolled=f"{pair.rolled} AND {within}",
        differs=differs,
    )
    (row,) = client.query(asked)
    detail = f"the sketches of {row['rows']} groups are not those of {pair.source.name}"
    return [Finding("rollup_differs", pair.target.name, detail)] if row["rows"] else []


def comparable_rows(pair: RollupPair, when: str, at: datetime, rules: list[RetentionRule]) -> str:
    """Return the SQL condition for rollup rows whose base rows certainly all exist."""
    kept = [seconds for table in (pair.source, pair.target) if (seconds := table.kept_seconds) is not None]
    conditions = ["1"]
    if kept:
        begin = at.astimezone(UTC) - timedelta(seconds=min(kept)) + _MARGIN
        conditions.append(f"{when} >= {_moment(begin.replace(hour=0, minute=0, second=0))}")
    if "tenant" in pair.target.columns:
        conditions += [
            f"NOT (tenant = '{_escaped(rule.tenant)}' AND {when} <= {_moment(rule.deleted_before)})"
            for rule in rules
            if rule.table in (pair.source.name, pair.target.name) and rule.deleted_before.timestamp() > 0
        ]
    return " AND ".join(conditions)


def _moment(at: datetime) -> str:
    return f"toDateTime64('{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}', 9, 'UTC')"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


def plain_type(kind: str) -> str:
    """Return the type of a column's values, without SimpleAggregateFunction."""
    found = re.fullmatch(r"SimpleAggregateFunction\(\w+, (.*)\)", kind)
    return found[1] if found else kind
