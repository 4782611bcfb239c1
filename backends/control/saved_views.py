"""Saved views of the dashboard. Each has an owner, who may share it with all users restricted to the same tenant."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, and_, delete, func, or_, select
from sqlalchemy.orm import Session

from backends.control.changes import Author, begin_change
from backends.control.row_names import row_name
from contracts.control import VIEW_PARAMETERS, SavedView, User
from contracts.errors import Conflict, InvalidRequest, NotFound
from contracts.recording.ids import uuid7
from contracts.recording.moments import unix_ns

INSTALLATION: Final = "installation"  # owner of views that were stored without an account
MAX_VIEWS: Final = 100  # of one owner
_NAMING: Final = frozenset({"tenant", "team", "project", "key", "q"})  # parameters that name something of one tenant


@dataclass(frozen=True, slots=True)
class NewView:
    """A new view: a page, and the parameters of its URL."""

    name: str
    page: str
    parameters: Mapping[str, str]
    is_shared: bool = False


@dataclass(frozen=True, slots=True)
class ShownView:
    """A view as a user sees it: their own, or one shared by `shared_by`."""

    view: SavedView
    is_own: bool
    shared_by: str = ""


def create_view(session: Session, author: Author, owner_id: str, new: NewView) -> ShownView:
    """Store a view. Raises InvalidRequest on an invalid page or parameter, or too many views, and Conflict if the owner
    has one of that name.
    """
    view_id = f"view_{uuid7(unix_ns(author.at)).hex}"
    # Without name and parameters: they may name an end user.
    begin_change(session, author, "saved_view.create", _subject(author, view_id), {"is_shared": new.is_shared})
    parameters = _checked(new.page, new.parameters)
    count = select(func.count()).select_from(SavedView).where(SavedView.owner_id == owner_id)
    if session.scalars(count).one() >= MAX_VIEWS:
        raise InvalidRequest(f"you have {MAX_VIEWS} views, the most; delete one first", param="name")
    _check_name(session, owner_id, new.page, new.name)
    view = SavedView(
        id=view_id,
        owner_id=owner_id,
        tenant_id=author.tenant_id,
        page=new.page,
        name=new.name,
        parameters=parameters,
        is_shared=new.is_shared,
        created_at=author.at,
        updated_at=author.at,
    )
    session.add(view)
    session.flush()
    return ShownView(view, is_own=True)


def list_views(
    session: Session, author: Author, owner_id: str, *, page: str = "", after: str = "", limit: int = 100
) -> list[ShownView]:
    """Return up to `limit` views that a user owns or that are shared with them, after an id; of one page if it is not
    empty.
    """
    wanted = (
        select(SavedView, User)
        .outerjoin(User, User.id == SavedView.owner_id)
        .where(_is_seen_by(author, owner_id), SavedView.id > after)
        .order_by(SavedView.id)
        .limit(limit)
    )
    if page:
        wanted = wanted.where(SavedView.page == page)
    return [_shown(view, user, owner_id) for view, user in session.execute(wanted)]


def get_view(session: Session, author: Author, owner_id: str, view_id: str) -> ShownView:
    """Return a view. Raises NotFound, also for one that is neither the user's nor shared with them."""
    wanted = select(SavedView, User).outerjoin(User, User.id == SavedView.owner_id)
    found = session.execute(wanted.where(SavedView.id == view_id, _is_seen_by(author, owner_id))).first()
    if found is None:
        raise NotFound(f"view {view_id!r} does not exist", rows=[row_name(SavedView, view_id)])
    return _shown(found[0], found[1], owner_id)


def change_view(
    session: Session,
    author: Author,
    owner_id: str,
    view_id: str,
    *,
    name: str | None = None,
    parameters: Mapping[str, str] | None = None,
    is_shared: bool | None = None,
) -> ShownView:
    """Rename a view, change its parameters, share it or stop sharing it; `None` leaves a field unchanged.

    Raises as `create_view` does, and NotFound if the view is not the owner's: others can store a copy.
    """
    entry = begin_change(session, author, "saved_view.update", _subject(author, view_id))
    view = _own(session, owner_id, view_id)
    if name is not None and name != view.name:
        _check_name(session, owner_id, view.page, name)
        view.name = name
    if parameters is not None:
        view.parameters = _checked(view.page, parameters)
    if is_shared is not None:
        view.is_shared = is_shared
    entry.detail = {"is_shared": view.is_shared}
    view.updated_at = author.at
    session.flush()
    return ShownView(view, is_own=True)


