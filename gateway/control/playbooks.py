"""Playbooks over HTTP: what happens while a whole provider is down."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path

from backends.control import playbooks
from gateway.config.fields.failure_fields import PlaybookFields, PlaybookRules
from gateway.control.access import Admin
from gateway.control.fields import Body, Database, Deleted, Page, Resource, Wanted, page_of

router = APIRouter(prefix="/v1/playbooks", tags=["playbooks"])

ProviderPath = Annotated[str, Path(max_length=63, description="The provider, as targets name it")]


class PlaybookPatch(Body):
    """Fields to change. Rules are replaced as a whole."""

    rules: PlaybookRules


class PlaybookOut(Resource):
    """A playbook."""

    provider: str
    rules: dict[str, Any]
    created_at: datetime


@router.post("", status_code=201, summary="Create a provider's playbook")
def create(body: PlaybookFields, author: Admin, database: Database) -> PlaybookOut:
    with database.session() as session:
        made = playbooks.create_playbook(session, author, body.provider, body.rules())
        return PlaybookOut.model_validate(made)


@router.get("", summary="List playbooks")
def list_all(wanted: Wanted, author: Admin, database: Database) -> Page[PlaybookOut]:
    with database.session() as session:
        rows = playbooks.list_playbooks(session, after=wanted.after, limit=wanted.limit + 1)
        return page_of(rows, wanted, PlaybookOut.model_validate)


@router.get("/{provider}", summary="Get a provider's playbook")
def get(provider: ProviderPath, author: Admin, database: Database) -> PlaybookOut:
    with database.session() as session:
        return PlaybookOut.model_validate(playbooks.get_playbook(session, provider))


@router.patch("/{provider}", summary="Set a playbook's rules")
def update(provider: ProviderPath, body: PlaybookPatch, author: Admin, database: Database) -> PlaybookOut:
    with database.session() as session:
        changed = playbooks.set_playbook(session, author, provider, body.rules.rules())
        return PlaybookOut.model_validate(changed)


@router.delete("/{provider}", summary="Delete a provider's playbook")
def delete(provider: ProviderPath, author: Admin, database: Database) -> Deleted:
    with database.session() as session:
        playbooks.delete_playbook(session, author, provider)
    return Deleted(id=provider)
