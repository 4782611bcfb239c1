"""Which day is compared with which, and from where on a difference is unusual."""

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import uuid4

import pytest

from analytics.anomaly.spend import Contributor, anomalies_of_today, is_unusual, spend_anomalies, usual_day
from analytics.forecast.history import SpendHistory
from backends.store.client import StoreClient
from contracts.access.identity import Identity
from contracts.errors import InvalidRequest
from contracts.metering.usage import Usage
from contracts.recording.records import RequestRecord

DAY = date(2026, 11, 18)
USD = 10**12


def history(values: Sequence[int]) -> SpendHistory:
    """Return a history in USD that ends with the day that is looked at."""
    first = DAY - timedelta(days=len(values) - 1)
    return SpendHistory("t", first, tuple(value * USD for value in values), (1,) * len(values))


def test_three_such_weekdays_or_seven_near_days_are_needed() -> None:
    for days, found in ((8, date(2026, 11, 17)), (7, None), (22, date(2026, 11, 11))):
        usual = usual_day(history([*range(10, 10 + days - 1), 99]), DAY)
        assert (usual is None) is (found is None)
        if days == 22:
            assert usual is not None and usual.weekday() == DAY.weekday()


def test_a_weekend_is_compared_with_weekends() -> None:
    week = [100, 100, 100, 100, 100, 5, 5]
    saturday = DAY - timedelta(days=4)
    ended = [*week[3:], *week * 5]  # ends on a Sunday
    sunday = SpendHistory("t", saturday - timedelta(days=len(ended) - 2), tuple(one * USD for one in ended), (1,) * 39)
    last = saturday + timedelta(days=1)
    usual = usual_day(sunday, last)
    assert usual is not None and sunday.on(usual) == 5 * USD
    assert not is_unusual(sunday, last, usual)


@pytest.mark.parametrize(("observed", "is_odd"), [(100, False), (124, False), (125, True), (76, False), (75, True)])
def test_a_quarter_more_or_less_than_a_steady_day_is_unusual(observed: int, is_odd: bool) -> None:
    steady = history([100] * 42 + [observed])
    usual = usual_day(steady, DAY)
    assert usual is not None
    assert is_unusual(steady, DAY, usual) is is_odd


def test_days_that_scatter_must_be_left_by_four_deviations() -> None:
    wednesdays = [60, 140, 80, 120, 100, 90]
    values: list[int] = []
    for wednesday in wednesdays:
        values += [wednesday, 0, 0, 0, 0, 0, 0]
    for observed, is_odd in ((200, False), (300, True)):
        scattered = history([*values, observed])
        usual = usual_day(scattered, DAY)
        assert usual is not None
        assert is_unusual(scattered, DAY, usual) is is_odd


def test_less_than_a_dollar_is_nobodys_concern() -> None:
    first = DAY - timedelta(days=42)
    for extra, is_odd in ((USD - 1, False), (USD + 1, True)):
        cents = SpendHistory("t", first, (USD // 100,) * 42 + (USD // 100 + extra,), (1,) * 43)
        usual = usual_day(cents, DAY)
        assert usual is not None
        assert is_unusual(cents, DAY, usual) is is_odd


def test_an_anomaly_in_the_store_is_found_and_its_parts_are_the_difference(
    reader: StoreClient, record: Callable[[Sequence[RequestRecord]], None]
) -> None:
    tenant = f"tenant-{uuid4()}"
    made = []
    for back in range(22):
        at = datetime(2026, 11, 18, 9, tzinfo=UTC) - timedelta(days=back)
        for _ in range(10 if back else 40):
            made.append(
                RequestRecord(
                    request_id=uuid4().bytes,
                    started_at_ns=int(at.timestamp()) * 10**9,
                    duration_ns=1,
                    who=Identity(tenant),
                    model="m",
                    usage=Usage(input_text=1_000, output_text=100),
                    cost_pico_usd=USD + 7,
                )
            )
    record(made)
    now = datetime(2026, 11, 19, 8, tzinfo=UTC)
    (found,) = spend_anomalies(reader, now, tenant=tenant)
    assert found.day == DAY and found.compared_with.weekday() == DAY.weekday()
    assert found.driver == "volume"
    assert found.observed_usd - found.expected_usd == Decimal(30) + Decimal(210) / USD
    assert sum(found.parts.values()) == 30 * USD + 210
    assert spend_anomalies(reader, now, tenant=tenant, day=DAY - timedelta(days=1)) == ()
    assert not [part for part in str(found.as_json()["parts_usd"]).split("'") if "E" in part]
    for day in (now.date(), now.date() + timedelta(days=1)):
        with pytest.raises(InvalidRequest, match="is not over"):
            spend_anomalies(reader, now, tenant=tenant, day=day)


def test_a_runaway_agent_is_found_the_same_morning_and_named(
    reader: StoreClient, record: Callable[[Sequence[RequestRecord]], None]
) -> None:
    tenant, day = f"tenant-{uuid4()}", datetime(2026, 11, 18, tzinfo=UTC)

    def used(at: datetime, dollars: int, who: Identity) -> RequestRecord:
        return RequestRecord(
            request_id=uuid4().bytes,
            started_at_ns=int(at.timestamp()) * 10**9,
            duration_ns=1,
            who=who,
            model="m",
            usage=Usage(input_text=1_000, output_text=100),
            cost_pico_usd=dollars * USD,
        )

    team, agent = Identity(tenant, key_id="key_team"), Identity(tenant, key_id="key_agent", user="robot")
    made = [used(day - timedelta(days=back) + timedelta(hours=2), 3, team) for back in range(29)]
    made += [used(day - timedelta(days=back) + timedelta(hours=20), 50, team) for back in range(1, 29)]
    made += [used(day + timedelta(hours=8, minutes=minute), 2, agent) for minute in range(10)]
    record(made)
    assert anomalies_of_today(reader, day + timedelta(hours=8, minutes=59), tenant=tenant) == ()  # the hour is not over
    (found,) = anomalies_of_today(reader, day + timedelta(hours=9, minutes=5), tenant=tenant)
    assert (found.day, found.until) == (DAY, day + timedelta(hours=9))
    assert (found.observed_usd, found.expected_usd) == (Decimal(23), Decimal(3))  # of such mornings, not of whole days
    assert found.contributor == Contributor("key_agent", "robot", "m", Decimal(20), 10)
    assert "key_agent" in found.contributor.action and sum(found.parts.values()) == 20 * USD
    assert anomalies_of_today(reader, day + timedelta(minutes=30), tenant=tenant) == ()  # no hour is over
