"""The books over HTTP: who may change them, what a preview promises, and what a tenant sees of its corrections."""

import shutil
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from fastapi.testclient import TestClient

from analytics.app import create_app
from analytics.settings import AnalyticsSettings
from backends.control.admin_tokens import TOKEN_PREFIX, NewToken, create_token
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.organisation import create_tenant
from backends.control.prices import create_price
from backends.secrets.secret_files import SecretFiles
from contracts.access.identity import Identity
from contracts.access.keys import new_key
from contracts.control import Role
from contracts.metering.usage import Usage
from contracts.pricing.prices import NewPrice
from contracts.recording.records import RequestRecord
from tests.analytics.cost.records import request

NOON = datetime(2047, 3, 4, 12, tzinfo=UTC)
AUTHOR = Author("test", datetime.now(UTC))


class Api:
    """The analytics process with a tenant of its own, and tokens by role."""

    def __init__(self, client: TestClient, tenant: str, tokens: dict[str, str]) -> None:
        self.client, self.tenant, self.tokens = client, tenant, tokens
        self.asked = {
            **{"from": "2047-03-01", "to": "2047-04-01"},
            **{"tenant": tenant, "model": "gpt-x", "reason": "agreed price"},
        }

    def post(self, who: str, path: str, body: object = None) -> Any:
        return self.client.post(f"/v1/books/{path}", headers=self._head(who), json=body)

    def get(self, who: str, path: str) -> Any:
        return self.client.get(f"/v1/books/{path}", headers=self._head(who))

    def _head(self, who: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.tokens[who]}"}


@pytest.fixture
def api(store: Any, record: Any, migrated_sqlite: Path, tmp_path: Path) -> Iterator[Api]:
    shutil.copy(migrated_sqlite, tmp_path / "control.db")
    shutil.copytree(store.data / "secrets", tmp_path / "secrets")
    secrets = SecretFiles(tmp_path / "secrets")
    owner = secrets.get_or_create("admin_token", prefix=TOKEN_PREFIX)
    pepper = secrets.get_or_create("key_pepper").encode()
    database = ControlDatabase(f"sqlite:///{tmp_path / 'control.db'}")
    tenant, other = f"tenant-{uuid4()}", f"other-{uuid4()}"
    tokens = {"owner": owner}
    roles = {
        "finance": NewToken("finance", Role.FINANCE),
        "tenant": NewToken("tenant", Role.FINANCE, tenant),
        "other": NewToken("other", Role.ADMIN, other),
        "finance again": NewToken("finance", Role.FINANCE),  # a second token of the same person
        "alice": NewToken("alice", Role.ADMIN),
    }
    with database.session() as session:
        create_tenant(session, AUTHOR, tenant, tenant)
        create_tenant(session, AUTHOR, other, other)
        for number, (name, new) in enumerate(roles.items(), 1):
            tokens[name] = TOKEN_PREFIX + new_key(bytes([number] * 32)).removeprefix("tk-")
            made = create_token(session, AUTHOR, Role.OWNER, new, tokens[name], pepper)
        for number, name in enumerate(("made by alice", "made by alice too"), 100):  # `made` is alice's token
            tokens[name] = TOKEN_PREFIX + new_key(bytes([number] * 32)).removeprefix("tk-")
            new = NewToken(name, Role.FINANCE, parent_id=made.id)
            create_token(session, AUTHOR, Role.ADMIN, new, tokens[name], pepper)
        create_price(session, AUTHOR, NewPrice("gpt-x", "gpt-x/1", {"input_text": Decimal(2)}, tenant=tenant))
    usage = Usage(input_text=1_000, output_text=0)
    record([request(NOON, who=Identity(tenant), model="gpt-x", usage=usage, cost_pico_usd=7)])
    settings = AnalyticsSettings(data=tmp_path, store_url=store.url, alerts_evaluate_seconds=3600)
    with TestClient(create_app(settings)) as client:
        yield Api(client, tenant, tokens)
    database.close()


