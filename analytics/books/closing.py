"""Closes months: an invoice bills a month's usage and corrections; later records are billed by the next invoice.

For each month, the issued documents sum to the ledger, at the latest with the next invoice: an invoice bills the ledger
minus what earlier documents have billed, with separate lines for usage of other months.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

from sqlalchemy.orm import Session

from analytics.books.booking import publish
from analytics.books.calendars import Calendars, current_month, month_period
from analytics.books.documents import creditable, issue_cancellation, issue_credit_note, issue_invoice
from analytics.books.projection import copy_missing
from analytics.cost.question import CostQuestion
from analytics.cost.report import cost_report
from analytics.exports.charges import Charge
from analytics.exports.invoice import invoices
from analytics.exports.usage_export import charges_in
from backends.control.book_periods import (
    closed_periods,
    get_document,
    list_documents,
    needs_two_people,
    period_of,
    profile_of,
    refuse_closed,
    set_period,
)
from backends.control.books import (
    NewAdjustment,
    booked_amount,
    decide_adjustment,
    entries_of,
    proposed_in,
    write_adjustment,
)
from backends.control.changes import Author, begin_change
from backends.control.database import ControlDatabase
from backends.control.organisation import get_tenant, list_tenants
from backends.control.people import is_same_person
from backends.control.prices import load_cards
from backends.control.rates import load_rates
from backends.store.client import StoreClient
from contracts.access.person import person_of
from contracts.control import BookAdjustment, BookDocument, BookPeriod, Tenant
from contracts.errors import ConfigurationError, Conflict, InvalidRequest
from contracts.pricing.book_entries import Effect, Entry, EntryGroup
from contracts.pricing.money import pico_usd, usd
from contracts.pricing.rates import RateBook
from contracts.serving.rollouts import PLATFORM_TENANT

_LEVELS = ("tenant", "team", "project")
# How long closed months are checked for late usage: hourly rollups, needed for months in any time zone, last 90 days.
LATE_FOR = timedelta(days=85)


@dataclass(frozen=True, slots=True)
class ClosedMonth:
    """The result of closing one tenant's month. `document` is `None` if there was nothing to bill, or if the month
    stays open for the reason in `refused`."""

    tenant: str
    month: str
    document: BookDocument | None
    refused: str = ""


def close_month(
    store: StoreClient, database: ControlDatabase, author: Author, month: str, *, tenant: str = ""
) -> list[ClosedMonth]:
    """Close a month of one tenant, or of all that have not closed it yet, and issue the invoices.

    Each tenant's month is closed in its own transaction. For one tenant, raises InvalidRequest if the month is not
    over; Conflict if it is closed already, needs another person's review, its currency has no rate, or usage is still
    arriving; NotFound for an unknown tenant. For all tenants, errors are returned in `refused` instead.
    """
    with database.session() as session:
        copy_missing(session, store)
        calendars = Calendars.load(session)
        closed = closed_periods(session)
        known = [tenant] if tenant else [row.id for row in _all_tenants(session)]
        if tenant:
            get_tenant(session, tenant)
            refuse_if_closed(session, tenant, month)
        wanted = [name for name in known if (name, month) not in closed]
        cards, rates = load_cards(session), load_rates(session)
    by_zone: defaultdict[str, list[str]] = defaultdict(list)
    for name in wanted:
        by_zone[calendars.zone(name).key].append(name)
    done: list[ClosedMonth] = []
    for key, names in sorted(by_zone.items()):
        zone = ZoneInfo(key)
        period = month_period(month, zone)
        if author.at < period.end:
            too_early = InvalidRequest(
                f"{month} is over at {period.end.astimezone(zone):%Y-%m-%d %H:%M} ({key}); close it after that",
                param="month",
            )
            if tenant or len(by_zone) == 1:
                raise too_early
            done += [ClosedMonth(name, month, None, too_early.message) for name in names]
            continue
        question = CostQuestion(
            *(period.start, period.end, _LEVELS, None, zone), tenant=tenant or None, asked_at=author.at
        )
        charges: defaultdict[str, list[Charge]] = defaultdict(list)
        for charge in charges_in(store, question, cards):
            charges[charge.tenant].append(charge)
        months = {month, *_months_to_look_at(closed, names, month, zone, author.at)}
        ledger = {each: _ledger(store, each, zone, tenant, author.at) for each in sorted(months)}
        for name in names:
            try:
                with database.session() as session:
                    done.append(_close(session, author, name, month, zone, charges[name], ledger, rates))
            except (ConfigurationError, Conflict) as error:
                if tenant:
                    raise Conflict(error.message, param=error.param) from error
                done.append(ClosedMonth(name, month, None, error.message))
    return done


def usage_of_unknown_tenants(store: StoreClient, database: ControlDatabase, month: str, at: datetime) -> dict[str, int]:
    """Return a month's usage, in pico-USD, of names that are not tenants here, so that no invoice bills it.

    Such names come from gateways whose tenants are in a file. Raises InvalidRequest for an invalid month.
    """
    with database.session() as session:
        known = {PLATFORM_TENANT, *(row.id for row in _all_tenants(session))}
    found = _ledger(store, month, ZoneInfo("UTC"), "", at)
    return {name: amount for name, amount in sorted(found.items()) if amount and name not in known}


def refuse_if_closed(session: Session, tenant: str, month: str) -> None:
    """Raise Conflict if a tenant's month is closed already."""
    row = period_of(session, tenant, month)
    if row is not None and row.state == "closed":
        raise Conflict(
            f"{month} of {tenant} is closed already, by {row.invoice or 'no invoice'} on {row.changed_at:%Y-%m-%d}; "
            f"`tollkeeper books reopen {month} --tenant {tenant}` opens it again",
            param="month",
        )


