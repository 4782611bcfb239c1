"""Real servers for every test: the embedded store, and the control database on SQLite and PostgreSQL."""

import asyncio
import contextlib
import gc
import importlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import urllib.request
from collections import deque
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from backends.control.database import ControlDatabase
from backends.secrets.secret_files import SecretFiles
from backends.store.address import StoreAddress, StoreRole
from backends.store.client import StoreClient
from migrations.database import migrate_database
from migrations.store import migrate_store, read_migrations
from tests import warm_start
from tests.made_once import made_once
from tests.memory_files import memory_directory
from tests.patient_loop import PatientLoop
from tests.ports import find_free_ports
from tests.second_store import emptied
from tests.steady_time import poll_within
from tests.turns import Turns

# Imports and collected tests stay until the end. Looking for garbage among them took more than half of collection.
gc.disable()
# Afterwards as seldom as in a gateway: each test builds an application whose parts live as long as it does.
COLLECT_EVERY_OBJECTS = 20_000

# For the docstrings of SCIM's models Pydantic asks for the module of each frame, and Python goes through all modules to
# find it: after torch, transformers and Streamlit that takes seconds of CPU time, before them half a second.
_BEFORE_ALL_OTHERS = ("scim2_client", "gateway.control.scim.service")
PATIENCE_SECONDS = 120.0
TURNS = pytest.StashKey[Turns]()
_DATABASES_KEPT = 20
_COMPILING = ("compile_expressions", "compile_aggregate_expressions", "compile_sort_description")

# An example's time is the machine's business, and a machine busy with other things must not fail a test.
hypothesis_settings.register_profile("tollkeeper", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.load_profile("tollkeeper")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with what takes longest, the walks over the whole road: at the end something short is left for all."""
    items.sort(key=lambda item: item.get_closest_marker("e2e") is None)


def pytest_collection_finish() -> None:
    """Hide what was imported from the garbage collector, and begin to collect. The little garbage among it stays."""
    gc.freeze()
    gc.set_threshold(COLLECT_EVERY_OBJECTS, 10, 10)
    gc.enable()


def _hide_what_stays() -> None:
    """Collect, and let no later collection look at what is left: with torch one took most of a second, and each engine
    asks for one when it stops.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Run a test marked `alone` while no other process of this run is in a test. After a file of tests, hide from the
    garbage collector what it leaves: imports, fixtures of the session, reports.
    """
    with item.config.stash[TURNS].taken(is_alone=item.get_closest_marker("alone") is not None):
        result = yield
    if nextitem is not None and nextitem.path != item.path:
        _hide_what_stays()
    return result


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run on asyncio's loop, which no stall of the machine hurries; what is served by uvloop says so further down."""
    return {"asyncio": PatientLoop}


def pytest_configure(config: pytest.Config) -> None:
    if (memory := memory_directory()) is not None:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))  # what pytest calls the place of `tmp_path`
    is_worker = "PYTEST_XDIST_WORKER" in os.environ  # whose temporary directory lies in the run's
    if is_worker:  # of a run of many files
        for module in _BEFORE_ALL_OTHERS:
            importlib.import_module(module)
    config.stash[TURNS] = Turns(Path(config.getoption("basetemp")).parent if is_worker else None)


def poll(condition: Callable[[], bool], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    assert poll_within(condition, seconds), f"{what} did not happen within {seconds:g} seconds"


class StoreProcess:
    """A store's process on ports and a directory of its own; can be killed and started again."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.http_port, self.native_port = find_free_ports(2)
        self.database = "tollkeeper"
        self.log = data / "store.log"
        self._process: warm_start.WarmProcess | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables that any process needs to find this store, and the store to be this one."""
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("TOLLKEEPER_")},
            "TOLLKEEPER_DATA": str(self.data),
            "TOLLKEEPER_STORE_URL": self.url,
            "TOLLKEEPER_STORE_HTTP_PORT": str(self.http_port),
            "TOLLKEEPER_STORE_NATIVE_PORT": str(self.native_port),
        }

    @property
    def process(self) -> warm_start.WarmProcess:
        assert self._process is not None, "the store was not started"
        return self._process

    def address(self, role: StoreRole = "writer") -> StoreAddress:
        return StoreAddress.resolve(self.url, self.database, role, SecretFiles(self.data / "secrets"))

    def client(self, role: StoreRole = "writer") -> StoreClient:
        return StoreClient(self.address(role))

    def start(self) -> None:
        self.data.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = warm_start.start("backends.store", env=self.environment, stdout=log, stderr=log)
        poll(self._answers, "the store's start")

    def start_without_compiling(self) -> None:
        """Start a store that tests share: to compile a query takes as long as to read millions of rows, and has to be
        done anew by each process. The stores of `tollkeeper up` are as they are.
        """
        profiles = self.data / "store" / "config" / "users.d"
        profiles.mkdir(parents=True, exist_ok=True)
        off = "".join(f"<{name}>0</{name}>" for name in _COMPILING)
        (profiles / "tests.xml").write_text(f"<clickhouse><profiles><default>{off}</default></profiles></clickhouse>")
        self.start()

    def migrate(self) -> None:
        migrate_store(self.address(), read_migrations(), wait_seconds=PATIENCE_SECONDS, say=lambda line: None)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self, signal_number: int = signal.SIGTERM) -> int:
        self.process.send_signal(signal_number)
        return self.process.wait(PATIENCE_SECONDS)

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            with urllib.request.urlopen(f"{self.url}/ping", timeout=1) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False


