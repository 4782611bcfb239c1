"""Whatever happens to the books, every number that is shown of them is the same, to the pico-USD.

The test keeps books of its own: a list of requests with what each costs now, and what each document has billed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import count, groupby
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from analytics.books.booking import RerateWish, book_rerate
from analytics.books.closing import close_month, credit_invoice, reopen_month
from analytics.books.rerating import RerateQuestion
from analytics.cost.drill import CostPlace, CostRange, summed_breakdown
from analytics.cost.periods import month_of
from analytics.cost.question import CostQuestion
from analytics.cost.report import cost_report
from analytics.cost.spending_now import spending_now
from analytics.exports.billing import EXTRAS, LATE, load_billing
from analytics.exports.focus_columns import Row
from analytics.exports.focus_rules import focus_faults
from analytics.exports.usage_export import charges_in, usage_export
from analytics.query_time import QueryTime
from analytics.scope import Period
from backends.control.book_periods import ProfileChange, is_as_issued, list_documents, set_profile
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.organisation import create_tenant
from backends.control.prices import create_price, load_cards
from backends.control.rates import NewRate, create_rate
from backends.store.client import StoreClient
from contracts.access.identity import Identity
from contracts.control import BookAdjustment, BookEntry
from contracts.errors import Conflict
from contracts.metering.usage import Leaf, Usage
from contracts.pricing.money import MAX_PICO_USD
from contracts.pricing.prices import NewPrice
from contracts.recording.records import RequestRecord
from contracts.rules.periods import zone_of
from tests.analytics.cost.records import request

ZONE = zone_of("Europe/Berlin")
MONTHS = ("2047-01", "2047-02", "2047-03")  # the last is open: it is March
NOW = datetime(2047, 3, 20, 12, tzinfo=UTC)
MODELS = ("gpt-x", "gpt-y")
PICO = Decimal("1e-12")

operations = st.one_of(
    st.tuples(
        st.just("request"),
        st.integers(0, 2),
        st.sampled_from(MODELS),
        st.integers(0, 10**6) | st.just(4 * 10**9),
        # Ten of the most that one request may cost are beyond 64 bits.
        st.none() | st.integers(0, 10**12) | st.just(MAX_PICO_USD),
    ),
    st.tuples(st.just("rerate"), st.integers(0, 2), st.sampled_from(MODELS), st.integers(0, 3)),
    st.tuples(st.just("late card"), st.integers(0, 2), st.sampled_from(MODELS), st.sampled_from([7, 11])),
    st.tuples(st.just("close"), st.integers(0, 1)),
    st.tuples(st.just("reopen"), st.integers(0, 1)),
    st.tuples(st.just("credit"), st.integers(0, 1), st.integers(1, 10**13)),
)


@dataclass
class OwnBooks:
    """What the test knows by itself. Amounts are in pico-USD."""

    requests: list[list[Any]] = field(default_factory=list)  # month, model, tokens, recorded, cost now
    credits: int = 0
    open_invoices: dict[int, dict[int, int]] = field(default_factory=dict)  # by closed month: billed by month
    cancelled_and_issued: int = 0  # of all invoices and cancellations
    closed: set[int] = field(default_factory=set)
    issued: dict[int, str] = field(default_factory=dict)
    credited: dict[int, int] = field(default_factory=dict)  # on all versions of a month's invoice
    late_cards: dict[str, int] = field(default_factory=dict)  # USD per million tokens, by model

    def cost(self, month: int) -> int:
        return sum(cost or 0 for of, _, _, _, cost in self.requests if of == month)

    def billed(self, month: int) -> int:
        return sum(by_month.get(month, 0) for by_month in self.open_invoices.values())


class Installation:
    """A tenant of its own with price cards of 1, 2, 3 and 5 USD per million tokens for each model.

    It may be billed in EUR, and with terms and a tax.
    """

    def __init__(
        self, store: StoreClient, writer: Any, database: ControlDatabase, *, is_in_eur: bool, has_terms: bool
    ) -> None:
        self.tenant = f"tenant-{uuid4()}"
        self.store, self.write, self.database = store, writer, database
        self.prices = (1, 2, 3, 5)
        self.clock = count()
        with database.session() as session:
            create_tenant(session, self.author(), self.tenant, self.tenant, time_zone=ZONE.key)
            if is_in_eur:
                set_profile(session, self.author(), self.tenant, ProfileChange(currency="EUR"))
            if has_terms:
                values = {"percent": "-12.5", "free_usd": "0.1", "committed_usd": "0.7"}
                terms = NewRate("terms", f"terms-{self.tenant}", self.tenant, values, datetime(2020, 1, 1, tzinfo=UTC))
                create_rate(session, self.author(), terms)
                set_profile(session, self.author(), self.tenant, ProfileChange(taxes={"VAT": "19"}))
            for model in MODELS:
                for number, price in enumerate(self.prices):
                    # One after another: which holds when does not matter, as each is named.
                    start = datetime(2020 + number, 1, 1, tzinfo=UTC)
                    new = NewPrice(
                        model,
                        self.card(model, number),
                        {"input_text": Decimal(price), "output_text": Decimal(price)},
                        valid_from=start,
                        valid_to=start.replace(year=start.year + 1),
                        tenant=self.tenant,
                    )
                    create_price(session, self.author(), new)

    def author(self) -> Author:
        return Author("test", NOW + timedelta(seconds=next(self.clock)))

    def card(self, model: str, number: int) -> str:
        return f"{model}/{number}/{self.tenant}"

    def month(self, number: int) -> Period:
        return month_of(2047, number + 1, ZONE)


def play(own: OwnBooks, books: Installation, sequence: list[tuple[Any, ...]]) -> None:
    for are_requests, operations in groupby(sequence, key=lambda operation: operation[0] == "request"):
        if are_requests:
            record(own, books, list(operations))
        else:
            for operation in operations:
                keep_books(own, books, operation)


def keep_books(own: OwnBooks, books: Installation, operation: tuple[Any, ...]) -> None:
    kind, month, *rest = operation
    if kind == "rerate":
        rerate(own, books, month, *rest)
    elif kind == "late card":
        late_card(own, books, month, *rest)
    elif kind == "close":
        close(own, books, month)
    elif kind == "reopen":
        reopen(own, books, month)
    else:
        credit(own, books, month, *rest)


def record(own: OwnBooks, books: Installation, operations: list[tuple[Any, ...]]) -> None:
    """Put requests at the first or last second of the month, or between: a boundary belongs to one month."""
    records: list[RequestRecord] = []
    for _, month, model, tokens, cost in operations:
        own.requests.append([month, model, tokens, cost, cost])
        number, period = len(own.requests), books.month(month)
        between = period.start + timedelta(days=9, minutes=number)
        records.append(
            request(
                (period.start, period.end - timedelta(seconds=1), between)[number % 3],
                who=Identity(books.tenant, team=("red", "blue")[number % 2]),
                model=model,
                usage=Usage(input_text=tokens, output_text=0),
                cost_pico_usd=cost,
                cost_basis="unpriced" if cost is None else "price_card",
                price_version="" if cost is None else "recorded",
            )
        )
    books.write(records)


def rerate(own: OwnBooks, books: Installation, month: int, model: str, card: int) -> None:
    period = books.month(month)
    first, after = (at.astimezone(ZONE).date() for at in (period.start, period.end))
    question = RerateQuestion(first, after, NOW, books.tenant, model)
    rerate_at(own, books, RerateWish(question, books.card(model, card), "test"), month, books.prices[card])


def late_card(own: OwnBooks, books: Installation, month: int, model: str, price: int) -> None:
    """A card that holds for all three months is made after their requests, and they are priced by what holds now."""
    if model not in own.late_cards:
        own.late_cards[model] = price
        rates: dict[Leaf, Decimal] = {"input_text": Decimal(price), "output_text": Decimal(price)}
        start, end = books.month(0).start, books.month(2).end
        new = NewPrice(
            model, f"{model}/late/{books.tenant}", rates, valid_from=start, valid_to=end, tenant=books.tenant
        )
        with books.database.session() as session:
            create_price(session, books.author(), new)
    period = books.month(month)
    first, after = (at.astimezone(ZONE).date() for at in (period.start, period.end))
    wish = RerateWish(RerateQuestion(first, after, NOW, books.tenant, model), reason="test")
    rerate_at(own, books, wish, month, own.late_cards[model])


def rerate_at(own: OwnBooks, books: Installation, wish: RerateWish, month: int, usd_per_mtok: int) -> None:
    price, model = usd_per_mtok * 10**6, wish.question.model
    of_it = [one for one in own.requests if one[0] == month and one[1] == model]
    changes = any(one[4] != one[2] * price for one in of_it)
    if changes and month in own.closed:
        with pytest.raises(Conflict, match="is closed (by|without an) invoice"):
            book_rerate(books.store, books.database, books.author(), wish)
        return
    row, _ = book_rerate(books.store, books.database, books.author(), wish)
    assert (row is not None) == changes
    for one in of_it:
        one[4] = one[2] * price
    assert book_rerate(books.store, books.database, books.author(), wish)[0] is None  # again: nothing


def close(own: OwnBooks, books: Installation, month: int) -> None:
    if month in own.closed:
        with pytest.raises(Conflict, match="is closed already"):
            close_month(books.store, books.database, books.author(), MONTHS[month], tenant=books.tenant)
        return
    (done,) = close_month(books.store, books.database, books.author(), MONTHS[month], tenant=books.tenant)
    own.closed.add(month)
    by_month = {month: own.cost(month) - own.billed(month)}
    late = {other: own.cost(other) - own.billed(other) for other in own.closed if other < month}
    by_month.update({other: amount for other, amount in late.items() if amount})
    own.issued.pop(month, None)
    if done.document is not None:
        own.issued[month] = done.document.number
        own.open_invoices[month] = by_month
        own.cancelled_and_issued += sum(by_month.values())
    else:
        assert not any(by_month.values())


def reopen(own: OwnBooks, books: Installation, month: int) -> None:
    if month not in own.closed:
        with pytest.raises(Conflict, match="is not closed"):
            reopen_month(books.database, books.author(), MONTHS[month], books.tenant, "test")
        return
    reopen_month(books.database, books.author(), MONTHS[month], books.tenant, "test")
    own.closed.discard(month)
    own.issued.pop(month, None)
    own.cancelled_and_issued -= sum(own.open_invoices.pop(month, {}).values())


def credit(own: OwnBooks, books: Installation, month: int, amount: int) -> None:
    number = own.issued.get(month)
    if number is None:
        return
    left = sum(own.open_invoices[month].values()) - own.credited.get(month, 0)
    if amount > left:
        with pytest.raises(Conflict, match="are left"):
            credit_invoice(books.store, books.database, books.author(), number, amount * PICO, "test")
        return
    credit_invoice(books.store, books.database, books.author(), number, amount * PICO, "test")
    own.credits -= amount
    own.credited[month] = own.credited.get(month, 0) + amount


def check(own: OwnBooks, books: Installation) -> None:
    whole = Period(books.month(0).start, books.month(2).end)
    expected = sum(own.cost(month) for month in range(3)) + own.credits
    # The report, by levels as well.
    question = CostQuestion(
        *(whole.start, whole.end, ("team", "model"), "month", ZONE), tenant=books.tenant, asked_at=NOW
    )
    report = cost_report(books.store, question)
    assert report.total.priced_pico_usd == expected
    assert sum(line.sums.priced_pico_usd for line in report.lines) == expected
    for number in range(3):
        of_month = [line for line in report.lines if line.period.start == books.month(number).start]
        wanted = own.cost(number) + (own.credits if number == 2 else 0)
        assert sum(line.sums.priced_pico_usd for line in of_month) == wanted
    unpriced = sum(cost is None for *_, cost in own.requests)
    assert report.total.unpriced_requests == unpriced
    # The entries.
    with books.database.session() as session:
        entries = session.scalars(select(BookEntry.amount_usd).where(BookEntry.tenant_id == books.tenant))
        corrections = sum(int(amount / PICO) for amount in entries)
        headers = session.scalars(select(BookAdjustment.amount_usd).where(BookAdjustment.tenant_id == books.tenant))
        assert sum(int(amount / PICO) for amount in headers) == corrections
        documents = list_documents(session, tenant=books.tenant)
        cards = load_cards(session)
        billing = load_billing(session, NOW, tenant=books.tenant)
    recorded = sum(recorded or 0 for *_, recorded, _ in own.requests)
    assert corrections == expected - recorded == report.total.corrected_pico_usd
    # FOCUS.
    by_day = CostQuestion(
        *(whole.start, whole.end, ("tenant", "team", "project", "key"), "day", ZONE), tenant=books.tenant, asked_at=NOW
    )
    rows = usage_export(charges_in(books.store, by_day, cards), whole, ZONE, "us", billing)
    check_focus(rows, documents, expected)
    # The dashboard: the Costs page, and the overview's month to date.
    place, within = CostPlace(tenant=books.tenant), CostRange(whole, ZONE, NOW)
    assert summed_breakdown(books.store, place, within, "model").total.priced_pico_usd == expected
    tile = spending_now(books.store, QueryTime(books.month(2).end - timedelta(hours=2)), ZONE, tenant=books.tenant)
    assert tile.month_to_date.priced_pico_usd == own.cost(2) + own.credits
    # The register.
    assert sum(int(row.net_usd / PICO) for row in documents) == own.cancelled_and_issued + own.credits
    assert all(is_as_issued(row) for row in documents)
    by_number = {row.number: row for row in documents}
    for row in documents:
        if row.kind == "cancellation":
            of = by_number[row.corrects]
            assert (row.payable, row.tax, row.net_usd) == (-of.payable, -of.tax, -of.net_usd)
    assert [row.number for row in documents] == sorted({row.number for row in documents}, key=_issue_order(documents))


def check_focus(rows: list[Row], documents: list[Any], expected: int) -> None:
    """Compare a file with the ledger, and the rows of each document with what it asks for."""
    assert focus_faults(rows) == []
    usage = [row for row in rows if row["x_CostBasis"] not in EXTRAS]
    assert sum(number(row, "PricingCurrencyEffectiveCost") for row in usage) == expected * PICO
    moved = [row for row in rows if row["x_CostBasis"] == LATE]
    assert sum(number(row, "PricingCurrencyEffectiveCost") for row in moved) == 0
    cancelled = {one.corrects for one in documents if one.kind == "cancellation"}
    for document in documents:
        if document.kind == "cancellation" or document.number in cancelled:
            continue
        of_it = [row for row in rows if row["InvoiceId"] == document.number]
        assert {row["BillingCurrency"] for row in of_it} <= {document.currency}
        # In USD to the pico-USD; in another currency each row is rounded to its twelfth place.
        bound = Decimal(0) if document.currency == "USD" else len(of_it) * PICO
        assert abs(sum(number(row, "BilledCost") for row in of_it) - document.payable) <= bound


def number(row: Row, name: str) -> Decimal:
    value = row[name]
    assert isinstance(value, Decimal)
    return value


def _issue_order(documents: list[Any]) -> Any:
    order = {row.number: place for place, row in enumerate(documents)}
    return order.__getitem__


@pytest.fixture(scope="module")
def database(migrated_sqlite: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlDatabase]:
    path = tmp_path_factory.mktemp("books") / "control.db"
    path.write_bytes(migrated_sqlite.read_bytes())
    found = ControlDatabase(f"sqlite:///{path}")
    with found.session() as session:
        euro = NewRate("currency", "eur", "EUR", {"units_per_usd": "0.8612345678"}, datetime(2020, 1, 1, tzinfo=UTC))
        create_rate(session, Author("test", NOW), euro)
    yield found
    found.close()


@pytest.fixture(scope="module")
def owner(store: Any) -> Iterator[StoreClient]:
    client: StoreClient = store.client("writer")
    yield client
    client.close()


@settings(max_examples=10, suppress_health_check=list(HealthCheck))
@given(sequence=st.lists(operations, min_size=4, max_size=14), is_in_eur=st.booleans(), has_terms=st.booleans())
@example(
    sequence=[
        *([("request", 0, "gpt-x", 4 * 10**9, MAX_PICO_USD)] * 11),
        ("request", 0, "gpt-y", 0, None),
        *(("request", 1, "gpt-y", 0, 0), ("close", 0), ("request", 0, "gpt-x", 0, 5), ("close", 1)),
        *(("credit", 0, 10**13), ("reopen", 0), ("late card", 0, "gpt-y", 7), ("rerate", 0, "gpt-x", 3)),
        *(("close", 0), ("credit", 0, 10**13), ("rerate", 2, "gpt-x", 0)),
    ],
    is_in_eur=True,
    has_terms=True,
)
def test_all_numbers_of_the_books_are_one(
    owner: StoreClient,
    record: Any,
    database: ControlDatabase,
    sequence: list[tuple[Any, ...]],
    is_in_eur: bool,
    has_terms: bool,
) -> None:
    own = OwnBooks()
    books = Installation(owner, record, database, is_in_eur=is_in_eur, has_terms=has_terms)
    play(own, books, sequence)
    check(own, books)
    for month in (0, 1):  # close what is open: then documents bill all but the open month and what came late
        if month not in own.closed:
            close(own, books, month)
    check(own, books)