def delete_view(session: Session, author: Author, owner_id: str, view_id: str) -> None:
    """Remove a view. Raises NotFound on one that is not the owner's."""
    begin_change(session, author, "saved_view.delete", _subject(author, view_id))
    session.delete(_own(session, owner_id, view_id))
    session.flush()


def delete_views_of(session: Session, owner_id: str) -> None:
    """Remove all views of an owner, whose account is being removed."""
    session.execute(delete(SavedView).where(SavedView.owner_id == owner_id))


def move_views_of(session: Session, owner_id: str, tenant_id: str) -> None:
    """Move an owner's views to another tenant; users with whom they were shared no longer see them.

    A name of the former tenant must not be mistaken for the same name in another: if the owner now sees all tenants,
    the view gets the former tenant as a filter; otherwise such a view is removed, because an erasure would not find it.
    """
    of_owner = (SavedView.owner_id == owner_id, SavedView.tenant_id != tenant_id)
    for view in session.scalars(select(SavedView).where(*of_owner)).all():
        if _NAMING.isdisjoint(view.parameters):
            view.tenant_id, view.is_shared = tenant_id, False
        elif tenant_id:
            session.delete(view)
        else:
            view.parameters = {"tenant": view.tenant_id, **view.parameters}
            view.tenant_id, view.is_shared = tenant_id, False


def views_about(session: Session, tenant_id: str, user: str = "") -> list[str]:
    """Return the ids of views that filter by a tenant or, if `user` is not empty, that search for that end user of it.

    A view without a tenant that searches for the user without naming a tenant is included.
    """
    found = []
    for view in session.scalars(select(SavedView).order_by(SavedView.id)):
        about = view.parameters.get("tenant", view.tenant_id)
        if user:
            if about in ("", tenant_id) and _searches_for(view.parameters.get("q", ""), user):
                found.append(view.id)
        elif about == tenant_id:
            found.append(view.id)
    return found


def _searches_for(typed: str, user: str) -> bool:
    """Return whether a search names a user: as a phrase if the name has several words, else as a word or value."""
    wanted = user.casefold()
    if len(wanted.split()) > 1:
        return wanted in typed.casefold()
    try:
        terms = shlex.split(typed.casefold())  # as the search splits it, with either kind of quotes
    except ValueError:
        terms = typed.casefold().split()
    words = [word for term in terms for word in (*term.split(), *term.partition(":")[2].split())]
    return wanted in words


def _own(session: Session, owner_id: str, view_id: str) -> SavedView:
    view = session.get(SavedView, view_id)
    if view is None or view.owner_id != owner_id:
        raise NotFound(
            f"view {view_id!r} does not exist, or is somebody else's, who alone changes it",
            rows=[row_name(SavedView, view_id)],
        )
    return view


def _is_seen_by(author: Author, owner_id: str) -> ColumnElement[bool]:
    """Return the condition for a user's own views and those shared within the same scope; others may name foreign
    tenants.
    """
    return or_(SavedView.owner_id == owner_id, and_(SavedView.is_shared, SavedView.tenant_id == author.tenant_id))


def _shown(view: SavedView, user: User | None, owner_id: str) -> ShownView:
    if view.owner_id == owner_id:
        return ShownView(view, is_own=True)
    return ShownView(view, is_own=False, shared_by=(user.name or user.email) if user is not None else view.owner_id)


def _check_name(session: Session, owner_id: str, page: str, name: str) -> None:
    taken = (SavedView.owner_id == owner_id, SavedView.page == page, SavedView.name == name)
    if session.scalars(select(SavedView.id).where(*taken)).first() is not None:
        raise Conflict(f"you have a view {name!r} already; choose another name", param="name")


def _checked(page: str, parameters: Mapping[str, str]) -> dict[str, str]:
    known = VIEW_PARAMETERS.get(page)
    if known is None:
        raise InvalidRequest(f"no views are kept of page {page!r}; of {', '.join(VIEW_PARAMETERS)}", param="page")
    unknown = sorted(set(parameters) - known)
    if unknown:
        raise InvalidRequest(
            f"a view of {page} does not keep {unknown[0]!r}; it keeps {', '.join(sorted(known))}", param="parameters"
        )
    return {name: value for name, value in parameters.items() if value}


def _subject(author: Author, view_id: str) -> str:
    return f"{author.tenant_id}/{view_id}" if author.tenant_id else view_id
