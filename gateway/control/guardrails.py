"""Guardrails over HTTP: policies, and what a policy finds in a text."""

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path
from pydantic import Field, StringConstraints

from backends.control import guardrails
from backends.secrets.credential_references import ReferenceRules
from contracts.errors import ConfigurationError, InvalidRequest
from contracts.guardrails.policy import policy_of
from gateway.control.access import Admin
from gateway.control.fields import Body, Database, Deleted, Page, References, Resource, Wanted, page_of
from gateway.guardrails.checking import dependencies_of_checks
from gateway.guardrails.guard_plan import compile_plan
from gateway.guardrails.policy_trial import MOST_TEXT, try_policy

router = APIRouter(prefix="/v1/guardrails", tags=["guardrails"])

GuardrailName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
NamePath = Annotated[str, Path(max_length=63, description="The guardrail's name")]
Names = Annotated[list[Annotated[str, StringConstraints(min_length=1, max_length=200)]], Field(max_length=1000)]


class GuardrailRules(Body):
    """Tenants and routes that it covers, and its stages; see docs/guardrails.md."""

    tenants: Names = []
    routes: Names = []
    stages: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=64)]


class GuardrailFields(Body):
    """A new guardrail."""

    name: GuardrailName
    rules: GuardrailRules


class GuardrailPatch(Body):
    """Fields to change. Rules are replaced as a whole."""

    rules: GuardrailRules


class TrialFields(Body):
    """A text, and its direction: input or output."""

    text: Annotated[str, StringConstraints(max_length=MOST_TEXT)]
    direction: Literal["input", "output"] = "input"


class GuardrailOut(Resource):
    """A guardrail."""

    id: str
    rules: dict[str, Any]
    created_at: datetime


class TrialOut(Resource):
    """The result of a guardrail for a text: verdicts as on records, and the resulting text unless it was blocked."""

    verdicts: list[str]
    blocked_by: str
    text: str | None


@router.post("", status_code=201, summary="Create a guardrail")
def create(body: GuardrailFields, author: Admin, database: Database, references: References) -> GuardrailOut:
    rules = _sound(body.name, body.rules, references)
    with database.session() as session:
        return GuardrailOut.model_validate(guardrails.create_guardrail(session, author, body.name, rules))


@router.get("", summary="List guardrails")
def list_all(wanted: Wanted, author: Admin, database: Database) -> Page[GuardrailOut]:
    with database.session() as session:
        rows = guardrails.list_guardrails(session, after=wanted.after, limit=wanted.limit + 1)
        return page_of(rows, wanted, GuardrailOut.model_validate)


@router.get("/{name}", summary="Get a guardrail")
def get(name: NamePath, author: Admin, database: Database) -> GuardrailOut:
    with database.session() as session:
        return GuardrailOut.model_validate(guardrails.get_guardrail(session, name))


@router.patch("/{name}", summary="Set a guardrail's rules")
def update(
    name: NamePath, body: GuardrailPatch, author: Admin, database: Database, references: References
) -> GuardrailOut:
    rules = _sound(name, body.rules, references)
    with database.session() as session:
        return GuardrailOut.model_validate(guardrails.set_guardrail(session, author, name, rules))


@router.delete("/{name}", summary="Delete a guardrail")
def delete(name: NamePath, author: Admin, database: Database) -> Deleted:
    with database.session() as session:
        guardrails.delete_guardrail(session, author, name)
    return Deleted(id=name)


@router.post("/{name}/test", summary="Show what a guardrail finds in a text, which is not stored")
def test(name: NamePath, body: TrialFields, author: Admin, database: Database) -> TrialOut:
    with database.session() as session:
        rules = guardrails.get_guardrail(session, name).rules
    return TrialOut.model_validate(try_policy(policy_of(name, rules), body.text, body.direction))


def _sound(name: str, rules: GuardrailRules, references: ReferenceRules) -> dict[str, Any]:
    """Return rules that a gateway can use. Raises InvalidRequest."""
    given = rules.model_dump()
    try:
        compile_plan([policy_of(name, given)], dependencies_of_checks(references))
    except ConfigurationError as error:
        raise InvalidRequest(error.message, param="rules") from error
    return given
