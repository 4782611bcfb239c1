"""MCP servers and tool rules on the page Admin: shown, created, changed and refused."""

import json
from typing import Any

from streamlit.testing.v1 import AppTest

MOMENT = "2026-11-22T10:00:00Z"
OAUTH = {"client_id": "c", "client_secret": "stored:s", "refresh_token": "stored:r"}
SERVERS = [
    {"id": "tickets", "rules": {"url": "https://t.example/mcp", "oauth": OAUTH, "tools": []}, "created_at": MOMENT},
    {"id": "files", "rules": {"url": "stdio:files", "key": "stored:k", "price_usd": "0.001"}, "created_at": MOMENT},
]
RULES = [{"id": "none", "rules": {"effect": "deny", "tools": ["a__*", "b__c"], "tenant": "acme"}, "created_at": MOMENT}]


def _draw(servers: "list[Any]", rules: "list[Any]", done: "list[Any]", may: bool) -> None:
    from types import SimpleNamespace  # here: Streamlit runs this function's text alone
    from typing import Any
    from zoneinfo import ZoneInfo

    from contracts.errors import InvalidRequest
    from dashboard.views.admin_tools import draw_tools

    class Plane:
        def get_all(self, path: str) -> list[Any]:
            return servers if path == "/v1/mcp-servers" else rules

        def post(self, path: str, body: Any) -> None:
            if body["rules"].get("url") == "ftp://x":
                raise InvalidRequest("it needs a url that begins with https://", param="url")
            done.append(("post", path, body))

        def patch(self, path: str, body: Any) -> None:
            done.append(("patch", path, body))

    viewer = SimpleNamespace(zone=ZoneInfo("UTC"), can_write=may, tenant=None)
    draw_tools(SimpleNamespace(control=Plane(), viewer=viewer))  # type: ignore[arg-type]


def drawn(done: list[Any], servers: list[Any] = SERVERS, rules: list[Any] = RULES, *, may: bool = True) -> AppTest:
    given = {"servers": servers, "rules": rules, "done": done, "may": may}
    app = AppTest.from_function(_draw, kwargs=given, default_timeout=30).run()
    assert not app.exception, app.exception[0].value
    return app


def test_servers_and_rules_are_shown_without_secrets() -> None:
    servers, rules = (each.value for each in drawn([]).dataframe)
    assert servers["Server"].tolist() == ["tickets", "files"]
    assert servers["Credentials"].tolist() == ["OAuth, refresh token", "stored:k"]
    assert servers["USD per call"].tolist() == ["", "0.001"]
    assert (rules["Tools"][0], rules["Covers"][0]) == ("a__*, b__c", "tenant acme")


def test_a_server_is_created_and_what_cannot_stand_is_said() -> None:
    done: list[Any] = []
    app = drawn(done)
    name, definition = app.text_input[0], app.text_area[0]
    name.input("tickets2")
    definition.input(json.dumps({"url": "https://x.example/mcp", "oauth": OAUTH}))
    app.button[0].click().run()
    assert done == [
        ("post", "/v1/mcp-servers", {"name": "tickets2", "rules": {"url": "https://x.example/mcp", "oauth": OAUTH}})
    ]
    for given, words in [
        ("{", "not valid JSON"),
        ("[1]", "must be a JSON object"),
        ('{"url": "ftp://x"}', "field: url"),
    ]:
        app.text_area[0].input(given)
        app.button[0].click().run()
        assert words in app.error[0].value
    assert len(done) == 1


def test_the_chosen_server_is_changed_without_what_is_empty() -> None:
    done: list[Any] = []
    app = AppTest.from_function(
        _draw, kwargs={"servers": SERVERS, "rules": RULES, "done": done, "may": True}, default_timeout=30
    )
    app.session_state["admin_mcp_servers_chosen"] = "tickets"
    app.run()
    assert not app.exception, app.exception[0].value
    [definition] = [area for area in app.text_area if "t.example" in (area.value or "")]
    assert "tools" not in json.loads(definition.value or "")
    definition.input(json.dumps({"url": "https://new.example/mcp"}))
    [save] = [button for button in app.button if button.label == "Save"]
    save.click().run()
    assert done == [("patch", "/v1/mcp-servers/tickets", {"rules": {"url": "https://new.example/mcp"}})]


def test_who_may_only_view_cannot_press_anything_and_an_empty_section_says_so() -> None:
    app = drawn([], [], [], may=False)
    assert all(button.disabled for button in app.button)
    assert "No MCP servers" in "".join(each.value for each in (*app.caption, *app.markdown, *app.info))
