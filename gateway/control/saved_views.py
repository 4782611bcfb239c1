"""Saved views over HTTP: named URLs of the dashboard, one's own and those that colleagues share."""

from datetime import datetime
from typing import Annotated, Self

from fastapi import APIRouter, Path, Query
from pydantic import Field, StringConstraints

from backends.control import saved_views
from backends.control.saved_views import NewView, ShownView
from gateway.control.access import Admin
from gateway.control.fields import Body, Database, Deleted, Page, PageQuery, Resource, page_of

router = APIRouter(prefix="/v1/saved-views", tags=["saved views"])

ViewPath = Annotated[str, Path(max_length=40, description="The view's id, `view_...`")]
ViewName = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=80, pattern=r"^[^\x00-\x1f\x7f]*$")
]
ParameterName = Annotated[str, StringConstraints(max_length=20)]
ParameterValue = Annotated[str, StringConstraints(max_length=500, pattern=r"^[^\x00-\x1f\x7f]*$")]
Parameters = Annotated[
    dict[ParameterName, ParameterValue],
    Field(max_length=20, description="Parameters of the page's address, such as `outcome: error`, without empty ones"),
]


class ViewBody(Body):
    """A new view."""

    name: ViewName
    page: str = Field(default="requests", max_length=20)
    parameters: Parameters
    is_shared: bool = Field(default=False, description="Shared with everyone who is bound to the same tenant")


class ViewChange(Body):
    """Fields to change; null: unchanged."""

    name: ViewName | None = None
    parameters: Parameters | None = None
    is_shared: bool | None = None


class ViewQuery(PageQuery):
    """Filter of views."""

    page: str = Field(default="", max_length=20, description="Only those of this page")


class ViewOut(Resource):
    """A view. It grants no rights: each viewer sees only data that they may see. `shared_by` is empty for one's own."""

    id: str
    name: str
    page: str
    parameters: dict[str, str]
    is_shared: bool
    is_own: bool
    shared_by: str
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, shown: ShownView) -> Self:
        """Convert a view."""
        view = shown.view
        return cls(
            id=view.id,
            name=view.name,
            page=view.page,
            parameters=view.parameters,
            is_shared=view.is_shared,
            is_own=shown.is_own,
            shared_by=shown.shared_by,
            created_at=view.created_at,
            updated_at=view.updated_at,
        )


@router.post("", status_code=201, summary="Save a view")
def create(body: ViewBody, author: Admin, database: Database) -> ViewOut:
    """At most 100 per account; names are unique per page."""
    new = NewView(body.name, body.page, body.parameters, body.is_shared)
    with database.session() as session:
        return ViewOut.of(saved_views.create_view(session, author, author.id, new))


@router.get("", summary="List your own and shared views")
def list_all(wanted: Annotated[ViewQuery, Query()], author: Admin, database: Database) -> Page[ViewOut]:
    with database.session() as session:
        rows = saved_views.list_views(
            session, author, author.id, page=wanted.page, after=wanted.after, limit=wanted.limit + 1
        )
        return page_of(rows, wanted, ViewOut.of)


@router.get("/{view}", summary="Get a view")
def get(view: ViewPath, author: Admin, database: Database) -> ViewOut:
    with database.session() as session:
        return ViewOut.of(saved_views.get_view(session, author, author.id, view))


@router.patch("/{view}", summary="Rename, change or share your view")
def change(view: ViewPath, body: ViewChange, author: Admin, database: Database) -> ViewOut:
    with database.session() as session:
        return ViewOut.of(
            saved_views.change_view(
                session,
                author,
                author.id,
                view,
                name=body.name,
                parameters=body.parameters,
                is_shared=body.is_shared,
            )
        )


@router.delete("/{view}", summary="Delete your view")
def delete(view: ViewPath, author: Admin, database: Database) -> Deleted:
    with database.session() as session:
        saved_views.delete_view(session, author, author.id, view)
    return Deleted(id=view)
