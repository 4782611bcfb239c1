"""What packs the records of chats that are alike, kept from plan to plan: a plan lives a second, they live on."""

from typing import Final

from contracts.recording.records import RequestRecord, encode_record
from gateway.request.plans.record_template import RecordTemplate

# The fields that differ among the good answers to one key's requests for one model at one target, or from the cache;
# `gateway/records/recorder.py` gives their values in this order.
VARYING: Final = (
    "request_id",
    "started_at_ns",
    "duration_ns",
    "who",
    "finish_reason",
    "stream",
    "model_version",
    "ttft_ns",
    "admission_ns",
    "gaps",
    "gap_clock",
    "usage",
    "count_method",
    "cost_pico_usd",
    "cost_basis",
    "price_version",
    "charged_pico_usd",
    "max_tokens",
    "choices",
    "temperature",
    "request_bytes",
    "response_bytes",
    "limit",
    "reserved_tokens",
    "trace_id",
    "span_id",
    "run_id",
    "conversation_id",
    "priority",
    "charge_offsets_ns",
    "charge_tokens",
    "overdraft_tokens",
    "overdraft_pico_usd",
    "unpriced_leaves",
    "service_tier",
)
_MOST_KEPT: Final = 128


class RecordShape:
    """Packs the records that differ from `example` only in what varies; `packed` is the example's own."""

    __slots__ = ("packed", "template")

    def __init__(self, example: RequestRecord) -> None:
        self.packed = encode_record(example)
        self.template = RecordTemplate(example, VARYING)


class KeptShapes:
    """The shapes of records that were asked for last, each by all that its example says."""

    __slots__ = ("_most", "_shapes")

    def __init__(self, most: int = _MOST_KEPT) -> None:
        self._most = most
        self._shapes: dict[bytes, RecordShape] = {}

    def of(self, example: RequestRecord) -> RecordShape:
        """Return the shape of the records that are like this one: the same one as long as it is kept."""
        said = encode_record(example)
        found = self._shapes.pop(said, None) or RecordShape(example)
        self._shapes[said] = found  # to the end
        if len(self._shapes) > self._most:
            del self._shapes[next(iter(self._shapes))]
        return found
