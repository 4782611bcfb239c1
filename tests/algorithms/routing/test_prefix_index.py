"""The prefix index says how much of a prompt each replica holds, in bounded memory, whatever comes and goes."""

import random
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from algorithms.routing.prefix_index import PrefixIndex

DEPTHS = st.lists(st.integers(0, 70), min_size=1, max_size=9)
LAYERS = ("stored", "expect", "assume")


def depths_of(index: PrefixIndex, bits: list[int], keys: list[int]) -> list[int]:
    found = dict.fromkeys(bits, 0)
    for held, blocks in index.match(keys):
        for bit in bits:
            if held & bit:
                found[bit] = blocks
    return [found[bit] for bit in bits]


@given(DEPTHS, st.integers(1, 70), st.randoms(use_true_random=False))
def test_every_replica_is_found_as_deep_as_it_holds_the_prompt(depths, length, source):
    index = PrefixIndex()
    keys = [7919 * place for place in range(length)]
    bits = [index.join() for _ in depths]
    for bit, depth in zip(bits, depths, strict=True):
        getattr(index, source.choice(LAYERS))(bit, keys[:depth])
    assert depths_of(index, bits, keys) == [min(depth, length) for depth in depths]


@given(st.lists(st.tuples(st.sampled_from(("stored", "removed", "leave")), st.integers(0, 3), st.integers(0, 12))))
def test_it_mirrors_caches_through_any_history(history):
    index, blocks = PrefixIndex(), list(range(100, 112))
    bits = [index.join() for _ in range(4)]
    held: list[set[int]] = [set() for _ in bits]
    for verb, place, count in history:
        if verb == "leave":
            index.leave(bits[place])
            bits[place] = index.join()
            held[place].clear()
        elif verb == "stored":
            index.stored(bits[place], blocks[:count])
            held[place].update(blocks[:count])
        else:
            index.removed(bits[place], blocks[count:])
            held[place].difference_update(blocks[count:])
        index.sweep()
    for place, bit in enumerate(bits):
        assert {block for block in blocks if index.match([block]) and depths_of(index, [bit], [block]) == [1]} == held[
            place
        ]


def test_a_replica_that_left_is_forgotten_at_once_and_its_blocks_are_swept():
    index = PrefixIndex()
    one, other = index.join(), index.join()
    index.stored(one, range(10_000))
    index.stored(other, range(5_000))
    index.leave(one)
    assert depths_of(index, [one, other], list(range(10_000))) == [0, 5_000]
    assert index.join() not in (one, other)  # until its bit is swept from the map
    while index.sweep():
        pass
    assert index.blocks == 5_000
    assert index.join() == one


def test_beyond_its_bound_it_takes_nothing_in_until_some_go():
    index = PrefixIndex(max_blocks=100)
    bit = index.join()
    index.stored(bit, range(100))
    index.stored(bit, range(100, 110))
    assert (index.blocks, index.refused_blocks) == (100, 10)
    index.removed(bit, range(10))
    index.stored(bit, range(100, 110))
    assert (index.blocks, index.refused_blocks) == (100, 10)


def test_assumed_blocks_are_bounded_and_those_in_use_stay():
    index = PrefixIndex(assumed_blocks=1_000)
    bit = index.join()
    for start in range(1_000, 11_000, 100):
        index.assume(bit, range(50))  # what every request has in common
        index.assume(bit, range(start, start + 100))
    assert index.blocks <= 1_100
    assert index.match(list(range(50))) == [(bit, 50)]
    assert index.match([1_000]) == []
    assert index.match([10_999]) == [(bit, 1)]


def test_expected_blocks_are_taken_back_and_exact_ones_stay():
    index = PrefixIndex()
    bit = index.join()
    index.expect(bit, [1, 2, 3])
    index.stored(bit, [1, 2])
    index.unexpect(bit, [1, 2, 3])
    assert index.match([1, 2, 3]) == [(bit, 2)]


def test_a_block_takes_at_most_100_bytes():
    source = random.Random(7)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        index = PrefixIndex()
        bits = [index.join() for _ in range(8)]
        for place in range(450):
            hashes = [source.getrandbits(64) for _ in range(100)]
            for bit in bits[: 1 + place % 8]:
                index.stored(bit, hashes)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken / index.blocks <= 100
