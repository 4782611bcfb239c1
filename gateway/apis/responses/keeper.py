"""Store, find and expire responses of the Responses API."""

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from backends.processes.running_time import RunningTimeout
from contracts.access.owner import Owner, owner_of
from contracts.api.chat import TranslatedChat
from contracts.api.requests import AnyRequest
from contracts.api.responses import InputItem, ItemReference
from contracts.errors import InvalidRequest, NotFound, ObjectsUnavailable, TollkeeperError
from contracts.objects.responses import (
    DEFAULT_MAX_BYTES,
    MAX_HISTORY_BYTES,
    MAX_HISTORY_RESPONSES,
    MAX_RESPONSE_BYTES,
    StoredResponse,
    all_items,
    is_own_id,
    is_response_id,
    kept_under,
    response_id,
    response_of_item,
)
from contracts.serving.configuration import KeyEntry
from gateway.apis.files.lazy_objects_database import LazyObjectsDatabase
from gateway.apis.responses.asked import AskedItem, AskedResponse, listed_items
from gateway.apis.responses.reading import item_of
from gateway.apis.responses.translation import chat_of, check_items
from gateway.request.clock import Clock

if TYPE_CHECKING:
    from backends.objects.responses import ResponseStore

_log = logging.getLogger(__name__)

_SWEEP_SECONDS: Final = 600.0
_SWEPT_AT_ONCE: Final = 100
_SWEEP_PAUSE_SECONDS: Final = 0.2
_MAX_SHOWN: Final = 100
_LARGE_BYTES: Final = 512 * 1024  # from here on JSON is worked on beside the event loop: some 10 ms a megabyte
_PATIENCE_SECONDS: Final = 10.0
_NS: Final = 1_000_000_000

_encode: Final = msgspec.json.Encoder().encode


