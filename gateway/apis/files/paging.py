"""Pagination of lists as OpenAI's SDKs expect it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl

from contracts.errors import InvalidRequest

_MAX_ID: Final = 100


@dataclass(frozen=True, slots=True)
class PageWish:
    """The page of a list that a query asks for: at most `limit` entries after the one named `after`."""

    limit: int
    after: str = ""
    ascending: bool = False
    filters: dict[str, str] | None = None

    def filter(self, name: str) -> str:
        """Return a filter's value, empty if it is not set."""
        return (self.filters or {}).get(name, "")


def read_page(query: str, *, most: int, default: int, filters: Sequence[str] = (), has_order: bool = True) -> PageWish:
    """Parse a list's query. `most` and `default` bound and default its `limit`. Raises InvalidRequest naming the
    parameter.
    """
    try:
        given = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=20, errors="strict"))
    except (ValueError, UnicodeDecodeError):
        raise InvalidRequest("the query cannot be read: too many parameters, or bytes that are not UTF-8") from None
    known = ("limit", "after", *(("order",) if has_order else ()), *filters)
    for name in given:
        if name not in known:
            raise InvalidRequest(f"the parameter {name[:40]!r} is not known; known are {', '.join(known)}", param=name)
    limit = given.get("limit", str(default))
    if not (limit.isascii() and limit.isdecimal() and len(limit) < 10 and 1 <= int(limit) <= most):
        raise InvalidRequest(f"limit is {limit[:40]!r}; it must be within 1 to {most}", param="limit")
    order = given.get("order", "desc")
    if order not in ("asc", "desc"):
        raise InvalidRequest(f"order is {order[:40]!r}; it is 'asc' or 'desc'", param="order")
    after = given.get("after", "")
    if len(after) > _MAX_ID or not after.isprintable():
        raise InvalidRequest("after is not an id; give the last one of the page before", param="after")
    return PageWish(int(limit), after, order == "asc", {name: given[name] for name in filters if name in given})


def page_of(found: Sequence[dict[str, object]], limit: int) -> dict[str, object]:
    """Return a page of at most `limit` entries. `found` has `limit` + 1 entries if more entries follow."""
    shown = list(found[:limit])
    return {
        "object": "list",
        "data": shown,
        "first_id": shown[0]["id"] if shown else None,
        "last_id": shown[-1]["id"] if shown else None,
        "has_more": len(found) > limit,
    }
