"""The mirror of a host's cache is right or not there: no gap, strange event or restart leaves it silently wrong."""

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithms.routing.fleet import Fleet
from algorithms.routing.policies.table import policy_named
from algorithms.routing.policy_input import RoutingRequest
from contracts.engine.wire import KvBlocks
from contracts.recording.records import KvRecord, encode_record
from gateway.routing.replicas.cache_mirror import CacheMirror

URL, MODEL = "unix:///h.sock", "m"
OTHER_URL = "unix:///other.sock"


class Scene:
    """A mirror, a pool of two replicas of which the first is mirrored, and a host that can be asked."""

    def __init__(self, *, answers: bool = True) -> None:
        self.mirror = CacheMirror()
        self.fleet = Fleet(policy_named("cost", random.Random(0).random))
        self.fleet.follow([("r0", 1), ("r1", 1)])
        self.asked = 0
        self.answers = answers
        self.blocks: set[int] = set()
        self.sequence = 0
        self.engine = "e/1"
        self.mirror.on_kv_host(URL, self.ask)
        self.mirror.follow(self.fleet, {"r0": (URL, MODEL)})

    def ask(self, model: str) -> None:
        assert model == MODEL
        self.asked += 1
        if self.answers:
            self.answer()

    def answer(self, parts: int = 1) -> None:
        held = sorted(self.blocks)
        size = -(-len(held) // parts) or 1
        for part in range(parts):
            hashes = held[part * size : (part + 1) * size]
            self.mirror.on_kv_blocks(
                URL,
                KvBlocks(
                    model=MODEL,
                    engine=self.engine,
                    sequence=self.sequence,
                    block_size=16,
                    block_hashes=hashes,
                    is_last=part == parts - 1,
                ),
            )

    def record(self, event: str = "stored", hashes: tuple[int, ...] = (), **more) -> bytes:
        """Create the next event of the host, which does it."""
        if event == "stored":
            self.blocks.update(hashes)
        elif event == "removed":
            self.blocks.difference_update(hashes)
        else:
            self.blocks.clear()
        fields = {"engine": self.engine, "sequence": self.sequence, "at_ns": 0, "event": event, "block_size": 16}
        self.sequence += 1
        return encode_record(KvRecord(**{**fields, "block_hashes": list(hashes), "model": MODEL, **more}))

    def tell(self, *packed: bytes) -> None:
        self.mirror.on_kv_events(URL, packed)

    @property
    def state(self) -> Any:
        return self.mirror.status()[f"{URL} {MODEL}"]

    def knows(self, key: int) -> bool:
        return self.fleet.view(RoutingRequest(32, [key], 16), 1).cached(0) > 0


def test_what_a_cache_holds_is_asked_for_and_followed():
    scene = Scene(answers=False)
    assert (scene.asked, scene.state["state"]) == (1, "asked")
    scene.blocks, scene.sequence = {1, 2, 3}, 7
    scene.answer(parts=3)
    assert scene.state["state"] == "exact" and scene.fleet.replicas[0].is_exact
    scene.tell(scene.record("stored", (4,)), scene.record("removed", (1,)))
    assert [scene.knows(key) for key in (1, 2, 3, 4)] == [False, True, True, True]
    assert not scene.fleet.replicas[1].is_exact


def test_what_happens_while_it_is_told_is_not_lost():
    scene = Scene(answers=False)
    scene.tell(scene.record("stored", (1, 2)), scene.record("removed", (1,)), scene.record("stored", (3,)))
    scene.blocks, scene.sequence = {2}, 2  # what is told is as of the first two
    scene.answer()
    assert [scene.knows(key) for key in (1, 2, 3)] == [False, True, True]
    assert (scene.state["state"], scene.state["gaps"], scene.asked) == ("exact", 0, 1)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("gap", "2 events are missing before 3"),
        ("block_size", "blocks of 32 tokens, the cache has blocks of 16"),
        ("unknown", "cannot be read"),
        ("restart", "engine restarted"),
        ("again", "restarted at 0"),
    ],
)
def test_events_that_do_not_fit_leave_load_only_routing_and_the_cache_is_asked_again(fault, said):
    scene = Scene()
    scene.tell(scene.record("stored", (1, 2)))
    assert scene.knows(1)
    scene.answers = False
    faults = {
        "gap": lambda: (scene.record(), scene.record(), scene.record("stored", (3,)))[-1],
        "block_size": lambda: scene.record("stored", (3,), block_size=32),
        "unknown": lambda: msgspec.msgpack.encode(["kv.1", "e", 1, 0, "moved"]),
        "restart": lambda: scene.record("stored", (3,), engine="e/2"),
        "again": lambda: scene.record("stored", (3,), sequence=0),
    }
    scene.tell(faults[fault]())
    assert not scene.knows(1) and not scene.knows(3)
    assert said in scene.state["why"]
    assert (scene.asked, scene.fleet.replicas[0].is_exact) == (2, False)
    scene.answer()
    assert scene.knows(1) and scene.state == {"state": "exact", "events": scene.state["events"], "gaps": fault == "gap"}


