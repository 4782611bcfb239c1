"""An upgrade under load, with the release before and this one side by side: is every request stored once?

Two gateways, a collector and a store of the release before serve clients. One gateway is upgraded; then the collector
is killed in the middle of an insert, and the store with it or not; the store is migrated, the collector upgraded, and
the other gateway last. The drill runs twice: with the insert settled before the migration, and with the store migrated
where the collector's data directory is not (the latter alone with `--quick`). `--minutes` is for how long both releases
serve beside each other, over both times. In the end the release before is to come
back, and is refused.
"""

import asyncio
import io
import random
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvloop
import yaml

from backends.secrets.secret_files import SecretFiles
from backends.store.address import StoreAddress
from backends.store.client import StoreClient
from backends.store.store_locks import StoreLocks
from bench.crashing.clients import Clients
from bench.crashing.ledger import Comparison, compare
from bench.crashing.plant import ports_for_long
from bench.crashing.service import Service
from bench.fleet.fleet import configuration
from bench.report import Report

PREVIOUS: Final = "ae10788"  # the last commit of the release before
_ROOT: Final = Path(__file__).resolve().parents[3]
_CLIENTS: Final = 3  # of each gateway
_SERVE_SECONDS: Final = 3.0
_INSERT_ENDS_SECONDS: Final = 2.0
_DRAIN_SECONDS: Final = 60.0
_COMMAND_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.001
_GATEWAYS: Final = 2
_ROWS: Final = (
    ("lost", "requests"),
    ("doubled", "rows"),
    ("rollup_difference", "requests and tokens"),
    ("going_back_wrote", "migrations"),
)


@dataclass(frozen=True, slots=True)
class _Found:
    books: Comparison
    asked: int
    written: int  # migrations that the store has more, after the release before was started on it


def measure(report: Report) -> None:
    """Upgrade an installation under load, twice, and count its rows and those of its rollups."""
    with tempfile.TemporaryDirectory(prefix="tollkeeper-previous-") as folder:
        previous = Path(folder)
        if not _unpack(previous):
            for name, unit in _ROWS:
                reason = f"the release before, commit {PREVIOUS}, is not in this checkout"
                report.add_absent(f"upgrade_drill_{name}", unit, reason, must=0)
            return
        ways = (False,) if report.quick else (True, False)
        minutes = report.options.minutes
        serve_seconds = _SERVE_SECONDS if minutes is None else minutes * 60 / len(ways) / 2
        found = [
            uvloop.run(_run(previous, serve_seconds, report.options.pause_seconds, settles=settles)) for settles in ways
        ]
    asked = sum(one.asked for one in found)
    report.add("upgrade_drill_acknowledged", asked, "requests", must=1)
    for name, unit in _ROWS[:-1]:
        wrong = sum(int(getattr(one.books, name)) for one in found)
        report.add(f"upgrade_drill_{name}", wrong, unit, must=0, better="lower", n=asked)
    written = sum(one.written for one in found)
    report.add("upgrade_drill_going_back_wrote", written, "migrations", must=0, better="lower", n=len(found))


def _unpack(place: Path) -> bool:
    """Lay out the release before in a folder; False where git does not have it."""
    done = subprocess.run(["git", "-C", str(_ROOT), "archive", PREVIOUS], capture_output=True, check=False)
    if done.returncode:
        return False
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(place)  # of our own repository
    return True


async def _run(previous: Path, serve_seconds: float, pause_seconds: float, *, settles: bool) -> _Found:
    source = random.Random(11)
    with tempfile.TemporaryDirectory(prefix="tollkeeper-upgrade-") as home:
        plant = _Plant(Path(home), previous, source)
        try:
            clients = [Clients(port, _CLIENTS, source, pause_seconds) for port in plant.gateway_ports]
            return await _upgrade(plant, clients, serve_seconds, settles=settles)
        finally:
            for service in plant.services:
                service.end()


async def _upgrade(plant: "_Plant", clients: list[Clients], serve_seconds: float, *, settles: bool) -> _Found:
    await asyncio.to_thread(plant.start_previous)
    load = asyncio.gather(*(one.run() for one in clients))
    await asyncio.sleep(_SERVE_SECONDS)
    await asyncio.to_thread(plant.upgrade, plant.gateways[0])
    await asyncio.sleep(serve_seconds)
    await asyncio.to_thread(plant.cut_insert, settles)
    await asyncio.to_thread(plant.migrate, settles=settles)
    await asyncio.to_thread(plant.upgrade, plant.collector)
    await asyncio.sleep(serve_seconds)
    await asyncio.to_thread(plant.upgrade, plant.gateways[1])
    await asyncio.sleep(_SERVE_SECONDS)
    for one in clients:
        one.end()
    await load
    tokens = {name: count for one in clients for name, count in one.counts.tokens.items()}
    await asyncio.to_thread(plant.drain)
    return await asyncio.to_thread(plant.look, tokens)


