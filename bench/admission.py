"""Whether limits and budgets hold, and what they cost: the decision in memory, Redis, and gateways under load."""

import asyncio
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

import uvloop

from bench import identity
from bench.fleet.crowd import Demand
from bench.fleet.decision import Decision, Quantiles, quantiles
from bench.fleet.fleet import Fleet
from bench.fleet.killed import SLOTS, Freed, KilledGateway
from bench.fleet.redis_server import RedisServer
from bench.fleet.shows import GATEWAYS, MoneyShown, TokensShown, agreement, show_money, show_tokens
from bench.fleet.steady_load import SteadyLoad
from bench.fleet.waiting import CLIENTS, Outcome, WaitingClients
from bench.report import Report, run_bench

MUST_P50_US: Final = 10
MUST_P99_US: Final = 40
MUST_ADDED_P99_MS: Final = 1.0
MUST_WITHOUT_ROUND_TRIP: Final = 0.90
MUST_UTILISATION: Final = 0.90
MUST_IN_FLIGHT: Final = 0.10
MUST_UNUSED: Final = 0.02
EXPIRY_SECONDS: Final = 10.0  # after its last sign of life a gateway holds nothing any more
MUST_FREED_SECONDS: Final = EXPIRY_SECONDS + 2
# A budget's lease is kept for longer: what it covers can be spent while Redis does not answer for a minute.
MUST_MONEY_FREED_SECONDS: Final = 92.0
TOKENS_PER_MINUTE: Final = 120_000

_ARRIVE_WITHIN_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 20.0  # for what a killed gateway held
_MONEY_LOOK_SECONDS: Final = 100.0
_FINISH_SECONDS: Final = 60.0  # what was reserved in the last minute is to be used, not given back by a drop
_PICO: Final = 10**12


def measure(report: Report) -> None:
    """Measure decisions, what Redis adds, four gateways under one limit or budget, and clients that wait as told."""
    _measure_decision(report)
    _measure_keys(report)
    if not RedisServer.is_installed():
        report.add_absent("fleet", "", "there is no redis-server: apt-get install redis-server")
        return
    _part(report, "redis", _measure_redis)
    # In a quick run together: of the fleets only what is counted has a bound there, not how long anything takes.
    with ThreadPoolExecutor(len(_FLEETS) if report.quick else 1) as pool:
        reports = [Report(report.bench, quick=report.quick) for _ in _FLEETS]
        list(pool.map(_part, reports, _FLEETS, _FLEETS.values()))
    for fleet in reports:
        report.rows += fleet.rows


def _part(report: Report, name: str, part: Callable[[Report, str], None]) -> None:
    """Measure one part with a Redis of its own. What was measured before is not lost with a part that fails."""
    with RedisServer() as redis:
        try:
            part(report, redis.url)
        except (RuntimeError, OSError, EOFError, TimeoutError) as error:
            print(f"admission, {name}: {error}", file=sys.stderr)
            report.add(f"{name}_measured", 0, "of 1; what went wrong is on standard error", must=1)


def _measure_decision(report: Report) -> None:
    """On one core, the median of several rounds; what reading the clock costs by itself is subtracted."""
    rounds, requests = (5, 5_000) if report.quick else (15, 20_000)
    with _one_core():
        decision = Decision()
        found = [decision.round(requests) for _ in range(rounds)]
    musts = {"reserve": (MUST_P50_US, MUST_P99_US)}
    for verb in ("reserve", "take", "settle", "rate_headers"):
        must_p50, must_p99 = musts.get(verb, (None, None))
        each: list[Quantiles] = [one[verb] for one in found]
        p50, p99 = statistics.median(one.p50 for one in each), statistics.median(one.p99 for one in each)
        report.add(f"decision_{verb}_p50", p50 / 1e3, "us", must=must_p50, better="lower", n=rounds * requests)
        report.add(f"decision_{verb}_p99", p99 / 1e3, "us", must=must_p99, better="lower", n=rounds * requests)


@contextmanager
def _one_core() -> Iterator[None]:
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def _measure_keys(report: Report) -> None:
    """Record what `bench.identity` measures of 100,000 keys."""
    keys = Report("identity", quick=report.quick)
    identity.measure(keys)
    for row in keys.rows:
        if row.value is not None and row.must is not None:
            report.add(f"keys_{row.metric}", row.value, row.unit, must=row.must, better="lower", n=row.n)


