"""The log of a cache's changes: a mirror that replays it holds what the cache holds, and evictions come together."""

from hypothesis import given
from hypothesis import strategies as st

from backends.engine.torch_engine.block_manager import KvChange
from backends.engine.torch_engine.kv_events import REMOVALS_WAIT_NS, KvEventLog
from contracts.engine.block_keys import public_hash
from contracts.recording.records import KvRecord

LABELS = (("acme", ""), ("beta", ""), ("acme", "adapter"))


def key(number: int) -> bytes:
    return number.to_bytes(8, "big") * 2


class Clock:
    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns


def log(clock: Clock) -> KvEventLog:
    return KvEventLog("e/1", "m", "r", 16, "gpu", clock)


def replay(records: list[KvRecord]) -> set[int]:
    held: set[int] = set()
    for record in records:
        if record.event == "stored":
            held.update(record.block_hashes)
        elif record.event == "removed":
            held.difference_update(record.block_hashes)
        else:
            held.clear()
    return held


changes = st.lists(
    st.one_of(
        st.tuples(st.just("toggle"), st.integers(0, 12)),
        st.tuples(st.just("take"), st.booleans()),
        st.tuples(st.just("wait"), st.sampled_from([1, REMOVALS_WAIT_NS - 1, REMOVALS_WAIT_NS])),
        st.tuples(st.just("clear"), st.none()),
    ),
    max_size=60,
)


@given(changes)
def test_a_replayed_log_holds_what_the_cache_holds_with_numbers_that_have_no_holes(given_changes):
    clock, held, records = Clock(), set(), []
    events = log(clock)
    for what, value in given_changes:
        if what == "toggle" and value in held:
            held.discard(value)
            events.note(KvChange("removed", (key(value),), None, LABELS[value % 3]))
        elif what == "toggle":
            held.add(value)
            events.note(KvChange("stored", (key(value),), None, LABELS[value % 3]))
        elif what == "clear":
            held.clear()
            events.note(KvChange("cleared"))
        elif what == "wait":
            clock.ns += value
        else:
            records += events.take(more_follows=value)
            assert {public_hash(key(one)) for one in held} <= replay(records)  # only removals may be late
    records += events.take()
    assert replay(records) == {public_hash(key(one)) for one in held}
    assert [record.sequence for record in records] == list(range(len(records)))


def test_evictions_of_a_short_time_are_one_record_for_each_tenant_and_adapter():
    clock = Clock()
    events, records = log(clock), []
    for number in range(1000):
        events.note(KvChange("removed", (key(number),), None, LABELS[number % 3]))
        records += events.take(more_follows=True)
        clock.ns += REMOVALS_WAIT_NS // 100
    records += events.take()
    assert sum(len(record.block_hashes) for record in records) == 1000
    assert len(records) == 30


def test_removals_wait_no_longer_than_that_and_not_at_all_if_nothing_follows():
    clock = Clock()
    events = log(clock)
    events.note(KvChange("removed", (key(1),)))
    clock.ns = REMOVALS_WAIT_NS - 1
    assert events.take(more_follows=True) == []
    clock.ns = REMOVALS_WAIT_NS
    assert [record.event for record in events.take(more_follows=True)] == ["removed"]
    events.note(KvChange("removed", (key(2),)))
    assert [record.event for record in events.take()] == ["removed"]
