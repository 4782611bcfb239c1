"""Parses values of bills (numbers, days, columns), and collects problems with line and column."""

import csv
import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Final

from contracts.errors import InvalidRequest

MAX_BYTES: Final = 256 * 1024 * 1024
MAX_LINES: Final = 2_000_000
_MOST_PROBLEMS: Final = 20
_SHOWN: Final = 40  # maximum characters of a value in a message
_PICO: Final = Decimal(1_000_000_000_000)
_CENT_PLACES: Final = 2
_MOST_PLACES: Final = 12
_SUMS: Final = ("token", "cost", "amount", "price", "credit", "tax")  # in names of columns
_MAX_AMOUNT: Final = Decimal(1_000_000_000)
# Digits before or after the decimal point; larger numbers would exceed Decimal's range in arithmetic
_MAX_DIGITS: Final = 30
MAX_COUNT: Final = 10**15


class UnreadableBill(InvalidRequest):
    """A bill was refused as a whole. `problems` are its faults, each with line and column."""

    def __init__(self, message: str, problems: Sequence[str] = ()) -> None:
        super().__init__(message, param="file")
        self.problems = tuple(problems)


@dataclass(slots=True)
class Problems:
    """Faults of a file, which is not imported if there are any."""

    found: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, line: int, column: str, what: str) -> None:
        """Add a problem."""
        self.count += 1
        if len(self.found) < _MOST_PROBLEMS:
            self.found.append(f"line {line}, column {column}: {what}")

    def raise_any(self) -> None:
        """Raise UnreadableBill if there is a problem."""
        if self.count:
            rest = self.count - len(self.found)
            shown = "; ".join(self.found[:3])
            more = f"; and {self.count - 3} more" if self.count > 3 else ""
            raise UnreadableBill(
                f"the file was not imported: {shown}{more}",
                [*self.found, *([f"and {rest} more"] if rest > 0 else [])],
            )


@dataclass(frozen=True, slots=True)
class Amount:
    """An amount of money in pico-units of its currency, and the value of its last decimal place."""

    pico: int
    step: int


def shown(value: object) -> str:
    """Return a value as text for a message, quoted and shortened."""
    text = str(value)
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")


def read_amount(value: object, *, scale: int = 1) -> Amount | None:
    """Parse an amount of money; `scale` is its units per currency unit, such as 100 for cents.

    `None` if it is not a number or exceeds a billion.
    """
    number = read_decimal(value)
    if number is None or abs(number) > _MAX_AMOUNT * scale:
        return None
    places = -int(number.as_tuple().exponent)
    places = min(max(places, _CENT_PLACES if scale == 1 else 0), _MOST_PLACES)
    step = _PICO / scale / 10**places
    return Amount(round(number * _PICO / scale), max(int(step), 1))


def read_decimal(value: object) -> Decimal | None:
    """Parse a number; `None` if it is invalid, not finite, or has over 30 digits before or after the point."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        number = value if isinstance(value, Decimal) else Decimal(str(value).strip())
    except InvalidOperation:
        return None
    if not number.is_finite() or number.adjusted() > _MAX_DIGITS or int(number.as_tuple().exponent) < -_MAX_DIGITS:
        return None
    return number


def read_count(value: object) -> int | None:
    """Parse a count of tokens, a whole number of at least 0; `None` if it is invalid."""
    number = read_decimal(value)
    if number is None or number < 0 or number != number.to_integral_value() or number > MAX_COUNT:
        return None
    return int(number)


def read_day(value: object) -> str | None:
    """Parse a time or date as a day in UTC; `None` if it is neither. Times without a zone are UTC."""
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        number = read_decimal(value)
        seconds = 0 if number is None else int(number)
        return datetime.fromtimestamp(seconds, UTC).date().isoformat() if 0 < seconds < 10**11 else None
    text = str(value or "").strip()
    if text.isdecimal() and len(text) in (10, 9):
        return read_day(int(text))
    try:
        if len(text) == 10:
            if text[2] == "/" and text[5] == "/":  # Azure's month first
                return date(int(text[6:]), int(text[:2]), int(text[3:5])).isoformat()
            return date.fromisoformat(text).isoformat()
        text = text.removesuffix(" UTC")
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo is None else moment.astimezone(UTC)).date().isoformat()


def read_unit_price(value: object, tokens_per_unit: Decimal) -> int | None:
    """Parse a price per unit as pico-units per token; `None` if it is missing or not a whole number."""
    number = read_decimal(value)
    if number is None or not 0 <= number <= _MAX_AMOUNT or tokens_per_unit <= 0:
        return None
    found = number * _PICO / tokens_per_unit
    return int(found) if found == found.to_integral_value() else None


def read_tokens(value: object, tokens_per_unit: Decimal) -> int | None:
    """Return a quantity times `tokens_per_unit`; `None` unless that is a whole number from 0 to MAX_COUNT."""
    count = read_decimal(value)
    tokens = None if count is None else count * tokens_per_unit
    if tokens is None or not 0 <= tokens <= MAX_COUNT or tokens != tokens.to_integral_value():
        return None
    return int(tokens)


def row_digest(*parts: object) -> str:
    """Return a short digest of a row's parts, equal for equal rows."""
    return hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()


