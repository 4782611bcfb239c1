"""Cards made of providers' price lists against the library's own arithmetic, and what a card cannot say."""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import Usage as ListedUsage
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.prices.catalogue import Unpriceable, catalogue_cards
from analytics.prices.litellm_table import LitellmTable
from contracts.errors import ConfigurationError, NotFound
from contracts.metering.usage import Usage
from contracts.pricing.money import usd
from contracts.pricing.prices import PriceBook, cost_of

COUNTS = st.integers(0, 400_000)


@settings(max_examples=60)
@given(
    st.sampled_from(
        [("openai", "gpt-5"), ("anthropic", "claude-sonnet-4-5"), ("google", "gemini-2.5-pro"), ("azure", "gpt-4o")]
    ),
    COUNTS,
    COUNTS,
    COUNTS,
    COUNTS,
    st.booleans(),
    st.sampled_from([datetime(2026, 10, 13, tzinfo=UTC), datetime(2026, 11, 20, tzinfo=UTC)]),
)
def test_a_card_asks_what_the_price_list_asks(
    named: tuple[str, str], text: int, read: int, written: int, out: int, is_batch: bool, at: datetime
) -> None:
    provider, name = named
    written = written if provider == "anthropic" else 0
    card = PriceBook(catalogue_cards(provider, name)).card_for(name, "", at)
    assert card is not None
    asked = card.at_tier("batch") if is_batch else card
    assert asked is not None
    ours = cost_of(Usage(input_text=text, cache_read_text=read, cache_write_5m=written, output_text=out), asked)
    seller, info = get_snapshot().find_provider_model(name, None, provider, None)
    listed = ListedUsage(
        input_tokens=text + read + written, cache_read_tokens=read, cache_write_tokens=written, output_tokens=out
    )
    theirs = info.calc_price(
        listed,
        seller,
        genai_request_timestamp=at,
        price_context={"processing": "batch"} if is_batch else None,
    )
    assert ours.total_pico_usd is not None
    assert usd(ours.total_pico_usd) == theirs.total_price


@pytest.mark.parametrize("provider", ["openai", "anthropic", "google", "mistral"])
def test_the_cards_of_one_model_follow_each_other_without_a_hole(provider: str) -> None:
    seller = next(one for one in get_snapshot().providers if one.id == provider)
    dated = 0
    for info in seller.models:
        try:
            cards = catalogue_cards(provider, info.id)
        except NotFound:  # a name that only stands for others, such as of fine-tuned models
            continue
        PriceBook(cards)
        assert all(one.valid_to == other.valid_from for one, other in zip(cards, cards[1:], strict=False))
        dated += len(cards) > 1
    assert dated


def test_a_cache_without_a_price_is_not_sold_as_input() -> None:
    (card,) = catalogue_cards("aws", "mistral.mistral-large-2402-v1:0")
    assert "input_text" in card.rates and "cache_read_text" not in card.rates


def test_a_price_that_changes_with_the_hour_is_refused_by_name() -> None:
    with pytest.raises(Unpriceable, match="changes with the time of day"):
        catalogue_cards("deepseek", "deepseek-chat")
    with pytest.raises(NotFound, match="knows no model 'gpt-0' of provider 'openai'"):
        catalogue_cards("openai", "gpt-0")


def test_the_wider_table_has_thresholds_batches_and_floats_that_were_computed(tmp_path: Path) -> None:
    path = tmp_path / "prices.json"
    path.write_text(
        json.dumps(
            {
                "m": {
                    "input_cost_per_token": 1.5000000000000002e-07,
                    "input_cost_per_token_above_200k_tokens": 3e-07,
                    "input_cost_per_token_batches": 7.5e-08,
                    "output_cost_per_token": 6e-07,
                    "cache_read_input_token_cost": 1.5e-08,
                },
                "by-the-second": {"input_cost_per_second": 0.1},
            }
        )
    )
    table = LitellmTable.read(path)
    card = table.card("azure", "m", model="ours", seller="azure")
    assert (card.model, card.provider) == ("ours", "azure") and card.version == f"{table.version}/m/ours"
    assert card.rates["input_text"] == 150_000 and card.rates["cache_read_text"] == 15_000
    assert card.rate("input_text", 200_000) == 150_000 and card.rate("input_text", 200_001) == 300_000
    assert card.rate("output_text", 200_001) == 600_000
    batched = card.at_tier("batch")
    assert batched is not None and batched.rate("input_text", 1) == 75_000
    assert card.rates["output_reasoning"] == 600_000 and "cache_write_5m" not in card.rates
    with pytest.raises(ConfigurationError, match="by input_cost_per_second, which a card cannot express"):
        table.card("azure", "by-the-second")
    with pytest.raises(NotFound, match="knows no model 'n'"):
        table.card("azure", "n")
    with pytest.raises(ConfigurationError, match="cannot be read as LiteLLM's price table"):
        LitellmTable.read(tmp_path / "absent.json")


