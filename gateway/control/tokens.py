"""Admin tokens over HTTP: they authorize callers of this API. The secret is shown only when the token is created."""

import secrets
from datetime import datetime
from typing import Annotated, Any, Final, Self

from fastapi import APIRouter, Path, Request
from pydantic import Field, StringConstraints

from backends.control import admin_tokens
from backends.control.admin_tokens import TOKEN_ID_PREFIX, TOKEN_PREFIX, ListedToken, NewToken
from contracts.access.keys import KEY_RANDOM_BYTES
from contracts.control import Role
from gateway.control.access import Admin
from gateway.control.fields import Body, Database, Moment, Page, Resource, Slug, Wanted, page_of

router = APIRouter(prefix="/v1/tokens", tags=["tokens"])

TokenPath = Annotated[str, Path(max_length=40, description="The token's id, `tok_...`")]
_OF_ROW: Final = (*("id", "name", "hint", "role", "tenant_id", "team_id", "created_at", "expires_at", "revoked_at"),)
# It stands in the audit beside the token's id, so it is shorter than other names.
TokenName = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=120, pattern=r"^[^\x00-\x1f\x7f]*$")
]


class TokenBody(Body):
    """A new token."""

    name: TokenName = Field(description="Name of the token or its owner; shown in the audit log")
    role: Role
    tenant: Slug | None = Field(default=None, description="Restricted to this tenant; null: all")
    team: Slug | None = Field(default=None, description="Restricted to this team of it; for team leads")
    expires_at: Moment | None = Field(
        default=None, description="Expiry; null: that of the token that creates it, else never"
    )


class TokenOut(Resource):
    """A token, without its secret. `hint` is its last four characters.

    `account_id` is the account that created it and with which it ends; empty: the installation's owner. `parent_id` is
    the token that created it, with which it ends as well; empty: none. `refused` says why it is invalid now; empty: it
    is valid.
    """

    id: str
    name: str
    hint: str
    role: Role
    tenant_id: str
    team_id: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    account_id: str
    refused: str
    parent_id: str = ""

    @classmethod
    def of(cls, listed: ListedToken) -> Self:
        """Convert a token."""
        return cls.model_validate(_fields_of(listed))


class NewTokenOut(TokenOut):
    """A new token. `secret` is shown once."""

    secret: str

    @classmethod
    def with_secret(cls, listed: ListedToken, secret: str) -> Self:
        """Convert a row and its secret, which is shown to the caller once and not stored."""
        return cls.model_validate({**_fields_of(listed), "secret": secret})


@router.post("", status_code=201, summary="Create an admin token; its secret is shown once")
def create(body: TokenBody, author: Admin, database: Database, request: Request) -> NewTokenOut:
    """The role must not exceed your own. It ends with the account or token that creates it."""
    parent = author.id if author.id.startswith(TOKEN_ID_PREFIX) else ""
    new = NewToken(body.name, body.role, body.tenant or "", body.team or "", body.expires_at, author.account_id, parent)
    secret = TOKEN_PREFIX + secrets.token_urlsafe(KEY_RANDOM_BYTES)
    pepper: bytes = request.app.state.key_pepper
    with database.session() as session:
        made = admin_tokens.create_token(session, author, author.role, new, secret, pepper)
        return NewTokenOut.with_secret(ListedToken(made, refused=""), secret)


@router.get("", summary="List admin tokens, revoked ones too")
def list_all(wanted: Wanted, author: Admin, database: Database) -> Page[TokenOut]:
    with database.session() as session:
        rows = admin_tokens.list_tokens(
            session, author.at, tenant_id=author.tenant_id, after=wanted.after, limit=wanted.limit + 1
        )
        return page_of(rows, wanted, TokenOut.of)


@router.get("/{token}", summary="Get an admin token, without its secret")
def get(token: TokenPath, author: Admin, database: Database) -> TokenOut:
    with database.session() as session:
        return TokenOut.of(admin_tokens.get_token(session, token, author.at, tenant_id=author.tenant_id))


@router.delete("/{token}", summary="Revoke an admin token and all tokens created with it")
def revoke(token: TokenPath, author: Admin, database: Database) -> TokenOut:
    """The token stays listed with its `revoked_at`; it cannot be restored."""
    with database.session() as session:
        return TokenOut.of(admin_tokens.revoke_token(session, author, author.role, token))


def _fields_of(listed: ListedToken) -> dict[str, Any]:
    token = listed.token
    row = {name: getattr(token, name) for name in _OF_ROW}
    return {**row, "account_id": token.user_id, "refused": listed.refused, "parent_id": token.parent_id}
