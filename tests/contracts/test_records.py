"""Records survive packing, versions that differ, and bytes that are none."""

import types
import typing

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.access.identity import Identity
from contracts.errors import InvalidRecord
from contracts.metering.gaps import MAX_GAP_UNITS, pack_gaps
from contracts.metering.usage import LEAVES, MAX_TOKENS_PER_LEAF, Usage
from contracts.recording.ids import uuid7
from contracts.recording.records import (
    EVENT_NAMES,
    EVENT_PREFIX,
    AttemptRecord,
    ContentRecord,
    DeviceRecord,
    GpuShare,
    KvRecord,
    Nanoseconds,
    Record,
    RequestId,
    RequestRecord,
    StepRecord,
    decode_record,
    encode_record,
    event_name_of,
)

FEW = settings(max_examples=25, deadline=None)
MANY = settings(max_examples=150, deadline=None)
KINDS = list(EVENT_NAMES)
TAGS = [str(kind.__struct_config__.tag) for kind in KINDS]
START_NS = 1_790_000_000_000_000_000
REQUEST_ID = uuid7(START_NS).bytes


def values_of(annotation):
    """Return a strategy for any value of a field's annotation, as wide as msgpack carries it."""
    if annotation is Usage:
        return st.builds(Usage, *[st.none() | st.integers(0, MAX_TOKENS_PER_LEAF)] * len(LEAVES))
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return structs_of(annotation)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation == RequestId:
        return st.binary(min_size=16, max_size=16)
    if annotation == Nanoseconds:
        return st.integers(0, 2**64 - 1)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*map(values_of, arguments))
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    if origin is list:
        return st.lists(values_of(arguments[0]), max_size=3)
    if origin is dict:
        return st.dictionaries(values_of(arguments[0]), values_of(arguments[1]), max_size=2)
    plain = {
        int: st.integers(-(2**63), 2**64 - 1),
        str: st.text(max_size=6) | st.sampled_from(TAGS),
        bytes: st.binary(max_size=18) | st.sampled_from([tag.encode() for tag in TAGS]),
        float: st.floats(allow_nan=False),
        bool: st.booleans(),
        type(None): st.none(),
    }
    return plain[annotation]


def structs_of(struct):
    hints = typing.get_type_hints(struct, include_extras=True)
    strategies = {name: values_of(hints[name]) for name in struct.__struct_fields__}
    if "gaps" in strategies:
        strategies["gaps"] = st.lists(st.integers(0, MAX_GAP_UNITS), max_size=3).map(pack_gaps)
    return st.builds(struct, **strategies)


@st.composite
def steps(draw):
    """A step whose lists match and whose parts sum to its time."""
    step = draw(structs_of(StepRecord))
    requests = draw(st.integers(0, 3))
    hints = typing.get_type_hints(StepRecord, include_extras=True)
    lists = {}
    for name in ("request_ids", *STEP_LISTS):
        size = requests if name in ("request_ids", "gpu_ns") else draw(st.sampled_from([0, requests]))
        (inner,) = typing.get_args(hints[name])
        lists[name] = draw(st.lists(values_of(inner), min_size=size, max_size=size))
    lists["gpu_ns"] = [draw(st.integers(0, 10**12)) for _ in range(requests)]
    busy = sum(lists["gpu_ns"]) if requests and step.method else step.busy_ns
    return msgspec.structs.replace(step, busy_ns=busy, **lists)


