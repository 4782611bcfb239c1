"""The Reconciliation page: months, causes and differences, and the way to the requests behind one."""

import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from streamlit.testing.v1 import AppTest

from analytics.reconciliation.importing import BillFile, import_bill
from analytics.reconciliation.report import keep, reconcile
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.store.columns import arrow_batch
from contracts.access.identity import Identity
from contracts.metering.usage import Usage
from contracts.recording.names import REQUESTS
from tests.analytics.cost.records import request
from tests.dashboard.drawn_page import cells, drawn

DAY = datetime(2044, 5, 6, tzinfo=UTC)
MONTH = "2044-05"


@pytest.fixture
def provider(store: Any, tmp_path: Path, migrated_sqlite: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A provider whose bill has tax, and 500 tokens of output that nothing explains."""
    shutil.copy(migrated_sqlite, tmp_path / "control.db")
    monkeypatch.setenv("TOLLKEEPER_DATA", str(tmp_path))
    database, name = ControlDatabase(f"sqlite:///{tmp_path / 'control.db'}"), f"p{uuid4().hex[:12]}"
    author = Author("controller", DAY)
    fields: dict[str, Any] = {"who": Identity("acme"), "usage": Usage(input_text=10, output_text=100), "provider": name}
    record = request(DAY.replace(hour=9), model="fast", model_version="gpt-z", replica="target-1", **fields)
    client = store.client("writer")
    client.insert_arrow("requests", arrow_batch(REQUESTS, [record]), deduplication_token=str(uuid4()))
    costs = [
        {"object": "organization.costs.result", "amount": {"value": value, "currency": "usd"}, "line_item": item,
         "quantity": quantity}
        for value, item, quantity in ((3, "gpt-z, output", 600), (0.25, "VAT", None))
    ]  # fmt: skip
    page = {"data": [{"object": "bucket", "start_time": int(DAY.timestamp()), "results": costs}], "has_more": False}
    import_bill(database, author, BillFile(json.dumps(page).encode(), "costs.json", MONTH, name))
    with database.session() as session:
        keep(session, reconcile(client, session, name, MONTH, DAY))
    yield name
    client.close()
    database.close()


def shown(**address: str) -> AppTest:
    return drawn("dashboard.views.reconciliation", "RECONCILIATION", address)


def test_a_month_has_its_sums_causes_and_differences(provider: str) -> None:
    app = shown()
    figures = {metric.label: metric.value for metric in app.metric}
    assert (figures["Billed"], figures["Recorded"], figures["Difference"]) == ("$3.25", "$0.00", "$3.25")
    assert figures["Unexplained"] == "$2.50"
    text = cells(app)
    for words in (provider, MONTH, "Tax", "No price card", "Unknown", "costs.json"):
        assert words in text
    text = cells(shown(provider=provider, bill_month=MONTH, cause="unknown"))
    assert "2044-05-06" in text and "gpt-z" in text and "output" in text


def test_viewers_of_one_tenant_see_no_bill(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_REACH", "acme")
    app = shown(provider=provider, bill_month=MONTH)
    assert not app.dataframe and not app.metric
    assert any("whole installation" in caption.value for caption in app.caption)
