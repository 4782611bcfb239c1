"""Every name that the documentation gives a hosted model gets a price, and a name that cannot have one says why."""

import json
import re
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from analytics.prices.listing import SoldModel, listed_cards, without_card
from analytics.prices.litellm_table import LitellmTable
from analytics.prices.provider_names import price_names
from contracts.errors import NotFound, TollkeeperError
from contracts.metering.usage import leaves_of
from contracts.pricing.prices import NewPrice, PriceCard, price_card

NOW = datetime(2026, 11, 20, tzinfo=UTC)
PAGE = (Path(__file__).parents[3] / "docs" / "providers.md").read_text()
PREFIXES = "anthropic|gemini|bedrock|vertex_ai|azure|openrouter|mistral|xai|openai|groq"
SAID_UNPRICEABLE = {"azure/our-chat", "azure/eu/gpt-4o-2024-11-20"}
EXAMPLES = sorted({name for name in re.findall(rf"(?:{PREFIXES})/[\w.:@/-]*\w", PAGE)} - SAID_UNPRICEABLE)


def card_of(name: str, table: LitellmTable | None = None, provider: str = "vendor") -> PriceCard:
    held = [card for card in listed_cards(SoldModel("m", provider, name, "litellm"), table) if card.is_valid_at(NOW)]
    assert len(held) == 1 and (held[0].model, held[0].provider) == ("m", provider)
    return held[0]


def table_of(path: Path, **entries: dict[str, object]) -> LitellmTable:
    path.write_text(json.dumps({name.replace("__", "/"): entry for name, entry in entries.items()}))
    return LitellmTable.read(path)


def test_the_documentation_has_examples() -> None:
    assert len(EXAMPLES) >= 14 and "anthropic/claude-sonnet-4-5" in EXAMPLES


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_example_of_the_documentation_has_a_price(name: str) -> None:
    assert card_of(name).rates["input_text"] > 0


@pytest.mark.parametrize(
    ("name", "usd_in"),
    [
        ("anthropic/claude-sonnet-4-5", "3"),
        ("anthropic/claude-3-7-sonnet-latest", "3"),
        ("bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0", "3.3"),
        ("bedrock/global.anthropic.claude-sonnet-4-5-20250929-v1:0", "3"),
        ("bedrock/converse/us.amazon.nova-pro-v1:0", "0.8"),
        ("vertex_ai/gemini-2.5-pro", "1.25"),
        ("azure/responses/gpt-5", "1.25"),
        ("openai/gpt-4o-2024-05-13", "5"),
        ("openai/gpt-5-2025-08-07", "1.25"),
        ("openrouter/openai/gpt-5", "1.25"),
        ("together_ai/meta-llama/Llama-3.3-70B-Instruct-Turbo", "0.88"),
        ("cohere_chat/command-r-plus", "2.5"),
    ],
)
def test_a_name_s_price_is_the_provider_s_whose_prefix_it_has(name: str, usd_in: str) -> None:
    assert card_of(name).rates["input_text"] == int(Decimal(usd_in) * 10**6)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("azure/our-chat", "name the deployment as the model is called"),
        ("azure/eu/gpt-4o-2024-11-20", "--litellm FILE"),
        ("bedrock/arn:aws:bedrock:us-east-1:1:inference-profile/x", "an ARN names no model"),
        ("anthropic/claude-99", "no model of 'anthropic' is called 'claude-99'"),
        ("nobody/model", "POST /v1/prices"),
    ],
)
def test_a_name_without_a_price_says_why_and_what_to_do(name: str, said: str) -> None:
    with pytest.raises(NotFound) as caught:
        card_of(name)
    assert said in caught.value.message and "genai-prices-" in caught.value.message


