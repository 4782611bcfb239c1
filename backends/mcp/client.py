"""A client of one MCP server over streamable HTTP, which detects the server's protocol revision.

Redirects are not followed: only the operator decides the server's address. Legacy servers get a session per caller, so
that callers of a stateful server are isolated from each other.
"""

import asyncio
import itertools
import logging
import re
import ssl
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from backends.http_client.http_origin import Origin
from backends.http_client.http_pool import HttpPool
from backends.http_client.http_timeouts import Timeouts
from backends.llm.http.http_credentials import HttpCredentials
from backends.llm.http.http_settings import read_headers, read_tls
from backends.mcp.definitions import MAX_LIST_BYTES, MAX_TOOLS, ToolDefinition, UnusableTool, read_definition
from backends.mcp.reply import McpReply, too_large
from backends.mcp.token_store import TokenStore
from backends.processes.running_time import RunningTimeout
from contracts.errors import (
    TargetMisconfigured,
    UpstreamBroken,
    UpstreamError,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamTimeout,
)
from contracts.mcp.servers import STDIO, McpServerSpec
from contracts.mcp.wire import (
    CAPABILITIES_KEY,
    CLIENT_KEY,
    LEGACY,
    METHOD_NOT_FOUND,
    MODERN,
    UNSUPPORTED_VERSION,
    VERSION_KEY,
    RpcError,
    RpcMessage,
    header_value,
)
from contracts.serving.configuration import TargetSpec

if TYPE_CHECKING:  # imported where it is used
    from backends.mcp.access_tokens import AccessTokens

_log = logging.getLogger(__name__)

_CONNECT_SECONDS: Final = 5.0
_HANDSHAKE_SECONDS: Final = 15.0
_LIST_SECONDS: Final = 15.0
_AFTER_ANSWER_SECONDS: Final = 0.25  # how long a stream may continue after its response
_SMALL_BYTES: Final = 64 * 1024  # maximum size of replies other than results of tool calls
_MAX_SESSIONS: Final = 512
_MAX_REFUSALS: Final = 16  # answers to server requests in flight; further requests get no answer
_MAX_PAGES: Final = 100
_CLIENT: Final = {"name": "tollkeeper", "version": "1"}
_MIN_SECRET: Final = 8  # characters; shorter ones occur in ordinary words
_METADATA: Final = re.compile(rb'\bresource_metadata="([\x21\x23-\x5b\x5d-\x7e]{1,1000})"', re.IGNORECASE)
_EMPTY: Final[dict[str, Any]] = {}

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


_INTERNAL_ERROR: Final = RpcError(-32603)  # the code of JSON-RPC 2.0


class McpFailure(UpstreamError):
    """The server returned a JSON-RPC error: the tool did not run, or failed."""

    code = "mcp_server_error"

    def __init__(self, message: str, error: RpcError = _INTERNAL_ERROR) -> None:
        super().__init__(message)
        self.rpc = error
        self.quote = error.message[:500]


class _SessionLost(Exception):
    """The server does not know the session any more; a new one must be opened."""


class _OtherEra(Exception):
    """The server's answer shows that it speaks another revision than assumed."""


class _TokenRefused(Exception):
    """The server answered 401 to an access token, or to a request without one."""

    def __init__(self, token: str, challenge: bytes) -> None:
        super().__init__()
        self.token = token
        self.hint = _metadata_address(challenge)


class Sent(msgspec.Struct):
    """Options of one request besides its parameters."""

    caller: str = ""  # whose session is used
    name: str = ""  # for the Mcp-Name header
    headers: tuple[tuple[str, str], ...] = ()  # Mcp-Param-*
    trace: str = ""  # header lines
    capabilities: Any = None  # the client's own
    on_notification: Callable[[str, bytes], None] | None = None


class _Session:
    """A legacy session, opened by the first call that needs it."""

    __slots__ = ("id", "is_open", "lock", "version")

    def __init__(self) -> None:
        self.id = ""
        self.version = LEGACY[0]
        self.is_open = False
        self.lock = asyncio.Lock()


