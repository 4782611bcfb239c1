"""A gRPC server for Envoy's external processing: one stream per request."""

from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import grpc
import grpc.aio

from backends.ext_proc.messages import METHOD, SERVICE, ProcessingRequest, ProcessingResponse
from contracts.errors import ConfigurationError

Processor = Callable[[AsyncIterator[Any]], AsyncIterator[Any]]

_MOST_STREAMS: Final = 10_000
_MESSAGE_BYTES: Final = 64 << 20
_HEALTH: Final = "grpc.health.v1.Health"
_SERVING: Final = b"\x08\x01"  # HealthCheckResponse{status: SERVING}
_NOT_SERVING: Final = b"\x08\x02"


class ExtProcServer:
    """Passes each stream to `processor`, and answers gRPC health checks by `is_ready`."""

    def __init__(self, processor: Processor, is_ready: Callable[[], bool]) -> None:
        self._processor = processor
        self._is_ready = is_ready
        self._server: grpc.aio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen on `host` and `port`; return the port. Raises ConfigurationError if the port cannot be bound."""
        options = [
            ("grpc.max_concurrent_streams", _MOST_STREAMS),
            ("grpc.max_receive_message_length", _MESSAGE_BYTES),
            ("grpc.so_reuseport", 0),
        ]
        server = grpc.aio.server(options=options)
        process: Any = grpc.stream_stream_rpc_method_handler(
            self._process,
            request_deserializer=ProcessingRequest.FromString,
            response_serializer=ProcessingResponse.SerializeToString,
        )
        check: Any = grpc.unary_unary_rpc_method_handler(self._check)
        server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(SERVICE, {METHOD: process}),
                grpc.method_handlers_generic_handler(_HEALTH, {"Check": check}),
            )
        )
        try:
            bound = server.add_insecure_port(f"{host}:{port}")
        except RuntimeError as error:
            raise ConfigurationError(
                f"{host}:{port} cannot be listened on; choose another TOLLKEEPER_PICKER_PORT"
            ) from error
        await server.start()
        self._server = server
        return int(bound)

    async def stop(self, seconds: float) -> None:
        """Accept no more streams, and end those in progress after `seconds`."""
        if self._server is not None:
            await self._server.stop(seconds)

    async def _process(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        async for response in self._processor(requests):
            yield response

    async def _check(self, request: bytes, context: Any) -> bytes:
        return _SERVING if self._is_ready() else _NOT_SERVING
