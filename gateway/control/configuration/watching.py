"""Objectives, alert channels and alert rules as configuration."""

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field
from sqlalchemy import select

from contracts.control import AlertChannel, AlertRule, Slo
from contracts.errors import InvalidRequest
from gateway.control import alert_channels, alert_rules, slos
from gateway.control.alert_channels import ChannelBody, ChannelPatch
from gateway.control.alert_rules import RuleBody, RulePatch
from gateway.control.configuration.kind import Change, Context, ExistingObject, Kind
from gateway.control.slos import SloBody, SloFields


class Slos(Kind[SloBody]):
    """Service level objectives."""

    section, noun, entry = "slos", "SLO", SloBody

    def identity(self, entry: SloBody) -> str:
        return entry.id

    def current(self, context: Context) -> Iterable[ExistingObject[SloBody]]:
        for row in context.session.scalars(select(Slo).order_by(Slo.id)):
            stated = {name: getattr(row, name) for name in SloBody.model_fields if name != "tenant"}
            stated |= {"tenant": row.tenant_id, "prompt_class": row.prompt_class or None}
            yield ExistingObject(SloBody.model_validate(stated))

    def create(self, context: Context, entry: SloBody) -> None:
        slos.create(entry, context.author, context.database)

    def change(self, context: Context, change: Change[SloBody]) -> None:
        body = SloFields.model_validate(change.after.model_dump(exclude={"id"}))
        slos.put(change.after.id, body, context.author, context.database)

    def delete(self, context: Context, entry: SloBody) -> None:
        slos.delete(entry.id, context.author, context.database)


class ChannelEntry(ChannelBody):
    """An alert channel. If an existing channel's entry omits the address, the stored one is kept."""

    address: Annotated[str, Field(max_length=500, repr=False)] = ""


class AlertChannels(Kind[ChannelEntry]):
    """Where alerts are sent."""

    section, noun, entry = "alert_channels", "alert channel", ChannelEntry
    secrets = ("address",)
    fixed = ("kind", "tenant")

    def identity(self, entry: ChannelEntry) -> str:
        return entry.id

    def current(self, context: Context) -> Iterable[ExistingObject[ChannelEntry]]:
        for row in context.session.scalars(select(AlertChannel).order_by(AlertChannel.id)):
            address = context.sealer.open(row.address)
            stated: dict[str, object] = {"id": row.id, "tenant": row.tenant_id, "kind": row.kind, "address": address}
            stated |= {"severities": row.severities, "tenants": row.tenants, "report": row.report}
            yield ExistingObject(ChannelEntry.model_validate(stated))

    def create(self, context: Context, entry: ChannelEntry) -> None:
        if not entry.address:
            raise InvalidRequest("a new channel needs an address", param="address")
        body = ChannelBody.model_validate(entry.model_dump())
        alert_channels.create(body, context.author, context.database, context.sealer)

    def change(self, context: Context, change: Change[ChannelEntry]) -> None:
        body = ChannelPatch.model_validate({name: getattr(change.after, name) for name in change.fields})
        alert_channels.update(change.after.id, body, context.author, context.database, context.sealer)

    def delete(self, context: Context, entry: ChannelEntry) -> None:
        alert_channels.delete(entry.id, context.author, context.database)


class AlertRules(Kind[RuleBody]):
    """Conditions that raise alerts."""

    section, noun, entry = "alert_rules", "alert rule", RuleBody
    fixed = ("kind", "tenant")

    def identity(self, entry: RuleBody) -> str:
        return entry.id

    def current(self, context: Context) -> Iterable[ExistingObject[RuleBody]]:
        for row in context.session.scalars(select(AlertRule).order_by(AlertRule.id)):
            same = {name: getattr(row, name) for name in ("id", "kind", "settings", "channels", "is_active")}
            yield ExistingObject(RuleBody.model_validate({**same, "tenant": row.tenant_id}))

    def create(self, context: Context, entry: RuleBody) -> None:
        alert_rules.create(entry, context.author, context.database)

    def change(self, context: Context, change: Change[RuleBody]) -> None:
        body = RulePatch.model_validate({name: getattr(change.after, name) for name in change.fields})
        alert_rules.update(change.after.id, body, context.author, context.database)

    def delete(self, context: Context, entry: RuleBody) -> None:
        alert_rules.delete(entry.id, context.author, context.database)
