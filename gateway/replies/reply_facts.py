"""What every answer is made with: where it goes, whose it is, and when."""

from uuid import UUID

import msgspec

from gateway.request.clock import Clock
from gateway.wire.exchange import Exchange


class ReplyFacts(msgspec.Struct, frozen=True):
    """What every answer is made with."""

    exchange: Exchange
    request_id: UUID
    created_unix: int
    clock: Clock