STEP_LISTS = (
    "tenants",
    "scheduled",
    "context",
    "cached",
    "phases",
    "recompute",
    "drafted",
    "accepted",
    "aborted",
    "gpu_ns",
)
RECORDS = {kind: steps() if kind is StepRecord else structs_of(kind) for kind in KINDS}
SMALLEST: dict[type[Record], Record] = {
    RequestRecord: RequestRecord(request_id=REQUEST_ID, started_at_ns=START_NS, duration_ns=1),
    AttemptRecord: AttemptRecord(request_id=REQUEST_ID, number=1, started_at_ns=START_NS, duration_ns=1),
    StepRecord: StepRecord(engine="e", sequence=0, started_at_ns=START_NS, busy_ns=0),
    KvRecord: KvRecord(engine="e", sequence=0, at_ns=START_NS, event="stored"),
    DeviceRecord: DeviceRecord(host="h", sequence=0, at_ns=START_NS, device="GPU-1"),
}
WHO = Identity("acme", "search", "ranking", "key_1", "user-7", {"feature": "résumé"})
LARGE_REQUEST = RequestRecord(
    request_id=REQUEST_ID,
    started_at_ns=START_NS,
    duration_ns=2_000_000_000,
    who=WHO,
    gaps=pack_gaps([0, 127, 128, 65_535, 65_536, MAX_GAP_UNITS]),
    gap_clock="engine",
    usage=Usage(input_text=900, cache_read_text=128, output_text=7),
    cost_pico_usd=10**18 - 1,
    gpu=GpuShare(1, 2, 3, 4, 5.5, "steptime-as/1", 0.25),
    temperature=0.7,
    schema_failed=False,
)
EXAMPLES = [*SMALLEST.values(), LARGE_REQUEST]


def fields_of(record):
    return msgspec.msgpack.decode(encode_record(record))


def each_kind(function):
    return pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)(function)


def each_example(function):
    return pytest.mark.parametrize("record", EXAMPLES, ids=lambda record: type(record).__name__)(function)


# --- round trip ---


@each_kind
@FEW
@given(data=st.data())
def test_a_record_survives_packing(kind, data):
    record = data.draw(RECORDS[kind])
    packed = encode_record(record)
    decoded = decode_record(packed)
    assert type(decoded) is kind
    assert decoded == record
    assert encode_record(decoded) == packed
    assert decode_record(memoryview(packed)) == record


@each_kind
@FEW
@given(data=st.data())
def test_the_event_name_is_the_kinds_own_whatever_the_payload_says(kind, data):
    assert event_name_of(encode_record(data.draw(RECORDS[kind]))) == EVENT_NAMES[kind]


@pytest.mark.parametrize("text", [*TAGS, *(f"\xa9{tag}" for tag in TAGS)])
def test_a_payload_that_spells_another_kinds_tag_fools_nobody(text):
    sixteen = text.encode().center(16, b"x")[:16]
    disguised: dict[type[Record], Record] = {
        RequestRecord: RequestRecord(request_id=sixteen, started_at_ns=0, duration_ns=0, who=Identity(text)),
        AttemptRecord: AttemptRecord(request_id=sixteen, number=1, started_at_ns=0, duration_ns=0),
        StepRecord: StepRecord(engine=text, sequence=0, started_at_ns=0, busy_ns=0),
        KvRecord: KvRecord(engine=text, sequence=0, at_ns=0, event="cleared"),
        DeviceRecord: DeviceRecord(host=text, sequence=0, at_ns=0, device=text),
        ContentRecord: ContentRecord(request_id=sixteen, started_at_ns=0, tenant=text, prompt=text),
    }
    assert {kind: event_name_of(encode_record(record)) for kind, record in disguised.items()} == EVENT_NAMES


def test_every_kind_has_its_own_tag_and_event_name():
    assert len(set(TAGS)) == len(set(EVENT_NAMES.values())) == len(KINDS) == 6
    assert all(name == EVENT_PREFIX + tag.split(".")[0] for name, tag in zip(EVENT_NAMES.values(), TAGS, strict=True))


def test_a_records_defaults_are_not_shared_between_records():
    one, two = (RequestRecord(request_id=REQUEST_ID, started_at_ns=0, duration_ns=0) for _ in range(2))
    one.verdicts.append("masked")
    assert two.verdicts == []


# --- other versions ---


@each_example
def test_a_record_with_fields_of_a_newer_version_decodes_without_them(record):
    for extra in ([None], ["later", 7, {"a": [1.5]}], [[[[]]], b"\xff" * 100]):
        assert decode_record(msgspec.msgpack.encode([*fields_of(record), *extra])) == record


