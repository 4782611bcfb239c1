"""GPU time and tokens on the books: of requests whose clients leave, and after a gateway or an engine host is killed.

A gateway and a torch engine host with the built-in model, asked over HTTP. The gateway's journal then holds the records
of requests, of engine steps and of the KV cache; nothing is shipped.
"""

import asyncio
import random
import socket
import tempfile
import time
from pathlib import Path
from typing import Final

import uvloop

from backends.engine.settings import BUILTIN_PATH
from bench.gpu_cancelled import TENANTS, Books, Visit, books_of, journalled, visit
from bench.gpu_gateway import GatewayProcess
from bench.gpu_host import HostProcess, connect
from bench.report import Report

_LOAD_SECONDS: Final = 300.0
_SETTLE_SECONDS: Final = 3.0
_WORDS: Final = "bridge river stone arch span road pillar iron cable tower water bank load stream wood".split()
_ENGINE: Final = {
    "TOLLKEEPER_ENGINE_KIND": "torch",
    "TOLLKEEPER_ENGINE_THREADS": "1",
    "TOLLKEEPER_ENGINE_EMBEDDER": "false",
    "TOLLKEEPER_ENGINE_KV_BYTES": str(100 << 20),  # little more than one prompt of full length: blocks are evicted
}


def measure(report: Report) -> None:
    """Cancel half of the requests, then kill the gateway and the engine host in the middle of answers."""
    count = 40 if report.quick else 80
    with tempfile.TemporaryDirectory(prefix="g") as home:  # short: sockets lie in it
        cancelled = uvloop.run(_cancelled(Path(home) / "a", count))
        killed = uvloop.run(_killed(Path(home) / "b"))
    report.add("gpu_time_missing", cancelled.missing_ns, "ns", must=0, better="lower", n=count)
    report.add("gpu_time_cancelled", cancelled.outcomes["cancelled"], "requests", must=1, n=count)
    report.add(
        "gpu_time_records_per_removed_block", cancelled.removals_per_block, "records",
        must=0.1, better="lower", n=cancelled.removed_blocks,
    )  # fmt: skip
    report.add("gpu_time_removed_blocks", cancelled.removed_blocks, "blocks", must=100)
    report.add(
        "gpu_time_tokens_without_a_line", killed.tokens_without_a_line, "tokens",
        must=0, better="lower", n=sum(killed.computed_tokens.values()),
    )  # fmt: skip


class _Plant:
    """A gateway and an engine host on one data directory each, started again on the same after a kill."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.host = self._host()
        self.gateway: GatewayProcess | None = None

    @property
    def model(self) -> str:
        return self.host.model

    def _host(self) -> HostProcess:
        return HostProcess(BUILTIN_PATH, self._folder / "host", "", _ENGINE)

    async def start(self) -> None:
        line = await connect(self.host)
        await line.ready(self.model, self.host, _LOAD_SECONDS)
        line.close()
        await self.start_gateway()

    async def start_gateway(self) -> None:
        self.gateway = GatewayProcess(self.model, self.host.socket, self._folder / "gateway", self.port, TENANTS)
        await self.gateway.ready()

    def kill_gateway(self) -> None:
        assert self.gateway is not None
        self.gateway.kill()

    def kill_host(self) -> None:
        self.host.kill()

    def stop(self) -> Books:
        if self.gateway is not None:
            self.gateway.stop()
        self.host.stop()
        return books_of(journalled(self._folder / "gateway" / "journal"))


async def _cancelled(folder: Path, count: int) -> Books:
    plant, source = _Plant(folder), random.Random(4)
    try:
        await plant.start()
        visits = []
        for number in range(count):
            prompt = " ".join(source.choices(_WORDS, k=source.choice((20, 300, 600))))
            key = source.choice(list(TENANTS))
            leaves_after = source.choice((0.0, 0.02, 0.1, 0.4)) if number % 2 else None
            parts = 3 if number % 8 in (2, 5) else 1  # whole ones and cancelled ones
            visits.append(Visit(source.uniform(0, 8), key, prompt, 24, leaves_after_seconds=leaves_after, parts=parts))
        began = time.monotonic()
        await asyncio.gather(*(visit(one, plant.model, plant.port, began) for one in visits))
        await asyncio.sleep(_SETTLE_SECONDS)
    finally:
        books = plant.stop()
    return books


async def _killed(folder: Path) -> Books:
    plant = _Plant(folder)
    try:
        await plant.start()
        for kill in (plant.kill_gateway, plant.kill_host):
            asked = [
                asyncio.create_task(
                    visit(Visit(0, key, f"{key[3]} {' '.join(_WORDS)}", 2000), plant.model, plant.port, 0)
                )
                for key in TENANTS
            ]
            await asyncio.sleep(2.0)
            kill()
            await asyncio.gather(*asked, return_exceptions=True)
            if kill == plant.kill_gateway:
                await plant.start_gateway()
        await asyncio.sleep(_SETTLE_SECONDS)
    finally:
        books = plant.stop()
    return books
