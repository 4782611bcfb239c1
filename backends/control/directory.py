"""Users and groups that an identity provider provisions (SCIM 2.0): accounts and teams of a tenant.

A user is a developer in the team of the group that was created first, and stays in a team while one of their groups
belongs to it. An account with another role, set by an administrator, keeps it.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from backends.control.accounts import (
    NewUser,
    change_user,
    create_user,
    delete_user,
    find_account,
    get_account,
    grant_role,
    plain_email,
    rename_user,
)
from backends.control.changes import Author, begin_change
from backends.control.organisation import create_team
from contracts.control import DirectoryEntry, Role, Team
from contracts.errors import Conflict, InvalidRequest, NotFound
from contracts.recording.ids import uuid7
from contracts.recording.moments import unix_ns

USER: Final = "User"
GROUP: Final = "Group"
_MAX_NAME: Final = 200
_MAX_SLUG: Final = 63
_NOT_A_SLUG: Final = re.compile(r"[^a-z0-9]+")
# A role that may create the directory's token may grant the developer role (backends/control/admin_tokens.py).
_GRANTED_BY: Final = Role.ADMIN


@dataclass(frozen=True, slots=True)
class Person:
    """A user as the identity provider states it. `addresses` are e-mail addresses, the preferred one first."""

    user_name: str
    name: str
    addresses: tuple[str, ...]
    is_active: bool
    document: Mapping[str, Any]

    @property
    def email(self) -> str:
        """Return the e-mail address to sign in with; if none is stated, one that nobody can own (RFC 2606)."""
        for stated in (*self.addresses, self.user_name):
            try:
                return plain_email(stated)
            except InvalidRequest:
                continue
        return f"{hashlib.sha256(self.user_name.lower().encode()).hexdigest()[:24]}@no-address.invalid"


@dataclass(frozen=True, slots=True)
class StatedGroup:
    """A group as the identity provider states it. `members` are ids of users that it provisioned."""

    name: str
    members: tuple[str, ...]
    document: Mapping[str, Any]


def entries_of(session: Session, tenant_id: str, kinds: Iterable[str]) -> list[DirectoryEntry]:
    """Return the users or groups that were provisioned into a tenant, in order of creation."""
    wanted = select(DirectoryEntry).where(DirectoryEntry.tenant_id == tenant_id, DirectoryEntry.kind.in_(list(kinds)))
    return list(session.scalars(wanted.order_by(DirectoryEntry.created_at, DirectoryEntry.id)))


def named_entries(session: Session, tenant_id: str, kind: str, name: str) -> list[DirectoryEntry]:
    """Return the entries with this userName or displayName, ignoring case."""
    named = (
        DirectoryEntry.tenant_id == tenant_id,
        DirectoryEntry.kind == kind,
        DirectoryEntry.name == name.lower()[:320],
    )
    return list(session.scalars(select(DirectoryEntry).where(*named).order_by(DirectoryEntry.created_at)))


def get_entry(session: Session, tenant_id: str, kind: str, entry_id: str) -> DirectoryEntry:
    """Return a user or group. Raises NotFound, also for one of another tenant."""
    found = session.get(DirectoryEntry, entry_id, populate_existing=True)
    if found is None or found.tenant_id != tenant_id or found.kind != kind:
        raise NotFound(f"{kind.lower()} {entry_id[:80]!r} does not exist in this directory")
    return found


def add_person(session: Session, author: Author, person: Person) -> DirectoryEntry:
    """Create a developer's account for a user of the author's tenant. Raises Conflict if its userName or address is in
    use.
    """
    begin_change(session, author, "directory.user", f"{author.tenant_id}/{person.user_name}"[:300])
    _refuse_taken(session, author.tenant_id, person.user_name, but="")
    new = NewUser(person.email, person.name[:_MAX_NAME], Role.DEVELOPER, author.tenant_id)
    account = create_user(session, author, _GRANTED_BY, new)
    if not person.is_active:
        change_user(session, author, _GRANTED_BY, account.user.id, is_active=False)
    return _add(session, author, account.user.id, USER, person.user_name, person.document)


def change_person(session: Session, author: Author, entry: DirectoryEntry, person: Person) -> DirectoryEntry:
    """Update an account to the provider's current state; an inactive one loses its sessions and own keys. Raises as
    `add_person` does.
    """
    begin_change(session, author, "directory.user", f"{author.tenant_id}/{entry.id}")
    _refuse_taken(session, author.tenant_id, person.user_name, but=entry.id)
    account = get_account(session, entry.id, tenant_id=author.tenant_id)
    if (account.user.email, account.user.name) != (person.email, person.name[:_MAX_NAME]):
        rename_user(session, author, entry.id, person.email, person.name[:_MAX_NAME])
    if account.user.is_active != person.is_active:
        change_user(session, author, _GRANTED_BY, entry.id, is_active=person.is_active)
    return _change(session, author, entry, person.user_name, person.document)


def remove_person(session: Session, author: Author, entry: DirectoryEntry) -> None:
    """Remove an account with its sessions, tokens and own keys, and remove it from the groups."""
    for group in entries_of(session, author.tenant_id, [GROUP]):
        if entry.id in members_of(group):
            kept = [one for one in _members(group) if one.get("value") != entry.id]
            _change(session, author, group, str(group.document["displayName"]), {**group.document, "members": kept})
    session.delete(entry)
    session.flush()
    try:
        delete_user(session, author, _GRANTED_BY, entry.id)
    except NotFound:  # an administrator removed it before
        begin_change(session, author, "directory.user", f"{author.tenant_id}/{entry.id}", {"removed": True})


def add_group(session: Session, author: Author, group: StatedGroup) -> DirectoryEntry:
    """Create a team for a group, unless the tenant has one of that name, and add its members. Raises InvalidRequest on
    a member that was not provisioned.
    """
    group_id = f"grp_{uuid7(unix_ns(author.at)).hex}"
    begin_change(session, author, "directory.group", f"{author.tenant_id}/{group_id}", {"name": group.name[:_MAX_NAME]})
    _refuse_unknown(session, author.tenant_id, group.members)
    entry = _add(session, author, group_id, GROUP, group.name, group.document)
    entry.team_id = team_of(session, author, group.name)
    session.flush()
    _place(session, author, group.members)
    return entry


def change_group(session: Session, author: Author, entry: DirectoryEntry, group: StatedGroup) -> DirectoryEntry:
    """Update a group to the provider's current state. A team keeps its id when its group is renamed. Raises as
    `add_group` does.
    """
    begin_change(session, author, "directory.group", f"{author.tenant_id}/{entry.id}", {"name": group.name[:_MAX_NAME]})
    before = members_of(entry)
    _refuse_unknown(session, author.tenant_id, set(group.members) - set(before))
    _change(session, author, entry, group.name, group.document)
    _place(session, author, dict.fromkeys((*before, *group.members)))
    return entry


def remove_group(session: Session, author: Author, entry: DirectoryEntry) -> None:
    """Remove a group. Its team stays with its usage, but without the group's members."""
    begin_change(session, author, "directory.group", f"{author.tenant_id}/{entry.id}", {"removed": True})
    members = members_of(entry)
    session.delete(entry)
    session.flush()
    _place(session, author, members)