@each_example
def test_a_record_cut_to_an_older_versions_fields_decodes_with_defaults(record):
    fields = fields_of(record)
    required = len([field for field in msgspec.structs.fields(type(record)) if field.required])
    for count in range(1 + required, len(fields) + 1):
        decoded = decode_record(msgspec.msgpack.encode(fields[:count]))
        for position, field in enumerate(msgspec.structs.fields(type(record)), start=1):
            expected = getattr(record if position < count else SMALLEST[type(record)], field.name)
            assert getattr(decoded, field.name) == expected
    for count in range(1 + required):
        with pytest.raises(InvalidRecord):
            decode_record(msgspec.msgpack.encode(fields[:count]))


@pytest.mark.parametrize("name", ["who", "usage", "gpu"])
def test_parts_of_a_record_may_be_newer_or_older_too(name):
    fields = fields_of(LARGE_REQUEST)
    position = 1 + RequestRecord.__struct_fields__.index(name)
    newer = [*fields[:position], [*fields[position], "later"], *fields[position + 1 :]]
    assert decode_record(msgspec.msgpack.encode(newer)) == LARGE_REQUEST
    older = [*fields[:position], fields[position][:1], *fields[position + 1 :]]
    decoded = decode_record(msgspec.msgpack.encode(older))
    part = getattr(LARGE_REQUEST, name)
    assert getattr(decoded, name) == type(part)(getattr(part, part.__struct_fields__[0]))


# What stands first must stay first: these bytes were written by the first version that shipped records.
FIRST_VERSION = {
    RequestRecord: ("request_id", "started_at_ns", "duration_ns", "who", "operation", "api", "outcome", "status"),
    AttemptRecord: ("request_id", "number", "started_at_ns", "duration_ns", "who", "reason", "outcome", "status"),
    StepRecord: ("engine", "sequence", "started_at_ns", "busy_ns", "gap_ns", "kind", "gap_cause", "forward_ns"),
    KvRecord: ("engine", "sequence", "at_ns", "event", "block_hashes", "parent_hash", "block_size", "medium"),
    DeviceRecord: ("host", "sequence", "at_ns", "device", "device_model", "device_index", "parent", "vendor"),
    ContentRecord: ("request_id", "started_at_ns", "tenant", "model", "encoding", "prompt", "completion"),
}


@each_kind
def test_fields_are_only_ever_appended(kind):
    assert kind.__struct_fields__[:8] == FIRST_VERSION[kind]
    required = [field.required for field in msgspec.structs.fields(kind)]
    assert required == sorted(required, reverse=True)  # none without a default after one with


# --- bytes that are no record ---


@pytest.mark.parametrize(
    "tag", ["request.2", "request.10", "request", "", "Request.1", "request.1 ", "x" * 40, 1, None]
)
def test_an_unknown_kind_or_version_is_refused(tag):
    packed = msgspec.msgpack.encode([tag, *fields_of(LARGE_REQUEST)[1:]])
    with pytest.raises(InvalidRecord, match=f"packed record of {len(packed)} bytes cannot be decoded"):
        decode_record(packed)
    with pytest.raises(InvalidRecord, match="names no known kind"):
        event_name_of(packed)


@each_example
def test_a_record_truncated_at_any_byte_is_refused(record):
    packed = encode_record(record)
    for length in range(len(packed)):
        with pytest.raises(InvalidRecord):
            decode_record(packed[:length])
    with pytest.raises(InvalidRecord):
        decode_record(packed + b"\xc0")


def decodes_or_is_refused(packed):
    try:
        decoded = decode_record(packed)
    except InvalidRecord:
        return
    assert type(decoded) in KINDS


@MANY
@given(st.binary(max_size=200))
def test_any_bytes_are_a_record_or_refused(packed):
    decodes_or_is_refused(packed)
    try:
        assert event_name_of(packed) in EVENT_NAMES.values()
    except InvalidRecord:
        pass