def test_the_wider_table_is_asked_by_the_same_names_and_only_for_that_seller(tmp_path: Path) -> None:
    paid: dict[str, object] = {"input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06}
    table = table_of(
        tmp_path / "table.json",
        **{
            "claude-new-1": paid | {"litellm_provider": "anthropic"},
            "azure/eu/gpt-new": paid | {"litellm_provider": "azure"},
            "gpt-new": paid | {"litellm_provider": "openai"},
            "us.maker.model-v1:0": paid | {"litellm_provider": "bedrock_converse"},
            "gemini-new": paid | {"litellm_provider": "vertex_ai-language-models"},
        },
    )
    for name in (
        *("anthropic/claude-new-1", "anthropic/claude-new-1-20261101", "anthropic/claude-new-1-latest"),
        *("azure/eu/gpt-new", "openai/gpt-new", "openai/responses/gpt-new"),
        *("bedrock/us.maker.model-v1:0", "bedrock/converse/us.maker.model-v1:0", "vertex_ai/gemini-new"),
    ):
        priced = dict.fromkeys(leaves_of("input"), 10**6) | dict.fromkeys(leaves_of("output"), 2 * 10**6)
        assert card_of(name, table).rates == priced, name
    for name in ("azure/gpt-new", "gemini/gemini-new", "groq/gpt-new", "bedrock/eu.maker.model-v1:0"):
        with pytest.raises(NotFound):
            card_of(name, table)


def test_service_tiers_come_with_the_prices_of_both_lists(tmp_path: Path) -> None:
    gpt, claude = card_of("openai/gpt-5"), card_of("anthropic/claude-opus-4-8")
    for card, tier, times in ((gpt, "flex", "0.5"), (gpt, "priority", "2"), (claude, "fast", "2")):
        at_tier = card.at_tier(tier)
        assert at_tier is not None and at_tier.version == f"{card.version}#{tier}"
        for leaf in ("input_text", "cache_read_text", "output_text"):
            assert at_tier.rates[leaf] == card.rates[leaf] * Decimal(times), (tier, leaf)
    assert gpt.at_tier("scale") is None and claude.at_tier("flex") is None
    table = table_of(
        tmp_path / "table.json",
        **{
            "x__y": {
                "input_cost_per_token": 1e-06,
                "input_cost_per_token_flex": 5e-07,
                "input_cost_per_audio_token": 4e-06,
                "input_cost_per_token_above_200k_tokens": 2e-06,
                "input_cost_per_token_above_200k_tokens_priority": 3e-06,
                "provider_specific_entry": {"fast": 2.0, "us": 1.1},
            }
        },
    )
    card = card_of("x/y", table)
    flex, priority, fast = (card.at_tier(name) for name in ("flex", "priority", "fast"))
    assert flex is not None and priority is not None and fast is not None and card.at_tier("scale") is None
    assert [flex.rate("input_text", size) for size in (200_000, 200_001)] == [500_000, 2_000_000]
    assert [priority.rate("input_text", size) for size in (200_000, 200_001)] == [1_000_000, 3_000_000]
    assert [fast.rate("input_text", size) for size in (200_000, 200_001)] == [2_000_000, 4_000_000]
    assert (flex.rates["input_audio"], fast.rates["input_audio"]) == (4_000_000, 8_000_000)


def test_a_model_with_a_card_that_holds_is_not_asked_about() -> None:
    sold = [SoldModel("embed-x", "mockai", "embed-x"), SoldModel("gpt", "openai", "gpt-5")]
    known = [
        price_card(
            NewPrice("embed-x", "embedx-1", {"input_text": Decimal("0.1")}, valid_from=datetime(2026, 1, 1, tzinfo=UTC))
        )
    ]
    assert without_card(sold, known, NOW) == [sold[1]]
    assert without_card(sold, known, NOW, "acme") == sold, "a tenant's own list counts its own cards"
    assert without_card(sold, known, datetime(2025, 1, 1, tzinfo=UTC)) == sold
    with pytest.raises(TollkeeperError):
        listed_cards(sold[0], None)


@pytest.mark.parametrize(
    ("kind", "provider", "model", "seller", "first"),
    [
        ("litellm", "label", "gemini/g-1", "", ("gemini", "g-1")),
        ("litellm", "label", "our-name/g-1", "anthropic", ("anthropic", "our-name/g-1")),
        ("openai_http", "openai", "gpt-5", "", ("openai", "gpt-5")),
        ("openai_http", "openrouter", "openai/gpt-5", "", ("openrouter", "openai/gpt-5")),
    ],
)
def test_whose_model_it_is(kind: str, provider: str, model: str, seller: str, first: tuple[str, str]) -> None:
    name = price_names(kind, provider, model, seller)[0]
    assert (name.provider, name.model) == first
