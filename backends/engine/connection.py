"""One gateway's connection: decodes its frames, batches ours into one write per step, and detects a gateway that
stopped reading.
"""

import asyncio
import logging
import socket
import struct
from typing import Final, Protocol, cast

from backends.engine.refusal import call_refusal
from contracts.engine.frame_splitter import FrameSplitter
from contracts.engine.wire import Attach, FromGateway, FromHost, KvEvents, frame, from_gateway
from contracts.errors import InvalidRecord, TollkeeperError

_log = logging.getLogger(__name__)

_ATTACH_SECONDS: Final = 10.0  # until the peer must have sent `Attach`
_STALL_SECONDS: Final = 30.0  # a gateway that reads nothing for this time is disconnected
_KV_SHARE: Final = 4  # KV events are dropped when a quarter of the send buffer is full


class ConnectionHost(Protocol):
    """Callbacks of a connection to its host."""

    send_buffer_bytes: int

    def on_open(self, connection: "Connection") -> None:
        """Handle a new connection, which expects a hello."""

    def on_attach(self, connection: "Connection", attach: Attach) -> None:
        """Handle the gateway's first message, with its name. Raises TollkeeperError to refuse it."""

    def on_message(self, connection: "Connection", message: FromGateway) -> None:
        """Handle any other message."""

    def on_choked(self, connection: "Connection") -> None:
        """Handle a gateway that has stopped reading: no more output may be generated for it."""

    def on_relieved(self, connection: "Connection") -> None:
        """Handle a gateway that has read its pending output."""

    def on_closed(self, connection: "Connection") -> None:
        """Handle the end of the connection, whatever its reason."""


class Connection(asyncio.Protocol):
    """The protocol of one connection. A malformed frame ends only this connection."""

    hears_while_choked = False  # messages of a gateway that does not read are not read either

    def __init__(self, host: ConnectionHost) -> None:
        self._host = host
        self._splitter = FrameSplitter()
        self._transport: asyncio.Transport | None = None
        self._waiting: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self.attach: Attach | None = None
        self.is_choked = False
        self.peer_pid = 0
        self.kv_dropped = 0

    @property
    def name(self) -> str:
        """Return the name of the peer for logs."""
        return self.attach.gateway if self.attach else f"pid {self.peer_pid}"

    def send(self, message: FromHost) -> None:
        """Queue a message for the next write; KV events are dropped if the send buffer is filling up."""
        if isinstance(message, KvEvents) and self._is_busy():
            self.kv_dropped += len(message.records)
            return
        self._waiting.append(frame(message))

    def flush(self) -> None:
        """Write the queued messages in one call."""
        if self._waiting and self._transport is not None:
            waiting, self._waiting = self._waiting, []
            self._transport.write(b"".join(waiting) if len(waiting) > 1 else waiting[0])

    def close(self) -> None:
        """Write queued messages, then close the connection."""
        if self._transport is not None:
            self.flush()
            self._transport.close()

    def _is_busy(self) -> bool:
        transport = self._transport
        return transport is None or transport.get_write_buffer_size() > self._host.send_buffer_bytes // _KV_SHARE

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the connection: notify the host, which sends a hello, and wait for `Attach`."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport lacks only the base class
        self._transport.set_write_buffer_limits(high=self._host.send_buffer_bytes)
        self.peer_pid = _peer_pid(self._transport.get_extra_info("socket"))
        self._after(_ATTACH_SECONDS, "did not attach")
        self._host.on_open(self)
        self.flush()

    def data_received(self, data: bytes) -> None:
        """Handle received bytes. An invalid frame is answered with the reason, and ends the connection."""
        try:
            for body in self._splitter.feed(data):
                self._take(from_gateway(body))
                if self._transport is None or self._transport.is_closing():
                    return
        except TollkeeperError as error:
            _log.warning("connection refused peer=%s reason=%s", self.name, error.message)
            self.send(call_refusal(0, error))
            self.close()
            return
        self.flush()

    def pause_writing(self) -> None:
        """Handle a full send buffer: the gateway does not read, so read none of its messages until it does."""
        self.is_choked = True
        if self._transport is not None and not self.hears_while_choked:
            self._transport.pause_reading()
        self._after(_STALL_SECONDS, "read nothing")
        self._host.on_choked(self)

    def resume_writing(self) -> None:
        """Handle an emptied send buffer: the gateway reads again, so read its messages again."""
        self.is_choked = False
        self._cancel_timer()
        if self._transport is not None and not self._transport.is_closing() and not self.hears_while_choked:
            self._transport.resume_reading()
        self._host.on_relieved(self)
        self.flush()

    def connection_lost(self, error: Exception | None) -> None:
        """Notify the host that the connection has ended."""
        self._cancel_timer()
        self._transport = None
        self._waiting.clear()
        self._host.on_closed(self)

    def _take(self, message: FromGateway) -> None:
        if isinstance(message, Attach):
            if self.attach is not None:
                raise InvalidRecord("this connection has attached already")
            self.attach = message
            self._host.on_attach(self, message)
            self._cancel_timer()
            _log.info("gateway attached gateway=%s pid=%d", message.gateway, self.peer_pid)
        elif self.attach is None:
            raise InvalidRecord("the first message of a connection must be attach")
        else:
            self._host.on_message(self, message)

    def _after(self, seconds: float, reason: str) -> None:
        self._cancel_timer()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._give_up, reason, seconds)

    def _give_up(self, reason: str, seconds: float) -> None:
        _log.warning("connection dropped peer=%s reason=%s seconds=%g", self.name, reason, seconds)
        if self._transport is not None:
            self._transport.abort()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _peer_pid(peer: socket.socket | None) -> int:
    if peer is None:
        return 0
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid: int = struct.unpack("3i", credentials)[0]
    return pid
