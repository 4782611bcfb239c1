"""Hung processes: how soon each of ten is noticed, and what clients and the books see of it.

`tollkeeper up` runs with PostgreSQL, Redis, a dashboard and a provider host, beside a second engine host with the same
model and a second gateway. Under traffic each process is stopped with SIGSTOP until it is noticed, and goes on then.
After that nothing is stopped: engine hosts compute steps of 30 s while eight processes keep the processors busy.
"""

import asyncio
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import psutil

from backends.engine.settings import BUILTIN_PATH
from backends.secrets.secret_files import SecretFiles
from backends.store.address import StoreAddress
from backends.store.client import StoreClient
from bench.crashing.ledger import compare
from bench.fleet.connection import Answer, Connection, chat_request
from bench.fleet.gateway import free_port
from bench.regressions.faults.drain import TAKEN, UP_PORTS, free_ports, wait_for
from bench.report import Report
from tests.backends.counters.redis_server import RedisServer
from tests.conftest import PostgresServer

_ROOT: Final = Path(__file__).resolve().parents[3]
_PROVIDERS_PYTHON: Final = _ROOT / ".venv-providers" / "bin" / "python"
_MODEL: Final = "tollkeeper-5m"
_NOTICE_SECONDS: Final = 5.0
_GIVEN_UP_SECONDS: Final = 20.0
_STOPPED_SECONDS: Final = 6.0
_ENGINE_STOPPED_SECONDS: Final = 13.0  # requests in progress move to the other host after 10
_BACK_SECONDS: Final = 60.0
_START_SECONDS: Final = 300.0
_CLIENTS: Final = 6
_CLIENT_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 0.1
_READY_SECONDS: Final = 2.0
_CALM_SECONDS: Final = 600.0
_QUICK_CALM_SECONDS: Final = 120.0
_STEP_SECONDS: Final = 30.0
_LOAD: Final = 8
_SETTLE_SECONDS: Final = 90.0
_ALARM: Final = re.compile(r"\bhung\b|\baway\b")
_BUSY: Final = "while True: pass"
_SLOW: Final = "slow"
_WATCHED: Final = ("collector", "control", "store", "analytics", "dashboard")
# Where `--port-base` puts them.
_CONTROL, _ANALYTICS, _DASHBOARD, _COLLECTOR, _COLLECTOR_HEALTH, _STORE = 1, 2, 3, 5, 6, 7


@dataclass(frozen=True)
class Fault:
    """A process to stop and what shows that it was noticed: by `/ready`, by a metric, by a line of a log."""

    name: str
    is_in_page: Callable[[Mapping[str, Any]], bool]
    metric: str
    line: str


def _state(page: Mapping[str, Any], *path: str) -> str:
    """Return a state on the page; empty if the page has no such part."""
    found: Any = page
    for part in path:
        found = found.get(part, {})
    return str(found.get("state", ""))


def _process(name: str) -> Fault:
    return Fault(
        name,
        lambda page: _state(page, "processes", name) == "hung" and "processes_away" in page["degraded"],
        f'tollkeeper_process_up{{process="{name}"}} 0',
        f"process hung watched={name}",
    )


_FAULTS: Final = (
    Fault(
        "engine",
        lambda page: _state(page, "engines", "default") == "hung" and "engines_away" in page["degraded"],
        'tollkeeper_engine_host_state{host="default",state="hung"} 1',
        "engine host hung",
    ),
    Fault(
        "providers",
        lambda page: page["provider_host"]["state"] == "hung" and "provider_host_away" in page["degraded"],
        'tollkeeper_process_up{process="providers"} 0',
        "provider host hung",
    ),
    *(_process(name) for name in _WATCHED),
    Fault(
        "redis",
        lambda page: "counters_away" in page["degraded"],
        'tollkeeper_counters_reachable{store="redis"} 0',
        "shared counters are unreachable",
    ),
    Fault(
        "postgresql",
        lambda page: "control_away" in page["degraded"],
        "tollkeeper_control_plane_reachable 0",
        "control plane unreachable",
    ),
    Fault("gateway", lambda page: True, "", "hung: "),  # it cannot show it: the supervisor says so
)


