"""Adjustments of recorded costs in the control database: booked in one transaction with their audit entry, never
changed.

They are not in the store because it has no transactions: entries must be written once, all or none, with their author.
The store has a copy of booked entries (`analytics/books/projection.py`), which reports read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, cast

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from backends.control.book_periods import refuse_closed
from backends.control.changes import Author, begin_change
from backends.control.people import is_same_person
from backends.control.row_names import row_name
from contracts.access.person import person_of
from contracts.control import BookAdjustment, BookEntry
from contracts.errors import Conflict, InvalidRequest, NotFound
from contracts.pricing.book_entries import (
    OF_PRICE,
    REVERSAL_OF,
    AdjustmentKind,
    AdjustmentState,
    Effect,
    Entry,
    EntryGroup,
    entries_digest,
)
from contracts.pricing.money import pico_usd, usd
from contracts.recording.ids import uuid7
from contracts.recording.moments import unix_ns

_WRITTEN_AT_ONCE: Final = 5_000
# In the order of the fields of EntryGroup and Effect.
_GROUP_COLUMNS: Final = ("tenant_id", "team", "project", "key_id", "model", "provider", "price_version", "used_at")
_EFFECT_COLUMNS: Final = (
    "amount_usd",
    "unpriced_requests",
    "partly_unpriced_requests",
    "unpriced_input_tokens",
    "unpriced_output_tokens",
    "estimated_usd",
    "estimated_requests",
)
MAX_ENTRIES: Final = 500_000  # of one adjustment
MAX_REASON: Final = 500


@dataclass(frozen=True, slots=True)
class NewAdjustment:
    """A requested adjustment. `tenant` and `model` restrict it; empty: all."""

    kind: AdjustmentKind
    starts_at: datetime
    ends_at: datetime
    reason: str
    tenant: str = ""
    model: str = ""
    card_version: str = ""
    invoice: str = ""
    reverses: str | None = None


def booked_effects(session: Session, start: datetime, end: datetime, *, tenant: str = "") -> dict[EntryGroup, Effect]:
    """Return the sum of price corrections of usage in a range so far, by group; proposed ones are included."""
    # Columns instead of objects: a month of many keys has hundreds of thousands of entries.
    wanted = (
        select(*(getattr(BookEntry, name) for name in (*_GROUP_COLUMNS, *_EFFECT_COLUMNS)))
        .join(BookAdjustment)
        .where(
            BookEntry.used_at >= start,
            BookEntry.used_at < end,
            BookAdjustment.kind.in_(OF_PRICE),
            BookAdjustment.state != "rejected",
        )
    )
    if tenant:
        wanted = wanted.where(BookEntry.tenant_id == tenant)
    found: dict[EntryGroup, Effect] = {}
    of_group = len(_GROUP_COLUMNS)
    for row in session.connection().execute(wanted):
        group = EntryGroup(*row[:of_group])
        amount, unpriced, partly, tokens_in, tokens_out, estimated, estimated_requests = row[of_group:]
        effect = Effect(
            pico_usd(amount), unpriced, partly, tokens_in, tokens_out, pico_usd(estimated), estimated_requests
        )
        known = found.get(group)
        found[group] = effect if known is None else known + effect
    return found


def booked_amount(session: Session, tenant: str, period: str) -> int:
    """Return the sum of a tenant's booked entries that are billed in a month, in pico-USD."""
    wanted = (
        select(BookEntry.amount_usd)
        .join(BookAdjustment)
        .where(BookAdjustment.state == "booked", BookEntry.tenant_id == tenant, BookEntry.period == period)
    )
    return sum(pico_usd(amount) for (amount,) in session.connection().execute(wanted))


def proposed_in(session: Session, tenant: str, period: str) -> str | None:
    """Return an adjustment that awaits approval and would be billed to a tenant in a month; `None` if there is none."""
    wanted = (
        select(BookAdjustment.id)
        .join(BookEntry)
        .where(BookAdjustment.state == "proposed", BookEntry.tenant_id == tenant, BookEntry.period == period)
    )
    return session.scalar(wanted.order_by(BookAdjustment.id).limit(1))


