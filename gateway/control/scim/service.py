"""Answers one SCIM request: a token of the role `directory` provisions the accounts and teams of its tenant."""

import logging
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

from scim2_models import (
    AuthenticationScheme,
    Bulk,
    ChangePassword,
    ETag,
    Filter,
    ForbiddenException,
    Patch,
    ScimProvider,
    ServiceProviderConfig,
    Sort,
    UnauthorizedException,
)
from scim2_server.handler import ScimHandler
from scim2_server.requests import ScimRequest
from scim2_server.responses import ScimResponse
from scim2_server.routing import Operation
from scim2_server.service import ScimService
from scim2_server.utils import load_default_resource_types, load_default_schemas

from backends.control.changes import Author
from backends.control.database import ControlDatabase
from contracts.control import Role
from contracts.errors import AuthenticationFailed, TollkeeperError
from gateway.control.access import TokenBook
from gateway.control.scim.storage import DirectoryStorage

log = logging.getLogger(__name__)

_MAX_RESULTS: Final = 1_000


def _describe() -> ScimProvider:
    """Return what the service supports: RFC 7643's users, with the enterprise extension, and groups."""
    config = ServiceProviderConfig(
        patch=Patch(supported=True),
        bulk=Bulk(supported=False, max_operations=0, max_payload_size=0),
        filter=Filter(supported=True, max_results=_MAX_RESULTS),
        change_password=ChangePassword(supported=False),
        sort=Sort(supported=True),
        etag=ETag(supported=True),
        authentication_schemes=[
            AuthenticationScheme(
                name="Bearer token",
                description="A token of the role `directory`: tollkeeper tokens create --role directory",
                type=AuthenticationScheme.Type.oauthbearertoken,
                primary=True,
            )
        ],
    )
    return ScimProvider.from_discovery(
        load_default_schemas().values(), load_default_resource_types().values(), config=config
    )


PROVIDER: Final = _describe()
_SERVICE: Final = ScimService(PROVIDER)


def answer_of(asked: ScimRequest, tokens: TokenBook, database: ControlDatabase, address: str) -> ScimResponse:
    """Return the response to a request from a network address. Never raises."""
    try:
        author = Author("nobody", datetime.now(UTC))
        if _SERVICE.match(asked).operation is not Operation.service_provider_config:  # RFC 7644, section 4
            author = _author_of(asked, tokens, address)
        return ScimHandler(_SERVICE, DirectoryStorage(database, author, PROVIDER)).handle(asked)
    except TollkeeperError as error:
        refusal = _SERVICE.error_response(error)
        refusal.status = HTTPStatus(error.status)
        refusal.body = {**(refusal.body or {}), "status": str(error.status), "detail": error.message}
        return refusal
    except Exception as error:
        refusal = _SERVICE.error_response(error)
        if refusal.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            log.exception("scim_request_failed", extra={"method": asked.method, "path": asked.path})
        return refusal


def _author_of(asked: ScimRequest, tokens: TokenBook, address: str) -> Author:
    """Return the owner of the token. Raise UnauthorizedException, or ForbiddenException if its role is another."""
    scheme, _, token = (asked.header("Authorization") or "").partition(" ")
    now = datetime.now(UTC)
    try:
        found = tokens.owner_of(token.strip() if scheme.lower() == "bearer" else None, now)
    except AuthenticationFailed as error:
        raise UnauthorizedException(detail=error.message) from error
    if found.role is not Role.DIRECTORY or not found.tenant_id:
        raise ForbiddenException(
            detail="this token's role is not `directory`; tollkeeper tokens create --role directory --tenant TENANT"
        )
    return Author(found.name, now, address, found.tenant_id)
