"""The metrics endpoint and its access rules: on the data plane's port, or on its own."""

import asyncio
from typing import Final

from backends.network.detail_access import DetailAccess
from contracts.errors import AuthenticationFailed, MethodNotAllowed, NotFound, TollkeeperError
from gateway.observability.metrics.exposition import CONTENT_TYPE
from gateway.observability.metrics.page import MetricsPage
from gateway.wire.error_answer import send_error
from gateway.wire.exchange import Exchange

PATH: Final = "/metrics"


class MetricsEndpoint:
    """Answers `GET /metrics` for local callers and callers with the bearer token."""

    def __init__(self, page: MetricsPage, access: DetailAccess) -> None:
        self._page = page
        self._access = access

    async def run(self) -> None:
        """Scrape the metrics of inference servers that targets name, until cancelled."""
        await self._page.upstreams.run()

    def check(self, exchange: Exchange) -> None:
        """Raise AuthenticationFailed if the token is missing or wrong."""
        names = [name.decode("latin-1") for name in exchange.headers]
        if not self._access.allows_metrics(exchange.address, names, exchange.headers.get(b"authorization", b"")):
            raise AuthenticationFailed(
                "the metrics need the token of TOLLKEEPER_METRICS_TOKEN or of the secret file metrics_token as a bearer"
            )

    async def answer(self, exchange: Exchange) -> None:
        """Send the page."""
        exchange.send(200, CONTENT_TYPE, await self._page.rendered())

    def handle(self, exchange: Exchange) -> "asyncio.Task[None] | None":
        """Answer on the metrics port."""
        try:
            if exchange.path != PATH:
                raise NotFound(f"there is only {PATH} here")
            if exchange.method not in ("GET", "HEAD"):
                raise MethodNotAllowed(f"{PATH} answers GET, not {exchange.method}")
            self.check(exchange)
        except TollkeeperError as error:
            send_error(exchange, error)
            return None
        return asyncio.get_running_loop().create_task(self.answer(exchange))
