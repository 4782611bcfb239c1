"""Stored responses: read, list the input, delete."""

import re
from typing import Any, Final
from urllib.parse import parse_qs

import msgspec

from contracts.access.endpoints import Endpoint
from contracts.access.owner import owner_of
from contracts.errors import InvalidRequest, NotFound
from contracts.serving.configuration import KeyEntry, Snapshot
from gateway.apis.rendering import OPENAI_ERRORS, ErrorShape
from gateway.apis.responses.keeper import ResponseKeeper
from gateway.limits.limiter import Limiter
from gateway.replies.reply import JSON
from gateway.wire.exchange import Exchange

_ONE: Final = re.compile(r"/v1/responses/([^/]+)")
_INPUT: Final = re.compile(r"/v1/responses/([^/]+)/input_items")
_CANCEL: Final = re.compile(r"/v1/responses/([^/]+)/cancel")

_DEFAULT_LIMIT: Final = 20
_MAX_LIMIT: Final = 100
_MAX_PARAMETERS: Final = 100
_MAX_SHOWN: Final = 60
_TRUE: Final = ("true", "1")

_encode: Final = msgspec.json.Encoder().encode
_items: Final = msgspec.json.Decoder(list[dict[str, Any]])


class ResponseResource:
    """Answers the paths below /v1/responses."""

    endpoint: Endpoint = "responses"
    errors: ErrorShape = OPENAI_ERRORS

    def __init__(self, keeper: ResponseKeeper, limiter: Limiter) -> None:
        self._keeper = keeper
        self._limiter = limiter

    def methods(self, path: str) -> tuple[str, ...]:
        """Return the methods that a path answers."""
        if not path.startswith("/v1/responses/"):
            return ()
        if _ONE.fullmatch(path):
            return ("GET", "DELETE")
        if _INPUT.fullmatch(path):
            return ("GET",)
        return ("POST",) if _CANCEL.fullmatch(path) else ()

    async def answer(self, exchange: Exchange, key: KeyEntry, snapshot: Snapshot) -> None:
        """Answer a request. Raises NotFound if the key's owner has no such response, InvalidRequest,
        ObjectsUnavailable, and LimitExceeded, because it counts as a request.
        """
        async with self._limiter.counting(key.identity, "", snapshot):
            await self._answer(exchange, key)

    async def _answer(self, exchange: Exchange, key: KeyEntry) -> None:
        owner = owner_of(key)
        query = _Query(exchange.query)
        one, listing = _ONE.fullmatch(exchange.path), _INPUT.fullmatch(exchange.path)
        if one is not None and exchange.method == "DELETE":
            await self._keeper.delete(one.group(1), owner)
            deleted = {"id": one.group(1), "object": "response", "deleted": True}
            exchange.send(200, JSON, _encode(deleted))
        elif one is not None:
            if query.one("stream").lower() in _TRUE:
                raise InvalidRequest(
                    "stream is true: a stored response is returned whole",
                    param="stream",
                )
            exchange.send(200, JSON, (await self._keeper.find(one.group(1), owner)).body)
        elif listing is not None:
            found = await self._keeper.find(listing.group(1), owner)
            exchange.send(200, JSON, _encode(_page(_items.decode(found.items), query)))
        else:
            cancelled = _CANCEL.fullmatch(exchange.path)
            await self._keeper.find("" if cancelled is None else cancelled.group(1), owner)
            raise InvalidRequest(
                "Cannot cancel a synchronous response. Responses run while the client waits: close the connection to "
                "end one",
                param="response_id",
            )


class _Query:
    """The query string's parameters, validated when they are read."""

    def __init__(self, query: str) -> None:
        try:
            self._given = parse_qs(query, keep_blank_values=True, max_num_fields=_MAX_PARAMETERS)
        except ValueError:
            raise InvalidRequest(f"the query has more than {_MAX_PARAMETERS} parameters") from None

    def one(self, name: str) -> str:
        """Return a parameter's value, empty if it is absent."""
        return self._given.get(name, [""])[-1]

    def limit(self) -> int:
        """Return how many items a page may have. Raises InvalidRequest."""
        text = self.one("limit")
        if not text:
            return _DEFAULT_LIMIT
        if not (text.isascii() and text.isdecimal() and len(text) < 6 and 1 <= int(text) <= _MAX_LIMIT):
            raise InvalidRequest(
                f"limit is {text[:_MAX_SHOWN]!r}; it is a number from 1 to {_MAX_LIMIT}", param="limit"
            )
        return int(text)

    def is_ascending(self) -> bool:
        """Return whether the oldest comes first; OpenAI's default is the newest. Raises InvalidRequest."""
        order = self.one("order")
        if order not in ("", "asc", "desc"):
            raise InvalidRequest(f"order is {order[:_MAX_SHOWN]!r}; it is asc or desc", param="order")
        return order == "asc"


def _page(items: list[dict[str, Any]], query: _Query) -> dict[str, Any]:
    """Return one page of a response's input items."""
    limit, after = query.limit(), query.one("after")
    ordered = items if query.is_ascending() else items[::-1]
    start = 0
    if after:
        places = [place for place, item in enumerate(ordered) if item["id"] == after]
        if not places:
            raise NotFound(f"Item with id '{after[:_MAX_SHOWN]}' not found.", param="after")
        start = places[0] + 1
    page = ordered[start : start + limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else "",
        "last_id": page[-1]["id"] if page else "",
        "has_more": start + limit < len(ordered),
    }
