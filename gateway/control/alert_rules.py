"""Rules that raise alerts, over HTTP."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import Field

from backends.control import alert_rules
from backends.control.alert_rules import NewRule, RuleChange
from contracts.control import AlertRule
from contracts.rules.alerts import RuleKind
from gateway.control.access import Admin
from gateway.control.fields import Body, Database, Deleted, Page, Resource, Slug, Wanted, page_of

router = APIRouter(prefix="/v1/alert-rules", tags=["alerts"])

RulePath = Annotated[str, Path(max_length=63, description="The rule's id")]


class RuleBody(Body):
    """A new rule. Without a tenant it is the installation's, and covers all tenants, each evaluated separately."""

    id: Slug
    tenant: Annotated[str, Field(max_length=63)] = ""
    kind: RuleKind
    settings: dict[str, Any] = Field(default_factory=dict, max_length=10, description="By kind; see docs/alerts.md")
    channels: Annotated[list[Slug], Field(max_length=20)] = Field(default_factory=list)
    is_active: bool = True


class RulePatch(Body):
    """Fields to change; absent fields stay. `settings` and `channels` are replaced as a whole."""

    settings: dict[str, Any] | None = Field(default=None, max_length=10)
    channels: Annotated[list[Slug], Field(max_length=20)] | None = None
    is_active: bool | None = None


class RuleOut(Resource):
    """A rule."""

    id: str
    tenant_id: str
    kind: str
    settings: dict[str, Any]
    channels: list[str]
    is_active: bool
    created_at: datetime
    updated_at: datetime


@router.post("", status_code=201, summary="Create a rule")
def create(body: RuleBody, author: Admin, database: Database) -> RuleOut:
    with database.session() as session:
        made = alert_rules.create_rule(session, author, NewRule(**body.model_dump()))
        return RuleOut.model_validate(made)


@router.get("", summary="List rules")
def list_all(wanted: Wanted, author: Admin, database: Database) -> Page[RuleOut]:
    with database.session() as session:
        rows = alert_rules.list_rows(
            session, AlertRule, tenant=author.tenant_id, after=wanted.after, limit=wanted.limit + 1
        )
        return page_of(rows, wanted, RuleOut.model_validate)


@router.get("/{rule_id}", summary="Get a rule")
def get(rule_id: RulePath, author: Admin, database: Database) -> RuleOut:
    with database.session() as session:
        return RuleOut.model_validate(alert_rules.get_row(session, AlertRule, rule_id, tenant=author.tenant_id))


@router.patch("/{rule_id}", summary="Change a rule's settings or channels, or deactivate it")
def update(rule_id: RulePath, body: RulePatch, author: Admin, database: Database) -> RuleOut:
    with database.session() as session:
        change = RuleChange(**body.model_dump())
        return RuleOut.model_validate(alert_rules.update_rule(session, author, rule_id, change))


@router.delete("/{rule_id}", summary="Delete a rule; its open alerts end without a notification")
def delete(rule_id: RulePath, author: Admin, database: Database) -> Deleted:
    with database.session() as session:
        alert_rules.delete_row(session, author, AlertRule, rule_id)
    return Deleted(id=rule_id)
