"""The database of what applications keep: made at first use, one transaction a call."""

import traceback

import pytest
from sqlalchemy import Column, Integer, Table, insert, select, text

from backends.objects.database import METADATA, SCHEMA_VERSION, ObjectsDatabase
from contracts.errors import NewerSchema, ObjectsUnavailable


@pytest.fixture
async def objects(tmp_path):
    found = ObjectsDatabase(f"sqlite:///{tmp_path}/objects.db")
    yield found
    await found.close()


@pytest.fixture
def new_table():
    """Tables of a module that is loaded only now."""
    made: list[Table] = []

    def make(name: str) -> Table:
        made.append(Table(name, METADATA, Column("number", Integer, primary_key=True)))
        return made[-1]

    yield make
    for table in made:
        METADATA.remove(table)


async def test_tables_of_a_module_loaded_later_are_made_as_well(objects, new_table) -> None:
    for name in ("first", "second"):
        table = new_table(name)
        await objects.run(lambda connection, table=table: connection.execute(insert(table).values(number=1)))
        assert await objects.run(lambda connection, table=table: connection.execute(select(table)).scalar()) == 1


async def test_a_transaction_that_fails_leaves_nothing(objects, new_table) -> None:
    table = new_table("numbers")

    def fail_half_way(connection) -> None:
        connection.execute(insert(table).values(number=1))
        raise ValueError("on the way")

    with pytest.raises(ValueError, match="on the way"):
        await objects.run(fail_half_way)
    assert await objects.run(lambda connection: connection.execute(select(table)).all()) == []


async def test_a_newer_schema_is_refused(tmp_path) -> None:
    first = ObjectsDatabase(f"sqlite:///{tmp_path}/objects.db")
    await first.run(lambda connection: connection.execute(text("UPDATE objects_schema SET version = version + 1")))
    await first.close()
    second = ObjectsDatabase(f"sqlite:///{tmp_path}/objects.db")
    with pytest.raises(NewerSchema, match=f"at version {SCHEMA_VERSION + 1}"):
        await second.run(lambda connection: None)
    await second.close()


async def test_a_database_that_cannot_be_opened_says_which_setting_names_it(tmp_path) -> None:
    objects = ObjectsDatabase(f"sqlite:///{tmp_path}/missing/objects.db")
    with pytest.raises(ObjectsUnavailable, match="TOLLKEEPER_OBJECTS_URL"):
        await objects.run(lambda connection: None)
    await objects.close()


async def test_no_error_quotes_what_was_to_be_kept(objects, new_table) -> None:
    table = new_table("numbers")
    with pytest.raises(ObjectsUnavailable) as caught:
        await objects.run(lambda connection: connection.execute(insert(table), [{"number": 4711}, {"number": 4711}]))
    told = "".join(traceback.format_exception(caught.value))
    assert "INSERT INTO numbers" in told and "(4711,)" not in told, "logs would have prompts"


async def test_the_file_and_those_beside_it_are_their_owner_s_alone(objects, new_table, tmp_path) -> None:
    table = new_table("numbers")
    await objects.run(lambda connection: connection.execute(insert(table).values(number=1)))
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert "objects.db-wal" in modes and set(modes.values()) == {0o600}
