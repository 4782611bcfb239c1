"""Reports of rollouts for pages: what the command line says, computed in a process of its own, and its failures."""

import logging
import math
import subprocess
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from analytics.access_scope import AccessScope, BoundStore
from analytics.comparison.rollout_report import rollout_report
from backends.store.address import StoreAddress
from contracts.errors import PermissionDenied
from dashboard import rollout_reports
from dashboard.rollout_reports import ReportFailed, compared_arms

START = datetime(2026, 11, 22, 10, tzinfo=UTC)
END = START + timedelta(hours=1)
ROW: dict[str, object] = {
    **{"arm": "incumbent", "model_name": "old", "outcome_label": "ok", "ttft_ns": 5_000_000, "duration_ns": 9_000_000},
    **{"gap_ms": 1.5, "output_tokens": 20, "cost": 1.2e-05, "is_refused": False, "has_failed": None, "shadow_json": ""},
}


class Rows:
    """A store that has these requests of the rollout."""

    def __init__(self, rows: list[dict[str, object]]) -> None:
        self.rows = rows

    def query(self, sql: str, parameters: object) -> list[dict[str, object]]:
        return self.rows


def test_it_is_what_the_command_line_says() -> None:
    new: list[dict[str, object]] = [{**ROW, "arm": "candidate", "model_name": "new", "ttft_ns": 8_000_000}]
    store: Any = Rows([{**ROW, "duration_ns": 9_000_000 + number} for number in range(30)] + new)
    found, said = compared_arms(store, "r1", START, END), rollout_report(store, "r1", START, END)
    assert found == said and (found.incumbent_requests, found.candidate_requests) == (30, 1)
    assert any(line.comparison and math.isinf(line.comparison.high) for line in found.lines)  # of one observation


def test_a_failure_is_told_without_a_trace_and_the_log_says_why(caplog: pytest.LogCaptureFixture) -> None:
    store: Any = Rows([{"arm": "incumbent"}])
    with caplog.at_level(logging.WARNING), pytest.raises(ReportFailed) as failed:
        compared_arms(store, "r1", START, END)
    assert failed.value.message == "the comparison failed; `tollkeeper rollouts report r1` says why"
    (line,) = (record.getMessage() for record in caplog.records)
    assert "rollout=r1" in line and "KeyError: 'model_name'" in line and "\n" not in line


def test_a_process_that_takes_too_long_is_ended(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begun: list[subprocess.Popen[bytes]] = []

    class Seen(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            begun.append(self)

    monkeypatch.setattr(subprocess, "Popen", Seen)
    monkeypatch.setattr(rollout_reports, "_PATIENCE_SECONDS", 0.05)
    store: Any = Rows([ROW])
    with caplog.at_level(logging.WARNING), pytest.raises(ReportFailed):
        compared_arms(store, "r1", START, END)
    (child,) = begun
    assert child.returncode == -9 and "timed out" in caplog.text


def test_nothing_is_asked_for_who_sees_one_tenant_alone() -> None:
    nowhere = StoreAddress("http://127.0.0.1:9", "tollkeeper", "reader", "")
    with pytest.raises(PermissionDenied):
        compared_arms(BoundStore(nowhere, AccessScope("acme")), "r1", START, END)
