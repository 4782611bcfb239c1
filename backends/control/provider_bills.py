"""Providers' bills in the control database: a file is written completely with its audit entry, or not at all."""

import base64
import hashlib
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final, TypeVar

import msgspec
from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from backends.control.changes import Author, begin_change
from backends.control.row_names import row_name
from contracts.control import ProviderBill, ProviderBillName, Reconciliation, Target
from contracts.control.provider_bills import BILL_NAME_KINDS
from contracts.errors import Conflict, InvalidRequest, NotFound
from contracts.recording.ids import uuid7
from contracts.recording.moments import unix_ns

LineT = TypeVar("LineT")
_PROVIDER: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")
_LEVEL: Final = 6
_MAX_NAME: Final = 200


@dataclass(frozen=True, slots=True)
class NewBill:
    """A bill to import. `packed` are its lines, from `pack_lines`."""

    provider: str
    month: str
    format: str
    name: str
    currency: str
    usd_rate: Decimal
    line_count: int
    skipped: int
    billed_usd: Decimal
    digest: str
    packed: str


def pack_lines(lines: Sequence[msgspec.Struct]) -> str:
    """Return lines as compressed text."""
    return base64.b64encode(zlib.compress(msgspec.msgpack.encode(lines), _LEVEL)).decode("ascii")


def unpack_lines(packed: str, line: type[LineT]) -> list[LineT]:
    """Return the lines that were packed."""
    return msgspec.msgpack.decode(zlib.decompress(base64.b64decode(packed)), type=list[line])  # type: ignore[valid-type]


def check_provider(provider: str) -> str:
    """Return a provider's name. Raises InvalidRequest if it is invalid."""
    if not _PROVIDER.fullmatch(provider):
        raise InvalidRequest(
            f"the provider {provider[:63]!r} must be 1 to 63 small letters, digits, '_', '.' or '-', as on the target",
            param="provider",
        )
    return provider


def write_bill(
    session: Session,
    author: Author,
    new: NewBill,
    *,
    replaces: bool = False,
    refuse: Callable[[Session, Sequence[ProviderBill]], None] = lambda session, known: None,
) -> ProviderBill:
    """Write a bill; with `replaces`, in place of those of its provider, month and format.

    `refuse` may raise depending on the existing ones. It is called under the write lock, so that of two concurrent
    imports one sees the other's. Raises Conflict if the same file was imported.
    """
    check_provider(new.provider)
    entry = begin_change(session, author, "book.import_bill", f"{new.provider}/{new.month}")
    there = [one for one in list_bills(session, provider=new.provider, month=new.month) if one.format == new.format]
    replaced = [one.id for one in there] if replaces else []
    for bill_id in replaced:
        session.delete(get_bill(session, bill_id))
    session.flush()
    known = session.scalars(select(ProviderBill).where(ProviderBill.digest == new.digest)).first()
    if known is not None:
        raise Conflict(
            f"this file was imported on {known.created_at:%Y-%m-%d %H:%M} UTC as {known.id} "
            f"({known.provider}, {known.month}); nothing to do",
            param="file",
        )
    if not replaces:
        refuse(session, there)
    row = ProviderBill(
        id=f"bill_{uuid7(unix_ns(author.at)).hex}",
        provider=new.provider,
        month=new.month,
        format=new.format,
        name=new.name[:_MAX_NAME],
        currency=new.currency,
        usd_rate=new.usd_rate,
        line_count=new.line_count,
        skipped=new.skipped,
        billed_usd=new.billed_usd,
        digest=new.digest,
        author=author.name,
        created_at=author.at,
        lines=new.packed,
    )
    session.add(row)
    session.flush()
    entry.detail = {
        "bill": row.id,
        "format": row.format,
        "lines": row.line_count,
        "billed_usd": format(row.billed_usd, "f"),
        "digest": row.digest,
        "replaces": replaced,
    }
    return row


def get_bill(session: Session, bill_id: str) -> ProviderBill:
    """Return a bill. Raises NotFound."""
    row = session.get(ProviderBill, bill_id)
    if row is None:
        raise NotFound(
            f"there is no imported bill {bill_id[:40]!r}; `tollkeeper reconcile bills` lists them",
            rows=[row_name(ProviderBill, bill_id)],
        )
    return row


def delete_bill(session: Session, author: Author, bill_id: str) -> None:
    """Delete a bill with its reconciliation. Raises NotFound."""
    row = get_bill(session, bill_id)
    begin_change(session, author, "book.delete_bill", f"{row.provider}/{row.month}", {"bill": bill_id})
    session.delete(row)
    session.execute(
        delete(Reconciliation).where(Reconciliation.provider == row.provider, Reconciliation.month == row.month)
    )


