"""Checks that the secrets directory contains the secrets that the control database was created with.

The database stores only their fingerprints. A missing or different secret is never replaced without confirmation, since
what depends on it would stop working without a message.
"""

import hashlib
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import inspect, select
from sqlalchemy.orm import Session

from backends.audit.keyed_hash import KEY_FILE as AUDIT_HASH_KEY
from backends.audit.signing import FORMER_KEYS_FILE, AuditSigner
from backends.audit.signing import KEY_FILE as AUDIT_SIGNING_KEY
from backends.control.audit_chain import WITNESS_BEGINS
from backends.control.changes import Author, begin_change
from backends.control.database import ControlDatabase
from backends.control.sealer import KEY_FILE as SEALING_KEY
from backends.control.sealer import KEYS_VARIABLE, environment_keys, key_id_of
from backends.secrets.secret_files import SecretFiles
from contracts.control import AdminToken, AlertChannel, ApiKey, AuditEntry, Budget, KnownSecret, McpToken, StoredKey
from contracts.errors import ConfigurationError
from contracts.recording.record_signature import SIGNING_KEY as RECORD_SIGNING_KEY

KEY_PEPPER: Final = "key_pepper"
# Known secrets, and what fails without each.
DEPENDS: Final[Mapping[str, str]] = {
    KEY_PEPPER: "no API key, admin token or session is recognised",
    SEALING_KEY: "stored provider keys, alert channels and webhook addresses cannot be opened",
    AUDIT_SIGNING_KEY: "the audit log cannot be verified or continued",
    FORMER_KEYS_FILE: "what a former key signed in the audit log cannot be verified",
    AUDIT_HASH_KEY: "hashes of prompts and answers in the audit log cannot be compared",
    RECORD_SIGNING_KEY: "the collector refuses the records that wait in gateways' journals",
    "cache_salt": "cached responses are not found again",
    "webhook_secret": "receivers refuse the signatures of webhooks",
}
_MADE_LATER: Final = frozenset({FORMER_KEYS_FILE})  # created only when changed secrets are accepted
_FINGERPRINT_DIGITS: Final = 32
KNOWN_SECRETS: Final = KnownSecret.__tablename__


def check_secrets(database: ControlDatabase, secrets: SecretFiles, names: Collection[str] = tuple(DEPENDS)) -> None:
    """Raise ConfigurationError if one of these secrets is missing or differs from the database's fingerprint.

    If a database of an earlier version has no fingerprints, a secret is needed if rows depend on it. A new database
    needs none. Raises ControlUnavailable if the database does not answer.
    """
    with database.session() as session:
        known, needed = _known(session), _needed(session)
    wrong = lacking_secrets(known, secrets, needed, names)
    if wrong:
        raise ConfigurationError(
            f"these secrets are not the ones that the control database was made with: {'; '.join(wrong)}. Put the "
            "files back from your copy of the secrets directory. What is lost for good is replaced by `tollkeeper "
            "secrets accept NAME --reason TEXT`, and what depends on it has to be made again"
        )


def lacking_secrets(
    known: Mapping[str, str], secrets: SecretFiles, needed: Collection[str], names: Collection[str] = tuple(DEPENDS)
) -> list[str]:
    """Return the secrets that are missing or differ from their fingerprint in `known`; and those in `needed`, without
    one.
    """
    wrong = []
    for name in (name for name in DEPENDS if name in names):
        found = _fingerprints(secrets, name)
        if not found and (name in known or name in needed):
            wrong.append(f"{_place(secrets, name)} is missing ({DEPENDS[name]})")
        elif name in known and known[name] not in found:
            wrong.append(f"{_place(secrets, name)} is another one than before ({DEPENDS[name]})")
    return wrong


def make_secrets(secrets: SecretFiles) -> None:
    """Create the secrets of a new installation; call it after `check_secrets`. Raises ConfigurationError."""
    for name in DEPENDS:
        if name not in _MADE_LATER and not _fingerprints(secrets, name):
            secrets.get_or_create(name)


def remember_secrets(database: ControlDatabase, secrets: SecretFiles) -> None:
    """Record the fingerprints of secrets that the database does not know yet, and of a newer sealing key.

    Raise ConfigurationError if one cannot be read, ControlUnavailable if the database does not answer.
    """
    with database.session() as session:
        _remember(session, secrets, DEPENDS)


