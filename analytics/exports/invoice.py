"""Monthly invoices: what a team (or a tenant) used, at which price, with its terms. Lines sum to totals."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, timedelta, tzinfo
from decimal import ROUND_HALF_EVEN, Decimal
from itertools import groupby
from typing import Final, Literal

from algorithms.gpu_time.attribution import split_exactly
from analytics.exports.charges import UNKNOWN_USAGE, Charge
from analytics.scope import Period
from contracts.errors import ConfigurationError
from contracts.pricing.money import PICO_USD_PER_USD, usd
from contracts.pricing.rates import BillingTerms, RateBook
from contracts.serving.rollouts import PLATFORM_TENANT

Level = Literal["team", "tenant"]
MICRO: Final = Decimal("0.000001")
CENT: Final = Decimal("0.01")


@dataclass(frozen=True, slots=True)
class InvoiceLine:
    """One meter of one model at one price. Amounts are in the invoice's currency; `None`: it has no price, or nobody
    knows what was used. What was counted by estimate is in lines of its own: all of their amount is `estimated`."""

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
    """One payer's month. `usage` is the sum of the lines, `adjustments` what the terms add or take, by name.

    `subtotal` is usage and adjustments to six places, `payable` the same to two. `unpriced_quantity` is how many tokens
    were used without a price, `unknown_usage_requests` how many requests are of unknown usage; neither is in a sum.
    `estimated` is the part of `usage` whose tokens were counted by estimate. `usd_rate` is how many units of the
    currency one USD was at the period's end.
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

    @property
    def estimated(self) -> Decimal:
        """Return the part of the usage whose tokens were counted by estimate."""
        return sum((line.estimated for line in self.lines), Decimal(0))

    @property
    def subtotal(self) -> Decimal:
        """Give usage and adjustments, to six places."""
        return self.usage + sum((amount for _, amount in self.adjustments), Decimal(0))

    @property
    def payable(self) -> Decimal:
        """Give what is to be paid, in hundredths of the currency."""
        return self.subtotal.quantize(CENT, ROUND_HALF_EVEN)


def invoices(
    charges: Iterable[Charge],
    period: Period,
    level: Level,
    rates: RateBook,
    currency: str = "USD",
    *,
    zone: tzinfo = UTC,
    tenant: str | None = None,
) -> list[Invoice]:
    """Make one invoice for each team (or tenant) with charges, in order; none of the platform's own.

    Free amounts and commitments are a tenant's, so they stand on its own invoice alone; a percentage stands on both.
    They are a month's, too: of a range that is no whole month of `zone` they are left out. A tenant that has committed
    to an amount and used nothing has an invoice of that amount; of `tenant` alone, where that is given. Raises
    ConfigurationError where the currency has no rate at the period's end.
    """
    is_month = _is_month(period, zone)
    last = period.end - timedelta(microseconds=1)
    rate = rates.currency(last, currency)
    if rate is None:
        raise ConfigurationError(
            f"{currency} has no rate on {last:%Y-%m-%d}; give one with POST /v1/rates, or invoice in USD"
        )

    def payer(charge: Charge) -> tuple[str, str]:
        return charge.tenant, charge.team if level == "team" else ""

    owing = sorted((charge for charge in charges if not _is_platforms(charge)), key=payer)
    by_payer = {name: list(owed) for name, owed in groupby(owing, key=payer)}
    if level == "tenant" and is_month:
        committed = (terms.subject for terms in rates.all_terms(last) if terms.committed_usd)
        for name in committed:
            if tenant in (None, name) and name != PLATFORM_TENANT:
                by_payer.setdefault((name, ""), [])
    made = []
    for (of_tenant, of_team), owed in sorted(by_payer.items(), key=lambda pair: pair[0]):
        terms = rates.terms(last, of_tenant)
        lines, usage = _lines(owed, rate.units_per_usd)
        made.append(
            Invoice(
                number=_number(period, zone, of_tenant, of_team, level),
                tenant=of_tenant,
                team=of_team,
                level=level,
                period=period,
                currency=currency,
                usd_rate=rate.units_per_usd,
                rate_version=rate.version,
                terms_version=terms.version if terms else "",
                lines=lines,
                usage=usage,
                adjustments=_adjustments(usage, terms, rate.units_per_usd, is_by_month=level == "tenant" and is_month),
                unpriced_quantity=_unpriced_tokens(owed),
                is_month=is_month,
                unknown_usage_requests=sum(charge.quantity for charge in owed if charge.meter == UNKNOWN_USAGE),
            )
        )
    return made


