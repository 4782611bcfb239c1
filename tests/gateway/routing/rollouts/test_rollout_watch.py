"""What is done about a rollout each second, with a clock and a board in the test's hands."""

from typing import Any, cast

import pytest

from algorithms.rollouts.rollout_tally import ArmTally, ObservedRequest, RolloutTotals
from contracts.errors import ControlUnavailable
from contracts.serving.rollouts import RolloutGuards, RolloutRules, RolloutSpec, RolloutStep
from gateway.limits.limiter import Limiter
from gateway.request.clock import Clock
from gateway.routing.rollouts.boards import Shared
from gateway.routing.rollouts.rollout_book import RolloutBook
from gateway.routing.rollouts.rollout_watch import RolloutWatch
from gateway.routing.rollouts.shadow_budget import ShadowBudget
from gateway.routing.rollouts.shadows import Shadows

MINUTE = 60 * 10**9


class Board:
    """Notes what it is told; gives what the others are said to see."""

    def __init__(self, *, can_step: bool = True) -> None:
        self.can_step = can_step
        self.others: list[RolloutTotals] = []
        self.before: ArmTally | None = None
        self.is_away = False
        self.done: list[str] = []

    def exchange(self, spec, observed, day, shadow_pico_usd):
        if self.is_away:
            raise ControlUnavailable("away")
        before, self.before = self.before, None
        return Shared(self.others, before)

    def stopped(self, spec):
        return ""

    def roll_back(self, spec, reason):
        self.done.append(reason)

    def go_on(self, spec):
        self.done.append(f"step {spec.step}")

    def close(self):
        pass


class Set:
    """A watch over one rollout of two steps, of ten minutes and ten requests each."""

    def __init__(self, **board) -> None:
        self.now_ns = 0
        self.clock = Clock(wall_ns=lambda: self.now_ns, monotonic_ns=lambda: self.now_ns)
        self.book, self.board = RolloutBook(self.clock), Board(**board)
        shadows: Any = Shadows(cast(Limiter, None), self.clock, None)  # nothing is copied here
        self.watch = RolloutWatch(self.book, shadows, self.board, lambda: (), self.clock)
        self.spec = self.at(0)

    def at(self, step: int, **more) -> RolloutSpec:
        steps = tuple(RolloutStep(percent=percent, min_minutes=10, min_requests=10) for percent in (5.0, 50.0))
        guards = RolloutGuards(window_seconds=3600, min_requests=10)
        rules = RolloutRules(steps=steps, guards=guards, promotes=bool(more.pop("promotes", False)))
        about = {"id": "try", "route": "r", "incumbent": "old", "candidate": "new", "salt": b"s", "step": step}
        spec = RolloutSpec(rules=rules, **{**about, "term": step + 1, "stepped_at_ns": self.now_ns, **more})
        self.book.sync([spec])
        return spec

    def see(self, candidate: int, incumbent: int = 0, *, failed: bool = False) -> None:
        for _ in range(candidate):
            self.book.note(self.spec, "candidate", ObservedRequest(failed=failed))
        for _ in range(incumbent):
            self.book.note(self.spec, "incumbent", ObservedRequest(failed=False))

    async def look(self) -> list[str]:
        await self.watch.look(self.spec)
        return self.board.done


async def test_a_step_follows_when_its_time_and_its_requests_are_over_and_not_before():
    about = Set()
    about.see(9, 20)
    about.now_ns = 10 * MINUTE
    assert await about.look() == [], "one request short"
    about.see(1)
    about.now_ns = 10 * MINUTE - 1
    assert await about.look() == [], "a nanosecond short"
    about.now_ns = 10 * MINUTE
    assert await about.look() == ["step 0"]
    about.board.done.clear()
    about.spec = about.at(1)
    about.now_ns += 10 * MINUTE
    assert await about.look() == [], "requests are counted again, and the last step is a person's to end"
    about.see(10)
    assert await about.look() == []
    about.spec = about.at(1, promotes=True, stepped_at_ns=0)
    about.see(10)
    assert await about.look() == ["step 1"], "or, where it was told to, its own"


