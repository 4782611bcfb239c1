"""What stands around every page: filters that go along, periods that are compared, and who is let in."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from zoneinfo import ZoneInfo

import pytest
from streamlit.testing.v1 import AppTest

from analytics.access_scope import EVERYTHING, AccessScope
from contracts.control import Role
from contracts.errors import AuthenticationFailed, ControlUnavailable, InvalidRequest, NotFound
from dashboard import frame, viewer_identity
from dashboard.control_plane import ControlPlane
from dashboard.filters import COMPARISONS, Filters, read_filters
from dashboard.formats import Formats
from dashboard.pages import PAGES
from dashboard.share import link
from dashboard.viewer import Viewer
from dashboard.visit import now_of
from tests.dashboard.test_page import APP

NOW = datetime(2026, 11, 2, 12, 34, 57, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.fixture(autouse=True)
def _no_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TOLLKEEPER_DATA", str(tmp_path))
    monkeypatch.setenv("TOLLKEEPER_STORE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("TOLLKEEPER_CONTROL_URL", "http://127.0.0.1:1")


def opened(**address: str) -> AppTest:
    app = AppTest.from_file(APP, default_timeout=30)
    for name, value in address.items():
        app.query_params[name] = value
    return app.run()


def words(app: AppTest) -> str:
    return "\n".join(element.value for element in app.markdown)


def test_filters_go_along_to_every_other_page_and_a_page_s_own_choices_do_not() -> None:
    app = opened(tenant="acme", range="7d", compare="week", by="model", request="secret")
    links = {element.proto.label: element.proto.query_string for element in app.sidebar.get("page_link")}
    assert set(links) == {page.title for page in PAGES if Role.OWNER in page.roles}
    assert {frozenset(query.split("&")) for query in links.values()} == {
        frozenset({"tenant=acme", "range=7d", "compare=week"})
    }


def test_a_page_of_other_roles_is_not_in_the_navigation(monkeypatch: pytest.MonkeyPatch) -> None:
    lead = Viewer("lead", Role.TEAM_LEAD, AccessScope("acme", "search"), "token")
    monkeypatch.setattr(frame, "identify_viewer", lambda: lead)
    titles = {element.proto.label for element in opened().sidebar.get("page_link")}
    assert titles == {page.title for page in PAGES if Role.TEAM_LEAD in page.roles}


def begins_ahead() -> None:
    """What Streamlit runs: a page of everybody and one of owners alone, for a team's lead."""
    import streamlit

    from analytics.access_scope import AccessScope
    from contracts.control import Role
    from dashboard import frame
    from dashboard.page import EVERYONE, Page
    from dashboard.viewer import Viewer

    begun: list[tuple[str, str | None]] = streamlit.session_state.setdefault("begun", [])
    pages = [
        Page(path, path, "", lambda visit: None, roles=roles, ahead=lambda v: begun.append((v.page.path, v.scope.team)))
        for path, roles in (("everybody", EVERYONE), ("owners", frozenset({Role.OWNER})))
    ]
    frame._begin_others(pages, Viewer("lead", Role.TEAM_LEAD, AccessScope("acme", "search"), "token"))


def test_what_holds_for_an_hour_is_begun_once_in_it_for_who_may_open_its_page(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [NOW]
    monkeypatch.setattr(frame, "datetime", SimpleNamespace(now=lambda zone: clock[0].astimezone(zone)))
    app = AppTest.from_function(begins_ahead, default_timeout=30).run()
    assert not app.exception
    assert app.run().session_state["begun"] == [("everybody", "search")]
    clock[0] += timedelta(hours=1)
    assert app.run().session_state["begun"] == [("everybody", "search")] * 2


def test_who_is_signed_out_is_told_so_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame, "identify_viewer", lambda: None)
    app = opened(tenant="acme")
    assert "You are signed out" in words(app)
    assert not app.metric and not app.selectbox and not app.sidebar.get("page_link")


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (AuthenticationFailed("expired"), "You are signed out"),
        (ControlUnavailable("the control plane does not answer"), "The control plane does not answer"),
    ],
)
def test_a_session_that_cannot_be_checked_shows_nothing(
    monkeypatch: pytest.MonkeyPatch, error: Exception, sentence: str
) -> None:
    def fail(self: ControlPlane, path: str) -> object:
        raise error

    monkeypatch.setattr(
        viewer_identity, "_cookie", lambda name: "tk-session-x" if name == viewer_identity.SESSION_COOKIE else ""
    )
    monkeypatch.setattr(ControlPlane, "get", fail)
    app = opened()
    assert sentence in words(app)
    assert not app.metric and not app.sidebar.get("page_link")


