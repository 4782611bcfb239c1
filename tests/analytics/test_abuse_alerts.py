"""Alerts of abuse: one for each key and kind, whichever gateways see it, from the rule's number of sightings on."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from algorithms.abuse.detection import Detection
from algorithms.abuse.incident import Incident
from analytics.alerts.abuse import abuse
from analytics.alerts.evaluator import Evaluator
from analytics.alerts.sources import AlertInputs
from backends.control.abuse_incidents import write_incidents
from backends.control.alert_log import list_alerts
from backends.control.alert_rules import NewRule, create_rule
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.store.address import StoreAddress
from backends.store.client import StoreClient
from contracts.recording.moments import unix_ns
from contracts.rules.alerts import Rule

NOON = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)
AWAY = StoreClient(StoreAddress("http://127.0.0.1:1", "tollkeeper", "reader", ""))


def _incident(name: str, gateway: str = "gw-1", tenant: str = "acme", sightings: int = 3) -> Incident:
    seen = Detection("harvest", "alert", 600, 500, 3600)
    return replace(Incident.begun(name, gateway, tenant, "", "key_1", seen, unix_ns(NOON)), sightings=sightings)


def test_what_two_gateways_see_of_a_key_is_one_alert() -> None:
    look = AlertInputs(AWAY, NOON, incidents=[_incident("a"), _incident("b", "gw-2", sightings=4)])
    (finding,) = abuse(look, [Rule.of("r", "abuse", "", (), {})])["r"]
    assert (finding.fingerprint, finding.tenant) == ("acme/key_1/harvest", "acme")
    assert finding.facts["sightings"] == 7 and finding.facts["incidents"] == ["a", "b"]


@pytest.mark.parametrize(("least", "is_found"), [(6, True), (7, True), (8, False)])
def test_a_rule_asks_for_a_number_of_sightings(least: int, is_found: bool) -> None:
    look = AlertInputs(AWAY, NOON, incidents=[_incident("a"), _incident("b", "gw-2", sightings=4)])
    assert bool(abuse(look, [Rule.of("r", "abuse", "", (), {"sightings": least})])["r"]) is is_found


def test_a_tenants_rule_is_about_its_keys_alone() -> None:
    look = AlertInputs(AWAY, NOON, incidents=[_incident("a"), _incident("b", tenant="zeta")])
    found = abuse(look, [Rule.of("r", "abuse", "zeta", (), {}), Rule.of("all", "abuse", "", (), {})])
    assert [each.tenant for each in found["r"]] == ["zeta"]
    assert len(found["all"]) == 2


def test_an_alert_is_raised_while_an_incident_goes_on_and_over_when_it_is_quiet(
    control_database: ControlDatabase,
) -> None:
    with control_database.session() as session:
        create_rule(session, Author("test", NOON), NewRule("abused", "abuse", "", {}, []))
        write_incidents(session, [_incident("a")])
    evaluator = Evaluator(control_database, AWAY, "one")
    looked = evaluator.look(NOON + timedelta(minutes=1))
    assert looked is not None and looked.settled.opened == 1
    with control_database.session() as session:
        (alert,) = list_alerts(session, tenant="", team="", is_open=True, limit=10)
        assert alert.summary.startswith("key key_1 of acme: 600 unlike prompts")
    over = evaluator.look(NOON + timedelta(hours=2))
    assert over is not None and over.settled.resolved == 1