def _close(
    session: Session,
    author: Author,
    tenant: str,
    month: str,
    zone: ZoneInfo,
    charges: Sequence[Charge],
    ledger: Mapping[str, Mapping[str, int]],
    rates: RateBook,
) -> ClosedMonth:
    entry = begin_change(session, author, "book.close", f"{tenant}/{month}")
    refuse_if_closed(session, tenant, month)
    row = period_of(session, tenant, month)
    is_reviewed = row is not None and row.state == "review" and not is_same_person(session, row.changed_by, author.name)
    if needs_two_people(session) and not is_reviewed:
        raise Conflict(
            f"{month} of {tenant} needs two people: one puts it into review (`tollkeeper books review {month} --tenant "
            f"{tenant}`), another closes it",
            param="month",
        )
    waiting = proposed_in(session, tenant, month)
    if waiting is not None:
        raise Conflict(
            f"correction {waiting} for {month} of {tenant} awaits approval, which a closed month excludes; approve or "
            f"reject it first (`tollkeeper books approve {waiting}`, `reject`)",
            param="month",
        )
    _check_complete(session, tenant, month, charges, ledger[month].get(tenant, 0))
    billed = _billed(list_documents(session, tenant=tenant))
    credited = sum(one.amount_pico_usd or 0 for one in charges if one.meter == "credit")
    net = sum(one.amount_pico_usd or 0 for one in charges) - credited
    # A later invoice may have billed a part of this month's usage, after it was closed the first time.
    before = billed.get(month, 0) - credited
    late = [(f"usage of {month} that other invoices have billed", -before)] if before else []
    by_month = {month: net - before}
    for other in sorted(ledger):
        arrived = ledger[other].get(tenant, 0) - billed.get(other, 0)
        is_closed = other != month and (tenant, other) in closed_periods(session, [tenant])
        if is_closed and arrived:
            late.append((f"usage of {other} that arrived after its invoice", arrived))
            by_month[other] = arrived
    profile = profile_of(session, tenant)
    made = invoices(
        charges,
        month_period(month, zone),
        "tenant",
        rates,
        profile.currency,
        zone=zone,
        tenant=tenant,
        as_of=author.at,
        late=late,
    )
    version = 1 if row is None else row.version + 1
    document = None
    if made:
        (invoice,) = made
        document = issue_invoice(session, author, invoice, zone, month, version, by_month)
    closed = set_period(session, author, tenant, month, "closed")
    closed.version, closed.invoice = version, "" if document is None else document.number
    entry.detail = {"invoice": closed.invoice, "version": version, **_detail(document)}
    return ClosedMonth(tenant, month, document)


def _check_complete(session: Session, tenant: str, month: str, charges: Iterable[Charge], ledger: int) -> None:
    """Raise Conflict if the reads of the store are inconsistent, because usage arrived or a correction was booked."""
    owed = list(charges)
    booked = booked_amount(session, tenant, month)
    copied = sum(one.amount_pico_usd or 0 for one in owed if one.is_booked)
    if sum(one.amount_pico_usd or 0 for one in owed) != ledger or booked != copied:
        raise Conflict(
            f"usage or corrections of {month} of {tenant} arrived while it was being closed; close it again",
            param="month",
        )


def _ledger(store: StoreClient, month: str, zone: ZoneInfo, tenant: str, at: datetime) -> dict[str, int]:
    period = month_period(month, zone)
    question = CostQuestion(period.start, period.end, ("tenant",), None, zone, tenant=tenant or None, asked_at=at)
    report = cost_report(store, question, stays_with_sums=True)
    return {line.path[0]: line.sums.priced_pico_usd for line in report.lines}


def _months_to_look_at(
    closed: Iterable[tuple[str, str]], tenants: Iterable[str], month: str, zone: ZoneInfo, at: datetime
) -> set[str]:
    """Return the earlier closed months to check for late usage, as (tenant, month)."""
    wanted = set(tenants)
    earlier = {other for tenant, other in closed if tenant in wanted and other < month}
    return {other for other in earlier if at - month_period(other, zone).start <= LATE_FOR}


def _billed(documents: Iterable[BookDocument]) -> dict[str, int]:
    """Return the billed usage by month, in pico-USD."""
    found: dict[str, int] = {}
    for document in documents:
        for month, amount in document.net_by_month.items():
            found[month] = found.get(month, 0) + pico_usd(Decimal(amount))
    return found


