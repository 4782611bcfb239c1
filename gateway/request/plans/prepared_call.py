"""A chat for an engine host, with its prompt rendered and counted in the same event loop turn."""

from typing import Final

from backends.llm.base import ModelCall
from backends.processes.at_once import WouldWait, at_once
from contracts.api.chat import ChatRequest
from contracts.errors import TollkeeperError
from contracts.rules.limits import PriorityClass
from gateway.apis.operations import CHAT
from gateway.limits.clipping import nothing_fits
from gateway.limits.queue.request import RANKS
from gateway.request.context import RequestContext, trace_parent
from gateway.request.plans.plan import RequestPlan
from gateway.request.request_state import RequestState
from gateway.request.stages import Stages

_MOST_BYTES: Final = 4096  # of a body: what is longer is rendered and encoded in a thread
_MARK: Final = b'"cache_control"'  # as is what is kept of a prompt


class PreparedCall:
    """A call as the target will get it, with the tokens of its prompt (`None` if no rule counts them)."""

    __slots__ = ("call", "tokens_in")

    def __init__(self, call: ModelCall, tokens_in: int | None) -> None:
        self.call = call
        self.tokens_in = tokens_in


def prepare_at_once(
    stages: Stages,
    opened: RequestPlan,
    life: RequestState,
    request: ChatRequest,
    context: RequestContext,
    priority: PriorityClass,
) -> PreparedCall | None:
    """Prepare a chat's call; `None` if that takes longer than this turn, or if it is refused.

    The full path of stages then reports the reason.
    """
    tenant, body = opened.tenant, life.body
    trace = context.trace
    call = ModelCall(
        request_id=life.id,
        path=CHAT.path,
        request=request,
        body=body,
        tenant=tenant,
        cache_salt=stages.authenticator.cache_salt(tenant),
        trace_parent=trace_parent(trace, context.span_id(life.id_bytes), 0) if trace.trace_id else "",
        trace_state=trace.state,
        priority=RANKS[priority],
        has_client_left=life.has_client_left,
    )
    if opened.lines is None or not opened.lines.counts_tokens:
        return PreparedCall(call, None)
    if len(body) > _MOST_BYTES or body.find(_MARK) >= 0 or nothing_fits(opened.lines, stages.limiter.steady_ns()):
        return None
    counting = stages.targets.count_input(call, opened.snapshot.pools[opened.model.pool])
    try:
        tokens = at_once(counting)
    except (TollkeeperError, WouldWait):
        return None
    return None if tokens is None else PreparedCall(call, tokens)
