"""Channels over HTTP: where notifications are sent, a test of one, and the delivery of notifications."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Self

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field

from backends.control import alert_rules
from backends.control.alert_log import write_delivery
from backends.control.alert_outbox import list_deliveries
from backends.control.alert_rules import ChannelChange
from backends.control.changes import begin_change
from contracts.control import AlertChannel, AlertDelivery
from contracts.recording.ids import uuid7
from contracts.recording.moments import unix_ns
from contracts.rules.alert_channels import ChannelKind, ReportEvery
from contracts.rules.objectives import Severity
from gateway.control.access import Admin
from gateway.control.fields import Body, Database, Deleted, Page, Slug, Wanted, page_of
from gateway.control.sealing import Seal

router = APIRouter(tags=["alerts"])


ChannelPath = Annotated[str, Path(max_length=63, description="The channel's id")]


class ChannelBody(Body):
    """A new channel. `address` is a URL, an e-mail address or PagerDuty's routing key; it is not shown again."""

    id: Slug
    tenant: Annotated[str, Field(max_length=63)] = ""
    kind: ChannelKind
    address: Annotated[str, Field(min_length=1, max_length=500, repr=False)]
    severities: list[Severity] = Field(
        default_factory=list, max_length=2, description="Send alerts of these severities only; []: all"
    )
    tenants: list[Annotated[str, Field(max_length=63)]] = Field(
        default_factory=list, max_length=100, description="Send alerts of these tenants only; []: all"
    )
    report: ReportEvery = Field(default="", description="Interval of cost reports; empty: never")


_EMPTY: Final[Mapping[str, Any]] = {"address": None, "severities": [], "tenants": [], "report": ""}


class ChannelPatch(Body):
    """Fields to change; absent fields stay, and so do kind and tenant. [] or null means all severities or tenants."""

    address: Annotated[str | None, Field(min_length=1, max_length=500, repr=False)] = None
    severities: list[Severity] | None = Field(default=None, max_length=2)
    tenants: list[Annotated[str, Field(max_length=63)]] | None = Field(default=None, max_length=100)
    report: ReportEvery | None = None


class ChannelOut(BaseModel):
    """A channel, with its address partly hidden."""

    id: str
    tenant_id: str
    kind: str
    address: str
    severities: list[str] = Field(default_factory=list)
    tenants: list[str] = Field(default_factory=list)
    report: str = ""
    created_at: datetime

    @classmethod
    def of(cls, row: AlertChannel) -> Self:
        """Convert a row."""
        return cls(
            id=row.id,
            tenant_id=row.tenant_id,
            kind=row.kind,
            address=row.shown,
            severities=row.severities or [],
            tenants=row.tenants or [],
            report=row.report,
            created_at=row.created_at,
        )


class DeliveryOut(BaseModel):
    """A notification and its delivery state."""

    id: str
    channel: str
    kind: str = Field(description="The channel's; empty if it was deleted")
    event: str
    state: str = Field(description="waiting, sending, delivered, unknown (it may have arrived) or given_up")
    attempts: int
    last_error: str
    created_at: datetime
    next_attempt_at: datetime | None
    ended_at: datetime | None

    @classmethod
    def of(cls, row: tuple[AlertDelivery, str]) -> Self:
        """Convert a row and the kind of its channel."""
        delivery, kind = row
        return cls(
            id=delivery.id,
            channel=delivery.channel_id,
            kind=kind,
            event=delivery.event,
            state=delivery.state,
            attempts=delivery.attempts,
            last_error=delivery.last_error,
            created_at=delivery.created_at,
            next_attempt_at=delivery.next_attempt_at,
            ended_at=delivery.ended_at,
        )


@router.post("/v1/alert-channels", status_code=201, summary="Create a channel")
def create(body: ChannelBody, author: Admin, database: Database, sealer: Seal) -> ChannelOut:
    """The address is stored encrypted; only a part of it is shown."""
    with database.session() as session:
        made = alert_rules.create_channel(
            session,
            author,
            body.id,
            body.tenant,
            body.kind,
            body.address,
            sealer,
            severities=body.severities,
            tenants=body.tenants,
            report=body.report,
        )
        return ChannelOut.of(made)


@router.get("/v1/alert-channels", summary="List channels")
def list_all(wanted: Wanted, author: Admin, database: Database) -> Page[ChannelOut]:
    with database.session() as session:
        rows = alert_rules.list_rows(
            session, AlertChannel, tenant=author.tenant_id, after=wanted.after, limit=wanted.limit + 1
        )
        return page_of(rows, wanted, ChannelOut.of)


@router.get("/v1/alert-channels/{channel_id}", summary="Get a channel")
def get(channel_id: ChannelPath, author: Admin, database: Database) -> ChannelOut:
    with database.session() as session:
        return ChannelOut.of(alert_rules.get_row(session, AlertChannel, channel_id, tenant=author.tenant_id))


@router.patch("/v1/alert-channels/{channel_id}", summary="Change a channel's address, severities, tenants or report")
def update(channel_id: ChannelPath, body: ChannelPatch, author: Admin, database: Database, sealer: Seal) -> ChannelOut:
    with database.session() as session:
        # null takes back what a channel was kept to.
        stated = {
            name: _EMPTY[name] if value is None else value
            for name, value in body.model_dump(exclude_unset=True).items()
        }
        change = ChannelChange(**stated)
        return ChannelOut.of(alert_rules.update_channel(session, author, channel_id, change, sealer))


@router.delete("/v1/alert-channels/{channel_id}", summary="Delete a channel that no rule names")
def delete(channel_id: ChannelPath, author: Admin, database: Database) -> Deleted:
    with database.session() as session:
        alert_rules.delete_row(session, author, AlertChannel, channel_id)
    return Deleted(id=channel_id)


@router.post("/v1/alert-channels/{channel_id}/test", status_code=202, summary="Send a test notification")
def test(channel_id: ChannelPath, author: Admin, database: Database) -> DeliveryOut:
    """The analytics process sends it; see its state at `/v1/alert-deliveries`."""
    with database.session() as session:
        channel = alert_rules.get_row(session, AlertChannel, channel_id, tenant=author.tenant_id)
        subject = f"{channel.tenant_id}/{channel_id}" if channel.tenant_id else channel_id
        begin_change(session, author, "alert_channel.test", subject)
        test_id = f"tst_{uuid7(unix_ns(author.at)).hex}"
        body = {"event": "test", "at": author.at.isoformat(), "alerts": [], "more": 0, "ids": [test_id]}
        write_delivery(session, channel, "test", body, author.at)
        (row,) = list_deliveries(session, tenant=channel.tenant_id, channel=channel_id, limit=1)
        return DeliveryOut.of(row)


@router.get("/v1/alert-deliveries", summary="List notifications with their delivery state, latest first")
def deliveries(wanted: Wanted, author: Admin, database: Database) -> Page[DeliveryOut]:
    with database.session() as session:
        rows = list_deliveries(session, tenant=author.tenant_id, before=wanted.after, limit=wanted.limit + 1)
        return page_of(rows, wanted, DeliveryOut.of)
