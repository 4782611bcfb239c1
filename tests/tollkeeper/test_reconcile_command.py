"""`tollkeeper reconcile`: a provider's bill is imported, compared with recorded requests, and refused if it is bad."""

import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from analytics.alerts.sources import AlertInputs
from analytics.alerts.spending import bill_mismatches
from analytics.reconciliation.formats.table import read_bill
from analytics.reconciliation.importing import BillFile, import_bill
from analytics.reconciliation.report import Reconciler
from backends.control.changes import Author, begin_change
from backends.control.database import ControlDatabase
from backends.control.prices import create_price
from backends.control.provider_bills import NewBill, list_reconciliations, pack_lines, write_bill
from backends.store.columns import arrow_batch
from contracts.access.identity import Identity
from contracts.control import Model, Pool, Target
from contracts.errors import Conflict
from contracts.metering.usage import Usage
from contracts.pricing.prices import NewPrice
from contracts.recording.names import REQUESTS
from contracts.rules.alerts import Rule
from tests.analytics.cost.records import request
from tests.tollkeeper.test_books_command import refused, said

MONTH = "2045-03"
DAY = datetime(2045, 3, 3, 12, tzinfo=UTC)
AUTHOR = Author("test", datetime(2045, 1, 1, tzinfo=UTC))
SECONDS = int(datetime(2045, 3, 3, tzinfo=UTC).timestamp())


class Bills:
    """An installation with the shared store, a control database of its own, and a provider that nobody else has."""

    def __init__(self, store: Any, data: Path, files: Path) -> None:
        self.provider = f"p{uuid4().hex[:12]}"
        self.data = ["--data", str(data)]
        self.place = [*self.data, "--store-url", store.url]
        self.database = ControlDatabase(f"sqlite:///{data / 'control.db'}")
        self.store = store
        self._files = files
        with self.database.session() as session:
            session.add(Pool(id="pool", created_at=AUTHOR.at))
            session.flush()
            session.add(Model(id="gpt", pool_id="pool", created_at=AUTHOR.at))
            session.flush()
            session.add(
                Target(pool_id="pool", id="target-1", kind="openai_http", model="gpt-4o", provider=self.provider)
            )
            card = NewPrice("gpt", f"card-{self.provider}", {"input_text": 1, "output_text": 4}, provider=self.provider)  # type: ignore[dict-item]
            create_price(session, AUTHOR, card)

    def used(self, count: int, at: datetime = DAY, **more: Any) -> None:
        """Record requests of 1,000 tokens in and 100 out, 1,400 micro-USD each."""
        fields: dict[str, Any] = {
            "who": Identity("acme"),
            "model": "gpt",
            "model_version": "gpt-4o-2024-08-06",
            "provider": self.provider,
            "replica": "target-1",
            "usage": Usage(input_text=1_000, output_text=100),
            "cost_pico_usd": 1_400_000_000,
            "cost_basis": "price_card",
            "price_version": f"card-{self.provider}",
            "count_method": "reported",
            **more,
        }
        records = [request(at + timedelta(seconds=number), **fields) for number in range(count)]
        writer = self.store.client("writer")
        writer.insert_arrow("requests", arrow_batch(REQUESTS, records), deduplication_token=str(uuid4()))
        writer.close()

    def file(self, *costs: tuple[object, ...], key: str = "proj_1", currency: str = "usd") -> str:
        """Write a costs report of one day: line item, USD, quantity, and the quantity's unit if it is not a token."""
        results = [
            {
                "object": "organization.costs.result",
                "amount": {"value": float(str(value)), "currency": currency},
                "line_item": item,
                "project_id": key,
                "quantity": quantity,
                **({"quantity_unit": unit[0]} if unit else {}),
            }
            for item, value, quantity, *unit in costs
        ]
        return self.page(*results)

    def page(self, *results: dict[str, Any]) -> str:
        """Write a page of the API of one day."""
        bucket = {"object": "bucket", "start_time": SECONDS, "end_time": SECONDS + 86_400, "results": results}
        path = self._files / f"{uuid4().hex}.json"
        path.write_text(json.dumps({"object": "page", "data": [bucket], "has_more": False, "next_page": None}))
        return str(path)

    def import_(self, file: str, *more: str) -> Any:
        """Run `reconcile import`."""
        return said("reconcile", "import", file, "--provider", self.provider, *more, *self.data)

    def report(self) -> tuple[str, dict[str, str]]:
        """Return the difference and the sums by cause."""
        shown = said("reconcile", "report", self.provider, MONTH, *self.place)
        return shown["difference_usd"], {one["cause"]: one["usd"] for one in shown["causes"]}


