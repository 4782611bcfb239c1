"""Several Redis servers on loopback: a cluster, or a primary with replicas that Sentinels watch."""

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from redis import Redis
from redis.crc import key_slot
from redis.exceptions import RedisError

from tests.conftest import poll
from tests.ports import find_free_ports

_BINARY = "redis-server"
_NODE_TIMEOUT_MS = 2000
_SLOTS = 16384


class RedisNode:
    """One server on a port of its own, that can be killed, frozen and started again with what it had on its disk."""

    def __init__(self, folder: Path, port: int, *options: str, config: str = "") -> None:
        self.port = port
        self.folder = folder / str(port)
        self.folder.mkdir()
        self._options = options
        self._config = config
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def client(self) -> Redis:
        return Redis(port=self.port, socket_timeout=2, decode_responses=True)

    def start(self) -> None:
        command = [_BINARY]
        if self._config:
            file = self.folder / "server.conf"
            if not file.exists():
                file.write_text(self._config)
            command.append(str(file))
        command += ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self.folder)]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen([*command, *self._options], stdout=log, stderr=log)
        poll(self.answers, "the start of redis-server")

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def answers(self) -> bool:
        assert self._process is not None and self._process.poll() is None, (self.folder / "log").read_text()
        try:
            with self.client() as client:
                return bool(client.ping())
        except RedisError:
            return False

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()


class RedisCluster:
    """Three primaries, and two replicas of the one that serves the counters: the others hold nothing of ours."""

    def __init__(self, folder: Path, tag: str) -> None:
        options = ["--cluster-enabled", "yes", "--cluster-node-timeout", str(_NODE_TIMEOUT_MS)]
        options += ["--repl-diskless-sync-delay", "0", "--cluster-require-full-coverage", "no"]
        options += ["--cluster-allow-replica-migration", "no"]  # or one would leave for a primary that has none
        ports = find_free_ports(10)
        self.slot = key_slot(tag.encode())
        self.nodes = [
            RedisNode(folder, port, *options, "--cluster-port", str(bus))
            for port, bus in zip(ports[:5], ports[5:], strict=True)
        ]

    @property
    def url(self) -> str:
        return "redis://" + ",".join(node.host for node in self.nodes)

    def start(self) -> None:
        for node in self.nodes:
            node.start()
        clients = [node.client() for node in self.nodes]
        third = _SLOTS // 3
        ranges = ((0, third), (third + 1, 2 * third), (2 * third + 1, _SLOTS - 1))
        for number, client in enumerate(clients):
            client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
        for client, (first, last) in zip(clients, ranges, strict=False):
            client.execute_command("CLUSTER ADDSLOTSRANGE", first, last)
        for node in self.nodes[1:]:
            bus = int(node._options[-1])
            clients[0].execute_command("CLUSTER MEET", "127.0.0.1", node.port, bus)
        poll(
            lambda: all(client.execute_command("CLUSTER INFO")["cluster_known_nodes"] == "5" for client in clients),
            "5 nodes",
        )
        owner = next(
            client for client, (first, last) in zip(clients, ranges, strict=False) if first <= self.slot <= last
        )
        name = owner.execute_command("CLUSTER MYID")
        for client in clients[3:]:
            poll(partial(_replicates, client, name), "a replica's knowing of its primary")
        poll(lambda: len(self.replicas()) == 2, "two replicas")
        poll(self.is_whole, "the cluster's start")
        for client in clients:
            client.close()

    def primary(self) -> RedisNode | None:
        """Return the node that says with the latest epoch that it serves the counters' slot as a primary."""
        claims: list[tuple[int, RedisNode]] = []
        for node in self.nodes:
            try:
                with Redis(port=node.port, socket_timeout=0.3, decode_responses=True) as client:
                    lines = str(client.execute_command("CLUSTER", "NODES")).splitlines()
            except RedisError:
                continue
            mine = next(line.split() for line in lines if "myself" in line)
            if "master" in mine[2] and any(_covers(field, self.slot) for field in mine[8:]):
                claims.append((int(mine[6]), node))
        return max(claims, key=lambda claim: claim[0])[1] if claims else None

    def primaries(self) -> list[RedisNode]:
        """Return the nodes that are primaries at this moment."""
        found = []
        for node in self.nodes:
            with node.client() as client:
                if client.info("replication")["role"] == "master":
                    found.append(node)
        return found

    def replicas(self) -> list[str]:
        """Return the ids of what the primary has as connected replicas."""
        primary = self.primary()
        if primary is None:
            return []
        with primary.client() as client:
            facts = client.info("replication")
        return _online(facts)

    def is_whole(self) -> bool:
        """Return whether all nodes say that all slots are served."""
        for node in self.nodes:
            with node.client() as client:
                if client.execute_command("CLUSTER INFO")["cluster_state"] != "ok":
                    return False
        return True

    def close(self) -> None:
        for node in self.nodes:
            node.close()