def write_adjustment(
    session: Session, author: Author, new: NewAdjustment, entries: Sequence[Entry], *, state: AdjustmentState = "booked"
) -> BookAdjustment:
    """Write an adjustment with its entries. Call it within a change that `begin_change` has started.

    Raises InvalidRequest if there is no reason or there are too many entries.
    """
    reason = new.reason.strip()
    if not reason or len(reason) > MAX_REASON:
        raise InvalidRequest(
            f"the reason has {len(reason)} characters; give 1 to {MAX_REASON}: it is shown beside the correction",
            param="reason",
        )
    if len(entries) > MAX_ENTRIES:
        raise InvalidRequest(
            f"the correction has {len(entries)} entries, at most {MAX_ENTRIES} are booked at once; take a shorter "
            "range or one tenant",
            param="from",
        )
    row = BookAdjustment(
        id=f"adj_{uuid7(unix_ns(author.at)).hex}",
        kind=new.kind,
        state=state,
        tenant_id=new.tenant,
        model=new.model,
        starts_at=new.starts_at,
        ends_at=new.ends_at,
        card_version=new.card_version,
        invoice=new.invoice,
        reason=reason,
        author=author.name,
        created_at=author.at,
        reverses=new.reverses,
        entry_count=len(entries),
        amount_usd=usd(sum(entry.effect.amount_pico_usd for entry in entries)),
        digest=entries_digest(entries),
    )
    session.add(row)
    session.flush()
    values = [_values(row.id, number, entry) for number, entry in enumerate(entries, start=1)]
    for start in range(0, len(values), _WRITTEN_AT_ONCE):
        session.connection().execute(insert(BookEntry), values[start : start + _WRITTEN_AT_ONCE])
    return row


def get_adjustment(session: Session, adjustment_id: str, *, tenant: str = "") -> BookAdjustment:
    """Return an adjustment. Raise NotFound, also if it belongs to another tenant than `tenant`, if that is given."""
    row = session.get(BookAdjustment, adjustment_id)
    if row is None or (tenant and row.tenant_id != tenant):
        raise NotFound(
            f"there is no adjustment {adjustment_id!r}; `tollkeeper books adjustments` lists them",
            rows=[row_name(BookAdjustment, adjustment_id)],
        )
    return row


def list_adjustments(
    session: Session, *, tenant: str = "", after: str = "", limit: int = 100, newest_first: bool = False
) -> list[BookAdjustment]:
    """Return up to `limit` adjustments with ids after one, oldest first; those with entries of one tenant if named."""
    order = BookAdjustment.id.desc() if newest_first else BookAdjustment.id
    wanted = select(BookAdjustment).where(BookAdjustment.id > after).order_by(order).limit(limit)
    if tenant:
        of_tenant = select(BookEntry.adjustment_id).where(BookEntry.tenant_id == tenant)
        wanted = wanted.where(BookAdjustment.id.in_(of_tenant))
    return list(session.scalars(wanted))


def entries_of(session: Session, adjustment_id: str, *, tenant: str = "") -> list[Entry]:
    """Return the entries of an adjustment in their order; those of one tenant if named."""
    wanted = select(BookEntry).where(BookEntry.adjustment_id == adjustment_id).order_by(BookEntry.number)
    if tenant:
        wanted = wanted.where(BookEntry.tenant_id == tenant)
    return [entry_of(row) for row in session.scalars(wanted)]


