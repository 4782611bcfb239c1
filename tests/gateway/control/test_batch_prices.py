"""Prices for batches on their way from the API through the control database into the snapshot."""

from datetime import UTC, datetime

import pytest

from backends.control.database import ControlDatabase
from backends.control.snapshot import load_snapshot
from contracts.metering.usage import Usage
from contracts.pricing.prices import cost_of
from tests.gateway.control.conftest import ON_SQLITE

NOW = datetime(2026, 11, 3, tzinfo=UTC)
USED = Usage(input_text=1000, output_text=10)


def card_of(control_database_url, model):
    database = ControlDatabase(control_database_url)
    try:
        with database.session() as session:
            found = load_snapshot(session).prices.card_for(model, "acme", NOW)
    finally:
        database.close()
    assert found is not None
    return found


def test_a_price_card_s_batch_prices_and_those_of_its_tiers_reach_the_gateway(owner, control_database_url):
    body = {
        "model": "m",
        "version": "m/1",
        "usd_per_mtok": {"input_text": "2", "output_text": "8"},
        "batch_usd_per_mtok": {"input_text": "1", "output_text": "4"},
        "tiers": [
            {"above_input_tokens": 999, "usd_per_mtok": {"input_text": "6"}, "batch_usd_per_mtok": {"input_text": "3"}}
        ],
    }
    made = owner.post("/v1/prices", json=body)
    assert made.status_code == 201, made.text
    assert made.json()["card"]["batch_usd_per_mtok"] == {"input_text": "1", "output_text": "4"}
    card = card_of(control_database_url, "m")
    assert cost_of(USED, card).total_pico_usd == 1000 * 6_000_000 + 10 * 8_000_000
    batch = cost_of(USED, card.at_tier("batch"))
    assert (batch.total_pico_usd, batch.version) == (1000 * 3_000_000 + 10 * 4_000_000, "m/1#batch")


def test_a_standard_card_s_batch_prices_reach_the_gateway(owner, control_database_url):
    body = {
        "model": "own",
        "version": "own/1",
        "input_usd_per_mtok": "0.2",
        "cached_input_usd_per_mtok": "0.02",
        "output_usd_per_mtok": "0.8",
        "batch_output_usd_per_mtok": "0.4",
    }
    made = owner.post("/v1/standard-costs", json=body)
    assert made.status_code == 201, made.text
    assert made.json()["batch_input_usd_per_mtok"] is None
    card = card_of(control_database_url, "own")
    batch = cost_of(USED, card.at_tier("batch"))
    assert (batch.total_pico_usd, batch.version) == (1000 * 200_000 + 10 * 400_000, "own/1#batch")
    [listed] = [row for row in owner.get("/v1/standard-costs").json()["data"] if row["version"] == "own/1"]
    assert float(listed["batch_output_usd_per_mtok"]) == 0.4


def test_cards_without_batch_prices_stay_as_they_were(owner, control_database_url):
    body = {"model": "m", "version": "m/1", "usd_per_mtok": {"input_text": "2", "output_text": "8"}}
    assert owner.post("/v1/prices", json=body).status_code == 201
    card = card_of(control_database_url, "m")
    assert card.at_tier("batch") is card


@ON_SQLITE
@pytest.mark.parametrize("price", ["-0.1", "NaN", "0.0000001"])
def test_a_bad_batch_price_is_refused(owner, price):
    body = {
        "model": "m",
        "version": "m/1",
        "usd_per_mtok": {"input_text": "2"},
        "batch_usd_per_mtok": {"input_text": price},
    }
    refused = owner.post("/v1/prices", json=body)
    assert refused.status_code == 400 and "batch_usd_per_mtok" in refused.text
