"""The engine host: connects gateways with models, and tracks which request belongs to which."""

import logging
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import msgspec

from backends.engine.base import EngineBuilder, EngineEvent, ModelOrder
from backends.engine.calls import Calls
from backends.engine.connection import Connection
from backends.engine.device_book import DeviceBook
from backends.engine.device_watch import DeviceWatch
from backends.engine.embed_thread import EmbedThread
from backends.engine.engine_thread import EngineThread, Output
from backends.engine.lifecycle import Lifecycle
from backends.engine.models import ModelSet
from backends.engine.refusal import call_refusal, embed_refusal, named, refusal
from backends.engine.served import Served
from backends.engine.settings import EngineHostSettings
from backends.engine.step_outbox import StepOutbox
from backends.engine.swap import Swaps
from contracts.access.identity import Identity
from contracts.engine.wire import (
    WIRE_VERSION,
    Abort,
    Attach,
    Call,
    Embed,
    Embedded,
    Finished,
    FromGateway,
    Hello,
    KvEvents,
    StepsAck,
    Submit,
)
from contracts.errors import Conflict, InvalidRequest, TollkeeperError, Unavailable
from contracts.metering.usage import Usage
from contracts.recording.ids import unix_ms_of, uuid7
from contracts.recording.records import LOST_IN_CRASH, AttemptRecord, GpuShare, StepRecord, encode_record

_log = logging.getLogger(__name__)

_MAX_CONNECTIONS: Final = 256
_ID_BYTES: Final = 16  # of a valid request id


@dataclass(slots=True, eq=False)
class Ticket:
    """A request in progress, with its gateway and model. `error` is set if the host ends it."""

    request_id: bytes
    connection: Connection
    model: Served
    error: TollkeeperError | None = None
    is_muted: bool = False  # only its end is still sent
    tenant: str = ""
    payer_id: bytes = b""  # the request id that is billed, if another one
    is_orphan: bool = False  # its gateway has disconnected: its account is sent as a record


@dataclass(slots=True)
class Counters:
    """The host's counts since its start."""

    requests: int = 0
    refused: int = 0
    orphaned: int = 0  # aborted because their gateway disconnected
    choked: int = 0  # aborted because their gateway did not read


