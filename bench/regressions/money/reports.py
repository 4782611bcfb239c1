"""What reports say of requests that failed, of estimates, of a budget that refuses, and of machines.

A store in a process of its own is given a day of records, and the cost report, the chart of unit costs, the FOCUS rows
and the GPU bill are read from it. A gateway with a control database refuses a request for a hard budget with one
threshold of 80 %; the alert rules then look at it.
"""

import json
import os
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

from analytics.alerts.evaluator import Evaluator
from analytics.cost.question import CostQuestion
from analytics.cost.rendering import report_as_json
from analytics.cost.report import cost_report
from analytics.cost.unit_costs import unit_cost_over_time
from analytics.exports.usage_export import LEVELS, charges_in, usage_export
from analytics.gpu.cost import gpu_cost
from analytics.gpu.ledger import gpu_ledger
from analytics.scope import Period, Scope
from analytics.series import series
from backends.control.alert_log import list_alerts
from backends.control.alert_rules import NewRule, create_rule
from backends.control.bootstrap import DEMO_MODEL, DEMO_TENANT, add_demo
from backends.control.budgets import NewBudget, create_budget
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.secrets.secret_files import SecretFiles
from backends.store.client import StoreClient
from backends.store.columns import arrow_batch
from bench.crashing.service import Service
from bench.load.processes import free_ports
from bench.report import Report
from bench.store_process import StoreProcess
from contracts.access.identity import Identity
from contracts.access.keys import KEY_PREFIX
from contracts.metering.usage import Usage
from contracts.pricing.money import PICO_USD_PER_USD
from contracts.pricing.rates import GpuRate, RateBook
from contracts.recording.ids import uuid7
from contracts.recording.names import ENGINE_STEPS, REQUESTS
from contracts.recording.records import RequestRecord, StepRecord
from migrations.database import migrate_database

_TENANT: Final = "fabrikam"
_USAGE: Final = Usage(input_text=1_000, output_text=100)
_PRICED, _ESTIMATED, _FAILED = 5, 3, 4
_AMOUNT: Final = 3_500_000_000
_NS: Final = 10**9
_PATIENCE_SECONDS: Final = 20.0


def measure(report: Report) -> None:
    with StoreProcess() as store:
        with closing(store.client("writer")) as client:
            _requests(report, client)
            _machines(report, client)
        with (
            tempfile.TemporaryDirectory(prefix="tollkeeper-reports-") as home,
            closing(store.client("writer")) as client,
        ):
            _refusals(report, client, Path(home))


def _requests(report: Report, client: StoreClient) -> None:
    now = datetime.now(UTC)
    day = now.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=2)
    priced: dict[str, Any] = {"usage": _USAGE, "cost_pico_usd": _AMOUNT, "cost_basis": "price_card"}
    records = [
        *(_record(day, **priced) for _ in range(_PRICED)),
        *(_record(day, **priced, outcome="cancelled", count_method="estimate") for _ in range(_ESTIMATED)),
        *(_record(day, outcome="error", status=502) for _ in range(_FAILED)),
    ]
    client.insert_arrow("requests", arrow_batch(REQUESTS, records), deduplication_token=str(uuid4()))
    question = CostQuestion(day, day + timedelta(days=1), tenant=_TENANT, asked_at=now)
    told: Any = report_as_json(cost_report(client, question))
    total = told["total"]
    metric = "reports_failed_requests_counted_as_unpriced"
    report.add(metric, total["unpriced_requests"], "requests", must=0, better="lower", n=_FAILED)

    scope = Scope(day, day + timedelta(days=1), tenant=_TENANT, asked_at=now)
    over_time = series(client, scope, "tenant")
    values = unit_cost_over_time(over_time)
    blanked = sum(
        value is None and point.cost_usd > 0
        for name, points in over_time.groups.items()
        for value, point in zip(values[name], points, strict=True)
    )
    report.add("reports_points_blanked_by_a_failure", blanked, "points", must=0, better="lower", n=1)

    by_payer = CostQuestion(day, day + timedelta(days=1), LEVELS, "day", tenant=_TENANT, asked_at=now)
    charges = charges_in(client, by_payer, [])
    rows: list[Any] = usage_export(charges, Period(by_payer.start, by_payer.end), by_payer.zone, "x")
    estimated = _ESTIMATED * _AMOUNT
    in_report = int(Decimal(total.get("estimated_usd", "0")) * PICO_USD_PER_USD)
    in_focus = int(sum(row["BilledCost"] for row in rows if row.get("x_IsEstimated")) * PICO_USD_PER_USD)
    unmarked = abs(estimated - in_report) + abs(estimated - in_focus)
    report.add("reports_estimated_amounts_unmarked", unmarked, "pico-USD", must=0, better="lower", n=2)


