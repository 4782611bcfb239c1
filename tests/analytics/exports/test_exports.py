"""FOCUS files and invoices: every row by the rules, every sum what was recorded, nothing unpriced called free."""

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.cost.question import CostQuestion
from analytics.cost.report import cost_report
from analytics.exports.billing import Billed, Billing
from analytics.exports.charges import UNKNOWN_USAGE, Charge, charges_of
from analytics.exports.files import write_csv, write_parquet
from analytics.exports.focus import COLUMNS, Row, gpu_rows, usage_rows
from analytics.exports.focus_rules import focus_faults
from analytics.exports.invoice import invoices
from analytics.exports.invoice_pages import invoice_html, invoice_pdf
from analytics.exports.usage_export import LEVELS
from analytics.gpu.cost import GpuCost, TenantGpuCost
from analytics.prices.usage_groups import UsageGroup, usage_groups
from analytics.scope import Period
from backends.store.client import StoreClient
from contracts.access.identity import Identity
from contracts.errors import ConfigurationError
from contracts.metering.usage import LEAVES, Usage
from contracts.pricing.money import usd
from contracts.pricing.prices import AnyCard, NewPrice, StandardCostCard, bill, price_card
from contracts.pricing.rates import BillingTerms, CurrencyRate, RateBook
from contracts.recording.records import RequestRecord
from tests.analytics.cost.records import request

Record = Callable[[Sequence[RequestRecord]], None]
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
DAY = datetime(2047, 5, 1, tzinfo=UTC)
MONTH = Period(DAY, datetime(2047, 6, 1, tzinfo=UTC))
BERLIN = ZoneInfo("Europe/Berlin")
CARDS: list[AnyCard] = [
    price_card(
        NewPrice(
            "llama",
            "llama/1",
            {"input_text": Decimal("2.5"), "cache_read_text": Decimal("0.25"), "output_text": Decimal(10)},
            tiers=[(1_000, {"input_text": Decimal(5)})],
            usd_per_request=Decimal("0.001"),
        )
    ),
    StandardCostCard("own", "own/1", BEGINNING, 111, 22, 333),
]


def rows_of(tenant: str) -> list[RequestRecord]:
    used = [
        ("llama", Usage(input_text=100, cache_read_text=50, output_text=20, output_reasoning=7), "red"),
        ("llama", Usage(input_text=2_000, output_text=20), "red"),
        ("own", Usage(input_text=10, cache_write_5m=5, output_text=3), "blue"),
        ("nobody-priced-it", Usage(input_text=77, output_text=23), "blue"),
    ]
    by_model: dict[str, AnyCard] = {card.model: card for card in CARDS}
    records = []
    for place, (model, usage, team) in enumerate(used):
        cost = bill(usage, "chat", by_model.get(model))
        records.append(
            request(
                DAY + timedelta(days=place),
                who=Identity(tenant, team=team),
                model=model,
                provider="engine" if model == "own" else "openai",
                usage=usage,
                cost_pico_usd=cost.total_pico_usd,
                price_version=cost.version,
                cost_basis=cost.basis,
            )
        )
    kept = Usage(input_text=0, output_text=0)
    return [*records, request(DAY, who=Identity(tenant, team="red"), cache="hit", usage=kept, cost_pico_usd=123)]


@pytest.fixture
def charged(reader: StoreClient, record: Record) -> tuple[CostQuestion, list[Charge]]:
    tenant = f"tenant-{uuid4()}"
    record(rows_of(tenant))
    question = CostQuestion(MONTH.start, MONTH.end, ("tenant", "team"), "day", tenant=tenant)
    return question, charges_of(usage_groups(reader, question, CARDS), CARDS)


