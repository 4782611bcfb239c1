"""`tollkeeper secrets`: providers' keys, encrypted in the control database, and the installation's own secrets."""

import fcntl
import os
import secrets as random_secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from backends.control.changes import Author
from backends.control.known_secrets import DEPENDS, accept_secrets
from backends.control.sealer import KEY_FILE, KEYS_VARIABLE, Sealer, environment_keys, key_id_of
from backends.http_client.control_plane import path_segment
from backends.secrets.secret_files import SecretFiles
from contracts.errors import ConfigurationError
from tollkeeper.book_author import system_user
from tollkeeper.control_client import ControlClient
from tollkeeper.installation import Installation
from tollkeeper.open_installation import open_control
from tollkeeper.options import DEFAULT_DATA, AsJson, ControlUrl, Data
from tollkeeper.printing import one_line_errors, print_json, print_table

app = typer.Typer(help="Providers' API keys, and the installation's own secrets.", no_args_is_help=True)

_KEY_BYTES: Final = 32
_MOST_REASON: Final = 500
_KEYS_PATH: Final = "/v1/stored-keys"
KeyName = Annotated[str, typer.Argument(help="Name of the key: a-z, 0-9 and -. Targets refer to it as stored:NAME.")]


@app.command("put")
def put(
    name: KeyName,
    file: Annotated[Path | None, typer.Option("--file", help="File to read it from (default: standard input).")] = None,
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
    as_json: AsJson = False,
) -> None:
    """Store or replace a provider's key. Gateways use it within a second."""
    with one_line_errors(), ControlClient.of_installation(data, control_url) as client:
        stored = client.put(f"{_KEYS_PATH}/{path_segment(name)}", {"value": _read_value(file)})
    if as_json:
        print_json(stored)
    else:
        typer.echo(f"key {name} stored, version {stored['version']}; targets refer to it as stored:{name}")


@app.command("list")
def list_all(data: Data = DEFAULT_DATA, control_url: ControlUrl = "", as_json: AsJson = False) -> None:
    """List stored keys, without their values."""
    with one_line_errors(), ControlClient.of_installation(data, control_url) as client:
        found: list[dict[str, Any]] = client.get(f"{_KEYS_PATH}?limit=1000")["data"]
    if as_json:
        print_json(found)
    else:
        print_table(("name", "version", "updated_at"), found, _cell, "no keys stored yet; tollkeeper secrets put NAME")


@app.command("delete")
def delete(name: KeyName, data: Data = DEFAULT_DATA, control_url: ControlUrl = "") -> None:
    """Delete a stored key that no target refers to."""
    with one_line_errors(), ControlClient.of_installation(data, control_url) as client:
        client.delete(f"{_KEYS_PATH}/{path_segment(name)}")
    typer.echo(f"key {name} deleted")


@app.command("rotate")
def rotate(
    forget_old: Annotated[
        bool, typer.Option("--forget-old", help="Delete the older encryption keys. Earlier backups need them.")
    ] = False,
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
    as_json: AsJson = False,
) -> None:
    """Create a new encryption key and encrypt everything again: providers' keys, channel addresses, webhooks.

    No restart is needed, unless the keys come from an environment variable: then put the new key first in its list,
    restart, and run this.
    """
    files = SecretFiles(data / "secrets")
    with one_line_errors(), ControlClient.of_installation(data, control_url) as client:
        given = environment_keys()
        if given and forget_old:
            raise ConfigurationError(f"the encryption keys are in {KEYS_VARIABLE}; remove the older ones there")
        with nullcontext() if given else _alone(files):
            newest = given[0] if given else _add_key(files)
            counts = client.post(f"{_KEYS_PATH}/reseal", {"key_id": key_id_of(newest)})
            if forget_old:
                files.replace(KEY_FILE, newest)
    if as_json:
        print_json(counts)
    else:
        counted = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in counts.items())
        typer.echo(f"re-encrypted: {counted}; older encryption keys {'deleted' if forget_old else 'kept, for backups'}")


@app.command("accept")
def accept(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...",
            help=f"Name of a lost secret, one of: {', '.join(DEPENDS)}. docs/secrets.md says what each protects.",
        ),
    ],
    reason: Annotated[str, typer.Option("--reason", help="Why the secret was lost; stays in the audit log.")],
    data: Data = DEFAULT_DATA,
    as_json: AsJson = False,
) -> None:
    """Recover after a lost secret. Stop everything first.

    Creates each missing secret. A secret that exists stays as it is and counts as the valid one from now on.
    Objects that depend on a lost secret must be created again.
    """
    with one_line_errors():
        if not 0 < len(reason.strip()) <= _MOST_REASON or not reason.isprintable():
            raise ConfigurationError(
                f"give --reason, one line of at most {_MOST_REASON} characters; it stays in the audit log"
            )
        if Installation(data).is_supervised():
            raise ConfigurationError(f"`tollkeeper up` runs on {data}; stop it first")
        with open_control(data, os.environ) as database:
            if not database.is_there:
                raise ConfigurationError(f"{database.url.database} does not exist; no secrets are recorded in it")
            database.check_schema()
            author = Author(system_user(), datetime.now(UTC))
            lost = accept_secrets(database, SecretFiles(data / "secrets"), names, author, reason.strip())
    if as_json:
        print_json(lost)
    else:
        for name, what in lost.items():
            typer.echo(f"{name} accepted: {what}")


@contextmanager
def _alone(files: SecretFiles) -> Iterator[None]:
    """Hold a lock in a `with` block, so that only one rotation runs: two would overwrite each other's key."""
    try:
        descriptor = os.open(files.directory, os.O_RDONLY)
    except OSError as error:
        raise ConfigurationError(f"{files.directory} cannot be read ({error.strerror}); name --data") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _add_key(files: SecretFiles) -> str:
    """Add a new key before the others and return it. Running processes reload the file when they need the new key."""
    keys = [random_secrets.token_urlsafe(_KEY_BYTES), *_keys_of(files)]
    Sealer(keys)  # raises on an invalid key before the file is changed
    files.replace(KEY_FILE, "\n".join(keys))
    return keys[0]


def _keys_of(files: SecretFiles) -> list[str]:
    found = files.get(KEY_FILE)
    if found is None:
        raise ConfigurationError(
            f"{files.directory / KEY_FILE} is not there; name the installation's directory with --data"
        )
    return found.split()


def _read_value(file: Path | None) -> str:
    if file is None:
        return (typer.prompt("key", hide_input=True) if sys.stdin.isatty() else sys.stdin.read()).strip()
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file} cannot be read ({type(error).__name__})") from error


def _cell(row: Mapping[str, Any], column: str) -> str:
    return str(row[column])[:19] if column == "updated_at" else str(row[column])
