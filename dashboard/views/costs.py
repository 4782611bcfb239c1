"""The costs page: cost by tenant, team, project, tag, user, key, provider or model, and further views of cost."""

from typing import Final

import streamlit as st

from analytics.cost.drill import (
    DEFAULT_TAG,
    NOT_IN_SUMS,
    CostBreakdown,
    CostLevel,
    CostPlace,
    CostRange,
    completed,
    cost_breakdown,
    cost_range,
    summed_breakdown,
    tag_names,
)
from analytics.cost.sums import CostSum
from analytics.cost.unit_costs import unit_costs
from contracts.pricing.money import usd
from dashboard import address
from dashboard.controls import segmented, select
from dashboard.page import Page
from dashboard.panels import Figure, note, show_figures
from dashboard.slow_answers import Pending
from dashboard.states import escaped
from dashboard.views.costs_allocations import draw_allocations
from dashboard.views.costs_breakdown import draw_breakdown
from dashboard.views.costs_compare import draw_comparison
from dashboard.views.costs_savings import draw_savings
from dashboard.views.costs_standard import draw_standard
from dashboard.views.costs_units import draw_unit_costs
from dashboard.views.costs_words import LEVEL_NAMES, label_of, plural, unpriced_sentence
from dashboard.visit import Visit

_VIEWS: Final = {
    "breakdown": "Breakdown",
    "compare": "Compare",
    "units": "Unit costs",
    "savings": "Savings",
    "allocations": "Allocations",
    "standard": "Standard vs. actual cost",
}
KEEP_SECONDS: Final = 60
_TAG_NAME: Final = "tag_name"


def draw(visit: Visit) -> None:
    """Draw the place in the cost tree, its totals, and the chosen view."""
    place, within = _place(visit), cost_range(visit.scope, visit.viewer.zone)
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        _breadcrumbs(visit, place)
        # Shared costs concern all tenants.
        views = tuple(view for view in _VIEWS if view != "allocations" or visit.viewer.tenant is None)
        view = segmented("view", "View", views, default="breakdown", format_func=_VIEWS.__getitem__)
    levels = place.open_levels
    if view == "allocations":
        draw_allocations(visit, within)
        return
    if view in ("savings", "standard"):
        (draw_savings if view == "savings" else draw_standard)(visit, place, within)
        return
    figures = st.container()
    level = _level(levels)
    if level == "tag":
        _choose_tag(visit, place, within)
    answer = _read(visit, place, within, level)
    if view != "compare":  # that view has both periods' figures
        with figures:
            _figures(visit, None if isinstance(answer, Pending) else answer.total)
    if isinstance(answer, Pending):
        note("Tags, users, keys and providers are read from single requests; this appears in a few seconds.")
        return
    if view == "compare":
        draw_comparison(visit, place, within, level)
    elif view == "units":
        draw_unit_costs(visit, place, answer)
    else:
        draw_breakdown(visit, place, answer)
    note(f"{visit.formats.period(within.period.start, within.period.end)}. {unpriced_sentence(visit, answer.total)}")


def is_raw(place: CostPlace, level: CostLevel | None) -> bool:
    """Return whether a breakdown is computed from single requests, which is too slow for a page run."""
    return level in NOT_IN_SUMS or not place.is_in_sums


def _read(visit: Visit, place: CostPlace, within: CostRange, level: CostLevel | None) -> CostBreakdown | Pending:
    """Return a breakdown: from rollups directly, or from single requests in the background (`Pending` meanwhile)."""
    if is_raw(place, level):
        return visit.read_slow(cost_breakdown, place, within, level, keep_seconds=KEEP_SECONDS)
    quick = visit.read(summed_breakdown, place, within, level)
    if quick.total.unpriced_tokens is not None:
        return quick
    whole = visit.read_slow(cost_breakdown, place, within, level, keep_seconds=KEEP_SECONDS)
    return quick if isinstance(whole, Pending) else completed(quick, whole)


def _place(visit: Visit) -> CostPlace:
    scope = visit.scope
    return CostPlace(
        scope.tenant,
        scope.team,
        scope.project,
        address.get("tag"),
        address.get("user"),
        scope.key_id,
        address.get("provider"),
        scope.model,
        address.get(_TAG_NAME) or DEFAULT_TAG,
    )


def _choose_tag(visit: Visit, place: CostPlace, within: CostRange) -> None:
    """Draw the choice of the tag whose values are shown; it is stored in the URL for the next run."""
    names = visit.read_slow(tag_names, place, within, keep_seconds=KEEP_SECONDS)
    known = {place.tag_name} if isinstance(names, Pending) else {DEFAULT_TAG, *names}
    select(_TAG_NAME, "Tag", tuple(sorted(known)), default=DEFAULT_TAG)


