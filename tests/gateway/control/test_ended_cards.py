"""Price cards that end: never silently in the past, and replaced in one step."""

from datetime import UTC, datetime, timedelta

import pytest

RATES = {"input_text": "1", "output_text": "2"}


@pytest.fixture
def card(owner):
    made = owner.post("/v1/prices", json={"model": "m", "version": "m/1", "usd_per_mtok": RATES})
    assert made.status_code == 201
    return "/v1/prices/m/1"


def error(reply):
    return reply.status_code, reply.json()["error"]["code"], reply.json()["error"]["message"]


def ago(**time):
    return (datetime.now(UTC) - timedelta(**time)).isoformat()


def valid_to(owner):
    rows = owner.get("/v1/prices").json()["data"]
    return {row["version"]: row["valid_to"] for row in rows if row["model"] in ("m", "other")}


@pytest.mark.parametrize(("seconds", "is_past"), [(-3600, False), (0, False), (50, False), (70, True), (259_200, True)])
def test_an_end_in_the_past_needs_its_effect_confirmed(owner, card, seconds, is_past):
    ends = {"valid_to": ago(seconds=seconds)}
    answer = owner.patch(card, json=ends)
    if not is_past:
        assert answer.status_code == 200 and answer.json()["effect"]["next_version"] is None
        return
    status, code, message = error(answer)
    assert (status, code) == (409, "effect_unconfirmed")
    assert "in the past" in message and "unpriced" in message and '"effect": "confirmed"' in message
    assert valid_to(owner)["m/1"] is None, "nothing is changed"
    assert owner.patch(card, json=ends | {"effect": "confirmed"}).status_code == 200
    assert valid_to(owner)["m/1"] is not None


def test_a_preview_shows_the_effect_and_changes_nothing(owner, card):
    other = {"model": "m", "version": "m/own", "usd_per_mtok": RATES, "provider": "openai"}
    assert owner.post("/v1/prices", json=other).status_code == 201
    ends = {"valid_to": ago(days=3), "effect": "preview"}
    alone = owner.patch(card, json=ends).json()["effect"]
    assert (alone["is_past"], alone["next_version"]) == (True, None) and "unpriced" in alone["sentence"]
    followed = owner.patch("/v1/prices/m/own", json=ends).json()["effect"]
    assert followed["next_version"] == "m/1" and "priced with the card 'm/1'" in followed["sentence"]
    assert valid_to(owner) == {"m/1": None, "m/own": None}


def test_a_card_for_a_region_stands_beside_the_general_one_and_falls_back_to_it(owner, card):
    for version, status in (("m/eu", 201), ("m/eu-2", 409)):
        regional = {"model": "m", "version": version, "usd_per_mtok": RATES, "region": "eu"}
        assert owner.post("/v1/prices", json=regional).status_code == status, version
    assert owner.get("/v1/prices/m/eu").json()["region"] == "eu"
    ends = {"valid_to": ago(), "effect": "preview"}
    assert owner.patch("/v1/prices/m/eu", json=ends).json()["effect"]["next_version"] == "m/1"
    assert owner.patch(card, json=ends).json()["effect"]["next_version"] is None


def test_standard_cost_cards_are_held_to_the_same(owner):
    rates = {f"{kind}_usd_per_mtok": "1" for kind in ("input", "cached_input", "output")}
    assert owner.post("/v1/standard-costs", json={"model": "m", "version": "s/1", **rates}).status_code == 201
    ends = {"valid_to": ago(days=1)}
    assert error(owner.patch("/v1/standard-costs/s/1", json=ends))[:2] == (409, "effect_unconfirmed")
    preview = owner.patch("/v1/standard-costs/s/1", json=ends | {"effect": "preview"}).json()
    assert preview["valid_to"] is None and preview["effect"]["is_past"] is True
    assert owner.patch("/v1/standard-costs/s/1", json=ends | {"effect": "confirmed"}).status_code == 200


def test_a_card_is_replaced_in_one_step_and_without_a_gap(owner, card):
    new = {"model": "m", "version": "m/2", "usd_per_mtok": RATES, "replaces": "m/1"}
    made = owner.post("/v1/prices", json=new)
    assert made.status_code == 201
    assert valid_to(owner) == {"m/1": made.json()["valid_from"], "m/2": None}
    audited = [(row["action"], row["subject"], row["detail"]) for row in owner.get("/v1/audit").json()["data"]]
    assert any(
        action == "price.end" and subject == "m/1" and detail["replaced_by"] == "m/2"
        for action, subject, detail in audited
    )
    status, code, _ = error(owner.post("/v1/prices", json=new | {"version": "m/2", "replaces": "m/2"}))
    assert (status, code) == (409, "conflict")
    assert valid_to(owner)["m/2"] is None, "a new card that is refused ends nothing"


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"replaces": "none"}, (404, "not_found")),
        ({"model": "other"}, (400, "invalid_request")),
        ({"provider": "openai"}, (400, "invalid_request")),
        ({"region": "eu"}, (400, "invalid_request")),
        ({"valid_from": ago(days=2)}, (409, "effect_unconfirmed")),
    ],
)
def test_a_replacement_that_does_not_fit_changes_nothing(owner, card, more, expected):
    new = {"model": "m", "version": "m/2", "usd_per_mtok": RATES, "replaces": "m/1"} | more
    assert error(owner.post("/v1/prices", json=new))[:2] == expected
    assert valid_to(owner) == {"m/1": None}


def test_a_replacement_from_the_past_is_made_once_confirmed(owner, card):
    new = {"model": "m", "version": "m/2", "usd_per_mtok": RATES, "replaces": "m/1", "valid_from": ago(days=2)}
    assert owner.post("/v1/prices", json=new | {"effect": "confirmed"}).status_code == 201
    assert valid_to(owner)["m/2"] is None and valid_to(owner)["m/1"] is not None


def test_service_tiers_are_taken_shown_and_refused_by_name(owner):
    tiers = {"flex": {"input_text": "0.5"}, "*": {}}
    made = owner.post(
        "/v1/prices", json={"model": "t", "version": "t/1", "usd_per_mtok": RATES, "service_tiers": tiers}
    )
    assert made.json()["card"]["service_tiers"] == tiers
    for name in ("default", "auto", "Flex", "a b"):
        body = {"model": "u", "version": "u/1", "usd_per_mtok": RATES, "service_tiers": {name: {}}}
        status, _, message = error(owner.post("/v1/prices", json=body))
        assert status == 400 and repr(name) in message