@MANY
@given(st.sampled_from(EXAMPLES), st.binary(max_size=60), st.integers(0, 300))
def test_a_record_with_foreign_bytes_in_it_is_a_record_or_refused(record, foreign, at):
    packed = encode_record(record)
    at %= len(packed)
    decodes_or_is_refused(packed[:at] + foreign)
    decodes_or_is_refused(packed[:at] + foreign + packed[at:])
    decodes_or_is_refused(packed[:at] + foreign + packed[at + len(foreign) :])


@MANY
@given(st.sampled_from(EXAMPLES), st.integers(0, 300), st.integers(0, 255))
def test_a_record_with_a_wrong_byte_is_a_record_or_refused(record, at, byte):
    packed = bytearray(encode_record(record))
    packed[at % len(packed)] = byte
    decodes_or_is_refused(bytes(packed))


def with_field(record, name, value):
    fields = fields_of(record)
    fields[1 + type(record).__struct_fields__.index(name)] = value
    return msgspec.msgpack.encode(fields)


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("usage", [-1], "input_text is -1"),
        ("usage", [2**32], "input_text is 4294967296"),
        ("usage", ["7"], "Expected `int | null`"),
        ("outcome", "great", "Invalid enum value 'great'"),
        ("gap_clock", "sundial", "Invalid enum value 'sundial'"),
        ("started_at_ns", None, "Expected `int`"),
        ("started_at_ns", 1.5, "Expected `int`"),
        ("request_id", "text", "Expected `bytes`"),
        ("gaps", [1, 2], "Expected `bytes`"),
        ("gaps", b"\x01\x00\x00", "packed gaps have 3 bytes"),
        ("gaps", b"\x01" * 9, "packed gaps have 9 bytes"),
        ("request_id", b"x" * 15, "length >= 16"),
        ("request_id", b"x" * 17, "length <= 16"),
        ("duration_ns", -1, "`int` >= 0"),
        ("ttft_ns", -1, "`int` >= 0"),
        ("admission_ns", -1, "`int` >= 0"),
        ("queue_ns", -1, "`int` >= 0"),
        ("gpu", [-1], "`int` >= 0"),
        ("who", [], "at least length 1"),
        ("who", ["acme", "", "", "", "", {"k": 1}], "Expected `str`"),
        ("schema_failed", 1, "Expected `bool | null`"),
    ],
)
def test_a_field_of_the_wrong_kind_is_refused_saying_what_was_wrong(name, value, sentence):
    with pytest.raises(InvalidRecord) as refusal:
        decode_record(with_field(LARGE_REQUEST, name, value))
    assert sentence in refusal.value.message


def test_a_bottomless_nest_in_a_field_we_would_skip_is_refused():
    fields = fields_of(LARGE_REQUEST)
    packed = msgspec.msgpack.encode([*fields, None])[:-1] + b"\x91" * 100_000 + b"\xc0"
    with pytest.raises(InvalidRecord, match="recursion"):
        decode_record(packed)


@pytest.mark.parametrize("header", [b"\xdd\xff\xff\xff\xff", b"\xdc\xff\xff"])
def test_a_length_that_lies_costs_no_memory(header):
    packed = encode_record(SMALLEST[RequestRecord])
    with pytest.raises(InvalidRecord, match="truncated"):
        decode_record(header + packed[3:])
    gaps = encode_record(LARGE_REQUEST).split(b"\xc4" + bytes([len(LARGE_REQUEST.gaps)]) + LARGE_REQUEST.gaps)[0]
    with pytest.raises(InvalidRecord, match="truncated"):
        decode_record(gaps + b"\xc6\xff\xff\xff\xff")


def test_text_that_is_not_utf8_is_refused():
    packed = encode_record(StepRecord(engine="é", sequence=0, started_at_ns=0, busy_ns=0))
    with pytest.raises(InvalidRecord, match="utf-8"):
        decode_record(packed.replace("é".encode(), b"\xff\xfe"))
