"""May this request begin now? Every admitted request holds a ticket until it is settled.

Admission protects what must never be lost, the journal's room, and the process itself by a cap on concurrent requests.
Rate limits and budgets are in `limiter.py`, whose turn it is in `queue/`.
"""

from backends.processes.native import mypyc_attr
from contracts.access.identity import Identity
from contracts.errors import JournalFull, Unavailable
from gateway.records.journal import RECORD_ROOM_BYTES, Journal


@mypyc_attr(acyclic=True)  # it leads to nothing that leads back
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
    """Issues and collects tickets: the room for requests in the process and in the journal."""

    def __init__(self, journal: Journal, max_concurrent: int) -> None:
        self._journal = journal
        self._max_concurrent = max_concurrent
        self.in_flight = 0

    def admit(self, who: Identity) -> Ticket:
        """Return a ticket. Raises JournalFull or Unavailable."""
        if self.in_flight >= self._max_concurrent:
            raise Unavailable(
                f"the gateway is serving its limit of {self._max_concurrent} concurrent requests",
                code="overloaded",
                retry_after_seconds=1.0,
            )
        if not self._journal.promise((self.in_flight + 1) * RECORD_ROOM_BYTES):
            raise JournalFull(f"usage cannot be recorded: {self._why_there_is_no_room()}", retry_after_seconds=5.0)
        self.in_flight += 1
        return Ticket(who)

    @property
    def has_journal_room(self) -> bool:
        """Return whether the journal would let a request begin now."""
        return self._journal.has_room((self.in_flight + 1) * RECORD_ROOM_BYTES)

    def _why_there_is_no_room(self) -> str:
        if self._journal.is_disk_full:
            return "the disk that holds the gateway's journal is full; requests are refused until it has free space"
        if self._journal.is_broken:
            return "the disk that holds the gateway's journal cannot be written; see the gateway's log"
        return "the journal has reached its bound because the collector is away; nothing is admitted until it drains"

    def settle(self, ticket: Ticket) -> None:
        """Withdraw a ticket. A second call does nothing."""
        if not ticket.is_settled:
            ticket.is_settled = True
            self.in_flight -= 1
