"""The Accounting page as finance meets it: months, issued documents and corrections, each to be opened."""

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from streamlit.testing.v1 import AppTest

from analytics.books.closing import close_month, credit_invoice
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.organisation import create_tenant
from backends.store.columns import arrow_batch
from contracts.access.identity import Identity
from contracts.metering.usage import Usage
from contracts.recording.names import REQUESTS
from tests.analytics.cost.records import request
from tests.dashboard.drawn_page import cells, drawn

NOW = datetime.now(UTC)
LAST_MONTH = NOW.replace(day=1, hour=0, minute=0, second=0, microsecond=0) - timedelta(days=20)
MONTH = f"{LAST_MONTH:%Y-%m}"


@pytest.fixture
def books(
    store: Any, tmp_path: Path, migrated_sqlite: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, str]]:
    """A tenant with a closed month of 10 USD and a credit of 4 USD on its invoice."""
    shutil.copy(migrated_sqlite, tmp_path / "control.db")
    monkeypatch.setenv("TOLLKEEPER_DATA", str(tmp_path))
    database, tenant = ControlDatabase(f"sqlite:///{tmp_path / 'control.db'}"), f"tenant-{uuid4()}"
    author = Author("controller", NOW)
    with database.session() as session:
        create_tenant(session, author, tenant, "Fabrikam GmbH")
    usage = Usage(input_text=10, output_text=1)
    of_it: dict[str, Any] = {"who": Identity(tenant), "usage": usage, "cost_pico_usd": 10 * 10**12}
    client = store.client("writer")
    record = request(LAST_MONTH, model="gpt-x", cost_basis="price_card", **of_it)
    client.insert_arrow("requests", arrow_batch(REQUESTS, [record]), deduplication_token=str(uuid4()))
    (done,) = close_month(client, database, author, MONTH, tenant=tenant)
    assert done.document is not None
    credit, note = credit_invoice(client, database, author, done.document.number, Decimal(4), "agreed <b>price</b>")
    assert note is not None
    yield {"tenant": tenant, "invoice": done.document.number, "credit": credit.id, "note": note.number}
    client.close()
    database.close()


def page(**address: str) -> AppTest:
    return drawn("dashboard.views.books", "BOOKS", address)


def test_months_documents_and_corrections_stand_there_in_plain_words(books: dict[str, str]) -> None:
    app = page(tenant=books["tenant"])
    figures = {metric.label: metric.value for metric in app.metric}
    assert figures["Closed months"] == "1"
    assert (figures["Invoiced, net"], figures["Corrections"]) == ("$6.00", "-$4.00")
    shown = cells(app)
    for words in (MONTH, "Closed", books["invoice"], "10.00 USD", "Credit note", books["note"], "-4.00 USD", "Credit"):
        assert words in shown


def test_a_document_and_a_correction_are_opened_from_their_rows(books: dict[str, str]) -> None:
    app = page(tenant=books["tenant"], document=books["invoice"])
    text = " ".join(one.value for one in app.markdown)
    assert "payable 10.00 USD" in text.replace("\\", "")
    assert any("SHA-256" in one.value for one in app.caption)
    app = page(tenant=books["tenant"], adjustment=books["credit"])
    captions = " ".join(one.value for one in app.caption)
    assert "<b>" not in captions  # a reason is text
    assert "agreed" in captions
    assert any("There is no document" in one.value for one in page(document="INV-1").caption)


def test_another_tenant_sees_nothing_of_it(books: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_REACH", "someone-else")
    app = page(document=books["invoice"])
    assert books["invoice"] not in cells(app)
    captions = " ".join(one.value for one in app.caption)
    assert "There is no document" in captions and "No months are closed" in captions
