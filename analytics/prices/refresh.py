"""Finds list prices that changed since their cards were imported, with the effect on a month's usage.

Only cards made by `tollkeeper prices import` are compared.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from analytics.cost.periods import month_of
from analytics.cost.question import CostQuestion
from analytics.gpu.standard_cost import usd_per_mtok
from analytics.prices.catalogue import catalogue_version
from analytics.prices.listing import SoldModel, adjusted, as_new_price, bought_under_one_name, listed_cards, sold_models
from analytics.prices.litellm_table import LitellmTable
from analytics.prices.repricing import price_group
from analytics.prices.usage_groups import usage_groups
from analytics.scope import Period
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.prices import load_cards, replace_price
from backends.store.client import StoreClient
from contracts.errors import TollkeeperError
from contracts.metering.usage import Leaf
from contracts.pricing.prices import AnyCard, PriceBook, PriceCard
from contracts.rules.periods import zone_of

_LISTS: Final = ("genai-prices-", "litellm-")  # prefix of imported cards' versions
_AGAIN: Final = "~"  # between an existing version and the day of the refresh


@dataclass(frozen=True, slots=True)
class PriceChange:
    """A valid card, and the card that replaces it by the refreshed price list."""

    old: PriceCard
    new: PriceCard


@dataclass(frozen=True, slots=True)
class ChangeCost:
    """Cost of a period's requests of the old card, by the old and the new card, in pico-USD."""

    requests: int = 0
    old_pico_usd: int = 0
    new_pico_usd: int = 0
    unpriced_requests: int = 0  # by the new card

    @property
    def difference_pico_usd(self) -> int:
        """Return the cost by the new card minus that by the old."""
        return self.new_pico_usd - self.old_pico_usd


@dataclass(frozen=True, slots=True)
class PriceRefresh:
    """Changes of a refresh, and the cost of each for a month's usage, by the old card's version.

    `refused` has messages on cards that cannot be compared.
    """

    list_name: str
    month: str
    changes: tuple[PriceChange, ...]
    costs: Mapping[str, ChangeCost]
    refused: tuple[str, ...]


def price_refresh(
    store: StoreClient, database: ControlDatabase, table: LitellmTable | None, now: datetime
) -> PriceRefresh:
    """Compare imported cards with the installed price list and `table`, for last month's usage.

    Raises InvalidRequest if the month's requests are no longer stored, StoreUnavailable, ControlUnavailable.
    """
    with database.session() as session:
        known = load_cards(session)
        sold, refused = bought_under_one_name(sold_models(session))
    changes, more = price_changes(sold, known, table, now)
    name, month = last_month(now)
    listed = catalogue_version() if table is None else f"{catalogue_version()}, {table.version}"
    costs = change_costs(store, changes, known, month, now)
    return PriceRefresh(listed, name, tuple(changes), costs, (*refused, *more))


def replace_changed(database: ControlDatabase, author: Author, changes: Iterable[PriceChange]) -> None:
    """Replace changed cards in one transaction. Raises Conflict if one was changed in the meantime."""
    with database.session() as session:
        for change in changes:
            replace_price(session, author, change.old.version, as_new_price(change.new))


def last_month(now: datetime) -> tuple[str, Period]:
    """Return the last whole month (UTC) before a time: its name, such as 2026-11, and its bounds."""
    last = now.astimezone(UTC).replace(day=1) - timedelta(days=1)
    return f"{last:%Y-%m}", month_of(last.year, last.month, zone_of("UTC"))


