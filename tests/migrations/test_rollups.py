"""Rollups say what the rows say: sums exact, unknown counted apart, sketches within their stated error."""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from backends.store.columns import arrow_batch
from contracts.access.identity import Identity
from contracts.metering.gaps import pack_gaps
from contracts.metering.usage import INPUT_LEAVES, OUTPUT_LEAVES, UNIT_LEAVES, Leaf, Usage, column_of
from contracts.recording.ids import uuid7
from contracts.recording.names import REQUESTS
from contracts.recording.records import GpuShare, Outcome, RequestRecord

# The last midnight: rows of a past week would expire from the rollup by minutes.
MIDNIGHT = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
MIDNIGHT_NS = int(MIDNIGHT.timestamp()) * 10**9


def made(at_ns: int, **fields: Any) -> RequestRecord:
    who = Identity("acme", "search", "ranking", "key_1", "ada")
    wanted: dict[str, Any] = {"duration_ns": 1000, "who": who, "model": "small", "provider": "scripted", **fields}
    return RequestRecord(request_id=uuid7(at_ns).bytes, started_at_ns=at_ns, **wanted)


def fill(store: Any, token: str, records: list[RequestRecord]) -> Any:
    client = store.client()
    client.insert_arrow("requests", arrow_batch(REQUESTS, records), deduplication_token=token)
    return client


EXPRESSIONS = """
    SELECT name, as_select AS text FROM system.tables
    WHERE database = currentDatabase() AND engine = 'MaterializedView'
    UNION ALL
    SELECT concat(table, '.', name), default_expression FROM system.columns
    WHERE database = currentDatabase() AND default_kind = 'ALIAS'
"""
PROJECTION = re.compile(r"PROJECTION (\w+)(.*?)(?=\s(?:PROJECTION|INDEX|CONSTRAINT)\s|\)\s*ENGINE)", re.DOTALL)
TABLES = "SELECT create_table_query AS made FROM system.tables WHERE database = currentDatabase()"


@pytest.mark.parametrize(
    ("plain", "leaves"), [("input_text", INPUT_LEAVES), ("output_text", OUTPUT_LEAVES), ("images", UNIT_LEAVES)]
)
def test_what_adds_up_one_kind_adds_up_every_kind_of_its_side(
    store: Any, plain: Leaf, leaves: tuple[Leaf, ...]
) -> None:
    client = store.client()
    texts = [(row["name"], row["text"]) for row in client.query(EXPRESSIONS)]
    texts += [found for row in client.query(TABLES) for found in PROJECTION.findall(row["made"])]
    client.close()
    named = {name: set(re.findall(r"\b(?:tokens|units)_\w+", text)) for name, text in texts}
    adding = {name: columns for name, columns in named.items() if column_of(plain) in columns}
    seen = (
        {"requests.price_state"} if plain in UNIT_LEAVES else {"requests.price_state", "requests_minute_from_requests"}
    )
    assert seen <= set(adding), "this test sees nothing"
    left_out = {name: sorted({*map(column_of, leaves)} - columns) for name, columns in adding.items()}
    assert {name: columns for name, columns in left_out.items() if columns} == {}


def test_sums_are_exact_and_unknown_is_counted_not_summed(empty_store: Any) -> None:
    rejected: Outcome = "rejected"
    usage = Usage(input_text=1, input_audio=2, input_image=4, cache_read_text=8, cache_read_audio=16, cache_write_5m=32)
    full = usage.plus(Usage(cache_write_1h=64, output_text=1, output_reasoning=2, output_audio=4, output_image=8))
    client = fill(
        empty_store,
        "sums",
        [
            made(
                MIDNIGHT_NS,
                usage=full,
                cost_pico_usd=1,
                charged_pico_usd=3,
                stream=True,
                ttft_ns=7,
                gaps=pack_gaps([1, 2, 3]),
                gpu=GpuShare(1, 2, 4, 8),
            ),
            made(MIDNIGHT_NS, usage=Usage(output_text=0), cost_pico_usd=10**17 + 1),
            made(MIDNIGHT_NS),
            made(MIDNIGHT_NS, outcome=rejected, status=429),
        ],
    )
    for table in ("requests_minute", "requests_hour", "requests_day"):
        rows = client.query(f"SELECT * EXCEPT ('^bucket$|_state$') FROM {table} FINAL ORDER BY outcome")
        ok, refused = rows
        assert ok == {
            "tenant": "acme",
            "team": "search",
            "project": "ranking",
            "model": "small",
            "outcome": "ok",
            "requests": 3,
            "input_tokens": 127,
            "cached_input_tokens": 24,
            "output_tokens": 15,
            "cost_usd": Decimal(10**17 + 2).scaleb(-12),
            "charged_usd": Decimal(3).scaleb(-12),
            "unpriced_requests": 1,
            "unknown_usage_requests": 1,
            "streamed_requests": 1,
            "gpu_ns": 15,
            "ttft_sum_ns": 7,
            "ttft_count": 1,
            "gap_count": 3,
            "duration_sum_ns": 3000,
            "failed_requests": 0,
            "usage_unknown_requests": 1,
            "no_price_requests": 0,
            "untold_requests": 0,
            "partly_unpriced_requests": 0,
            "unpriced_input_tokens": 0,
            "unpriced_output_tokens": 0,
            "estimated_requests": 0,
            "estimated_usd": 0,
        }, table
        assert (refused["requests"], refused["unpriced_requests"], refused["unknown_usage_requests"]) == (1, 0, 0)
    client.close()


