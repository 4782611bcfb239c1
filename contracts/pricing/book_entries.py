"""Entries of the books: what a correction adds to or subtracts from the recorded cost of a group of requests.

A request's record never changes. Its cost is what was recorded when it ended, plus the sum of the entries booked since.
"""

import hashlib
from collections.abc import Iterable
from datetime import datetime
from operator import add, neg, sub
from typing import Final, Literal, NamedTuple

# `rerate`: the difference between a card's price and the recorded one. `credit`: an amount returned or charged in
# addition to the price, on an issued invoice; it has a credit note and cannot be reversed. `reversal` undoes a rerate,
# entry by entry.
AdjustmentKind = Literal["rerate", "reversal", "credit", "credit_reversal"]
ADJUSTMENT_KINDS: Final[tuple[AdjustmentKind, ...]] = ("rerate", "reversal", "credit", "credit_reversal")
# These change the price of usage; credits are separate.
OF_PRICE: Final[tuple[AdjustmentKind, ...]] = ("rerate", "reversal")
REVERSAL_OF: Final[dict[AdjustmentKind, AdjustmentKind]] = {"rerate": "reversal"}
# Only booked entries count. A proposal waits for another person.
AdjustmentState = Literal["proposed", "booked", "rejected"]
ADJUSTMENT_STATES: Final[tuple[AdjustmentState, ...]] = ("proposed", "booked", "rejected")

# A month of a tenant. A closed one is frozen in an invoice.
PeriodState = Literal["draft", "review", "closed"]
PERIOD_STATES: Final[tuple[PeriodState, ...]] = ("draft", "review", "closed")
# A cancellation takes a whole invoice back because its month is reopened.
DocumentKind = Literal["invoice", "credit_note", "cancellation"]
DOCUMENT_KINDS: Final[tuple[DocumentKind, ...]] = ("invoice", "credit_note", "cancellation")


class EntryGroup(NamedTuple):
    """The requests of an entry: one payer, model and recorded price, on one day.

    `used_at` is the middle of the day in the tenant's calendar, or for a credit the hour in which it was booked.
    """

    tenant: str
    team: str
    project: str
    key: str
    model: str
    provider: str
    price_version: str
    used_at: datetime


class Effect(NamedTuple):
    """What an entry changes: a debit (above 0) or credit (below 0) in pico-USD, and the counts of unpriced usage.

    Counts are differences, below 0 if requests got a price that had none. `estimated_pico_usd` is the part of the
    amount whose tokens are estimates.
    """

    amount_pico_usd: int = 0
    unpriced_requests: int = 0
    partly_unpriced_requests: int = 0
    unpriced_input_tokens: int = 0
    unpriced_output_tokens: int = 0
    estimated_pico_usd: int = 0
    estimated_requests: int = 0

    def __add__(self, other: "Effect") -> "Effect":  # type: ignore[override]  # no tuple is joined to another
        """Add another effect."""
        return Effect._make(map(add, self, other))

    def __sub__(self, other: "Effect") -> "Effect":
        """Subtract another effect."""
        return Effect._make(map(sub, self, other))

    def __neg__(self) -> "Effect":
        """Return the effect that undoes this one."""
        return Effect._make(map(neg, self))

    def __bool__(self) -> bool:
        """Return whether anything changes."""
        return any(self)


EFFECT_FIELDS: Final = Effect._fields


class Entry(NamedTuple):
    """One line of an adjustment. `requests` is how many requests the group had when it was computed.

    `period` is the month of the tenant's calendar in which it is billed, such as "2026-11".
    """

    group: EntryGroup
    effect: Effect
    requests: int
    period: str


def entries_digest(entries: Iterable[Entry]) -> str:
    """Return a SHA-256 over ordered entries: if it is equal, what was previewed is what is booked."""
    digest = hashlib.sha256()
    for entry in entries:
        group = (*entry.group[:-1], entry.group.used_at.isoformat())
        effect = tuple(entry.effect)
        digest.update(repr((group, effect, entry.requests, entry.period)).encode())
    return digest.hexdigest()