def not_invoiced(charges: Iterable[Charge]) -> tuple[int, int]:
    """Give what no invoice asks for: the platform's own requests, copies to a rollout's candidate.

    First what they cost in pico-USD, which with the invoices' usage makes what was spent; then how much they used
    without a price.
    """
    own = [charge for charge in charges if _is_platforms(charge)]
    return sum(charge.amount_pico_usd or 0 for charge in own), _unpriced_tokens(own)


def _unpriced_tokens(charges: Iterable[Charge]) -> int:
    unpriced = (one for one in charges if one.amount_pico_usd is None and one.meter != UNKNOWN_USAGE)
    return sum(charge.quantity for charge in unpriced)


def _is_platforms(charge: Charge) -> bool:
    return charge.tenant == PLATFORM_TENANT


def _is_month(period: Period, zone: tzinfo) -> bool:
    first, after = period.start.astimezone(zone), period.end.astimezone(zone)
    are_midnights = all((at.day, at.hour, at.minute, at.second) == (1, 0, 0, 0) for at in (first, after))
    return are_midnights and 12 * (after.year - first.year) + after.month - first.month == 1


def _number(period: Period, zone: tzinfo, tenant: str, team: str, level: Level) -> str:
    first, last = period.start.astimezone(zone), (period.end - timedelta(seconds=1)).astimezone(zone)
    # Of another range it says the days: two parts of a month must not have one number.
    name = f"{first:%Y-%m}" if _is_month(period, zone) else f"{first:%Y-%m-%d}--{last:%Y-%m-%d}"
    return "/".join((name, tenant or "-", *((team or "-",) if level == "team" else ())))


def _lines(charges: list[Charge], units_per_usd: Decimal) -> tuple[tuple[InvoiceLine, ...], Decimal]:
    """Round the sum once, and the lines so that they are its parts."""
    priced = [charge.amount_pico_usd or 0 for charge in charges]
    whole = Decimal(sum(priced)) / PICO_USD_PER_USD * units_per_usd
    usage = whole.quantize(MICRO, ROUND_HALF_EVEN)
    parts = split_exactly(int(usage / MICRO), [float(amount) for amount in priced])
    lines = tuple(
        InvoiceLine(
            charge.project,
            charge.model,
            charge.provider,
            charge.price_version,
            charge.meter,
            charge.quantity,
            None if charge.unit_pico_usd is None else usd(charge.unit_pico_usd),
            None if charge.amount_pico_usd is None else part * MICRO,
            part * MICRO if charge.is_estimated else Decimal(0),
            charge.is_estimated,
        )
        for charge, part in zip(charges, parts, strict=True)
    )
    return lines, usage


def _adjustments(
    usage: Decimal, terms: BillingTerms | None, units_per_usd: Decimal, *, is_by_month: bool
) -> tuple[tuple[str, Decimal], ...]:
    if terms is None:
        return ()
    found: list[tuple[str, Decimal]] = []
    due = usage
    if terms.percent:
        change = (usage * terms.percent / 100).quantize(MICRO, ROUND_HALF_EVEN)
        found.append((f"{'discount' if terms.percent < 0 else 'mark-up'} of {abs(terms.percent):f} %", change))
        due += change
    if is_by_month:
        free = min(due, (terms.free_usd * units_per_usd).quantize(MICRO, ROUND_HALF_EVEN))
        if free > 0:
            found.append((f"free tier of {terms.free_usd:f} USD", -free))
            due -= free
        missing = (terms.committed_usd * units_per_usd).quantize(MICRO, ROUND_HALF_EVEN) - due
        if missing > 0:
            found.append((f"commitment of {terms.committed_usd:f} USD", missing))
    return tuple(found)