def test_charges_sum_to_what_was_recorded_with_the_card_s_own_prices(
    reader: StoreClient, charged: tuple[CostQuestion, list[Charge]]
) -> None:
    question, charges = charged
    report = cost_report(reader, question)
    assert sum(one.amount_pico_usd or 0 for one in charges) == report.total.priced_pico_usd
    unpriced = [one for one in charges if one.amount_pico_usd is None]
    assert [(one.model, one.quantity) for one in unpriced] == [("nobody-priced-it", 100)]
    dear = [one for one in charges if one.meter == "input_text" and one.model == "llama"]
    assert {(one.quantity, one.unit_pico_usd) for one in dear} == {(100, 2_500_000), (2_000, 5_000_000)}
    assert all(one.unit_pico_usd is None or one.quantity * one.unit_pico_usd == one.amount_pico_usd for one in charges)


def test_the_focus_file_keeps_the_rules_and_the_sum(
    charged: tuple[CostQuestion, list[Charge]], tmp_path: Path, reader: StoreClient
) -> None:
    question, charges = charged
    rows = usage_rows(charges, MONTH, question.periods, "Platform")
    assert focus_faults(rows) == []
    total = cost_report(reader, question).total
    assert sum(Decimal(str(row["BilledCost"])) for row in rows) == total.cost_usd
    unpriced = [row for row in rows if row["x_IsUnpriced"]]
    assert len(unpriced) == 1 and str(unpriced[0]["ChargeDescription"]).startswith("Unpriced usage, cost unknown")

    write_csv(rows, tmp_path / "focus.csv")
    with (tmp_path / "focus.csv").open(newline="") as file:
        read = list(csv.DictReader(file))
    assert list(read[0]) == list(COLUMNS)
    assert sum(Decimal(row["BilledCost"]) for row in read) == total.cost_usd
    assert min(row["ChargePeriodStart"] for row in read) == "2047-05-01T00:00:00Z"
    write_parquet(rows, tmp_path / "focus.parquet")
    table = pq.read_table(tmp_path / "focus.parquet")
    assert sum(table.column("BilledCost").to_pylist()) == total.cost_usd


MEDIA: list[AnyCard] = [
    price_card(
        NewPrice(
            "image", "image/1", {"images": Decimal(40_000)}, service_tiers={"image.hd": {"images": Decimal(80_000)}}
        )
    ),
    price_card(NewPrice("hear", "hear/1", {"milliseconds": Decimal("0.1")})),
    price_card(NewPrice("speak", "speak/1", {"characters": Decimal(15)})),
    price_card(NewPrice("judge", "judge/1", {"requests": Decimal(200)})),
]


def media_rows(tenant: str) -> list[RequestRecord]:
    """One request of each operation that is sold by a unit, a better image, and one without a price."""
    used = [
        ("image", "image_generation", Usage(images=3), ""),
        ("image", "image_generation", Usage(images=1), "image.hd"),
        ("hear", "transcription", Usage(milliseconds=8_470), ""),
        ("speak", "speech", Usage(characters=9), ""),
        ("judge", "moderation", Usage(requests=1), ""),
        ("nobody-priced-it", "image_generation", Usage(images=2), ""),
    ]
    cards: dict[str, AnyCard] = {card.model: card for card in MEDIA}
    records = []
    for model, operation, usage, tier in used:
        card = cards[model].at_tier(tier) if model in cards else None
        cost = bill(usage, operation, card)
        records.append(
            request(
                DAY,
                who=Identity(tenant),
                model=model,
                provider="openai",
                operation=operation,
                usage=usage,
                service_tier=tier,
                cost_pico_usd=cost.total_pico_usd,
                price_version=cost.version,
                cost_basis=cost.basis,
            )
        )
    return records


