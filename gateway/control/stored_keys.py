"""Providers' keys over HTTP: stored encrypted, never shown again, and encrypted again after a key rotation."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field

from backends.control import stored_keys
from contracts.errors import Conflict
from gateway.control.access import Admin
from gateway.control.fields import Body, Database, Deleted, Page, Resource, Wanted, page_of
from gateway.control.sealing import Seal

router = APIRouter(prefix="/v1/stored-keys", tags=["stored keys"])

KeyName = Annotated[str, Path(max_length=63, description="The key's name; targets refer to it as stored:NAME")]


class StoredKeyBody(Body):
    """A provider's key, or a credentials file's JSON. It is not shown again."""

    value: Annotated[str, Field(min_length=1, max_length=8192, repr=False)]


class StoredKeyOut(Resource):
    """A stored key, without its value. `version` grows with every new value."""

    name: str
    version: int
    created_at: datetime
    updated_at: datetime


class ResealBody(Body):
    """The id of the encryption key that the caller has just added.

    It is checked, so that another caller's rotation at the same time is not mistaken for this one.
    """

    key_id: Annotated[str, Field(max_length=64, description="16 digits of its SHA-256; empty: any")] = ""


class ResealedOut(BaseModel):
    """Number of values that were encrypted again."""

    stored_keys: int
    alert_channels: int
    budgets: int
    mcp_tokens: int


@router.put("/{name}", summary="Store or replace a provider's key")
def put(name: KeyName, body: StoredKeyBody, author: Admin, database: Database, sealer: Seal) -> StoredKeyOut:
    """Gateways use it within a second; calls in progress keep the previous one."""
    with database.session() as session:
        return StoredKeyOut.model_validate(stored_keys.put_key(session, author, name, body.value, sealer))


@router.get("", summary="List stored keys, by name")
def list_all(wanted: Wanted, author: Admin, database: Database) -> Page[StoredKeyOut]:
    with database.session() as session:
        rows = stored_keys.list_keys(session, after=wanted.after, limit=wanted.limit + 1)
        return page_of(rows, wanted, StoredKeyOut.model_validate)


@router.delete("/{name}", summary="Delete a stored key")
def delete(name: KeyName, author: Admin, database: Database) -> Deleted:
    """Refused while a target or MCP server refers to it."""
    with database.session() as session:
        stored_keys.delete_key(session, author, name)
    return Deleted(id=name)


@router.post("/reseal", summary="Encrypt everything again with the newest key")
def reseal(author: Admin, database: Database, sealer: Seal, body: ResealBody | None = None) -> ResealedOut:
    """The second step of a rotation; `tollkeeper secrets rotate` does both. Refused if another key is the newest."""
    sealer.refresh()
    if body is not None and body.key_id not in ("", sealer.key_id):
        raise Conflict(
            "the control plane seals with another key than the one that was made: rotate where its data directory is, "
            "and with its TOLLKEEPER_SEALING_KEYS"
        )
    with database.session() as session:
        return ResealedOut(**stored_keys.reseal_all(session, author, sealer))
