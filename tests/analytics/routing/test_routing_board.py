"""What the Routing page asks: who answered, what was tried beside, what caches had, what choices were worth."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest

from analytics.access_scope import AccessScope, BoundStore
from analytics.routing.board import RoutingBoard, routing_board
from analytics.routing.shares import entry_shares
from analytics.routing.targets import target_lines
from analytics.routing.tries import Tries, failed_by_step, failed_by_target, further_by_reason, lost_usd
from analytics.routing.use import Use, UseLine, by_route, total_of
from analytics.scope import Scope
from backends.store.client import StoreClient
from backends.store.columns import arrow_batch
from contracts.access.identity import Identity
from contracts.errors import PermissionDenied
from contracts.metering.usage import Usage
from contracts.recording.names import ATTEMPTS
from contracts.recording.records import AttemptRecord, RequestRecord

NOW = datetime.now(UTC).replace(second=0, microsecond=0)
MS = 10**6


def decision(chosen: str, predicted: dict[str, float], came: float | None) -> str:
    outcome = {} if came is None else {
        "replica": chosen, "ttft_ms": came, "cached_tokens": 0, "error_ms": came - predicted[chosen],
        "regret_ms": max(came - min(predicted.values()), 0.0),
    }  # fmt: skip
    ranked = dict(sorted(predicted.items(), key=lambda one: one[1]))
    said = {"policy": "cost", "chosen": chosen, "prompt_tokens": 9, "predicted_ms": ranked, "outcome": outcome}
    return json.dumps({"route": {"order": ["a"]}, "replica": said}, separators=(",", ":"))


def request(tenant: str, target: str, minutes: float = 5, **facts: Any) -> RequestRecord:
    values: dict[str, Any] = {
        "request_id": uuid4().bytes,
        "started_at_ns": int((NOW - timedelta(minutes=minutes)).timestamp()) * 10**9,
        "duration_ns": 10**9,
        "who": Identity(tenant, "search"),
        "model": "small",
        "pool": "chat",
        "replica": target,
        "ttft_ns": 100 * MS,
        "usage": Usage(input_text=60, cache_read_text=40, output_text=3),
        **facts,
    }
    return RequestRecord(**values)


@pytest.fixture
def attempt(store: Any) -> Callable[[Sequence[AttemptRecord]], None]:
    def insert(records: Sequence[AttemptRecord]) -> None:
        writer = store.client("writer")
        writer.insert_arrow("attempts", arrow_batch(ATTEMPTS, records), deduplication_token=str(uuid4()))
        writer.close()

    return insert


@pytest.fixture
def tenant(
    record: Callable[[Sequence[RequestRecord]], None], attempt: Callable[[Sequence[AttemptRecord]], None]
) -> str:
    """A tenant whose requests went to two targets by a route, one of which failed now and then."""
    name = f"tenant-{uuid4()}"
    failed = request(name, "b", attempts=2, route="assistant", model="large", ttft_ns=None)
    record(
        [
            request(name, "a", route="assistant", route_decision=decision("a", {"a": 90.0, "b": 80.0}, 100.0)),
            request(name, "a", route_decision=decision("a", {"a": 120.0, "b": 200.0}, 100.0)),
            request(name, "a", route_decision=decision("a", {"a": 120.0, "b": 200.0}, None)),
            request(name, "b", usage=Usage()),
            failed,
            request(name, "", outcome="rejected", pool="", model=""),
            request(name, "", cache="hit"),
            request(name, "a", minutes=90),
        ]
    )
    common: dict[str, Any] = {"who": failed.who, "model": "large", "pool": "chat", "duration_ns": 1}
    attempt(
        [
            AttemptRecord(
                request_id=failed.request_id, number=1, started_at_ns=failed.started_at_ns, replica="a",
                outcome="error", error_code="upstream_timeout", cost_pico_usd=5 * 10**11, **common,
            ),
            AttemptRecord(
                request_id=failed.request_id, number=2, started_at_ns=failed.started_at_ns, replica="b",
                reason="fallback", **common,
            ),
        ]
    )  # fmt: skip
    return name


@pytest.fixture
def board(reader: StoreClient, tenant: str) -> RoutingBoard:
    return routing_board(reader, Scope.last(timedelta(hours=1), NOW, tenant))


def test_what_reached_no_target_is_not_counted(board: RoutingBoard) -> None:
    total = total_of(board.lines)
    assert (total.requests, total.retried, total.errors) == (5, 1, 0)
    assert (total.input_tokens, total.cached_tokens, total.cached_share) == (400, 160, 0.4)
    assert total.mean_ttft_ns == 100 * MS


def test_each_target_has_its_share_and_its_failures(board: RoutingBoard) -> None:
    first, second = target_lines(board)
    assert (first.target, first.use.requests, first.pool_share) == ("a", 3, 0.6)
    assert (first.failed_tries, first.commonest_error) == (1, "upstream_timeout")
    assert (second.target, second.failed_tries, second.commonest_error) == ("b", 0, "")


def test_tries_are_told_by_reason_target_and_step(board: RoutingBoard) -> None:
    assert further_by_reason(board.tries) == {"fallback": 1}
    assert {where: dict(found) for where, found in failed_by_target(board.tries).items()} == {
        ("chat", "a"): {"upstream_timeout": 1}
    }
    assert failed_by_step(board.tries) == {("chat", "a"): {NOW - timedelta(minutes=5): 1}}
    assert lost_usd(board.tries) == Decimal("0.5") and board.failed_tries == 1


def test_prefix_hits_stand_at_their_step(board: RoutingBoard) -> None:
    (hits,) = board.hits
    assert (hits.step, hits.pool, hits.requests, hits.share) == (NOW - timedelta(minutes=5), "chat", 5, 0.4)


def test_regret_is_of_choices_whose_outcome_is_known(board: RoutingBoard) -> None:
    (regret,) = board.regret
    assert (regret.pool, regret.policy, regret.samples, regret.overruled) == ("chat", "cost", 2, 1)
    assert regret.mean_ms == 10.0 and regret.p95_ms == 20.0 and regret.mean_missed_ms == 15.0
    assert board.samples == 2 and board.mean_regret_ms == 10.0
    worst, other = board.decisions
    assert (worst.regret_ms, worst.chosen, list(worst.predicted_ms)) == (20.0, "a", ["b", "a"])
    assert other.regret_ms == 0.0


def test_the_entries_of_a_route_are_compared_with_who_answered(board: RoutingBoard) -> None:
    rules = {"choose": [{"model": "small", "weight": 3}, {"model": "tiny", "when": {"tenants": ["x", "y"]}}]}
    shares = entry_shares(board, [{"id": "assistant", "rules": rules}, {"id": "idle", "rules": {"choose": []}}])
    assert [(one.name, one.role, one.stated_share, one.taken_share, one.condition) for one in shares] == [
        ("small", "choose", 0.75, 0.5, ""),
        ("tiny", "choose", 0.25, 0.0, "tenants x|y"),
        ("large", "elsewhere", None, 0.5, ""),
    ]


def test_a_team_s_lead_asks_about_that_team_alone(store: Any, tenant: str) -> None:
    bound = BoundStore(store.address("reader"), AccessScope(tenant, "search"))
    mine = Scope(NOW - timedelta(hours=1), NOW, tenant, team="search", asked_at=NOW)
    assert total_of(routing_board(bound, mine).lines).requests == 5
    with pytest.raises(PermissionDenied):
        routing_board(bound, Scope.last(timedelta(hours=1), NOW, tenant))
    bound.close()


def test_an_empty_scope_is_asked_once(reader: StoreClient) -> None:
    found = routing_board(reader, Scope.last(timedelta(hours=1), NOW, f"nobody-{uuid4()}"))
    assert found.is_empty and found.mean_regret_ms is None and target_lines(found) == ()


def test_a_target_that_only_failed_stands_in_the_list() -> None:
    tries = Tries(NOW, "chat", "dead", "first", "error", "upstream_error", 3, Decimal(0))
    lines = (UseLine("chat", "well", "small", "", Use(requests=4)),)
    board = RoutingBoard(Scope.last(timedelta(hours=1), NOW), lines, (tries,), (), (), ())
    assert [(line.target, line.use.requests, line.failed_tries) for line in target_lines(board)] == [
        ("well", 4, 0),
        ("dead", 0, 3),
    ]
    assert by_route(board.lines) == {} and Use().error_share is None
