"""`tollkeeper cost`, `gpu` and `prices` from a terminal: what they print is what clients counted."""

import json
import shutil
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.slos import NewSlo, put_slo
from backends.store.columns import arrow_batch
from contracts.access.identity import Identity
from contracts.metering.usage import Usage
from contracts.recording.names import ENGINE_STEPS, REQUESTS
from tests.analytics.cost.records import request
from tests.analytics.gpu.steps import steps_of_minutes
from tollkeeper.cli import app


@pytest.fixture
def place(store: Any, tmp_path: Path, migrated_sqlite: Path) -> list[str]:
    """Options that name the shared store and a control database of the test's own."""
    data = tmp_path / "data"
    shutil.copytree(store.data / "secrets", data / "secrets")
    shutil.copy(migrated_sqlite, data / "control.db")
    return ["--data", str(data), "--store-url", store.url]


def said(*arguments: str) -> Any:
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_report_s_json_is_what_clients_counted(store: Any, place: list[str], tmp_path: Path) -> None:
    tenant, start = f"tenant-{uuid4()}", datetime(2046, 2, 3, 10, tzinfo=UTC)
    counted = [("red", 100, 7, 3_000_001), ("red", 50, 5, 2), ("blue", 10, 1, None)]
    records = [
        request(
            start + timedelta(hours=number),
            who=Identity(tenant, team=team),
            usage=Usage(input_text=given, output_text=made),
            cost_pico_usd=cost,
        )
        for number, (team, given, made, cost) in enumerate(counted)
    ]
    writer = store.client("writer")
    writer.insert_arrow("requests", arrow_batch(REQUESTS, records), deduplication_token=str(uuid4()))
    writer.close()
    asked = ["--from", "2046-02-03", "--to", "2046-02-04", "--tz", "Europe/Berlin", "--tenant", tenant]
    report = said("cost", "report", "--by", "team", *asked, *place)
    assert (report["total"]["cost_pico_usd"], report["total"]["unpriced_tokens"]) == (3_000_003, 11)
    blue, red = report["levels"][-1]["lines"]
    assert (red["team"], red["input_tokens"], red["output_tokens"], red["cost_usd"]) == (
        "red",
        150,
        12,
        "0.000003000003",
    )
    assert (blue["team"], blue["cost_usd"], blue["unpriced_requests"]) == ("blue", None, 1)
    assert said("cost", "reprice", *asked, *place)["total"]["repriced_unpriced_requests"] == 3
    focus = said("cost", "export", str(tmp_path / "focus.csv"), *asked, *place)
    assert focus["faults"] == [] and focus["rows"] == 2
    made = said("cost", "invoices", str(tmp_path / "invoices"), *asked, *place)
    assert [one["payable"] for one in made["invoices"]] == ["0.00", "0.00"]
    assert len(list((tmp_path / "invoices").glob("*.pdf"))) == 2


def test_a_report_names_refused_requests_and_additional_attempts(store: Any, place: list[str]) -> None:
    tenant, start = f"tenant-{uuid4()}", datetime(2046, 3, 3, 10, tzinfo=UTC)
    records = [
        request(start, who=Identity(tenant), usage=Usage(input_text=5, output_text=2), cost_pico_usd=7_000_000),
        request(start, who=Identity(tenant), model="", outcome="rejected", status=429, usage=Usage()),
    ]
    writer = store.client("writer")
    writer.insert_arrow("requests", arrow_batch(REQUESTS, records), deduplication_token=str(uuid4()))
    writer.close()
    asked = ["--from", "2046-03-03", "--to", "2046-03-04", "--tenant", tenant, "--by", "model", *place]
    shown = CliRunner().invoke(app, ["cost", "report", *asked]).stdout
    heading, *lines = [line.split() for line in shown.splitlines()]
    assert heading[-1] == "refused" and lines[0] == ["-", "1", "0", "0", "0", "0.000000", "1"]
    assert "refused: 1 request (limits, budgets, guardrails, access); no model was called" in shown


def test_an_empty_report_names_what_was_asked_for(place: list[str]) -> None:
    shown = CliRunner().invoke(app, ["cost", "report", "--tenant", "acmee", "--model", "small", *place])
    assert "no requests of tenant 'acmee', model 'small' in this time" in shown.stdout


