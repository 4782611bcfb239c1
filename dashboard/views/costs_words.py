"""Texts that cost views share: names of levels, of unnamed groups, and signed changes."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from analytics.cost.drill import CostLevel
from analytics.cost.sums import CostSum
from contracts.pricing.money import usd
from dashboard.formats import UNKNOWN, Formats
from dashboard.visit import Visit

LEVEL_NAMES: Final[Mapping[CostLevel, str]] = {
    "tenant": "Tenant",
    "team": "Team",
    "project": "Project",
    "tag": "Tag",
    "user": "User",
    "key": "Key",
    "provider": "Provider",
    "model": "Model",
}
NO_NAME: Final = "(none)"
# Levels as `visit.colors` and the rollups name them; other levels have no fixed colours.
KINDS: Final[Mapping[CostLevel, str]] = {"tenant": "tenant", "team": "team", "project": "project", "model": "model"}


def label_of(name: str) -> str:
    """Return a group's display name."""
    return name or NO_NAME


def plural(noun: str, number: int) -> str:
    """Return the noun, in the plural unless the number is 1."""
    return noun if number == 1 else f"{noun}s"


def signed_money(formats: Formats, amount_usd: Decimal | None) -> str:
    """Format a change of money with its sign; a dash if it is unknown."""
    if amount_usd is None:
        return UNKNOWN
    sign = "+" if amount_usd > 0 else "\N{MINUS SIGN}" if amount_usd < 0 else ""
    return f"{sign}{formats.money(abs(amount_usd))}"


def signed_percent(share: float | None) -> str:
    """Format a relative change as a percentage with its sign; a dash if it is unknown."""
    if share is None:
        return UNKNOWN
    sign = "+" if share > 0 else "\N{MINUS SIGN}" if share < 0 else ""
    return f"{sign}{abs(share) * 100:.1f} %"


def unpriced_sentence(visit: Visit, total: CostSum) -> str:
    """Return sentences on requests without a cost (with the reason) and on estimated cost."""
    counted, said = visit.formats.counted, []
    if total.unpriced_requests or total.partly_unpriced_requests:
        tokens = "an unknown number of tokens"
        if total.unpriced_tokens is not None:
            tokens = counted(total.unpriced_tokens, "token")
        whole = total.unpriced_requests + total.partly_unpriced_requests
        said.append(f"No price: {tokens} of {counted(whole, 'request')}. Excluded from all cost totals.")
    if total.unknown_usage_requests:
        said.append(
            f"Usage unknown: {counted(total.unknown_usage_requests, 'request')}. Excluded from all cost totals."
        )
    if total.estimated_requests:
        money = visit.formats.money(usd(total.estimated_pico_usd))
        said.append(f"Estimated: {money} of {counted(total.estimated_requests, 'request')} is estimated.")
    return " ".join(said) or "All usage has a price."
