"""A chosen line is the one that was seen, whatever has come before it since; names are shown as they are written."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
import streamlit
from streamlit.testing.v1 import AppTest

from analytics.cost.drill import CostPlace
from dashboard import address, forms
from dashboard.states import escaped
from dashboard.views import admin_parts, budget_list, costs, requests, routing


def selected(place: int | None) -> Any:
    """What Streamlit keeps of a table whose line at `place` was clicked."""
    return SimpleNamespace(selection=SimpleNamespace(rows=[] if place is None else [place]))


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A session's state, as the callbacks meet it."""
    held: dict[str, Any] = {}
    monkeypatch.setattr(streamlit, "session_state", held)
    return held


def test_a_click_opens_the_request_that_was_drawn_there(state: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []
    monkeypatch.setattr(address, "change", opened.append)
    for place in (1, None, 2):
        state["table"] = selected(place)
        requests._open_row("table", ["a", "b"])
    assert opened == [{"request": "b"}]


def test_a_regretted_choice_stays_the_one_that_was_clicked(state: dict[str, Any]) -> None:
    state[routing._DECISIONS] = selected(1)
    routing._choose_row(["a", "b"])
    assert state[routing._CHOSEN] == "b"
    state[routing._DECISIONS] = selected(None)
    routing._choose_row(["a", "b"])
    assert state[routing._CHOSEN] is None


def test_a_click_keeps_the_row_that_was_drawn_there(state: dict[str, Any]) -> None:
    for place, kept in ((1, "beta"), (None, None), (0, "alpha")):
        state["keys"] = selected(place)
        admin_parts._choose("keys", ["alpha", "beta"])
        assert state["keys_chosen"] == kept


def keys_page() -> None:
    """What Streamlit runs for a table of keys, one of which can be rotated."""
    import pandas
    import streamlit

    from dashboard.views.admin_parts import pick

    rows = [{"id": name} for name in streamlit.session_state["rows"]]
    chosen = pick("Keys", rows, pandas.DataFrame(rows), key="keys", columns={}, help="", empty="None.")
    if chosen is not None and streamlit.button("Rotate", key=f"rotate_{chosen['id']}"):
        streamlit.session_state["rotated"] = chosen["id"]


def test_a_press_acts_on_the_chosen_row_when_rows_have_come_before_it() -> None:
    app = AppTest.from_function(keys_page)
    app.session_state["rows"] = ["alpha", "beta"]
    app.session_state["keys_chosen"] = "beta"
    app.run()
    app.session_state["keys"] = {"selection": {"rows": [1]}}
    app.run()
    (button,) = (one for one in app.button if one.label == "Rotate")
    app.session_state["rows"] = ["aaa", "alpha", "beta"]  # a colleague has made a key meanwhile
    button.click().run()
    assert not app.exception, app.exception
    assert app.session_state["rotated"] == "beta"
    assert list(app.session_state["keys"]["selection"]["rows"]) == [2], "the mark goes with its row"
    app.session_state["rows"] = ["aaa", "alpha"]
    app.run()
    assert "Rotate" not in [one.label for one in app.button], "what is gone is not acted on"


def test_a_name_in_what_was_done_is_no_markdown(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(streamlit, "toast", lambda words, **_: said.append(words))
    name = "[x](http://elsewhere.example) :red[y]"
    with forms.outcome(f"Key {name} changed", redraws=False):
        pass
    assert said == [f"Key {escaped(name)} changed"]


def test_names_of_the_address_and_of_buttons_are_no_markdown(monkeypatch: pytest.MonkeyPatch) -> None:
    name, said = "[x](http://elsewhere.example)", list[str]()
    monkeypatch.setattr(streamlit, "button", lambda words, **_: said.append(words))
    monkeypatch.setattr(budget_list, "note", said.append)
    monkeypatch.setattr(budget_list, "show_table", lambda *_, **__: None)
    monkeypatch.setattr(budget_list, "_figures", lambda _: None)
    monkeypatch.setattr(address, "get", lambda _: name)
    viewer = SimpleNamespace(tenant="acme", can_write=False)
    scope = SimpleNamespace(tenant=None, team=None)
    visit: Any = SimpleNamespace(
        viewer=viewer, scope=scope, now=datetime.now(UTC), read_control=lambda *_: (), formats=None
    )
    budget_list.draw_budgets(visit)
    costs._breadcrumbs(visit, CostPlace(team=name))
    assert len(said) == 2
    assert all(escaped(name) in words and name not in words for words in said)
