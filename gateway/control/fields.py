"""Fields that several resources share, with their limits, and the page format of lists."""

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Annotated, Generic, Self, TypeVar
from zoneinfo import available_timezones

from fastapi import Depends, Path, Query, Request
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from backends.control.database import ControlDatabase
from backends.control.sound_rows import UNSOUND
from backends.control.unreadable_rows import left_out, row_id, shown_reason
from backends.processes.background_check import BackgroundCheck
from backends.secrets.credential_references import ReferenceRules
from contracts.control import Base
from contracts.control.organisation import SLUG_PATTERN
from contracts.errors import TollkeeperError

ItemT = TypeVar("ItemT")
RowT = TypeVar("RowT")


class Body(BaseModel):
    """Base of request bodies: an unknown field is refused, because it is probably misspelt."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="after")
    def _check_finite(self) -> Self:
        for name, value in self:
            if isinstance(value, dict | list) and not _is_finite(value):
                raise ValueError(
                    f"{name} contains NaN or Infinity, which JSON does not have; give a number or leave it out"
                )
        return self


class Resource(BaseModel):
    """Base of responses, read from a row."""

    model_config = ConfigDict(from_attributes=True)


class UnreadableOut(Resource):
    """A row of the list that cannot be read or shown; `/v1/unreadable-rows` repairs and deletes it."""

    table: str
    id: str
    reason: str


class Page(BaseModel, Generic[ItemT]):
    """Part of a list. When `has_more`, ask again with `after` set to the last item's id."""

    object: str = "list"
    data: list[ItemT]
    has_more: bool = False
    unreadable: list[UnreadableOut] = []


class Deleted(BaseModel):
    """The answer to a deletion."""

    id: str
    deleted: bool = True


class PageQuery(BaseModel):
    """Page of a list."""

    after: str = Field(default="", max_length=200, description="Return items after this id")
    limit: int = Field(default=100, ge=1, le=1000, description="Maximum number of items")


def page_of(rows: Sequence[RowT], wanted: PageQuery, shape: Callable[[RowT], ItemT]) -> Page[ItemT]:
    """Build a page from rows queried with one more than its limit. Unreadable rows are listed separately."""
    page = list_of(rows[: wanted.limit], shape)
    return page.model_copy(update={"has_more": len(rows) > wanted.limit and bool(page.data)})


def list_of(rows: Sequence[RowT], shape: Callable[[RowT], ItemT]) -> Page[ItemT]:
    """Build a complete list of rows. Rows that cannot be read or shown are listed separately."""
    data = []
    faulty = [
        UnreadableOut(table=row.table, id=row.id, reason=f"{row.column} {row.reason}".strip()) for row in left_out()
    ]
    for row in rows:
        try:
            data.append(shape(row))
        except UNSOUND as error:
            if isinstance(error, TollkeeperError) or not isinstance(row, Base):
                raise
            reason = f"cannot be shown: {shown_reason(error)}"
            faulty.append(UnreadableOut(table=row.__tablename__, id=row_id(row), reason=reason))
    return Page(data=data, unreadable=faulty)


def _known_time_zone(name: str) -> str:
    if name not in available_timezones():
        raise ValueError("no such time zone; use an IANA name such as Europe/Berlin")
    return name


def _is_finite(value: object) -> bool:
    if isinstance(value, dict | list):
        return all(_is_finite(one) for one in (value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or math.isfinite(value)


def _reference_rules(request: Request) -> ReferenceRules:
    rules: ReferenceRules = request.app.state.reference_rules
    return rules


def _open_database(request: Request) -> ControlDatabase:
    database: ControlDatabase = request.app.state.database
    return database


async def _revision_check(request: Request) -> BackgroundCheck[int]:
    check: BackgroundCheck[int] = request.app.state.revision_check
    return check


Database = Annotated[ControlDatabase, Depends(_open_database)]
RevisionCheck = Annotated[BackgroundCheck[int], Depends(_revision_check)]
References = Annotated[ReferenceRules, Depends(_reference_rules)]
Wanted = Annotated[PageQuery, Query()]

_SLUG_RULE = "1 to 63 of a-z, 0-9 and -, beginning and ending with a letter or digit; it never changes"
Slug = Annotated[str, StringConstraints(pattern=SLUG_PATTERN, max_length=63), Field(description=_SLUG_RULE)]
Name = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$"),
    Field(description="Display name"),
]
ModelId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]*$", max_length=200)]
Version = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]*$", max_length=120)]
Region = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]*$", max_length=63)]
TimeZone = Annotated[str, AfterValidator(_known_time_zone), Field(max_length=64)]
Moment = AwareDatetime
# Finer than 0.000001 USD per million tokens is less than a pico-USD per token, the grain of all our money.
UsdPerMtok = Annotated[Decimal, Field(ge=0, le=1_000_000, decimal_places=6, allow_inf_nan=False)]
UsdPerRequest = Annotated[Decimal, Field(ge=0, le=1_000, decimal_places=12, allow_inf_nan=False)]

# In a path a bad slug names nothing, so it is looked up and not found; only its length is bounded.
TenantPath = Annotated[str, Path(max_length=63, description="The tenant's id")]
TeamPath = Annotated[str, Path(max_length=63, description="The team's id")]
ProjectPath = Annotated[str, Path(max_length=63, description="The project's id")]
