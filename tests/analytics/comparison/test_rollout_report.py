"""How both arms of a rollout did, from records in a real store, and how sure each figure is."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from analytics.comparison.intervals import mean, mean_ratio, quantile_ratio, share, share_difference
from analytics.comparison.rollout_report import rollout_report
from backends.store.client import StoreClient
from contracts.access.identity import Identity
from contracts.metering.gaps import pack_gaps
from contracts.metering.usage import Usage
from contracts.recording.records import Arm, RequestRecord
from contracts.serving.rollouts import PLATFORM_TENANT

NOON = datetime(2026, 11, 5, 12, 0, tzinfo=UTC)
MS = 1_000_000


def request(rollout: str, arm: Arm, model: str, number: int, **more) -> RequestRecord:
    at_ns = int(NOON.timestamp()) * 10**9 + number
    tenant = PLATFORM_TENANT if arm == "shadow" else "acme"
    return RequestRecord(
        request_id=uuid4().bytes,
        started_at_ns=at_ns,
        who=Identity(tenant),
        arm=arm,
        rollout=rollout,
        model=model,
        **{"duration_ns": 200 * MS, "ttft_ns": 50 * MS, "gaps": pack_gaps([800, 1200]), **more},
    )


def test_a_report_compares_arms_and_copies_with_intervals(
    reader: StoreClient, record: Callable[[Sequence[RequestRecord]], None]
) -> None:
    name = f"try-{uuid4().hex[:8]}"
    usage, answer = Usage(input_text=3, output_text=10), json.dumps({"rollout_answer": {"refused": False}})
    plain = {"usage": usage, "cost_pico_usd": 4 * 10**6, "route_decision": answer}
    slow = {**plain, "ttft_ns": 100 * MS, "usage": Usage(input_text=3, output_text=20), "cost_pico_usd": 8 * 10**6}
    said = {"of": "x", "ttft_ms": 50.0, "duration_ms": 200.0, "output_tokens": 10, "cost_usd": 4e-6, "refused": False}
    said |= {"own_refused": True, "own_ttft_ms": 75.0, "own_duration_ms": 300.0}
    alike = json.dumps({"shadow": {**said, "similarity": 0.75, "by": "words", "same": False}})
    requests = [request(name, "incumbent", "old", number, **plain) for number in range(20)]
    requests += [request(name, "candidate", "new", number, **slow) for number in range(9)]
    requests += [request(name, "candidate", "old", 99, **plain)]  # which the incumbent had to answer
    requests += [request(name, "shadow", "new", number, **{**plain, "route_decision": alike}) for number in range(4)]
    requests += [request(name, "shadow", "new", 9, outcome="error"), request("another", "incumbent", "old", 1)]
    record(requests)
    report = rollout_report(reader, name, NOON - timedelta(hours=1), NOON + timedelta(hours=1))
    assert (report.incumbent_requests, report.candidate_requests, report.copies) == (20, 10, 5)
    lines = {(line.measure, line.of): line for line in report.lines}
    errors = lines["error rate", "arms"]
    assert (errors.incumbent, errors.candidate) == (0.0, 0.1) and errors.comparison is not None
    assert errors.comparison.low < 0.1 < errors.comparison.high
    for measure, before, after in (
        ("ttft (ms)", 50.0, 100.0),
        ("inter-token (ms)", 10.0, 10.0),
        ("output tokens", 10.0, 20.0),
        ("cost (USD)", 4e-6, 8e-6),
    ):
        line = lines[measure, "arms"]
        assert (line.incumbent, line.candidate) == pytest.approx((before, after)), measure
        assert line.comparison is not None and line.comparison.value == pytest.approx(after / before)
    assert lines["ttft (ms)", "copies"].candidate == 75.0
    paired = lines["duration (ms)", "copies"].comparison
    assert paired is not None and paired.value == pytest.approx(1.5)
    assert lines["refusal rate", "copies"].candidate == 1.0 and lines["refusal rate", "arms"].candidate == 0.0
    assert lines["similarity by words", "copies"].candidate == 0.75
    assert lines["similarity by meaning", "copies"].candidate is None, "unknown is not zero"
    assert lines["error rate", "copies"].candidate == 0.2
    only = rollout_report(reader, name, NOON - timedelta(hours=1), NOON + timedelta(hours=1), "acme")
    assert (only.incumbent_requests, only.copies) == (20, 0)
    assert json.loads(json.dumps(report.as_json()))["copies"] == 5


def test_an_arm_that_another_model_had_to_answer_for_has_failed_whichever_arm_it_is(
    reader: StoreClient, record: Callable[[Sequence[RequestRecord]], None]
) -> None:
    name, failed = f"try-{uuid4().hex[:8]}", {"route_decision": json.dumps({"rollout_answer": {"failed": True}})}
    requests = [request(name, "incumbent", "old", number) for number in range(8)]
    requests += [request(name, "incumbent", "new", 8 + number, **failed) for number in range(2)]  # a fallback
    requests += [request(name, "candidate", "new", number) for number in range(3)]
    requests += [request(name, "candidate", "third", 3, **failed)]
    record(requests)
    report = rollout_report(reader, name, NOON - timedelta(hours=1), NOON + timedelta(hours=1))
    [errors] = [line for line in report.lines if (line.measure, line.of) == ("error rate", "arms")]
    assert (errors.incumbent, errors.candidate) == (0.2, 0.25)


def test_a_report_of_nothing_says_nothing(reader: StoreClient) -> None:
    report = rollout_report(reader, "never", NOON, NOON + timedelta(hours=1))
    assert all((line.incumbent, line.candidate, line.comparison) == (None, None, None) for line in report.lines)


def test_intervals_hold_what_they_are_of_and_are_none_of_nothing() -> None:
    values = [float(number % 10) for number in range(200)]
    found = mean(values)
    assert found is not None and found.value == 4.5 and 4.0 < found.low < 4.5 < found.high < 5.0
    assert mean(values) == found, "the same answers give the same interval"
    twice = mean_ratio([value * 2 for value in values], values, is_paired=True)
    assert twice is not None and twice.low == pytest.approx(2.0) == twice.high, "drawn together they do not differ"
    apart = mean_ratio([value * 2 for value in values], values, is_paired=False)
    assert apart is not None and apart.low < 1.9 and apart.high > 2.1
    tails = quantile_ratio([value * 3 for value in values], values, 0.95)
    assert tails is not None and tails.value == pytest.approx(3.0)
    for pair in (([1.0], values), (values, [1.0])):  # as when a rollout has just begun
        few = mean_ratio(*pair, is_paired=False)
        assert few is not None and (few.low, few.high) == (float("-inf"), float("inf"))
    lone = mean([3.0])
    assert lone is not None and (lone.low, lone.high) == (float("-inf"), float("inf"))
    assert [mean([]), mean_ratio([], [1.0], is_paired=False), mean_ratio([1.0], [0.0], is_paired=False)] == [None] * 3
    assert share(0, 0) is None and share_difference((0, 0), (1, 2)) is None
    sure, level = share(10, 10), share_difference((5, 10), (5, 10))
    assert sure is not None and sure.low == pytest.approx(0.7225, abs=1e-4), "Wilson's, not 1"
    assert level is not None and level.low < 0 < level.high