def test_a_month_begins_in_the_viewer_s_zone() -> None:
    scope = Filters("month").scope(NOW, BERLIN)
    assert (scope.start, scope.end) == (datetime(2026, 10, 31, 23, tzinfo=UTC), NOW)
    last = Filters("last_month").scope(NOW, BERLIN)
    assert (last.start, last.end) == (datetime(2026, 9, 30, 22, tzinfo=UTC), scope.start)
    assert Filters("month").is_live and not Filters("last_month").is_live


@pytest.mark.parametrize("name", COMPARISONS)
def test_a_comparison_is_as_long_as_what_it_is_compared_with(name: str) -> None:
    filters = read_filters({"range": "24h", "compare": name, "tenant": "acme"})
    scope = filters.scope(NOW)
    before = filters.before(scope)
    assert before is not None and before.end - before.start == scope.end - scope.start
    assert scope.start - before.start == (COMPARISONS[name] or timedelta(hours=24))
    assert before.tenant == "acme"


def test_no_comparison_and_one_that_nobody_knows() -> None:
    assert Filters().before(Filters().scope(NOW)) is None
    with pytest.raises(InvalidRequest, match="'then' is not a period to compare with; choose one of previous"):
        read_filters({"compare": "then"})


def test_a_scope_never_leaves_the_viewer_s_reach() -> None:
    lead = AccessScope("acme", "search")
    scope = Filters(project="web", key="key_1").scope(NOW, access=lead)
    assert (scope.tenant, scope.team, scope.project, scope.key_id) == ("acme", "search", "web", "key_1")
    for filters in (Filters(tenant="globex"), Filters(team="ads"), Filters(tenant="acme", team="ads")):
        with pytest.raises(NotFound):
            filters.scope(NOW, access=lead)
    assert Filters(tenant="globex").scope(NOW, access=EVERYTHING).tenant == "globex"


def test_viewers_of_one_range_ask_about_the_same_moment() -> None:
    moments = {now_of(Filters("24h"), NOW + timedelta(seconds=second)) for second in range(3)}
    assert moments == {NOW.replace(second=50)}
    assert now_of(Filters("1h"), NOW) == NOW.replace(second=56)


def test_a_link_carries_what_is_chosen_and_nothing_of_who_chose_it() -> None:
    shown = link("https://llm.example/costs?old=1#top", {"tenant": "a&b", "range": None, "q": ""})
    assert shown == "https://llm.example/costs?tenant=a%26b"


def test_numbers_are_written_as_the_viewer_reads_them() -> None:
    german = Formats("de_DE", BERLIN, "EUR", Decimal("0.9"))
    assert german.count(999_999) == "999.999"
    assert german.money(Decimal("1234.5")) == "1.111,05\N{NO-BREAK SPACE}€"
    assert german.duration(12_340_000) == "12,3 ms"
    assert german.moment(NOW) == "2 Nov. 2026 13:34"
    assert german.money_note == "EUR at 0.9 for 1 USD, configured rate"
    assert Formats().money(Decimal("-3")) == "-$3.00" and Formats().money(None) == "—"
    assert Formats().money_note == ""


def test_a_period_names_its_zone_and_its_day_once() -> None:
    assert Formats().period(NOW, NOW + timedelta(hours=1)) == "2 Nov 2026 12:34 – 13:34 UTC"
    late = Formats(zone=BERLIN).period(NOW, NOW + timedelta(hours=11))
    assert late == "2 Nov 2026 13:34 – 3 Nov 2026 00:34 Europe/Berlin"