@pytest.fixture
def path_outside_dev() -> Iterator[Path]:
    """Provide a directory that is not below /dev, where `tmp_path` may lie: no file there is ever a credential."""
    with tempfile.TemporaryDirectory(prefix="tollkeeper-credentials-") as folder:
        yield Path(folder)


class PostgresServer:
    """A PostgreSQL of the system's packages on a port and a directory of its own, under a user that is not root."""

    def __init__(self, binaries: Path, primary: "PostgresServer | None" = None) -> None:
        """Create a server of its own, or a standby that follows `primary`."""
        self._binaries = binaries
        (self.port,) = find_free_ports(1)
        self.directory = Path(tempfile.mkdtemp(prefix="tollkeeper-postgres-", dir=memory_directory()))
        self._as_user: list[str] = []
        if os.geteuid() == 0:  # which postgres refuses to run as
            user = pwd.getpwnam("postgres")
            os.chown(self.directory, user.pw_uid, user.pw_gid)
            self._as_user = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        cluster = self._cluster = self.directory / "cluster"
        initialise: list[str | Path] = [
            binaries / "initdb",
            "-D",
            cluster,
            "-A",
            "trust",
            "-U",
            "tollkeeper",
            "-E",
            "UTF8",
            "--no-sync",
        ]
        if primary is not None:
            source = f"host=127.0.0.1 port={primary.port} user=tollkeeper"
            initialise = [binaries / "pg_basebackup", "-D", cluster, "-d", source, "-R", "-X", "stream", "-c", "fast"]
        self.run(*initialise)
        self._made = 0
        self._short_lived: deque[str] = deque()
        self.start()

    def run(self, *command: str | Path) -> None:
        """Run one of PostgreSQL's programs as the server's user."""
        subprocess.run([*self._as_user, *command], check=True, capture_output=True, cwd=self.directory)

    def start(self) -> None:
        serve: list[str | Path] = [self._binaries / "postgres", "-D", self._cluster, "-k", self.directory]
        serve += ["-p", str(self.port), "-c", "listen_addresses=127.0.0.1", "-c", "max_connections=50"]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._as_user, *serve, "-c", "fsync=off"], stdout=log, stderr=log, cwd=self.directory
            )
        poll(self._answers, "PostgreSQL's start")

    def processes(self) -> list[int]:
        """Return the ids of the server's processes, its own first."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        return [self._process.pid, *map(int, children)]

    def kill(self) -> None:
        """Kill all of its processes: what they had not written is lost."""
        for process in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self._process.wait(PATIENCE_SECONDS)

    def freeze(self) -> None:
        for process in self.processes():
            os.kill(process, signal.SIGSTOP)

    def go_on(self) -> None:
        for process in reversed(self.processes()):
            os.kill(process, signal.SIGCONT)

    def promote(self) -> None:
        self.run(self._binaries / "pg_ctl", "promote", "-D", self._cluster, "-w")

    def url(self, database: str) -> str:
        return f"postgresql://tollkeeper@127.0.0.1:{self.port}/{database}"

    def create_database(self, template: str = "template1") -> str:
        """Create a database that stays, and return its URL."""
        self._made += 1
        name = f"test_{self._made}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            # Copying files takes half the time of writing each page to the log.
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY".encode())
        return self.url(name)

    def create_short_lived(self, template: str = "template1") -> str:
        """Create a database for one test and return its URL. It is dropped after twenty more, when whatever its test
        left running has closed its connections.
        """
        url = self.create_database(template)
        self._short_lived.append(url.rpartition("/")[2])
        if len(self._short_lived) > _DATABASES_KEPT:
            with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
                connection.execute(f"DROP DATABASE {self._short_lived.popleft()} WITH (FORCE)".encode())
        return url

    def stop(self) -> None:
        self._process.send_signal(signal.SIGQUIT)  # "immediate shutdown": what it has is not to be kept
        self._process.wait(PATIENCE_SECONDS)
        # Thousands of files: nobody waits for that.
        subprocess.run(["sh", "-c", 'rm -rf "$0" &', self.directory], check=True, start_new_session=True)

    def _answers(self) -> bool:
        assert self._process.poll() is None, (self.directory / "log").read_text()
        try:
            psycopg.connect(self.url("postgres"), connect_timeout=1).close()
        except psycopg.OperationalError:
            return False
        return True


class PostgresPair:
    """A primary, and a standby that has all that was committed there (`synchronous_commit` waits for it)."""

    def __init__(self, binaries: Path) -> None:
        self._binaries = binaries
        self.primary = PostgresServer(binaries)
        self.standby: PostgresServer

    def start(self) -> None:
        self.standby = PostgresServer(self._binaries, self.primary)
        with psycopg.connect(self.primary.url("postgres"), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            connection.execute("SELECT pg_reload_conf()")
            poll(lambda: self._is_synchronous(connection), "synchronous replication")

    def promote_standby(self) -> None:
        self.standby.promote()

    def url(self, database: str) -> str:
        hosts = f"127.0.0.1:{self.primary.port},127.0.0.1:{self.standby.port}"
        return f"postgresql://tollkeeper@{hosts}/{database}"

    def stop(self) -> None:
        for server in (self.primary, getattr(self, "standby", None)):
            if server is not None:
                server.stop()

    def _is_synchronous(self, connection: "psycopg.Connection[Any]") -> bool:
        row = connection.execute("SELECT sync_state FROM pg_stat_replication").fetchone()
        return row is not None and row[0] == "sync"


@pytest.fixture(scope="session", autouse=True)
def end_of_warm_starts() -> Iterator[None]:
    """Wait at the end for the processes that others were forked from."""
    yield
    warm_start.end_servers()


@pytest.fixture(scope="session")
def require_service() -> Callable[[str, bool, str], None]:
    """Provide `require(name, is_available, how_to_get_it)`: skips where it is missing, fails where
    REQUIRE_SERVICES=1.
    """

    def require(name: str, is_available: bool, how_to_get_it: str) -> None:
        if is_available:
            return
        if os.environ.get("REQUIRE_SERVICES") == "1":
            pytest.fail(f"{name} is missing and REQUIRE_SERVICES=1: {how_to_get_it}")
        pytest.skip(f"{name} is missing: {how_to_get_it}")

    return require


@pytest.fixture(scope="session")
def free_ports() -> Callable[[int], list[int]]:
    return find_free_ports


@pytest.fixture
def new_store(tmp_path: Path) -> Iterator[StoreProcess]:
    """A store of the test's own, not started: for tests that kill, stop or break it."""
    process = StoreProcess(tmp_path / "tollkeeper")
    yield process
    if process._process is not None and process.process.poll() is None:
        process.kill()