def accept_secrets(
    database: ControlDatabase, secrets: SecretFiles, names: Collection[str], author: Author, reason: str
) -> dict[str, str]:
    """Accept these secrets as the installation's from now on, and create missing ones; audited.

    Return the consequences, by name. Earlier checkpoints of the audit log stay verifiable by the public key in the
    database. Raise ConfigurationError on an unknown name, or if nothing differs.
    """
    unknown = sorted(set(names) - DEPENDS.keys())
    if unknown:
        raise ConfigurationError(f"{unknown[0]!r} is not a secret that is remembered; there are: {', '.join(DEPENDS)}")
    with database.session() as session:
        known, needed = _known(session), _needed(session)
        changed = [name for name in DEPENDS if name in names and _differs(secrets, name, known, needed)]
        if not changed:
            raise ConfigurationError("these secrets are the ones that the control database knows; nothing to accept")
        begin_change(session, author, "secret.accept", ",".join(changed), {"names": changed, "reason": reason})
        if AUDIT_SIGNING_KEY in changed or FORMER_KEYS_FILE in changed:
            _keep_former_keys(session, secrets)
            changed = [*(name for name in changed if name != FORMER_KEYS_FILE), FORMER_KEYS_FILE]
        _replace(session, secrets, changed)
    told = {name: DEPENDS[name] for name in changed if name in names}
    if AUDIT_SIGNING_KEY in told and AUDIT_SIGNING_KEY in known:
        told[AUDIT_SIGNING_KEY] = (
            "the audit log goes on under another key; the former public key is kept for verification"
        )
    return told


def _differs(secrets: SecretFiles, name: str, known: Mapping[str, str], needed: Collection[str]) -> bool:
    """Return whether a secret differs from its known fingerprint, or is needed and has none."""
    return known[name] not in _fingerprints(secrets, name) if name in known else name in needed


def _keep_former_keys(session: Session, secrets: SecretFiles) -> None:
    """Write the public keys in the database to the file of former keys. Only for `accept_secrets`: a start must not
    trust the database's keys.
    """
    rows = [session.get(KnownSecret, name) for name in (FORMER_KEYS_FILE, AUDIT_SIGNING_KEY)]
    secrets.replace(FORMER_KEYS_FILE, "".join(row.public for row in rows if row is not None).strip())


def _replace(session: Session, secrets: SecretFiles, changed: Collection[str]) -> None:
    """Store the fingerprints of these secrets, replacing known ones, and create missing secrets."""
    for name in changed:
        if not _fingerprints(secrets, name):
            secrets.get_or_create(name)
        row = session.get(KnownSecret, name)
        if row is not None:
            session.delete(row)
    session.flush()
    _remember(session, secrets, changed)


def note_sealing_key(session: Session, key_id: str, at: datetime) -> None:
    """Record that everything is encrypted with another key from now on."""
    row = session.get(KnownSecret, SEALING_KEY)
    if row is None:
        session.add(KnownSecret(name=SEALING_KEY, fingerprint=key_id, public="", created_at=at))
    else:
        row.fingerprint = key_id


def fingerprint_of(name: str, text: str) -> str:
    """Return a fingerprint of a random secret, from which the secret cannot be found."""
    digest = hashlib.sha256(f"tollkeeper secret {name}\n{text}".encode()).hexdigest()
    return digest[:_FINGERPRINT_DIGITS]


def _remember(session: Session, secrets: SecretFiles, names: Collection[str]) -> None:
    now = datetime.now(UTC)
    for name in names:
        found = _fingerprints(secrets, name)
        if not found:
            continue
        row = session.get(KnownSecret, name)
        if row is None:
            public = _public(secrets, name)
            session.add(KnownSecret(name=name, fingerprint=found[0], public=public, created_at=now))


def _known(session: Session) -> dict[str, str]:
    if not inspect(session.connection()).has_table(KNOWN_SECRETS):
        return {}
    return {
        name: fingerprint for name, fingerprint in session.execute(select(KnownSecret.name, KnownSecret.fingerprint))
    }


def _needed(session: Session) -> set[str]:
    """Return the secrets that existing rows depend on. The schema may be of an earlier version."""
    tables = set(inspect(session.connection()).get_table_names())
    uses = [
        (KEY_PEPPER, "api_keys", select(ApiKey.id)),
        (KEY_PEPPER, "admin_tokens", select(AdminToken.id)),
        (SEALING_KEY, "alert_channels", select(AlertChannel.id)),
        (SEALING_KEY, "stored_keys", select(StoredKey.name)),
        (SEALING_KEY, "mcp_tokens", select(McpToken.server)),
        # The column was added with the table of stored keys.
        (SEALING_KEY, "stored_keys", select(Budget.id).where(Budget.webhook_url != "")),
        (AUDIT_SIGNING_KEY, "audit", select(AuditEntry.id).where(AuditEntry.action == WITNESS_BEGINS)),
    ]
    return {
        name for name, table, query in uses if table in tables and session.execute(query.limit(1)).first() is not None
    }


def _fingerprints(secrets: SecretFiles, name: str) -> list[str]:
    """Return a secret's fingerprint; of the sealing keys, each one's; empty if it is missing."""
    if name == SEALING_KEY:
        return [key_id_of(key) for key in environment_keys() or (secrets.get(name) or "").split()]
    text = secrets.get(name)
    return [] if text is None else [fingerprint_of(name, text)]


def _public(secrets: SecretFiles, name: str) -> str:
    if name == AUDIT_SIGNING_KEY:
        return AuditSigner.of(secrets).public.pem
    return (secrets.get(name) or "") if name == FORMER_KEYS_FILE else ""


def _place(secrets: SecretFiles, name: str) -> str:
    return KEYS_VARIABLE if name == SEALING_KEY and environment_keys() else str(secrets.directory / name)
