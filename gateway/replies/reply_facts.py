"""Facts that every reply needs: client connection, owner, and time."""

from uuid import UUID

from backends.processes.native import mypyc_attr
from gateway.request.clock import Clock
from gateway.wire.exchange import Exchange


@mypyc_attr(allow_interpreted_subclasses=True)
class ReplyFacts:
    """Facts for creating a reply: the client's connection, the request's id and the clock."""

    __slots__ = ("clock", "created_unix", "exchange", "id_text")

    def __init__(self, exchange: Exchange, id_text: str, created_unix: int, clock: Clock) -> None:
        self.exchange = exchange
        self.id_text = id_text  # the request's id
        self.created_unix = created_unix
        self.clock = clock

    @property
    def request_id(self) -> UUID:
        """Return the request's id."""
        return UUID(self.id_text)
