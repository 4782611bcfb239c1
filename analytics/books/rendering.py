"""Converts adjustments, previews, months and documents to JSON types; money as decimal text in USD."""

from collections.abc import Sequence

from analytics.books.booking import Preview, PreviewLine
from backends.control.book_periods import is_as_issued
from contracts.control import BookAdjustment, BookDocument, BookPeriod
from contracts.pricing.book_entries import Entry
from contracts.pricing.money import usd


def preview_as_json(preview: Preview) -> dict[str, object]:
    """Return the preview of a correction as JSON types."""
    return {
        "card": preview.card or None,
        "entries": len(preview.entries),
        "amount_usd": format(usd(preview.amount_pico_usd), "f"),
        "requests_outside_validity": preview.outside_validity,
        "digest": preview.digest,
        "lines": [_line(line) for line in preview.lines],
    }


def adjustment_as_json(row: BookAdjustment, entries: Sequence[Entry] | None = None) -> dict[str, object]:
    """Return an adjustment as JSON types, with its entries if given."""
    shown: dict[str, object] = {
        "id": row.id,
        "kind": row.kind,
        "state": row.state,
        "tenant": row.tenant_id or None,
        "model": row.model or None,
        "from": row.starts_at.isoformat(),
        "to": row.ends_at.isoformat(),
        "card": row.card_version or None,
        "invoice": row.invoice or None,
        "reason": row.reason,
        "author": row.author,
        "created_at": row.created_at.isoformat(),
        "approved_by": row.approved_by or None,
        "approved_at": None if row.approved_at is None else row.approved_at.isoformat(),
        "reverses": row.reverses,
        "entry_count": row.entry_count,
        "amount_usd": format(row.amount_usd, "f"),
        "digest": row.digest,
    }
    if entries is not None:
        shown["entries"] = [_entry(entry) for entry in entries]
    return shown


def period_as_json(row: BookPeriod) -> dict[str, object]:
    """Return a tenant's month as JSON types."""
    return {
        "tenant": row.tenant_id,
        "month": row.month,
        "state": row.state,
        "version": row.version,
        "invoice": row.invoice or None,
        "changed_by": row.changed_by,
        "changed_at": row.changed_at.isoformat(),
        "reason": row.reason or None,
        "asked_for": row.wish or None,
        "asked_by": row.wished_by or None,
    }


def document_as_json(row: BookDocument) -> dict[str, object]:
    """Return an issued document as JSON types, without its pages. `is_as_issued`: whether their hash still matches."""
    return {
        "number": row.number,
        "kind": row.kind,
        "tenant": row.tenant_id,
        "month": row.month,
        "version": row.version,
        "corrects": row.corrects or None,
        "adjustment": row.adjustment_id or None,
        "reason": row.reason or None,
        "author": row.author,
        "issued_at": row.issued_at.isoformat(),
        "due_at": None if row.due_at is None else row.due_at.isoformat(),
        "currency": row.currency,
        "usd_rate": format(row.usd_rate, "f"),
        "net_usd": format(row.net_usd, "f"),
        "net_usd_by_month": dict(row.net_by_month),
        "subtotal": format(row.subtotal, "f"),
        "taxes": [{"name": name, "percent": percent, "amount": amount} for name, percent, amount in row.taxes],
        "payable": format(row.payable, "f"),
        "digest": row.digest,
        "is_as_issued": is_as_issued(row),
    }


def _line(line: PreviewLine) -> dict[str, object]:
    return {
        "tenant": line.tenant,
        "model": line.model,
        "price": line.price_version or None,
        "period": line.period,
        "requests": line.requests,
        "recorded_usd": format(usd(line.recorded_pico_usd), "f"),
        "booked_usd": format(usd(line.booked_pico_usd), "f"),
        "correction_usd": format(usd(line.effect.amount_pico_usd), "f"),
        "net_usd": format(usd(line.net_pico_usd), "f"),
        "newly_priced_requests": -line.effect.unpriced_requests,
    }


def _entry(entry: Entry) -> dict[str, object]:
    group, effect = entry.group, entry.effect
    return {
        "tenant": group.tenant,
        "team": group.team or None,
        "project": group.project or None,
        "key": group.key or None,
        "model": group.model,
        "provider": group.provider or None,
        "price": group.price_version or None,
        "used_at": group.used_at.isoformat(),
        "period": entry.period,
        "requests": entry.requests,
        "amount_usd": format(usd(effect.amount_pico_usd), "f"),
        "newly_priced_requests": -effect.unpriced_requests,
    }