@pytest.fixture(scope="session")
def migrated_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a store at head, to be copied: the migrations take a store three seconds of CPU time."""

    def make(place: Path) -> None:
        process = StoreProcess(place)
        try:
            process.start()
            process.migrate()
            assert process.stop() == 0
        finally:
            process.kill()
        shutil.rmtree(place / "store" / "config")  # a pipe among it cannot be copied, and each start writes all of it

    return made_once(tmp_path_factory, "migrated-store", make)


@pytest.fixture
def migrated_store(new_store: StoreProcess, migrated_files: Path) -> StoreProcess:
    """A store of the test's own at head, not started: for tests that kill, stop or break it."""
    shutil.copytree(migrated_files, new_store.data, symlinks=True)
    return new_store


@pytest.fixture(scope="session")
def store(migrated_files: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreProcess]:
    """A running, migrated store that all tests share; `empty_store` is the same without rows."""
    process = StoreProcess(tmp_path_factory.mktemp("store") / "tollkeeper")
    shutil.copytree(migrated_files, process.data, symlinks=True)
    try:
        process.start_without_compiling()
        yield process
    finally:
        process.kill()


@pytest.fixture
def empty_store(store: StoreProcess) -> StoreProcess:
    return emptied(store)


@pytest.fixture(scope="session")
def postgres(require_service: Callable[[str, bool, str], None]) -> Iterator[PostgresServer]:
    binaries = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    require_service("PostgreSQL", bool(binaries), "apt-get install postgresql")
    server = PostgresServer(binaries[-1].parent)
    try:
        migrate_database(server.create_database(), say=lambda line: None)  # becomes every other database's template
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("control") / "control.db"
    migrate_database(f"sqlite:///{file}", say=lambda line: None)
    return file


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.service)])
def control_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a migrated control database of the test's own, on each of the two databases."""
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        return server.create_short_lived(template="test_1")
    copy = tmp_path / "control.db"
    shutil.copy(request.getfixturevalue("migrated_sqlite"), copy)
    return f"sqlite:///{copy}"


@pytest.fixture
def control_database(control_database_url: str) -> Iterator[ControlDatabase]:
    database = ControlDatabase(control_database_url)
    yield database
    database.close()
