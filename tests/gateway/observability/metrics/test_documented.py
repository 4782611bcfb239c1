"""docs/metrics.md names every metric that a process exposes, and no other; Grafana's dashboard uses none but these."""

import ast
import json
import re
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import PROCESS_COLLECTOR

from analytics.autoscaling.exposition import signal_page
from analytics.autoscaling.signals import ModelSignals
from backends.segment_log.segment_damage import Missing
from collector.metrics import CollectorMetrics
from gateway.observability.metrics import engine_families
from gateway.observability.metrics.page import MetricsPage
from tests.gateway.exposition_parser import Page

ROOT = Path(__file__).resolve().parents[4]
PAGE = (ROOT / "docs" / "metrics.md").read_text()
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "dashboards" / "tollkeeper.json").read_text())
NAME = re.compile(r"(?:tollkeeper|gen_ai_server|process)_[a-z0-9_]+")  # gen_ai_request_model and such are labels
FULL = ("tollkeeper_", "gen_ai_server_", "process_")
OF_A_HISTOGRAM = re.compile(r"_(?:bucket|sum|count)$")


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the table of metrics under a heading."""
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    lines = section[section.index("\n| metric") :].strip().splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]


def documented(heading: str) -> set[str]:
    """Return the names under a heading; those that do not stand in full get the prefix that the table speaks of."""
    names = [name for cells in rows(heading) for name in re.findall(r"`([a-z0-9_]+)`", cells[0])]
    assert len(names) == len(set(names)), "a metric is documented twice"
    return {name if name.startswith(FULL) else f"tollkeeper_{name}" for name in names}


def documented_labels() -> set[str]:
    headings = ("The gateway", "The collector", "The analytics process")
    found = {word for heading in headings for cells in rows(heading) for word in re.findall(r"[a-z_]+", cells[1])}
    return found | {"instance", "job", "le"}  # Prometheus' own


def everything() -> set[str]:
    return documented("The gateway") | documented("The collector") | documented("The analytics process")


def in_the_gateway_s_source() -> set[str]:
    """Find every name that the gateway's code can give: written out, or put together from the tables of engines."""
    found: set[str] = set()
    for file in (ROOT / "gateway" / "observability" / "metrics").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and NAME.fullmatch(node.value):
                found.add(node.value)
    tables: Iterable[tuple[str, Any]] = (
        ("tollkeeper_gpu_", engine_families._GPU),
        ("tollkeeper_engine_", engine_families._MODEL),
        ("tollkeeper_upstream_", engine_families._UPSTREAM),
    )
    prefixes = {prefix for prefix, _ in tables}
    of_process = {sample.name for metric in PROCESS_COLLECTOR.collect() for sample in metric.samples}
    return (found - prefixes) | {prefix + name for prefix, table in tables for _, name, _, _ in table} | of_process


def expressions() -> list[str]:
    variables = [one["query"]["query"] for one in DASHBOARD["templating"]["list"] if one["type"] == "query"]
    return variables + [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", [])]


def test_every_metric_of_the_gateway_is_documented_and_no_other() -> None:
    assert in_the_gateway_s_source() == documented("The gateway")


async def test_a_running_gateway_exposes_nothing_else(gateway: Any) -> None:
    sources = gateway.gateway._metrics._endpoint._page._sources
    page = Page(await MetricsPage(sources, 3).rendered())
    assert len(page.metrics) > 40, "the page is read wrongly"
    assert set(page.metrics) <= documented("The gateway")


def test_every_metric_of_the_collector_is_documented_and_no_other() -> None:
    counts = {"received": {"traces": 1}, "exported": {"requests": 1}}
    by_tenant = {"rejected": {("full", "acme"): 1}, "noticed": {("duplicate", "acme"): 1}}
    state: Any = SimpleNamespace(
        counters=SimpleNamespace(snapshot=lambda: counts, by_tenant=lambda: by_tenant),
        spool=SimpleNamespace(pending_bytes=1, max_bytes=2, corrupt_entries=0, missing=Missing()),
        exporter=SimpleNamespace(lag_seconds=0.1, store_reachable=True),
        dead_letters=SimpleNamespace(written=0),
        queue_age_seconds=lambda: None,
    )
    found = {sample.name for metric in CollectorMetrics(state).collect() for sample in metric.samples}
    assert found == documented("The collector")


def test_every_metric_of_the_analytics_process_is_documented_and_no_other() -> None:
    known = ModelSignals("chat", 2, 3, 4, 0.5, 0.6, 0.7)
    assert set(Page(signal_page({"chat": known})).metrics) == documented("The analytics process")


@pytest.mark.parametrize("expression", expressions())
def test_grafana_s_dashboard_asks_for_metrics_and_labels_that_exist(expression: str) -> None:
    names = {OF_A_HISTOGRAM.sub("", name) for name in NAME.findall(re.sub(r"\{[^}]*\}| by \([^)]*\)", "", expression))}
    assert names and names <= everything()
    labels = {word for group in re.findall(r"by \(([^)]*)\)", expression) for word in re.findall(r"[a-z_]+", group)}
    labels |= {word for group in re.findall(r"\{([^}]*)\}", expression) for word in re.findall(r"([a-z_]+)[=!]", group)}
    assert labels <= documented_labels()


def test_every_panel_of_grafana_s_says_what_it_shows_and_in_which_unit() -> None:
    panels = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    for panel in panels:
        assert panel["description"] and panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
