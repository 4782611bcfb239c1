"""The preferences page: the viewer's role, and their time zone, number format and currency in this browser."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Final
from zoneinfo import available_timezones

import streamlit as st

from dashboard.page import PEOPLE, Page
from dashboard.panels import note, panel
from dashboard.preferences import COOKIE, LOCALES, Preferences
from dashboard.reader import settings
from dashboard.states import escaped
from dashboard.viewer_identity import PREFERENCES_KEY
from dashboard.visit import Visit

_BROWSER: Final = ""  # use the browser's value
_YEAR_SECONDS: Final = 365 * 86_400
_EXAMPLE: Final = Decimal("1234.56")


def draw(visit: Visit) -> None:
    """Draw the choices; each applies immediately and is stored in a cookie."""
    viewer = visit.viewer
    with panel("You", help="Your role decides what you see and may change."):
        st.markdown(f"{escaped(viewer.name)}, {escaped(viewer.standing)}")
        if viewer.is_local:
            note(
                "You use the machine that the dashboard runs on, so no password is needed. "
                "Create accounts for others with `tollkeeper accounts add`."
            )
    chosen: Preferences = st.session_state.get(PREFERENCES_KEY) or visit_preferences(visit)
    with panel("Formats", help="Kept in a cookie of this browser; links that you share do not carry it."):
        zone = _choice("Time zone", [_BROWSER, *sorted(available_timezones())], chosen.zone, f"{viewer.zone.key}")
        locale = _choice("Numbers and dates", [_BROWSER, *LOCALES], chosen.locale, LOCALES[viewer.locale], LOCALES)
        currency = chosen.currency
        if settings().dashboard_currency != "USD":
            currency = _choice("Currency", [_BROWSER, "USD"], chosen.currency, settings().dashboard_currency)
        write = visit.formats
        note(
            f"For example {write.money(_EXAMPLE)}, {write.count(987_654)} requests, {write.moment(datetime.now(UTC))} "
            f"{write.zone_name}. {write.money_note}"
        )
    wanted = Preferences(zone, locale, currency)
    if wanted != chosen:
        st.session_state[PREFERENCES_KEY] = wanted
        st.rerun()
    if PREFERENCES_KEY in st.session_state:
        _keep(wanted)


def visit_preferences(visit: Visit) -> Preferences:
    """Return the preferences in this browser's cookie."""
    value = st.context.cookies.get(COOKIE)
    return Preferences.of_cookie(value if isinstance(value, str) else "")


def _choice(label: str, values: list[str], chosen: str, meant: str, names: dict[str, str] | None = None) -> str:
    return str(
        st.selectbox(
            label,
            values,
            index=values.index(chosen) if chosen in values else 0,
            key=f"preference_{label}",
            format_func=lambda value: (names or {}).get(value, value) if value else f"Default: {meant}",
            width=360,
        )
    )


def _keep(preferences: Preferences) -> None:
    """Set the cookie in the browser by a script; its value contains only letters, digits and `_+|-`."""
    st.html(
        f"<script>document.cookie = '{COOKIE}={preferences.as_cookie()}; path=/; max-age={_YEAR_SECONDS}; "
        "samesite=lax'</script>",
        unsafe_allow_javascript=True,
    )


PREFERENCES = Page(
    "Preferences",
    "preferences",
    ":material/tune:",
    draw,
    filters=(),
    is_live=False,
    roles=PEOPLE,
    about="Time zone, numbers, dates and currency in this browser.",
)