@pytest.fixture
def bills(store: Any, tmp_path: Path, migrated_sqlite: Path) -> Iterator[Bills]:
    data = tmp_path / "data"
    shutil.copytree(store.data / "secrets", data / "secrets")
    shutil.copy(migrated_sqlite, data / "control.db")
    found = Bills(store, data, tmp_path)
    yield found
    found.database.close()


INPUT, OUTPUT = "gpt-4o-2024-08-06, input", "gpt-4o-2024-08-06, output"


def test_a_bill_of_what_was_recorded_has_no_difference(bills: Bills) -> None:
    bills.used(3)
    shown = bills.import_(bills.file((INPUT, "0.003", 3_000), (OUTPUT, "0.0012", 300)), "--month", MONTH)
    assert (shown["format"], shown["lines"], shown["billed_usd"]) == ("openai_costs", 2, "0.004200000000")
    assert bills.report() == ("0.000000000000", {})


def test_every_difference_has_a_cause_and_the_requests_behind_it_are_shown(bills: Bills) -> None:
    bills.used(3)
    bills.used(1, usage=Usage(), cost_pico_usd=None, cost_basis="unknown_usage", count_method="none")
    bills.import_(
        bills.file((INPUT, "0.004", 4_000), (OUTPUT, "0.0024", 400), ("Credit grant", "-1", None), ("VAT", "0.5", None))
    )
    difference, causes = bills.report()
    assert difference == "-0.497800000000"
    assert causes == {
        "lost_usage": "0.001400000000",  # the fourth request: 1,000 in, 100 out
        "price": "0.000800000000",  # output at 6 instead of 4 USD
        "tax": "0.500000000000",
        "credit": "-1.000000000000",
    }
    shown = said("reconcile", "show", bills.provider, MONTH, "--cause", "price", *bills.place)["differences"]
    assert [(one["day"], one["model"], one["kind"], one["usd"]) for one in shown] == [
        ("2045-03-03", "gpt-4o-2024-08-06", "output_text", "0.000800000000")
    ]


def use_media(bills: Bills) -> None:
    """Record three images of two kinds, 90.5 seconds of sound, 500 characters, two judged inputs: 0.16805 USD."""
    card = f"media-{bills.provider}"
    rates = {
        "images": Decimal(40_000),
        "milliseconds": Decimal("0.1"),
        "characters": Decimal(15),
        "requests": Decimal(200),
    }
    tiers = {"image.hd": {"images": Decimal(80_000)}}
    with bills.database.session() as session:
        price = NewPrice("media", card, rates, provider=bills.provider, service_tiers=tiers)  # type: ignore[arg-type]
        create_price(session, AUTHOR, price)
    for usage, usd, tier in (
        (Usage(images=1), "0.04", ""),
        (Usage(images=1), "0.08", "image.hd"),
        (Usage(milliseconds=90_500), "0.00905", ""),
        (Usage(characters=500), "0.0075", ""),
        (Usage(requests=1), "0.0002", ""),
        (Usage(requests=1), "0.0002", ""),
    ):
        bills.used(
            1,
            model="media",
            model_version="media",
            usage=usage,
            service_tier=tier,
            price_version=f"{card}#{tier}" if tier else card,
            cost_pico_usd=int(Decimal(usd) * 10**12),
        )


