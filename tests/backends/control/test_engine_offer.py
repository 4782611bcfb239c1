"""The engine host's models in the control database: offered at the first start, found again when the host moves."""

from datetime import UTC, datetime

import pytest

from backends.control import serving
from backends.control.bootstrap import BUILTIN_MODEL, EngineOffer, add_engine
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.snapshot import load_snapshot
from contracts.metering.usage import Usage
from contracts.pricing.prices import cost_of
from contracts.serving.configuration import Snapshot

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
AUTHOR = Author("test", NOW)
OFFER = EngineOffer("unix:///data/run/engine-default.sock", (BUILTIN_MODEL,), "minilm-l6-v2")


def apply(database: ControlDatabase, offer: EngineOffer, *, is_first: bool) -> bool:
    with database.session() as session:
        return add_engine(session, AUTHOR, offer, is_first=is_first)


def snapshot(database: ControlDatabase) -> Snapshot:
    with database.session() as session:
        return load_snapshot(session)


def test_the_first_start_offers_the_built_in_models_at_their_standard_cost(control_database: ControlDatabase) -> None:
    assert apply(control_database, OFFER, is_first=True)
    assert not apply(control_database, OFFER, is_first=False)
    known = snapshot(control_database)
    assert set(known.models) == {BUILTIN_MODEL, "minilm-l6-v2"}
    assert known.models[BUILTIN_MODEL].context_tokens == 8192
    (target,) = known.pools["builtin"].targets
    assert (target.kind, target.url, target.model) == ("engine", OFFER.url, "")
    card = known.prices.card_for(BUILTIN_MODEL, "anyone", NOW, "engine")
    assert card is not None and (card.version, card.basis) == ("builtin/2026-11", "standard_card")
    usage = Usage(input_text=1_000_000, cache_read_text=1_000_000, output_text=1_000_000)
    assert cost_of(usage, card).total_pico_usd == 122_000_000_000  # 0.02 + 0.002 + 0.10 USD
    assert known.prices.card_for("minilm-l6-v2", "anyone", NOW, "engine") is not None


def test_a_host_that_moved_is_followed_and_its_new_models_are_added(control_database: ControlDatabase) -> None:
    apply(control_database, OFFER, is_first=True)
    moved = EngineOffer("unix:///elsewhere/engine-default.sock", (BUILTIN_MODEL, "qwen"), "minilm-l6-v2")
    assert apply(control_database, moved, is_first=False)
    known = snapshot(control_database)
    assert known.pools["builtin"].targets[0].url == moved.url
    assert set(known.models) == {BUILTIN_MODEL, "minilm-l6-v2", "qwen"}
    assert known.prices.card_for("qwen", "anyone", NOW, "engine") is None  # nobody has said what it costs


@pytest.mark.parametrize("removed", [BUILTIN_MODEL, "minilm-l6-v2"])
def test_a_built_in_model_that_was_removed_stays_removed(control_database: ControlDatabase, removed: str) -> None:
    apply(control_database, OFFER, is_first=True)
    with control_database.session() as session:
        serving.delete_model(session, AUTHOR, removed)
    assert not apply(control_database, OFFER, is_first=False)
    assert removed not in snapshot(control_database).models


def test_a_host_without_the_built_in_model_offers_what_it_has(control_database: ControlDatabase) -> None:
    assert apply(control_database, EngineOffer("tcp://10.0.0.1:7000", ("qwen",)), is_first=True)
    assert set(snapshot(control_database).models) == {"qwen"}
