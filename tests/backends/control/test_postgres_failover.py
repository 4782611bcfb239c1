"""A control database on two PostgreSQL servers: the standby is promoted, and the former primary comes back as one."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import text

from backends.control.database import ControlDatabase, database_url
from backends.control.postgres_hosts import hosts_of
from contracts.errors import ConfigurationError, ControlUnavailable
from tests.conftest import PostgresPair, poll

pytestmark = pytest.mark.service


@pytest.fixture
def pair(require_service) -> Iterator[PostgresPair]:
    binaries = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    require_service("PostgreSQL", bool(binaries), "apt-get install postgresql")
    made = PostgresPair(binaries[-1].parent)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def write(database: ControlDatabase, value: int) -> None:
    with database.session() as session:
        session.execute(text("INSERT INTO kept VALUES (:value)"), {"value": value})


def write_until_taken(database: ControlDatabase, value: int) -> None:
    def is_taken() -> bool:
        try:
            write(database, value)
        except ControlUnavailable:
            return False
        return True

    poll(is_taken, f"the writing of {value}", 30)


def kept(url: str) -> set[int]:
    with psycopg.connect(url) as connection:
        return {row[0] for row in connection.execute("SELECT value FROM kept")}


@pytest.mark.parametrize("how", ["killed", "frozen"])
@pytest.mark.drill
def test_what_was_committed_is_there_after_the_promotion_and_a_former_primary_gets_no_writes(
    pair: PostgresPair, how: str
):
    with psycopg.connect(pair.primary.url("postgres"), autocommit=True) as connection:
        connection.execute("CREATE TABLE kept (value int PRIMARY KEY)")
    database = ControlDatabase(pair.url("postgres"))
    try:
        for value in range(10):
            write(database, value)
        long_one = Statement(database)
        began = time.monotonic()
        pair.primary.kill() if how == "killed" else pair.primary.freeze()
        pair.promote_standby()
        write_until_taken(database, 10)
        print(f"{how}: written to the promoted standby after {time.monotonic() - began:.2f} s")
        assert long_one.ends_as() == "away"
        pair.primary.start() if how == "killed" else pair.primary.go_on()  # both take writes now
        poll(lambda: not is_standby(pair.primary.url("postgres")), "the return of the former primary")
        with psycopg.connect(pair.primary.url("postgres"), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = ''")  # it need not wait for a standby now
            connection.execute("SELECT pg_reload_conf()")
        later = ControlDatabase(pair.url("postgres"))  # a process that knew neither
        for value in range(11, 20):
            write(database, value)
            write(later, 100 + value)
        later.close()
        assert kept(pair.standby.url("postgres")) == {*range(20), *range(111, 120)}
        assert kept(pair.primary.url("postgres")) == set(range(10))
    finally:
        database.close()


def test_a_connection_to_a_former_primary_is_given_up_and_a_long_statement_is_waited_for(pair: PostgresPair):
    """The primary is cut off from nobody: its standby is promoted beside it, as a person might do."""
    database = ControlDatabase(pair.url("postgres"))
    try:
        with database.session() as session:
            assert session.execute(text("SELECT pg_sleep(4), 7")).one()[1] == 7
        pair.promote_standby()
        poll(lambda: _reaches_standby(database, pair), "the change to the promoted server", 30)
    finally:
        database.close()


class Statement:
    """A statement of a minute, in a thread."""

    def __init__(self, database: ControlDatabase) -> None:
        self._database = database
        self._ended = ""
        self._thread = threading.Thread(target=self._sleep, daemon=True)
        self._thread.start()
        time.sleep(0.3)

    def ends_as(self) -> str:
        self._thread.join(30)
        return self._ended

    def _sleep(self) -> None:
        try:
            with self._database.session() as session:
                session.execute(text("SELECT pg_sleep(60)"))
            self._ended = "done"
        except ControlUnavailable:
            self._ended = "away"


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("postgresql://u:p@a:5432,b:5433/n", (("a", 5432), ("b", 5433))),
        ("postgresql://u:p@a,b,c/n?sslmode=require", (("a", 5432), ("b", 5432), ("c", 5432))),
        ("postgres://[::1]:5432,[::2]/n", (("::1", 5432), ("::2", 5432))),
        ("postgresql://u:p@a:5432/n", ()),
        ("sqlite:///a,b.db", ()),
    ],
)
def test_several_hosts_are_read_from_a_url(url: str, hosts: tuple):
    assert hosts_of(database_url(url)) == hosts


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgresql://u:secret@a:5432,b:0/n", "'b:0'"),
        ("postgresql://u:secret@a:5432,b:65536/n", "'b:65536'"),
        ("postgresql://u:secret@a:5432,/n", "''"),
        ("postgresql://u:secret@a:5432,a:5432/n", "twice"),
    ],
)
def test_a_host_that_cannot_be_is_named(url: str, says: str):
    with pytest.raises(ConfigurationError) as refused:
        database_url(url)
    assert says in refused.value.message
    assert "secret" not in refused.value.message


def is_standby(url: str) -> bool:
    try:
        with psycopg.connect(url, connect_timeout=2) as connection:
            row = connection.execute("SELECT pg_is_in_recovery()").fetchone()
    except psycopg.OperationalError:
        return True
    return row is None or bool(row[0])


def _reaches_standby(database: ControlDatabase, pair: PostgresPair) -> bool:
    with database.session() as session:
        return bool(session.execute(text("SELECT inet_server_port()")).scalar() == pair.standby.port)
