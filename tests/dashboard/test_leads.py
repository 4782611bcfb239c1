"""A team lead reaches the rows of that team alone: by no page, address, filter or export those of another."""

from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from streamlit.testing.v1 import AppTest

from analytics.access_scope import EVERYTHING, AccessScope
from backends.store.columns import arrow_batch
from contracts.access.identity import Identity
from contracts.control import Role
from contracts.errors import PermissionDenied
from contracts.metering.gaps import pack_gaps
from contracts.metering.usage import Usage
from contracts.recording.names import REQUESTS
from contracts.recording.records import RequestRecord
from dashboard import frame, panels
from dashboard.control_reach import require_within
from dashboard.exports import FrameSource, as_csv
from dashboard.pages import PAGES
from dashboard.viewer import Viewer

# Each stands in the rows of another team or tenant, and in nothing else.
SECRETS = ("globex", "secret-team", "secret-model", "secret-project", "key_secret", "secret-user", "secret-tag")
RANGE = {"range": "24h"}
# The parts of pages that an address chooses.
PARTS: dict[str, tuple[dict[str, str], ...]] = {
    "costs": tuple({"view": view} for view in ("compare", "units", "savings", "standard"))
    + ({"level": "key"}, {"level": "user"}, {"level": "tag"}, {"tag": "secret-tag"}, {"user": "secret-user"}),
    "latency": ({"time": "end_to_end"}, {"objective": "secret-objective"}),
    "requests": ({"sort": "cost"}, {"outcome": "error"}, {"p": "2"}),
    "budgets": tuple({"tab": tab} for tab in ("alerts", "rules", "channels", "silences", "notices")),
    "admin": tuple(
        {"section": section, "of": "globex"} for section in ("keys", "limits", "users", "guardrails", "audit")
    ),
}
FOREIGN: tuple[dict[str, str], ...] = (
    {"tenant": "globex"},
    {"tenant": "acme", "team": "secret-team", "project": "secret-project"},
    {"key": "key_secret", "model": "secret-model"},
)


def request(identity: Identity, model: str, **fields: object) -> RequestRecord:
    moment = datetime.now(UTC) - timedelta(minutes=10)
    values: dict[str, object] = {
        "request_id": uuid4().bytes,
        "started_at_ns": int(moment.timestamp() * 1e9),
        "duration_ns": 10**9,
        "who": identity,
        "model": model,
        "ttft_ns": 250_000_000,
        "gaps": pack_gaps([1_000, 2_000]),
        "usage": Usage(input_text=1_000, output_text=3),
        "cost_pico_usd": 270_000_000,
        **fields,
    }
    return RequestRecord(**values)  # type: ignore[arg-type]  # the tests name fields by keyword


