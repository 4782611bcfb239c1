"""`least_gateway PORT UPSTREAM_PORT JOURNAL`: the least that a gateway which keeps books does in Python.

Between a chat's arrival and its answer stand only what the bench's configuration asks for: a key, the request read as
JSON, requests, tokens and money taken at three levels and settled, the reply's usage read and priced, a record with
its checksum on disk, and what a client is told of its limits. Nothing may go wrong in it: there is one model and one
target, heads are believed, nothing is refused, retried, timed, guarded or routed, no configuration changes, and all of
it is one file of plain lists. What the gateway adds beyond this is what serving others takes; what this adds is no
gateway's to save. It stands beside the bare relay, which does none of it, and is compiled as the gateway is.
"""

import asyncio
import gc
import os
import sys
import time
import zlib
from typing import Final, cast

import msgspec
import uvloop

from contracts.api.chat import ChatReply, ChatRequest
from contracts.recording.records import RequestRecord

_LEVELS: Final = 3
_MUCH: Final = 10**11
_BUCKETS: Final = 60
_SECOND_NS: Final = 1_000_000_000
_PICO_USD_IN: Final = 1_000_000
_PICO_USD_OUT: Final = 2_000_000
_BYTES_PER_TOKEN: Final = 4
_USUAL_OUTPUT: Final = 16
_BACKLOG: Final = 4096
_HEAD_END: Final = b"\r\n\r\n"

_LIMITS_TOLD: Final = (
    b"x-ratelimit-limit-requests: %d\r\nx-ratelimit-remaining-requests: %d\r\nx-ratelimit-reset-requests: 60s\r\n"
    b"x-ratelimit-limit-tokens: %d\r\nx-ratelimit-remaining-tokens: %d\r\nx-ratelimit-reset-tokens: 60s\r\n"
)

_requests: Final = msgspec.json.Decoder(ChatRequest)
_replies: Final = msgspec.json.Decoder(ChatReply)
_records: Final = msgspec.msgpack.Encoder()
_FIXED: Final = msgspec.Raw(_records.encode(["target", "pool", "acme", "core", "apollo", "key_1", "gateway", "ok"]))
_FIELDS: Final = len(RequestRecord.__struct_fields__)


class _Window:
    """A sliding minute's count: what was charged in each second of it."""

    __slots__ = ("buckets", "second", "total")

    def __init__(self) -> None:
        self.buckets = [0] * _BUCKETS
        self.second = 0
        self.total = 0

    def take(self, amount: int, second: int) -> int:
        """Charge an amount; return what is left."""
        if second != self.second:
            for gone in range(self.second + 1, min(second, self.second + _BUCKETS) + 1):
                self.total -= self.buckets[gone % _BUCKETS]
                self.buckets[gone % _BUCKETS] = 0
            self.second = second
        left = _MUCH - self.total - amount
        if left < 0:
            raise AssertionError("the bench's limits refuse nothing")
        self.total += amount
        self.buckets[second % _BUCKETS] += amount
        return left

    def give_back(self, amount: int, second: int) -> None:
        """Release what was charged in a second that is still within the window."""
        if amount and self.second - second < _BUCKETS:
            self.total -= amount
            self.buckets[second % _BUCKETS] -= amount


class _Budget:
    """A month's money: what is reserved and what is settled, in pico-USD."""

    __slots__ = ("reserved", "settled")

    def __init__(self) -> None:
        self.reserved = self.settled = 0

    def take(self, amount: int) -> None:
        if self.settled + self.reserved + amount > _MUCH * _SECOND_NS:
            raise AssertionError("the bench's budgets refuse nothing")
        self.reserved += amount

    def settle(self, reserved: int, spent: int) -> None:
        self.reserved -= reserved
        self.settled += spent


class _Taken:
    """A request in progress, and what is taken for it."""

    def __init__(
        self,
        client: asyncio.Transport,
        id: str,
        started_at_ns: int,
        began_ns: int,
        request_bytes: int,
        temperature: float | None,
        max_tokens: int | None,
        tokens: int,
        money: int,
        limits_told: bytes,
    ) -> None:
        self.client = client
        self.id = id
        self.started_at_ns = started_at_ns
        self.began_ns = began_ns
        self.request_bytes = request_bytes
        self.temperature = temperature
        self.max_tokens = max_tokens
        self.tokens = tokens
        self.money = money
        self.limits_told = limits_told


class _Books:
    """The counters of three levels and the journal."""

    def __init__(self, journal: str) -> None:
        self.requests = [_Window() for _ in range(_LEVELS)]
        self.tokens = [_Window() for _ in range(_LEVELS)]
        self.money = [_Budget() for _ in range(_LEVELS)]
        self._file = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._process = os.urandom(8).hex()

    def next_id(self, now_ns: int) -> str:
        """Return an id that no other request has."""
        return f"{self._process}{now_ns}"

    def write(self, record: bytes) -> None:
        """Write a record with its length and checksum."""
        length = len(record).to_bytes(4, "little")
        os.write(self._file, length + zlib.crc32(record, zlib.crc32(length)).to_bytes(4, "little") + record)


