"""Erasure and export of a tenant's or an end user's rows, in every database and file that has them."""

import asyncio
import os
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from backends.control import erasure as in_control
from backends.control.changes import Author
from backends.control.organisation import TenantChange, get_tenant, update_tenant
from backends.objects.erasure import erase_tenant as erase_objects
from backends.objects.tables import open_objects
from backends.store import erasure as in_store
from contracts.errors import ConfigurationError, NotFound
from tollkeeper.open_installation import open_installation
from tollkeeper.options import DEFAULT_DATA, AsJson, Data, StoreUrl
from tollkeeper.printing import one_line_errors, print_json, said_to_people

users = typer.Typer(help="End users, as applications name them.", no_args_is_help=True)


def _named(value: str) -> str:
    """Validate a name argument: refuses "" (from an unset variable), which would match rows without tenant or user."""
    if not value.strip():
        raise typer.BadParameter("it is empty; name one")
    return value


TenantArgument = Annotated[str, typer.Argument(metavar="TENANT", help="The tenant's id.", callback=_named)]
UserArgument = Annotated[
    str, typer.Argument(metavar="USER", help="The end user, as requests name it.", callback=_named)
]
To = Annotated[Path, typer.Argument(help="New directory to write to.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation. It cannot be undone.")]
Grace = Annotated[
    float, typer.Option("--grace-seconds", min=0, help="Seconds to wait for requests in progress and their records.")
]


class Place:
    """A new directory with a file of JSON lines per table. `rows` counts them by "DATABASE/TABLE"."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.rows: dict[str, int] = {}
        try:
            directory.mkdir(parents=True, mode=0o700)
        except OSError as error:
            raise ConfigurationError(
                f"{directory} cannot be made ({error.strerror}); name a directory that does not exist yet"
            ) from error

    def write(self, database: str, table: str, pieces: Iterable[bytes]) -> None:
        """Write a table's rows as JSON lines."""
        folder = self._directory / database
        folder.mkdir(exist_ok=True, mode=0o700)
        descriptor = os.open(folder / f"{table}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        rows = 0
        with os.fdopen(descriptor, "wb") as file:
            for piece in pieces:
                rows += piece.count(b"\n")
                file.write(piece)
        self.rows[f"{database}/{table}"] = rows


def erase_tenant_command(
    tenant: TenantArgument,
    yes: Yes = False,
    grace_seconds: Grace = 15.0,
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Refuse a tenant's keys, then delete all its rows, files and batches, permanently.

    Its GPU time stays in the ledger without its name. Repeat it if requests may have been in progress.
    """
    _confirm(yes, f"Erase tenant {tenant} with all its history? This cannot be undone.")
    with one_line_errors(), open_installation(data, store_url, os.environ) as opened:
        say = said_to_people(as_json)
        with opened.database.session() as session:
            try:
                is_there = get_tenant(session, tenant) is not None
                update_tenant(session, _author(), tenant, TenantChange(is_active=False))
            except NotFound:
                is_there = False  # erased before: erase what was recorded since
        if is_there:
            time.sleep(grace_seconds)
        rows = {"store": in_store.erase_tenant(opened.store, opened.turns, tenant, say)}
        rows["objects"] = _erase_objects(data, tenant, os.environ)
        rows["control"] = 0
        if is_there:
            with opened.database.session() as session:
                rows["control"] = in_control.erase_tenant(session, _author(), tenant)
    _told(as_json, {"tenant": tenant, "erased_rows": rows}, f"tenant {tenant} erased: {_counted(rows)}")


def export_tenant_command(
    tenant: TenantArgument, to: To, data: Data = DEFAULT_DATA, store_url: StoreUrl = "", as_json: AsJson = False
) -> None:
    """Write all of a tenant's rows into a directory, as JSON lines by table."""
    with one_line_errors(), open_installation(data, store_url, os.environ) as opened:
        place = Place(to)
        with opened.database.session() as session:
            for name, lines in in_control.export_tenant(session, tenant):
                place.write("control", name, (f"{line}\n".encode() for line in lines))
        for name, pieces in in_store.export_tenant(opened.store, tenant):
            place.write("store", name, pieces)
    rows = place.rows
    _told(as_json, {"tenant": tenant, "rows": rows}, f"tenant {tenant} written to {to}: {_counted(rows)}")


@users.command("erase")
def erase_user(
    tenant: TenantArgument,
    user: UserArgument,
    yes: Yes = False,
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Remove an end user's name from every record and delete prompts and answers, permanently.

    The requests stay without a name: bills and rollups are made from them.
    """
    _confirm(yes, f"Erase end user {user} of tenant {tenant}? This cannot be undone.")
    with one_line_errors(), open_installation(data, store_url, os.environ) as opened:
        with opened.database.session() as session:
            control = in_control.erase_user(session, _author(), tenant, user)
        rows = {
            "store": in_store.erase_user(opened.store, tenant, user, said_to_people(as_json)),
            "control": control,
        }
    _told(as_json, {"tenant": tenant, "user": user, "erased_rows": rows}, f"end user {user} erased: {_counted(rows)}")


@users.command("export")
def export_user(
    tenant: TenantArgument,
    user: UserArgument,
    to: To,
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Write all of an end user's rows into a directory, as JSON lines by table."""
    with one_line_errors(), open_installation(data, store_url, os.environ) as opened:
        place = Place(to)
        with opened.database.session() as session:
            for name, lines in in_control.export_user(session, tenant, user):
                place.write("control", name, (f"{line}\n".encode() for line in lines))
        for name, pieces in in_store.export_user(opened.store, tenant, user):
            place.write("store", name, pieces)
    rows = place.rows
    _told(as_json, {"tenant": tenant, "user": user, "rows": rows}, f"end user {user} written to {to}: {_counted(rows)}")


def _erase_objects(data: Path, tenant: str, environment: Mapping[str, str]) -> int:
    url, file = environment.get("TOLLKEEPER_OBJECTS_URL", ""), data.absolute() / "objects.db"
    if not url and not file.exists():
        return 0
    database = open_objects(url or f"sqlite:///{file}")

    async def erase() -> int:
        try:
            return await erase_objects(database, tenant)
        finally:
            await database.close()

    return asyncio.run(erase())


def _confirm(yes: bool, question: str) -> None:
    if not yes:
        typer.confirm(question, abort=True)


def _author() -> Author:
    return Author("tollkeeper", datetime.now(UTC))


def _counted(rows: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in rows.items()) + " rows" if rows else "no rows found"


def _told(as_json: bool, facts: Mapping[str, object], line: str) -> None:
    if as_json:
        print_json(facts)
    else:
        typer.echo(line)
