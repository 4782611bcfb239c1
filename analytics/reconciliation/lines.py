"""Lines of providers' bills, in one form for all file formats."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from contracts.metering.usage import LEAVES

# Kinds of lines besides kinds of usage. `fee`: a charge for something that is not recorded (searches, stored files,
# provisioned capacity).
TAX: Final = "tax"
CREDIT: Final = "credit"
FEE: Final = "fee"
ROUNDING: Final = "rounding"  # called rounding by the provider

BillFormat = Literal["openai_usage", "openai_costs", "anthropic_usage", "anthropic_costs", "focus", "aws_cur", "vertex"]
BILL_FORMATS: Final[tuple[BillFormat, ...]] = (
    *("openai_usage", "openai_costs", "anthropic_usage", "anthropic_costs"),
    *("focus", "aws_cur", "vertex"),
)


class BillLine(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One charge or count of a provider's bill.

    `number` is its line in the file. `keys` identify its payer in the bill (API key, project, account or resource),
    most specific first. `amount` and `unit_price` (per token) are pico-USD, `None` if the file has none, such as a
    usage report. `step` is the value of the amount's last decimal place in pico-USD, the maximum rounding error.
    """

    number: int
    day: str  # UTC, such as "2026-11-03"
    model: str
    keys: tuple[str, ...]
    tier: str  # price cards' name of the service tier; empty: standard
    kind: str
    tokens: int | None
    amount: int | None
    unit_price: int | None = None
    step: int = 1
    detail: str = ""  # other distinction of lines: a context window, a digest of the row

    @property
    def identity(self) -> tuple[str, str, tuple[str, ...], str, str, int | None, str]:
        """Return the key that must be unique in a file: the charge and its unit price."""
        return (self.day, self.model, self.keys, self.tier, self.kind, self.unit_price, self.detail)

    @property
    def subject(self) -> tuple[str, ...]:
        """Return the key that must not be in two files: the usage or other charge that the line is about."""
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
