"""A stored answer of the Responses API: its owner, input and output."""

import re
from hashlib import sha256
from typing import Any, Final
from uuid import UUID

import msgspec

from contracts.access.owner import Owner

RESPONSE_PREFIX: Final = "resp_"
_RESPONSE: Final = re.compile(r"resp_([0-9a-f]{32})")
_ANY_RESPONSE: Final = re.compile(r"resp_[A-Za-z0-9_-]{1,200}")
_ITEM: Final = re.compile(r"[a-z]+_([0-9a-f]{32})[io][0-9a-f]{4}")

MAX_RESPONSE_BYTES: Final = 32 * 1024 * 1024  # input and answer of one response together
DEFAULT_MAX_BYTES: Final = 10 << 30  # per tenant
MAX_HISTORY_BYTES: Final = 32 * 1024 * 1024  # of all the responses that one continues
MAX_HISTORY_RESPONSES: Final = 1000


class StoredResponse(msgspec.Struct, frozen=True, kw_only=True):
    """One stored response. `body` is the response object as the client got it, `items` its input as a JSON array."""

    id: str
    owner: Owner
    created_ns: int
    expires_ns: int
    previous_id: str | None
    body: bytes
    items: bytes

    @property
    def size_bytes(self) -> int:
        """Return the bytes that count towards the limit of one response."""
        return len(self.body) + len(self.items)


class _Output(msgspec.Struct, frozen=True):
    output: list[dict[str, Any]] = []


_items_decoder: Final = msgspec.json.Decoder(list[dict[str, Any]])
_output_decoder: Final = msgspec.json.Decoder(_Output)


def response_id(request_id: UUID) -> str:
    """Return the id of a request's response."""
    return f"{RESPONSE_PREFIX}{request_id.hex}"


def item_id(kind: str, request_id: UUID, place: int, *, is_output: bool) -> str:
    """Return the id of the item at `place` of a response's input or output: it contains the response's id."""
    return f"{kind}_{request_id.hex}{'o' if is_output else 'i'}{place:04x}"


def is_response_id(text: str) -> bool:
    """Return whether this could be the id of a response: the gateway's, or a provider's."""
    return _ANY_RESPONSE.fullmatch(text) is not None


def is_own_id(text: str) -> bool:
    """Return whether this could be the id of a response that the gateway created."""
    return _RESPONSE.fullmatch(text) is not None


def kept_under(identifier: str) -> str:
    """Return the key under which a response is stored: its id, or a digest of a provider's id, because these are
    longer.
    """
    if is_own_id(identifier):
        return identifier
    return RESPONSE_PREFIX + sha256(identifier.encode()).hexdigest()[:32]


def response_of_item(item: str) -> str | None:
    """Return the id of the response in an item's id; `None` if it is not one of our ids."""
    found = _ITEM.fullmatch(item)
    return None if found is None else RESPONSE_PREFIX + found.group(1)


def all_items(response: StoredResponse) -> list[dict[str, Any]]:
    """Return a response's items in the order in which a model reads them: its input, then its answer."""
    return _items_decoder.decode(response.items) + _output_decoder.decode(response.body).output