def test_a_preview_is_booked_as_it_was_shown_or_not_at_all(api: Api, record: Any) -> None:
    shown = api.post("finance", "rerate", api.asked).json()
    assert (shown["amount_usd"], shown["adjustment"]) == ("0.001999999993", None)
    late: Sequence[RequestRecord] = [
        request(NOON, who=Identity(api.tenant), model="gpt-x", usage=Usage(input_text=5, output_text=0))
    ]
    record(late)
    refused = api.post("finance", "rerate", {**api.asked, "apply": True, "digest": shown["digest"]})
    assert refused.status_code == 409 and "differs from its preview" in refused.json()["error"]["message"]
    again = api.post("finance", "rerate", api.asked).json()
    booked = api.post("finance", "rerate", {**api.asked, "apply": True, "digest": again["digest"]}).json()
    assert booked["adjustment"]["amount_usd"] == "0.002009999993"
    assert booked["adjustment"]["author"].startswith("finance (")


def test_who_may_change_the_books_and_who_sees_them(api: Api) -> None:
    for who in ("tenant", "other"):
        assert api.post(who, "rerate", api.asked).status_code == 403
    booked = api.post("owner", "rerate", {**api.asked, "apply": True}).json()["adjustment"]
    ours = api.get("tenant", f"adjustments/{booked['id']}").json()
    assert [entry["amount_usd"] for entry in ours["entries"]] == ["0.001999999993"]
    assert booked["id"] in {one["id"] for one in api.get("tenant", "adjustments").json()["data"]}
    assert api.get("other", "adjustments").json()["data"] == []
    assert api.get("other", f"adjustments/{booked['id']}").status_code == 404
    assert api.post("tenant", f"adjustments/{booked['id']}/reverse", {"reason": "x"}).status_code == 403
    undone = api.post("owner", f"adjustments/{booked['id']}/reverse", {"reason": "not agreed"})
    assert undone.json()["amount_usd"] == "-0.001999999993"


def test_two_people_book_a_proposal(api: Api) -> None:
    proposed = api.post("finance", "rerate", {**api.asked, "propose": True, "apply": True}).json()["adjustment"]
    for token in ("finance", "finance again"):
        refused = api.post(token, f"adjustments/{proposed['id']}/approve")
        assert refused.status_code == 409
        assert "was proposed by finance; another person" in refused.json()["error"]["message"]
    assert api.post("owner", f"adjustments/{proposed['id']}/approve").json()["state"] == "booked"


def test_a_token_that_somebody_made_for_themselves_is_no_second_person(api: Api) -> None:
    wish = {**api.asked, "propose": True, "apply": True}
    for proposer, approvers in (
        ("alice", ("made by alice", "made by alice too")),
        ("made by alice", ("alice", "made by alice too")),
    ):
        proposed = api.post(proposer, "rerate", wish).json()["adjustment"]
        for approver in approvers:
            refused = api.post(approver, f"adjustments/{proposed['id']}/approve")
            assert refused.status_code == 409, (proposer, approver)
            assert f"was proposed by {proposer}; another person" in refused.json()["error"]["message"]
        assert api.post("finance", f"adjustments/{proposed['id']}/reject").json()["state"] == "rejected"
    proposed = api.post("made by alice", "rerate", wish).json()["adjustment"]
    assert api.post("finance", f"adjustments/{proposed['id']}/approve").json()["state"] == "booked"


