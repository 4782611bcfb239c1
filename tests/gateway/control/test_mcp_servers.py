"""MCP servers and tool rules from the control plane's API: kept, audited, checked, and followed by gateways."""

import pytest

from backends.control.database import ControlDatabase
from backends.control.mcp import load_tool_rules
from backends.control.snapshot import load_snapshot
from backends.control.sound_rows import SoundRows
from contracts.control import McpToolRule
from tests.gateway.control.conftest import ON_SQLITE

SERVER = {"url": "http://127.0.0.1:9/mcp", "price_usd": "0.001", "tools": [{"match": "add", "timeout_seconds": 5}]}
RULE = {"effect": "deny", "tools": ["weather__*"], "tenant": "acme"}


@pytest.fixture
def control(as_role):
    return as_role("owner")


@pytest.fixture
def database(control_database_url):
    found = ControlDatabase(control_database_url)
    yield found
    found.close()


def test_servers_and_rules_are_made_listed_changed_and_deleted(control, database):
    made = control.post("/v1/mcp-servers", json={"name": "weather", "rules": SERVER})
    assert made.status_code == 201, made.text
    assert made.json()["rules"]["price_usd"] == "0.001"
    assert control.post("/v1/tool-rules", json={"name": "none", "rules": RULE}).status_code == 201
    with database.session() as session:
        snapshot = load_snapshot(session)
    assert snapshot.mcp_servers["weather"].price_pico_usd == 1_000_000_000
    assert snapshot.mcp_servers["weather"].terms_of("add").timeout_seconds == 5
    assert snapshot.mcp_rules[0].tools == ("weather__*",)
    assert control.post("/v1/mcp-servers", json={"name": "weather", "rules": SERVER}).status_code == 409
    assert [one["id"] for one in control.get("/v1/mcp-servers").json()["data"]] == ["weather"]
    changed = control.patch("/v1/mcp-servers/weather", json={"rules": {**SERVER, "default": "deny"}})
    assert changed.json()["rules"]["default"] == "deny"
    assert control.get("/v1/tool-rules/none").json()["rules"]["effect"] == "deny"
    for path in ("/v1/mcp-servers/weather", "/v1/tool-rules/none"):
        assert control.delete(path).status_code == 200
        assert control.get(path).status_code == 404
    with database.session() as session:
        assert not load_snapshot(session).mcp_servers


@ON_SQLITE
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("mcp-servers", {"name": "weather", "rules": {**SERVER, "url": "ftp://x"}}),
        ("mcp-servers", {"name": "bad__name", "rules": SERVER}),
        ("mcp-servers", {"name": "weather", "rules": {**SERVER, "timeout_seconds": 0}}),
        ("mcp-servers", {"name": "weather", "rules": {**SERVER, "price_usd": "-1"}}),
        ("mcp-servers", {"name": "weather", "rules": {**SERVER, "key": "env:TOLLKEEPER_SEALING_KEYS"}}),
        ("mcp-servers", {"name": "weather", "rules": {**SERVER, "made_up": 1}}),
        ("tool-rules", {"name": "none", "rules": {**RULE, "tools": []}}),
        ("tool-rules", {"name": "none", "rules": {**RULE, "effect": "perhaps"}}),
        ("tool-rules", {"name": "none", "rules": {**RULE, "tenant": "", "team": "core"}}),
    ],
)
def test_what_cannot_stand_is_refused(control, path, body):
    answer = control.post(f"/v1/{path}", json=body)
    assert answer.status_code == 400, answer.text


def test_a_rule_that_cannot_be_read_denies_every_tool(control, database):
    control.post("/v1/tool-rules", json={"name": "none", "rules": RULE})
    with database.session() as session:
        session.get(McpToolRule, "none").rules = {"effect": "broken"}
        session.commit()
    with database.session() as session:
        [rule] = load_tool_rules(SoundRows(session))
    assert (rule.effect, rule.tools, rule.tenant) == ("deny", ("*",), "")
