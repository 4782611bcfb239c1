"""How long idle models stay, how long they take to come back, and what a new one is warmed with."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.engine.cold_starts import ColdStarts
from backends.engine.hot_prefixes import HotPrefixes, Prefix
from backends.engine.placement import Resident
from backends.engine.residency import StayPolicy, due
from backends.engine.settings import EngineHostSettings
from contracts.errors import ConfigurationError

SECOND = 1_000_000_000
POLICY = StayPolicy(sleep_after_seconds=10, unload_after_seconds=60)


def idle(**options: object) -> Resident:
    found: dict[str, object] = {"model": "m", "devices": ("a",), "awake_bytes": 10, "can_sleep": True} | options
    return Resident(**found)  # type: ignore[arg-type]  # the test's


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (9.999, []),
        (10, [("sleep", "m")]),
        (10.001, [("sleep", "m")]),
        (59.999, [("sleep", "m")]),
        (60, [("unload", "m")]),
        (61, [("unload", "m")]),
    ],
)
def test_an_idle_model_sleeps_and_later_goes(seconds: float, expected: list[tuple[str, str]]) -> None:
    assert due([idle()], POLICY, round(seconds * SECOND)) == expected


def test_one_asleep_is_not_put_to_sleep_and_one_that_cannot_waits_for_its_unloading() -> None:
    assert due([idle(is_asleep=True), idle(can_sleep=False)], POLICY, 20 * SECOND) == []
    assert len(due([idle(is_asleep=True), idle(can_sleep=False)], POLICY, 60 * SECOND)) == 2


def test_one_that_serves_or_is_kept_warm_stays() -> None:
    kept = [idle(is_busy=True), idle(is_warm=True), idle(model="hot")]
    policy = StayPolicy(1, 2, warm=frozenset({"hot"}))
    assert due(kept, policy, 1000 * SECOND) == []


def test_without_times_everything_stays() -> None:
    assert due([idle()], StayPolicy(), 10**18) == []


@pytest.mark.parametrize(("sleep", "unload", "is_fine"), [(10, 10, False), (10, 10.1, True), (10, 9, False)])
def test_unloading_before_sleep_is_a_mistake(sleep: float, unload: float, is_fine: bool) -> None:
    if is_fine:
        StayPolicy(sleep, unload)
    else:
        with pytest.raises(ConfigurationError, match="sleep"):
            StayPolicy(sleep, unload)


def test_a_cold_start_is_foretold_by_the_median_of_the_last_ones() -> None:
    starts = ColdStarts()
    assert starts.expected_ns("m", "load") is None
    for took in (100, 5, 7, 6):
        starts.note("m", "wake", took)
    assert starts.expected_ns("m", "wake") == 6  # of 5, 6, 7, 100, rounded to even
    assert starts.last_ns("m", "wake") == 6
    assert starts.expected_ns("m", "load") is None
    for _ in range(8):
        starts.note("m", "wake", 50)
    assert starts.expected_ns("m", "wake") == 50


def test_a_beginning_that_many_prompts_share_is_hot_and_counted_once_at_its_greatest_length() -> None:
    prefixes = HotPrefixes(lengths=(2, 4))
    for tail in range(5):
        prefixes.see([1, 2, 3, 4, tail])
    prefixes.see([1, 2, 9, 9])
    assert prefixes.hottest(4) == [Prefix((1, 2, 3, 4))]


def test_other_tenants_and_adapters_share_nothing() -> None:
    prefixes = HotPrefixes(lengths=(2,))
    for salt in ("x", "x", "x", "y", "y"):
        prefixes.see([1, 2], "", salt)
    prefixes.see([1, 2], "lora", "x")
    assert prefixes.hottest(9) == [Prefix((1, 2), "", "x"), Prefix((1, 2), "", "y")]


@pytest.mark.parametrize(("length", "is_seen"), [(1, False), (2, True), (3, True)])
def test_short_prompts_leave_no_trace(length: int, is_seen: bool) -> None:
    prefixes = HotPrefixes(lengths=(2,))
    prefixes.see([7] * length)
    prefixes.see([7] * length)
    assert bool(prefixes.hottest(1)) is is_seen


@given(st.lists(st.lists(st.integers(0, 2), max_size=6), max_size=60), st.integers(1, 8))
def test_memory_is_bounded_and_no_hot_prefix_is_part_of_another(prompts: list[list[int]], capacity: int) -> None:
    prefixes = HotPrefixes(capacity, lengths=(1, 3, 5))
    for tokens in prompts:
        prefixes.see(tokens)
    assert len(prefixes._counts) <= capacity
    hot = prefixes.hottest(5)
    assert len(hot) <= 5
    for one in hot:
        assert not any(other is not one and other.token_ids[: len(one.token_ids)] == one.token_ids for other in hot)


def test_the_host_s_settings_say_how_long_models_stay() -> None:
    told = EngineHostSettings(engine_sleep_after_seconds=10, engine_unload_after_seconds=60, engine_warm="a, b,,c")
    assert told.stay_policy == StayPolicy(10, 60, frozenset({"a", "b", "c"}))
    assert EngineHostSettings().stay_policy == StayPolicy()
    with pytest.raises(ValueError, match="idle models are unloaded after 5 s and sleep after 10 s"):
        EngineHostSettings(engine_sleep_after_seconds=10, engine_unload_after_seconds=5)