def test_a_tenant_reads_its_own_invoice_and_no_other(api: Api, record: Any) -> None:
    last = datetime.now(UTC).replace(day=1) - timedelta(days=15)
    usage = Usage(input_text=1_000, output_text=0)
    record([request(last, who=Identity(api.tenant), model="gpt-x", usage=usage, cost_pico_usd=7, price_version="x")])
    closed = api.post("finance", f"periods/{last:%Y-%m}/close", {"tenant": api.tenant}).json()["data"]
    number = closed[0]["document"]["number"]
    for who in ("tenant", "finance", "owner"):
        assert api.get(who, f"documents/{number}").json()["payable"] == "0.00"
        assert api.get(who, f"documents/{number}?form=pdf").content.startswith(b"%PDF")
    page = api.get("tenant", f"documents/{number}?form=html")
    assert "sandbox" in page.headers["content-security-policy"]
    for form in ("json", "html", "pdf"):
        assert api.get("other", f"documents/{number}?form={form}").status_code == 404
    assert api.get("other", "documents").json() == {"data": []}
    assert api.get("other", f"documents?tenant={api.tenant}").status_code == 404
    assert api.get("other", f"periods?tenant={api.tenant}").status_code == 404
    for path in (f"documents/{number}/credit", f"periods/{last:%Y-%m}/reopen"):
        body = {"reason": "x", "amount_usd": "1"} if "credit" in path else {"reason": "x", "tenant": api.tenant}
        assert api.post("tenant", path, body).status_code == 403


def test_bad_input_names_the_field(api: Api) -> None:
    for change, field in (({"reason": ""}, "reason"), ({"from": "May"}, "from"), ({"colour": "red"}, "colour")):
        refused = api.post("owner", "rerate", {**api.asked, **change})
        assert refused.status_code == 400 and field in refused.json()["error"]["param"]
    assert (
        "no card has the version" in api.post("owner", "rerate", {**api.asked, "card": "x"}).json()["error"]["message"]
    )


def test_a_bill_over_http_is_for_finance_of_the_installation(api: Api) -> None:
    head = {"Authorization": f"Bearer {api.tokens['finance']}"}
    provider, path = f"p{uuid4().hex[:12]}", "/v1/reconciliation"
    day = int(NOON.replace(hour=0).timestamp())
    cost = {
        "object": "organization.costs.result",
        "amount": {"value": 0.5, "currency": "usd"},
        "line_item": "gpt-x, input",
    }
    page = {"object": "page", "data": [{"object": "bucket", "start_time": day, "results": [cost]}], "has_more": False}
    asked = {"provider": provider, "month": "2047-03", "name": "costs.json"}
    for who in ("tenant", "other"):
        other = {"Authorization": f"Bearer {api.tokens[who]}"}
        assert api.client.post(f"{path}/bills", headers=other, params=asked, json=page).status_code == 403
        assert api.client.get(f"{path}/{provider}/2047-03", headers=other).status_code == 403
    missing = api.client.get(f"{path}/{provider}/2047-03", headers=head)
    assert (missing.status_code, "no bill of" in missing.json()["error"]["message"]) == (404, True)
    bad = api.client.post(f"{path}/bills", headers=head, params={**asked, "month": "2047-04"}, json=page)
    assert (bad.status_code, bad.json()["error"]["param"]) == (400, "file")
    bill = api.client.post(f"{path}/bills", headers=head, params=asked, json=page).json()
    assert (bill["billed_usd"], bill["provider"]) == ("0.500000000000", provider)
    assert api.client.get(f"{path}/bills", headers=head, params={"provider": provider}).json()["data"] == [bill]
    shown = api.client.get(f"{path}/{provider}/2047-03", headers=head).json()
    assert (shown["difference_usd"], shown["causes"][0]["cause"]) == ("0.500000000000", "not_through_us")
    assert shown["differences"][0]["day"] == "2047-03-04"
    named = api.client.post(f"{path}/{provider}/names", headers=head, json={"models": {"gpt-x": "mine"}})
    assert named.json() == {"keys": {}, "models": {"gpt-x": "mine"}}
    assert api.client.delete(f"{path}/bills/{bill['id']}", headers=head).json()["deleted"]
    assert api.client.delete(f"{path}/bills/{bill['id']}", headers=head).status_code == 404
