"""Months that are closed: `tollkeeper books close`, the invoice that it freezes, and what comes after."""

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace
from pypdf import PdfReader
from sqlalchemy import select
from typer.testing import CliRunner

from analytics.books.closing import close_month
from backends.control.book_periods import (
    ProfileChange,
    closed_periods,
    list_documents,
    next_number,
    set_profile,
)
from backends.control.changes import Author
from backends.control.organisation import TenantChange, create_tenant, update_tenant
from backends.control.rates import NewRate, create_rate
from contracts.access.identity import Identity
from contracts.control import AuditEntry, BookDocument
from contracts.errors import Conflict
from tests.fonts import write_font
from tests.tollkeeper.test_books_command import CALENDAR, Books, refused, said
from tollkeeper.cli import app

NOW = datetime.now(UTC)
LAST_MONTH = NOW.replace(day=1, hour=0, minute=0, second=0, microsecond=0) - timedelta(days=20)
MONTH = f"{LAST_MONTH:%Y-%m}"
BLANK: dict[str, Any] = {
    **{"kind": "invoice", "month": "2046-10", "version": 1, "corrects": "", "adjustment_id": "", "reason": ""},
    **{"author": "test", "issued_at": NOW, "due_at": None, "currency": "USD", "usd_rate": Decimal(1)},
    **{"net_usd": Decimal(0), "net_by_month": {}, "subtotal": Decimal(0), "tax": Decimal(0), "taxes": []},
    **{"payable": Decimal(0), "terms": [], "html": "", "pdf_base64": "", "digest": ""},
}


@pytest.fixture
def books(store: Any, tmp_path: Path, migrated_sqlite: Path) -> Iterator[Books]:
    data = tmp_path / "data"
    shutil.copytree(store.data / "secrets", data / "secrets")
    shutil.copy(migrated_sqlite, data / "control.db")
    found = Books(store, data)
    yield found
    found.database.close()


def of_month(books: Books, *more: str) -> Any:
    asked = ["--month", MONTH, "--tz", "Europe/Berlin", "--tenant", books.tenant, *more, *books.place]
    return said("cost", "report", *asked)["total"]


def close(books: Books) -> Any:
    (done,) = said("books", "close", MONTH, "--tenant", books.tenant, *books.place)
    return done["document"]


def test_a_closed_month_is_an_invoice_that_stays_as_it_is(books: Books, tmp_path: Path) -> None:
    with books.database.session() as session:
        rate = NewRate("currency", "eur", "EUR", {"units_per_usd": "0.8612345678"}, datetime(2020, 1, 1, tzinfo=UTC))
        create_rate(session, CALENDAR, rate)
    said("books", "profile", "--legal-name", "Northwind AG", "--address", "Ring 1\\n1010 Wien", *books.data)
    said(
        *("books", "profile", books.tenant, "--legal-name", "Fabrikam GmbH", "--address", "Weg 2\\n10115 Berlin"),
        *("--tax-id", "DE123", "--purchase-order", "PO-7", "--currency", "EUR", "--due-days", "14", "--tax", "VAT=19"),
        *books.data,
    )
    books.used(books.request(LAST_MONTH, "gpt-x", 10 * 10**12, "card"))
    draft = ("--month", MONTH, "--tz", "Europe/Berlin", "--level", "tenant", "--tenant", books.tenant, *books.place)
    for named, currency, payable in (((), "EUR", "8.61"), (("--currency", "usd"), "USD", "10.00")):
        (one,) = said("cost", "invoices", str(tmp_path / "drafts"), *draft, *named)["invoices"]
        assert (one["currency"], one["payable"]) == (currency, payable)
    issued = close(books)
    assert issued["number"] == f"INV-{NOW:%Y}-00001" and issued["net_usd"] == "10.000000000000"
    assert (issued["subtotal"], issued["payable"]) == ("8.612346", "10.25")  # 8.61 and 19 % of it
    assert issued["taxes"] == [{"name": "VAT", "percent": "19", "amount": "1.64"}]
    assert datetime.fromisoformat(issued["due_at"]) - datetime.fromisoformat(issued["issued_at"]) == timedelta(14)

    html, pdf = tmp_path / "one.html", tmp_path / "one.pdf"
    shown = said("books", "show", issued["number"], "--html", str(html), "--pdf", str(pdf), *books.data)
    assert shown["is_as_issued"] and pdf.read_bytes().startswith(b"%PDF")
    page = html.read_text()
    for words in (
        *("From Northwind AG", "1010 Wien", "To Fabrikam GmbH", "10115 Berlin", "Tax number DE123"),
        *("Purchase order PO-7", "0.8612345678 per USD", "VAT 19 %", f"Invoice {issued['number']}"),
    ):
        assert words in page
    assert "draft" not in page.lower()

    # Another name, another rate, more usage: the same bytes.
    said("books", "profile", books.tenant, "--legal-name", "Fabrikam SE", *books.data)
    books.used(books.request(LAST_MONTH, "gpt-x", 5, "card"))
    again = tmp_path / "again.html"
    said("books", "show", issued["number"], "--html", str(again), *books.data)
    assert again.read_bytes() == html.read_bytes()
    assert "is closed already" in refused("books", "close", MONTH, "--tenant", books.tenant, *books.place)
    (period,) = said("books", "periods", "--tenant", books.tenant, *books.data)
    assert (period["state"], period["invoice"], period["version"]) == ("closed", issued["number"], 1)


