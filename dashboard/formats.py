"""Formats numbers, money and times for people. Unknown values are a dash, never 0."""

import math
from dataclasses import dataclass, field
from datetime import datetime
from decimal import ROUND_HALF_EVEN, Decimal
from functools import cache
from zoneinfo import ZoneInfo

from babel import Locale
from babel.dates import format_datetime
from babel.numbers import get_currency_symbol

UNKNOWN = "—"
_MILLION, _BILLION = 10**6, 10**9
# (upper bound in ns, unit's size in ns, unit's name)
_DURATIONS = ((1e6, 1e3, "µs"), (1e9, 1e6, "ms"), (60e9, 1e9, "s"), (math.inf, 60e9, "min"))


def count(number: int | None) -> str:
    """Format a count: 999,999, then 1.23 M, then 4.56 B."""
    if number is None:
        return UNKNOWN
    if number < _MILLION:
        return f"{number:,}"
    return f"{number / _BILLION:,.2f} B" if number >= _BILLION else f"{number / _MILLION:.2f} M"


def counted(number: int, noun: str) -> str:
    """Format a count with its noun: 1 request, 2 requests."""
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def money(amount_usd: Decimal | None) -> str:
    """Format USD: two decimals from one dollar up; below, at least four and enough for three significant digits."""
    if amount_usd is None:
        return UNKNOWN
    return f"-${_amount(-amount_usd)}" if amount_usd < 0 else f"${_amount(amount_usd)}"


def _amount(amount: Decimal) -> str:
    if amount >= _MILLION:
        return f"{amount / _MILLION:,.2f} M"
    if amount >= 1 or amount == 0:
        return f"{amount:,.2f}"
    places = max(4, 2 - amount.adjusted())
    rounded = amount.quantize(Decimal(1).scaleb(-places), rounding=ROUND_HALF_EVEN)
    return f"{rounded:f}" if places == 4 else f"{rounded.normalize():f}"


def duration(nanoseconds: float | None) -> str:
    """Format a duration with three significant digits: 640 µs, 12.3 ms, 1.24 s, 3.5 min."""
    if nanoseconds is None:
        return UNKNOWN
    size, unit = next((size, unit) for limit, size, unit in _DURATIONS if nanoseconds < limit)
    value = nanoseconds / size
    return f"{value:.0f} {unit}" if value >= 99.95 or value == 0 else f"{value:.3g} {unit}"


def hundredths(share: float | None) -> float | None:
    """Return a share (0 to 1) as a number of percent (0 to 100), for tables and charts that format it themselves."""
    return None if share is None else 100 * share


def percent(share: float | None) -> str:
    """Format a share (0 to 1) as a percentage; a share above 0 is never shown as 0 %."""
    if share is None:
        return UNKNOWN
    if 0 < share < 0.001:
        return "< 0.1 %"
    return f"{share * 100:.1f} %" if share else "0 %"


def moment(time: datetime) -> str:
    """Format a time (UTC) to the minute."""
    return f"{time:%-d %b %Y %H:%M}"


def period(start: datetime, end: datetime) -> str:
    """Format a period (UTC), with the date only once within a day."""
    if start.date() == end.date():
        return f"{moment(start)} – {end:%H:%M} UTC"
    return f"{moment(start)} – {moment(end)} UTC"


@dataclass(frozen=True, slots=True)
class _Signs:
    """A locale's number format: the digits' separators, and the position of the currency sign."""

    separators: dict[int, str]
    before: str
    after: str


@cache
def _signs(locale: str, currency: str) -> _Signs:
    found = Locale.parse(locale)
    symbols = found.number_symbols["latn"]
    sign = get_currency_symbol(currency, locale=found)
    pattern = found.currency_formats["standard"]
    before, after = (part.replace("\u00a4", sign) for part in (pattern.prefix[0], pattern.suffix[0]))
    return _Signs({ord(","): symbols["group"], ord("."): symbols["decimal"]}, before, after)


