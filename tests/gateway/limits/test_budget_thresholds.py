"""Which thresholds of a budget are told as it is spent: each that is reached, once."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.rules.limits import BudgetSpec, Scope
from gateway.limits.budgets.budget import BudgetCounter
from gateway.limits.budgets.budget_ledger import BudgetLedger
from gateway.limits.budgets.budget_watch import BudgetWatch, ThresholdPassed, thresholds_between

NOW_NS = 1_700_000_000 * 10**9


class NoLedger(BudgetLedger):
    """Keeps nothing."""

    def __init__(self) -> None:
        pass

    def note(self, counter):
        pass

    def flush(self):
        pass


def budget(amount: int, thresholds: tuple[int, ...], *, is_hard: bool = True) -> BudgetSpec:
    return BudgetSpec(
        "b",
        Scope("acme", "tenant"),
        "pico_usd",
        amount,
        "month",
        is_hard=is_hard,
        thresholds=tuple(sorted(thresholds)),
    )


async def told(rule: BudgetSpec, steps: list[int]) -> list[int]:
    """Spend in steps; return the percents that are published."""
    found: list[ThresholdPassed] = []
    watch = BudgetWatch(NoLedger(), lambda _, passed: found.extend(passed))
    counter = BudgetCounter(rule, "acme", watch.on_settled)
    for step in steps:
        counter.settle(counter.take(step, NOW_NS), step, step, NOW_NS)
    await watch.tell()
    return [one.percent for one in found]


@pytest.mark.parametrize("amount", [10**12, 101])  # a hundredth of it is whole, or is not
@pytest.mark.parametrize(("percent", "is_told"), [(49, False), (50, True), (51, True)])
async def test_a_threshold_is_told_at_its_percent_and_not_below(amount, percent, is_told):
    spent = -(-amount * percent // 100)
    assert await told(budget(amount, (50,)), [spent]) == ([50] if is_told else [])


@given(
    amount=st.integers(1, 10**18 - 1) | st.integers(1, 200),
    thresholds=st.lists(st.integers(1, 120), max_size=4, unique=True).map(tuple),
    shares=st.lists(st.integers(0, 10**6), min_size=1, max_size=8),
    is_hard=st.booleans(),
)
def test_steps_tell_what_their_sum_tells(amount, thresholds, shares, is_hard):
    rule = budget(amount, thresholds, is_hard=is_hard)
    whole = max(sum(shares), 1)
    steps = [amount * share // whole for share in shares]
    assert asyncio.run(told(rule, steps)) == thresholds_between(rule, 0, sum(steps))
