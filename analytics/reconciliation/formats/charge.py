"""One charge of a cost export of AWS, FOCUS or Google: amount, subject and tokens."""

from dataclasses import dataclass

from analytics.reconciliation.formats.reading import Amount, Problems, read_amount, shown
from analytics.reconciliation.formats.words import Described
from analytics.reconciliation.lines import CREDIT, FEE, ROUNDING, TAX, BillLine

_BESIDE_USAGE = (TAX, CREDIT, FEE)
_MAY_BE_NEGATIVE = (TAX, CREDIT, ROUNDING)


@dataclass(frozen=True, slots=True)
class Charge:
    """A charge before its tokens are parsed. `column` is the amount's column, `said` its text."""

    number: int
    day: str
    column: str
    said: object
    amount: Amount
    found: Described
    keys: tuple[str, ...]
    detail: str

    def is_refused(self, kind: str, what: str, problems: Problems) -> bool:
        """Return whether a negative amount is invalid, and add it to `problems`; `what` names the charge."""
        if self.amount.pico >= 0 or kind in _MAY_BE_NEGATIVE:
            return False
        problems.add(self.number, self.column, f"{shown(self.said)} is below 0 on {what}")
        return True

    def line(self, kind: str, tokens: int | None = None, price: int | None = None) -> BillLine:
        """Return the charge as a bill line; taxes, credits and fees have no tokens."""
        if kind in _BESIDE_USAGE:
            tokens = price = None
        return BillLine(
            *(self.number, self.day, self.found.model, self.keys, self.found.tier, kind, tokens),
            *(self.amount.pico, price, self.amount.step, self.detail),
        )

    @staticmethod
    def is_beside_usage(kind: str) -> bool:
        """Return whether a kind of charge is a tax, credit or fee."""
        return kind in _BESIDE_USAGE


def read_money(number: int, column: str, said: object, problems: Problems) -> Amount | None:
    """Parse an amount of money; if it is invalid, add a problem and return `None`."""
    amount = read_amount(said)
    if amount is None:
        problems.add(number, column, f"{shown(said)} is not an amount of money")
    return amount
