"""OTLP over gRPC: the three services' Export, unary (OTLP specification 1.9)."""

import logging
import socket
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import grpc

from backends.network.bounded_relay import BoundedRelay
from backends.network.connection_table import ConnectionTable
from collector.counters import Counters
from collector.pipeline import Pipeline
from collector.receivers.bodies import InflightBytes
from collector.receivers.memory import MemoryLimiter
from collector.receivers.status import status_bytes
from collector.spool import Signal
from contracts.errors import (
    AuthenticationFailed,
    BodyTooLarge,
    ConfigurationError,
    LimitExceeded,
    TollkeeperError,
    Unavailable,
)

_log = logging.getLogger(__name__)

SERVICES: Final[dict[str, Signal]] = {
    "opentelemetry.proto.collector.logs.v1.LogsService": "logs",
    "opentelemetry.proto.collector.trace.v1.TraceService": "traces",
    "opentelemetry.proto.collector.metrics.v1.MetricsService": "metrics",
}
_THREADS: Final = 2  # threads mostly wait for the spool's disk
_STREAMS: Final = 64  # concurrent streams per connection; unlimited by default
_CALLS: Final = 64  # beyond this, gRPC itself answers RESOURCE_EXHAUSTED
_STOP_SECONDS: Final = 2.0
_IDLE_MS: Final = 30_000


class OtlpGrpcReceiver:
    """A gRPC server that passes requests to the pipeline as bytes, and answers when they are on disk.

    RESOURCE_EXHAUSTED and UNAVAILABLE have a RetryInfo if a retry can succeed. Connections come through the relay
    `bound`, which listens on `port`. Raises ConfigurationError if the socket file cannot be created.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        counters: Counters,
        memory: MemoryLimiter,
        inflight: InflightBytes,
        *,
        bound: socket.socket,
        table: ConnectionTable,
        head_seconds: float,
        header_bytes: int,
        max_bytes: int,
    ) -> None:
        self._pipeline = pipeline
        self._counters = counters
        self._memory = memory
        self._inflight = inflight
        options = (
            ("grpc.max_receive_message_length", max_bytes),  # size of the decompressed message
            ("grpc.max_connection_idle_ms", _IDLE_MS),
            ("grpc.max_concurrent_streams", _STREAMS),
            ("grpc.max_metadata_size", header_bytes // 2),  # metadata above this may be refused
            ("grpc.absolute_max_metadata_size", header_bytes),  # metadata above this is always refused
            ("grpc.server_handshake_timeout_ms", int(head_seconds * 1000)),  # timeout for the client's HTTP/2 settings
        )
        pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="grpc")
        self._server = grpc.server(pool, options=options, maximum_concurrent_rpcs=_CALLS)
        for service, signal in SERVICES.items():
            handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(self._export(signal))
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Export": handler}),))
        self.port: int = bound.getsockname()[1]
        # gRPC does not report connections, so a relay in front of it limits them. Only the owner can read the
        # directory.
        self._directory = tempfile.TemporaryDirectory(prefix="tollkeeper-otlp-")
        path = f"{self._directory.name}/grpc"
        try:
            self._server.add_insecure_port(f"unix:{path}")
        except RuntimeError as error:
            raise ConfigurationError(f"gRPC cannot listen in {self._directory.name}; set TMPDIR") from error
        self._relay = BoundedRelay(bound, path, table, head_seconds)

    def start(self) -> None:
        """Start to accept calls."""
        self._server.start()
        self._relay.start()

    def stop(self) -> None:
        """Refuse new calls and finish those in progress, for at most two seconds. Blocks."""
        self._server.stop(_STOP_SECONDS).wait()
        self._relay.stop()
        self._directory.cleanup()

    def _export(self, signal: Signal) -> Callable[[bytes, grpc.ServicerContext], bytes]:
        def export(body: bytes, context: grpc.ServicerContext) -> bytes:
            try:
                with self._inflight.lease() as lease:
                    self._memory.check()
                    lease.grow_to(len(body))
                    receipt = self._pipeline.accept(signal, body, is_json=False)
            except TollkeeperError as error:
                self._counters.rejected(error.error_code)
                _log.warning("export refused signal=%s code=%s reason=%s", signal, error.error_code, error.message)
                _abort(context, error)
            return self._pipeline.processors[signal].response(receipt.rejected, receipt.reason).SerializeToString()

        return export


def _abort(context: grpc.ServicerContext, error: TollkeeperError) -> Any:
    code = _code(error)
    number: int = code.value[0]
    context.set_trailing_metadata((("grpc-status-details-bin", status_bytes(error, number)),))
    context.abort(code, error.message)


def _code(error: TollkeeperError) -> grpc.StatusCode:
    if isinstance(error, LimitExceeded):
        return grpc.StatusCode.RESOURCE_EXHAUSTED
    if isinstance(error, Unavailable):
        return grpc.StatusCode.UNAVAILABLE
    if isinstance(error, AuthenticationFailed):
        return grpc.StatusCode.UNAUTHENTICATED
    if isinstance(error, BodyTooLarge) or error.status < 500:
        return grpc.StatusCode.INVALID_ARGUMENT
    return grpc.StatusCode.INTERNAL
