"""The provider host: connects gateways with providers, and keeps track of requests."""

import asyncio
import logging
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from backends.engine.connection import Connection
from backends.engine.refusal import call_refusal
from backends.providers.base import Order, ProviderLibrary
from backends.providers.credentials import Credentials
from backends.providers.egress import Egress
from backends.providers.invocation import Invocation
from backends.providers.settings import ProviderHostSettings
from contracts.engine.wire import WIRE_VERSION, Abort, Answer, Attach, Call, FromGateway, Hello, Hold, Invoke, Invoked
from contracts.errors import InvalidRequest, TollkeeperError, Unavailable
from contracts.recording.ids import uuid7

_log = logging.getLogger(__name__)

_MAX_CONNECTIONS: Final = 256
_POLL_SECONDS: Final = 0.02


@dataclass(slots=True)
class Counters:
    """The host's counts since its start."""

    requests: int = 0
    refused: int = 0
    orphaned: int = 0  # requests whose gateway disconnected


class ProviderConnection(Connection):
    """A connection that is read even while the gateway does not read, because it may send a pause or an abort."""

    hears_while_choked = True


class ProviderHost:
    """The host without its process and socket, on one event loop. Implements ConnectionHost."""

    def __init__(
        self,
        settings: ProviderHostSettings,
        library: ProviderLibrary,
        credentials: Credentials,
        egress: Egress | None = None,  # `None`: no restriction
    ) -> None:
        self._egress = egress
        self.name = f"{settings.host_name}/{uuid7(time.time_ns()).hex}"
        self.send_buffer_bytes = settings.providers_send_buffer_bytes
        self.is_draining = False
        self._settings = settings
        self._library = library
        self._credentials = credentials
        self._rooms: dict[Connection, asyncio.Event] = {}  # set while the gateway reads
        self._invocations: dict[bytes, Invocation] = {}
        self._counters = Counters()
        self._started = time.monotonic()
        self._calls: set[asyncio.Task[None]] = set()

    @property
    def requests(self) -> int:
        """Return the number of requests in progress."""
        return len(self._invocations)

    def drain(self) -> None:
        """Refuse new requests from now on, and report that to gateways by a hello without operations."""
        self.is_draining = True
        for connection in self._rooms:
            connection.send(self._hello())
            connection.flush()

    def abort_all(self) -> None:
        """Abort all requests."""
        for invocation in self._invocations.values():
            invocation.abort()

    def close(self) -> None:
        """Close all connections after their buffers are written."""
        for connection in list(self._rooms):
            connection.close()

    # Called by connections (ConnectionHost).

    def on_open(self, connection: Connection) -> None:
        """Send the hello, or refuse a connection beyond the limit."""
        self._rooms[connection] = room = asyncio.Event()
        room.set()
        if len(self._rooms) > _MAX_CONNECTIONS:
            _log.warning("connection refused", extra={"connections": len(self._rooms)})
            connection.close()
            return
        connection.send(self._hello())

    def on_attach(self, connection: Connection, attach: Attach) -> None:
        """Raise InvalidRequest if the gateway speaks another protocol version."""
        if attach.version != WIRE_VERSION:
            raise InvalidRequest(
                f"gateway {attach.gateway!r} speaks version {attach.version} of the wire, this host {WIRE_VERSION}; "
                "run the same release on both",
                code="wire_version_mismatch",
            )

    def on_message(self, connection: Connection, message: FromGateway) -> None:
        """Process a gateway's message. Messages for engine hosts are ignored."""
        if isinstance(message, Invoke):
            self._invoke(connection, message)
        elif isinstance(message, Hold):
            self._with(connection, message.request_id, lambda invocation: invocation.hold(message.is_held))
        elif isinstance(message, Abort):
            self._with(connection, message.request_id, Invocation.abort)
        elif isinstance(message, Call):
            task = asyncio.get_running_loop().create_task(self._answer(connection, message), name="call")
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)

    def on_choked(self, connection: Connection) -> None:
        """Pause reading providers' answers for a gateway that does not read."""
        self._rooms[connection].clear()

    def on_relieved(self, connection: Connection) -> None:
        """Resume reading."""
        self._rooms[connection].set()

    def on_closed(self, connection: Connection) -> None:
        """Abort the requests of a gateway that has disconnected."""
        room = self._rooms.pop(connection, None)
        if room is not None:
            room.set()
        mine = [one for one in self._invocations.values() if one.connection is connection]
        for invocation in mine:
            invocation.abort()
        self._counters.orphaned += len(mine)
        _log.info("gateway left", extra={"gateway": connection.name, "requests": len(mine)})

    # Requests.

    def _invoke(self, connection: Connection, invoke: Invoke) -> None:
        request_id = invoke.request_id
        try:
            self._check(request_id)
        except TollkeeperError as error:
            self._counters.refused += 1
            connection.send(
                Invoked(
                    request_id=request_id,
                    error_kind=type(error).code,
                    error_code=error.error_code,
                    error_message=error.message,
                )
            )
            return
        self._counters.requests += 1
        invocation = self._invocations[request_id] = Invocation(invoke, connection, self._rooms[connection])
        invocation.start(self._library, self._order, lambda: self._forget(request_id))

    def _check(self, request_id: bytes) -> None:
        """Raise TollkeeperError if a request may not begin."""
        if request_id in self._invocations:
            raise InvalidRequest(f"request {request_id.hex()} is being served already", code="conflict")
        if self.is_draining:
            raise Unavailable("the provider host is stopping")
        if len(self._invocations) >= self._settings.providers_max_requests:
            raise Unavailable(
                f"the provider host serves {len(self._invocations)} requests, its limit "
                "(TOLLKEEPER_PROVIDERS_MAX_REQUESTS); try again later"
            )

    def _order(self, invoke: Invoke) -> Order:
        """Parse a request. Raises TollkeeperError if it is invalid or refers to a credential that it may not use."""
        if invoke.operation not in self._library.operations:
            raise InvalidRequest(f"the provider host offers no {invoke.operation[:80]!r}", code="unsupported_operation")
        secrets = {"api_key": invoke.key_ref, **invoke.credentials} if invoke.key_ref else invoke.credentials
        fields = _object(invoke.body)
        parameters = _object(invoke.parameters) if invoke.parameters else {}
        if self._egress is not None:
            self._egress.name_target(str(fields.get("model", "")), invoke.url, parameters)
        return Order(
            operation=invoke.operation,
            fields=fields,
            patience=invoke.patience,
            url=invoke.url,
            credentials=self._credentials.credentials_of(secrets),
            parameters=parameters,
        )

    def _forget(self, request_id: bytes) -> None:
        del self._invocations[request_id]

    def _with(self, connection: Connection, request_id: bytes, act: Callable[[Invocation], None]) -> None:
        invocation = self._invocations.get(request_id)
        if invocation is not None and invocation.connection is connection:
            act(invocation)

    # Calls.

    async def _answer(self, connection: Connection, call: Call) -> None:
        try:
            answer = Answer(call_id=call.call_id, facts=await self._facts(call))
        except TollkeeperError as error:
            answer = call_refusal(call.call_id, error)
        connection.send(answer)
        connection.flush()

    async def _facts(self, call: Call) -> dict[str, float | int | str | bool | None]:
        if call.verb == "drain":
            self.drain()
            seconds = call.options.get("seconds", self._settings.providers_drain_seconds)
            deadline = time.monotonic() + (seconds if isinstance(seconds, int | float) else 0)
            while self._invocations and time.monotonic() < deadline:
                await asyncio.sleep(_POLL_SECONDS)
            return {"remaining": self.requests}
        if call.verb not in ("health", "stats"):
            raise InvalidRequest(f"a provider host has no models of its own: {call.verb} is for engine hosts")
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return {
            "healthy": not self.is_draining,
            "draining": self.is_draining,
            "requests": self.requests,
            "connections": len(self._rooms),
            "uptime_seconds": time.monotonic() - self._started,
            "requests_taken": self._counters.requests,
            "requests_refused": self._counters.refused,
            "requests_orphaned": self._counters.orphaned,
            "rss_bytes": pages * resource.getpagesize(),
        }

    def _hello(self) -> Hello:
        return Hello(
            version=WIRE_VERSION,
            engine=self.name,
            engine_kind="litellm",
            engine_version=self._library.version,
            models=[],
            clock_ns=time.monotonic_ns(),
            wall_ns=time.time_ns(),
            operations=[] if self.is_draining else list(self._library.operations),
        )


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest("the request's body is not JSON") from error
    if not isinstance(found, dict):
        raise InvalidRequest("the request's body is no JSON object")
    return found
