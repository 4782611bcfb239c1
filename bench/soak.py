#!/usr/bin/env -S python -P
"""Soaks one gateway in mixed traffic at a steady rate, `--minutes 10`, and looks at what grows.

Chats whole and streamed, tools, completions, embeddings, rerank, messages, responses; clients that leave, requests
that are refused, a model server that fails now and then. The rate leaves most of the machine to others.
"""

import argparse
import asyncio
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.fuzzing.answers import Fault
from bench.load.gateway_process import Books, MeasuredGateway
from bench.load.processes import free_ports
from bench.report import Report, run_bench
from bench.soaking.caller import Caller
from bench.soaking.traffic import FailingServer, Kind, configuration, kinds
from bench.soaking.watch import (
    Look,
    gauge,
    growth_mib,
    lag_quantile,
    look_at,
    metrics_page,
    slope_per_hour,
    waited_share,
)

NAME: Final = "soak"
PER_SECOND: Final = 50
_MINUTES: Final = 10.0
_QUICK_MINUTES: Final = 1.0
_WARM_UP_SHARE: Final = 0.3  # of the time: caches fill, pools grow
_LOOK_SECONDS: Final = 1.0
_CALM_SECONDS: Final = 6.0  # after which connections to the model server that nobody uses are closed
_IDLE_SECONDS: Final = 20.0  # a kept connection is not used again after so long
_ANSWER_SECONDS: Final = 30.0
_SHOWN_FAULTS: Final = 20
MUST_SLOPE_MIB: Final = 12.0  # an hour, of 180,000 requests: 70 bytes for each
_LEAST_MINUTES: Final = 5.0  # for the slope to say anything
MUST_LAG_MS: Final = 20.0
MOST_WAITED: Final = 0.02  # of the time for a core: beyond it the lag is that of the machine


@dataclass(slots=True)
class Tally:
    """What clients saw, over everything."""

    sent: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    chat_seconds: list[float] = field(default_factory=list)
    records: int = 0  # that there must be


