"""The filter bar: a time range, a tenant and a model, kept in the page's address so that a link shows the same.

The address is the one source of truth: `?range=1h` or `?from=2026-11-01T00:00Z&to=...`, `&tenant=`, `&model=`,
`&by=tenant|model`. What an address asks for in vain is answered by a sentence, never silently replaced.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final, cast, get_args

import streamlit as st

from analytics.scope import Scope
from analytics.series import Dimension
from contracts.errors import InvalidRequest

RANGES: Final[dict[str, timedelta]] = {
    "15m": timedelta(minutes=15),
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
}
DEFAULT_RANGE: Final = "1h"
CUSTOM: Final = "custom"
_ANY: Final = ""  # the choice of no filter: Streamlit shows `None` as an empty field
_TIME_FORMAT: Final = "%Y-%m-%dT%H:%MZ"
_RANGE_KEY, _FROM_KEY, _TO_KEY = "filter_range", "filter_from", "filter_to"
_TENANT_KEY, _MODEL_KEY, _BY_KEY = "filter_tenant", "filter_model", "filter_by"


@dataclass(frozen=True, slots=True)
class Filters:
    """What the address asks for. `range` is a name of RANGES or "custom", which has `start` and `end` (UTC)."""

    range: str = DEFAULT_RANGE
    start: datetime | None = None
    end: datetime | None = None
    tenant: str | None = None
    model: str | None = None
    by: Dimension = "tenant"

    @property
    def is_live(self) -> bool:
        """Say whether the range moves with the clock."""
        return self.range != CUSTOM

    def scope(self, now: datetime) -> Scope:
        """Give the question's scope at this moment. Raises InvalidRequest for a range that makes no sense."""
        if self.start is None or self.end is None:
            return Scope.last(RANGES[self.range], now, self.tenant, self.model)
        if self.start >= now:
            raise InvalidRequest(f"the range begins in the future ({_written(self.start)}); choose an earlier start")
        scope = Scope(self.start, self.end, self.tenant, self.model, asked_at=now)
        return scope if scope.end <= now else replace(scope, end=now)


def read_filters(address: Mapping[str, str]) -> Filters:
    """Read the filters off an address. Raises InvalidRequest with a sentence for what cannot be read."""
    by = address.get("by", "tenant")
    if by not in get_args(Dimension):
        raise InvalidRequest(f"cannot group by {by!r}; choose tenant or model", param="by")
    tenant, model = address.get("tenant") or None, address.get("model") or None
    grouping = cast(Dimension, by)
    if "from" in address or "to" in address:
        start, end = (_time(address, name) for name in ("from", "to"))
        return Filters(CUSTOM, start, end, tenant, model, grouping)
    name = address.get("range", DEFAULT_RANGE)
    if name not in RANGES:
        raise InvalidRequest(f"no range is called {name!r}; choose one of {', '.join(RANGES)}", param="range")
    return Filters(name, None, None, tenant, model, grouping)


def _time(address: Mapping[str, str], name: str) -> datetime:
    text = address.get(name)
    if text is None:
        raise InvalidRequest("a range of dates needs both a beginning and an end", param=name)
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidRequest(
            f"{text!r} is no date and time; write it like {datetime(2026, 11, 1, tzinfo=UTC):{_TIME_FORMAT}}",
            param=name,
        ) from error
    return time.replace(tzinfo=UTC) if time.utcoffset() is None else time.astimezone(UTC)


def filter_bar(filters: Filters, tenants: list[str], models: list[str]) -> None:
    """Draw the bar. A change goes into the address, from which the next run reads it."""
    st.session_state[_RANGE_KEY] = filters.range
    st.session_state[_TENANT_KEY] = filters.tenant or _ANY
    st.session_state[_MODEL_KEY] = filters.model or _ANY
    st.segmented_control(
        "Time range",
        [*RANGES, CUSTOM],
        key=_RANGE_KEY,
        required=True,
        label_visibility="collapsed",
        format_func=lambda name: "Custom" if name == CUSTOM else name,
        on_change=_range_changed,
        args=(filters,),
    )
    if filters.start is not None and filters.end is not None:
        st.session_state[_FROM_KEY] = filters.start.replace(tzinfo=None)
        st.session_state[_TO_KEY] = filters.end.replace(tzinfo=None)
        for label, key in (("From (UTC)", _FROM_KEY), ("To (UTC)", _TO_KEY)):
            st.datetime_input(
                label,
                key=key,
                required=True,
                label_visibility="collapsed",
                on_change=_dates_changed,
                step=timedelta(minutes=1),
                width=180,
            )
    _choice("Tenant", "tenant", "All tenants", tenants, filters.tenant, _TENANT_KEY)
    _choice("Model", "model", "All models", models, filters.model, _MODEL_KEY)


def group_toggle(filters: Filters) -> None:
    """Draw the choice between tenants and models as a chart's groups."""
    st.session_state[_BY_KEY] = filters.by
    st.segmented_control(
        "Group by",
        list(get_args(Dimension)),
        key=_BY_KEY,
        required=True,
        format_func=lambda name: f"By {name}",
        label_visibility="collapsed",
        on_change=_by_changed,
    )


def clear_filters(*names: str) -> None:
    """Take filters out of the address: all of them where none is named."""
    _change({name: None for name in names or ("range", "from", "to", "tenant", "model", "by")})


def set_range(name: str) -> None:
    """Put a range that moves with the clock into the address."""
    _change({"from": None, "to": None, "range": name})


def _choice(label: str, name: str, everything: str, values: list[str], chosen: str | None, key: str) -> None:
    known = values if chosen is None or chosen in values else [chosen, *values]
    st.selectbox(
        label,
        [_ANY, *known],
        key=key,
        required=True,
        label_visibility="collapsed",
        format_func=lambda value: value or everything,
        on_change=_choice_changed,
        args=(name, key),
        width=200,
    )


def _range_changed(filters: Filters) -> None:
    name = st.session_state[_RANGE_KEY]
    if name != CUSTOM:
        set_range(name)
    elif filters.is_live:
        now = datetime.now(UTC).replace(second=0, microsecond=0)
        _change({"range": None, "from": _written(now - RANGES[filters.range]), "to": _written(now)})


def _dates_changed() -> None:
    _change({"from": _written(st.session_state[_FROM_KEY]), "to": _written(st.session_state[_TO_KEY])})


def _choice_changed(name: str, key: str) -> None:
    _change({name: st.session_state[key] or None})


def _by_changed() -> None:
    _change({"by": st.session_state[_BY_KEY]})


def _change(changes: Mapping[str, str | None]) -> None:
    """Change the address in one step, so that the browser's back button undoes one choice; `None` removes."""
    address = {**st.query_params.to_dict(), **changes}
    st.query_params.from_dict({name: value for name, value in address.items() if value is not None})


def _written(moment: datetime) -> str:
    return moment.strftime(_TIME_FORMAT)
