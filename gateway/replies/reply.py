"""The answer to one request while a target produces it: times every token, renders it or forwards the target's bytes.

The end of the answer (the complete body, or a stream's last event) is held back until `conclude`, so that the record is
on disk before the client has the end.
"""

from collections.abc import Callable
from typing import Final
from uuid import UUID

from backends.processes.native import mypyc_attr
from contracts.api.answer_parts import NOTHING_FOUND, Findings
from contracts.api.chat import ChatRequest, GenerationRequest, TranslatedChat
from contracts.api.generation import Delta, Result, Vectors
from contracts.errors import TollkeeperError, UpstreamBroken
from contracts.guardrails.finding import Verdict
from contracts.metering.usage import Usage
from contracts.recording.records import CountMethod
from gateway.apis.rendering import AnswerRenderer, ChatRenderer, ErrorShape, WholeText
from gateway.guardrails.answer_filter import AnswerFilter
from gateway.replies.allowance import WAIT, Allowance, part_of
from gateway.replies.answer_copy import AnswerCopy, AnswerDigest
from gateway.replies.answer_facts import facts_wanted
from gateway.replies.progress import Progress
from gateway.replies.relays import ChunkRelay, TextRelay
from gateway.request.clock import Clock
from gateway.wire.exchange import Exchange, Headers, header_lines, lines_of, served_headers

EVENT_STREAM: Final = b"text/event-stream; charset=utf-8"
JSON: Final = b"application/json"

_NO_TEXTS: Final[list[WholeText]] = []
_NO_CHOICES: Final[set[int]] = set()
_NONE_WAITING: Final[list[tuple[bytes, Delta]]] = []

Soon = Callable[[Callable[[], None]], None]


@mypyc_attr(allow_interpreted_subclasses=True)
class ReplyFacts:
    """Facts for creating a reply: the client's connection, the request's id and the clock."""

    __slots__ = ("clock", "created_unix", "exchange", "id_text")

    def __init__(self, exchange: Exchange, id_text: str, created_unix: int, clock: Clock) -> None:
        self.exchange = exchange
        self.id_text = id_text  # the request's id
        self.created_unix = created_unix
        self.clock = clock

    @property
    def request_id(self) -> UUID:
        """Return the request's id."""
        return UUID(self.id_text)