def reverse_adjustment(
    session: Session, author: Author, adjustment_id: str, reason: str, *, state: AdjustmentState = "booked"
) -> BookAdjustment:
    """Undo a booked adjustment by a counter-entry for each of its entries.

    Raise NotFound, and Conflict if it is not booked, is itself a reversal, or was reversed before.
    """
    begin_change(session, author, "book.reverse", adjustment_id, {"reason": reason})
    row = get_adjustment(session, adjustment_id)
    kind = REVERSAL_OF.get(cast(AdjustmentKind, row.kind))
    if row.kind == "credit":
        raise Conflict(
            f"{adjustment_id} is a credit, for which a credit note was issued; a credit is not taken back", param="id"
        )
    if kind is None:
        raise Conflict(
            f"{adjustment_id} is a reversal of {row.reverses}; a reversal cannot be reversed: book the correction "
            "again",
            param="id",
        )
    if row.state != "booked":
        raise Conflict(f"{adjustment_id} is {row.state}, not booked; there is nothing to reverse", param="id")
    known = session.scalars(
        select(BookAdjustment).where(BookAdjustment.reverses == adjustment_id, BookAdjustment.state != "rejected")
    ).first()
    if known is not None:
        raise Conflict(f"{adjustment_id} is reversed already, by {known.id}", param="id")
    undone = [
        Entry(entry.group, -entry.effect, entry.requests, entry.period) for entry in entries_of(session, adjustment_id)
    ]
    refuse_closed(session, ((entry.group.tenant, entry.period) for entry in undone))
    new = NewAdjustment(
        kind,
        row.starts_at,
        row.ends_at,
        reason,
        row.tenant_id,
        row.model,
        row.card_version,
        row.invoice,
        adjustment_id,
    )
    return write_adjustment(session, author, new, undone, state=state)


def decide_adjustment(session: Session, author: Author, adjustment_id: str, *, is_approved: bool) -> BookAdjustment:
    """Book or reject a proposed adjustment.

    Raises NotFound, and Conflict if it is no longer proposed, or the approver is the person who proposed it.
    """
    action = "book.approve" if is_approved else "book.reject"
    begin_change(session, author, action, adjustment_id)
    row = get_adjustment(session, adjustment_id)
    if row.state != "proposed":
        raise Conflict(f"{adjustment_id} is {row.state} already", param="id")
    if is_approved and is_same_person(session, row.author, author.name):
        proposer = person_of(row.author)
        raise Conflict(f"{adjustment_id} was proposed by {proposer}; another person must approve it", param="id")
    if is_approved:
        months = (
            select(BookEntry.tenant_id, BookEntry.period).where(BookEntry.adjustment_id == adjustment_id).distinct()
        )
        refuse_closed(session, ((tenant, month) for tenant, month in session.execute(months)))
    row.state = "booked" if is_approved else "rejected"
    row.approved_by, row.approved_at = author.name, author.at
    if not is_approved:
        row.reverses = None  # so that it may be proposed again
    session.flush()
    return row


def booked_totals(session: Session) -> Mapping[str, BookAdjustment]:
    """Return all booked adjustments by id."""
    rows = session.scalars(select(BookAdjustment).where(BookAdjustment.state == "booked"))
    return {row.id: row for row in rows}


def group_of(row: BookEntry) -> EntryGroup:
    """Return a row's group of requests."""
    return EntryGroup(
        row.tenant_id, row.team, row.project, row.key_id, row.model, row.provider, row.price_version, row.used_at
    )


def effect_of(row: BookEntry) -> Effect:
    """Return a row's price correction."""
    return Effect(
        pico_usd(row.amount_usd),
        row.unpriced_requests,
        row.partly_unpriced_requests,
        row.unpriced_input_tokens,
        row.unpriced_output_tokens,
        pico_usd(row.estimated_usd),
        row.estimated_requests,
    )


def entry_of(row: BookEntry) -> Entry:
    """Build the entry in a row."""
    return Entry(group_of(row), effect_of(row), row.requests, row.period)


def _values(adjustment_id: str, number: int, entry: Entry) -> dict[str, object]:
    group, effect = entry.group, entry.effect
    return {
        "adjustment_id": adjustment_id,
        "number": number,
        "tenant_id": group.tenant,
        "team": group.team,
        "project": group.project,
        "key_id": group.key,
        "model": group.model,
        "provider": group.provider,
        "price_version": group.price_version,
        "used_at": group.used_at,
        "period": entry.period,
        "requests": entry.requests,
        "amount_usd": usd(effect.amount_pico_usd),
        "unpriced_requests": effect.unpriced_requests,
        "partly_unpriced_requests": effect.partly_unpriced_requests,
        "unpriced_input_tokens": effect.unpriced_input_tokens,
        "unpriced_output_tokens": effect.unpriced_output_tokens,
        "estimated_usd": usd(effect.estimated_pico_usd),
        "estimated_requests": effect.estimated_requests,
    }
