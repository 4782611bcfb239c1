from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from collector.counters import OTHER_TENANTS, Counters

Make = Callable[..., Any]


def samples(collector: Any) -> dict[tuple[str, ...], float]:
    page = collector.client.get(f"http://127.0.0.1:{collector.health_port}/metrics")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = text_string_to_metric_families(page.text)
    return {
        (sample.name.removeprefix("tollkeeper_collector_"), *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


def test_the_metrics_tell_what_waits_how_old_it_is_and_what_was_lost_by_cause(
    start_collector: Make, batch_of: Make, request_record: Make, eventually: Make
) -> None:
    collector = start_collector()  # without a store
    assert collector.post(batch_of("b1", request_record(), request_record())).status_code == 200
    assert collector.post(b"\xff").status_code == 400
    eventually(lambda: samples(collector).get(("store_reachable",)) == 0, "the notice that the store is away")
    found = samples(collector)
    assert found["received_records_total", "logs"] == 2
    assert found["rejected_records_total", "malformed_protobuf", ""] == 1
    assert found["spool_bytes",] == collector.health()["spool_bytes"] > 0
    assert found["spool_max_bytes",] == 4 << 30
    assert 0 < found["queue_age_seconds",] < 60
    assert ("export_lag_seconds",) not in found  # nothing was exported yet, which is not a lag of 0
    assert (found["dead_letters_total",], found["spool_corrupt_entries_total",]) == (0, 0)


@pytest.mark.parametrize("count", ["rejected", "noticed"])
def test_counts_are_kept_by_tenant_up_to_a_bound_and_then_together(count: str) -> None:
    counters = Counters(max_tenants=2)
    for tenant in ("a", "b", "c", "d", "a", ""):
        getattr(counters, count)("over_quota", 5, tenant=tenant)
    assert counters.by_tenant()[count] == {
        ("over_quota", "a"): 10,
        ("over_quota", "b"): 5,
        ("over_quota", OTHER_TENANTS): 10,
        ("over_quota", ""): 5,
    }
    assert counters.snapshot()[count] == {"over_quota": 30}
