"""Monthly invoices of a team's (or tenant's) usage, prices and terms. Lines sum to totals."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, Decimal, localcontext
from fractions import Fraction
from itertools import groupby
from typing import Final, Literal

from analytics.exports.charges import CREDIT, UNKNOWN_USAGE, Charge
from analytics.scope import Period
from contracts.errors import ConfigurationError
from contracts.metering.usage import UNIT_LEAVES
from contracts.pricing.money import PICO_USD_PER_USD, usd
from contracts.pricing.rates import BillingTerms, CurrencyRate, RateBook
from contracts.serving.rollouts import PLATFORM_TENANT

Level = Literal["team", "tenant"]


@dataclass(frozen=True, slots=True)
class Party:
    """The issuer or recipient of an invoice: legal name, address lines, tax number."""

    name: str
    address: tuple[str, ...] = ()
    tax_id: str = ""


@dataclass(frozen=True, slots=True)
class Issue:
    """The data that an issued document has and a draft lacks. `taxes` are (name, percent, amount).

    `corrects` is the invoice that a credit note or cancellation is about. `credit_notes` were issued in the month and
    are not part of the invoice.
    """

    number: str
    title: str
    issued_on: date
    due_on: date | None
    seller: Party
    buyer: Party
    purchase_order: str
    taxes: tuple[tuple[str, Decimal, Decimal], ...]
    version: int
    corrects: str = ""
    reason: str = ""

    @property
    def tax(self) -> Decimal:
        """Return the sum of all taxes."""
        return sum((amount for _, _, amount in self.taxes), Decimal(0))


MICRO: Final = Decimal("0.000001")
CENT: Final = Decimal("0.01")


@dataclass(frozen=True, slots=True)
class InvoiceLine:
    """One meter of one model at one price. Amounts are in the invoice's currency; `None`: no price, or unknown usage.
    Estimated usage has separate lines, whose whole amount is `estimated`."""

    project: str
    model: str
    provider: str
    price_version: str
    meter: str
    quantity: int
    unit_usd: Decimal | None  # per token or request
    amount: Decimal | None
    estimated: Decimal = Decimal(0)
    is_estimated: bool = False


@dataclass(frozen=True, slots=True)
class Invoice:
    """One payer's month. `usage` is the sum of the lines, `corrections` are entries booked later, by name, and
    `adjustments` are what the terms add or subtract, by name.

    `subtotal` is their sum to six decimal places, `payable` to two. `unpriced_quantity` is the number of tokens
    without a price, `unknown_usage_requests` the number of requests of unknown usage; neither is in a sum.
    `estimated` is the part of `usage` whose tokens were estimated. `usd_rate` is the units of the currency per USD at
    the period's end.
    """

    number: str
    tenant: str
    team: str
    level: Level
    period: Period
    currency: str
    usd_rate: Decimal
    rate_version: str
    terms_version: str
    lines: tuple[InvoiceLine, ...]
    usage: Decimal
    adjustments: tuple[tuple[str, Decimal], ...]
    unpriced_quantity: int
    is_month: bool = True
    unknown_usage_requests: int = 0
    corrections: tuple[tuple[str, Decimal], ...] = ()
    priced_since: frozenset[str] = frozenset()  # models whose unpriced usage is all billed by corrections
    net_pico_usd: int = 0  # usage and corrections, before currency conversion, terms and rounding
    share: Fraction = Fraction(1)  # of the month, for free amounts and commitments

    @property
    def net(self) -> Decimal:
        """Return usage and corrections, to six decimal places."""
        return self.usage + sum((amount for _, amount in self.corrections), Decimal(0))

    @property
    def estimated(self) -> Decimal:
        """Return the part of the usage whose tokens were estimated."""
        return sum((line.estimated for line in self.lines), Decimal(0))

    @property
    def subtotal(self) -> Decimal:
        """Return usage, corrections and adjustments, to six decimal places."""
        return self.net + sum((amount for _, amount in self.adjustments), Decimal(0))

    @property
    def payable(self) -> Decimal:
        """Return the amount to pay, rounded to hundredths of the currency."""
        return self.subtotal.quantize(CENT, ROUND_HALF_EVEN)


def invoices(
    charges: Iterable[Charge],
    period: Period,
    level: Level,
    rates: RateBook,
    currency: str | Mapping[str, str] = "USD",
    *,
    zone: tzinfo = UTC,
    tenant: str | None = None,
    as_of: datetime | None = None,
    late: Sequence[tuple[str, int]] = (),
) -> list[Invoice]:
    """Return one invoice for each team (or tenant) with charges, in order; the installation's own usage has none.

    Free amounts and commitments are on tenants' invoices only, and only if the range is a whole month of `zone`;
    percentages are on teams' invoices too. A tenant with a commitment and no usage gets an invoice of the commitment
    (only `tenant`, if given). `as_of` within the month prorates free amounts and commitments to the days so far. `late`
    are named amounts (pico-USD) of usage of closed months that arrived later; they need `tenant`. Credits have separate
    documents. `currency` is one for all, or by tenant (default USD). Raises ConfigurationError if a currency has no
    rate at the period's end.
    """
    is_month = _is_month(period, zone)
    last = period.end - timedelta(microseconds=1)

    def payer(charge: Charge) -> tuple[str, str]:
        return charge.tenant, charge.team if level == "team" else ""

    owing = sorted((one for one in charges if not _is_platforms(one) and one.meter != CREDIT), key=payer)
    by_payer = {name: list(owed) for name, owed in groupby(owing, key=payer)}
    if late and tenant is not None:
        by_payer.setdefault((tenant, ""), [])
    share = _share(period, as_of)
    terms_share = share if level == "tenant" and is_month else None
    if level == "tenant" and is_month:
        committed = (terms.subject for terms in rates.all_terms(last) if terms.committed_usd)
        for name in committed:
            if tenant in (None, name) and name != PLATFORM_TENANT:
                by_payer.setdefault((name, ""), [])
    made = []
    for (of_tenant, of_team), owed in sorted(by_payer.items(), key=lambda pair: pair[0]):
        terms = rates.terms(last, of_tenant)
        code = currency if isinstance(currency, str) else currency.get(of_tenant, "USD")
        rate = rate_at_end(rates, period, code)
        booked = [charge for charge in owed if charge.is_booked]
        recorded = [one for one in owed if not one.is_booked]
        lines, usage, corrections = _lines(recorded, booked, late, rate.units_per_usd)
        net = usage + sum((amount for _, amount in corrections), Decimal(0))
        made.append(
            Invoice(
                number=_number(period, zone, of_tenant, of_team, level),
                tenant=of_tenant,
                team=of_team,
                level=level,
                period=period,
                currency=code,
                usd_rate=rate.units_per_usd,
                rate_version=rate.version,
                terms_version=terms.version if terms else "",
                lines=lines,
                usage=usage,
                adjustments=_adjustments(net, terms, rate.units_per_usd, share=terms_share),
                unpriced_quantity=_unpriced_tokens(owed),
                is_month=is_month,
                unknown_usage_requests=sum(charge.quantity for charge in owed if charge.meter == UNKNOWN_USAGE),
                corrections=corrections,
                priced_since=frozenset(model for model, tokens in _unpriced_by_model(owed).items() if tokens <= 0),
                net_pico_usd=sum(charge.amount_pico_usd or 0 for charge in owed) + sum(amount for _, amount in late),
                share=share,
            )
        )
    return made


def rate_at_end(rates: RateBook, period: Period, currency: str) -> CurrencyRate:
    """Return a currency's rate at a period's last moment. Raises ConfigurationError if it has none."""
    last = period.end - timedelta(microseconds=1)
    rate = rates.currency(last, currency)
    if rate is None:
        raise ConfigurationError(
            f"{currency} has no rate on {last:%Y-%m-%d}; give one with POST /v1/rates, or invoice in USD"
        )
    return rate


def not_invoiced(charges: Iterable[Charge]) -> tuple[int, int]:
    """Return the usage that is on no invoice (the installation's own requests, copies to a rollout's candidate).

    First its cost in pico-USD, which with the invoices' usage sums to all spending; then its number of unpriced tokens.
    """
    own = [charge for charge in charges if _is_platforms(charge)]
    return sum(charge.amount_pico_usd or 0 for charge in own), _unpriced_tokens(own)


def _unpriced_tokens(charges: Iterable[Charge]) -> int:
    return sum(_unpriced_by_model(charges).values())


def _unpriced_by_model(charges: Iterable[Charge]) -> dict[str, int]:
    """Return the number of unpriced tokens by model, without those that corrections priced."""
    found: dict[str, int] = {}
    for one in charges:
        is_tokens = one.meter != UNKNOWN_USAGE and one.meter not in UNIT_LEAVES
        tokens = one.quantity if one.amount_pico_usd is None and is_tokens else 0
        found[one.model] = found.get(one.model, 0) + tokens - one.newly_priced_tokens
    return found


def _is_platforms(charge: Charge) -> bool:
    return charge.tenant == PLATFORM_TENANT


def _is_month(period: Period, zone: tzinfo) -> bool:
    first, after = period.start.astimezone(zone), period.end.astimezone(zone)
    are_midnights = all((at.day, at.hour, at.minute, at.second) == (1, 0, 0, 0) for at in (first, after))
    return are_midnights and 12 * (after.year - first.year) + after.month - first.month == 1


def _number(period: Period, zone: tzinfo, tenant: str, team: str, level: Level) -> str:
    first, last = period.start.astimezone(zone), (period.end - timedelta(seconds=1)).astimezone(zone)
    # For other ranges the number has the days: two parts of a month must not have the same number.
    name = f"{first:%Y-%m}" if _is_month(period, zone) else f"{first:%Y-%m-%d}--{last:%Y-%m-%d}"
    return "/".join((name, tenant or "-", *((team or "-",) if level == "team" else ())))


def _lines(
    charges: list[Charge], booked: list[Charge], late: Sequence[tuple[str, int]], units_per_usd: Decimal
) -> tuple[tuple[InvoiceLine, ...], Decimal, tuple[tuple[str, Decimal], ...]]:
    """Round the net sum, and round lines and corrections so that they sum to it."""
    names = [correction_name(charge) for charge in booked]
    summed: dict[str, int] = {}
    for name, charge in zip(names, booked, strict=True):
        summed[name] = summed.get(name, 0) + (charge.amount_pico_usd or 0)
    for name, amount in late:
        summed[name] = summed.get(name, 0) + amount
    amounts = [*(charge.amount_pico_usd or 0 for charge in charges), *summed.values()]
    parts = rounded_parts(amounts, units_per_usd)
    lines = tuple(
        InvoiceLine(
            charge.project,
            charge.model,
            charge.provider,
            charge.price_version,
            charge.meter,
            charge.quantity,
            None if charge.unit_pico_usd is None else usd(charge.unit_pico_usd),
            None if charge.amount_pico_usd is None else part,
            part if charge.is_estimated else Decimal(0),
            charge.is_estimated,
        )
        for charge, part in zip(charges, parts[: len(charges)], strict=True)
    )
    usage = sum(parts[: len(charges)], Decimal(0))
    return lines, usage, tuple(zip(summed, parts[len(charges) :], strict=True))


def correction_name(charge: Charge) -> str:
    """Return the name of a booked charge on an invoice."""
    by = f" by price card {charge.card}" if charge.card else ""
    return f"price correction of {charge.model or 'usage'}{by} ({charge.adjustment})"


def rounded_parts(amounts_pico_usd: Sequence[int], units_per_usd: Decimal) -> list[Decimal]:
    """Convert amounts to a currency with six decimal places, by largest remainder: they add up to the rounded sum.

    Amounts may be negative. 0 remains 0.
    """
    with localcontext(prec=60):
        exact = [Decimal(amount) / PICO_USD_PER_USD * units_per_usd / MICRO for amount in amounts_pico_usd]
        whole = int(sum(exact, Decimal(0)).to_integral_value(ROUND_HALF_EVEN))
        parts = [int(each.to_integral_value(ROUND_FLOOR)) for each in exact]
        odd = whole - sum(parts)
        order = sorted(range(len(parts)), key=lambda place: (exact[place] - parts[place], place), reverse=True)
        for place in order[:odd]:
            parts[place] += 1
        return [part * MICRO for part in parts]


def _adjustments(
    usage: Decimal, terms: BillingTerms | None, units_per_usd: Decimal, *, share: Fraction | None
) -> tuple[tuple[str, Decimal], ...]:
    if terms is None:
        return ()
    found: list[tuple[str, Decimal]] = []
    due = usage
    if terms.percent:
        change = (usage * terms.percent / 100).quantize(MICRO, ROUND_HALF_EVEN)
        found.append((f"{'discount' if terms.percent < 0 else 'mark-up'} of {abs(terms.percent):f} %", change))
        due += change
    if share is not None:
        part = "" if share == 1 else f", {float(share):.1%} of the month so far"
        free = min(due, _in_currency(terms.free_usd, units_per_usd, share))
        if free > 0:
            found.append((f"free tier of {terms.free_usd:f} USD{part}", -free))
            due -= free
        missing = _in_currency(terms.committed_usd, units_per_usd, share) - due
        if missing > 0:
            found.append((f"commitment of {terms.committed_usd:f} USD{part}", missing))
    return tuple(found)


def _in_currency(amount_usd: Decimal, units_per_usd: Decimal, share: Fraction) -> Decimal:
    with localcontext(prec=60):
        whole = amount_usd * units_per_usd * share.numerator / share.denominator
        return whole.quantize(MICRO, ROUND_HALF_EVEN)


def _share(period: Period, as_of: datetime | None) -> Fraction:
    """Return the elapsed share of a period at `as_of`, by whole seconds; 1 without a time."""
    if as_of is None or as_of >= period.end:
        return Fraction(1)
    elapsed = max(int(as_of.timestamp()) - period.start_s, 0)
    return Fraction(elapsed, period.end_s - period.start_s)
