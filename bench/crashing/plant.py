"""A whole installation whose parts can be killed: a gateway, two collectors behind one address, and a store."""

import asyncio
import contextlib
import json
import random
import re
import socket
import tempfile
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

import yaml

from backends.secrets.secret_files import SecretFiles
from backends.store.address import StoreAddress
from backends.store.client import StoreClient
from bench.crashing.balancer import Balancer
from bench.crashing.service import Service
from bench.fleet.fleet import configuration, total_budget
from contracts.pricing.money import PICO_USD_PER_USD
from migrations.store import migrate_store, read_migrations

COLLECTORS: Final = 2
BUDGET_USD: Final = 1_000
_MIGRATE_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.1
_FIRST_EPHEMERAL: Final = 32_768  # on Linux, where nothing else is set
_TRIES: Final = 100
_RATIO: Final = re.compile(r'^tollkeeper_budget_used_ratio\{budget="spent"\} (\S+)$', re.MULTILINE)


class Plant:
    """`async with` starts all of it in a temporary folder; at the end it is killed and gone."""

    def __init__(self, source: random.Random, *, lost_answers: float) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tollkeeper-crash-")
        home = Path(self._folder.name)
        first = ports_for_long(3 + 2 * COLLECTORS, source)
        self.gateway_port, http, native = first, first + 1, first + 2
        ports = [first + 3 + 2 * number for number in range(COLLECTORS)]
        self._signing_key = source.randbytes(16).hex()  # all data directories are apart, and share it all the same
        store_url = f"http://127.0.0.1:{http}"
        settings = {"TOLLKEEPER_STORE_HTTP_PORT": str(http), "TOLLKEEPER_STORE_NATIVE_PORT": str(native)}
        self.store = Service("store", "backends.store", home, f"{store_url}/ping", settings)
        self._address = StoreAddress.resolve(
            store_url, "tollkeeper", "writer", SecretFiles(self.store.data / "secrets")
        )
        self.collectors = [self._collector(number, home, port) for number, port in enumerate(ports, start=1)]
        self.balancer = Balancer(ports, source, lost_answers)
        self._home = home
        self.gateway: Service

    async def __aenter__(self) -> Self:
        try:
            await self.balancer.__aenter__()
            self.gateway = self._gateway(self._home)
            await asyncio.gather(*(asyncio.to_thread(service.start) for service in self.services))
            await asyncio.to_thread(self._migrate)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for service in self.services:
            service.end()
        await self.balancer.__aexit__()
        self._folder.cleanup()

    @property
    def services(self) -> list[Service]:
        """All that can be killed."""
        return [self.store, *self.collectors, *([self.gateway] if hasattr(self, "gateway") else [])]

    def client(self) -> StoreClient:
        """Connect to the store."""
        return StoreClient(self._address)

    async def drained(self, within_seconds: float) -> bool:
        """Wait until journal and spools are empty; return whether that came to be in time."""
        deadline = time.monotonic() + within_seconds
        while not await asyncio.to_thread(self._is_drained):
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(_POLL_SECONDS)
        return True

    def spent_pico_usd(self) -> int:
        """Return what the gateway's budget has counted. Its share of the amount is told to sixteen digits."""
        found = _RATIO.search(_page(f"http://127.0.0.1:{self.gateway_port}/metrics"))
        return 0 if found is None else round(float(found[1]) * BUDGET_USD * PICO_USD_PER_USD)

    def _is_drained(self) -> bool:
        pages = [self.gateway.ready_url, *(collector.ready_url for collector in self.collectors)]
        try:
            journal, *spools = [json.loads(_page(url)) for url in pages]
        except OSError:
            return False
        return journal["journal_bytes"] == 0 and all(spool["spool_bytes"] == 0 for spool in spools)

    def _migrate(self) -> None:
        migrate_store(self._address, read_migrations(), wait_seconds=_MIGRATE_SECONDS, say=lambda line: None)

    def _collector(self, number: int, home: Path, port: int) -> Service:
        environment: Mapping[str, str] = {
            "TOLLKEEPER_COLLECTOR_PORT": str(port),
            "TOLLKEEPER_COLLECTOR_HEALTH_PORT": str(port + 1),
            "TOLLKEEPER_OTLP_GRPC_PORT": "0",
            "TOLLKEEPER_RECORD_SIGNING_KEY": self._signing_key,
            "TOLLKEEPER_STORE_URL": self._address.url,
            "TOLLKEEPER_STORE_USER": self._address.user,
            "TOLLKEEPER_STORE_PASSWORD": self._address.password,
        }
        return Service(f"collector-{number}", "collector", home, f"http://127.0.0.1:{port + 1}/health", environment)

    def _gateway(self, home: Path) -> Service:
        file = home / "gateway.yaml"
        budget = total_budget("spent", "crash", str(BUDGET_USD))
        file.write_text(yaml.safe_dump(configuration(["crash"], budgets=[budget])))
        environment = {
            "TOLLKEEPER_GATEWAY_CONFIG": str(file),
            "TOLLKEEPER_GATEWAY_NAME": "gw-1",
            "TOLLKEEPER_RECORD_SIGNING_KEY": self._signing_key,
            "TOLLKEEPER_GATEWAY_PORT": str(self.gateway_port),
            "TOLLKEEPER_COLLECTOR_URL": f"http://127.0.0.1:{self.balancer.port}",
        }
        return Service("gateway", "gateway", home, f"http://127.0.0.1:{self.gateway_port}/ready", environment)


def ports_for_long(count: int, source: random.Random) -> int:
    """Return the first of consecutive free ports that the kernel gives to nobody while a process of ours is dead."""
    for _ in range(_TRIES):
        first = source.randrange(20_000, _FIRST_EPHEMERAL - count)
        with contextlib.ExitStack() as listeners, contextlib.suppress(OSError):
            for port in range(first, first + count):
                listeners.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
    raise RuntimeError(f"there are no {count} consecutive free ports below {_FIRST_EPHEMERAL}")


def _page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as reply:
        return str(reply.read().decode())
