"""MCP servers and tool rules over HTTP."""

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path
from pydantic import Field, StringConstraints

from backends.control import mcp
from backends.secrets.credential_references import ReferenceRules
from contracts.errors import ConfigurationError, InvalidRequest
from contracts.mcp.plain import oauth_credentials
from contracts.mcp.servers import DEFAULT_CONCURRENT, DEFAULT_RESULT_BYTES, DEFAULT_TIMEOUT_SECONDS, SERVER_NAME
from gateway.control.access import Admin
from gateway.control.fields import Body, Database, Deleted, Page, References, Resource, Wanted, page_of

servers_router = APIRouter(prefix="/v1/mcp-servers", tags=["MCP servers"])
rules_router = APIRouter(prefix="/v1/tool-rules", tags=["tool rules"])

ServerName = Annotated[str, StringConstraints(pattern=f"^{SERVER_NAME.pattern}$")]
RuleName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
NamePath = Annotated[str, Path(max_length=63, description="The name")]
Text = Annotated[str, StringConstraints(max_length=2000)]
Price = Annotated[Decimal, Field(ge=0, description="USD per call")]


class ToolTermsFields(Body):
    """Terms for the tools whose names match."""

    match: Text
    price_usd: Price | None = None
    timeout_seconds: float | None = None
    max_result_bytes: int | None = None


class OAuthFields(Body):
    """How gateways get access tokens for a server. The secrets are references, such as stored:NAME."""

    client_id: Annotated[str, StringConstraints(min_length=1, max_length=500)]
    client_secret: Text = ""
    refresh_token: Text = ""
    scope: Text = ""
    issuer: Text = ""
    token_url: Text = ""
    resource: Text = ""


class ServerRules(Body):
    """Address of a server and terms of its tools; see docs/mcp.md."""

    url: Text
    key: Text = ""
    headers: Annotated[dict[Text, Text], Field(max_length=100)] = {}
    tls: Annotated[dict[Text, Text], Field(max_length=10)] = {}
    oauth: OAuthFields | None = None
    default: Literal["allow", "deny"] = "allow"
    price_usd: Price | None = None
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    max_result_bytes: int = DEFAULT_RESULT_BYTES
    max_concurrent: int = DEFAULT_CONCURRENT
    tools: Annotated[list[ToolTermsFields], Field(max_length=500)] = []
    pins: Annotated[dict[Text, Text], Field(max_length=1000, description="Approved fingerprints by tool")] = {}


class ServerFields(Body):
    """A new server."""

    name: ServerName
    rules: ServerRules


class ServerPatch(Body):
    """Fields to change. Rules are replaced as a whole."""

    rules: ServerRules


class RuleRules(Body):
    """Tools, and callers that it covers; empty means any."""

    effect: Literal["allow", "deny"]
    tools: Annotated[list[Text], Field(min_length=1, max_length=200)]
    tenant: Text = ""
    team: Text = ""
    project: Text = ""
    key: Text = ""


class RuleFields(Body):
    """A new rule."""

    name: RuleName
    rules: RuleRules


class RulePatch(Body):
    """Fields to change. Rules are replaced as a whole."""

    rules: RuleRules


class McpServerOut(Resource):
    """An MCP server."""

    id: str
    rules: dict[str, Any]
    created_at: datetime


class ToolRuleOut(Resource):
    """A rule that allows or denies tools to callers."""

    id: str
    rules: dict[str, Any]
    created_at: datetime


@servers_router.post("", status_code=201, summary="Create an MCP server")
def create(body: ServerFields, author: Admin, database: Database, references: References) -> McpServerOut:
    rules = _sound(body.rules, references)
    with database.session() as session:
        return McpServerOut.model_validate(mcp.create_object(session, author, mcp.SERVERS, body.name, rules))


@servers_router.get("", summary="List MCP servers")
def list_all(wanted: Wanted, author: Admin, database: Database) -> Page[McpServerOut]:
    with database.session() as session:
        rows = mcp.list_objects(session, mcp.SERVERS, after=wanted.after, limit=wanted.limit + 1)
        return page_of(rows, wanted, McpServerOut.model_validate)


@servers_router.get("/{name}", summary="Get an MCP server")
def get(name: NamePath, author: Admin, database: Database) -> McpServerOut:
    with database.session() as session:
        return McpServerOut.model_validate(mcp.get_object(session, mcp.SERVERS, name))


@servers_router.patch("/{name}", summary="Set an MCP server's rules")
def update(
    name: NamePath, body: ServerPatch, author: Admin, database: Database, references: References
) -> McpServerOut:
    rules = _sound(body.rules, references)
    with database.session() as session:
        return McpServerOut.model_validate(mcp.set_object(session, author, mcp.SERVERS, name, rules))


@servers_router.delete("/{name}", summary="Delete an MCP server")
def delete(name: NamePath, author: Admin, database: Database) -> Deleted:
    with database.session() as session:
        mcp.delete_object(session, author, mcp.SERVERS, name)
    return Deleted(id=name)


@rules_router.post("", status_code=201, summary="Create a tool rule")
def create_rule(body: RuleFields, author: Admin, database: Database) -> ToolRuleOut:
    rules = body.rules.model_dump(mode="json")
    with database.session() as session:
        return ToolRuleOut.model_validate(mcp.create_object(session, author, mcp.TOOL_RULES, body.name, rules))


@rules_router.get("", summary="List tool rules")
def list_rules(wanted: Wanted, author: Admin, database: Database) -> Page[ToolRuleOut]:
    with database.session() as session:
        rows = mcp.list_objects(session, mcp.TOOL_RULES, after=wanted.after, limit=wanted.limit + 1)
        return page_of(rows, wanted, ToolRuleOut.model_validate)


@rules_router.get("/{name}", summary="Get a tool rule")
def get_rule(name: NamePath, author: Admin, database: Database) -> ToolRuleOut:
    with database.session() as session:
        return ToolRuleOut.model_validate(mcp.get_object(session, mcp.TOOL_RULES, name))


@rules_router.patch("/{name}", summary="Set a tool rule's rules")
def update_rule(name: NamePath, body: RulePatch, author: Admin, database: Database) -> ToolRuleOut:
    rules = body.rules.model_dump(mode="json")
    with database.session() as session:
        return ToolRuleOut.model_validate(mcp.set_object(session, author, mcp.TOOL_RULES, name, rules))


@rules_router.delete("/{name}", summary="Delete a tool rule")
def delete_rule(name: NamePath, author: Admin, database: Database) -> Deleted:
    with database.session() as session:
        mcp.delete_object(session, author, mcp.TOOL_RULES, name)
    return Deleted(id=name)


def _sound(rules: ServerRules, references: ReferenceRules) -> dict[str, Any]:
    """Return rules whose references are allowed. Raises InvalidRequest."""
    # Gateways of the release before know no pins: they read the rules of all servers that have none.
    given = rules.model_dump(mode="json", exclude=None if rules.pins else {"pins"})
    oauth = rules.oauth
    credentials = {} if oauth is None else oauth_credentials(oauth.client_secret, oauth.refresh_token)
    settings = {"headers": rules.headers, "tls": rules.tls, "credentials": credentials}
    try:
        references.check_target("mcp", rules.key, settings)
    except ConfigurationError as error:
        raise InvalidRequest(error.message, param="rules") from error
    return given


router = APIRouter()
router.include_router(servers_router)
router.include_router(rules_router)
