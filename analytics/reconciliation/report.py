"""Reconciles a provider's month: matches bills with recorded usage, sums differences by cause, and stores the sums."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

import msgspec
from sqlalchemy import select
from sqlalchemy.orm import Session

from analytics.books.calendars import month_period
from analytics.reconciliation.lines import BillLine
from analytics.reconciliation.matching import CAUSES, Cause, Found, Matched, match
from analytics.reconciliation.placement import Placement
from analytics.reconciliation.recorded import kinds_of, read_recorded, recorded_buckets
from backends.control.database import ControlDatabase
from backends.control.prices import load_cards
from backends.control.provider_bills import (
    bill_names,
    bills_digest,
    keep_reconciliation,
    kept_differences,
    list_bills,
    list_reconciliations,
    pack_lines,
    packed_lines,
    unpack_lines,
)
from backends.store.client import StoreClient
from contracts.control import ProviderBill, ProviderBillName, Reconciliation, Target
from contracts.errors import NotFound
from contracts.pricing.money import usd
from contracts.pricing.prices import AnyCard

_UTC: Final = ZoneInfo("UTC")
_AGAIN: Final = timedelta(hours=6)  # reconciled again, as records may arrive late
_MOST_LINES: Final = 10_000  # maximum number of differences in a response
# Other names of a provider in records.
_RECORDED_AS: Final[Mapping[str, frozenset[str]]] = {
    "azure": frozenset({"azure", "azure_ai", "azure.ai.openai", "azure.ai.inference"}),
    "bedrock": frozenset({"bedrock", "bedrock_converse", "aws.bedrock"}),
    "vertex_ai": frozenset({"vertex_ai", "gcp.vertex_ai", "gcp.gemini", "gemini"}),
}
CAUSE_WORDS: Final[Mapping[Cause, tuple[str, str]]] = {
    "late": ("Billed on a later day", "The same tokens are on another day of the bill. Nothing to do."),
    "lost_usage": (
        "Unknown usage",
        "The answer ended without a token count, so the record has an estimate or no usage. The bill has the count.",
    ),
    "retried": (
        "Attempt that failed",
        "An attempt failed late, and the provider billed it in addition to the one that answered.",
    ),
    "tier": ("Service tier", "Billed at another service tier than recorded, such as flex, priority or batch."),
    "cache_rule": (
        "Cached tokens",
        "Billed as another kind of input than recorded, such as cache writes with a lifetime of an hour.",
    ),
    "price": (
        "Price",
        "The provider's price differs from the price card's. Correct it with tollkeeper books rerate.",
    ),
    "agreed_price": ("Tenants' own prices", "The difference between tenants' own price cards and the general one."),
    "rounding": ("Rounding", "Within the last decimal place of the bill."),
    "unpriced": ("No price card", "Requests without a price. Create a price card; tollkeeper books rerate bills them."),
    "not_through_us": ("Not through the gateway", "A key or model that no request here has used."),
    "missing_day": ("Day missing in the bill", "Requests were recorded on a day without lines in the bill."),
    "fee": ("Other charges", "Charges that are not for tokens: searches, stored files, provisioned capacity."),
    "tax": ("Tax", "Tax on the bill."),
    "credit": ("Credit", "Credits and discounts on the bill."),
    "unknown": ("Unknown", "A difference in tokens without evidence of a cause. Look at the requests of the day."),
}


@dataclass(frozen=True, slots=True)
class Reconciled:
    """A provider's month: its bills, and how they match recorded usage. Amounts of `matched` are pico-USD."""

    provider: str
    month: str
    bills: tuple[ProviderBill, ...]
    matched: Matched
    computed_at: datetime
    asked_as: Mapping[str, Sequence[str]]  # by the bill's name of a model, the names in requests

    @property
    def unknown(self) -> int:
        """Return the sum of the absolute differences without a cause, in pico-USD."""
        return sum(abs(one.amount) for one in self.matched.found if one.cause == "unknown")


