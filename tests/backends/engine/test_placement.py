"""Where models go: never if they do not fit, never at the cost of one that serves, and for no more than needed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.engine.placement import GIB, DeviceRoom, Need, Plan, Resident, Step, applied, place, wake
from contracts.errors import ConfigurationError, Unavailable

NAMES = ("a", "b", "c")


def room(uuid: str = "a", free: int = 80, total: int = 80, *, is_slice: bool = False) -> DeviceRoom:
    return DeviceRoom(uuid, total * GIB, free * GIB, is_slice)


def resident(model: str, awake: int, *devices: str, asleep: int = 1, **other: object) -> Resident:
    options: dict[str, object] = {"can_sleep": True} | other
    return Resident(model, devices or ("a",), awake * GIB, asleep * GIB, **options)  # type: ignore[arg-type]  # the test's


@pytest.mark.parametrize(("needed", "fits"), [(79, True), (80, True), (81, False)])
def test_a_model_goes_where_it_just_fits(needed: int, fits: bool) -> None:
    need = Need("new", needed * GIB)
    if fits:
        assert place(need, [room()], []) == Plan("new", ("a",))
    else:
        with pytest.raises(Unavailable):
            place(need, [room()], [])


def test_the_tightest_fit_leaves_the_large_gpu_for_a_large_model() -> None:
    assert place(Need("new", 20 * GIB), [room("a", 80), room("b", 30), room("c", 10)], []).devices == ("b",)


def test_a_model_used_longest_ago_sleeps_first() -> None:
    old, late = resident("old", 30, last_used_ns=1), resident("late", 30, last_used_ns=2)
    assert place(Need("new", 40 * GIB), [room(free=20)], [late, old]).steps == (Step("sleep", "old", 29 * GIB),)


def test_one_that_cannot_sleep_is_unloaded() -> None:
    plan = place(Need("new", 40 * GIB), [room(free=20)], [resident("old", 30, can_sleep=False)])
    assert plan.steps == (Step("unload", "old", 30 * GIB),)


def test_sleep_that_does_not_suffice_becomes_unloading_and_is_done_once() -> None:
    plan = place(Need("new", 50 * GIB), [room(free=20)], [resident("old", 30)])
    assert plan.steps == (Step("unload", "old", 30 * GIB),)


def test_a_gpu_where_nothing_is_unloaded_comes_before_one_where_something_is() -> None:
    residents = [resident("x", 60, "a", can_sleep=False), resident("y", 60, "b")]
    plan = place(Need("new", 40 * GIB), [room("a", 20), room("b", 20)], residents)
    assert (plan.devices, plan.steps) == (("b",), (Step("sleep", "y", 59 * GIB),))


@pytest.mark.parametrize("why", ["is_busy", "is_warm"])
def test_one_that_serves_or_is_kept_warm_stays_and_the_refusal_shows_the_sum(why: str) -> None:
    with pytest.raises(Unavailable) as caught:
        place(Need("new", 40 * GIB, 8 * GIB, 2 * GIB), [room(free=20)], [resident("kept", 58, **{why: True})])
    assert caught.value.error_code == "gpu_memory"
    message = caught.value.message
    for part in ("'new' needs 50.0 GiB", "weights 40.0 GiB", "keys and values 8.0 GiB", "overhead 2.0 GiB"):
        assert part in message
    assert "a: 80.0 GiB, 20.0 GiB free, 0.0 GiB could be freed, in use by kept 58.0 GiB" in message


def test_several_ranks_take_several_whole_gpus_and_no_slices() -> None:
    rooms = [room("a", 40), room("b", 80), room("c", 80), room("s", 80, is_slice=True)]
    assert place(Need("new", 60 * GIB, ranks=2), rooms, []).devices == ("b", "c")
    with pytest.raises(Unavailable, match="2 whole GPUs"):
        place(Need("new", GIB, ranks=2), [room("s", is_slice=True), room("a")], [])


def test_a_slice_is_a_device_like_another() -> None:
    rooms = [room("s1", 9, 10, is_slice=True), room("s2", 10, 10, is_slice=True)]
    assert place(Need("new", 10 * GIB), rooms, []).devices == ("s2",)


def test_waking_needs_only_what_sleep_gave_back() -> None:
    sleeper = resident("sleeper", 50, is_asleep=True)
    assert wake(sleeper, [room(free=49)], []) == Plan("sleeper", ("a",))
    other = resident("other", 30)
    assert wake(sleeper, [room(free=20)], [other]).steps == (Step("sleep", "other", 29 * GIB),)
    with pytest.raises(Unavailable, match="more to wake"):
        wake(sleeper, [room(free=20)], [resident("other", 30, is_busy=True)])


@pytest.mark.parametrize("wrong", [{"ranks": 0}, {"weight_bytes": -1}, {"kv_bytes": -1}])
def test_a_need_that_cannot_be_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError):
        Need(**({"model": "new", "weight_bytes": 1} | wrong))  # type: ignore[arg-type]  # the test's


@st.composite
def situations(draw: st.DrawFn) -> tuple[Need, list[DeviceRoom], list[Resident]]:
    residents = []
    held = dict.fromkeys(NAMES, 0)
    for number in range(draw(st.integers(0, 5))):
        devices = tuple(draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=2, unique=True)))
        awake, asleep = draw(st.integers(2, 40)), draw(st.integers(0, 2))
        one = resident(
            f"m{number}",
            awake,
            *devices,
            asleep=asleep,
            is_asleep=draw(st.booleans()),
            can_sleep=draw(st.booleans()),
            is_busy=draw(st.booleans()),
            is_warm=draw(st.booleans()),
            last_used_ns=draw(st.integers(0, 3)),
        )
        residents.append(one)
        for name in devices:
            held[name] += one.held_bytes
    rooms = [
        DeviceRoom(name, held[name] + free * GIB, free * GIB)
        for name, free in zip(NAMES, draw(st.tuples(*[st.integers(0, 40)] * 3)), strict=True)
    ]
    return Need("new", draw(st.integers(0, 90)) * GIB, ranks=draw(st.integers(1, 3))), rooms, residents


def freed_on(uuid: str, steps: tuple[Step, ...], residents: list[Resident]) -> int:
    by_name = {one.model: one for one in residents}
    return sum(step.freed_bytes for step in steps if uuid in by_name[step.model].devices)


@given(situations())
def test_a_plan_makes_room_harms_nobody_and_does_nothing_in_vain(
    situation: tuple[Need, list[DeviceRoom], list[Resident]],
) -> None:
    need, rooms, residents = situation
    by_name = {one.model: one for one in residents}
    free = {one.uuid: one.free_bytes for one in rooms}
    try:
        plan = place(need, rooms, residents)
    except Unavailable:
        could = sorted(
            free[one.uuid] + sum(r.held_bytes for r in residents if r.may_leave and one.uuid in r.devices)
            for one in rooms
        )
        assert could[-need.ranks] < need.bytes_per_device
        return
    assert len(set(plan.devices)) == need.ranks
    assert all(by_name[step.model].may_leave for step in plan.steps)
    assert len({step.model for step in plan.steps}) == len(plan.steps)

    def fits(steps: tuple[Step, ...]) -> bool:
        return all(free[uuid] + freed_on(uuid, steps, residents) >= need.bytes_per_device for uuid in plan.devices)

    assert fits(plan.steps)
    for step in plan.steps:
        assert not fits(tuple(other for other in plan.steps if other is not step))
    after = {one.model: one for one in applied(plan, residents)}
    for step in plan.steps:
        assert (step.model in after and after[step.model].is_asleep) == (step.deed == "sleep")


@given(situations())
def test_the_order_in_which_things_are_listed_does_not_matter(
    situation: tuple[Need, list[DeviceRoom], list[Resident]],
) -> None:
    need, rooms, residents = situation

    def outcome(rooms: list[DeviceRoom], residents: list[Resident]) -> object:
        try:
            return place(need, rooms, residents)
        except Unavailable as error:
            return error.error_code

    forward, backward = outcome(rooms, residents), outcome(rooms[::-1], residents[::-1])
    if isinstance(forward, Plan) and isinstance(backward, Plan):
        assert set(forward.devices) == set(backward.devices)
        assert forward.steps == backward.steps
    else:
        assert forward == backward
