"""Relay the plain-text tokens of a stream: count, render and forward each in one step."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from gateway.replies.allowance import Allowance
from gateway.replies.progress import Progress
from gateway.request.clock import Clock
from gateway.wire.exchange import Exchange

_string = msgspec.json.Encoder().encode


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
