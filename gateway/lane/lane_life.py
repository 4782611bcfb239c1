"""What the dispatcher is told of a request that the short way let in and leaves to it."""

from uuid import UUID

from contracts.chat import ChatRequest
from gateway.admission import Ticket
from gateway.exchange import Exchange
from gateway.grant import Grant
from gateway.lane.lane_plan import OpenLane
from gateway.life import Life
from gateway.limits.reservation import Reservation
from gateway.operations import CHAT
from gateway.reply import Reply
from gateway.stages import Passage


def life_of(
    opened: OpenLane,
    exchange: Exchange,
    request: ChatRequest,
    made: bytes,
    started_at_ns: int,
    began_ns: int,
    admitted_ns: int,
) -> Life:
    """Give the facts of a request that was let in with the id `made`."""
    return Life(
        id=UUID(bytes=made),
        started_at_ns=started_at_ns,
        began_ns=began_ns,
        snapshot=opened.snapshot,
        body=exchange.body,
        request_bytes=len(exchange.body),
        api=CHAT.api,
        operation=CHAT.name,
        key=opened.key,
        who=opened.identity,
        is_authenticated=True,
        request=request,
        requested_model=request.model,
        model=opened.model,
        admitted_ns=admitted_ns,
        priority=opened.key.policy.priority,
    )


def passage_of(
    opened: OpenLane, reply: Reply, ticket: Ticket, reservation: Reservation | None, tokens_in: int, tokens_out: int
) -> Passage:
    """Give what such a request holds."""
    passage = Passage(reply=reply, ticket=ticket)
    if reservation is not None:
        passage.grant = Grant(reservation, opened.rates, tokens_in, tokens_out)
    return passage
