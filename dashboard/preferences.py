"""A viewer's preferences in a browser cookie: time zone, locale and currency."""

from dataclasses import dataclass
from functools import cache
from typing import Final, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

COOKIE: Final = "tollkeeper_preferences"
LOCALES: Final = {
    "en_US": "English (United States)",
    "en_GB": "English (United Kingdom)",
    "de_DE": "Deutsch (Deutschland)",
    "de_CH": "Deutsch (Schweiz)",
    "fr_FR": "Français (France)",
    "es_ES": "Español (España)",
    "it_IT": "Italiano (Italia)",
    "nl_NL": "Nederlands (Nederland)",
    "pl_PL": "Polski (Polska)",
    "pt_BR": "Português (Brasil)",
    "sv_SE": "Svenska (Sverige)",
    "ja_JP": "日本語 (日本)",
    "zh_CN": "中文 (中国)",
}
DEFAULT_LOCALE: Final = "en_US"


@dataclass(frozen=True, slots=True)
class Preferences:
    """A viewer's choices; "" means the browser's value or the installation's setting. `currency` "USD"
    overrides the installation's currency.
    """

    zone: str = ""
    locale: str = ""
    currency: str = ""

    @classmethod
    def of_cookie(cls, text: str) -> Self:
        """Parse a cookie's value. Invalid parts are ignored, because anyone can set cookies."""
        zone, locale, currency = (*text.split("|"), "", "", "")[:3]
        zone = zone.replace("+", "/")
        return cls(
            zone if zone in _zones() else "",
            locale if locale in LOCALES else "",
            currency if len(currency) == 3 and currency.isascii() and currency.isalpha() else "",
        )

    def as_cookie(self) -> str:
        """Return the cookie's value; it contains only letters, digits and `_+|-`."""
        return "|".join((self.zone.replace("/", "+"), self.locale, self.currency))


@cache
def _zones() -> frozenset[str]:
    """Return the names of all time zones, cached, because they are read from a directory."""
    return frozenset(available_timezones())


def zone_of(*names: str | None) -> ZoneInfo:
    """Return the first of these time zones that exists; UTC if none does."""
    for name in names:
        try:
            if name:
                return ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            continue
    return ZoneInfo("UTC")


def locale_of(*names: str | None) -> str:
    """Return the first of these locales that is supported; `de`, `de-DE` and `de_DE` are all de_DE."""
    for name in names:
        wanted = (name or "").replace("-", "_")
        if wanted in LOCALES:
            return wanted
        language = wanted.partition("_")[0]
        known = next((one for one in LOCALES if language and one.startswith(f"{language}_")), None)
        if known is not None:
            return known
    return DEFAULT_LOCALE
