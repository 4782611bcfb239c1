"""A second store beside the one that all tests share."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def second_store(store: Any, migrated_files: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    process = type(store)(tmp_path_factory.mktemp("second") / "tollkeeper")
    shutil.copytree(migrated_files, process.data, symlinks=True)
    try:
        process.start_without_compiling()
        yield process
    finally:
        process.kill()


@pytest.fixture
def other_store(second_store: Any) -> Any:
    """A second running, migrated store, without rows."""
    return emptied(second_store)


def emptied(process: Any) -> Any:
    """Take the rows out of a store's tables."""
    client = process.client()
    filled = client.query(
        "SELECT name FROM system.tables WHERE database = currentDatabase() AND total_rows > 0 "
        "AND name != 'schema_migrations'"
    )
    for row in filled:
        client.command("TRUNCATE TABLE {name:Identifier}", {"name": row["name"]})
    client.close()
    return process
