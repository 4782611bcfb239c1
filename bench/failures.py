"""What failover costs, and what it saves: CPU a call, and a provider's outage played through in virtual time."""

import asyncio
import logging
import sys
import time
from typing import Final

from backends.llm.base import ModelCall, Sink
from bench.report import Report, run_bench
from contracts.api.generation import Continuation, Result
from contracts.pricing.prices import PriceBook
from contracts.serving.configuration import ModelSpec, PoolSpec, Snapshot, TargetSpec
from contracts.serving.failures import BreakerPolicy, Playbook
from contracts.serving.routes import RouteEntry, RouteSpec
from gateway.apis.batches.line_exchange import LineExchange
from gateway.apis.operations import CHAT
from gateway.config.targets import TargetRegistry
from gateway.replies.reply import Reply, ReplyFacts
from gateway.request.clock import Clock
from gateway.routing.attempts.caller import Caller
from gateway.routing.drill.drill import DrillPlan, play
from gateway.routing.drill.standalone import standalone_chat
from gateway.routing.drill.virtual_time import run_at_once
from gateway.routing.drill.world import FAULTS
from gateway.routing.health.health_book import HealthBook

_BODY: Final = b'{"model":"m","messages":[{"role":"user","content":"hello"}]}'
_DONE: Final = Result(finish_reason="stop")
_TIMEOUT_SECONDS: Final = 5.0


def measure(report: Report) -> None:
    """Measure the CPU time of a call's failover code, and what an outage of each kind costs a route."""
    failure_rows(report)


def failure_rows(report: Report) -> None:
    """Add the rows."""
    asyncio.run(_measure_calls(report))
    log = logging.getLogger("gateway.routing.attempts")
    before = log.level
    log.setLevel(logging.ERROR)  # what a gateway would log of the outages
    try:
        _measure_outages(report)
    finally:
        log.setLevel(before)


class _AtOnce:
    """Answers at once."""

    def __init__(self, spec: TargetSpec) -> None:
        self.spec = spec

    def can_continue(self, continuation: Continuation) -> bool:
        return False

    async def count_input(self, call: ModelCall) -> int | None:
        return None

    async def call(self, call: ModelCall, sink: Sink) -> Result:
        return _DONE

    async def close(self) -> None: ...


async def _measure_calls(report: Report) -> None:
    specs = tuple(TargetSpec(f"t{number}", "p", "openai_http") for number in range(2))
    snapshot = Snapshot(0, {}, {"m": ModelSpec("m", "p")}, {"p": PoolSpec("p", specs)}, PriceBook())
    clock = Clock()
    book = HealthBook(clock, lambda: 0.5)
    book.sync(snapshot)
    targets = TargetRegistry({"openai_http": lambda spec, _: _AtOnce(spec)})
    targets.sync(snapshot)
    caller = Caller(targets, clock, book)
    request = CHAT.read("application/json", _BODY)
    count, best_us, best_ns = (2_000 if report.quick else 20_000), float("inf"), float("inf")
    health = book.of(specs[0])
    for _ in range(3):
        lives = []
        for _ in range(count):
            life = standalone_chat(b"", 1, 1, snapshot)
            life.request = request
            lives.append(life)
        calls = [ModelCall(life.id, CHAT.path, request, _BODY, "", "") for life in lives]
        reply = Reply(ReplyFacts(LineExchange(CHAT.paths[0], b"", {}), lives[0].id_text, 0, clock))
        began = time.process_time()
        for life, call in zip(lives, calls, strict=True):
            await caller.call(life, reply, call, specs)
        best_us = min(best_us, (time.process_time() - began) / count * 1e6)
        began = time.process_time()
        for _ in range(10 * count):
            health.note_success(1000, is_whole=True)
        best_ns = min(best_ns, (time.process_time() - began) / (10 * count) * 1e9)
    report.add("failover_cpu_per_call", best_us, "us", better="lower", n=3 * count)
    report.add("failover_cpu_on_the_short_way", best_ns, "ns", better="lower", n=30 * count)


def _measure_outages(report: Report) -> None:
    snapshot = _two_providers()
    plan_seconds = 30.0 if report.quick else 120.0
    for fault in FAULTS:
        played = run_at_once(play(snapshot, DrillPlan("far", fault, outage_seconds=plan_seconds)))
        [route] = [name for name in played.names if name.name == "route"]
        lost = (route.failed + route.failed_afterwards) / route.requests
        report.add(f"outage_{fault}_lost", lost, "share", must=0.0, better="lower", n=route.requests)
        slowest = route.worst_seconds
        bound = 2 * _TIMEOUT_SECONDS + 1 if fault == "stall" else 2.0
        report.add(f"outage_{fault}_slowest", slowest, "s", must=bound, better="lower", n=route.requests)
        if played.back_after_seconds is not None:
            report.add(f"outage_{fault}_back_after", played.back_after_seconds, "s", must=60.0, better="lower")


def _two_providers() -> Snapshot:
    def target(name: str, pool: str, provider: str) -> TargetSpec:
        settings = {"timeouts": {"first_token": _TIMEOUT_SECONDS}}
        return TargetSpec(name, pool, "openai_http", "http://127.0.0.1:1/v1", provider=provider, settings=settings)

    pools = {
        "far": PoolSpec("far", (target("f1", "far", "far"), target("f2", "far", "far"))),
        "near": PoolSpec("near", (target("n", "near", "near"),)),
    }
    route = RouteSpec(id="route", choose=(RouteEntry(model="far"),), fallbacks=(RouteEntry(model="near"),))
    return Snapshot(
        revision=0,
        keys={},
        models={name: ModelSpec(name, name) for name in pools},
        pools=pools,
        prices=PriceBook(),
        routes={"route": route},
        playbooks={"far": Playbook("far", ("near",), BreakerPolicy(failures_in_a_row=10, good_probes=3))},
    )


if __name__ == "__main__":
    sys.exit(run_bench("failures", measure))