@pytest.fixture
def secret_id(empty_store: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store with rows of the lead's own team and of others; provide the id of one that is another's."""
    for name, value in empty_store.environment.items():
        if name.startswith("TOLLKEEPER_"):
            monkeypatch.setenv(name, value)
    theirs = Identity("acme", "secret-team", "secret-project", "key_secret", "secret-user", {"feature": "secret-tag"})
    records = [
        request(Identity("acme", "search", "web", "key_mine"), "llama"),
        request(theirs, "secret-model", outcome="error", cost_pico_usd=None),
        request(Identity("globex", "search"), "secret-model"),
    ]
    writer = empty_store.client("writer")
    writer.insert_arrow("requests", arrow_batch(REQUESTS, records), deduplication_token=uuid4().hex)
    writer.close()
    return records[1].request_id.hex()


@pytest.fixture(autouse=True)
def exported(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What every export on the drawn pages would write."""
    files: list[bytes] = []

    def write(name: str, data: FrameSource) -> None:
        files.append(name.encode() + as_csv(data() if callable(data) else data))

    monkeypatch.setattr(panels, "export_menu", write)
    return files


@pytest.fixture
def as_viewer(monkeypatch: pytest.MonkeyPatch) -> Callable[[Viewer], None]:

    def arrive(viewer: Viewer) -> None:
        monkeypatch.setattr(frame, "identify_viewer", lambda: viewer)

    return arrive


LEAD = Viewer("lead@example.com", Role.TEAM_LEAD, AccessScope("acme", "search"), "tk-session-nobody")
OWNER = Viewer("owner@example.com", Role.OWNER, EVERYTHING)


def sent(app: AppTest) -> bytes:
    """Everything the page sent to the browser: texts, figures' values, charts, tables and choices."""
    protos = [element.proto for place in (app.main, app.sidebar) for element in place]
    return b"".join(proto.SerializeToString() for proto in protos if proto is not None)


def drawn(path: str, address: dict[str, str], as_viewer: Callable[[Viewer], None], viewer: Viewer) -> AppTest:
    """Draw one page alone, as the frame draws it at an address."""
    as_viewer(viewer)
    app = AppTest.from_function(_draw_one, kwargs={"path": path}, default_timeout=60)
    for name, value in {**RANGE, **address}.items():
        app.query_params[name] = value
    return app.run()


def _draw_one(path: str) -> None:
    from dashboard import frame, pages  # here: Streamlit runs this function's text alone

    frame.run([page for page in pages.PAGES if page.path == path])


PATHS = [page.path for page in PAGES]


@pytest.mark.parametrize("path", PATHS)
def test_no_page_at_any_address_sends_a_lead_what_is_anothers(
    path: str, secret_id: str, as_viewer: Callable[[Viewer], None], exported: list[bytes]
) -> None:
    single = ({"request": secret_id}, {"q": "secret"}) if path == "requests" else ()
    for address in ({}, *FOREIGN, *single, *PARTS.get(path, ())):
        exported.clear()
        app = drawn(path, address, as_viewer, LEAD)
        assert not app.exception, app.exception[0].value
        found = sent(app) + b"".join(exported)
        named = "".join(address.values())  # what the address itself says may be said back
        assert [secret for secret in SECRETS if secret.encode() in found and secret not in named] == []


def test_the_same_rows_are_there_for_who_may_see_them(
    secret_id: str, as_viewer: Callable[[Viewer], None], exported: list[bytes]
) -> None:
    """Else the test above would pass on an empty page."""
    app = drawn("overview", {}, as_viewer, OWNER)
    assert b"globex" in sent(app) and b"secret-model" in sent(app)
    assert b"globex" in b"".join(exported)
    app = drawn("overview", {}, as_viewer, LEAD)
    assert {metric.label: metric.value for metric in app.metric}["Requests"] == "1"
    assert b"llama" in sent(app)


def test_a_foreign_tenant_and_one_that_is_not_there_are_answered_alike(
    secret_id: str, as_viewer: Callable[[Viewer], None]
) -> None:
    said = []
    for name in ("globex", "nowhere"):
        app = drawn("overview", {"tenant": name}, as_viewer, LEAD)
        said.append([element.value.replace(name, "NAME") for element in app.markdown])
    assert said[0] == said[1] and said[0]


@pytest.mark.parametrize(
    ("arguments", "is_within"),
    [
        (("acme", "search"), True),
        (("acme", None), False),
        (("acme", "secret-team"), False),
        (("globex", "search"), False),
    ],
)
def test_the_control_database_is_asked_about_the_leads_own_team_alone(
    arguments: tuple[str, str | None], is_within: bool
) -> None:
    def of_team(session: object, tenant: str | None = None, team: str | None = None) -> None: ...

    def of_tenant(session: object, tenant: str | None = None) -> None: ...

    def of_all(session: object, most: int = 3) -> None: ...

    with nullcontext() if is_within else pytest.raises(PermissionDenied):
        require_within(LEAD.access, of_team, arguments, {})
    require_within(LEAD.access, of_tenant, ["acme"], {})
    require_within(OWNER.access, of_all, [], {})
    for question, options in ((of_tenant, {}), (of_tenant, {"tenant": "globex"}), (of_all, {"most": 5})):
        with pytest.raises(PermissionDenied):
            require_within(LEAD.access, question, [], options)


def test_a_page_for_other_roles_says_so(secret_id: str, as_viewer: Callable[[Viewer], None]) -> None:
    for page in PAGES:
        if Role.TEAM_LEAD not in page.roles:
            app = drawn(page.path, {}, as_viewer, LEAD)
            assert "Your role has no access to this page" in "".join(element.value for element in app.markdown)
