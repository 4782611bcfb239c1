"""Deletes a tenant's files, batches and responses from the objects database."""

from sqlalchemy import ColumnElement, Connection, Table, delete, func, inspect, select

from backends.objects.batches import BATCHES, LINES
from backends.objects.database import METADATA, ObjectsDatabase

_PARTS = {"file_pieces": ("file_id", "files"), LINES.name: ("batch_id", BATCHES.name)}


async def erase_tenant(database: ObjectsDatabase, tenant: str) -> int:
    """Delete all rows of a tenant; return how many. Raises ObjectsUnavailable."""
    return await database.run(lambda connection: _erase(connection, tenant))


def _erase(connection: Connection, tenant: str) -> int:
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("PRAGMA secure_delete = ON")  # else the bytes stay in the file until overwritten
    there = set(inspect(connection).get_table_names())
    rows = 0
    # Parts first, because only the rows that they belong to have a tenant.
    for table in sorted(METADATA.tables.values(), key=lambda table: table.name not in _PARTS):
        where = _of_tenant(table, tenant)
        if where is not None and table.name in there:
            rows += connection.execute(select(func.count()).select_from(table).where(where)).scalar_one()
            connection.execute(delete(table).where(where))
    return rows


def _of_tenant(table: Table, tenant: str) -> ColumnElement[bool] | None:
    if "tenant" in table.columns:
        return table.columns["tenant"] == tenant
    if table.name not in _PARTS:
        return None
    column, name = _PARTS[table.name]
    whole = METADATA.tables[name]
    return table.columns[column].in_(select(whole.columns["id"]).where(whole.columns["tenant"] == tenant))
