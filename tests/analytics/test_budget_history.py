"""How an error budget was used up: by whole days, the last point being how the objective stands."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import uuid4

import pytest

from analytics.query_time import QueryTime
from analytics.slo.budget_history import budget_history
from analytics.slo.objective_states import ObjectiveList
from analytics.slo.report import slo_report
from backends.store.client import StoreClient
from contracts.access.identity import Identity
from contracts.errors import NotFound
from contracts.recording.records import RequestRecord
from contracts.rules.objectives import Objective
from tests.analytics.cost.records import request


def test_the_last_point_is_how_the_objective_stands(
    reader: StoreClient, record: Callable[[Sequence[RequestRecord]], None]
) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    tenant = f"tenant-{uuid4()}"
    good = [request(now - timedelta(days=day), who=Identity(tenant)) for day in (3, 3, 2, 1)]
    bad = request(now - timedelta(days=2), who=Identity(tenant), outcome="error", status=502)
    record([*good, bad])
    objective = Objective("kept", "availability", Decimal(60), window_days=4, tenant=tenant)
    promised = ObjectiveList((objective,), ("kept",))
    history = budget_history(reader, promised, "kept", QueryTime(now))
    assert [(point.counts.total, point.counts.bad) for point in history.points][-1] == (5, 1)
    assert history.points[0].remaining_share is None and len(history.points) == 5
    assert [point.counts.bad for point in history.points] == sorted(point.counts.bad for point in history.points)
    (standing,) = slo_report(reader, [objective], now)
    assert standing.budget.remaining_share is not None
    assert history.points[-1].remaining_share == float(standing.budget.remaining_share) == 0.5
    with pytest.raises(NotFound, match="tollkeeper slo list"):
        budget_history(reader, promised, "another", QueryTime(now))
