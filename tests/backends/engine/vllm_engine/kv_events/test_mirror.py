"""vLLM's events in our names of blocks: equal to what a router computes of the prompt itself."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.engine.torch_engine.kv_events import KvEventLog
from backends.engine.vllm_engine.kv_events.messages import AllBlocksCleared, BlockRemoved, BlockStored, decode_events
from backends.engine.vllm_engine.kv_events.mirror import KvMirror
from contracts.engine.block_keys import block_hashes
from contracts.errors import InvalidRecord

SIZE = 4


def mirror() -> KvMirror:
    return KvMirror(KvEventLog("e/1", "m", "r", SIZE, "gpu", lambda: 7))


def stored(
    ids: Sequence[int], hashes: Sequence[int], parent: int | None = None, salt: str = "", adapter: str = "", **more: Any
) -> BlockStored:
    """An event of vLLM's shape: the adapter's name in each block's extra keys, the salt in the first block's."""
    extras: list[list[Any] | None] = [[adapter] if adapter else None for _ in hashes]
    if salt and parent is None:
        extras[0] = [*(extras[0] or []), salt]
    fields = {"extra_keys": extras, "lora_name": adapter or None, "medium": "GPU", "group_idx": 0, "block_size": SIZE}
    return BlockStored(block_hashes=list(hashes), parent_block_hash=parent, token_ids=list(ids), **(fields | more))


@pytest.mark.parametrize(("salt", "adapter"), [("", ""), ("s", ""), ("", "a"), ("s", "a"), ("a", "a")])
def test_names_are_those_that_a_router_computes(salt, adapter):
    one = mirror()
    one.note_salt("s", "acme")
    ids = list(range(20))
    one.apply(stored(ids[:8], [11, 12], None, salt, adapter))
    one.apply(stored(ids[8:20], [13, 14, 15], 12, salt, adapter))
    expected = block_hashes(ids, SIZE, salt, adapter)
    assert one.hashes == expected and one.unnamed == 0
    first, second = one.log.take()
    assert first.block_hashes + second.block_hashes == expected and second.parent_hash == expected[1]
    assert (first.tenant, first.adapter, first.medium) == ("acme" if salt == "s" else "", adapter, "gpu")


def test_a_block_stored_twice_is_told_once_and_removed_with_its_last_copy():
    one = mirror()
    one.apply(stored(range(8), [1, 2]))
    one.apply(stored(range(8), [1, 2]))
    one.apply(BlockRemoved([2], "GPU", 0))
    assert len(one.hashes) == 2
    one.apply(BlockRemoved([2], "GPU", 0))
    assert [(record.event, len(record.block_hashes)) for record in one.log.take()] == [("stored", 2), ("removed", 1)]
    assert one.hashes == block_hashes(list(range(4)), SIZE)


def test_of_a_prompt_whose_beginning_is_stored_the_rest_is_told_with_its_parent():
    one = mirror()
    one.apply(stored(range(4), [1]))
    one.apply(stored(range(12), [1, 2, 3]))
    names = block_hashes(list(range(12)), SIZE)
    assert [(record.block_hashes, record.parent_hash) for record in one.log.take()] == [
        (names[:1], None),
        (names[1:], names[0]),
    ]


def test_an_image_makes_names_that_no_prompt_of_words_has():
    one = mirror()
    plain = stored(range(12), [1, 2, 3], salt="s")
    seeing = stored(range(12), [1, 5, 6], salt="s")
    assert seeing.extra_keys is not None
    seeing.extra_keys[1] = [["sha", 2]]
    one.apply(plain)
    one.apply(seeing)
    names = block_hashes(list(range(12)), SIZE, "s")
    assert set(names) < set(one.hashes) and len(set(one.hashes)) == 5


@pytest.mark.parametrize(
    "event",
    [
        stored(range(8), [8, 9], parent=77),  # after a loss
        stored(range(8), [8, 9], block_size=8),
        stored(range(8), [8]),  # a window's blocks are left out: which tokens are whose is not said
    ],
    ids=["unknown parent", "another block size", "fewer blocks than tokens"],
)
def test_what_cannot_be_named_is_counted_and_not_told(event):
    one = mirror()
    one.apply(event)
    assert one.hashes == [] and one.log.take() == [] and one.unnamed == len(event.block_hashes)


def test_other_media_and_other_groups_of_layers_are_left_alone():
    one = mirror()
    one.apply(stored(range(4), [1], group_idx=1, kv_cache_spec_kind="sliding_window"))
    one.apply(stored(range(4), [1], medium="CPU"))
    one.apply(stored(range(4), [1], group_idx=0, kv_cache_spec_kind="full_attention"))
    one.apply(BlockRemoved([1], "CPU", 0))
    one.apply(BlockRemoved([1], "GPU", 1))
    assert len(one.hashes) == 1
    one.apply(BlockRemoved([1, 2], "GPU", 0))
    assert one.hashes == []


def test_an_emptied_cache_is_told_once():
    one = mirror()
    one.apply(AllBlocksCleared())
    one.apply(stored(range(4), [1]))
    one.apply(AllBlocksCleared())
    one.apply(AllBlocksCleared())
    assert [record.event for record in one.log.take()] == ["stored", "cleared"] and one.hashes == []


def test_batches_are_read_as_vllm_writes_them_and_others_are_refused():
    event = {
        "type": "BlockStored",
        "block_hashes": [2**64 - 1, b"h" * 32],
        "parent_block_hash": None,
        "token_ids": [1] * 8,
        "block_size": 4,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        "extra_keys": [["salt"], None],
        "group_idx": 0,
    }
    packed = msgspec.msgpack.encode([1.5, [event, {"type": "AllBlocksCleared"}], 0])
    first, second = decode_events(packed)
    assert isinstance(first, BlockStored) and first.block_hashes == [2**64 - 1, b"h" * 32]
    assert isinstance(second, AllBlocksCleared)
    for wrong in (b"", b"\xc1", msgspec.msgpack.encode([1.5, [{"type": "BlockMelted"}]]), packed[:-1]):
        with pytest.raises(InvalidRecord, match="vLLM's KV events cannot be read"):
            decode_events(wrong)


@given(st.data())
def test_what_is_held_is_what_was_stored_and_not_removed(data):
    """Prompts of few tokens, so that many share beginnings; blocks leave in any order, copies one by one."""
    one = mirror()
    copies: dict[tuple[int, ...], int] = {}
    for _ in range(data.draw(st.integers(1, 12))):
        if copies and data.draw(st.booleans()):
            gone = data.draw(st.sampled_from(sorted(copies)))
            one.apply(BlockRemoved([hash(gone)], "GPU", 0))
            copies[gone] -= 1
            copies = {ids: count for ids, count in copies.items() if count}
        else:
            ids = data.draw(st.lists(st.integers(0, 1), min_size=SIZE, max_size=3 * SIZE))
            prefixes = [tuple(ids[:end]) for end in range(SIZE, len(ids) + 1, SIZE)]
            one.apply(stored(ids[: len(prefixes) * SIZE], list(map(hash, prefixes))))
            for prefix in prefixes:
                copies[prefix] = copies.get(prefix, 0) + 1
    assert sorted(one.hashes) == sorted(block_hashes(ids, SIZE)[-1] for ids in copies)
    known: set[int] = set()
    for record in one.log.take():
        known = known | set(record.block_hashes) if record.event == "stored" else known - set(record.block_hashes)
    assert known == set(one.hashes)
