"""What people and processes do to the books at once, by mistake, or on purpose."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from threading import Barrier
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from analytics.books.booking import RerateWish, book_rerate
from analytics.books.calendars import Calendars, days_period, month_period
from analytics.books.closing import close_month, credit_invoice, reopen_month, usage_of_unknown_tenants
from analytics.books.rerating import RerateQuestion
from backends.control.book_periods import ProfileChange, list_documents, set_profile
from backends.control.database import ControlDatabase
from backends.store.client import StoreClient
from contracts.access.identity import Identity
from contracts.control import BookDocument
from contracts.errors import Conflict
from contracts.metering.usage import Usage
from tests.analytics.books.test_books_balance import MONTHS, NOW, PICO, Installation, database, owner
from tests.analytics.cost.records import request

__all__ = ["database", "owner"]
TOKENS = 1_000


@pytest.fixture
def books(owner: StoreClient, record: Any, database: ControlDatabase) -> Installation:
    """A tenant with a request of January that was recorded at 7 pico-USD and costs 1 USD per million tokens."""
    found = Installation(owner, record, database, is_in_eur=False, has_terms=False)
    found.write([used(found, 7)])
    return found


def used(books: Installation, cost: int, tenant: str = "", **more: Any) -> Any:
    return request(
        books.month(0).start + timedelta(days=3),
        who=Identity(tenant or books.tenant),
        model="gpt-x",
        usage=Usage(input_text=TOKENS, output_text=0),
        cost_pico_usd=cost,
        cost_basis="price_card",
        price_version="recorded",
        **more,
    )


def rerate(books: Installation, card: int = 0) -> Any:
    question = RerateQuestion(date(2047, 1, 1), date(2047, 2, 1), NOW, books.tenant)
    return book_rerate(
        books.store, books.database, books.author(), RerateWish(question, books.card("gpt-x", card), "test")
    )


def close(books: Installation) -> Any:
    (done,) = close_month(books.store, books.database, books.author(), MONTHS[0], tenant=books.tenant)
    return done.document


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """Start all calls at one moment, and return what each returned or the Conflict that it raised."""
    barrier = Barrier(len(calls))

    def run(call: Callable[[], Any]) -> Any:
        barrier.wait(10)
        try:
            return call()
        except Conflict as error:
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def register(books: Installation) -> list[BookDocument]:
    with books.database.session() as session:
        return list_documents(session, tenant=books.tenant)


def test_a_month_that_is_closed_twice_at_once_has_one_invoice(books: Installation) -> None:
    done = at_once(*[lambda: close(books)] * 3)
    assert sum(isinstance(one, Conflict) for one in done) == 2
    (one,) = register(books)
    assert (one.kind, one.net_usd) == ("invoice", 7 * PICO)


@pytest.mark.parametrize("attempt", range(3))
def test_a_correction_at_the_moment_of_closing_is_on_the_invoice_or_refused(books: Installation, attempt: int) -> None:
    closed, corrected = at_once(lambda: close(books), lambda: rerate(books))
    if isinstance(closed, Conflict):  # the correction came in between
        closed = close(books)
    booked = 0 if isinstance(corrected, Conflict) else TOKENS * 10**6 - 7
    assert closed.net_usd == (7 + booked) * PICO


def test_the_same_correction_at_once_is_booked_once(books: Installation) -> None:
    done = at_once(*[lambda: rerate(books)] * 3)
    rows = [one[0] for one in done if not isinstance(one, Conflict) and one[0] is not None]
    assert [row.amount_usd for row in rows] == [(TOKENS * 10**6 - 7) * PICO]


@pytest.mark.parametrize("attempt", range(3))
def test_a_credit_at_the_moment_of_reopening_leaves_books_that_sum(books: Installation, attempt: int) -> None:
    number = close(books).number
    credit, opened = at_once(
        lambda: credit_invoice(books.store, books.database, books.author(), number, 5 * PICO, "test"),
        lambda: reopen_month(books.database, books.author(), MONTHS[0], books.tenant, "test"),
    )
    assert not isinstance(opened, Conflict)
    given = 0 if isinstance(credit, Conflict) else 5
    assert close(books).net_usd == 7 * PICO
    assert sum(one.net_usd for one in register(books)) == (7 - given) * PICO


def test_usage_of_a_name_that_is_no_tenant_is_told(books: Installation) -> None:
    stranger = f"stranger-{uuid4()}"
    books.write([used(books, 11, stranger)])
    found = usage_of_unknown_tenants(books.store, books.database, MONTHS[0], NOW)
    assert found[stranger] == 11 and books.tenant not in found


def test_a_currency_without_a_rate_is_a_conflict_that_names_the_day(books: Installation) -> None:
    with books.database.session() as session:
        set_profile(session, books.author(), books.tenant, ProfileChange(currency="CHF"))
    with pytest.raises(Conflict, match="CHF has no rate on 2047-01-31"):
        close(books)
    assert register(books) == []


def test_a_legal_name_is_text_and_no_markup(books: Installation) -> None:
    name = "<img src=x onerror=alert(1)> & 'Co' </p><script>"
    with books.database.session() as session:
        profile = ProfileChange(legal_name=name, address=f"{name}\n{name}", tax_id="<b>", purchase_order="</title>")
        set_profile(session, books.author(), books.tenant, profile)
    page = close(books).html
    assert page.count("&lt;img src=x onerror=alert(1)&gt; &amp; &#x27;Co&#x27; &lt;/p&gt;&lt;script&gt;") == 3
    assert "<img" not in page and "<script" not in page and "<b>" not in page and page.count("</title>") == 1


def test_sums_beyond_64_bits_and_requests_without_tokens(books: Installation) -> None:
    most = 10**18 - 1  # of one request; ten are more than 2^63 pico-USD
    books.write([used(books, most) for _ in range(12)])
    books.write([used(books, 0, status=200) for _ in range(2)])
    document = close(books)
    assert document.net_usd == (12 * most + 7) * PICO and document.net_usd > Decimal(2**63) * PICO
    assert document.payable == document.net_usd.quantize(Decimal("0.01"))


@given(st.sampled_from(sorted(available_timezones())), st.integers(2000, 2060), st.integers(1, 12))
@example("America/Asuncion", 2023, 10)  # midnight is skipped on the first of the month
@example("Africa/Cairo", 2024, 10)  # the clock goes back at midnight of the last day
@example("Europe/Berlin", 2028, 2)  # a leap day
@example("Pacific/Apia", 2011, 12)  # a day is missing
def test_months_of_every_calendar_touch_and_are_their_days(key: str, year: int, month: int) -> None:
    zone, name = ZoneInfo(key), f"{year}-{month:02d}"
    following = date(year + month // 12, month % 12 + 1, 1)
    period = month_period(name, zone)
    assert month_period(f"{following:%Y-%m}", zone).start == period.end
    assert days_period(date(year, month, 1), following, zone) == period
    calendars = Calendars({"t": zone})
    for moment in (period.start, period.end - timedelta(microseconds=1)):
        assert calendars.month("t", moment.astimezone(UTC)) == name
    assert period.start < datetime(year, month, 15, tzinfo=UTC) < period.end
