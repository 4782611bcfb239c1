"""The alert about usage without a price counts what a price card would bill, and nothing else."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from analytics.alerts.sources import AlertInputs
from analytics.alerts.spending import unpriced_usage
from backends.store.client import StoreClient
from contracts.access.identity import Identity
from contracts.metering.usage import Usage
from contracts.recording.records import RequestRecord
from contracts.rules.alerts import Rule
from tests.analytics.cost.records import request

Record = Callable[[Sequence[RequestRecord]], None]
USAGE = Usage(input_text=10, output_text=2)


def test_failures_and_unknown_usage_raise_no_alert_and_a_missing_kind_is_named(
    reader: StoreClient, record: Record
) -> None:
    now, name = datetime.now(UTC), uuid4().hex[:8]
    rule = Rule.of("money", "unpriced_usage", "", (), {})

    def summaries() -> dict[str, str]:
        found = unpriced_usage(AlertInputs(reader, now), [rule])[rule.id]
        return {each.tenant: each.summary for each in found if name in each.tenant}

    at = now - timedelta(minutes=5)
    for tenant in (f"failing-{name}", f"partly-{name}", f"bare-{name}"):
        who = Identity(tenant)
        record(
            [
                *(request(at, who=who, outcome="error", status=status) for status in (500, 429, 400)),
                request(at, who=who, outcome="error", status=502, cost_pico_usd=0, cost_basis="free"),
                request(at, who=who, outcome="cancelled"),
            ]
        )
    assert summaries() == {}
    heard = Usage(input_text=10, input_audio=7, output_text=2)
    partly = {"cost_pico_usd": 5, "cost_basis": "price_card", "unpriced_leaves": ["input_audio"]}
    record([request(at, who=Identity(f"partly-{name}"), usage=heard, **partly)])
    record([request(at, who=Identity(f"bare-{name}"), usage=USAGE) for _ in range(2)])
    assert summaries() == {
        f"partly-{name}": f"1 request of partly-{name} to llama in the last day have no price for input_audio: "
        "the rest of them is billed; replace the price card by one that prices input_audio",
        f"bare-{name}": f"2 requests of bare-{name} to llama in the last day have no price: "
        "they are not billed; add a price card",
    }
