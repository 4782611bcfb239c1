"""Messages of a vLLM worker to its host about its steps: msgpack arrays, one per datagram.

Columns of a step run parallel to `keys`; one that is empty is zero (for `logits`: one) in every row. Times are the
monotonic clock in nanoseconds, which all processes of a Linux machine share.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from contracts.errors import InvalidRecord

SOCKET_VARIABLE: Final = "TOLLKEEPER_METER_SOCKET"  # where frames go; of a worker's environment


class Begun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A sequence seen for the first time. Later it goes by its key alone, a number unique to this worker's life."""

    key: int
    name: str  # as the engine knows it
    prompt_tokens: int
    tenant: str = ""  # only where the request itself carried it


class Ended(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A sequence that is in no step after the one numbered `last_step` (0: it was in none)."""

    key: int
    last_step: int


class MeasuredStep(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A step as measured on one rank's GPU. Numbers start at 1 without gaps; only rank 0 sends columns.

    `again`: the rows are those of the previous step, each one token further; no columns are sent.
    """

    number: int
    started_ns: int
    busy_ns: int
    forward_ns: int | None = None  # `None`: not measured
    keys: list[int] = []
    scheduled: list[int] = []
    context: list[int] = []
    logits: list[int] = []
    cached: list[int] = []
    phases: list[int] = []
    recompute: list[int] = []
    drafted: list[int] = []
    accepted: list[int] = []
    discarded: list[bool] = []  # the engine had ended the sequence while the step ran
    shared: list[int] = []  # of a decode's context: tokens whose reading is saved, as other rows read the same keys
    again: bool = False
    then: list[int] = []  # when each step after it began, and for how long it was busy: all as `again`

    @property
    def steps(self) -> int:
        """Count it and those after it."""
        return 1 + len(self.then) // 2

    def each(self) -> "Iterator[MeasuredStep]":
        """Yield it and those after it, one by one."""
        if not self.then:
            yield self
            return
        yield msgspec.structs.replace(self, then=[])
        for place in range(0, len(self.then), 2):
            started_ns, busy_ns = self.then[place : place + 2]
            yield MeasuredStep(self.number + 1 + place // 2, started_ns, busy_ns, again=True)


class Mark(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The engine's state from this moment on: "load", "warmup", "sleep", or empty for serving."""

    at_ns: int
    phase: str


class MeterFrame(msgspec.Struct, frozen=True, array_like=True):
    """What one rank has to tell. `in_flight` counts steps begun and not measured, `dropped` those lost since start."""

    rank: int
    begun: list[Begun] = []
    steps: list[MeasuredStep] = []
    ended: list[Ended] = []
    marks: list[Mark] = []
    in_flight: int = 0
    dropped: int = 0


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final[msgspec.msgpack.Decoder[MeterFrame]] = msgspec.msgpack.Decoder(MeterFrame)


def encode_frame(frame: MeterFrame) -> bytes:
    """Pack a frame."""
    return _encoder.encode(frame)


def decode_frame(packed: bytes | memoryview) -> MeterFrame:
    """Unpack a frame. Raises InvalidRecord."""
    try:
        return _decoder.decode(packed)
    except (msgspec.MsgspecError, ValueError) as error:
        raise InvalidRecord(f"a worker's meter frame cannot be read: {error}") from error
