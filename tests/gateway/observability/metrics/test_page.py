"""The metrics page beyond requests: budgets, shared counters, engine hosts, the text format itself."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from contracts.rules.limits import BudgetSpec, Scope
from gateway.limits.counters.base import CounterState
from gateway.observability.metrics.exposition import Family, gauge, render
from gateway.observability.metrics.page import MetricsPage
from tests.gateway.exposition_parser import Page


class FakeCounters:
    """A store whose budgets are as used as a test says."""

    def __init__(self, used: dict[tuple[str, str], int], **status: object) -> None:
        self._used = used
        self._status = {"kind": "redis", "counters": len(used), **status}

    def status(self) -> dict[str, object]:
        return self._status

    def budgets(self) -> list[Any]:
        return [
            SimpleNamespace(
                rule=BudgetSpec(name, Scope("acme", "user", "*"), "pico_usd", 100, "month"),
                subject=subject,
                state=lambda now_ns, used=used: CounterState(100, used, 0, None),
            )
            for (name, subject), used in self._used.items()
        ]


@pytest.fixture
async def sources(gateway):
    """The sources of a gateway that serves."""
    return gateway.gateway._metrics._endpoint._page._sources


async def page_of(sources, max_budgets: int = 3) -> Page:
    return Page(await MetricsPage(sources, max_budgets).rendered())


async def test_only_the_most_used_budgets_are_shown_and_nobody_they_count(sources):
    used = {(f"b{number:03d}", "ada"): number for number in range(120)} | {("b007", "grace"): 119}
    page = await page_of(replace(sources, counters=FakeCounters(used)))
    name = "tollkeeper_budget_used_ratio"
    found = {labels["budget"]: page.value(name, **labels) for labels in page.labels(name)}
    assert found == {"b007": 1.19, "b119": 1.19, "b118": 1.18}, "the fullest counter of each budget"
    assert not {"ada", "grace"} & page.label_values()


async def test_no_budget_is_looked_at_where_none_is_to_be_shown(sources):
    page = await page_of(replace(sources, counters=FakeCounters({("b", "ada"): 1})), max_budgets=0)
    assert "tollkeeper_budget_used_ratio" not in page.metrics


async def test_shared_counters_that_are_away_are_seen_to_be(sources):
    counters = FakeCounters({}, reachable=False, round_trips=7, requests_with_round_trip=3)
    page = await page_of(replace(sources, counters=counters))
    assert page.value("tollkeeper_counters_reachable", store="redis") == 0
    assert page.value("tollkeeper_counters_round_trips_total") == 7
    assert page.value("tollkeeper_counters_waits_total") == 3


async def test_an_engine_host_is_in_one_state(sources):
    hosts: Any = {
        "gpu-0": SimpleNamespace(state="ready", requests=4, models={}, facts={}),
        "gpu-1": SimpleNamespace(state="away", requests=0, models={}, facts={}),
    }
    page = await page_of(replace(sources, engines=lambda: hosts))
    assert page.value("tollkeeper_engine_host_state", host="gpu-0") == 1
    assert page.value("tollkeeper_engine_host_state", host="gpu-0", state="ready") == 1
    assert page.value("tollkeeper_engine_host_state", host="gpu-1", state="away") == 1
    assert page.value("tollkeeper_engine_host_requests", host="gpu-0") == 4


def test_help_and_labels_are_escaped_each_in_its_way():
    families = [Family("x", "gauge", 'a\\b "c"\nd', [({"one": 'a\\b "c"\nd', "two": "é\ud800"}, 1.5)])]
    assert b"".join(render(families)).decode() == (
        '# HELP x a\\\\b "c"\\nd\n# TYPE x gauge\nx{one="a\\\\b \\"c\\"\\nd",two="é?"} 1.5\n'
    )


def test_a_metric_without_samples_is_left_out():
    page = b"".join(render([Family("x", "gauge", "h", []), gauge("y", "h", 3)]))
    assert page == b"# HELP y h\n# TYPE y gauge\ny 3.0\n"


@pytest.mark.parametrize("count", [49, 50, 51, 100, 151])
def test_a_long_metric_is_written_in_pieces_under_one_head(count):
    pieces = list(render([Family("x_total", "counter", "h", [({"n": str(n)}, n) for n in range(count)])]))
    assert all(piece.count(b"\n") <= 52 for piece in pieces)
    assert len(Page(b"".join(pieces)).labels("x_total")) == count