def _machines(report: Report, client: StoreClient) -> None:
    start = (datetime.now(UTC) - timedelta(hours=2)).replace(minute=0, second=0, microsecond=0)
    late = start + timedelta(minutes=20)
    steps = [
        StepRecord(
            engine=f"host/run/{number}",
            sequence=minute + 1,
            started_at_ns=int((late + timedelta(minutes=minute)).timestamp()) * _NS,
            busy_ns=60 * _NS,
            kind="idle",
            model=f"model-{number}",
            replica="host",
            devices=["cpu"],
        )
        for number in (1, 2)
        for minute in range(30)
    ]
    client.insert_arrow("engine_steps", arrow_batch(ENGINE_STEPS, steps), deduplication_token=str(uuid4()))
    ledger = gpu_ledger(client, Period(start, start + timedelta(minutes=50)))
    rates = RateBook([GpuRate("r", "cpu", start - timedelta(days=1), None, "owned", Decimal("1.2"))])
    owed = 1_200_000_000_000 * 30 // 60
    paid = gpu_cost(ledger, {}, rates, {}, "platform").total_pico_usd
    report.add("reports_machine_time_billed_too_much", paid - owed, "pico-USD", must=0, better="lower", n=1)


def _refusals(report: Report, client: StoreClient, home: Path) -> None:
    port = free_ports(1)
    gateway = Service(
        "gateway",
        "gateway",
        home,
        f"http://127.0.0.1:{port}/ready",
        {"TOLLKEEPER_GATEWAY_PORT": str(port), "TOLLKEEPER_COLLECTOR_URL": "http://127.0.0.1:9"},
    )
    secrets = SecretFiles(gateway.data / "secrets")
    url = f"sqlite:///{gateway.data / 'control.db'}"
    migrate_database(url, say=lambda line: None, secrets=secrets)
    database = ControlDatabase(url)
    author = Author("bench", datetime.now(UTC) - timedelta(minutes=1))
    key = secrets.get_or_create("demo_key", prefix=KEY_PREFIX)
    try:
        with database.session() as session:
            add_demo(session, author, key, secrets.get_or_create("key_pepper").encode())
            # Less than one request reserves, more than nothing: it refuses with nothing spent, and once or not at all.
            budget = NewBudget(DEMO_TENANT, "tenant", "month", amount_usd=Decimal("0.0005"), thresholds=(80,))
            create_budget(session, author, budget)
            create_rule(session, author, NewRule("money", "budget_threshold"))
        gateway.start()
        refused = sum(_ask(port, key) == 429 for _ in range(60))
        open_alerts, deadline = 0, time.monotonic() + _PATIENCE_SECONDS
        while not open_alerts and time.monotonic() < deadline:
            Evaluator(database, client, f"bench-{os.getpid()}").look(datetime.now(UTC))
            with database.session() as session:
                open_alerts = sum(alert.severity == "page" for alert in list_alerts(session, is_open=True))
            time.sleep(0.5)
    finally:
        gateway.stop()
        database.close()
    if not refused:
        raise RuntimeError("the budget refused nothing, so there is nothing to notify")
    silent = int(not open_alerts)
    report.add("reports_refusing_budgets_without_a_notice", silent, "budgets", must=0, better="lower", n=refused)


def _ask(port: int, key: str) -> int:
    body = {"model": DEMO_MODEL, "max_tokens": 200, "messages": [{"role": "user", "content": "hello"}]}
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(asked, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def _record(day: datetime, **fields: Any) -> RequestRecord:
    at_ns = int((day + timedelta(hours=12)).timestamp()) * _NS
    return RequestRecord(
        request_id=UUID(int=uuid7(at_ns).int).bytes,
        started_at_ns=at_ns,
        duration_ns=_NS,
        who=Identity(_TENANT),
        model="gpt-x",
        attempts=1,
        **fields,
    )
