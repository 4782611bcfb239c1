"""An engine's plain text, rendered without a delta for each token, reaches clients and books as any other output."""

from collections.abc import Callable
from itertools import count
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.llm.host.engine_stream import EngineStream
from contracts.api.chat import ChatRequest, Message
from contracts.api.generation import Delta, Result
from contracts.engine.wire import Delta as WireDelta
from contracts.engine.wire import FinishReason, TokenLogprob
from contracts.errors import LimitExceeded
from contracts.metering.usage import Usage
from contracts.recording.records import CountMethod
from gateway.replies.allowance import Allowance
from gateway.replies.progress import Progress
from gateway.replies.reply import ChatReply, ReplyFacts
from gateway.request.clock import Clock
from gateway.wire.exchange import Exchange, Line, RequestHead

REQUEST_ID = UUID(int=1)
MS = 1_000_000


class Wire(Line):
    """A client's connection, which keeps what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def writer(self) -> Callable[[bytes], object]:
        return self.write

    def finished(self, *, keep_alive: bool) -> None:
        self.written.append(b"")

    def hold(self, pause: object, resume: object) -> None:
        raise AssertionError("nobody holds it")

    async def drained(self) -> None:
        raise AssertionError("nobody waits for it")


def ticking_clock() -> Clock:
    """Return a clock that goes on by a millisecond at each look."""
    ticks = count(MS, MS)
    return Clock(ticks.__next__, ticks.__next__)


class DeltasOnly:
    """Stands before a reply as what takes deltas and nothing else."""

    def __init__(self, reply: ChatReply) -> None:
        self._reply = reply

    def delta(self, delta: Delta) -> None:
        self._reply.delta(delta)

    def report(self, usage: Usage, count_method: CountMethod) -> None:
        self._reply.report(usage, count_method)

    def account(self, result: Result) -> None:
        self._reply.account(result)

    def attach_flow(self, pause: object, resume: object) -> None:
        raise AssertionError("nobody holds it")


class Answer:
    """One answer on its way: from an engine's deltas to a client."""

    def __init__(self, *, is_short: bool = True, version: str = "1.1", **fields: object) -> None:
        asked: dict[str, object] = {"model": "m", "messages": [Message(role="user", content="Hi")], "stream": True}
        request = ChatRequest(**{**asked, **fields})  # type: ignore[arg-type]
        self.wire = Wire()
        head = RequestHead("POST", "/v1/chat/completions", "", version, {}, True)
        self.exchange = Exchange(self.wire, head, b"", "")
        self.reply = ChatReply(ReplyFacts(self.exchange, str(REQUEST_ID), 1, ticking_clock()), request)
        self.progress = Progress()
        self.told: list[int] = []
        self.reply.tell(self.told.append)
        self.reply.begin_attempt(self.progress)
        self.stream = EngineStream(self.reply if is_short else DeltasOnly(self.reply), 3, request.choice_count)

    @property
    def books(self) -> tuple[object, ...]:
        """All that is remembered of it."""
        progress = self.progress
        counts = (progress.tokens, progress.reasoning_tokens, sum(self.told), self.exchange.bytes_sent)
        return counts, progress.first_at_ns, progress.last_at_ns, list(progress.gaps), progress.choices


def token(text: str, at_ns: int, **more: object) -> WireDelta:
    return WireDelta(request_id=b"r" * 16, token_ids=[7], times_ns=[at_ns], content=text, **more)  # type: ignore[arg-type]


MORE: list[dict[str, object]] = [
    {"reasoning": "hm"},
    {"tool_calls": b'[{"index":0}]'},
    {"logprobs": [TokenLogprob(token_id=7, text="a", logprob=-0.5)]},
    {"times_ns": []},
    {"token_ids": [7, 8], "times_ns": [5 * MS, 9 * MS]},
    {"token_ids": [], "times_ns": []},
    {"cached_tokens": 2},
    {"index": 1},
]
PIECES = st.lists(
    st.tuples(
        st.text(max_size=3),
        st.integers(0, 10**9),
        st.one_of(st.just({}), st.just({}), st.sampled_from(MORE)),
        st.sampled_from(["", "", "", "pause", "resume"]),
    ),
    max_size=12,
)


@given(PIECES, st.sampled_from(["1.1", "1.0"]), st.sampled_from([1, 2]), st.sampled_from(["stop", "length", None]))
async def test_clients_and_books_see_no_difference(pieces, version, n, reason: FinishReason | None):
    pieces = [piece for piece in pieces if piece[2].get("index", 0) < n]  # an engine makes the choices it is asked for

    def answered(*, is_short: bool) -> tuple[object, ...]:
        answer = Answer(is_short=is_short, version=version, n=n)
        for text, at_ns, more, flow in pieces:
            if flow:
                getattr(answer.stream, flow)()
            fields = {"times_ns": [at_ns], "token_ids": [7], "content": text, **more}
            answer.stream.on_delta(WireDelta(request_id=b"r" * 16, **fields))
        answer.stream.on_delta(token("!", 10**9, finish_reason=reason))
        answer.stream.resume()
        return b"".join(answer.wire.written), answer.books, answer.stream.usage_so_far(), answer.stream.token_ids

    assert answered(is_short=True) == answered(is_short=False)


async def test_each_token_is_a_chunk_of_its_own():
    answer = Answer()
    for place in range(5):
        answer.stream.on_delta(token(f" w{place}", place * 20 * MS))
    assert len(answer.wire.written) == 5  # the head leaves with the first
    assert answer.progress.gaps == [2000] * 4 and answer.progress.tokens == 5


async def test_an_answer_that_was_ended_sends_and_counts_no_more():
    answer = Answer()
    for place in range(3):
        answer.stream.on_delta(token("a", place))
    answer.reply.end_early(LimitExceeded("enough"))
    before = (list(answer.wire.written), answer.books)
    answer.stream.on_delta(token("b", 3))
    assert (answer.wire.written, answer.books) == before


async def test_nothing_is_sent_to_a_client_that_left_and_its_tokens_count():
    answer = Answer()
    answer.stream.on_delta(token("a", 0))
    answer.exchange.is_gone = True
    sent = answer.exchange.bytes_sent
    answer.stream.on_delta(token("b", 1))
    assert answer.exchange.bytes_sent == sent and answer.progress.tokens == 2


@pytest.mark.parametrize("reserved", [2, 3, 4])
async def test_an_answer_is_ended_at_the_token_its_allowance_ends_at(reserved):
    answer = Answer()
    ended: list[int] = []
    allowance = Allowance(reserved, 1 << 60, _Empty(), lambda why: ended.append(answer.progress.tokens))
    answer.reply.hold_to(allowance)
    answer.reply.begin_attempt(answer.progress)
    for place in range(6):
        answer.stream.on_delta(token("a", place))
    assert ended == [reserved]


class _Empty:
    """A purse with nothing in it."""

    is_shared = False

    def extend_now(self, tokens: int) -> bool:
        return False

    async def extend(self, tokens: int) -> bool:
        return False

    def why_not(self) -> LimitExceeded:
        return LimitExceeded("nothing is left")
