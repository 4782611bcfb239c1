"""Reads the gateways' key entries from the control database: all at the start, then only those that changed.

Rows are read a page at a time with only the needed columns, and equal values share one object: 100,000 keys must fit
beside everything else in 150 MB.
"""

import json
import typing
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from sqlalchemy import ColumnElement, Text, and_, cast, null, or_, select
from sqlalchemy.orm import Session

from backends.control.key_scopes import Permits, read_scopes
from backends.control.sound_rows import SoundRows
from contracts.access.identity import Identity
from contracts.control import ApiKey, FormerSecret, Project, Team, Tenant
from contracts.recording.moments import unix_ns
from contracts.serving.configuration import KeyEntry

_PAGE_ROWS: Final = 2_000
_MOST_APART: Final = 2_000  # changed entries; with more, they are merged into a new dictionary
Where: TypeAlias = tuple[ColumnElement[bool], ...]

_OF_KEY: Final = (
    ApiKey.id,
    ApiKey.tenant_id,
    ApiKey.team_id,
    ApiKey.project_id,
    ApiKey.expires_at,
    cast(ApiKey.scopes, Text),  # as text: most keys have the same scopes, so each text is parsed once
    *(Tenant.created_at, Team.created_at, Project.created_at),
)
_OF_TEAM: Final = and_(Team.tenant_id == ApiKey.tenant_id, Team.id == ApiKey.team_id)
_OF_PROJECT: Final = and_(
    *(Project.tenant_id == ApiKey.tenant_id, Project.team_id == ApiKey.team_id, Project.id == ApiKey.project_id)
)
_LIVE: Final = (ApiKey.revoked_at.is_(None), Tenant.is_active)


class KeyBook(Mapping[bytes, KeyEntry]):
    """Immutable entries by digest; a change creates another book.

    A book shares the dictionary of its predecessor and stores only later changes. Copying 100,000 keys at each change
    would take 5 MB, which the allocator does not return to the system.
    """

    __slots__ = ("_all", "_apart", "_count")

    def __init__(self, entries: dict[bytes, KeyEntry]) -> None:
        """Adopt `entries` without a copy; the caller must not change them any more."""
        self._all = entries
        self._apart: dict[bytes, KeyEntry | None] = {}  # `None`: removed
        self._count = len(entries)

    def changed(self, changes: dict[bytes, KeyEntry | None]) -> "KeyBook":
        """Return a book with the entries of these digests replaced, or removed if they are `None`."""
        apart = self._apart | changes
        if len(apart) > _MOST_APART:
            entries = self._all.copy()  # four times faster than dict() after a removal
            for digest, entry in apart.items():
                if entry is None:
                    entries.pop(digest, None)
                else:
                    entries[digest] = entry
            return KeyBook(entries)
        book = KeyBook(self._all)
        book._apart = apart
        book._count += sum((entry is not None) - (digest in self._all) for digest, entry in apart.items())
        return book

    def __getitem__(self, digest: bytes) -> KeyEntry:
        entry = self._apart[digest] if digest in self._apart else self._all[digest]
        if entry is None:
            raise KeyError(digest)
        return entry

    def get(self, digest: bytes, default: Any = None) -> Any:
        """Return the entry of a digest; called for every request."""
        if digest in self._apart:
            return self._apart[digest] or default
        return self._all.get(digest, default)

    def __iter__(self) -> Iterator[bytes]:
        yield from (digest for digest in self._all if digest not in self._apart)
        yield from (digest for digest, entry in self._apart.items() if entry is not None)

    def __len__(self) -> int:
        return self._count


@dataclass(frozen=True, slots=True)
class LoadedKeys:
    """Entries by digest, and the faults of unreadable keys, by the key's id. Immutable."""

    entries: KeyBook
    faults: dict[str, str]


