"""The declarative base and the column types that both SQLite and PostgreSQL keep exactly."""

from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from sqlalchemy import CheckConstraint, DateTime, Dialect, MetaData, String
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.types import TypeDecorator

# The migration revision of these declarations: the last file in migrations/control/versions.
SCHEMA_HEAD: Final = "0030"

# Named constraints, so that a migration can drop one on either database.
_NAMING = {
    "ix": "ix_%(column_0_label)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    """The parent of every control-plane table."""

    metadata = MetaData(naming_convention=_NAMING)


def one_of(column: str, words: Iterable[str]) -> CheckConstraint:
    """Return a constraint that a column contains one of these words."""
    listed = ", ".join(f"'{word}'" for word in words)
    # Quoted: "window" is a reserved word of SQL.
    return CheckConstraint(f'"{column}" IN ({listed})', name=f"{column}_known")


_MAX_DECIMAL_TEXT: Final = 40


class UtcDateTime(TypeDecorator[datetime]):
    """A time in UTC. SQLite drops time zones, so they are required on write and restored on read."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.utcoffset() is None:
            raise ValueError(f"{value!r} has no time zone; the control plane stores UTC")
        return value.astimezone(UTC)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        moment: datetime = value
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


class ExactDecimal(TypeDecorator[Decimal]):
    """A decimal stored as text: SQLite's NUMERIC is a float, and money is not. Not for ordering or sums in SQL."""

    impl = String(_MAX_DECIMAL_TEXT)
    cache_ok = True

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> str | None:
        if value is None:
            return None
        if not value.is_finite():
            raise ValueError(f"{value} is not an amount")
        # PostgreSQL would refuse a longer text, SQLite would store it; and "1e999999" has a million zeros.
        text = format(value, "f") if abs(value.adjusted()) < _MAX_DECIMAL_TEXT else str(value)
        if len(text) > _MAX_DECIMAL_TEXT or "E" in text:
            raise ValueError(f"{value} does not fit in {_MAX_DECIMAL_TEXT} characters")
        return text

    def process_result_value(self, value: Any | None, dialect: Dialect) -> Decimal | None:
        return None if value is None else Decimal(value)
