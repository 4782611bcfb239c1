"""Sends one POST to an external server: bounded in time, without redirects and internal addresses."""

import asyncio
from collections.abc import Mapping

import httpx

from backends.channels.base import ChannelSettings, Outcome
from backends.channels.inward import InwardAddress, reachable_address
from backends.channels.tls import trusted_authorities

_TRIED_AGAIN = frozenset({408, 425, 429})
_DEFAULT_PORTS = {"http": 80, "https": 443}


class HttpPost:
    """Posts JSON. One client is used for all receivers; call `close` at the end."""

    def __init__(self, settings: ChannelSettings) -> None:
        self._settings = settings
        # trust_env: a proxy from the environment would see what tenants spend.
        # Connecting has a shorter time limit: if that passes, the server has certainly not received the notice.
        timeout = httpx.Timeout(settings.timeout_seconds, connect=0.6 * settings.timeout_seconds)
        # No connection is kept open: pooling is by address, and two receivers at one address may be two servers.
        limits = httpx.Limits(max_keepalive_connections=0)
        self._client = httpx.AsyncClient(
            verify=trusted_authorities(), follow_redirects=False, trust_env=False, timeout=timeout, limits=limits
        )

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Outcome:
        """Make one attempt within the time limit, including the name lookup. Never raises."""
        sent = False
        try:
            async with asyncio.timeout(self._settings.timeout_seconds):  # in total: httpx's limits are per step
                request = await self._request(url, body, headers)
                sent = True
                reply = await self._client.send(request, stream=True)
                await reply.aclose()
        except InwardAddress as error:
            return Outcome(str(error), is_final=True)
        except (TimeoutError, httpx.ReadTimeout):
            return Outcome(f"did not answer within {self._settings.timeout_seconds:g} seconds", may_have_arrived=sent)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.InvalidURL, OSError, UnicodeError) as error:
            return Outcome(f"could not be called ({type(error).__name__})")
        except httpx.HTTPError as error:
            return Outcome(f"broke off ({type(error).__name__})", may_have_arrived=True)
        return _outcome(reply.status_code)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _request(self, url: str, body: bytes, headers: Mapping[str, str]) -> httpx.Request:
        named = httpx.URL(url)
        port = named.port or _DEFAULT_PORTS.get(named.scheme, 443)
        address = await reachable_address(named.host, port, self._settings.inward)
        # Calls the address that was checked, and verifies the server's certificate against the name.
        return self._client.build_request(
            "POST",
            named.copy_with(host=address),
            content=body,
            headers={**headers, "content-type": "application/json", "host": named.netloc.decode()},
            extensions={"sni_hostname": named.host},
        )


def _outcome(status: int) -> Outcome:
    if 200 <= status < 300:
        return Outcome()
    if 300 <= status < 400:
        return Outcome(f"answered {status}, and redirects are not followed", is_final=True)
    is_final = 400 <= status < 500 and status not in _TRIED_AGAIN
    return Outcome(f"answered {status}", is_final=is_final)
