"""The demonstration's alerts: a budget crossed, a promise broken and kept again, each told to Slack exactly once."""

import asyncio
import io
import os
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from rich.console import Console

from analytics.books.budget_actuals import BudgetActuals
from tests.e2e.installation import Installation
from tollkeeper.demonstration import Demonstration
from tollkeeper.installation import Installation as Running
from tollkeeper.open_installation import open_installation
from tollkeeper.showcase.fill import USED_PERCENT, fill_showcase, remove_showcase
from tollkeeper.showcase.rows import HOSTED, NEXT, OWN, ROLLOUT, TENANTS

pytestmark = [pytest.mark.e2e, pytest.mark.alone, pytest.mark.drill]

CALLED = "Slack is called: "


def test_a_budget_a_broken_promise_and_its_end_call_slack_once_each(installation: Installation) -> None:
    remove_showcase(installation.data, os.environ, print)  # as other tests may have left it in this installation
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
    left = {row["id"] for row in rules["data"] if row["tenant_id"] == "initech"}
    assert left == {f"initech-{kind}" for kind in ("budget-threshold", "slo-burn", "unpriced-usage")}, (
        "the run's rules end"
    )


def used_percents(installation: Installation) -> dict[str, int]:
    """Return the percentages of the story's budgets that are used; the demonstration's own is of a tiny amount."""
    found = {}
    for tenant in TENANTS:
        listed: Any = installation.request("GET", f"/v1/tenants/{tenant}/budgets")
        for budget in listed["data"]:
            if Decimal(budget["amount_usd"]) >= 1:
                state: Any = installation.request("GET", f"/v1/tenants/{tenant}/budgets/{budget['id']}")
                (mine,) = state["state"]["subjects"]
                found[tenant] = round(Decimal(mine["spent"]) * 100 / Decimal(budget["amount_usd"]))
    return found


def test_the_story_stays_until_it_is_reset(installation: Installation) -> None:
    def rows(path: str, key: str = "id") -> set[str]:
        found: object = installation.request("GET", f"{path}?limit=1000")
        assert isinstance(found, dict)
        return {str(row[key]) for row in found["data"]}

    assert {OWN, HOSTED, NEXT} <= rows("/v1/models") and ROLLOUT in rows("/v1/rollouts")
    assert {"acme-ttft", "globex-availability"} <= rows("/v1/slos")
    for tenant in TENANTS:
        assert rows(f"/v1/tenants/{tenant}/budgets")
    used = used_percents(installation)
    assert used.keys() == USED_PERCENT.keys() and all(used[tenant] <= USED_PERCENT[tenant] for tenant in used)
    with open_installation(installation.data, "", os.environ) as opened:
        BudgetActuals(opened.database, opened.store, lambda: datetime.now(UTC)).write_due()  # as every five minutes
    assert used_percents(installation) == used, "what the ledger adds to budgets is in the story already"
    said: list[str] = []
    assert remove_showcase(installation.data, os.environ, said.append) > 5_000
    assert not {OWN, HOSTED, NEXT} & rows("/v1/models") and not set(TENANTS) & rows("/v1/tenants")
    assert not rows("/v1/slos") & {"acme-ttft", "globex-availability"} and ROLLOUT not in rows("/v1/rollouts")
    assert remove_showcase(installation.data, os.environ, said.append) == 0
    assert fill_showcase(Running(installation.data)).requests, "it can be told again"
    remove_showcase(installation.data, os.environ, said.append)
