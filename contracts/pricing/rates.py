"""Dated rates for computing costs: the cost of a GPU hour, the value of a currency, a tenant's terms (discount,
minimum).

Like price cards they are immutable and versioned; one ends, and the next starts. Money is integer pico-USD.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import Final, Literal

from contracts.errors import ConfigurationError
from contracts.pricing.money import pico_usd

RateKind = Literal["gpu", "currency", "terms"]
Ownership = Literal["owned", "reserved", "spot", "on_demand"]
RATE_KINDS: Final[tuple[RateKind, ...]] = ("gpu", "currency", "terms")
_OWNERSHIPS: Final = ("owned", "reserved", "spot", "on_demand")
_WATTS_PER_KILOWATT: Final = 1000


@dataclass(frozen=True, slots=True)
class Rate:
    """The common fields of all rates. `subject` is a GPU's model or UUID, a currency's ISO 4217 code or a tenant."""

    version: str
    subject: str
    valid_from: datetime
    valid_to: datetime | None

    def is_valid_at(self, moment: datetime) -> bool:
        """Return whether the rate is valid at this time (UTC)."""
        return self.valid_from <= moment and (self.valid_to is None or moment < self.valid_to)


@dataclass(frozen=True, slots=True)
class GpuRate(Rate):
    """The cost of one GPU hour: hardware or rent, power, and a share of overhead.

    An empty subject applies to every GPU without its own rate. `power_watts` cost `usd_per_kwh` times the power usage
    effectiveness of the room; `overhead_usd_per_hour` is the share of network, racks and staff.
    """

    ownership: Ownership
    usd_per_hour: Decimal
    power_watts: Decimal = Decimal(0)
    usd_per_kwh: Decimal = Decimal(0)
    power_usage_effectiveness: Decimal = Decimal(1)
    overhead_usd_per_hour: Decimal = Decimal(0)

    @property
    def pico_usd_per_hour(self) -> int:
        """Return the total rate, rounded to a pico-USD."""
        power = self.power_watts / _WATTS_PER_KILOWATT * self.usd_per_kwh * self.power_usage_effectiveness
        whole = self.usd_per_hour + power + self.overhead_usd_per_hour
        return pico_usd(whole.quantize(Decimal("1e-12"), ROUND_HALF_EVEN))


@dataclass(frozen=True, slots=True)
class CurrencyRate(Rate):
    """The exchange rate of a currency, in units per USD."""

    units_per_usd: Decimal


@dataclass(frozen=True, slots=True)
class BillingTerms(Rate):
    """A tenant's invoice terms, applied to the price of its usage in this order.

    `percent` is subtracted from (-10) or added to (15) everything; the first `free_usd` are free; a remainder below
    `committed_usd` is raised to it.
    """

    percent: Decimal = Decimal(0)
    free_usd: Decimal = Decimal(0)
    committed_usd: Decimal = Decimal(0)


AnyRate = GpuRate | CurrencyRate | BillingTerms

_FIELDS: Final[Mapping[RateKind, tuple[str, ...]]] = {
    "gpu": (
        "ownership",
        "usd_per_hour",
        "power_watts",
        "usd_per_kwh",
        "power_usage_effectiveness",
        "overhead_usd_per_hour",
    ),
    "currency": ("units_per_usd",),
    "terms": ("percent", "free_usd", "committed_usd"),
}
_REQUIRED: Final[Mapping[RateKind, tuple[str, ...]]] = {
    "gpu": ("ownership", "usd_per_hour"),
    "currency": ("units_per_usd",),
    "terms": (),
}


def rate_of(
    kind: str,
    version: str,
    subject: str,
    values: Mapping[str, object],
    valid_from: datetime,
    valid_to: datetime | None = None,
) -> AnyRate:
    """Build a rate from its written values: numbers as decimal text. Raises ConfigurationError naming the field at
    fault.
    """
    if kind not in RATE_KINDS:
        raise ConfigurationError(f"{kind!r} is not a kind of rate; choose one of {', '.join(RATE_KINDS)}")
    known = kind
    _check_validity(version, valid_from, valid_to)
    unknown = sorted(set(values) - set(_FIELDS[known]))
    if unknown:
        raise ConfigurationError(
            f"rate {version!r} has no value {unknown[0]!r}; it may have {', '.join(_FIELDS[known])}"
        )
    missing = [name for name in _REQUIRED[known] if name not in values]
    if missing:
        raise ConfigurationError(f"rate {version!r} needs {missing[0]!r}")
    if known == "gpu":
        ownership = values["ownership"]
        if ownership not in _OWNERSHIPS:
            raise ConfigurationError(f"rate {version!r}: ownership is one of {', '.join(_OWNERSHIPS)}")
        numbers = {name: _number(version, name, values[name]) for name in values if name != "ownership"}
        return GpuRate(version, subject, valid_from, valid_to, ownership, **numbers)
    if not subject:
        raise ConfigurationError(f"rate {version!r} needs a subject: a currency's code, or a tenant")
    numbers = {name: _number(version, name, values[name], is_signed=name == "percent") for name in values}
    if known == "currency":
        if not numbers["units_per_usd"]:
            raise ConfigurationError(f"rate {version!r}: units_per_usd must be above 0")
        return CurrencyRate(version, subject.upper(), valid_from, valid_to, **numbers)
    if numbers.get("percent", 0) < -100:
        raise ConfigurationError(f"rate {version!r}: percent must be at least -100")
    return BillingTerms(version, subject, valid_from, valid_to, **numbers)


def _number(version: str, name: str, written: object, *, is_signed: bool = False) -> Decimal:
    try:
        number = Decimal(str(written))
    except InvalidOperation as error:
        raise ConfigurationError(f"rate {version!r}: {name} must be a number, not {written!r}") from error
    if not number.is_finite() or abs(number) >= Decimal("1e9") or (number < 0 and not is_signed):
        raise ConfigurationError(f"rate {version!r}: {name} must be a number from 0 to 10^9, not {written!r}")
    return number


def _check_validity(version: str, valid_from: datetime, valid_to: datetime | None) -> None:
    for name, moment in (("valid_from", valid_from), ("valid_to", valid_to)):
        if moment is not None and moment.utcoffset() is None:
            raise ConfigurationError(f"rate {version!r}: {name} needs a time zone, use UTC")
    if valid_to is not None and valid_to <= valid_from:
        raise ConfigurationError(f"rate {version!r} ends ({valid_to}) before it begins ({valid_from})")


class RateBook:
    """All rates, found by subject and time. Raises ConfigurationError if two of one subject are valid at once."""

    def __init__(self, rates: Iterable[AnyRate] = ()) -> None:
        self._rates: dict[tuple[type[Rate], str], list[AnyRate]] = {}
        for rate in rates:
            self._rates.setdefault((type(rate), rate.subject), []).append(rate)
        for of_one in self._rates.values():
            of_one.sort(key=lambda rate: rate.valid_from)
            for earlier, later in zip(of_one, of_one[1:], strict=False):
                if earlier.valid_to is None or earlier.valid_to > later.valid_from:
                    raise ConfigurationError(
                        f"rates {earlier.version!r} and {later.version!r} of {earlier.subject or 'every GPU'!r} "
                        f"overlap; end the first with valid_to <= {later.valid_from.isoformat()}"
                    )

    def gpu(self, moment: datetime, *subjects: str, or_any: bool = True) -> GpuRate | None:
        """Find a GPU's rate: that of the first of `subjects` (UUID, then model) that has one, else, with `or_any`, the
        one for every GPU.
        """
        for subject in (*(subject for subject in subjects if subject), *(("",) if or_any else ())):
            found = self._valid(GpuRate, subject, moment)
            if isinstance(found, GpuRate):
                return found
        return None

    def currency(self, moment: datetime, code: str) -> CurrencyRate | None:
        """Find the exchange rate of a currency at a time; USD always has one."""
        if code == "USD":
            return CurrencyRate("", "USD", moment, None, Decimal(1))
        found = self._valid(CurrencyRate, code, moment)
        return found if isinstance(found, CurrencyRate) else None

    def terms(self, moment: datetime, tenant: str) -> BillingTerms | None:
        """Find a tenant's terms at a time."""
        found = self._valid(BillingTerms, tenant, moment)
        return found if isinstance(found, BillingTerms) else None

    def all_terms(self, moment: datetime) -> list[BillingTerms]:
        """Return the terms that are valid at a time, by tenant."""
        found = [self.terms(moment, subject) for kind, subject in self._rates if kind is BillingTerms]
        return sorted((terms for terms in found if terms is not None), key=lambda terms: terms.subject)

    def changes(self) -> list[datetime]:
        """Return every time at which a rate starts or ends, in order."""
        rates = [rate for of_one in self._rates.values() for rate in of_one]
        return sorted({at for rate in rates for at in (rate.valid_from, rate.valid_to) if at is not None})

    def _valid(self, kind: type[Rate], subject: str, moment: datetime) -> AnyRate | None:
        return next((rate for rate in self._rates.get((kind, subject), ()) if rate.is_valid_at(moment)), None)