def _measure_redis(report: Report, redis_url: str) -> None:
    rounds, seconds = (3, 3.0) if report.quick else (9, 10.0)
    found, without = uvloop.run(_steady_load(redis_url, rounds, seconds))
    n = sum(len(one["redis"]) for one in found)
    report.add("redis_without_round_trip", without, "share of requests", must=MUST_WITHOUT_ROUND_TRIP, n=n)
    each = [{name: quantiles(times) for name, times in one.items()} for one in found]
    added_p50 = statistics.median(one["redis"].p50 - one["memory"].p50 for one in each)
    added_p99 = statistics.median(one["redis"].p99 - one["memory"].p99 for one in each)
    report.add("redis_added_p50", added_p50, "ms", better="lower", n=n)
    report.add("redis_added_p99", added_p99, "ms", must=MUST_ADDED_P99_MS, better="lower", n=n)
    for name in ("memory", "redis"):
        report.add(f"{name}_request_p99", statistics.median(one[name].p99 for one in each), "ms", better="lower", n=n)


async def _steady_load(redis_url: str, rounds: int, seconds: float) -> tuple[list[dict[str, list[float]]], float]:
    """Return the milliseconds of each round's requests by store, and Redis' share of requests without a round trip."""
    config = SteadyLoad.configuration()
    async with Fleet(1, config, "") as memory, Fleet(1, config, redis_url) as shared:
        gateways = {"memory": memory.gateways[0], "redis": shared.gateways[0]}
        load = SteadyLoad(gateways)
        await load.round(seconds)  # until the leases are as large as this load wants them
        before = (await gateways["redis"].health())["counters"]["requests_with_round_trip"]
        found = [await load.round(seconds) for _ in range(rounds)]
        after = (await gateways["redis"].health())["counters"]["requests_with_round_trip"]
        load.close()
    return found, 1 - (after - before) / sum(len(one["redis"]) for one in found)


def _measure_tokens(report: Report, redis_url: str) -> None:
    seconds = 45.0 if report.quick else 180.0
    starts, finish = (10.0, 0.0) if report.quick else (60.0, _FINISH_SECONDS)
    demand = Demand(clients=200, seconds=seconds, starts_within_seconds=starts, gap_ms=150.0, finish_seconds=finish)
    shown = uvloop.run(show_tokens(redis_url, TOKENS_PER_MINUTE, demand))
    n = len(shown.books.served)
    most, used, reserved = shown.most_in_a_window, shown.utilisation, shown.least_reserved(demand)
    unit = f"share of {TOKENS_PER_MINUTE} tokens/min"
    full = not report.quick  # 45 seconds have no whole minute after the first
    report.add("tokens_most_in_60_s", most, unit, must=1.0, better="lower", n=n)
    report.add("tokens_utilisation", used, _over(unit, seconds), must=MUST_UTILISATION if full else None, n=n)
    report.add("tokens_least_reserved", reserved, _over(unit, seconds), must=MUST_IN_FLIGHT if full else None, n=n)
    report.add("tokens_misbooked", len(shown.books.misbooked), "records", must=0, better="lower", n=n)
    overdraft = shown.books.overdraft_tokens / max(shown.books.tokens, 1)
    report.add("tokens_overdraft", overdraft, "share of charged tokens", better="lower", n=n)
    _add_first_retries(report, "tokens", shown)
    _add_agreement(report, "tokens", shown)


def _measure_money(report: Report, redis_url: str) -> None:
    """The budget is what 200 clients spend in the first half of the time, so that what comes back is spent too."""
    seconds, usd_ = (75.0, 0.12) if report.quick else (180.0, 0.75)
    demand = Demand(clients=200, seconds=seconds, starts_within_seconds=10.0, gap_ms=100.0)
    shown = uvloop.run(show_money(redis_url, int(usd_ * _PICO), demand))
    n = len(shown.books.served)
    excess = max(shown.books.charged_pico_usd - shown.budget_pico_usd, 0)
    report.add("money_beyond_budget", excess, "pico-USD", must=0, better="lower", n=n)
    cost = shown.books.cost_pico_usd / shown.budget_pico_usd
    report.add("money_cost", cost, _over("share of the budget", seconds), better="lower", n=n)
    report.add(
        "money_unused", shown.unused, _over("share of the budget", seconds), must=MUST_UNUSED, better="lower", n=n
    )
    spent_after = shown.seconds_until(1 - MUST_UNUSED)
    if spent_after is not None:
        report.add("money_spent_after", spent_after, "s", better="lower", n=n)
    probes = len(shown.probes)
    report.add("money_refused_when_spent", shown.refused_when_spent, "share of requests", must=1.0, n=probes)
    refused = len(shown.crowd.refused)
    report.add("money_refused_otherwise", shown.refused_otherwise, "requests", must=0, better="lower", n=refused)
    _add_agreement(report, "money", shown)