def test_units_are_charged_exported_and_invoiced_as_units(reader: StoreClient, record: Record) -> None:
    tenant = f"tenant-{uuid4()}"
    record(media_rows(tenant))
    question = CostQuestion(MONTH.start, MONTH.end, ("tenant",), "day", tenant=tenant)
    report = cost_report(reader, question, with_attempts=True).total
    assert (report.unpriced_requests, report.unknown_usage_requests) == (1, 0)
    assert report.units_used == {"image": 6, "second": Decimal("8.47"), "character": 9, "request": 1}
    charges = charges_of(usage_groups(reader, question, MEDIA), MEDIA)
    assert {(one.meter, one.service_tier, one.quantity, one.amount_pico_usd) for one in charges} == {
        ("images", "", 3, 120 * 10**9),
        ("images", "image.hd", 1, 80 * 10**9),
        ("milliseconds", "", 8_470, 847_000_000),
        ("characters", "", 9, 135_000_000),
        ("requests", "", 1, 200_000_000),
        ("images", "", 2, None),
    }
    assert sum(one.amount_pico_usd or 0 for one in charges) == report.priced_pico_usd
    rows = usage_rows(charges, MONTH, question.periods, "Platform")
    assert focus_faults(rows) == []
    priced = {
        (row["PricingUnit"], row["PricingQuantity"], row["ListUnitPrice"]) for row in rows if not row["x_IsUnpriced"]
    }
    assert priced == {
        ("Images", Decimal(3), Decimal("0.04")),
        ("Images", Decimal(1), Decimal("0.08")),
        ("Seconds", Decimal("8.47"), Decimal("0.0001")),
        ("Characters", Decimal(9), Decimal("0.000015")),
        ("Requests", Decimal(1), Decimal("0.0002")),
    }
    assert {row["ConsumedUnit"] for row in rows} == {"Images", "Seconds", "Characters", "Requests"}
    [invoice] = invoices(charges, MONTH, "tenant", RateBook())
    page = invoice_html(invoice, "Platform", BERLIN)
    for words in ("8.47", "0.0001 per second", "0.04 each", "0.08 each", "0.000015 each", "0.0002 each"):
        assert words in page, words


@pytest.mark.parametrize("name", ["=1+1", " =1+1", "\n=1+1", "\u00a0@x", "\uff1d1+1"])
def test_a_name_in_a_focus_file_is_no_formula(tmp_path: Path, name: str) -> None:
    [row, *_] = gpu_rows("GPU-1", "NVIDIA H200", gpu_bill(), MONTH, "Platform")
    write_csv([{**row, "SubAccountName": name, "BilledCost": Decimal("-1.5")}], tmp_path / "focus.csv")
    with (tmp_path / "focus.csv").open(newline="") as file:
        [read] = csv.DictReader(file)
    assert (read["SubAccountName"], read["BilledCost"]) == (f"'{name}", "-1.5")


def gpu_bill() -> GpuCost:
    tenants = (TenantGpuCost("acme", 30, 700, 0, 100), TenantGpuCost("globex", 10, 100, 50, 33))
    return GpuCost(Period(DAY, DAY + timedelta(hours=1)), "use", 1_000, {}, {}, tenants, 17, 0, ("rate-1",))


def test_a_gpu_s_cost_is_split_into_rows_that_sum_to_it() -> None:
    rows = gpu_rows("GPU-1", "NVIDIA H200", gpu_bill(), MONTH, "Platform")
    assert focus_faults(rows) == []
    assert sum(Decimal(str(row["BilledCost"])) for row in rows) == usd(1_000)
    assert [row["AllocatedResourceId"] for row in rows] == ["acme", "globex", "platform"]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"BilledCost": None}, "BilledCost must not be null"),
        ({"BilledCost": 1.5}, "BilledCost must be a decimal number"),
        ({"ChargeCategory": "Fee"}, "ChargeCategory 'Fee' is not one of"),
        ({"ChargePeriodEnd": DAY}, "ChargePeriodStart must lie before ChargePeriodEnd"),
        ({"ConsumedUnit": None}, "ConsumedQuantity and ConsumedUnit must be given together"),
        ({"ConsumedUnit": "gpu hours"}, "ConsumedUnit 'gpu hours' is not in FOCUS's unit format"),
        ({"BillingCurrency": "dollar"}, "BillingCurrency must be a code of ISO 4217"),
        ({"AllocatedTags": "acme"}, "AllocatedTags must be a JSON object"),
        ({"SkuPriceId": None}, "SkuPriceId must not be null where ChargeCategory is Usage"),
        ({"ChargePeriodEnd": datetime(2047, 6, 2, tzinfo=UTC)}, "must lie within the billing period"),
        ({"Colour": "red"}, "column 'Colour' is not FOCUS's"),
        (
            {"ListUnitPrice": Decimal(2), "PricingQuantity": Decimal(3), "PricingUnit": "Requests"},
            "x PricingQuantity is 6",
        ),
        ({"AllocatedMethodDetails": '{"AllocatedRatio": "0.5"}'}, "the allocated ratios of 'GPU-1' sum to"),
    ],
)
def test_a_broken_rule_is_named(change: dict[str, object], fault: str) -> None:
    rows: list[Row] = gpu_rows("GPU-1", "", gpu_bill(), MONTH, "Platform")
    rows[0] |= change  # type: ignore[arg-type]  # what no row of ours would hold
    assert any(fault in found for found in focus_faults(rows)), focus_faults(rows)


