"""Encoders for the records of similar chats. They outlive plans, which are kept for a second."""

from operator import itemgetter
from typing import TYPE_CHECKING, Final

import msgspec

from contracts.metering.gaps import pack_gaps
from contracts.recording.records import RequestRecord, encode_record

if TYPE_CHECKING:
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


def packed(value: object) -> msgspec.Raw:
    """Return a value shared by many records, packed once."""
    return msgspec.Raw(_encoder.encode(value))


class RecordTemplate:
    """Packs request records that differ from `example` only in the fields named `varying`.

    `fixed` are the runs of constant fields, packed, in the order of the record.
    """

    __slots__ = ("_header", "_order", "_own_header_bytes", "fixed")

    def __init__(self, example: RequestRecord, varying: tuple[str, ...]) -> None:
        packed = encode_record(example)
        assert packed[:1] == _ARRAY_16, "a request record has more than 15 fields"
        self._header = packed[:_HEADER_BYTES]
        fixed: list[msgspec.Raw] = []
        order: list[int] = []
        run = _encoder.encode(RequestRecord.__struct_config__.tag)
        for name in (*RequestRecord.__struct_fields__, ""):
            if name and name not in varying:
                run += _encoder.encode(getattr(example, name))
                continue
            if run:
                order.append(len(varying) + len(fixed))
                fixed.append(msgspec.Raw(run))
                run = b""
            if name:
                order.append(varying.index(name))
        self.fixed = tuple(fixed)
        self._order = itemgetter(*order)
        self._own_header_bytes = 1 if len(order) < 16 else _HEADER_BYTES

    def pack(self, values: tuple[object, ...]) -> bytes:
        """Return the packed record with these values of the varying fields, in the order of `varying`."""
        return self.pack_all(self._order(values + self.fixed))

    def pack_all(self, parts: tuple[object, ...]) -> bytes:
        """Return the packed record with these varying fields and constant runs, in the order of the record."""
        return self._header + _encoder.encode(parts)[self._own_header_bytes :]


class RecordShape:
    """Packs records that differ from `example` only in the varying fields; `packed` is the packed example."""

    __slots__ = ("packed", "template")

    def __init__(self, example: RequestRecord) -> None:
        self.packed = encode_record(example)
        self.template = RecordTemplate(example, VARYING)


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


def laid_out(life: "RequestState", fixed: tuple[object, ...]) -> tuple[object, ...]:
    """Return a record's fields in order: those of `VARYING`, and between them the common runs.

    The request has a successful answer, by its only attempt or from the cache; or it is about to be sent. One tuple
    takes half as long as `RecordTemplate.pack` of the varying fields alone.
    """
    request, attempt, cost, plan, trace = life.request, life.last_attempt, life.cost, life.plan, life.trace
    assert request is not None
    first_ns: int | None = None
    gaps, gap_clock = b"", "none"
    finish_reason, model_version, provider_usage = life.finish_reason, "", ""
    who: object = life.who
    if plan is not None and who is plan.identity:
        who = plan.packed_identity
    if attempt is not None:
        result = attempt.result
        finish_reason, model_version = finish_reason or result.finish_reason, result.model
        provider_usage = result.provider_usage
        first_ns = attempt.first_at_ns
        if first_ns is not None:
            gaps = pack_gaps(attempt.gaps_for(life.tokens_out))
            gap_clock = result.gap_clock if attempt.gaps else "none"
    total_pico_usd, _, unpriced, version, basis, tier = msgspec.structs.astuple(cost)  # one call for six attributes
    charges, called, guard = life.charges, life.called, life.guard
    verdicts: object = _NOTHING
    guard_ns: int | None = None
    held_ns: int | None = None
    if guard is not None:
        verdicts, guard_ns, held_ns = guard.verdicts, guard.spent_ns, guard.held_ns
    return (
        fixed[0],
        life.id_bytes,
        life.started_at_ns,
        max(life.ended_ns - life.began_ns, 0),
        who,
        fixed[1],
        finish_reason,
        life.is_streamed,
        fixed[2],
        model_version,
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
        verdicts,
        fixed[8],
        trace.trace_id,
        life.span_id,
        life.run_id,
        life.conversation_id,
        fixed[9],
        life.tool_calls,
        life.schema_failed,
        life.priority,
        fixed[10],
        [offset for offset, _ in charges],
        [tokens for _, tokens in charges],
        life.overdraft_tokens,
        fixed[11],
        guard_ns,
        held_ns,
        unpriced,
        tier,
        life.overdraft_pico_usd,
        fixed[12],
        [call.name for call in called] if called else _NOTHING,
        [call.mark for call in called] if called else _NOTHING,
        life.prompt_marks,
        provider_usage,
    ) + fixed[13:]  # fields that were appended, and that no plan sets
