"""A store that is frozen and goes on: does the same process answer again, and is every request stored once?

The store is stopped with SIGSTOP under load for longer than an insert waits for its answer. At SIGCONT it finds that
insert and the repeated ones, which the collectors have given up, in its sockets' buffers beside those sent after it.
"""

import asyncio
import random
import time
from typing import Final

import uvloop

from bench.crashing.clients import Clients
from bench.crashing.ledger import Comparison, compare
from bench.crashing.plant import Plant
from bench.report import Report

_CLIENTS: Final = 4
_BEFORE_SECONDS: Final = 3.0
_FROZEN_SECONDS: Final = 65.0  # an insert waits for its answer for 60
_QUICK_FROZEN_SECONDS: Final = 8.0
_AFTER_SECONDS: Final = 3.0
_ANSWER_SECONDS: Final = 30.0
_MUST_ANSWER_SECONDS: Final = 5.0
_DRAIN_SECONDS: Final = 90.0
_POLL_SECONDS: Final = 0.05


def measure(report: Report) -> None:
    """Freeze the store under load, let it go on, and count its rows and those of its rollups."""
    frozen_seconds = _QUICK_FROZEN_SECONDS if report.quick else _FROZEN_SECONDS
    answering, ended, found, asked = uvloop.run(drill(frozen_seconds))
    report.add("store_frozen_seconds", frozen_seconds, "s frozen")
    report.add("store_frozen_ended", ended, "processes that ended at SIGCONT", must=0, better="lower")
    report.add("store_frozen_answers_after", answering, "s", must=_MUST_ANSWER_SECONDS, better="lower")
    report.add("store_frozen_acknowledged", asked, "requests", must=1)
    report.add("store_frozen_lost", found.lost, "requests", must=0, better="lower", n=asked)
    report.add("store_frozen_doubled", found.doubled, "rows", must=0, better="lower", n=found.stored)
    difference = found.rollup_difference
    report.add("store_frozen_rollup_difference", difference, "requests and tokens", must=0, better="lower")


async def drill(frozen_seconds: float) -> tuple[float, bool, Comparison, int]:
    """Return after how long the store answered, whether it had ended, how the books differ, and the requests."""
    source = random.Random(10)
    async with Plant(source, lost_answers=0.0) as plant:
        clients = Clients(plant.gateway_port, _CLIENTS, source)
        load = asyncio.create_task(clients.run())
        await asyncio.sleep(_BEFORE_SECONDS)
        plant.store.freeze()
        await asyncio.sleep(frozen_seconds)
        plant.store.thaw()
        answering, ended = await asyncio.to_thread(_wait_for, plant)
        await asyncio.sleep(_AFTER_SECONDS)
        ended = ended or not plant.store.is_running
        clients.end()
        await load
        if ended:
            answering = _ANSWER_SECONDS
            await asyncio.to_thread(plant.store.start)  # for what it has to be counted
        await plant.drained(_DRAIN_SECONDS)
        client = plant.client()
        found = await asyncio.to_thread(compare, client, clients.counts.tokens)
        client.close()
        return answering, ended, found, len(clients.counts.tokens)


def _wait_for(plant: Plant) -> tuple[float, bool]:
    began = time.monotonic()
    while not plant.store.is_ready():
        waited = time.monotonic() - began
        if waited > _ANSWER_SECONDS or not plant.store.is_running:
            return _ANSWER_SECONDS, not plant.store.is_running
        time.sleep(_POLL_SECONDS)
    return time.monotonic() - began, False
