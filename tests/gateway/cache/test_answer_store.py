"""The bounds of kept answers: their time, their bytes, and what one tenant may take from another."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.cache.answer_store import ENTRY_BYTES, AnswerStore

TTL = 100


def key(number: int) -> bytes:
    return b"%024d" % number


def test_an_answer_is_there_until_its_time_is_over() -> None:
    gone: list[tuple[str, bytes]] = []
    store = AnswerStore(1 << 20, lambda tenant, name: gone.append((tenant, name)))
    assert store.put("a", key(1), b"x", 0, TTL)
    assert store.get("a", key(1), TTL - 1) is not None and store.get("b", key(1), 0) is None
    assert store.get("a", key(1), TTL) is None and gone == [("a", key(1))] and store.size_bytes == 0


def test_what_has_had_its_time_is_swept_without_being_asked_for() -> None:
    store = AnswerStore(1 << 20)
    for number in range(5):
        store.put("a", key(number), b"x", number, TTL)
    store.sweep(TTL + 2)
    assert store.entries == 2
    store.put("a", key(9), b"x", TTL + 4, TTL)
    assert store.entries == 1


def test_a_look_forgets_what_has_had_its_time_and_no_more_at_once_than_some() -> None:
    store = AnswerStore(1 << 20)
    for number in range(40):
        store.put("a", key(number), b"x", 0, TTL)
    assert store.get("b", key(1), TTL - 1) is None and store.entries == 40
    left = []
    for _ in range(4):
        assert store.get("b", key(1), TTL) is None
        left.append(store.entries)
    assert left == [24, 8, 0, 0] and store.size_bytes == 0


def test_what_is_kept_beside_an_answer_counts() -> None:
    store = AnswerStore(3 * ENTRY_BYTES)
    assert store.put("a", key(1), b"", 0, TTL, beside_bytes=ENTRY_BYTES) and store.size_bytes == 2 * ENTRY_BYTES
    assert store.put("a", key(2), b"", 0, TTL) and store.size_bytes == 3 * ENTRY_BYTES
    assert store.put("a", key(3), b"", 0, TTL) and store.get("a", key(1), 0) is None
    assert store.size_bytes == 2 * ENTRY_BYTES
    assert not store.put("a", key(4), b"", 0, TTL, beside_bytes=2 * ENTRY_BYTES + 1)


def test_an_answer_that_is_kept_anew_lives_anew() -> None:
    store = AnswerStore(1 << 20)
    store.put("a", key(1), b"old", 0, TTL)
    store.put("a", key(1), b"new", 50, TTL)
    store.sweep(TTL)
    entry = store.get("a", key(1), TTL)
    assert entry is not None and entry.packed == b"new" and store.entries == 1


def test_a_caller_may_want_a_younger_one() -> None:
    store = AnswerStore(1 << 20)
    store.put("a", key(1), b"x", 0, TTL)
    assert [store.get("a", key(1), 10, age) is not None for age in (9, 10, 11)] == [False, True, True]


def test_the_least_used_of_the_tenant_that_has_most_goes_first() -> None:
    size = ENTRY_BYTES + 100
    store = AnswerStore(10 * size)
    store.put("small", key(0), bytes(100), 0, TTL)
    for number in range(9):
        store.put("large", key(number), bytes(100), 1, TTL)
    store.get("large", key(0), 2)
    store.put("large", key(9), bytes(100), 2, TTL)
    assert store.get("small", key(0), 3) is not None
    assert store.get("large", key(0), 3) is not None and store.get("large", key(1), 3) is None
    assert store.evicted == 1 and store.entries == 10


def test_what_is_larger_than_the_whole_is_not_kept_and_drives_nothing_out() -> None:
    store = AnswerStore(2 * ENTRY_BYTES)
    store.put("a", key(1), b"x", 0, TTL)
    assert not store.put("a", key(2), bytes(2 * ENTRY_BYTES), 0, TTL)
    assert store.get("a", key(1), 0) is not None


moves = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 6), st.integers(0, 900), st.integers(0, 40)), max_size=60
)


@given(moves)
def test_whatever_is_kept_the_books_agree_and_no_tenant_sees_anothers(made: list[tuple[str, int, int, int]]) -> None:
    known: set[tuple[str, bytes]] = set()
    store = AnswerStore(8 * ENTRY_BYTES, lambda tenant, name: known.discard((tenant, name)))
    now = 0
    for tenant, number, size, passed in made:
        now += passed
        packed = tenant.encode() * size
        if store.put(tenant, key(number), packed, now, TTL):
            known.add((tenant, key(number)))
        assert store.size_bytes <= 8 * ENTRY_BYTES and store.entries == len(known)
        found = store.get(tenant, key(number), now)
        assert found is None or set(found.packed) <= set(tenant.encode())
    held = [entry for shelf in store._partitions.values() for entry in shelf.entries.values()]
    assert store.size_bytes == sum(entry.size_bytes for entry in held) and len(held) == store.entries
    store.sweep(now + TTL)
    assert (store.entries, store.size_bytes, known) == (0, 0, set())
