"""Erases a tenant's or an end user's rows from the store; they are removed from disk, not only hidden.

Sums stay correct. A tenant's rows are deleted from facts and rollups; its GPU time stays in the GPU ledgers without its
name, because these must add up. For an end user, the name and contents are deleted, and requests stay without the name,
because bills are computed from them. Rollups have no end users, so none changes.
"""

import hashlib
from collections.abc import Callable, Iterator
from typing import Final

from backends.store.client import StoreClient
from backends.store.copies import attach, drop_copy, make_beside
from backends.store.deletion import SYNC, count_where, delete_where
from backends.store.store_locks import StoreLocks
from backends.store.tables import COPY_PREFIX, StoreTable, list_tables, list_views, quoted

_NAMELESS_LABELS: Final = "CAST(map() AS Map(LowCardinality(String), String))"
# Columns of requests that identify a person, and their values after the erasure.
_NAMES: Final = {
    "end_user": "''",
    "tags": _NAMELESS_LABELS,
    "conversation_id": "''",
    "run_id": "''",
    "trace_id": "''",
    "span_id": "''",
}
_STEPS: Final = "engine_steps"
_GPU_LEDGERS: Final = frozenset({"engine_tenant_minutes", "gpu_tenant_hours"})
_NO_REQUEST: Final = "toUUID('00000000-0000-0000-0000-000000000000')"
_OF_TENANT: Final = "tenant = {tenant:String}"
_OF_USER: Final = "tenant = {tenant:String} AND end_user = {user:String}"
_REQUESTS_OF_USER: Final = f"SELECT request_id FROM requests WHERE {_OF_USER}"
_SAID_BY_USER: Final = f"{_OF_TENANT} AND request_id IN ({_REQUESTS_OF_USER})"
_TRACES_OF_USER: Final = f"SELECT trace_id FROM requests WHERE {_OF_USER} AND trace_id != ''"
# Telemetry of other software may have a user in any attribute.
_NAMED_IN: Final = "has(mapValues(attributes), {user:String}) OR has(mapValues(resource_attributes), {user:String})"
_OF_USERS_TRACES: Final = f"{_OF_TENANT} AND (trace_id IN ({_TRACES_OF_USER}) OR {_NAMED_IN})"
# Tables without a column for the end user: conditions for the rows about one.
_ABOUT_USER: Final = {
    "content": _SAID_BY_USER,
    "feedback": _SAID_BY_USER,
    "traces": _OF_USERS_TRACES,
    "logs": _OF_USERS_TRACES,
    "metrics": f"{_OF_TENANT} AND ({_NAMED_IN})",
}


def erase_tenant(client: StoreClient, turns: StoreLocks, tenant: str, say: Callable[[str], None]) -> int:
    """Erase a tenant; return how many rows were deleted or lost its name, and report each table through `say`.

    May be repeated. The tenant's keys must have been revoked, and queued records of gateways and collector must have
    arrived; otherwise rows may arrive later.
    """
    bound = {"tenant": tenant}
    changed = 0
    for table in list_tables(client):
        if table.name == _STEPS:
            changed += _forget_in_steps(client, table, bound, say)
        elif table.name in _GPU_LEDGERS:
            changed += _forget_in_ledger(client, turns, table, tenant, say)
        elif "tenant" in table.columns and "sequence" in table.columns:
            # Gaps in sequence numbers mean lost rows, so the row stays without its contents.
            emptied = {"tenant": "''", "block_hashes": "[]", "parent_hash": "NULL"}
            changed += _update(client, table, emptied, _OF_TENANT, bound, say)
        elif "tenant" in table.columns:
            changed += _delete(client, table, _OF_TENANT, bound, say)
    with turns.alone():
        _sum_up_anew(client, turns, say)
    return changed


def erase_user(client: StoreClient, tenant: str, user: str, say: Callable[[str], None]) -> int:
    """Erase an end user of a tenant; return how many rows were deleted or lost the name, and report each table."""
    bound = {"tenant": tenant, "user": user}
    tables = {table.name: table for table in list_tables(client)}
    changed = sum(_delete(client, tables[name], where, bound, say) for name, where in _ABOUT_USER.items())
    # Requests come last, because the rows above are found through them.
    named = [table for table in tables.values() if "end_user" in table.columns]
    for table in sorted(named, key=lambda table: table.name == "requests"):
        changed += _update(client, table, _NAMES, _OF_USER, bound, say)
    return changed


def export_tenant(client: StoreClient, tenant: str) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yield each table with rows of a tenant: its name, and the rows as JSON lines in pieces."""
    for table in list_tables(client):
        if "tenant" in table.columns:
            yield from _export(client, table, _OF_TENANT, {"tenant": tenant})


def export_user(client: StoreClient, tenant: str, user: str) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yield the rows of an end user like `export_tenant`: requests, attempts, contents, spans and log lines."""
    bound = {"tenant": tenant, "user": user}
    for table in list_tables(client):
        if "end_user" in table.columns:
            yield from _export(client, table, _OF_USER, bound)
        elif table.name in _ABOUT_USER:
            yield from _export(client, table, _ABOUT_USER[table.name], bound)