def test_units_of_a_costs_report_meet_what_was_recorded(bills: Bills) -> None:
    use_media(bills)
    lines = (
        ("media, images", "0.12", 2, "images"),
        ("media", "0.00905", 90.5, "seconds"),
        ("media, characters", "0.009", 600, "characters"),  # 100 more than were recorded
    )
    bills.import_(bills.file(*lines))
    difference, causes = bills.report()
    assert (difference, causes) == ("0.001100000000", {"unknown": "0.001100000000"})
    shown = said("reconcile", "show", bills.provider, MONTH, "--cause", "unknown", *bills.place)["differences"]
    assert sorted((one["kind"], one["tokens"], one["usd"]) for one in shown) == [
        ("characters", 100, "0.001500000000"),
        ("requests", -2, "-0.000400000000"),  # judged inputs, which are on no line
    ]


def test_units_of_usage_reports_meet_what_was_recorded(bills: Bills) -> None:
    use_media(bills)
    for report in (
        {"object": "organization.usage.images.result", "images": 2, "size": "1024x1024", "source": "image.generation"},
        {"object": "organization.usage.audio_transcriptions.result", "seconds": 90.5},
        {"object": "organization.usage.audio_speeches.result", "characters": 500},
        {"object": "organization.usage.moderations.result", "input_tokens": 7, "num_model_requests": 2},
    ):
        bills.import_(bills.page({"num_model_requests": 1, "model": "media", **report}))
    assert bills.report()[1] == {}


def test_lines_of_keys_that_are_not_ours_are_not_through_the_gateway(bills: Bills) -> None:
    bills.used(3)
    bills.import_(bills.file((INPUT, "0.003", 3_000), (OUTPUT, "0.0012", 300)))
    bills.import_(bills.file((INPUT, "0.002", 2_000), key="proj_other"))
    assert bills.report() == ("0.002000000000", {"unknown": "0.002000000000"})
    said("reconcile", "names", bills.provider, "--key", "proj_1=target-1", *bills.data)
    assert bills.report() == ("0.002000000000", {"not_through_us": "0.002000000000"})
    names = said("reconcile", "names", bills.provider, "--remove", "proj_1", *bills.data)
    assert names == []
    wrong = refused("reconcile", "names", bills.provider, "--key", "proj_1=nobody", *bills.data)
    assert "there is no target 'nobody'" in wrong


def test_a_file_is_imported_once_and_nothing_of_a_bad_one(bills: Bills) -> None:
    file = bills.file((INPUT, "0.003", 3_000))
    first = bills.import_(file)
    command = ["reconcile", "import", file, "--provider", bills.provider, *bills.data]
    assert "this file was imported on" in refused(*command)
    newer = bills.file((INPUT, "0.0031", 3_100), (OUTPUT, "0.1", 9))
    again = ["reconcile", "import", newer, "--provider", bills.provider, *bills.data]
    assert "1 of 2 lines are in" in refused(*again)
    assert "2045-03-03 is not in 2045-04" in refused(*again, "--month", "2045-04")
    mixed = Path(newer).read_text().replace('"currency": "usd"', '"currency": "eur"', 1)
    Path(newer).write_text(mixed)
    assert "line 2, column amount.currency: USD, but line 1 is in EUR" in refused(*again)
    assert [one["id"] for one in said("reconcile", "bills", "--provider", bills.provider, *bills.data)] == [first["id"]]
    Path(newer).write_text(mixed.replace("usd", "eur"))
    assert "give the USD that one EUR was on it" in refused(*again, "--replace")
    replaced = bills.import_(newer, "--replace", "--usd-rate", "2")
    assert (replaced["billed_usd"], replaced["currency"]) == ("0.206200000000", "EUR")
    assert [one["id"] for one in said("reconcile", "bills", "--provider", bills.provider, *bills.data)] == [
        replaced["id"]
    ]


