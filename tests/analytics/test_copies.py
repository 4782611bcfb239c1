"""Copies to a rollout's candidate: a line of their own wherever money or GPU time is summed up, so that books close; on
nobody's invoice; and in no figure of what callers waited for or were answered.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Final

import pytest

import analytics.percentiles
from analytics.anomaly.spend import spend_anomalies
from analytics.cost.comparison import compare_costs
from analytics.cost.drill import CostPlace, CostRange, cost_breakdown
from analytics.cost.question import CostQuestion
from analytics.cost.report import cost_report
from analytics.cost.spending_now import spending_now
from analytics.cost.unit_costs import unit_costs
from analytics.distinct import distinct
from analytics.exports.charges import Charge, charges_of
from analytics.exports.focus import gpu_rows, usage_rows
from analytics.exports.focus_rules import focus_faults
from analytics.exports.invoice import invoices, not_invoiced
from analytics.forecast.history import spend_histories
from analytics.forecast.outlook import outlook_task
from analytics.gpu.cost import GpuCost, TenantGpuCost
from analytics.latency.over_time import latency_over_time
from analytics.overview import overview
from analytics.planner.recorded import recorded_workload
from analytics.prices.usage_groups import usage_groups
from analytics.quality.report import quality_report
from analytics.query_time import QueryTime
from analytics.recommendations.evidence import read_uses
from analytics.scope import Period, Scope
from analytics.series import series
from backends.store.client import StoreClient
from contracts.access.identity import Identity
from contracts.metering.gaps import pack_gaps
from contracts.metering.usage import Usage
from contracts.pricing.money import usd
from contracts.pricing.rates import BillingTerms, RateBook
from contracts.recording.records import GpuShare, RequestRecord
from contracts.rules.objectives import TIMED
from contracts.serving.rollouts import PLATFORM_TENANT
from tests.analytics.cost.records import request

START: Final = datetime(2058, 6, 1, tzinfo=UTC)
END: Final = START + timedelta(days=30)
MONTH: Final = Period(START, END)
ASKED: Final = END + timedelta(hours=1)
MS: Final = 10**6
MICRO: Final = 10**6  # pico-USD
Record = Callable[[Sequence[RequestRecord]], None]
# Of each length that another table of sums answers: minutes, hours, days whole, and days with edges.
RANGES: Final = (
    (END - timedelta(hours=2), END),
    (END - timedelta(hours=20), END),
    (END - timedelta(days=2, hours=3), END),
    (START, END),
)


def customers() -> list[RequestRecord]:
    """Two hundred requests of two tenants over a month, more of them towards its end; a tenth fails."""
    found = []
    for number in range(200):
        before_end = timedelta(minutes=7) + timedelta(seconds=number**2 * 64.7)
        is_failed = number % 10 == 3
        found.append(
            request(
                END - before_end,
                who=Identity(("acme", "globex")[number % 2], ("red", "blue")[number % 3 % 2], key_id="key_1"),
                model=("large", "small")[number % 5 // 4],
                outcome="error" if is_failed else "ok",
                status=502 if is_failed else 200,
                finish_reason="" if is_failed else "stop",
                duration_ns=(200 + number) * MS,
                ttft_ns=None if is_failed else (20 + number) * MS,
                gaps=pack_gaps([] if is_failed else [1_000 + number, 1_500]),
                usage=Usage() if is_failed else Usage(input_text=100 + number, output_text=10),
                cost_pico_usd=None if number % 20 == 7 else (number + 1) * MICRO,
                gpu=GpuShare(prefill_ns=number, decode_ns=2),
                arm="incumbent",
                rollout="try",
            )
        )
    return found


def copies() -> list[RequestRecord]:
    """One copy for every second request: a hundred times as slow, half of them failed, and other answers."""
    found = []
    for number in range(100):
        is_failed = number % 2 == 0
        found.append(
            request(
                END - timedelta(minutes=8) - timedelta(seconds=(2 * number) ** 2 * 64.7),
                who=Identity(PLATFORM_TENANT, key_id="shadow", tags={"rollout": "try"}),
                model="large" if number % 4 else "candidate",
                outcome="error" if is_failed else "ok",
                status=502 if is_failed else 200,
                finish_reason="" if is_failed else "length",
                duration_ns=20_000 * MS,
                ttft_ns=10_000 * MS,
                gaps=pack_gaps([90_000] * 5),
                usage=Usage(input_text=50, output_text=3_000),
                cost_pico_usd=7 * MICRO,
                gpu=GpuShare(prefill_ns=1_000, decode_ns=3_000),
                arm="shadow",
                rollout="try",
                priority="batch",
            )
        )
    return found


@pytest.fixture(scope="module")
def rows(record: Record) -> list[RequestRecord]:
    """Both, in one batch, as a collector stores them."""
    made = [*customers(), *copies()]
    record(made)
    return made


def within(rows: Sequence[RequestRecord], period: Period) -> list[RequestRecord]:
    return [row for row in rows if period.start_s * 10**9 <= row.started_at_ns < period.end_s * 10**9]


def spent(rows: Sequence[RequestRecord]) -> int:
    return sum(row.cost_pico_usd or 0 for row in rows)


def by_tenant(rows: Sequence[RequestRecord]) -> dict[str, int]:
    found: defaultdict[str, int] = defaultdict(int)
    for row in rows:
        found[row.who.tenant] += row.cost_pico_usd or 0
    return dict(found)


def seen(rows: Sequence[RequestRecord]) -> list[RequestRecord]:
    """Leave out what nobody waited for."""
    return [row for row in rows if row.who.tenant != PLATFORM_TENANT]


def month_of_charges(reader: StoreClient) -> list[Charge]:
    question = CostQuestion(START, END, ("tenant", "team", "project", "key"), asked_at=ASKED)
    return charges_of(usage_groups(reader, question, []), [])


@pytest.mark.parametrize("more", [(), ("model",), ("key",), ("tag:rollout",)], ids=["sums", "models", "keys", "tags"])
def test_a_cost_report_has_copies_on_a_line_of_their_own(
    reader: StoreClient, rows: list[RequestRecord], more: tuple[str, ...]
) -> None:
    report = cost_report(reader, CostQuestion(START, END, ("tenant", *more), asked_at=ASKED))
    lines = {line.path[0]: line.sums for line in report.level(1)}
    assert {tenant: sums.priced_pico_usd for tenant, sums in lines.items()} == by_tenant(rows)
    assert lines[PLATFORM_TENANT].priced_pico_usd == 100 * 7 * MICRO
    assert report.total.priced_pico_usd == spent(rows) and report.total.requests == len(rows)
    assert report.total.gpu_ns == sum(row.gpu.prefill_ns + row.gpu.decode_ns for row in rows if row.gpu)
    assert lines[PLATFORM_TENANT].gpu_ns == 100 * 4_000
    assert unit_costs(lines[PLATFORM_TENANT]).per_request == Decimal("0.000007")


def test_pages_of_costs_sum_to_what_was_spent(reader: StoreClient, rows: list[RequestRecord]) -> None:
    place, zone = CostPlace(), CostQuestion(START, END).zone
    found = cost_breakdown(reader, place, CostRange(MONTH, zone, ASKED), "tenant")
    assert {name: sums.priced_pico_usd for name, sums in found.lines} == by_tenant(rows)
    assert found.total.priced_pico_usd == spent(rows)
    now = spending_now(reader, QueryTime(END - timedelta(seconds=1)), zone)
    assert now.month_to_date.priced_pico_usd == spent(rows)
    half = Period(START + timedelta(days=15), END)
    change = compare_costs(reader, place, CostRange(half, zone, ASKED), Period(START, half.start), "tenant")
    assert sum(line.after.priced_pico_usd + line.before.priced_pico_usd for line in change.lines) == spent(rows)
    for start, end in RANGES:
        over_time = series(reader, Scope(start, end, asked_at=ASKED), "tenant")
        cost = sum((point.cost_usd for points in over_time.groups.values() for point in points), Decimal(0))
        assert cost == usd(spent(within(rows, Scope(start, end, asked_at=ASKED).covered)))


@pytest.mark.parametrize("level", ["team", "tenant"])
def test_nobody_is_invoiced_for_copies_and_invoices_with_them_make_what_was_spent(
    reader: StoreClient, rows: list[RequestRecord], level: str
) -> None:
    charges = month_of_charges(reader)
    made = invoices(charges, MONTH, level, RateBook())  # type: ignore[arg-type]  # one of its names
    assert {one.tenant for one in made} == {"acme", "globex"}
    of_tenant: defaultdict[str, Decimal] = defaultdict(Decimal)
    for one in made:
        of_tenant[one.tenant] += one.usage
    assert dict(of_tenant) == {name: usd(pico) for name, pico in by_tenant(seen(rows)).items()}
    own, unpriced = not_invoiced(charges)
    assert (own, unpriced) == (100 * 7 * MICRO, 0)
    assert sum(of_tenant.values()) + usd(own) == usd(spent(rows))
    copied = [charge for charge in charges if charge.tenant == PLATFORM_TENANT]
    committed = BillingTerms("terms", PLATFORM_TENANT, START, None, committed_usd=Decimal(5))
    assert copied and invoices(copied, MONTH, "tenant", RateBook([committed])) == []


def test_a_focus_file_bills_copies_to_the_installation_itself_and_sums_to_what_was_spent(
    reader: StoreClient, rows: list[RequestRecord]
) -> None:
    question = CostQuestion(START, END, asked_at=ASKED)
    lines = usage_rows(month_of_charges(reader), MONTH, question.periods, "Operator")
    assert focus_faults(lines) == []
    billed: defaultdict[tuple[object, object], Decimal] = defaultdict(Decimal)
    for line in lines:
        billed[line["x_TenantId"], line["BillingAccountId"]] += Decimal(str(line["BilledCost"]))
    spent_by = by_tenant(rows)
    assert dict(billed) == {
        ("acme", "acme"): usd(spent_by["acme"]),
        ("globex", "globex"): usd(spent_by["globex"]),
        (PLATFORM_TENANT, "Operator"): usd(spent_by[PLATFORM_TENANT]),
    }


def test_gpus_are_split_over_copies_and_a_tenant_that_is_called_platform_too() -> None:
    tenants = (TenantGpuCost(PLATFORM_TENANT, 30, 700, 0, 100), TenantGpuCost("platform", 10, 100, 50, 33))
    bill = GpuCost(Period(START, START + timedelta(hours=1)), "use", 1_000, {}, {}, tenants, 17, 0, ("rate-1",))
    lines = gpu_rows("GPU-1", "NVIDIA H200", bill, MONTH, "Operator")
    assert focus_faults(lines) == []
    assert [(line["x_TenantId"], line["BilledCost"]) for line in lines] == [
        (PLATFORM_TENANT, usd(800)),
        ("platform", usd(183)),
        (None, usd(17)),
    ]


def test_histories_and_forecasts_of_all_hold_the_platforms_own(reader: StoreClient, rows: list[RequestRecord]) -> None:
    histories = spend_histories(reader, START.date(), END.date())
    assert {name: sum(history.pico_usd) for name, history in histories.items()} == by_tenant(rows)
    task = outlook_task(reader, QueryTime(END - timedelta(seconds=1)))
    assert task is not None and sum(task.history.pico_usd) == spent(rows)
    alone = outlook_task(reader, QueryTime(END - timedelta(seconds=1)), "acme")
    assert alone is not None and sum(alone.history.pico_usd) == by_tenant(rows)["acme"]


def test_what_copies_cost_is_an_anomaly_of_the_platform_and_of_no_customer(reader: StoreClient, record: Record) -> None:
    first = datetime(2059, 3, 1, tzinfo=UTC)
    days = [first + timedelta(days=number) for number in range(30)]
    bill = {"model": "m", "usage": Usage(input_text=1, output_text=1)}
    record(
        [
            *(request(day, who=Identity("steady"), cost_pico_usd=10**13, **bill) for day in days),
            *(request(day, who=Identity(PLATFORM_TENANT), cost_pico_usd=10**12, **bill) for day in days[:-1]),
            request(days[-1], who=Identity(PLATFORM_TENANT), cost_pico_usd=10**14, **bill),
        ]
    )
    found = spend_anomalies(reader, days[-1] + timedelta(days=1, hours=2))
    assert [one.tenant for one in found] == [PLATFORM_TENANT]


@pytest.mark.parametrize("is_sketched", [False, True], ids=["exact", "sketch"])
def test_figures_of_what_callers_saw_are_those_without_copies(
    reader: StoreClient, rows: list[RequestRecord], is_sketched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_sketched:
        monkeypatch.setattr(analytics.percentiles, "EXACT_SAMPLES", 1)
    for start, end in RANGES:
        scope = Scope(start, end, asked_at=ASKED)
        answer, asked = overview(reader, scope), within(rows, scope.covered)
        people = seen(asked)
        assert answer.method == ("sketch" if is_sketched else "exact"), "copies' times are not counted as missing ones"
        assert answer.total.cost_usd == usd(spent(asked)) and answer.total.requests == len(asked)
        failed = sum(row.outcome == "error" for row in people)
        assert answer.total.error_rate == failed / len(people)
        assert (answer.total.seen, answer.total.seen_errors) == (len(people), failed)
        assert answer.total.copies == len(asked) - len(people) > 0
        times = sorted(row.ttft_ns for row in people if row.ttft_ns is not None)
        assert answer.latency.ttft is not None and answer.latency.gap is not None
        assert answer.latency.ttft.count == len(times) and answer.latency.gap.count == 2 * len(times)
        rank = int(0.99 * len(times))  # a sketch's is the one below, where there are few
        assert 0.98 * times[max(rank - 1, 0)] <= answer.latency.ttft.p99_ns <= 1.02 * times[rank]
        assert {line.tenant for line in answer.lines} == {"acme", "globex", PLATFORM_TENANT}
        for line in answer.lines:
            assert line.volume.copies == 0 and line.volume.error_rate is not None
            assert (line.latency.ttft is None) is (line.tenant == PLATFORM_TENANT)
        own = overview(reader, Scope(start, end, PLATFORM_TENANT, asked_at=ASKED))
        assert own.latency.ttft is not None and own.latency.ttft.count == answer.total.copies
        assert own.total.error_rate == own.total.errors / own.total.admitted > 0.3 and own.total.copies == 0


def test_times_of_all_are_counted_without_copies(reader: StoreClient, rows: list[RequestRecord]) -> None:
    for start, end in RANGES:
        scope = Scope(start, end, asked_at=ASKED)
        whole = latency_over_time(reader, scope)
        answered = [row for row in seen(within(rows, scope.covered)) if row.outcome == "ok"]
        for measure in TIMED:
            counted = sum(sum(each.counts.values()) for each in whole.over_time[measure])
            assert counted == len(answered), (measure, start)
        own = latency_over_time(reader, Scope(start, end, PLATFORM_TENANT, asked_at=ASKED))
        assert not own.is_empty, "whoever asks for copies is told of them"


def test_plans_quality_and_recommendations_are_of_what_was_asked(
    reader: StoreClient, rows: list[RequestRecord]
) -> None:
    replayed = recorded_workload(reader, MONTH)
    assert len(replayed.requests) == sum(row.outcome == "ok" for row in seen(rows))
    assert set(replayed.tenants) == {"acme", "globex"}
    assert len(recorded_workload(reader, MONTH, tenant=PLATFORM_TENANT).requests) == 100
    week = timedelta(days=7)
    found = quality_report(reader, END, week, week)
    assert {one.tenant for one in found} == {"acme", "globex"}
    assert {one.tenant for one in quality_report(reader, END, week, week, tenant=PLATFORM_TENANT)} == {PLATFORM_TENANT}
    assert {use.tenant for use in read_uses(reader, MONTH, [])} == {"acme", "globex"}
    assert read_uses(reader, MONTH, [], PLATFORM_TENANT) == []


def test_filters_offer_the_platforms_own(reader: StoreClient, rows: list[RequestRecord]) -> None:
    assert PLATFORM_TENANT in {one.value for one in distinct(reader, "tenant")}


def test_questions_and_sums_leave_out_the_tenant_that_gateways_record_copies_under() -> None:
    root = Path(analytics.percentiles.__file__).parent.parent
    files = [*(root / "analytics" / "sql").glob("*.sql"), *(root / "migrations" / "clickhouse").glob("*.sql")]
    named = {file.name: set(re.findall(r"'(_\w+)'", file.read_text(encoding="utf-8"))) for file in files}
    assert {name: names for name, names in named.items() if names - {PLATFORM_TENANT}} == {}
    assert {"indicators.sql", "planned_requests.sql", "0026_copies_apart.sql"} < {name for name in named if named[name]}
