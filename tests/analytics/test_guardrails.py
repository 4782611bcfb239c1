"""What guardrails found, counted by stage from records' verdicts."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

from analytics.guardrails import stage_counts
from analytics.scope import Period
from contracts.access.identity import Identity
from contracts.recording.records import RequestRecord

NOON = datetime(2026, 11, 3, 12, 0, tzinfo=UTC)
DAY = Period(NOON - timedelta(hours=1), NOON + timedelta(hours=1))


def guarded(tenant: str, guard_ns: int | None, *verdicts: str) -> RequestRecord:
    return RequestRecord(
        request_id=uuid4().bytes,
        started_at_ns=int(NOON.timestamp()) * 10**9,
        duration_ns=10**6,
        who=Identity(tenant),
        verdicts=list(verdicts),
        guard_ns=guard_ns,
    )


def test_verdicts_are_counted_by_tenant_and_stage_and_dry_runs_apart(reader, record) -> None:
    tenant, other = f"g-{uuid4().hex[:8]}", f"h-{uuid4().hex[:8]}"
    record(
        [
            guarded(tenant, 1000, "input/cards/redact:card=2", "dry:output/words/block:keyword=1"),
            guarded(tenant, 1000, "input/cards/redact:card+iban=3"),
            guarded(tenant, 1000),
            guarded(tenant, None),
            guarded(other, 1000, "input/cards/redact:card=1"),
        ]
    )
    cards, words = stage_counts(reader, DAY, tenant)
    assert (cards.stage, cards.requests, cards.of_requests, cards.findings) == ("cards", 2, 3, 5)
    assert cards.kinds == {"card": 2, "iban": 1} and not cards.is_dry_run
    assert (words.stage, words.direction, words.action, words.is_dry_run) == ("words", "output", "block", True)
    mine = [one for one in stage_counts(reader, DAY) if one.tenant == other]
    assert [(one.requests, one.of_requests) for one in mine] == [(1, 1)]
