"""Answer a chat with a cached response within the event loop turn in which it arrives.

If that would have to wait (there is no cached response, it is being generated, a limit has no room), nothing is
reserved and the request takes the usual path.
"""

from typing import Final

from msgspec.structs import replace

from contracts.api.chat import ChatRequest
from contracts.errors import TollkeeperError
from contracts.pricing.prices import Cost
from gateway.apis.operations import CHAT
from gateway.cache.answer_cache import UNUSED, AnswerCache, Kept
from gateway.cache.cache_control import ANY, read_cache_control
from gateway.cache.fingerprint import Context, fingerprint
from gateway.cache.pricing import price_by
from gateway.limits.demand import Rates
from gateway.limits.reservation import Grant, Reservation, take_at_once
from gateway.replies.reply import ReplyFacts
from gateway.request.clock import Clock
from gateway.request.plans.cache_plan import CachePlan
from gateway.request.request_state import RequestState
from gateway.request.stages import Stages

_SECOND_NS: Final = 1_000_000_000
_MOST_BYTES: Final = 4 << 20  # of bodies, in each of two generations
_LARGEST_BYTES: Final = 64 << 10  # of one body: larger ones would drive out too many
_ENTRY_BYTES: Final = 1000  # what one takes beside its body


class Question:
    """What a body asks for, without its messages, and its cache key under one configuration.

    Guardrails and rules that read messages have inspected these under that configuration, and would decide the same
    again.
    """

    __slots__ = ("context", "name", "request")

    def __init__(self, request: ChatRequest, context: Context, name: bytes) -> None:
        self.request = request
        self.context = context
        self.name = name

    def is_of(self, plan: CachePlan | None) -> bool:
        """Return whether it was stored under the configuration of this plan."""
        return plan is not None and self.context is plan.context


class KnownQuestions:
    """Bodies that were answered from the cache: the next identical body need not be parsed again.

    They are known by credential and body, so that no other key finds them.

    There are two generations. If the newer is full it becomes the older one, and that is dropped: nearly an LRU cache.
    """

    __slots__ = ("_newer", "_older", "_size")

    def __init__(self) -> None:
        self._newer: dict[tuple[bytes, bytes], Question] = {}
        self._older: dict[tuple[bytes, bytes], Question] = {}
        self._size = 0  # of the newer, in bytes

    def find(self, sent: bytes, body: bytes) -> Question | None:
        """Return what a body asks for, if the same credential sent the same body before."""
        if not self._newer and not self._older:
            return None  # nor is the body hashed, which where nothing is kept would be for nothing
        found = self._newer.get((sent, body))
        if found is None and self._older:
            found = self._older.pop((sent, body), None)
            if found is not None:
                self.note(sent, body, found)
        return found

    def note(self, sent: bytes, body: bytes, question: Question) -> None:
        """Remember what a body asks for."""
        if len(body) > _LARGEST_BYTES:
            return
        size = len(body) + _ENTRY_BYTES
        if self._size + size > _MOST_BYTES:
            self._older, self._newer, self._size = self._newer, {}, 0
        if (sent, body) not in self._newer:
            self._size += size
        self._newer[sent, body] = question