def reconcile(store: StoreClient, session: Session, provider: str, month: str, now: datetime) -> Reconciled:
    """Reconcile a provider's month. Raises NotFound without an imported bill, InvalidRequest, StoreUnavailable."""
    period = month_period(month, _UTC)
    # A later bill may have lines of this month, and an earlier one none.
    bills = [bill for bill in list_bills(session, provider=provider) if bill.month >= month]
    if not any(bill.month == month for bill in bills):
        raise NotFound(
            f"no bill of {provider[:63]!r} for {month} was imported; `tollkeeper reconcile import FILE` does so"
        )
    lines = [
        line
        for packed in packed_lines(session, bills)
        for line in unpack_lines(packed, BillLine)
        if line.day[:7] == month
    ]
    names = bill_names(session, provider)
    upstreams = {target: model for target, model in session.execute(select(Target.id, Target.model)) if model}
    cards = load_cards(session)
    own = tuple(bill for bill in bills if bill.month == month)
    matched, asked_as = reconcile_lines(store, provider, (period.start, period.end), lines, names, cards, upstreams)
    return Reconciled(provider, month, own, matched, now, asked_as)


def reconcile_lines(
    store: StoreClient,
    provider: str,
    between: tuple[datetime, datetime],
    lines: Sequence[BillLine],
    names: Sequence[ProviderBillName],
    cards: Sequence[AnyCard],
    upstreams: Mapping[str, str],
) -> tuple[Matched, dict[str, list[str]]]:
    """Match bill lines with a provider's recorded usage; return also models' names in requests, by the bill's name.
    Raises StoreUnavailable."""
    usage, retries, thresholds = read_recorded(
        store, *between, _RECORDED_AS.get(provider, frozenset({provider})), cards, upstreams
    )
    keys = {name.name: name.meaning for name in names if name.kind == "key"}
    models = {name.name: name.meaning for name in names if name.kind == "model"}
    recorded_names = {one.name for one in usage}
    placement = Placement(provider, sorted(recorded_names, key=repr), lines, keys, models)
    recorded, rates, asked_as = recorded_buckets(
        usage, retries, placement, cards, thresholds, kinds_of(lines), provider
    )
    return match(lines, recorded, rates, placement.place), asked_as


def keep(session: Session, reconciled: Reconciled) -> Reconciliation:
    """Store the sums of a reconciliation, for alerts and pages."""
    names = bill_names(session, reconciled.provider)
    matched = reconciled.matched
    return keep_reconciliation(
        session,
        reconciled.provider,
        reconciled.month,
        reconciled.computed_at,
        bills=bills_digest(reconciled.bills, names),
        billed=usd(matched.billed),
        recorded=usd(matched.recorded),
        unknown=usd(reconciled.unknown),
        causes={cause: format(usd(amount), "f") for cause, amount in matched.by_cause().items()},
        packed=pack_lines([KeptDifference.of(one, reconciled.asked_as) for one in matched.found]),
    )