@pytest.mark.parametrize(("offset_ns", "days_before"), [(-1, 1), (0, 0), (1, 0)])
def test_a_request_falls_in_the_bucket_it_started_in(empty_store: Any, offset_ns: int, days_before: int) -> None:
    client = fill(empty_store, f"bucket{offset_ns}", [made(MIDNIGHT_NS + offset_ns)])
    minute = MIDNIGHT - timedelta(minutes=1) * days_before
    hour = MIDNIGHT - timedelta(hours=1) * days_before
    day = (MIDNIGHT - timedelta(days=1) * days_before).date()
    assert client.query("SELECT bucket FROM requests_minute") == [{"bucket": minute}]
    assert client.query("SELECT bucket FROM requests_hour") == [{"bucket": hour}]
    assert client.query("SELECT bucket FROM requests_day") == [{"bucket": day}]
    client.close()


@pytest.mark.parametrize("table", ["latency_day", "model_latency_day"])
def test_daily_sketches_are_within_one_percent(empty_store: Any, table: str) -> None:
    values = [1000 + 37 * i for i in range(2000)]
    records = [
        made(MIDNIGHT_NS + i, ttft_ns=v * 1000, duration_ns=v * 2000, gaps=pack_gaps([v])) for i, v in enumerate(values)
    ]
    client = fill(empty_store, f"sketch-{table}", records[:1000])
    client.insert_arrow("requests", arrow_batch(REQUESTS, records[1000:]), deduplication_token=f"sketch-{table}-2")
    levels = (0.01, 0.5, 0.9, 0.95, 0.99)
    (row,) = client.query(
        f"SELECT quantilesDDMerge{levels}(ttft_state) AS ttft, quantilesDDMerge{levels}(gap_state) AS gap, "
        f"quantilesDDMerge{levels}(duration_state) AS duration FROM {table}"
    )
    for level, ttft, gap, duration in zip(levels[1:], row["ttft"], row["gap"], row["duration"], strict=True):
        exact = sorted(values)[int(level * (len(values) - 1))]
        assert gap == pytest.approx(exact, rel=0.011)
        assert ttft == pytest.approx(exact * 1000, rel=0.011)
        assert duration == pytest.approx(exact * 2000, rel=0.011)
    client.close()


def test_requests_without_a_first_token_are_not_in_its_sketch(empty_store: Any) -> None:
    client = fill(empty_store, "no-ttft", [made(MIDNIGHT_NS), made(MIDNIGHT_NS, ttft_ns=5000)])
    (row,) = client.query("SELECT quantilesDDMerge(0.01, 0.5, 0.9, 0.95, 0.99)(ttft_state) AS ttft FROM latency_day")
    assert row["ttft"][0] == pytest.approx(5000, rel=0.011)
    client.close()


def test_filters_find_their_values_without_scanning(empty_store: Any) -> None:
    client = fill(empty_store, "distinct", [made(MIDNIGHT_NS), made(MIDNIGHT_NS + 10**9, model="large")])
    rows = client.query("SELECT kind, tenant, value, max(last_seen) AS seen FROM distinct_values GROUP BY ALL")
    found = {(row["kind"], row["value"]) for row in rows}
    assert found == {
        ("tenant", "acme"),
        ("team", "search"),
        ("project", "ranking"),
        ("key_id", "key_1"),
        ("model", "small"),
        ("model", "large"),
        ("provider", "scripted"),
    }
    assert max(row["seen"] for row in rows) == MIDNIGHT + timedelta(seconds=1)
    client.close()


def test_a_record_with_a_broken_clock_does_not_vanish(empty_store: Any) -> None:
    client = fill(empty_store, "epoch", [made(0), made(1)])
    client.command("OPTIMIZE TABLE requests FINAL")  # where expiry happens
    assert client.query("SELECT count() AS rows FROM requests") == [{"rows": 2}]
    client.close()