def _export(
    client: StoreClient, table: StoreTable, where: str, bound: dict[str, str]
) -> Iterator[tuple[str, Iterator[bytes]]]:
    if count_where(client, table, where, bound):
        # Sketches are exported by their final value.
        columns = ", ".join(
            f"finalizeAggregation(`{name}`) AS `{name}`" if kind.startswith("AggregateFunction") else f"`{name}`"
            for name, kind in table.columns.items()
        )
        asked = f"SELECT {columns} FROM {quoted(table.name)}{table.final} WHERE {where}"
        yield table.name, client.stream(asked, bound, form="JSONEachRow")


def _delete(
    client: StoreClient, table: StoreTable, where: str, bound: dict[str, str], say: Callable[[str], None]
) -> int:
    rows = count_where(client, table, where, bound)
    if rows:
        delete_where(client, table, where, bound)
        say(f"{table.name}: {rows} rows deleted")
    return rows


def _update(
    client: StoreClient,
    table: StoreTable,
    emptied: dict[str, str],
    where: str,
    bound: dict[str, str],
    say: Callable[[str], None],
) -> int:
    rows = count_where(client, table, where, bound)
    if rows:
        values = ", ".join(f"`{name}` = {value}" for name, value in emptied.items() if name in table.columns)
        client.command(f"ALTER TABLE {table.changed} UPDATE {values} WHERE {where}", bound, settings=SYNC)
        say(f"{table.name}: {rows} rows without a name now")
    return rows


def _forget_in_steps(client: StoreClient, steps: StoreTable, bound: dict[str, str], say: Callable[[str], None]) -> int:
    """Remove the tenant and its requests from steps, which other tenants' requests may share."""
    where = "has(tenants, {tenant:String})"
    rows = count_where(client, steps, where, bound)
    if rows:
        client.command(
            f"ALTER TABLE {steps.changed} UPDATE "
            f"request_ids = arrayMap((id, name) -> if(name = {{tenant:String}}, {_NO_REQUEST}, id), request_ids, "
            "arrayResize(tenants, length(request_ids), '')), "
            "tenants = arrayMap(name -> if(name = {tenant:String}, '', name), tenants) "
            f"WHERE {where}",
            bound,
            settings=SYNC,
        )
        say(f"{steps.name}: {rows} rows without the name now")
    return rows


def _sum_up_anew(client: StoreClient, turns: StoreLocks, say: Callable[[str], None]) -> None:
    """Rebuild rollups over all tenants from rollups per tenant, because they include the erased one.

    Each is built in a temporary table, which replaces it while inserts are paused.
    """
    tables = {table.name: table for table in list_tables(client)}
    for view in list_views(client, [*tables.values()]):
        source, target = tables[view.source], tables[view.target]
        is_over_all = "tenant" in source.columns and "tenant" not in target.columns
        if not is_over_all or not (source.kept_seconds is None or source.kept_seconds == target.kept_seconds):
            continue
        beside = f"{COPY_PREFIX}anew_{target.name}"
        columns = ", ".join(f"`{name}`" for name in target.columns)
        with turns.held():
            make_beside(client, target, beside)
            client.command(
                f"INSERT INTO {quoted(beside)} ({columns}) SELECT {columns} FROM ({view.select})",
                settings={"max_partitions_per_insert_block": 0},
            )
            client.command(f"TRUNCATE TABLE {target.changed}")
            attach(client, target, beside)
            drop_copy(client, target, beside)
        say(f"{target.name}: sums recalculated")


def _forget_in_ledger(
    client: StoreClient, turns: StoreLocks, table: StoreTable, tenant: str, say: Callable[[str], None]
) -> int:
    """Rewrite the tenant's rows of a GPU ledger without its name, which is part of the key.

    Inserts are paused meanwhile. The new rows are deduplicated by their contents, so that a repetition after a crash
    writes nothing twice.
    """
    bound = {"tenant": tenant}
    with turns.held():
        rows = count_where(client, table, _OF_TENANT, bound)
        if rows:
            columns = ", ".join(f"`{name}`" for name in table.columns)
            values = ", ".join("''" if name == "tenant" else f"`{name}`" for name in table.columns)
            asked = f"SELECT {values} FROM {quoted(table.name)} FINAL WHERE {_OF_TENANT}"
            token = hashlib.sha256(b"".join(client.stream(f"{asked} ORDER BY ALL", bound))).hexdigest()
            client.command(
                f"INSERT INTO {quoted(table.name)} ({columns}) {asked} ORDER BY ALL",
                bound,
                settings={"insert_deduplication_token": f"erased-{token}", "max_partitions_per_insert_block": 0},
            )
            delete_where(client, table, _OF_TENANT, bound)
            say(f"{table.name}: {rows} rows without the name now")
    return rows
