"""Adjustments and previews as JSON: money as decimal text in USD."""

from collections.abc import Sequence

from analytics.books.booking import Preview, PreviewLine
from contracts.control import BookAdjustment
from contracts.pricing.book_entries import Entry
from contracts.pricing.money import usd


def preview_as_json(preview: Preview) -> dict[str, object]:
    """Return what a correction would book."""
    return {
        "card": preview.card or None,
        "entries": len(preview.entries),
        "amount_usd": format(usd(preview.amount_pico_usd), "f"),
        "requests_outside_validity": preview.outside_validity,
        "digest": preview.digest,
        "lines": [_line(line) for line in preview.lines],
    }


def adjustment_as_json(row: BookAdjustment, entries: Sequence[Entry] | None = None) -> dict[str, object]:
    """Return an adjustment, with its entries if given."""
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