async def test_other_gateways_requests_count_for_a_step_and_a_paused_one_stands_still():
    about = Set()
    about.now_ns = 10 * MINUTE
    about.board.others = [RolloutTotals(step_requests=10)]
    assert await about.look() == ["step 0"]
    about.board.done.clear()
    about.spec = about.at(0, state="paused", stepped_at_ns=0)
    assert await about.look() == []
    alone = Set(can_step=False)
    alone.see(10)
    alone.now_ns = 10 * MINUTE
    assert await alone.look() == []


async def test_harm_that_no_gateway_sees_alone_is_seen_together():
    about = Set()
    about.see(6, 20, failed=True)
    assert await about.look() == []
    elsewhere = RolloutTotals()
    for _ in range(6):
        elsewhere.candidate.add(ObservedRequest(failed=True))
    about.board.others = [elsewhere]
    [reason] = await about.look()
    assert "error rate of the candidate is 1 over 12 requests" in reason
    assert about.book.stopped(about.spec) == reason


async def test_harm_is_stopped_here_where_nobody_can_be_told_and_told_as_soon_as_they_can():
    about = Set()
    about.see(10, 10, failed=True)
    about.board.is_away = True
    with pytest.raises(ControlUnavailable):
        await about.look()
    assert about.book.stopped(about.spec) and about.board.done == []
    about.board.is_away = False
    assert await about.look() == [about.book.stopped(about.spec)]
    about.spec = about.at(0, term=7)
    assert not about.book.stopped(about.spec), "it was begun again"


@pytest.mark.parametrize(
    ("changes", "is_another"),
    [
        ({"candidate": "newer"}, True),
        ({"promotes": True}, True),  # another entry of the file, at the same term
        ({"term": 3, "stepped_at_ns": 1}, True),  # rolled back and begun again, between two looks at the database
        ({"term": 2, "state": "paused"}, False),
        ({"step": 1, "stepped_at_ns": 1}, False),
    ],
)
async def test_another_try_is_judged_by_its_own_requests_alone(changes, is_another):
    about = Set()
    about.see(10, 10, failed=True)
    assert len(await about.look()) == 1
    about.board.done.clear()
    about.spec = about.at(changes.pop("step", 0), **changes)
    assert bool(about.book.observed(about.spec).candidate.requests) is not is_another
    assert bool(await about.look()) is not is_another
    assert bool(about.book.stopped(about.spec)) is not is_another


async def test_what_an_old_look_found_does_not_stop_a_newer_try():
    about = Set()
    before = about.spec
    about.spec = about.at(0, term=3, stepped_at_ns=1)
    about.book.stop(before, "of the try before")
    assert not about.book.stopped(about.spec)


async def test_a_candidate_with_all_of_the_share_is_still_compared_with_what_the_incumbent_was_before_a_restart():
    about = Set()
    about.see(10, failed=True)
    assert await about.look() == [], "nothing to compare with"
    about.board.before = ArmTally(requests=50)
    assert "error rate of the candidate is 1 over 10 requests" in (await about.look())[0]
    assert about.book.observed(about.spec).incumbent_before.requests == 50, "and told again, by this process"


def test_money_that_was_held_while_others_were_told_is_free_again_once_the_copy_has_ended_for_less():
    budget = ShadowBudget()
    budget.learn("2026-11-22", 30, [])
    assert budget.take("2026-11-22", 70, 100)
    budget.settle(70, 5)
    budget.learn("2026-11-22", 100, [])  # what the board had from here while it was held
    assert budget.here == 35 and budget.take("2026-11-22", 65, 100)


def test_a_days_money_is_counted_over_gateways_restarts_and_midnight():
    budget = ShadowBudget()
    budget.learn("2026-11-22", 30, [50])
    assert not budget.take("2026-11-22", 21, 100) and budget.take("2026-11-22", 20, 100)
    assert not budget.take("2026-11-22", 1, 100)
    budget.settle(20, 5)
    assert budget.here == 35 and budget.take("2026-11-22", 15, 100)
    assert budget.take("2026-11-23", 80, 100), "what is in progress counts on, the rest begins again"
    assert not budget.take("2026-11-23", 6, 100)
