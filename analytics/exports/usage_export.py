"""Priced usage of a range as FOCUS rows by day; the billing period is always the whole calendar month."""

from collections.abc import Iterable
from zoneinfo import ZoneInfo

from analytics.cost.periods import month_of, split
from analytics.cost.question import CostQuestion
from analytics.exports.billing import Billing
from analytics.exports.charges import Charge, charges_of, correction_charges
from analytics.exports.focus import extra_rows, usage_rows
from analytics.exports.focus_columns import Row
from analytics.prices.usage_groups import usage_groups
from analytics.scope import Period
from backends.store.client import StoreClient
from contracts.pricing.prices import AnyCard

LEVELS = ("tenant", "team", "project", "key", "tags")


def charges_in(store: StoreClient, question: CostQuestion, cards: Iterable[AnyCard]) -> list[Charge]:
    """Read a question's charges, corrections last. Raises InvalidRequest if requests were deleted, StoreUnavailable."""
    cards = list(cards)
    return [*charges_of(usage_groups(store, question, cards), cards), *correction_charges(store, question)]


def usage_export(
    charges: list[Charge],
    period: Period,
    zone: ZoneInfo,
    issuer: str,
    billing: Billing | None = None,
) -> list[Row]:
    """Return charges by day of `zone` within `period` as rows; for whole months also documents' terms and taxes.

    `issuer` is the invoice issuer's name. Raises ConfigurationError if an account's currency has no rate.
    """
    rows: list[Row] = []
    for month in split(period, "month", zone):
        inside = [charge for charge in charges if month.start_s <= charge.period_start < month.end_s]
        whole = month_around(month, zone)
        rows += usage_rows(inside, whole, split(month, "day", zone), issuer, billing)
        if billing is not None and billing.has_extras and month == whole:
            rows += extra_rows(inside, whole, zone, issuer, billing)
    return rows


def month_around(part: Period, zone: ZoneInfo) -> Period:
    """Return the calendar month in which a period begins."""
    local = part.start.astimezone(zone)
    return month_of(local.year, local.month, zone)