def review_month(database: ControlDatabase, author: Author, month: str, tenant: str, reason: str = "") -> BookPeriod:
    """Put a tenant's month into review. Raises NotFound for an unknown tenant, Conflict if the month is closed."""
    with database.session() as session:
        begin_change(session, author, "book.review", f"{tenant}/{month}")
        month_period(month, Calendars.load(session).zone(get_tenant(session, tenant).id))
        refuse_if_closed(session, tenant, month)
        return set_period(session, author, tenant, month, "review", reason)


def reopen_month(
    database: ControlDatabase, author: Author, month: str, tenant: str, reason: str
) -> tuple[BookPeriod, BookDocument | None]:
    """Reopen a closed month and cancel its invoice; if two people are required, a second person's call confirms it.

    Raises NotFound for an unknown tenant, InvalidRequest without a reason, Conflict if the month is not closed or the
    same person calls twice.
    """
    with database.session() as session:
        entry = begin_change(session, author, "book.reopen", f"{tenant}/{month}", {"reason": reason})
        get_tenant(session, tenant)
        if not reason.strip():
            raise InvalidRequest("give a reason; it is shown on the cancellation", param="reason")
        row = period_of(session, tenant, month)
        if row is None or row.state != "closed":
            raise Conflict(f"{month} of {tenant} is not closed", param="month")
        if needs_two_people(session) and row.wish != "reopen":
            row.wish, row.wished_by = "reopen", author.name
            entry.detail = {"reason": reason, "is_proposal": True}
            return row, None
        if needs_two_people(session) and is_same_person(session, row.wished_by, author.name):
            person = person_of(row.wished_by)
            raise Conflict(f"{person} asked for it; another person must reopen {month} of {tenant}", param="month")
        document, zone = None, Calendars.load(session).zone(tenant)
        if row.invoice:
            issued = get_document(session, row.invoice)
            document = issue_cancellation(session, author, issued, zone, reason)
        row = set_period(session, author, tenant, month, "draft", reason)
        row.invoice = ""
        entry.detail = {"reason": reason, **_detail(document)}
        return row, document


def credit_invoice(
    store: StoreClient, database: ControlDatabase, author: Author, number: str, amount: Decimal, reason: str
) -> tuple[BookAdjustment, BookDocument | None]:
    """Credit an amount in USD on an issued invoice: book an entry in the open month and issue a credit note.

    If two people are required, only a proposal is booked; the credit note is issued on approval. Raises NotFound,
    InvalidRequest for an amount of 0 or less, Conflict if it exceeds the rest of the invoice.
    """
    pico = _credit_amount(amount)
    with database.session() as session:
        entry = begin_change(session, author, "book.credit", number)
        issued = creditable(session, number, usd(pico))
        tenant, zone = issued.tenant_id, Calendars.load(session).zone(issued.tenant_id)
        month = current_month(zone, author.at)
        refuse_closed(session, [(tenant, month)])
        # Not before the month's start: the current hour may have started in the previous month.
        used_at = max(author.at.replace(minute=0, second=0, microsecond=0), month_period(month, zone).start)
        group = EntryGroup(tenant, "", "", "", "", "", "", used_at)
        new = NewAdjustment("credit", used_at, author.at, reason, tenant, invoice=number)
        line = Entry(group, Effect(-pico), 0, month)
        is_proposal = needs_two_people(session)
        row = write_adjustment(session, author, new, [line], state="proposed" if is_proposal else "booked")
        document = None if is_proposal else issue_credit_note(session, author, row, month, zone)
        entry.detail = {"adjustment": row.id, "amount_usd": format(row.amount_usd, "f"), **_detail(document)}
    if row.state == "booked":
        publish(store, database, author, row, [line])
    return row, document


def book_decision(
    store: StoreClient, database: ControlDatabase, author: Author, adjustment_id: str, *, is_approved: bool
) -> tuple[BookAdjustment, BookDocument | None]:
    """Book a proposal and copy it into the store, or reject it; for a credit, issue the credit note. Raises as
    `decide_adjustment` does."""
    with database.session() as session:
        row = decide_adjustment(session, author, adjustment_id, is_approved=is_approved)
        entries, document = entries_of(session, row.id), None
        if is_approved and row.kind == "credit":
            zone = Calendars.load(session).zone(row.tenant_id)
            document = issue_credit_note(session, author, row, entries[0].period, zone)
    if is_approved:
        publish(store, database, author, row, entries)
    return row, document


def _credit_amount(amount: Decimal) -> int:
    try:
        pico = pico_usd(amount)
    except ValueError as error:
        raise InvalidRequest(f"the amount of a credit is wrong: {error}", param="usd") from error
    if pico <= 0:
        raise InvalidRequest(f"the credit is {amount:f} USD; give an amount above 0", param="usd")
    return pico


def _detail(document: BookDocument | None) -> dict[str, object]:
    if document is None:
        return {}
    return {"document": document.number, "payable": format(document.payable, "f"), "digest": document.digest}


def _all_tenants(session: Session) -> Iterable[Tenant]:
    after = ""
    while True:
        page = list_tenants(session, after=after, limit=1_000)
        yield from (row for row in page if row.id != PLATFORM_TENANT)
        if len(page) < 1_000:
            return
        after = page[-1].id
