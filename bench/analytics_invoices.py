"""Monthly invoices of every team over a filled store: read, taken apart into charges, made out, and printed as HTML."""

import time
from datetime import datetime
from zoneinfo import ZoneInfo

from analytics.cost.question import CostQuestion
from analytics.exports.charges import charges_of
from analytics.exports.invoice import invoices
from analytics.exports.invoice_pages import invoice_html
from analytics.prices.usage_groups import usage_groups
from analytics.scope import Period
from backends.store.client import StoreClient
from bench.report import Report
from contracts.pricing.rates import RateBook

MOST_SECONDS = 20.0


def invoice_rows(report: Report, reader: StoreClient, start: datetime, end: datetime, filled: int, asked: int) -> None:
    """Add the row: from requests to pages, once; the bound is for `asked` requests. Raises StoreUnavailable."""
    zone = ZoneInfo("UTC")
    period = Period(start, end)
    began = time.perf_counter()
    question = CostQuestion(start, end, ("tenant", "team", "project"), zone=zone)
    made = invoices(charges_of(usage_groups(reader, question, []), []), period, "tenant", RateBook())
    pages = [invoice_html(invoice, "bench", zone) for invoice in made]
    seconds = time.perf_counter() - began
    short = "" if filled >= asked else f"{filled:,} requests, where the bound is for {asked:,}"
    report.add("invoices", seconds, f"s for {len(pages):,} invoices", must=MOST_SECONDS, better="lower", n=len(pages),
               unjudged=short)  # fmt: skip
