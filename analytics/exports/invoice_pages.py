"""Renders an invoice as a self-contained HTML page and as a PDF."""

from datetime import timedelta
from decimal import Decimal
from html import escape
from typing import Final
from zoneinfo import ZoneInfo

from analytics.exports.charges import AS_RECORDED, REQUEST, UNKNOWN_USAGE
from analytics.exports.fonts import INSTALL
from analytics.exports.invoice import Invoice, InvoiceLine, Issue, Party
from analytics.exports.pdf_sheet import Sheet, code_points
from contracts.errors import Conflict
from contracts.pricing.unit_prices import unit_of

_HEADINGS: Final = ("Project", "Model", "Meter", "Quantity", "Price in USD", "Amount")
_WIDTHS: Final = (28, 36, 44, 24, 32, 26)  # millimetres, of A4's 190 between margins
_STYLE: Final = """
body{font:14px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;color:#1a1a1a}
table{border-collapse:collapse;width:100%}th,td{padding:.3rem .5rem;border-bottom:1px solid #ddd;text-align:left}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}.note{color:#8a4b00}.wide{overflow-x:auto}
"""


def invoice_html(invoice: Invoice, issuer: str, zone: ZoneInfo, issue: Issue | None = None) -> str:
    """Render an invoice as one HTML document, without `issue` as a draft. Names are HTML-escaped."""
    rows = "".join(_html_row(_cells(line)) for line in invoice.lines)
    sums = "".join(
        f"<tr><td colspan=5>{escape(name)}</td><td class=n>{amount:f}</td></tr>"
        for name, amount in _sums(invoice, issue)
    )
    headings = "".join(f"<th{' class=n' if place > 2 else ''}>{name}</th>" for place, name in enumerate(_HEADINGS))
    notes = "".join(f"<p class=note>{escape(note)}</p>" for note in _notes(invoice, issue))
    facts = "<br>".join(escape(fact) for fact in _facts(invoice, issuer, zone, issue))
    title = escape(_title(invoice, issue))
    table = f"<table><thead><tr>{headings}</tr></thead><tbody>{rows}</tbody><tfoot>{sums}</tfoot></table>"
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{title}</title><style>{_STYLE}</style><h1>{title}</h1><p>{facts}</p>"
        f"<div class=wide>{table}</div>{notes}</html>\n"
    )


def invoice_pdf(invoice: Invoice, issuer: str, zone: ZoneInfo, issue: Issue | None = None) -> bytes:
    """Render an invoice as a PDF of A4 pages.

    Letters that no font of this machine has are printed as code points in a draft, with a note. For an issued document,
    which is permanent, raises Conflict with these letters and the remedy.
    """
    title, facts, sums = _title(invoice, issue), _facts(invoice, issuer, zone, issue), _sums(invoice, issue)
    rows, notes = [_cells(line) for line in invoice.lines], _notes(invoice, issue)
    texts = (title, *facts, *_HEADINGS, *(cell for row in rows for cell in row), *(name for name, _ in sums), *notes)
    sheet = Sheet(texts, invoice.period.end)
    if issue is not None and sheet.missing:
        raise Conflict(
            f"the PDF of {invoice.tenant}'s {issue.title.lower()} cannot show {sheet.missing[:20]} "
            f"({code_points(sheet.missing)}): no font on this machine has these letters, and nothing was issued. To "
            f"issue it, {INSTALL}"
        )
    sheet.style("B", 16)
    sheet.line(title, 9)
    sheet.style("", 10)
    for fact in facts:
        sheet.line(fact)
    sheet.gap(4)
    sheet.style("B", 9)
    sheet.row(_aligned(_HEADINGS))
    sheet.style("", 9)
    for row in rows:
        sheet.row(_aligned(row))
    sheet.style("B", 9)
    for name, amount in sums:
        sheet.row([(name, sum(_WIDTHS[:5]), "L"), (f"{amount:f}", _WIDTHS[5], "R")])
    sheet.style("I", 9)
    for note in (*notes, *filter(None, [sheet.note])):
        sheet.line(note)
    return sheet.as_bytes()


def _title(invoice: Invoice, issue: Issue | None) -> str:
    return f"Draft invoice {invoice.number}" if issue is None else f"{issue.title} {issue.number}"


