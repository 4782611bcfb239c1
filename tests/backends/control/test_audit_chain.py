"""The control database's audit as a chain: written in order, refused to be changed, and every change found."""

import dataclasses
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from backends.audit.exporting import export_rows
from backends.control.audit import list_audit
from backends.control.audit_chain import BEGINNING, AuditRow, read_rows, verify_rows
from backends.control.changes import Author, begin_change
from backends.control.database import ControlDatabase
from backends.control.erasure import erase_tenant, erase_user
from backends.control.limits import NewLimit, create_limit
from backends.control.organisation import TenantChange, create_tenant, update_tenant
from contracts.control import AuditEntry
from contracts.errors import TollkeeperError

_TAMPERINGS = 1000
NOW = datetime(2026, 11, 2, 12, 0, 0, 123456, UTC)
AUTHOR = Author("ada", NOW, "192.0.2.7")


@pytest.fixture
def database(control_database: ControlDatabase) -> ControlDatabase:
    return control_database


def change(database: ControlDatabase, number: int) -> None:
    with database.session() as session:
        begin_change(session, AUTHOR, "key.create", f"acme/key_{number}", {"name": f"n{number}", "ä": [1.5, None]})


def change_each(database: ControlDatabase, numbers: range) -> None:
    for number in numbers:
        change(database, number)


def rows_of(database: ControlDatabase) -> list[AuditRow]:
    with database.session() as session:
        return list(read_rows(session))


def fault_of(rows: list[AuditRow]) -> int | None:
    fault = verify_rows(iter(rows)).fault
    return None if fault is None else fault.entry


def test_each_entry_carries_the_hash_of_the_one_before(database: ControlDatabase) -> None:
    for number in range(3):
        change(database, number)
    with database.session() as session:  # two in one transaction, the second with what is added to it later
        begin_change(session, AUTHOR, "pool.update", "one")
        begin_change(session, AUTHOR, "pool.update", "two").detail = {"before": 1}
    rows = rows_of(database)
    assert [row.prev for row in rows] == [BEGINNING, *(row.hash for row in rows[:-1])]
    report = verify_rows(iter(rows))
    assert (report.fault, report.entries, report.last, report.last_hash) == (None, 5, rows[-1].id, rows[-1].hash)


def test_what_was_rolled_back_leaves_nothing_in_the_chain(database: ControlDatabase) -> None:
    change(database, 1)
    with pytest.raises(RuntimeError), database.session() as session:
        begin_change(session, AUTHOR, "key.create", "acme/lost")
        raise RuntimeError
    change(database, 2)
    assert fault_of(rows_of(database)) is None and len(rows_of(database)) == 2


def test_writers_at_the_same_time_make_one_chain(database: ControlDatabase) -> None:
    change(database, 0)  # the revision's row is there
    threads = [
        threading.Thread(target=lambda start=start: change_each(database, range(start, start + 5)))
        for start in range(10, 50, 10)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    rows = rows_of(database)
    assert fault_of(rows) is None and len(rows) == 21


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit SET actor = 'eve' WHERE id = 1",
        "UPDATE audit SET detail = '{}' WHERE id = 1",
        "UPDATE audit SET subject = 'erased', detail = '{}', salt = '', actor = 'eve' WHERE id = 1",
        "UPDATE audit SET hash = '' WHERE id = 1",
        "DELETE FROM audit WHERE id = 1",
        "DELETE FROM audit",
    ],
)
def test_the_database_itself_refuses_changes(database: ControlDatabase, statement: str) -> None:
    change(database, 1)
    before = rows_of(database)
    with pytest.raises(TollkeeperError), database.session() as session:
        session.execute(text(statement))
    assert rows_of(database) == before


def test_an_erased_tenants_entries_are_emptied_and_the_chain_still_holds(database: ControlDatabase) -> None:
    with database.session() as session:
        create_tenant(session, AUTHOR, "acme", "Acme Secret Ltd")
    with database.session() as session:
        create_tenant(session, AUTHOR, "globex", "Globex")
        new = NewLimit("acme", "user", "requests", subject="ada@example.org", window="minute", amount=1)
        create_limit(session, AUTHOR, new)
    with database.session() as session:
        erase_user(session, AUTHOR, "acme", "ada@example.org")
    with database.session() as session:
        update_tenant(session, AUTHOR, "acme", TenantChange(is_active=False))
    with database.session() as session:
        erase_tenant(session, AUTHOR, "acme")
    rows = rows_of(database)
    report = verify_rows(iter(rows))
    assert report.fault is None and report.erased >= 3
    assert not any("Secret" in str(row) or "ada@" in str(row) for row in rows)


