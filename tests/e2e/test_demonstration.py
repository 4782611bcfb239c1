"""The demonstration's alerts: a budget crossed, a promise broken and kept again, each told to Slack exactly once."""

import asyncio
import io

import pytest
from rich.console import Console

from tests.e2e.installation import Installation
from tollkeeper.demonstration import Demonstration

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

CALLED = "Slack is called: "


def test_a_budget_a_broken_promise_and_its_end_call_slack_once_each(installation: Installation) -> None:
    said = io.StringIO()
    demonstration = Demonstration(installation.data, Console(file=said, width=300), seconds=2.0, opens_browser=False)
    asyncio.run(
        demonstration(
            {
                "gateway": installation.gateway_url,
                "control": installation.control_url,
                "analytics": installation.analytics_url,
            }
        )
    )
    lines = said.getvalue().splitlines()
    calls = [line.removeprefix(CALLED) for line in lines if line.startswith(CALLED)]
    money = [call for call in calls if call.startswith("Alert: ") and "% used (threshold 50 %)" in call]
    broken = [call for call in calls if call.startswith("Alert: SLO demo-")]
    kept = [call for call in calls if call.startswith("Resolved: SLO demo-")]
    assert (len(money), len(broken), len(kept)) == (1, 1, 1), said.getvalue()
    assert lines[-1] == "Slack was called 3 times", said.getvalue()
    assert calls.index(broken[0]) < calls.index(kept[0])
    rules: object = installation.request("GET", "/v1/alert-rules?limit=1000")
    assert isinstance(rules, dict)
    assert not [row for row in rules["data"] if row["tenant_id"] == "acme"], "the demonstration's rules end with it"