class ResponseKeeper:
    """Stores responses. A conversation is deleted `keep_seconds` after its last response."""

    def __init__(
        self, kept: LazyObjectsDatabase, keep_seconds: float, clock: Clock, max_bytes: int = DEFAULT_MAX_BYTES
    ) -> None:
        self._kept = kept
        self._keep_ns = round(keep_seconds * _NS)
        self._clock = clock
        self._max_bytes = max_bytes  # of a tenant
        self._opened: ResponseStore | None = None
        self.patience_seconds = _PATIENCE_SECONDS  # that an answer's end waits for the database

    async def resolve(self, request: AnyRequest, key: KeyEntry) -> AnyRequest:
        """Translate a request to a chat, with the stored items that it refers to; without references nothing is looked
        up.

        Raises NotFound, InvalidRequest, or ObjectsUnavailable.
        """
        asked = getattr(request, "origin", None)
        assert isinstance(asked, AskedResponse) and isinstance(request, TranslatedChat)
        owner, native = owner_of(key), request.native
        if native is not None and native.refusal is not None:
            if asked.request.previous_response_id is not None:
                await self._check_previous(asked.request.previous_response_id, owner)
            return msgspec.structs.replace(request, origin=msgspec.structs.replace(asked, owner=owner))
        before: list[StoredResponse] = []
        if asked.request.previous_response_id is not None:
            before = await self._history(asked.request.previous_response_id, owner)
        items = asked_items = asked.items
        if any(isinstance(one.item, ItemReference) for one in items):
            items = await self._dereferenced(items, owner)
        asked = msgspec.structs.replace(asked, owner=owner, items=items)
        if (before and is_own_id(asked.request.previous_response_id or "")) or items != asked_items:
            native = None  # only the gateway knows what this refers to
        if sum(response.size_bytes for response in before) > _LARGE_BYTES:
            chat = await asyncio.to_thread(_chat_after, before, asked)
        else:
            chat = _chat_after(before, asked)
        return msgspec.structs.replace(
            chat, native=native, dropped=request.dropped, unless_dropped=request.unless_dropped
        )

    async def keep(self, request_id: UUID, asked: AskedResponse, response: dict[str, Any]) -> None:
        """Store a response under its own id.

        Raises ObjectsUnavailable, or InvalidRequest if it is too large or cannot be listed.
        """
        if sum(len(one.json) for one in asked.items) > _LARGE_BYTES:
            stored = await asyncio.to_thread(self._stored, request_id, asked, response)
        else:
            stored = self._stored(request_id, asked, response)
        if stored.size_bytes > MAX_RESPONSE_BYTES:
            raise InvalidRequest(
                f"the response and its input are {stored.size_bytes} bytes; at most {MAX_RESPONSE_BYTES} can be stored",
                code="response_too_large",
            )
        store = await self._store()
        try:
            async with RunningTimeout(self.patience_seconds):
                await store.add(stored)
        except TimeoutError:
            raise ObjectsUnavailable(
                f"the database of stored responses did not accept it within {self.patience_seconds:g} seconds"
            ) from None

    async def find(self, identifier: str, owner: Owner) -> StoredResponse:
        """Return a response. Raises NotFound if this owner has none with that id."""
        found = None
        if is_response_id(identifier):
            found = await (await self._store()).find(kept_under(identifier), owner, self._clock.wall_ns())
        if found is None:
            raise _not_found(identifier)
        return found

    async def delete(self, identifier: str, owner: Owner) -> None:
        """Delete a response. Raises NotFound if this owner has none with that id."""
        if not is_response_id(identifier) or not await (await self._store()).delete(
            kept_under(identifier), owner, self._clock.wall_ns()
        ):
            raise _not_found(identifier)

    async def run(self) -> None:
        """Delete expired responses, a few at a time, until cancelled."""
        while True:
            try:
                while self._kept.holds_anything and await self.sweep() == _SWEPT_AT_ONCE:
                    await asyncio.sleep(_SWEEP_PAUSE_SECONDS)
            except TollkeeperError as error:
                _log.warning("expired responses could not be deleted", extra={"code": error.error_code})
            await asyncio.sleep(_SWEEP_SECONDS)

    async def sweep(self) -> int:
        """Delete some expired responses and return their number. Raises ObjectsUnavailable."""
        return await (await self._store()).sweep(self._clock.wall_ns(), _SWEPT_AT_ONCE)

    def _stored(self, request_id: UUID, asked: AskedResponse, response: dict[str, Any]) -> StoredResponse:
        now_ns, previous = self._clock.wall_ns(), asked.request.previous_response_id
        try:
            items = listed_items(request_id, [one.json for one in asked.items])
        except (msgspec.DecodeError, RecursionError):  # in a field that is not ours, and was passed over
            said = "the input has a number out of range, or is nested too deeply"
            raise InvalidRequest(said, param="input") from None
        return StoredResponse(
            id=kept_under(_id_of(response, request_id)),
            owner=asked.owner,
            created_ns=now_ns,
            expires_ns=now_ns + self._keep_ns,
            previous_id=None if previous is None else kept_under(previous),
            body=_encode(response),
            items=_encode(items),
        )

    async def _check_previous(self, identifier: str, owner: Owner) -> None:
        """Raise NotFound unless this owner had the response from here: at the provider all callers are one account."""
        found = None
        if is_response_id(identifier):
            found = await (await self._store()).find(kept_under(identifier), owner, self._clock.wall_ns())
        if found is None:
            raise _no_previous(identifier)

    async def _store(self) -> "ResponseStore":
        if self._opened is None:
            self._opened = await asyncio.to_thread(self._open)  # the import alone takes a good part of a second
        return self._opened

    def _open(self) -> "ResponseStore":
        database = self._kept.database()
        from backends.objects.responses import ResponseStore  # here: edge deployments do without SQLAlchemy

        return ResponseStore(database, self._max_bytes)

    async def _history(self, identifier: str, owner: Owner) -> list[StoredResponse]:
        """Return a response and all that it continues, the oldest first."""
        if not is_response_id(identifier):
            raise _no_previous(identifier)
        found = await (await self._store()).history(
            kept_under(identifier), owner, self._clock.wall_ns(), MAX_HISTORY_BYTES
        )
        if found is None or found.missing is not None:
            raise _no_previous(identifier if found is None else found.missing or "")
        if not found.responses:
            said = f"more than {MAX_HISTORY_RESPONSES} responses" if found.is_long else f"{found.size_bytes} bytes"
            raise InvalidRequest(
                f"what {identifier} continues is {said}; at most {MAX_HISTORY_RESPONSES} responses and "
                f"{MAX_HISTORY_BYTES} bytes are allowed: start a new conversation with what still matters as input",
                param="previous_response_id",
                code="history_too_long",
            )
        return found.responses

    async def _dereferenced(self, items: list[AskedItem], owner: Owner) -> list[AskedItem]:
        """Replace references by what they name. Raises NotFound, or InvalidRequest if they name too much."""
        wanted: dict[str, set[str]] = {}  # ids of items by the response that each is of
        for one in items:
            if isinstance(one.item, ItemReference):
                wanted.setdefault(response_of_item(one.item.id) or "", set()).add(one.item.id)
        known = await self._items_named(wanted, owner)
        found = []
        for place, one in enumerate(items):
            if not isinstance(one.item, ItemReference):
                found.append(one)
                continue
            item = known.get(one.item.id)
            if item is None:
                raise NotFound(f"Item with id '{one.item.id[:_MAX_SHOWN]}' not found.", param=f"input[{place}].id")
            found.append(item)
        return found

    async def _items_named(self, wanted: dict[str, set[str]], owner: Owner) -> dict[str, AskedItem]:
        """Return those of the items that exist. The search is bounded like a history."""
        if len(wanted) > MAX_HISTORY_RESPONSES:
            raise _too_many_named(f"{len(wanted)} responses")
        known: dict[str, AskedItem] = {}
        size_bytes = 0
        for home, names in wanted.items():
            try:
                response = await self.find(home, owner)
            except NotFound:
                continue  # whoever names an item of it is told so
            size_bytes += response.size_bytes
            if size_bytes > MAX_HISTORY_BYTES:
                raise _too_many_named(f"responses of more than {MAX_HISTORY_BYTES} bytes")
            if response.size_bytes > _LARGE_BYTES:
                known |= await asyncio.to_thread(_items_in, response, names)
            else:
                known |= _items_in(response, names)
        return known


