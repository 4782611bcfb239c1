"""The MCP servers of the newest snapshot: their clients, their tools, and which of these a caller may use."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import msgspec

from backends.mcp.client import McpClient
from backends.mcp.definitions import MAX_TOOLS, ToolDefinition, is_tool_word
from backends.mcp.token_store import TokenStore
from backends.secrets.credential_references import ReferenceRules
from contracts.access.identity import Identity
from contracts.errors import TargetMisconfigured, TollkeeperError
from contracts.mcp.servers import McpServerSpec, ToolAccess, ToolRule, full_name
from contracts.serving.configuration import KeyEntry, Snapshot
from gateway.config.targets import resolve_key
from gateway.request.clock import Clock

_log = logging.getLogger(__name__)

_FRESH_NS: Final = 60_000_000_000  # a list older than this is read again, behind the request that finds it so
_RETRY_NS: Final = 5_000_000_000  # between two tries at a list that could not be had
_LIST_SECONDS: Final = 3.0  # for which a list of all servers waits for one that has not answered yet
_FORGET_NS: Final = 600_000_000_000  # the last list of a server that has been away for longer is not shown any more
_MAX_CALLERS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool, as callers see it."""

    name: str  # full
    server: McpServerSpec
    definition: ToolDefinition
    fault: str = ""  # why nobody knows whether there is one: the server's list could never be read

    def with_fields(self, fields: dict[str, Any]) -> "Tool":
        """Return a copy of the tool with other fields in its definition."""
        return replace(self, definition=msgspec.structs.replace(self.definition, fields=fields))


@dataclass(slots=True)
class ServerState:
    """One server: its client, and the last list of its tools."""

    spec: McpServerSpec
    client: McpClient | None  # none: it cannot be used, `fault` says why
    fault: str = ""
    tools: Mapping[str, ToolDefinition] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    known: dict[str, str] = field(default_factory=dict)  # the last fingerprint of each tool, also of one that is gone
    changes: int = 0  # of definitions that were known
    read_ns: int | None = None  # monotonic: when the list was last had
    tried_ns: int | None = None
    reading: "asyncio.Task[None] | None" = None
    is_slow: bool = False  # its list was not there when a list of many servers had waited long enough


