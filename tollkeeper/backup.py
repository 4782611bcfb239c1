"""`tollkeeper backup` and `tollkeeper restore`: copies both databases to files and back, with a checksum per table.

A backup includes the audit log's chains. A restore requires the secrets that its rows depend on, and ends by verifying
the audit log.
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
from backends.audit.signing import KEY_FILE as AUDIT_SIGNING_KEY
from backends.audit.signing import own_keys
from backends.control.archive import ArchivedControl, load_control, write_control
from backends.control.audit_checks import check_audit
from backends.secrets.secret_files import SecretFiles
from backends.store.archive import ArchivedStore, load_store, write_store
from backends.store.tables import list_tables
from backends.store.transfer import require_empty
from contracts.errors import ConfigurationError, NewerSchema
from migrations.database import migrate_database
from migrations.store import migrate_store, read_migrations
from tollkeeper.open_installation import OpenInstallation, open_control, open_installation
from tollkeeper.options import DEFAULT_DATA, AsJson, Data, StoreUrl
from tollkeeper.printing import one_line_errors, print_json, said_to_people, say_nothing
from tollkeeper.restore_needs import NotIncluded, begun_in, chains_of, lacking, not_included, settings_of

_MANIFEST: Final = "backup.json"
_STORE: Final = "store"
_CONTROL: Final = "control"
_AUDIT: Final = "audit"
_FORM: Final = 1
_PUT_BACK: Final = (
    "restore these first, then run this again; nothing was restored:{}\nIf they are lost: restore with --anyway, "
    "then `tollkeeper secrets accept NAME --reason TEXT` and `tollkeeper audit accept-restore --reason TEXT`"
)


class Backup(msgspec.Struct, frozen=True):
    """A backup's manifest. It is written last: a directory without it is not a complete backup."""

    form: int
    made_at: str
    control: ArchivedControl
    store: ArchivedStore
    audit: tuple[str, ...] = ()  # chains of the data directory
    settings: tuple[str, ...] = ()  # names of the settings that were set when it was made
    not_included: tuple[NotIncluded, ...] = ()


def backup_command(
    to: Annotated[Path, typer.Argument(help="New directory to write the backup to.")],
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Copy the control database and the store into a directory while everything runs.

    Includes the audit log of this data directory. Back up gateways that use another data directory separately. Does not
    include secrets: keep a copy of the data directory's `secrets`, because no key works without them.
    """
    with one_line_errors(), open_installation(data, store_url, os.environ) as opened:
        made = write_backup(opened, audit_root(data), to, said_to_people(as_json))
    if as_json:
        print_json(msgspec.to_builtins(made))
    else:
        rows = sum(table.rows for table in made.store.tables.values())
        typer.echo(f"backed up to {to}: {rows} rows of the store, control database at revision {made.control.revision}")
        typer.echo("not included; keep a separate copy:")
        for part in made.not_included:
            typer.echo(f"  {part.what}: {part.why}")


def restore_command(
    backup: Annotated[Path, typer.Argument(metavar="FROM", help="Directory that `tollkeeper backup` wrote.")],
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    anyway: Annotated[
        bool,
        typer.Option(
            "--anyway",
            help="Restore although secrets or audit log files are missing. Put them back before you start anything.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Fill an empty control database and store from a backup. Status 2 if a checksum differs.

    Put the secrets in place first: without them the restore is refused and names the missing ones. Status 1: restored,
    but the audit log does not verify yet.
    """
    with one_line_errors():
        found = read_manifest(backup)
        needs = lacking(backup, found.control, data)
        if needs and not anyway:
            raise ConfigurationError(_PUT_BACK.format("".join(f"\n  {need}" for need in needs)))
        with open_installation(data, store_url, os.environ, makes=True) as opened:
            restore(opened, backup, found, said_to_people(as_json))
        restore_audit(backup, audit_root(data), said_to_people(as_json))
        faults = verify_audit(data, is_keyed=not needs)
    unset = sorted(set(found.settings) - set(settings_of(os.environ)))
    if as_json:
        facts = {"audit_faults": faults, "put_back": needs, "settings_not_set": unset}
        print_json({"restored": str(backup), "equal": True, **facts, **msgspec.to_builtins(found)})
    else:
        typer.echo(f"restored from {backup}: every table has the rows and the checksum that it had on {found.made_at}")
        for need in needs:
            typer.echo(f"restore before the start: {need}")
        if unset:
            typer.echo(f"set where the backup was made, and not here: {', '.join(unset)}")
        for part in found.not_included:
            typer.echo(f"not in the backup: {part.what}: {part.why}")
        typer.echo("audit: verified" if not faults else "audit: NOT VERIFIED")
        for fault in faults:
            typer.echo(f"  {fault}", err=True)
    if faults:
        raise typer.Exit(1)


def write_backup(opened: OpenInstallation, audit: Path, to: Path, say: Callable[[str], None]) -> Backup:
    """Write a backup to a new directory and return its manifest. If it fails, the directory is removed."""
    if to.exists():
        raise ConfigurationError(f"{to} exists already; name a new directory")
    draft = to.with_name(f".{to.name}.part")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        draft.parent.mkdir(parents=True, exist_ok=True)
        for directory in (draft, draft / _STORE, draft / _CONTROL):
            directory.mkdir(mode=0o700)
        chains = tuple(copy_chains(audit, draft / _AUDIT))  # first: sign no later entries
        control = write_control(opened.database, draft / _CONTROL, say)
        store = write_store(opened.store, opened.turns, draft / _STORE, say)
        lacks = not_included(audit.parent, begun_in(draft), chains_of(draft / _AUDIT))
        made_at = datetime.now(UTC).isoformat(timespec="seconds")
        made = Backup(_FORM, made_at, control, store, chains, settings_of(os.environ), lacks)
        (draft / _MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(made)) + b"\n")
        draft.replace(to)
    except OSError as error:
        raise ConfigurationError(f"{to} cannot be written ({error.strerror}); choose another place") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return made


