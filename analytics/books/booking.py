"""Corrections of recorded cost: previewed, then booked in the control database and copied into the store."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta

from sqlalchemy.orm import Session

from analytics.books.budget_actuals import BudgetActuals
from analytics.books.calendars import Calendars
from analytics.books.projection import copy_adjustment
from analytics.books.rerating import Rerated, RerateQuestion, entries_to_book, rerate
from analytics.collections_off import without_collections
from backends.control.book_periods import needs_two_people, refuse_closed
from backends.control.books import (
    NewAdjustment,
    booked_effects,
    entries_of,
    reverse_adjustment,
    write_adjustment,
)
from backends.control.changes import Author, begin_change
from backends.control.database import ControlDatabase
from backends.control.prices import load_cards
from backends.store.client import StoreClient
from contracts.control import BookAdjustment
from contracts.errors import Conflict, NotFound
from contracts.pricing.book_entries import AdjustmentState, Effect, Entry, EntryGroup, entries_digest
from contracts.pricing.prices import AnyCard


@dataclass(frozen=True, slots=True)
class RerateWish:
    """What is to be rerated, why, and whether it is only proposed. `card` is a card's version; empty: the cards that
    hold. `digest` is a preview's: what is booked must be what was shown."""

    question: RerateQuestion
    card: str = ""
    reason: str = ""
    is_proposal: bool = False
    digest: str = ""


@dataclass(frozen=True, slots=True)
class PreviewLine:
    """What a correction comes to for one tenant, model and recorded price in one month. Money in pico-USD."""

    tenant: str
    model: str
    price_version: str
    period: str
    requests: int
    recorded_pico_usd: int
    booked_pico_usd: int  # by earlier corrections
    effect: Effect

    @property
    def net_pico_usd(self) -> int:
        """Return what the requests cost after the correction."""
        return self.recorded_pico_usd + self.booked_pico_usd + self.effect.amount_pico_usd


@dataclass(frozen=True, slots=True)
class Preview:
    """A correction as it would be booked: its entries, and the same summed for reading.

    `outside_validity` counts requests of hours in which the card does not hold by its dates.
    """

    entries: tuple[Entry, ...]
    lines: tuple[PreviewLine, ...]
    outside_validity: int
    card: str = ""

    @property
    def digest(self) -> str:
        """Return the SHA-256 of the entries."""
        return entries_digest(self.entries)

    @property
    def amount_pico_usd(self) -> int:
        """Return the sum of all entries."""
        return sum(entry.effect.amount_pico_usd for entry in self.entries)


def preview_rerate(store: StoreClient, database: ControlDatabase, wish: RerateWish) -> Preview:
    """Compute a correction without booking it. Raise NotFound on the card, Conflict if a month of it is closed,
    InvalidRequest, StoreUnavailable."""
    with database.session() as session, without_collections():
        question, calendars, rerated = _rerated(store, session, wish)
        return _preview(session, question, calendars, rerated)


def book_rerate(
    store: StoreClient, database: ControlDatabase, author: Author, wish: RerateWish
) -> tuple[BookAdjustment | None, Preview]:
    """Book a correction and copy it into the store; `None` if there is nothing to correct.

    What is missing is computed again under the write lock, so the same correction booked twice, also at once, is one.
    Raise as `preview_rerate` does, and Conflict if it is no longer what was previewed.
    """
    with database.session() as session, without_collections():
        question, calendars, rerated = _rerated(store, session, wish)
        preview = _preview(session, question, calendars, rerated)
    if not preview.entries and not wish.digest:
        return None, preview
    with database.session() as session, without_collections():
        entry = begin_change(session, author, "book.rerate", wish.card or "cards in force")
        preview = _preview(session, question, calendars, rerated)
        if not preview.entries or (wish.digest and wish.digest != preview.digest):
            raise Conflict(
                "the correction is no longer what was previewed: requests arrived, or another was booked meanwhile; "
                "preview it again",
                param="digest",
            )
        new = NewAdjustment(
            "rerate",
            datetime.combine(question.first, time.min, UTC),
            datetime.combine(question.after, time.min, UTC),
            wish.reason,
            question.tenant,
            question.model,
            wish.card,
        )
        is_proposal = wish.is_proposal or needs_two_people(session)
        row = write_adjustment(session, author, new, preview.entries, state="proposed" if is_proposal else "booked")
        entry.detail = adjustment_detail(row)
    if row.state == "booked":
        publish(store, database, author, row, preview.entries)
    return row, preview