def members_of(entry: DirectoryEntry) -> tuple[str, ...]:
    """Return the ids of a group's members."""
    return tuple(str(one["value"]) for one in _members(entry) if one.get("value"))


def groups_of(session: Session, tenant_id: str, user_id: str) -> list[DirectoryEntry]:
    """Return the groups that a user is a member of, in order of creation."""
    return [group for group in entries_of(session, tenant_id, [GROUP]) if user_id in members_of(group)]


def slug_of(name: str) -> str:
    """Return a team's id from a group's name: lower-case letters, digits and '-'; from a digest if none is left."""
    slug = _NOT_A_SLUG.sub("-", name.lower()).strip("-")[:_MAX_SLUG].strip("-")
    return slug or f"group-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def team_of(session: Session, author: Author, name: str) -> str:
    """Return the id of the team for a group of this name in the author's tenant; it is created if missing."""
    team_id = slug_of(name)
    if session.get(Team, (author.tenant_id, team_id)) is None:
        create_team(session, author, author.tenant_id, team_id, _printable(name)[:_MAX_NAME] or team_id)
    return team_id


def sign_in_with_groups(session: Session, author: Author, email: str, name: str, groups: Sequence[str]) -> None:
    """Create the account of a person who signs in for the first time, and put developers into the team of one of their
    groups.

    `groups` are the names in the provider's token, only those of teams. An account with another role, a disabled one,
    and one provisioned by SCIM are unchanged. Raises Conflict for an account of another tenant.
    """
    account = find_account(session, email)
    teams = [slug_of(group) for group in groups]
    if account is None:
        team = team_of(session, author, groups[0]) if groups else ""
        create_user(session, author, _GRANTED_BY, NewUser(email, name, Role.DEVELOPER, author.tenant_id, team))
        return
    is_ours = account.role is Role.DEVELOPER and account.tenant_id == author.tenant_id and account.user.is_active
    if not is_ours or session.get(DirectoryEntry, account.user.id) is not None:
        return
    if account.team_id in teams or not (account.team_id or groups):
        return
    team = team_of(session, author, groups[0]) if groups else ""
    grant_role(session, author, _GRANTED_BY, account.user.id, Role.DEVELOPER, author.tenant_id, team)


