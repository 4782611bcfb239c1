"""A FOCUS file with corrections, a credit, terms, taxes, tags and two currencies: by the rules, summing to documents.

`make focus` has it judged by the published validator (FOCUS_VALIDATOR: an interpreter that has it).
"""

import os
import re
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest

from analytics.books.booking import RerateWish, book_rerate
from analytics.books.closing import close_month, credit_invoice
from analytics.books.rerating import RerateQuestion
from analytics.cost.periods import month_of
from analytics.cost.question import CostQuestion
from analytics.exports.billing import load_billing
from analytics.exports.files import write_csv, write_parquet
from analytics.exports.focus_columns import Row
from analytics.exports.focus_file import file_faults
from analytics.exports.usage_export import LEVELS, charges_in, usage_export
from analytics.scope import Period
from backends.control.book_periods import ProfileChange, list_documents, set_profile
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.organisation import create_tenant
from backends.control.prices import create_price, load_cards
from backends.control.rates import NewRate, create_rate
from contracts.access.identity import Identity
from contracts.metering.usage import Leaf, Usage
from contracts.pricing.prices import NewPrice
from contracts.rules.periods import zone_of
from tests.analytics.cost.records import request

UTC_ZONE: Final = zone_of("UTC")
JANUARY, FEBRUARY = (month_of(2049, number, UTC_ZONE) for number in (1, 2))
NOW: Final = FEBRUARY.start + timedelta(days=9, hours=12)
# Two rules of FOCUS 1.2 as the validator has them contradict each other: this asks every InvoiceId to be null.
CONTRADICTED: Final = frozenset({"InvoiceId-C-004-C"})
# What our files have: without it the validator skips the rules of these columns.
CRITERIA: Final = ",".join(
    f"{name}_SUPPORTED"
    for name in (
        *("ACCOUNT_NAMING", "MULTIPLE_BILLING_ACCOUNT_TYPES", "MULTIPLE_PRICING_CATEGORIES"),
        *("MULTIPLE_SUB_ACCOUNT_TYPES", "NEGOTIATED_PRICING", "PRICING_BILLING_CURRENCY_DIFFERENCES"),
        *("PUBLIC_PRICE_LIST", "RESOURCE_TYPE_ASSIGNMENT", "SUB_ACCOUNT", "TAGGING", "UNIT_PRICING"),
        # Not USAGE_MEASUREMENT: its rules read a column of commitment discounts, which we do not have.
    )
)
BEGINNING: Final = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def exported(
    store: Any, record: Any, migrated_sqlite: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[list[Row], dict[str, Decimal]]]:
    """Provide the rows of two tenants' January (closed) and February (open), and what January's documents ask for."""
    path = tmp_path_factory.mktemp("focus") / "control.db"
    path.write_bytes(migrated_sqlite.read_bytes())
    database = ControlDatabase(f"sqlite:///{path}")
    client = store.client("writer")
    tenants = [f"usd-{uuid4().hex[:8]}", f"eur-{uuid4().hex[:8]}"]
    author = Author("test", NOW)
    with database.session() as session:
        create_rate(session, author, NewRate("currency", "eur", "EUR", {"units_per_usd": "0.8612345678"}, BEGINNING))
        for tenant in tenants:
            create_tenant(session, author, tenant, tenant)
            prices: dict[Leaf, Decimal] = {"input_text": Decimal("2.5"), "output_text": Decimal(10)}
            create_price(session, author, NewPrice("gpt-x", f"right-{tenant}", prices, tenant=tenant))
            terms = {"percent": "-10", "free_usd": "1", "committed_usd": "50"}
            create_rate(session, author, NewRate("terms", f"terms-{tenant}", tenant, terms, BEGINNING))
            set_profile(session, author, tenant, ProfileChange(taxes={"VAT": "19"}, currency=tenant[:3].upper()))
    for tenant in tenants:
        record([request_of(tenant, number) for number in range(8)])
        wish = RerateWish(
            RerateQuestion(JANUARY.start.date(), JANUARY.end.date(), NOW, tenant, "gpt-x"), reason="agreed"
        )
        book_rerate(client, database, author, wish)
        (done,) = close_month(client, database, author, "2049-01", tenant=tenant)
        assert done.document is not None
        credit_invoice(client, database, author, done.document.number, Decimal("0.123456789012"), "outage")
        record([request_of(tenant, 20)])  # after the invoice
    whole = Period(JANUARY.start, FEBRUARY.end)
    rows: list[Row] = []
    for tenant in tenants:
        question = CostQuestion(whole.start, whole.end, LEVELS, "day", UTC_ZONE, tenant=tenant, asked_at=NOW)
        with database.session() as session:
            cards, billing = load_cards(session), load_billing(session, NOW, tenant=tenant)
        rows += usage_export(charges_in(client, question, cards), whole, UTC_ZONE, "Northwind AG", billing)
    with database.session() as session:
        documents = {one.number: one.payable for one in list_documents(session)}
    yield rows, documents
    client.close()
    database.close()


