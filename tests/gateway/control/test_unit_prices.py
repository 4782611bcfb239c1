"""Prices by image, second, character and request on their way through API, control database and configuration."""

from decimal import Decimal

import pytest

from contracts.metering.usage import Usage
from contracts.pricing.prices import cost_of
from tests.gateway.control.conftest import ON_SQLITE
from tests.gateway.control.test_batch_prices import card_of

PER_UNIT = {"image": "0.04", "image.hd": "0.08", "second": "0.0001", "character": "0.000015", "request": "0.0002"}
USED = Usage(images=2, milliseconds=8_470, characters=9, requests=1)
COST = 80_000_000_000 + 847_000_000 + 135_000_000 + 200_000_000


def test_prices_by_unit_are_shown_as_they_were_written_and_reach_the_gateway(owner, control_database_url):
    body = {"model": "m", "version": "m/1", "usd_per_unit": PER_UNIT, "service_tiers": {"flex": {"input_text": "1"}}}
    made = owner.post("/v1/prices", json=body)
    assert made.status_code == 201, made.text
    shown = owner.get("/v1/prices/m/1").json()["card"]
    assert shown["usd_per_unit"] == PER_UNIT
    assert (shown["usd_per_mtok"], shown["service_tiers"]) == ({}, {"flex": {"input_text": "1"}})
    card = card_of(control_database_url, "m")
    assert cost_of(USED, card).total_pico_usd == COST
    hd = card.at_tier("image.hd.1024x1024")
    assert (hd.version, cost_of(Usage(images=1), hd).total_pico_usd) == ("m/1#image.hd", 80 * 10**9)


def test_a_file_with_prices_by_unit_is_applied_once(owner):
    entry = {"model": "m", "version": "m/1", "usd_per_unit": {**PER_UNIT, "second": "0.00010"}}
    asked = {"objects": [{"section": "prices", "entry": entry}]}
    first = owner.post("/v1/configuration", json=asked)
    assert first.status_code == 200, first.text
    cards = owner.get("/v1/configuration").json()["sections"]["prices"]
    [exported] = [card for card in cards if card["version"] == "m/1"]
    assert {word: Decimal(price) for word, price in exported["usd_per_unit"].items()} == {
        word: Decimal(price) for word, price in PER_UNIT.items()
    }
    assert owner.post("/v1/configuration", json=asked).json()["steps"] == []


@ON_SQLITE
@pytest.mark.parametrize(
    ("prices", "named"),
    [
        ({"usd_per_unit": {"minute": "1"}}, "units are image, second, character, request"),
        ({"usd_per_unit": {"image": "-1"}}, "usd_per_unit"),
        ({"usd_per_unit": {"second": "0.0000000000001"}}, "usd_per_unit"),
        ({"usd_per_unit": {"second": "0.0000000001"}}, "finer"),
        ({"usd_per_mtok": {"images": "1"}}, "put image into usd_per_unit"),
        ({}, "give usd_per_mtok or usd_per_unit"),
    ],
)
def test_a_bad_price_by_unit_is_refused_by_what_is_wrong(owner, prices, named):
    refused = owner.post("/v1/prices", json={"model": "m", "version": "m/1", **prices})
    assert refused.status_code == 400 and named in refused.text
