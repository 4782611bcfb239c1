"""Where a step lies in time: the GPU's own durations, on the host's clock, without a wait."""

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
