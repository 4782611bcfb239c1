"""Retention of rows: a table's TTL for everyone, and shorter rules of tenants.

A table's time is its TTL, which the store keeps to by itself. A tenant's rules are rows of the table `retention`, and
are carried out by a command, as often as it is called.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from backends.store.client import StoreClient
from backends.store.deletion import count_where, delete_where
from backends.store.tables import AskedStore, StoreTable, list_tables, time_column
from contracts.errors import InvalidRequest, NotFound

_TABLE: Final = "retention"
_RULES: Final = (
    f"SELECT tenant, table_name, keep_seconds, deleted_before FROM {_TABLE} FINAL ORDER BY tenant, table_name"
)
_SET: Final = (
    f"INSERT INTO {_TABLE} (tenant, table_name, keep_seconds, deleted_before) "
    "VALUES ({tenant:String}, {table:String}, {keep:UInt64}, {before:DateTime('UTC')})"
)
_NEVER: Final = datetime.fromtimestamp(0, UTC)
DAY_SECONDS: Final = 86_400


@dataclass(frozen=True, slots=True)
class RetentionRule:
    """A tenant's rows of a table are kept for `keep_seconds`, 0: no rule any more; deleted so far up to a moment."""

    tenant: str
    table: str
    keep_seconds: int
    deleted_before: datetime = _NEVER


def list_rules(client: AskedStore) -> list[RetentionRule]:
    """Return every rule there is or was, by tenant and table."""
    rules = []
    for row in client.query(_RULES):
        before = row["deleted_before"]
        assert isinstance(before, datetime)
        rules.append(RetentionRule(str(row["tenant"]), str(row["table_name"]), int(str(row["keep_seconds"])), before))
    return rules


def set_rule(client: StoreClient, tenant: str, table: str, keep_days: int | None) -> RetentionRule:
    """Set or, with `None`, take away a tenant's rule. Raises NotFound on a table that holds no such rows."""
    _require(client, table)
    if keep_days is not None and keep_days < 1:
        raise InvalidRequest(f"{keep_days} days cannot be kept; give at least 1, or erase the tenant")
    found = next((rule for rule in list_rules(client) if (rule.tenant, rule.table) == (tenant, table)), None)
    before = found.deleted_before if found is not None else _NEVER
    rule = RetentionRule(tenant, table, 0 if keep_days is None else keep_days * DAY_SECONDS, before)
    _write(client, rule)
    return rule


def set_table_days(client: StoreClient, table: str, keep_days: int) -> None:
    """Let a table keep everyone's rows for this many days, from the later of their own time and their arrival."""
    found = _require(client, table)
    if keep_days < 1:
        raise InvalidRequest(f"{keep_days} days cannot be kept; give at least 1")
    when = f"toDateTime({time_column(found)})"
    begins = f"greatest({when}, toDateTime(ingested_at))" if found.is_base else when
    client.command(f"ALTER TABLE {found.changed} MODIFY TTL {begins} + INTERVAL {keep_days} DAY")


def apply_rules(client: StoreClient, now: datetime, say: Callable[[str], None]) -> int:
    """Delete what the rules no longer keep, for good, and note up to where; return how many rows.

    Rollups stay: they are sums without users, keys or requests. One that shall go has a rule of its own.
    """
    tables = {table.name: table for table in list_tables(client)}
    deleted = 0
    for rule in list_rules(client):
        table = tables.get(rule.table)
        if rule.keep_seconds == 0 or table is None:
            continue
        # Whole hours: a rollup's bucket is then wholly kept or wholly not held against its base.
        before = (now - timedelta(seconds=rule.keep_seconds)).replace(minute=0, second=0, microsecond=0)
        where = f"tenant = {{tenant:String}} AND {time_column(table)} < toDateTime64({{before:String}}, 9, 'UTC')"
        bound = {"tenant": rule.tenant, "before": f"{before:%Y-%m-%d %H:%M:%S}"}
        rows = count_where(client, table, where, bound)
        if rows:
            # Noted first: a check that falls between knows that rows may be gone.
            _write(client, RetentionRule(rule.tenant, rule.table, rule.keep_seconds, before))
            delete_where(client, table, where, bound)
            say(f"{rule.table}: {rows} rows of tenant {rule.tenant} from before {before:%Y-%m-%d %H:%M} deleted")
            deleted += rows
    return deleted


def _write(client: StoreClient, rule: RetentionRule) -> None:
    client.command(
        _SET,
        {"tenant": rule.tenant, "table": rule.table, "keep": rule.keep_seconds, "before": rule.deleted_before},
    )


def _require(client: StoreClient, table: str) -> StoreTable:
    fitting = {
        found.name: found
        for found in list_tables(client)
        if "tenant" in found.columns and time_column(found) is not None
    }
    if table not in fitting:
        raise NotFound(f"table {table!r} holds no tenants' rows in time; those that do: {', '.join(fitting)}")
    return fitting[table]