def csv_rows(text: str, problems: Problems) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the rows of a CSV file with line numbers. A row with too few or too many columns is a problem."""
    reader = csv.reader(io.StringIO(text), strict=True)
    try:
        header = next(reader, [])
        names = [name.strip().lstrip("\ufeff") for name in header]
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            problems.add(1, shown(twice), "the header names it twice")
            return
        for row in reader:
            line = reader.line_num
            if not row:
                continue
            if len(row) != len(names):
                problems.add(
                    line,
                    str(min(len(row), len(names)) + 1),
                    f"the row has {len(row)} columns, the header has {len(names)}; the file may be cut short: "
                    "export it again",
                )
                continue
            yield line, dict(zip(names, row, strict=True))
    except csv.Error as error:
        problems.add(reader.line_num, "1", f"this is not CSV ({error}); the file may be cut short: export it again")


def csv_header(text: str) -> list[str]:
    """Return the column names of a CSV file."""
    first = text.split("\n", 1)[0].strip("\r\ufeff ")
    try:
        return [name.strip() for name in next(csv.reader([first], strict=True), [])]
    except csv.Error:
        return []


def require_columns(names: Sequence[str], wanted: Sequence[str], problems: Problems, remedy: str) -> bool:
    """Add a problem for each missing column; return whether none is missing."""
    missing = [name for name in wanted if name not in names]
    for name in missing:
        problems.add(1, name, f"the column is missing; {remedy}")
    return not missing


def refuse_unknown(names: Mapping[str, object] | Sequence[str], known: frozenset[str], problems: Problems) -> None:
    """Add a problem for each unknown column that may have tokens or money, as sums could be wrong without it."""
    for place, name in enumerate(names, start=1):
        lower = name.lower()
        if name not in known and any(word in lower for word in _SUMS):
            problems.add(
                1, f"{place} ({name[:_SHOWN]})", "the column is unknown and may hold tokens or money; remove it"
            )


class OneCurrency:
    """The only currency of a file; a second one is a problem."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self.name = ""
        self._line = 0

    def see(self, line: int, column: str, value: object) -> None:
        """Check the currency of a line."""
        name = str(value or "").strip().upper()
        if name == self.name:
            return
        if len(name) != 3 or not name.isalpha():
            self._problems.add(line, column, f"{shown(value)} is not a currency code such as USD")
        elif not self.name:
            self.name, self._line = name, line
        else:
            self._problems.add(
                line, column, f"{name}, but line {self._line} is in {self.name}; export each currency into its own file"
            )


class OneMonth:
    """A bill's month; lines outside it are problems."""

    def __init__(self, month: str, problems: Problems) -> None:
        self.month = month
        self._problems = problems

    def see(self, line: int, column: str, day: str | None, value: object, *, may_be_earlier: bool = False) -> bool:
        """Check the day of a line; return whether it is in the month. Without a given month, the first day determines
        it. `may_be_earlier`: the bill states its period, and may have lines of earlier days."""
        if day is None:
            self._problems.add(line, column, f"{shown(value)} is not a date")
            return False
        if not self.month:
            self.month = day[:7]
        if day[:7] == self.month or (may_be_earlier and day < self.month):
            return True
        self._problems.add(
            line, column, f"{day} is not in {self.month}; export {self.month} alone, or name the month with --month"
        )
        return False
