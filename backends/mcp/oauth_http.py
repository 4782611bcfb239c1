"""Fetches JSON documents of authorization servers over HTTP: bounded in time and size, without redirects.

URLs that the operator configured are always called. URLs from a document are called only if they are https and public:
a malicious server must not make the gateway call internal addresses.
"""

import asyncio
import ssl
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import msgspec

from backends.channels.inward import InwardAddress, reachable_address
from backends.channels.tls import trusted_authorities
from backends.processes.running_time import RunningTimeout
from contracts.errors import TargetMisconfigured, UpstreamBroken, UpstreamTimeout, UpstreamUnreachable

_TIMEOUT_SECONDS: Final = 10.0  # for one document, from the name's look-up to the last byte
_MAX_BYTES: Final = 256 * 1024
_MAX_SHOWN: Final = 200

_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


class OAuthHttp:
    """Fetches documents for one MCP server. `stated` are the URLs that the operator configured."""

    def __init__(self, stated: tuple[str, ...], tls: ssl.SSLContext | None) -> None:
        """`tls` is the context of the server's own connections, if its settings name files; otherwise public CAs are
        used.
        """
        self._stated = frozenset(_origin(url) for url in stated if url)
        self._tls = tls
        self._client: httpx.AsyncClient | None = None

    async def get(self, url: str) -> tuple[int, dict[str, Any]]:
        """Return the status and the fields of a document (empty if it is not a JSON object). Raises UpstreamError."""
        return await self._fetch("GET", url, None, {})

    async def post(self, url: str, form: Mapping[str, str], headers: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
        """Post a form; return status and fields like `get`. Raises UpstreamError."""
        return await self._fetch("POST", url, form, headers)

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()

    def _opened(self) -> httpx.AsyncClient:
        # No keep-alive: connections are pooled by address, which different servers may share.
        # trust_env: a proxy from the environment would see the secrets.
        return httpx.AsyncClient(
            verify=self._tls or trusted_authorities(),
            follow_redirects=False,
            trust_env=False,
            timeout=None,  # `RunningTimeout` is used instead, which excludes time in which this process did not run
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    async def _fetch(
        self, method: str, url: str, form: Mapping[str, str] | None, headers: Mapping[str, str]
    ) -> tuple[int, dict[str, Any]]:
        shown = repr(url[:_MAX_SHOWN])
        if self._client is None:
            self._client = await asyncio.to_thread(self._opened)  # reading the system's certificates takes a while
        try:
            async with RunningTimeout(_TIMEOUT_SECONDS):
                status, body = await self._read(await self._request(self._client, method, url, form, headers))
        except (TimeoutError, httpx.TimeoutException) as error:
            raise UpstreamTimeout(f"{shown} did not answer within {_TIMEOUT_SECONDS:g} s") from error
        except InwardAddress as error:
            raise TargetMisconfigured(
                f"{shown} leads to an address that is not public, and nothing of the configuration names it; if it is "
                "right, set issuer or token_url"
            ) from error
        except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
            raise UpstreamUnreachable(f"{shown} cannot be fetched: {type(error).__name__}") from error
        if 300 <= status < 400:
            raise TargetMisconfigured(f"{shown} redirects (status {status}), which the gateway does not follow")
        try:
            return status, _decode(body)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return status, {}

    async def _request(
        self,
        client: httpx.AsyncClient,
        method: str,
        url: str,
        form: Mapping[str, str] | None,
        headers: Mapping[str, str],
    ) -> httpx.Request:
        named = httpx.URL(url)
        target = named
        extensions: dict[str, str] = {}
        if _origin(url) not in self._stated:
            if named.scheme != "https":
                raise TargetMisconfigured(
                    f"{url[:_MAX_SHOWN]!r} is not https, and nothing of the configuration names it; if it is right, "
                    "set issuer or token_url"
                )
            address = await reachable_address(named.host, named.port or 443, ())
            # Call the address that was checked, and verify the certificate against the name.
            target, extensions = named.copy_with(host=address), {"sni_hostname": named.host}
        own = {"accept": "application/json", "accept-encoding": "identity", "host": named.netloc.decode()}
        return client.build_request(method, target, data=form, headers={**own, **headers}, extensions=extensions)

    async def _read(self, request: httpx.Request) -> tuple[int, bytes]:
        assert self._client is not None
        reply = await self._client.send(request, stream=True)
        try:
            read = bytearray()
            async for piece in reply.aiter_raw():  # not decompressed, which could yield any size
                read += piece
                if len(read) > _MAX_BYTES:
                    raise UpstreamBroken(f"{str(request.url)[:_MAX_SHOWN]!r} is longer than {_MAX_BYTES} bytes")
            return reply.status_code, bytes(read)
        finally:
            await reply.aclose()


def is_same_origin(url: str, other: str) -> bool:
    """Return whether two URLs have the same scheme, host and port."""
    return _origin(url) == _origin(other)


def _origin(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port; for an invalid URL, values that equal no other URL's."""
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return ("", url, 0)
    return (parts.scheme, (parts.hostname or "").lower(), port)