class WatchedRedis:
    """A primary with two replicas, and three Sentinels that know it as `main`."""

    def __init__(self, folder: Path) -> None:
        ports = find_free_ports(6)
        first = ports[0]
        quick = ("--repl-diskless-sync-delay", "0")
        self.nodes = [
            RedisNode(folder, port, *quick, *(("--replicaof", f"127.0.0.1 {first}") if port != first else ()))
            for port in ports[:3]
        ]
        config = (
            f"sentinel monitor main 127.0.0.1 {first} 2\nsentinel down-after-milliseconds main 2000\n"
            "sentinel failover-timeout main 3000\nsentinel parallel-syncs main 2\n"
        )
        self.sentinels = [RedisNode(folder, port, "--sentinel", config=config) for port in ports[3:]]

    @property
    def url(self) -> str:
        return "redis+sentinel://" + ",".join(node.host for node in self.sentinels) + "/main"

    def start(self) -> None:
        for node in (*self.nodes, *self.sentinels):
            node.start()
        poll(lambda: all(self._knows_all(node) for node in self.sentinels), "the Sentinels' knowing of each other")
        poll(lambda: len(self.replicas()) == 2, "two replicas")

    def primary(self) -> RedisNode | None:
        """Return the node that most Sentinels name."""
        named: list[int] = []
        for sentinel in self.sentinels:
            with sentinel.client() as client:
                named.append(int(client.execute_command("SENTINEL GET-MASTER-ADDR-BY-NAME", "main")[1]))
        port = max(set(named), key=named.count)
        return next(node for node in self.nodes if node.port == port)

    def replicas(self) -> list[str]:
        """Return what the primary has as connected replicas."""
        primary = self.primary()
        assert primary is not None
        with primary.client() as client:
            facts = client.info("replication")
        return _online(facts)

    def close(self) -> None:
        for node in (*self.nodes, *self.sentinels):
            node.close()

    def _knows_all(self, sentinel: RedisNode) -> bool:
        with sentinel.client() as client:
            facts = client.execute_command("SENTINEL MASTER", "main")
        return int(facts["num-other-sentinels"]) == 2 and int(facts["num-slaves"]) == 2


RedisFleet = RedisCluster | WatchedRedis
FleetT = TypeVar("FleetT", bound=RedisFleet)


@contextmanager
def running(fleet: FleetT) -> Iterator[FleetT]:
    """Start the servers, and end them whatever happens."""
    try:
        fleet.start()
        yield fleet
    finally:
        fleet.close()


@contextmanager
def folder_of_fleet() -> Iterator[Path]:
    """Provide a short-lived folder for the servers' files."""
    folder = Path(tempfile.mkdtemp(prefix="tollkeeper-redis-fleet-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _online(facts: Mapping[str, object]) -> list[str]:
    return [
        key
        for key, value in facts.items()
        if key.startswith("slave") and isinstance(value, dict) and value["state"] == "online"
    ]


def _replicates(client: Redis, primary: str) -> bool:
    try:
        return bool(client.execute_command("CLUSTER REPLICATE", primary))
    except RedisError:
        return False


def _covers(field: str, slot: int) -> bool:
    low, _, high = field.partition("-")
    return low.isdecimal() and int(low) <= slot <= int(high or low)


def hosts(nodes: Sequence[RedisNode]) -> str:
    """Return the hosts of a URL that names these nodes."""
    return ",".join(node.host for node in nodes)