def test_a_host_whose_events_never_fit_is_asked_no_more_until_it_says_hello():
    scene = Scene()
    for _ in range(10):
        scene.tell(scene.record("stored", (1,), block_size=32))
    assert scene.asked <= 4
    assert scene.state["state"] == "load_only" and "blocks of 32" in scene.state["why"]
    scene.mirror.on_kv_host(URL, scene.ask)
    assert scene.state["state"] == "exact"


def test_a_host_that_goes_is_forgotten_and_comes_back_empty():
    scene = Scene()
    scene.tell(scene.record("stored", (1,)))
    scene.mirror.on_kv_lost(URL)
    assert not scene.knows(1) and scene.state["state"] == "unknown"
    scene.blocks, scene.sequence, scene.engine = set(), 0, "e/2"
    scene.mirror.on_kv_host(URL, scene.ask)
    scene.tell(scene.record("stored", (5,)))
    assert scene.knows(5) and not scene.knows(1)


def test_cleared_forgets_all():
    scene = Scene()
    scene.tell(scene.record("stored", (1, 2)), scene.record("cleared"), scene.record("stored", (3,)))
    assert [scene.knows(key) for key in (1, 2, 3)] == [False, False, True]
    assert scene.state["state"] == "exact"


def test_a_pool_that_is_gone_is_told_of_nothing():
    scene = Scene()
    scene.mirror.drop(scene.fleet)
    scene.tell(scene.record("stored", (1,)))
    assert not scene.knows(1) and scene.mirror.status() == {}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("stored", "removed", "cleared")), st.sets(st.integers(1, 8), max_size=4), st.booleans()
        ),
        max_size=25,
    )
)
def test_whatever_gets_lost_the_mirror_ends_as_the_cache_is(history):
    scene = Scene()
    for event, hashes, is_lost in history:
        packed = scene.record(event, tuple(hashes))
        if not is_lost:
            scene.tell(packed)
    scene.tell(scene.record("stored", (9,)))  # shows the last gap
    assert scene.state["state"] in ("exact", "load_only")
    if scene.state["state"] == "exact":
        assert {key for key in range(1, 10) if scene.knows(key)} == scene.blocks
    else:
        assert not any(scene.knows(key) for key in range(1, 10))


def part_of(scene: Scene, hashes: list[int], *, is_last: bool) -> None:
    blocks = KvBlocks(MODEL, scene.engine, scene.sequence, 16, hashes, is_last)
    scene.mirror.on_kv_blocks(URL, blocks)


def follow_also(scene: Scene) -> Fleet:
    other = Fleet(policy_named("cost", random.Random(0).random))
    other.follow([("x", 1)])
    scene.mirror.follow(other, {"x": (URL, MODEL)})
    return other


