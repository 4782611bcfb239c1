"""Accounts of people who sign in, each with one role and the scope of that role."""

from dataclasses import dataclass
from typing import Final

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from backends.control.admin_tokens import check_grant, check_reach, revoke_tokens_of
from backends.control.changes import Author, begin_change
from backends.control.keys import revoke_keys_of
from backends.control.row_names import row_name
from backends.control.saved_views import delete_views_of, move_views_of
from contracts.control import AuditEntry, Role, RoleGrant, User, UserSession
from contracts.errors import Conflict, InvalidRequest, NotFound
from contracts.recording.ids import uuid7
from contracts.recording.moments import unix_ns

MAX_EMAIL: Final = 320  # RFC 3696, errata 1690


@dataclass(frozen=True, slots=True)
class Account:
    """A user and their role. The role applies to everything if `tenant_id` is empty, else to that tenant, or one team
    of it.
    """

    user: User
    role: Role
    tenant_id: str = ""
    team_id: str = ""


@dataclass(frozen=True, slots=True)
class NewUser:
    """A new account. `password_digest` is `None` if the user signs in only through an identity provider."""

    email: str
    name: str
    role: Role
    tenant_id: str = ""
    team_id: str = ""
    password_digest: str | None = None


def create_user(session: Session, author: Author, granted_by: Role, new: NewUser) -> Account:
    """Create an account. Raises PermissionDenied on a role above the author's own, InvalidRequest on a role that does
    not match its scope, NotFound on an unknown tenant or team, Conflict if the address has an account.
    """
    user_id = f"usr_{uuid7(unix_ns(author.at)).hex}"
    email = plain_email(new.email)
    detail: dict[str, object] = {"email": email, "role": new.role.value, "tenant": new.tenant_id, "team": new.team_id}
    begin_change(session, author, "user.create", _subject(new.tenant_id, user_id), detail)
    check_grant(granted_by, new.role)
    _refuse_directory(new.role)
    check_reach(session, author, new.role, new.tenant_id, new.team_id)
    if session.scalars(select(User.id).where(User.email == email)).first() is not None:
        raise Conflict(f"an account of {email!r} exists already; change its role instead", param="email")
    user = User(id=user_id, email=email, name=new.name, password_digest=new.password_digest, created_at=author.at)
    user.is_active = True
    session.add(user)
    session.flush()
    session.add(RoleGrant(user_id=user_id, tenant_id=new.tenant_id, team_id=new.team_id, role=new.role))
    session.flush()
    return Account(user, new.role, new.tenant_id, new.team_id)


def list_users(session: Session, *, tenant_id: str = "", after: str = "", limit: int = 100) -> list[Account]:
    """Return up to `limit` accounts after an id, oldest first; of one tenant if it is not empty."""
    wanted = (
        select(User, RoleGrant)
        .join(RoleGrant, RoleGrant.user_id == User.id)
        .where(User.id > after)
        .order_by(User.id)
        .limit(limit)
    )
    if tenant_id:
        wanted = wanted.where(RoleGrant.tenant_id == tenant_id)
    return [Account(user, grant.role, grant.tenant_id, grant.team_id) for user, grant in session.execute(wanted)]


def get_account(session: Session, user: str, *, tenant_id: str = "") -> Account:
    """Return an account by its id or e-mail address. Raises NotFound, also if it belongs to another tenant."""
    by = User.email == user.strip().lower() if "@" in user else User.id == user
    wanted = select(User, RoleGrant).join(RoleGrant, RoleGrant.user_id == User.id).where(by)
    found = session.execute(wanted, execution_options={"populate_existing": True}).first()
    if found is None or tenant_id not in ("", found[1].tenant_id):
        raise NotFound(
            f"user {user!r} does not exist; `tollkeeper accounts list` shows those that do", rows=[row_name(User, user)]
        )
    return Account(found[0], found[1].role, found[1].tenant_id, found[1].team_id)


def find_account(session: Session, email: str) -> Account | None:
    """Find the account of an e-mail address; `None` if there is none."""
    try:
        return get_account(session, plain_email(email))
    except (InvalidRequest, NotFound):
        return None


