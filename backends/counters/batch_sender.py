"""Sends batches to Redis, one at a time, each executed once: an unanswered batch is sent again until it is answered.

The script remembers a gateway's last batch with its answer, so a repeated batch is not executed twice, and an outdated
one not at all. Hence a lost answer loses nothing, and nothing is guessed.
"""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from backends.counters.connection import CountersConnection
from backends.counters.server_clock import ServerClock
from contracts.errors import CountersForeign, CountersSilent, CountersUnavailable

_log = logging.getLogger(__name__)

_MOST_LINES: Final = 128  # of one batch: keeps Redis busy for some milliseconds at most
_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 0.5
_QUIET_SECONDS: Final = 2.0  # without grants after Redis lost its data: all gateways have reconnected by then
_USABLE_SHARE: Final = 0.8  # of its registration's lifetime, after which a gateway stops using its grants
_LEASE_SECONDS: Final = 90.0  # a gateway's lease on budgets, from its last batch on: longer than its life
_USABLE_LEASE_SECONDS: Final = 75.0  # after this it stops using what it was granted of budgets
_SECOND_NS: Final = 1_000_000_000


class Keys:
    """The Redis keys that one batch touches, with their indexes."""

    def __init__(self, first: Sequence[str]) -> None:
        self.names = list(first)
        self._places = {name: place for place, name in enumerate(self.names, 1)}

    def place(self, name: str) -> int:
        """Return a key's index in KEYS, counted from 1 as in Lua."""
        place = self._places.get(name)
        if place is None:
            self.names.append(name)
            place = self._places[name] = len(self.names)
        return place


@dataclass(frozen=True, slots=True)
class Answer:
    """Redis' answer about a batch as a whole: its time, the number of live gateways, and for how long nothing is
    granted.
    """

    now_us: int
    alive: int
    quiet_seconds: float


class BatchCommand(Protocol):
    """One command of a batch."""

    @property
    def lines(self) -> int:
        """Return how many counters it touches."""

    def pack(self, keys: Keys) -> list[object] | None:
        """Return the message for the current state; `None` if no request waits for it any more."""

    def deliver(self, result: list[Any], answer: Answer) -> None:
        """Receive what was done."""

    def undo(self) -> None:
        """Undo what `pack` did: Redis has not done it and never will."""


class ConnectionListener(Protocol):
    """Callbacks for changes in this gateway's connection to Redis."""

    def on_granted_life(self, *, keeps_lease: bool) -> None:
        """Handle a new registration of this gateway: earlier grants are void, except those of budgets with
        `keeps_lease`.
        """

    def on_lost_data(self) -> None:
        """Handle a loss of data at Redis: it does not know any earlier lease or charge."""

    def on_away(self, reason: str, *, is_silent: bool) -> None:
        """Handle a missing answer. With `is_silent` it was late, possibly because of this machine's load; else it
        failed.
        """

    def on_answer(self, answer: Answer) -> None:
        """Handle an answer."""


@dataclass(slots=True)
class _Batch:
    keys: list[str]
    sequence: int
    items: list[object]
    commands: list[BatchCommand]
    sent_ns: int  # the first time: the answer may be that to the first sending


