"""A database of what applications keep, empty, over SQLite and over PostgreSQL."""

from collections.abc import AsyncIterator

import pytest
from sqlalchemy import Connection

from backends.objects.database import METADATA
from backends.objects.tables import TABLE_MODULES, open_objects


@pytest.fixture(scope="session")
def postgres_objects_url(postgres) -> str:
    """One database for all tests, since each takes long to make; `objects` empties it."""
    url: str = postgres.create_database()
    return url


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.service)])
async def objects(request, tmp_path) -> AsyncIterator[object]:
    is_postgres = request.param == "postgresql"
    url = request.getfixturevalue("postgres_objects_url") if is_postgres else f"sqlite:///{tmp_path}/objects.db"
    found = open_objects(url)
    if is_postgres:
        await found.run(_empty)
    yield found
    await found.close()


def _empty(connection: Connection) -> None:
    kept = [table for table in METADATA.sorted_tables if table.name != "objects_schema"]
    assert len(kept) >= len(TABLE_MODULES)
    for table in kept:
        connection.execute(table.delete())