def _measure_killed(report: Report, redis_url: str) -> None:
    async def run() -> Freed:
        killed = KilledGateway(_LOOK_SECONDS, _MONEY_LOOK_SECONDS)
        async with Fleet(2, killed.configuration(), redis_url) as fleet:
            return await killed.measure(fleet)

    freed = uvloop.run(run())
    for name, seconds, looked, must in (
        ("slots", freed.slots_seconds, _LOOK_SECONDS, MUST_FREED_SECONDS),
        ("tokens", freed.tokens_seconds, _LOOK_SECONDS, MUST_FREED_SECONDS),
        ("money", freed.money_seconds, _MONEY_LOOK_SECONDS, MUST_MONEY_FREED_SECONDS),
    ):
        found = looked if seconds is None else seconds
        unit = "s" if seconds is not None else "s, and not free by then"
        report.add(f"killed_{name}_free_after", found, unit, must=must, better="lower")
    report.add("killed_slots_admitted", freed.slots_admitted, f"of {SLOTS} slots", must=SLOTS)
    above = max(freed.slots_admitted - SLOTS, 0)
    report.add("killed_slots_admitted_beyond", above, f"beyond {SLOTS} slots", must=0, better="lower")


def _measure_waiting(report: Report, redis_url: str) -> None:
    """One key for all clients and a key for each: tenants of their own, at the same time."""

    async def run(gateways: int, url: str) -> list[list[Outcome]]:
        clients = WaitingClients(("one", "each"), gateways)
        async with Fleet(gateways, clients.configuration(), url) as fleet:
            shared = clients.measure(0, fleet.ports, 1, _ARRIVE_WITHIN_SECONDS)
            own = clients.measure(1, fleet.ports, CLIENTS, _ARRIVE_WITHIN_SECONDS)
            return list(await asyncio.gather(shared, own))

    async def both() -> list[list[list[Outcome]]]:
        return list(await asyncio.gather(run(1, ""), run(GATEWAYS, redis_url)))

    for store, found in zip(("memory", "redis"), uvloop.run(both()), strict=True):
        for keys, outcomes in zip(("one_key", "own_keys"), found, strict=True):
            first = sum(outcome.is_first_retry for outcome in outcomes)
            report.add(f"waiting_{store}_{keys}", first, f"of {CLIENTS} at the first retry", must=CLIENTS, n=CLIENTS)


_FLEETS: Final[dict[str, Callable[[Report, str], None]]] = {
    "tokens": _measure_tokens,
    "money": _measure_money,
    "killed": _measure_killed,
    "waiting": _measure_waiting,
}


def _add_first_retries(report: Report, what: str, shown: TokensShown) -> None:
    for name, with_place in (("first_retries_admitted", False), ("kept_places_admitted", True)):
        tries = shown.crowd.first_retries(with_place=with_place)
        if tries:
            admitted = sum(one.answer.status == 200 for one in tries) / len(tries)
            report.add(f"{what}_{name}", admitted, "share of first retries", n=len(tries))
        else:
            report.add_absent(f"{what}_{name}", "share of first retries", "nobody had to wait for so short a time")


def _add_agreement(report: Report, what: str, shown: TokensShown | MoneyShown) -> None:
    found = agreement(shown.crowd, shown.books)
    n = found.requests
    report.add(f"{what}_without_record", found.without_record, "requests", must=0, better="lower", n=n)
    report.add(f"{what}_unrecorded", found.tokens_unrecorded, "tokens", must=0, better="lower", n=n)
    report.add(f"{what}_different", found.whole_but_different, "answers", must=0, better="lower", n=n)


def _over(unit: str, seconds: float) -> str:
    return f"{unit}, {seconds:g} s"


if __name__ == "__main__":
    sys.exit(run_bench("admission", measure))
