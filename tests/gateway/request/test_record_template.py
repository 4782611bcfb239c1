"""What a template packs is what the record itself would be packed as."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.access.identity import Identity
from contracts.metering.gaps import pack_gaps
from contracts.metering.usage import Usage
from contracts.recording.records import RequestRecord, decode_record, encode_record
from contracts.rules.limits import PRIORITY_CLASSES
from gateway.request.plans.record_shapes import VARYING, RecordTemplate

COUNT = st.integers(0, 2**32 - 1)
MAYBE = st.none() | COUNT
VALUES = st.fixed_dictionaries(
    {
        "request_id": st.binary(min_size=16, max_size=16),
        "started_at_ns": st.integers(0, 2**63 - 1),
        "duration_ns": st.integers(0, 2**63 - 1),
        "finish_reason": st.text(max_size=40),
        "model_version": st.text(max_size=300),
        "admission_ns": MAYBE,
        "usage": st.builds(Usage, input_text=MAYBE, cache_read_text=MAYBE, output_text=MAYBE, output_reasoning=MAYBE),
        "cost_pico_usd": st.none() | st.integers(0, 2**63 - 1),
        "charged_pico_usd": MAYBE,
        "max_tokens": MAYBE,
        "choices": COUNT,
        "temperature": st.none() | st.floats(0, 2),
        "request_bytes": COUNT,
        "response_bytes": COUNT,
        "reserved_tokens": MAYBE,
        "charge_offsets_ns": st.lists(COUNT, max_size=20),
        "charge_tokens": st.lists(COUNT, max_size=20),
        "overdraft_tokens": MAYBE,
        "who": st.builds(
            Identity, tenant=st.text(max_size=50), user=st.text(), tags=st.dictionaries(st.text(), st.text())
        ),
        "stream": st.booleans(),
        "ttft_ns": MAYBE,
        "gaps": st.lists(COUNT, max_size=10).map(pack_gaps),
        "gap_clock": st.sampled_from(["none", "gateway", "engine"]),
        "trace_id": st.binary(max_size=16),
        "span_id": st.binary(max_size=8),
        "run_id": st.text(max_size=100),
        "conversation_id": st.text(max_size=100),
        "priority": st.sampled_from(PRIORITY_CLASSES),
        "count_method": st.sampled_from(["reported", "estimate", "none"]),
        "cost_basis": st.sampled_from(["price_card", "unpriced", "unknown_usage"]),
        "price_version": st.text(max_size=50),
        "limit": st.text(max_size=50),
        "overdraft_pico_usd": MAYBE,
        "unpriced_leaves": st.lists(st.sampled_from(["input_text", "output_audio"]), max_size=2),
        "service_tier": st.text(max_size=20),
        "tool_calls": MAYBE,
        "schema_failed": st.none() | st.booleans(),
        "tools": st.lists(st.text(max_size=128), max_size=5),
        "tool_marks": st.lists(COUNT, max_size=5),
        "prompt_marks": st.lists(COUNT, max_size=20),
        "provider_usage": st.text(max_size=200),
        "verdicts": st.lists(st.text(max_size=50), max_size=3),
        "guard_ns": MAYBE,
        "guard_held_ns": MAYBE,
    }
)


@settings(max_examples=200, deadline=None)
@given(VALUES, VALUES, st.text(max_size=50))
def test_a_template_packs_what_the_record_would(example: dict[str, Any], values: dict[str, Any], route: str) -> None:
    missing, more = set(VARYING) - set(values), set(values) - set(VARYING)
    assert not missing, f"VALUES of this test has nothing for {sorted(missing)}: add what each may be"
    assert not more, f"VALUES of this test has {sorted(more)}, which VARYING of record_shapes.py does not name"
    fixed: dict[str, Any] = {"route": route, "provider": "p", "replica": "r"}
    template = RecordTemplate(RequestRecord(**example, **fixed), VARYING)
    record = RequestRecord(**values, **fixed)
    packed = template.pack(tuple(values[name] for name in VARYING))
    assert packed == encode_record(record)
    assert decode_record(packed) == record


def test_one_varying_field_is_enough():
    record = RequestRecord(request_id=bytes(16), started_at_ns=1, duration_ns=2)
    template = RecordTemplate(record, ("duration_ns",))
    assert decode_record(template.pack((7,))) == RequestRecord(request_id=bytes(16), started_at_ns=1, duration_ns=7)
