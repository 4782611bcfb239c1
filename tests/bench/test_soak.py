"""What the soak computes: slopes that odd points do not bend, quantiles of buckets, and what it takes for an answer."""

import asyncio

import pytest

from bench.fuzzing.answers import Fault
from bench.soaking.caller import Told
from bench.soaking.traffic import FailingServer, Kind, kinds
from bench.soaking.watch import Look, gauge, growth_mib, lag_quantile, slope_per_hour, waited_share

PAGE = """\
# TYPE tollkeeper_event_loop_lag_seconds histogram
tollkeeper_event_loop_lag_seconds_bucket{le="0.001"} 900
tollkeeper_event_loop_lag_seconds_bucket{le="0.002"} 990
tollkeeper_event_loop_lag_seconds_bucket{le="0.005"} 999
tollkeeper_event_loop_lag_seconds_bucket{le="+Inf"} 1000
tollkeeper_reservations_in_flight 3
tollkeeper_requests_in_flight_total 9
"""


def looks(*mib: float) -> list[Look]:
    return [Look(float(second), value, 10) for second, value in enumerate(mib)]


def test_a_slope_is_in_mib_an_hour() -> None:
    assert slope_per_hour(looks(*(100 + second / 60 for second in range(100)))) == pytest.approx(60)
    assert slope_per_hour(looks(*[80.0] * 50)) == 0


def test_a_burst_that_is_given_back_bends_no_slope() -> None:
    flat = [100.0] * 100
    flat[40:60] = [400.0] * 20
    assert slope_per_hour(looks(*flat)) == 0
    flat[-10:] = [400.0] * 10
    assert slope_per_hour(looks(*flat)) < 1


def test_a_long_series_is_thinned_and_has_the_same_slope() -> None:
    assert slope_per_hour(looks(*(100 + second / 3600 for second in range(2000)))) == pytest.approx(1)


@pytest.mark.parametrize("few", [looks(), looks(100.0)])
def test_one_look_has_no_slope_and_no_growth(few: list[Look]) -> None:
    for compute in (slope_per_hour, growth_mib):
        with pytest.raises(ValueError):
            compute(few)


def test_growth_is_between_the_first_tenth_and_the_last() -> None:
    steps = [100.0] * 50 + [108.0] * 50
    assert growth_mib(looks(*steps)) == 8
    assert growth_mib(looks(100.0, 103.0)) == 3


def test_the_wait_for_a_core_is_a_share_of_the_time() -> None:
    assert waited_share([Look(10.0, 1.0, 1, 5.0), Look(15.0, 1.0, 1, 6.0), Look(20.0, 1.0, 1, 7.5)]) == 0.25
    with pytest.raises(ValueError):
        waited_share([Look(10.0, 1.0, 1, 5.0)])


@pytest.mark.parametrize(("share", "seconds"), [(0.9, 0.001), (0.901, 0.002), (0.99, 0.002), (0.999, 0.005)])
def test_a_quantile_is_the_bound_of_its_bucket(share: float, seconds: float) -> None:
    assert lag_quantile(PAGE, share) == (seconds, 1000)


def test_a_quantile_beyond_the_last_bound_is_infinite() -> None:
    assert lag_quantile(PAGE, 1.0)[0] == float("inf")


def test_a_page_without_what_is_asked_for_is_an_error() -> None:
    assert gauge(PAGE, "reservations_in_flight") == 3
    for missing in ("requests_in_flight", "connections"):
        with pytest.raises(ValueError):
            gauge(PAGE, missing)
    with pytest.raises(ValueError):
        lag_quantile("", 0.5)


CHAT = next(kind for kind in kinds() if kind.name == "chat_stream")
EVENT = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
BROKEN = b'data: {"error":{"message":"gone","type":"api_error","param":null,"code":"upstream_broken"}}\n\n'


@pytest.mark.parametrize("end", [b"data: [DONE]\n\n", BROKEN], ids=["done", "error"])
def test_a_stream_may_end_well_or_by_an_error(end: bytes) -> None:
    CHAT.check(Told(200, True, EVENT + end))


@pytest.mark.parametrize(
    "told",
    [
        None,
        Told(200, True, EVENT),
        Told(200, True, EVENT + b"data: {"),
        Told(502, False, b'{"error":{"message":"gone","type":"api_error","param":null,"code":"x"}}'),
        Told(200, False, b"<html>"),
    ],
    ids=["nothing", "no end", "half an event", "another status", "no JSON"],
)
def test_what_may_not_be_answered_is_a_fault(told: Told | None) -> None:
    with pytest.raises(Fault):
        CHAT.check(told)


def test_a_client_that_leaves_wants_no_answer() -> None:
    Kind("left", 1, b"", pieces=0).check(None)


def test_the_model_server_fails_every_twentieth_time_and_never_where_it_is_sound() -> None:
    async def ask() -> tuple[int, int]:
        server = FailingServer()
        body = b'{"model": "m", "messages": []}'
        for _ in range(100):
            server.answer("/v1/chat/completions", body)
        failing = server.failures
        for _ in range(100):
            server.answer("/sound/v1/chat/completions", body)
        return failing, server.failures

    assert asyncio.run(ask()) == (5, 5)
