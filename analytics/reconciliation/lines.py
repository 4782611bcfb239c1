"""Lines of providers' bills in one shape, whatever file they came from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from contracts.metering.usage import LEAVES

# What a line is about: a kind of tokens, or one of these. `fee`: a charge for what no record counts (searches, stored
# files, provisioned capacity).
TAX: Final = "tax"
CREDIT: Final = "credit"
FEE: Final = "fee"
ROUNDING: Final = "rounding"  # what the provider itself calls rounding

BillFormat = Literal["openai_usage", "openai_costs", "anthropic_usage", "anthropic_costs", "focus", "aws_cur", "vertex"]
BILL_FORMATS: Final[tuple[BillFormat, ...]] = (
    *("openai_usage", "openai_costs", "anthropic_usage", "anthropic_costs"),
    *("focus", "aws_cur", "vertex"),
)


class BillLine(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One charge or count of a provider's bill.

    `number` is its line in the file. `keys` are the names by which the bill says whose it is (an API key, project,
    account or resource), the most exact first. `amount` and `unit_price` (of a token) are pico-USD, `None` if the file
    has none, such as a usage report. `step` is the worth of the last decimal place of the amount, in pico-USD: what
    rounding may have changed.
    """

    number: int
    day: str  # UTC, such as "2026-11-03"
    model: str
    keys: tuple[str, ...]
    tier: str  # as price cards name it; empty: the standard one
    kind: str
    tokens: int | None
    amount: int | None
    unit_price: int | None = None
    step: int = 1
    detail: str = ""  # what else tells lines apart: a context window, a digest of the row

    @property
    def identity(self) -> tuple[str, str, tuple[str, ...], str, str, int | None, str]:
        """Return what no second line of the same file may repeat: the same charge at the same unit price."""
        return (self.day, self.model, self.keys, self.tier, self.kind, self.unit_price, self.detail)

    @property
    def subject(self) -> tuple[str, ...]:
        """Return what no second file may have lines about: the same usage, or the same other charge."""
        about = (self.day, self.model, *self.keys, self.tier, self.kind)
        return about if self.kind in LEAVES else (*about, self.detail)


@dataclass(frozen=True, slots=True)
class ReadBill:
    """A parsed bill file, complete. `currency` is empty if the file has no amounts; `month` is the billing month.
    `skipped` is the number of lines of other services."""

    format: BillFormat
    provider: str
    month: str
    currency: str
    lines: Sequence[BillLine]
    skipped: int = 0
