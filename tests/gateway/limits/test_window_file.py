"""A restart does not begin a day's limit again."""

import pytest

from contracts.rules.limits import LimitSpec, Scope
from gateway.limits.counters.memory_store import MemoryStore
from gateway.limits.counters.window_file import WindowFile
from tests.gateway.limits.counting import ManualClock

NOW = 1_773_480_413_589_793_238
SCOPE = Scope("acme", "key", "*")
DAY = LimitSpec("day", SCOPE, "tokens", 1000, "day")
MINUTE = LimitSpec("minute", SCOPE, "tokens", 1000, "minute")
SECOND = LimitSpec("second", SCOPE, "tokens", 1000, "second")


class Process:
    """One run of a gateway's counters over a file that is there before and after it."""

    def __init__(self, path, clock, limits=(DAY, MINUTE, SECOND)):
        self.clock = clock
        self.store = MemoryStore(clock=clock.now_ns)
        self.file = WindowFile(path, self.store.windows, clock.now_ns)
        self.file.restore(self.store.open_window, limits)

    def charge(self, rule, amount, subject="key_1", *, settled=True):
        counter = self.store.open(rule, subject)
        mark = counter.take(amount, self.clock.now_ns())
        if settled:
            counter.settle(mark, amount, amount, self.clock.now_ns())

    def used(self, rule, subject="key_1"):
        return self.store.open(rule, subject).state(self.clock.now_ns()).used


@pytest.fixture
def clock():
    return ManualClock(NOW)


async def test_windows_go_on_where_they_were_and_each_charge_leaves_in_its_own_time(tmp_path, clock):
    first = Process(tmp_path / "w", clock)
    first.charge(DAY, 300)
    first.charge(MINUTE, 70)
    first.charge(SECOND, 5)
    first.charge(DAY, 11, "key_2")
    await clock.advance(30)
    first.charge(MINUTE, 7)
    await first.file.write()
    second = Process(tmp_path / "w", clock)
    assert [second.used(rule) for rule in (DAY, MINUTE, SECOND)] == [300, 77, 0]
    assert second.used(DAY, "key_2") == 11
    await clock.advance(32)
    assert (second.used(MINUTE), second.used(DAY)) == (7, 300)
    await clock.advance(86_400 + 900)
    assert second.used(DAY) == 0


async def test_what_was_reserved_stays_charged_and_is_reserved_by_nobody(tmp_path, clock):
    first = Process(tmp_path / "w", clock)
    first.charge(DAY, 300, settled=False)
    await first.file.write()
    state = Process(tmp_path / "w", clock).store.open(DAY, "key_1").state(NOW)
    assert (state.used, state.reserved) == (300, 0)


async def test_a_limit_that_has_gone_or_has_another_window_now_begins_anew(tmp_path, clock):
    first = Process(tmp_path / "w", clock)
    first.charge(DAY, 300)
    await first.file.write()
    assert Process(tmp_path / "w", clock, ()).used(DAY) == 0
    hourly = LimitSpec("day", SCOPE, "tokens", 1000, "hour")
    assert Process(tmp_path / "w", clock, (hourly,)).used(hourly) == 0


@pytest.mark.parametrize("content", [b"", b"\xc1", b"\x92\x09\x90"])
async def test_a_file_that_cannot_be_read_is_no_reason_not_to_start(tmp_path, clock, content):
    (tmp_path / "w").write_bytes(content)
    process = Process(tmp_path / "w", clock)
    assert process.used(DAY) == 0
    process.charge(DAY, 3)
    await process.file.write()
    assert Process(tmp_path / "w", clock).used(DAY) == 3
