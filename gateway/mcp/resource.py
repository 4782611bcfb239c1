"""`/mcp`: the tools of all MCP servers, and `/mcp/NAME`: those of one server under their own names."""

import re
from typing import Any, Final

import msgspec

from contracts.access.endpoints import Endpoint
from contracts.errors import MethodNotAllowed, NotFound, TollkeeperError
from contracts.mcp.servers import SEPARATOR
from contracts.mcp.wire import INVALID_PARAMS, LEGACY, METHOD_NOT_FOUND, MODERN, VERSIONS
from contracts.serving.configuration import KeyEntry, Snapshot
from gateway.mcp.rendering import FINGERPRINT_KEY, MCP_ERRORS, SERVER_INFO, rendered_error, rendered_result
from gateway.mcp.request import Message, RpcFault, check_origin, id_of, read_message, revision_of
from gateway.mcp.screening import screened_tools
from gateway.mcp.servers import McpServers, Tool
from gateway.mcp.tool_call import ToolCalls
from gateway.replies.reply import JSON
from gateway.request.clock import Clock
from gateway.request.stages import Stages
from gateway.wire.exchange import Exchange, Headers

PATH: Final = "/mcp"
_ONE: Final = re.compile(r"/mcp/([a-z0-9-]{1,32})/?")
_LIST_TTL_MS: Final = 1000  # within which a client may go by a list that a change has made wrong
_MAX_SHOWN: Final = 160
_INSTRUCTIONS: Final = "Tools of several servers. The part of a name before the first '__' is the server's."


class McpResource:
    """Answers MCP clients of both protocol generations (with and without sessions). The gateway keeps no session."""

    endpoint: Endpoint = "mcp"
    errors = MCP_ERRORS

    def __init__(self, stages: Stages, servers: McpServers, clock: Clock) -> None:
        self._servers = servers
        self._limiter = stages.limiter
        self._guardrails = stages.guardrails
        self._calls = ToolCalls(stages, servers, clock)

    def methods(self, path: str) -> tuple[str, ...]:
        """Return the methods that a path answers: there is no stream to GET and no session to DELETE."""
        return ("POST",) if path == PATH or _ONE.fullmatch(path) else ()

    async def answer(self, exchange: Exchange, key: KeyEntry, snapshot: Snapshot) -> None:
        """Answer one message. Errors that the protocol can express are sent as its errors, and not raised."""
        try:
            await self._answer(exchange, key, snapshot)
        except RpcFault as fault:
            body = rendered_error(id_of(exchange.body), fault.code, fault.message, fault.data)
            exchange.send(fault.status, JSON, body, _identified(exchange))
        except (MethodNotAllowed, NotFound):
            raise
        except TollkeeperError as error:
            body = rendered_error(id_of(exchange.body), error.status, error.message, {"code": error.error_code})
            exchange.send(error.status, JSON, body, _identified(exchange))

    async def _answer(self, exchange: Exchange, key: KeyEntry, snapshot: Snapshot) -> None:
        check_origin(exchange)
        one = _ONE.fullmatch(exchange.path)
        server = "" if one is None else one.group(1)
        if server and not self._servers.has(server):
            raise NotFound(f"there is no MCP server {server!r}")
        message = read_message(exchange)
        revision = revision_of(exchange, message)
        if message.is_notification:
            exchange.send(202, JSON, b"", _identified(exchange))
            return
        if message.method == "tools/call":
            tool = await self._tool(key, server, message.params.name, snapshot)
            if tool is not None:
                _check_arguments(message, revision)
                await self._calls.serve(exchange, key, snapshot, message, tool, revision)
                return
        async with self._limiter.counting(key.identity, "", snapshot):
            result = await self._result(message, key, server, snapshot, revision)
        exchange.send(200, JSON, rendered_result(message.id, result, revision), _identified(exchange))

    async def _tool(self, key: KeyEntry, server: str, name: str, snapshot: Snapshot) -> Tool | None:
        if server:
            return await self._servers.find(key, server, name, snapshot)
        prefix, separator, own = name.partition(SEPARATOR)
        return await self._servers.find(key, prefix, own, snapshot) if separator else None

    async def _result(
        self, message: Message, key: KeyEntry, server: str, snapshot: Snapshot, revision: str
    ) -> dict[str, Any]:
        """Return the answer to a request that calls no tool. Raises RpcFault."""
        method, is_modern = message.method, revision == MODERN
        if method == "tools/list":
            tools = await self._servers.listed(key, server, snapshot)
            if snapshot.guardrails:
                tools = await screened_tools(self._guardrails, key.identity.tenant, tools)
            shown = [_shown(tool, is_alone=bool(server)) for tool in tools]
            return {"tools": shown, **(_cached() if is_modern else {})}
        if method == "tools/call":
            # The same for one that is denied: who may not use a tool learns nothing of it.
            raise RpcFault(
                400 if is_modern else 200, INVALID_PARAMS, f"Unknown tool: {message.params.name[:_MAX_SHOWN]}"
            )
        if method == "server/discover" and is_modern:
            return {
                "supportedVersions": list(VERSIONS),
                "capabilities": {"tools": {}},
                "instructions": _INSTRUCTIONS,
                **_cached(),
            }
        if method == "initialize" and not is_modern:
            wanted = message.params.protocol_version
            return {
                "protocolVersion": wanted if wanted in LEGACY else LEGACY[0],
                "capabilities": {"tools": {}},
                "serverInfo": SERVER_INFO,
                "instructions": _INSTRUCTIONS,
            }
        if method == "ping" and not is_modern:
            return {}
        raise RpcFault(404 if is_modern else 200, METHOD_NOT_FOUND, f"Method not found: {method[:_MAX_SHOWN]}")


def _check_arguments(message: Message, revision: str) -> None:
    """Raise RpcFault if a call's arguments are not an object; null and none at all are allowed."""
    given = message.params.arguments
    if isinstance(given, msgspec.Raw) and bytes(given)[:1] not in (b"{", b"n"):
        raise RpcFault(
            400 if revision == MODERN else 200,
            INVALID_PARAMS,
            f"the arguments of {message.params.name[:_MAX_SHOWN]!r} must be an object",
        )


def _shown(tool: Tool, *, is_alone: bool) -> dict[str, Any]:
    """Return a definition as clients see it; of a server that is shown alone with the fingerprint that pins it."""
    fields = tool.definition.fields
    if not is_alone:
        return {"name": tool.name, **fields}
    given = fields.get("_meta")
    meta = given if isinstance(given, dict) else {}
    return {
        "name": tool.definition.name,
        **fields,
        "_meta": {**meta, FINGERPRINT_KEY: tool.definition.fingerprint},
    }


def _cached() -> dict[str, object]:
    return {"ttlMs": _LIST_TTL_MS, "cacheScope": "private"}


def _identified(exchange: Exchange) -> Headers:
    return ((b"x-request-id", exchange.request_id),)