def test_a_model_s_first_card_holds_since_the_beginning() -> None:
    first, *_ = catalogue_cards("openai", "gpt-5")
    assert first.is_valid_at(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=1))
    assert first.rates["input_text"] == int(Decimal("1.25") * 10**6)


def test_the_wider_table_s_oddities_are_refused_by_name_or_priced_and_never_free(tmp_path: Path) -> None:
    """Shapes of entries as LiteLLM 1.106.2's own table has them (read on 2026-11-22)."""
    path = tmp_path / "prices.json"
    entries = {
        "unknown": {"input_cost_per_token": 0.0, "output_cost_per_token": 0.0},
        "rerank": {"input_cost_per_token": 0.0, "input_cost_per_query": 0.002},
        "picture": {"input_cost_per_token": 5e-06, "output_cost_per_image": 0.04},
        "seeing": {"input_cost_per_token": 1e-06, "input_cost_per_image": 0.001, "input_cost_per_image_token": 2e-06},
        "online": {"input_cost_per_token": 1e-06, "output_cost_per_token": 0.0, "input_cost_per_request": 0.005},
        "cliff": {
            "input_cost_per_token": 1e-06,
            "input_cost_per_token_batches": 5e-07,
            "input_cost_per_token_above_272k_tokens": 2e-06,
            "input_cost_per_token_above_272k_tokens_batches": 1e-06,
        },
    }
    path.write_text(json.dumps(entries))
    table = LitellmTable.read(path)
    with pytest.raises(NotFound, match="has price 0 for 'unknown'"):
        table.card("p", "unknown")
    for name, field in (("rerank", "input_cost_per_query"), ("picture", "output_cost_per_image")):
        with pytest.raises(ConfigurationError, match=f"by {field}, which a card cannot express"):
            table.card("p", name)
    assert table.card("p", "seeing").rates["input_image"] == 2_000_000
    online = table.card("p", "online")
    assert (online.request_pico_usd, online.rates["output_text"]) == (5 * 10**9, 0)
    cliff = table.card("p", "cliff")
    assert [cliff.rate("input_text", tokens) for tokens in (272_000, 272_001)] == [1_000_000, 2_000_000]
    batch = cliff.at_tier("batch")
    assert batch is not None
    assert [batch.rate("input_text", tokens) for tokens in (272_000, 272_001)] == [500_000, 1_000_000]


def test_models_of_other_media_are_priced_by_their_unit(tmp_path: Path) -> None:
    path = tmp_path / "prices.json"
    entries = {
        "whisper": {"mode": "audio_transcription", "input_cost_per_second": 0.0001, "output_cost_per_second": 0.0001},
        "voice": {"mode": "audio_speech", "input_cost_per_character": 1.5e-05},
        "picture": {"mode": "image_generation", "output_cost_per_image": 0.04},
        "by-token": {"mode": "image_generation", "output_cost_per_image": 0.04, "input_cost_per_token": 5e-06},
    }
    path.write_text(json.dumps(entries))
    table = LitellmTable.read(path)
    found = {name: dict(table.card("p", name).rates) for name in ("whisper", "voice", "picture")}
    assert found == {
        "whisper": {"milliseconds": 100_000},
        "voice": {"characters": 15_000_000},
        "picture": {"images": 40 * 10**9},
    }
    with pytest.raises(ConfigurationError, match="by output_cost_per_image, which a card cannot express"):
        table.card("p", "by-token")


def test_audio_of_a_model_that_is_made_for_it_never_costs_as_text_does() -> None:
    (card,) = catalogue_cards("openai", "gpt-4o-audio-preview")
    assert "input_text" in card.rates and not {"input_audio", "output_audio"} & set(card.rates)
    (gemini,) = [one for one in catalogue_cards("google", "gemini-2.5-pro") if one.valid_to is None]
    assert gemini.rates["input_audio"] == gemini.rates["input_text"]  # a model of text, whose price is for all input
