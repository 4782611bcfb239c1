"""What further attempts cost: on no payer's bill, and on a line of the report, for the one that asks for it."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from analytics.cost.question import CostQuestion
from analytics.cost.rendering import report_as_json
from analytics.cost.report import cost_report
from backends.store.client import StoreClient
from backends.store.columns import arrow_batch
from contracts.access.identity import Identity
from contracts.metering.usage import Usage
from contracts.recording.names import ATTEMPTS
from contracts.recording.records import AttemptRecord, RequestRecord
from tests.analytics.cost.records import request

Record = Callable[[Sequence[RequestRecord]], None]
DAY = datetime(2048, 3, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def record_attempts(store: Any) -> Iterator[Callable[[Sequence[AttemptRecord]], None]]:
    client: StoreClient = store.client("writer")

    def insert(records: Sequence[AttemptRecord]) -> None:
        client.insert_arrow("attempts", arrow_batch(ATTEMPTS, records), deduplication_token=str(uuid4()))

    yield insert
    client.close()


def attempt(of: RequestRecord, number: int, cost: int | None, after: timedelta = timedelta(0)) -> AttemptRecord:
    return AttemptRecord(
        request_id=of.request_id,
        number=number,
        started_at_ns=of.started_at_ns + after // timedelta(microseconds=1) * 1000,
        duration_ns=1,
        who=of.who,
        reason="first" if number == 1 else "hedge",
        outcome="ok",
        model=of.model,
        usage=Usage(input_text=1, output_text=1),
        cost_pico_usd=cost,
    )


@pytest.fixture
def tenant(record: Record, record_attempts: Callable[[Sequence[AttemptRecord]], None]) -> str:
    """Two teams: a plain request; one of a retry that cost 30 beside its 100; one whose loser did not say its cost,
    begun a second before midnight; and one of a chain of three."""
    name = f"tenant-{uuid4()}"
    red, blue = Identity(name, "red", tags={"feature": "chat"}), Identity(name, "blue")
    plain = request(DAY, who=red, cost_pico_usd=7, attempts=1)
    retried = request(DAY + timedelta(hours=1), who=red, cost_pico_usd=100, attempts=2)
    hedged = request(DAY + timedelta(hours=23, minutes=59, seconds=59), who=blue, cost_pico_usd=40, attempts=2)
    chain = request(DAY + timedelta(hours=2), who=blue, cost_pico_usd=None, attempts=3)
    record([plain, retried, hedged, chain])
    record_attempts(
        [
            *(attempt(retried, 1, 30), attempt(retried, 2, 100)),
            *(attempt(hedged, 1, None), attempt(hedged, 2, 40, after=timedelta(seconds=5))),
            *(attempt(chain, 1, 11), attempt(chain, 2, None), attempt(chain, 3, None)),
        ]
    )
    return name


def test_further_attempts_stand_beside_what_payers_pay(reader: StoreClient, tenant: str) -> None:
    question = CostQuestion(DAY, DAY + timedelta(days=1), ("team",), tenant=tenant)
    report = cost_report(reader, question, with_attempts=True)
    assert report.source == "requests_day" and report.total.priced_pico_usd == 147
    assert {line.path[0]: line.sums.further_pico_usd for line in report.lines} == {"red": 30, "blue": 11}
    total = report.total
    assert (total.further_attempts, total.further_pico_usd, total.further_unpriced) == (4, 41, 2)
    told: Any = report_as_json(report)
    assert told["total"]["further_attempts_usd"] == "0.000000000041"


def test_they_are_told_by_any_label_of_the_request_and_in_its_period(reader: StoreClient, tenant: str) -> None:
    by_tag = CostQuestion(DAY, DAY + timedelta(days=2), ("tag:feature",), "day", tenant=tenant)
    report = cost_report(reader, by_tag, with_attempts=True)
    lines = {(line.path[0], line.period.start): line.sums.further_pico_usd for line in report.lines}
    assert lines == {("chat", DAY): 30, ("", DAY): 11}
    last_second = CostQuestion(DAY + timedelta(hours=23), DAY + timedelta(days=1), tenant=tenant)
    assert cost_report(reader, last_second, with_attempts=True).total.further_attempts == 1


def test_what_a_rule_has_deleted_is_not_zero(reader: StoreClient, store: Any, tenant: str) -> None:
    def deleted_before(moment: str) -> None:
        client: StoreClient = store.client("writer")
        client.command(
            "INSERT INTO retention (tenant, table_name, keep_seconds, deleted_before) "
            "VALUES ({tenant:String}, 'requests', 86400, {moment:String})",
            {"tenant": tenant, "moment": moment},
        )
        client.close()

    deleted_before("2048-03-01 01:00:00")
    report = cost_report(reader, CostQuestion(DAY, DAY + timedelta(days=1), tenant=tenant), with_attempts=True)
    assert not report.has_attempts and report.total.priced_pico_usd == 147
    later = CostQuestion(DAY + timedelta(hours=1), DAY + timedelta(days=1), tenant=tenant)
    assert cost_report(reader, later, with_attempts=True).has_attempts
    deleted_before("1970-01-01 00:00:00")  # other tests ask about all tenants


def test_what_was_not_asked_or_is_no_longer_kept_is_not_zero(reader: StoreClient, tenant: str) -> None:
    question = CostQuestion(DAY, DAY + timedelta(days=1), tenant=tenant)
    late = CostQuestion(DAY, DAY + timedelta(days=1), tenant=tenant, asked_at=DAY + timedelta(days=800))
    for report in (cost_report(reader, question), cost_report(reader, late, with_attempts=True)):
        told: Any = report_as_json(report)
        assert told["total"]["further_attempts"] is None and told["total"]["further_attempts_usd"] is None