def book_reversal(
    store: StoreClient, database: ControlDatabase, author: Author, adjustment_id: str, reason: str
) -> BookAdjustment:
    """Undo a booked adjustment and copy the counter-entries into the store. Raise as `reverse_adjustment` does."""
    with database.session() as session:
        state: AdjustmentState = "proposed" if needs_two_people(session) else "booked"
        row = reverse_adjustment(session, author, adjustment_id, reason, state=state)
        entries = entries_of(session, row.id)
    if state == "booked":
        publish(store, database, author, row, entries)
    return row


def publish(
    store: StoreClient, database: ControlDatabase, author: Author, row: BookAdjustment, entries: Sequence[Entry]
) -> None:
    """Copy a booked adjustment into the store and tell the budgets of its tenants.

    Raise StoreUnavailable: it is booked all the same, and the analytics process does the rest.
    """
    copy_adjustment(store, row, entries)
    tenants = frozenset(entry.group.tenant for entry in entries)
    BudgetActuals(database, store, lambda: author.at).write_due(tenants)


def adjustment_detail(row: BookAdjustment) -> dict[str, object]:
    """Return what the audit says of an adjustment."""
    return {
        "adjustment": row.id,
        "state": row.state,
        "amount_usd": format(row.amount_usd, "f"),
        "entries": row.entry_count,
        "card": row.card_version,
        "tenant": row.tenant_id,
        "reason": row.reason,
        "digest": row.digest,
    }


def _rerated(
    store: StoreClient, session: Session, wish: RerateWish
) -> tuple[RerateQuestion, Calendars, Mapping[EntryGroup, Rerated]]:
    cards = load_cards(session)
    question, calendars = wish.question, Calendars.load(session)
    if wish.card:
        question = replace(question, card=_card(wish.card, cards))
    return question, calendars, rerate(store, question, cards, calendars)


def _card(version: str, cards: Sequence[AnyCard]) -> AnyCard:
    found = next((card for card in cards if card.version == version), None)
    if found is None:
        raise NotFound(f"no card has the version {version!r}; GET /v1/prices of the control plane lists them")
    return found


def _preview(
    session: Session, question: RerateQuestion, calendars: Calendars, rerated: Mapping[EntryGroup, Rerated]
) -> Preview:
    # Of any calendar: a day more at either end.
    around = [datetime.combine(day, time.min, UTC) for day in (question.first, question.after)]
    booked = booked_effects(session, around[0] - timedelta(1), around[1] + timedelta(1), tenant=question.tenant)
    entries = entries_to_book(rerated, booked, calendars)
    refuse_closed(session, {(entry.group.tenant, entry.period) for entry in entries})
    by_line: defaultdict[tuple[str, str, str, str], list[Entry]] = defaultdict(list)
    for entry in entries:
        group = entry.group
        by_line[group.tenant, group.model, group.price_version, entry.period].append(entry)
    lines = tuple(_line(name, by_line[name], rerated, booked) for name in sorted(by_line))
    card, outside = question.card, 0
    if card is not None:
        outside = sum(rerated[one.group].requests for one in entries if not card.is_valid_at(one.group.used_at))
    return Preview(tuple(entries), lines, outside, "" if card is None else card.version)


def _line(
    name: tuple[str, str, str, str],
    entries: Sequence[Entry],
    rerated: Mapping[EntryGroup, Rerated],
    booked: Mapping[EntryGroup, Effect],
) -> PreviewLine:
    groups = [rerated[entry.group] for entry in entries]
    before = [booked[entry.group].amount_pico_usd for entry in entries if entry.group in booked]
    effect = Effect._make(map(sum, zip(*(entry.effect for entry in entries), strict=True)))
    recorded = sum(one.recorded_pico_usd for one in groups)
    return PreviewLine(*name, sum(one.requests for one in groups), recorded, sum(before), effect)