def test_a_closed_month_is_corrected_by_a_credit_note_alone(books: Books) -> None:
    books.used(books.request(LAST_MONTH, "gpt-x", 10 * 10**12, "wrong"))
    books.card(f"right-{books.tenant}", "gpt-x", "2", "10")
    number = close(books)["number"]
    rerate = ("books", "rerate", "--month", MONTH, "--reason", "x", "--tenant", books.tenant)
    message = refused(*rerate, "--yes", *books.place)
    assert f"is closed by invoice {number}" in message and f"tollkeeper books credit {number}" in message
    assert of_month(books)["corrections_usd"] == "0.000000000000"

    credit = said("books", "credit", number, "--usd", "9.997", "--reason", "agreed price", *books.place)
    assert (credit["kind"], credit["amount_usd"]) == ("credit", "-9.997000000000")
    note = credit["document"]
    assert (note["kind"], note["corrects"], note["payable"]) == ("credit_note", number, "-10.00")
    left = refused("books", "credit", number, "--usd", "1", "--reason", "more", *books.place)
    assert "0.003000000000 USD are left" in left
    for amount, said_of_it in (("0", "above 0"), ("-1", "above 0"), ("nan", "finite"), ("x", "not an amount")):
        assert said_of_it in refused("books", "credit", number, f"--usd={amount}", "--reason", "x", *books.place)
    assert "is not taken back" in refused("books", "reverse", credit["id"], "--reason", "x", *books.place)
    register = said("books", "list", "--tenant", books.tenant, *books.data)
    assert [one["kind"] for one in register] == ["invoice", "credit_note"]


def test_reopening_cancels_the_invoice_and_the_next_bills_what_came_late(books: Books) -> None:
    books.used(books.request(LAST_MONTH, "gpt-x", 10**12, "card"))
    first = close(books)
    books.used(books.request(LAST_MONTH, "gpt-x", 2 * 10**12, "card"))
    opened = said("books", "reopen", MONTH, "--tenant", books.tenant, "--reason", "late usage", *books.data)
    assert (opened["state"], opened["document"]["kind"]) == ("draft", "cancellation")
    assert (opened["document"]["payable"], opened["document"]["corrects"]) == ("-1.00", first["number"])
    second = close(books)
    assert (second["payable"], second["version"]) == ("3.00", 2)
    register = said("books", "list", "--tenant", books.tenant, *books.data)
    assert sum(Decimal(one["net_usd"]) for one in register) == Decimal(of_month(books)["cost_usd"]) == 3
    assert "is cancelled" in refused("books", "credit", first["number"], "--usd", "1", "--reason", "x", *books.place)


def test_what_an_earlier_version_was_credited_is_not_credited_again(books: Books) -> None:
    books.used(books.request(LAST_MONTH, "gpt-x", 10 * 10**12, "card"))
    first = close(books)["number"]
    said("books", "credit", first, "--usd", "4", "--reason", "agreed", *books.place)
    said("books", "reopen", MONTH, "--tenant", books.tenant, "--reason", "address", *books.data)
    second = close(books)
    assert second["payable"] == "10.00"
    credit = ("books", "credit", second["number"], "--reason", "more", *books.place, "--usd")
    assert "6.000000000000 USD are left" in refused(*credit, "6.01")
    said(*credit, "6")
    register = said("books", "list", "--tenant", books.tenant, *books.data)
    assert sum(Decimal(one["net_usd"]) for one in register) == 0


