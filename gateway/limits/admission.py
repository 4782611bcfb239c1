"""Admission control: every admitted request holds a ticket until it is settled.

Admission protects the space in the journal, and the process itself by a maximum number of concurrent requests. Rate
limits and budgets are checked separately (`limiter.py`), as is the order of waiting requests (`queue/`).
"""

from backends.processes.native import mypyc_attr
from contracts.access.identity import Identity
from contracts.errors import JournalFull, Unavailable
from gateway.records.journal import RECORD_ROOM_BYTES, Journal


@mypyc_attr(acyclic=True)  # holds no references that could form a cycle
class Ticket:
    """The right to run one request. Settled exactly once, whatever happens."""

    __slots__ = ("who", "is_settled")

    def __init__(
        self,
        who: Identity,
        is_settled: bool = False,
    ) -> None:
        self.who = who
        self.is_settled = is_settled


class Admission:
    """Issues tickets and takes them back, while the process and the journal have room for a request."""

    def __init__(self, journal: Journal, max_concurrent: int) -> None:
        self._journal = journal
        self._max_concurrent = max_concurrent
        self.in_flight = 0

    def admit(self, who: Identity) -> Ticket:
        """Return a ticket. Raises JournalFull if the journal has no room, Unavailable at the maximum of concurrent
        requests.
        """
        if self.in_flight >= self._max_concurrent:
            raise Unavailable(
                f"the gateway is at its limit of {self._max_concurrent} concurrent requests",
                code="overloaded",
                retry_after_seconds=1.0,
            )
        if not self._journal.promise((self.in_flight + 1) * RECORD_ROOM_BYTES):
            raise JournalFull(f"usage cannot be recorded: {self._why_there_is_no_room()}", retry_after_seconds=5.0)
        self.in_flight += 1
        return Ticket(who)

    @property
    def has_journal_room(self) -> bool:
        """Return whether the journal has room for one more request."""
        return self._journal.has_room((self.in_flight + 1) * RECORD_ROOM_BYTES)

    def _why_there_is_no_room(self) -> str:
        if self._journal.is_disk_full:
            return "the disk that holds the gateway's journal is full; requests are refused until it has free space"
        if self._journal.is_broken:
            return "the disk that holds the gateway's journal cannot be written; see the gateway's log"
        return "the journal is full because the collector is unreachable; requests are refused until it drains"

    def settle(self, ticket: Ticket) -> None:
        """Take a ticket back. A second call does nothing."""
        if not ticket.is_settled:
            ticket.is_settled = True
            self.in_flight -= 1
