"""The admin page names rows that the control plane could not show, once each."""

import httpx
from streamlit.testing.v1 import AppTest

from dashboard.control_plane import ControlPlane

ROW = {"table": "pools", "id": "bad", "reason": "settings is not JSON"}


def test_what_lists_could_not_show_is_kept_for_the_page() -> None:
    page = {"data": [{"id": "good"}], "has_more": False, "unreadable": [ROW]}
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json=page))
    found: list[dict[str, object]] = []
    with httpx.Client(transport=transport, base_url="http://control") as client:
        plane = ControlPlane(client, "token", found)
        assert plane.get_all("/v1/pools") == [{"id": "good"}] and plane.get_all("/v1/pools")
        assert ControlPlane(client, "token").get_all("/v1/pools") == [{"id": "good"}]
    assert found == [ROW, ROW]


def test_each_row_is_named_once() -> None:
    def draw(rows: list[dict[str, str]]) -> None:
        from dashboard.views.admin_parts import show_unreadable  # here: Streamlit runs this function's text alone

        show_unreadable(rows)

    app = AppTest.from_function(draw, kwargs={"rows": [ROW, ROW]}).run()
    assert not app.exception
    (warning,) = app.warning
    assert "bad" in warning.value and "settings is not JSON" in warning.value
