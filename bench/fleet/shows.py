"""A crowd at four gateways under one limit of tokens, or under one budget, and what the books say afterwards."""

import asyncio
from dataclasses import dataclass
from typing import Final

from bench.fleet.books import SECOND_NS, Books
from bench.fleet.connection import Answer, Connection, chat_request
from bench.fleet.crowd import Crowd, Demand
from bench.fleet.fleet import Fleet, chat_body, configuration, key_of, tenant_limit, total_budget
from contracts.pricing.money import usd

TENANT: Final = "acme"
GATEWAYS: Final = 4
_WINDOW_NS: Final = 60 * SECOND_NS
_PROBES_EACH: Final = 5  # a gateway, when a budget is spent
_PROBE_TOKENS: Final = 4000
_WARM_UP_SECONDS: Final = 10.0  # after the last client's start


@dataclass(frozen=True, slots=True)
class Agreement:
    """How what the clients received agrees with the records."""

    requests: int
    without_record: int
    tokens_unrecorded: int  # received, beyond what the request's record has
    whole_but_different: int  # answers whose usage or length is not the record's


@dataclass(frozen=True, slots=True)
class TokensShown:
    """A run under a limit of tokens a minute."""

    limit: int
    crowd: Crowd
    books: Books

    @property
    def most_in_a_window(self) -> float:
        """Return the most charged in any 60 seconds, as a share of the limit."""
        return self.books.most_in_a_window(_WINDOW_NS) / self.limit

    @property
    def utilisation(self) -> float:
        """Return what was charged in whole minutes after the first, as a share of what is allowed in them.

        Of a run of less than two minutes: in its first, or as much as there is of it.
        """
        began_ns, ended_ns = self.crowd.began_ns, self.crowd.ended_ns
        minutes = (ended_ns - began_ns) // _WINDOW_NS
        if minutes < 2:
            return self.books.charged(began_ns, min(began_ns + _WINDOW_NS, ended_ns)) / self.limit
        charged = self.books.charged(began_ns + _WINDOW_NS, began_ns + minutes * _WINDOW_NS)
        return charged / (self.limit * (minutes - 1))

    def least_reserved(self, demand: Demand) -> float:
        """Return the least that requests in progress held together, from the warm-up's end, as a share of the limit."""
        warm_ns = self.crowd.began_ns + int((demand.starts_within_seconds + _WARM_UP_SECONDS) * SECOND_NS)
        return self.books.least_reserved(warm_ns, self.crowd.ended_ns) / self.limit


@dataclass(frozen=True, slots=True)
class MoneyShown:
    """A run under a hard budget, and the requests made when it was spent."""

    budget_pico_usd: int
    crowd: Crowd
    books: Books
    probes: list[Answer]

    @property
    def unused(self) -> float:
        """Return the share of the budget that was not spent although there was demand."""
        return 1 - self.books.charged_pico_usd / self.budget_pico_usd

    def seconds_until(self, share: float) -> float | None:
        """Return how long it took until requests that were served until the end had spent that share."""
        spent = 0
        for record in sorted(self.books.served, key=lambda record: record.started_at_ns + record.duration_ns):
            spent += record.charged_pico_usd or 0
            if spent >= share * self.budget_pico_usd:
                return (record.started_at_ns + record.duration_ns - self.crowd.began_ns) / SECOND_NS
        return None

    @property
    def refused_when_spent(self) -> float:
        """Return the share of requests after exhaustion that were told so."""
        told = [answer for answer in self.probes if (answer.status, answer.error_code) == (429, "insufficient_quota")]
        return len(told) / len(self.probes)

    @property
    def refused_otherwise(self) -> int:
        """Return the number of refusals during the run that were for another reason than the budget."""
        return sum(one.answer.error_code != "insufficient_quota" for one in self.crowd.refused)


async def show_tokens(redis_url: str, limit: int, demand: Demand, gateways: int = GATEWAYS) -> TokensShown:
    """Run a crowd under a limit of tokens a minute for the tenant as a whole."""
    limits = [tenant_limit("tokens", TENANT, "tokens", limit)]
    config = configuration([TENANT] * demand.clients, limits=limits)
    async with Fleet(gateways, config, redis_url) as fleet:
        crowd = Crowd(demand, fleet.ports)
        await crowd.run()
        return TokensShown(limit, crowd, await fleet.close_books())


async def show_money(redis_url: str, budget_pico_usd: int, demand: Demand, gateways: int = GATEWAYS) -> MoneyShown:
    """Run a crowd under a hard budget of the tenant, which it is to spend well before the end."""
    budgets = [total_budget("money", TENANT, format(usd(budget_pico_usd), "f"))]
    config = configuration([TENANT] * demand.clients, budgets=budgets)
    async with Fleet(gateways, config, redis_url) as fleet:
        crowd = Crowd(demand, fleet.ports)
        await crowd.run()
        for gateway in fleet.gateways:
            await gateway.is_quiet(within_seconds=15.0)
        request = chat_request(key_of(0), chat_body(_PROBE_TOKENS, 100, streamed=False))
        probes = await asyncio.gather(*(_probe(port, request) for port in fleet.ports for _ in range(_PROBES_EACH)))
        return MoneyShown(budget_pico_usd, crowd, await fleet.close_books(), probes)


def agreement(crowd: Crowd, books: Books) -> Agreement:
    """Compare every answer that a client received, wholly or in part, with its record."""
    without, unrecorded, different = 0, 0, 0
    for one in crowd.admitted:
        answer = one.answer
        record = books.by_id.get(answer.request_id)
        if record is None:
            without += 1
            continue
        recorded = record.usage.output_tokens or 0
        unrecorded += max(answer.tokens - recorded, 0)
        if answer.is_whole and (answer.tokens != recorded or answer.usage != (record.usage.input_tokens, recorded)):
            different += 1
    return Agreement(len(crowd.admitted), without, unrecorded, different)


async def _probe(port: int, request: bytes) -> Answer:
    connection = await Connection.open(port)
    try:
        return await connection.ask(request)
    finally:
        connection.close()