def test_of_two_asks_the_answer_to_the_last_is_the_cache_and_no_part_of_the_first():
    scene = Scene(answers=False)
    part_of(scene, [1, 2], is_last=False)
    other = follow_also(scene)
    part_of(scene, [3], is_last=True)
    assert (scene.asked, scene.state["state"], scene.fleet.index.blocks) == (2, "asked", 0)
    part_of(scene, [1, 2], is_last=False)
    part_of(scene, [3], is_last=True)
    assert scene.state["state"] == "exact"
    assert scene.fleet.index.blocks == other.index.blocks == 3


@pytest.mark.parametrize("again", ["left", "hello"])
def test_the_rest_of_an_answer_that_was_asked_for_before_is_no_cache(again):
    scene = Scene(answers=False)
    part_of(scene, [1, 2], is_last=False)
    if again == "left":  # nobody followed for a moment
        scene.mirror.drop(scene.fleet)
        scene.mirror.follow(scene.fleet, {"r0": (URL, MODEL)})
    else:
        scene.mirror.on_kv_host(URL, scene.ask)
    part_of(scene, [3], is_last=True)
    assert (scene.state["state"], scene.fleet.index.blocks) == ("asked", 0)
    scene.blocks = {1, 2, 3}
    scene.answer(parts=2)
    assert (scene.state["state"], scene.fleet.index.blocks) == ("exact", 3)


def test_an_ask_that_was_refused_is_not_waited_for_after_the_next_hello():
    scene = Scene(answers=False)  # as while the model is loaded
    scene.mirror.on_kv_host(URL, scene.ask)
    scene.blocks = {1}
    scene.answer()
    assert scene.asked == 2 and scene.knows(1)


def test_an_ask_that_was_refused_is_named_until_the_cache_is_known():
    scene = Scene(answers=False)
    scene.mirror.on_kv_refused(URL, MODEL, "model 'm' is being loaded")
    assert scene.state["state"] == "asked"
    assert scene.state["why"] == "the host refused to report its cache: model 'm' is being loaded"
    scene.mirror.on_kv_refused(URL, "another", "not here")  # which nobody follows
    scene.mirror.on_kv_host(URL, scene.ask)
    scene.answer()
    assert scene.state["state"] == "exact" and "why" not in scene.state
    scene.mirror.on_kv_refused(URL, MODEL, "late")  # of an ask before: what is known is known
    assert scene.state["state"] == "exact" and "why" not in scene.state


def test_an_answer_that_was_given_up_and_comes_after_all_is_no_part_of_the_next():
    scene = Scene(answers=False)
    scene.mirror.on_kv_host(URL, scene.ask)
    part_of(scene, [1, 2, 3], is_last=True)
    part_of(scene, [1, 2], is_last=False)
    other = follow_also(scene)
    part_of(scene, [3], is_last=True)
    assert (scene.asked, scene.state["state"], other.index.blocks) == (3, "asked", 0)
    part_of(scene, [1, 2, 3], is_last=True)
    assert (scene.state["state"], other.index.blocks) == ("exact", 3)


def test_an_answer_on_a_connection_that_is_gone_is_not_waited_for():
    scene = Scene(answers=False)
    part_of(scene, [1], is_last=False)
    scene.mirror.on_kv_lost(URL)
    scene.mirror.on_kv_host(URL, scene.ask)
    part_of(scene, [2], is_last=True)
    assert scene.state["state"] == "exact" and (scene.knows(1), scene.knows(2)) == (False, True)


def test_following_again_asks_only_for_what_is_new():
    scene = Scene()
    scene.tell(scene.record("stored", (1,)))
    scene.mirror.follow(scene.fleet, {"r0": (URL, MODEL), "r1": (OTHER_URL, MODEL)})
    assert scene.knows(1) and (scene.asked, scene.state["state"]) == (1, "exact")
    scene.mirror.follow(scene.fleet, {"r1": (OTHER_URL, MODEL)})
    assert not scene.knows(1) and list(scene.mirror.status()) == [f"{OTHER_URL} {MODEL}"]
