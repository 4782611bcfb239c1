"""Copies booked entries into the store, where reports, charts and exports add them to recorded cost.

The control database has the entries; the copy can be recreated at any time. Entries are copied when an adjustment is
booked; the analytics process also compares both sides and copies missing ones, for example after a crash or after the
store was restored from an older backup.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from sqlalchemy.orm import Session

from analytics.queries import query
from analytics.rows import money_of, number_of, text_of
from backends.control.books import booked_totals, entries_of
from backends.control.database import ControlDatabase
from backends.store.client import StoreClient
from contracts.control import BookAdjustment
from contracts.pricing.book_entries import Entry
from contracts.pricing.money import usd

if TYPE_CHECKING:
    import pyarrow

_TABLE: Final = "book_entries"
_ROWS_AT_ONCE: Final = 50_000


class BookCopies:
    """Completes the store's copy of booked entries. A chore of the analytics process."""

    def __init__(self, database: ControlDatabase, store: StoreClient) -> None:
        self._database = database
        self._store = store

    def write_due(self) -> int:
        """Copy adjustments that the store lacks; return how many. Raises StoreUnavailable, ControlUnavailable."""
        with self._database.session() as session:
            return copy_missing(session, self._store)


def copy_missing(session: Session, store: StoreClient) -> int:
    """Copy booked adjustments whose entries the store does not have in full; return how many were copied.

    The store's entries of adjustments that the control database does not have (it was restored from an older backup)
    are deleted.
    """
    booked = booked_totals(session)
    copied = {
        text_of(row["adjustment"]): (number_of(row["entries"]), money_of(row["amount"]))
        for row in store.query(query("book_copies"))
    }
    done = 0
    for name, row in booked.items():
        if copied.get(name) != (row.entry_count, row.amount_usd):
            entries = entries_of(session, name)
            if copied.get(name) == (len(entries), usd(sum(entry.effect.amount_pico_usd for entry in entries))):
                continue  # entries of erased tenants are deleted on both sides
            copy_adjustment(store, row, entries)
            done += 1
    strange = sorted(copied.keys() - booked.keys())
    if strange:
        store.command(
            f"ALTER TABLE {_TABLE} DELETE WHERE adjustment IN {{names:Array(String)}}",
            {"names": strange},
            settings={"mutations_sync": 2},
        )
    return done


def copy_adjustment(store: StoreClient, row: BookAdjustment, entries: Sequence[Entry]) -> None:
    """Copy one booked adjustment. Idempotent: existing rows are replaced by equal ones."""
    for start in range(0, len(entries), _ROWS_AT_ONCE):
        part = entries[start : start + _ROWS_AT_ONCE]
        # Not deduplicated across a deletion; rows replace equal rows anyway.
        token = f"book entries {row.id} {start} {len(part)} {row.digest[:16]}"
        store.insert_arrow(_TABLE, _table(row, part, start + 1), deduplication_token=token)


def _table(row: BookAdjustment, entries: Sequence[Entry], first: int) -> "pyarrow.Table":
    import pyarrow as pa  # imported here: it loads slowly

    def text(values: list[str]) -> "pyarrow.Array":
        return pa.array(values, pa.string())

    def whole(values: list[int]) -> "pyarrow.Array":
        return pa.array(values, pa.int64())

    def money(values: list[int]) -> "pyarrow.Array":
        return pa.array([usd(value) for value in values], pa.decimal128(38, 12))

    count, groups, effects = len(entries), [entry.group for entry in entries], [entry.effect for entry in entries]
    return pa.table(
        {
            "adjustment": text([row.id] * count),
            "number": pa.array(range(first, first + count), pa.uint32()),
            "kind": text([row.kind] * count),
            "card_version": text([row.card_version] * count),
            "invoice": text([row.invoice] * count),
            "period": text([entry.period for entry in entries]),
            "tenant": text([group.tenant for group in groups]),
            "team": text([group.team for group in groups]),
            "project": text([group.project for group in groups]),
            "key_id": text([group.key for group in groups]),
            "model": text([group.model for group in groups]),
            "provider": text([group.provider for group in groups]),
            "price_version": text([group.price_version for group in groups]),
            "used_at": pa.array([group.used_at for group in groups], pa.timestamp("s", "UTC")),
            "requests": whole([entry.requests for entry in entries]),
            "cost_usd": money([effect.amount_pico_usd for effect in effects]),
            "no_price_requests": whole([effect.unpriced_requests for effect in effects]),
            "partly_unpriced_requests": whole([effect.partly_unpriced_requests for effect in effects]),
            "unpriced_input_tokens": whole([effect.unpriced_input_tokens for effect in effects]),
            "unpriced_output_tokens": whole([effect.unpriced_output_tokens for effect in effects]),
            "estimated_usd": money([effect.estimated_pico_usd for effect in effects]),
            "estimated_requests": whole([effect.estimated_requests for effect in effects]),
        }
    )