@dataclass(frozen=True, slots=True)
class Formats:
    """Formats numbers, money and times for one viewer: locale, time zone and currency.

    Amounts are in USD; another currency is shown only if the installation configures a rate (`usd_rate`). Units and the
    M and B of large numbers are the same in all locales.
    """

    locale: str = "en_US"
    zone: ZoneInfo = field(default_factory=lambda: ZoneInfo("UTC"))
    currency: str = "USD"
    usd_rate: Decimal = Decimal(1)

    @property
    def zone_name(self) -> str:
        """Return the name of the time zone for people, such as `Europe/Berlin`."""
        return self.zone.key

    @property
    def money_note(self) -> str:
        """Return a sentence with the exchange rate of shown amounts; "" if they are in USD."""
        return (
            ""
            if self.currency == "USD"
            else f"{self.currency} at {self.usd_rate.normalize():f} for 1 USD, configured rate"
        )

    def count(self, number: int | None) -> str:
        """Format a count: 999,999, then 1.23 M, then 4.56 B."""
        return self._localized(count(number))

    def counted(self, number: int, noun: str) -> str:
        """Format a count with its noun: 1 request, 2 requests."""
        return f"{self.count(number)} {noun}{'' if number == 1 else 's'}"

    def money(self, amount_usd: Decimal | None) -> str:
        """Format an amount of USD in the viewer's currency; a dash if it is unknown."""
        if amount_usd is None:
            return UNKNOWN
        amount = amount_usd if self.currency == "USD" else amount_usd * self.usd_rate
        signs = _signs(self.locale, self.currency)
        minus = "-" if amount < 0 else ""
        return f"{minus}{signs.before}{_amount(abs(amount)).translate(signs.separators)}{signs.after}"

    def amount(self, amount_usd: Decimal | float | None) -> float | None:
        """Convert an amount of USD to the viewer's currency as a float, for display only: never for sums."""
        if amount_usd is None or self.currency == "USD":
            return None if amount_usd is None else float(amount_usd)
        return float(amount_usd) * float(self.usd_rate)

    @property
    def money_signs(self) -> tuple[str, str]:
        """Return the texts before and after an amount, such as ("$", "") or ("", " €")."""
        signs = _signs(self.locale, self.currency)
        return signs.before, signs.after

    def axis_money(self, amount: float, places: int) -> str:
        """Format an axis label in the viewer's currency, with `places` decimals and a leading minus sign."""
        before, after = self.money_signs
        minus = "-" if amount < 0 else ""
        return f"{minus}{before}{self._localized(f'{abs(amount):,.{places}f}')}{after}"

    def duration(self, nanoseconds: float | None) -> str:
        """Format a duration with three significant digits: 640 µs, 12.3 ms, 1.24 s, 3.5 min."""
        return self._localized(duration(nanoseconds))

    def percent(self, share: float | None) -> str:
        """Format a share (0 to 1) as a percentage; a share above 0 is never shown as 0 %."""
        return self._localized(percent(share))

    def moment(self, time: datetime) -> str:
        """Format a time to the minute, in the viewer's zone."""
        return self._dated(time.astimezone(self.zone), "d MMM y HH:mm")

    def day(self, time: datetime) -> str:
        """Format the day of a time in the viewer's zone."""
        return self._dated(time.astimezone(self.zone), "d MMM y")

    def period(self, start: datetime, end: datetime) -> str:
        """Format a period in the viewer's time zone, with its name; the date only once within a day."""
        first, last = start.astimezone(self.zone), end.astimezone(self.zone)
        until = f"{last:%H:%M}" if first.date() == last.date() else self.moment(last)
        return f"{self.moment(first)} – {until} {self.zone.key}"

    def _dated(self, time: datetime, pattern: str) -> str:
        return str(format_datetime(time, pattern, locale=self.locale))

    def _localized(self, text: str) -> str:
        return text.translate(_signs(self.locale, self.currency).separators)


def as_float(amount: Decimal | None) -> float | None:
    """Convert an amount to float, for display only: never for sums."""
    return None if amount is None else float(amount)
