"""Understand a chat in the event loop turn in which it arrives, if its plan is known and nothing has to wait."""

from collections.abc import Callable
from typing import Final

from backends.llm.encoding_room import LARGE_BODY_BYTES
from backends.processes.native import mypyc_attr
from contracts.access.identity import MAX_USER_LENGTH
from contracts.api.chat import ChatRequest
from contracts.api.requests import AnyRequest
from contracts.errors import TollkeeperError
from contracts.rules.limits import PriorityClass
from gateway.apis.operations import CHAT
from gateway.limits.estimates.counting import prompt_bytes
from gateway.replies.answer_facts import is_looked_into
from gateway.replies.reply import ChatReply, ReplyFacts
from gateway.request.clock import Clock
from gateway.request.context import NO_CONTEXT, RequestContext, has_context, read_context, read_trace
from gateway.request.plans.cache_hits import CacheHits
from gateway.request.plans.plan import RequestPlan
from gateway.request.plans.plans import Plans
from gateway.request.plans.prepared_call import prepare_at_once
from gateway.request.request_state import RequestState
from gateway.request.stages import Stages
from gateway.wire.exchange import Exchange, RequestHead

_read_chat: Final = CHAT.read  # under its own name: every chat's way leads through it


@mypyc_attr(allow_interpreted_subclasses=True)  # tests do without it
class PlannedRequests:
    """Finds the plan of a request, and fills the request's state from it."""

    def __init__(self, stages: Stages, clock: Clock, plans: Plans, hits: CacheHits) -> None:
        self._stages = stages
        self._clock = clock
        self._plans = plans
        self._hits = hits

    def understand(self, life: RequestState) -> bool:
        """Fill a request's state by its plan; return whether that was possible. If not, the state is unchanged."""
        exchange = life.exchange
        head = exchange.head
        if head.is_plain is None:
            _look(head)
        if not head.is_plain or len(exchange.body) > LARGE_BODY_BYTES:
            return False
        return self._understand_chat(life, head) if life.operation is CHAT else self._understand_native(life, head)

    def _understand_chat(self, life: RequestState, head: RequestHead) -> bool:
        exchange = life.exchange
        question = self._hits.known(head.authorization, exchange.body)
        request = _read(exchange, _read_chat) if question is None else question.request
        if request is None:
            return False
        plan = self._plans.plan_for(head.authorization, CHAT, request.model, life.started_at_ns)
        if plan is None:
            return False
        cached, opened = plan.cache_plan, plan.plan
        if question is not None and not question.is_of(cached):
            question, request = None, _read(exchange, _read_chat)  # it was known under another configuration
        if request is None:
            return False
        if cached is not None:
            is_plain = head.context is NO_CONTEXT and not request.user and not is_looked_into(request)
            return is_plain and self._hits.answer(life, cached, request, question)
        return opened is not None and self._take(life, opened, request)

    def _understand_native(self, life: RequestState, head: RequestHead) -> bool:
        """Understand a request that is passed through unchanged, because all targets of its model speak its API."""
        exchange, native = life.exchange, life.operation.native
        model = None if native is None else native.model_of_all(exchange, life.snapshot)
        if native is None or model is None:
            return False
        plan = self._plans.plan_for(head.authorization, life.operation, model, life.started_at_ns)
        if plan is None or plan.plan is None:
            return False
        request = _read(exchange, native.reader_of_all(exchange, model))
        return request is not None and self._take(life, plan.plan, request)

    def _take(self, life: RequestState, opened: RequestPlan, request: ChatRequest) -> bool:
        newer = request.max_completion_tokens
        limit = request.max_tokens if newer is None else newer  # `output_limit`, without asking
        context = life.exchange.head.context
        priority = _priority_of(context, opened)
        if priority is None or not _fits(opened, request, limit):
            return False
        if opened.is_counted and not self._is_counted(life, opened, request, priority):
            return False
        if context.trace.trace_id:
            life.follow(context.trace, has_spans=self._stages.recorder.sends_spans)
        self._note_caller(life, opened, request, context)
        life.priority = priority
        life.prompt_bytes = prompt_bytes(life.body)
        life.request, life.requested_model, life.model = request, request.model, opened.model
        life.output_limit, life.choices, life.is_streamed = limit, request.n or 1, request.stream is True
        facts = ReplyFacts(life.exchange, life.id_text, life.started_at_ns // 1_000_000_000, self._clock)
        life.reply = life.operation.reply(facts, request) if opened.is_native else ChatReply(facts, request)
        life.plan = opened
        return True

    def _is_counted(
        self, life: RequestState, opened: RequestPlan, request: ChatRequest, priority: PriorityClass
    ) -> bool:
        """Render and count the prompt of a chat for an engine host; return whether that was possible at once."""
        if is_looked_into(request):
            return False
        prepared = prepare_at_once(self._stages, opened, life, request, life.exchange.head.context, priority)
        if prepared is None:
            return False
        life.call, life.counted_input = prepared.call, prepared.tokens_in
        return True

    @staticmethod
    def _note_caller(life: RequestState, opened: RequestPlan, request: ChatRequest, context: RequestContext) -> None:
        """Store the caller, and the headers' values that the body does not have."""
        who = opened.identity
        if context.tags or request.user:
            who = who.with_caller((request.user or "")[:MAX_USER_LENGTH], context.tags)
        life.key, life.who, life.is_authenticated = opened.key, who, True
        life.run_id, life.conversation_id = context.run_id, context.conversation_id
        life.is_like_its_plan = context is NO_CONTEXT and who is opened.identity and not opened.is_guarded


def _fits(opened: RequestPlan, request: ChatRequest, limit: int | None) -> bool:
    """Return whether a plan may serve a request with this limit of its answer."""
    if limit is not None and opened.context_tokens is not None and limit > opened.context_tokens:
        return False  # to be refused
    # What a stream needs beyond its reservation may have to be asked for while it runs.
    return not request.stream or opened.lines is None or opened.lines.quick is not None


def _priority_of(context: RequestContext, opened: RequestPlan) -> PriorityClass | None:
    """Return a request's priority class; `None` if it is refused or held back, which the full path of stages
    reports.
    """
    own = opened.priority
    if context is NO_CONTEXT:
        return own
    try:
        priority = context.priority(own)
    except TollkeeperError:
        return None
    return None if priority == "batch" and opened.snapshot.holds else priority


def _look(head: RequestHead) -> None:
    """Return whether the request's head has a key and a JSON body, and its other headers."""
    headers = head.headers
    content_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    head.is_plain = content_type == b"application/json" and bool(head.authorization)
    if head.is_plain and has_context(headers):
        context = head.context = read_context(headers, read_trace(headers))
        head.is_plain = context.fault is None and context.latency_budget_ms is None


def _read(exchange: Exchange, read: Callable[[str, bytes], AnyRequest]) -> ChatRequest | None:
    """Parse a chat that asks for the provider's standard service tier."""
    try:
        request = read("application/json", exchange.body)
    except (TollkeeperError, RecursionError):
        return None  # and read once more by whoever says what is wrong with it
    exchange.read = request
    return request if isinstance(request, ChatRequest) and not request.service_tier and not request.speed else None
