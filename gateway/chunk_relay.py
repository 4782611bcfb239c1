"""What a stream's chunks pass through that differ in their text alone: timed, counted, and sent on as they came."""

from collections.abc import Callable
from typing import Protocol

from gateway.allowance import Allowance
from gateway.clock import Clock
from gateway.exchange import Exchange
from gateway.progress import Progress


class Growing(Protocol):
    """The answer whose chunks these are."""

    has_ended: bool

    def watch_growth(self) -> None:
        """Look at an answer that has come as far as its allowance."""


class ChunkRelay:
    """Passes the chunks of one choice on, each with one token. There is one for a stream, and no object for a chunk."""

    __slots__ = (
        "_allowance",
        "_answer",
        "_arrived",
        "_exchange",
        "_is_reasoning",
        "_now",
        "_on_tokens",
        "_progress",
        "_write",
    )

    def __init__(
        self,
        answer: Growing,
        exchange: Exchange,
        clock: Clock,
        progress: Progress,
        index: int,
        *,
        is_reasoning: bool,
        on_tokens: Callable[[int], None] | None,
        allowance: Allowance | None,
    ) -> None:
        """`index` is the choice; `on_tokens` is told of each token."""
        self._answer = answer
        self._exchange = exchange
        self._write = exchange.line.write
        self._now = clock.monotonic_ns
        self._progress = progress
        self._arrived = progress.arrivals_of(index).append
        self._is_reasoning = is_reasoning
        self._on_tokens = on_tokens
        self._allowance = allowance

    def take(self, chunk: bytes) -> None:
        """Pass a chunk on, which is whole and in the framing of the chunked coding."""
        if self._answer.has_ended:
            return
        progress, exchange, allowance = self._progress, self._exchange, self._allowance
        self._arrived(self._now())
        progress.tokens = tokens = progress.tokens + 1
        if self._is_reasoning:
            progress.reasoning_tokens += 1
        if self._on_tokens is not None:
            self._on_tokens(1)
        exchange.bytes_sent += len(chunk)
        self._write(chunk)
        if allowance is not None and tokens >= allowance.next_at:
            self._answer.watch_growth()
