"""Numbers as people read them. What is unknown is a dash, never a zero."""

import math
from datetime import datetime
from decimal import ROUND_HALF_EVEN, Decimal

UNKNOWN = "—"
_MILLION, _BILLION = 10**6, 10**9
# below how many nanoseconds a unit is used, its size in nanoseconds, its name
_DURATIONS = ((1e6, 1e3, "µs"), (1e9, 1e6, "ms"), (60e9, 1e9, "s"), (math.inf, 60e9, "min"))


def count(number: int | None) -> str:
    """Write a count: 999,999, then 1.23 M, then 4.56 B."""
    if number is None:
        return UNKNOWN
    if number < _MILLION:
        return f"{number:,}"
    return f"{number / _BILLION:,.2f} B" if number >= _BILLION else f"{number / _MILLION:.2f} M"


def counted(number: int, noun: str) -> str:
    """Write a count with its noun: 1 request, 2 requests."""
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def money(amount_usd: Decimal | None) -> str:
    """Write USD: two decimals from one dollar up, below it four or as many as show three significant digits."""
    if amount_usd is None:
        return UNKNOWN
    if amount_usd >= _MILLION:
        return f"${amount_usd / _MILLION:,.2f} M"
    if amount_usd >= 1 or amount_usd == 0:
        return f"${amount_usd:,.2f}"
    places = max(4, 2 - amount_usd.adjusted())
    rounded = amount_usd.quantize(Decimal(1).scaleb(-places), rounding=ROUND_HALF_EVEN)
    return f"${rounded:f}" if places == 4 else f"${rounded.normalize():f}"


def duration(nanoseconds: float | None) -> str:
    """Write a duration with three significant digits: 640 µs, 12.3 ms, 1.24 s, 3.5 min."""
    if nanoseconds is None:
        return UNKNOWN
    size, unit = next((size, unit) for limit, size, unit in _DURATIONS if nanoseconds < limit)
    value = nanoseconds / size
    return f"{value:.0f} {unit}" if value >= 99.95 or value == 0 else f"{value:.3g} {unit}"


def percent(share: float | None) -> str:
    """Write a share of 1 as a percentage; what is above none never reads as 0 %."""
    if share is None:
        return UNKNOWN
    if 0 < share < 0.001:
        return "< 0.1 %"
    return f"{share * 100:.1f} %" if share else "0 %"


def moment(time: datetime) -> str:
    """Write a time (UTC) to the minute."""
    return f"{time:%-d %b %Y %H:%M}"


def period(start: datetime, end: datetime) -> str:
    """Write a period (UTC), the date once where it is the same day."""
    if start.date() == end.date():
        return f"{moment(start)} – {end:%H:%M} UTC"
    return f"{moment(start)} – {moment(end)} UTC"
