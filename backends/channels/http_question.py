"""Posts one question to an external server and reads its answer: bounded in time and size, without redirects and
internal addresses.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import httpx

from backends.channels.inward import InwardAddress, Network, reachable_address
from backends.channels.question import HttpAnswer
from backends.channels.tls import trusted_authorities

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_MOST_AT_ONCE: Final = 256


class HttpQuestion:
    """Asks over HTTP. One client is used for all servers; call `close` at the end.

    `setting` is the name of the setting that allows internal networks, for error messages. No connection is kept open:
    pooling is by address, and two servers at one address may be different ones.
    """

    def __init__(self, inward: Sequence[Network], setting: str) -> None:
        self._inward = inward
        self._setting = setting
        limits = httpx.Limits(max_keepalive_connections=0)
        # trust_env: a proxy from the environment would see prompts.
        self._client = httpx.AsyncClient(
            verify=trusted_authorities(), follow_redirects=False, trust_env=False, limits=limits
        )
        self._room = asyncio.Semaphore(_MOST_AT_ONCE)

    async def ask(
        self, url: str, body: bytes, headers: Mapping[str, str], timeout_seconds: float, most_bytes: int
    ) -> HttpAnswer:
        """Post JSON and read the answer within the time limit, which includes queueing and the name lookup.

        Never raises: a status other than 200, a redirect, an internal address or an oversized answer is returned as a
        fault.
        """
        try:
            async with asyncio.timeout(timeout_seconds), self._room:
                return await self._ask(url, body, headers, timeout_seconds, most_bytes)
        except InwardAddress:
            host = httpx.URL(url).host
            return HttpAnswer(
                fault=f"{host} is an inward address; the operator may allow its network in {self._setting}"
            )
        except (TimeoutError, httpx.TimeoutException):
            return HttpAnswer(fault=f"no answer within {timeout_seconds:g} seconds")
        except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
            return HttpAnswer(fault=f"could not be asked ({type(error).__name__})")

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _ask(
        self, url: str, body: bytes, headers: Mapping[str, str], timeout_seconds: float, most_bytes: int
    ) -> HttpAnswer:
        named = httpx.URL(url)
        port = named.port or _DEFAULT_PORTS.get(named.scheme, 443)
        address = await reachable_address(named.host, port, self._inward)
        # Calls the address that was checked, and verifies the server's certificate against the name.
        request = self._client.build_request(
            "POST",
            named.copy_with(host=address),
            content=body,
            headers={**headers, "content-type": "application/json", "host": named.netloc.decode()},
            timeout=timeout_seconds,
            extensions={"sni_hostname": named.host},
        )
        reply = await self._client.send(request, stream=True)
        try:
            if reply.status_code != 200:
                what = ", and redirects are not followed" if 300 <= reply.status_code < 400 else ""
                return HttpAnswer(fault=f"answered {reply.status_code}{what}")
            read = bytearray()
            async for piece in reply.aiter_bytes():
                read += piece
                if len(read) > most_bytes:
                    return HttpAnswer(fault=f"answered with more than {most_bytes} bytes")
            return HttpAnswer(bytes(read))
        finally:
            await reply.aclose()