def measure(report: Report) -> None:
    """Stop each process under traffic, then none of them under load."""
    calm_seconds = _QUICK_CALM_SECONDS if report.quick else _CALM_SECONDS
    if report.options.minutes is not None:
        calm_seconds = report.options.minutes * 60
    with tempfile.TemporaryDirectory(prefix="tollkeeper-hung-") as home:
        found = asyncio.run(_drill(Path(home), calm_seconds))
    for fault in _FAULTS:
        metric = f"hung_processes_{fault.name}_noticed"
        if fault.name in found.noticed:
            report.add(metric, round(found.noticed[fault.name], 2), "s", must=_NOTICE_SECONDS, better="lower")
        else:
            report.add_absent(metric, "s", "make providers sets up .venv-providers", must=_NOTICE_SECONDS)
    clients = found.clients
    report.add("hung_processes_log_lines", found.extra_lines, "lines beyond one each", must=0, better="lower", n=10)
    report.add("hung_processes_pages_late", found.late_pages, "pages", must=0, better="lower", n=found.pages)
    report.add("hung_processes_client_errors", clients.errors, "requests", must=0, better="lower", n=clients.asked)
    report.add("hung_processes_lost", found.lost, "records", must=0, better="lower", n=len(clients.tokens))
    report.add("hung_processes_doubled", found.doubled, "records", must=0, better="lower", n=len(clients.tokens))
    report.add("hung_processes_false_alarms", found.alarms, "alarms", must=0, better="lower", n=round(calm_seconds))
    steps = found.long_steps + found.failed_steps
    report.add("hung_processes_long_steps_failed", found.failed_steps, "steps", must=0, better="lower", n=steps)


# the ten processes


@dataclass(slots=True)
class _Clients:
    """What clients that use two gateways have had: output tokens by request id, and errors."""

    ports: tuple[int, int]
    key: str
    tokens: dict[str, int] = field(default_factory=dict)
    asked: int = 0
    errors: int = 0
    is_over: bool = False
    left_out: set[int] = field(default_factory=set)  # ports that a balancer's health check finds silent
    causes: list[str] = field(default_factory=list)

    async def run(self) -> None:
        checks = [asyncio.create_task(self._check(port)) for port in self.ports]
        await asyncio.gather(*[self._ask(number) for number in range(_CLIENTS)])
        for check in checks:
            check.cancel()

    async def _check(self, port: int) -> None:
        async with httpx.AsyncClient(timeout=1.0, trust_env=False) as client:
            while True:
                try:
                    await client.get(f"http://127.0.0.1:{port}/health")
                    self.left_out.discard(port)
                except httpx.HTTPError:
                    self.left_out.add(port)
                await asyncio.sleep(0.5)

    async def _ask(self, number: int) -> None:
        source = random.Random(number)
        while not self.is_over:
            ports = [port for port in self.ports if port not in self.left_out] or list(self.ports)
            is_streamed = source.random() < 0.5
            body = {
                "model": _MODEL,
                "messages": [{"role": "user", "content": f"Tell {source.random()}"}],
                "max_tokens": source.randint(4, 40),
                "stream": is_streamed,
                **({"stream_options": {"include_usage": True}} if is_streamed else {}),
            }
            self.asked += 1
            answer = Answer()
            try:
                connection = await Connection.open(source.choice(ports))
                try:
                    async with asyncio.timeout(_CLIENT_SECONDS):
                        await connection.ask(chat_request(self.key, body), answer)
                finally:
                    connection.close()
            except (OSError, asyncio.IncompleteReadError, TimeoutError, ValueError) as error:
                self.causes.append(type(error).__name__)
            if answer.is_whole and answer.status == 200 and (answer.usage or not is_streamed):
                usage = answer.usage[1] if answer.usage else int(answer.json["usage"]["completion_tokens"])
                self.tokens[answer.request_id] = usage
            else:
                self.errors += 1
                self.causes.append(f"{answer.status} {answer.body[-300:]!r}")
            await asyncio.sleep(_PAUSE_SECONDS)


@dataclass(slots=True)
class _Found:
    clients: _Clients
    noticed: dict[str, float] = field(default_factory=dict)  # seconds; those that could be run
    pages: int = 0
    late_pages: int = 0  # of /ready, of processes that were not stopped
    extra_lines: int = 0
    lost: int = 0
    doubled: int = 0
    alarms: int = 0  # while nothing was stopped
    long_steps: int = 0
    failed_steps: int = 0


@dataclass(slots=True)
class _Plant:
    """A running installation with a second engine host and a second gateway."""

    data: Path
    base: int
    log: Path
    second_log: Path
    second_port: int
    pids: dict[str, Callable[[], list[int]]]
    key: str

    async def ready(self, port: int, client: httpx.AsyncClient) -> dict[str, Any]:
        """Return a gateway's page."""
        page: dict[str, Any] = (await client.get(f"http://127.0.0.1:{port}/ready")).json()
        return page