def test_customers_names_may_be_words_that_stand_for_nothing_elsewhere() -> None:
    rows: list[Row] = gpu_rows("GPU-1", "", gpu_bill(), MONTH, "Platform")
    rows[0] |= {"x_TeamId": "na", "x_ProjectId": "none", "AllocatedResourceName": "unknown"}
    assert focus_faults(rows) == []
    rows[0] |= {"ChargeDescription": "n/a"}
    assert "row 1: ChargeDescription 'n/a' means no value; use null" in focus_faults(rows)


def charge(team: str, amount: int | None, quantity: int = 1) -> Charge:
    return Charge("acme", team, "", "", "<m>", "p", "v", "price_card", "input_text", 0, quantity, None, amount)


def test_an_invoice_has_discount_free_tier_and_commitment_in_this_order() -> None:
    terms = BillingTerms(
        "t1", "acme", BEGINNING, None, percent=Decimal(-10), free_usd=Decimal(5), committed_usd=Decimal(100)
    )
    charges = [charge("red", 60 * 10**12), charge("blue", 40 * 10**12), charge("blue", None, 7)]
    (whole,) = invoices(charges, MONTH, "tenant", RateBook([terms]))
    assert whole.usage == 100 and whole.unpriced_quantity == 7
    assert whole.adjustments == (
        ("discount of 10 %", Decimal(-10)),
        ("free tier of 5 USD", Decimal(-5)),
        ("commitment of 100 USD", Decimal(15)),
    )
    assert whole.payable == Decimal("100.00")
    blue, red = invoices(charges, MONTH, "team", RateBook([terms]))
    assert (blue.team, blue.payable, red.team, red.payable) == ("blue", Decimal("36.00"), "red", Decimal("54.00"))


def test_another_currency_needs_its_rate_of_the_period_s_last_moment() -> None:
    rates = [
        CurrencyRate("e1", "EUR", BEGINNING, MONTH.end - timedelta(days=1), Decimal("0.5")),
        CurrencyRate("e2", "EUR", MONTH.end - timedelta(days=1), MONTH.end, Decimal("0.92")),
    ]
    (one,) = invoices([charge("red", 10**13)], MONTH, "team", RateBook(rates), "EUR")
    assert (one.payable, one.rate_version) == (Decimal("9.20"), "e2")
    with pytest.raises(ConfigurationError, match="CHF has no rate on 2047-05-31"):
        invoices([charge("red", 1)], MONTH, "team", RateBook(rates), "CHF")


@given(st.lists(st.integers(0, 10**14), min_size=1, max_size=40), st.decimals("0.01", "200", places=4))
def test_lines_are_the_parts_of_their_sum_in_every_currency(amounts: list[int], rate: Decimal) -> None:
    book = RateBook([CurrencyRate("x1", "EUR", BEGINNING, None, rate)])
    (one,) = invoices([charge("red", amount) for amount in amounts], MONTH, "team", book, "EUR")
    assert sum(line.amount or Decimal(0) for line in one.lines) == one.usage
    assert abs(one.usage - usd(sum(amounts)) * rate) <= Decimal("0.0000005")