class McpClient:
    """Client of one server, for use on one event loop."""

    def __init__(
        self,
        spec: McpServerSpec,
        resolve: Callable[[str], str],
        tools_socket: str = "",
        token_store: TokenStore | None = None,
    ) -> None:
        """`tools_socket` is the socket of a tool host, which starts servers whose url begins with `stdio:`.

        `token_store` stores tokens of OAuth refresh grants. Raises ConfigurationError if the address, a header or a
        credential is invalid.
        """
        self.spec = spec
        url = f"http://tools/{spec.url.removeprefix(STDIO)}" if spec.is_stdio else spec.url
        as_target = TargetSpec(spec.id, "", "mcp", url=url, key_ref=spec.key_ref, settings=spec.settings)
        origin = Origin.parse(url)
        tls, server_name = read_tls(as_target, is_https=origin.scheme == "https")
        longest = max(spec.longest_timeout_seconds, _HANDSHAKE_SECONDS) + 5.0
        timeouts = Timeouts(connect=_CONNECT_SECONDS, first_byte=longest, between=longest, total=longest)
        self._pool = HttpPool(origin, timeouts, tls, server_name, socket_path=tools_socket if spec.is_stdio else "")
        self._path = (origin.prefix or "") + ("/" if url.endswith("/") or not origin.prefix else "")
        self._credentials = HttpCredentials(as_target, read_headers(as_target), resolve)
        self._credentials.watch(lambda: None)
        self._tokens = _access_tokens(spec, resolve, tls, token_store)
        self._ids = itertools.count(1)
        self._is_modern: bool | None = None
        self._probing = asyncio.Lock()
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._has_sessions = True  # until a legacy server opens one without an id
        self._refusals: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(spec.max_concurrent)

    @property
    def is_modern(self) -> bool | None:
        """Return whether the server speaks 2026-07-28; `None` before the first request."""
        return self._is_modern

    @property
    def is_full(self) -> bool:
        """Return whether the maximum number of calls is in progress."""
        return self._room.locked()

    async def list_tools(self) -> tuple[list[ToolDefinition], list[str]]:
        """Return the usable tools in the server's order, and the reasons why others are left out. Raises
        UpstreamError.
        """
        found: dict[str, ToolDefinition] = {}
        faults: list[str] = []
        cursor, size = "", 0
        end = asyncio.get_running_loop().time() + _LIST_SECONDS
        for _ in range(_MAX_PAGES):
            params = {"cursor": cursor} if cursor else {}
            left = max(end - asyncio.get_running_loop().time(), 0.001)
            result = await self._request("tools/list", params, Sent(), MAX_LIST_BYTES, left)
            size += len(result)
            page = _decode(result)
            listed = page.get("tools") if isinstance(page, dict) else None
            if not isinstance(listed, list):
                raise UpstreamBroken("the MCP server's list of tools is not a list")
            for given in listed:
                _take_definition(given, found, faults)
            cursor = page.get("nextCursor")
            if not cursor:
                break
            if not isinstance(cursor, str) or size > MAX_LIST_BYTES or len(found) + len(faults) > MAX_TOOLS:
                faults.append(f"the list goes on beyond {MAX_TOOLS} tools or {MAX_LIST_BYTES} bytes")
                break
        return list(found.values()), faults[:100]

    async def call(
        self, method: str, params: dict[str, Any], sent: Sent, max_bytes: int, timeout_seconds: float
    ) -> bytes:
        """Return the result of a request as JSON. Raises UpstreamError; cancelling the wait closes the connection."""
        if self._room.locked():
            raise UpstreamOverloaded(
                f"the MCP server {self.spec.id!r} has {self.spec.max_concurrent} calls in progress, its maximum "
                "(max_concurrent); try again later",
                retry_after_seconds=1.0,
            )
        async with self._room:
            result = await self._request(method, params, sent, max_bytes, timeout_seconds)
        if len(result) > max_bytes:
            raise too_large(max_bytes)
        return result

    async def close(self) -> None:
        """Close all connections to the server."""
        await self._credentials.close()
        for task in self._refusals:
            task.cancel()
        await asyncio.gather(*self._refusals, return_exceptions=True)
        if self._tokens is not None:
            await self._tokens.close()
        await self._pool.close()

    @property
    def fault(self) -> str:
        """Return why changed credentials are not in use, or why there is no access token; empty if there is
        no problem.
        """
        return self._credentials.fault or ("" if self._tokens is None else self._tokens.fault)

    async def _request(
        self, method: str, params: dict[str, Any], sent: Sent, max_bytes: int, timeout_seconds: float
    ) -> bytes:
        try:
            async with RunningTimeout(timeout_seconds) as deadline:
                is_renewed = False
                for _ in range(4):
                    refusal: _TokenRefused | None = None
                    try:
                        if self._is_modern is None:
                            await self._probe()
                        if self._is_modern:
                            return await self._modern(method, params, sent, max_bytes, deadline)
                        return await self._legacy(method, params, sent, max_bytes, deadline)
                    except _OtherEra:
                        self._is_modern = None
                    except _SessionLost:
                        self._sessions.pop(self._session_name(sent.caller), None)
                    except _TokenRefused as error:
                        refusal = error
                    if refusal is not None and self._tokens is not None:
                        if is_renewed:
                            _check_access(self.spec.id, 401)
                        is_renewed = True
                        await self._tokens.renew(refusal.token, refusal.hint)
                raise UpstreamBroken(f"the MCP server {self.spec.id!r} ended its session again and again")
        except TimeoutError:
            raise UpstreamTimeout(
                f"the MCP server {self.spec.id!r} did not answer within {timeout_seconds:g} s"
            ) from None

    # Detection of the revision.

    async def _probe(self) -> None:
        async with self._probing:
            if self._is_modern is not None:
                return
            reply, message = await self._exchange("server/discover", self._with_meta({}, None), (), _SMALL_BYTES)
            _check_access(self.spec.id, reply.status)
            result = None if message is None or message.result is msgspec.UNSET else _decode(message.result)
            versions = result.get("supportedVersions") if isinstance(result, dict) else None
            self._is_modern = isinstance(versions, list) and MODERN in versions

    def _with_meta(self, params: Mapping[str, Any], capabilities: object) -> dict[str, Any]:
        given = params.get("_meta")
        own = {
            VERSION_KEY: MODERN,
            CLIENT_KEY: _CLIENT,
            CAPABILITIES_KEY: capabilities if isinstance(capabilities, dict) else _EMPTY,
        }
        return {**params, "_meta": {**given, **own} if isinstance(given, dict) else own}

    # The modern revision.

    async def _modern(
        self, method: str, params: dict[str, Any], sent: Sent, max_bytes: int, deadline: RunningTimeout
    ) -> bytes:
        headers = sent.headers
        if sent.name:
            headers = (("mcp-name", header_value(sent.name)), *headers)
        reply, message = await self._exchange(
            method, self._with_meta(params, sent.capabilities), headers, max_bytes, sent, deadline
        )
        if message is None:
            _check_access(self.spec.id, reply.status)
            if reply.status in (400, 404, 405):
                raise _OtherEra
            raise self._unreadable(reply)
        if isinstance(message.error, RpcError) and message.error.code == UNSUPPORTED_VERSION:
            raise _OtherEra
        return self._result_of(message)

    # The legacy revisions.

    async def _legacy(
        self, method: str, params: dict[str, Any], sent: Sent, max_bytes: int, deadline: RunningTimeout
    ) -> bytes:
        session = await self._session(sent.caller)
        reply, message = await self._exchange(method, params, (), max_bytes, sent, deadline, session)
        if message is None:
            _check_access(self.spec.id, reply.status)
            if reply.status == 404 and session.id:
                raise _SessionLost
            raise self._unreadable(reply)
        if reply.status == 404 and session.id:
            raise _SessionLost
        return self._result_of(message)

    def _session_name(self, caller: str) -> str:
        return caller if self._has_sessions else ""

    async def _session(self, caller: str) -> _Session:
        name = self._session_name(caller)
        session = self._sessions.get(name)
        if session is None:
            session = self._sessions[name] = _Session()
            if len(self._sessions) > _MAX_SESSIONS:
                self._sessions.popitem(last=False)
        else:
            self._sessions.move_to_end(name)
        if not session.is_open:
            async with session.lock:
                if not session.is_open:
                    await self._open(session)
        return session

    async def _open(self, session: _Session) -> None:
        params = {"protocolVersion": LEGACY[0], "capabilities": {}, "clientInfo": _CLIENT}
        reply, message = await self._exchange("initialize", params, (), _SMALL_BYTES, session=session)
        _check_access(self.spec.id, reply.status)
        if message is None:
            raise self._unreadable(reply)
        result = _decode(self._result_of(message))
        version = result.get("protocolVersion") if isinstance(result, dict) else None
        if version not in LEGACY:
            raise TargetMisconfigured(
                f"the MCP server {self.spec.id!r} speaks revision {str(version)[:40]!r} of the protocol; the gateway "
                f"speaks {MODERN}, {', '.join(LEGACY)}"
            )
        session.version, session.id = version, reply.session
        self._has_sessions = bool(reply.session)
        await self._notify("notifications/initialized", {}, session)
        session.is_open = True

    # Both.

    async def _exchange(
        self,
        method: str,
        params: Mapping[str, Any],
        headers: tuple[tuple[str, str], ...],
        max_bytes: int,
        sent: Sent | None = None,
        deadline: RunningTimeout | None = None,
        session: _Session | None = None,
    ) -> tuple[McpReply, RpcMessage | None]:
        if deadline is None:
            async with RunningTimeout(_HANDSHAKE_SECONDS) as own:
                return await self._exchange(method, params, headers, max_bytes, sent, own, session)
        id, until = next(self._ids), deadline
        body = _encode({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        reply = McpReply(
            id,
            max_bytes,
            None if sent is None else sent.on_notification,
            lambda asked, asks: self._refuse(asked, asks, session),
            lambda: until.restart(_AFTER_ANSWER_SECONDS),
            self._without_secrets,
        )
        token = "" if self._tokens is None else await self._tokens.current()
        head = self._head(method, headers, len(body), session, "" if sent is None else sent.trace, token)
        exchange = await self._pool.send(head, body, reply)
        try:
            await exchange.finished()
        except UpstreamError:
            if reply.answer is None:
                raise
        except asyncio.CancelledError:
            if reply.answer is None or not deadline.is_expired:
                raise  # the caller was cancelled, or the time limit passed
        if self._tokens is not None:
            if reply.status == 401:
                raise _TokenRefused(token, reply.challenge)
            self._tokens.note_accepted(token)
        return reply, reply.conclude()

    def _without_secrets(self, message: bytes) -> bytes:
        """Return a message without the gateway's credentials, which a server might echo to callers."""
        known = self._credentials.secrets if self._tokens is None else self._credentials.secrets + self._tokens.values
        for secret in known:
            if len(secret) >= _MIN_SECRET and (found := secret.encode()) in message:
                message = message.replace(found, b"[secret]")
        return message

    def _head(
        self,
        method: str,
        headers: tuple[tuple[str, str], ...],
        length: int,
        session: _Session | None,
        trace: str,
        token: str,
    ) -> bytes:
        if token:
            trace = f"authorization: Bearer {token}\r\n{trace}"
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
        if session is None:
            lines += f"mcp-protocol-version: {MODERN}\r\nmcp-method: {method}\r\n"
        elif session.is_open or session.id:
            lines += f"mcp-protocol-version: {session.version}\r\n"
            if session.id:
                lines += f"mcp-session-id: {session.id}\r\n"
        return (
            f"POST {self._path} HTTP/1.1\r\nhost: {self._pool.origin.authority}\r\n{self._credentials.lines}"
            "content-type: application/json\r\naccept: application/json, text/event-stream\r\n"
            f"accept-encoding: identity\r\n{lines}{trace}content-length: {length}\r\n\r\n"
        ).encode("latin-1")

    async def _notify(self, method: str, params: Mapping[str, Any], session: _Session) -> None:
        await self._post_only({"jsonrpc": "2.0", "method": method, "params": params}, session)

    async def _post_only(self, message: Mapping[str, Any], session: _Session | None) -> None:
        body = _encode(message)
        reply = McpReply(None, _SMALL_BYTES)
        token = "" if self._tokens is None else self._tokens.held
        exchange = await self._pool.send(self._head("", (), len(body), session, "", token), body, reply)
        await exchange.finished()

    def _refuse(self, id: int | str, method: str, session: _Session | None) -> None:
        """Answer a request that a server makes of its client: only `ping` is supported."""
        if session is None or len(self._refusals) >= _MAX_REFUSALS:
            return
        body: dict[str, Any] = {"jsonrpc": "2.0", "id": id}
        if method == "ping":
            body["result"] = {}
        else:
            body["error"] = {"code": METHOD_NOT_FOUND, "message": f"the gateway offers no {method[:80]}"}
        task = asyncio.get_running_loop().create_task(self._tell(body, session))
        self._refusals.add(task)
        task.add_done_callback(self._refusals.discard)

    async def _tell(self, body: Mapping[str, Any], session: _Session) -> None:
        try:
            async with RunningTimeout(_HANDSHAKE_SECONDS):
                await self._post_only(body, session)
        except (UpstreamError, TimeoutError) as error:
            _log.info("MCP server's request not answered", extra={"server": self.spec.id, "reason": str(error)})

    def _result_of(self, message: RpcMessage) -> bytes:
        if isinstance(message.error, RpcError):
            error = message.error
            said = f"the MCP server {self.spec.id!r} reported error {error.code}: {error.message[:500]}"
            raise McpFailure(said, error)
        assert isinstance(message.result, msgspec.Raw)
        return bytes(message.result)

    def _unreadable(self, reply: McpReply) -> UpstreamError:
        server, status = self.spec.id, reply.status
        if 300 <= status < 400:
            return UpstreamBroken(
                f"the MCP server {server!r} redirects (status {status}), which the gateway does not follow; set the "
                "final address as its url",
                code="mcp_server_redirects",
            )
        if status == 429:
            return UpstreamRateLimited(f"the MCP server {server!r} refuses further calls (status 429)")
        if status == 200:
            return UpstreamBroken(f"the MCP server {server!r} sent no response that can be read")
        return UpstreamBroken(f"the MCP server {server!r} answered with status {status}")


def _take_definition(given: object, found: dict[str, ToolDefinition], faults: list[str]) -> None:
    try:
        tool = read_definition(given)
        if tool.name in found:
            raise UnusableTool("its name is given twice")
        if len(found) >= MAX_TOOLS:
            raise UnusableTool(f"the server has more than {MAX_TOOLS} tools")
    except UnusableTool as reason:
        name = given.get("name") if isinstance(given, dict) else None
        if len(faults) <= MAX_TOOLS:
            faults.append(f"tool {str(name)[:80]!r} is left out: {reason}")
        return
    found[tool.name] = tool


def _access_tokens(
    spec: McpServerSpec, resolve: Callable[[str], str], tls: ssl.SSLContext | None, store: TokenStore | None
) -> "AccessTokens | None":
    if spec.oauth is None:
        return None
    from backends.mcp.access_tokens import AccessTokens  # here: most gateways need no further HTTP client
    from backends.mcp.oauth_http import OAuthHttp

    stated = (spec.url, spec.oauth.issuer, spec.oauth.token_url)
    return AccessTokens(spec, resolve, OAuthHttp(stated, tls if spec.settings.get("tls") else None), store)


def _metadata_address(challenge: bytes) -> str:
    """Return the URL of the metadata in a WWW-Authenticate header (RFC 9728, section 5.1); empty if there is none."""
    found = _METADATA.search(challenge)
    return found.group(1).decode("ascii") if found is not None else ""


def _check_access(server: str, status: int) -> None:
    if status in (401, 403):
        raise TargetMisconfigured(f"the MCP server {server!r} refuses the gateway's credentials (status {status})")
