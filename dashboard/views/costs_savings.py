"""Savings by prompt caches, batches and cached responses, and recommendations."""

from typing import Any, Final

import streamlit as st

from analytics.attribution.saved import SavedReport, saved_report
from analytics.cost.drill import CostPlace, CostRange, question_of
from analytics.prices.card_list import CardList, card_list
from analytics.query_time import QueryTime
from analytics.recommendations.reading import recommended
from contracts.pricing.money import usd
from dashboard.money_column import Money
from dashboard.panels import Figure, contained, note, show_figures, show_table
from dashboard.slow_answers import Pending
from dashboard.table import Table
from dashboard.views.costs_words import label_of, plural
from dashboard.views.recommendation_table import RECOMMENDED_DAYS, RECOMMENDED_SECONDS, show_recommendations
from dashboard.visit import Visit

_KEEP_SECONDS: Final = 300
_MOST_ROWS: Final = 500


def draw_savings(visit: Visit, place: CostPlace, within: CostRange) -> None:
    """Draw the savings in the range, and the recommendations of `tollkeeper savings`."""
    with contained():
        cards = visit.read_control(card_list, visit.viewer.tenant)
        _saved(visit, place, within, cards)
    with contained():
        _recommended(visit, place, visit.read_control(card_list, visit.viewer.tenant))


def _saved(visit: Visit, place: CostPlace, within: CostRange, cards: CardList) -> None:
    answer = visit.read_slow(saved_report, question_of(place, within), cards, keep_seconds=_KEEP_SECONDS)
    if isinstance(answer, Pending):
        note("Savings are computed from single requests; this appears in a few seconds.")
        return
    if not place.is_in_sums:
        note("Savings are for the whole project, not by feature.")
    _figures(visit, answer)
    show_table(
        "Prompt cache savings by key and model",
        Table(
            [
                {
                    "Tenant": one.tenant,
                    "Team": label_of(one.team),
                    "Project": label_of(one.project),
                    "Key": one.key,
                    "Model": one.model,
                    "Read": one.read_tokens,
                    "Written": one.written_tokens,
                    "Saved": float(usd(one.saved_pico_usd)),
                    "Cache write cost": float(usd(one.write_pico_usd)),
                    "Net": float(usd(one.net_pico_usd)),
                    "GPU time saved": None if one.saved_gpu_ns is None else one.saved_gpu_ns / 1e9,
                    "Cached, unpriced": one.unpriced_tokens,
                }
                for one in answer.caches[:_MOST_ROWS]
            ]
        ),
        key="costs_cache_savings",
        columns=_cache_columns(),
        formats=visit.formats,
        help="Cost of the cached tokens as uncached input, minus their actual cost and the "
        "surcharge for cache writes, at the price cards valid then.",
        data=lambda: _caches_export(answer),
        empty="No token was read from a prompt cache in this range.",
    )


def _figures(visit: Visit, answer: SavedReport) -> None:
    formats = visit.formats
    reads = sum(one.read_tokens for one in answer.caches)
    batches = sum(one.requests for one in answer.batches)
    answers = sum(one.answers for one in answer.answers)
    show_figures(
        [
            Figure(
                "Saved by prompt caches",
                formats.money(usd(answer.caches_pico_usd)),
                f"{formats.counted(reads, 'token')} read from caches",
                "Net of the surcharge for cache writes. Exact, at the price cards valid then.",
            ),
            Figure(
                "Saved by batches",
                formats.money(usd(answer.batches_pico_usd)),
                f"{formats.counted(batches, 'request')} in batches",
                "Difference to the same requests sent individually, at the same price card. Exact.",
            ),
            Figure(
                "Saved by cached responses",
                f"about {formats.money(usd(answer.answers_pico_usd))}",
                f"{formats.count(answers)} {plural('answer', answers)} served from the cache",
                "An estimate: as many requests of the same tenant to the same model, at their mean cost in this range, "
                "less what the cached responses cost.",
            ),
        ]
    )


def _recommended(visit: Visit, place: CostPlace, cards: CardList) -> None:
    found = visit.read_slow(
        recommended, cards, QueryTime(visit.now), RECOMMENDED_DAYS, place.tenant, keep_seconds=RECOMMENDED_SECONDS
    )
    if isinstance(found, Pending):
        note("Recommendations are being computed.")
        return
    show_recommendations(
        f"Recommended savings, from the last {RECOMMENDED_DAYS} days", found, visit.formats, key="costs_recommendations"
    )


def _caches_export(answer: SavedReport) -> Table:
    return Table(
        [
            {
                "tenant": one.tenant,
                "team": one.team,
                "project": one.project,
                "key": one.key,
                "model": one.model,
                "read_tokens": one.read_tokens,
                "written_tokens": one.written_tokens,
                "saved_usd": usd(one.saved_pico_usd),
                "write_usd": usd(one.write_pico_usd),
                "net_usd": usd(one.net_pico_usd),
                "saved_gpu_ns": one.saved_gpu_ns,
                "unpriced_tokens": one.unpriced_tokens,
            }
            for one in answer.caches
        ]
    )


def _cache_columns() -> dict[str, Any]:
    number = st.column_config.NumberColumn
    return {
        "Read": number("Read tokens", format="compact", help="Input tokens read from a cache"),
        "Written": number("Written tokens", format="compact", help="Input tokens written to a cache"),
        "Saved": Money(4, "By reading"),
        "Cache write cost": Money(4, "Surcharge over plain input"),
        "Net": Money(4, "Below 0 if writing cost more than reading saved"),
        "GPU time saved": number(format="%.3g s", help="Prefill time that your engines saved, in seconds"),
        "Cached, unpriced": number(format="localized", help="Tokens read from a cache without a known price"),
    }
