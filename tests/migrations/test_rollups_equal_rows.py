"""Whatever arrives, in whatever batches and however often: a rollup says what its view says of the rows."""

import time
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backends.store.columns import arrow_batch
from contracts.access.identity import Identity
from contracts.metering.gaps import pack_gaps
from contracts.metering.usage import Usage
from contracts.recording.ids import uuid7
from contracts.recording.names import REQUESTS
from contracts.recording.records import GpuShare, Outcome, RequestRecord

NOW_NS = time.time_ns()
TWO_DAYS_S = 2 * 86_400  # what all rollups keep
STATES = "quantilesDDMerge(0.01, 0.5, 0.9, 0.95, 0.99)"
LABELS = st.sampled_from(["", "a", "b"])
OUTCOMES: tuple[Outcome, ...] = ("ok", "error", "cancelled", "rejected")


def unknown_or(largest: int) -> st.SearchStrategy[int | None]:
    return st.none() | st.integers(0, largest)


@st.composite
def requests(draw: st.DrawFn) -> RequestRecord:
    started_at_ns = NOW_NS - draw(st.integers(0, TWO_DAYS_S)) * 10**9
    usage = Usage(*(draw(unknown_or(2**32 - 1)) for _ in range(11)))
    return RequestRecord(
        request_id=uuid7(started_at_ns).bytes,
        started_at_ns=started_at_ns,
        duration_ns=draw(st.integers(0, 10**13)),
        who=Identity(draw(LABELS), draw(LABELS), draw(LABELS), draw(LABELS)),
        outcome=draw(st.sampled_from(OUTCOMES)),
        stream=draw(st.booleans()),
        model=draw(st.sampled_from(["", "small", "large"])),
        ttft_ns=draw(unknown_or(10**12)),
        gaps=pack_gaps(draw(st.lists(st.integers(0, 2**32 - 1), max_size=5))),
        usage=usage,
        cost_pico_usd=draw(unknown_or(10**17)),
        charged_pico_usd=draw(unknown_or(10**17)),
        gpu=draw(st.none() | st.builds(GpuShare, *(st.integers(0, 10**12) for _ in range(4)))),
    )


@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(batches=st.lists(st.lists(requests(), min_size=1, max_size=12), min_size=1, max_size=3), times=st.integers(1, 2))
def test_a_rollup_says_what_its_view_says_of_the_rows(
    empty_store: Any, batches: list[list[RequestRecord]], times: int
) -> None:
    client = empty_store.client()
    for batch in batches:
        for _ in range(times):
            token = f"{batch[0].request_id.hex()}-{len(batch)}"
            client.insert_arrow("requests", arrow_batch(REQUESTS, batch), deduplication_token=token)
    views = client.query(
        "SELECT name, extract(create_table_query, ' TO (?:tollkeeper\\.)?(\\w+)') AS target, as_select AS selected "
        "FROM system.tables WHERE database = currentDatabase() AND engine = 'MaterializedView' AND name LIKE '%_from_%'"
    )
    checked = set()
    for view in views:
        target = str(view["target"])
        columns = client.query(
            "SELECT name FROM system.columns WHERE database = currentDatabase() AND table = {table:String} "
            "AND default_kind != 'ALIAS'",
            {"table": target},
        )
        names = [str(row["name"]) for row in columns if not str(row["name"]).endswith("_state")]
        final = "" if target == "requests_recent" else "FINAL"
        kept = client.query(f"SELECT {', '.join(names)} FROM {target} {final} ORDER BY ALL")
        assert kept == client.query(f"SELECT {', '.join(names)} FROM ({view['selected']}) ORDER BY ALL"), target
        checked.add(target)
    assert {"requests_minute", "requests_hour", "requests_day", "requests_recent", "distinct_values"} <= checked
    assert {"latency_day", "model_latency_day", "tenant_cost_day"} <= checked
    assert {"indicators_minute", "indicators_hour", "model_steps_hour", "model_steps_day"} <= checked
    assert {"tenant_hour", "model_hour"} <= checked
    for state in ("ttft_state", "gap_state", "duration_state"):
        by_tenant = client.query(f"SELECT toString({STATES}({state})) AS levels FROM latency_day")
        assert by_tenant == client.query(f"SELECT toString({STATES}({state})) AS levels FROM model_latency_day")
    client.close()
