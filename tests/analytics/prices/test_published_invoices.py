"""Bills that others have worked out in public, read as each provider reports usage, against the price list's cards.

Every example names its source and when that was written or read (November 2026). No worked total for Azure was found:
its example has the prices of a published table and a total that follows from them by hand.
"""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from analytics.prices.catalogue import catalogue_cards
from contracts.metering.openai_usage import usage_from_openai
from contracts.metering.usage import CompletionTokensDetails, OpenAIUsage, PromptTokensDetails, Usage
from contracts.pricing.money import usd
from contracts.pricing.prices import NewPrice, PriceBook, PriceCard, cost_of, price_card

READ = datetime(2026, 11, 20, tzinfo=UTC)


def listed(provider: str, model: str) -> PriceCard:
    card = PriceBook(catalogue_cards(provider, model)).card_for(model, "", READ)
    assert isinstance(card, PriceCard)
    return card


def batched(provider: str, model: str) -> PriceCard:
    card = listed(provider, model).at_tier("batch")
    assert card is not None
    return card


def openai(prompt: int, completion: int, cached: int = 0, reasoning: int = 0) -> Usage:
    return usage_from_openai(
        OpenAIUsage(
            prompt,
            completion,
            prompt + completion,
            PromptTokensDetails(cached_tokens=cached),
            CompletionTokensDetails(reasoning_tokens=reasoning),
        )
    )


def anthropic(uncached: int, output: int, written: int = 0, read: int = 0) -> Usage:
    return Usage(input_text=uncached, cache_write_5m=written, cache_read_text=read, output_text=output)


# Source, the card by which it was priced, its requests, the total it prints.
EXAMPLES: list[tuple[str, PriceCard, list[Usage], str]] = [
    (
        "OpenAI, GPT-5.2: 100M tokens in, 25M out (nicolalazzari.ai/articles/openai-api-pricing-explained-2026, 2026)",
        listed("openai", "gpt-5.2"),
        [openai(1_000, 250)] * 100,
        "0.000525",  # a hundred-thousandth of each of the month's requests, and so of its 525 USD
    ),
    (
        "OpenAI, o1 with cached input and reasoning at 15, 7.50 and 60 USD (community.openai.com/t/1099176, 2025)",
        price_card(
            NewPrice(
                "o1",
                "o1/2025",
                {"input_text": Decimal(15), "cache_read_text": Decimal("7.5"), "output_text": Decimal(60)},
            )
        ),
        [openai(2_000, 4_200, cached=1_000, reasoning=4_000)],
        "0.2745",  # 1,000 x 15 + 1,000 x 7.50 + 4,200 x 60, by the formula given there
    ),
    (
        "Anthropic, Sonnet 4: 100k written, read ten times, 10k out (eonsr.com/en/claude-prompt-caching-math, 2025)",
        listed("anthropic", "claude-sonnet-4-5"),
        [anthropic(0, 0, written=100_000), *[anthropic(0, 1_000, read=100_000)] * 10],
        "0.825",
    ),
    (
        "Anthropic, the same without a cache (eonsr.com/en/claude-prompt-caching-math, 2025)",
        listed("anthropic", "claude-sonnet-4-5"),
        [anthropic(100_000, 1_000)] * 10,
        "3.15",
    ),
    (
        "Anthropic, Sonnet 4.6: 50k written, read 999x (claudecodeguides.com/claude-prompt-caching-saves-90-percent"
        "-input-costs, 2026; printed as 15.17)",
        listed("anthropic", "claude-sonnet-4-6"),
        [anthropic(0, 0, written=50_000), *[anthropic(0, 0, read=50_000)] * 999],
        "15.1725",
    ),
    (
        "Anthropic, by the batch with the cache: about 0.41 (eonsr.com/en/claude-prompt-caching-math, 2025)",
        batched("anthropic", "claude-sonnet-4-5"),
        [anthropic(0, 0, written=100_000), *[anthropic(0, 1_000, read=100_000)] * 10],
        "0.4125",
    ),
    (
        "Gemini, 2.5 Pro: 50k in, 2k out (deploybase.ai/articles/gemini-2.5-pricing, 8 January 2026)",
        listed("google", "gemini-2.5-pro"),
        [openai(50_000, 2_000)],
        "0.0825",
    ),
    (
        "Gemini, 2.5 Pro above 200k: 300k in cost six times 100k (docs.rs/crate/gemini-cost/0.1.0)",
        listed("google", "gemini-2.5-pro"),
        [openai(300_000, 0)],
        "0.75",
    ),
    (
        "Gemini, 2.5 Flash whose thinking has its own price: 305 tokens (jangwook.net, May 2026; printed as 0.001067)",
        price_card(
            NewPrice(
                "gemini-2.5-flash",
                "flash/2026-05",
                {"input_text": Decimal("0.3"), "output_text": Decimal("2.5"), "output_reasoning": Decimal("3.5")},
            )
        ),
        [Usage(input_text=0, output_text=0, output_reasoning=305)],
        "0.0010675",
    ),
    (
        "Bedrock, Sonnet 4.6: 2,000 in, 500 out (learn.cloudbuckle.com/docs/claude-optimization/cost-anatomy, 2026)",
        price_card(NewPrice("claude", "bedrock/2026", {"input_text": Decimal(3), "output_text": Decimal(15)})),
        [openai(2_000, 500)],
        "0.0135",
    ),
    (
        "Bedrock, Claude 3 Sonnet: 500 in, 300 out at 0.003 and 0.015 per thousand (zilliz.com/ai-faq, read 2026)",
        price_card(NewPrice("claude-3", "bedrock/2024", {"input_text": Decimal(3), "output_text": Decimal(15)})),
        [openai(500, 300)],
        "0.006",
    ),
    (
        "Azure, GPT-4o, Global Standard at 2.50 and 10 (finout.io/blog/azure-openai-pricing, 2026), half of it cached",
        listed("azure", "gpt-4o"),
        [openai(2_000_000, 100_000, cached=1_000_000)],
        "4.75",  # 1M x 2.50 + 1M x 1.25 + 0.1M x 10, by hand
    ),
]


@pytest.mark.parametrize(
    ("source", "card", "requests", "total"), EXAMPLES, ids=[one[0].split(":")[0] for one in EXAMPLES]
)
def test_a_published_bill_is_reproduced_to_the_last_digit(
    source: str, card: PriceCard, requests: list[Usage], total: str
) -> None:
    costs: list[Any] = [cost_of(usage, card).total_pico_usd for usage in requests]
    scale = Decimal("0.001") if "100M" in source else Decimal(1)  # its requests are 100 of 100,000
    assert usd(sum(costs)) * scale == Decimal(total), source


def test_reading_three_times_as_much_costs_six_times_as_much_beyond_the_threshold() -> None:
    card = listed("google", "gemini-2.5-pro")
    short, long = (cost_of(openai(tokens, 0), card).total_pico_usd for tokens in (100_000, 300_000))
    assert short is not None and long == 6 * short
