"""The answer to one chat request while a target produces it: times every token, renders or passes bytes through.

The answer's end (the whole body, or a stream's last event) is held back until `conclude`, so that the record is
on disk before the client has its acknowledgement.
"""

import math
from collections.abc import Callable
from typing import Final
from uuid import UUID

from contracts.chat import ChatRequest
from contracts.errors import TollkeeperError
from contracts.generation import Delta
from contracts.records import CountMethod
from contracts.usage import Usage
from gateway.clock import Clock
from gateway.exchange import Exchange, Headers
from gateway.progress import Progress
from gateway.rendering import DONE, StreamRenderer, WholeChoice, error_body, error_event, whole_reply

EVENT_STREAM: Final = b"text/event-stream; charset=utf-8"
JSON: Final = b"application/json"


class ChatReply:
    """The sink of one chat request. `begin_attempt` starts over as long as the client has seen nothing."""

    def __init__(
        self, exchange: Exchange, request: ChatRequest, request_id: UUID, created_unix: int, clock: Clock
    ) -> None:
        self._exchange = exchange
        self._request = request
        self._reply_id = f"chatcmpl-{request_id.hex}"
        self._headers: Headers = ((b"x-request-id", str(request_id).encode()),)
        self._created_unix = created_unix
        self._clock = clock
        self._renderer = StreamRenderer(self._reply_id, created_unix, request.model)
        self._progress = Progress()
        self._body: bytes | None = None
        self._choices: list[WholeChoice] = []
        self._opened: set[int] = set()
        self._renders_usage = False

    @property
    def has_begun(self) -> bool:
        """Say whether the client has seen any of the answer: then no other target can take over."""
        return self._exchange.is_started

    def begin_attempt(self, progress: Progress) -> None:
        """Forget what a failed attempt produced and count the next one's tokens into `progress`."""
        self._progress = progress
        self._body = None
        self._choices = []
        self._opened = set()
        self._renders_usage = False

    # what targets call

    def event(self, data: bytes, deltas: tuple[Delta, ...], *, is_usage_only: bool) -> None:
        """Pass an upstream's event on as it is, unless it is the usage that only we asked for."""
        now = self._clock.monotonic_ns()
        for delta in deltas:
            self._progress.take(delta, now)
        if is_usage_only and not self._request.wants_usage:
            return
        self._send_event(data)

    def whole(self, body: bytes) -> None:
        """Keep an upstream's whole reply until the request is settled."""
        self._body = body

    def delta(self, delta: Delta) -> None:
        """Render a piece, or keep it where the caller wants the answer whole."""
        self._progress.take(delta, self._clock.monotonic_ns())
        self._renders_usage = True
        if not self._request.is_streamed:
            self._collect(delta)
            return
        opening = b""
        if delta.index not in self._opened:
            self._opened.add(delta.index)
            opening = self._renderer.role(delta.index)
        self._send_event(opening + self._renderer.delta(delta))

    def report(self, usage: Usage, count_method: CountMethod) -> None:
        """Keep what the target knows of the usage, in case it does not reach its end."""
        self._progress.usage = usage
        self._progress.count_method = count_method

    def attach_flow(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        """Let a slow client hold the target back."""
        self._exchange.hold(pause, resume)

    async def drained(self) -> None:
        """Wait until the client has read enough."""
        await self._exchange.drained()

    # what the dispatcher calls

    def prepare_end(self, usage: Usage) -> int:
        """Render what is still to be sent of a good answer and give its size in bytes."""
        if self._request.is_streamed:
            tail = self._renderer.usage(usage) if self._renders_usage and self._request.wants_usage else b""
            self._body = tail + DONE
        elif self._body is None:
            self._body = whole_reply(self._reply_id, self._created_unix, self._request.model, self._choices, usage)
        return len(self._body)

    def conclude(self) -> None:
        """Send the end that `prepare_end` rendered."""
        body = self._body or b""
        if not self._request.is_streamed:
            self._exchange.send(200, JSON, body, self._headers)
            return
        if not self._exchange.is_started:
            self._exchange.start(200, EVENT_STREAM, self._headers)
        self._exchange.end(body)

    def _send_event(self, data: bytes) -> None:
        if not self._exchange.is_started:
            self._exchange.start(200, EVENT_STREAM, self._headers)
        self._exchange.write(data)

    def _collect(self, delta: Delta) -> None:
        while len(self._choices) <= delta.index:
            self._choices.append(WholeChoice([], []))
        choice = self._choices[delta.index]
        if delta.text:
            choice.text.append(delta.text)
        if delta.reasoning:
            choice.reasoning.append(delta.reasoning)
        choice.finish_reason = delta.finish_reason or choice.finish_reason


def send_error(exchange: Exchange, error: TollkeeperError, headers: Headers = ()) -> None:
    """Answer with an error: as a body where nothing was sent yet, as the stream's last event where it had begun.

    A stream that ends by an error has no [DONE], so that no client takes it for complete.
    """
    if exchange.is_started:
        exchange.end(error_event(error))
        return
    if error.retry_after_seconds is not None:
        headers = (*headers, (b"retry-after", b"%d" % max(1, math.ceil(error.retry_after_seconds))))
    exchange.send(error.status, JSON, error_body(error), headers)
