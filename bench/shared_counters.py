"""What counting together costs: four gateways at one Redis beside one alone, and a Redis Cluster beside one Redis.

What is compared is asked in turns, so that a stall of the machine hits all alike.
"""

import asyncio
import statistics
import sys
from collections.abc import Sequence
from typing import Any, Final

import uvloop

from bench.fleet.connection import Connection, chat_request
from bench.fleet.decision import quantiles
from bench.fleet.fleet import INPUT_PICO_USD, OUTPUT_PICO_USD, Fleet, chat_body, key_of, total_budget
from bench.fleet.gateway import GatewayProcess
from bench.fleet.redis_server import RedisServer
from bench.fleet.steady_load import INPUT_TOKENS, KEYS, OUTPUT_TOKENS, SteadyLoad
from bench.load.machine import spent_by
from bench.report import Report, run_bench
from contracts.pricing.money import usd
from tests.backends.counters.redis_fleet import RedisCluster, folder_of_fleet, running

MUST_CPU: Final = 1.1
MUST_CLUSTER_P99: Final = 1.5
_GATEWAYS: Final = 4
_NAMESPACE: Final = "counters"  # the gateways' own: its slot's primary has the replicas
_CPU_REQUESTS_PER_SECOND: Final = 25.0  # at each gateway
_SPENDING: Final = "spending"
_COST_PICO_USD: Final = INPUT_TOKENS * INPUT_PICO_USD + OUTPUT_TOKENS * OUTPUT_PICO_USD
_BUDGET_REQUESTS: Final = 1000
_QUICK_BUDGET_REQUESTS: Final = 200
_TRIES_WHEN_SPENT: Final = 20


def measure(report: Report) -> None:
    """Measure CPU per request, a budget that four gateways spend, and what a cluster adds."""
    if not RedisServer.is_installed():
        report.add_absent("gateways_cpu", "x one gateway", "there is no redis-server", must=MUST_CPU)
        return
    rounds, seconds = (2, 5.0) if report.quick else (6, 12.0)
    budget = _COST_PICO_USD * (_QUICK_BUDGET_REQUESTS if report.quick else _BUDGET_REQUESTS)
    with RedisServer() as one, RedisServer() as several:
        uvloop.run(_compare_fleets(report, (one, several), rounds, seconds, budget))
    with RedisServer() as single, folder_of_fleet() as folder, running(RedisCluster(folder, _NAMESPACE)) as cluster:
        uvloop.run(_compare_servers(report, {"single": single.url, "cluster": cluster.url}, rounds, seconds))


async def _compare_fleets(
    report: Report, servers: tuple[RedisServer, RedisServer], rounds: int, seconds: float, budget: int
) -> None:
    """Load one gateway and four others, each as much, and let the four spend a budget."""
    config = _configuration(budget)
    async with Fleet(1, config, servers[0].url) as alone, Fleet(_GATEWAYS, config, servers[1].url) as fleet:
        gateways = {f"alone-{number}": each for number, each in enumerate(alone.gateways)}
        gateways |= {f"fleet-{number}": each for number, each in enumerate(fleet.gateways)}
        load = SteadyLoad(gateways, _CPU_REQUESTS_PER_SECOND)
        await load.round(seconds)  # until the leases are as large as this load wants them
        members = ((alone.gateways, servers[0]), (fleet.gateways, servers[1]))
        before = [_spent(*each) for each in members]
        counts = [await load.round(seconds) for _ in range(rounds)]
        after = [_spent(*each) for each in members]
        load.close()
        asked = [
            sum(len(times) for one in counts for key, times in one.items() if key.startswith(name))
            for name in ("alone", "fleet")
        ]
        each = [(end - begin) / requests * 1e6 for begin, end, requests in zip(before, after, asked, strict=True)]
        report.add(
            "gateways_cpu", each[1] / each[0], "x one gateway", must=MUST_CPU, stretch=1.03, better="lower", n=asked[1]
        )
        for name, value, n in zip(("one_gateway_cpu", "four_gateways_cpu"), each, asked, strict=True):
            report.add(name, value, "us of gateways and Redis for each request", better="lower", n=n)
        await _spend(fleet.gateways)
        books = await fleet.close_books()
    spent = [record for record in books.served if record.who.tenant == _SPENDING]
    charged = sum(record.charged_pico_usd or 0 for record in spent)
    cost = sum(record.cost_pico_usd or 0 for record in spent)
    n = len(spent)
    report.add("budget_exceeded", max(charged - budget, 0), "pico-USD charged", must=0, better="lower", n=n)
    report.add("budget_charges_off_cost", abs(charged - cost), "pico-USD", must=0, better="lower", n=n)
    report.add("budget_unused", 1 - charged / budget, "share", must=0.02, better="lower", n=n)


