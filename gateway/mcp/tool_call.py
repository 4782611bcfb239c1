"""One tool call: admission, reservation, guardrails, call, guardrails, settlement, record.

It has the stages of a model's request, in the same order and with the same components. Its price is reserved from every
limit and budget that covers it before the server is called. It leaves one record, whose operation is `execute_tool` and
whose model is the tool.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, NoReturn

import msgspec

from backends.mcp.client import McpFailure, Sent
from backends.mcp.definitions import broken_promise
from backends.mcp.reply import TOO_LARGE
from contracts.api.answer_parts import Findings
from contracts.errors import (
    ClientGone,
    GatewayFault,
    PermissionDenied,
    TargetMisconfigured,
    TollkeeperError,
    UpstreamBroken,
    UpstreamError,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from contracts.mcp.wire import (
    CAPABILITIES_KEY,
    INVALID_PARAMS,
    MISSING_CAPABILITY,
    MODERN,
    RESERVED_META,
    SERVER_KEY,
    at_path,
    header_value,
    parameter_text,
)
from contracts.metering.usage import Usage
from contracts.pricing.prices import FREE_OF_CHARGE, UNPRICED, Cost
from contracts.recording.ids import uuid7
from contracts.serving.configuration import KeyEntry, ModelSpec, Snapshot, TargetSpec
from gateway.apis.operations import Operation
from gateway.apis.reading import read_retries
from gateway.guardrails.guardrails import Guardrails
from gateway.limits.limiter import Limiter
from gateway.mcp.rendering import EVENT_STREAM, MCP_ERRORS, OUR_META, event, rendered_error, rendered_result, tool_error
from gateway.mcp.request import Message, session_label
from gateway.mcp.screening import check_definition, screened
from gateway.mcp.servers import McpServers, Tool
from gateway.records.recorder import Recorder
from gateway.records.trace_context import TraceContext
from gateway.replies.answer_facts import called_tool, mark_of
from gateway.replies.reply import JSON
from gateway.request.attempt import Attempt
from gateway.request.charges.charging import failure_of
from gateway.request.clock import Clock
from gateway.request.context import read_context, read_trace, trace_parent
from gateway.request.request_state import RequestState
from gateway.request.stages import Stages
from gateway.wire.exchange import Exchange, Headers
from gateway.wire.public_errors import public_error, without_places

_log = logging.getLogger(__name__)


def _not_a_model_request(*_: object) -> NoReturn:
    raise GatewayFault()


TOOL_CALL: Final = Operation("mcp", "execute_tool", "/mcp", (), _not_a_model_request, _not_a_model_request, MCP_ERRORS)
_KIND: Final = "mcp"
_NO_TOKENS: Final = Usage(input_text=0, output_text=0)
_TRACED: Final = "traceparent"
_PROGRESS_TOKEN: Final = "progressToken"
_PROGRESS: Final = "notifications/progress"
_SHOWN_NOTIFICATIONS: Final = frozenset((_PROGRESS, "notifications/message"))
_MAX_MESSAGE: Final = 500
# A server's errors that are about the request, which its client mends: they stay what they are.
_PASSED_ON: Final = frozenset((INVALID_PARAMS, MISSING_CAPABILITY))

_result: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode


class ToolCalls:
    """Runs tool calls from arrival to record."""

    def __init__(self, stages: Stages, servers: McpServers, clock: Clock) -> None:
        self._stages = stages
        self._servers = servers
        self._clock = clock
        self._recorder: Recorder = stages.recorder
        self._limiter: Limiter = stages.limiter
        self._guardrails: Guardrails = stages.guardrails

    async def serve(
        self, exchange: Exchange, key: KeyEntry, snapshot: Snapshot, message: Message, tool: Tool, revision: str
    ) -> None:
        """Serve one call. Never raises: an error is the tool's result, as the protocol requires."""
        call = _Call(exchange, message, tool, revision)
        life = call.life = self._begin(exchange, key, snapshot, message, tool)
        result: dict[str, Any] | None = None
        try:
            result = await self._lead(call)
        except asyncio.CancelledError:
            self._leave(call)
        except TollkeeperError as error:
            _fail(life, error)
        except RecursionError:
            _fail(life, UpstreamBroken("the MCP server sent a result that is nested too deeply"))
        except Exception:  # the edge of the data plane: one call's bug must not take the others down
            _log.exception("tool call failed because of a fault of the gateway", extra={"request_id": str(life.id)})
            _fail(life, GatewayFault())
        life.ended_ns = self._clock.monotonic_ns()
        self._settle(call)
        answer = self._rendered(call, result)
        life.response_bytes = exchange.bytes_sent + len(answer)
        try:
            self._recorder.record(life)  # on disk before the client has its result
        finally:
            self._conclude(call, answer)

    def _begin(
        self, exchange: Exchange, key: KeyEntry, snapshot: Snapshot, message: Message, tool: Tool
    ) -> RequestState:
        now, trace = self._clock.wall_ns(), read_trace(exchange.headers)
        if not trace.trace_id and isinstance(parent := message.params.meta.get(_TRACED), str):
            state = message.params.meta.get("tracestate")
            trace = TraceContext.parse(parent, state if isinstance(state, str) else "")
        context = read_context(exchange.headers, trace)
        made, began_ns = uuid7(now), self._clock.monotonic_ns()
        life = RequestState(None, exchange, TOOL_CALL, made.bytes, str(made), now, began_ns, snapshot)
        life.follow(trace, has_spans=self._recorder.sends_spans)
        life.key, life.is_authenticated = key, True
        life.who = key.identity.with_caller("", context.tags) if context.tags else key.identity
        life.model, life.requested_model = ModelSpec(tool.name, ""), tool.name
        life.run_id = context.run_id
        life.conversation_id = context.conversation_id or session_label(exchange)
        given = message.params.arguments
        called = called_tool(tool.name, mark_of(bytes(given) if isinstance(given, msgspec.Raw) else b""))
        life.findings = Findings(called=[called])
        life.priority = key.policy.priority
        life.error = context.fault
        return life

    async def _lead(self, call: "_Call") -> dict[str, Any]:
        """Run a call to its result. Raises the error that stops it."""
        life, tool, message = call.life, call.tool, call.message
        if life.error is not None:
            raise life.error
        if tool.fault:
            raise UpstreamUnreachable(f"the tools of MCP server {tool.server.id!r} cannot be read: {tool.fault}")
        price = tool.server.terms_of(tool.definition.name).price_pico_usd
        if life.snapshot.guardrails:
            life.guard = self._guardrails.guard_for(life, call.exchange)
        life.ticket = self._stages.admission.admit(life.who)
        if life.guard is not None:
            await check_definition(self._guardrails, life.guard, life.who.tenant, tool)
        arguments = await self._guarded(call, message.params.arguments)
        responses = await self._guarded(call, message.params.input_responses)
        retries = read_retries(call.exchange.header(b"x-stainless-retry-count"))
        try:
            life.grant = await self._limiter.reserve_cost(life, price, retries=retries)
        except PermissionDenied as error:
            if error.error_code != "unpriced_model":
                raise
            raise PermissionDenied(
                f"the tool {tool.name!r} has no price, and a limit or budget of this key counts money: give the tool a "
                "price (price_usd, 0 if it costs nothing), or let the rule allow what is unpriced",
                code="unpriced_tool",
            ) from None
        life.admitted_ns = self._clock.monotonic_ns()
        params = self._params(call, arguments, responses)
        raw = await self._called(call, params, arguments)
        call.has_result = True
        return await self._checked(call, raw)

    async def _guarded(self, call: "_Call", given: msgspec.Raw | msgspec.UnsetType) -> msgspec.Raw | None:
        """Return arguments, or answers to a tool's questions, after guardrails. Raises ContentBlocked."""
        part = given if isinstance(given, msgspec.Raw) else None
        guard = call.life.guard
        if guard is None or part is None:
            return part
        began_ns = self._clock.monotonic_ns()
        guard.began_ns = guard.began_ns or began_ns
        try:
            return msgspec.Raw(await screened(self._guardrails, guard, bytes(part), "user", call.tool.name))
        finally:
            guard.spent_ns = (guard.spent_ns or 0) + self._clock.monotonic_ns() - began_ns

    def _params(self, call: "_Call", arguments: msgspec.Raw | None, responses: msgspec.Raw | None) -> dict[str, Any]:
        given = call.message.params
        params: dict[str, Any] = {"name": call.tool.definition.name}
        if arguments is not None:
            params["arguments"] = arguments
        if call.revision == MODERN:
            if responses is not None:
                params["inputResponses"] = responses
            if isinstance(given.request_state, msgspec.Raw):
                params["requestState"] = given.request_state
        meta = {name: value for name, value in given.meta.items() if not name.startswith(RESERVED_META)}
        if call.life.guard is not None:  # guardrails have not seen the rest
            meta = {name: value for name, value in meta.items() if name == _PROGRESS_TOKEN}
        if meta:
            params["_meta"] = meta
        return params

    async def _called(self, call: "_Call", params: dict[str, Any], arguments: msgspec.Raw | None) -> bytes:
        """Call the server. Raises UpstreamError."""
        life, tool = call.life, call.tool
        terms = tool.server.terms_of(tool.definition.name)
        assert terms.timeout_seconds is not None and terms.max_result_bytes is not None
        target = TargetSpec(tool.server.id, "", _KIND, url=tool.server.url, provider=tool.server.id)
        attempt = Attempt(1, target, "first", self._clock.wall_ns(), self._clock.monotonic_ns())
        life.attempts.append(attempt)
        capabilities = call.message.params.meta.get(CAPABILITIES_KEY) if call.revision == MODERN else None
        sent = Sent(
            caller=life.who.key_id,
            name=tool.definition.name,
            headers=_mirrored(tool, arguments),
            trace=self._trace_lines(life),
            capabilities=capabilities,
            on_notification=call.notification_writer(self._limiter.rate_headers(life.grant)),
        )
        self._recorder.note_sent(life)
        try:
            client = self._servers.client(tool.server.id)
            return await client.call("tools/call", params, sent, terms.max_result_bytes, terms.timeout_seconds)
        finally:
            attempt.ended_ns = self._clock.monotonic_ns()

    async def _checked(self, call: "_Call", raw: bytes) -> dict[str, Any]:
        """Return a result as the client may have it. Raises UpstreamBroken, ContentBlocked."""
        life, tool, guard = call.life, call.tool, call.life.guard
        try:
            result: dict[str, Any] = dict(_result(raw))
            whole: dict[str, Any] = _decode(raw)  # all of it: clients must be able to read what is passed on
        except (msgspec.MsgspecError, UnicodeError, ValueError):
            raise UpstreamBroken(
                f"the MCP server {tool.server.id!r} sent a result that is not a JSON object, or holds text or numbers "
                "that cannot be read"
            ) from None
        _keep_own_meta(result, whole)
        kind = _text(result.get("resultType"))
        if kind not in ("", "complete") and call.revision != MODERN:
            raise UpstreamBroken(
                f"the tool {tool.name!r} asks for further input (result type {kind[:40]!r}), which clients of revision "
                f"{call.revision} cannot give; use a client of {MODERN}",
                code="tool_needs_input",
            )
        is_complete = kind in ("", "complete")
        if is_complete and not isinstance(whole.get("content"), list):
            raise UpstreamBroken(f"the MCP server {tool.server.id!r} sent a result without a list as content")
        if is_complete and tool.definition.output is not None:
            promise = broken_promise(tool.definition, whole)
            if promise:
                raise UpstreamBroken(
                    f"the MCP server {tool.server.id!r} broke the output schema of {tool.name!r}: {promise}",
                    code="tool_schema_broken",
                )
        if guard is not None:
            began_ns = self._clock.monotonic_ns()
            try:
                result = _decode(await screened(self._guardrails, guard, _encode(result), "tool", tool.name))
            finally:
                guard.spent_ns = (guard.spent_ns or 0) + self._clock.monotonic_ns() - began_ns
        is_error = result.get("isError")
        is_failed = is_error is True or (isinstance(is_error, msgspec.Raw) and bytes(is_error) == b"true")
        life.finish_reason = "tool_error" if is_failed else "tool_result" if is_complete else kind[:40]
        return result

    def _trace_lines(self, life: RequestState) -> str:
        if not life.trace.trace_id:
            return ""
        header = trace_parent(life.trace, life.span_id, 1 if life.is_traced else 0)
        state = f"tracestate: {life.trace.state}\r\n" if life.trace.state else ""
        return f"traceparent: {header}\r\n{state}"

    def _leave(self, call: "_Call") -> None:
        """Record that the call was cancelled: by the client, which disconnected, or by the gateway, which stops."""
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()
        error = call.exchange.cut_by
        _fail(call.life, error or ClientGone("the client closed the connection before the tool had its result"))

    def _settle(self, call: "_Call") -> None:
        """Price the call, and release what was reserved for it and not used."""
        life, tool = call.life, call.tool
        price = tool.server.terms_of(tool.definition.name).price_pico_usd
        attempt = life.last_attempt
        if attempt is None:
            life.cost = FREE_OF_CHARGE
        else:
            attempt.usage = life.usage = _NO_TOKENS
            attempt.count_method = life.count_method = "exact"
            error = attempt.error
            if error is not None and not call.has_result:
                attempt.is_free = failure_of(error) in ("not_begun", "on_error")
            is_unfinished = error is None and life.finish_reason not in ("tool_result", "tool_error")
            if attempt.is_free:
                life.cost = FREE_OF_CHARGE
            elif is_unfinished and life.error is None:  # the tool has asked for input: its last round trip is paid
                life.cost = Cost(0, {}, (), _version(tool), "price_card")
            elif price is None:
                life.cost = UNPRICED
            else:
                life.cost = Cost(price, {"request": price}, (), _version(tool), "price_card")
            attempt.cost = life.cost
        self._limiter.settle(life, life.grant)
        if life.ticket is not None:
            self._stages.admission.settle(life.ticket)

    def _rendered(self, call: "_Call", result: dict[str, Any] | None) -> bytes:
        error = call.life.error
        if error is not None or result is None:
            shown = _shown(error or GatewayFault(), call)
            if shown is not error and error is not None:
                _log.warning(
                    "tool call failed",
                    extra={
                        "request_id": str(call.life.id),
                        "server": call.tool.server.id,
                        "code": error.error_code,
                        "reason": error.log_message,
                    },
                )
            if isinstance(error, McpFailure) and error.rpc.code in _PASSED_ON:
                call.status = 400 if call.revision == MODERN else 200
                data = None if call.life.guard is not None else error.rpc.data
                return rendered_error(call.message.id, error.rpc.code, shown.message, data)
            result = tool_error(shown)
        return rendered_result(call.message.id, result, call.revision)

    def _conclude(self, call: "_Call", answer: bytes) -> None:
        exchange, life = call.exchange, call.life
        if exchange.is_started:
            exchange.end(event(answer))
        else:
            headers: Headers = (
                (b"x-request-id", str(life.id).encode()),
                *self._limiter.headers_at_end(life, life.grant),
            )
            exchange.send(call.status, JSON, answer, headers)
        for failed in (life.error, *[attempt.error for attempt in life.attempts]):
            if failed is not None:
                failed.__traceback__ = None


