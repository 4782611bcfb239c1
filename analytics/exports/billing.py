"""Determines the document and currency of charges, and the amounts on documents besides usage (terms, taxes)."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from typing import Final
from zoneinfo import ZoneInfo

from sqlalchemy.orm import Session

from analytics.books.calendars import Calendars
from analytics.exports.charges import CREDIT, Charge
from analytics.exports.invoice import invoices, rate_at_end
from analytics.scope import Period
from backends.control.book_periods import closed_periods, list_profiles, unpaged_documents
from backends.control.rates import load_rates
from contracts.control import BookDocument
from contracts.pricing.money import pico_usd
from contracts.pricing.rates import RateBook
from contracts.serving.rollouts import PLATFORM_TENANT

DISCOUNT, FREE_TIER, COMMITMENT = "discount", "free_tier", "commitment"  # names of amounts from a tenant's terms
TAX, ROUNDING, LATE = "tax", "rounding", "late_usage"
EXTRAS: Final = frozenset({DISCOUNT, FREE_TIER, COMMITMENT, TAX, ROUNDING, LATE})
PRECISE: Final = Decimal("1e-12")
_TERMS: Final = (("free tier", FREE_TIER), ("commitment", COMMITMENT))


@dataclass(frozen=True, slots=True)
class Extra:
    """An amount on a document besides usage and corrections, in its currency."""

    kind: str
    name: str
    amount: Decimal


@dataclass(frozen=True, slots=True)
class Billed:
    """The document that charges are on, and its currency. `usd_rate`: units of the currency per USD.

    `own_pico_usd`: the part of an issued invoice for its own month's usage.
    """

    number: str
    currency: str = "USD"
    usd_rate: Decimal = Decimal(1)
    extras: tuple[Extra, ...] = ()
    own_pico_usd: int = 0

    def in_currency(self, amount_usd: Decimal) -> Decimal:
        """Return an amount in the document's currency, to twelve places."""
        if self.usd_rate == 1:
            return amount_usd
        with localcontext(prec=60):
            return (amount_usd * self.usd_rate).quantize(PRECISE, ROUND_HALF_EVEN)

    def in_usd(self, amount: Decimal) -> Decimal:
        """Return an amount of the document's currency in USD, to twelve places."""
        with localcontext(prec=60):
            return (amount / self.usd_rate).quantize(PRECISE, ROUND_HALF_EVEN)


@dataclass(frozen=True, slots=True)
class Billing:
    """The issued documents, and the data for drafts. An empty one bills everything by drafts in USD.

    `months`: closed months by (tenant, month). `credit_notes`: by adjustment. `others`: by (tenant, month), the
    pico-USD of the month's usage that other invoices bill. `has_extras` is false if only some of the tenants' charges
    are exported, because terms, taxes and rounding apply to whole invoices.
    """

    months: Mapping[tuple[str, str], Billed] = field(default_factory=dict)
    credit_notes: Mapping[str, Billed] = field(default_factory=dict)
    others: Mapping[tuple[str, str], tuple[tuple[Billed, int], ...]] = field(default_factory=dict)
    currencies: Mapping[str, str] = field(default_factory=dict)
    calendars: Calendars = field(default_factory=lambda: Calendars({}))
    rates: RateBook = field(default_factory=RateBook)
    as_of: datetime | None = None
    tenant: str = ""
    has_extras: bool = False

    def of(self, charge: Charge, month: Period, name: str, account: str) -> Billed:
        """Return the document of a charge of a month (`name`: such as 2026-11); if none is issued, the draft of
        `account`.

        Raises ConfigurationError if the account's currency has no rate at the month's end.
        """
        if charge.meter == CREDIT and charge.adjustment in self.credit_notes:
            return self.credit_notes[charge.adjustment]
        return self.months.get((charge.tenant, name)) or self.draft(charge.tenant, month, name, account)

    def draft(self, tenant: str, month: Period, name: str, account: str) -> Billed:
        """Return an account's draft, without extras. Raises ConfigurationError if its currency has no rate."""
        currency = self.currencies.get(tenant, "USD")
        return Billed(f"draft {name}/{account}", currency, rate_at_end(self.rates, month, currency).units_per_usd)

    def with_extras(self, tenant: str, month: Period, name: str, charges: Iterable[Charge], zone: ZoneInfo) -> Billed:
        """Return the document of a tenant's month: its invoice, or its draft with the amounts of its terms so far.

        Raises as `draft` does.
        """
        issued = self.months.get((tenant, name))
        if issued is not None:
            return issued
        draft = self.draft(tenant, month, name, tenant)
        made = invoices(
            charges, month, "tenant", self.rates, draft.currency, zone=zone, tenant=tenant, as_of=self.as_of
        )
        terms = made[0].adjustments if made else ()
        extras = tuple(Extra(_kind(text), text, amount) for text, amount in terms)
        return replace(draft, extras=extras)

    def tenants_of(self, name: str, month: Period, charges: Iterable[Charge]) -> list[str]:
        """Return the tenants with charges, a document or a commitment in a month, sorted."""
        found = {charge.tenant for charge in charges} | {tenant for tenant, of in self.months if of == name}
        last = month.end - timedelta(microseconds=1)
        found |= {terms.subject for terms in self.rates.all_terms(last) if terms.committed_usd}
        found |= {tenant for tenant, of in self.others if of == name}
        found -= {"", PLATFORM_TENANT}
        return sorted(found & {self.tenant} if self.tenant else found)