class Soak:
    """Sends traffic to one gateway, each request when it is due, however slow others are."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._random = random.Random(5)
        self._kinds = kinds()
        self._idle: deque[tuple[float, Caller]] = deque()
        self.tally = Tally()

    async def run(self, seconds: float) -> None:
        """Send for so long, and wait until all is answered."""
        loop = asyncio.get_running_loop()
        under_way: set[asyncio.Task[None]] = set()
        began = loop.time()
        weights = [kind.weight for kind in self._kinds]
        for number in range(round(seconds * PER_SECOND)):
            await asyncio.sleep(max(began + number / PER_SECOND - loop.time(), 0))
            [kind] = self._random.choices(self._kinds, weights)
            task = loop.create_task(self._ask(kind))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        await asyncio.gather(*under_way)

    async def close(self) -> None:
        """Close every kept connection."""
        while self._idle:
            await self._idle.pop()[1].close()

    async def _ask(self, kind: Kind) -> None:
        began = time.monotonic()
        self.tally.sent[kind.name] += 1
        self.tally.records += kind.records
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                caller = await self._caller(began)
                kind.check(await caller.ask(kind.data, kind.pieces))
        except (Fault, OSError, EOFError, TimeoutError) as error:
            self.tally.faults[kind.name] += 1
            if self.tally.faults.total() <= _SHOWN_FAULTS:
                print(f"soak, {kind.name}: {error!r}", file=sys.stderr)
            return
        if kind.name == "chat":
            self.tally.chat_seconds.append(time.monotonic() - began)
        if caller.is_usable:
            self._idle.append((time.monotonic(), caller))

    async def _caller(self, now: float) -> Caller:
        while self._idle:
            since, caller = self._idle.pop()
            if now - since < _IDLE_SECONDS:
                return caller
            await caller.close()
        return await Caller.connect(self._port)


def measure(report: Report) -> None:
    """Warm a gateway up, soak it, and hold its books, its memory and its descriptors to what they must be."""
    minutes = report.options.minutes or (_QUICK_MINUTES if report.quick else _MINUTES)
    with tempfile.TemporaryDirectory(prefix="tollkeeper-soak-") as home:
        asyncio.run(_soak(report, minutes, Path(home)))


async def _soak(report: Report, minutes: float, home: Path) -> None:
    server = FailingServer()
    await server.start()
    config = configuration(server.url.removesuffix("/v1"))
    core = max(os.sched_getaffinity(0))
    gateway = await asyncio.to_thread(MeasuredGateway, NAME, core, home, config, free_ports())
    try:
        soak, port, pid = Soak(gateway.peer.port), gateway.peer.port, gateway.peer.pid
        assert pid is not None
        await soak.run(minutes * 60 * _WARM_UP_SHARE)
        idle = await _at_rest(soak, pid)
        looks: list[Look] = []
        watching = asyncio.create_task(_watch(pid, looks))
        await soak.run(minutes * 60 * (1 - _WARM_UP_SHARE))
        watching.cancel()
        after = await _at_rest(soak, pid)
        page = await asyncio.to_thread(metrics_page, port)
        books = await asyncio.to_thread(gateway.close_books)
    finally:
        await asyncio.to_thread(gateway.stop)
        await server.stop()
    _add_books(report, soak.tally, books, page)
    waited = waited_share(looks)
    # What waits for a core piles up, and takes memory for as long.
    disturbed = f"the gateway waited for its core for {waited:.1%} of the time" if waited > MOST_WAITED else ""
    report.add("waited_for_core", waited, "of the time", better="lower")
    _add_times(report, soak.tally, page, disturbed)
    _add_memory(report, looks, minutes, disturbed)
    requests = soak.tally.sent.total()
    more = after.descriptors - idle.descriptors
    report.add("descriptors_more", more, f"than the {idle.descriptors} at rest", must=0, better="lower")
    tracebacks = (home / NAME / f"{NAME}.log").read_text().count("Traceback")
    report.add("faults_logged", tracebacks, "tracebacks", must=0, better="lower", n=requests)
    report.add("upstream_failures", server.failures, "on purpose", better="lower", n=requests)


async def _watch(pid: int, looks: list[Look]) -> None:
    began = time.monotonic()
    while True:
        looks.append(look_at(pid, time.monotonic() - began))
        await asyncio.sleep(_LOOK_SECONDS)


async def _at_rest(soak: Soak, pid: int) -> Look:
    """Look at the gateway when nobody is connected to it and it is connected to nobody."""
    await soak.close()
    await asyncio.sleep(_CALM_SECONDS)
    return look_at(pid, 0.0)


def _add_books(report: Report, tally: Tally, books: Books, page: str) -> None:
    requests = tally.sent.total()
    report.add("errors", tally.faults.total(), "answers that may not be", must=0, better="lower", n=requests)
    different = abs(books.records - tally.records) + abs(books.records - books.recorded)
    report.add("records_not_one_per_request", different, "records", must=0, better="lower", n=tally.records)
    report.add("records_dropped", books.lost, "records", must=0, better="lower", n=tally.records)
    for metric, name, at_rest in (
        ("grants_open_at_the_end", "reservations_in_flight", 0),
        ("requests_open_at_the_end", "requests_in_flight", 0),
        ("connections_open_at_the_end", "connections", 1),  # which asks for the page
    ):
        report.add(metric, gauge(page, name) - at_rest, metric.partition("_")[0], must=0, better="lower")


def _add_times(report: Report, tally: Tally, page: str, disturbed: str) -> None:
    for share, must in ((0.99, MUST_LAG_MS), (0.999, None)):
        lag_seconds, n = lag_quantile(page, share)
        metric, lag = f"loop_lag_p{f'{share:g}'[2:]}", lag_seconds * 1e3
        report.add(metric, lag, "ms, at most", must=must, better="lower", n=n, unjudged=disturbed)
    chats = tally.chat_seconds
    report.add("chat_p50", statistics.median(chats) * 1e3, "ms", better="lower", n=len(chats))
    report.add("chat_p99", statistics.quantiles(chats, n=100)[98] * 1e3, "ms", better="lower", n=len(chats))


def _add_memory(report: Report, looks: list[Look], minutes: float, disturbed: str) -> None:
    # A short run only sees caches fill: it has no bound.
    must = MUST_SLOPE_MIB if minutes >= _LEAST_MINUTES else None
    slope = slope_per_hour(looks)
    report.add("rss_slope", slope, "MiB an hour", must=must, better="lower", n=len(looks), unjudged=disturbed)
    report.add("rss_growth", growth_mib(looks), "MiB since the warm-up", better="lower", n=len(looks))
    report.add("rss_most", max(look.rss_mib for look in looks), "MiB", better="lower", n=len(looks))
    report.add("descriptors_most", max(look.descriptors for look in looks), "descriptors", better="lower", n=len(looks))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Let the time be told."""
    parser.add_argument("--minutes", type=float, help=f"how long, {_MINUTES:g} unless told")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started is ended on the way out
    sys.exit(run_bench(NAME, measure, add_options=add_options))
