"""Relay the chunks of a stream in one step: those that differ only in their text unchanged, and text of own engines."""

from collections.abc import Callable
from typing import Final, Protocol, cast

import msgspec

from backends.http_client.http_connection import ChunkTaker
from gateway.replies.allowance import Allowance
from gateway.replies.progress import Progress
from gateway.request.clock import Clock
from gateway.wire.exchange import Exchange

_string: Final = msgspec.json.Encoder().encode


class Ending(Protocol):
    """The answer that these chunks belong to."""

    has_ended: bool


class ChunkRelay(ChunkTaker):
    """Forwards the chunks of one choice, each with one token. A stream has one relay; a chunk is no object."""

    __slots__ = (
        "_allowance",
        "_answer",
        "_arrivals",
        "_exchange",
        "_is_left_at_end",
        "_is_reasoning",
        "_now",
        "_on_tokens",
        "_progress",
        "_write",
    )

    def __init__(
        self,
        answer: Ending,
        exchange: Exchange,
        clock: Clock,
        progress: Progress,
        index: int,
        *,
        is_reasoning: bool,
        on_tokens: Callable[[int], None] | None,
        allowance: Allowance | None,
        is_left_at_end: bool = False,
    ) -> None:
        """`index` is the choice; `on_tokens` is called for each token.

        `is_left_at_end`: the source sends no chunk after the end of the answer, nor after the client has disconnected.
        """
        # Between two chunks of a stream come those of others, and what is asked for here has left the caches: so each
        # chunk looks at as few objects as will do. Times are objects here, not to be unpacked and packed again.
        self._arrivals = cast("list[object]", progress.arrivals_of(index))
        self._now = cast("Callable[[], object]", clock.monotonic_ns)
        self._write = exchange.line.writer() if is_left_at_end else exchange.line.write
        self._exchange = exchange
        self._is_left_at_end = is_left_at_end
        self._is_reasoning = is_reasoning
        self._on_tokens = on_tokens
        self._allowance = allowance
        self._answer = answer
        self._progress = progress

    def take(self, framed: bytes) -> bool:
        """Forward a complete chunk, framed for chunked transfer coding."""
        if not self._is_left_at_end and self._answer.has_ended:
            return False
        allowance = self._allowance
        if allowance is not None and self._progress.tokens + 1 >= allowance.next_at:
            return False  # whether it may be delivered is for the answer to see
        self._arrivals.append(self._now())
        if self._is_reasoning:
            self._progress.reasoning_tokens += 1
        if self._on_tokens is not None:
            self._on_tokens(1)
        self._exchange.bytes_sent += len(framed)
        self._write(framed)
        return True

    def __call__(self, framed: bytes) -> None:
        """Forward a chunk, as `take` does."""
        self.take(framed)


class Bounded(Protocol):
    """The answer that this text belongs to."""

    has_ended: bool

    def text_at_bound(self, text: str) -> None:
        """Send a counted token to the client, up to the answer's allowance."""


class TextRelay:
    """Renders the text of one choice after its stream has begun. A stream has one relay, so that no object per token is
    needed.
    """

    __slots__ = (
        "_allowance",
        "_answer",
        "_count",
        "_exchange",
        "_head",
        "_now",
        "_on_tokens",
        "_progress",
        "_tail",
        "_write",
    )

    def __init__(
        self,
        answer: Bounded,
        exchange: Exchange,
        clock: Clock,
        progress: Progress,
        count: Callable[[int, int], None],
        frame: tuple[bytes, bytes],
        on_tokens: Callable[[int], None] | None,
        allowance: Allowance | None,
    ) -> None:
        """`count` gets the times at which a token was generated and arrived; `frame` is the JSON around a chunk's
        text.
        """
        self._answer = answer
        self._exchange = exchange
        self._write = exchange.line.write
        self._now = clock.monotonic_ns
        self._progress = progress
        self._count = count
        self._head, self._tail = frame
        self._on_tokens = on_tokens
        self._allowance = allowance

    def take(self, text: str, made_ns: int) -> None:
        """Forward one token: its text (empty while a character is incomplete), and when its engine generated it."""
        if self._answer.has_ended:
            return
        self._count(made_ns, self._now())
        if self._on_tokens is not None:
            self._on_tokens(1)
        allowance = self._allowance
        if allowance is not None and self._progress.tokens >= allowance.next_at:
            self._answer.text_at_bound(text)
            return
        exchange = self._exchange
        if text and not exchange.is_gone:
            event = self._head + _string(text) + self._tail
            chunk = b"%x\r\n%b\r\n" % (len(event), event)
            exchange.bytes_sent += len(chunk)
            self._write(chunk)
