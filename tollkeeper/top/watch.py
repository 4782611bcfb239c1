"""Reads the gateway's metrics, of one process or of all its workers."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Self

import httpx

from contracts.errors import TollkeeperError
from tollkeeper.own_gateway import is_https, trust
from tollkeeper.top.page import MetricsPage

_TIMEOUT_SECONDS: Final = 3.0
_REASONS: Final[Mapping[int, str]] = {
    401: "requires a token; set TOLLKEEPER_METRICS_TOKEN to the gateway's",
    403: "rejects this token; set TOLLKEEPER_METRICS_TOKEN to the gateway's",
    404: "shows no metrics there; set TOLLKEEPER_METRICS=true for the gateway, or name its TOLLKEEPER_METRICS_PORT",
}


class MetricsUnreadable(TollkeeperError):
    """The gateway's metrics cannot be read; the message has the reason and a remedy."""

    code = "metrics_unreadable"
    retryable = True


class Watch:
    """Reads the metrics of the gateway's processes. Close it after use."""

    def __init__(
        self,
        urls: Sequence[str],
        token: str,
        clock: Callable[[], float] = time.monotonic,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._urls = tuple(urls)
        self._clock = clock
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        # Ignores proxy variables: gateway and token belong to this installation.
        self._client = httpx.Client(
            headers=headers,
            timeout=_TIMEOUT_SECONDS,
            trust_env=False,
            verify=trust(self._urls[0]) or any(map(is_https, self._urls)),
            transport=transport,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def read(self) -> MetricsPage:
        """Read the pages of all processes. Raises MetricsUnreadable."""
        return MetricsPage.read([self._text(url) for url in self._urls], self._clock())

    def _text(self, url: str) -> str:
        try:
            reply = self._client.get(url)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise MetricsUnreadable(
                f"nothing answers at {url} ({type(error).__name__}); start it with `tollkeeper up`, or name it with "
                "--gateway-url"
            ) from error
        if reply.status_code != 200:
            reason = _REASONS.get(reply.status_code, f"answers with status {reply.status_code}")
            raise MetricsUnreadable(f"{url} {reason}")
        return reply.text


def metrics_urls(gateway_url: str, environment: Mapping[str, str]) -> list[str]:
    """Return the URLs of a gateway's metrics: at its own port, or at the configured ports, one per worker.

    Raises MetricsUnreadable if these settings are not numbers.
    """
    port, workers = environment.get("TOLLKEEPER_METRICS_PORT", ""), environment.get("TOLLKEEPER_WORKERS", "")
    try:
        first, count = int(port or 0), int(workers or 1)
    except ValueError as error:
        raise MetricsUnreadable(
            f"TOLLKEEPER_METRICS_PORT ({port!r}) and TOLLKEEPER_WORKERS ({workers!r}) must be whole numbers"
        ) from error
    if not first:
        return [f"{gateway_url}/metrics"]
    host = httpx.URL(gateway_url).copy_with(port=None, path="/")
    return [f"{str(host).rstrip('/')}:{first + worker}/metrics" for worker in range(count)]