def _level(levels: tuple[CostLevel, ...]) -> CostLevel | None:
    if not levels:
        return None
    if len(levels) == 1:
        return levels[0]
    if address.get("level") not in (None, *levels):
        address.change({"level": None})  # the level of the breakdown has been chosen already
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(":gray[Broken down by]", width="content")
        names: dict[str, str] = {level: LEVEL_NAMES[level].lower() for level in levels}
        chosen = segmented("level", "Broken down by", levels, default=levels[0], format_func=names.__getitem__)
    return next(level for level in levels if level == chosen)


def _breadcrumbs(visit: Visit, place: CostPlace) -> None:
    """Draw breadcrumbs from the top to the current place; each is a link."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small", width="content", key="costs_crumbs"):
        if visit.viewer.tenant is None:
            st.button(
                "All tenants",
                on_click=address.change,
                args=({level: None for level in LEVEL_NAMES},),
                type="tertiary",
                disabled=not place.chosen,
                key="crumb_all",
                help="Everything that you may see",
            )
        for number, (level, name) in enumerate(place.chosen):
            if number or visit.viewer.tenant is None:
                st.markdown(":gray[›]", width="content")
            deeper = [each for each, _ in place.chosen[number + 1 :]]
            st.button(
                escaped(label_of(name)),
                on_click=address.change,
                args=({each: None for each in deeper},),
                type="tertiary",
                disabled=not deeper,
                key=f"crumb_{level}",
                help=LEVEL_NAMES[level],
            )


def _figures(visit: Visit, total: CostSum | None) -> None:
    formats = visit.formats
    if total is None:
        show_figures(
            [
                Figure(name, "…")
                for name in ("Cost", "Per request", "Per 1M tokens", "Requests", "Tokens", "No price", "Usage unknown")
            ]
        )
        return
    each = unit_costs(total)
    tokens = total.input_tokens + total.output_tokens
    unpriced = total.unpriced_requests + total.partly_unpriced_requests
    show_figures(
        [
            Figure(
                "Cost",
                formats.money(total.cost_usd),
                _of_which(visit, total),
                "Sum of every request's cost at its price when it ran, and of the corrections booked since, "
                "as in `tollkeeper cost report`. "
                "Estimated: the answer was cancelled, cut off or came without counts, so its tokens are an estimate.",
            ),
            Figure(
                "Per request",
                formats.money(each.per_request),
                "mean of priced requests",
                "Cost over the requests that have a price; refused ones cost nothing and are excluded.",
            ),
            Figure(
                "Per 1M tokens",
                formats.money(each.per_mtok),
                f"{formats.money(each.per_1k_tokens)} per 1k",
                "Cost over all tokens that have a price, input and output together. A dash if it is unknown "
                "which tokens have no price.",
            ),
            Figure(
                "Requests",
                formats.count(total.requests),
                f"{formats.count(total.rejected)} refused",
                "All requests recorded: answered, failed, refused, and cancelled by the client.",
            ),
            Figure(
                "Tokens",
                formats.count(tokens),
                f"{formats.count(total.output_tokens)} of them output",
                "Input and output of the requests whose usage is known; cached input included.",
            ),
            Figure(
                "No price",
                formats.counted(unpriced, "request") if unpriced else "none",
                _unpriced_tokens(visit, total),
                "Requests whose usage is known and for which no price card has a price, or none for one kind of token. "
                "Excluded from all cost totals. Add a price card under Admin, or `tollkeeper prices import`.",
                "warn" if unpriced else None,
            ),
            Figure(
                "Usage unknown",
                formats.counted(total.unknown_usage_requests, "request") if total.unknown_usage_requests else "none",
                f"{formats.count(total.failed_requests)} failed, at no cost"
                if total.failed_requests
                else "none failed",
                "Requests with unknown usage. Excluded from all cost totals. Failed requests cost nothing.",
                "warn" if total.unknown_usage_requests else None,
            ),
        ]
    )


def _of_which(visit: Visit, total: CostSum) -> str:
    if total.corrected_pico_usd:
        money = visit.formats.money
        return f"{money(usd(total.recorded_pico_usd))} recorded, {money(usd(total.corrected_pico_usd))} corrections"
    if total.estimated_requests:
        return f"{visit.formats.money(usd(total.estimated_pico_usd))} estimated"
    if total.unpriced_requests or total.unknown_usage_requests or total.partly_unpriced_requests:
        return "priced usage only"
    return "all priced"


def _unpriced_tokens(visit: Visit, total: CostSum) -> str:
    if not total.unpriced_requests and not total.partly_unpriced_requests:
        return "all usage has a price"
    if total.unpriced_tokens is None:
        return "number of tokens unknown"
    return f"{visit.formats.count(total.unpriced_tokens)} {plural('token', total.unpriced_tokens)}"


COSTS = Page(
    "Costs",
    "costs",
    ":material/payments:",
    draw,
    filters=("range", "compare", "tenant", "team", "project", "key", "model"),
    default_range="month",
    about="Usage, cost and payers, from all tenants down to one key and model.",
)