class _Call:
    """One call in progress, and its resources."""

    __slots__ = ("exchange", "has_result", "life", "message", "revision", "status", "tool")

    def __init__(self, exchange: Exchange, message: Message, tool: Tool, revision: str) -> None:
        self.exchange = exchange
        self.message = message
        self.tool = tool
        self.revision = revision
        self.life: RequestState
        self.status = 200
        self.has_result = False  # the tool has run: it is paid for, whatever becomes of its result

    def notification_writer(self, headers: Headers) -> Callable[[str, bytes], None] | None:
        """Return a function that forwards a server's notifications in a stream; `None` if the client accepts none.

        If guardrails inspect results, only progress is forwarded, without its text, which they have not inspected.
        """
        accept = self.exchange.headers.get(b"accept", b"")
        if EVENT_STREAM not in accept:
            return None
        is_guarded = self.life.guard is not None

        def write(method: str, data: bytes) -> None:
            if method not in _SHOWN_NOTIFICATIONS or (is_guarded and method != _PROGRESS):
                return
            if is_guarded:
                message = _decode(data)
                if isinstance(message.get("params"), dict):
                    message["params"].pop("message", None)
                data = _encode(message)
            if not self.exchange.is_started:
                id = str(self.life.id).encode()
                named = ((b"x-request-id", id), (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"))
                self.exchange.start(200, EVENT_STREAM, (*named, *headers))
            self.exchange.write(event(data.replace(b"\n", b" ").replace(b"\r", b" ")))

        return write


def _fail(life: RequestState, error: TollkeeperError) -> None:
    life.error = error
    last = life.last_attempt
    if last is not None and last.error is None:
        last.error = error


def _version(tool: Tool) -> str:
    return f"mcp:{tool.server.id}"


def _mirrored(tool: Tool, arguments: msgspec.Raw | None) -> tuple[tuple[str, str], ...]:
    """Return the arguments that the server wants repeated in headers."""
    if not tool.definition.headers or arguments is None:
        return ()
    given = _decode(arguments)
    found = []
    for name, path in tool.definition.headers:
        text = parameter_text(at_path(given, path))
        if text is not None:
            found.append((f"mcp-param-{name.lower()}", header_value(text)))
    return tuple(found)


def _keep_own_meta(result: dict[str, Any], whole: dict[str, Any]) -> None:
    """Remove from a result's `_meta` what only the gateway states about itself, and a `_meta` that is not an object."""
    meta = whole.get("_meta")
    if not isinstance(meta, dict):
        result.pop("_meta", None)
    elif any(_is_ours(name) for name in meta):
        result["_meta"] = {name: value for name, value in meta.items() if not _is_ours(name)}


def _is_ours(name: str) -> bool:
    return name == SERVER_KEY or name.startswith(OUR_META)


def _text(given: object) -> str:
    found = _decode(given) if isinstance(given, msgspec.Raw) else given
    return found if isinstance(found, str) else ""


def _shown(error: TollkeeperError, call: _Call) -> TollkeeperError:
    """Return an error as the caller may see it: the server by its name, never its address or the gateway's inside."""
    server, tool = call.tool.server.id, call.tool.name
    if isinstance(error, McpFailure):
        words = without_places(error.rpc.message[:_MAX_MESSAGE], body=call.exchange.body)
        if call.life.guard is not None:  # guardrails have not seen them
            words = f"code {error.rpc.code}"
        return _as(error, f"the tool {tool!r} failed: its server reported {words}")
    if error.error_code in (TOO_LARGE, "tool_schema_broken", "tool_needs_input", "mcp_server_redirects"):
        return error
    seconds = call.tool.server.terms_of(call.tool.definition.name).timeout_seconds
    told: tuple[tuple[type[TollkeeperError], str], ...] = (
        (UpstreamOverloaded, error.message),
        (UpstreamRateLimited, f"the MCP server {server!r} refuses further calls: it is at a rate limit of its own"),
        (UpstreamTimeout, f"the MCP server {server!r} did not answer {tool!r} within {seconds:g} s"),
        (UpstreamUnreachable, f"the MCP server {server!r} cannot be reached"),
        (
            TargetMisconfigured,
            f"the MCP server {server!r} is not set up correctly; the gateway's operators can mend it",
        ),
        (UpstreamBroken, f"the MCP server {server!r} sent an answer that ended early or cannot be read"),
        (UpstreamError, f"the MCP server {server!r} failed"),
    )
    words = next((text for kind, text in told if isinstance(error, kind)), "")
    return _as(error, words) if words else public_error(error)


def _as(error: TollkeeperError, message: str) -> TollkeeperError:
    shown = UpstreamError(message, code=error.error_code, retry_after_seconds=error.retry_after_seconds)
    return shown
