"""Agents' books and caps: replayed sessions through four gateways that share one Redis and one ledger.

Agents ask a provider of the Messages API and call a tool over MCP, each turn at another gateway. What they write down
of their sessions, by the usage that they receive, is held against `tollkeeper cost report`, to the pico-USD. Agents in
a loop meet a cap on their session, and a tenant's agents one hard budget for tokens and tools.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, NamedTuple

from bench.agent_sessions import (
    MODEL,
    OUTPUT_PICO_USD,
    TOOL_PICO_USD,
    USD_PER_MTOK,
    Agent,
    AgentProvider,
    SessionSeen,
    agents,
    replay,
)
from bench.fleet.fleet import Fleet, key_of, total_budget
from bench.fleet.redis_server import RedisServer
from bench.ingest import CollectorRig
from bench.load.machine import Cores
from bench.report import Report, run_bench
from bench.store_process import StoreProcess
from contracts.pricing.money import usd

SESSIONS: Final = 1_000
_QUICK_SESSIONS: Final = 60
_GATEWAYS: Final = 4
_AT_ONCE: Final = 16
_LEDGER, _LOOPS, _SPENT = "ledger", "loops", "spent"
_CAP_PICO_USD: Final = 50_000_000_000  # 0.05 USD
_LOOP_TOKENS: Final = (300, 500)
_BUDGET_SESSIONS: Final = 4  # one in so many of the sessions are under the budget, which is spent by half of these
_STORED_SECONDS: Final = 300.0
_POLL_SECONDS: Final = 0.5


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sessions", type=int, default=0, help=f"sessions to replay (default {SESSIONS})")


def measure(report: Report) -> None:
    """Replay agents' sessions, compare their books, and judge caps and budgets."""
    if not RedisServer.is_installed():
        report.add_absent("session_sums", "pico-USD", "there is no redis-server", must=0)
        return
    asked = getattr(report.options, "sessions", 0)
    count = asked or (_QUICK_SESSIONS if report.quick else SESSIONS)
    with StoreProcess() as store, RedisServer() as redis, CollectorRig(store, Cores.choose()) as collector:
        shown = asyncio.run(_replay(count, redis.url, collector))
        shown.stored = _wait_until_stored(store, shown.requests)
        by_session = _cost_report(store, "tenant,session")
        by_tenant = _cost_report(store, "tenant")
    _judge(report, shown, by_session, by_tenant)


class Spent(NamedTuple):
    """What requests cost, and what of it was charged: words behind a cut cost something, and are charged to nobody."""

    cost: int = 0  # pico-USD, as the next
    charged: int = 0


@dataclass(slots=True)
class Shown:
    """What the agents of each tenant saw, what the budget of one was, and how many requests the store has."""

    seen: dict[str, list[SessionSeen]]
    budget_pico_usd: int
    seconds: float
    stored: int = 0

    @property
    def requests(self) -> int:
        """Return how many requests all agents sent."""
        every = [one for found in self.seen.values() for one in found]
        return sum(one.turns + one.tool_calls + one.refused + one.retried + len(one.faults) for one in every)


