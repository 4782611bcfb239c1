"""Silences over HTTP: alerts that are raised but not sent, for a while."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import Field

from backends.control import alert_rules
from backends.control.alert_rules import NewSilence
from contracts.control import AlertSilence
from gateway.control.access import Admin
from gateway.control.fields import Body, Database, Deleted, Moment, Page, Resource, Wanted, page_of

router = APIRouter(prefix="/v1/alert-silences", tags=["alerts"])

SilencePath = Annotated[str, Path(max_length=63, description="The silence's id, `sil_...`")]


class SilenceBody(Body):
    """A new silence, for all rules if `rule` is empty. Alerts still open at its end are sent then."""

    tenant: Annotated[str, Field(max_length=63)] = ""
    rule: Annotated[str, Field(max_length=63)] = ""
    subject: Annotated[str, Field(max_length=300, description="Fingerprints that start with this; empty: all")] = ""
    starts_at: Moment | None = Field(default=None, description="null: now")
    ends_at: Moment
    comment: Annotated[str, Field(max_length=200)] = ""


class SilenceOut(Resource):
    """A silence."""

    id: str
    tenant_id: str
    rule_id: str
    subject: str
    starts_at: datetime
    ends_at: datetime
    comment: str
    created_at: datetime


@router.post("", status_code=201, summary="Create a silence")
def create(body: SilenceBody, author: Admin, database: Database) -> SilenceOut:
    new = NewSilence(body.tenant, body.ends_at, body.starts_at, body.rule, body.subject, body.comment)
    with database.session() as session:
        return SilenceOut.model_validate(alert_rules.create_silence(session, author, new))


@router.get("", summary="List silences")
def list_all(wanted: Wanted, author: Admin, database: Database) -> Page[SilenceOut]:
    with database.session() as session:
        rows = alert_rules.list_rows(
            session, AlertSilence, tenant=author.tenant_id, after=wanted.after, limit=wanted.limit + 1
        )
        return page_of(rows, wanted, SilenceOut.model_validate)


@router.get("/{silence_id}", summary="Get a silence")
def get(silence_id: SilencePath, author: Admin, database: Database) -> SilenceOut:
    with database.session() as session:
        return SilenceOut.model_validate(
            alert_rules.get_row(session, AlertSilence, silence_id, tenant=author.tenant_id)
        )


@router.delete("/{silence_id}", summary="End a silence")
def delete(silence_id: SilencePath, author: Admin, database: Database) -> Deleted:
    with database.session() as session:
        alert_rules.delete_row(session, author, AlertSilence, silence_id)
    return Deleted(id=silence_id)
