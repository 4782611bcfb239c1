"""What packs the records of chats that are alike, kept from plan to plan: a plan lives a second, they live on."""

from typing import Final

from msgspec.structs import replace

from contracts.records import RequestRecord, encode_record
from gateway.lane.plain_record import PlainRecords
from gateway.lane.record_template import RecordTemplate

VARYING: Final = (
    "request_id",
    "started_at_ns",
    "duration_ns",
    "finish_reason",
    "model_version",
    "admission_ns",
    "usage",
    "cost_pico_usd",
    "charged_pico_usd",
    "max_tokens",
    "choices",
    "temperature",
    "request_bytes",
    "response_bytes",
    "reserved_tokens",
    "charge_offsets_ns",
    "charge_tokens",
    "overdraft_tokens",
)
VARYING_OF_STREAMS: Final = (*VARYING, "ttft_ns", "gaps", "gap_clock")
_MOST_KEPT: Final = 128  # some 20 KB each where all formats of its plain records are made


class RecordShapes:
    """Packs the records that differ from `example` only in what varies: whole, whole and plain, streamed."""

    __slots__ = ("packed", "whole", "plain", "streamed")

    def __init__(self, example: RequestRecord) -> None:
        self.packed = encode_record(example)
        self.whole = RecordTemplate(example, VARYING)
        self.plain = PlainRecords(example)
        self.streamed = RecordTemplate(replace(example, stream=True), VARYING_OF_STREAMS)


class KeptShapes:
    """The shapes of records that were asked for last, each by all that its example says."""

    __slots__ = ("_most", "_shapes")

    def __init__(self, most: int = _MOST_KEPT) -> None:
        self._most = most
        self._shapes: dict[bytes, RecordShapes] = {}

    def of(self, example: RequestRecord) -> RecordShapes:
        """Give the shapes of the records that are like this one: the same ones as long as they are kept."""
        said = encode_record(example)
        found = self._shapes.pop(said, None)
        if found is None:
            found = RecordShapes(example)
        else:
            found.plain.make_room()
        self._shapes[said] = found  # to the end
        if len(self._shapes) > self._most:
            del self._shapes[next(iter(self._shapes))]
        return found
