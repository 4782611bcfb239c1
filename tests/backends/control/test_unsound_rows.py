"""Rows that someone broke: they are left out and named, and everything else is served. Above all, keys still end."""

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from sqlalchemy import text

from backends.control import keys, organisation, prices, serving
from backends.control import sound_rows as reading
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.keys import KeyRequest
from backends.control.prices import NewStandardCost
from backends.control.serving import NewTarget
from backends.control.snapshot import load_snapshot
from backends.control.unreadable_rows import left_out
from contracts.access.keys import new_key
from contracts.metering.usage import Leaf
from contracts.pricing.prices import NewPrice
from contracts.serving.configuration import Snapshot

NOW = datetime(2026, 11, 3, 12, 0, tzinfo=UTC)
AUTHOR = Author(name="admin", at=NOW)
RATES: dict[Leaf, Decimal] = {"input_text": Decimal("0.15"), "output_text": Decimal("0.60")}


@pytest.fixture
def database(control_database: ControlDatabase) -> Iterator[ControlDatabase]:
    """Two of everything: `good` and `bad`."""
    with control_database.session() as session:
        organisation.create_tenant(session, AUTHOR, "acme", "Acme")
        serving.create_pool(session, AUTHOR, "pool")
        for number, name in enumerate(("good", "bad")):
            serving.create_target(session, AUTHOR, "pool", NewTarget(name, "scripted"))
            serving.create_model(session, AUTHOR, name, "pool")
            prices.create_price(session, AUTHOR, NewPrice(name, f"{name}/1", RATES))
            standard = NewStandardCost(f"own-{name}", f"own-{name}/1", Decimal(1), Decimal(1), Decimal(1))
            prices.create_standard_cost(session, AUTHOR, standard)
            keys.create_key(session, AUTHOR, KeyRequest("acme", name), new_key(bytes([number] * 32)), b"pepper")
    yield control_database


def broken(database: ControlDatabase, statement: str, **values: str) -> Snapshot:
    """Write around the control plane, as no one should, and read the snapshot."""
    with database.session() as session:
        session.execute(text(statement), values)
    with database.session() as session:
        return load_snapshot(session)


def test_a_sound_database_has_no_faults(database: ControlDatabase) -> None:
    with database.session() as session:
        snapshot = load_snapshot(session)
    assert snapshot.misconfigured == ()
    assert len(snapshot.keys) == 2


@pytest.mark.parametrize(
    ("card", "why"),
    [
        ('{"tiers": []}', "KeyError"),
        ('{"usd_per_mtok": {"input_text": "cheap"}}', "InvalidOperation"),
        ('{"usd_per_mtok": {"input_text": "-1"}}', ">= 0, not -1"),
        ('{"usd_per_mtok": {"tokens": "1"}}', "not a usage leaf"),
        ("[]", "AttributeError"),
        ("null", "AttributeError"),
    ],
)
def test_an_unreadable_price_card_leaves_its_model_unpriced_and_nothing_else(
    database: ControlDatabase, card: str, why: str
) -> None:
    as_json = "CAST(:card AS JSON)" if database.url.get_backend_name() == "postgresql" else ":card"
    snapshot = broken(database, f"UPDATE prices SET card = {as_json} WHERE version = 'bad/1'", card=card)
    (fault,) = snapshot.misconfigured
    assert "price card 'bad/1' is left out" in fault and why in fault
    assert snapshot.prices.card_for("bad", "", NOW) is None
    assert snapshot.prices.card_for("good", "", NOW) is not None
    assert (len(snapshot.keys), set(snapshot.models)) == (2, {"good", "bad"})


def test_text_that_is_no_json_at_all_is_left_out_too(database: ControlDatabase) -> None:
    if database.url.get_backend_name() == "postgresql":
        pytest.skip("PostgreSQL keeps no such text in a JSON column")
    snapshot = broken(database, "UPDATE prices SET card = 'not json' WHERE version = 'bad/1'")
    assert len(snapshot.misconfigured) == 1 and snapshot.prices.card_for("good", "", NOW) is not None
    snapshot = broken(database, "UPDATE targets SET settings = '{' WHERE id = 'bad'")
    assert [target.id for target in snapshot.pools["pool"].targets] == ["good"]
    assert any("target 'pool/bad' is left out" in fault for fault in snapshot.misconfigured)


@pytest.mark.parametrize("rate", ["cheap", "-1", "0.0000001"])
def test_an_unreadable_standard_cost_is_left_out(database: ControlDatabase, rate: str) -> None:
    snapshot = broken(
        database, "UPDATE standard_costs SET output_usd_per_mtok = :rate WHERE version = 'own-bad/1'", rate=rate
    )
    (fault,) = snapshot.misconfigured
    assert "standard cost card 'own-bad/1' is left out" in fault
    assert snapshot.prices.card_for("own-good", "", NOW) is not None


@pytest.mark.parametrize("chunk_rows", [1, 2, 500])
def test_a_broken_key_keeps_no_other_from_loading_or_from_ending(
    database: ControlDatabase, monkeypatch: pytest.MonkeyPatch, chunk_rows: int
) -> None:
    monkeypatch.setattr(reading, "_CHUNK_ROWS", chunk_rows)
    snapshot = broken(database, "UPDATE api_keys SET digest = 'no hex' WHERE name = 'bad'")
    assert len(snapshot.keys) == 1
    (fault,) = snapshot.misconfigured
    assert fault.startswith("key '") and fault.endswith("is left out: unreadable (ValueError)")
    snapshot = broken(database, "UPDATE api_keys SET revoked_at = created_at WHERE name = 'good'")
    assert snapshot.keys == {}


def test_of_cards_that_contradict_each_other_the_older_holds(database: ControlDatabase) -> None:
    snapshot = broken(database, "UPDATE prices SET model = 'good' WHERE version = 'bad/1'")
    (fault,) = snapshot.misconfigured
    assert "overlap" in fault
    card = snapshot.prices.card_for("good", "", NOW)
    assert card is not None and card.version in ("good/1", "bad/1")
    snapshot = broken(database, "UPDATE prices SET created_at = '2020-01-01 00:00:00' WHERE version = 'good/1'")
    card = snapshot.prices.card_for("good", "", NOW)
    assert card is not None and card.version == "good/1"
    assert "price card 'bad/1' is left out" in snapshot.misconfigured[0]


def test_a_list_leaves_an_unreadable_row_out_and_names_it(database: ControlDatabase) -> None:
    broken(database, "UPDATE standard_costs SET output_usd_per_mtok = :text WHERE model = 'own-bad'", text="much")
    with database.session() as session:
        rows = prices.list_standard_costs(session)
        assert [row.model for row in rows] == ["own-good"]
        assert [(row.table, row.id, row.column) for row in left_out()] == [
            ("standard_costs", "own-bad/1", "output_usd_per_mtok")
        ]
        assert left_out()[0].stored == "much"
    with database.session() as session:
        assert [tenant.id for tenant in organisation.list_tenants(session)] == ["acme"]
        assert left_out() == []
