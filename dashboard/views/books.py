"""The Accounting page: state of each month, issued invoices and credit notes, booked corrections."""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any, Final

import streamlit as st

from analytics.books.board import (
    BookBoard,
    IssuedDocument,
    adjustment_entries,
    book_board,
    document_pages,
)
from contracts.access.person import person_of
from contracts.control import BookAdjustment, Role
from contracts.pricing.money import usd
from dashboard import address
from dashboard.money_column import Money
from dashboard.page import Page
from dashboard.panels import Figure, contained, note, panel, show_figures, show_table
from dashboard.states import escaped
from dashboard.table import Table
from dashboard.visit import Visit

_STATES: Final = {"draft": "Draft", "review": "In review", "closed": "Closed"}
_DOCUMENTS: Final = {"invoice": "Invoice", "credit_note": "Credit note", "cancellation": "Cancellation"}
_KINDS: Final = {
    "rerate": "Price correction",
    "reversal": "Reversal",
    "credit": "Credit",
    "credit_reversal": "Reversal of a credit",
}
_DECISIONS: Final = {"proposed": "Waiting for approval", "booked": "Booked", "rejected": "Rejected"}
_text = st.column_config.TextColumn
_moment = st.column_config.DatetimeColumn(format="D MMM YYYY HH:mm")
_day = st.column_config.DatetimeColumn(format="D MMM YYYY")
_MOST_ENTRIES: Final = 1_000


def draw(visit: Visit) -> None:
    """Draw months, documents and corrections, and the details of the selected document or correction."""
    board: BookBoard = visit.read_control(book_board, tenant=visit.scope.tenant)
    _figures(visit, board)
    _chosen(visit, board)
    show_table(
        "Months",
        periods_frame(visit, board),
        key="books_months",
        columns={
            "Month": _text(width="small"),
            "Version": st.column_config.NumberColumn(help="Number of times that the month was closed", width="small"),
            "Changed": _moment,
            "Reason": _text(width="medium"),
        },
        help="Months in review or closed. A month that is not listed is a draft: its numbers still change.",
        empty="No months are closed: all are drafts. Close one with `tollkeeper books close MONTH`.",
    )
    show_table(
        "Invoices and credit notes",
        documents_frame(visit, board.documents),
        key="books_documents",
        columns={
            "Number": _text(width="medium"),
            "Issued": _day,
            "Due": _day,
            "Net in USD": Money(
                6, "Usage and corrections, before the tenant's discount, free amount, minimum, currency and tax"
            ),
            "Corrects": _text(help="The invoice that a credit note or cancellation corrects"),
            "Payable": _text(help="With discount, free amount, minimum and tax, in the document's currency"),
        },
        help="Issued documents, newest first. Documents never change: a correction is a cancellation or credit "
        "note. Select a row to see it.",
        on_select=partial(_open, "books_documents", "document", [one.number for one in board.documents]),
        empty="No documents yet. Closing a month issues its invoice.",
    )
    show_table(
        "Corrections",
        adjustments_frame(visit, board),
        key="books_adjustments",
        columns={
            "Booked": _moment,
            "Amount": Money(6, "Above 0: more to pay; below 0: less to pay"),
            "Entries": st.column_config.NumberColumn(help="Groups of requests that it corrects", width="small"),
            "Reason": _text(width="medium"),
            "Id": _text(width="large"),
        },
        help="Corrections booked in addition to recorded cost, newest first. Request records never change. Choose "
        "a row to see its entries.",
        on_select=partial(_open, "books_adjustments", "adjustment", [row.id for row in board.adjustments]),
        empty="No corrections: all costs are as recorded.",
    )
    if board.has_more:
        note("The newest 500 are shown; `tollkeeper books list` and `tollkeeper books adjustments` show all.")
    note(
        "Correct a price with `tollkeeper books rerate`, close a month with `tollkeeper books close`, credit an "
        "invoice with `tollkeeper books credit`."
    )


def periods_frame(visit: Visit, board: BookBoard) -> Table:
    """Return the table of months."""
    return Table(
        [
            {
                "Month": row.month,
                "Tenant": row.tenant_id,
                "State": _STATES[row.state] + (", reopening requested" if row.wish else ""),
                "Version": row.version,
                "Invoice": row.invoice or None,
                "Changed": _local(visit, row.changed_at),
                "By": row.changed_by,
                "Reason": row.reason or None,
            }
            for row in board.periods
        ]
    )


def documents_frame(visit: Visit, documents: Sequence[IssuedDocument]) -> Table:
    """Return the table of issued documents."""
    return Table(
        [
            {
                "Number": one.number,
                "Kind": _DOCUMENTS[one.kind],
                "Tenant": one.tenant,
                "Month": one.month,
                "Issued": _local(visit, one.issued_at),
                "Due": None if one.due_at is None else _local(visit, one.due_at),
                "Net in USD": float(one.net_usd),
                "Payable": f"{one.payable:f} {one.currency}",
                "Corrects": one.corrects or None,
            }
            for one in documents
        ]
    )


def adjustments_frame(visit: Visit, board: BookBoard) -> Table:
    """Return the table of corrections."""
    return Table(
        [
            {
                "Booked": _local(visit, row.created_at),
                "Kind": _KINDS[row.kind],
                "State": _DECISIONS[row.state],
                "Tenant": row.tenant_id or "several",
                "Amount": float(board.amounts[row.id]),
                "Price card": row.card_version or None,
                "Entries": row.entry_count,
                "Reason": row.reason,
                "By": person_of(row.author),
                "Approved by": person_of(row.approved_by) or None,
                "Id": row.id,
            }
            for row in board.adjustments
        ]
    )