async def _replay(count: int, redis_url: str, collector: CollectorRig) -> Shown:
    planned = {
        _LEDGER: agents(count, "s", key_of(0), seed=1),
        _LOOPS: [Agent(f"loop-{number}", key_of(1), _LOOP_TOKENS, loops=True) for number in range(max(count // 50, 5))],
        _SPENT: agents(max(count // _BUDGET_SESSIONS, 20), "b", key_of(2), seed=2),
    }
    budget = _least_cost(planned[_SPENT]) // 2
    async with AgentProvider() as provider:
        config = _configuration(provider, budget)
        async with Fleet(_GATEWAYS, config, redis_url, collector.gateway_environment) as fleet:
            began = time.monotonic()
            seen = {tenant: await replay(found, fleet.ports, _AT_ONCE) for tenant, found in planned.items()}
            seconds = time.monotonic() - began
            for gateway in fleet.gateways:
                if not await gateway.is_quiet(within_seconds=15.0):
                    raise RuntimeError(f"gateway {gateway.name!r} still has requests in progress")
            await asyncio.gather(*(gateway.stop() for gateway in fleet.gateways))  # which ships what is left
    return Shown(seen, budget, seconds)


def _configuration(provider: AgentProvider, budget_pico_usd: int) -> dict[str, Any]:
    tenants = (_LEDGER, _LOOPS, _SPENT)
    cap = {"id": "cap", "tenant": _LOOPS, "level": "conversation", "metric": "usd"}
    return {
        "keys": [{"key": key_of(n), "tenant": tenant, "id": f"key_{n}"} for n, tenant in enumerate(tenants)],
        "pools": [{"name": MODEL, "targets": [{"name": "provider", **provider.target}]}],
        "models": [{"name": MODEL, "pool": MODEL}],
        "prices": [{"model": MODEL, "version": "bench/1", "usd_per_mtok": USD_PER_MTOK}],
        "mcp_servers": [provider.mcp_server],
        "limits": [cap | {"amount_usd": str(usd(_CAP_PICO_USD))}],
        "budgets": [
            total_budget("much", _LEDGER, "100000"),
            total_budget("spent", _SPENT, str(usd(budget_pico_usd))),
        ],
    }


def _least_cost(planned: Sequence[Agent]) -> int:
    """Return what the agents' answers and tools cost at least, without their prompts."""
    turns = sum(sum(agent.output_tokens) * OUTPUT_PICO_USD for agent in planned)
    return turns + sum((len(agent.output_tokens) + 1) // 2 for agent in planned) * TOOL_PICO_USD


def _wait_until_stored(store: StoreProcess, requests: int) -> int:
    """Wait until the store has as many requests; return how many it has."""
    client = store.client("reader")
    deadline = time.monotonic() + _STORED_SECONDS
    try:
        while True:
            found = int(str(client.query("SELECT count() AS n FROM requests")[0]["n"]))
            if found >= requests or time.monotonic() > deadline:
                return found
            time.sleep(_POLL_SECONDS)
    finally:
        client.close()


def _cost_report(store: StoreProcess, by: str) -> dict[tuple[str, ...], Spent]:
    """Return what `tollkeeper cost report` says, by the labels of its last level."""
    command = [sys.executable, "-m", "tollkeeper", "cost", "report", "--by", by, "--json"]
    command += ["--data", str(store.data), "--store-url", store.url]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=_STORED_SECONDS)
    level = json.loads(done.stdout)["levels"][-1]
    return {
        tuple(line[name] for name in level["by"]): Spent(
            line["cost_pico_usd"] or 0, int(Decimal(line["charged_usd"]) * 10**12)
        )
        for line in level["lines"]
    }


def _judge(
    report: Report,
    shown: Shown,
    by_session: dict[tuple[str, ...], Spent],
    by_tenant: dict[tuple[str, ...], Spent],
) -> None:
    ledger, loops, spent = (shown.seen[tenant] for tenant in (_LEDGER, _LOOPS, _SPENT))
    every = [*ledger, *loops, *spent]
    faults = [fault for one in every for fault in one.faults]
    for fault in faults[:5]:
        print(f"agents: {fault}", file=sys.stderr)
    report.add("requests", shown.requests / shown.seconds, "requests/s of all agents", n=shown.requests)
    report.add("retried_requests", sum(one.retried for one in every), "requests", better="lower", n=shown.requests)
    _none(report, "failed_requests", len(faults), "requests", shown.requests)
    _none(report, "requests_not_stored", abs(shown.requests - shown.stored), "requests", shown.requests)
    sums = {tenant: sum(one.cost for path, one in by_session.items() if path[0] == tenant) for tenant in shown.seen}
    apart = sum(abs(sums[tenant] - by_tenant.get((tenant,), Spent()).cost) for tenant in shown.seen)
    _none(report, "session_sums_off_tenants_total", apart, "pico-USD", len(every))
    off = sum(abs(by_session.get((_LEDGER, one.name), Spent()).cost - one.pico_usd) for one in ledger)
    _none(report, "sessions_off_agents_own_books", off, "pico-USD", len(ledger))
    _judge_caps(report, loops, [by_session.get((_LOOPS, one.name), Spent()).charged for one in loops])
    total = by_tenant.get((_SPENT,), Spent()).charged
    _none(report, "budget_overspent", max(total - shown.budget_pico_usd, 0), "pico-USD", len(spent))
    report.add("budget_used", total / shown.budget_pico_usd, "of the budget", must=0.95, n=len(spent))


def _judge_caps(report: Report, loops: Sequence[SessionSeen], charged: Sequence[int]) -> None:
    """Judge what agents in a loop got, and what the ledger says of it: neither may be above the cap."""
    n = len(loops)
    beyond = sum(max(one.pico_usd - _CAP_PICO_USD, 0) for one in loops)
    _none(report, "capped_sessions_beyond_cap", beyond, "pico-USD that agents received", n)
    _none(report, "capped_sessions_charged_beyond", sum(max(one - _CAP_PICO_USD, 0) for one in charged), "pico-USD", n)
    cut = sum(one.is_cut and one.refused > 0 for one in loops)
    report.add("capped_sessions_cut_in_a_stream", cut / n, "of the sessions in a loop", must=1.0, n=n)
    used = sum(charged) / (n * _CAP_PICO_USD)
    # A prompt is reserved as if nothing of it were cached, and each gateway leases a part of a session's cap: an agent
    # that goes to all of them in turn is stopped early.
    report.add("capped_sessions_used", used, "of the cap", n=n)


def _none(report: Report, metric: str, value: float, unit: str, n: int) -> None:
    report.add(metric, value, unit, must=0, better="lower", n=n)


if __name__ == "__main__":
    sys.exit(run_bench("agents", measure, add_options=add_options))
