"""Chats that a kept answer is there for, on their short way: looked up, charged, recorded and answered in one turn.

It does what `gateway/cache/answer_cache.py` does behind the dispatcher, with the same store, counters, prices
and journal, where an answer to the very same request is there and nothing is to wait for. Whatever else may be (none is
there, it is being made, a limit has no room) is left to the dispatcher, with nothing taken.
"""

from typing import Final

from msgspec.structs import replace

from contracts.api.chat import ChatRequest
from contracts.errors import TollkeeperError
from contracts.pricing.prices import Cost
from contracts.recording.ids import IdSource
from gateway.apis.operations import CHAT
from gateway.cache.answer_cache import UNUSED, AnswerCache, Kept
from gateway.cache.cache_control import ANY, read_cache_control
from gateway.cache.fingerprint import fingerprint
from gateway.cache.kept_answer import KeptAnswer
from gateway.cache.pricing import price_by
from gateway.lane.endings import Ending, Endings, StreamEnding
from gateway.lane.known_questions import KnownQuestions, Question
from gateway.lane.open_shelf import OpenShelf
from gateway.limits.demand import MONEY, NOTHING, TOKENS, Rates
from gateway.limits.headers import rate_headers
from gateway.limits.reservation import Reservation, take_at_once
from gateway.records.recorder import WholeRequest
from gateway.replies.reply import EVENT_STREAM
from gateway.request.clock import Clock
from gateway.request.stages import Stages
from gateway.wire.exchange import Exchange, header_lines

_SECOND_NS: Final = 1_000_000_000


class Answered:
    """A request that has its answer already: its client's leaving ends nothing."""

    def cancel(self) -> None:
        """Do nothing."""


ANSWERED: Final = Answered()


class _Paid:
    """What a hit was let in with: its cost, what it holds of its counters, and what its head says of these."""

    __slots__ = ("cost", "limits_told", "reservation")

    def __init__(self, cost: Cost, reservation: Reservation | None, limits_told: bytes) -> None:
        self.cost = cost
        self.reservation = reservation
        self.limits_told = limits_told


