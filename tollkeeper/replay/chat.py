"""Sends recorded requests to the gateway and measures the answers, with little CPU, which the engine may share."""

import asyncio
import json
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from backends.http_client.http_origin import Origin
from backends.http_client.http_pool import HttpPool
from backends.http_client.http_timeouts import Timeouts
from backends.llm.http.sse import EventSplitter, data_of
from contracts.api.chat import ChatChunk
from contracts.errors import ConfigurationError, UpstreamError, UpstreamUnreachable
from contracts.metering.usage import OpenAIUsage
from tollkeeper.own_gateway import trust

CANCELLED: Final = "cancelled"
_MAX_ERROR_BODY: Final = 64 * 1024
_TIMEOUTS: Final = Timeouts(connect=10.0, first_byte=900.0, between=300.0, total=3600.0)

_chunk_decoder: Final = msgspec.json.Decoder(ChatChunk)


@dataclass(slots=True)
class Outcome:
    """The outcome of one request. Times are seconds of the client's clock; `error` is "" if the answer is complete.

    `gaps`: seconds between pieces of output; a token count of `None` was not reported.
    """

    number: int
    tenant: str
    wanted_output_tokens: int
    due_at: float
    sent_at: float
    first_at: float | None = None
    last_at: float | None = None
    done_at: float = 0.0
    gaps: "array[float]" = field(default_factory=lambda: array("f"))
    error: str = ""
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None

    @property
    def ttft_seconds(self) -> float | None:
        """Return the time from sending to the first output in seconds; `None` if there was none."""
        return None if self.first_at is None else self.first_at - self.sent_at

    @property
    def late_seconds(self) -> float:
        """Return by how many seconds the request was sent late."""
        return max(0.0, self.sent_at - self.due_at)


@dataclass(frozen=True, slots=True)
class Chat:
    """A request ready to send: key and body."""

    number: int
    tenant: str
    key: str
    body: bytes
    wanted_output_tokens: int


class GatewayClient:
    """Sends chats to one gateway (URL without /v1) and reads their streams.

    `now` returns seconds; uvloop's clock has a resolution of a millisecond, too coarse for gaps.
    """

    def __init__(self, url: str, run_id: str, now: Callable[[], float] = time.monotonic) -> None:
        self._pool = HttpPool(Origin.parse(url), _TIMEOUTS, trust(url))
        self._url = url
        origin = self._pool.origin
        self._head = (
            f"POST {origin.prefix}/v1/chat/completions HTTP/1.1\r\nhost: {origin.authority}\r\n"
            "content-type: application/json\r\naccept: text/event-stream\r\n"
        )
        self.run_id = run_id
        self._now = now

    async def send(self, chat: Chat, due_at: float, run_id: str = "") -> Outcome:
        """Send one chat and read its answer. Never raises for a failed answer: the outcome has the error.

        If cancelled, it disconnects like a client that is closed.
        """
        outcome = Outcome(chat.number, chat.tenant, chat.wanted_output_tokens, due_at, self._now())
        reader = _StreamReader(outcome, self._now)
        head = (
            f"{self._head}authorization: Bearer {chat.key}\r\nx-tollkeeper-run-id: {run_id or self.run_id}\r\n"
            f"content-length: {len(chat.body)}\r\n\r\n"
        )
        try:
            exchange = await self._pool.send(head.encode("latin-1"), chat.body, reader)
            await exchange.finished()
            reader.conclude()
        except UpstreamError as error:
            # Error codes of the HTTP pool call the other side a target; here it is the gateway.
            outcome.error = error.error_code.replace("upstream", "gateway", 1)
        except asyncio.CancelledError:
            outcome.error = CANCELLED
        outcome.done_at = self._now()
        return outcome

    async def knows(self, key: str) -> bool:
        """Return whether the gateway accepts a key. Raises ConfigurationError if no gateway answers."""
        origin, reader = self._pool.origin, _StatusReader()
        head = (
            f"GET {origin.prefix}/v1/models HTTP/1.1\r\nhost: {origin.authority}\r\nauthorization: Bearer {key}\r\n\r\n"
        )
        try:
            exchange = await self._pool.send(head.encode("latin-1"), b"", reader)
            await exchange.finished()
        except UpstreamUnreachable as error:
            raise ConfigurationError(f"no gateway answers at {self._url}; start one with: tollkeeper up") from error
        except UpstreamError as error:
            raise ConfigurationError(f"{self._url} does not answer as a gateway; name another --gateway-url") from error
        return reader.status == 200

    async def close(self) -> None:
        """Close the connections."""
        await self._pool.close()
        await asyncio.sleep(0)  # transports close in the next iteration of the loop, which may be its last


class _StatusReader:
    """Reads only the status of a response."""

    status = 0

    def on_head(self, status: int, headers: dict[bytes, bytes]) -> None:
        self.status = status

    def on_body(self, data: bytes) -> None:
        pass


class _StreamReader:
    """Parses one stream into its outcome as it arrives."""

    def __init__(self, outcome: Outcome, now: Callable[[], float]) -> None:
        self._outcome = outcome
        self._now = now
        self._status = 0
        self._events = EventSplitter()
        self._refusal = b""
        self._is_done = False

    def on_head(self, status: int, headers: dict[bytes, bytes]) -> None:
        self._status = status

    def on_body(self, data: bytes) -> None:
        if self._status != 200:
            self._refusal = (self._refusal + data)[:_MAX_ERROR_BODY]
            return
        now = self._now()
        for event in self._events.feed(data):
            self._on_event(data_of(event), now)

    def conclude(self) -> None:
        """Set the outcome's error if the ended answer is incomplete."""
        if self._status != 200:
            self._outcome.error = _error_code(self._refusal) or f"status_{self._status}"
        elif not self._is_done and not self._outcome.error:
            self._outcome.error = "stream_incomplete"

    def _on_event(self, data: bytes, now: float) -> None:
        if data == b"[DONE]":
            self._is_done = True
            return
        if not data:
            return
        try:
            chunk = _chunk_decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self._outcome.error = "stream_malformed"
            return
        if chunk.error and bytes(chunk.error) != b"null":
            self._outcome.error = _error_code(data) or "stream_error"
        if chunk.usage is not None:
            self._take_usage(chunk.usage)
        if any(choice.delta is not None and choice.delta.bears_tokens for choice in chunk.choices or ()):
            self._take_output(now)

    def _take_usage(self, usage: OpenAIUsage) -> None:
        details = usage.prompt_tokens_details
        self._outcome.input_tokens = usage.prompt_tokens
        self._outcome.output_tokens = usage.completion_tokens
        self._outcome.cached_tokens = None if details is None else details.cached_tokens

    def _take_output(self, now: float) -> None:
        outcome = self._outcome
        if outcome.last_at is None:
            outcome.first_at = now
        else:
            outcome.gaps.append(now - outcome.last_at)
        outcome.last_at = now


def _error_code(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["code"])[:80]
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