class _Plant:
    """Two gateways from one file, a collector and a store, each of a release of its own."""

    def __init__(self, home: Path, previous: Path, source: random.Random) -> None:
        self._home, self._previous = home, previous
        first = ports_for_long(4 + _GATEWAYS, source)
        http, native, otlp, health, *self.gateway_ports = range(first, first + 4 + _GATEWAYS)
        url = f"http://127.0.0.1:{http}"
        own = {"TOLLKEEPER_STORE_HTTP_PORT": str(http), "TOLLKEEPER_STORE_NATIVE_PORT": str(native)}
        self.store = Service("store", "backends.store", home, f"{url}/ping", own)
        address = StoreAddress.resolve(url, "tollkeeper", "writer", SecretFiles(self.store.data / "secrets"))
        self._address = address
        key = {"TOLLKEEPER_RECORD_SIGNING_KEY": source.randbytes(16).hex()}  # the release before does not know it
        self._writing = {
            "TOLLKEEPER_STORE_URL": url,
            "TOLLKEEPER_STORE_USER": address.user,
            "TOLLKEEPER_STORE_PASSWORD": address.password,
        }
        receiving = {
            "TOLLKEEPER_COLLECTOR_PORT": str(otlp),
            "TOLLKEEPER_COLLECTOR_HEALTH_PORT": str(health),
            "TOLLKEEPER_OTLP_GRPC_PORT": "0",
        }
        page = f"http://127.0.0.1:{health}/health"
        self.collector = Service("collector", "collector", home, page, {**key, **self._writing, **receiving})
        file = home / "gateway.yaml"
        file.write_text(yaml.safe_dump(configuration(["crash"])))
        self.gateways = [
            Service(
                f"gateway-{number}",
                "gateway",
                home,
                f"http://127.0.0.1:{port}/ready",
                {
                    **key,
                    "TOLLKEEPER_GATEWAY_CONFIG": str(file),
                    "TOLLKEEPER_GATEWAY_NAME": f"gw-{number}",
                    "TOLLKEEPER_GATEWAY_PORT": str(port),
                    "TOLLKEEPER_COLLECTOR_URL": f"http://127.0.0.1:{otlp}",
                },
            )
            for number, port in enumerate(self.gateway_ports)
        ]
        self.services = [self.store, self.collector, *self.gateways]

    def start_previous(self) -> None:
        """Start everything as the release before."""
        for service in self.services:
            service.run_from(self._previous)
        self.store.start()
        self._must("migrations", "--only", "store", data=self.collector.data, root=self._previous)
        for service in (self.collector, *self.gateways):
            service.start()

    def upgrade(self, service: Service) -> None:
        """Stop a process in good order, if it runs, and start it as this release."""
        service.stop()
        service.run_from(_ROOT)
        service.start()

    def cut_insert(self, with_store: bool) -> None:
        """Kill the collector in the middle of an insert; with the store, or so that the store has it all."""
        turns = StoreLocks(self.collector.data)
        deadline = time.monotonic() + _DRAIN_SECONDS
        while not turns.is_in_doubt and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        if with_store:
            self.store.kill()
        else:
            self.collector.freeze()
            time.sleep(_INSERT_ENDS_SECONDS)
        self.collector.kill()

    def migrate(self, *, settles: bool) -> None:
        """Bring the store to this release: as the collector's installation, or as one that knows nothing of it."""
        self.upgrade(self.store)
        elsewhere = self._home / "elsewhere"
        elsewhere.mkdir(exist_ok=True)
        if settles:
            self._must("collector", "--settle", data=self.collector.data, root=_ROOT)
        data = self.collector.data if settles else elsewhere
        self._must("migrations", "--only", "store", data=data, root=_ROOT)

    def drain(self) -> None:
        """Stop the gateways, which ship what they have, and wait for the collector to store it."""
        for service in self.gateways:
            service.stop()
        deadline, client = time.monotonic() + _DRAIN_SECONDS, StoreClient(self._address)
        rows, quiet_since = -1, time.monotonic()
        while time.monotonic() < min(deadline, quiet_since + 3.0):
            (found,) = client.query("SELECT count() AS n FROM requests")
            if found["n"] != rows:
                rows, quiet_since = int(str(found["n"])), time.monotonic()
            time.sleep(0.2)
        client.close()
        self.collector.stop()

    def look(self, tokens: dict[str, int]) -> _Found:
        """Compare the books with the clients' counts, then let the release before come back."""
        client = StoreClient(self._address)
        books = compare(client, tokens)
        head = "SELECT count() AS n FROM schema_migrations"
        (before,) = client.query(head)
        refused = self._run("migrations", "--only", "store", data=self.collector.data, root=self._previous)
        (after,) = client.query(head)
        client.close()
        written = abs(int(str(after["n"])) - int(str(before["n"])))
        return _Found(books, len(tokens), written + (refused.returncode == 0))

    def _must(self, module: str, *arguments: str, data: Path, root: Path) -> None:
        done = self._run(module, *arguments, data=data, root=root)
        if done.returncode:
            raise RuntimeError(f"{module} {' '.join(arguments)} failed: {done.stderr[-500:]}")

    def _run(self, module: str, *arguments: str, data: Path, root: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", module, *arguments],
            env={**self.collector.environment, "TOLLKEEPER_DATA": str(data), "PYTHONPATH": str(root)},
            cwd=data,
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS,
            check=False,
        )