def test_pages_name_what_is_unpriced_and_escape_names() -> None:
    (one,) = invoices([charge("<b>", 10**12), charge("<b>", None, 7)], MONTH, "team", RateBook())
    page = invoice_html(one, "Platform & Co", BERLIN)
    assert "&lt;b&gt;" in page and "<b>" not in page and "Platform &amp; Co" in page
    assert "&lt;m&gt; has no price card with a price for input text" in page and "no price" in page
    printed = invoice_pdf(one, "Platform", BERLIN)
    assert printed.startswith(b"%PDF-") and printed == invoice_pdf(one, "Platform", BERLIN)


def test_what_has_no_price_takes_no_money_away_from_what_has() -> None:
    priced = group(requests=1, unpriced_requests=0, cost_pico_usd=123)
    unpriced = group(requests=1, unpriced_requests=1, cost_pico_usd=0)
    for groups in ([priced, unpriced], [unpriced, priced]):
        charges = charges_of(groups, [])
        assert sorted((one.amount_pico_usd is None, one.amount_pico_usd or 0) for one in charges) == [
            (False, 123),
            (True, 0),
        ]


def group(**figures: Any) -> UsageGroup:
    """Kept answers and half-reported ones of one card: alike in all that a charge is named by."""
    return UsageGroup(
        *("acme", "red", "", "", "llama", "openai", "llama/1", "price_card", 0, DAY, None, ()),
        is_billable=False,
        is_engine=False,
        is_kept_answer=True,
        is_batch=False,
        tokens=(0,) * len(LEAVES),
        **figures,
    )


@pytest.mark.parametrize(
    ("start", "end", "zone", "number", "adjustments"),
    [
        ("2047-05-01", "2047-06-01", "Europe/Berlin", "2047-05/acme", 1),
        ("2047-05-01", "2047-06-01", "Pacific/Honolulu", "2047-05/acme", 1),
        ("2047-12-01", "2048-01-01", "Pacific/Kiritimati", "2047-12/acme", 1),
        ("2047-05-01", "2047-05-16", "UTC", "2047-05-01--2047-05-15/acme", 0),
        ("2047-05-16", "2047-06-01", "UTC", "2047-05-16--2047-05-31/acme", 0),
        ("2047-05-01", "2047-07-01", "UTC", "2047-05-01--2047-06-30/acme", 0),
    ],
)
def test_a_month_s_terms_and_number_are_of_whole_months(
    start: str, end: str, zone: str, number: str, adjustments: int
) -> None:
    terms = BillingTerms("t1", "acme", BEGINNING, None, committed_usd=Decimal(100))
    place = ZoneInfo(zone)
    period = Period(*(datetime.fromisoformat(text).replace(tzinfo=place).astimezone(UTC) for text in (start, end)))
    (one,) = invoices([charge("red", 10**12)], period, "tenant", RateBook([terms]), zone=place)
    assert (one.number, len(one.adjustments)) == (number, adjustments)
    assert ("commitments apply to whole months only" in invoice_html(one, "Platform", place)) is (adjustments == 0)


def test_a_request_of_unknown_usage_is_named_on_the_page() -> None:
    unknown = replace(charge("red", None, 3), meter=UNKNOWN_USAGE)
    (one,) = invoices([unknown, charge("red", 10**12)], MONTH, "team", RateBook())
    page = invoice_html(one, "Platform", BERLIN)
    assert "no usage was reported for 3 requests" in page and "price card" not in page
    assert (one.unknown_usage_requests, one.unpriced_quantity) == (3, 0)