async def _drill(home: Path, calm_seconds: float) -> _Found:
    async with _running(home) as plant:
        clients = _Clients((plant.base, plant.second_port), plant.key)
        found = _Found(clients)
        asking = asyncio.create_task(clients.run())
        try:
            await asyncio.sleep(2.0)
            for fault in _FAULTS:
                if fault.name in plant.pids:
                    found.noticed[fault.name] = await _stop_one(plant, fault, found)
            await _stop_none(plant, calm_seconds, found)
        finally:
            clients.is_over = True
            await asking
        if clients.causes:
            sys.stderr.write("".join([f"client: {cause}\n" for cause in clients.causes[:20]]))
        found.lost, found.doubled = await _compare(plant, clients.tokens)
        return found


async def _stop_one(plant: _Plant, fault: Fault, found: _Found) -> float:
    """Stop a process, and return after how many seconds page, metric and log have said so."""
    lines = len(_lines(plant, fault))
    stopped = plant.pids[fault.name]()
    began = time.monotonic()
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        seconds = await _until_noticed(plant, fault, lines, began, found)
        least = _ENGINE_STOPPED_SECONDS if fault.name == "engine" else _STOPPED_SECONDS
        await asyncio.sleep(max(began + least - time.monotonic(), 0))
    finally:
        for pid in stopped:
            if psutil.pid_exists(pid):
                os.kill(pid, signal.SIGCONT)
    await _until_well(plant, fault)
    found.extra_lines += max(len(_lines(plant, fault)) - lines - 1, 0)
    return seconds


async def _stop_none(plant: _Plant, seconds: float, found: _Found) -> None:
    """Count the alarms under load while nothing is stopped, and the long steps that an engine took meanwhile."""
    before, deadline = _alarms(plant), time.monotonic() + seconds
    body = {"model": _SLOW, "max_tokens": 1, "messages": [{"role": "user", "content": "A long prompt"}]}
    with ExitStack() as stack:
        for _ in range(_LOAD):
            stack.enter_context(_started([sys.executable, "-c", _BUSY], os.environ, Path(os.devnull)))
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {plant.key}"}, trust_env=False) as client:
            url = f"http://127.0.0.1:{plant.second_port}/v1/chat/completions"
            while time.monotonic() < deadline:
                reply = await client.post(url, json=body, timeout=4 * _STEP_SECONDS)
                found.long_steps += reply.status_code == 200
                found.failed_steps += reply.status_code != 200
                await asyncio.sleep(1.0)
    alarms = _alarms(plant)
    found.alarms = len(alarms) - len(before)
    for line in (Counter(alarms) - Counter(before)).elements():
        print(f"hung_processes: false alarm: {line}", file=sys.stderr)


def _alarms(plant: _Plant) -> list[str]:
    logs = plant.log.read_text() + plant.second_log.read_text()
    return [line for line in logs.splitlines() if _ALARM.search(line)]


async def _until_noticed(plant: _Plant, fault: Fault, lines: int, began: float, found: _Found) -> float:
    port, others = plant.second_port, None
    async with httpx.AsyncClient(timeout=_READY_SECONDS, trust_env=False) as client:
        if fault.name == "postgresql":
            others = asyncio.create_task(_until_unavailable(plant, client, found))
        while (seconds := time.monotonic() - began) < _GIVEN_UP_SECONDS:
            try:
                page = await plant.ready(port, client)
                metrics = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
            except httpx.HTTPError:
                page, metrics = {}, ""
                found.late_pages += 1
            found.pages += 1
            is_told = page and fault.is_in_page(page) and fault.metric in metrics and len(_lines(plant, fault)) > lines
            if is_told and (others is None or others.done()):
                break
            await asyncio.sleep(0.1)
        if others is not None:
            others.cancel()
    return seconds


async def _until_unavailable(plant: _Plant, client: httpx.AsyncClient, found: _Found) -> None:
    """Ask control plane and analytics whether they are ready, until both say in time that they are not."""

    async def code_of(port: int) -> int:
        found.pages += 1
        try:
            return (await client.get(f"http://127.0.0.1:{port}/ready", timeout=_READY_SECONDS + 1)).status_code
        except httpx.HTTPError:
            found.late_pages += 1
            return 0

    ports = (plant.base + _CONTROL, plant.base + _ANALYTICS)
    while set(await asyncio.gather(*[code_of(port) for port in ports])) != {503}:
        await asyncio.sleep(0.1)