class BatchSender:
    """Sends one gateway's messages to the shared counters, in batches. Idle while nothing is queued."""

    def __init__(
        self,
        connection: CountersConnection,
        name: str,
        clock: ServerClock,
        listener: ConnectionListener,
        *,
        prefix: str,
        expiry_seconds: float,
    ) -> None:
        """`name` is the gateway's; without a heartbeat it counts as alive for `expiry_seconds`."""
        self._connection = connection
        self._name = name
        self._clock = clock
        self._listener = listener
        self._keys = (f"{prefix}gateway:{name}", f"{prefix}gateways", f"{prefix}data")
        self._expiry_us = round(expiry_seconds * 1_000_000)
        self._incarnation = secrets.token_hex(8)
        self._sequence = 0
        self._fears_promotion = connection.address.confirming_replicas == 0
        self._answered = 0  # the last answered batch: if Redis does not know it, its data were lost
        self._life = ""
        self._lease = ""
        self._lease_seconds = max(_LEASE_SECONDS, 2 * expiry_seconds)
        self._usable_lease_seconds = self._lease_seconds * _USABLE_LEASE_SECONDS / _LEASE_SECONDS
        self._first_asked_ns = 0  # monotonic; 0: not yet
        self._data = ""
        self._queue: deque[BatchCommand] = deque()
        self._batch: _Batch | None = None
        self._beats = False
        self._pump: asyncio.Task[None] | None = None
        self.usable_until_ns = 0  # monotonic
        self.lease_until_ns = 0  # monotonic; the same for what is granted of budgets
        self.answered_ns = 0  # monotonic
        self.round_trips = 0
        self.is_name_taken = False
        self.is_foreign = False  # the counters are another installation's
        self.is_joined = False

    def post(self, command: BatchCommand) -> None:
        """Send a command as soon as the connection is free."""
        self._queue.append(command)
        self._start()

    def beat(self) -> None:
        """Send a heartbeat to Redis."""
        self._beats = True
        self._start()

    async def finish(self, seconds: float) -> None:
        """Send queued messages and deregister, within `seconds`; then close the connection.

        A gateway that Redis refused sends nothing.
        """
        is_refused = self.is_foreign or self.is_name_taken
        try:
            async with asyncio.timeout(seconds):
                if self._pump is not None and not is_refused:
                    await self._pump
                if self.is_joined and not is_refused:
                    self._expiry_us, self._lease_seconds = 0, 0.0
                    self._sequence += 1
                    await self._connection.run_batch(self._keys, self._payload(self._sequence, []))
        except (TimeoutError, CountersUnavailable):
            _log.warning("cannot deregister from the shared counters; leases there will expire")
        finally:
            if self._pump is not None:
                self._pump.cancel()
                await asyncio.wait([self._pump])  # it may be about to open the connection
            await self._connection.close()

    def _start(self) -> None:
        if self._pump is None or self._pump.done():
            self._pump = asyncio.get_running_loop().create_task(self._carry())

    async def _carry(self) -> None:
        pause_seconds = _FIRST_PAUSE_SECONDS
        while self._queue or self._batch is not None or self._beats:
            if self._batch is None:
                self._batch = self._next_batch()
            try:
                payload = self._payload(self._batch.sequence, self._batch.items)
                reply = await self._connection.run_batch(self._batch.keys, payload)
                self.round_trips += 1
                is_taken = self._take(self._batch, msgspec.msgpack.decode(reply))
            except CountersUnavailable as error:
                self.is_foreign = isinstance(error, CountersForeign)
                self._listener.on_away(error.message, is_silent=isinstance(error, CountersSilent))
                await asyncio.sleep(pause_seconds)
                pause_seconds = min(pause_seconds * 2, _LONGEST_PAUSE_SECONDS)
            else:
                pause_seconds = _FIRST_PAUSE_SECONDS
                self._batch = None
                if not is_taken:
                    self._beats = True
                    await asyncio.sleep(_LONGEST_PAUSE_SECONDS)

    def _next_batch(self) -> _Batch:
        self._beats = False
        self._sequence += 1
        keys, lines = Keys(self._keys), 0
        items: list[object] = []
        commands: list[BatchCommand] = []
        while self.is_joined and self._queue and (not commands or lines + self._queue[0].lines <= _MOST_LINES):
            command = self._queue.popleft()
            packed = command.pack(keys)
            if packed is not None:
                items.append(packed)
                commands.append(command)
                lines += command.lines
        return _Batch(keys.names, self._sequence, items, commands, self._clock.now_ns())

    def _payload(self, sequence: int, items: Sequence[object]) -> bytes:
        """Return a batch as it is sent now: a repeated one states the time again."""
        now_ns = self._clock.now_ns()
        self._first_asked_ns = self._first_asked_ns or now_ns
        quiet_us = round(_QUIET_SECONDS * 1_000_000)
        head = (self._name, self._incarnation, sequence, self._life, self._data, self._expiry_us, quiet_us)
        times = (self._clock.expected_us(now_ns), (now_ns - self._first_asked_ns) // 1000)
        lease_us = round(self._lease_seconds * 1_000_000)
        doubts = (self._answered, self._fears_promotion)
        return msgspec.msgpack.encode((*head, self._clock.told_us, items, *times, lease_us, *doubts))

    def _take(self, batch: _Batch, reply: list[Any]) -> bool:
        """Accept an answer; return whether the batch was accepted."""
        status = reply[0]
        if status == "in doubt":  # about the time: a gateway that has been registered for longer must state it first
            self._put_back(batch)
            return False
        if status in ("taken", "late"):
            self._put_back(batch)
            self.is_joined = False
            self.is_name_taken = status == "taken"
            raise CountersUnavailable(
                f"another gateway runs under the name {self._name!r}; give each one its own TOLLKEEPER_GATEWAY_NAME"
            )
        _, now_us, data, life, alive, quiet_us, results, lease = reply
        self._clock.observe(batch.sent_ns, self._clock.now_ns(), now_us * 1000)
        self.is_name_taken = self.is_foreign = False
        self._answered = batch.sequence
        self.answered_ns = self._clock.now_ns()
        self.usable_until_ns = batch.sent_ns + int(self._expiry_us * 1000 * _USABLE_SHARE)
        self.lease_until_ns = batch.sent_ns + int(self._usable_lease_seconds * _SECOND_NS)
        answer = Answer(now_us, alive, quiet_us / 1_000_000)
        if status == "done":
            for command, result in zip(batch.commands, results, strict=True):
                command.deliver(result, answer)
        else:
            self._put_back(batch)
            has_lost = self._data not in ("", data)
            keeps_lease = self._lease == lease and not has_lost
            self._life, self._lease, self._data, self.is_joined = life, lease, data, True
            self._listener.on_granted_life(keeps_lease=keeps_lease)
            if has_lost:
                _log.warning("the shared counters have lost their data; all gateways report their counts again")
                self._listener.on_lost_data()
        self._listener.on_answer(answer)
        return True

    def _put_back(self, batch: _Batch) -> None:
        for command in batch.commands:
            command.undo()
        self._queue.extendleft(reversed(batch.commands))
        batch.commands = []
        self._batch = None
