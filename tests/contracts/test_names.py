"""Columns and attribute names: every fact of a record has its column, and nothing unknown is written."""

import re
import typing

import msgspec
import pytest

from contracts.metering.usage import LEAVES, Usage, column_of
from contracts.recording.dialects import CONTENT_ATTRIBUTES, SPELLINGS, reading_of
from contracts.recording.names import (
    ATTEMPTS,
    CACHE_READ_TOKENS,
    CACHE_WRITE_TOKENS,
    COST_AMOUNT,
    COST_CURRENCY,
    ENGINE_STEPS,
    FINISH_REASONS,
    INPUT_TOKENS,
    KV_EVENTS,
    LOGS,
    OPERATION_NAME,
    OUTPUT_TOKENS,
    PROVIDER_NAME,
    REASONING_TOKENS,
    REQUEST_CHOICE_COUNT,
    REQUEST_ID,
    REQUEST_MODEL,
    REQUEST_STREAM,
    REQUEST_TEMPERATURE,
    REQUESTS,
    TABLES,
    TENANT,
    TIME_TO_FIRST_CHUNK,
    TRACES,
    ColumnKind,
    span_attributes,
    span_name,
)
from contracts.recording.records import (
    EVENT_NAMES,
    AttemptRecord,
    DeviceRecord,
    GpuShare,
    KvRecord,
    RequestRecord,
    StepRecord,
)
from contracts.recording.telemetry import LogRow, SpanRow

REQUEST = RequestRecord(request_id=bytes(range(16)), started_at_ns=1, duration_ns=1)
SMALLEST = {
    RequestRecord: REQUEST,
    AttemptRecord: AttemptRecord(request_id=bytes(16), number=1, started_at_ns=1, duration_ns=1),
    StepRecord: StepRecord(engine="e", sequence=0, started_at_ns=1, busy_ns=0),
    KvRecord: KvRecord(engine="e", sequence=0, at_ns=1, event="stored"),
    DeviceRecord: DeviceRecord(host="h", sequence=0, at_ns=1, device="GPU-1"),
}
ALL_TABLES = [*TABLES.values(), TRACES, LOGS]


def is_list_of(test):
    return lambda value: isinstance(value, list) and all(map(test, value))


def is_unsigned(bits):
    return lambda value: type(value) is int and 0 <= value < 2**bits


def is_a(kind):
    return lambda value: type(value) is kind


FITS = {
    "uuid": lambda value: isinstance(value, bytes) and len(value) == 16,
    "bytes": is_a(bytes),
    "time_ns": is_a(int),
    "string": is_a(str),
    "label": is_a(str),
    "bool": is_a(bool),
    "u8": is_unsigned(8),
    "u16": is_unsigned(16),
    "u32": is_unsigned(32),
    "u64": is_unsigned(64),
    "f64": is_a(float),
    "usd": is_a(int),
    "u32[]": is_list_of(is_unsigned(32)),
    "u32_packed[]": lambda value: isinstance(value, bytes) and len(value) % 4 == 0,
    "u64[]": is_list_of(is_unsigned(64)),
    "u8[]": is_list_of(is_unsigned(8)),
    "bool[]": is_list_of(is_a(bool)),
    "uuid[]": is_list_of(is_a(bytes)),
    "label[]": is_list_of(is_a(str)),
    "labels": is_a(dict),
}


def each_table(function):
    return pytest.mark.parametrize("table", ALL_TABLES, ids=lambda table: table.name)(function)


# --- columns ---


@each_table
def test_columns_have_distinct_plain_names_and_known_kinds(table):
    names = [column.name for column in table.columns]
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", name) for name in names)
    assert {column.kind for column in table.columns} <= set(typing.get_args(ColumnKind))


def test_every_kind_of_record_has_its_own_table():
    assert set(TABLES) == set(EVENT_NAMES)
    assert len({table.name for table in ALL_TABLES}) == len(ALL_TABLES)


@pytest.mark.parametrize("kind", SMALLEST, ids=lambda kind: kind.__name__)
def test_every_column_reads_a_fitting_value_from_the_smallest_record(kind):
    for column in TABLES[kind].columns:
        value = column.read(SMALLEST[kind])
        if column.kind.endswith("?"):
            assert value is None, column.name
        else:
            assert FITS[column.kind](value), (column.name, column.kind, value)


def marked(struct, mark):
    """Build a struct in which every fact is another number."""
    values = {}
    for name, hint in typing.get_type_hints(struct).items():
        parts = [part for part in (hint, *typing.get_args(hint)) if isinstance(part, type)]
        inner = [part for part in parts if issubclass(part, msgspec.Struct)]
        values[name] = marked(inner[0], mark) if inner else next(mark)
    return struct(**values)


def facts_of(record):
    for value in msgspec.structs.astuple(record):
        if isinstance(value, msgspec.Struct):
            yield from facts_of(value)
        else:
            yield value


@pytest.mark.parametrize("kind", SMALLEST, ids=lambda kind: kind.__name__)
def test_every_fact_of_a_record_has_exactly_one_column(kind):
    record = marked(kind, iter(range(1_000)))
    read = [column.read(record) for column in TABLES[kind].columns]
    lacking = "contracts/recording/names.py has one column for each field of a record"
    assert sorted(read) == sorted(facts_of(record)), lacking


