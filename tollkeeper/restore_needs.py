"""Determines the parts that a backup does not contain and that must be restored separately first."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from backends.audit.chain_end import find_end
from backends.audit.options import audit_root
from backends.audit.places import DirectoryPlace, chain_directories
from backends.audit.signing import KEY_FILE as AUDIT_SIGNING_KEY
from backends.audit.signing import AuditKeys, own_keys
from backends.audit.verification import verify_chain
from backends.control.archive import ArchivedControl
from backends.control.audit_chain import WITNESS_BEGINS
from backends.control.known_secrets import KEY_PEPPER, KNOWN_SECRETS, lacking_secrets
from backends.control.sealer import KEY_FILE as SEALING_KEY
from backends.secrets.secret_files import SecretFiles
from contracts.errors import ConfigurationError

_SETTING: Final = "TOLLKEEPER_"
# Tables whose rows need a secret, for backups of older versions, which did not record fingerprints.
_NEEDED: Final = {
    KEY_PEPPER: ("api_keys", "admin_tokens"),
    SEALING_KEY: ("alert_channels", "stored_keys"),
}


class NotIncluded(msgspec.Struct, frozen=True):
    """A part of the installation that a backup does not contain, and its purpose."""

    what: str
    why: str


def not_included(data: Path, begun: Mapping[str, str], kept: Mapping[str, str]) -> tuple[NotIncluded, ...]:
    """Return the parts of an installation that a backup does not contain.

    `begun`: audit chains that the control database names; `kept`: those in the backup.
    """
    return tuple(_not_included(data, begun, kept))


def _not_included(data: Path, begun: Mapping[str, str], kept: Mapping[str, str]) -> Iterator[NotIncluded]:
    secrets = data / "secrets"
    names = sorted(path.name for path in secrets.iterdir() if path.is_file()) if secrets.is_dir() else []
    yield NotIncluded(
        str(secrets), f"{', '.join(names) or 'no files here'}: without them keys, sealed values and the audit are lost"
    )
    for chain in sorted(set(begun) - set(kept)):
        yield NotIncluded(f"audit chain {chain}", f"not under {audit_root(data)}: copy audit/ of its control plane")
    objects = data / "objects.db"
    if objects.exists():
        yield NotIncluded(str(objects), f"{objects.stat().st_size} bytes: files, batches, stored responses")
    for name in ("journal", "spool", "sent-requests"):
        if (data / name).exists():
            yield NotIncluded(str(data / name), "records on their way to the store")
    yield NotIncluded("settings", f"values of {_SETTING}* variables, .env, YAML files, certificates")


def settings_of(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the settings in the environment, without their values."""
    return tuple(sorted(name for name, value in environment.items() if name.startswith(_SETTING) and value))


def lacking(backup: Path, control: ArchivedControl, data: Path) -> list[str]:
    """Return what must be in place before a restore: secrets, and the chains that sign the database's audit log."""
    secrets = SecretFiles(data / "secrets")
    rows = {table: archived.rows for table, archived in control.tables.items()}
    if rows.get(KNOWN_SECRETS):
        known = {row["name"]: row["fingerprint"] for row in _rows(backup / "control" / f"{KNOWN_SECRETS}.jsonl")}
        found = lacking_secrets(known, secrets, ())
    else:
        needed = {name for name, tables in _NEEDED.items() if any(rows.get(table) for table in tables)}
        needed |= {AUDIT_SIGNING_KEY} if chain_directories(backup / "audit") else set()
        found = lacking_secrets({}, secrets, needed)
    if secrets.get(AUDIT_SIGNING_KEY) is not None:
        found += _unverified(backup, own_keys(secrets))
    here = chains_of(backup / "audit") | chains_of(audit_root(data))
    gone = sorted(set(begun_in(backup)) - set(here))
    return found + [
        f"audit chain {chain}, which confirms the control database's audit log: put its folder into {audit_root(data)}"
        for chain in gone
    ]


def begun_in(backup: Path) -> dict[str, str]:
    """Return the audit chains in a backup's control database, except those whose loss was accepted."""
    begun: dict[str, str] = {}
    for row in sorted(_rows(backup / "control" / "audit.jsonl"), key=lambda row: int(row["id"])):
        if row["action"] == WITNESS_BEGINS:
            begun[row["subject"]] = row["action"]
        elif row["action"] == "audit.accept_restore":
            begun.clear()
    return begun


def chains_of(root: Path) -> dict[str, str]:
    """Return the folder names of the audit chains in a directory, by chain. Raises ConfigurationError."""
    return {find_end(directory, "", 0).chain: directory.name for directory in chain_directories(root)}


def _unverified(backup: Path, keys: AuditKeys) -> Iterator[str]:
    for directory in chain_directories(backup / "audit"):
        fault = verify_chain(DirectoryPlace(directory), keys).fault
        if fault is not None:
            yield f"the {AUDIT_SIGNING_KEY} that signed {directory.name} of the backup's audit ({fault.what})"


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be read ({error.strerror}): check its permissions, or take another backup"
        ) from error
    for line in lines:
        try:
            yield json.loads(line)
        except ValueError as error:
            raise ConfigurationError(f"{path} cannot be read: the backup is damaged") from error
