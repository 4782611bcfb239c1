"""Redis stands still (SIGSTOP) for a minute under two gateways: served from leases, never overspent, nobody waits.

Three tenants have hard budgets. The first spends steadily, at both gateways, and has most of its budget left: nothing
of it may be refused. The second's budget runs out during the freeze, so that its leases are used up; afterwards it
spends what is left. The third asks for the first time while Redis stands still, so no lease covers it: it is refused,
and may wait for Redis at most once. With `--quick` the freeze lasts 15 s instead of 60.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bench.fleet.connection import Answer, Connection, chat_request
from bench.fleet.fleet import INPUT_PICO_USD, OUTPUT_PICO_USD, Fleet, chat_body, configuration, key_of, total_budget
from bench.fleet.redis_server import RedisServer
from bench.report import Report

_FROZEN_SECONDS: Final = 60.0
_QUICK_SECONDS: Final = 15.0
_WARM_SECONDS: Final = 10.0
_EACH_SECONDS: Final = 0.25  # between two requests of a tenant at a gateway
_BACK_SECONDS: Final = 5.0
_INPUT, _OUTPUT = 20, 20
_COST: Final = _INPUT * INPUT_PICO_USD + _OUTPUT * OUTPUT_PICO_USD
_PLENTY_USD: Final = "1"
_LITTLE_USD: Final = "0.005"  # some 166 requests
_LITTLE: Final = 5_000_000_000
_SPENT_SECONDS: Final = 30.0
# One request may wait for one time-out of Redis, 250 ms. The rest is what a busy machine adds to an answer.
_LONGEST_MS: Final = 1_000.0
_WAITED_MS: Final = 200.0
_MOST_WAITED: Final = 20  # of those in progress before the first time-out, and a few that a busy machine holds up


def measure(report: Report) -> None:
    """Freeze Redis under load, and count what is refused, overspent and waited for."""
    if not RedisServer.is_installed():
        for name, unit in _ROWS:
            report.add_absent(f"redis_frozen_{name}", unit, "there is no redis-server")
        return
    seconds = _QUICK_SECONDS if report.quick else _FROZEN_SECONDS
    asyncio.run(_measure(report, seconds))


_ROWS: Final = (
    ("refused", "requests"),
    ("longest", "ms"),
    ("waited", "requests"),
    ("overspent", "pico-USD"),
    ("refused_after", "requests"),
    ("left_unused", "pico-USD"),
)


class _Client:
    """A tenant's requests at one gateway, one after the other at a pace."""

    def __init__(self, port: int, key: int) -> None:
        self._port = port
        body = chat_body(_INPUT, _OUTPUT, max_tokens=_OUTPUT, streamed=False)
        self._request = chat_request(key_of(key), body)
        self._connection: Connection | None = None
        self.answers: list[Answer] = []
        self.times_ms: list[float] = []

    async def ask(self) -> Answer:
        if self._connection is None:
            self._connection = await Connection.open(self._port)
        began = time.perf_counter()
        answer = await self._connection.ask(self._request)
        self.times_ms.append((time.perf_counter() - began) * 1e3)
        self.answers.append(answer)
        return answer

    async def keep_asking(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            began = time.monotonic()
            await self.ask()
            await asyncio.sleep(max(began + _EACH_SECONDS - time.monotonic(), 0))

    def begin_anew(self) -> None:
        self.answers, self.times_ms = [], []

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


async def _measure(report: Report, seconds: float) -> None:
    budgets = [total_budget("plenty", "steady", _PLENTY_USD), total_budget("little", "small", _LITTLE_USD)]
    budgets.append(total_budget("unused", "new", _PLENTY_USD))
    config = configuration(["steady", "small", "new"], budgets=budgets)
    with RedisServer() as redis:
        async with Fleet(2, config, redis.url) as fleet:
            steady, small, new = ([_Client(port, key) for port in fleet.ports] for key in range(3))
            clients = [*steady, *small, *new]
            await asyncio.gather(*(client.keep_asking(_WARM_SECONDS) for client in (*steady, *small)))
            for client in clients:
                client.begin_anew()
            with _frozen(redis):
                await asyncio.gather(
                    *(client.keep_asking(seconds) for client in steady),
                    *(_use_up(client, seconds) for client in small),
                    *(_ask_later(client) for client in new),
                )
                frozen = [client.answers for client in steady]
                times_ms = [each for client in clients for each in client.times_ms]
            refused = sum(answer.status != 200 for answers in frozen for answer in answers)
            report.add("redis_frozen_refused", refused, "requests", must=0, better="lower", n=sum(map(len, frozen)))
            report.add(
                "redis_frozen_longest",
                max(times_ms),
                "ms",
                must=_LONGEST_MS,
                better="lower",
                n=len(times_ms),
            )
            waited = sum(each >= _WAITED_MS for each in times_ms)
            report.add("redis_frozen_waited", waited, "requests", must=_MOST_WAITED, better="lower", n=len(times_ms))
            for client in clients:
                client.begin_anew()
            await asyncio.sleep(_BACK_SECONDS)
            await asyncio.gather(*(client.keep_asking(_BACK_SECONDS) for client in (*steady, *new)))
            after = [answer for client in (*steady, *new) for answer in client.answers]
            refused = sum(answer.status != 200 for answer in after)
            report.add("redis_frozen_refused_after", refused, "requests", must=0, better="lower", n=len(after))
            await asyncio.gather(*(_spend_all(client) for client in small))
            for client in clients:
                client.close()
            served = (await fleet.close_books()).served
    spent = sum(record.cost_pico_usd or 0 for record in served if record.who.tenant == "small")
    report.add("redis_frozen_overspent", max(spent - _LITTLE, 0), "pico-USD", must=0, better="lower", n=len(served))
    # Less than one request costs may be left.
    report.add("redis_frozen_left_unused", max(_LITTLE - spent, 0), "pico-USD", must=_COST, better="lower", n=1)


@contextmanager
def _frozen(redis: RedisServer) -> Iterator[None]:
    redis.freeze()
    try:
        yield
    finally:
        redis.go_on()


async def _use_up(client: _Client, seconds: float) -> None:
    """Spend as fast as may be until the lease is used up, then ask at a pace."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and (await client.ask()).status == 200:
        pass
    await client.keep_asking(max(until - time.monotonic(), 0))


async def _ask_later(client: _Client) -> None:
    """Ask for the first time while Redis does not answer."""
    await client.ask()
    await client.keep_asking(2.0)


async def _spend_all(client: _Client) -> None:
    """Spend until the budget itself refuses, as told to try again until then."""
    until = time.monotonic() + _SPENT_SECONDS
    spent = 0
    while spent < 3 and time.monotonic() < until:
        answer = await client.ask()
        if answer.error_code == "insufficient_quota":
            spent += 1
        if answer.status != 200:
            await asyncio.sleep(min(answer.wait_seconds or 1.0, 2.0))
