"""Pages of lists."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel, Field


class Page(BaseModel):
    """Part of a list. When `has_more`, ask again with `after` set to the last item's `id`."""

    object: str = "list"
    data: list[dict[str, Any]]
    has_more: bool = False


class PageQuery(BaseModel):
    """Page of a list."""

    after: str = Field(default="", max_length=200, description="Return items after this id")
    limit: int = Field(default=100, ge=1, le=1000, description="Maximum number of items")


Wanted = Annotated[PageQuery, Query()]


def page_of(rows: Sequence[Mapping[str, Any]], limit: int) -> Page:
    """Return a page of rows, which were read with one more than the limit to detect further ones."""
    return Page(data=[dict(row) for row in rows[:limit]], has_more=len(rows) > limit)