def _facts(invoice: Invoice, issuer: str, zone: ZoneInfo, issue: Issue | None) -> list[str]:
    start, end = invoice.period.start.astimezone(zone), invoice.period.end.astimezone(zone) - timedelta(seconds=1)
    payer = (
        f"Team {invoice.team or 'without a name'} of {invoice.tenant}" if invoice.level == "team" else invoice.tenant
    )
    if issue is None:
        facts = [f"From {issuer} to {payer}"]
    else:
        facts = [*_party("From", issue.seller), *_party("To", issue.buyer)]
        facts.append(f"Issued on {issue.issued_on}" + (f", due on {issue.due_on}" if issue.due_on else ""))
        if issue.version > 1:
            facts.append(f"Version {issue.version}")
        if issue.purchase_order:
            facts.append(f"Purchase order {issue.purchase_order}")
        if issue.corrects:
            facts.append(f"On invoice {issue.corrects}: {issue.reason}")
    facts.append(f"{start:%Y-%m-%d} to {end:%Y-%m-%d} ({zone.key})")
    facts.append(f"In {invoice.currency}")
    if invoice.currency != "USD":
        facts[-1] += f", at {invoice.usd_rate:f} per USD on {end:%Y-%m-%d} ({invoice.rate_version})"
    if invoice.terms_version:
        part = (
            ""
            if invoice.is_month or invoice.level == "team"
            else "; free amounts and commitments apply to whole months only"
        )
        facts.append(f"Terms: {invoice.terms_version}{part}")
    return facts


def _party(word: str, party: Party) -> list[str]:
    tax = [f"Tax number {party.tax_id}"] if party.tax_id else []
    return [f"{word} {party.name}", *party.address, *tax]


def _notes(invoice: Invoice, issue: Issue | None) -> list[str]:
    notes = []
    if issue is None:
        notes.append("This is a draft, not an invoice: nothing is payable until the month is closed.")
    if invoice.estimated:
        notes.append(
            f"Estimated: {invoice.estimated:f} {invoice.currency} of the usage is for answers that were cancelled, cut "
            "off or came without counts. Their tokens were counted by estimate."
        )
    if invoice.unknown_usage_requests:
        count = invoice.unknown_usage_requests
        notes.append(
            f"Usage unknown: no usage was reported for {count} {'request' if count == 1 else 'requests'}. "
            "They are not part of this invoice."
        )
    if invoice.corrections and (issue is None or not issue.corrects):
        notes.append(
            "Corrections are booked beside the usage, which is shown as it was recorded. Their ids are in parentheses."
        )
    unpriced: dict[str, list[str]] = {}
    for line in invoice.lines:
        if line.amount is None and line.meter != UNKNOWN_USAGE and line.model not in invoice.priced_since:
            meters = unpriced.setdefault(line.model, [])
            if line.meter != AS_RECORDED and line.meter not in meters:
                meters.append(line.meter)
    for model, meters in unpriced.items():
        missing = f"a price for {', '.join(_words(meter) for meter in meters)}" if meters else "a price"
        notes.append(
            f"No price: {model or 'no model'} has no price card with {missing}. What was used without one is not part "
            "of this invoice. Add one (tollkeeper prices import, POST /v1/prices) to bill it from now on. To bill what "
            "was used before, use tollkeeper books rerate."
        )
    return notes


def _sums(invoice: Invoice, issue: Issue | None) -> list[tuple[str, Decimal]]:
    # A credit note or cancellation has amounts only.
    sums = [] if issue is not None and issue.corrects else [("Usage", invoice.usage)]
    if invoice.estimated:
        sums.append(("of which estimated", invoice.estimated))
    if invoice.corrections:
        sums += invoice.corrections
        if issue is None or not issue.corrects:
            sums.append(("Usage after corrections", invoice.net))
    sums += invoice.adjustments
    taxes = () if issue is None else issue.taxes
    if taxes:
        sums.append(("Before tax", invoice.payable))
        sums += [(f"{name} {percent:f} %", amount) for name, percent, amount in taxes]
    payable = invoice.payable + (Decimal(0) if issue is None else issue.tax)
    return [*sums, (f"Payable in {invoice.currency}", payable)]


def _cells(line: InvoiceLine) -> tuple[str, ...]:
    word, per = ("", 1) if line.meter == REQUEST else unit_of(line.meter)
    each = "each" if per == 1 else f"per {word}" if word else "per million"
    count = Decimal(line.quantity) / per if word else Decimal(line.quantity)
    amount = "no price" if line.amount is None else f"{line.amount:f}"
    return (
        line.project or "-",
        line.model or "-",
        f"{_words(line.meter)} (estimated)" if line.is_estimated else _words(line.meter),
        f"{count:,f}",
        "-" if line.unit_usd is None else f"{(line.unit_usd * per).normalize():f} {each}",
        "unknown" if line.meter == UNKNOWN_USAGE else amount,
    )


def _words(meter: str) -> str:
    if meter == UNKNOWN_USAGE:
        return "requests, usage unknown"
    word, _ = unit_of(meter)
    return f"{word}s" if word else meter.replace("_", " ")


def _html_row(cells: tuple[str, ...]) -> str:
    tags = (f"<td{' class=n' if place > 2 else ''}>{escape(cell)}</td>" for place, cell in enumerate(cells))
    return f"<tr>{''.join(tags)}</tr>"


def _aligned(cells: tuple[str, ...]) -> list[tuple[str, float, str]]:
    return [
        (cell, width, "R" if place > 2 else "L") for place, (cell, width) in enumerate(zip(cells, _WIDTHS, strict=True))
    ]
