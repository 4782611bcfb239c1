"""Sends batches to another OTLP endpoint over HTTP: an OpenTelemetry Collector, Datadog, Langfuse, Phoenix."""

import gzip
from collections.abc import Mapping, Sequence
from typing import Final

import httpx

from collector.forwarding.forwarder import BatchRefused, DestinationAway
from collector.spool import SpooledBatch
from contracts.errors import ConfigurationError

_SECONDS: Final = 10.0
_ID_HEADER: Final = "x-tollkeeper-batch-id"
_LATER: Final = frozenset({408, 429, 500, 502, 503, 504})
_MISCONFIGURED: Final = frozenset({401, 403, 404})  # retried until an operator corrects the configuration


class OtlpDestination:
    """POSTs each batch to `URL/v1/SIGNAL`, compressed."""

    name = "otlp"
    gathering = None

    def __init__(self, url: str, headers: Mapping[str, str], transport: httpx.BaseTransport | None = None) -> None:
        """Set the endpoint's base URL and headers. Raises ConfigurationError if the URL is invalid."""
        parsed = httpx.URL(url)
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise ConfigurationError(f"TOLLKEEPER_FORWARD_OTLP is {url!r}; give http://HOST:PORT or https://HOST/PATH")
        self._url = url.rstrip("/")
        self._client = httpx.Client(timeout=_SECONDS, headers=dict(headers), transport=transport)

    def takes(self, batch: SpooledBatch) -> bool:
        """Return whether a batch is standard OTLP, not gateways' packed records."""
        return not (batch.signal == "logs" and batch.is_named)

    def send(self, batches: Sequence[SpooledBatch]) -> None:
        """Send batches. Raises DestinationAway, BatchRefused."""
        for batch in batches:
            self._post(batch)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _post(self, batch: SpooledBatch) -> None:
        headers = {
            "content-type": "application/x-protobuf",
            "content-encoding": "gzip",
            _ID_HEADER: batch.batch_id,
        }
        body = gzip.compress(batch.payload, compresslevel=1)
        try:
            answer = self._client.post(f"{self._url}/v1/{batch.signal}", content=body, headers=headers)
        except httpx.HTTPError as error:
            raise DestinationAway(f"it does not answer ({type(error).__name__})") from error
        if answer.is_success:
            return
        if answer.status_code in _LATER or answer.status_code in _MISCONFIGURED:
            raise DestinationAway(f"it answers {answer.status_code} for /v1/{batch.signal}")
        raise BatchRefused(f"it answers {answer.status_code}")
