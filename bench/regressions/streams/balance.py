"""The default policy shares whole answers evenly among equal replicas, and a model that has recovered is used again.

Three replicas that take 50 ms for everything are asked by 4, 5, 6 and 9 workers, each time by a pool that knows
nothing yet. Then a route with a latency budget leaves a model that takes a second; it turns quick, and is timed until
it answers again.
"""

import asyncio
import itertools
import time
from collections import Counter
from typing import Any, Final

import httpx

from bench.regressions.model_servers import Answer, ModelServer, Write, completion, gateway, target, whole
from bench.report import Report

_WORKERS: Final = (4, 5, 6, 9)
_REPLICAS: Final = ("one", "two", "three")
_SECONDS: Final = 0.05
_BALANCE_MUST: Final = 1.25
_SLOW_SECONDS: Final = 1.0
_BUDGET_MS: Final = 300
_REQUESTS_PER_SECOND: Final = 10
_RECOVERY_MUST: Final = 30.0
_SHARE_MUST: Final = 0.05
_GIVEN_UP_SECONDS: Final = 40.0
_IN_A_ROW: Final = 10  # answers of the recovered model: it is used again


def measure(report: Report) -> None:
    """Add the busiest replica by the mean, the seconds until a recovered model is used, and what a slow one costs."""
    asyncio.run(_measure(report))


class _Models:
    """What the model servers have been asked for, and how long the one of the route takes."""

    def __init__(self) -> None:
        self.sent: Counter[tuple[str, str]] = Counter()  # by pool and replica
        self.first_seconds = _SLOW_SECONDS

    def replica(self, name: str) -> Answer:
        async def answer(body: dict[str, Any], write: Write) -> None:
            self.sent[body["model"], name] += 1
            await asyncio.sleep(_SECONDS)
            await write(whole(completion("Hi", 2)))

        return answer

    async def first(self, body: dict[str, Any], write: Write) -> None:
        await asyncio.sleep(self.first_seconds)
        await write(whole(completion("first", 2)))

    async def second(self, body: dict[str, Any], write: Write) -> None:
        await asyncio.sleep(0.02)
        await write(whole(completion("second", 2)))


async def _measure(report: Report) -> None:
    models = _Models()
    servers = {name: ModelServer(models.replica(name)) for name in _REPLICAS}
    servers |= {"first": ModelServer(models.first), "second": ModelServer(models.second)}
    for server in servers.values():
        await server.start()
    pools: list[dict[str, Any]] = [
        {"name": f"by{count}", "targets": [target(name, servers[name].url) for name in _REPLICAS]} for count in _WORKERS
    ]
    for pool in pools:
        pool["policy"] = "cost"
    pools += [{"name": name, "targets": [target(name, servers[name].url)]} for name in ("first", "second")]
    fallbacks = [{"model": "second"}]
    route = {"name": "route", "choose": [{"model": "first"}], "fallbacks": fallbacks, "latency_budget_ms": _BUDGET_MS}
    try:
        async with gateway(pools, [route]) as client:
            for count in _WORKERS:
                requests = (20 if report.quick else 40) * count
                await _ask_by(client, f"by{count}", count, requests)
                sent = [models.sent[f"by{count}", name] for name in _REPLICAS]
                by_mean = max(sent) * len(sent) / sum(sent)
                report.add(f"balance_busiest_{count}_workers", by_mean, "busiest/mean", must=_BALANCE_MUST,
                           better="lower", n=requests)  # fmt: skip
            share, asked = await _slow_share(client, 10.0 if report.quick else 15.0)
            models.first_seconds = 0.02
            seconds = await _recovery_seconds(client)
    finally:
        for server in servers.values():
            await server.stop()
    report.add("balance_still_slow_share", share, "share", must=_SHARE_MUST, better="lower", n=asked)
    report.add("balance_recovery", seconds, "s", must=_RECOVERY_MUST, better="lower", n=1)


async def _ask_by(client: httpx.AsyncClient, model: str, workers: int, requests: int) -> None:
    numbers = iter(range(requests))

    async def work() -> None:
        for number in numbers:
            await _ask(client, model, f"What is {number} and {model}?")

    await asyncio.gather(*[work() for _ in range(workers)])


async def _ask(client: httpx.AsyncClient, model: str, text: str) -> str:
    messages = [{"role": "user", "content": text}]
    reply = await client.post("/v1/chat/completions", json={"model": model, "messages": messages, "max_tokens": 2})
    return str(reply.json()["choices"][0]["message"]["content"])


async def _slow_share(client: httpx.AsyncClient, seconds: float) -> tuple[float, int]:
    """Return which share of requests a slow model is sent once that is known of it, and of how many."""
    for _ in range(4):
        await _ask(client, "route", "learn")
    asked = []
    for number in range(round(seconds * _REQUESTS_PER_SECOND)):
        asked.append(asyncio.ensure_future(_ask(client, "route", f"slow {number}")))
        await asyncio.sleep(1 / _REQUESTS_PER_SECOND)
    said = await asyncio.gather(*asked)
    return said.count("first") / len(said), len(said)


async def _recovery_seconds(client: httpx.AsyncClient) -> float:
    """Return after how long the first of the given number of answers in a row came from the recovered model."""
    began, in_a_row, since = time.monotonic(), 0, 0.0
    for number in itertools.count():
        at = time.monotonic() - began
        if at > _GIVEN_UP_SECONDS:
            return at
        said = await _ask(client, "route", f"recovered {number}")
        since = since if in_a_row else at
        in_a_row = in_a_row + 1 if said == "first" else 0
        if in_a_row == _IN_A_ROW:
            return since
        await asyncio.sleep(1 / _REQUESTS_PER_SECOND)
    raise AssertionError("the count never ends")
