"""Cost rates with validity periods in the control database: written once, ended, never changed; see
`contracts.pricing.rates`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from backends.control.changes import Author, begin_change
from backends.control.organisation import get_tenant
from backends.control.row_names import row_name
from contracts.control import CostRate
from contracts.errors import ConfigurationError, Conflict, InvalidRequest, NotFound
from contracts.pricing.rates import AnyRate, RateBook, RateKind, rate_of


@dataclass(frozen=True, slots=True)
class NewRate:
    """A rate to create; `values` are numbers as decimal text, by the names of `contracts.pricing.rates`."""

    kind: RateKind
    version: str
    subject: str
    values: Mapping[str, str]
    valid_from: datetime
    valid_to: datetime | None = None


def create_rate(session: Session, author: Author, new: NewRate) -> CostRate:
    """Add a rate.

    Raises InvalidRequest naming the invalid value, NotFound on terms of an unknown tenant, and Conflict if the version
    is in use or the rate overlaps another of its subject.
    """
    begin_change(session, author, "rate.create", new.version, {"kind": new.kind, "subject": new.subject})
    if new.kind == "terms":
        get_tenant(session, new.subject)
    if session.get(CostRate, new.version) is not None:
        raise Conflict(
            f"a rate with the version {new.version!r} exists already; versions are never reused", param="version"
        )
    row = CostRate(
        version=new.version,
        kind=new.kind,
        subject=new.subject.upper() if new.kind == "currency" else new.subject,
        rate=dict(new.values),
        valid_from=new.valid_from,
        valid_to=new.valid_to,
        created_at=author.at,
    )
    _check(session, row)
    session.add(row)
    session.flush()
    return row


def end_rate(session: Session, author: Author, version: str, valid_to: datetime) -> CostRate:
    """Set the end of a rate's validity. Raises NotFound, InvalidRequest or Conflict."""
    begin_change(session, author, "rate.end", version, {"valid_to": valid_to.isoformat()})
    row = session.get(CostRate, version)
    if row is None:
        raise NotFound(f"no rate has the version {version!r}", rows=[row_name(CostRate, version)])
    row.valid_to = valid_to
    _check(session, row)
    session.flush()
    return row


def get_rate(session: Session, version: str) -> CostRate:
    """Return a rate. Raises NotFound."""
    row = session.get(CostRate, version)
    if row is None:
        raise NotFound(f"no rate has the version {version!r}", rows=[row_name(CostRate, version)])
    return row


def list_rates(session: Session, *, after: str = "", limit: int = 100) -> list[CostRate]:
    """Return up to `limit` rates whose versions sort after `after`."""
    wanted = select(CostRate).where(CostRate.version > after).order_by(CostRate.version).limit(limit)
    return list(session.scalars(wanted))


def load_rates(session: Session) -> RateBook:
    """Return all rates. Raises ConfigurationError if a row is invalid."""
    return RateBook(rate_of_row(row) for row in session.scalars(select(CostRate)))


def rate_of_row(row: CostRate) -> AnyRate:
    """Build the rate in a row. Raises ConfigurationError if the row is invalid."""
    return rate_of(row.kind, row.version, row.subject, row.rate, row.valid_from, row.valid_to)


def _check(session: Session, row: CostRate) -> None:
    try:
        rate = rate_of_row(row)
    except ConfigurationError as error:
        raise InvalidRequest(error.message) from error
    with session.no_autoflush:  # the rate must not be written before it is checked
        others = list(
            session.scalars(select(CostRate).where(CostRate.kind == row.kind, CostRate.subject == row.subject))
        )
    try:
        RateBook([*(rate_of_row(other) for other in others if other.version != row.version), rate])
    except ConfigurationError as error:
        raise Conflict(error.message, param="valid_from") from error
