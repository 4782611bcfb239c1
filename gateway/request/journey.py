"""Serve a request along its route's fallback chain: model after model until one answers."""

import logging
from typing import Final

from contracts.errors import (
    BudgetExhausted,
    LimitExceeded,
    QueueFull,
    TollkeeperError,
    UnsupportedParameter,
    UnsupportedValue,
    UpstreamError,
)
from gateway.replies.reply import Reply
from gateway.request.request_state import RequestState
from gateway.request.reserving import Reserving
from gateway.request.stages import Stages
from gateway.routing.routes.fallback_chain import FallbackChain

_log = logging.getLogger(__name__)

# What this model refuses, or what it is limited to, another need not.
_OTHERS_MAY: Final = (BudgetExhausted, LimitExceeded, QueueFull, UnsupportedParameter, UnsupportedValue)
_OTHERS_MAY_CODES: Final = frozenset(("context_length_exceeded", "unpriced_model"))


class Journeys:
    """Runs requests whose fallback chain is known and whose first candidate has been chosen."""

    def __init__(self, stages: Stages, reserving: Reserving) -> None:
        self._stages = stages
        self._reserving = reserving

    async def go(self, life: RequestState, way: FallbackChain) -> None:
        """Serve the request by the first candidate that answers; release what was reserved for those before it.

        Raise the error of the last target that was called. If none was called, raise what the first candidate was
        refused for.
        """
        reply, failure = life.reply, None
        assert reply is not None
        lines, limit = reply.lines, ""
        for leg in way.legs:
            try:
                if failure is not None:
                    self._reserving.leave(life)
                    reply.start_over(lines)
                    way.enter(life, leg)
                call = await self._reserving.admit(life, leg.pool)
                candidates = await self._reserving.candidates(life, call, leg.within)
                await self._stages.caller.call(life, reply, call, candidates)
                return
            except TollkeeperError as error:
                if failure is None:
                    life.left_first_for = error.error_code
                if failure is None or isinstance(error, UpstreamError):
                    failure, limit = error, life.limit
                if not goes_on(self._stages, life, reply, error):
                    raise
                _log.info(
                    "route goes on", extra={"request_id": life.id_text, "left": leg.label, "code": error.error_code}
                )
        assert failure is not None
        life.limit = limit
        raise failure


def goes_on(stages: Stages, life: RequestState, reply: Reply, error: TollkeeperError) -> bool:
    """Return whether another model may be asked after an error: the client has received nothing, and it may help."""
    if reply.has_begun:
        return False
    if isinstance(error, _OTHERS_MAY) or error.error_code in _OTHERS_MAY_CODES:
        return True  # it is this model that refuses, or has no room
    return stages.caller.may_fall_back(life, reply, error)
