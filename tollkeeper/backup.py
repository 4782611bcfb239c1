"""`tollkeeper backup` and `tollkeeper restore`: both databases as files, and back, each table proven equal.

The audit's chains go with them; what they vouch for is proven by `tollkeeper audit verify`.
"""

import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from backends.audit.copying import copy_chains, restore_chains
from backends.audit.options import audit_root
from backends.audit.places import chain_directories
from backends.control.archive import ArchivedControl, load_control, write_control
from backends.store.archive import ArchivedStore, load_store, write_store
from backends.store.tables import list_tables
from backends.store.transfer import require_empty
from contracts.errors import ConfigurationError, NewerSchema
from migrations.database import migrate_database
from migrations.store import migrate_store, read_migrations
from tollkeeper.open_installation import OpenInstallation, open_installation
from tollkeeper.options import DEFAULT_DATA, AsJson, Data, StoreUrl
from tollkeeper.printing import one_line_errors, print_json, said_to_people, say_nothing

_MANIFEST: Final = "backup.json"
_STORE: Final = "store"
_CONTROL: Final = "control"
_AUDIT: Final = "audit"
_FORM: Final = 1


class Backup(msgspec.Struct, frozen=True):
    """A backup's table of contents. Without it, which is written last, a directory is not a backup."""

    form: int
    made_at: str
    control: ArchivedControl
    store: ArchivedStore
    audit: tuple[str, ...] = ()  # chains of the data directory


def backup_command(
    to: Annotated[Path, typer.Argument(help="A directory that does not exist yet.")],
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Copy the control database and the store into a directory, each as of one moment, while everything runs.

    The data directory's audit chains are in it too; gateways with a data directory of their own have theirs there.
    Secrets are not in it: keep the data directory's `secrets` apart, without which no key can be recognised.
    """
    with one_line_errors(), open_installation(data, store_url, os.environ) as opened:
        made = write_backup(opened, audit_root(data), to, said_to_people(as_json))
    if as_json:
        print_json(msgspec.to_builtins(made))
    else:
        rows = sum(table.rows for table in made.store.tables.values())
        typer.echo(f"backed up to {to}: {rows} rows of the store, control database at revision {made.control.revision}")


def restore_command(
    backup: Annotated[Path, typer.Argument(metavar="FROM", help="What `tollkeeper backup` made.")],
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Fill an empty control database and an empty store from a backup; status 2 where a copy is not equal."""
    with one_line_errors():
        found = read_manifest(backup)
        with open_installation(data, store_url, os.environ, makes=True) as opened:
            restore(opened, backup, found, said_to_people(as_json))
        restore_audit(backup, audit_root(data), said_to_people(as_json))
    if as_json:
        print_json({"restored": str(backup), "equal": True, **msgspec.to_builtins(found)})
    else:
        typer.echo(f"restored from {backup}: every table has the rows and the checksum that it had on {found.made_at}")


def write_backup(opened: OpenInstallation, audit: Path, to: Path, say: Callable[[str], None]) -> Backup:
    """Write a backup. What failed half-way is removed; a directory that is there is a backup that is whole."""
    if to.exists():
        raise ConfigurationError(f"{to} exists already; a backup goes into a directory of its own")
    draft = to.with_name(f".{to.name}.part")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        draft.parent.mkdir(parents=True, exist_ok=True)
        for directory in (draft, draft / _STORE, draft / _CONTROL):
            directory.mkdir(mode=0o700)
        chains = tuple(copy_chains(audit, draft / _AUDIT))  # first: they vouch for no more than what follows has
        control = write_control(opened.database, draft / _CONTROL, say)
        store = write_store(opened.store, opened.turns, draft / _STORE, say)
        made = Backup(_FORM, datetime.now(UTC).isoformat(timespec="seconds"), control, store, chains)
        (draft / _MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(made)) + b"\n")
        draft.replace(to)
    except OSError as error:
        raise ConfigurationError(f"{to} cannot be written ({error.strerror}); choose another place") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return made


def restore(opened: OpenInstallation, backup: Path, found: Backup, say: Callable[[str], None]) -> None:
    """Bring both databases to where the backup was made, fill them, prove them, and bring them to head."""
    url = opened.database.url.render_as_string(hide_password=False)
    migrate_database(url, say=say_nothing, revision=found.control.revision)
    migrations = read_migrations()
    address = opened.store.address
    try:
        migrate_store(address, migrations[: found.store.migration], wait_seconds=0, say=say_nothing)
    except NewerSchema as error:
        raise ConfigurationError(
            f"the store at {address.shown_url} is beyond migration {found.store.migration:04}, at which the backup was "
            "made; name an empty database, which is then brought there first"
        ) from error
    require_empty(opened.store, list_tables(opened.store), f"the store at {address.shown_url}")
    load_control(opened.database, backup / _CONTROL, found.control, say)
    load_store(opened.store, backup / _STORE, found.store, say)
    migrate_database(url, say=say, secrets=opened.secrets)
    migrate_store(address, migrations, wait_seconds=0, say=say)


def restore_audit(backup: Path, root: Path, say: Callable[[str], None]) -> None:
    """Put the backup's audit chains beside those that are here, and say what is left to do.

    Raises ConfigurationError where they cannot be written.
    """
    is_used = bool(chain_directories(root))
    try:
        names = restore_chains(backup / _AUDIT, root, f"{datetime.now(UTC):%Y%m%dT%H%M%S}")
    except OSError as error:
        raise ConfigurationError(f"the audit chains cannot be written to {root} ({error.strerror})") from error
    for name in names:
        say(f"audit chain put back as {root / name}; what is audited from now on begins a chain of its own")
    if is_used:
        say(
            "audit chains that were here may know of what came after the backup: `tollkeeper audit verify` says so, and"
        )
        say("`tollkeeper audit accept-restore` puts on record why")


def read_manifest(backup: Path) -> Backup:
    """Read a backup's table of contents. Raises ConfigurationError where there is none, or one of a later version."""
    try:
        found = msgspec.json.decode((backup / _MANIFEST).read_bytes(), type=Backup)
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigurationError(
            f"{backup} is not a backup ({type(error).__name__}); name a directory that `tollkeeper backup` made"
        ) from error
    if found.form != _FORM:
        raise ConfigurationError(f"{backup} is of form {found.form}, which a later version of Tollkeeper writes")
    return found
