"""The endpoint picker's process: a router over the configuration's pools, and a gRPC server for Envoy."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable
from functools import partial

from backends.ext_proc.server import ExtProcServer
from contracts.errors import ConfigurationError
from contracts.serving.configuration import Snapshot
from gateway.config.directory import Directory
from gateway.config.discovery import DiscoveringSource
from gateway.config.file import FileSource
from gateway.request.clock import Clock
from gateway.routing.picker.pick import Picker, endpoint_of
from gateway.routing.picker.settings import PickerSettings
from gateway.routing.replicas.router import Router

_log = logging.getLogger(__name__)

_STALE_SECONDS = 1e9  # if a file cannot be read, the last good one stays in use


class PickerService:
    """Serves from `start` to `stop`."""

    def __init__(self, settings: PickerSettings, clock: Clock | None = None) -> None:
        """Read the configuration. Raises ConfigurationError if it is missing or invalid."""
        self._settings = settings
        clock = clock or Clock()
        if settings.gateway_config is None or not settings.gateway_config.exists():
            raise ConfigurationError(
                "TOLLKEEPER_GATEWAY_CONFIG names no existing file; set it to the configuration file with pools"
            )
        source = FileSource(settings.gateway_config, b"", has_callers=False)
        self._found = DiscoveringSource(source, source.load(), settings.kubernetes_api)
        self.router = Router(clock)
        self._directory = Directory(self._found, self._found.first, clock, _STALE_SECONDS, self._on_change)
        self.router.sync(self._directory.snapshot)
        self.picker = Picker(self.router, lambda: self._directory.snapshot, clock, settings.max_body_bytes)
        self._server = ExtProcServer(self.picker.process, self._is_ready)
        self._polling: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self.port = 0

    async def start(self) -> None:
        """Listen, and follow changes of the configuration. Raises ConfigurationError if the port is in use."""
        self.port = await self._server.start(self._settings.host, self._settings.picker_port)
        self._polling = asyncio.create_task(self._directory.run(), name="directory")
        loop = asyncio.get_running_loop()
        self._found.on_change = partial(_soon, loop, self._look_again)
        _log.info("endpoint picker ready", extra={"port": self.port, "models": len(self._directory.snapshot.models)})

    async def stop(self) -> None:
        """Let requests in progress end, and stop following."""
        await self._server.stop(self._settings.drain_seconds)
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.gather(self._polling, return_exceptions=True)
        await self._directory.close()

    def _look_again(self) -> None:
        self._looking = asyncio.create_task(self._directory.refresh(), name="endpoints")

    def _on_change(self) -> None:
        self.router.sync(self._directory.snapshot)

    def _is_ready(self) -> bool:
        return any(_serves(pool_name, self._directory.snapshot) for pool_name in self._directory.snapshot.pools)


def _serves(pool: str, snapshot: Snapshot) -> bool:
    return any(endpoint_of(spec) for spec in snapshot.pools[pool].targets)


def _soon(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(call)


async def serve(settings: PickerSettings) -> None:
    """Serve until SIGTERM or SIGINT. Raises ConfigurationError if it cannot start."""
    service = PickerService(settings)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    try:
        await service.start()
        await stopped.wait()
    finally:
        await service.stop()


def run(settings: PickerSettings) -> None:
    """Run the process."""
    asyncio.run(serve(settings))