class KeptDifference(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A stored difference, for the page. `asked_as`: the model's name in requests, if it has only one."""

    day: str
    model: str
    target: str
    tier: str
    kind: str
    cause: str
    amount: int  # pico-USD
    tokens: int
    asked_as: str

    @classmethod
    def of(cls, one: Found, asked_as: Mapping[str, Sequence[str]]) -> "KeptDifference":
        """Convert a difference to its stored form."""
        names = asked_as.get(one.bucket.model, ())
        return cls(*one.bucket, *one.cell, one.cause, one.amount, one.tokens, names[0] if len(names) == 1 else "")


@dataclass(frozen=True, slots=True)
class ReconciliationBoard:
    """Data of the page: the latest reconciliation of each provider's month, and the chosen one's differences."""

    reconciliations: tuple[Reconciliation, ...]
    bills: tuple[ProviderBill, ...]
    differences: tuple[KeptDifference, ...]


def reconciliation_board(session: Session, provider: str = "", month: str = "") -> ReconciliationBoard:
    """Read the latest reconciliations, and the differences of one provider's month if given."""
    rows = tuple(list_reconciliations(session))
    if not provider or not any((row.provider, row.month) == (provider, month) for row in rows):
        return ReconciliationBoard(rows, tuple(list_bills(session)), ())
    kept = unpack_lines(kept_differences(session, provider, month), KeptDifference)
    return ReconciliationBoard(rows, tuple(list_bills(session, provider=provider, month=month)), tuple(kept))


class Reconciler:
    """Reconciles months with new bills, and recent ones again: a periodic job of the analytics process."""

    def __init__(self, database: ControlDatabase, store: StoreClient, now: Callable[[], datetime]) -> None:
        self._database = database
        self._store = store
        self._now = now

    def write_due(self) -> int:
        """Reconcile the months that are due; return their number. Raises StoreUnavailable, ControlUnavailable."""
        now, done = self._now(), 0
        with self._database.session() as session:
            known = {(row.provider, row.month): row for row in list_reconciliations(session)}
            months: dict[tuple[str, str], list[ProviderBill]] = {}
            for bill in list_bills(session):
                months.setdefault((bill.provider, bill.month), []).append(bill)
            due = [
                key
                for key, bills in months.items()
                if self._is_due(known.get(key), bills_digest(bills, bill_names(session, key[0])), now)
            ]
        for provider, month in due:
            with self._database.session() as session:
                keep(session, reconcile(self._store, session, provider, month, now))
            done += 1
        return done

    @staticmethod
    def _is_due(known: Reconciliation | None, bills: str, now: datetime) -> bool:
        if known is None or known.bills != bills:
            return True
        two_months_ago = (now.astimezone(UTC).replace(day=1) - timedelta(days=35)).strftime("%Y-%m")
        return known.month >= two_months_ago and now - known.computed_at >= _AGAIN


def cause_sums(found: Sequence[Found]) -> list[dict[str, Any]]:
    """Return each cause's sum and number of differences, as JSON values."""
    return [
        {
            "cause": cause,
            "usd": format(usd(sum(one.amount for one in found if one.cause == cause)), "f"),
            "differences": sum(one.cause == cause for one in found),
            "meaning": CAUSE_WORDS[cause][1],
        }
        for cause in CAUSES
        if any(one.cause == cause for one in found)
    ]


def reconciled_as_json(
    reconciled: Reconciled, *, day: str = "", model: str = "", cause: str = "", limit: int = _MOST_LINES
) -> dict[str, Any]:
    """Return a reconciliation as JSON values: sums by cause, and the differences of a day, model or cause."""
    matched = reconciled.matched
    wanted = [
        one
        for one in matched.found
        if (not day or one.bucket.day == day)
        and (not model or one.bucket.model == model)
        and (not cause or one.cause == cause)
    ]
    wanted.sort(key=lambda one: -abs(one.amount))
    return {
        "provider": reconciled.provider,
        "month": reconciled.month,
        "computed_at": reconciled.computed_at.isoformat(),
        "bills": [bill.id for bill in reconciled.bills],
        "lines": matched.lines,
        "billed_usd": _text(matched.billed),
        "recorded_usd": _text(matched.recorded),
        "difference_usd": _text(matched.difference),
        "unknown_usd": _text(reconciled.unknown),
        "causes": cause_sums(matched.found),
        "differences": [found_as_json(one) for one in wanted[:limit]],
        "has_more": len(wanted) > limit,
    }


def found_as_json(one: Found) -> dict[str, Any]:
    """Return one difference as JSON values."""
    return {
        "day": one.bucket.day,
        "model": one.bucket.model,
        "target": one.bucket.target or None,
        "service_tier": one.cell.tier or None,
        "kind": one.cell.kind,
        "cause": one.cause,
        "usd": _text(one.amount),
        "tokens": one.tokens,
    }


def bill_as_json(row: ProviderBill) -> dict[str, Any]:
    """Return an imported bill as JSON values."""
    return {
        "id": row.id,
        "provider": row.provider,
        "month": row.month,
        "format": row.format,
        "name": row.name or None,
        "currency": row.currency or None,
        "usd_rate": format(row.usd_rate, "f"),
        "lines": row.line_count,
        "skipped_lines": row.skipped,
        "billed_usd": format(row.billed_usd, "f"),
        "sha256": row.digest,
        "author": row.author,
        "at": row.created_at.isoformat(),
    }


def _text(pico: int) -> str:
    return format(usd(pico), "f")
