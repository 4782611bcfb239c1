"""Last month of the showcase: its usage, a correction, closed months with invoices, a credit, and a provider's bill."""

import json
import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from analytics.books.booking import RerateWish, book_rerate
from analytics.books.closing import close_month, credit_invoice, review_month
from analytics.books.rerating import RerateQuestion
from analytics.reconciliation.importing import BillFile, import_bill
from analytics.reconciliation.report import Reconciler
from analytics.scope import Period
from backends.control.book_periods import ISSUER, ProfileChange, set_profile
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.prices import create_price
from backends.control.rates import NewRate, create_rate
from backends.store.client import StoreClient
from backends.store.columns import arrow_batch
from contracts.access.identity import Identity
from contracts.metering.usage import Usage
from contracts.pricing.prices import NewPrice
from contracts.recording.ids import uuid7
from contracts.recording.names import REQUESTS
from contracts.recording.records import RequestRecord
from tollkeeper.showcase.rows import HOSTED, RATES, TENANTS

_CENTERS: Final = {"search": "4711", "support": "4712", "research": "5100", "apps": "6200"}
_A_DAY: Final = 24  # requests
_NS: Final = 10**9
_KINDS: Final = ("input", "cached input", "output")
_BEGINNING: Final = datetime(2020, 1, 1, tzinfo=UTC)


def fill_books(store: StoreClient, database: ControlDatabase, now: datetime, month: Period, *, prefix: str) -> None:
    """Fill a month that is over: usage of the hosted model, corrected for one tenant, closed for two, in review for
    the third, and compared with a bill that has a price increase, a missing day, and usage that nobody recorded."""
    source, author = random.Random(11), Author("finance@northwind.example", now)
    records = [
        _request(source, month.start + timedelta(days=day), prefix)
        for day in range((month.end - month.start).days)
        for _ in range(_A_DAY)
    ]
    batch: Any = arrow_batch(REQUESTS, records)
    store.insert_arrow("requests", batch, deduplication_token=f"{prefix}showcase-books")
    acme, globex, initech = (prefix + name for name in TENANTS)
    _agree(database, author, month, acme, globex)
    question = RerateQuestion(month.start.date(), month.end.date(), now, globex, HOSTED)
    book_rerate(store, database, author, RerateWish(question, f"{HOSTED}/agreed", "prices agreed on for the quarter"))
    name = f"{month.start:%Y-%m}"
    for tenant in (acme, globex):
        (done,) = close_month(store, database, author, name, tenant=tenant)
        if tenant == acme and done.document is not None:
            credit_invoice(store, database, author, done.document.number, Decimal("1.50"), "outage on the 14th")
    review_month(database, author, name, initech, "waiting for the purchase order")
    bill = BillFile(_bill(source, records, month), f"openai-costs-{name}.json", name, "openai")
    import_bill(database, author, bill)
    Reconciler(database, store, lambda: now).write_due()


def _agree(database: ControlDatabase, author: Author, month: Period, acme: str, globex: str) -> None:
    with database.session() as session:
        agreed = {"input_text": Decimal(2), "cache_read_text": Decimal(1), "output_text": Decimal(8)}
        card = NewPrice(HOSTED, f"{HOSTED}/agreed", agreed, month.start, month.end, tenant=globex)  # type: ignore[arg-type]  # its leaves
        create_price(session, author, card)
        create_rate(session, author, NewRate("currency", "eur", "EUR", {"units_per_usd": "0.8612"}, _BEGINNING))
        create_rate(session, author, NewRate("terms", "acme-terms", acme, {"percent": "-5"}, _BEGINNING))
        set_profile(
            session,
            author,
            ISSUER,
            ProfileChange(legal_name="Northwind AG", address="Ring 1\n1010 Wien", taxes={"VAT": "20"}),
        )
        buyer = ProfileChange(legal_name="Acme Retail GmbH", address="Weg 2\n10115 Berlin", currency="EUR", due_days=14)
        set_profile(session, author, acme, buyer)


def _request(source: random.Random, day: datetime, prefix: str) -> RequestRecord:
    tenant = source.choices(list(TENANTS), (0.5, 0.3, 0.2))[0]
    team = source.choice(TENANTS[tenant])
    at = int((day + timedelta(seconds=source.randrange(86_000))).timestamp() * 1_000) * 10**6
    counts = (source.randint(2_000, 40_000), source.randint(0, 20_000), source.randint(100, 4_000))
    tags = {"cost-center": _CENTERS[team], "feature": source.choice(("summary", "chat", "extraction"))}
    return RequestRecord(
        request_id=uuid7(at).bytes,
        started_at_ns=at,
        duration_ns=2 * _NS,
        who=Identity(prefix + tenant, team, "", f"key_{team}", f"user-{source.randrange(12)}", tags),
        api="chat.completions",
        outcome="ok",
        status=200,
        model=HOSTED,
        model_version=HOSTED,
        provider="openai",
        pool="hosted",
        replica="eu-west",
        gateway="gw-1",
        usage=Usage(input_text=counts[0], cache_read_text=counts[1], output_text=counts[2]),
        count_method="reported",
        cost_pico_usd=sum(count * rate for count, rate in zip(counts, _rates(), strict=True)),
        cost_basis="price_card",
        price_version=f"{HOSTED}/showcase",
    )


def _rates() -> list[int]:
    return [int(Decimal(price) * 10**6) for price in RATES[HOSTED]]


def _bill(source: random.Random, records: list[RequestRecord], month: Period) -> bytes:
    """Write a costs report of the provider, one line for each day and kind of tokens."""
    days: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
    for record in records:
        day = (record.started_at_ns // _NS - month.start_s) // 86_400
        used = (record.usage.input_text, record.usage.cache_read_text, record.usage.output_text)
        for place, count in enumerate(used):
            days[day][place] += count or 0
    buckets = []
    for day, counts in sorted(days.items()):
        if day == 19:
            continue  # a day that is missing
        if day in (6, 13):
            counts[0] += source.randint(10_000, 90_000)  # what nobody recorded
        results = []
        for kind, count, rate in zip(_KINDS, counts, _rates(), strict=True):
            price = rate * 11 // 10 if day == 24 and kind == "output" else rate
            results.append(
                {
                    "object": "organization.costs.result",
                    "amount": {"value": count * price / 10**12, "currency": "usd"},
                    "line_item": f"{HOSTED}, {kind}",
                    "project_id": "proj_1",
                    "quantity": count,
                }
            )
        start = month.start_s + day * 86_400
        buckets.append({"object": "bucket", "start_time": start, "end_time": start + 86_400, "results": results})
    return json.dumps({"object": "page", "data": buckets, "has_more": False, "next_page": None}).encode()