def test_two_people_close_and_reopen(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    books.used(books.request(LAST_MONTH, "gpt-x", 10**12, "card"))
    said("books", "profile", "--two-person", *books.data)
    closing = ["books", "close", MONTH, "--tenant", books.tenant, *books.place]
    assert "needs two people" in refused(*closing)
    said("books", "review", MONTH, "--tenant", books.tenant, *books.data)
    assert "needs two people" in refused(*closing)
    monkeypatch.setattr("getpass.getuser", lambda: "controller")
    number = close(books)["number"]

    credit = said("books", "credit", number, "--usd", "0.25", "--reason", "goodwill", *books.place)
    assert (credit["state"], credit["document"]) == ("proposed", None)
    assert "another person must approve it" in refused("books", "approve", credit["id"], *books.place)
    reopen = ["books", "reopen", MONTH, "--tenant", books.tenant, "--reason", "check", *books.data]
    assert said(*reopen)["asked_for"] == "reopen"
    assert "another person must reopen" in refused(*reopen)

    monkeypatch.setattr("getpass.getuser", lambda: "treasurer")
    assert said("books", "approve", credit["id"], *books.place)["document"]["payable"] == "-0.25"
    assert said(*reopen)["state"] == "draft"


def test_whoever_asked_to_reopen_does_so_alone_once_one_person_is_enough(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    books.used(books.request(LAST_MONTH, "gpt-x", 10**12, "card"))
    close(books)
    said("books", "profile", "--two-person", *books.data)
    reopen = ("books", "reopen", MONTH, "--tenant", books.tenant, "--reason", "x", *books.data)
    assert said(*reopen)["asked_for"] == "reopen"
    assert "another person must reopen" in refused(*reopen)
    said("books", "profile", "--one-person", *books.data)
    monkeypatch.setenv("LOGNAME", "somebody-else")
    said("books", "profile", "--one-person", *books.data)
    monkeypatch.undo()
    assert said(*reopen)["state"] == "draft"


def test_a_month_is_not_closed_over_a_correction_that_awaits_approval(books: Books) -> None:
    books.used(books.request(LAST_MONTH, "gpt-x", 10**12, "wrong"))
    books.card(f"right-{books.tenant}", "gpt-x", "2", "10")
    rerate = ("books", "rerate", "--month", MONTH, "--tenant", books.tenant, "--reason", "x", "--yes", *books.place)
    closing = ("books", "close", MONTH, "--tenant", books.tenant, *books.place)
    proposed = said(*rerate, "--propose")["adjustment"]["id"]
    assert f"correction {proposed} for {MONTH}" in refused(*closing)
    said("books", "reject", proposed, *books.place)
    assert close(books)["net_usd"] == "1.000000000000"


def test_two_people_end_what_needs_two_people(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = ("books", "profile", "--one-person", *books.data)
    said("books", "profile", "--two-person", *books.data)
    asked = said(*profile)
    assert asked["two_person"] and asked["one_person_asked_by"].endswith("(command line)")
    assert "another person must end two-person approval" in refused(*profile)
    monkeypatch.setattr("getpass.getuser", lambda: "controller")
    ended = said(*profile)
    assert (ended["two_person"], ended["one_person_asked_by"]) == (False, "")
    with books.database.session() as session:
        details = [row.detail for row in session.scalars(select(AuditEntry)) if row.action == "book.profile"]
    changed: Any = details[-1]
    assert changed["before"]["is_two_person"] is True and changed["after"]["is_two_person"] is False


def test_a_tenant_s_calendar_stays_while_its_books_are_kept_by_it(books: Books) -> None:
    """By another zone days and months are others: the same correction would be booked twice, and an hour invoiced."""

    def move(**change: Any) -> str:
        with books.database.session() as session:
            return update_tenant(session, CALENDAR, books.tenant, TenantChange(**change)).time_zone

    books.used(books.request(LAST_MONTH, "gpt-x", 10**12, "wrong"))
    books.card(f"right-{books.tenant}", "gpt-x", "2", "10")
    rerate = ("books", "rerate", "--month", MONTH, "--tenant", books.tenant, "--reason", "x", "--yes", *books.place)
    booked = said(*rerate)["adjustment"]["id"]
    with pytest.raises(Conflict, match=f"stays Europe/Berlin: {booked} is booked by its calendar"):
        move(time_zone="Asia/Tokyo")
    said("books", "reverse", booked, "--reason", "moving", *books.place)
    close(books)
    with pytest.raises(Conflict, match=f"stays Europe/Berlin: {MONTH} is closed by its calendar"):
        move(time_zone="Asia/Tokyo")
    assert move(time_zone="Europe/Berlin", weight=2) == "Europe/Berlin"  # as it is
    said("books", "reopen", MONTH, "--tenant", books.tenant, "--reason", "moving", *books.data)
    assert move(time_zone="Asia/Tokyo") == "Asia/Tokyo"
    assert said(*rerate)["adjustment"]["amount_usd"] == "-0.997000000000"


def test_numbers_go_on_behind_99999_and_are_of_the_year_of_the_tenant_s_calendar(books: Books) -> None:
    at = datetime(2046, 12, 31, 23, 30, tzinfo=UTC)  # in Berlin it is 2047
    with books.database.session() as session:
        for number in ("INV-2046-00099", "INV-2046-99999", "INV-2046-100000", "CN-2046-00007"):
            session.add(BookDocument(**{**BLANK, "number": number, "tenant_id": books.tenant}))
        session.flush()
        assert next_number(session, "invoice", at.date()) == "INV-2046-100001"
        assert next_number(session, "credit_note", at.date()) == "CN-2046-00008"
        assert next_number(session, "cancellation", at.date()) == "CAN-2046-00001"
    books.used(books.request(datetime(2046, 11, 5, tzinfo=UTC), "gpt-x", 10**12, "card"))
    client = books.writer()
    (done,) = close_month(client, books.database, Author("test", at), "2046-11", tenant=books.tenant)
    client.close()
    assert done.document is not None and done.document.number == "INV-2047-00001"
    assert "Issued on 2047-01-01" in done.document.html


@pytest.fixture
def fonts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any font but those of the directory that is returned."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_DATA_DIRS", str(tmp_path / "nothing"))
    return tmp_path / "home" / "fonts"


def test_a_pdf_shows_names_of_any_script_by_fonts_of_the_machine(books: Books, fonts: Path, tmp_path: Path) -> None:
    letters = "Škoda Łódź 株式会社"
    write_font(fonts / "latin" / "A.ttf", "ŠŁódź")
    write_font(fonts / "cjk" / "B.ttf", "株式会社")
    said("books", "profile", books.tenant, "--legal-name", letters, "--address", "x" * 300, *books.data)
    books.used(books.request(LAST_MONTH, "gpt-x", 10**12, "card"))
    pdf, html = tmp_path / "one.pdf", tmp_path / "one.html"
    number = close(books)["number"]
    said("books", "show", number, "--pdf", str(pdf), "--html", str(html), *books.data)
    assert f"To {letters}<br>" in html.read_text()
    page = text_of_pdf(pdf)
    assert f"To {letters}" in page and "Payable in USD" in page and "No font" not in page
    assert page.count("x") >= 300, "a long line goes on in the next"
    assert b"/FontFile2" in pdf.read_bytes(), "the glyphs are in the file"


def test_a_document_with_letters_that_no_font_has_is_not_issued(books: Books, fonts: Path, tmp_path: Path) -> None:
    said("books", "profile", books.tenant, "--legal-name", "Škoda 株式会社", *books.data)
    books.used(books.request(LAST_MONTH, "gpt-x", 10**12, "card"))
    write_font(fonts / "forbidden.ttf", "株式会社", is_embeddable=False)
    (fonts / "broken.ttf").write_bytes(b"no font")
    closing = ("books", "close", MONTH, "--tenant", books.tenant, *books.place)
    message = refused(*closing)
    assert "cannot show 会式株社 (U+4F1A, U+5F0F, U+682A, U+793E)" in message and "apt install" in message
    assert said("books", "list", "--tenant", books.tenant, *books.data) == []
    all_tenants = CliRunner().invoke(app, ["books", "close", MONTH, *books.place])
    assert all_tenants.exit_code == 1 and "U+4F1A" in all_tenants.output, "and it keeps no other open"

    with books.database.session() as session:
        create_tenant(session, CALENDAR, "kabu", "kabu")
    books.used(replace(books.request(LAST_MONTH, "模型", 10**12, "card"), who=Identity("kabu")))
    asked = ["--month", MONTH, "--level", "tenant", "--tenant", "kabu", "--issuer", "Škoda 会社", *books.place]
    said("cost", "invoices", str(tmp_path / "drafts"), *asked)
    (draft,) = (tmp_path / "drafts").glob("*.pdf")
    page = text_of_pdf(draft).replace("\n", " ")
    assert "From Skoda [U+4F1A][U+793E] to kabu" in page and "?" not in page
    assert "No font on this machine has U+0160, U+4F1A, U+6A21, U+578B" not in page  # in order of their numbers
    assert "No font on this machine has U+0160, U+4F1A, U+578B, U+6A21, U+793E. To show them, install" in page

    write_font(fonts / "cjk.ttf", "Š株式会社")
    assert close(books)["number"]


def text_of_pdf(path: Path) -> str:
    """Return the text of a PDF as a reader copies it."""
    return "\n".join(page.extract_text() for page in PdfReader(path).pages)


def test_a_month_that_is_not_over_stays_open_and_its_draft_says_so(books: Books, tmp_path: Path) -> None:
    with books.database.session() as session:
        terms = NewRate("terms", "terms", books.tenant, {"committed_usd": "100"}, datetime(2020, 1, 1, tzinfo=UTC))
        create_rate(session, CALENDAR, terms)
    month = f"{NOW:%Y-%m}"
    assert f"{month} is over at" in refused("books", "close", month, "--tenant", books.tenant, *books.place)
    assert "'May' is not a month" in refused("books", "close", "May", "--tenant", books.tenant, *books.place)
    books.used(books.request(NOW - timedelta(seconds=5), "gpt-x", 10**9, "card"))
    asked = ["--month", month, "--level", "tenant", "--tenant", books.tenant, *books.place]
    (draft,) = said("cost", "invoices", str(tmp_path), *asked)["invoices"]
    assert Decimal("0") < Decimal(draft["payable"]) <= 100  # of the commitment, the days so far
    (page,) = (path.read_text() for path in tmp_path.glob("*.html"))
    assert "Draft invoice" in page and "This is a draft, not an invoice" in page and "of the month so far" in page


def test_a_tenant_whose_month_stays_open_keeps_no_other_open(books: Books) -> None:
    """Of three tenants one lives where the month is not over yet, and one is billed in a currency without a rate."""
    francs = f"francs-{uuid4()}"
    at = datetime(2046, 12, 1, 1, tzinfo=UTC)  # in New York it is November
    with books.database.session() as session:
        for name, zone in (("early", "America/New_York"), (francs, "UTC")):
            create_tenant(session, CALENDAR, name, name, time_zone=zone)
        set_profile(session, CALENDAR, francs, ProfileChange(currency="CHF"))
    used = books.request(datetime(2046, 11, 5, tzinfo=UTC), "gpt-x", 10**12, "card")
    books.used(used, replace(used, request_id=uuid4().bytes, who=Identity(francs)))
    client = books.writer()
    done = {one.tenant: one for one in close_month(client, books.database, Author("test", at), "2046-11")}
    again = close_month(client, books.database, Author("test", at), "2046-11")
    client.close()
    assert done[books.tenant].document is not None and not done[books.tenant].refused
    assert done["early"].refused.startswith("2046-11 is over at 2046-12-01 00:00 (America/New_York)")
    assert done[francs].refused.startswith("CHF has no rate on 2046-11-30")
    assert [(one.tenant, bool(one.refused)) for one in again] == [("early", True), (francs, True)]
    with books.database.session() as session:
        documents = list_documents(session, month="2046-11")
        assert [one.tenant_id for one in documents] == [books.tenant]
        assert set(closed_periods(session)) == {(books.tenant, "2046-11")}


def test_all_tenants_close_at_once_and_those_without_usage_have_no_invoice(books: Books) -> None:
    done = said("books", "close", MONTH, *books.place)
    assert [(one["tenant"], one["document"]) for one in done] == [(books.tenant, None)]
    assert said("books", "close", MONTH, *books.place) == []
    stranger = f"stranger-{uuid4()}"
    books.used(replace(books.request(LAST_MONTH, "gpt-x", 10**12, "card"), who=Identity(stranger)))
    told = CliRunner().invoke(app, ["books", "close", MONTH, *books.place])
    assert told.exit_code == 0
    assert f"not billed: 1.000000000000 USD of {stranger}, which is not a tenant here" in told.stderr.replace("\n", " ")
    result = CliRunner().invoke(app, ["books", "list", "--tenant", books.tenant, *books.data])
    assert "nothing was issued" in result.stdout