def test_of_two_imports_at_once_one_sees_the_lines_of_the_other(bills: Bills) -> None:
    """The second waits for the write lock that the first holds, and finds what that one has written."""
    files = [bills.file((INPUT, "0.003", 3_000)), bills.file((INPUT, "0.003", 3_000), (OUTPUT, "0.1", 9))]
    given = [BillFile(Path(name).read_bytes(), name, MONTH, bills.provider) for name in files]
    first, second = (read_bill(one.content, month=MONTH) for one in given)
    assert {line.subject for line in first.lines} < {line.subject for line in second.lines}
    with ThreadPoolExecutor(1) as pool:
        with bills.database.session() as session:
            begin_change(session, AUTHOR, "book.import_bill", "first")  # holds the write lock until the commit
            waiting = pool.submit(import_bill, bills.database, AUTHOR, given[1])
            with pytest.raises(TimeoutError):
                waiting.result(0.5)
            facts = (first.format, "", "USD", Decimal(1), len(first.lines), 0, Decimal(0), "0" * 64)
            new = NewBill(bills.provider, MONTH, *facts, packed=pack_lines(first.lines))
            write_bill(session, AUTHOR, new)
        with pytest.raises(Conflict, match="1 of 2 lines are in bill_"):
            waiting.result(10)


def test_the_alarm_goes_by_what_was_found_last(bills: Bills) -> None:
    bills.used(1)
    bills.import_(bills.file((INPUT, "2.001", 2_001_000), (OUTPUT, "0.0004", 100)))
    client = bills.store.client("reader")
    now = datetime(2045, 4, 1, tzinfo=UTC)
    assert Reconciler(bills.database, client, lambda: now).write_due() == 1
    assert Reconciler(bills.database, client, lambda: now).write_due() == 0
    assert Reconciler(bills.database, client, lambda: now + timedelta(hours=6)).write_due() == 1
    client.close()
    with bills.database.session() as session:
        found = list_reconciliations(session)
    look = AlertInputs(None, now, reconciliations=found)  # type: ignore[arg-type]  # this kind asks nothing of the store
    told = {
        bound: bill_mismatches(look, [Rule.of("bills", "bill_mismatch", "", (), {"unknown_usd": bound})])["bills"]
        for bound in (1.99, 2.0, 2.01)
    }
    assert [len(told[bound]) for bound in (1.99, 2.0, 2.01)] == [1, 0, 0]
    (finding,) = told[1.99]
    assert f"the bill of {bills.provider} for {MONTH} differs from recorded usage by 2.00 USD" in finding.summary


def test_a_month_without_a_bill_is_told_how_to_get_one(bills: Bills) -> None:
    assert "no bill of" in refused("reconcile", "report", bills.provider, MONTH, *bills.place)
    assert "is not a month" in refused("reconcile", "report", bills.provider, "March", *bills.place)
    assert "cause 'magic' is not one of" in refused(
        "reconcile", "show", bills.provider, MONTH, "--cause", "magic", *bills.place
    )


def test_costs_that_answers_state_are_compared_with_recorded_ones(bills: Bills) -> None:
    bills.used(2, provider_usage='{"cost":0.0015}')
    bills.used(1, DAY + timedelta(hours=1), provider_usage='{"cost_in_usd_ticks":14000000}')
    bills.used(4, DAY + timedelta(hours=2), provider_usage='{"total_tokens":1100}')
    (found,) = [one for one in said("reconcile", "stated", MONTH, *bills.place) if one["provider"] == bills.provider]
    assert (found["target"], found["model"], found["requests"], found["without"]) == ("target-1", "gpt", 3, 4)
    assert (found["stated_usd"], found["recorded_usd"]) == ("0.004400000000", "0.004200000000")
    assert found["difference_usd"] == "0.000200000000"
    assert said("reconcile", "stated", "2044-01", *bills.place) == []
