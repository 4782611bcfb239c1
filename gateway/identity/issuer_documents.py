"""Fetches the documents that identity providers publish: small JSON documents over HTTP."""

import asyncio
from typing import Any, Final

import httpx
import msgspec

from backends.processes.running_time import RunningTimeout
from contracts.errors import Unavailable

_TIMEOUT_SECONDS: Final = 5.0  # for a whole document
_MAX_BYTES: Final = 1 << 20


class IssuerDocuments:
    """A client for such documents. Redirects are not followed: the URL is the operator's, not the provider's."""

    def __init__(self) -> None:
        self._client: httpx.AsyncClient | None = None

    async def get(self, url: str) -> dict[str, Any]:
        """Return a document's members. Raises Unavailable if it cannot be fetched or is invalid."""
        if not url.startswith(("https://", "http://")):
            raise Unavailable(f"{url[:200]!r} is not a valid URL; it must start with https://")
        if self._client is None:
            self._client = await asyncio.to_thread(_client)  # reading the system's certificates takes a while
        try:
            async with RunningTimeout(_TIMEOUT_SECONDS), self._client.stream("GET", url) as reply:
                if reply.status_code != 200:
                    raise Unavailable(f"{url[:200]} answered with status {reply.status_code}")
                body = b""
                async for piece in reply.aiter_bytes():
                    body += piece
                    if len(body) > _MAX_BYTES:
                        raise Unavailable(f"{url[:200]} is longer than {_MAX_BYTES} bytes")
        except TimeoutError as error:
            raise Unavailable(f"{url[:200]} did not answer within {_TIMEOUT_SECONDS:.0f} s") from error
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise Unavailable(f"{url[:200]} cannot be fetched: {type(error).__name__}") from error
        try:
            return msgspec.json.decode(body, type=dict[str, Any])
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise Unavailable(f"{url[:200]} is not a JSON object") from error

    async def close(self) -> None:
        """Close the client's connections."""
        if self._client is not None:
            await self._client.aclose()


def _client() -> httpx.AsyncClient:
    # Without a time limit of its own: it would count the time in which this process is held up.
    return httpx.AsyncClient(timeout=None, follow_redirects=False)
