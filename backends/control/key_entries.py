"""Keys as gateways hold them, read from the control database: all at the start, then only those that changed.

Rows are read a page at a time and only the columns that count, and what is equal is one object in memory: 100,000 keys
are to fit beside everything else in 150 MB.
"""

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from sqlalchemy import ColumnElement, Text, cast, null, or_, select
from sqlalchemy.orm import Session

from backends.control.key_scopes import Permits, read_scopes
from backends.control.sound_rows import SoundRows
from contracts.configuration import KeyEntry
from contracts.control import ApiKey, FormerSecret, Tenant
from contracts.identity import Identity
from contracts.moments import unix_ns

_PAGE_ROWS: Final = 2_000
Where: TypeAlias = tuple[ColumnElement[bool], ...]

_OF_KEY: Final = (
    ApiKey.id,
    ApiKey.tenant_id,
    ApiKey.team_id,
    ApiKey.project_id,
    ApiKey.expires_at,
    cast(ApiKey.scopes, Text),  # as text, since most keys have the same: each text is read once
)
_LIVE: Final = (ApiKey.revoked_at.is_(None), Tenant.is_active)


@dataclass(frozen=True, slots=True)
class LoadedKeys:
    """Entries by digest, and what of the keys could not be read, by the key's id. Not changed once they are given."""

    entries: dict[bytes, KeyEntry]
    faults: dict[str, str]


class KeyReader:
    """Reads keys of one session into entries, taking over those that are already known and still equal."""

    def __init__(self, session: Session, known: LoadedKeys) -> None:
        self._session = session
        self._known = known
        self._permits: dict[str, Permits] = {}
        self._words: dict[str, str] = {}
        self._no_tags: dict[str, str] = {}

    def read_all(self) -> LoadedKeys:
        """Read every key that is neither revoked nor of an inactive tenant; expired ones too."""
        entries: dict[bytes, KeyEntry] = {}
        faults: dict[str, str] = {}
        for page in self._pages(()):
            self._add(page, entries, faults)
        return LoadedKeys(entries, faults)

    def read_changes(self, since: int, tenants: Collection[str]) -> LoadedKeys:
        """Read the keys that changed after revision `since`, and all keys of these tenants, into a copy of the known.

        What a key was known by is dropped first: one that is revoked, or that cannot be read any more, is gone.
        """
        changed = ApiKey.changed_revision > since
        wanted = (or_(changed, ApiKey.tenant_id.in_(tenants)) if tenants else changed,)
        entries = self._known.entries.copy()  # not dict(): that is four times slower once a key has been dropped
        faults = self._known.faults.copy()
        for page in self._pages(wanted):
            self._drop(page, entries, faults)
            self._add(page, entries, faults)
        return LoadedKeys(entries, faults)

    def _pages(self, wanted: Where) -> Iterator[Where]:
        """Give conditions that each take the next keys in the order of their ids, whatever is in their rows."""
        after = ""
        while True:
            ids = select(ApiKey.id).where(*wanted, ApiKey.id > after).order_by(ApiKey.id)
            last = self._session.scalar(ids.offset(_PAGE_ROWS - 1).limit(1))
            yield (*wanted, ApiKey.id > after) if last is None else (*wanted, ApiKey.id > after, ApiKey.id <= last)
            if last is None:
                return
            after = last

    def _drop(self, page: Where, entries: dict[bytes, KeyEntry], faults: dict[str, str]) -> None:
        of_key = select(ApiKey.id, ApiKey.digest).where(*page)
        former = select(ApiKey.id, FormerSecret.digest).select_from(FormerSecret).join(ApiKey).where(*page)
        for wanted in (of_key, former):
            for key_id, digest in self._session.execute(wanted):
                faults.pop(key_id, None)
                if (known := _digest(digest)) is not None:
                    entries.pop(known, None)

    def _add(self, page: Where, entries: dict[bytes, KeyEntry], faults: dict[str, str]) -> None:
        current = select(ApiKey.digest, null(), *_OF_KEY).select_from(ApiKey).join(Tenant)
        ends_at = FormerSecret.expires_at
        former = select(FormerSecret.digest, ends_at, *_OF_KEY).select_from(FormerSecret).join(ApiKey).join(Tenant)
        for wanted in (former, current):  # the current secret last: it is what a digest in both means
            rows = SoundRows(self._session)
            for entry in rows.build("key", wanted.where(*page, *_LIVE), (ApiKey.id,), self._entry):
                entries[entry.digest] = entry
            faults.update(rows.faults_by_name)

    def _entry(self, row: tuple[Any, ...]) -> KeyEntry:
        digest_hex, ends_at, key_id, tenant, team, project, expires_at, scopes = row
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
        )
        known = self._known.entries.get(entry.digest)
        return known if known == entry else entry  # the same objects again: nothing to free, nothing twice in memory


def _digest(digest_hex: str) -> bytes | None:
    try:
        return bytes.fromhex(digest_hex)
    except ValueError:
        return None