class KeyReader:
    """Reads keys into entries within one session, and reuses known entries that are equal."""

    def __init__(self, session: Session, known: LoadedKeys) -> None:
        self._session = session
        self._known = known
        self._permits: dict[str, Permits] = {}
        self._words: dict[str, str] = {}
        self._moments: dict[int, int] = {}
        self._no_tags: dict[str, str] = {}

    def read_all(self) -> LoadedKeys:
        """Read every key, expired ones too, except revoked ones and those of inactive tenants."""
        entries: dict[bytes, KeyEntry | None] = {}
        faults: dict[str, str] = {}
        for page in self._pages(()):
            self._add(page, entries, faults)
        return LoadedKeys(KeyBook(typing.cast(dict[bytes, KeyEntry], entries)), faults)

    def read_changes(self, since: int, tenants: Collection[str]) -> LoadedKeys:
        """Return the known keys, updated by those that changed after revision `since` and all keys of `tenants`.

        A changed key's earlier entries are dropped first, so a revoked or unreadable key is removed.
        """
        changed = ApiKey.changed_revision > since
        wanted = (or_(changed, ApiKey.tenant_id.in_(tenants)) if tenants else changed,)
        changes: dict[bytes, KeyEntry | None] = {}
        faults = self._known.faults.copy()
        for page in self._pages(wanted):
            self._drop(page, changes, faults)
            self._add(page, changes, faults)
        return LoadedKeys(self._known.entries.changed(changes), faults)

    def _pages(self, wanted: Where) -> Iterator[Where]:
        """Yield conditions that each select the next keys by id, whatever their rows contain."""
        after = ""
        while True:
            ids = select(ApiKey.id).where(*wanted, ApiKey.id > after).order_by(ApiKey.id)
            last = self._session.scalar(ids.offset(_PAGE_ROWS - 1).limit(1))
            yield (*wanted, ApiKey.id > after) if last is None else (*wanted, ApiKey.id > after, ApiKey.id <= last)
            if last is None:
                return
            after = last

    def _drop(self, page: Where, changes: dict[bytes, KeyEntry | None], faults: dict[str, str]) -> None:
        of_key = select(ApiKey.id, ApiKey.digest).where(*page)
        former = select(ApiKey.id, FormerSecret.digest).select_from(FormerSecret).join(ApiKey).where(*page)
        for wanted in (of_key, former):
            for key_id, digest in self._session.execute(wanted):
                faults.pop(key_id, None)
                if (known := _digest(digest)) is not None:
                    changes[known] = None

    def _add(self, page: Where, entries: dict[bytes, KeyEntry | None], faults: dict[str, str]) -> None:
        current = select(ApiKey.digest, null(), *_OF_KEY).select_from(ApiKey).join(Tenant)
        ends_at = FormerSecret.expires_at
        former = select(FormerSecret.digest, ends_at, *_OF_KEY).select_from(FormerSecret).join(ApiKey).join(Tenant)
        for wanted in (former, current):  # the current secret last, so that it takes precedence
            wanted = wanted.outerjoin(Team, _OF_TEAM).outerjoin(Project, _OF_PROJECT)
            rows = SoundRows(self._session)
            for entry in rows.build("key", wanted.where(*page, *_LIVE), (ApiKey.id,), self._entry):
                entries[entry.digest] = entry
            faults.update(rows.faults_by_name)

    def _entry(self, row: tuple[Any, ...]) -> KeyEntry:
        digest_hex, ends_at, key_id, tenant, team, project, expires_at, scopes, *created = row
        since_ns = max(unix_ns(moment) for moment in created if moment is not None)
        ends = [unix_ns(moment) for moment in (ends_at, expires_at) if moment is not None]
        permits = self._permits.get(scopes)
        if permits is None:
            permits = self._permits[scopes] = read_scopes(json.loads(scopes))
        word = self._words.setdefault
        entry = KeyEntry(
            digest=bytes.fromhex(digest_hex),
            identity=Identity(
                word(tenant, tenant), word(team, team), word(project, project), key_id, "", self._no_tags
            ),
            expires_at_ns=min(ends) if ends else None,
            models=permits.models,
            endpoints=permits.endpoints,
            policy=permits.policy,
            since_ns=self._moments.setdefault(since_ns, since_ns),
        )
        known = self._known.entries.get(entry.digest)
        return known if known == entry else entry  # reuses the known object, which saves memory


def _digest(digest_hex: str) -> bytes | None:
    try:
        return bytes.fromhex(digest_hex)
    except ValueError:
        return None
