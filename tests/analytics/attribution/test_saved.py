"""What batches and kept answers saved: by the cards that priced them, and called an estimate where it is one."""

from datetime import UTC, datetime
from decimal import Decimal

from analytics.attribution.saved import AnswerSaving, BatchSaving, SavedReport, answer_savings, batch_savings
from analytics.prices.usage_groups import UsageGroup
from contracts.metering.usage import LEAVES
from contracts.pricing.prices import NewPrice, PriceBook, price_card

START = datetime(2026, 11, 1, tzinfo=UTC)
BOOK = PriceBook(
    [
        price_card(
            NewPrice(
                "m",
                "m@1",
                {"input_text": Decimal(2), "output_text": Decimal(8)},
                valid_from=START,
                batch_usd_per_mtok={"input_text": Decimal(1), "output_text": Decimal(4)},
            )
        )
    ]
)


def group(*, requests: int = 1, cost: int = 0, unpriced: int = 0, model: str = "m", kind: str = "") -> UsageGroup:
    tokens = tuple({"input_text": 1_000, "output_text": 100}.get(leaf, 0) for leaf in LEAVES)
    return UsageGroup(
        tenant="acme",
        team="",
        project="",
        key="key_1",
        model=model,
        provider="",
        price_version="m@1",
        basis="price_card",
        period_start=0,
        at=START,
        input_tokens=1_000,
        used=("input_text", "output_text"),
        is_billable=True,
        is_engine=False,
        is_kept_answer=kind == "kept",
        is_batch=kind == "batch",
        requests=requests,
        unpriced_requests=unpriced,
        cost_pico_usd=cost,
        tokens=tokens,
    )


def test_a_batch_saved_what_it_would_have_cost_at_once_less_what_it_did() -> None:
    (saving,) = batch_savings([group(kind="batch", requests=3), group(requests=5)], BOOK)
    assert saving == BatchSaving("acme", "m", 3, 2_800_000_000, 1_400_000_000)
    assert saving.saved_pico_usd == 1_400_000_000
    assert batch_savings([group(kind="batch", model="unknown")], BOOK) == ()


def test_a_kept_answer_saved_about_the_mean_of_those_that_were_asked() -> None:
    asked, hits = group(requests=4, cost=1_000, unpriced=2), group(kind="kept", requests=3, cost=30)
    assert answer_savings([asked, hits]) == (AnswerSaving("acme", "m", 3, 30, 1_470),)


def test_without_a_request_to_go_by_a_kept_answer_has_no_estimate() -> None:
    savings = answer_savings([group(kind="kept", requests=3), group(requests=2, unpriced=2)])
    assert [(one.answers, one.estimated_pico_usd) for one in savings] == [(3, None)]
    assert SavedReport((), (), savings).answers_pico_usd == 0
