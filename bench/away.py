"""The store is away for `--minutes 10` under load: whether clients notice, and whether everything arrives."""

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
import urllib.request
from dataclasses import dataclass
from typing import Final

import uvloop

from bench.crashing.clients import Clients
from bench.crashing.ledger import Comparison, compare
from bench.crashing.plant import Plant
from bench.report import Report, run_bench

MUST_P50_RATIO: Final = 1.1
MUST_P99_RATIO: Final = 1.5
_CLIENTS: Final = 4
_MINUTES: Final = 10.0
_QUICK_MINUTES: Final = 0.5
_WARM_UP_SECONDS: Final = 3.0
_BEFORE_SHARE: Final = 0.2  # of the time that the store is away: as long it is watched with the store
_LEAST_BEFORE_SECONDS: Final = 10.0
_DRAIN_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True)
class Found:
    """Seconds of answers with the store and without it, and what became of the records."""

    with_store: list[float]
    without: list[float]
    spooled_bytes: int
    drain_seconds: float | None
    comparison: Comparison
    acknowledged: int


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--minutes", type=float, default=0.0, help=f"without the store; {_MINUTES:g} if not quick")


def measure(report: Report) -> None:
    """Measure answers with the store and without it in one run, then let it come back and count its rows."""
    minutes = report.options.minutes or (_QUICK_MINUTES if report.quick else _MINUTES)
    found = uvloop.run(_run(minutes * 60))
    for name, part in (("p50", 50), ("p99", 99)):
        before, away = (statistics.quantiles(one, n=100)[part - 1] for one in (found.with_store, found.without))
        report.add(f"answer_{name}_with_store", before * 1e3, "ms", better="lower", n=len(found.with_store))
        report.add(f"answer_{name}_without", away * 1e3, "ms", better="lower", n=len(found.without))
        must = MUST_P50_RATIO if part == 50 else MUST_P99_RATIO
        report.add(f"{name}_ratio", away / before, "without / with", must=must, better="lower", n=len(found.without))
    report.add("minutes_away", minutes, "min")
    report.add("spooled", found.spooled_bytes / 2**20, "MiB in both spools when it came back")
    if found.drain_seconds is None:
        report.add("drained", 0, f"of 1; not within {_DRAIN_SECONDS:g} s", must=1)
    else:
        report.add("drained_after", found.drain_seconds, "s", must=_DRAIN_SECONDS, better="lower")
    n = found.acknowledged
    report.add("acknowledged", n, "requests", must=1)
    report.add("lost", found.comparison.lost, "requests", must=0, better="lower", n=n)
    report.add("doubled", found.comparison.doubled, "rows", must=0, better="lower", n=n)
    report.add("different", found.comparison.different, "answers' tokens", must=0, better="lower", n=n)
    report.add("rollup_difference", found.comparison.rollup_difference, "requests and tokens", must=0, better="lower")


async def _run(away_seconds: float) -> Found:
    source = random.Random(8)
    async with Plant(source, lost_answers=0.0) as plant:
        clients = Clients(plant.gateway_port, _CLIENTS, source)
        load = asyncio.create_task(clients.run())
        await asyncio.sleep(_WARM_UP_SECONDS)
        before = time.monotonic()
        await asyncio.sleep(max(away_seconds * _BEFORE_SHARE, _LEAST_BEFORE_SECONDS))
        gone = time.monotonic()
        plant.store.kill()
        await asyncio.sleep(away_seconds)
        back = time.monotonic()
        clients.end()
        await load
        spooled = sum([await asyncio.to_thread(_spool_bytes, one.ready_url) for one in plant.collectors])
        await asyncio.to_thread(plant.store.start)
        started = time.monotonic()
        is_drained = await plant.drained(_DRAIN_SECONDS)
        drained = time.monotonic() - started
        client = plant.client()
        comparison = await asyncio.to_thread(compare, client, clients.counts.tokens)
        client.close()
        counts = clients.counts
        timed = list(zip(counts.at, counts.seconds, strict=True))
        return Found(
            with_store=[seconds for at, seconds in timed if before <= at < gone],
            without=[seconds for at, seconds in timed if gone <= at < back],
            spooled_bytes=spooled,
            drain_seconds=drained if is_drained else None,
            comparison=comparison,
            acknowledged=len(counts.tokens),
        )


def _spool_bytes(url: str) -> int:
    with urllib.request.urlopen(url, timeout=5) as reply:
        return int(json.loads(reply.read())["spool_bytes"])


if __name__ == "__main__":
    sys.exit(run_bench("away", measure, add_options=_add_options))