def price_changes(
    sold: Iterable[SoldModel], known: Sequence[AnyCard], table: LitellmTable | None, now: datetime
) -> tuple[list[PriceChange], list[str]]:
    """Return the imported cards whose list price changed, and messages on cards that cannot be compared.

    A card's percentage and tenant from its import apply to the new card too.
    """
    changes: list[PriceChange] = []
    refused: list[str] = []
    versions = {card.version for card in known}
    for one in sold:
        for old in known:
            if not isinstance(old, PriceCard) or not old.is_valid_at(now):
                continue
            percent = _percent(old)
            if percent is None or (old.model, old.provider) not in ((one.model, one.provider), (one.model, "")):
                continue
            try:
                listed = _holding(listed_cards(one, table), now)
            except TollkeeperError as error:
                refused.append(f"{old.version} is unchanged: {error.message}")
                continue
            if listed is None:
                refused.append(f"{old.version} is unchanged: the list has no valid price")
                continue
            new = adjusted(replace(listed, provider=old.provider, region=old.region), old.tenant, percent)
            if _prices(new) != _prices(old):
                version = new.version if new.version not in versions else f"{new.version}{_AGAIN}{now:%Y-%m-%d}"
                versions.add(version)
                changes.append(PriceChange(old, replace(new, version=version, valid_from=now, valid_to=old.valid_to)))
    return changes, refused


def change_costs(
    store: StoreClient, changes: Sequence[PriceChange], known: Sequence[AnyCard], period: Period, asked_at: datetime
) -> dict[str, ChangeCost]:
    """Return the cost of each change for a period's usage, by the old card's version. Requests count for the card that
    would price them now, whatever their recorded price.

    Raises InvalidRequest if the requests are no longer stored, StoreUnavailable.
    """
    book, by_version = PriceBook(known), {change.old.version: change for change in changes}
    cards = [*known, *(change.new for change in changes)]
    costs = {version: ChangeCost() for version in by_version}
    for model in sorted({change.old.model for change in changes}):
        asked = CostQuestion(period.start, period.end, model=model, asked_at=asked_at)
        for group in usage_groups(store, asked, cards):
            card = book.card_for(group.model, group.tenant, asked_at, group.provider, group.region)
            change = None if card is None else by_version.get(card.version)
            if change is None or group.is_kept_answer or group.state == "failed":
                continue
            old, new = (price_group(group, each.at_tier(group.tier)) for each in (change.old, change.new))
            known_cost = costs[change.old.version]
            costs[change.old.version] = ChangeCost(
                known_cost.requests + group.requests,
                known_cost.old_pico_usd + (old.total_pico_usd or 0),
                known_cost.new_pico_usd + (new.total_pico_usd or 0),
                known_cost.unpriced_requests + (group.requests if new.total_pico_usd is None else 0),
            )
    return costs


def rates_changed(change: PriceChange) -> str:
    """Return a change in words: USD per million tokens of each kind, and mentions of other changed prices."""
    old, new = change.old, change.new
    kinds = [leaf for leaf in sorted({*old.rates, *new.rates}) if old.rates.get(leaf) != new.rates.get(leaf)]
    parts = [f"{leaf} {_usd(old, leaf)} -> {_usd(new, leaf)}" for leaf in kinds]
    if change.old.tiers != change.new.tiers:
        parts.append("prices above a number of input tokens")
    if change.old.service_tiers != change.new.service_tiers:
        parts.append("prices of service tiers")
    if change.old.request_pico_usd != change.new.request_pico_usd:
        parts.append("the price of a request")
    return ", ".join(parts)


def _usd(card: PriceCard, leaf: Leaf) -> str:
    rate = card.rates.get(leaf)
    return "none" if rate is None else format(usd_per_mtok(rate).normalize(), "f")


def _prices(card: PriceCard) -> tuple[object, ...]:
    return dict(card.rates), card.tiers, card.request_pico_usd, dict(card.service_tiers)


def _holding(cards: Sequence[PriceCard], now: datetime) -> PriceCard | None:
    return next((card for card in cards if card.is_valid_at(now)), None)


def _percent(card: PriceCard) -> int | None:
    """Return the percentage of an imported card; `None` if a card was not imported."""
    if not card.version.startswith(_LISTS):
        return None
    own = rf"@{re.escape(card.tenant)}" if card.tenant else ""
    pattern = rf".*/{re.escape(card.model)}(?:/\d{{4}}-\d\d-\d\d)?{own}(?P<percent>[+-]\d+)?(?:{_AGAIN}[\d-]+)?"
    found = re.fullmatch(pattern, card.version)
    return None if found is None else int(found["percent"] or 0)
