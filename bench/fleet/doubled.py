"""A whole installation of which everything but the store runs twice or more, on loopback, each part to be lost.

Four gateways at a Redis Cluster, two control planes at a PostgreSQL pair, two collectors behind one address that loses
answers, and an embedded store.
"""

import asyncio
import json
import random
import shutil
import tempfile
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

import psycopg

from backends.secrets.secret_files import SecretFiles
from backends.store.address import StoreAddress
from backends.store.client import StoreClient
from bench.crashing.balancer import Balancer
from bench.crashing.plant import ports_for_long
from bench.crashing.service import Service
from migrations.database import migrate_database
from migrations.store import migrate_store, read_migrations
from tests.backends.counters.redis_fleet import RedisCluster
from tests.conftest import PostgresPair
from tests.steady_time import poll_within

GATEWAYS: Final = 4
PLANES: Final = 2
COLLECTORS: Final = 2
_NAMESPACE: Final = "counters"  # the gateways' own: the primary of its slot has the replicas
_MIGRATE_SECONDS: Final = 120.0
_ASK_SECONDS: Final = 5.0


class Doubled:
    """`async with` starts all of it in a temporary folder; at the end it is killed and gone."""

    def __init__(self, source: random.Random, postgres_binaries: Path) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="tollkeeper-doubled-"))
        self._binaries = postgres_binaries
        self._closing = ExitStack()
        self._secrets = self._home / "secrets"
        self._secrets.mkdir(mode=0o700)
        first = ports_for_long(2 + 2 * COLLECTORS + PLANES + GATEWAYS, source)
        ports = iter(range(first, first + 2 + 2 * COLLECTORS + PLANES + GATEWAYS))
        http, native = next(ports), next(ports)
        store_ports = {"TOLLKEEPER_STORE_HTTP_PORT": str(http), "TOLLKEEPER_STORE_NATIVE_PORT": str(native)}
        url = f"http://127.0.0.1:{http}"
        self.store = Service("store", "backends.store", self._home, f"{url}/ping", store_ports)
        self._address = StoreAddress.resolve(url, "tollkeeper", "writer", SecretFiles(self.store.data / "secrets"))
        collector_ports = [(next(ports), next(ports)) for _ in range(COLLECTORS)]
        self.collectors = [self._collector(f"collector-{n}", *each) for n, each in enumerate(collector_ports, 1)]
        self._plane_ports = [next(ports) for _ in range(PLANES)]
        self.gateway_ports = [next(ports) for _ in range(GATEWAYS)]
        self.balancer = Balancer([port for port, _ in collector_ports], source, 0.05)
        self.planes: list[Service] = []
        self.gateways: list[Service] = []
        self.redis = RedisCluster(self._home, _NAMESPACE)
        self.postgres: PostgresPair

    async def __aenter__(self) -> Self:
        try:
            await self.balancer.__aenter__()
            await asyncio.to_thread(self._start)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for service in self.services:
            service.end()
        self.redis.close()
        self._closing.close()
        await self.balancer.__aexit__()
        shutil.rmtree(self._home, ignore_errors=True)

    @property
    def services(self) -> list[Service]:
        """Return our own processes."""
        return [self.store, *self.collectors, *self.planes, *self.gateways]

    @property
    def demo_key(self) -> str:
        """Return the secret of the demonstration's key."""
        found = SecretFiles(self._secrets).get("demo_key")
        assert found is not None
        return found

    def client(self) -> StoreClient:
        """Connect to the store."""
        return StoreClient(self._address)

    def change(self, plane: int, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Post to one of the control planes as the owner. Raises OSError if it does not say that it is done."""
        token = SecretFiles(self._secrets).get("admin_token")
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._plane_ports[plane]}{path}",
            data=json.dumps(body).encode(),
            headers={"authorization": f"Bearer {token}", "content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=_ASK_SECONDS) as reply:
            found: dict[str, Any] = json.loads(reply.read())
        return found

    def leader(self) -> Service:
        """Return the control plane that holds the lease."""
        url = f"{self.postgres.url(self._control_name)}?connect_timeout=2&target_session_attrs=read-write"
        with psycopg.connect(url) as connection:
            row = connection.execute("SELECT holder FROM leases WHERE name = 'control-plane'").fetchone()
        assert row is not None, "no control plane leads"
        return self.planes[self._plane_ports.index(int(str(row[0]).rpartition(":")[2]))]

    def tenants(self) -> set[str]:
        """Return the ids of all tenants, as the server that was promoted has them.

        The former primary takes writes as well, of whoever has not seen the other one.
        """
        with psycopg.connect(self.postgres.standby.url(self._control_name), connect_timeout=2) as connection:
            return {str(row[0]) for row in connection.execute("SELECT id FROM tenants")}

    def is_whole(self) -> bool:
        """Return whether all of our processes say that they are ready, and no gateway is on its own."""
        if not all(service.is_ready() for service in self.services):
            return False
        for gateway in self.gateways:
            health = _page(gateway.ready_url)
            if set(health["degraded"]) & {"counters_away", "control_away", "collector_away"}:
                return False
        return True

    def is_drained(self) -> bool:
        """Return whether journals and spools are empty."""
        try:
            journals = [_page(gateway.ready_url)["journal_bytes"] for gateway in self.gateways]
            spools = [_page(collector.ready_url)["spool_bytes"] for collector in self.collectors]
        except (OSError, urllib.error.URLError):
            return False
        return not any(journals) and not any(spools)

    def _start(self) -> None:
        self.postgres = PostgresPair(self._binaries)
        self._closing.callback(self.postgres.stop)
        names = [self.postgres.primary.create_database().rpartition("/")[2] for _ in range(2)]
        self.postgres.start()
        self._control_name = names[0]
        databases = {
            "TOLLKEEPER_DATABASE_URL": self.postgres.url(names[0]),
            "TOLLKEEPER_OBJECTS_URL": self.postgres.url(names[1]),
        }
        self.redis.start()
        self.store.start()
        migrate_store(self._address, read_migrations(), wait_seconds=_MIGRATE_SECONDS, say=lambda line: None)
        migrate_database(
            databases["TOLLKEEPER_DATABASE_URL"], say=lambda line: None, secrets=SecretFiles(self._secrets)
        )
        self.planes = [self._plane(n, port, databases) for n, port in enumerate(self._plane_ports, 1)]
        self.gateways = [self._gateway(n, port, databases) for n, port in enumerate(self.gateway_ports, 1)]
        for service in (*self.planes, *self.collectors, *self.gateways):
            service.start()
        assert poll_within(self.is_whole, _MIGRATE_SECONDS), "the installation is not whole"

    def _service(self, name: str, module: str, page: str, environment: dict[str, str]) -> Service:
        service = Service(name, module, self._home, page, environment)
        (service.data / "secrets").symlink_to(self._secrets)  # they are one installation's
        return service

    def _plane(self, number: int, port: int, databases: dict[str, str]) -> Service:
        environment = {
            **databases,
            "TOLLKEEPER_CONTROL_PORT": str(port),
            "TOLLKEEPER_AUDIT_SINK": str(self._home / "sink"),
        }
        return self._service(f"control-{number}", "gateway.control", f"http://127.0.0.1:{port}/ready", environment)

    def _gateway(self, number: int, port: int, databases: dict[str, str]) -> Service:
        environment = {
            **databases,
            "TOLLKEEPER_GATEWAY_NAME": f"gw-{number}",
            "TOLLKEEPER_GATEWAY_PORT": str(port),
            "TOLLKEEPER_REDIS_URL": self.redis.url,
            "TOLLKEEPER_COLLECTOR_URL": f"http://127.0.0.1:{self.balancer.port}",
        }
        return self._service(f"gateway-{number}", "gateway", f"http://127.0.0.1:{port}/ready", environment)

    def _collector(self, name: str, port: int, health_port: int) -> Service:
        environment = {
            "TOLLKEEPER_COLLECTOR_PORT": str(port),
            "TOLLKEEPER_COLLECTOR_HEALTH_PORT": str(health_port),
            "TOLLKEEPER_OTLP_GRPC_PORT": "0",
            "TOLLKEEPER_STORE_URL": self._address.url,
            "TOLLKEEPER_STORE_USER": self._address.user,
            "TOLLKEEPER_STORE_PASSWORD": self._address.password,
        }
        return self._service(name, "collector", f"http://127.0.0.1:{health_port}/health", environment)


def _page(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url, timeout=_ASK_SECONDS) as reply:
        found: dict[str, Any] = json.loads(reply.read())
    return found