def _chat_after(before: list[StoredResponse], asked: AskedResponse) -> TranslatedChat:
    """Return the chat of a request that follows these responses."""
    history: list[InputItem] = [_readable(item) for response in before for item in all_items(response)]
    asked = msgspec.structs.replace(asked, history=history)
    check_items(asked)
    return chat_of(asked)


def _items_in(response: StoredResponse, names: set[str]) -> dict[str, AskedItem]:
    """Return the items of these ids that a response has."""
    named = [item for item in all_items(response) if item.get("id") in names]
    return {item["id"]: AskedItem(_readable(item), _encode(item)) for item in named}


def _readable(item: dict[str, Any]) -> InputItem:
    """Return a stored item. Raises InvalidRequest if it is invalid: models' calls may lack a name."""
    try:
        return item_of(item)
    except msgspec.ValidationError as error:
        raise InvalidRequest(
            f"the item {item.get('id')!r} of an earlier response cannot be sent to a model again: {error}",
            param="input",
        ) from None


def _id_of(response: dict[str, Any], request_id: UUID) -> str:
    """Return a response's own id, if a target that speaks the API assigned one; else the request's."""
    stated = response.get("id")
    return stated if isinstance(stated, str) and is_response_id(stated) else response_id(request_id)


def _not_found(identifier: str) -> NotFound:
    return NotFound(f"Response with id '{identifier[:_MAX_SHOWN]}' not found.", param="response_id")


def _too_many_named(what: str) -> InvalidRequest:
    return InvalidRequest(
        f"input names items of {what}; at most {MAX_HISTORY_RESPONSES} responses of {MAX_HISTORY_BYTES} bytes together "
        "are searched: send the items themselves",
        param="input",
    )


def _no_previous(identifier: str) -> NotFound:
    return NotFound(
        f"Previous response with id '{identifier[:_MAX_SHOWN]}' not found.",
        param="previous_response_id",
        code="previous_response_not_found",
    )