def restore(opened: OpenInstallation, backup: Path, found: Backup, say: Callable[[str], None]) -> None:
    """Migrate both databases to the backup's schema, fill them, compare checksums, and migrate them to the latest."""
    url = opened.database.url.render_as_string(hide_password=False)
    migrate_database(url, say=say_nothing, revision=found.control.revision)
    migrations = read_migrations()
    address = opened.store.address
    try:
        begun = migrations[: found.store.migration]
        migrate_store(address, begun, wait_seconds=0, say=say_nothing, cluster=opened.cluster)
    except NewerSchema as error:
        raise ConfigurationError(
            f"the store at {address.shown_url} is beyond migration {found.store.migration:04}, at which the backup was "
            "made; name an empty database, which is then brought there first"
        ) from error
    require_empty(opened.store, list_tables(opened.store), f"the store at {address.shown_url}")
    load_control(opened.database, backup / _CONTROL, found.control, say)
    load_store(opened.store, backup / _STORE, found.store, say)
    migrate_database(url, say=say, secrets=opened.secrets)
    migrate_store(address, migrations, wait_seconds=0, say=say, cluster=opened.cluster)


def restore_audit(backup: Path, root: Path, say: Callable[[str], None]) -> None:
    """Copy the backup's audit chains beside the existing ones, and print the next steps with `say`.

    Raises ConfigurationError if they cannot be written.
    """
    is_used = bool(chain_directories(root))
    try:
        names = restore_chains(backup / _AUDIT, root, f"{datetime.now(UTC):%Y%m%dT%H%M%S}")
    except OSError as error:
        raise ConfigurationError(f"the audit log cannot be written to {root} ({error.strerror})") from error
    for name in names:
        say(f"audit chain restored as {root / name}; new entries start another chain")
    if is_used:
        say(
            "the existing audit log may have entries later than the backup: `tollkeeper audit verify` reports them, and"
        )
        say("`tollkeeper audit accept-restore` records the reason")


def verify_audit(data: Path, *, is_keyed: bool) -> list[str]:
    """Verify the restored audit log and return its faults. `is_keyed`: the key that signed it is present."""
    files = SecretFiles(data / "secrets")
    if files.get(AUDIT_SIGNING_KEY) is None:
        if is_keyed:
            return []  # the backup has no audit entries
        return [f"{files.directory / AUDIT_SIGNING_KEY} is missing: restore it, then run `tollkeeper audit verify`"]
    with open_control(data, os.environ) as database:
        findings = check_audit(data, own_keys(files), database)
    return [f"{fault.place}: {fault.what}" for fault in findings.faults]


def read_manifest(backup: Path) -> Backup:
    """Read a backup's manifest. Raises ConfigurationError if there is none, or if a later version wrote it."""
    try:
        found = msgspec.json.decode((backup / _MANIFEST).read_bytes(), type=Backup)
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigurationError(
            f"{backup} is not a backup ({type(error).__name__}); name a directory that `tollkeeper backup` made"
        ) from error
    if found.form != _FORM:
        raise ConfigurationError(f"{backup} has format {found.form} of a later version of Tollkeeper")
    return found
