"""The filter bar: draws the filters that a page uses from its URL, and writes changes to the URL."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, Literal
from zoneinfo import ZoneInfo

import streamlit as st

from analytics.distinct import Kind
from dashboard import address
from dashboard.filters import COMPARISONS, CUSTOM, MONTHS, RANGES, Filters, written
from dashboard.page import FilterName
from dashboard.viewer import Viewer

_ANY: Final = ""  # the option for no filter: Streamlit shows `None` as an empty field
_RANGE_KEY, _FROM_KEY, _TO_KEY = "filter_range", "filter_from", "filter_to"
_BESIDE_MONTHS: Final = ("24h", "7d", "30d")
_RANGE_NAMES: Final = {"month": "This month", "last_month": "Last month", CUSTOM: "Custom"}
_COMPARISON_NAMES: Final = {
    _ANY: "Compare…",
    "previous": "vs. period before",
    "day": "vs. a day before",
    "week": "vs. a week before",
    "four_weeks": "vs. 4 weeks before",
    "year": "vs. 52 weeks before",
}
Who = Literal["tenant", "team", "project", "key", "model"]
# By filter: its label if nothing is chosen, and the kind whose values it offers.
WHOSE: Final[dict[Who, tuple[str, Kind]]] = {
    "tenant": ("All tenants", "tenant"),
    "team": ("All teams", "team"),
    "project": ("All projects", "project"),
    "key": ("All keys", "key_id"),
    "model": ("All models", "model"),
}
_WIDTH_PIXELS: Final = 140
# Rarely used: behind a button if the bar would otherwise need two rows.
_SELDOM: Final[frozenset[FilterName]] = frozenset({"project", "key"})
_MOST_IN_ROW: Final = 4


def filter_bar(
    names: Sequence[FilterName], filters: Filters, viewer: Viewer, offered: dict[Who, list[str]], *, months: bool
) -> None:
    """Draw the named filters. Those that the viewer is restricted to are fixed; `offered` has the others' options."""
    fixed = {"tenant"} if viewer.tenant is not None else set()
    fixed |= {"team"} if viewer.team is not None else set()
    drawn = [name for name in names if name not in fixed]
    seldom = _SELDOM.intersection(drawn) if len(drawn) > _MOST_IN_ROW else frozenset()
    for name in drawn:
        if name not in seldom:
            _filter(name, filters, viewer, offered, months=months)
    if seldom:
        chosen = sum(getattr(filters, name) is not None for name in seldom)
        more = st.popover(f"More ({chosen})" if chosen else "More", key="more_filters", on_change="rerun")
        if more.open:
            with more:
                for name in (name for name in drawn if name in seldom):
                    _filter(name, filters, viewer, offered, months=months)


def _filter(name: FilterName, filters: Filters, viewer: Viewer, offered: dict[Who, list[str]], *, months: bool) -> None:
    if name == "range":
        _range_choice(filters, viewer.zone, months=months)
    elif name == "compare":
        _choice("Compare with", "compare", list(COMPARISONS), filters.compare, _COMPARISON_NAMES)
    else:
        _choice(name.title(), name, offered.get(name, []), getattr(filters, name), {_ANY: WHOSE[name][0]})


def _ranges(chosen: str, *, months: bool) -> list[str]:
    """Return the time ranges to offer: with months, those of minutes and hours are left out to save space."""
    every = [*RANGES, *MONTHS]
    offered = (*_BESIDE_MONTHS, *MONTHS) if months else tuple(RANGES)
    return [*(name for name in every if name in offered or name == chosen), CUSTOM]


def _range_choice(filters: Filters, zone: ZoneInfo, *, months: bool) -> None:
    st.session_state[_RANGE_KEY] = filters.range
    st.segmented_control(
        "Time range",
        _ranges(filters.range, months=months),
        key=_RANGE_KEY,
        required=True,
        label_visibility="collapsed",
        format_func=lambda name: _RANGE_NAMES.get(name, name),
        on_change=_range_changed,
        args=(filters,),
    )
    if filters.start is None or filters.end is None:
        return
    st.session_state[_FROM_KEY] = filters.start.astimezone(zone).replace(tzinfo=None)
    st.session_state[_TO_KEY] = filters.end.astimezone(zone).replace(tzinfo=None)
    for label, key in ((f"From ({zone.key})", _FROM_KEY), (f"To ({zone.key})", _TO_KEY)):
        st.datetime_input(
            label,
            key=key,
            required=True,
            label_visibility="collapsed",
            on_change=_dates_changed,
            args=(zone,),
            step=timedelta(minutes=1),
            width=180,
        )


def _choice(label: str, name: str, values: list[str], chosen: str | None, names: dict[str, str]) -> None:
    key = f"filter_{name}"
    st.session_state[key] = chosen or _ANY
    known = values if chosen is None or chosen in values else [chosen, *values]
    st.selectbox(
        label,
        [_ANY, *known],
        key=key,
        required=True,
        label_visibility="collapsed",
        format_func=lambda value: names.get(value, value),
        on_change=_choice_changed,
        args=(name, key),
        width=_WIDTH_PIXELS,
    )


def _choice_changed(name: str, key: str) -> None:
    changes: dict[str, str | None] = {name: st.session_state[key] or None}
    if name == "tenant":  # teams, projects and keys belong to the tenant
        changes |= {"team": None, "project": None, "key": None}
    address.change(changes)


def _range_changed(filters: Filters) -> None:
    name = st.session_state[_RANGE_KEY]
    if name != CUSTOM:
        set_range(name)
    elif filters.start is None:
        now = datetime.now(UTC).replace(second=0, microsecond=0)
        length = RANGES.get(filters.range, timedelta(days=30))
        address.change({"range": None, "from": written(now - length), "to": written(now)})


def _dates_changed(zone: ZoneInfo) -> None:
    start, end = (st.session_state[key].replace(tzinfo=zone) for key in (_FROM_KEY, _TO_KEY))
    address.change({"range": None, "from": written(start), "to": written(end)})


def set_range(name: str) -> None:
    """Set a relative range (such as the last hour) in the URL."""
    address.change({"from": None, "to": None, "range": name})


def clear_filters(*names: str) -> None:
    """Remove the named filters from the URL; all filters if none is named."""
    if names:
        address.change({name: None for name in names})
    else:
        st.query_params.clear()
