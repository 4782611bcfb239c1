"""Run the gateway's metrics: endpoint, event loop lag, and a separate port if one is set."""

import asyncio

from gateway.observability.metrics.endpoint import MetricsEndpoint
from gateway.observability.metrics.loop_lag import LoopLag
from gateway.wire.http_limits import HttpLimits
from gateway.wire.listener_context import ListenerContext
from gateway.wire.server import HttpServer


class MetricsService:
    """Runs the metrics from `start` to `stop`. With `own_port` 0 they are on the data plane's port."""

    def __init__(
        self,
        endpoint: MetricsEndpoint,
        loop_lag: LoopLag,
        limits: HttpLimits,
        own_port: int,
        tls: ListenerContext | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._loop_lag = loop_lag
        self._own_port = own_port
        self._server = HttpServer(endpoint.handle, limits, tls) if own_port else None
        self._measuring: list[asyncio.Task[None]] = []

    @property
    def on_the_data_plane(self) -> MetricsEndpoint | None:
        """Return the handler on the data plane's port; `None` if the metrics have their own port."""
        return self._endpoint if self._server is None else None

    async def start(self, host: str) -> None:
        """Start to measure and to listen. Raises ConfigurationError if the port is not available."""
        if self._server is not None:
            await self._server.start(host, self._own_port, port_setting="TOLLKEEPER_METRICS_PORT")
        self._measuring = [
            asyncio.create_task(self._loop_lag.run(), name="event loop lag"),
            asyncio.create_task(self._endpoint.run(), name="upstreams' metrics"),
        ]

    async def stop(self) -> None:
        """Stop measuring and listening."""
        if self._server is not None:
            await self._server.stop(drain_seconds=0.0)
        for task in self._measuring:
            task.cancel()
        await asyncio.gather(*self._measuring, return_exceptions=True)
