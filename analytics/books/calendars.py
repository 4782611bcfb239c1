"""Billing months: a tenant's months start at midnight in its time zone."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from typing import Final
from zoneinfo import ZoneInfo

from sqlalchemy import select
from sqlalchemy.orm import Session

from analytics.cost.periods import month_of
from analytics.scope import Period
from contracts.control import Tenant
from contracts.errors import ConfigurationError, InvalidRequest
from contracts.rules.periods import zone_of

_UTC: Final = ZoneInfo("UTC")


class Calendars:
    """The time zones of tenants. Names that are not tenants, such as `_platform`, have UTC."""

    def __init__(self, zones: Mapping[str, ZoneInfo]) -> None:
        self._zones = dict(zones)

    @classmethod
    def load(cls, session: Session) -> "Calendars":
        """Read the time zones of all tenants. Raises ConfigurationError if one is unknown."""
        rows = session.execute(select(Tenant.id, Tenant.time_zone))
        return cls({tenant: zone_of(name) for tenant, name in rows})

    def zone(self, tenant: str) -> ZoneInfo:
        """Return a tenant's time zone."""
        return self._zones.get(tenant, _UTC)

    def month(self, tenant: str, moment: datetime) -> str:
        """Return the tenant's month of a time, such as "2026-11"."""
        return f"{moment.astimezone(self.zone(tenant)):%Y-%m}"

    def zones(self, tenant: str = "") -> list[ZoneInfo]:
        """Return the distinct time zones of all tenants, or of one."""
        found = {self.zone(tenant)} if tenant else {_UTC, *self._zones.values()}
        return sorted(found, key=lambda zone: zone.key)


def days_period(first: date, after: date, zone: ZoneInfo) -> Period:
    """Return the period from a date until another (exclusive) in a time zone."""
    start, end = (datetime.combine(day, time.min, zone).astimezone(UTC) for day in (first, after))
    return Period(start, end)


def month_period(name: str, zone: ZoneInfo) -> Period:
    """Return the period of a month such as "2026-11". Raises InvalidRequest for invalid text."""
    year, _, number = name.partition("-")
    if len(name) != 7 or not (year.isdecimal() and number.isdecimal()):
        raise InvalidRequest(f"{name[:40]!r} is not a month; use the form 2026-11", param="month")
    return month_of(int(year), int(number), zone)


def current_month(zone: ZoneInfo, now: datetime) -> str:
    """Return the current month in a time zone. Raises ConfigurationError if `now` has no zone."""
    if now.utcoffset() is None:
        raise ConfigurationError("the time has no zone; use UTC")
    return f"{now.astimezone(UTC).astimezone(zone):%Y-%m}"
