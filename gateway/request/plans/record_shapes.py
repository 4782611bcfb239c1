"""Encoders for the records of similar chats. They outlive plans, which are kept for a second."""

from typing import TYPE_CHECKING, Final

import msgspec

from contracts.api.answer_parts import NOTHING_FOUND
from contracts.metering.gaps import pack_gaps
from contracts.recording.records import RequestRecord, encode_record
from gateway.request.attempt import NO_RESULT

if TYPE_CHECKING:
    from gateway.observability.metrics.request_counts import SeriesKey
    from gateway.request.request_state import RequestState

_encoder: Final = msgspec.msgpack.Encoder()
_ARRAY_16: Final = b"\xdc"  # MessagePack's mark of an array with two bytes of length
_HEADER_BYTES: Final = 3
# The fields that differ among the good answers to one key's requests for one model at one target, or from the cache.
# What the caller says of itself, and what guardrails say of it. If any of it differs from the plan,
# `RequestState.is_like_its_plan` is false (`planned_requests.py`), and the request is written down whole before it is
# sent.
OF_CALLER: Final = (
    *("who", "trace_id", "span_id", "run_id", "conversation_id", "priority"),
    *("verdicts", "guard_ns"),
)
# What else is known when a request is sent. Of a request that is like its plan a crash leaves only what
# `gateway/records/sent_requests.py` writes down, and `gateway/records/lost_requests.py` reads again.
WHEN_SENT: Final = (
    "request_id",
    "started_at_ns",
    "stream",
    "admission_ns",
    "max_tokens",
    "choices",
    "temperature",
    "request_bytes",
    "reserved_tokens",
)
# What is known at the end.
AT_END: Final = (
    "duration_ns",
    "finish_reason",
    "model_version",
    "ttft_ns",
    "gaps",
    "gap_clock",
    "usage",
    "count_method",
    "cost_pico_usd",
    "cost_basis",
    "price_version",
    "charged_pico_usd",
    "response_bytes",
    "limit",
    "charge_offsets_ns",
    "charge_tokens",
    "overdraft_tokens",
    "overdraft_pico_usd",
    "unpriced_leaves",
    "service_tier",
    "tool_calls",
    "schema_failed",
    "tools",
    "tool_marks",
    "prompt_marks",
    "provider_usage",
    "guard_held_ns",
)
VARYING: Final = (*OF_CALLER, *WHEN_SENT, *AT_END)
_FIELDS: Final = RequestRecord.__struct_fields__
# The runs that are as usual for most requests: before the charges, and after them.
_USUAL: Final = (
    _FIELDS[_FIELDS.index("reserved_tokens") + 1 : _FIELDS.index("charge_offsets_ns")],
    _FIELDS[_FIELDS.index("overdraft_tokens") + 1 :],
)
# Among a usual record's parts.
_BEFORE_USUAL: Final = -5
_CHARGES: Final = slice(-4, -1)
# The fields that keep their defaults, as whatever sets one is led stage by stage. All others are in the examples of
# `plan.py` and `cache_plan.py`.
AT_DEFAULT: Final = frozenset(
    (
        "outcome",
        "status",
        "error_code",
        "adapter",
        "queue_ns",
        "engine_output_tokens",
        "recompute_tokens",
        "overrun_tokens",
        "wasted_tokens",
        "gpu",
        "route_decision",
        "prompt_name",
        "prompt_version",
        "wait_ns",
        "cold_start_ns",
        "arm",
        "rollout",
        "thinking_over_tokens",
        "upstream_status",
        "upstream_error",
        "upstream_message",
    )
)
_MOST_KEPT: Final = 128
_NOTHING: Final[tuple[object, ...]] = ()


def _packed(values: list[object]) -> msgspec.Raw:
    """Return successive fields of a record, packed."""
    return msgspec.Raw(b"".join([_encoder.encode(value) for value in values]))


