"""Time limits that count the time in which a process runs, in a loop whose hold-ups are told to it."""

import asyncio
import contextlib
import selectors
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.processes.running_time import LATE_SECONDS, RunningTimeout, RunningTimer, any_done, sleep_and_tell

SECONDS = st.floats(min_value=0.01, max_value=100.0)
NOTHING: tuple[float, ...] = ()


class _Selector(selectors.DefaultSelector):
    """Leaps over each wait and, behind it, over the next hold-up, of which it reads nothing, as after SIGCONT."""

    def __init__(self, hold_ups: Sequence[float], on_hold_up: Callable[[], object]) -> None:
        super().__init__()
        self.now = 0.0
        self.held_up = 0.0
        self._hold_ups = list(hold_ups)
        self._on_hold_up = on_hold_up

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or not timeout:
            return ready
        self.now += timeout
        if self._hold_ups:
            seconds = self._hold_ups.pop(0)
            self.now, self.held_up = self.now + seconds, self.held_up + seconds
            if seconds > LATE_SECONDS:
                self._on_hold_up()
        return []


class HeldUpLoop(asyncio.SelectorEventLoop):
    """A loop of its own time, which is held up behind each of its waits."""

    def __init__(self, hold_ups: Sequence[float], on_hold_up: Callable[[], object] = lambda: None) -> None:
        self.selector = _Selector(hold_ups, on_hold_up)
        super().__init__(self.selector)

    def time(self) -> float:
        return self.selector.now


@contextlib.contextmanager
def loop_of(hold_ups: Sequence[float], on_hold_up: Callable[[], object] = lambda: None) -> Iterator[HeldUpLoop]:
    loop = HeldUpLoop(hold_ups, on_hold_up)
    try:
        yield loop
    finally:
        loop.close()


async def rings_at(seconds: float) -> float:
    loop = asyncio.get_running_loop()
    rung = loop.create_future()
    RunningTimer(seconds, lambda: rung.set_result(loop.time()))
    return float(await rung)


@given(SECONDS)
def test_in_a_process_that_runs_a_limit_ends_on_time(seconds: float) -> None:
    with loop_of(NOTHING) as loop:
        assert loop.run_until_complete(rings_at(seconds)) == pytest.approx(seconds)


@given(SECONDS, st.lists(st.floats(min_value=0.0, max_value=1000.0), max_size=8))
def test_time_in_which_a_process_is_held_up_is_not_counted(seconds: float, hold_ups: list[float]) -> None:
    with loop_of(hold_ups) as loop:
        rung = loop.run_until_complete(rings_at(seconds))
        assert rung - loop.selector.held_up >= seconds * 0.999
        assert rung - loop.selector.held_up <= seconds + 0.2


def test_a_loop_that_is_always_late_ends_its_waits() -> None:
    with loop_of([0.05] * 1000) as loop:
        assert loop.run_until_complete(rings_at(0.25)) < 1.0


@pytest.mark.parametrize("hold_ups", [[3.0], [0.0, 3.0], [0.0, 0.0, 0.0, 0.0, 3.0], [LATE_SECONDS * 1.01] * 5])
def test_what_arrived_meanwhile_is_read_before_the_limit_ends(hold_ups: list[float]) -> None:
    sender, receiver = socket.socketpair()
    receiver.setblocking(False)
    with sender, receiver, loop_of(hold_ups, lambda: sender.send(b"x")) as loop:

        async def read() -> bytes:
            async with RunningTimeout(0.25):
                return await loop.sock_recv(receiver, 1)

        assert loop.run_until_complete(read()) == b"x"


def test_a_timeout_that_is_not_met_raises_and_one_that_is_restarted_counts_again() -> None:
    async def expire(act: Callable[[RunningTimeout], Awaitable[object]], seconds: float | None) -> float:
        with pytest.raises(TimeoutError):
            async with RunningTimeout(seconds) as limit:
                await act(limit)
                await asyncio.Event().wait()
        assert limit.is_expired
        return asyncio.get_running_loop().time()

    async def restart(limit: RunningTimeout) -> None:
        await asyncio.sleep(0.2)
        limit.restart(1.0)

    async def end(limit: RunningTimeout) -> None:
        await asyncio.sleep(0.2)
        limit.expire()

    for act, seconds, ends_at in (
        (lambda limit: asyncio.sleep(0), 0.25, 0.25),
        (restart, 0.25, 1.2),
        (end, 10.0, 0.2),
        (end, None, 0.2),
    ):
        with loop_of(NOTHING) as loop:
            assert loop.run_until_complete(expire(act, seconds)) == pytest.approx(ends_at)


def test_after_its_block_a_timeout_does_nothing() -> None:
    async def leave() -> None:
        async with RunningTimeout(0.25) as limit:
            pass
        limit.expire()
        limit.restart(0.1)
        await asyncio.sleep(1.0)
        assert not limit.is_expired

    with loop_of(NOTHING) as loop:
        loop.run_until_complete(leave())


def test_a_cancelled_block_stays_cancelled() -> None:
    async def cancelled() -> None:
        async def wait() -> None:
            async with RunningTimeout(1.0):
                await asyncio.Event().wait()

        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with loop_of(NOTHING) as loop:
        loop.run_until_complete(cancelled())


def test_a_wait_for_futures_tells_whether_one_is_done() -> None:
    async def wait(done_after: float) -> bool:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        loop.call_later(done_after, future.set_result, None)
        return await any_done((future, loop.create_future()), 0.5)

    for done_after, is_done in ((0.4, True), (0.6, False)):
        with loop_of(NOTHING) as loop:
            assert loop.run_until_complete(wait(done_after)) is is_done


@pytest.mark.parametrize(
    ("held_up", "told"), [(0.0, 0.0), (LATE_SECONDS / 2, 0.0), (LATE_SECONDS * 1.01, LATE_SECONDS * 1.01), (3.0, 3.0)]
)
def test_a_sleeper_is_told_by_how_much_it_was_held_up(held_up: float, told: float) -> None:
    with loop_of([held_up]) as loop:
        assert loop.run_until_complete(sleep_and_tell(0.5)) == pytest.approx(told)
