"""Days without teams and projects: the sums of the days with them, for every question that is answered from either."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from analytics.cost.question import CostQuestion
from analytics.cost.report import cost_report
from analytics.cost.sums import total_of
from analytics.overview import overview
from analytics.scope import Scope
from analytics.series import series
from backends.store.client import StoreClient
from contracts.access.identity import Identity
from contracts.metering.usage import Usage
from contracts.recording.records import RequestRecord
from tests.analytics.cost.records import request

START = datetime(2049, 1, 1, tzinfo=UTC)
END = START + timedelta(days=40)


def test_they_say_what_the_days_with_teams_sum_to(
    reader: StoreClient, record: Callable[[Sequence[RequestRecord]], None]
) -> None:
    tenant = f"tenant-{uuid4()}"
    rows = [
        request(
            START + timedelta(days=number % 30, hours=number),
            who=Identity(tenant, f"team-{number % 3}", f"project-{number % 2}"),
            model=f"model-{number % 4}",
            outcome="error" if number % 5 == 0 else "ok",
            usage=Usage(input_text=number, cache_read_text=2, output_text=3),
            cost_pico_usd=None if number % 7 == 0 else number * 1_000,
        )
        for number in range(1, 60)
    ]
    record(rows)
    scope = Scope(START, END, tenant=tenant, asked_at=END)
    assert (scope.grain, scope.rollup) == ("day", "tenant_model_day")
    assert Scope(START, END, tenant=tenant, team="team-1", asked_at=END).rollup == "requests_day"

    by_model = cost_report(reader, CostQuestion(START, END, ("tenant", "model"), tenant=tenant))
    by_team = cost_report(reader, CostQuestion(START, END, ("tenant", "team", "model"), tenant=tenant))
    assert by_model.source == by_team.source == "requests_day"
    assert by_model.total == by_team.total == total_of(line.sums for line in by_team.lines)
    assert by_model.total.priced_pico_usd == sum(row.cost_pico_usd or 0 for row in rows)
    assert by_model.total.requests == overview(reader, scope).total.requests == 59
    one_team = Scope(START, END, tenant=tenant, team="team-1", asked_at=END)
    assert overview(reader, one_team).total.requests == sum(row.who.team == "team-1" for row in rows)

    models, teams = series(reader, scope, "model"), series(reader, scope, "team")
    assert set(models.groups) == {f"model-{number}" for number in range(4)}
    for step in range(len(models.steps)):
        parts = [sum(group[step].cost_usd for group in found.groups.values()) for found in (models, teams)]
        assert parts[0] == parts[1]