def test_an_entry_emptied_by_somebody_else_is_found(database: ControlDatabase) -> None:
    change(database, 1)
    change(database, 2)
    with database.session() as session:  # the database lets an erasure do this
        session.execute(text("UPDATE audit SET subject = 'erased', detail = '{}', salt = '' WHERE id = 1"))
    fault = verify_rows(iter(rows_of(database))).fault
    assert fault is not None and fault.entry == 1 and "no erasure says so" in fault.what


def allow_all(database: ControlDatabase) -> None:
    """Drop the table's triggers, as the one that owns the database can."""
    with database.session() as session:
        if database.url.get_backend_name() == "sqlite":
            for name in session.scalars(text("SELECT name FROM sqlite_master WHERE type = 'trigger'")).all():
                session.execute(text(f"DROP TRIGGER {name}"))
        else:
            session.execute(text("ALTER TABLE audit DISABLE TRIGGER USER"))


def forge(database: ControlDatabase, number: object, hash_: str = "", detail: str = '{"forged":true}') -> None:
    columns = "id, at, actor, action, subject, address, detail, salt, facts_hash, prev, hash"
    values = f"{number}, '2026-11-02 12:00:00.000000', 'eve', 'key.create', 'acme/x', '', '{detail}', '', '', ''"
    with database.session() as session:
        session.connection().exec_driver_sql(f"INSERT INTO audit ({columns}) VALUES ({values}, '{hash_}')")


def test_an_entry_that_was_never_chained_is_found(database: ControlDatabase) -> None:
    change(database, 1)
    allow_all(database)
    with database.session() as session:
        session.add(AuditEntry(at=NOW, actor="eve", action="key.create", subject="acme/x", detail={}))
    assert fault_of(rows_of(database)) == 2


@pytest.mark.parametrize("number", [0, -1, -5, -(2**63), 3, 2**63 - 1])
@pytest.mark.parametrize("hash_", ["", BEGINNING])
def test_an_inserted_entry_is_found_whatever_its_number(database: ControlDatabase, number: int, hash_: str) -> None:
    change_each(database, range(2))
    allow_all(database)
    forge(database, number, hash_)
    with database.session() as session:
        listed = {entry.id for entry in list_audit(session)}
    assert listed == {row.id for row in rows_of(database)} == {1, 2, number}
    assert fault_of(rows_of(database)) == number


@pytest.mark.parametrize("number", [0, -1, 1, 2])
def test_the_database_itself_refuses_an_entry_that_is_not_the_next(database: ControlDatabase, number: int) -> None:
    change_each(database, range(2))
    before = rows_of(database)
    with pytest.raises(TollkeeperError):
        forge(database, number)
    is_sqlite = database.url.get_backend_name() == "sqlite"
    if is_sqlite:
        with pytest.raises(TollkeeperError), database.session() as session:
            session.execute(text("INSERT OR REPLACE INTO audit SELECT * FROM audit WHERE id = 2"))
    else:
        with pytest.raises(TollkeeperError):
            forge(database, 3)  # with the next number, and not chained
    assert rows_of(database) == before
    change(database, 3)
    assert fault_of(rows_of(database)) is None


def test_a_gap_in_the_numbers_is_no_fault_and_hides_nothing(database: ControlDatabase) -> None:
    change(database, 1)
    if database.url.get_backend_name() == "sqlite":
        pytest.skip("SQLite leaves no gaps")
    with pytest.raises(RuntimeError), database.session() as session:
        begin_change(session, AUTHOR, "key.create", "acme/lost")
        raise RuntimeError
    change(database, 2)
    assert [row.id for row in rows_of(database)] == [1, 3] and fault_of(rows_of(database)) is None
    allow_all(database)
    forge(database, 2, BEGINNING)
    assert fault_of(rows_of(database)) == 2


