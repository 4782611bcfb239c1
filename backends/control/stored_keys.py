"""API keys of providers, stored encrypted: written but never shown, referenced by targets, re-encrypted at
a rotation.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from backends.control.changes import Author, begin_change
from backends.control.known_secrets import note_sealing_key
from backends.control.row_names import row_name
from backends.control.sealer import Sealer
from backends.control.unreadable_rows import require_all_read
from contracts.control import AlertChannel, Budget, McpServer, McpToken, StoredKey, Target
from contracts.errors import Conflict, InvalidRequest, NotFound

STORED: Final = "stored:"
SEALED: Final = "sealed:"
_REFERRING: Final = ("headers", "credentials")  # of a target's settings
_MAX_VALUE: Final = 8 * 1024
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


def put_key(session: Session, author: Author, name: str, value: str, sealer: Sealer) -> StoredKey:
    """Store a key under a name, replacing the previous one; gateways use it within a second.

    Raises InvalidRequest on an invalid name or value. The value is in no message and no audit entry.
    """
    entry = begin_change(session, author, "stored_key.put", name)
    if not _NAME.fullmatch(name):
        raise InvalidRequest("a key's name has a-z, 0-9 and -, at most 63 of them", param="name")
    value = value.strip()
    is_key = value.isascii() and value.isprintable() and " " not in value
    is_file = value.startswith("{")  # JSON may have several lines; a key may not
    if not 0 < len(value) <= _MAX_VALUE or not (is_key or is_file):
        raise InvalidRequest(
            f"the key is empty, has more than {_MAX_VALUE} characters, or one that no header carries", param="value"
        )
    row = session.get(StoredKey, name)
    if row is None:
        row = StoredKey(name=name, sealed=sealer.seal(value), version=1, created_at=author.at, updated_at=author.at)
        session.add(row)
    else:
        row.sealed, row.version, row.updated_at = sealer.seal(value), row.version + 1, author.at
    entry.detail = {"version": row.version}
    session.flush()
    return row


def list_keys(session: Session, *, after: str = "", limit: int = 100) -> list[StoredKey]:
    """Return up to `limit` keys whose names sort after `after`."""
    return list(session.scalars(select(StoredKey).where(StoredKey.name > after).order_by(StoredKey.name).limit(limit)))


def delete_key(session: Session, author: Author, name: str) -> None:
    """Remove a key. Raises NotFound, and Conflict while a target or MCP server refers to it."""
    begin_change(session, author, "stored_key.delete", name)
    row = session.get(StoredKey, name)
    if row is None:
        raise NotFound(f"no key {name!r} is stored", rows=[row_name(StoredKey, name)])
    for target in session.scalars(select(Target)):
        if f"{STORED}{name}" in _references(target.key_ref, target.settings):
            raise Conflict(f"target {target.id!r} of pool {target.pool_id!r} uses key {name!r}; remove it first")
    for server in session.scalars(select(McpServer)):
        if f"{STORED}{name}" in _values(server.rules):
            raise Conflict(f"MCP server {server.id!r} uses key {name!r}; remove it first")
    session.delete(row)
    session.flush()


def reseal_all(session: Session, author: Author, sealer: Sealer) -> dict[str, int]:
    """Encrypt everything again with the sealer's newest key; return how many texts, by kind.

    Raises ConfigurationError if something cannot be decrypted with any of its keys, and RowUnreadable; then nothing is
    changed.
    """
    entry = begin_change(session, author, "stored_key.rotate", "all")
    counts = {"stored_keys": 0, "alert_channels": 0, "budgets": 0, "mcp_tokens": 0}
    for key in session.scalars(select(StoredKey)):
        key.sealed = sealer.reseal(key.sealed)
        counts["stored_keys"] += 1
    for token in session.scalars(select(McpToken).with_for_update()):
        token.sealed = sealer.reseal(token.sealed)
        counts["mcp_tokens"] += 1
    for channel in session.scalars(select(AlertChannel)):
        channel.address = sealer.reseal(channel.address)
        counts["alert_channels"] += 1
    for budget in session.scalars(select(Budget).where(Budget.webhook_url != "")):
        budget.webhook_url = sealer.seal(sealer.open_address(budget.webhook_url))
        counts["budgets"] += 1
    require_all_read(session)  # else unreadable rows would be lost with the older keys
    note_sealing_key(session, sealer.key_id, author.at)
    entry.detail = dict(counts)
    session.flush()
    return counts


def load_stored(session: Session) -> dict[str, str]:
    """Return the stored keys by name, encrypted."""
    return {name: sealed for name, sealed in session.execute(select(StoredKey.name, StoredKey.sealed))}


def with_sealed(reference: str, stored: Mapping[str, str]) -> str:
    """Return a reference in the form for gateways: stored:NAME becomes sealed:NAME:TOKEN, which changes
    with the value.
    """
    name = reference.removeprefix(STORED)
    if name == reference or name not in stored:
        return reference
    return f"{SEALED}{name}:{stored[name]}"


def settings_with_sealed(settings: Mapping[str, Any], stored: Mapping[str, str]) -> Mapping[str, Any]:
    """Return a target's settings with stored-key references in headers and credentials replaced by encrypted keys."""
    changed = {
        part: {name: with_sealed(value, stored) if isinstance(value, str) else value for name, value in given.items()}
        for part in _REFERRING
        if isinstance(given := settings.get(part), Mapping) and STORED in str(given.values())
    }
    return {**settings, **changed} if changed else settings


def _references(key_ref: str, settings: Mapping[str, Any]) -> set[str]:
    parts = [given for part in _REFERRING if isinstance(given := settings.get(part), Mapping)]
    return {key_ref, *(value for given in parts for value in given.values() if isinstance(value, str))}


def _values(rules: Mapping[str, Any]) -> set[str]:
    """Return every text in nested rules."""
    found: set[str] = set()
    left: list[Any] = [rules]
    while left:
        one = left.pop()
        if isinstance(one, str):
            found.add(one)
        elif isinstance(one, Mapping):
            left.extend(one.values())
        elif isinstance(one, list):
            left.extend(one)
    return found
