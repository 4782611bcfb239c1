"""Corrections of recorded cost: computed as a preview, booked in the control database and copied into the store."""

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
    """A request to rerate: which requests, why, and whether only to propose it. `card`: a card's version; "" means the
    cards valid at the time. `digest`: of a preview, which must match what is booked."""

    question: RerateQuestion
    card: str = ""
    reason: str = ""
    is_proposal: bool = False
    digest: str = ""


@dataclass(frozen=True, slots=True)
class PreviewLine:
    """The sum of a correction for one tenant, model and recorded price in one month. Money in pico-USD."""

    tenant: str
    model: str
    price_version: str
    period: str
    requests: int
    recorded_pico_usd: int
    booked_pico_usd: int  # sum of earlier corrections
    effect: Effect

    @property
    def net_pico_usd(self) -> int:
        """Return the requests' cost after the correction, in pico-USD."""
        return self.recorded_pico_usd + self.booked_pico_usd + self.effect.amount_pico_usd


@dataclass(frozen=True, slots=True)
class Preview:
    """A correction before it is booked: its entries, and their sums for display.

    `outside_validity`: number of requests in hours outside of the card's validity.
    """

    entries: tuple[Entry, ...]
    lines: tuple[PreviewLine, ...]
    outside_validity: int
    card: str = ""

    @property
    def digest(self) -> str:
        """Return the SHA-256 of the entries, as hexadecimal text."""
        return entries_digest(self.entries)

    @property
    def amount_pico_usd(self) -> int:
        """Return the sum of all entries in pico-USD."""
        return sum(entry.effect.amount_pico_usd for entry in self.entries)


def preview_rerate(store: StoreClient, database: ControlDatabase, wish: RerateWish) -> Preview:
    """Compute a correction without booking it. Raises NotFound for an unknown card, Conflict if a month is closed,
    InvalidRequest, StoreUnavailable."""
    with database.session() as session, without_collections():
        question, calendars, rerated = _rerated(store, session, wish)
        return _preview(session, question, calendars, rerated)


def book_rerate(
    store: StoreClient, database: ControlDatabase, author: Author, wish: RerateWish
) -> tuple[BookAdjustment | None, Preview]:
    """Book a correction and copy it into the store; the adjustment is `None` if there is nothing to correct.

    The missing amount is computed again under the write lock, so the same correction is never booked twice, even
    concurrently. Raises as `preview_rerate` does, and Conflict if it differs from the preview.
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
                "the correction differs from its preview: requests arrived, or another correction was booked; "
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
    """Undo a booked adjustment and copy the counter-entries into the store. Raises as `reverse_adjustment` does."""
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
    """Copy a booked adjustment into the store and update the budgets of its tenants.

    Raises StoreUnavailable; the adjustment is booked anyway, and the analytics process will copy it.
    """
    copy_adjustment(store, row, entries)
    tenants = frozenset(entry.group.tenant for entry in entries)
    BudgetActuals(database, store, lambda: author.at).write_due(tenants)


def adjustment_detail(row: BookAdjustment) -> dict[str, object]:
    """Return the details of an adjustment for its audit entry."""
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
    # One day more at either end, for all time zones.
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