def _figures(visit: Visit, board: BookBoard) -> None:
    closed = sum(row.state == "closed" for row in board.periods)
    review = sum(row.state == "review" for row in board.periods)
    issued = sum((one.net_usd for one in board.documents), Decimal(0))
    booked = [row for row in board.adjustments if row.state == "booked"]
    corrections = sum((board.amounts[row.id] for row in booked), Decimal(0))
    waiting = sum(row.state == "proposed" for row in board.adjustments) + sum(bool(row.wish) for row in board.periods)
    money = visit.formats.money
    show_figures(
        [
            Figure("Closed months", visit.formats.count(closed), f"{visit.formats.count(review)} in review"),
            Figure(
                "Invoiced, net",
                money(issued),
                visit.formats.counted(len(board.documents), "document"),
                "Invoices minus credit notes and cancellations, before discounts, free amounts, minimums and tax",
            ),
            Figure(
                "Corrections",
                money(corrections),
                visit.formats.counted(len(booked), "correction"),
                "Booked in addition to recorded cost: price corrections, reversals and credits.",
            ),
            Figure(
                "Waiting",
                visit.formats.count(waiting),
                "for another person's approval",
                "Proposals do not count until another person approves them.",
                "warn" if waiting else None,
            ),
        ]
    )


def _chosen(visit: Visit, board: BookBoard) -> None:
    number, adjustment = address.get("document"), address.get("adjustment")
    if number is not None:
        one = next((each for each in board.documents if each.number == number), None)
        with contained():
            if one is None:
                note(f"There is no document {escaped(number)} here.")
            else:
                _document(visit, one)
    if adjustment is not None:
        row = next((each for each in board.adjustments if each.id == adjustment), None)
        with contained():
            if row is None:
                note(f"There is no correction {escaped(adjustment)} here.")
            else:
                _adjustment(visit, row)


def _document(visit: Visit, one: IssuedDocument) -> None:
    pages = visit.read_control(document_pages, one.number, tenant=visit.scope.tenant)
    with panel(f"{_DOCUMENTS[one.kind]} {one.number}"):
        formats = visit.formats
        due = "" if one.due_at is None else f", due on {formats.moment(one.due_at)}"
        st.markdown(
            f"{escaped(one.tenant)}, {one.month}. Issued on {formats.moment(one.issued_at)}{due}. "
            f"Before tax {one.payable - one.tax:f} {one.currency}, tax {one.tax:f} {one.currency}, payable "
            f"{one.payable:f} {one.currency}."
        )
        if pages.reason:
            st.markdown(f"Reason: {escaped(pages.reason)}")
        if not pages.is_as_issued:
            st.error("The document was changed after it was issued: its hash differs. Restore it from a backup.")
        with st.container(horizontal=True):
            st.download_button("PDF", pages.pdf, f"{one.number}.pdf", "application/pdf", on_click="ignore")
            st.download_button("HTML", pages.html, f"{one.number}.html", "text/html", on_click="ignore")
            st.button("Close", on_click=address.change, args=({"document": None},), key="close_document")
        note(f"SHA-256 of the issued document: {pages.digest}")


def _adjustment(visit: Visit, row: BookAdjustment) -> None:
    entries = visit.read_control(adjustment_entries, row.id, tenant=visit.scope.tenant)
    show_table(
        f"{_KINDS[row.kind]} {row.id}",
        Table(
            [
                {
                    "Day of use": _local(visit, entry.group.used_at),
                    "Month": entry.period,
                    "Tenant": entry.group.tenant,
                    "Team": entry.group.team or None,
                    "Key": entry.group.key or None,
                    "Model": entry.group.model or None,
                    "Recorded price": entry.group.price_version or None,
                    "Requests": entry.requests,
                    "Amount": float(usd(entry.effect.amount_pico_usd)),
                }
                for entry in entries[:_MOST_ENTRIES]
            ]
        ),
        key="books_entries",
        columns={"Day of use": _day, "Amount": Money(6, "Above 0: more to pay; below 0: less to pay")},
        help="One entry for each day, payer, model and recorded price.",
        empty="It has no entries.",
    )
    note(f"Reason: {escaped(row.reason)}")
    if len(entries) > _MOST_ENTRIES:
        note(f"The first {_MOST_ENTRIES:,} of {len(entries):,} entries are shown; see tollkeeper books show {row.id}.")
    st.button("Close", on_click=address.change, args=({"adjustment": None},), key="close_adjustment")


def _open(key: str, name: str, ids: Sequence[str]) -> None:
    rows = st.session_state[key].selection.rows
    other = "adjustment" if name == "document" else "document"
    if rows and rows[0] < len(ids):
        address.change({name: ids[rows[0]], other: None})


def _local(visit: Visit, at: datetime) -> Any:
    return at.astimezone(visit.formats.zone)


BOOKS = Page(
    "Accounting",
    "books",
    ":material/menu_book:",
    draw,
    filters=("tenant",),
    is_live=False,
    roles=frozenset({Role.OWNER, Role.ADMIN, Role.FINANCE}),
    about="Months that are closed, invoices and credit notes, and corrections of recorded cost.",
)