@pytest.mark.parametrize("kind", SMALLEST, ids=lambda kind: kind.__name__)
def test_a_column_takes_unknown_exactly_where_the_record_may_not_know(kind):
    hints = typing.get_type_hints(kind)
    record = marked(kind, iter(range(1_000)))
    own = {getattr(record, name): hint for name, hint in hints.items() if isinstance(getattr(record, name), int)}
    for column in TABLES[kind].columns:
        hint = own.get(column.read(record))
        if hint is not None:
            assert column.kind.endswith("?") == (type(None) in typing.get_args(hint)), column.name


@pytest.mark.parametrize(("row", "table"), [(SpanRow, TRACES), (LogRow, LOGS)], ids=["traces", "logs"])
def test_every_fact_of_foreign_telemetry_has_exactly_one_column(row, table):
    names = list(row.__slots__)
    values = row(*range(len(names)))
    assert sorted(column.read(values) for column in table.columns) == list(range(len(names)))


@pytest.mark.parametrize("table", [REQUESTS, ATTEMPTS], ids=lambda table: table.name)
def test_a_row_says_who_pays_at_all_five_levels_and_counts_each_leaf(table):
    names = {column.name for column in table.columns}
    assert {"tenant", "team", "project", "key_id", "end_user", "tags"} <= names
    assert {column_of(leaf) for leaf in LEAVES} <= names


def test_a_missing_gpu_share_is_unknown_and_a_zero_one_is_zero():
    gpu = [column for column in REQUESTS.columns if column.name.startswith(("gpu_", "kv_block"))]
    with_share = msgspec.structs.replace(REQUEST, gpu=GpuShare())
    assert [column.read(REQUEST) for column in gpu] == [None] * 5
    assert [column.read(with_share) for column in gpu] == [0, 0, 0, 0, 0.0]


def test_steps_and_cache_events_say_where_and_in_which_order():
    for table in (ENGINE_STEPS, KV_EVENTS):
        assert [column.name for column in table.columns[:2]] == ["engine", "sequence"]


# --- attributes ---


def test_what_a_request_does_not_know_is_left_out_of_its_span():
    assert span_attributes(REQUEST) == {OPERATION_NAME: "chat", REQUEST_ID: "000102030405060708090a0b0c0d0e0f"}


def test_what_a_request_knows_is_in_its_span_and_a_reported_zero_is_known():
    record = msgspec.structs.replace(
        REQUEST,
        provider="openai",
        requested_model="small",
        stream=True,
        ttft_ns=250_000_000,
        temperature=0.0,
        choices=2,
        finish_reason="stop",
        cost_pico_usd=0,
        usage=Usage(input_text=0, cache_read_text=0, output_text=3, output_reasoning=0),
    )
    attributes = span_attributes(record)
    expected = {
        PROVIDER_NAME: "openai",
        REQUEST_MODEL: "small",
        REQUEST_STREAM: True,
        TIME_TO_FIRST_CHUNK: 0.25,
        REQUEST_TEMPERATURE: 0.0,
        REQUEST_CHOICE_COUNT: 2,
        FINISH_REASONS: ["stop"],
        INPUT_TOKENS: 0,
        CACHE_READ_TOKENS: 0,
        OUTPUT_TOKENS: 3,
        REASONING_TOKENS: 0,
        COST_AMOUNT: 0.0,
        COST_CURRENCY: "USD",
    }
    assert expected.items() <= attributes.items()
    assert CACHE_WRITE_TOKENS not in attributes
    assert TENANT not in attributes
    assert span_name(record) == "chat small"


def test_a_spans_totals_include_all_their_parts():
    usage = Usage(
        input_text=1, cache_read_text=2, cache_read_audio=4, cache_write_5m=8, cache_write_1h=16, output_audio=32
    )
    attributes = span_attributes(msgspec.structs.replace(REQUEST, usage=usage))
    counts = [attributes[name] for name in (INPUT_TOKENS, CACHE_READ_TOKENS, CACHE_WRITE_TOKENS, OUTPUT_TOKENS)]
    assert counts == [31, 6, 24, 32]


def test_a_time_to_first_chunk_exists_only_for_streams():
    assert TIME_TO_FIRST_CHUNK not in span_attributes(msgspec.structs.replace(REQUEST, ttft_ns=1))


@pytest.mark.parametrize(("old", "current"), [(spelling.foreign, spelling.current) for spelling in SPELLINGS])
def test_an_old_spelling_is_stored_under_the_current_one_in_one_step(old, current):
    assert reading_of(old).name == current != old
    assert reading_of(current).name == current


def test_an_attribute_nobody_renamed_keeps_its_name():
    assert reading_of("http.route").name == "http.route"
    assert reading_of("").name == ""


def test_the_conventions_of_2024_are_still_read():
    assert reading_of("gen_ai.system").name == PROVIDER_NAME
    assert reading_of("gen_ai.usage.prompt_tokens").name == INPUT_TOKENS
    assert reading_of("gen_ai.usage.completion_tokens").name == OUTPUT_TOKENS
    assert reading_of("gen_ai.usage.cache_creation.input_tokens").name == CACHE_WRITE_TOKENS


def test_a_span_of_ours_carries_nothing_that_was_said():
    record = msgspec.structs.replace(REQUEST, conversation_id="c", error_code="e", requested_model="m")
    assert not set(span_attributes(record)) & CONTENT_ATTRIBUTES
    assert not {reading_of(name).name for name in CONTENT_ATTRIBUTES} - CONTENT_ATTRIBUTES
