"""The router gives candidates that may be called, best first, and counts what is sent while it is in progress."""

import random
import uuid
from collections import Counter
from typing import Any

import pytest

from algorithms.routing.policy_input import RoutingRequest
from backends.llm.base import ModelCall, PromptBlocks
from contracts.api.chat import ChatRequest
from contracts.api.generation import Delta, Result
from contracts.errors import ClientGone, UpstreamBroken
from contracts.metering.usage import Usage
from contracts.pricing.prices import PriceBook
from contracts.serving.configuration import ModelSpec, PoolSpec, Snapshot, TargetSpec
from gateway.replies.progress import Progress
from gateway.request.clock import Clock
from gateway.routing.replicas.choice import Choice
from gateway.routing.replicas.router import Router

SECOND = 1_000_000_000
MODEL = ModelSpec("m", "p")


class Hands:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 100 * SECOND

    def clock(self) -> Clock:
        return Clock(wall_ns=lambda: self.now, monotonic_ns=lambda: self.now)


class Prompts:
    """Adapters that know every prompt to be of these blocks."""

    def __init__(self, hashes: list[int]) -> None:
        self.hashes = hashes

    def find(self, spec):
        return self

    async def prompt_blocks(self, call) -> PromptBlocks:
        return PromptBlocks(16 * len(self.hashes) + 3, 16, self.hashes)


def snapshot_of(policy: str = "cost", count: int = 3, kind: str = "scripted") -> Snapshot:
    targets = tuple(TargetSpec(f"t{place}", "p", kind, url=f"unix:///{place}.sock") for place in range(count))
    return Snapshot(1, {}, {"m": MODEL}, {"p": PoolSpec("p", targets, policy)}, PriceBook())


def call_of(text: str = "one two three", tenant: str = "acme") -> ModelCall:
    body = b'{"model": "m", "messages": [{"role": "user", "content": "%b"}]}' % text.encode()
    request = ChatRequest(model="m", messages=[])
    return ModelCall(uuid.uuid4(), "/chat/completions", request, body, tenant, cache_salt=f"salt of {tenant}")


@pytest.fixture
def hands() -> Hands:
    return Hands()


def ids(choice) -> list[str]:
    return [spec.id for spec in choice.candidates]


def pools_of(router: Router) -> Any:
    return router.status()["pools"]


def facts_of(choice: Choice) -> Any:
    assert choice.sample is not None
    return choice.sample.facts()


async def test_every_target_is_a_candidate_once(hands):
    for policy in ("cost", "least_outstanding", "random", "round_robin"):
        router, snapshot = Router(hands.clock()), snapshot_of(policy, 30)
        choice = await router.rank(MODEL, snapshot, call_of())
        assert sorted(ids(choice)) == sorted(spec.id for spec in snapshot.pools["p"].targets)


async def test_only_targets_within_are_candidates_whatever_the_policy(hands):
    for policy in ("cost", "least_outstanding", "consistent_hash", "round_robin"):
        router = Router(hands.clock())
        for _ in range(4):
            choice = await router.rank(MODEL, snapshot_of(policy), call_of(), within=frozenset({"t1"}))
            assert ids(choice) == ["t1"]


async def test_targets_that_are_away_come_last(hands):
    router = Router(hands.clock())
    router.away_in = lambda pool: {"t0", "t1", "t3"}
    for text in ("a", "b", "c"):
        assert ids(await router.rank(MODEL, snapshot_of(), call_of(text)))[0] == "t2"


async def test_what_is_sent_counts_until_it_ends_and_the_next_goes_elsewhere(hands):
    router, snapshot = Router(hands.clock()), snapshot_of(count=2)
    first = await router.rank(MODEL, snapshot, call_of("a" * 3_000))
    progress = Progress()
    placed = first.begin(first.candidates[0], progress)
    second = await router.rank(MODEL, snapshot, call_of("b" * 3_000))
    assert ids(second)[0] == ids(first)[1]
    hands.now += SECOND
    progress.take(Delta(1, "x"), hands.now)
    assert placed is not None
    placed.end(Result(usage=Usage(input_text=800, output_text=1)), None)
    pools = pools_of(router)
    assert [one["running"] for one in pools["p"]["replicas"].values()] == [0, 0]


async def test_a_tenant_s_next_turn_goes_where_the_last_was_and_another_tenant_s_prompt_is_nobody_s(hands):
    router, snapshot = Router(hands.clock()), snapshot_of(count=4)
    text = "the same long beginning " * 100
    where = set()
    for turn in range(5):
        choice = await router.rank(MODEL, snapshot, call_of(text + "more " * turn))
        placed = choice.begin(choice.candidates[0], Progress())
        hands.now += SECOND
        assert placed is not None
        placed.end(Result(), None)
        where.add(ids(choice)[0])
    assert len(where) == 1
    other = await router.rank(MODEL, snapshot, call_of(text, tenant="other"))
    assert ids(other)[0] not in where


async def test_what_an_engine_says_it_holds_decides(hands):
    hashes = [5, 6, 7, 8]
    router, snapshot = Router(hands.clock(), Prompts(hashes)), snapshot_of(count=3, kind="engine")
    await router.rank(MODEL, snapshot, call_of())
    fleet = router._fleets["p"]
    fleet.begin_cache("t2", hashes)
    for replica in fleet.replicas:
        replica.go_away(False)
    assert ids(await router.rank(MODEL, snapshot, call_of()))[0] == "t2"