class CacheHits:
    """Answers requests with cached responses."""

    def __init__(self, stages: Stages, clock: Clock) -> None:
        self._stages = stages
        self._answers: AnswerCache = stages.answers
        self._clock = clock
        self._known = KnownQuestions()

    def known(self, sent: bytes, body: bytes) -> Question | None:
        """Return what a body asks for, if the same body was answered from the cache before; else `None`."""
        return self._known.find(sent, body)

    def answer(self, life: RequestState, plan: CachePlan, request: ChatRequest, question: Question | None) -> bool:
        """Answer a chat with a cached response; return whether there was one. Otherwise nothing is reserved.

        `request` is the request as read, or that of its `question` if the body is known under this configuration.
        """
        exchange = life.exchange
        asked = exchange.headers.get(b"cache-control")
        wish = ANY if asked is None else read_cache_control(asked.decode("latin-1"))
        if not wish.may_read:
            return False
        stages = self._stages
        try:
            stages.guard.before(plan.key, request, CHAT.api, plan.snapshot)
            named = question or _named(plan, request, exchange.body)
            kept = None if named is None else self._answers.look(plan.tenant, named.name, plan.policy, wish)
            if named is None or kept is None:
                return False
            cost = self._reserve(life, plan, named.name, kept)
            if cost is None:
                return False
            life.ticket = stages.admission.admit(plan.key.identity)
        except TollkeeperError:
            self.give_back(life)
            return False
        self._answers.note_hit(cost.total_pico_usd, plan.prices[named.name][2])
        if named is not question:
            self._known.note(exchange.head.authorization, exchange.body, named)
        self._give(life, plan, named.request, kept, cost)  # last: once an answer has begun, no stage may give another
        return True

    def give_back(self, life: RequestState) -> None:
        """Release what was reserved for a cache hit that was not used after all."""
        if life.grant is not None:
            life.grant.reservation.undo()
            life.grant = None
        if life.ticket is not None:
            self._stages.admission.settle(life.ticket)
            life.ticket = None
        life.cache_outcome = ""

    def _reserve(self, life: RequestState, plan: CachePlan, name: bytes, kept: Kept) -> Cost | None:
        """Reserve the price of a cache hit and return it; `None`, with nothing reserved, if that would have to wait."""
        entry, answer = kept
        known = plan.prices.get(name)
        if known is None or known[0] is not entry:
            settlement, now_ns = self._stages.settlement, life.started_at_ns
            sold = (answer.model, plan.tenant, answer.seller, answer.region)
            card = settlement.card_of(*sold, now_ns, plan.snapshot)
            known = plan.prices[name] = (entry, *price_by(card, answer, plan.policy, settlement, CHAT.name))
        cost = known[1]
        if cost.unpriced:
            return None
        total, counters = cost.total_pico_usd, plan.lines
        if counters is not None:
            if total is None and counters.counts_money:
                return None
            rates = Rates(request_pico_usd=total or 0)
            portion = take_at_once(counters, rates.at_start(0, 0), self._clock.steady_ns())
            if portion is None:
                return None
            life.grant = Grant(Reservation(counters, [portion]), rates, 0, 0)
        return cost

    def _give(self, life: RequestState, plan: CachePlan, request: ChatRequest, kept: Kept, cost: Cost) -> None:
        entry, answer = kept
        life.key, life.who, life.is_authenticated = plan.key, plan.key.identity, True
        life.request, life.requested_model, life.model = request, request.model, plan.model
        life.priority = plan.key.policy.priority
        life.output_limit, life.choices = request.output_limit, request.choice_count
        life.is_streamed = answer.is_stream
        life.template, life.is_like_its_plan = plan.template, True
        now_ns = life.admitted_ns = self._clock.monotonic_ns()
        life.usage, life.count_method, life.cost, life.cache_outcome = UNUSED, "exact", cost, "hit"
        life.finish_reason = answer.finish_reason
        facts = ReplyFacts(life.exchange, life.id_text, life.started_at_ns // _SECOND_NS, self._clock)
        reply = life.reply = CHAT.reply(facts, request)
        reply.add_headers(self._stages.limiter.rate_headers(life.grant))
        reply.add_lines(b"x-cache: hit\r\nage: %d\r\n" % ((now_ns - entry.kept_at_ns) // _SECOND_NS))
        reply.replay(answer.begun, answer.end, answer.served)


def _named(plan: CachePlan, request: ChatRequest, body: bytes) -> Question | None:
    """Return the request's key in the response cache; `None` if it has none."""
    found = fingerprint(body, plan.context, wants_text=False)
    return None if found is None else Question(replace(request, messages=[]), plan.context, found.exact)
