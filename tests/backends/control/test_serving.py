"""Models, pools, targets and prices over each control database, and the snapshot made of them."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from backends.control import prices, serving
from backends.control.bootstrap import DEMO_MODEL, Upstream, add_demo, add_upstream, is_fresh
from backends.control.changes import Author, read_revision
from backends.control.database import ControlDatabase
from backends.control.organisation import create_tenant
from backends.control.prices import NewStandardCost
from backends.control.serving import NewTarget
from backends.control.snapshot import load_snapshot
from contracts.access.keys import digest_of, new_key
from contracts.errors import Conflict, InvalidRequest, NotFound
from contracts.metering.usage import Leaf, Usage
from contracts.pricing.prices import NewPrice, cost_of

NOW = datetime(2026, 11, 3, 12, 0, tzinfo=UTC)
AUTHOR = Author(name="admin", at=NOW)
NEW_YEAR = datetime(2027, 1, 1, tzinfo=UTC)
SECRET = new_key(bytes(32))
RATES: dict[Leaf, Decimal] = {"input_text": Decimal("0.15"), "output_text": Decimal("0.60")}


def serve(database: ControlDatabase) -> None:
    with database.session() as session:
        serving.create_pool(session, AUTHOR, "pool", region="eu")
        target = NewTarget("one", "openai_http", "http://127.0.0.1:9/v1", "m", "vllm", "env:KEY", 2, {"timeout": 3})
        serving.create_target(session, AUTHOR, "pool", target)
        serving.create_model(session, AUTHOR, "org/small", "pool", context_tokens=8192)


def test_the_snapshot_holds_targets_and_models_as_written(control_database: ControlDatabase) -> None:
    serve(control_database)
    with control_database.session() as session:
        snapshot = load_snapshot(session)
    assert snapshot.models["org/small"].context_tokens == 8192
    assert snapshot.models["org/small"].created_unix == int(NOW.timestamp())
    (target,) = snapshot.pools["pool"].targets
    assert (target.kind, target.url, target.model, target.provider) == (
        "openai_http",
        "http://127.0.0.1:9/v1",
        "m",
        "vllm",
    )
    assert (target.key_ref, target.weight, target.region, dict(target.settings)) == ("env:KEY", 2, "eu", {"timeout": 3})


def test_a_pool_without_targets_is_not_served(control_database: ControlDatabase) -> None:
    with control_database.session() as session:
        serving.create_pool(session, AUTHOR, "empty")
    with control_database.session() as session:
        assert load_snapshot(session).pools == {}
    with pytest.raises(InvalidRequest, match="has no targets"), control_database.session() as session:
        serving.create_model(session, AUTHOR, "small", "empty")


def test_a_withdrawn_model_leaves_the_snapshot(control_database: ControlDatabase) -> None:
    serve(control_database)
    with control_database.session() as session:
        serving.set_model_active(session, AUTHOR, "org/small", False)
    with control_database.session() as session:
        assert load_snapshot(session).models == {}


def test_what_serves_a_model_cannot_be_taken_from_under_it(control_database: ControlDatabase) -> None:
    serve(control_database)
    with pytest.raises(Conflict, match="serves model 'org/small'"), control_database.session() as session:
        serving.delete_pool(session, AUTHOR, "pool")
    with pytest.raises(Conflict, match="add another target first"), control_database.session() as session:
        serving.delete_target(session, AUTHOR, "pool", "one")
    with control_database.session() as session:
        serving.create_target(session, AUTHOR, "pool", NewTarget("two", "scripted"))
        serving.delete_target(session, AUTHOR, "pool", "one")
        serving.delete_model(session, AUTHOR, "org/small")
        serving.delete_pool(session, AUTHOR, "pool")
    with control_database.session() as session:
        assert serving.list_pools(session) == []


def test_a_price_prices_exactly_what_was_written(control_database: ControlDatabase) -> None:
    with control_database.session() as session:
        above: dict[Leaf, Decimal] = {"input_text": Decimal("0.30")}
        fee = Decimal("0.000000000001")
        new = NewPrice("small", "small/1", RATES, tiers=[(200_000, above)], usd_per_request=fee)
        prices.create_price(session, AUTHOR, new)
    with control_database.session() as session:
        card = load_snapshot(session).prices.card_for("small", "acme", NOW)
    assert card is not None
    assert cost_of(Usage(input_text=1000, output_text=200), card).total_pico_usd == 270_000_001
    assert cost_of(Usage(input_text=200_001, output_text=0), card).total_pico_usd == 200_001 * 300_000 + 1


def test_overlapping_cards_are_refused_until_the_first_is_ended(control_database: ControlDatabase) -> None:
    second = NewPrice("small", "small/2", RATES, valid_from=NEW_YEAR)
    with control_database.session() as session:
        prices.create_price(session, AUTHOR, NewPrice("small", "small/1", RATES))
    with pytest.raises(Conflict, match="overlap; end the first"), control_database.session() as session:
        prices.create_price(session, AUTHOR, second)
    with control_database.session() as session:
        prices.end_price(session, AUTHOR, "small/1", NEW_YEAR)
        prices.create_price(session, AUTHOR, second)
    with control_database.session() as session:
        book = load_snapshot(session).prices
        before = book.card_for("small", "", datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC))
        after = book.card_for("small", "", NEW_YEAR)
    assert before is not None and before.version == "small/1"
    assert after is not None and after.version == "small/2"
    with pytest.raises(Conflict, match="overlap"), control_database.session() as session:
        prices.end_price(session, AUTHOR, "small/1", datetime(2027, 1, 1, 0, 0, 1, tzinfo=UTC))


def test_a_standard_card_may_not_overlap_a_price_card(control_database: ControlDatabase) -> None:
    standard = NewStandardCost("small", "small/std", Decimal(1), Decimal("0.1"), Decimal(2))
    with control_database.session() as session:
        prices.create_price(session, AUTHOR, NewPrice("small", "small/1", RATES))
    with pytest.raises(Conflict, match="overlap"), control_database.session() as session:
        prices.create_standard_cost(session, AUTHOR, standard)
    with control_database.session() as session:
        assert prices.list_standard_costs(session) == []


def test_a_tenants_own_card_goes_before_the_general_one(control_database: ControlDatabase) -> None:
    with control_database.session() as session:
        create_tenant(session, AUTHOR, "acme", "Acme")
        prices.create_price(session, AUTHOR, NewPrice("small", "small/1", RATES))
        prices.create_price(session, AUTHOR, NewPrice("small", "small/acme", RATES, tenant="acme"))
    with control_database.session() as session:
        book = load_snapshot(session).prices
    cards = {tenant: book.card_for("small", tenant, NOW) for tenant in ("acme", "globex")}
    assert {tenant: card.version for tenant, card in cards.items() if card} == {
        "acme": "small/acme",
        "globex": "small/1",
    }


@pytest.mark.parametrize(
    ("new", "error", "words"),
    [
        (NewPrice("small", "v", {"input_text": Decimal("-0.01")}), InvalidRequest, "input_text"),
        (NewPrice("small", "v", {"input_text": Decimal("0.0000001")}), InvalidRequest, "finer than 0.000001"),
        (NewPrice("small", "v", RATES, usd_per_request=Decimal("1E-13")), InvalidRequest, "finer than a pico-USD"),
        (NewPrice("small", "v", RATES, valid_from=NEW_YEAR, valid_to=NEW_YEAR), InvalidRequest, "before it begins"),
        (NewPrice("small", "v", RATES, tenant="nobody"), NotFound, "tenant 'nobody' does not exist"),
    ],
)
def test_a_card_that_breaks_its_rules_is_refused_and_leaves_nothing(
    control_database: ControlDatabase, new: NewPrice, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words), control_database.session() as session:
        prices.create_price(session, AUTHOR, new)
    with control_database.session() as session:
        assert prices.list_prices(session) == []
        assert read_revision(session) == 0


def test_a_version_is_never_used_twice_by_either_kind(control_database: ControlDatabase) -> None:
    with control_database.session() as session:
        prices.create_price(session, AUTHOR, NewPrice("small", "v1", RATES))
    with pytest.raises(Conflict, match="versions are never reused"), control_database.session() as session:
        prices.create_price(session, AUTHOR, NewPrice("large", "v1", RATES))
    with pytest.raises(Conflict, match="versions are never reused"), control_database.session() as session:
        prices.create_standard_cost(session, AUTHOR, NewStandardCost("large", "v1", Decimal(1), Decimal(1), Decimal(1)))


def test_a_fresh_database_gets_the_demonstration_once(control_database: ControlDatabase) -> None:
    with control_database.session() as session:
        assert is_fresh(session)
        add_demo(session, AUTHOR, SECRET, b"pepper")
    with control_database.session() as session:
        assert not is_fresh(session)
        snapshot = load_snapshot(session)
    entry = snapshot.keys[digest_of(SECRET, b"pepper")]
    assert entry.identity.tenant == "demo"
    assert snapshot.pools[snapshot.models[DEMO_MODEL].pool].targets[0].kind == "scripted"
    card = snapshot.prices.card_for(DEMO_MODEL, "demo", NOW)
    assert card is not None and card.version == "scripted-1/2026-11"
    usage = Usage(input_text=1_000_000, cache_read_text=1_000_000, output_text=1_000_000)
    assert cost_of(usage, card).total_pico_usd == 825_000_000_000
    with pytest.raises(Conflict), control_database.session() as session:
        add_demo(session, AUTHOR, SECRET, b"pepper")


def test_an_upstream_of_the_environment_is_added_once_and_follows_it(control_database: ControlDatabase) -> None:
    def apply(upstream: Upstream) -> bool:
        with control_database.session() as session:
            return add_upstream(session, AUTHOR, upstream)

    first = Upstream("http://127.0.0.1:8000/v1", "llama", "env:TOLLKEEPER_UPSTREAM_KEY")
    assert [apply(first), apply(first)] == [True, False]
    moved = Upstream("http://127.0.0.1:8001/v1", "llama")
    assert apply(moved)
    with control_database.session() as session:
        snapshot = load_snapshot(session)
    (target,) = snapshot.pools[snapshot.models["llama"].pool].targets
    assert (target.kind, target.url, target.key_ref) == ("openai_http", "http://127.0.0.1:8001/v1", "")