def request_of(tenant: str, number: int) -> Any:
    """Return a request of January, or (from 5 on) of February; some without a price, or counted by estimate."""
    at = (FEBRUARY if 5 <= number < 8 else JANUARY).start + timedelta(days=number % 8, minutes=number)
    tags = {"cost-center": "4711", "feature": "search"} if number % 2 else {}
    is_unpriced = number == 3
    return request(
        at,
        who=Identity(tenant, team="red", project="web", tags=tags),
        model="gpt-x" if number != 4 else "nobody-priced-it",
        provider="openai",
        usage=Usage(input_text=1_000_003 + number, output_text=777_777),
        cost_pico_usd=None if is_unpriced or number == 4 else 12 * 10**12 + number,
        cost_basis="unpriced" if is_unpriced or number == 4 else "price_card",
        price_version="" if is_unpriced or number == 4 else "wrong",
        count_method="estimate" if number == 2 else "provider",
    )


def test_the_rows_of_each_document_sum_to_what_it_asks_for(exported: tuple[list[Row], dict[str, Decimal]]) -> None:
    rows, documents = exported
    assert {row["BillingCurrency"] for row in rows} == {"USD", "EUR"}
    kinds = {row["x_CostBasis"] for row in rows}
    assert {"correction", "discount", "free_tier", "commitment", "tax", "rounding", "late_usage"} <= kinds
    assert {"Usage", "Adjustment", "Credit", "Tax"} == {row["ChargeCategory"] for row in rows}
    assert len(documents) == 4  # an invoice and a credit note of each tenant
    for number, payable in documents.items():
        of_it = [row for row in rows if row["InvoiceId"] == number]
        exact = sum(Decimal(str(row["BilledCost"])) for row in of_it)
        assert abs(exact - payable) <= len(of_it) * Decimal("1e-12"), number


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_the_file_is_as_the_specification_asks(
    exported: tuple[list[Row], dict[str, Decimal]], tmp_path: Path, form: str
) -> None:
    path = tmp_path / f"costs.{form}"
    (write_csv if form == "csv" else write_parquet)(exported[0], path)
    assert file_faults(path) == (len(exported[0]), [])


@pytest.mark.skipif("FOCUS_VALIDATOR" not in os.environ, reason="`make focus` installs the validator")
def test_the_published_validator_finds_no_fault(exported: tuple[list[Row], dict[str, Decimal]], tmp_path: Path) -> None:
    path = tmp_path / "costs.parquet"
    write_parquet(exported[0], path)
    home = next(Path(os.environ["FOCUS_VALIDATOR"]).parent.parent.glob("lib/python3*/site-packages"))
    command = [os.environ["FOCUS_VALIDATOR"], "-m", "focus_validator.main", "--data-file", str(path)]
    done = subprocess.run(
        [*command, "--validate-version", "1.2", "--block-download", "--applicability-criteria", CRITERIA],
        capture_output=True,
        text=True,
        cwd=home,  # it opens its list of currencies by a path relative to this
        timeout=300,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    said = done.stdout + done.stderr
    judged = {verdict: set(re.findall(rf"(\S+): {verdict}\b", said)) for verdict in ("PASS", "FAIL")}
    assert len(judged["PASS"]) > 200, said[-2_000:]  # it has run
    assert judged["FAIL"] == CONTRADICTED, said[-4_000:]
