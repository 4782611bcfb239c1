"""Records to columns and back: what a record says is what the store answers, to the last bit."""

from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.store.columns import STORE_TYPES, arrow_batch
from contracts.access.identity import Identity
from contracts.errors import InvalidRecord
from contracts.metering.gaps import pack_gaps, unpack_gaps
from contracts.metering.usage import Usage
from contracts.pricing.money import MAX_PICO_USD, usd
from contracts.recording.ids import uuid7
from contracts.recording.names import TABLES
from contracts.recording.records import AttemptRecord, GpuShare, KvRecord, RequestRecord, StepRecord

NOW_NS = 1_793_707_200_123_456_789  # 3 November 2026
ID = uuid7(NOW_NS)
WHO = Identity("acme", "search", "ranking", "key_1", "ada", {"feature": "x", "stage": "prod"})

RECORDS: tuple[Any, ...] = (
    RequestRecord(
        request_id=ID.bytes,
        started_at_ns=NOW_NS,
        duration_ns=1_500_000_000,
        who=WHO,
        stream=True,
        model="tiny",
        ttft_ns=80_000_000,
        gaps=pack_gaps([0, 4_294_967_295, 7]),
        usage=Usage(input_text=12, output_text=4, cache_read_text=0),
        cost_pico_usd=18_750,
        gpu=GpuShare(prefill_ns=1, decode_ns=2, confidence=0.5, method="steptime-as/1"),
        verdicts=["pii:masked"],
        trace_id=bytes(range(16)),
        span_id=b"\xff" * 8,
        schema_failed=False,
    ),
    AttemptRecord(request_id=ID.bytes, number=2, started_at_ns=NOW_NS, duration_ns=1, who=WHO, gaps=pack_gaps([1, 2])),
    StepRecord(
        engine="e0",
        sequence=2**64 - 1,
        started_at_ns=NOW_NS,
        busy_ns=5,
        devices=["GPU-1"],
        request_ids=[ID.bytes, bytes(16)],
        tenants=["acme", "globex"],
        scheduled=[1, 2],
        phases=[0, 1],
        aborted=[True, False],
        gpu_ns=[2, 3],
    ),
    KvRecord(engine="e0", sequence=1, at_ns=NOW_NS, event="stored", block_hashes=[2**64 - 1], parent_hash=2**64 - 1),
)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_comes_back_from_the_store_as_it_was(empty_store: Any, record: Any) -> None:
    table = TABLES[type(record)]
    client = empty_store.client()
    client.insert_arrow(table.name, arrow_batch(table, [record]), deduplication_token=f"{table.name}-back")
    chosen = ", ".join(
        f"toUnixTimestamp64Nano({c.name}) AS {c.name}"
        if c.kind == "time_ns"
        else (f"hex({c.name}) AS {c.name}" if c.kind == "bytes" else c.name)
        for c in table.columns
    )
    (row,) = client.query(f"SELECT {chosen} FROM {table.name}")
    assert row == {column.name: as_answered(column.kind, column.read(record)) for column in table.columns}
    client.close()


def as_answered(kind: str, value: Any) -> Any:
    if kind == "uuid":
        return UUID(bytes=value)
    if kind == "uuid[]":
        return [UUID(bytes=item) for item in value]
    if kind == "bytes":
        return value.hex().upper()
    if kind == "u32_packed[]":
        return unpack_gaps(value)
    if kind == "usd?":
        return None if value is None else usd(value)
    return value


def test_a_uuid_reads_the_same_in_the_store(empty_store: Any) -> None:
    table = TABLES[RequestRecord]
    client = empty_store.client()
    client.insert_arrow("requests", arrow_batch(table, [RECORDS[0]]), deduplication_token="uuid")
    sql = "SELECT toString(request_id) AS id FROM requests WHERE request_id = {id:UUID}"
    assert client.query(sql, {"id": str(ID)}) == [{"id": str(ID)}]
    client.close()


@given(st.lists(st.none() | st.integers(-MAX_PICO_USD, MAX_PICO_USD)))
def test_money_is_widened_exactly(amounts: list[int | None]) -> None:
    column = STORE_TYPES["usd?"].build(amounts)
    column.validate(full=True)
    assert column.to_pylist() == [None if amount is None else usd(amount) for amount in amounts]
    assert column.null_count == amounts.count(None)


@pytest.mark.parametrize("amount", [MAX_PICO_USD, -MAX_PICO_USD])
def test_the_largest_amount_fits(amount: int) -> None:
    assert STORE_TYPES["usd?"].build([amount]).to_pylist() == [Decimal(amount).scaleb(-12)]


@pytest.mark.parametrize("amount", [MAX_PICO_USD + 1, -MAX_PICO_USD - 1, 2**63, 10**30])
def test_an_amount_beyond_the_column_is_refused(amount: int) -> None:
    record = RequestRecord(request_id=ID.bytes, started_at_ns=1, duration_ns=1, cost_pico_usd=amount)
    with pytest.raises(InvalidRecord):
        arrow_batch(TABLES[RequestRecord], [record])


@given(st.lists(st.lists(st.integers(0, 2**32 - 1))))
def test_gaps_are_neither_moved_nor_changed(gaps: list[list[int]]) -> None:
    plain, packed = STORE_TYPES["u32[]"].build(gaps), STORE_TYPES["u32_packed[]"].build([*map(pack_gaps, gaps)])
    for column in (plain, packed):
        column.validate(full=True)
        assert column.to_pylist() == gaps
        assert column.type == pyarrow.list_(pyarrow.uint32())


@pytest.mark.parametrize(
    "broken",
    [
        {"request_id": b"short"},
        {"duration_ns": -1},
        {"status": 70_000},
        {"gaps": b"abc"},
        {"gaps": [1]},
        {"started_at_ns": 2**63},
    ],
    ids=str,
)
def test_a_value_that_does_not_fit_names_its_column(broken: dict[str, Any]) -> None:
    fields: dict[str, Any] = {"request_id": ID.bytes, "started_at_ns": 1, "duration_ns": 1, **broken}
    (name,) = broken
    column = "started_at" if name == "started_at_ns" else name
    with pytest.raises(InvalidRecord, match=f"requests.{column} cannot take a value"):
        arrow_batch(TABLES[RequestRecord], [RequestRecord(**fields)])


def test_no_records_make_an_empty_batch_of_the_same_shape() -> None:
    for table in TABLES.values():
        batch = arrow_batch(table, [])
        assert batch.num_rows == 0
        assert batch.column_names == [column.name for column in table.columns]
