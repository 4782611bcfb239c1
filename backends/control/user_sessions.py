"""Sessions of signed-in users: created at sign-in, identified by the hash of a secret, and expiring."""

import secrets as randomness
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from backends.control.accounts import Account
from backends.control.changes import Author, begin_change
from contracts.access.keys import KEY_PREFIX, KEY_RANDOM_BYTES, digest_of, is_well_formed
from contracts.control import RoleGrant, User, UserSession
from contracts.errors import AuthenticationFailed
from contracts.recording.ids import uuid7
from contracts.recording.moments import unix_ns

SESSION_PREFIX: Final = "tk-session-"
MAX_SESSIONS: Final = 20  # per user; a further one ends the oldest


@dataclass(frozen=True, slots=True)
class ValidSession:
    """A valid session and its account."""

    id: str
    account: Account
    expires_at: datetime


def new_secret() -> str:
    """Create the secret of a session: 256 random bits."""
    return SESSION_PREFIX + randomness.token_urlsafe(KEY_RANDOM_BYTES)


def is_session_like(secret: str) -> bool:
    """Return whether text has a session's format, so that other text needs no lookup."""
    return secret.startswith(SESSION_PREFIX) and is_well_formed(KEY_PREFIX + secret.removeprefix(SESSION_PREFIX))


def begin_session(
    session: Session, author: Author, account: Account, method: str, secret: str, length: timedelta, pepper: bytes
) -> UserSession:
    """Start a session for a user who has signed in, at the time `author.at`.

    `account` is the account that the credentials were checked against. Raises AuthenticationFailed if it has changed
    since it was read: it was disabled or removed, or its password changed.
    """
    proved = account.user.password_digest
    begun = UserSession(
        id=f"ses_{uuid7(unix_ns(author.at)).hex}",
        user_id=account.user.id,
        digest=digest_of(secret, pepper).hex(),
        method=method,
        address=author.address[:64],
        created_at=author.at,
        expires_at=author.at + length,
    )
    subject = f"{account.tenant_id}/{account.user.id}" if account.tenant_id else account.user.id
    begin_change(session, author, "session.begin", subject, {"session": begun.id, "method": method})
    user = session.get(User, account.user.id, populate_existing=True)
    if user is None or not user.is_active or (method == "password" and user.password_digest != proved):
        raise AuthenticationFailed(
            "the account was closed, or its password changed, at this moment; sign in again", code="wrong_password"
        )
    mine = UserSession.user_id == account.user.id
    session.execute(delete(UserSession).where(mine, UserSession.expires_at <= author.at))
    kept = select(UserSession.id).where(mine).order_by(UserSession.id.desc()).offset(MAX_SESSIONS - 1)
    session.execute(delete(UserSession).where(UserSession.id.in_(list(session.scalars(kept)))))
    session.add(begun)
    session.flush()
    return begun


def find_session(session: Session, secret: str, pepper: bytes, now: datetime) -> ValidSession | None:
    """Return the session of this secret; `None` if it is invalid or has ended, or its user is disabled."""
    digest = digest_of(secret, pepper).hex()
    row = session.execute(
        select(UserSession, User, RoleGrant)
        .join(User, User.id == UserSession.user_id)
        .join(RoleGrant, RoleGrant.user_id == User.id)
        .where(UserSession.digest == digest)
    ).first()
    if row is None:
        return None
    found, user, grant = row
    if found.ended_at is not None or found.expires_at <= now or not user.is_active:
        return None
    return ValidSession(found.id, Account(user, grant.role, grant.tenant_id, grant.team_id), found.expires_at)


def end_session(session: Session, author: Author, secret: str, pepper: bytes) -> None:
    """End the session of this secret; do nothing if there is none."""
    digest = digest_of(secret, pepper).hex()
    found = session.scalars(select(UserSession).where(UserSession.digest == digest)).first()
    if found is None or found.ended_at is not None:
        return
    subject = f"{author.tenant_id}/{found.user_id}" if author.tenant_id else found.user_id
    begin_change(session, author, "session.end", subject, {"session": found.id})
    found.ended_at = author.at
    session.flush()
