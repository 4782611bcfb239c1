"""Requests that are at a target, stored outside the process: if a crash ends one, its record is built from this.

An entry exists from just before a request is sent until its own record is in the journal. It consists of the record's
fields so far, as bytes shared by similar requests, and a head with the differences. `gateway/records/lost_requests.py`
reads them.
"""

import asyncio
import logging
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from backends.processes.beat import until_beat
from backends.processes.native import mypyc_attr
from backends.segment_log.slot_table import MAX_BYTES, NO_SLOT, KeptValue, SlotTable
from gateway.limits.demand import MONEY, TOKENS
from gateway.limits.reservation import Reservation
from gateway.request.clock import Clock

_log = logging.getLogger(__name__)

BEAT_SECONDS: Final = 0.25
# Id, start (Unix ns), ns until it was admitted, request bytes, estimated input tokens, max_tokens (-1: none), reserved
# tokens (-1: none), choices, flags.
HEAD: Final = struct.Struct("<16sqqqqqqqB")
_pack_head: Final[Callable[..., bytes]] = HEAD.pack
_MAX_RECORD_BYTES: Final = MAX_BYTES - HEAD.size
STREAM: Final = 1
BATCHED: Final = 2  # priced as a batch's
TEMPERED: Final = 4  # the temperature stands between head and record, which says none
TEMPERATURE: Final = struct.Struct("<d")
NOT_SAID: Final = -1


class Growing(Protocol):
    """A request whose output is visible to the gateway while it is generated."""

    @property
    def output_so_far(self) -> int: ...


@mypyc_attr(allow_interpreted_subclasses=True)  # tests watch it
class SentRequests:
    """The entries of one process. If its file cannot be opened, which is logged, a crash leaves no records."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._clock = clock
        self._table: SlotTable | None = None
        try:
            self._table = SlotTable(path)
        except OSError as error:
            _log.error(
                "requests in progress cannot be stored: a crash would lose their records",
                extra={"path": str(path), "reason": error.strerror},
            )
        self._watched: dict[int, tuple[Growing, Reservation | None]] = {}
        self._has_told = False

    @property
    def found(self) -> list[KeptValue]:
        """Return the entries that the previous process left."""
        return [] if self._table is None else self._table.found

    @property
    def damaged(self) -> int:
        """Return the number of unreadable entries that the previous process left."""
        return 0 if self._table is None else self._table.damaged

    @property
    def last_alive_ns(self) -> int:
        """Return when the previous process was last known to run (Unix nanoseconds)."""
        return 0 if self._table is None else self._table.last_alive_ns

    @property
    def open_entries(self) -> int:
        """Return the number of requests that have an entry."""
        return 0 if self._table is None else self._table.used

    def begin(
        self,
        id: bytes,
        started_at_ns: int,
        admission_ns: int,
        request_bytes: int,
        tokens_in: int,
        max_tokens: int | None,
        reservation: Reservation | None,
        choices: int,
        flags: int,
        record: bytes,
    ) -> int:
        """Write an entry for a request that is about to be sent; return its slot, for `end`.

        `record` is a packed request record with the remaining fields.
        """
        table = self._table
        if table is None:
            return NO_SLOT
        if len(record) > _MAX_RECORD_BYTES:
            self._tell("its labels are too long")
            return NO_SLOT
        slot = table.take()
        if slot < 0:
            self._tell("the disk has no room")
            return NO_SLOT
        head = _pack_head(
            id,
            started_at_ns,
            admission_ns,
            request_bytes,
            tokens_in,
            NOT_SAID if max_tokens is None else max_tokens,
            NOT_SAID if reservation is None else reservation.reserved(TOKENS),
            choices,
            flags,
        )
        table.put(slot, _money_of(reservation), head + record)
        return slot

    def watch(self, slot: int, growing: Growing, reservation: Reservation | None) -> None:
        """Update a slot's entry with output as it passes. Do nothing for NO_SLOT."""
        if slot >= 0:
            self._watched[slot] = (growing, reservation)

    def _tell(self, why: str) -> None:
        if not self._has_told:
            self._has_told = True
            _log.error("a request in progress cannot be stored", extra={"reason": why})

    def end(self, slot: int) -> None:
        """Free an entry: its request has its record, or was not sent. Do nothing for `NO_SLOT`."""
        table = self._table
        if slot < 0 or table is None:
            return
        if self._watched:
            self._watched.pop(slot, None)
        table.clear(slot)

    async def run(self) -> None:
        """Update the entries periodically until cancelled."""
        while True:
            await asyncio.sleep(until_beat(BEAT_SECONDS))
            self.note_progress()

    def note_progress(self) -> None:
        """Write down the progress of all answers, and that this process is alive."""
        table = self._table
        if table is None or not table.used:
            return
        for slot, (growing, reservation) in self._watched.items():
            table.note(slot, _money_of(reservation), growing.output_so_far)
        table.note_alive(self._clock.wall_ns())

    def close(self) -> None:
        """Close the file."""
        table, self._table = self._table, None
        self._watched.clear()
        if table is not None:
            table.close()


def _money_of(reservation: Reservation | None) -> int | None:
    """Return the pico-USD that a request has reserved in its budgets; `None` if no rule counts money."""
    if reservation is None or not reservation.lines.counts_money:
        return None
    return reservation.reserved(MONEY)
