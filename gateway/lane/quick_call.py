"""One whole chat on its short way: sent as it came, its reply read, settled, recorded and passed on in one turn."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec

from backends.llm.base import SendAgain, SentWhole
from contracts.chat import ChatRequest
from contracts.configuration import TargetSpec
from contracts.errors import TollkeeperError, UpstreamError
from contracts.generation import Result
from contracts.prices import Cost, bill
from contracts.records import CountMethod
from contracts.usage import Usage, plain_counts
from gateway.admission import Ticket
from gateway.counting import learn_ratio
from gateway.exchange import Exchange
from gateway.grant import Grant
from gateway.lane.lane_plan import LaneTarget, OpenLane
from gateway.life import Life
from gateway.limits.demand import MONEY, TOKENS
from gateway.limits.headers import rate_headers, rate_lines
from gateway.limits.reservation import Reservation
from gateway.operations import CHAT
from gateway.output_estimates import learn_length
from gateway.reply import JSON, Reply, ReplyFacts
from gateway.served import served_lines
from gateway.stages import Passage

if TYPE_CHECKING:
    from gateway.lane.quick_lane import QuickLane

_AT_ONCE: Final = [0]


class LetIn(msgspec.Struct, eq=False):
    """What a request was let in with: a ticket, what it holds of its counters, and the tokens it may need."""

    ticket: Ticket
    reservation: Reservation | None
    prompt_bytes: int
    tokens_in: int
    tokens_out: int
    output_limit: int | None
    choices: int


class QuickCall(msgspec.Struct, eq=False):
    """A request under way. What is out of the ordinary goes on in a task, as any other request does.

    It is also the sink that its target gives the answer to, and tells the task what became of the first try.
    """

    _lane: "QuickLane"
    _exchange: Exchange
    _request: ChatRequest
    _open: OpenLane
    _let_in: LetIn
    _candidates: Sequence[TargetSpec]
    _to: LaneTarget
    _id: bytes
    _id_text: str
    started_at_ns: int  # Unix
    began_ns: int  # monotonic, as the next
    _admitted_ns: int = 0
    _body: bytes = b""
    _answered_by: tuple[str, str] = ("", "")
    _is_over: bool = False
    _sent: SentWhole | None = None
    _task: asyncio.Task[None] | None = None
    _outcome: Result | BaseException | None = None

    def send(self) -> None:
        """Send it to the first of the candidates; where that has no connection for it yet, a task waits for one."""
        self._admitted_ns = self._lane.clock.monotonic_ns()
        self._sent = self._to.target.send_at_once(
            CHAT.path, self._request, self._exchange.body, self._id_text, self, self._on_end
        )
        if self._sent is None:
            self._go_on(None)

    def cancel(self) -> None:
        """End it: the client has left."""
        if self._task is not None:
            self._task.cancel()
        elif not self._is_over:
            self._go_on(asyncio.CancelledError())

    # the target's side

    def whole(self, body: bytes) -> None:
        """Keep the reply."""
        self._body = body

    def report(self, usage: Usage, count_method: CountMethod) -> None:
        """Take no note: the reply's account says it too."""

    def served(self, model: str, version: str) -> None:
        """Keep what answers."""
        self._answered_by = (model, version)

    def _on_end(self, error: UpstreamError | None) -> None:
        if self._is_over or self._sent is None:
            return
        try:
            result = self._sent.result(error)
        except SendAgain:
            self._go_on(None)
            return
        except TollkeeperError as failure:
            self._go_on(failure)
            return
        usage = result.usage
        tokens_in, tokens_out = plain_counts(usage) or (usage.input_tokens, usage.output_tokens)
        cost = bill(usage, CHAT.name, self._to.card)
        is_priced = cost.total_pico_usd is not None or self._to.card is None
        if not tokens_in or tokens_out is None or not is_priced or result.count_method != "reported":
            self._go_on(result)
            return
        self._leave()
        try:
            self._account_for(result, cost, tokens_in, tokens_out)
        except Exception as fault:  # as in the dispatcher: one request's bug must not take the others down
            self._go_on(fault)
            return
        self._exchange.send_lines(JSON, self._lines(), self._body)

    # what tells a task of the first try

    def result(self, reply: Reply) -> Result:
        """Give the first try's account, and its answer to the reply. Raises what it failed with."""
        outcome = self._outcome
        if isinstance(outcome, BaseException):
            raise outcome
        assert outcome is not None
        reply.served(*self._answered_by)
        reply.report(outcome.usage, outcome.count_method)
        reply.whole(self._body)
        return outcome

    def _account_for(self, result: Result, cost: Cost, tokens_in: int, tokens_out: int) -> None:
        """Settle and record an answer: the record is on disk before the client has it."""
        lane, request, let_in, to = self._lane, self._request, self._let_in, self._to
        duration_ns = lane.clock.monotonic_ns() - self.began_ns
        tenant = self._open.key.identity.tenant
        learn_ratio(self._open.ratios, let_in.prompt_bytes, tokens_in)
        learn_length(self._open.lengths, tokens_out, result.finish_reason, let_in.choices)
        charged, reserved, overdraft = cost.total_pico_usd, None, None
        offsets: list[int] = []
        tokens: list[int] = []
        reservation = let_in.reservation
        if reservation is not None:
            money = reservation.reserved(MONEY) if charged is None else charged
            used = (1, tokens_in, tokens_out, tokens_in + tokens_out, 0, 0, money)
            paid = reservation.settle(used, lane.clock.wall_ns())
            reserved, overdraft = reservation.reserved(TOKENS), reservation.overdraft[TOKENS]
            if reservation.lines.counts_money:
                charged = paid[MONEY]
            offsets, tokens = _charges(reservation, self.started_at_ns)
        lane.stages.admission.settle(let_in.ticket, result.usage, cost)
        packed = to.template.pack(
            (
                self._id,
                self.started_at_ns,
                duration_ns,
                result.finish_reason,
                result.model,
                self._admitted_ns - self.began_ns,
                result.usage,
                cost.total_pico_usd,
                charged,
                let_in.output_limit,
                let_in.choices,
                request.temperature,
                len(self._exchange.body),
                len(self._body),
                reserved,
                offsets,
                tokens,
                overdraft,
            )
        )
        lane.stages.recorder.record_whole(self.started_at_ns, packed, to.alike, tenant, duration_ns, result.usage, cost)

    def _leave(self) -> None:
        """Give the connection back; what the target still says is no longer listened to."""
        if not self._is_over:
            self._is_over = True
            self._lane.open_grants -= self._let_in.reservation is not None
            if self._sent is not None:
                self._sent.release()

    def _lines(self) -> bytes:
        """Give the lines of the answer's head: its id, the limits it passed, and what answered."""
        said = b"x-request-id: %b\r\n" % self._id_text.encode()
        reservation = self._let_in.reservation
        if reservation is not None and reservation.lines.quick is not None:
            first = reservation.portions[0]
            said += rate_lines(reservation.lines.quick, reservation.lines, first.at_ns, first.left or ())
        return said + served_lines(*self._answered_by)

    def _go_on(self, outcome: Result | BaseException | None) -> None:
        """Leave the rest to a task; `outcome` is the first try's, `None` where it did not take place."""
        self._leave()
        self._outcome = outcome
        lane, opened, let_in, exchange = self._lane, self._open, self._let_in, self._exchange
        life = Life(
            id=UUID(bytes=self._id),
            started_at_ns=self.started_at_ns,
            began_ns=self.began_ns,
            snapshot=opened.snapshot,
            body=exchange.body,
            request_bytes=len(exchange.body),
            api=CHAT.api,
            operation=CHAT.name,
            key=opened.key,
            who=opened.key.identity,
            is_authenticated=True,
            request=self._request,
            requested_model=self._request.model,
            model=opened.model,
            admitted_ns=self._admitted_ns,
            priority=opened.key.policy.priority,
        )
        created_unix = self.started_at_ns // 1_000_000_000
        reply = CHAT.reply(ReplyFacts(exchange, life.id, created_unix, lane.clock), self._request)
        passage = Passage(reply=reply, ticket=let_in.ticket)
        if let_in.reservation is not None:
            first = let_in.reservation.portions[0]
            reply.add_headers(rate_headers(let_in.reservation.lines, first.at_ns, first.left))
            passage.grant = Grant(let_in.reservation, opened.rates, let_in.tokens_in, let_in.tokens_out)
        begun = None if outcome is None else self
        self._task = lane.start(lane.dispatcher.carry_on(life, passage, exchange, CHAT, self._candidates, begun))


def _charges(reservation: Reservation, started_at_ns: int) -> tuple[list[int], list[int]]:
    """Give when tokens were charged, in nanoseconds from the start, and how many."""
    portions = reservation.portions
    if len(portions) == 1:
        tokens = portions[0].charged_tokens
        return (_AT_ONCE, [tokens]) if tokens else ([], [])
    charged = [portion for portion in portions if portion.charged_tokens]
    offsets = [max(portion.at_ns - started_at_ns, 0) for portion in charged]
    return offsets, [portion.charged_tokens for portion in charged]