class _Protocol:
    """An `asyncio.Protocol` in all but its base class, which would keep it from being compiled."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Do nothing: the bench closes what it has opened when it has measured."""

    def eof_received(self) -> bool:
        """Let the transport close."""
        return False

    def pause_writing(self) -> None:
        """Go on: what is written is small."""

    def resume_writing(self) -> None:
        """Go on."""


class _Upstream(_Protocol):
    """A connection to the server: idle, or with the reply for one client."""

    def __init__(self, idle: list["_Upstream"], books: _Books) -> None:
        self._idle = idle
        self._books = books
        self._taken: _Taken | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def send(self, message: bytes, taken: _Taken) -> None:
        """Send a request whose reply is for a client."""
        self._taken = taken
        self._transport.write(message)

    def data_received(self, data: bytes) -> None:
        taken = self._taken
        assert taken is not None
        body = data[data.find(_HEAD_END) + 4 :]
        reply = _replies.decode(body)
        assert reply.usage is not None and reply.choices, "the bench's server says what was used"
        tokens_in, tokens_out = reply.usage.prompt_tokens or 0, reply.usage.completion_tokens or 0
        cost = tokens_in * _PICO_USD_IN + tokens_out * _PICO_USD_OUT
        books, second = self._books, taken.started_at_ns // _SECOND_NS
        for window in books.tokens:
            window.give_back(taken.tokens - tokens_in - tokens_out, second)
        for budget in books.money:
            budget.settle(taken.money, cost)
        duration_ns = time.monotonic_ns() - taken.began_ns
        books.write(
            taken.started_at_ns.to_bytes(8, "little")
            + _records.encode(
                (
                    taken.id,
                    taken.started_at_ns,
                    duration_ns,
                    reply.choices[0].finish_reason,
                    reply.model,
                    tokens_in,
                    tokens_out,
                    cost,
                    taken.max_tokens,
                    taken.temperature,
                    taken.request_bytes,
                    len(body),
                    taken.tokens,
                    *(None,) * (_FIELDS - 14),
                    _FIXED,
                )
            )
        )
        taken.client.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\nx-request-id: %b\r\n%b"
            b"x-served-model: %b\r\n\r\n%b"
            % (len(body), taken.id.encode(), taken.limits_told, (reply.model or "").encode(), body)
        )
        self._taken = None
        self._idle.append(self)


class _Client(_Protocol):
    """A client's connection."""

    def __init__(self, idle: list[_Upstream], books: _Books, keys: dict[bytes, str], upstream_port: int) -> None:
        self._idle = idle
        self._books = books
        self._keys = keys
        self._upstream_port = upstream_port
        self._dialling: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        books, now_ns = self._books, time.time_ns()
        end = data.find(_HEAD_END) + 4
        start = data.find(b"uthorization: ", 0, end) + 14
        self._keys.setdefault(data[start : data.find(b"\r", start, end)], "key_1")
        body = data[end:]
        request = _requests.decode(body)
        tokens = len(body) // _BYTES_PER_TOKEN + (request.max_tokens or _USUAL_OUTPUT)
        money = tokens * _PICO_USD_OUT
        second = now_ns // _SECOND_NS
        left_requests = min([window.take(1, second) for window in books.requests])
        left_tokens = min([window.take(tokens, second) for window in books.tokens])
        for budget in books.money:
            budget.take(money)
        id = books.next_id(now_ns)
        taken = _Taken(
            self._transport,
            id,
            now_ns,
            time.monotonic_ns(),
            len(body),
            request.temperature,
            request.max_tokens,
            tokens,
            money,
            _LIMITS_TOLD % (_MUCH, left_requests, _MUCH, left_tokens),
        )
        message = (
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            b"x-request-id: %b\r\ncontent-length: %d\r\n\r\n%b" % (id.encode(), len(body), body)
        )
        if self._idle:
            self._idle.pop().send(message, taken)
        else:
            self._dialling = asyncio.get_running_loop().create_task(self._dial(message, taken))

    async def _dial(self, message: bytes, taken: _Taken) -> None:
        _, upstream = await asyncio.get_running_loop().create_connection(
            lambda: cast(asyncio.Protocol, _Upstream(self._idle, self._books)), "127.0.0.1", self._upstream_port
        )
        cast(_Upstream, upstream).send(message, taken)


async def _serve(port: int, upstream_port: int, journal: str) -> None:
    idle: list[_Upstream] = []
    keys: dict[bytes, str] = {}
    books = _Books(journal)
    server = await asyncio.get_running_loop().create_server(
        lambda: cast(asyncio.Protocol, _Client(idle, books, keys, upstream_port)), "127.0.0.1", port, backlog=_BACKLOG
    )
    gc.collect()
    gc.freeze()
    gc.disable()  # it makes no cycles while connections stay
    await server.serve_forever()


def main() -> None:
    """Serve until it is ended."""
    uvloop.run(_serve(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
