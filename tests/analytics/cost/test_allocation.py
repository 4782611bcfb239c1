"""Shared costs are distributed exactly: whatever the rules, own and shared costs are what payers and nobody pay."""

from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.cost.allocation import AllocationRules, SharedRule, allocate_costs, check_rules, distribute
from analytics.cost.question import CostQuestion
from analytics.cost.sums import CostSum
from analytics.scope import Period
from backends.store.client import StoreClient
from contracts.access.identity import Identity
from contracts.errors import InvalidRequest
from contracts.metering.usage import Usage
from contracts.pricing.rates import RateBook
from contracts.serving.rollouts import PLATFORM_TENANT
from tests.analytics.cost.records import request

sums = st.builds(
    CostSum,
    requests=st.integers(0, 10**6),
    priced_pico_usd=st.integers(-(10**15), 10**15),
    input_tokens=st.integers(0, 10**9),
)
bases = st.sampled_from(["cost", "requests", "tokens", "even"]) | st.dictionaries(
    st.sampled_from("abz"), st.integers(0, 1_000_000)
)


@given(
    st.dictionaries(st.sampled_from("abcde"), sums),
    st.lists(st.tuples(st.sampled_from(["unallocated", "platform", "idle_gpu"]), bases), unique_by=lambda one: one[0]),
    st.integers(-(10**15), 10**18),
    st.decimals("0", "10000", places=2),
)
def test_all_parts_sum_to_the_whole(payers: Any, rules: Any, amount: int, fixed: Any) -> None:
    shared = [SharedRule(source, source, by) for source, by in rules]
    shared.append(SharedRule("desk", "fixed", "even", f"{fixed}"))
    amounts: Any = dict.fromkeys(("unallocated", "platform", "idle_gpu"), amount)
    found = distribute(AllocationRules("team", shared), payers, amounts)
    own = sum(one.priced_pico_usd for one in payers.values())
    assert found.total_pico_usd == own + amount * len(rules) + int(fixed * 10**12)
    assert sum(line.total_pico_usd for line in found.lines) + sum(found.left_pico_usd) == found.total_pico_usd
    for place, rule in enumerate(shared):
        given = [line.shares_pico_usd[place] for line in found.lines]
        assert sum(given) + found.left_pico_usd[place] == found.shared_pico_usd[place]
        if rule.by == "even" and given:
            assert max(given) - min(given) <= 1 and found.left_pico_usd[place] == 0


def test_a_cost_without_anybody_to_take_it_is_left() -> None:
    rules = AllocationRules("team", [SharedRule("desk", "fixed", {"gone": 1}, "12.5")])
    found = distribute(rules, {"red": CostSum(requests=1, priced_pico_usd=7)}, {})
    assert found.left_pico_usd == (12_500_000_000_000,) and found.lines[0].total_pico_usd == 7


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ([SharedRule("a", "platform"), SharedRule("b", "platform")], "platform is shared twice"),
        ([SharedRule("a", "platform", usd="1")], "belongs to the sources fixed and commitment"),
        ([SharedRule("a", "fixed")], "belongs to the sources fixed and commitment"),
        ([SharedRule("a", "commitment", usd="1")], "needs a term"),
        ([SharedRule("a", "commitment", usd="1", starts=date(2051, 1, 1), ends=date(2051, 1, 1))], "needs a term"),
        ([SharedRule("a", "fixed", usd="1", provider="azure")], "`provider` belongs to source commitment"),
        ([SharedRule("a", "fixed", usd="twelve")], "not an amount in USD"),
        ([SharedRule("a", "fixed", usd="-1")], "give an amount from 0"),
        ([SharedRule("a", "fixed", usd="NaN")], "not an amount in USD"),
    ],
)
def test_rules_that_cannot_be_are_refused_by_name(rules: list[SharedRule], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        check_rules(AllocationRules("team", rules))


def test_the_unallocated_and_the_platforms_cost_are_divided_by_a_tag(reader: StoreClient, record: Any) -> None:
    start = datetime(2051, 5, 1, tzinfo=UTC)
    tenant = f"tenant-{uuid4().hex[:8]}"

    def used(who: Identity, dollars: int) -> Any:
        usage = Usage(input_text=dollars, output_text=0)
        return request(start, who=who, usage=usage, cost_pico_usd=dollars * 10**12)

    record(
        [
            used(Identity(tenant, tags={"cost-center": "4711"}), 30),
            used(Identity(tenant, tags={"cost-center": "4712"}), 10),
            used(Identity(tenant), 8),
            used(Identity(PLATFORM_TENANT), 5),
        ]
    )
    question = CostQuestion(start, start + timedelta(hours=1), asked_at=start + timedelta(days=1))
    shared = [SharedRule("no center", "unallocated"), SharedRule("shadow copies", "platform", "even")]
    found = allocate_costs(reader, question, AllocationRules("tag:cost-center", shared), RateBook([]))
    assert [(line.name, *(part / 10**12 for part in line.shares_pico_usd)) for line in found.lines] == [
        ("4711", 6, 2.5),
        ("4712", 2, 2.5),
    ]
    assert found.total_pico_usd == 53 * 10**12


@given(st.integers(-(10**12), 10**12), st.lists(st.integers(0, 400 * 86_400), min_size=1, max_size=6))
def test_a_commitment_is_amortised_over_its_term_exactly(cents: int, cuts: list[int]) -> None:
    rule = SharedRule("PTU", "commitment", "even", f"{cents}e-2", date(2051, 1, 1), date(2052, 1, 1))
    begin = datetime(2050, 12, 20, tzinfo=UTC)
    moments = [begin, *(begin + timedelta(seconds=cut) for cut in sorted(cuts)), datetime(2052, 2, 1, tzinfo=UTC)]
    parts = [
        distribute(AllocationRules("team", [rule]), {"red": CostSum()}, {}, Period(first, after)).shared_pico_usd[0]
        for first, after in zip(moments, moments[1:], strict=False)
        if first < after
    ]
    assert sum(parts) == cents * 10**10
    day = Period(datetime(2051, 7, 1, tzinfo=UTC), datetime(2051, 7, 2, tzinfo=UTC))
    (of_day,) = distribute(AllocationRules("team", [rule]), {}, {}, day).shared_pico_usd
    assert abs(of_day - cents * 10**10 / 365) <= 1 + abs(cents)  # floats


def test_a_commitment_is_divided_by_what_payers_use_of_its_provider(reader: StoreClient, record: Any) -> None:
    start = datetime(2051, 6, 1, tzinfo=UTC)
    tenant = f"tenant-{uuid4().hex[:8]}"

    def used(team: str, provider: str, tokens: int) -> Any:
        usage = Usage(input_text=tokens, output_text=0)
        return request(start, who=Identity(tenant, team=team), provider=provider, usage=usage, cost_pico_usd=1)

    record([used("red", "azure", 300), used("blue", "azure", 100), used("blue", "openai", 9_000)])
    question = CostQuestion(start, start + timedelta(hours=1), asked_at=start + timedelta(days=1))
    ptu = SharedRule("PTU", "commitment", "tokens", "720", date(2051, 6, 1), date(2051, 7, 1), "azure")
    found = allocate_costs(reader, question, AllocationRules("team", [ptu]), RateBook([]))
    assert {line.name: line.shares_pico_usd[0] / 10**12 for line in found.lines} == {"red": 0.75, "blue": 0.25}