async def _until_well(plant: _Plant, fault: Fault) -> None:
    deadline = time.monotonic() + _BACK_SECONDS
    pages: list[dict[str, Any]] = []
    async with httpx.AsyncClient(timeout=_READY_SECONDS, trust_env=False) as client:
        while time.monotonic() < deadline:
            try:
                pages = [await plant.ready(port, client) for port in (plant.base, plant.second_port)]
                if not any(page["degraded"] for page in pages):
                    return
            except httpx.HTTPError:
                pass
            await asyncio.sleep(0.2)
    raise RuntimeError(
        f"not as before within {_BACK_SECONDS:g} s of {fault.name}'s end: {[p['degraded'] for p in pages]}"
    )


def _lines(plant: _Plant, fault: Fault) -> list[str]:
    """Return the lines that tell of a fault: of the second gateway, or of the supervisor about the first."""
    if fault.name == "gateway":
        return [line for line in plant.log.read_text().splitlines() if re.match(r"gateway +\| hung: ", line)]
    return [line for line in plant.second_log.read_text().splitlines() if fault.line in line]


async def _compare(plant: _Plant, tokens: Mapping[str, int]) -> tuple[int, int]:
    """Return how many answered requests have no row in the store, and how many have two, once all are there."""
    secrets = SecretFiles(plant.data / "secrets")
    address = StoreAddress.resolve(f"http://127.0.0.1:{plant.base + _STORE}", "tollkeeper", "reader", secrets)
    store = StoreClient(address)
    deadline = time.monotonic() + _SETTLE_SECONDS
    try:
        while True:
            found = compare(store, tokens)
            if not found.lost or time.monotonic() > deadline:
                return found.lost, found.doubled
            await asyncio.sleep(1.0)
    finally:
        store.close()


# starting them


@asynccontextmanager
async def _running(home: Path) -> AsyncIterator[_Plant]:
    data, log, second_log, base = home / "data", home / "up.log", home / "second.log", free_ports(UP_PORTS)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TOLLKEEPER_")}
    with ExitStack() as stack:
        redis = RedisServer()
        stack.callback(redis.close)
        redis.start()
        postgres = PostgresServer(sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))[-1].parent)
        stack.callback(postgres.stop)
        shared = {
            **kept,
            "PYTHONPATH": str(_ROOT),
            "TOLLKEEPER_DATABASE_URL": postgres.create_database(),
            "TOLLKEEPER_REDIS_URL": redis.url,
            "TOLLKEEPER_KV_EVENTS": "false",
        }
        up = [sys.executable, "-m", "tollkeeper", "up", "--data", str(data), "--port-base", str(base)]
        process = stack.enter_context(_started([*up, "--providers-python", str(_PROVIDERS_PYTHON)], shared, log))
        wait_for(log, "stops everything", process)
        wait_for(log, TAKEN, process)
        shutil.copytree(data / "secrets", home / "second" / "secrets")
        others = {**shared, "TOLLKEEPER_DATA": str(home / "second")}
        second = {"TOLLKEEPER_ENGINE_NAME": "second", "TOLLKEEPER_ENGINE_MODEL": f"{_MODEL}={BUILTIN_PATH}"}
        slow = {"TOLLKEEPER_ENGINE_NAME": "slow", "TOLLKEEPER_ENGINE_MODEL": f"{_SLOW}={BUILTIN_PATH}"}
        slow |= {"SCRIPT_STEP_SECONDS": str(_STEP_SECONDS), "SCRIPT_BUSY": "1", "TOLLKEEPER_ENGINE_EMBEDDER": "false"}
        for module, environment in (("backends.engine", second), ("bench.scripted_host", slow)):
            command = [sys.executable, "-m", module]
            stack.enter_context(_started(command, {**others, **environment}, home / f"{module}.log"))
        ports, port = range(base, base + UP_PORTS), free_port()
        addresses = {
            "collector": f"http://127.0.0.1:{ports[_COLLECTOR_HEALTH]}/health",
            "control": f"http://127.0.0.1:{ports[_CONTROL]}/health",
            "analytics": f"http://127.0.0.1:{ports[_ANALYTICS]}/health",
            "store": f"http://127.0.0.1:{ports[_STORE]}/ping",
            "dashboard": f"http://127.0.0.1:{ports[_DASHBOARD]}/_stcore/health",
        }
        gateway = {
            "TOLLKEEPER_GATEWAY_NAME": "second",
            "TOLLKEEPER_GATEWAY_PORT": str(port),
            "TOLLKEEPER_COLLECTOR_URL": f"http://127.0.0.1:{ports[_COLLECTOR]}",
            "TOLLKEEPER_PROVIDERS_URL": f"unix://{data}/run/providers.sock",
            "TOLLKEEPER_WATCHED_PROCESSES": ",".join([f"{name}={url}" for name, url in addresses.items()]),
        }
        stack.enter_context(_started([sys.executable, "-m", "gateway"], {**others, **gateway}, second_log))
        await _add_targets(ports[_CONTROL], data, home / "second" / "run")
        key = (data / "secrets" / "demo_key").read_text().strip()
        plant = _Plant(data, base, log, second_log, port, _pids(data, redis, postgres), key)
        await _until_complete(plant)
        yield plant