@mypyc_attr(allow_interpreted_subclasses=True)
class Reply:
    """What the answers of all operations have in common. The base class sends an answer in one piece at its end."""

    def __init__(self, facts: ReplyFacts) -> None:
        self._exchange = facts.exchange
        self._clock = facts.clock
        self._lines = b"x-request-id: %b\r\n" % facts.id_text.encode()  # the headers so far
        self._soon: Soon | None = None
        self._first_progress: Progress | None = None
        self._body: bytes | None = None
        self._allowance: Allowance | None = None
        self._on_tokens: Callable[[int], None] | None = None
        self._tokens_before = 0  # of the attempts that this one continues
        self.has_ended = False  # by us, before the target's end
        self._served: Headers = ()
        self._copy: AnswerCopy | None = None
        self.digest: AnswerDigest | None = None  # has what the client is sent, where that is to be hashed

    @property
    def _progress(self) -> Progress:
        """Return the token counter of the attempt in progress."""
        found = self._first_progress
        if found is None:
            found = self._first_progress = Progress()
        return found

    def add_headers(self, headers: Headers) -> None:
        """Add response headers. Has an effect only until the answer begins."""
        self._lines += header_lines(headers)

    def add_lines(self, lines: bytes) -> None:
        """Add response headers that are lines of a head already."""
        self._lines += lines

    @property
    def is_complete(self) -> bool:
        """Return whether the target has ended the answer."""
        return self._body is not None

    def hold_ends(self, soon: "Soon | None") -> None:
        """Send the end of a stream together with other data of the same event loop turn. `soon` runs a function at its
        end.
        """
        self._soon = soon

    @property
    def lines(self) -> bytes:
        """Return the lines of the response headers so far, without those that name what served the answer."""
        return self._lines

    def start_over(self, lines: bytes) -> None:
        """Start the answer again with these lines of headers, without the allowance of the model that the request has
        left.
        """
        self._lines, self._allowance, self._on_tokens = lines, None, None

    def hold_to(self, allowance: Allowance) -> None:
        """Bound the answer by an allowance."""
        self._allowance = allowance

    def tell(self, produced: Callable[[int], None]) -> None:
        """Call `produced` with the number of output tokens as they pass."""
        self._on_tokens = produced

    def copy_to(self, copy: AnswerCopy) -> None:
        """Copy what the client is sent into `copy`."""
        self._copy = copy

    def copied(self) -> tuple[bytes, bytes, Headers] | None:
        """Return what the client was sent, after `prepare_end`: a stream's events, the end, and what served it.

        `None` if it was not copied, or if it exceeds the maximum size.
        """
        sent = None if self._copy is None else self._copy.with_end(self._body or b"")
        return None if sent is None else (*sent, self._served)

    def hashed(self, *, is_whole: bool) -> str | None:
        """Return the hash of what the client is sent; `None` if it is not hashed, or if nothing is sent."""
        return None if self.digest is None else self.digest.with_end((self._body or b"") if is_whole else b"")

    @property
    def _is_seen(self) -> bool:
        """Return whether something copies or hashes the events, so that no relay may forward them by itself."""
        return self._copy is not None or self.digest is not None

    @property
    def end_bytes(self) -> int:
        """Return the size of what `conclude` sends."""
        return len(self._body or b"")

    def replay(self, begun: bytes, end: bytes, served: Headers) -> None:
        """Answer with what `copied` returned for another answer; `conclude` sends its end."""
        self._served = served
        self._body = end

    async def flushed(self) -> None:
        """Wait until no part of the answer waits for shared counters."""

    def filter_words(self, answer_filter: AnswerFilter) -> None:
        """Have guardrails inspect the words of an answer that no model has generated token by token, if it has any."""

    def passes_inspection(self) -> bool:
        """Return whether guardrails surely find nothing in an answer that has ended: then `inspect` may be left out."""
        return False

    async def inspect(self) -> Verdict | None:
        """Let guardrails inspect an answer that has ended; return the verdict that blocks it, or `None`."""
        return None

    def end_early(self, why: TollkeeperError) -> None:
        """End the answer here as a successful one; later output of the target is dropped."""
        self.has_ended = True

    @property
    def has_begun(self) -> bool:
        """Return whether the client has received any of the answer. Then another target can only continue it."""
        return self._exchange.is_started

    def begin_attempt(self, progress: Progress, *, resumes: bool = False) -> None:
        """Count the next attempt's tokens in `progress`; discard what a failed attempt produced, unless it is
        continued.
        """
        if self._allowance is not None:
            self._tokens_before = self._tokens_before + self._progress.tokens if resumes else 0
            self._allowance.begin_attempt(progress, self._tokens_before)
        self._first_progress = progress
        if not resumes:
            self._body = None

    # what targets call

    def event(self, data: bytes, deltas: tuple[Delta, ...], *, is_usage_only: bool) -> None:
        """Refuse an event: this answer is not a stream."""
        raise UpstreamBroken("the target sent a stream though none was asked for")

    def delta(self, delta: Delta) -> None:
        """Refuse a delta: nothing is generated for this answer."""
        raise UpstreamBroken("the target generated text where none was asked for")

    def vectors(self, vectors: Vectors) -> None:
        """Refuse vectors: this answer has none."""
        raise UpstreamBroken("the target sent vectors where none were asked for")

    def scores(self, scores: list[float]) -> None:
        """Refuse scores: this answer has none."""
        raise UpstreamBroken("the target sent scores where none were asked for")

    def native(self) -> None:
        """Refuse an answer in another API than OpenAI's."""
        raise UpstreamBroken("the target answered in an API that it was not asked in")

    def served(self, model: str, version: str) -> None:
        """Name in the response headers the model and target that answer."""
        self._served = served_headers(model, version)

    def whole(self, body: bytes) -> None:
        """Store a complete upstream reply until the request is settled."""
        self._body = body

    def media_type(self, name: str) -> None:
        """Refuse a media type: this reply is JSON."""
        raise UpstreamBroken("the target sent an answer of a type that was not asked for")

    def piece(self, data: bytes) -> None:
        """Refuse a piece of bytes: this answer is complete JSON, or consists of tokens."""
        raise UpstreamBroken("the target sent its answer piece by piece where none was asked for so")

    def answered_at(self, tier: str) -> None:
        """Store the service tier that the target reports."""
        self._progress.service_tier = tier

    def report(self, usage: Usage, count_method: CountMethod) -> None:
        """Store the usage that the target has reported so far, in case it does not reach its end."""
        self._progress.reported_usage = usage
        self._progress.reported_method = count_method

    def account(self, result: Result) -> None:
        """Store the result of a call that does not return."""
        self._progress.account = result

    def attach_flow(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        """Pause the target while a slow client has much to read (backpressure)."""
        self._exchange.hold(pause, resume)

    async def drained(self) -> None:
        """Wait until the client has read enough to send more."""
        await self._exchange.drained()

    # what the dispatcher calls

    def findings(self, *, is_complete: bool) -> Findings:
        """Return the tools that the answer calls, and whether its text is not the requested JSON."""
        return NOTHING_FOUND

    def prepare_end(self, usage: Usage) -> int:
        """Render the rest of a successful answer; return its size in bytes."""
        return len(self._body or b"")

    def errors(self, shape: ErrorShape) -> ErrorShape:
        """Return how to render an error of this answer: in its operation's format, unless a stream has begun."""
        return shape

    async def keep(self) -> None:
        """Store the answer that `prepare_end` rendered, for operations whose answers are stored."""

    def conclude(self) -> None:
        """Send the end that `prepare_end` rendered."""
        self._exchange.send_lines(200, JSON, self._body or b"", self._lines + lines_of(self._served))


def _is_plain(request: GenerationRequest) -> bool:
    """Return whether a chat offers no tools and asks for no JSON, so that its answer has no facts."""
    if type(request) is not ChatRequest and type(request) is not TranslatedChat:
        return False
    return not request.tools and not request.response_format


@mypyc_attr(allow_interpreted_subclasses=True)
class GeneratedReply(Reply):
    """Receives the answer to one request for generated text; `renderer` renders it in the request's API."""

    def __init__(
        self,
        facts: ReplyFacts,
        request: GenerationRequest,
        renderer: AnswerRenderer | None,  # none: `_new_renderer` makes it, where most answers need none
    ) -> None:
        super().__init__(facts)
        self._request = request
        self._is_streamed = request.stream is True
        self._known_renderer = renderer
        # Whole answers that pass as they come need none of these: each is replaced when something is put into it.
        self._choices: list[WholeText] = _NO_TEXTS
        self._opened: set[int] = _NO_CHOICES
        self._finished: set[int] = _NO_CHOICES  # choices that the target has ended
        self._ended: set[int] = _NO_CHOICES  # those whose end went on, towards the client
        self._renders_usage = False
        self._facts = None if _is_plain(request) else facts_wanted(request)
        self._filter: AnswerFilter | None = None
        self._on_block: Callable[[Verdict], None] | None = None
        # For shared counters; an event's bytes, if it goes as it came.
        self._waiting: list[tuple[bytes, Delta]] = _NONE_WAITING

    @property
    def _renderer(self) -> AnswerRenderer:
        found = self._known_renderer
        if found is None:
            found = self._known_renderer = self._new_renderer()
        return found

    @_renderer.setter
    def _renderer(self, renderer: AnswerRenderer) -> None:
        self._known_renderer = renderer

    def _new_renderer(self) -> AnswerRenderer:
        """Return a renderer of the answer's API."""
        raise TypeError(f"{type(self).__name__} was made without a renderer, and makes none")

    def hold_to(self, allowance: Allowance) -> None:
        """Deliver the answer only as far as this allowance covers it."""
        super().hold_to(allowance)
        allowance.on_answer(self._offer_again)

    @property
    def is_complete(self) -> bool:
        """Return whether the target has ended every choice of the answer."""
        return len(self._finished) >= self._request.choice_count

    def filter_by(self, answer_filter: AnswerFilter, on_block: Callable[[Verdict], None]) -> None:
        """Pass the answer's texts through guardrails first; `on_block` is called once if they block a stream."""
        self._filter, self._on_block = answer_filter, on_block

    def begin_attempt(self, progress: Progress, *, resumes: bool = False) -> None:
        super().begin_attempt(progress, resumes=resumes)
        if not resumes:
            self._choices = _NO_TEXTS
            self._opened = self._finished = self._ended = _NO_CHOICES
            self._renders_usage = False
            self._waiting = _NONE_WAITING
            if self._facts is not None:
                self._facts.begin()
            if self._filter is not None:
                self._filter.begin()

    def event(self, data: bytes, deltas: tuple[Delta, ...], *, is_usage_only: bool) -> None:
        """Forward an upstream's event unchanged, except the usage event if only the gateway asked for it."""
        if self.has_ended:
            return
        through = self._filter
        if through is not None and through.acts:  # its bytes hold what stages may cut: it is rendered anew
            for delta in deltas:
                self.delta(delta)
            return
        now = self._clock.monotonic_ns()
        for delta in deltas:
            self._take(delta, now)
            if through is not None:
                through.take(delta, now)
        if is_usage_only and not self._request.wants_usage:
            return
        if self._is_at_bound:
            self._event_at_bound(data, deltas)
            return
        for delta in deltas:
            self._note_end(delta)
        self._send_event(data)

    def relay(self, delta: Delta) -> Callable[[bytes], None] | None:
        """Return a relay that forwards the chunks of an answer with one choice, after its stream has begun; else
        `None`.
        """
        exchange, progress = self._exchange, self._progress
        is_alone = self._request.choice_count == 1 and progress.choices == {delta.index}
        if not exchange.is_chunked or not is_alone or self.has_ended or self._is_seen or self._filter is not None:
            return None
        relay = ChunkRelay(
            self,
            exchange,
            self._clock,
            progress,
            delta.index,
            is_reasoning=delta.reasoning_tokens > 0,
            on_tokens=self._on_tokens,
            allowance=self._allowance,
            is_left_at_end=self._soon is not None,
        )
        return relay

    def text_relay(self, index: int) -> Callable[[str, int], None] | None:
        """Return a relay that renders and sends the plain text of one choice, after its stream has begun; else
        `None`.
        """
        exchange, progress = self._exchange, self._progress
        is_alone = self._request.choice_count == 1 and progress.choices == {index} == self._opened
        if not exchange.is_chunked or not is_alone or self.has_ended or self._is_seen or self._filter is not None:
            return None
        frame = self._renderer.text_frame(index)
        if frame is None:
            return None
        count = progress.timer_of(index)
        relay = TextRelay(self, exchange, self._clock, progress, count, frame, self._on_tokens, self._allowance)
        return relay.take

    def delta(self, delta: Delta) -> None:
        """Render and send a piece, or collect it if the caller wants a complete answer."""
        if self.has_ended:
            return
        now = self._clock.monotonic_ns()
        self._take(delta, now)
        if not self._is_at_bound:
            self._deliver(delta)
        elif (passed := self._covered(b"", delta)) is not None:
            self._deliver(passed)

    def text_at_bound(self, text: str) -> None:
        """Deliver a counted token of an answer with one choice, if the allowance covers it."""
        index = min(self._progress.choices)
        passed = self._covered(b"", Delta(1, text, index=index))
        if passed is not None:
            self._deliver(passed)

    def _deliver(self, delta: Delta) -> None:
        if self._filter is None:
            self._put(delta)
        else:
            self._put_filtered(delta, self._filter, self._clock.monotonic_ns())

    @property
    def _is_at_bound(self) -> bool:
        """Return whether the piece just counted must be offered to the allowance before it is delivered."""
        allowance = self._allowance
        return allowance is not None and self._progress.tokens >= allowance.next_at

    def _event_at_bound(self, data: bytes, deltas: tuple[Delta, ...]) -> None:
        """Deliver the part of an upstream's event that the allowance covers. Its pieces have been counted."""
        if len(deltas) <= 1:
            delta = deltas[0] if deltas else Delta(0)
            passed = self._covered(data, delta)
            if passed is not None:
                self._send_covered(data if passed is delta else b"", passed)
            return
        for delta in deltas:
            passed = self._covered(b"", delta)
            if passed is not None:
                self._send_covered(b"", passed)

    def _send_covered(self, data: bytes, delta: Delta) -> None:
        """Send a piece as the upstream's bytes, or render it if there are none."""
        self._note_end(delta)
        self._send_event(data or self._renderer.delta(delta))

    def _covered(self, data: bytes, delta: Delta) -> Delta | None:
        """Return the part of a counted piece that may be delivered; `None`: nothing, or nothing yet."""
        allowance = self._allowance
        assert allowance is not None
        allowance.defer(delta.tokens, delta.reasoning_tokens)
        if self._waiting:
            self._waiting.append((data, delta))
            return None
        return self._offered(data, delta, allowance)

    def _offered(self, data: bytes, delta: Delta, allowance: Allowance) -> Delta | None:
        if not delta.tokens:
            if allowance.withheld:  # it comes after what was withheld, such as the answer's own end
                self._finished.discard(delta.index)
                return None
            return delta
        is_complete = len(self._finished) >= self._request.choice_count
        passing = allowance.offer(delta.tokens, delta.reasoning_tokens, delta.index, is_complete=is_complete)
        if passing == delta.tokens:
            return delta
        if passing == WAIT:
            self._waiting = [(data, delta), *self._waiting]
            return None
        self._finished.discard(delta.index)  # the end it brings, or has brought, is not the answer's
        part = part_of(delta, passing)
        if part is None:
            allowance.defer(passing, min(passing, delta.reasoning_tokens))
        return part

    def _offer_again(self) -> None:
        """Deliver the waiting pieces that the allowance covers after the shared counters have answered."""
        allowance, waiting = self._allowance, self._waiting
        self._waiting = _NONE_WAITING
        while waiting and allowance is not None and not self.has_ended:
            data, delta = waiting.pop(0)
            passed = self._offered(data, delta, allowance)
            if self._waiting:
                break
            if passed is not None and not data:
                self._deliver(passed)
            elif passed is not None:
                self._send_covered(data if passed is delta else b"", passed)
        self._waiting = [*self._waiting, *waiting]

    async def flushed(self) -> None:
        """Wait until no part of the answer waits for shared counters."""
        while self._waiting and self._allowance is not None:
            await self._allowance.answered()

    def _put_filtered(self, delta: Delta, through: AnswerFilter, now_ns: int) -> None:
        for passed in through.take(delta, now_ns):
            self._put(passed)
        if through.blocked is not None and self._on_block is not None and self._is_streamed:
            tell, self._on_block = self._on_block, None
            tell(through.blocked)

    def _put(self, delta: Delta) -> None:
        self._note_end(delta)
        if not self._is_streamed:
            self._collect(delta)
        elif delta.index in self._opened:
            self._send_event(self._renderer.delta(delta))
        else:
            self._opened = {*self._opened, delta.index}
            self._renders_usage = True
            self._send_event(self._renderer.opening(delta.index) + self._renderer.delta(delta))

    def passes_inspection(self) -> bool:
        """Return whether guardrails surely find nothing in this answer, which is complete and was not changed."""
        return self._filter is None or (self._body is not None and self._filter.passes_whole(self._body))

    async def inspect(self) -> Verdict | None:
        """Send what guardrails held back of an answer after all their stages have inspected it; return the verdict that
        blocks it.
        """
        through = self._filter
        if through is None or self.has_ended:
            return None
        if self._body is not None:
            self._body = await through.judge_body(self._body)
            return through.blocked
        for delta in await through.end(self._clock.monotonic_ns()):
            self._put(delta)
        return through.blocked

    def replay(self, begun: bytes, end: bytes, served: Headers) -> None:
        """Answer with what `copied` returned for another answer: all events of a stream at once, unchanged."""
        super().replay(begun, end, served)
        if begun:
            self._send_event(begun)

    def end_early(self, why: TollkeeperError) -> None:
        """End the answer here as a successful one: each choice gets its finish reason ("length") and the name of the
        limit.
        """
        if self._filter is not None:
            for delta in self._filter.rest(None, self._clock.monotonic_ns()):
                self._put(delta)
        super().end_early(why)
        # What the target has ended counts for nothing here: its end may have come behind what was stopped.
        open_choices = [index for index in range(self._request.choice_count) if index not in self._ended]
        if self._is_streamed:
            for index in open_choices:
                self._send_event(self._renderer.ending(index, why))
            self._renders_usage = True  # an upstream's own comes after its end, which it does not reach
        elif self._body is None:
            for index in open_choices:
                self._collect(Delta(0, index=index, finish_reason=why.ends_with))

    def findings(self, *, is_complete: bool) -> Findings:
        """Return facts about the answer if the request's tools or JSON format ask for any; only a complete answer's
        text is judged.
        """
        facts = self._facts
        if facts is None:
            return NOTHING_FOUND
        schema_failed: bool | None = None
        if is_complete and not self._is_streamed:
            if self._choices:
                schema_failed = facts.judge([choice.spoken for choice in self._choices])
            elif self._body is not None:
                schema_failed = facts.read_whole(self._body)
        return Findings(facts.tool_calls(is_complete=is_complete), schema_failed, facts.called())

    def prepare_end(self, usage: Usage) -> int:
        """Render the rest of a successful answer; return its size in bytes."""
        if self._is_streamed:
            is_wanted = self._renders_usage and self._request.wants_usage
            self._body = self._renderer.closing(usage, wants_usage=is_wanted)
        elif self._body is None:
            self._body = self._renderer.whole(self._choices, usage)
        return len(self._body)

    def conclude(self) -> None:
        """Send the end that `prepare_end` rendered."""
        if not self._is_streamed:
            super().conclude()
            return
        if not self._exchange.is_started:
            self._begin_stream(b"")
        self._exchange.end(self._body or b"")

    def _take(self, delta: Delta, now_ns: int) -> None:
        self._progress.take(delta, now_ns)
        if self._facts is not None and delta.tool_calls:
            self._facts.take(delta)
        if self._on_tokens is not None and delta.tokens:
            self._on_tokens(delta.tokens)
        if delta.finish_reason is not None:
            self._finished = {*self._finished, delta.index}

    def _send_event(self, data: bytes) -> None:
        if self._copy is not None:
            self._copy.take(data)
        if self.digest is not None:
            self.digest.take(data)
        exchange = self._exchange
        if not exchange.is_started:
            self._begin_stream(data)
        elif self._soon is not None and len(self._finished) >= self._request.choice_count:
            if not exchange.held_back:
                self._soon(exchange.send_held_back)
            exchange.hold_back(data)
        else:
            exchange.write(data)

    def _begin_stream(self, first: bytes) -> None:
        self._exchange.start_lines(200, EVENT_STREAM, self._lines + lines_of(self._served), first)

    def _gather(self, delta: Delta) -> None:
        """Add a part of an answer that arrived in one piece."""
        if self._filter is None:
            self._put(delta)
        else:
            self._put_filtered(delta, self._filter, self._clock.monotonic_ns())

    def _note_end(self, delta: Delta) -> None:
        if delta.finish_reason is not None:
            self._ended = {*self._ended, delta.index}

    def _collect(self, delta: Delta) -> None:
        if self._choices is _NO_TEXTS:
            self._choices = []
        while len(self._choices) <= delta.index:
            self._choices.append(self._renderer.new_choice())
        self._choices[delta.index].take(delta)


class ChatReply(GeneratedReply):
    """Receives the answer to one chat request."""

    def __init__(self, facts: ReplyFacts, request: ChatRequest) -> None:
        super().__init__(facts, request, None)
        self._id_text = facts.id_text
        self._created_unix = facts.created_unix
        self._model = request.model

    def _new_renderer(self) -> AnswerRenderer:
        return ChatRenderer(f"chatcmpl-{self._id_text.replace('-', '')}", self._created_unix, self._model)
