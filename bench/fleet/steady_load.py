"""A steady load on several gateways in turns, such as one that counts in memory and one that does so in Redis."""

import asyncio
import itertools
import time
from collections.abc import Mapping
from typing import Any, Final

from bench.fleet.connection import Connection, chat_request
from bench.fleet.fleet import chat_body, configuration, key_of, tenant_limit, total_budget
from bench.fleet.gateway import GatewayProcess

KEYS: Final = 10
REQUESTS_PER_SECOND: Final = 100  # at each gateway
INPUT_TOKENS: Final = 40
OUTPUT_TOKENS: Final = 20
_TOKENS_PER_MINUTE: Final = 60 * REQUESTS_PER_SECOND * (INPUT_TOKENS + OUTPUT_TOKENS)
_TENANT: Final = "acme"


class SteadyLoad:
    """Requests at a fixed pace, each to the next gateway, so that all meet the same machine.

    The limits allow twice this load of one gateway: tokens a minute of the tenant, requests a minute of each key, and a
    budget.
    """

    def __init__(
        self, gateways: Mapping[str, GatewayProcess], requests_per_second: float = REQUESTS_PER_SECOND
    ) -> None:
        """`requests_per_second` is what each gateway is asked."""
        self._requests_per_second = requests_per_second
        self._ports = {name: gateway.port for name, gateway in gateways.items()}
        self._idle: dict[str, list[Connection]] = {name: [] for name in gateways}
        body = chat_body(INPUT_TOKENS, OUTPUT_TOKENS, max_tokens=OUTPUT_TOKENS, streamed=False)
        self._requests = [chat_request(key_of(number), body) for number in range(KEYS)]

    @staticmethod
    def configuration() -> dict[str, Any]:
        """Return the file of both gateways."""
        each_key = {
            "id": "each",
            "tenant": _TENANT,
            "level": "key",
            "subject": "*",
            "metric": "requests",
            "window": "minute",
            "amount": 2 * 60 * REQUESTS_PER_SECOND // KEYS,
        }
        limits = [tenant_limit("all", _TENANT, "tokens", 2 * _TOKENS_PER_MINUTE), each_key]
        return configuration([_TENANT] * KEYS, limits=limits, budgets=[total_budget("bud", _TENANT, "1000")])

    async def round(self, seconds: float) -> dict[str, list[float]]:
        """Ask for so long; return the milliseconds of each request, by gateway. Raises RuntimeError at a refusal."""
        found: dict[str, list[float]] = {name: [] for name in self._ports}
        interval = 1 / (self._requests_per_second * len(self._ports))
        began = time.monotonic()
        tasks = []
        turns = itertools.cycle(self._ports)
        for number in range(int(seconds / interval)):
            await asyncio.sleep(max(began + number * interval - time.monotonic(), 0))
            name = next(turns)
            request = self._requests[number // len(self._ports) % KEYS]
            tasks.append(asyncio.create_task(self._ask(name, request, found[name])))
        await asyncio.gather(*tasks)
        return found

    def close(self) -> None:
        """Close all connections."""
        for connections in self._idle.values():
            for connection in connections:
                connection.close()

    async def _ask(self, name: str, request: bytes, found: list[float]) -> None:
        idle = self._idle[name]
        connection = idle.pop() if idle else await Connection.open(self._ports[name])
        began = time.perf_counter()
        answer = await connection.ask(request)
        found.append((time.perf_counter() - began) * 1e3)
        if answer.status != 200:
            raise RuntimeError(f"gateway {name!r} refused at steady load: {answer.body.decode()[:500]}")
        idle.append(connection)
