"""Who may read the metrics, and the answer: on the data plane's port, or on a port of their own."""

import asyncio
import hmac
from typing import Final

from contracts.errors import AuthenticationFailed, MethodNotAllowed, NotFound, TollkeeperError
from gateway.error_answer import send_error
from gateway.exchange import Exchange
from gateway.metrics.exposition import CONTENT_TYPE
from gateway.metrics.page import MetricsPage

PATH: Final = "/metrics"


class MetricsEndpoint:
    """Answers `GET /metrics`. With a token set, only who sends it as `Authorization: Bearer` is answered."""

    def __init__(self, page: MetricsPage, token: str) -> None:
        self._page = page
        self._expected = f"Bearer {token}".encode() if token else b""

    async def run(self) -> None:
        """Read the metrics of inference servers that targets name, until cancelled."""
        await self._page.upstreams.run()

    def check(self, exchange: Exchange) -> None:
        """Raise AuthenticationFailed where the token is wanting or wrong."""
        given = exchange.headers.get(b"authorization", b"")
        if self._expected and not hmac.compare_digest(given, self._expected):
            raise AuthenticationFailed("the metrics need the token that TOLLKEEPER_METRICS_TOKEN sets, as a bearer")

    async def answer(self, exchange: Exchange) -> None:
        """Send the page."""
        exchange.send(200, CONTENT_TYPE, await self._page.rendered())

    def handle(self, exchange: Exchange) -> "asyncio.Task[None] | None":
        """Answer on a port where there is nothing else."""
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