class RecordTemplate:
    """Packs request records that differ from `example` only in the fields of `VARYING`.

    `fixed` are the runs of constant fields, packed, in the order of the record. `usual` are the two runs of fields
    around the charges that most requests leave as they are in the example: packed once, for all of these.
    """

    __slots__ = ("_fixed", "_header", "_usual", "_who", "counted_as")

    def __init__(self, example: RequestRecord, pool: str) -> None:
        """Accept `pool`: the model's, by which the requests are counted."""
        self._header = encode_record(example)[:_HEADER_BYTES]
        assert self._header[:1] == _ARRAY_16, "a request record has more than 15 fields"
        labels = (example.api, example.operation, example.provider, example.model, pool)
        self.counted_as: SeriesKey = (*labels, example.outcome, example.status)
        self._who = _packed([example.who])
        fixed: list[msgspec.Raw] = []
        values: list[object] = [RequestRecord.__struct_config__.tag]  # of the run
        for name in RequestRecord.__struct_fields__:
            if name not in VARYING:
                values.append(getattr(example, name))
            elif values:
                fixed.append(_packed(values))
                values = []
        fixed.append(_packed(values))
        self._fixed = fixed
        self._usual = [_packed([getattr(example, name) for name in names]) for names in _USUAL]

    def pack(self, life: "RequestState") -> bytes:
        """Return the packed record of a request.

        It has a successful answer, by its only attempt or from the cache; or it is about to be sent.
        """
        return self._header + _encoder.encode(self._parts(life))[_HEADER_BYTES:]

    def _parts(self, life: "RequestState") -> tuple[object, ...]:
        """Return the record's fields in order: those of `VARYING`, and between them the common runs."""
        request, attempt, charges, fixed = life.request, life.last_attempt, life.charges, self._fixed
        assert request is not None
        result, first_ns = NO_RESULT, None
        gaps, gap_clock = b"", "none"
        if attempt is not None:
            result, first_ns = attempt.result, attempt.first_at_ns
            if first_ns is not None:
                gaps = pack_gaps(attempt.gaps_for(life.tokens_out))
                gap_clock = result.gap_clock if attempt.gaps else "none"
        # In one call, in place of six attributes.
        total_pico_usd, _, unpriced, version, basis, tier = msgspec.structs.astuple(life.cost)
        usual = self._usual
        parts: tuple[object, ...] = (
            fixed[0],
            life.id_bytes,
            life.started_at_ns,
            max(life.ended_ns - life.began_ns, 0),
            self._who if life.is_like_its_plan else life.who,
            fixed[1],
            life.finish_reason or result.finish_reason,
            life.is_streamed,
            fixed[2],
            result.model,
            fixed[3],
            since_ns(life.began_ns, first_ns),
            since_ns(life.began_ns, life.admitted_ns),
            fixed[4],
            gaps,
            gap_clock,
            life.usage,
            life.count_method,
            fixed[5],
            total_pico_usd,
            basis,
            version,
            life.charged_pico_usd,
            fixed[6],
            life.output_limit,
            life.choices,
            request.temperature,
            life.request_bytes,
            life.response_bytes,
            fixed[7],
            life.limit,
            life.reserved_tokens,
            usual[0],
            [offset for offset, _ in charges],
            [tokens for _, tokens in charges],
            life.overdraft_tokens,
            usual[1],
        )
        is_plain = life.is_like_its_plan and life.guard is None and life.findings is NOTHING_FOUND
        if is_plain and not (unpriced or tier or life.overdraft_pico_usd or life.prompt_marks or result.provider_usage):
            return parts
        return parts[:_BEFORE_USUAL] + self._unusual(life, parts[_CHARGES], unpriced, tier, result.provider_usage)

    def _unusual(
        self, life: "RequestState", charges: tuple[object, ...], unpriced: object, tier: str, provider_usage: str
    ) -> tuple[object, ...]:
        """Return the fields from the verdicts to the end, where not all are as usual."""
        fixed, trace, guard, found = self._fixed, life.trace, life.guard, life.findings
        return (
            _NOTHING if guard is None else guard.verdicts,
            fixed[8],
            trace.trace_id,
            life.span_id,
            life.run_id,
            life.conversation_id,
            fixed[9],
            found.tool_calls,
            found.schema_failed,
            life.priority,
            fixed[10],
            *charges,
            fixed[11],
            None if guard is None else guard.spent_ns,
            None if guard is None else guard.held_ns,
            unpriced,
            tier,
            life.overdraft_pico_usd,
            fixed[12],
            [call.name for call in found.called],
            [call.mark for call in found.called],
            life.prompt_marks,
            provider_usage,
            fixed[13],  # fields that were appended, and that no plan sets
        )


class RecordShape:
    """Packs records that differ from `example` only in `VARYING`; `packed` is the packed example."""

    __slots__ = ("packed", "template")

    def __init__(self, example: RequestRecord) -> None:
        self.packed = encode_record(example)
        self.template = RecordTemplate(example, example.pool)


class KeptShapes:
    """The most recently used record shapes, by the fields of their example."""

    __slots__ = ("_most", "_shapes")

    def __init__(self, most: int = _MOST_KEPT) -> None:
        self._most = most
        self._shapes: dict[bytes, RecordShape] = {}

    def of(self, example: RequestRecord) -> RecordShape:
        """Return the shape for records like this one; the same object as long as it is kept."""
        said = encode_record(example)
        found = self._shapes.pop(said, None) or RecordShape(example)
        self._shapes[said] = found  # to the end
        if len(self._shapes) > self._most:
            del self._shapes[next(iter(self._shapes))]
        return found


def since_ns(began_ns: int, at_ns: int | None) -> int | None:
    """Return the nanoseconds from a request's start to an event; `None` if the event did not happen."""
    return None if at_ns is None else max(at_ns - began_ns, 0)