def list_bills(session: Session, *, provider: str = "", month: str = "") -> list[ProviderBill]:
    """Return bills without their lines, oldest first."""
    wanted = select(ProviderBill).order_by(ProviderBill.id)
    if provider:
        wanted = wanted.where(ProviderBill.provider == provider)
    if month:
        wanted = wanted.where(ProviderBill.month == month)
    return list(session.scalars(wanted))


def packed_lines(session: Session, bills: Iterable[ProviderBill]) -> list[str]:
    """Return the packed lines of bills."""
    names = [bill.id for bill in bills]
    found = session.execute(select(ProviderBill.id, ProviderBill.lines).where(ProviderBill.id.in_(names)))
    by_id = {bill_id: lines for bill_id, lines in found}
    return [by_id[name] for name in names]


def set_bill_names(session: Session, author: Author, provider: str, kind: str, names: Mapping[str, str | None]) -> None:
    """Map names in a provider's bills to our names; `None` removes one. Raises InvalidRequest on an unknown target."""
    check_provider(provider)
    if kind not in BILL_NAME_KINDS:
        raise InvalidRequest(f"kind {kind[:20]!r} is none of {', '.join(BILL_NAME_KINDS)}", param="kind")
    begin_change(session, author, "book.name_in_bills", provider, {"kind": kind, "names": dict(names)})
    targets = set(session.scalars(select(Target.id))) if kind == "key" else set()
    for name, meaning in names.items():
        if not 0 < len(name) <= 300:
            raise InvalidRequest(f"a name in a bill has 1 to 300 characters, not {len(name)}", param="name")
        if kind == "key" and meaning and meaning not in targets:
            raise InvalidRequest(
                f"there is no target {meaning[:63]!r}; `tollkeeper models list` shows them. An empty target means "
                "any target of the provider",
                param="target",
            )
        row = session.get(ProviderBillName, (provider, kind, name))
        if meaning is None:
            if row is not None:
                session.delete(row)
        elif row is None:
            session.add(ProviderBillName(provider=provider, kind=kind, name=name, meaning=meaning))
        else:
            row.meaning = meaning
    session.flush()


def bill_names(session: Session, provider: str = "") -> list[ProviderBillName]:
    """Return the mapping of names in bills to our names, of one provider or of all."""
    wanted = select(ProviderBillName).order_by(ProviderBillName.provider, ProviderBillName.kind, ProviderBillName.name)
    return list(session.scalars(wanted.where(ProviderBillName.provider == provider) if provider else wanted))


def bills_digest(bills: Iterable[ProviderBill], names: Iterable[ProviderBillName]) -> str:
    """Return a digest of everything that a reconciliation depends on, besides recorded usage."""
    digest = hashlib.sha256()
    for bill in bills:
        digest.update(f"{bill.id} {bill.digest} {bill.usd_rate}\n".encode())
    for name in names:
        digest.update(f"{name.provider} {name.kind} {name.name} {name.meaning}\n".encode())
    return digest.hexdigest()


def keep_reconciliation(
    session: Session,
    provider: str,
    month: str,
    at: datetime,
    *,
    bills: str,
    billed: Decimal,
    recorded: Decimal,
    unknown: Decimal,
    causes: Mapping[str, str],
    packed: str,
) -> Reconciliation:
    """Store the result for a provider's month, replacing the previous one."""
    row = session.get(Reconciliation, (provider, month))
    if row is None:
        row = Reconciliation(provider=provider, month=month)
        session.add(row)
    row.computed_at, row.bills = at, bills
    row.billed_usd, row.recorded_usd, row.unknown_usd, row.causes = billed, recorded, unknown, dict(causes)
    row.differences = packed
    session.flush()
    return row


def kept_differences(session: Session, provider: str, month: str) -> str:
    """Return the packed differences of a provider's month. Raises NotFound."""
    found = session.scalars(
        select(Reconciliation.differences).where(Reconciliation.provider == provider, Reconciliation.month == month)
    ).first()
    if found is None:
        raise NotFound(f"{provider[:63]!r} was not reconciled for {month[:7]!r}")
    return found


def list_reconciliations(session: Session) -> list[Reconciliation]:
    """Return the latest result for each provider's month, latest month first."""
    wanted = select(Reconciliation).order_by(Reconciliation.month.desc(), Reconciliation.provider)
    return list(session.scalars(wanted))
