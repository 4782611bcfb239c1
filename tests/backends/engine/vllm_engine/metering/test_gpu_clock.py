"""Where a step lies in time: the GPU's own durations, on the host's clock, without a wait."""

import pytest

from backends.engine.vllm_engine.metering.gpu_clock import DRAINED_NS, EventPool, GpuClock
from tests.backends.engine.vllm_engine.metering.fake_gpu import FakeGpu


def launch(gpu, pool, busy_ns):
    events = pool.take()
    assert events is not None
    launched_ns = gpu.now_ns
    events.first.record()
    gpu.run(busy_ns // 2)
    events.middle.record()
    gpu.run(busy_ns - busy_ns // 2)
    events.last.record()
    return events, launched_ns


def see(clock, gpu, launched):
    events, launched_ns = launched
    return clock.place(events, launched_ns, gpu.now_ns, has_forward=True)


def test_a_step_on_a_dry_stream_begins_when_it_was_launched():
    gpu = FakeGpu()
    pool = EventPool(gpu.event, 4)
    clock = GpuClock(pool)
    events, launched_ns = launch(gpu, pool, 5_000_000)
    gpu.catch_up()
    times = clock.place(events, launched_ns, gpu.now_ns, has_forward=True)
    assert (times.started_ns, times.busy_ns, times.forward_ns) == (1_000_000, 5_000_000, 2_500_000)


def test_a_step_behind_another_begins_where_that_one_ended():
    gpu = FakeGpu()
    pool = EventPool(gpu.event, 4)
    clock = GpuClock(pool)
    first = launch(gpu, pool, 5_000_000)
    second = launch(gpu, pool, 3_000_000)
    gpu.catch_up()
    see(clock, gpu, first)
    assert see(clock, gpu, second).started_ns == 6_000_000


def test_a_gap_within_the_threshold_is_measured_and_one_beyond_it_is_a_launch():
    for gap_ns, started_ns in ((DRAINED_NS, 6_000_000 + DRAINED_NS), (DRAINED_NS + 1, 6_000_000 + DRAINED_NS + 1)):
        gpu = FakeGpu()
        pool = EventPool(gpu.event, 4)
        clock = GpuClock(pool)
        first = launch(gpu, pool, 5_000_000)
        gpu.catch_up()
        see(clock, gpu, first)
        gpu.now_ns += gap_ns
        second = launch(gpu, pool, 1_000_000)
        gpu.catch_up()
        assert see(clock, gpu, second).started_ns == started_ns


def test_a_drifting_gpu_clock_is_held_between_launch_and_sight():
    """The GPU's clock runs 1 % fast over a long queue of steps; no step ends after it was seen to have ended."""
    gpu = FakeGpu()
    pool = EventPool(gpu.event, 200)
    clock = GpuClock(pool)
    queued = [launch(gpu, pool, 1_000_000) for _ in range(100)]
    ended_ns = 0
    for count, (events, launched_ns) in enumerate(queued, 1):
        seen_ns = 1_000_000 + count * 990_000
        times = clock.place(events, launched_ns, seen_ns, has_forward=False)
        assert times.started_ns >= ended_ns
        assert times.started_ns + times.busy_ns - seen_ns <= 100 * 10_000
        assert times.forward_ns is None
        ended_ns = times.started_ns + times.busy_ns


def test_events_are_made_once_and_used_again():
    gpu = FakeGpu()
    pool = EventPool(gpu.event, 2)
    clock = GpuClock(pool)
    for _ in range(50):
        step = launch(gpu, pool, 1_000_000)
        gpu.catch_up()
        see(clock, gpu, step)
    assert gpu.events == 6


def test_an_empty_pool_gives_nothing():
    pool = EventPool(FakeGpu().event, 1)
    assert pool.take() is not None
    assert pool.take() is None


def launch_with_one_event(gpu, pool, busy_ns):
    events = pool.take()
    launched_ns = gpu.now_ns
    gpu.run(busy_ns)
    events.last.record()
    return events, launched_ns


@pytest.mark.parametrize(
    ("later_ns", "started_ns", "busy_ns"), [(0, 6_000_000, 3_000_000), (7_000_000, 8_000_000, 3_000_000)]
)
def test_a_step_with_one_event_begins_at_its_launch_or_at_the_end_of_the_one_before(later_ns, started_ns, busy_ns):
    gpu = FakeGpu()
    pool = EventPool(gpu.event, 4)
    clock = GpuClock(pool)
    anchor = launch(gpu, pool, 5_000_000)
    gpu.now_ns += later_ns
    events, launched_ns = launch_with_one_event(gpu, pool, 3_000_000)
    gpu.catch_up()
    see(clock, gpu, anchor)
    assert clock.follow(events, launched_ns, gpu.now_ns) == (started_ns, busy_ns)


def test_an_anchor_that_was_launched_late_moves_no_end():
    """The host was kept for 300 us between reading its clock and recording: chained ends know better."""
    gpu = FakeGpu()
    pool = EventPool(gpu.event, 4)
    clock = GpuClock(pool)
    see(clock, gpu, caught(gpu, launch(gpu, pool, 1_000_000)))
    gpu.now_ns += 100_000
    read_ns = gpu.now_ns
    gpu.now_ns += 300_000
    events, recorded_ns = caught(gpu, launch(gpu, pool, 1_000_000))
    times = clock.place(events, read_ns, gpu.now_ns, has_forward=False)
    assert recorded_ns - times.started_ns == (read_ns - 1_000_000) // 10_000  # what clocks may have drifted since
    assert times.busy_ns == 1_000_000


@pytest.mark.parametrize(("seen_ns", "busy_ns"), [(6_500_000, 500_000), (9_000_000, 3_000_000)])
def test_no_step_with_one_event_ends_after_it_was_seen_to_have_ended(seen_ns, busy_ns):
    gpu = FakeGpu()
    pool = EventPool(gpu.event, 4)
    clock = GpuClock(pool)
    anchor = launch(gpu, pool, 5_000_000)
    events, launched_ns = launch_with_one_event(gpu, pool, 3_000_000)
    gpu.catch_up()
    clock.place(anchor[0], anchor[1], 6_000_000, has_forward=False)
    assert clock.follow(events, launched_ns, seen_ns) == (6_000_000, busy_ns)


def caught(gpu, launched):
    gpu.catch_up()
    return launched
