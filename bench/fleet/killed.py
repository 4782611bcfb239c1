"""A gateway is killed while it holds slots, tokens and money: how long until another can have all of them."""

import asyncio
import time
from dataclasses import dataclass
from typing import Any, Final

from bench.fleet.connection import Answer, Connection, chat_request
from bench.fleet.fleet import (
    INPUT_PICO_USD,
    OUTPUT_PICO_USD,
    Fleet,
    chat_body,
    configuration,
    key_of,
    tenant_limit,
    total_budget,
)
from contracts.pricing.money import usd
from gateway.limits.estimates.output_estimates import DEFAULT_TOKENS

SLOTS: Final = 8
_INPUT_TOKENS: Final = 200
_OUTPUT_TOKENS: Final = DEFAULT_TOKENS  # what is reserved at once as long as nothing was learned
_TOKENS: Final = _INPUT_TOKENS + _OUTPUT_TOKENS
_PICO_USD: Final = _INPUT_TOKENS * INPUT_PICO_USD + _OUTPUT_TOKENS * OUTPUT_PICO_USD
_SLOW_MS: Final = 200.0  # a token, so that the answers last longer than the measurement
_POLL_SECONDS: Final = 0.1
_STEP_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Freed:
    """Seconds from the kill until the whole amount could be had elsewhere; `None`: not within the time.

    `slots_admitted` are how many of `SLOTS + 3` requests at once were then let in.
    """

    slots_seconds: float | None
    slots_admitted: int
    tokens_seconds: float | None
    money_seconds: float | None


class KilledGateway:
    """What the first gateway of a fleet holds when it is killed, and the second gateway's view of it.

    Slots belong to one tenant, money to another. Whoever asks for tokens and is refused gets a place kept, which
    counts; so each moment that is looked at has a tenant of its own with the same limit, asked once.
    """

    def __init__(self, until_seconds: float, money_until_seconds: float | None = None) -> None:
        """Look for the given number of seconds after the kill; for money, whose leases are longer, for as many as are
        said.
        """
        steps = int(until_seconds / _STEP_SECONDS) + 1
        self._moments = [number * _STEP_SECONDS for number in range(steps)]
        self._until_seconds = until_seconds
        self._money_until_seconds = until_seconds if money_until_seconds is None else money_until_seconds
        self._tenants = ["slots", "money", *(f"tokens-{number}" for number in range(steps))]
        self._held: list[Connection] = []

    def configuration(self) -> dict[str, Any]:
        """Return the fleet's file: the limit and the budget are exactly what the killed gateway holds of them."""
        tokens = [tenant_limit(f"{name}-limit", name, "tokens", _TOKENS) for name in self._tenants[2:]]
        return configuration(
            self._tenants,
            limits=[tenant_limit("slots-limit", "slots", "concurrency", SLOTS, None), *tokens],
            budgets=[total_budget("money-budget", "money", format(usd(_PICO_USD), "f"))],
        )

    async def measure(self, fleet: Fleet) -> Freed:
        """Fill all limits at the first gateway, kill it, and ask the second until it can have everything.

        Raises RuntimeError if the first did not get what it asked for, or the second got any of it before.
        """
        first, second = fleet.gateways[0], fleet.gateways[1]
        try:
            answers = [await self._hold(first.port, 0) for _ in range(SLOTS)]
            answers += [await self._hold(first.port, number) for number in range(1, len(self._tenants))]
            for answer in answers:
                if answer.status != 200:
                    raise RuntimeError(f"the gateway to be killed was refused: {answer.body.decode()[:300]}")
            # the first moment's own tenant is asked as well: before the kill nothing is free
            for tenant in (0, 1, 2):
                if (await self._hold(second.port, tenant)).status != 429:
                    raise RuntimeError(f"{self._tenants[tenant]}: more than the limit was held by two gateways")
            await asyncio.sleep(1.0)  # so that the streams are in progress
            first.kill()
            killed_at = time.monotonic()
            tokens = asyncio.create_task(self._until_tokens(second.port, killed_at))
            money = asyncio.create_task(self._until_held(second.port, 1, killed_at, self._money_until_seconds))
            slots_seconds = await self._until_held(second.port, 0, killed_at, self._until_seconds)
            more = [await self._hold(second.port, 0) for _ in range(SLOTS + 2)]
            admitted = sum(answer.status == 200 for answer in more) + (slots_seconds is not None)
            return Freed(slots_seconds, admitted, await tokens, await money)
        finally:
            for connection in self._held:
                connection.close()

    async def _hold(self, port: int, tenant: int) -> Answer:
        """Start a request that takes the whole of its tenant's limit, or a slot, and leave it running."""
        body = chat_body(_INPUT_TOKENS, _OUTPUT_TOKENS, gap_ms=_SLOW_MS, max_tokens=_OUTPUT_TOKENS)
        connection = await Connection.open(port)
        answer = await connection.begin(chat_request(key_of(tenant), body, retries=0))
        if answer.status == 200:
            self._held.append(connection)
        else:
            connection.close()
        return answer

    async def _until_held(self, port: int, tenant: int, killed_at: float, until_seconds: float) -> float | None:
        while time.monotonic() - killed_at < until_seconds:
            if (await self._hold(port, tenant)).status == 200:
                return time.monotonic() - killed_at
            await asyncio.sleep(_POLL_SECONDS)
        return None

    async def _until_tokens(self, port: int, killed_at: float) -> float | None:
        freed: list[float] = []
        for number, moment in enumerate(self._moments[1:], start=1):
            await asyncio.sleep(max(killed_at + moment - time.monotonic(), 0))
            if (await self._hold(port, 2 + number)).status == 200:
                freed.append(time.monotonic() - killed_at)
            else:
                freed.clear()
        return freed[0] if freed else None
