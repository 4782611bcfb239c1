"""Send spans to an OTLP endpoint in batches, and hold them while it is unreachable.

A batch is encoded once and repeated byte for byte until it is acknowledged, so that the collector stores it once.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Sequence
from typing import Final

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan

from backends.http_client.http_origin import Origin
from backends.http_client.http_pool import HttpPool
from backends.http_client.http_timeouts import Timeouts
from contracts.errors import UpstreamError
from gateway.records.shipper import CollectorAnswer

_log = logging.getLogger(__name__)

_PATH: Final = "/v1/traces"
_EVERY_SECONDS: Final = 1.0
_BATCH_SPANS: Final = 512
_MAX_BACKOFF_SECONDS: Final = 5.0
_TRANSIENT: Final = frozenset({408, 429})  # of the statuses below 500


class SpanExporter:
    """Holds at most `max_spans` that the endpoint has not acknowledged. Further spans are dropped and counted."""

    def __init__(self, endpoint: str, max_spans: int) -> None:
        self._origin = Origin.parse(endpoint)
        self._pool = HttpPool(self._origin, Timeouts(connect=2.0, first_byte=5.0, between=5.0, total=10.0))
        self._max_spans = max_spans
        self._waiting: deque[ReadableSpan] = deque()
        self._batch: tuple[bytes, int] | None = None  # that was sent and not answered yet; how many spans it holds
        self._failures = 0  # in a row
        self.dropped_spans = 0

    @property
    def pending_spans(self) -> int:
        """Return the number of spans that the endpoint has not acknowledged."""
        return len(self._waiting) + (0 if self._batch is None else self._batch[1])

    def add(self, spans: Sequence[ReadableSpan]) -> None:
        """Queue one request's spans, all or none."""
        if self.pending_spans + len(spans) > self._max_spans:
            if not self.dropped_spans:
                _log.warning("spans dropped: the buffer is full", extra={"max_spans": self._max_spans})
            self.dropped_spans += len(spans)
            return
        self._waiting.extend(spans)

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            if await self._send_all(least=_BATCH_SPANS):
                await asyncio.sleep(_EVERY_SECONDS)
                if await self._send_all(least=1):
                    continue
            ceiling = min(0.1 * 2**self._failures, _MAX_BACKOFF_SECONDS)
            await asyncio.sleep(random.uniform(0.5, 1.0) * ceiling)

    async def close(self, within_seconds: float) -> None:
        """Send the remaining spans within the time limit. The others are lost; their number is logged."""
        try:
            async with asyncio.timeout(within_seconds):
                await self._send_all(least=1)
        except TimeoutError:
            pass
        if self.pending_spans:
            _log.warning(
                "spans lost at the stop: the endpoint did not accept them", extra={"spans": self.pending_spans}
            )
        await self._pool.close()

    async def _send_all(self, least: int) -> bool:
        """Send batches while at least `least` spans wait. Return `False` if a batch has to be sent again later."""
        while self._batch is not None or len(self._waiting) >= least:
            if self._batch is None:
                taken = [self._waiting.popleft() for _ in range(min(_BATCH_SPANS, len(self._waiting)))]
                self._batch = (encode_spans(taken).SerializeToString(), len(taken))
            body, count = self._batch
            answer = await self._post(body)
            if answer is None or answer.status in _TRANSIENT or answer.status >= 500:
                self._failures += 1
                return False
            self._failures = 0
            self._batch = None
            if answer.status >= 400:
                self.dropped_spans += count
                _log.error("spans refused", extra={"status": answer.status, "spans": count})
        return True

    async def _post(self, body: bytes) -> CollectorAnswer | None:
        head = (
            f"POST {self._origin.prefix}{_PATH} HTTP/1.1\r\nhost: {self._origin.authority}\r\n"
            f"content-type: application/x-protobuf\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        answer = CollectorAnswer()
        try:
            exchange = await self._pool.send(head.encode("latin-1"), body, answer)
            await exchange.finished()
        except UpstreamError as error:
            if self._failures == 0:
                _log.warning("spans wait: their endpoint is unreachable", extra={"reason": error.message})
            return None
        return answer
