"""Alembic's environment: runs the revisions on the connection of the database that `migrations.database` passes.

`alembic revision --autogenerate` from the command line uses TOLLKEEPER_DATABASE_URL, or the data directory's SQLite.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from alembic import context
from alembic.runtime.migration import MigrationContext, MigrationInfo
from sqlalchemy import text

from backends.control.database import ControlDatabase
from contracts.control import Base
from migrations.settings import MigrationSettings

_LOCK_KEY: Final = 0x746F6C6C  # any number that nothing else in the database locks; this one spells "toll"


def _say_step(ctx: MigrationContext, step: MigrationInfo, heads: Collection[Any], run_args: Mapping[str, Any]) -> None:
    say = context.config.attributes.get("say")
    if say is not None:
        say(f"control: applied {step.up_revision_id}")


def run() -> None:
    """Run the migrations that the Alembic command selects, in one transaction if the database supports it."""
    if context.is_offline_mode():
        context.configure(dialect_name="postgresql", target_metadata=Base.metadata, literal_binds=True)
        with context.begin_transaction():
            context.run_migrations()
        return
    passed = context.config.attributes.get("database")
    if passed is None:
        context.config.attributes["secrets"] = MigrationSettings().secrets
    database = passed or ControlDatabase(MigrationSettings().database_address)
    with database.engine.begin() as connection:
        context.configure(
            connection=connection,
            target_metadata=Base.metadata,
            render_as_batch=connection.dialect.name == "sqlite",
            on_version_apply=_say_step,
        )
        with context.begin_transaction():
            if connection.dialect.name == "postgresql":
                # Two migrations at once would both make the first table. The second one waits here, until the first
                # has committed, and then finds nothing left to do.
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
            else:
                # The same for SQLite, whose driver begins no transaction before DDL: without this each table would be
                # committed by itself, and a second migration would meet it half way.
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            context.run_migrations()
    if passed is None:
        database.close()


run()
