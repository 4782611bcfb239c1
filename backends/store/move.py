"""Moves a store while it is in use: copies everything, then what arrived meanwhile, then switches the collector over.

Rows have the store's time of arrival, so the rows between two moments can be selected. The collector waits only during
the last copy, of some hundred milliseconds' worth of rows; its spool keeps what arrives.
"""

from collections.abc import Callable
from dataclasses import dataclass

from backends.store.client import StoreClient
from backends.store.copies import drop_copies
from backends.store.location import StoreLocation
from backends.store.snapshot import cut, snapshot_of
from backends.store.store_locks import StoreLocks
from backends.store.tables import StoreTable, find_cluster, list_tables
from backends.store.transfer import copy_arrivals, load_table, read_table, require_empty
from contracts.errors import ConfigurationError

_MOST_ROUNDS = 10
_FEW_ROWS = 20_000  # can be copied while the collector waits


@dataclass(frozen=True, slots=True)
class MoveReport:
    """The result of a move: rows by table at the start, and the number of rows that arrived meanwhile."""

    rows: dict[str, int]
    arrived_rows: int


def move_store(
    source: StoreClient,
    target: StoreClient,
    turns: StoreLocks,
    location: StoreLocation,
    say: Callable[[str], None],
) -> MoveReport:
    """Copy everything into an empty, migrated store and switch the collector to it; report each table through `say`.

    The target may be a cluster, the source may not. Nothing changes until the last step: after a failure the old store
    stays in use, and the new one must be emptied before the next try. Raises CopyDiffers, ConfigurationError if the
    stores do not match, or StoreUnavailable.
    """
    if source.address.url == target.address.url and source.address.database == target.address.database:
        raise ConfigurationError(f"the store is at {source.address.shown_url} already; name another with --to")
    if cluster := find_cluster(source):
        raise ConfigurationError(
            f"the store at {source.address.shown_url} is the cluster {cluster!r}: its nodes' clocks do not say in one "
            "order what arrived, so it cannot be moved while it is in use. Use a backup instead: `tollkeeper backup`"
        )
    drop_copies(target)
    pairs = _common_tables(source, target)
    tables = [here for here, _ in pairs]
    require_empty(target, tables, f"the store at {target.address.shown_url}")
    rows: dict[str, int] = {}
    with snapshot_of(source, turns, tables) as snapshot:
        upto = snapshot.at
        for table, there in pairs:
            digest = snapshot.digest(source, table)
            load_table(target, there, read_table(source, table, snapshot.rows_of(table)), digest)
            rows[table.name] = digest.rows
            say(f"{table.name}: {digest.rows} rows copied, checksum {digest.checksum:016x} on both sides")
    bases = [pair for pair in pairs if pair[0].is_base]
    arrived = 0
    for _ in range(_MOST_ROUNDS):
        with turns.held():
            after, upto = upto, cut(source)
        came = sum(copy_arrivals(source, target, pair, after, upto) for pair in bases)
        arrived += came
        if came <= _FEW_ROWS:
            break
    with turns.held():
        last = cut(source)
        arrived += sum(copy_arrivals(source, target, pair, upto, last) for pair in bases)
        location.write(source.address, target.address)
    say(f"{arrived} rows arrived meanwhile and were copied; the collector writes to {target.address.shown_url} now")
    return MoveReport(rows, arrived)


def _common_tables(source: StoreClient, target: StoreClient) -> list[tuple[StoreTable, StoreTable]]:
    """Return each table of the source with that of the target. Raises ConfigurationError if one differs."""
    here, there = list_tables(source), {table.name: table for table in list_tables(target)}
    for table in here:
        if table.name not in there or there[table.name].columns != table.columns:
            raise ConfigurationError(
                f"table {table.name} is not the same at {target.address.shown_url}; both stores must be migrated by "
                "the same version: run `python -m migrations` on each"
            )
    return [(table, there[table.name]) for table in here]