async def _compare_servers(report: Report, urls: dict[str, str], rounds: int, seconds: float) -> None:
    """Load a gateway that counts by itself, and one at each Redis, and compare what the latter add."""
    config = SteadyLoad.configuration()
    async with (
        Fleet(1, config, "") as memory,
        Fleet(1, config, urls["single"]) as single,
        Fleet(1, config, urls["cluster"]) as cluster,
    ):
        fleets = {"memory": memory, "single": single, "cluster": cluster}
        load = SteadyLoad({name: fleet.gateways[0] for name, fleet in fleets.items()})
        await load.round(seconds)
        found = [await load.round(seconds) for _ in range(rounds)]
        load.close()
    p99 = {name: statistics.median(quantiles(one[name]).p99 for one in found) for name in fleets}
    n = sum(len(one["cluster"]) for one in found)
    for name, value in p99.items():
        report.add(f"request_p99_{name}", value, "ms", better="lower", n=n)
    added = {name: p99[name] - p99["memory"] for name in urls}
    unjudged = "" if added["single"] > 0 else "one Redis added nothing that this machine could measure"
    ratio = added["cluster"] / added["single"] if added["single"] > 0 else 0.0
    report.add(
        "cluster_added_p99",
        ratio,
        "x what one Redis adds",
        must=MUST_CLUSTER_P99,
        stretch=1.1,
        better="lower",
        n=n,
        unjudged=unjudged,
    )


def _configuration(budget_pico_usd: int) -> dict[str, Any]:
    config = SteadyLoad.configuration()
    config["keys"].append({"key": key_of(KEYS), "tenant": _SPENDING, "id": f"key_{KEYS}"})
    config["budgets"].append(total_budget("spent", _SPENDING, str(usd(budget_pico_usd))))
    return config


def _spent(gateways: Sequence[GatewayProcess], redis: RedisServer) -> float:
    """Return the CPU seconds that gateways and their Redis have used."""
    return sum(spent_by(each.process_id).cpu_seconds for each in gateways) + spent_by(redis.process_id).cpu_seconds


async def _spend(gateways: Sequence[GatewayProcess]) -> None:
    """Ask each gateway until it has refused many times in a row for want of money."""
    body = chat_body(INPUT_TOKENS, OUTPUT_TOKENS, max_tokens=OUTPUT_TOKENS, streamed=False)
    request = chat_request(key_of(KEYS), body)

    async def ask(gateway: GatewayProcess) -> None:
        connection, refused = await Connection.open(gateway.port), 0
        try:
            while refused < _TRIES_WHEN_SPENT:
                answer = await connection.ask(request)
                if answer.status == 200:
                    refused = 0
                elif answer.error_code == "insufficient_quota":
                    refused += 1
                    await asyncio.sleep(0.1)
                else:
                    raise RuntimeError(
                        f"gateway {gateway.name!r} answered {answer.status}: {answer.body.decode()[:300]}"
                    )
        finally:
            connection.close()

    await asyncio.gather(*(ask(each) for each in gateways))


if __name__ == "__main__":
    sys.exit(run_bench("shared_counters", measure))