def test_entries_of_more_than_one_reading_are_read_once_each(
    database: ControlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backends.control.audit_chain._AT_ONCE", 2)
    change_each(database, range(7))
    assert [row.id for row in rows_of(database)] == list(range(1, 8)) and fault_of(rows_of(database)) is None
    with database.session() as session:
        assert [row.id for row in read_rows(session, after=4)] == [5, 6, 7]


@pytest.fixture
def loose(migrated_sqlite: Path, tmp_path: Path) -> Iterator[ControlDatabase]:
    """A database whose audit was made again as a table that takes anything."""
    shutil.copy(migrated_sqlite, tmp_path / "control.db")
    database = ControlDatabase(f"sqlite:///{tmp_path / 'control.db'}")
    change_each(database, range(3))
    with database.session() as session:
        session.execute(text("CREATE TABLE loose AS SELECT * FROM audit"))
        session.execute(text("DROP TABLE audit"))
        session.execute(text("ALTER TABLE loose RENAME TO audit"))
    yield database
    database.close()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(("id", value) for value in ("NULL", "'4'", "'four'", "3", "2.5", "x'04'", "4.0")),
        *(("actor", value) for value in ("x'ff'", "CAST(x'ff' AS TEXT)", "NULL", "7")),
        *(("detail", value) for value in ("'{'", "'[]'", "NULL", "x'7b7d'", f"'{'[' * 100_000}'")),
        *(("at", value) for value in ("'yesterday'", "NULL", "5")),
        *((column, "x'00'") for column in ("subject", "address", "action", "salt", "facts_hash", "prev", "hash")),
    ],
)
def test_a_row_of_another_form_is_found_and_hides_no_other(loose: ControlDatabase, column: str, value: str) -> None:
    assert fault_of(rows_of(loose)) is None
    values = {name: name for name in ("id", "at", "actor", "action", "subject", "address", "detail", "salt")}
    values |= {name: name for name in ("facts_hash", "prev", "hash")} | {"id": "4", column: value}
    with loose.session() as session:
        session.connection().exec_driver_sql(
            f"INSERT INTO audit ({', '.join(values)}) SELECT {', '.join(values.values())} FROM audit WHERE id = 3"
        )
    rows = rows_of(loose)
    assert len(rows) == 4 and [row.id for row in rows if not row.unreadable][:2] == [1, 2]
    assert fault_of(rows) is not None
    lines = list(export_rows(iter(rows), 0, 2**63))
    assert len(lines) == 4
    with suppress(TollkeeperError), loose.session() as session:  # never anything that verification does not see
        assert len(list_audit(session)) <= len(rows)


def _edit(rows: list[AuditRow], chance: random.Random) -> None:
    at, field = chance.randrange(len(rows)), chance.choice([field.name for field in dataclasses.fields(AuditRow)])
    value: Any = getattr(rows[at], field)
    other: Any
    if field == "id":
        other = value + 1000
    elif field == "unreadable":
        other = "another type"
    elif field == "at":
        other = value.replace(microsecond=(value.microsecond + 1 + chance.randrange(999)) % 1_000_000)
    elif field == "detail":
        other = {**value, "more": chance.random()}
    else:
        other = value[:-1] + chr(ord(value[-1]) ^ (1 + chance.randrange(7)))
    rows[at] = dataclasses.replace(rows[at], **{field: other})


def _delete(rows: list[AuditRow], chance: random.Random) -> None:
    del rows[chance.randrange(len(rows) - 1)]  # the last one's loss is found by what vouches for it


def _swap(rows: list[AuditRow], chance: random.Random) -> None:
    one, other = chance.sample(range(len(rows)), 2)
    rows[one], rows[other] = rows[other], rows[one]


def _double(rows: list[AuditRow], chance: random.Random) -> None:
    rows.insert(chance.randrange(len(rows) + 1), chance.choice(rows))


def _exchange(rows: list[AuditRow], chance: random.Random) -> None:
    one, other = chance.sample(range(len(rows)), 2)
    said = {name: getattr(rows[other], name) for name in ("subject", "detail", "salt", "facts_hash")}
    rows[one] = dataclasses.replace(rows[one], **said)


_KINDS: tuple[Callable[[list[AuditRow], random.Random], None], ...] = (_edit, _delete, _swap, _double, _exchange)


@pytest.fixture(scope="module")
def sound(migrated_sqlite: Path, tmp_path_factory: pytest.TempPathFactory) -> list[AuditRow]:
    file = tmp_path_factory.mktemp("sound") / "control.db"
    shutil.copy(migrated_sqlite, file)
    database = ControlDatabase(f"sqlite:///{file}")
    for number in range(20):
        change(database, number)
    rows = rows_of(database)
    database.close()
    return rows


def test_a_thousand_random_tamperings_are_all_found(sound: list[AuditRow]) -> None:
    assert fault_of(sound) is None
    chance, missed = random.Random(5), []
    for number in range(_TAMPERINGS):
        rows = list(sound)
        _KINDS[number % len(_KINDS)](rows, chance)
        if fault_of(rows) is None:
            missed.append(number)
    assert missed == []


@given(order=st.permutations(range(20)), kept=st.integers(2, 20))
@settings(max_examples=50, deadline=None)
def test_no_other_order_and_no_part_but_a_beginning_verifies(
    sound: list[AuditRow], order: list[int], kept: int
) -> None:
    chosen = order[:kept]
    is_beginning = chosen == list(range(kept))
    assert (fault_of([sound[number] for number in chosen]) is None) is is_beginning