@contextmanager
def _started(command: list[str], environment: Mapping[str, str], log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    with log.open("ab") as file:
        process = subprocess.Popen(command, env=dict(environment), stdout=file, stderr=file)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()  # a supervisor takes its children with it
            process.wait()


def _pids(data: Path, redis: RedisServer, postgres: PostgresServer) -> dict[str, Callable[[], list[int]]]:
    """Return what finds the processes to stop, by name; without the provider host if it cannot run."""

    def supervised(name: str) -> Callable[[], list[int]]:
        return lambda: [int((data / "run" / f"{name}.pid").read_text())]

    def all_of(pid: int) -> list[int]:
        return [pid, *[child.pid for child in psutil.Process(pid).children(recursive=True)]]

    found = {name: supervised(name) for name in ("engine", "providers", *_WATCHED, "gateway")}
    assert redis._process is not None
    redis_pid, postgres_pid = redis._process.pid, postgres._process.pid
    found |= {"redis": lambda: [redis_pid], "postgresql": lambda: all_of(postgres_pid)}
    if not _PROVIDERS_PYTHON.exists():
        del found["providers"]
    return found


async def _add_targets(port: int, data: Path, run: Path) -> None:
    """Add the second host to the model's pool, the slow one as a model, and a hosted model that nobody asks."""
    token = (data / "secrets" / "admin_token").read_text().strip()
    address = f"http://127.0.0.1:{port}/v1"
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}, trust_env=False) as client:

        async def post(path: str, body: Mapping[str, object]) -> None:
            (await client.post(f"{address}{path}", json=body, timeout=30.0)).raise_for_status()

        pool = (await client.get(f"{address}/models/{_MODEL}")).json()["pool_id"]
        await post(
            f"/pools/{pool}/targets", {"id": "second", "kind": "engine", "url": f"unix://{run}/engine-second.sock"}
        )
        hosted = {"id": "hosted", "kind": "litellm", "model": "anthropic/none", "key_ref": "env:NONE_API_KEY"}
        targets = {_SLOW: {"id": "slow", "kind": "engine", "url": f"unix://{run}/engine-slow.sock"}}
        targets |= {"hosted": hosted} if _PROVIDERS_PYTHON.exists() else {}
        for name, target in targets.items():
            await post("/pools", {"id": name})
            await post(f"/pools/{name}/targets", target)
            await post("/models", {"id": name, "pool": name})


async def _until_complete(plant: _Plant) -> None:
    """Wait until both gateways see every process and every engine host."""
    deadline = time.monotonic() + _START_SECONDS
    pages: list[dict[str, Any]] = []
    async with httpx.AsyncClient(timeout=_READY_SECONDS, trust_env=False) as client:
        while time.monotonic() < deadline:
            try:
                pages = [await plant.ready(port, client) for port in (plant.base, plant.second_port)]
            except httpx.HTTPError:
                pages = []
            if pages and all(map(_is_complete, pages)):
                return
            await asyncio.sleep(0.2)
    raise RuntimeError(f"not complete within {_START_SECONDS:g} s: {json.dumps(pages)[:3000]}")


def _is_complete(page: Mapping[str, Any]) -> bool:
    engines = [host["state"] for host in page["engines"].values()]
    processes = [process["state"] for process in page.get("processes", {}).values()]
    return not page["degraded"] and engines == ["ready"] * 3 and set(processes) <= {"up"}