class QuickHits:
    """Answers requests with kept answers."""

    def __init__(self, stages: Stages, clock: Clock, ids: IdSource, endings: Endings) -> None:
        self._stages = stages
        self._answers: AnswerCache = stages.answers
        self._clock = clock
        self._ids = ids
        self._endings = endings
        self._known = KnownQuestions()

    def known(self, sent: bytes, body: bytes) -> Question | None:
        """Give what a body asks for that was answered with a kept answer before."""
        return self._known.find(sent, body)

    def answer(
        self,
        shelf: OpenShelf,
        exchange: Exchange,
        request: ChatRequest,
        question: Question | None,
        started_at_ns: int,
        began_ns: int,
    ) -> Answered | None:
        """Answer a chat with the kept answer of the same one; `None`, with nothing taken, where that cannot be now.

        `request` is as it was read, or its `question`'s, where that is known under this configuration.
        """
        asked = exchange.headers.get(b"cache-control")
        wish = ANY if asked is None else read_cache_control(asked.decode("latin-1"))
        if not wish.may_read:
            return None
        stages = self._stages
        try:
            stages.guard.before(shelf.key, request, CHAT.api, shelf.snapshot)
            named = question or _named(shelf, request, exchange.body)
            kept = None if named is None else self._answers.look(shelf.tenant, named.name, shelf.policy, wish)
            if named is None or kept is None:
                return None
            ticket = stages.admission.admit(shelf.key.identity)
        except TollkeeperError:
            return None
        try:
            is_answered = self._give(shelf, exchange, named, kept, started_at_ns, began_ns)
        finally:
            stages.admission.settle(ticket)
        if not is_answered:
            return None
        if named is not question:
            self._known.note(exchange.headers[b"authorization"], exchange.body, named)
        return ANSWERED

    def _give(
        self, shelf: OpenShelf, exchange: Exchange, named: Question, kept: Kept, started_at_ns: int, began_ns: int
    ) -> bool:
        """Charge, record and answer; say whether that could be done at once."""
        entry, answer = kept
        paid = self._pay(shelf, named.name, kept, started_at_ns)
        if paid is None:
            return False
        try:
            now_ns = self._clock.monotonic_ns()
            made, text = self._ids.next(started_at_ns)
            lines = b"x-request-id: %b\r\n%bx-cache: hit\r\nage: %d\r\n%b" % (
                text.encode(),
                paid.limits_told,
                (now_ns - entry.kept_at_ns) // _SECOND_NS,
                entry.served_lines,
            )
            if answer.is_stream:
                exchange.start_lines(200, EVENT_STREAM, lines)
                exchange.write(answer.begun)
            record = self._record(shelf, exchange, named.request, answer, paid, made, started_at_ns, began_ns, now_ns)
            if answer.is_stream:
                self._endings.add(StreamEnding(record, exchange, answer.end, lines))
            else:
                self._endings.answer(Ending(record, exchange, answer.end, lines))
        except BaseException:
            if paid.reservation is not None:
                paid.reservation.settle(NOTHING, self._clock.steady_ns())
            raise
        return True

    def _record(
        self,
        shelf: OpenShelf,
        exchange: Exchange,
        request: ChatRequest,
        answer: KeptAnswer,
        paid: _Paid,
        made: bytes,
        started_at_ns: int,
        began_ns: int,
        admitted_ns: int,
    ) -> WholeRequest:
        """Settle what was reserved, and give the packed record."""
        cost = paid.cost
        charged, reserved, overdraft = cost.total_pico_usd, None, None
        if paid.reservation is not None:
            used = (1, 0, 0, 0, 0, 0, charged or 0)
            settled = paid.reservation.settle(used, self._clock.steady_ns())
            reserved, overdraft = 0, paid.reservation.overdraft[TOKENS]
            if paid.reservation.lines.counts_money:
                charged = settled[MONEY]
        body, duration_ns = exchange.body, self._clock.monotonic_ns() - began_ns
        packed = shelf.template.pack(
            (
                made,
                started_at_ns,
                duration_ns,
                answer.finish_reason,
                answer.is_stream,
                admitted_ns - began_ns,
                cost.total_pico_usd,
                cost.basis,
                cost.version,
                charged,
                request.output_limit,
                request.choice_count,
                request.temperature,
                len(body),
                exchange.bytes_sent + len(answer.end),
                reserved,
                overdraft,
            )
        )
        return WholeRequest(started_at_ns, packed, shelf.alike, shelf.tenant, duration_ns, UNUSED, cost.total_pico_usd)

    def _pay(self, shelf: OpenShelf, name: bytes, kept: Kept, now_ns: int) -> _Paid | None:
        """Charge a hit's price at once; `None`, with nothing taken, where that takes more than a look."""
        entry, answer = kept
        known = shelf.prices.get(name)
        if known is None or known[0] is not entry:
            settlement = self._stages.settlement
            card = settlement.card_of(answer.model, shelf.tenant, answer.seller, now_ns, shelf.snapshot)
            known = shelf.prices[name] = (entry, *price_by(card, answer, shelf.policy, settlement, CHAT.name))
        _, cost, whole_pico_usd = known
        if cost.unpriced:
            return None
        total, counters = cost.total_pico_usd, shelf.lines
        reservation, told = None, b""
        if counters is not None:
            if total is None and counters.counts_money:
                return None
            now_ns = self._clock.steady_ns()
            portion = take_at_once(counters, Rates(request_pico_usd=total or 0).at_start(0, 0), now_ns)
            if portion is None:
                return None
            reservation = Reservation(counters, [portion])
            told = header_lines(rate_headers(counters, now_ns))
        self._answers.note_hit(total, whole_pico_usd)
        return _Paid(cost, reservation, told)


def _named(shelf: OpenShelf, request: ChatRequest, body: bytes) -> Question | None:
    """Give the request's name on the shelf; `None` where it has none."""
    found = fingerprint(body, shelf.context, wants_text=False)
    return None if found is None else Question(replace(request, messages=[]), shelf.context, found.exact)