async def test_a_replica_that_failed_is_asked_last_and_one_whose_client_left_is_not(hands):
    router, snapshot = Router(hands.clock()), snapshot_of(count=2)
    choice = await router.rank(MODEL, snapshot, call_of())
    for spec, error in zip(choice.candidates, (UpstreamBroken("it broke"), ClientGone("it left")), strict=True):
        placed = choice.begin(spec, Progress())
        assert placed is not None
        placed.end(Result(), error)
    broken = choice.candidates[0].id
    assert {ids(await router.rank(MODEL, snapshot, call_of(text)))[1] for text in "abcdef"} == {broken}


async def test_a_pool_that_changes_keeps_what_is_known_of_the_targets_that_stay(hands):
    router, before = Router(hands.clock()), snapshot_of(count=2)
    choice = await router.rank(MODEL, before, call_of())
    left = choice.begin(before.pools["p"].targets[1], Progress())
    kept = choice.begin(before.pools["p"].targets[0], Progress())
    after = snapshot_of(count=1)
    more = TargetSpec("new", "p", "scripted")
    pool = PoolSpec("p", (*after.pools["p"].targets, more), "cost")
    await router.rank(MODEL, Snapshot(2, {}, {"m": MODEL}, {"p": pool}, PriceBook()), call_of())
    assert left is not None and kept is not None
    left.end(Result(), None)
    replicas = pools_of(router)["p"]["replicas"]
    assert {name: one["running"] for name, one in replicas.items()} == {"t0": 1, "new": 0}
    router.sync(Snapshot(3, {}, {}, {}, PriceBook()))
    assert pools_of(router) == {}


async def test_a_sampled_choice_is_scored_when_the_truth_is_known(hands):
    router, snapshot = Router(hands.clock(), sample_share=0.5, draw=lambda: 0.4), snapshot_of(count=2)
    choice = await router.rank(MODEL, snapshot, call_of("a" * 4_000))
    assert choice.sample is not None
    predicted = facts_of(choice)["predicted_ms"]
    assert set(predicted) == {"t0", "t1"} and "outcome" not in facts_of(choice)
    progress = Progress()
    placed = choice.begin(choice.candidates[0], progress)
    hands.now += SECOND
    progress.take(Delta(1, "x"), hands.now)
    assert placed is not None
    placed.end(Result(usage=Usage(input_text=700, cache_read_text=300, output_text=1)), None)
    chosen = ids(choice)[0]
    assert facts_of(choice)["outcome"] == {
        "replica": chosen,
        "ttft_ms": 1000.0,
        "cached_tokens": 300,
        "error_ms": pytest.approx(1000.0 - predicted[chosen], abs=0.01),
        "regret_ms": pytest.approx(1000.0 - min(predicted.values()), abs=0.01),
    }
    unsampled = Router(hands.clock(), sample_share=0.5, draw=lambda: 0.6)
    assert (await unsampled.rank(MODEL, snapshot, call_of())).sample is None


async def test_one_target_and_turns_are_not_counted(hands):
    for snapshot in (snapshot_of(count=1), snapshot_of("round_robin")):
        router = Router(hands.clock())
        assert router.is_plain(snapshot.pools["p"])
        choice = await router.rank(MODEL, snapshot, call_of())
        assert choice.begin(choice.candidates[0], Progress()) is None
        assert pools_of(router) == {}


@pytest.mark.parametrize("count", [16, 24, 25, 64])
@pytest.mark.parametrize("few", [1, 4])
def test_those_who_may_be_asked_share_the_work_however_large_the_pool(hands, count, few):
    draw = random.Random(2).random
    router, pool = Router(hands.clock(), draw=draw), snapshot_of(count=count).pools["p"]
    within = frozenset(spec.id for spec in pool.targets[1::4][:few])
    firsts: Counter[str] = Counter()
    for number in range(200):
        hands.now += SECOND // 100
        choice = router.place(MODEL, pool, RoutingRequest(500, [1_000 * number + key for key in range(7)], 64), within)
        assert {spec.id for spec in choice.candidates} == within
        firsts[choice.candidates[0].id] += 1
        placed = choice.begin(choice.candidates[0], Progress())
        assert placed is not None
        placed.end(Result(), None)
    assert all(150 // few <= firsts[name] <= 250 // few for name in within)


async def test_with_none_that_may_be_asked_there_is_no_candidate(hands):
    for policy in ("cost", "least_outstanding", "random", "consistent_hash", "round_robin"):
        choice = await Router(hands.clock()).rank(MODEL, snapshot_of(policy), call_of(), within=frozenset())
        assert ids(choice) == []


def test_of_many_that_may_be_asked_those_are_looked_at_that_hold_the_prompt(hands):
    router, pool = Router(hands.clock(), draw=random.Random(3).random), snapshot_of(count=80).pools["p"]
    within = frozenset(spec.id for spec in pool.targets[40:])
    ask = RoutingRequest(64_000, list(range(1, 1_001)), 64)
    router.place(MODEL, pool, ask)
    fleet = router._fleets["p"]
    for name in (*[f"t{place}" for place in range(10)], "t77"):
        fleet.begin_cache(name, list(ask.keys))
    for _ in range(5):
        assert ids(router.place(MODEL, pool, ask, within))[0] == "t77"
