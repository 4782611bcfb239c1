"""Checks list prices for changes once an hour, for an alert and for scheduled replacement of cards."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock
from typing import Final

from analytics.prices.litellm_table import read_signed
from analytics.prices.refresh import PriceChange, PriceRefresh, price_refresh, replace_changed
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.store.client import StoreClient

_log = logging.getLogger(__name__)

_KEPT: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class PriceSchedule:
    """An additional price table to read, and whether changed cards are replaced automatically."""

    table: Path | None = None
    signature: Path | None = None
    public_key: Path | None = None
    replaces: bool = False


class PriceWatch:
    """Compares imported cards with the price list at most once an hour, for all threads."""

    def __init__(self, database: ControlDatabase, schedule: PriceSchedule) -> None:
        self._database = database
        self._schedule = schedule
        self._lock = Lock()
        self._found: PriceRefresh | None = None
        self._read_at = datetime.min.replace(tzinfo=UTC)

    def __call__(self, store: StoreClient, now: datetime) -> PriceRefresh:
        """Return the changes, at most an hour old; some may have been replaced since.

        Raises ConfigurationError if the table's signature is wrong, StoreUnavailable, ControlUnavailable; the cached
        result remains then.
        """
        with self._lock:
            if self._found is None or not timedelta(0) <= now - self._read_at < _KEPT:
                of = self._schedule
                table = read_signed(of.table, of.signature, of.public_key)
                self._found, self._read_at = price_refresh(store, self._database, table, now), now
            return self._found

    def chore(self, store: StoreClient, now: Callable[[], datetime]) -> Callable[[], int]:
        """Return a periodic job that replaces changed cards, if scheduled, and returns their number."""
        done: set[str] = set()

        def replace_due() -> int:
            if not self._schedule.replaces:
                return 0
            at = now().replace(microsecond=0)
            due = [
                PriceChange(change.old, replace(change.new, valid_from=at))  # the result may be an hour old
                for change in self(store, at).changes
                if change.old.version not in done
            ]
            if due:
                replace_changed(self._database, Author("prices-schedule", at), due)
                done.update(change.old.version for change in due)
                _log.info("prices_replaced", extra={"cards": [change.new.version for change in due]})
            return len(due)

        return replace_due
