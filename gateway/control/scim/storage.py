"""Storage of the SCIM library: a tenant's users and groups in the control database."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, Union

from scim2_models import (
    InvalidValueException,
    Meta,
    NotFoundException,
    PreconditionFailedException,
    Resource,
    ResourceType,
    ResponseParameters,
    ScimFilter,
    ScimProvider,
    SearchRequest,
    UniquenessException,
)
from scim2_server.storage import ScimStorage, SearchPage
from scim2_server.utils import parametrize
from sqlalchemy.orm import Session

from backends.control import directory
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.directory import USER, Person, StatedGroup
from contracts.control import DirectoryEntry
from contracts.errors import Conflict, InvalidRequest, NotFound

# What is written by us, kept by nobody, or the provider's own word on what only we know.
_NOT_KEPT: Final = {"id": True, "meta": True, "password": True, "groups": True}
# How identity providers look for one: by far the most frequent question, answered by an index.
_BY_NAME: Final = re.compile(r'\s*(?:userName|displayName)\s+eq\s+"([^"\\]*)"\s*', re.IGNORECASE)


class DirectoryStorage(ScimStorage):
    """The users and groups of one tenant, as the author of one request sees and changes them."""

    def __init__(self, database: ControlDatabase, author: Author, provider: ScimProvider) -> None:
        self._database = database
        self._author = author
        self._provider = provider
        self._session: Session | None = None

    @contextmanager
    def operation(self) -> Iterator[None]:
        """Run one SCIM operation in one transaction. Raise its refusals as SCIM errors."""
        with _refusals_as_scim(), self._database.session() as session:
            self._session = session
            try:
                yield
            finally:
                self._session = None

    def get(
        self,
        resource_type: ResourceType,
        resource_id: str,
        *,
        response_parameters: ResponseParameters[Any] | None = None,
    ) -> Resource[Any]:
        """Return a user or group. Raise NotFoundException."""
        with self._within() as session:
            return self._resource(session, resource_type, self._entry(session, resource_type, resource_id))

    def search(
        self, resource_types: list[ResourceType], search_request: SearchRequest[Any], *, position: Any = None
    ) -> SearchPage:
        """Return a page of the matches, in the requested order or else by creation."""
        with self._within() as session:
            found = [
                self._resource(session, self._type(one), one)
                for one in self._candidates(session, resource_types, search_request)
            ]
        scim_filter = search_request.filter
        if scim_filter is not None and not scim_filter.models and found:
            models = tuple(dict.fromkeys(type(one) for one in found))
            scim_filter = parametrize(ScimFilter, Union[models])(str(scim_filter))  # noqa: UP007
        matching = [one for one in found if scim_filter is None or scim_filter.match(one)]
        if search_request.sort_by is not None:
            matching = _sorted(matching, search_request)
        start = search_request.start_index_0 or 0
        stop = None if search_request.count is None else start + search_request.count
        return SearchPage(len(matching), matching[start:stop])

    def create(self, resource_type: ResourceType, resource: Resource[Any]) -> Resource[Any]:
        """Create an account or a team. Raise UniquenessException, InvalidValueException."""
        with self._within() as session:
            if resource_type.name == USER:
                stated = _person(resource)
                person = replace(stated, document={"active": True, **stated.document})
                entry = directory.add_person(session, self._author, person)
            else:
                entry = directory.add_group(session, self._author, _group(resource))
            return self._resource(session, resource_type, entry)

    def update(
        self, resource_type: ResourceType, resource: Resource[Any], *, expected_version: str | None = None
    ) -> Resource[Any]:
        """Replace an account's or team's fields by the stated ones. Raises as `create` and `delete` do."""
        with self._within() as session:
            entry = self._expected(session, resource_type, str(resource.id), expected_version)
            if resource_type.name == USER:
                entry = directory.change_person(session, self._author, entry, _person(resource))
            else:
                entry = directory.change_group(session, self._author, entry, _group(resource))
            return self._resource(session, resource_type, entry)

    def delete(self, resource_type: ResourceType, resource_id: str, *, expected_version: str | None = None) -> None:
        """Remove an account, or the membership in a team. Raise NotFoundException, PreconditionFailedException."""
        with self._within() as session:
            entry = self._expected(session, resource_type, resource_id, expected_version)
            if resource_type.name == USER:
                directory.remove_person(session, self._author, entry)
            else:
                directory.remove_group(session, self._author, entry)

    @contextmanager
    def _within(self) -> Iterator[Session]:
        if self._session is None:
            with self.operation():
                yield self._opened()
        else:
            with _refusals_as_scim():
                yield self._session

    def _opened(self) -> Session:
        assert self._session is not None, "an operation is in progress"
        return self._session

    def _entry(self, session: Session, resource_type: ResourceType, entry_id: str) -> DirectoryEntry:
        return directory.get_entry(session, self._author.tenant_id, str(resource_type.name), entry_id)

    def _expected(
        self, session: Session, resource_type: ResourceType, entry_id: str, version: str | None
    ) -> DirectoryEntry:
        entry = self._entry(session, resource_type, entry_id)
        if version is not None and version != _version(entry):
            raise PreconditionFailedException
        return entry

    def _candidates(
        self, session: Session, resource_types: list[ResourceType], wanted: SearchRequest[Any]
    ) -> list[DirectoryEntry]:
        kinds = [str(one.name) for one in resource_types]
        named = _BY_NAME.fullmatch(str(wanted.filter)) if wanted.filter is not None and len(kinds) == 1 else None
        is_by_name = named is not None and str(wanted.filter).strip().lower().startswith(
            "username" if kinds[0] == USER else "displayname"
        )
        # A user's displayName is not what an entry is found by.
        if named is not None and is_by_name:
            return directory.named_entries(session, self._author.tenant_id, kinds[0], named[1])
        return directory.entries_of(session, self._author.tenant_id, kinds)

    def _type(self, entry: DirectoryEntry) -> ResourceType:
        return next(one for one in self._provider.resource_types if one.name == entry.kind)

    def _resource(self, session: Session, resource_type: ResourceType, entry: DirectoryEntry) -> Resource[Any]:
        document: dict[str, Any] = dict(entry.document)
        if entry.kind == USER:
            groups = directory.groups_of(session, entry.tenant_id, entry.id)
            if groups:
                document["groups"] = [
                    {"value": one.id, "$ref": f"Groups/{one.id}", "display": one.document.get("displayName")}
                    for one in groups
                ]
        model: Any = self._provider.model_for(resource_type)
        found: Resource[Any] = model.model_validate(document)
        found.id = entry.id
        found.meta = Meta(
            resource_type=resource_type.name,
            created=entry.created_at,
            last_modified=entry.changed_at,
            version=_version(entry),
        )
        return found


def _version(entry: DirectoryEntry) -> str:
    return f'W/"{entry.version}"'


def _person(resource: Any) -> Person:
    emails = sorted((one for one in resource.emails or [] if one.value), key=lambda one: not one.primary)
    name = resource.name
    parts = (name.given_name, name.family_name) if name is not None else ()
    shown = resource.display_name or (name.formatted if name is not None else None) or " ".join(filter(None, parts))
    return Person(
        user_name=str(resource.user_name),
        name=_printable(shown or str(resource.user_name)),
        addresses=tuple(str(one.value) for one in emails),
        is_active=resource.active is not False,
        document=_document(resource),
    )


def _group(resource: Any) -> StatedGroup:
    members = tuple(dict.fromkeys(str(one.value) for one in resource.members or [] if one.value))
    return StatedGroup(str(resource.display_name), members, _document(resource))


def _document(resource: Resource[Any]) -> dict[str, Any]:
    written: dict[str, Any] = resource.model_dump(mode="json")
    return {name: value for name, value in written.items() if name not in _NOT_KEPT}


def _printable(text: str) -> str:
    return "".join(letter for letter in text if letter.isprintable()).strip()


@contextmanager
def _refusals_as_scim() -> Iterator[None]:
    try:
        yield
    except NotFound as error:
        raise NotFoundException(detail=error.message) from error
    except Conflict as error:
        raise UniquenessException(detail=error.message) from error
    except InvalidRequest as error:
        raise InvalidValueException(detail=error.message) from error


def _sorted(found: list[Any], search_request: SearchRequest[Any]) -> list[Any]:
    """Sort resources as asked. Those without the value come last, or first in descending order (RFC 7644, 3.4.2.3)."""
    keys = [(search_request.sort_value(one), one) for one in found]
    known = [pair for pair in keys if pair[0] is not None]
    unknown = [pair[1] for pair in keys if pair[0] is None]
    is_reversed = search_request.sort_order == SearchRequest.SortOrder.descending
    known.sort(key=lambda pair: pair[0], reverse=is_reversed)
    ordered = [pair[1] for pair in known]
    return [*unknown, *ordered] if is_reversed else [*ordered, *unknown]
