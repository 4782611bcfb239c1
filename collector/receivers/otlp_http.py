"""OTLP over HTTP: POST /v1/logs, /v1/traces and /v1/metrics, protobuf or JSON, plain or gzip (OTLP 1.9)."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final

from google.protobuf import json_format
from google.protobuf.message import Message
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from backends.telemetry.otlp import CONTENT_TYPE, LOGS_PATH, METRICS_PATH, TRACES_PATH
from collector.counters import Counters
from collector.pipeline import Pipeline, Receipt
from collector.receivers.bodies import InflightBytes, inflate, read_body
from collector.receivers.memory import MemoryLimiter
from collector.receivers.status import status_bytes
from collector.spool import Signal
from contracts.errors import InvalidRequest, RequestTimeout, TollkeeperError, UnsupportedMediaType

_log = logging.getLogger(__name__)
JSON_TYPE: Final = "application/json"
PATHS: Final[dict[str, Signal]] = {LOGS_PATH: "logs", TRACES_PATH: "traces", METRICS_PATH: "metrics"}


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Limits of one body: bytes as sent, bytes decompressed, seconds to send it."""

    max_bytes: int
    max_decompressed_bytes: int
    timeout_seconds: float


class OtlpHttpReceiver:
    """Answers 200 when a request is on disk; 429 or 503 with Retry-After if the sender should retry.

    Parsing and writing run in `executor`, so that a large batch does not block other connections.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        counters: Counters,
        limits: BodyLimits,
        inflight: InflightBytes,
        memory: MemoryLimiter,
        executor: Executor,
    ) -> None:
        self._pipeline = pipeline
        self._counters = counters
        self._limits = limits
        self._inflight = inflight
        self._memory = memory
        self._executor = executor

    def app(self) -> Starlette:
        """Build the ASGI application."""
        return Starlette(routes=[Route(path, self._endpoint(PATHS[path]), methods=["POST"]) for path in PATHS])

    def _endpoint(self, signal: Signal) -> Callable[[Request], Awaitable[Response]]:
        async def export(request: Request) -> Response:
            is_json = _media_type(request) == JSON_TYPE
            try:
                receipt = await self._take(signal, request, is_json)
            except TollkeeperError as error:
                self._counters.rejected(error.error_code)
                _log.warning("export refused signal=%s code=%s reason=%s", signal, error.error_code, error.message)
                return _refusal(error, is_json)
            except ClientDisconnect:
                self._counters.rejected("sender_gone")
                return Response(status_code=400)  # the client has disconnected
            return self._answer(signal, receipt, is_json)

        return export

    async def _take(self, signal: Signal, request: Request, is_json: bool) -> Receipt:
        if not is_json and _media_type(request) != CONTENT_TYPE:
            raise UnsupportedMediaType(
                f"content type {_media_type(request)[:80]!r} is not read here; send {CONTENT_TYPE} or {JSON_TYPE}"
            )
        limits = self._limits
        encoding = request.headers.get("content-encoding", "").strip().lower()
        with self._inflight.lease() as lease:
            self._memory.check()
            try:
                async with asyncio.timeout(limits.timeout_seconds):
                    body = await read_body(request.stream(), _declared(request), limits.max_bytes, lease)
            except TimeoutError as error:
                raise RequestTimeout(f"the body did not arrive within {limits.timeout_seconds:g} seconds") from error

            def accept() -> Receipt:
                plain = inflate(body, encoding, limits.max_decompressed_bytes)
                lease.grow_to(len(body) + len(plain) if plain is not body else len(body))
                return self._pipeline.accept(signal, plain, is_json=is_json)

            return await asyncio.get_running_loop().run_in_executor(self._executor, accept)

    def _answer(self, signal: Signal, receipt: Receipt, is_json: bool) -> Response:
        return _message(self._pipeline.processors[signal].response(receipt.rejected, receipt.reason), is_json)


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _declared(request: Request) -> int | None:
    """Return the Content-Length; `None` if there is none. The HTTP parser accepts only digits."""
    length = request.headers.get("content-length")
    if length is None:
        return None
    if not (length.isascii() and length.isdigit()):
        raise InvalidRequest(f"content length {length[:40]!r} is not a number")
    return int(length)


def _message(message: Message, is_json: bool) -> Response:
    if is_json:
        return Response(json_format.MessageToJson(message, indent=None), media_type=JSON_TYPE)
    return Response(message.SerializeToString(), media_type=CONTENT_TYPE)


def _refusal(error: TollkeeperError, is_json: bool) -> Response:
    """Return an error response as OTLP requires: a google.rpc.Status in the request's encoding."""
    headers = {}
    if error.retry_after_seconds is not None:
        headers["Retry-After"] = str(math.ceil(error.retry_after_seconds))
    if isinstance(error, UnsupportedMediaType):
        headers["Accept-Encoding"] = "gzip"
    if is_json:
        return JSONResponse({"message": error.message}, status_code=error.status, headers=headers)
    return Response(status_bytes(error), status_code=error.status, media_type=CONTENT_TYPE, headers=headers)