class McpServers:
    """All configured servers, and the tools that each caller may use."""

    def __init__(
        self,
        clock: Clock,
        open_sealed: Callable[[str], str] | None = None,
        rules: ReferenceRules | None = None,  # for references; none: all are the operator's own
        tools_socket: str = "",  # where a tool host listens
        token_store: TokenStore | None = None,  # for OAuth's refresh grants
    ) -> None:
        self._clock = clock
        self._tools_socket = tools_socket
        self._token_store = token_store
        self._rules = rules
        self._resolve = partial(resolve_key, open_sealed=open_sealed, rules=rules)
        self._states: dict[str, ServerState] = {}
        self._rule_set: tuple[ToolRule, ...] = ()
        self._access: OrderedDict[tuple[str, str, str, str], ToolAccess] = OrderedDict()  # of these rules, by caller
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def is_empty(self) -> bool:
        """Return whether no server is configured."""
        return not self._states

    def sync(self, snapshot: Snapshot, *, strict: bool = False) -> None:
        """Build clients of new servers, close those of removed ones.

        A server that cannot be used raises ConfigurationError if `strict` (from a file), and nothing is changed;
        otherwise it is logged, and its tools are neither listed nor callable.
        """
        built: dict[str, ServerState] = {}
        for name, spec in snapshot.mcp_servers.items():
            known = self._states.get(name)
            if known is not None and known.spec == spec and known.client is not None:
                continue
            try:
                built[name] = ServerState(spec, self._build(spec))
            except TollkeeperError as error:
                if strict:
                    for state in built.values():
                        self._close(state)
                    raise
                _log.error("MCP server cannot be used", extra={"server": name, "reason": error.message})
                built[name] = ServerState(spec, None, error.message)
        for name, state in self._states.items():
            if name in built or name not in snapshot.mcp_servers:
                self._close(state)
        self._states = {name: built.get(name) or self._states[name] for name in sorted(snapshot.mcp_servers)}

    def client(self, name: str) -> McpClient:
        """Return a server's client. Raise TargetMisconfigured if it cannot be used."""
        state = self._states.get(name)
        if state is None or state.client is None:
            raise TargetMisconfigured(f"the MCP server {name!r} cannot be used: {'' if state is None else state.fault}")
        return state.client

    def has(self, name: str) -> bool:
        """Return whether a server of this name is configured."""
        return name in self._states

    async def find(self, key: KeyEntry, server: str, name: str, snapshot: Snapshot) -> Tool | None:
        """Return the tool that a server calls `name`; `None` if it does not exist or the caller may not use it."""
        state = self._states.get(server)
        if state is None or state.client is None:
            return None
        access = self._access_of(key.identity, snapshot.mcp_rules)
        if not access.allows(state.spec, full_name(server, name)):
            return None
        if name not in state.tools or self._is_stale(state):
            await self._refresh(state, must_have=name)
        definition = state.tools.get(name)
        if definition is not None:
            return Tool(full_name(server, name), state.spec, definition)
        if state.read_ns is None and is_tool_word(name):
            fault = state.fault or "it has not answered yet"
            return Tool(full_name(server, name), state.spec, ToolDefinition(name, {}), fault)
        return None

    async def listed(self, key: KeyEntry, server: str, snapshot: Snapshot) -> list[Tool]:
        """Return the tools that a caller may use, ordered by server. `server`: only this server's; empty means all
        servers.

        A server whose tools cannot be listed is left out.
        """
        states = [state for state in self._states.values() if not server or state.spec.id == server]
        stale = [state for state in states if self._is_stale(state)]
        await asyncio.gather(*(self._refresh(state, is_one_of_many=not server) for state in stale))
        access = self._access_of(key.identity, snapshot.mcp_rules)
        found = []
        for state in states:
            if state.read_ns is None or self._clock.monotonic_ns() - state.read_ns > _FORGET_NS:
                continue
            for tool in state.tools.values():
                name = full_name(state.spec.id, tool.name)
                if access.allows(state.spec, name):
                    found.append(Tool(name, state.spec, tool))
        return found

    def states(self) -> list[dict[str, object]]:
        """Return the servers' states for GET /ready."""
        return [
            {
                "server": state.spec.id,
                "tools": len(state.tools),
                "fault": state.fault or ("" if state.client is None else state.client.fault),
                "left_out": len(state.left_out),
                "changes": state.changes,
            }
            for state in self._states.values()
        ]

    async def close(self) -> None:
        """Close all clients."""
        for state in self._states.values():
            self._close(state)
        self._states = {}
        await asyncio.gather(*self._closing, return_exceptions=True)
        if self._token_store is not None:
            self._token_store.close()

    def _access_of(self, who: Identity, rules: tuple[ToolRule, ...]) -> ToolAccess:
        if rules is not self._rule_set:
            self._rule_set = rules
            self._access.clear()
        name = (who.tenant, who.team, who.project, who.key_id)
        access = self._access.get(name)
        if access is None:
            access = self._access[name] = ToolAccess(rules, who)
            if len(self._access) > _MAX_CALLERS:
                self._access.popitem(last=False)
        return access

    def _is_stale(self, state: ServerState) -> bool:
        now_ns = self._clock.monotonic_ns()
        if state.client is None or (state.tried_ns is not None and now_ns - state.tried_ns < _RETRY_NS):
            return False
        return state.read_ns is None or now_ns - state.read_ns > _FRESH_NS

    async def _refresh(self, state: ServerState, must_have: str = "", *, is_one_of_many: bool = False) -> None:
        """Read a server's list again; wait for it only if there is none yet, or it lacks a requested tool.

        A list of many servers waits a moment for each, and not at all for one that did not answer last time.
        """
        now_ns = self._clock.monotonic_ns()
        if state.reading is None or state.reading.done():
            if state.tried_ns is not None and now_ns - state.tried_ns < _RETRY_NS:
                return
            state.tried_ns = now_ns
            state.reading = asyncio.get_running_loop().create_task(self._read(state), name=f"tools {state.spec.id}")
        is_missing = state.read_ns is None or (must_have and must_have not in state.tools)
        if is_missing and not (is_one_of_many and state.is_slow):
            await asyncio.wait((state.reading,), timeout=_LIST_SECONDS if is_one_of_many else None)
            state.is_slow = is_one_of_many and not state.reading.done()

    async def _read(self, state: ServerState) -> None:
        assert state.client is not None
        try:
            tools, left_out = await state.client.list_tools()
        except (TollkeeperError, msgspec.MsgspecError, TimeoutError) as error:
            reason = error.log_message if isinstance(error, TollkeeperError) else type(error).__name__
            if reason != state.fault:
                _log.warning("MCP server's tools cannot be read", extra={"server": state.spec.id, "reason": reason})
            state.fault = reason
            return
        _note_changes(state, tools)
        pins = state.spec.pins
        if pins:
            unpinned = [tool for tool in tools if pins.get(tool.name) != tool.fingerprint]
            left_out = [
                f"{tool.name}: not as it is pinned (fingerprint {tool.fingerprint})" for tool in unpinned
            ] + left_out
            tools = [tool for tool in tools if pins.get(tool.name) == tool.fingerprint]
        state.tools = {tool.name: tool for tool in tools}
        if tuple(left_out) != state.left_out and left_out:
            _log.warning("MCP server's tools left out", extra={"server": state.spec.id, "reasons": left_out[:10]})
        state.left_out, state.fault = tuple(left_out), ""
        state.read_ns = self._clock.monotonic_ns()
        state.is_slow = False

    def _build(self, spec: McpServerSpec) -> McpClient:
        if self._rules is not None:
            self._rules.check_target("mcp", spec.key_ref, spec.settings)
        return McpClient(spec, self._resolve, self._tools_socket, self._token_store)

    def _close(self, state: ServerState) -> None:
        loop = asyncio.get_running_loop()
        if state.reading is not None:
            state.reading.cancel()
        if state.client is not None:
            task = loop.create_task(state.client.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


def _note_changes(state: ServerState, tools: Sequence[ToolDefinition]) -> None:
    """Count and log definitions that are not what they were: models follow them, and nobody reads them again."""
    changed = [one for one in tools if state.known.get(one.name, one.fingerprint) != one.fingerprint]
    state.changes += len(changed)
    if changed:
        told = [f"{one.name}: {state.known[one.name]} to {one.fingerprint}" for one in changed[:10]]
        _log.warning("MCP server changed its tools", extra={"server": state.spec.id, "definitions": told})
    if len(state.known) > MAX_TOOLS:  # a server that renames them again and again
        state.known.clear()
    state.known.update({one.name: one.fingerprint for one in tools})
