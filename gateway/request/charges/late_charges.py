"""Reserve usage beyond a request's reservation from shared counters, before it is charged.

The gateway does not see every answer grow, and a stream may arrive in one piece. With leased counters, this process may
hold too little although other capacity is left in Redis: without asking there, the excess would be charged to no one.
"""

import asyncio
import contextlib

from gateway.limits.counters.base import CounterStore
from gateway.limits.demand import Amounts
from gateway.limits.grant import Grant
from gateway.request.clock import Clock


async def reserve_late(used: Amounts, grant: Grant, store: CounterStore, clock: Clock) -> None:
    """Reserve what an ended request used beyond its grant, all of it or nothing. Raise no error."""
    reservation = grant.reservation
    lacking = reservation.lacking(used)
    if not any(lacking) or reservation.extend(lacking, clock.steady_ns()):
        return
    asked = [(counter, lacking[place]) for counter, place in reservation.lines.all if lacking[place]]
    # The client may leave meanwhile: it is charged what could be reserved without asking.
    with contextlib.suppress(asyncio.CancelledError, TimeoutError):
        if await store.seek_room(asked, "", clock.steady_ns()) is None:
            reservation.extend(lacking, clock.steady_ns())
