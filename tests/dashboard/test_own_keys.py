"""The self-service page: a developer makes a capped key, and sees what own keys used and nobody else's."""

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from streamlit.testing.v1 import AppTest

from analytics.access_scope import AccessScope
from backends.control.accounts import find_account
from backends.control.changes import Author
from backends.control.user_sessions import begin_session, new_secret
from backends.secrets.secret_files import SecretFiles
from contracts.access.identity import Identity
from contracts.control import Role
from dashboard import frame
from dashboard.control_plane import ControlPlane, open_client
from dashboard.pages import PAGES
from dashboard.reader import control_connections
from dashboard.viewer import Viewer
from gateway.control.app import create_app
from gateway.control.settings import ControlSettings
from tests.dashboard.test_speed_pages import Fill, fill, metrics, request, words
from tests.openapi_errors import served

assert callable(fill)  # a fixture


class Signed(NamedTuple):
    """A developer of acme/search who has signed in, and the owner's way to the control plane."""

    viewer: Viewer
    owner: ControlPlane


@pytest.fixture
def signed(fill: Fill, migrated_sqlite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Signed]:
    shutil.copy(migrated_sqlite, tmp_path / "control.db")
    app = create_app(ControlSettings(data=tmp_path, database_url=f"sqlite:///{tmp_path / 'control.db'}"))
    with served(app) as url, open_client(url) as connections:
        owner = ControlPlane(connections, SecretFiles(tmp_path / "secrets").get("admin_token"))
        owner.post("/v1/tenants", {"id": "acme", "name": "Acme"})
        owner.post("/v1/tenants/acme/teams", {"id": "search", "name": "Search"})
        account = {"email": "dev@example.com", "name": "Dev", "role": "developer", "tenant": "acme", "team": "search"}
        owner.post("/v1/accounts", account)
        secret = new_secret()
        with app.state.database.session() as session:
            found = find_account(session, "dev@example.com")
            assert found is not None
            author = Author("dev@example.com", datetime.now(UTC))
            begin_session(session, author, found, "oidc", secret, timedelta(hours=1), app.state.key_pepper)
        viewer = Viewer("dev@example.com", Role.DEVELOPER, AccessScope("acme", "search"), secret)
        monkeypatch.setenv("TOLLKEEPER_CONTROL_URL", url)
        monkeypatch.setattr(frame, "identify_viewer", lambda: viewer)
        yield Signed(viewer, owner)
        control_connections().close()


def draw() -> None:
    """What Streamlit runs: the whole dashboard."""
    from dashboard import frame
    from dashboard.pages import PAGES

    frame.run(PAGES)


def opened() -> AppTest:
    app = AppTest.from_function(draw, default_timeout=60).run()
    assert not app.exception
    return app


def table(app: AppTest, place: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = app.dataframe[place].value.to_dict("records")
    return rows


def test_a_developer_makes_a_capped_key_and_sees_what_it_used(signed: Signed, fill: Fill) -> None:
    app = opened()  # what the dashboard opens with
    titles = {element.proto.label for element in app.sidebar.get("page_link")}
    assert titles == {"My keys", "Playground", "Preferences"}
    assert "at most $10.00 in a calendar month" in words(app)
    app.text_input[0].set_value("laptop")
    app.button[0].click().run()
    assert not app.exception
    (secret,) = [one.value for one in app.code]
    assert secret.startswith("tk-") and "OPENAI_BASE_URL" in words(app)
    (key,) = signed.owner.get("/v1/tenants/acme/keys")["data"]
    assert (key["name"], key["team_id"]) == ("laptop", "search")
    mine, other = (Identity("acme", "search", key_id=one) for one in (key["id"], "key_another"))
    fill([request(19, who=mine), request(18, who=mine), request(17, who=other, model="secret-model")])
    app = opened()
    assert secret not in str([one.value for one in app.code])
    assert metrics(app)["Requests"] == "2"
    keys, usage = table(app, 0), table(app, 1)
    assert [row["Name"] for row in keys] == ["laptop"]
    assert [(row["Model"], row["Requests"], row["Input tokens"], row["Output tokens"]) for row in usage] == [
        ("llama", 2, 2_000, 6)
    ]


def test_pages_are_for_developers_or_directories_by_no_default() -> None:
    assert [page.path for page in PAGES if Role.DEVELOPER in page.roles] == ["my-keys", "playground", "preferences"]
    assert not any(Role.DIRECTORY in page.roles for page in PAGES)


def test_a_page_of_others_says_so_to_a_developer(signed: Signed) -> None:
    def draw_costs() -> None:
        from dashboard import frame
        from dashboard.pages import PAGES

        frame.run([page for page in PAGES if page.path == "costs"])

    app = AppTest.from_function(draw_costs, default_timeout=60).run()
    assert not app.exception and "Your role has no access to this page" in words(app) and not app.metric


def test_the_installations_owner_is_told_whose_page_this_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def draw_own() -> None:
        from dashboard import frame
        from dashboard.pages import PAGES

        frame.run([page for page in PAGES if page.path == "my-keys"])

    monkeypatch.setattr(frame, "identify_viewer", lambda: Viewer("owner", Role.OWNER, is_local=True))
    app = AppTest.from_function(draw_own, default_timeout=60).run()
    assert not app.exception and "accounts add EMAIL" in words(app)
