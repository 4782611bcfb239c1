"""The whole way from vLLM's batches to records, with losses and unreadable ones among them."""

import msgspec
import pytest

from backends.engine.torch_engine.kv_events import KvEventLog
from backends.engine.vllm_engine.kv_events.source import KvPlace, NoKvEvents
from contracts.engine.block_keys import block_hashes
from contracts.errors import Unavailable
from tests.backends.engine.vllm_engine.kv_events.test_feed import Wire

SIZE = 4


def batch(ids: list[int], first_hash: int) -> bytes:
    count = len(ids) // SIZE
    event = {
        "type": "BlockStored",
        "block_hashes": list(range(first_hash, first_hash + count)),
        "parent_block_hash": None,
        "token_ids": ids,
        "block_size": SIZE,
        "medium": "GPU",
        "extra_keys": None,
        "group_idx": 0,
    }
    return msgspec.msgpack.encode([0.0, [event], 0])


@pytest.fixture
def followed():
    wire = Wire()
    place = KvPlace(lambda events, again: wire)
    return wire, place, place.follow(KvEventLog("e/1", "m", "r", SIZE, "gpu", lambda: 7))


def test_records_have_no_holes_and_the_cache_is_told_as_of_the_next_one(followed):
    wire, _, source = followed
    wire.coming += [(0, batch(list(range(8)), 1)), (1, batch(list(range(50, 54)), 5))]
    cached = source.cached_blocks()
    assert cached.hashes == block_hashes(list(range(8)), SIZE) + block_hashes(list(range(50, 54)), SIZE)
    assert (cached.engine, cached.sequence, cached.block_size) == ("e/1", 2, SIZE)
    assert [record.sequence for record in source.take()] == [0, 1]


def test_after_a_loss_nothing_is_said_to_be_held_that_may_be_gone(followed):
    wire, _, source = followed
    wire.coming += [(0, batch(list(range(8)), 1)), (2, batch(list(range(4)), 1))]
    assert [record.event for record in source.take()] == ["stored"]
    wire.again += [(2, batch(list(range(4)), 1)), (-1, b"")]
    assert [record.event for record in source.take()] == ["cleared", "stored"]
    assert source.cached_blocks().hashes == block_hashes(list(range(4)), SIZE)
    assert source.facts() == {
        "kv_events_gaps": 1, "kv_events_lost": 1, "kv_events_unreadable": 0, "kv_blocks_unnamed": 0,
    }  # fmt: skip


def test_a_batch_that_cannot_be_read_is_a_loss(followed):
    wire, _, source = followed
    wire.coming += [(0, batch(list(range(8)), 1)), (1, b"\xc1")]
    assert [record.event for record in source.take()] == ["stored", "cleared"]
    assert source.facts()["kv_events_unreadable"] == 1 and source.cached_blocks().hashes == []


def test_a_cache_that_was_emptied_is_empty_at_once_and_vllms_own_word_changes_nothing(followed):
    wire, _, source = followed
    wire.coming += [(0, batch(list(range(8)), 1))]
    source.forget()
    assert [record.event for record in source.take()] == ["stored", "cleared"]
    wire.coming += [(1, msgspec.msgpack.encode([0.0, [{"type": "AllBlocksCleared"}], 0])), (2, batch([9] * 4, 9))]
    assert [record.event for record in source.take()] == ["stored"]


def test_vllm_publishes_on_this_machine_to_its_owner_alone_and_leaves_nothing(followed):
    wire, place, source = followed
    fields = place.config_fields()
    assert fields["endpoint"].startswith("ipc:///") and fields["replay_endpoint"].startswith("ipc:///")
    folder = place._folder
    assert folder.stat().st_mode & 0o777 == 0o700
    source.close()
    assert wire.is_closed and not folder.exists()


def test_a_cache_that_is_not_followed_says_why():
    source = NoKvEvents("its prefix cache is off")
    assert source.take() == [] and source.facts() == {}
    with pytest.raises(Unavailable, match="its prefix cache is off"):
        source.cached_blocks()