def grant_role(
    session: Session, author: Author, granted_by: Role, user: str, role: Role, tenant_id: str, team_id: str
) -> Account:
    """Change an account's role and return the account. Raises as `create_user` does.

    Its own keys are revoked if it moves to another tenant or team, since they would then belong to that one.
    """
    entry, account = _begin_change_of(session, author, "user.grant", user)
    entry.subject = _subject(tenant_id, account.user.id)
    entry.detail = {"role": role.value, "tenant": tenant_id, "team": team_id, "was": account.role.value}
    check_grant(granted_by, account.role)
    check_grant(granted_by, role)
    _refuse_directory(role)
    check_reach(session, author, role, tenant_id, team_id)
    if (tenant_id, team_id) != (account.tenant_id, account.team_id):
        entry.detail = {**entry.detail, "keys": revoke_keys_of(session, account.user.id, author.at)}
    session.execute(delete(RoleGrant).where(RoleGrant.user_id == account.user.id))
    session.add(RoleGrant(user_id=account.user.id, tenant_id=tenant_id, team_id=team_id, role=role))
    move_views_of(session, account.user.id, tenant_id)
    session.flush()
    return Account(account.user, role, tenant_id, team_id)


def change_user(
    session: Session,
    author: Author,
    granted_by: Role,
    user: str,
    *,
    is_active: bool | None = None,
    password_digest: str | None = None,
) -> Account:
    """Set a password, or enable or disable an account; either ends all of its sessions. Raises as `grant_role` does.

    The tokens that it created are refused while it is disabled; its own keys are revoked permanently.
    """
    entry, account = _begin_change_of(session, author, "user.update", user)
    entry.detail = {"is_active": is_active, "password": password_digest is not None}
    check_grant(granted_by, account.role)
    if is_active is not None:
        account.user.is_active = is_active
        if not is_active:
            entry.detail = {**entry.detail, "keys": revoke_keys_of(session, account.user.id, author.at)}
    if password_digest is not None:
        account.user.password_digest = password_digest
    session.execute(delete(UserSession).where(UserSession.user_id == account.user.id))
    session.flush()
    return account


def delete_user(session: Session, author: Author, granted_by: Role, user: str) -> str:
    """Remove an account with its sessions and views, revoke its tokens and own keys, and return its id. Raises as
    `grant_role` does.
    """
    entry, account = _begin_change_of(session, author, "user.delete", user)
    check_grant(granted_by, account.role)
    for table in (UserSession, RoleGrant):  # SQLite cascades only on connections that enable it
        session.execute(delete(table).where(table.user_id == account.user.id))
    delete_views_of(session, account.user.id)
    tokens, keys = (revoke(session, account.user.id, author.at) for revoke in (revoke_tokens_of, revoke_keys_of))
    entry.detail = {"tokens": list(tokens), "keys": list(keys)}
    session.delete(account.user)
    session.flush()
    return account.user.id


def rename_user(session: Session, author: Author, user: str, email: str, name: str) -> Account:
    """Set an account's e-mail address and name. Raises InvalidRequest on an invalid address, Conflict if another
    account has it, NotFound.
    """
    entry, account = _begin_change_of(session, author, "user.rename", user)
    address = plain_email(email)
    entry.detail = {"email": address, "was": account.user.email}
    taken = select(User.id).where(User.email == address, User.id != account.user.id)
    if session.scalars(taken).first() is not None:
        raise Conflict(f"an account of {address!r} exists already; remove it or use another address", param="email")
    account.user.email, account.user.name = address, name
    session.flush()
    return account


def plain_email(text: str) -> str:
    """Return an e-mail address in the form that identifies accounts: lower case. Raises InvalidRequest if it is
    invalid.
    """
    email = text.strip().lower()
    local, at, domain = email.rpartition("@")
    if not at or not local or "." not in domain.strip(".") and domain != "localhost" or len(email) > MAX_EMAIL:
        raise InvalidRequest(f"{text[:80]!r} is no e-mail address; it looks like ada@example.com", param="email")
    if any(letter.isspace() or not letter.isprintable() for letter in email):
        raise InvalidRequest("an e-mail address has no blanks", param="email")
    return email


def _refuse_directory(role: Role) -> None:
    if role is Role.DIRECTORY:
        raise InvalidRequest(
            "the role 'directory' is for tokens of identity providers; give people another role", param="role"
        )


def _begin_change_of(session: Session, author: Author, action: str, user: str) -> tuple[AuditEntry, Account]:
    """Start a change of an account, and return the account as read under the write lock, for the check of the author's
    rights.
    """
    user_id = get_account(session, user, tenant_id=author.tenant_id).user.id
    entry = begin_change(session, author, action, user_id)
    account = get_account(session, user_id, tenant_id=author.tenant_id)
    entry.subject = _subject(account.tenant_id, user_id)
    return entry, account


def _subject(tenant_id: str, user_id: str) -> str:
    return f"{tenant_id}/{user_id}" if tenant_id else user_id
