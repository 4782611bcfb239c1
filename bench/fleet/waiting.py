"""The openai SDK's clients against a limit that is used up: how many tries each needs when it waits as it is told."""

import asyncio
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import openai

from bench.fleet.connection import Connection, chat_request
from bench.fleet.fleet import MODEL, chat_body, configuration, key_of, tenant_limit

MAX_RETRIES: Final = 5
CLIENTS: Final = 50
_INPUT_TOKENS: Final = 100
_OUTPUT_TOKENS: Final = 100
_TOKENS: Final = _INPUT_TOKENS + _OUTPUT_TOKENS
_TIMEOUT_SECONDS: Final = 200.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one client met: the status of each try, and the waits it was told in milliseconds."""

    statuses: tuple[int, ...]
    waits_ms: tuple[int, ...]

    @property
    def is_first_retry(self) -> bool:
        """Return whether it was refused once and then admitted."""
        return self.statuses == (429, 200)


class WaitingClient:
    """An SDK client that counts its tries. Its timeouts and retries are the SDK's own."""

    def __init__(self, port: int, key: str) -> None:
        self._statuses: list[int] = []
        self._waits_ms: list[int] = []
        self._http = openai.DefaultAsyncHttpxClient(verify=False, event_hooks={"response": [self._count]})
        self._sdk = openai.AsyncOpenAI(
            base_url=f"http://127.0.0.1:{port}/v1", api_key=key, max_retries=MAX_RETRIES, http_client=self._http
        )

    async def ask(self, body: dict[str, Any]) -> Outcome:
        """Make one call; what it raises at the end shows in the statuses."""
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                await self._sdk.chat.completions.create(**body)
        except (openai.APIError, TimeoutError):
            pass
        return Outcome(tuple(self._statuses), tuple(self._waits_ms))

    async def close(self) -> None:
        """Close its connections."""
        await self._sdk.close()

    async def _count(self, response: Any) -> None:
        self._statuses.append(response.status_code)
        if "retry-after-ms" in response.headers:
            self._waits_ms.append(int(response.headers["retry-after-ms"]))


class WaitingClients:
    """Many clients that come when a tenant's tokens of this minute are used up, spread over some gateways."""

    def __init__(self, tenants: Sequence[str], gateways: int, clients: int = CLIENTS) -> None:
        """Every tenant named has a limit that its clients can just use up, each of them once.

        Besides them fits one request more a gateway: the ones whose refusal shows that the limit is used up.
        """
        self._tenants = tenants
        self._gateways = gateways
        self._clients = clients

    def configuration(self) -> dict[str, Any]:
        """Return the gateways' file. The n-th tenant's keys are numbered from n times the clients."""
        named = [tenant for tenant in self._tenants for _ in range(self._clients)]
        amount = (self._clients + self._gateways) * _TOKENS
        limits = [tenant_limit(f"{name}-limit", name, "tokens", amount) for name in self._tenants]
        return configuration(named, limits=limits)

    async def measure(
        self, tenant: int, ports: Sequence[int], keys: int, arrive_within_seconds: float
    ) -> list[Outcome]:
        """Use up the tenant's limit over some seconds, then let all clients ask; `keys` of its keys are used."""
        first_key = tenant * self._clients
        clients = [
            WaitingClient(ports[number % len(ports)], key_of(first_key + number % keys))
            for number in range(self._clients)
        ]
        try:
            await self._use_up(ports, key_of(first_key), arrive_within_seconds)
            return await asyncio.gather(
                *(
                    self._arrive(client, arrive_within_seconds * number / len(clients))
                    for number, client in enumerate(clients)
                )
            )
        finally:
            for client in clients:
                await client.close()

    async def _use_up(self, ports: Sequence[int], key: str, seconds: float) -> None:
        """Accept the whole limit at a steady pace, until every gateway has refused one request more."""
        request = chat_request(key, _body())
        began = time.monotonic()
        open_ports = list(ports)
        for number in itertools.count():
            await asyncio.sleep(max(began + seconds * number / self._clients - time.monotonic(), 0))
            port = open_ports[number % len(open_ports)]
            connection = await Connection.open(port)
            answer = await connection.ask(request)
            connection.close()
            if answer.status != 200:
                open_ports.remove(port)
            if not open_ports:
                return

    async def _arrive(self, client: WaitingClient, after_seconds: float) -> Outcome:
        await asyncio.sleep(after_seconds)
        return await client.ask(_body())


def _body() -> dict[str, Any]:
    body = chat_body(_INPUT_TOKENS, _OUTPUT_TOKENS, max_tokens=_OUTPUT_TOKENS, streamed=False)
    assert body["model"] == MODEL
    return body