def test_the_ledger_s_json_closes(store: Any, place: list[str]) -> None:
    engine, device = f"engine-{uuid4()}", f"GPU-{uuid4()}"
    start = (datetime.now(UTC) - timedelta(minutes=30)).replace(second=0, microsecond=0)
    writer = store.client("writer")
    steps = steps_of_minutes(engine, device, start, minutes=2)
    writer.insert_arrow("engine_steps", arrow_batch(ENGINE_STEPS, steps), deduplication_token=str(uuid4()))
    writer.close()
    ledger = said("gpu", "ledger", "--minutes", *place)
    (ours,) = [gpu for gpu in ledger["gpus"] if gpu["device"] == device]
    assert (ours["wall_ns"], ours["unexplained_ns"], ours["unexplained_share"]) == (120 * 10**9, 0, 0)
    assert said("gpu", "cost", *place)["total_usd"] == "0.000000000000"


def test_an_objective_s_state_is_in_words(place: list[str]) -> None:
    database, now = ControlDatabase(f"sqlite:///{Path(place[1]) / 'control.db'}"), datetime.now(UTC)
    with database.session() as session:
        put_slo(
            session,
            Author("test", now),
            NewSlo("quiet", "availability", Decimal(99), model=f"model-{uuid4()}"),
            replaces=False,
        )
    database.close()
    shown = CliRunner().invoke(app, ["slos", "report", "quiet", *place])
    assert shown.exit_code == 0 and "no requests" in shown.stdout, shown.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cost", "report", "--by", "colour"], "'colour' is nothing to break a report down by"),
        (["cost", "report", "--tz", "Mars"], "'Mars' is not a time zone"),
        (["cost", "report", "--grain", "decade"], "'decade' is not a value of --grain"),
        (["cost", "report", "--month", "May"], "'May' is not a month"),
        (["cost", "export", "costs.txt"], "ends in neither .csv nor .parquet"),
        (["gpu", "cost", "--idle", "anyone"], "'anyone' is not an idle policy"),
        (["gpu", "cost", "--reserve", "acme=2"], "a share is above 0 and at most 1"),
        (["gpu", "cost", "--idle", "reservation"], "--reserve and --idle reservation must be used together"),
        (["gpu", "cost", "--reserve", "acme=0.5"], "--reserve and --idle reservation must be used together"),
        (["gpu", "ledger", "--from", "2026-11-02", "--to", "2026-11-01"], "ends before it starts"),
        (["cost", "export", "/nowhere/costs.csv"], "/nowhere/costs.csv cannot be written"),
        (["cost", "invoices", "/dev/null/invoices"], "/dev/null/invoices cannot be written"),
        (["cost", "export", "c.csv", "--gpu", "--tenant", "acme"], "leave --tenant and --team out"),
        (["cost", "invoices", "i", "--level", "tenant", "--team", "red"], "a tenant's invoice is of all its teams"),
        (["gpu", "variance", "m"], "has no fitted standard cost card"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(place: list[str], arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, [*arguments, *place])
    assert result.exit_code == 2 and message in result.stderr.replace("\n", " ")


def test_the_price_list_is_shown_with_its_dates() -> None:
    cards = said("prices", "show", "openai", "gpt-5")
    assert cards[-1]["usd_per_mtok"]["input_text"] == "1.25" and cards[-1]["to"] == ""


def test_cards_of_the_price_list_show_what_changes_from_one_to_the_next() -> None:
    first, *_, last = said("prices", "show", "openai", "gpt-4o")
    assert first["usd_per_mtok"] == last["usd_per_mtok"]
    assert first["service_tiers"] == {}, "the list knows no tier's price of that time, and the standard one is a guess"
    assert last["service_tiers"]["batch"]["input_text"] == "1.25"
    assert last["service_tiers"]["priority"]["input_text"] == "4.25"
    shown = CliRunner().invoke(app, ["prices", "show", "openai", "gpt-4o"]).stdout
    assert "batch: input_text=1.25" in shown and "priority: input_text=4.25" in shown