class EngineHost:
    """The models, gateways and requests of a host, without its process and socket. Used on one event loop."""

    def __init__(
        self, settings: EngineHostSettings, build: EngineBuilder, loading: threading.Lock, *, kind: str, version: str
    ) -> None:
        """Create a host without models. `loading` serialises imports and loads, because imports of libraries race."""
        self.settings = settings
        self.send_buffer_bytes = settings.engine_send_buffer_bytes
        self.engine = f"{settings.replica}/{uuid7(time.time_ns()).hex}"
        self.models = ModelSet(self, settings, build, loading)
        self.counters = Counters()
        self.outbox = StepOutbox(settings.engine_outbox_bytes)
        self.is_draining = False
        self._version = version
        self._kind = kind
        self._connections: dict[Connection, None] = {}  # in order of arrival
        self._tickets: dict[bytes, Ticket] = {}
        self._subscriber: Connection | None = None
        self._stale_hello: set[Connection] = set()
        self.lifecycle = Lifecycle(self)
        self.swaps = Swaps(self)
        self.devices = DeviceWatch(self.lifecycle.on_gpu_lost, DeviceBook(self).tell)
        self._calls = Calls(self)

    # Public state and commands.

    @property
    def requests(self) -> int:
        """Return the number of requests in progress."""
        return len(self._tickets)

    @property
    def connections(self) -> int:
        """Return the number of connected gateways."""
        return len(self._connections)

    @property
    def subscriber(self) -> Connection | None:
        """Return the gateway that receives step records."""
        return self._subscriber

    def requests_of(self, model: Served) -> list[bytes]:
        """Return the ids of a model's requests in progress."""
        return [ticket.request_id for ticket in self._tickets.values() if ticket.model is model]

    def drain(self) -> None:
        """Refuse new requests from now on."""
        self.is_draining = True
        self.say_hello()

    def abort_all(self, error: TollkeeperError, model: Served | None = None) -> None:
        """End all requests, or one model's, with this error."""
        for ticket in list(self._tickets.values()):
            if model is None or ticket.model is model:
                self._give_up(ticket, error)

    def fail_all(self, error: TollkeeperError, model: Served) -> None:
        """Answer a model's requests at once with an error, since the model will not. Their usage is unknown."""
        for ticket in list(self._tickets.values()):
            if ticket.model is model:
                del self._tickets[ticket.request_id]
                model.abort(ticket.request_id)
                ticket.connection.send(_failed(ticket, error))
                ticket.connection.flush()

    def load_again(self, order: ModelOrder) -> None:
        """Load a model whose engine has failed, and announce that it is loading."""
        self.models.load(order)
        self.say_hello()

    def say_hello(self) -> None:
        """Send the current models to every gateway; to one that does not read, once it does."""
        if not self._connections:
            return
        hello = self._hello()
        for connection in self._connections:
            if connection.is_choked:
                self._stale_hello.add(connection)
            else:
                connection.send(hello)
                connection.flush()

    def close(self) -> None:
        """Close every connection after its pending output."""
        for connection in list(self._connections):
            connection.close()

    # Called by models (EngineOwner, EmbedOwner).

    def on_output(self, thread: Served, output: Output) -> None:
        """Send a step's output, in one write to each gateway."""
        output = self.devices.marked(output)
        self.lifecycle.saw(thread, output)
        self.swaps.saw(output)
        self.outbox.add(output.steps)
        touched = self._tell(output.events)
        touched |= self._send_steps()
        if output.kv_events:
            message = KvEvents(records=[encode_record(record) for record in output.kv_events])
            for connection in self._connections:
                if connection.attach is not None and connection.attach.wants_kv:
                    connection.send(message)
                    touched[connection] = None
        for connection in touched:
            connection.flush()

    def on_embedded(self, thread: Served, answers: list[Embedded], steps: list[StepRecord]) -> None:
        """Send vectors to their gateways."""
        for answer in answers:
            ticket = self._tickets.pop(answer.request_id, None)
            if ticket is None:
                continue
            if ticket.is_orphan:
                self._book(ticket, Usage(input_text=answer.input_tokens), answer.gpu)
                continue
            ticket.connection.send(answer if ticket.error is None else _refused_embedding(answer, ticket.error))
            ticket.connection.flush()
        self.on_output(thread, Output(steps=steps))

    def on_state(self, thread: Served) -> None:
        """Announce a model's new state; if it has failed, answer its requests."""
        self.say_hello()
        if thread.state == "failed":
            error = Unavailable(f"model {thread.order.name!r} failed: {thread.failure}", code="engine_failure")
            self.fail_all(error, thread)

    # Called by connections (ConnectionHost).

    def on_open(self, connection: Connection) -> None:
        """Send the hello, or refuse the connection if there are too many."""
        self._connections[connection] = None
        if len(self._connections) > _MAX_CONNECTIONS:
            _log.warning("connection refused connections=%d", len(self._connections))
            connection.close()
            return
        connection.send(self._hello())

    def on_attach(self, connection: Connection, attach: Attach) -> None:
        """Accept a gateway, or refuse it if its protocol version differs."""
        if attach.version != WIRE_VERSION:
            raise InvalidRequest(
                f"gateway {attach.gateway!r} speaks version {attach.version} of the engine wire, this host "
                f"{WIRE_VERSION}; run the same release on both",
                code="wire_version_mismatch",
            )
        if attach.wants_steps and self._subscriber is None:
            self._subscribe(connection)

    def on_message(self, connection: Connection, message: FromGateway) -> None:
        """Execute a gateway's message."""
        if isinstance(message, Submit):
            self._submit(connection, message)
        elif isinstance(message, Abort):
            self._abort(connection, message.request_id)
        elif isinstance(message, StepsAck):
            if connection is self._subscriber:
                self.outbox.acknowledge(message.sequence)
                self._send_steps()
        elif isinstance(message, Embed):
            self._embed(connection, message)
        elif isinstance(message, Call):
            self._calls.start(connection, message)

    def on_choked(self, connection: Connection) -> None:
        """End the requests of a gateway that does not read: there is no room to buffer their output."""
        error = Unavailable(
            f"the gateway left more than {self.send_buffer_bytes} bytes of output unread", code="gateway_too_slow"
        )
        mine = [ticket for ticket in self._tickets.values() if ticket.connection is connection]
        self.counters.choked += len(mine)
        _log.warning("gateway does not read gateway=%s requests=%d", connection.name, len(mine))
        for ticket in mine:
            ticket.is_muted = True
            self._give_up(ticket, error)

    def on_relieved(self, connection: Connection) -> None:
        """Send what was held back while the gateway did not read."""
        if connection in self._stale_hello:
            self._stale_hello.discard(connection)
            connection.send(self._hello())
        self._send_steps()

    def on_closed(self, connection: Connection) -> None:
        """End the requests of a disconnected gateway, and send its step records to the next one."""
        self._connections.pop(connection, None)
        self._stale_hello.discard(connection)
        mine = [ticket for ticket in self._tickets.values() if ticket.connection is connection]
        for ticket in mine:
            ticket.is_orphan = True
            ticket.model.abort(ticket.request_id)
        self.counters.orphaned += len(mine)
        _log.info("gateway left gateway=%s requests=%d", connection.name, len(mine))
        if connection is self._subscriber:
            self._subscriber = None
            self.outbox.rewind()
            heirs = (one for one in self._connections if one.attach is not None and one.attach.wants_steps)
            heir = next(heirs, None)
            if heir is not None:
                self._subscribe(heir)
                heir.flush()

    # Requests.

    def _submit(self, connection: Connection, submit: Submit) -> None:
        try:
            if submit.booked_as and len(submit.booked_as) != _ID_BYTES:
                raise InvalidRequest(f"booked_as has {_ID_BYTES} bytes or none, not {len(submit.booked_as)}")
            model = self._accept(connection, submit.request_id, submit.model)
            if not isinstance(model, EngineThread) or model.hello.kind == "embed":
                raise InvalidRequest(f"model {submit.model!r} embeds; it does not generate", param="model")
            self._tickets[submit.request_id] = Ticket(
                submit.request_id, connection, model, tenant=submit.tenant, payer_id=submit.payer_id
            )
            model.submit(msgspec.structs.replace(submit, model=model.order.name))
            self.lifecycle.used(model, submit)
        except Conflict as error:
            self._refuse_twin(connection, submit.request_id, error, refusal(submit.request_id, error))
        except Exception as error:  # one request's failure in an engine must not end the host
            self._refuse(connection, submit.request_id, error)
            connection.send(refusal(submit.request_id, error))

    def _embed(self, connection: Connection, embed: Embed) -> None:
        try:
            model = self._accept(connection, embed.request_id, embed.model)
            if not isinstance(model, EmbedThread | EngineThread):
                raise InvalidRequest(f"model {embed.model!r} generates; it does not embed", param="model")
            self._tickets[embed.request_id] = Ticket(embed.request_id, connection, model, tenant=embed.tenant)
            model.embed(msgspec.structs.replace(embed, model=model.order.name))
        except Conflict as error:
            self._refuse_twin(connection, embed.request_id, error, embed_refusal(embed.request_id, error))
        except Exception as error:  # one request's failure in an engine must not end the host
            self._refuse(connection, embed.request_id, error)
            connection.send(embed_refusal(embed.request_id, error))

    def _accept(self, connection: Connection, request_id: bytes, name: str) -> Served:
        """Return the model for a request. Raises TollkeeperError if there is none."""
        if len(request_id) != _ID_BYTES:
            raise InvalidRequest(f"a request id has {_ID_BYTES} bytes, not {len(request_id)}")
        if request_id in self._tickets:
            raise Conflict(f"request {request_id.hex()} is being served already")
        if self.is_draining:
            raise Unavailable("this engine host is draining; use another replica", code="draining")
        if len(self._tickets) >= self.settings.engine_max_requests:
            raise Unavailable(
                f"this engine host serves {len(self._tickets)} requests, its limit "
                "(TOLLKEEPER_ENGINE_MAX_REQUESTS); try again later",
                code="engine_full",
            )
        if connection.is_choked:
            raise Unavailable("the gateway does not read what it was sent", code="gateway_too_slow")
        self.counters.requests += 1
        return self.models.find(name)

    def _refuse(self, connection: Connection, request_id: bytes, error: Exception) -> None:
        self._tickets.pop(request_id, None)
        self.counters.refused += 1
        if not isinstance(error, TollkeeperError):
            _log.error("request failed request_id=%s gateway=%s", request_id.hex(), connection.name, exc_info=error)

    def _refuse_twin(
        self, connection: Connection, request_id: bytes, error: Conflict, answer: Finished | Embedded
    ) -> None:
        """Refuse a request id that is in use. To the same gateway, as a refused call: an answer under the id would end
        the first request.
        """
        self.counters.refused += 1
        is_own = self._tickets[request_id].connection is connection
        connection.send(call_refusal(0, error) if is_own else answer)

    def _abort(self, connection: Connection, request_id: bytes) -> None:
        ticket = self._tickets.get(request_id)
        if ticket is not None and ticket.connection is connection:
            ticket.model.abort(request_id)

    def _give_up(self, ticket: Ticket, error: TollkeeperError) -> None:
        """End a request with an error. The engine still reports its account."""
        ticket.error = error
        ticket.model.abort(ticket.request_id)

    def _tell(self, events: Iterable[EngineEvent]) -> dict[Connection, None]:
        """Queue events for their gateways; return these gateways."""
        touched: dict[Connection, None] = {}
        for event in events:
            ticket = self._tickets.get(event.request_id)
            if ticket is None:
                continue
            if ticket.is_orphan:
                if isinstance(event, Finished):
                    del self._tickets[event.request_id]
                    self._book(ticket, event.usage, event.gpu)
                elif isinstance(event, Embedded):
                    del self._tickets[event.request_id]
                    self._book(ticket, Usage(input_text=event.input_tokens), event.gpu)
                continue
            if isinstance(event, Embedded):
                del self._tickets[event.request_id]
                if ticket.error is not None:
                    event = _refused_embedding(event, ticket.error)
            elif isinstance(event, Finished):
                del self._tickets[event.request_id]
                if ticket.error is not None:
                    code, message = named(ticket.error)
                    event = msgspec.structs.replace(
                        event, finish_reason="error", error_code=code, error_message=message
                    )
            elif ticket.is_muted:
                continue
            ticket.connection.send(event)
            touched[ticket.connection] = None
        return touched

    # Step records and hellos.

    def _book(self, ticket: Ticket, usage: Usage, gpu: GpuShare | None) -> None:
        """Write the account of a request whose gateway has disconnected, and so will not record it."""
        if gpu is None:  # it was never computed
            return
        payer_id = ticket.payer_id or ticket.request_id
        now_ns, began_ns = time.time_ns(), unix_ms_of(UUID(bytes=payer_id)) * 1_000_000
        self.outbox.add_account(
            AttemptRecord(
                request_id=payer_id,
                number=0,
                started_at_ns=min(began_ns, now_ns),
                duration_ns=max(now_ns - began_ns, 0),
                who=Identity(ticket.tenant),
                outcome="error",
                error_code=LOST_IN_CRASH,
                model=ticket.model.order.name,
                provider="engine",
                replica=self.settings.replica,
                usage=usage,
                count_method="exact" if usage.is_known else "none",
                gpu=gpu,
            )
        )

    def _subscribe(self, connection: Connection) -> None:
        self._subscriber = connection
        _log.info("step records go to gateway=%s waiting=%d", connection.name, self.outbox.pending)
        self._send_steps()

    def _send_steps(self) -> dict[Connection, None]:
        subscriber = self._subscriber
        if subscriber is None or subscriber.is_choked:
            return {}
        frames = self.outbox.next_frames()
        for message in frames:
            subscriber.send(message)
        return {subscriber: None} if frames else {}

    def _hello(self) -> Hello:
        models = self.models.hellos()
        if self.is_draining:
            models = [msgspec.structs.replace(one, state="draining") for one in models]
        return Hello(
            version=WIRE_VERSION,
            engine=self.engine,
            engine_kind=self._kind,
            engine_version=self._version,
            models=models,
            clock_ns=time.monotonic_ns(),
            wall_ns=time.time_ns(),
            tells_blocks=True,
        )


def _refused_embedding(answer: Embedded, error: TollkeeperError) -> Embedded:
    return embed_refusal(answer.request_id, error, input_tokens=answer.input_tokens, gpu=answer.gpu)


def _failed(ticket: Ticket, error: TollkeeperError) -> Finished | Embedded:
    """Return the answer to a request whose model has failed."""
    if ticket.model.hello.kind == "embed":
        return embed_refusal(ticket.request_id, error)
    code, message = named(error)
    return Finished(request_id=ticket.request_id, finish_reason="error", error_code=code, error_message=message)
