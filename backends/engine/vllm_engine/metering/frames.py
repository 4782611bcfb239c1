"""Messages of a vLLM worker to its host about its steps: msgpack arrays, one per datagram.

Columns of a step are parallel to `keys`. An empty column means 0 in every row (in `logits`: 1). Times are nanoseconds
of the monotonic clock, which all processes of a Linux machine share.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from contracts.errors import InvalidRecord

SOCKET_VARIABLE: Final = "TOLLKEEPER_METER_SOCKET"  # in a worker's environment: the path that frames are sent to


class Begun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A sequence seen for the first time. Later messages name it by its key, a number unique within this worker
    process.
    """

    key: int
    name: str  # as the engine knows it
    prompt_tokens: int
    tenant: str = ""  # only if the request itself states it


class Ended(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The end of a sequence. `last_step` is the last step that it was in; 0: none."""

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
    discarded: list[bool] = []  # whether the engine had ended the sequence while the step ran
    shared: list[int] = []  # tokens of a decode's context whose reads are saved because other rows read the same keys
    again: bool = False
    then: list[int] = []  # start and busy time of each following step, alternating; all of them are `again`

    @property
    def steps(self) -> int:
        """Return the number of steps: this one and those in `then`."""
        return 1 + len(self.then) // 2

    def each(self) -> "Iterator[MeasuredStep]":
        """Yield this step and those in `then` one by one."""
        if not self.then:
            yield self
            return
        yield msgspec.structs.replace(self, then=[])
        for place in range(0, len(self.then), 2):
            started_ns, busy_ns = self.then[place : place + 2]
            yield MeasuredStep(self.number + 1 + place // 2, started_ns, busy_ns, again=True)


class Mark(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A change of the engine's state: "load", "warmup", "sleep", or empty for serving."""

    at_ns: int
    phase: str


class MeterFrame(msgspec.Struct, frozen=True, array_like=True):
    """One message of one rank. `in_flight` counts steps launched but not measured, `dropped` steps lost since the
    start.
    """

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
    """Return a frame as msgpack."""
    return _encoder.encode(frame)


def decode_frame(packed: bytes | memoryview) -> MeterFrame:
    """Return the frame that a datagram contains. Raises InvalidRecord if it cannot be read."""
    try:
        return _decoder.decode(packed)
    except (msgspec.MsgspecError, ValueError) as error:
        raise InvalidRecord(f"a worker's meter frame cannot be read: {error}") from error
