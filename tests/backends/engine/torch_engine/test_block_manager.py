"""Blocks are neither lost nor given twice, whatever the order of events; the cache tells of everything it does."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.engine.torch_engine.block_hash import BlockKeys, public_hash, root_key
from backends.engine.torch_engine.block_manager import BlockManager, KvChange

SIZE = 4


def keys_of(tokens: list[int], salt: str = "") -> list[bytes]:
    keys = BlockKeys(root_key(salt), SIZE)
    keys.extend(tokens)
    return keys.keys


class Mirror:
    """Follows a cache by its events alone."""

    def __init__(self) -> None:
        self.keys: set[bytes] = set()

    def note(self, change: KvChange) -> None:
        if change.event == "cleared":
            self.keys.clear()
        elif change.event == "stored":
            assert not self.keys & set(change.keys)
            self.keys |= set(change.keys)
        else:
            assert set(change.keys) <= self.keys
            self.keys -= set(change.keys)


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["open", "append", "fork", "free", "pin", "unpin", "clear"]), st.integers(0, 2**16)),
    max_size=120,
)


@settings(max_examples=150, deadline=None)
@given(blocks=st.integers(1, 24), actions=ACTIONS)
def test_no_schedule_of_actions_loses_or_doubles_a_block(blocks, actions):
    mirror = Mirror()
    manager = BlockManager(blocks, SIZE, on_change=mirror.note)
    texts: dict[int, list[int]] = {}
    pinned: list[bytes] = []
    for owner, (action, number) in enumerate(actions):
        chosen = sorted(texts)[number % len(texts)] if texts else None
        if action == "open":
            tokens = [token % 3 for token in random.Random(number % 50).choices(range(9), k=1 + number % 30)]
            if manager.open(owner, keys_of(tokens), len(tokens)) is not None:
                texts[owner] = tokens
                manager.publish(owner, keys_of(tokens), len(tokens))
        elif action == "append" and chosen is not None:
            grown = texts[chosen] + [number % 3]
            if manager.grow(chosen, len(grown)):
                texts[chosen] = grown
                manager.publish(chosen, keys_of(grown), len(grown))
        elif action == "fork" and chosen is not None:
            pairs = manager.fork(chosen, owner, len(texts[chosen]))
            if pairs is not None:
                texts[owner] = list(texts[chosen])
                assert bool(pairs) == bool(len(texts[chosen]) % SIZE)
        elif action == "free" and chosen is not None:
            manager.free(chosen)
            del texts[chosen]
        elif action == "pin" and manager.cached_keys():
            key = sorted(manager.cached_keys())[number % len(manager.cached_keys())]
            assert manager.pin(key)
            pinned.append(key)
        elif action == "unpin" and pinned:
            manager.unpin(pinned.pop(number % len(pinned)))
        elif action == "clear":
            manager.clear()
            pinned.clear()
        manager.check_integrity()
        assert mirror.keys == manager.cached_keys()
    for owner in texts:
        manager.free(owner)
    for key in pinned:
        manager.unpin(key)
    manager.check_integrity()
    assert manager.counts().held == 0
    assert manager.available == blocks


def test_two_tables_that_write_never_share_the_block_they_write():
    manager = BlockManager(8, SIZE)
    manager.open(1, [], 6)
    pairs = manager.fork(1, 2, 6)
    assert manager.table(1)[0] == manager.table(2)[0]
    assert pairs == [(manager.table(1)[1], manager.table(2)[1])]
    assert manager.table(1)[1] != manager.table(2)[1]


@pytest.mark.parametrize(("tokens", "hit"), [(3, 0), (4, 0), (5, 4), (8, 4), (9, 8)])
def test_a_hit_leaves_at_least_the_last_token_to_compute(tokens, hit):
    manager = BlockManager(8, SIZE)
    text = list(range(9))
    manager.open(1, [], 9)
    manager.publish(1, keys_of(text), 9)
    manager.free(1)
    assert manager.open(2, keys_of(text[:tokens]), tokens) == hit


def test_the_least_recently_used_block_goes_first_and_the_end_of_a_prefix_before_its_beginning():
    manager = BlockManager(4, SIZE)
    old, new = [0] * 8, [1] * 8
    for owner, text in ((1, old), (2, new)):
        manager.open(owner, keys_of(text), 8)
        manager.publish(owner, keys_of(text), 8)
        manager.free(owner)
    manager.open(3, [], 4)
    assert manager.cached_keys() == {keys_of(old)[0], *keys_of(new)}
    manager.open(4, [], 4)
    assert manager.cached_keys() == set(keys_of(new))


def test_a_pinned_block_outlives_pressure():
    manager = BlockManager(2, SIZE)
    key = keys_of([1] * 4)[0]
    manager.open(1, [], 4)
    manager.publish(1, [key], 4)
    manager.free(1)
    assert manager.pin(key)
    assert manager.open(2, [], 8) is None
    assert manager.open(2, [], 4) == 0
    assert key in manager.cached_keys()


def test_a_failed_allocation_changes_nothing():
    manager = BlockManager(3, SIZE)
    manager.open(1, [], 8)
    before = manager.counts()
    assert manager.open(2, [], 8) is None
    assert not manager.grow(1, 17)
    assert manager.counts() == before
    assert manager.grow(1, 12)
    assert manager.fork(1, 2, 11) is None
    manager.check_integrity()


def test_a_broken_book_is_noticed():
    manager = BlockManager(3, SIZE)
    manager.open(1, [], 8)
    manager._references[manager.table(1)[0]] += 1
    with pytest.raises(ValueError, match="2 references and 1 holders"):
        manager.check_integrity()


@given(tokens=st.lists(st.integers(0, 2**32 - 1), max_size=40), cut=st.integers(0, 40))
def test_keys_do_not_depend_on_how_the_tokens_came(tokens, cut):
    keys = BlockKeys(root_key("salt"), SIZE)
    keys.extend(tokens[:cut])
    keys.extend(tokens)
    assert keys.keys == keys_of(tokens, "salt")


def test_keys_differ_by_salt_adapter_image_and_anything_before():
    text = [1, 2, 3, 4, 5, 6, 7, 8]
    roots = [root_key(), root_key("a"), root_key("", "a"), root_key("", "", [b"a"]), root_key("b")]
    firsts = []
    for root in roots:
        keys = BlockKeys(root, SIZE)
        keys.extend(text)
        firsts.append(keys.keys[0])
    assert len(set(firsts)) == len(roots)
    assert keys_of(text)[1] != keys_of([9, *text[1:]])[1]
    assert 0 <= public_hash(firsts[0]) < 2**64