def _place(session: Session, author: Author, users: Iterable[str]) -> None:
    """Move developers into the team of one of their groups."""
    for user_id in users:
        try:
            account = get_account(session, user_id, tenant_id=author.tenant_id)
        except NotFound:
            continue
        groups = groups_of(session, author.tenant_id, user_id)
        teams = [one.team_id for one in groups if session.get(Team, (author.tenant_id, one.team_id)) is not None]
        if account.role is not Role.DEVELOPER or account.team_id in teams or not (account.team_id or teams):
            continue
        team = teams[0] if teams else ""
        grant_role(session, author, _GRANTED_BY, user_id, Role.DEVELOPER, author.tenant_id, team)


def _refuse_taken(session: Session, tenant_id: str, user_name: str, *, but: str) -> None:
    if any(one.id != but for one in named_entries(session, tenant_id, USER, user_name)):
        raise Conflict(f"a user {user_name[:80]!r} exists already", param="userName")


def _refuse_unknown(session: Session, tenant_id: str, members: Iterable[str]) -> None:
    wanted = set(members)
    known = set(
        session.scalars(
            select(DirectoryEntry.id).where(
                DirectoryEntry.tenant_id == tenant_id, DirectoryEntry.kind == USER, DirectoryEntry.id.in_(wanted)
            )
        )
    )
    if missing := sorted(wanted - known):
        raise InvalidRequest(
            f"member {missing[0][:80]!r} is not a user of this directory; provision it first", param="members"
        )


def _members(entry: DirectoryEntry) -> list[dict[str, Any]]:
    found = entry.document.get("members")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _add(
    session: Session, author: Author, entry_id: str, kind: str, name: str, document: Mapping[str, Any]
) -> DirectoryEntry:
    entry = DirectoryEntry(
        id=entry_id,
        tenant_id=author.tenant_id,
        kind=kind,
        name=name.lower()[:320],
        team_id="",
        document=dict(document),
        version=1,
        created_at=author.at,
        changed_at=author.at,
    )
    session.add(entry)
    session.flush()
    return entry


def _change(
    session: Session, author: Author, entry: DirectoryEntry, name: str, document: Mapping[str, Any]
) -> DirectoryEntry:
    entry.name, entry.document = name.lower()[:320], dict(document)
    entry.version, entry.changed_at = entry.version + 1, author.at
    session.flush()
    return entry


def _printable(name: str) -> str:
    return "".join(letter for letter in name if letter.isprintable()).strip()
