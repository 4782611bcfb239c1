"""Whatever requests do and in whatever order, the books of every store hold: each charge is kept with its exact time
and every window is added up by hand."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contracts.rules.limits import Rule, Window
from gateway.limits.counters.base import Counter, Mark, Shortage
from tests.gateway.limits.counting import SECOND_NS, Counting, CountingFactory, budget, conversation, limit, slots

DAY_NS = 86_400 * SECOND_NS
WINDOW_NS = {"second": SECOND_NS, "minute": 60 * SECOND_NS}
HALF_GRACE_NS = {"second": SECOND_NS // 20, "minute": SECOND_NS // 2}

quick = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@dataclass
class Charge:
    """One amount as the test keeps it: when it was taken, and what of it still counts."""

    counter: Counter
    mark: Mark
    taken: int
    at_ns: int
    amount: int = field(init=False)
    is_open: bool = True

    def __post_init__(self) -> None:
        self.amount = self.taken

    def settle(self, charged: int, now_ns: int) -> None:
        self.counter.settle(self.mark, self.taken, charged, now_ns)
        self.amount, self.is_open = charged, False


@dataclass
class Promise:
    """A place that is kept for a claimant."""

    claimant: str
    lines: list[tuple[Counter, int]]
    due_ns: int


@dataclass
class Books:
    """A schedule in progress, with everything that was charged in it."""

    counting: Counting
    window: Window
    charges: list[Charge] = field(default_factory=list)
    promises: list[Promise] = field(default_factory=list)
    claimants: int = 0

    async def ask(self, lines: list[tuple[Counter, int]], claimant: str) -> Shortage | None:
        before_ns = self.counting.now_ns()
        taken = await self.counting.admit(lines, claimant)
        if isinstance(taken, Shortage):
            if taken.is_held:
                assert taken.wait_seconds is not None
                due_ns = before_ns + round(taken.wait_seconds * SECOND_NS)
                self.promises.append(Promise(claimant, lines, due_ns))
            return taken
        for (counter, amount), mark in zip(lines, taken, strict=True):
            self.charges.append(Charge(counter, mark, amount, before_ns))
        self.check()
        return None

    async def come(self, lateness: float) -> None:
        """Let who is to come next do so, up to half the grace late."""
        self.promises.sort(key=lambda promise: promise.due_ns)
        late_ns = round(HALF_GRACE_NS[self.window] * lateness)
        while self.promises:
            promise = self.promises.pop(0)
            wait_ns = promise.due_ns + late_ns - self.counting.now_ns()
            if wait_ns >= 0:
                await self.counting.advance(wait_ns / SECOND_NS)
                assert await self.ask(promise.lines, promise.claimant) is None, "a promise was broken"
                return

    def settle(self, which: float, share: float) -> None:
        still_open = [charge for charge in self.charges if charge.is_open]
        if still_open:
            charge = still_open[int(which * (len(still_open) - 1))]
            charge.settle(int(charge.taken * share), self.counting.now_ns())

    def check(self) -> None:
        """Add up the window that ends now; what is charged later only lies in later ones."""
        now_ns = self.counting.now_ns()
        for counter in {id(charge.counter): charge.counter for charge in self.charges}.values():
            oldest_ns = now_ns - WINDOW_NS[self.window]
            own = [charge for charge in self.charges if charge.counter is counter and charge.at_ns > oldest_ns]
            assert sum(charge.amount for charge in own) <= counter.rule.amount
            state = counter.state(now_ns)
            assert 0 <= state.reserved <= state.used <= counter.rule.amount


share = st.floats(0, 1)
step = st.one_of(
    st.tuples(st.just("ask"), st.integers(1, 7), st.integers(1, 110), st.booleans()),
    st.tuples(st.just("ask"), st.integers(1, 7), st.integers(1, 30), st.booleans()),
    st.tuples(st.just("settle"), share, share),
    st.tuples(st.just("pass"), st.sampled_from([0.001, 0.024, 0.025, 0.1, 0.3, 0.7, 0.974, 0.999, 1.0, 1.026, 1.5])),
    st.tuples(st.just("come"), share),
)


async def walk(counting: Counting, window: Window, steps: list[tuple]) -> None:
    books = Books(counting, window)
    amounts = {"a": 100, "b": 60, "c": 250}
    counters = [counting.store.open(limit(amount, window, name=name), "") for name, amount in amounts.items()]
    for kind, *given_ in steps:
        if kind == "ask":
            choice, amount, has_name = given_
            books.claimants += 1
            lines = [(counter, amount) for place, counter in enumerate(counters) if choice >> place & 1]
            await books.ask(lines, f"key-{books.claimants}" if has_name else "")
        elif kind == "settle":
            books.settle(*given_)
        elif kind == "pass":
            await counting.advance(given_[0] * WINDOW_NS[window] / SECOND_NS)
        else:
            await books.come(*given_)


def run(counting_of: CountingFactory, walk_it: Callable[[Counting], Awaitable[None]]) -> None:
    async def with_store() -> None:
        async with counting_of() as counting:
            await walk_it(counting)

    asyncio.run(with_store())


@quick
@given(window=st.sampled_from(["second", "minute"]), steps=st.lists(step, max_size=40))
def test_no_window_is_overcharged_and_no_promise_broken(counting_of: CountingFactory, window, steps):
    async def schedule(counting: Counting) -> None:
        await walk(counting, window if counting.can_jump else "second", steps)

    run(counting_of, schedule)


@quick
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("take"), st.integers(1, 60)),
            st.tuples(st.just("settle"), share, share),
            st.tuples(st.just("pass"), st.sampled_from([0.01, 0.2])),
        ),
        max_size=30,
    )
)
def test_when_all_is_given_back_all_is_there(counting_of: CountingFactory, steps):
    async def schedule(counting: Counting) -> None:
        rules: list[Rule] = [limit(100, "minute", name="tokens"), slots(100), conversation(100), budget(100)]
        counters = [counting.store.open(rule, "subject") for rule in rules]
        books = Books(counting, "minute")
        for kind, *given_ in steps:
            if kind == "take":
                await books.ask([(counter, given_[0]) for counter in counters], "")
            elif kind == "settle":
                books.settle(given_[0], 0.0)
            else:
                await counting.advance(given_[0])
        for charge in books.charges:
            if charge.is_open:
                charge.settle(0, counting.now_ns())
        assert await books.ask([(counter, 100) for counter in counters], "") is None

    run(counting_of, schedule)


@quick
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("take"), st.integers(1, 700)),
            st.tuples(st.just("settle"), share, share),
            st.tuples(st.just("pass"), st.integers(1, 15)),
        ),
        max_size=40,
    )
)
def test_no_period_of_a_budget_is_overspent_and_none_refuses_what_it_has(counting_of: CountingFactory, steps):
    async def schedule(counting: Counting) -> None:
        if not counting.can_jump:
            return
        counter = counting.store.open(budget(1000), "")
        charges: list[Charge] = []
        for kind, *given_ in steps:
            now_ns = counting.now_ns()
            if kind == "take":
                used = sum(charge.amount for charge in charges if charge.at_ns // DAY_NS == now_ns // DAY_NS)
                taken = await counting.admit([(counter, given_[0])])
                assert isinstance(taken, Shortage) == (used + given_[0] > 1000)
                if not isinstance(taken, Shortage):
                    charges.append(Charge(counter, taken[0], given_[0], now_ns))
            elif kind == "settle":
                still_open = [charge for charge in charges if charge.is_open]
                if still_open:
                    charge = still_open[int(given_[0] * (len(still_open) - 1))]
                    charge.settle(int(charge.taken * given_[1]), now_ns)
            else:
                await counting.advance(given_[0] * 3600.0)

    run(counting_of, schedule)
