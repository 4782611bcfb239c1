"""`tollkeeper books`: a wrong price, or none, becomes a right bill, and no record is touched."""

import csv
import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.organisation import create_tenant
from backends.control.prices import create_price
from backends.store.client import StoreClient
from backends.store.columns import arrow_batch
from contracts.access.identity import Identity
from contracts.metering.usage import Leaf, Usage
from contracts.pricing.prices import NewPrice
from contracts.recording.names import REQUESTS
from contracts.recording.records import RequestRecord
from tests.analytics.cost.records import request
from tollkeeper.cli import app

RANGE = ["--from", "2046-05-01", "--to", "2046-06-01"]
NOON = datetime(2046, 5, 3, 12, tzinfo=UTC)
CALENDAR = Author("test", datetime(2046, 1, 1, tzinfo=UTC))


class Books:
    """An installation with the shared store and a control database of its own, and a tenant that nobody else has."""

    def __init__(self, store: Any, data: Path) -> None:
        self.tenant = f"tenant-{uuid4()}"
        self.place = ["--data", str(data), "--store-url", store.url]
        self.data = ["--data", str(data)]
        self.database = ControlDatabase(f"sqlite:///{data / 'control.db'}")
        self._store = store
        with self.database.session() as session:
            create_tenant(session, CALENDAR, self.tenant, "Fabrikam GmbH", time_zone="Europe/Berlin")

    def reader(self) -> StoreClient:
        """Return a client of the store that may read it."""
        client: StoreClient = self._store.client("reader")
        return client

    def writer(self) -> StoreClient:
        """Return a client of the store that may write it."""
        client: StoreClient = self._store.client("writer")
        return client

    def card(self, version: str, model: str, given: str, made: str) -> None:
        """Make a card of this tenant alone, from the beginning of time on."""
        with self.database.session() as session:
            rates: dict[Leaf, Decimal] = {"input_text": Decimal(given), "output_text": Decimal(made)}
            create_price(session, CALENDAR, NewPrice(model, version, rates, tenant=self.tenant))

    def used(self, *records: RequestRecord) -> None:
        """Put requests into the store as the collector does."""
        writer = self.writer()
        writer.insert_arrow("requests", arrow_batch(REQUESTS, list(records)), deduplication_token=str(uuid4()))
        writer.close()

    def request(self, at: datetime, model: str, cost: int | None, version: str = "", **more: Any) -> RequestRecord:
        """Make a request of 1,000 tokens in and 100 out."""
        basis = "unpriced" if cost is None else "price_card"
        return request(
            at,
            who=Identity(self.tenant, team="red"),
            model=model,
            usage=Usage(input_text=1_000, output_text=100),
            cost_pico_usd=cost,
            price_version=version,
            cost_basis=basis,
            **more,
        )

    def total(self, *more: str) -> Any:
        """Return the total of the tenant's cost report of May in its own calendar."""
        asked = ["--month", "2046-05", "--tz", "Europe/Berlin", "--tenant", self.tenant, *more, *self.place]
        return said("cost", "report", *asked)["total"]

    def rerate(self, *more: str) -> Any:
        """Run `books rerate` for May."""
        wanted = ["--tenant", self.tenant, "--reason", "wrong price", *RANGE]
        return said("books", "rerate", *wanted, *more, *self.place)


@pytest.fixture
def books(store: Any, tmp_path: Path, migrated_sqlite: Path) -> Iterator[Books]:
    data = tmp_path / "data"
    shutil.copytree(store.data / "secrets", data / "secrets")
    shutil.copy(migrated_sqlite, data / "control.db")
    found = Books(store, data)
    yield found
    found.database.close()


