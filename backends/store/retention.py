"""Retention of rows: a table's TTL for all tenants, and shorter rules of single tenants.

TTLs are applied by the store itself. Tenants' rules are rows of the table `retention`, applied each time the command
runs.
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
    """A tenant's rows of a table are kept for `keep_seconds` (0: the rule was removed), and were deleted up
    to a time.
    """

    tenant: str
    table: str
    keep_seconds: int
    deleted_before: datetime = _NEVER


def list_rules(client: AskedStore) -> list[RetentionRule]:
    """Return all rules, including removed ones, by tenant and table."""
    rules = []
    for row in client.query(_RULES):
        before = row["deleted_before"]
        assert isinstance(before, datetime)
        rules.append(RetentionRule(str(row["tenant"]), str(row["table_name"]), int(str(row["keep_seconds"])), before))
    return rules


def set_rule(client: StoreClient, tenant: str, table: str, keep_days: int | None) -> RetentionRule:
    """Set a tenant's rule, or remove it with `None`. Raises NotFound if the table has no tenants' rows."""
    _require(client, table)
    if keep_days is not None and keep_days < 1:
        raise InvalidRequest(f"{keep_days} days cannot be kept; give at least 1, or erase the tenant")
    found = next((rule for rule in list_rules(client) if (rule.tenant, rule.table) == (tenant, table)), None)
    before = found.deleted_before if found is not None else _NEVER
    rule = RetentionRule(tenant, table, 0 if keep_days is None else keep_days * DAY_SECONDS, before)
    _write(client, rule)
    return rule


def set_table_days(client: StoreClient, table: str, keep_days: int) -> None:
    """Set a table's TTL in days, counted from a row's own time or its arrival, whichever is later."""
    found = _require(client, table)
    if keep_days < 1:
        raise InvalidRequest(f"{keep_days} days cannot be kept; give at least 1")
    when = f"toDateTime({time_column(found)})"
    begins = f"greatest({when}, toDateTime(ingested_at))" if found.is_base else when
    client.command(f"ALTER TABLE {found.changed} MODIFY TTL {begins} + INTERVAL {keep_days} DAY")


def apply_rules(client: StoreClient, now: datetime, say: Callable[[str], None]) -> int:
    """Delete the rows that tenants' rules no longer keep, record up to when, and return how many.

    Rollups are not affected, because they have no users, keys or requests; a rule can name a rollup itself.
    """
    tables = {table.name: table for table in list_tables(client)}
    deleted = 0
    for rule in list_rules(client):
        table = tables.get(rule.table)
        if rule.keep_seconds == 0 or table is None:
            continue
        # Whole hours, so that each bucket of a rollup is either compared with its base or not.
        before = (now - timedelta(seconds=rule.keep_seconds)).replace(minute=0, second=0, microsecond=0)
        where = f"tenant = {{tenant:String}} AND {time_column(table)} < toDateTime64({{before:String}}, 9, 'UTC')"
        bound = {"tenant": rule.tenant, "before": f"{before:%Y-%m-%d %H:%M:%S}"}
        rows = count_where(client, table, where, bound)
        if rows:
            # Recorded first, so that a check in between knows that rows may be missing.
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
