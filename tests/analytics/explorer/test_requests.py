"""Requests are found by what they say, a team's own alone; one is shown whole, its time without holes."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from analytics.attribution.slow_token import TokenTime
from analytics.explorer.cost_lines import cost_lines
from analytics.explorer.decision import read_decision
from analytics.explorer.found import count_matches, find_requests
from analytics.explorer.question import RequestQuestion, Sort
from analytics.explorer.rendering import request_as_json
from analytics.explorer.search import Search, read_search
from analytics.explorer.single_request import SingleRequest, single_request
from analytics.explorer.slowest import slowest_tokens
from analytics.explorer.waterfall import waterfall
from analytics.scope import Scope
from backends.store.client import StoreClient
from backends.store.columns import arrow_batch
from contracts.access.identity import Identity
from contracts.errors import NotFound
from contracts.metering.gaps import pack_gaps
from contracts.metering.usage import Usage
from contracts.pricing.prices import NewPrice, price_card
from contracts.recording.ids import uuid7
from contracts.recording.names import ATTEMPTS, ENGINE_STEPS
from contracts.recording.records import AttemptRecord, GpuShare, RequestRecord, StepRecord
from tests.analytics.cost.records import request

MS = 10**6
Record = Callable[[Sequence[RequestRecord]], None]


def made(scope: Scope, tenant: str, minutes_ago: float = 5, **fields: object) -> RequestRecord:
    moment = scope.end - timedelta(minutes=minutes_ago)
    values: dict[str, object] = {"request_id": uuid7(int(moment.timestamp() * 1e9)).bytes, "who": Identity(tenant)}
    return request(moment, **{**values, **fields})


def asked(
    scope: Scope, tenant: str, typed: str = "", sort: Sort = "newest", page: int = 1, **of: Any
) -> RequestQuestion:
    return RequestQuestion.of(replace(scope, tenant=tenant, **of), read_search(typed), None, sort, page)


def test_requests_are_found_by_what_they_say_and_counted(reader: StoreClient, record: Record, scope: Scope) -> None:
    tenant = f"tenant-{uuid4()}"
    who = Identity(tenant, "red", "search", "key_1", "alice", {"feature": "chat"})
    slow = made(scope, tenant, 4, who=who, ttft_ns=900 * MS, usage=Usage(input_text=9, output_text=3))
    failed = made(scope, tenant, 3, outcome="error", status=502, error_code="backend_error", model="qwen", attempts=2)
    refused = made(scope, tenant, 2, outcome="rejected", status=429, error_code="rate_limited", model="")
    record([slow, failed, refused, made(scope, f"other-{uuid4()}", 2)])

    def found(typed: str = "", **of: Any) -> list[bytes]:
        page = find_requests(reader, asked(scope, tenant, typed, **of))
        assert not page.has_more
        assert count_matches(reader, asked(scope, tenant, typed, **of)).total == len(page.requests)
        return [one.request_id.bytes for one in page.requests]

    assert found() == [refused.request_id, failed.request_id, slow.request_id]
    for typed in ("user:alice", "tag.feature:chat", "ttft>899ms", "SEAR", str(UUID(bytes=slow.request_id))):
        assert found(typed) == [slow.request_id], typed
    assert found("ttft>900ms") == [] and found("user:ali") == []  # names are compared whole, words are parts
    assert found("attempts>1 qwen") == [failed.request_id]
    assert found("status:429") == [refused.request_id]
    assert found(team="red") == [slow.request_id] and found(team="blue") == []
    assert find_requests(reader, asked(scope, tenant, sort="ttft")).requests[0].request_id.bytes == slow.request_id
    (line,) = find_requests(reader, asked(scope, tenant, "user:alice")).requests
    assert (line.input_tokens, line.output_tokens, line.cost_usd) == (9, 3, None)
    assert line.as_json()["started_at"] == line.started_at.isoformat()


def test_pages_follow_each_other_without_a_hole(reader: StoreClient, record: Record, scope: Scope) -> None:
    tenant = f"tenant-{uuid4()}"
    record([made(scope, tenant, 1 + number / 60, cost_pico_usd=number) for number in range(101)])
    pages = [find_requests(reader, asked(scope, tenant, page=page)) for page in (1, 2, 3)]
    assert [(len(page.requests), page.has_more) for page in pages] == [(50, True), (50, True), (1, False)]
    assert len({one.request_id for page in pages for one in page.requests}) == 101
    dearest = find_requests(reader, asked(scope, tenant, sort="cost")).requests
    assert [one.cost_usd for one in dearest[:2]] == [Decimal(100) / 10**12, Decimal(99) / 10**12]


def test_the_newest_of_a_long_range_are_found_wherever_they_lie(
    reader: StoreClient, record: Record, scope: Scope
) -> None:
    tenant = f"tenant-{uuid4()}"
    minutes = [*range(1, 41), *(20 * 1_440 + number for number in range(40))]
    record([made(scope, tenant, minute) for minute in minutes])
    month = replace(scope, start=scope.end - timedelta(days=30))
    pages = [find_requests(reader, asked(month, tenant, page=page)) for page in (1, 2)]
    began = [one.started_at for page in pages for one in page.requests]
    assert [len(page.requests) for page in pages] == [50, 30] and began == sorted(began, reverse=True)


def test_a_word_with_sql_in_it_is_a_word(reader: StoreClient, scope: Scope) -> None:
    question = RequestQuestion.of(scope, Search(word="' OR 1=1 --\\", user="{tenant:String}"), None, "newest", 1)
    assert find_requests(reader, question).requests == ()


def of_an_engine(scope: Scope, tenant: str) -> RequestRecord:
    """A request with every time measured, tried twice, its decision noted."""
    decision = {
        "route": {"order": ["a", "b"], "skipped": {"c": "wrong region"}},
        "replica": {
            "policy": "cost",
            "chosen": "r1",
            "prompt_tokens": 100,
            "predicted_ms": {"r2": 9.5, "r1": 12.0},
            "cached_tokens": {"r2": 64},
            "outcome": {"replica": "r1", "ttft_ms": 20.0, "cached_tokens": 0, "error_ms": 8.0, "regret_ms": 10.5},
        },
    }
    return made(
        scope,
        tenant,
        who=Identity(tenant, "red"),
        duration_ns=90 * MS,
        ttft_ns=40 * MS,
        admission_ns=10 * MS,
        wait_ns=8 * MS,
        queue_ns=5 * MS,
        gaps=pack_gaps([1_000, 3_000]),
        gap_clock="engine",
        usage=Usage(input_text=1_000, output_text=3),
        cost_pico_usd=1_000 * 150_000 + 3 * 600_000,
        price_version="card-1",
        gpu=GpuShare(prefill_ns=20, decode_ns=10, method="m"),
        attempts=2,
        route_decision=json.dumps(decision),
        model="m",
    )


def tell_tries_and_steps(store: Any, one: RequestRecord) -> None:
    """Store what belongs to the request: its two tries, and two steps of the engine."""
    writer: StoreClient = store.client("writer")
    tries = [
        AttemptRecord(
            request_id=one.request_id,
            number=number,
            started_at_ns=one.started_at_ns + number * 12 * MS,
            duration_ns=5 * MS,
            who=one.who,
            reason="first" if number == 1 else "retry",
            outcome="error" if number == 1 else "ok",
            replica=f"r{number}",
        )
        for number in (1, 2)
    ]
    writer.insert_arrow("attempts", arrow_batch(ATTEMPTS, tries), deduplication_token=str(uuid4()))
    steps = [step(one, 1, 20, 20, [20 * MS], [0]), step(one, 2, 50, 30, [3 * MS, 27 * MS], [1, 0])]
    writer.insert_arrow("engine_steps", arrow_batch(ENGINE_STEPS, steps), deduplication_token=str(uuid4()))
    writer.close()


def test_one_request_is_shown_whole(reader: StoreClient, record: Record, scope: Scope, store: Any) -> None:
    tenant = f"tenant-{uuid4()}"
    one = of_an_engine(scope, tenant)
    record([one])
    tell_tries_and_steps(store, one)
    identifier = UUID(bytes=one.request_id)
    shown = single_request(reader, identifier, tenant, "red")
    assert (shown.tenant, shown.labels["replica"], shown.usage.input_tokens) == (tenant, "", 1_000)
    assert [(each.number, each.began_ns, each.reason) for each in shown.tries] == [
        (1, 12 * MS, "first"),
        (2, 24 * MS, "retry"),
    ]
    fall = waterfall(shown)
    assert [(span.stage, span.length_ns // MS) for span in fall.spans] == [
        ("admission", 2),
        ("gateway_queue", 8),
        ("engine_queue", 5),
        ("first_token", 25),
        ("tokens", 40),
        ("finish", 10),
    ]
    assert fall.token_ns == (40 * MS, 50 * MS, 80 * MS)
    assert [(each.replica, each.predicted_ms, each.is_chosen) for each in shown.decision.candidates] == [
        ("r2", 9.5, False),
        ("r1", 12.0, True),
    ]
    assert shown.decision.skipped == {"c": "wrong region"} and shown.decision.regret_ms == 10.5
    slow = slowest_tokens(reader, shown)
    assert [each.token for each in slow.tokens] == [0, 2, 1] and len(slow.steps) == 2
    assert slow.tokens[1].time == TokenTime(own_ns=3 * MS, co_prefill_ns=27 * MS)
    assert slow.tokens[1].main_cause == "co_prefill"
    assert [(each.others, each.others_prefilling) for each in slow.tokens] == [(0, 0), (1, 1), (0, 0)]
    card = price_card(
        NewPrice("m", "card-1", {"input_text": Decimal("0.15"), "output_text": Decimal("0.6")}, valid_from=scope.start)
    )
    costs = cost_lines(shown, [card])
    assert [(line.leaf, line.tokens, line.usd_per_mtok) for line in costs.lines] == [
        ("input_text", 1_000, Decimal("0.15")),
        ("output_text", 3, Decimal("0.6")),
    ]
    assert costs.rest_usd == 0 and cost_lines(shown, []).rest_usd == shown.cost_usd
    printed = request_as_json(shown, costs, slow)
    assert json.loads(json.dumps(printed))["cost"]["total_usd"] == "0.000151800000"


def step(of: RequestRecord, sequence: int, at_ms: int, busy_ms: int, ns: list[int], phases: list[int]) -> StepRecord:
    return StepRecord(
        engine=f"engine-{UUID(bytes=of.request_id)}",
        sequence=sequence,
        started_at_ns=of.started_at_ns + at_ms * MS,
        busy_ns=busy_ms * MS,
        method="m",
        request_ids=[of.request_id, uuid4().bytes][: len(ns)],
        tenants=["t"] * len(ns),
        scheduled=[1] * len(ns),
        phases=phases,
        gpu_ns=ns,
    )


def test_who_else_was_in_a_step_is_counted_by_requests_and_not_by_answers(
    reader: StoreClient, record: Record, scope: Scope, store: Any
) -> None:
    one, other, nobody = of_an_engine(scope, f"tenant-{uuid4()}"), uuid4().bytes, bytes(16)
    record([one])
    shared = step(one, 1, 20, 20, [5 * MS] + [3 * MS] * 5, [0, 0, 0, 1, 0, 1])
    ids = [one.request_id, other, other, other, nobody, nobody]  # three answers of one, and two that no one asked for
    writer: StoreClient = store.client("writer")
    told = arrow_batch(ENGINE_STEPS, [structs.replace(shared, request_ids=ids)])
    writer.insert_arrow("engine_steps", told, deduplication_token=str(uuid4()))
    writer.close()
    slow = slowest_tokens(reader, single_request(reader, UUID(bytes=one.request_id)))
    (found,) = (each for each in slow.tokens if each.token == 0)
    assert (found.others, found.others_prefilling) == (3, 2)


def test_another_s_request_is_not_there(reader: StoreClient, record: Record, scope: Scope) -> None:
    tenant = f"tenant-{uuid4()}"
    one = made(scope, tenant, who=Identity(tenant, "red"))
    record([one])
    identifier = UUID(bytes=one.request_id)
    assert single_request(reader, identifier).tenant == tenant
    for of in (("another", None), (tenant, "blue")):
        with pytest.raises(NotFound, match="you may not see it"):
            single_request(reader, identifier, *of)


def test_a_request_whose_id_tells_no_time_is_found_too(reader: StoreClient, record: Record, scope: Scope) -> None:
    one = made(scope, f"tenant-{uuid4()}", request_id=uuid4().bytes)
    record([one])
    assert single_request(reader, UUID(bytes=one.request_id)).request_id.bytes == one.request_id


NS = st.none() | st.integers(0, 200)


@given(NS, NS, NS, NS, NS, st.lists(st.integers(0, 9), max_size=6), st.integers(0, 400))
def test_a_waterfall_has_no_hole_and_no_overlap(
    ttft: int | None,
    admission: int | None,
    wait: int | None,
    queue: int | None,
    cold: int | None,
    gaps: list[int],
    duration: int,
) -> None:
    blank = SingleRequest(
        *(UUID(int=0), 0, duration, 200, True, {}, {}, {}, None, (), None, ttft, admission, wait, queue, cold),
        tuple(gaps),
        *(Usage(), None, None, None, read_decision(""), ()),
    )
    fall = waterfall(blank)
    assert sum(span.length_ns for span in fall.spans) == duration
    ends = [0, *(span.end_ns for span in fall.spans)]
    assert [span.begin_ns for span in fall.spans] == ends[:-1]
    assert len(fall.token_ns) == (0 if ttft is None else len(gaps) + 1)


@pytest.mark.parametrize("noted", ["", "no json", "[1]", '{"replica": 3, "route": {"order": 4}}'])
def test_a_decision_that_says_nothing_is_none(noted: str) -> None:
    decision = read_decision(noted)
    assert decision.candidates == () and decision.order == () and decision.policy == ""
