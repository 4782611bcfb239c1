"""Admin tokens over HTTP: who else may use this API. The secret stands in the answer that creates it only."""

import secrets
from datetime import datetime
from typing import Annotated, Self

from fastapi import APIRouter, Path, Request
from pydantic import Field, StringConstraints

from backends.control import admin_tokens
from backends.control.admin_tokens import TOKEN_PREFIX, NewToken
from contracts.control import AdminToken, Role
from contracts.keys import KEY_RANDOM_BYTES
from gateway.control.access import Admin
from gateway.control.fields import Body, Database, Moment, Page, Resource, Slug, Wanted, page_of

router = APIRouter(prefix="/v1/tokens", tags=["tokens"])

TokenPath = Annotated[str, Path(max_length=40, description="The token's id, `tok_...`")]
# It stands in the audit beside the token's id, so it is shorter than other names.
TokenName = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=120, pattern=r"^[^\x00-\x1f\x7f]*$")
]


class TokenBody(Body):
    """A new token."""

    name: TokenName = Field(description="Whose it is; the audit shows it")
    role: Role
    tenant: Slug | None = Field(default=None, description="Reaches only this tenant; null: all")
    team: Slug | None = Field(default=None, description="Reaches only this team of it: for team leads")
    expires_at: Moment | None = Field(default=None, description="Refused from then on; null: never")


class TokenOut(Resource):
    """A token, without its secret. `hint` is the last four characters of it."""

    id: str
    name: str
    hint: str
    role: Role
    tenant_id: str
    team_id: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class NewTokenOut(TokenOut):
    """A token just made. `secret` is shown this once."""

    secret: str

    @classmethod
    def of(cls, token: AdminToken, secret: str) -> Self:
        """Join a row with the secret that its caller alone knows."""
        return cls(secret=secret, **TokenOut.model_validate(token).model_dump())


@router.post("", status_code=201, summary="Create an admin token; its secret is shown once")
def create(body: TokenBody, author: Admin, database: Database, request: Request) -> NewTokenOut:
    """No role above one's own, and from within a tenant only for that tenant."""
    new = NewToken(body.name, body.role, body.tenant or "", body.team or "", body.expires_at)
    secret = TOKEN_PREFIX + secrets.token_urlsafe(KEY_RANDOM_BYTES)
    pepper: bytes = request.app.state.key_pepper
    with database.session() as session:
        made = admin_tokens.create_token(session, author, author.role, new, secret, pepper)
        return NewTokenOut.of(made, secret)


@router.get("", summary="List admin tokens, revoked ones too")
def list_all(wanted: Wanted, author: Admin, database: Database) -> Page[TokenOut]:
    with database.session() as session:
        rows = admin_tokens.list_tokens(session, tenant_id=author.tenant_id, after=wanted.after, limit=wanted.limit + 1)
        return page_of(rows, wanted, TokenOut.model_validate)


@router.get("/{token}", summary="Get an admin token, without its secret")
def get(token: TokenPath, author: Admin, database: Database) -> TokenOut:
    with database.session() as session:
        return TokenOut.model_validate(admin_tokens.get_token(session, token, tenant_id=author.tenant_id))


@router.delete("/{token}", summary="Revoke an admin token at once")
def revoke(token: TokenPath, author: Admin, database: Database) -> TokenOut:
    """The token stays listed with its `revoked_at`; it cannot be brought back."""
    with database.session() as session:
        return TokenOut.model_validate(admin_tokens.revoke_token(session, author, author.role, token))
