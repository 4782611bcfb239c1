"""A budget's spent is the ledger's: from before it was made, with corrections, and the same wherever it is shown."""

import json
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from analytics.books.budget_actuals import BudgetActuals
from analytics.budget_bars import budget_bars
from analytics.query_time import QueryTime
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.organisation import create_team
from backends.control.prices import create_price
from backends.control.snapshot import load_snapshot
from backends.store.columns import arrow_batch
from contracts.access.identity import Identity
from contracts.metering.usage import Usage
from contracts.pricing.prices import NewPrice
from contracts.recording.names import REQUESTS
from tests.analytics.cost.records import request
from tollkeeper.cli import app

USD = 10**12


@pytest.fixture
def place(store: Any, data: Path) -> list[str]:
    shutil.copytree(store.data / "secrets", data / "secrets", dirs_exist_ok=True)
    shutil.copy(data.parent / "control.db", data / "control.db") if not (data / "control.db").exists() else None
    return ["--data", str(data)]


@pytest.fixture
def database(data: Path) -> Iterator[ControlDatabase]:
    found = ControlDatabase(f"sqlite:///{data.parent / 'control.db'}")
    yield found
    found.close()


@pytest.fixture
def actuals(store: Any, database: ControlDatabase) -> Iterator[Callable[[], int]]:
    client = store.client("writer")
    yield BudgetActuals(database, client, lambda: datetime.now(UTC)).write_due
    client.close()


def said(*arguments: str) -> Any:
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def used(store: Any, tenant: str, team: str, cost: int) -> None:
    at = datetime.now(UTC) - timedelta(seconds=30)
    usage = Usage(input_text=1_000_000, output_text=0)
    of_it = {"usage": usage, "cost_pico_usd": cost, "charged_pico_usd": cost, "cost_basis": "price_card"}
    record = request(at, who=Identity(tenant, team=team), model="gpt-x", **of_it)
    writer = store.client("writer")
    writer.insert_arrow("requests", arrow_batch(REQUESTS, [record]), deduplication_token=str(uuid4()))
    writer.close()


def test_a_budget_counts_its_whole_period_and_its_corrections(
    store: Any, data: Path, place: list[str], database: ControlDatabase, actuals: Callable[[], int]
) -> None:
    tenant = f"t-{uuid4()}"[:30]
    said("tenants", "create", tenant, *place)
    with database.session() as session:
        create_team(session, Author("test", datetime.now(UTC)), tenant, "red", "red")
    used(store, tenant, "red", 3 * USD)
    used(store, tenant, "blue", 1 * USD)
    whole = said("budgets", "create", tenant, "--period", "month", "--usd", "100", *place)["id"]
    red = said(
        *("budgets", "create", tenant, "--period", "month", "--usd", "100"),
        *("--level", "team", "--subject", "red", "--soft", *place),
    )["id"]

    def standing(budget: str) -> Any:
        return said("budgets", "show", budget, *place)["state"]["subjects"][0]

    before = standing(whole)
    assert (before["spent"], before["from_ledger"]) == ("0", None) and before["counted_since"] is not None
    assert actuals() == 2 and actuals() == 0  # a second look changes nothing
    after = standing(whole)
    assert (Decimal(after["spent"]), Decimal(after["from_ledger"]), after["counted_since"]) == (
        Decimal(4),
        Decimal(4),
        None,
    )
    assert Decimal(standing(red)["spent"]) == 3

    with database.session() as session:
        rates = {"input_text": Decimal(2)}
        author = Author("test", datetime.now(UTC))
        create_price(session, author, NewPrice("gpt-x", f"right-{tenant}", rates, tenant=tenant))  # type: ignore[arg-type]
    shutil.copy(data.parent / "control.db", data / "books.db")
    at = datetime.now(UTC)
    booking = [
        "--tenant",
        tenant,
        "--reason",
        "agreed price",
        "--from",
        f"{at - timedelta(days=1):%Y-%m-%d}",
    ]
    environment = {
        "TOLLKEEPER_DATABASE_URL": f"sqlite:///{data.parent / 'control.db'}",
        "TOLLKEEPER_STORE_URL": store.url,
    }
    result = CliRunner().invoke(app, ["books", "rerate", *booking, "--yes", "--json", *place], env=environment)
    assert result.exit_code == 0, result.output
    booked = json.loads(result.stdout)["adjustment"]
    assert booked["amount_usd"] == "0.000000000000"  # red pays a dollar less, blue a dollar more
    assert (Decimal(standing(whole)["spent"]), Decimal(standing(red)["spent"])) == (Decimal(4), Decimal(2))

    with database.session() as session:
        bars = {bar.spec.id: bar for bar in budget_bars(session, QueryTime(datetime.now(UTC)), tenant)}
        snapshot = {budget.id: budget for budget in load_snapshot(session).budgets}
    assert (bars[whole].used, bars[red].used) == (4 * USD, 2 * USD)  # the dashboard's
    (adjustment,) = snapshot[red].adjustments  # what gateways hold to
    assert (adjustment.subject, adjustment.amount) == ("red", 2 * USD)

    undo = ["books", "reverse", booked["id"], "--reason", "not agreed", "--json", *place]
    assert CliRunner().invoke(app, undo, env=environment).exit_code == 0
    assert Decimal(standing(red)["spent"]) == 3
