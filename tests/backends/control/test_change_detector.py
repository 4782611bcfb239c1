"""Whether a database may have changed is told by its files, and no commit is missed."""

import os
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from backends.control.change_detector import ChangeDetector
from backends.control.database import ControlDatabase

ASK_EVERY = 5.0
LATER_NS = 10**9  # the files are as old as this when they are looked at


class Times:
    """Clocks that a test sets."""

    def __init__(self) -> None:
        self.passed = 0.0
        self.since_write_ns = LATER_NS
        self.paths: list[Path] = []

    def monotonic(self) -> float:
        return self.passed

    def wall_ns(self) -> int:
        return max(os.stat(path).st_mtime_ns for path in self.paths if path.exists()) + self.since_write_ns


@pytest.fixture
def times() -> Times:
    return Times()


@pytest.fixture
def database(tmp_path: Path, times: Times) -> Any:
    path = tmp_path / "control.db"
    times.paths = [path, tmp_path / "control.db-wal"]
    found = ControlDatabase(f"sqlite:///{path}")
    with found.session() as session:
        session.execute(text("CREATE TABLE word (word TEXT)"))
    yield found
    found.close()


def write(database: ControlDatabase, word: str) -> None:
    with database.session() as session:
        session.execute(text("INSERT INTO word VALUES (:word)"), {"word": word})


def look_at(database: ControlDatabase, times: Times) -> ChangeDetector:
    return ChangeDetector(database.url, ASK_EVERY, times.monotonic, times.wall_ns)


def test_a_database_that_was_read_has_changed_after_a_commit_and_not_before(
    database: ControlDatabase, times: Times
) -> None:
    look = look_at(database, times)
    assert look.may_have_changed()  # nothing was read yet
    look.begin_read()
    with database.session() as session:
        assert session.execute(text("SELECT count(*) FROM word")).scalar_one() == 0
    assert not look.may_have_changed()
    write(database, "one")
    assert look.may_have_changed()
    look.begin_read()
    assert not look.may_have_changed()


def test_a_checkpoint_that_empties_the_log_counts_as_a_change(database: ControlDatabase, times: Times) -> None:
    write(database, "one")
    look = look_at(database, times)
    look.begin_read()
    with database.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    assert look.may_have_changed()


@pytest.mark.parametrize(("since_write_ns", "is_sure"), [(49_999_999, False), (50_000_000, True), (50_000_001, True)])
def test_a_file_that_was_just_written_is_read_again(
    database: ControlDatabase, times: Times, since_write_ns: int, is_sure: bool
) -> None:
    times.since_write_ns = since_write_ns  # a second commit may have the same time
    look = look_at(database, times)
    look.begin_read()
    assert look.may_have_changed() is not is_sure


@pytest.mark.parametrize(("passed", "is_due"), [(4.999, False), (5.0, True), (5.001, True)])
def test_it_is_read_from_time_to_time_whatever_its_files_say(
    database: ControlDatabase, times: Times, passed: float, is_due: bool
) -> None:
    look = look_at(database, times)
    look.begin_read()
    times.passed = passed
    assert look.may_have_changed() is is_due


def test_after_a_failed_read_and_without_its_file_it_is_read_again(database: ControlDatabase, times: Times) -> None:
    look = look_at(database, times)
    look.begin_read()
    look.forget()
    assert look.may_have_changed()
    look.begin_read()
    database.close()
    for path in times.paths:
        path.unlink(missing_ok=True)
    assert look.may_have_changed()


def test_of_a_server_only_itself_can_tell(times: Times) -> None:
    look = ChangeDetector(ControlDatabase("postgresql://nobody@localhost/none").url, ASK_EVERY, times.monotonic)
    look.begin_read()
    assert look.may_have_changed()
