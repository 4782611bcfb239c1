"""`tollkeeper request`: what it finds and shows of single requests is what was recorded."""

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from typer.testing import CliRunner

from backends.store.columns import arrow_batch
from contracts.access.identity import Identity
from contracts.metering.gaps import pack_gaps
from contracts.metering.usage import Usage
from contracts.recording.ids import uuid7
from contracts.recording.names import REQUESTS
from tests.analytics.cost.records import request
from tollkeeper.cli import app

MS = 10**6


@pytest.fixture
def place(store: Any, tmp_path: Path, migrated_sqlite: Path) -> list[str]:
    """Options that name the shared store and a control database of the test's own."""
    data = tmp_path / "data"
    shutil.copytree(store.data / "secrets", data / "secrets")
    shutil.copy(migrated_sqlite, data / "control.db")
    return ["--data", str(data), "--store-url", store.url]


def test_a_request_is_found_and_shown(store: Any, place: list[str]) -> None:
    tenant, moment = f"tenant-{uuid4()}", datetime.now(UTC) - timedelta(minutes=5)
    one = request(
        moment,
        request_id=uuid7(int(moment.timestamp() * 1e9)).bytes,
        who=Identity(tenant),
        duration_ns=70 * MS,
        ttft_ns=30 * MS,
        admission_ns=MS,
        gaps=pack_gaps([3_000]),
        usage=Usage(input_text=9, output_text=2),
        cost_pico_usd=10**6,
    )
    writer = store.client("writer")
    writer.insert_arrow("requests", arrow_batch(REQUESTS, [one]), deduplication_token=str(uuid4()))
    writer.close()
    runner, identifier = CliRunner(), str(UUID(bytes=one.request_id))
    found = json.loads(
        runner.invoke(app, ["request", "find", "ttft>29ms", "--tenant", tenant, *place, "--json"]).output
    )
    assert (found["total"], [each["request_id"] for each in found["requests"]]) == (1, [identifier])
    shown = json.loads(runner.invoke(app, ["request", "show", identifier, *place, "--json"]).output)
    assert shown["token_ns"] == [30 * MS, 60 * MS] and shown["cost"]["total_usd"] == "0.000001000000"
    assert [span["stage"] for span in shown["waterfall"]] == ["admission", "first_token", "tokens", "finish"]
    assert shown["slowest_tokens"][0]["outside_ns"] == 30 * MS and not shown["has_engine_steps"]
    said = runner.invoke(app, ["request", "show", identifier, *place]).output
    assert "0.000001000000 USD" in said and "its engine steps have expired" in said
    for wrong, reason in (("nope", "is not a request id"), (str(uuid4()), "was not found")):
        refused = runner.invoke(app, ["request", "show", wrong, *place])
        assert refused.exit_code == 2 and reason in " ".join(refused.stderr.split())


def test_a_request_lost_in_a_crash_is_found_by_its_code_and_its_figures_are_called_estimates(
    store: Any, place: list[str]
) -> None:
    tenant, moment = f"tenant-{uuid4()}", datetime.now(UTC) - timedelta(minutes=5)
    one = request(
        moment,
        request_id=uuid7(int(moment.timestamp() * 1e9)).bytes,
        who=Identity(tenant),
        outcome="error",
        status=500,
        error_code="lost_in_crash",
        count_method="estimate",
        usage=Usage(input_text=9, output_text=0),
        cost_pico_usd=10**6,
    )
    writer = store.client("writer")
    writer.insert_arrow("requests", arrow_batch(REQUESTS, [one]), deduplication_token=str(uuid4()))
    writer.close()
    runner, identifier = CliRunner(), str(UUID(bytes=one.request_id))
    options = ["--tenant", tenant, *place, "--json"]
    found = json.loads(runner.invoke(app, ["request", "find", "error:lost_in_crash", *options]).output)
    assert [each["request_id"] for each in found["requests"]] == [identifier]
    said = " ".join(runner.invoke(app, ["request", "show", identifier, *place]).output.split())
    assert "error 500 lost_in_crash" in said and "are estimates" in said


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (
            {"cost_pico_usd": 10**6, "cost_basis": "price_card", "unpriced_leaves": ["input_audio"]},
            "No price for input_audio on the price card m/1",
        ),
        (
            {"cost_pico_usd": None, "cost_basis": "unpriced", "price_version": "", "service_tier": "scale"},
            "No price for the service tier 'scale'",
        ),
        ({"cost_pico_usd": None, "cost_basis": "unpriced", "price_version": ""}, "No price card is valid for"),
    ],
)
def test_what_has_no_price_is_named(store: Any, place: list[str], facts: dict[str, Any], said: str) -> None:
    moment = datetime.now(UTC) - timedelta(minutes=5)
    one = request(
        moment,
        request_id=uuid7(int(moment.timestamp() * 1e9)).bytes,
        who=Identity(f"tenant-{uuid4()}"),
        usage=Usage(input_text=9, input_audio=4, output_text=2),
        **{"price_version": "m/1", **facts},
    )
    writer = store.client("writer")
    writer.insert_arrow("requests", arrow_batch(REQUESTS, [one]), deduplication_token=str(uuid4()))
    writer.close()
    identifier = str(UUID(bytes=one.request_id))
    shown = CliRunner().invoke(app, ["request", "show", identifier, *place]).output
    assert said in " ".join(shown.split())
    told = json.loads(CliRunner().invoke(app, ["request", "show", identifier, *place, "--json"]).output)["cost"]
    assert said in told["missing"]
    assert told["unpriced_leaves"] == facts.get("unpriced_leaves", [])
    assert told["service_tier"] == facts.get("service_tier")
