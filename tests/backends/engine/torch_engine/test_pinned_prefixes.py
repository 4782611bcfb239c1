"""Prefixes that are kept: pinned until their time is over, within bounds, and never in the way of what runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.engine.torch_engine.block_hash import BlockKeys, root_key
from backends.engine.torch_engine.block_manager import BLOCK_SIZE, BlockManager
from backends.engine.torch_engine.pinned_prefixes import PinnedPrefixes
from backends.engine.torch_engine.scheduler import Scheduler
from backends.engine.torch_engine.sequence import State
from contracts.engine.kept_prefix import KeptPrefix
from contracts.engine.wire import Sampling, Submit
from tests.backends.engine.torch_engine.test_scheduler import compute, sequence

SECOND = 1_000_000_000


def cached(blocks: BlockManager, owner: int, count: int, first: int = 0) -> list[bytes]:
    """Compute and cache a prefix of the given number of blocks, and return its keys."""
    keys = BlockKeys(root_key(), BLOCK_SIZE)
    keys.extend([first] * BLOCK_SIZE * count)
    assert blocks.open(owner, keys.keys, count * BLOCK_SIZE) is not None
    blocks.publish(owner, keys.keys, count * BLOCK_SIZE)
    blocks.free(owner)
    return keys.keys


def test_what_is_kept_survives_a_flood_until_its_time_is_over() -> None:
    blocks = BlockManager(20)
    pins = PinnedPrefixes(blocks)
    kept = cached(blocks, 1, 4)
    assert pins.keep(kept, "a", 100) and blocks.available == 16
    for flood in range(2, 6):
        cached(blocks, flood, 16, first=flood)
    assert set(kept) <= blocks.cached_keys()
    pins.expire(99)
    assert len(pins) == 4
    pins.expire(100)
    assert len(pins) == 0 and blocks.available == 20
    blocks.check_integrity()
    cached(blocks, 9, 18, first=9)
    assert kept[0] in blocks.cached_keys() and kept[-1] not in blocks.cached_keys()  # the end of a prefix goes first


def test_use_renews_what_is_kept_and_never_shortens_it() -> None:
    blocks = BlockManager(40)
    pins = PinnedPrefixes(blocks)
    kept = cached(blocks, 1, 6)
    pins.keep(kept, "a", 100)
    pins.keep(kept[:3], "a", 200)
    pins.keep(kept, "a", 150)
    pins.expire(150)
    assert len(pins) == 3 and blocks.available == 37
    pins.expire(200)
    assert len(pins) == 0
    blocks.check_integrity()


def test_a_tenant_keeps_a_quarter_and_all_together_a_half() -> None:
    blocks = BlockManager(40)
    pins = PinnedPrefixes(blocks)
    assert pins.keep(cached(blocks, 1, 10, 1), "a", 100)
    assert not pins.keep(cached(blocks, 2, 1, 2), "a", 100)
    assert pins.keep(cached(blocks, 3, 10, 3), "b", 100)
    assert not pins.keep(cached(blocks, 4, 1, 4), "c", 100) and len(pins) == 20
    pins.expire(100)
    assert pins.keep(cached(blocks, 5, 10, 5), "a", 200)


def test_what_is_not_cached_is_not_kept_in_part() -> None:
    blocks = BlockManager(40)
    pins = PinnedPrefixes(blocks)
    kept = cached(blocks, 1, 3)
    assert not pins.keep([*kept, b"unknown"], "a", 100) and len(pins) == 0 and blocks.available == 40
    blocks.check_integrity()


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.integers(1, 4), st.integers(1, 90), st.booleans()),
        max_size=40,
    )
)
def test_whatever_is_kept_blocks_stay_whole_and_all_come_back(
    steps: list[tuple[str, int, int, int, bool]],
) -> None:
    blocks = BlockManager(24)
    pins = PinnedPrefixes(blocks)
    now = 0
    for owner, (tenant, first, count, life, gives_up) in enumerate(steps):
        now += 10
        pins.expire(now)
        pins.keep(cached(blocks, owner, count, ord(tenant) * 10 + first), tenant, now + life)
        if gives_up:
            pins.give_up()
        assert len(pins) <= 12
        blocks.check_integrity()
    pins.expire(now + 100)
    assert len(pins) == 0 and blocks.available == 24


def test_kept_blocks_that_something_runs_on_are_not_let_go_of() -> None:
    blocks = BlockManager(20)
    pins = PinnedPrefixes(blocks)
    used, unused = cached(blocks, 1, 3, 1), cached(blocks, 2, 2, 2)
    assert pins.keep(used, "a", 100) and pins.keep(unused, "b", 200)
    assert blocks.open(3, used, 3 * BLOCK_SIZE + 1) == 3 * BLOCK_SIZE
    assert pins.give_up(9) == 2 and len(pins) == 3 and pins.given_up == 2
    assert blocks.available == 16 and not pins.give_up()
    blocks.free(3)
    assert pins.give_up() and blocks.available == 18
    assert blocks.keys_of_adapter("") and used[0] in blocks.cached_keys()
    blocks.check_integrity()
    pins.expire(100)
    assert len(pins) == 0 and blocks.available == 20


def test_kept_blocks_that_are_wanted_themselves_are_spared() -> None:
    blocks = BlockManager(20)
    pins = PinnedPrefixes(blocks)
    wanted, others = cached(blocks, 1, 3, 1), cached(blocks, 2, 2, 2)
    assert pins.keep(wanted, "a", 100) and pins.keep(others, "b", 200)
    assert pins.give_up(9, wanted) == 2 and len(pins) == 3
    blocks.check_integrity()


def beside_kept(priority: int = 0) -> tuple[PinnedPrefixes, Scheduler]:
    """A scheduler of 20 blocks: 10 are only kept, and one of this priority runs on 8."""
    blocks = BlockManager(20)
    pins = PinnedPrefixes(blocks)
    assert pins.keep(cached(blocks, 100, 5, 3), "a", SECOND) and pins.keep(cached(blocks, 101, 5, 4), "b", SECOND)
    scheduler = Scheduler(blocks, 1024, 8, give_up=pins.give_up)
    scheduler.add(sequence(1, 16 * 8, priority))
    compute(scheduler.plan())
    return pins, scheduler


@pytest.mark.parametrize("priority", [0, 5])
def test_a_newcomer_gets_kept_blocks_before_it_waits_or_drives_out_another(priority: int) -> None:
    pins, scheduler = beside_kept(priority)
    newcomer = sequence(2, 16 * 6)
    scheduler.add(newcomer)
    plan = scheduler.plan()
    # There is one block beside the 10: what runs is at its 9th. It needs 6, and one stays free.
    assert newcomer.state is State.RUNNING and not plan.preempted and len(pins) == 4
    scheduler.blocks.check_integrity()


def test_nothing_kept_goes_for_a_newcomer_that_has_to_wait_all_the_same() -> None:
    pins, scheduler = beside_kept()
    scheduler.add(sequence(2, 16 * 12))
    scheduler.plan()
    assert scheduler.waiting == 1 and len(pins) == 10
    scheduler.max_sequences = 1
    scheduler.add(sequence(3, 16, -1))  # it lacks a seat, not blocks
    assert scheduler.waiting == 2 and len(pins) == 10


def ask(engine, number, tokens, kept=(), tenant="a", most=1):
    """Run one request to its end and give its account."""
    engine.submit(
        Submit(
            request_id=bytes([number]), model="tiny", token_ids=tokens, tenant=tenant, cache_salt=tenant,
            sampling=Sampling(max_tokens=most, temperature=0.0, ignore_eos=True),
            kept_prefixes=[KeptPrefix(tokens=count, ttl_seconds=ttl) for count, ttl in kept],
        )
    )  # fmt: skip
    events = []
    while engine.has_work:
        events += engine.step()
    return events[-1].usage


@pytest.fixture
def make_keeping(make_engine):
    """Build engines that let go of all at the end of the test, when they are checked for leaks."""
    made = []

    def make(*args, **settings):
        made.append(make_engine(*args, **settings))
        return made[-1]

    yield make
    for engine in made:
        engine._pins.expire(engine._now_ns() + 7200 * SECOND)
        assert engine.stats()["kv_blocks_kept"] == 0


def test_an_engine_keeps_reads_and_accounts_for_marked_prefixes(make_keeping, llama):
    engine = make_keeping(llama.path)
    prompt = [7] * 50
    written = ask(engine, 1, prompt, [(40, 300)])
    assert (written.input_text, written.cache_read_text, written.cache_write_5m) == (50 - 32, 0, 32)
    for number in range(2, 12):  # four times the blocks there are
        ask(engine, number, [number + 20] * 500, tenant="b", most=8)
    assert engine.stats()["kv_blocks_kept"] == 2
    again = ask(engine, 20, prompt, [(40, 300)])
    assert (again.input_text, again.cache_read_text, again.cache_write_5m) == (50 - 32, 32, 0)
    other = ask(engine, 21, prompt, [(40, 300)], tenant="b")
    assert (other.cache_read_text, other.cache_write_5m) == (0, 32)
    plain = ask(engine, 22, prompt)
    assert plain.cache_write_5m is None and plain.cache_write_1h is None and plain.cache_read_text == 48


def test_two_lifetimes_are_written_each_for_its_part(make_keeping, llama):
    engine = make_keeping(llama.path)
    usage = ask(engine, 1, [9] * 100, [(40, 3600), (90, 300)])
    assert (usage.cache_write_1h, usage.cache_write_5m, usage.input_text) == (32, 48, 20)
    later = engine._now_ns() + 301 * SECOND
    engine._now_ns = lambda: later
    assert ask(engine, 2, [8] * 20).input_text == 20 and engine.stats()["kv_blocks_kept"] == 2


def test_a_hit_of_all_but_the_last_token_renews_the_hold(make_keeping, llama):
    engine = make_keeping(llama.path)
    prompt = [7] * 40
    ask(engine, 1, prompt, [(32, 300)])
    began = engine._now_ns()
    engine._now_ns = lambda: began + 200 * SECOND
    assert ask(engine, 2, prompt, [(32, 300)]).cache_read_text == 32
    engine._now_ns = lambda: began + 450 * SECOND
    ask(engine, 3, [3] * 20)
    assert engine.stats()["kv_blocks_kept"] == 2


def test_what_runs_goes_before_what_is_kept(make_keeping, llama):
    engine = make_keeping(llama.path, kv_blocks=32)
    for number, tenant in enumerate("ab"):
        ask(engine, number, [number] * 128, [(128, 3600)], tenant=tenant)
    assert engine.stats()["kv_blocks_kept"] == 16
    usage = ask(engine, 5, [5] * 480, most=8)  # all but one of the blocks there are
    assert usage.output_text == 8 and engine.stats()["kv_blocks_given_up"] >= 15
    engine.blocks.check_integrity()


def test_without_a_prefix_cache_nothing_is_kept(make_keeping, llama):
    engine = make_keeping(llama.path, prefix_cache=False)
    assert ask(engine, 1, [7] * 50, [(40, 300)]).cache_write_5m is None