def test_a_kind_of_token_without_a_price_is_a_charge_beside_the_rest(reader: StoreClient, record: Record) -> None:
    tenant, heard = f"tenant-{uuid4()}", Usage(input_text=100, input_audio=7, output_text=10)
    text = price_card(NewPrice("llama", "text/1", {"input_text": Decimal(1), "output_text": Decimal(2)}))
    fields = {"usage": heard, "model": "llama", "price_version": "text/1", "unpriced_leaves": ["input_audio"]}
    record(
        [
            request(DAY, who=Identity(tenant), cost_pico_usd=120 * 10**6, cost_basis="price_card", **fields),
            request(DAY, who=Identity(tenant), cost_pico_usd=0, cost_basis="free", outcome="error", model="llama"),
        ]
    )
    question = CostQuestion(MONTH.start, MONTH.end, ("tenant",), tenant=tenant)
    wanted = {("input_text", 100, 100 * 10**6), ("output_text", 10, 20 * 10**6), ("input_audio", 7, None)}
    for cards, expected in (([text], wanted), ([], {("usage", 110, 120 * 10**6), ("input_audio", 7, None)})):
        charges = charges_of(usage_groups(reader, question, cards), cards)
        assert {(one.meter, one.quantity, one.amount_pico_usd) for one in charges} == expected


def test_a_failed_request_has_no_charge_and_an_estimated_one_is_marked() -> None:
    failed = group(requests=4, unpriced_requests=0, cost_pico_usd=0, state="failed")
    unknown = group(requests=3, unpriced_requests=3, cost_pico_usd=0, state="unknown_usage")
    exact = group(requests=1, unpriced_requests=0, cost_pico_usd=7_000_000)
    estimated = group(requests=2, unpriced_requests=0, cost_pico_usd=3_000_000, is_estimated=True)
    charges = charges_of([failed, unknown, exact, estimated], [])
    priced = [one for one in charges if one.amount_pico_usd]
    assert sorted((one.meter, one.amount_pico_usd, one.quantity, one.is_estimated) for one in priced) == [
        ("usage", 3_000_000, 0, True),
        ("usage", 7_000_000, 0, False),
    ]
    assert [(one.meter, one.quantity) for one in charges if one.amount_pico_usd is None] == [(UNKNOWN_USAGE, 3)]
    (one,) = invoices(charges, MONTH, "team", RateBook())
    assert (one.usage, one.estimated) == (Decimal("0.000010"), Decimal("0.000003"))
    page = invoice_html(one, "Platform", BERLIN)
    assert "usage (estimated)" in page and "of which estimated" in page and "0.000003" in page
    assert invoice_pdf(one, "Platform", BERLIN).startswith(b"%PDF-")
    rows = usage_rows([replace(each, period_start=MONTH.start_s) for each in charges], MONTH, [MONTH], "Platform")
    assert sorted((row["x_IsEstimated"], row["x_IsUnpriced"]) for row in rows) == [
        (False, False),
        (False, True),
        (True, False),
    ]
    assert focus_faults(rows) == []


def test_a_tenant_that_committed_to_an_amount_and_used_nothing_is_billed_it() -> None:
    book = RateBook(
        [
            BillingTerms("t1", "acme", BEGINNING, None, committed_usd=Decimal(100)),
            BillingTerms("t2", "globex", BEGINNING, None, committed_usd=Decimal("12.5")),
            BillingTerms("t3", "initech", BEGINNING, None, free_usd=Decimal(5)),
            BillingTerms("t4", "gone", BEGINNING, MONTH.start, committed_usd=Decimal(7)),
        ]
    )
    made = invoices([charge("red", 10**12)], MONTH, "tenant", book)
    assert [(one.tenant, one.payable, len(one.lines)) for one in made] == [
        ("acme", Decimal("100.00"), 1),
        ("globex", Decimal("12.50"), 0),
    ]
    assert "commitment of 12.5 USD" in invoice_html(made[1], "Platform", BERLIN)
    assert invoice_pdf(made[1], "Platform", BERLIN).startswith(b"%PDF-")
    assert [one.tenant for one in invoices([], MONTH, "tenant", book, tenant="globex")] == ["globex"]
    part = Period(MONTH.start, MONTH.start + timedelta(days=10))
    assert invoices([], part, "tenant", book) == invoices([], MONTH, "team", book) == []