def load_billing(session: Session, as_of: datetime, *, tenant: str = "", has_extras: bool = True) -> Billing:
    """Read the issued documents and the data for drafts, of all tenants or of one."""
    documents = unpaged_documents(session, tenant=tenant)
    cancelled = {one.corrects for one in documents if one.kind == "cancellation"}
    standing = [one for one in documents if one.kind != "cancellation" and one.number not in cancelled]
    by_number = {one.number: _billed(one) for one in standing}
    months = {
        name: by_number[number]
        for name, number in closed_periods(session, (tenant,) if tenant else ()).items()
        if number
    }
    others: defaultdict[tuple[str, str], list[tuple[Billed, int]]] = defaultdict(list)
    for one in standing:
        for month, amount in one.net_by_month.items():
            own = months.get((one.tenant_id, month))
            if one.kind == "invoice" and (own is None or own.number != one.number) and Decimal(amount):
                others[one.tenant_id, month].append((by_number[one.number], pico_usd(Decimal(amount))))
    return Billing(
        months,
        {one.adjustment_id: by_number[one.number] for one in standing if one.kind == "credit_note"},
        {name: tuple(parts) for name, parts in others.items()},
        {row.tenant_id: row.currency for row in list_profiles(session)},
        Calendars.load(session),
        load_rates(session),
        as_of,
        tenant,
        has_extras,
    )


def _billed(one: BookDocument) -> Billed:
    """Return a document with its extras; these and the exact usage sum to the payable amount."""
    extras = [Extra(_kind(text), text, Decimal(amount)) for text, amount in one.terms]
    extras += [Extra(TAX, f"{name} {percent} %", Decimal(amount)) for name, percent, amount in one.taxes]
    own = pico_usd(Decimal(one.net_by_month.get(one.month, "0")))
    bare = Billed(one.number, one.currency, one.usd_rate, own_pico_usd=own)
    asked = bare.in_currency(one.net_usd) + sum((extra.amount for extra in extras), Decimal(0))
    if one.payable != asked:
        extras.append(Extra(ROUNDING, f"rounding of {one.number} to hundredths", one.payable - asked))
    return replace(bare, extras=tuple(extras))


def _kind(name: str) -> str:
    return next((kind for begins, kind in _TERMS if name.startswith(begins)), DISCOUNT)


def moved_parts(
    billing: Billing, tenant: str, name: str, own: Billed, charges: Sequence[Charge], zone: ZoneInfo
) -> list[tuple[Billed, int]]:
    """Return the parts of a month's usage on other documents, as (document, pico-USD) pairs that sum to 0.

    Usage of a closed month that no invoice has billed yet is on the next one; included only if the charges are for
    months in the tenant's own time zone.
    """
    parts = list(billing.others.get((tenant, name), ()))
    if (tenant, name) in billing.months and billing.calendars.zone(tenant) == zone:
        used = sum(one.amount_pico_usd or 0 for one in charges if one.meter != CREDIT)
        billed = sum(amount for _, amount in parts) + own.own_pico_usd
        parts.append((Billed(f"draft next/{tenant}", own.currency, own.usd_rate), used - billed))
    return [pair for other, amount in parts if amount for pair in ((other, amount), (own, -amount))]