def said(*arguments: str) -> Any:
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refused(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 2, result.output
    return result.stderr.replace("\n", " ")


def test_a_wrong_price_is_corrected_once_and_reversed(books: Books) -> None:
    books.used(*(books.request(NOON + timedelta(hours=hour), "gpt-x", 5_000_000, "wrong") for hour in range(3)))
    books.card(f"right-{books.tenant}", "gpt-x", "2", "10")  # 2,000 + 1,000 micro-USD a request
    card = ["--card", f"right-{books.tenant}"]

    preview = books.rerate(*card)
    assert (preview["amount_usd"], preview["entries"], preview["adjustment"]) == ("0.008985000000", 1, None)
    (line,) = preview["lines"]
    assert (line["recorded_usd"], line["net_usd"]) == ("0.000015000000", "0.009000000000")
    assert books.total()["corrections_usd"] == "0.000000000000"  # a preview books nothing

    booked = books.rerate(*card, "--yes")["adjustment"]
    assert (booked["kind"], booked["state"], booked["amount_usd"]) == ("rerate", "booked", "0.008985000000")
    assert booked["reason"] == "wrong price" and booked["author"].endswith("(command line)")
    total = books.total()
    assert (total["recorded_usd"], total["corrections_usd"]) == ("0.000015000000", "0.008985000000")
    assert (total["cost_usd"], total["cost_pico_usd"]) == ("0.009000000000", 9_000_000_000)

    again = books.rerate(*card, "--yes")
    assert (again["entries"], again["adjustment"]) == (0, None)
    assert len(said("books", "adjustments", "--tenant", books.tenant, *books.data)) == 1

    undone = said("books", "reverse", booked["id"], "--reason", "the card was for next year", *books.place)
    assert (undone["kind"], undone["reverses"], undone["amount_usd"]) == ("reversal", booked["id"], "-0.008985000000")
    assert books.total()["cost_usd"] == "0.000015000000"
    assert "reversed already" in refused("books", "reverse", booked["id"], "--reason", "twice", *books.place)
    assert "a reversal cannot be reversed" in refused("books", "reverse", undone["id"], "--reason", "x", *books.place)
    assert books.rerate(*card)["amount_usd"] == "0.008985000000"  # it may be booked anew


def test_a_late_card_bills_what_had_no_price(books: Books) -> None:
    books.used(books.request(NOON, "nocard-x", None), books.request(NOON, "other-x", None))
    assert (books.total()["cost_usd"], books.total()["unpriced_requests"]) == (None, 2)
    books.card(f"late-{books.tenant}", "nocard-x", "2", "10")

    line = books.rerate("--yes")["lines"][0]  # without --card: what holds by its dates
    assert (line["model"], line["newly_priced_requests"]) == ("nocard-x", 1)
    total = books.total()
    assert (total["cost_usd"], total["recorded_usd"]) == ("0.003000000000", "0.000000000000")
    assert (total["unpriced_requests"], total["unpriced_tokens"]) == (1, 1_100)
    by_model = books.total("--by", "model")
    assert by_model["corrections_usd"] == "0.003000000000"


def test_requests_that_arrive_late_are_booked_by_the_next_rerate_alone(books: Books) -> None:
    books.used(books.request(NOON, "gpt-x", 1, "wrong"))
    books.card(f"right-{books.tenant}", "gpt-x", "2", "10")
    books.rerate("--yes")
    books.used(books.request(NOON, "gpt-x", 1, "wrong"))
    assert books.rerate("--yes")["amount_usd"] == "0.002999999999"
    assert books.total()["cost_usd"] == "0.006000000000"


def test_corrections_of_ranges_that_overlap_are_booked_once(books: Books) -> None:
    # The first hour of 4 May in Berlin is 3 May in UTC; days are those of the tenant.
    midnight = datetime(2046, 5, 3, 22, tzinfo=UTC)
    books.used(*(books.request(midnight + timedelta(hours=hour), "gpt-x", 1, "wrong") for hour in (-1, 0, 23, 24)))
    books.card(f"right-{books.tenant}", "gpt-x", "2", "10")
    one_day = ["--from", "2046-05-04", "--to", "2046-05-05", "--yes"]
    assert books.rerate(*one_day)["amount_usd"] == "0.005999999998"  # two requests of that day
    assert books.rerate("--yes")["amount_usd"] == "0.005999999998"  # the two others
    assert books.rerate(*one_day)["entries"] == 0
    assert books.total()["cost_usd"] == "0.012000000000"


def test_a_proposal_counts_once_another_person_approves_it(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    books.used(books.request(NOON, "gpt-x", 1, "wrong"))
    books.card(f"right-{books.tenant}", "gpt-x", "2", "10")
    proposed = books.rerate("--propose", "--yes")["adjustment"]
    assert proposed["state"] == "proposed" and books.total()["corrections_usd"] == "0.000000000000"
    assert books.rerate("--yes")["entries"] == 0  # it is not booked a second time beside the proposal
    assert "another person must approve it" in refused("books", "approve", proposed["id"], *books.place)

    monkeypatch.setattr("getpass.getuser", lambda: "controller")
    approved = said("books", "approve", proposed["id"], *books.place)
    assert (approved["state"], approved["approved_by"]) == ("booked", "controller (command line)")
    assert books.total()["corrections_usd"] == "0.002999999999"
    assert "is booked already" in refused("books", "reject", proposed["id"], *books.place)


def test_what_cannot_be_is_refused_in_one_line(books: Books) -> None:
    books.used(books.request(NOON, "gpt-x", 1, "wrong"))
    books.card(f"right-{books.tenant}", "gpt-x", "2", "10")
    rerate = ["books", "rerate", "--tenant", books.tenant, *RANGE, *books.place]
    assert "'noon', which is not a date" in refused(*rerate, "--reason", "x", "--to", "noon")
    assert "before it starts" in refused(*rerate, "--reason", "x", "--to", "2046-05-01")
    assert "no card has the version 'nowhere'" in refused(*rerate, "--reason", "x", "--card", "nowhere")
    assert "the reason has 0 characters" in refused(*rerate, "--reason", " ", "--yes")
    assert "the reason has 501 characters" in refused(*rerate, "--reason", "x" * 501, "--yes")
    assert "there is no adjustment 'adj_x'" in refused("books", "show", "adj_x", *books.data)


def test_invoices_and_exports_show_usage_corrections_and_net(books: Books, tmp_path: Path) -> None:
    books.used(books.request(NOON, "gpt-x", 5_000_001, "wrong"), books.request(NOON, "nocard-x", None))
    books.card(f"right-{books.tenant}", "gpt-x", "2", "10")
    books.card(f"late-{books.tenant}", "nocard-x", "1", "1")
    booked = books.rerate("--yes")["adjustment"]
    asked = ["--month", "2046-05", "--tz", "Europe/Berlin", "--tenant", books.tenant, *books.place]

    to = tmp_path / "invoices"
    said("cost", "invoices", str(to), "--level", "tenant", *asked)
    (page,) = (path.read_text() for path in to.glob("*.html"))
    for words in (
        f"price correction of gpt-x ({booked['id']})</td><td class=n>0.002995<",
        f"price correction of nocard-x ({booked['id']})</td><td class=n>0.001100<",
        "Usage</td><td class=n>0.000005<",
        "Usage after corrections</td><td class=n>0.004100<",
    ):
        assert words in page
    assert "has no price card" not in page

    file = tmp_path / "focus.csv"
    assert said("cost", "export", str(file), *asked)["faults"] == []
    rows = list(csv.DictReader(file.read_text().splitlines()))
    assert sum(Decimal(row["BilledCost"]) for row in rows) == Decimal(books.total()["cost_usd"]) == Decimal("0.0041")
    corrections = [row for row in rows if row["x_AdjustmentId"] == booked["id"]]
    assert {row["ChargeCategory"] for row in corrections} == {"Adjustment"}
    assert {row["ChargeClass"] for row in corrections} == {""}  # the month is not invoiced yet
    assert sum(Decimal(row["BilledCost"]) for row in corrections) == Decimal(booked["amount_usd"])