def test_a_row_has_its_invoice_its_tags_its_seller_and_both_prices(store: Any, record: Record) -> None:
    """The list price is the general card's, the contracted one the tenant's own; an issued invoice has its number."""
    tenant = f"tenant-{uuid4()}"
    general = price_card(NewPrice("gpt-x", f"list-{tenant}", {"input_text": Decimal(4)}))
    own = replace(price_card(NewPrice("gpt-x", f"own-{tenant}", {"input_text": Decimal(3)})), tenant=tenant)
    usage = Usage(input_text=1_000_000, output_text=0)
    who = Identity(tenant, team="red", tags={"cost-center": "4711", "team": "blue"})
    bought: dict[str, Any] = {"model": "gpt-x", "provider": "openai", "usage": usage, "cost_basis": "price_card"}
    record([request(DAY, who=who, cost_pico_usd=3 * 10**12, price_version=own.version, **bought)])
    question = CostQuestion(*(MONTH.start, MONTH.end, LEVELS, "day"), tenant=tenant, asked_at=MONTH.end)
    client = store.client("reader")
    charges = charges_of(usage_groups(client, question, [general, own]), [general, own])
    client.close()
    (row,) = usage_rows(charges, MONTH, question.periods, "Northwind AG")
    assert (row["ListUnitPrice"], row["ListCost"]) == (4, 4)
    assert (row["ContractedUnitPrice"], row["ContractedCost"], row["BilledCost"]) == (3, 3, 3)
    assert json.loads(str(row["Tags"])) == {"cost-center": "4711", "team": "red"}
    assert (row["ProviderName"], row["PublisherName"]) == ("Northwind AG", "openai")
    assert row["InvoiceId"] == f"draft 2047-05/{tenant}"
    billing = Billing({(tenant, "2047-05"): Billed("INV-2047-00007")})
    (issued,) = usage_rows(charges, MONTH, question.periods, "N", billing)
    assert issued["InvoiceId"] == "INV-2047-00007"
    assert focus_faults([row, issued]) == []


def test_a_card_for_a_region_is_a_price_of_its_own(store: Any, record: Record) -> None:
    """A SkuPriceId has one list price: two regions of a model have two of them, also for a tenant's own card."""
    tenant = f"tenant-{uuid4()}"
    listed = [
        price_card(NewPrice("gpt-x", f"{name or 'any'}-{tenant}", {"input_text": Decimal(usd)}, region=name))
        for name, usd in (("", 4), ("eu", 5))
    ]
    own = price_card(NewPrice("gpt-x", f"own-{tenant}", {"input_text": Decimal(3)}, tenant=tenant, region="eu"))
    for region, paid in (("us", listed[0]), ("eu", listed[1]), ("eu", own)):
        record(
            [
                request(
                    DAY,
                    who=Identity(tenant),
                    model="gpt-x",
                    provider="openai",
                    region=region,
                    usage=Usage(input_text=1_000_000, output_text=0),
                    cost_basis="price_card",
                    cost_pico_usd=paid.rates["input_text"] * 10**6,
                    price_version=paid.version,
                )
            ]
        )
    question = CostQuestion(*(MONTH.start, MONTH.end, LEVELS, "day"), tenant=tenant, asked_at=MONTH.end)
    client = store.client("reader")
    cards = [*listed, own]
    rows = usage_rows(charges_of(usage_groups(client, question, cards), cards), MONTH, question.periods, "N")
    client.close()
    found = sorted((row["SkuPriceId"], row["ListUnitPrice"], row["ContractedUnitPrice"]) for row in rows)
    assert found == [
        ("openai/gpt-x/input_text", 4, 4),
        ("openai/gpt-x/input_text/in-eu", 5, 3),
        ("openai/gpt-x/input_text/in-eu", 5, 5),
    ]
    assert {row["SkuPriceDetails"] for row in rows} == {None, '{"x_Region": "eu"}'}
    assert focus_faults(rows) == []
