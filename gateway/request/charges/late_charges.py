"""Usage beyond a request's reservation, fetched from shared counters before it is charged.

Nobody sees an upstream's whole answer grow, and a stream may come in one piece. Where counters are leased, what is
here at that moment says little of what there is: without asking, the rest would be charged to nobody.
"""

import asyncio
import contextlib

from gateway.limits.counters.base import CounterStore
from gateway.limits.demand import Amounts
from gateway.limits.grant import Grant
from gateway.request.clock import Clock


async def reserve_late(used: Amounts, grant: Grant, store: CounterStore, clock: Clock) -> None:
    """Reserve what a request that has ended used beyond a grant, all of it or nothing. Raises nothing."""
    reservation = grant.reservation
    lacking = reservation.lacking(used)
    if not any(lacking) or reservation.extend(lacking, clock.steady_ns()):
        return
    asked = [(counter, lacking[place]) for counter, place in reservation.lines.all if lacking[place]]
    # The client may leave meanwhile: it is charged what could be reserved without asking.
    with contextlib.suppress(asyncio.CancelledError, TimeoutError):
        if await store.seek_room(asked, "", clock.steady_ns()) is None:
            reservation.extend(lacking, clock.steady_ns())
