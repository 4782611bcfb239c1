"""The interface of a kind of object in configuration plans: entry, identity, read, create and delete."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Generic, TypeVar

from pydantic import BaseModel
from sqlalchemy.orm import Session

from backends.control.database import ControlDatabase
from backends.control.sealer import Sealer
from backends.secrets.credential_references import ReferenceRules
from contracts.errors import Conflict
from gateway.control.access import Caller

EntryT = TypeVar("EntryT", bound=BaseModel)
RowT = TypeVar("RowT")


class JoinedDatabase(ControlDatabase):
    """A database whose sessions all join one transaction in progress. Only that transaction commits."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Return the session of the transaction."""
        yield self._session
        self._session.flush()


@dataclass(slots=True)
class Context:
    """The transaction that a plan is read and applied in."""

    session: Session
    author: Caller
    references: ReferenceRules
    sealer: Sealer
    pepper: bytes
    issued: list[dict[str, str]] = field(default_factory=list)  # secrets of new keys, for the answer alone

    @property
    def database(self) -> JoinedDatabase:
        """Return the transaction as a database, for the functions that the HTTP endpoints call."""
        return JoinedDatabase(self.session)


@dataclass(frozen=True, slots=True)
class ExistingObject(Generic[EntryT]):
    """An existing object. One that has ended is kept for reports: it is neither pruned nor exported."""

    entry: EntryT
    is_prunable: bool = True
    is_exported: bool = True


@dataclass(frozen=True, slots=True)
class Change(Generic[EntryT]):
    """An existing object and its wanted state. `given` is the entry as written, before defaults were added."""

    before: EntryT
    after: EntryT
    given: EntryT
    fields: frozenset[str]  # that differ


class Kind(ABC, Generic[EntryT]):
    """A kind of object. `section` is its list in the YAML file, `noun` its name in messages."""

    section: str
    noun: str
    entry: type[EntryT]
    secrets: tuple[str, ...] = ()  # fields that are given by reference, never shown, and kept if left out
    fixed: tuple[str, ...] = ()  # fields that cannot be changed
    not_exported: tuple[str, ...] = ()

    @abstractmethod
    def identity(self, entry: EntryT) -> str:
        """Return what identifies an entry's object."""

    def names(self, entry: EntryT) -> tuple[str, ...]:
        """Return all identities by which an entry's object can be found, the most specific first."""
        return (self.identity(entry),)

    @abstractmethod
    def current(self, context: Context) -> Iterable[ExistingObject[EntryT]]:
        """Yield the existing objects."""

    @abstractmethod
    def create(self, context: Context, entry: EntryT) -> None:
        """Create an object."""

    @abstractmethod
    def change(self, context: Context, change: Change[EntryT]) -> None:
        """Change an object in the fields that differ."""

    @abstractmethod
    def delete(self, context: Context, entry: EntryT) -> None:
        """Remove an object."""

    def completed(self, context: Context, entry: EntryT, before: EntryT) -> EntryT:
        """Return an entry in which omitted fields have the values of the existing object."""
        kept = {name: getattr(before, name) for name in self.secrets if not getattr(entry, name)}
        return entry.model_copy(update=kept)

    def ordered(self, entries: Sequence[EntryT]) -> Sequence[EntryT]:
        """Return entries in an order in which they can be created."""
        return entries

    def ordered_found(self, found: Sequence[ExistingObject[EntryT]]) -> Sequence[ExistingObject[EntryT]]:
        """Return existing objects in an order in which their entries could be created."""
        by_entry = {id(one.entry): one for one in found}
        return [by_entry[id(entry)] for entry in self.ordered([one.entry for one in found])]

    def shown(self, entry: EntryT) -> dict[str, Any]:
        """Return an entry as plain data for an export, without defaults and secrets."""
        hidden = {*self.secrets, *self.not_exported}
        return {name: value for name, value in plain(entry).items() if name not in hidden}

    def refuse_fixed(self, changed: Iterable[str]) -> None:
        """Raise Conflict if a field that cannot be changed differs."""
        for name in self.fixed:
            if name in changed:
                raise Conflict(
                    f"{name} of a {self.noun} cannot be changed; remove this one and give the new one another name",
                    param=name,
                )


def plain(entry: BaseModel) -> dict[str, Any]:
    """Return an entry as JSON data without its defaults, equal for equivalent entries."""
    return {name: _plain(value) for name, value in entry.model_dump(exclude_defaults=True).items()}


def _plain(value: object) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Decimal):
        return format(value.normalize() if value else Decimal(0), "f")
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return value
