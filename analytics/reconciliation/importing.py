"""Imports a provider's bill: parses it, checks it against earlier imports, and stores it in one transaction."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from msgspec import structs
from sqlalchemy.orm import Session

from analytics.reconciliation.formats.table import read_bill
from analytics.reconciliation.lines import BillLine, ReadBill
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.provider_bills import (
    NewBill,
    check_provider,
    pack_lines,
    packed_lines,
    unpack_lines,
    write_bill,
)
from contracts.control import ProviderBill
from contracts.errors import Conflict, InvalidRequest
from contracts.pricing.money import usd

_USD: Final = "USD"


@dataclass(frozen=True, slots=True)
class BillFile:
    """A bill file to import. `usd_rate` is USD per unit of its currency, `None` for a file in USD.

    `replaces`: replace the earlier import of the same provider, month and format.
    """

    content: bytes
    name: str = ""
    month: str = ""
    provider: str = ""
    format: str = ""
    usd_rate: Decimal | None = None
    replaces: bool = False


def import_bill(database: ControlDatabase, author: Author, file: BillFile) -> ProviderBill:
    """Import a bill completely, in one transaction.

    Raises UnreadableBill as `read_bill` does, InvalidRequest on a missing rate or provider, Conflict if the file or
    some of its lines were imported before.
    """
    _check_month(file.month)
    bill = read_bill(file.content, month=file.month, form=file.format)
    provider = file.provider or bill.provider
    if not provider:
        raise InvalidRequest(
            "the file does not say whose bill it is; name the provider as its targets do, with --provider",
            param="provider",
        )
    check_provider(provider)
    rate = _rate(bill, file.usd_rate)
    lines = bill.lines if rate == 1 else [_in_usd(line, rate) for line in bill.lines]
    new = NewBill(
        provider=provider,
        month=bill.month,
        format=bill.format,
        name=file.name,
        currency=bill.currency,
        usd_rate=rate,
        line_count=len(lines),
        skipped=bill.skipped,
        billed_usd=usd(sum(line.amount or 0 for line in lines)),
        digest=hashlib.sha256(file.content).hexdigest(),
        packed=pack_lines(lines),
    )
    with database.session() as session:
        return write_bill(
            session,
            author,
            new,
            replaces=file.replaces,
            refuse=lambda session, known: _refuse_repeated(session, known, lines),
        )


def _check_month(month: str) -> None:
    year, _, number = month.partition("-")
    if month and not (len(month) == 7 and year.isdecimal() and number.isdecimal() and 1 <= int(number) <= 12):
        raise InvalidRequest(f"{month[:40]!r} is not a month; give one such as 2026-11", param="month")


def _rate(bill: ReadBill, stated: Decimal | None) -> Decimal:
    if bill.currency in ("", _USD):
        if stated not in (None, Decimal(1)):
            raise InvalidRequest("the bill is in USD; leave the rate out", param="usd_rate")
        return Decimal(1)
    if stated is None or not stated.is_finite() or not 0 < stated < 1_000_000:
        raise InvalidRequest(
            f"the bill is in {bill.currency}; give the USD that one {bill.currency} was on it, with --usd-rate, such "
            "as 1.08",
            param="usd_rate",
        )
    return stated


def _in_usd(line: BillLine, rate: Decimal) -> BillLine:
    return structs.replace(
        line,
        amount=None if line.amount is None else round(line.amount * rate),
        unit_price=None,  # converted to USD, it is no longer a whole number
        step=max(int(line.step * rate) + 1, 1),
    )


def _refuse_repeated(session: Session, known: Sequence[ProviderBill], lines: Sequence[BillLine]) -> None:
    """Raise Conflict on lines that another imported file has, as they would count twice."""
    for bill, packed in zip(known, packed_lines(session, known), strict=True):
        there = {line.subject for line in unpack_lines(packed, BillLine)}
        repeated = [line for line in lines if line.subject in there]
        if repeated:
            raise Conflict(
                f"{len(repeated):,} of {len(lines):,} lines are in {bill.id} ({bill.name or bill.format}) already, the "
                f"first in line {repeated[0].number}; --replace imports this file in its place",
                param="file",
            )
