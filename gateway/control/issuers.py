"""Identity providers over HTTP: gateways accept their tokens in place of keys."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import Field, StringConstraints

from backends.control import issuers
from backends.control.issuers import NewIssuer
from backends.control.key_scopes import SCOPE_FIELDS
from gateway.control.access import Admin
from gateway.control.fields import Database, Deleted, Page, Resource, Slug, Wanted, page_of
from gateway.control.scope_fields import ScopeFields

router = APIRouter(prefix="/v1/issuers", tags=["issuers"])

IssuerPath = Annotated[str, Path(max_length=63, description="The issuer's id here")]
Text = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=r"^[^\x00-\x20\x7f]+$")]
OptionalText = Annotated[str, StringConstraints(max_length=500, pattern=r"^[^\x00-\x20\x7f]*$")]
Claim = Annotated[str, StringConstraints(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
Algorithms = Annotated[
    list[str], Field(min_length=1, max_length=10, description="Signature algorithms, asymmetric only, such as RS256")
]


class _IssuerFields(ScopeFields):
    keys_url: OptionalText = Field(default="", description="URL of its signing keys (JWKS); empty: by discovery")
    tenant: Slug | None = Field(default=None, description="Paying tenant; null: from `tenant_claim`")
    tenant_claim: Claim = Field(default="", description="The claim that names the tenant; instead of `tenant`")
    team_claim: Claim = ""
    project_claim: Claim = ""
    user_claim: Claim = "sub"

    def changes(self) -> dict[str, Any]:
        """Return the fields that were stated, by the names that the table has."""
        stated = self.model_dump(exclude_unset=True)
        if "tenant" in stated:
            stated["tenant_id"] = stated.pop("tenant") or ""
        return stated


class IssuerBody(_IssuerFields):
    """A new identity provider. Its URLs must start with https://, unless they are on this machine."""

    id: Slug
    issuer: Text = Field(description="Required value of the tokens' `iss`")
    audience: Text = Field(description="Required value in the tokens' `aud`")
    algorithms: Algorithms = ["RS256", "ES256"]


class IssuerPatch(_IssuerFields):
    """Fields to change: absent fields stay, null removes a scope."""

    issuer: Text = ""
    audience: Text = ""
    algorithms: Algorithms = []


class IssuerOut(Resource):
    """An identity provider."""

    id: str
    issuer: str
    audience: str
    keys_url: str
    algorithms: list[str]
    tenant_id: str
    tenant_claim: str
    team_claim: str
    project_claim: str
    user_claim: str
    scopes: dict[str, object]
    created_at: datetime


@router.post("", status_code=201, summary="Accept an identity provider's tokens")
def create(body: IssuerBody, author: Admin, database: Database) -> IssuerOut:
    stated = body.changes()
    scopes: dict[str, Any] = {name: stated.pop(name) for name in SCOPE_FIELDS if name in stated}
    with database.session() as session:
        return IssuerOut.model_validate(issuers.create_issuer(session, author, NewIssuer(scopes=scopes, **stated)))


@router.get("", summary="List identity providers")
def list_all(wanted: Wanted, author: Admin, database: Database) -> Page[IssuerOut]:
    with database.session() as session:
        rows = issuers.list_issuers(session, after=wanted.after, limit=wanted.limit + 1)
        return page_of(rows, wanted, IssuerOut.model_validate)


@router.get("/{issuer}", summary="Get an identity provider")
def get(issuer: IssuerPath, author: Admin, database: Database) -> IssuerOut:
    with database.session() as session:
        return IssuerOut.model_validate(issuers.get_issuer(session, issuer))


@router.patch("/{issuer}", summary="Change an identity provider")
def update(issuer: IssuerPath, body: IssuerPatch, author: Admin, database: Database) -> IssuerOut:
    with database.session() as session:
        return IssuerOut.model_validate(issuers.update_issuer(session, author, issuer, body.changes()))


@router.delete("/{issuer}", summary="Stop accepting an identity provider's tokens")
def delete(issuer: IssuerPath, author: Admin, database: Database) -> Deleted:
    """Gateways refuse its tokens within a second."""
    with database.session() as session:
        issuers.delete_issuer(session, author, issuer)
    return Deleted(id=issuer)
