"""What finance found wrong once, asked again the way finance asks: by commands, invoices and files."""

import csv
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from analytics.prices.card_list import card_list
from analytics.query_time import QueryTime
from analytics.recommendations.reading import recommended
from backends.control.prices import create_price
from contracts.access.identity import Identity
from contracts.metering.usage import Leaf, Usage
from contracts.pricing.prices import NewPrice
from tests.tollkeeper.test_books_closing import LAST_MONTH, MONTH, books, close, of_month, text_of_pdf
from tests.tollkeeper.test_books_command import CALENDAR, Books, said

__all__ = ["books"]
USD = 10**12
FAILED: dict[str, Any] = {"outcome": "error", "status": 500, "error_code": "upstream_error", "usage": Usage()}


def exported(books: Books, to: Path, *more: str) -> list[dict[str, str]]:
    asked = ["--month", MONTH, "--tz", "Europe/Berlin", "--tenant", books.tenant, *more, *books.place]
    assert said("cost", "export", str(to), *asked)["faults"] == []
    return list(csv.DictReader(to.read_text().splitlines()))


def reported(books: Books, level: str) -> Any:
    asked = ["--month", MONTH, "--tz", "Europe/Berlin", "--tenant", books.tenant, "--by", level, *books.place]
    (levels,) = said("cost", "report", *asked)["levels"]
    return levels["lines"]


def failed(books: Books) -> Any:
    return replace(books.request(LAST_MONTH, "gpt-x", 0), cost_basis="free", **FAILED)


def test_failures_are_not_unpriced_and_estimates_are_named_wherever_their_amount_is(
    books: Books, tmp_path: Path
) -> None:
    """Findings H3 and H6."""
    exact = books.request(LAST_MONTH, "gpt-x", 3 * USD, "card", count_method="reported")
    cut = [
        books.request(LAST_MONTH, "gpt-x", USD, "card", count_method="estimate", outcome=outcome)
        for outcome in ("cancelled", "error")
    ]
    books.used(exact, *cut, *(failed(books) for _ in range(4)))
    total = of_month(books)
    counted = {name: total[f"{name}_requests"] for name in ("failed", "unpriced", "unknown_usage", "estimated")}
    assert counted == {"failed": 4, "unpriced": 0, "unknown_usage": 0, "estimated": 2}
    assert (total["cost_usd"], total["estimated_usd"]) == ("5.000000000000", "2.000000000000")
    (line,) = reported(books, "model")
    assert (line["requests"], line["unpriced_requests"], line["failed_requests"]) == (7, 0, 4)

    rows = exported(books, tmp_path / "focus.csv")
    assert not [row for row in rows if row["x_IsUnpriced"] == "true"]
    of_estimates = [row for row in rows if row["x_IsEstimated"] == "true"]
    assert sum(Decimal(row["BilledCost"]) for row in of_estimates) == 2
    assert sum(Decimal(row["BilledCost"]) for row in rows) == 5

    html, pdf = tmp_path / "one.html", tmp_path / "one.pdf"
    said("books", "show", close(books)["number"], "--html", str(html), "--pdf", str(pdf), *books.data)
    for page in (html.read_text(), text_of_pdf(pdf).replace("\n", " ")):
        assert "(estimated)" in page and "of which estimated" in page and "2.000000" in page
        assert "Their tokens were counted by estimate" in page and "no price" not in page.lower()


def test_costs_are_broken_down_by_user_provider_and_any_tag_to_the_same_total(books: Books) -> None:
    """Finding M5."""
    amounts = {"ada": 3, "bob": 4, "": 5}
    books.used(
        *(
            replace(
                books.request(LAST_MONTH, "gpt-x", amount * USD, "card", provider=f"p{amount}"),
                who=Identity(books.tenant, user=name, tags={"cost-center": f"c{amount}"}),
            )
            for name, amount in amounts.items()
        )
    )
    for level, names in (
        ("user", amounts),
        ("provider", {f"p{amount}": amount for amount in amounts.values()}),
        ("tag:cost-center", {f"c{amount}": amount for amount in amounts.values()}),
    ):
        lines = reported(books, level)
        assert {line[level]: Decimal(line["cost_usd"]) for line in lines} == names


def test_a_tag_a_discount_and_the_currency_of_the_invoice_stand_in_a_focus_file(books: Books, tmp_path: Path) -> None:
    """Finding H7."""
    rates: dict[Leaf, Decimal] = {"input_text": Decimal(4), "output_text": Decimal(4)}
    with books.database.session() as session:
        create_price(session, CALENDAR, NewPrice("gpt-x", "list", rates))
    books.card("own", "gpt-x", "3", "3")
    used = books.request(LAST_MONTH, "gpt-x", 3_300_000_000, "own")
    books.used(replace(used, who=Identity(books.tenant, tags={"cost-center": "=4711"})))
    number = close(books)["number"]
    rows = exported(books, tmp_path / "focus.csv")
    usage = [row for row in rows if row["ChargeCategory"] == "Usage"]
    assert {row["InvoiceId"] for row in rows} == {number}
    assert sum(Decimal(row["ListCost"]) for row in usage) == Decimal("0.0044")
    assert sum(Decimal(row["ContractedCost"]) for row in usage) == Decimal("0.0033")
    assert all('"cost-center"' in row["Tags"] and "=4711" in row["Tags"] for row in usage)


def test_the_command_and_the_pages_give_one_answer_on_savings(books: Books) -> None:
    """Finding M13."""
    batch: dict[Leaf, Decimal] = {"input_text": Decimal("0.5"), "output_text": Decimal(2)}
    rates: dict[Leaf, Decimal] = {"input_text": Decimal(1), "output_text": Decimal(4)}
    with books.database.session() as session:
        new = NewPrice("gpt-x", "own", rates, tenant=books.tenant, batch_usd_per_mtok=batch)
        create_price(session, CALENDAR, new)
    now = datetime.now(UTC)
    books.used(*(books.request(now - timedelta(hours=2), "gpt-x", 1_400_000_000, "own") for _ in range(50)))
    (told,) = said("savings", "--tenant", books.tenant, *books.place)
    assert (told["kind"], told["saving_usd"]) == ("batch", "0.035000000000")
    reader = books.reader()
    with books.database.session() as session:
        cards = card_list(session, books.tenant)
    (shown,) = recommended(reader, cards, QueryTime(now), 7, books.tenant)
    reader.close()
    assert shown.as_json() == told
