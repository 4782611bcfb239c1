"""Agents' sessions as the store has them: by key, by repository, with their turns; and the cost report by them."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest

from analytics.agents.sessions import AgentGroup, agent_groups, agent_sessions
from analytics.agents.timeline import session_turns
from analytics.cost.question import CostQuestion
from analytics.cost.report import cost_report
from analytics.prices.card_list import CardList
from analytics.scope import Scope
from backends.store.client import StoreClient
from contracts.access.identity import Identity
from contracts.metering.usage import LEAVES, Usage
from contracts.pricing.prices import PriceCard
from contracts.recording.records import RequestRecord

NOW = datetime.now(UTC).replace(second=0, microsecond=0)
# Of a token, in pico-USD.
RATES: Any = {
    "input_text": 3_000_000,
    "cache_read_text": 300_000,
    "cache_write_5m": 3_750_000,
    "output_text": 15_000_000,
}
CARD = PriceCard("claude", "v1", NOW - timedelta(days=9), RATES)


def turn(tenant: str, seconds: int, session: str = "s1", **facts: Any) -> RequestRecord:
    tags = {"repo": "acme/shop", "branch": "main", "pr": "7"}
    values: dict[str, Any] = {
        "request_id": uuid4().bytes,
        "started_at_ns": (int(NOW.timestamp()) - 600 + seconds) * 10**9,
        "duration_ns": 10**9,
        "who": Identity(tenant, "web", "", "key_1", "ada", tags),
        "model": "claude",
        "usage": Usage(input_text=100, cache_read_text=900, output_text=10),
        "cost_pico_usd": 10**9,
        "cost_basis": "price_card",
        "conversation_id": session,
        **facts,
    }
    return RequestRecord(**values)


@pytest.fixture
def tenant(record: Callable[[Sequence[RequestRecord]], None]) -> str:
    """A tenant with two sessions of one key, one of another, and a request outside of any."""
    name = f"t-{uuid4().hex[:8]}"
    loop: dict[str, Any] = {"tools": ["Bash"], "tool_marks": [7], "tool_calls": 1}
    other = Identity(name, "web", "", "key_2", "", {"repo": "acme/api"})
    record(
        [
            turn(name, 0, prompt_marks=[1, 2, 3], usage=Usage(cache_write_5m=1000, output_text=10), **loop),
            turn(name, 1, prompt_marks=[1, 2, 3, 4], **loop),
            turn(name, 2, prompt_marks=[1, 9, 3, 4], usage=Usage(input_text=1000, output_text=10), **loop),
            turn(name, 3, operation="execute_tool", model="github__search", tools=["github__search"], tool_marks=[5]),
            turn(name, 4, session="s2", tools=["Read", "Bash"], tool_marks=[1, 2], tool_calls=2),
            turn(name, 5, who=other, cost_pico_usd=5 * 10**10),
            turn(name, 6, session="", cost_pico_usd=10**10),
        ]
    )
    return name


def test_tokens_of_every_kind_count_in_a_session_and_its_turns(
    reader: StoreClient, record: Callable[[Sequence[RequestRecord]], None]
) -> None:
    name = f"t-{uuid4().hex[:8]}"
    usage = Usage(**{leaf: 1 << place for place, leaf in enumerate(LEAVES)})
    record([turn(name, 0, usage=usage)])
    (session,) = agent_sessions(reader, scope_of(name))
    (by_repository,) = agent_groups(reader, scope_of(name), by="repo")
    (only,) = session_turns(reader, scope_of(name), name, "key_1", "s1", CardList((), ()))
    for found in (session, by_repository, only):
        assert (found.input_tokens, found.output_tokens) == (usage.input_tokens, usage.output_tokens), found
        assert found.cached_tokens == usage.cache_read_tokens, found


def scope_of(tenant: str) -> Scope:
    return Scope(NOW - timedelta(hours=1), NOW + timedelta(hours=1), tenant=tenant)


def test_sessions_are_one_keys_and_the_most_expensive_comes_first(reader: StoreClient, tenant: str) -> None:
    dear, first, second = agent_sessions(reader, scope_of(tenant))
    assert (dear.id, dear.key_id, dear.developer, dear.repo) == ("s1", "key_2", "key_2", "acme/api")
    assert (first.id, first.key_id, first.developer) == ("s1", "key_1", "ada")
    assert (first.repo, first.branch, first.pull_request) == ("acme/shop", "main", "7")
    assert (first.turns, first.tool_calls, first.cost_usd) == (3, 3, Decimal("0.004"))
    assert (first.longest_run, first.loops) == (3, True)
    assert (second.id, second.longest_run, second.loops) == ("s2", 1, False)
    assert first.models == ("claude", "github__search")


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("repo", {"acme/shop": 5, "acme/api": 50}),
        ("pr", {"acme/shop 7": 5, "": 50}),
        ("developer", {"ada": 5, "key_2": 50}),
        ("agent", {"": 55}),
        ("tool", {"": 50, "Bash": 3, "github__search": 1, "Bash, Read": 1}),
    ],
)
def test_groups_add_up_to_what_sessions_cost(reader: StoreClient, tenant: str, by: Any, names: dict[str, int]) -> None:
    groups: tuple[AgentGroup, ...] = agent_groups(reader, scope_of(tenant), by)
    assert {group.name: group.cost_usd for group in groups} == {
        name: Decimal(count) / 1000 for name, count in names.items()
    }


def test_a_sessions_turns_say_what_was_cached_what_it_saved_and_which_edit_broke_the_prefix(
    reader: StoreClient, tenant: str
) -> None:
    cards = CardList((CARD,), ())
    turns = session_turns(reader, scope_of(tenant), tenant, "key_1", "s1", cards)
    assert [one.operation for one in turns] == ["chat"] * 3 + ["execute_tool"]
    written, read, broken, called = turns
    assert (written.written_tokens, written.saved_usd) == (1000, Decimal("-0.00075"))
    assert (read.cached_tokens, read.saved_usd) == (900, Decimal("0.00243"))
    assert (read.broken_by, read.lost_tokens) == ("the provider had evicted it", 100)
    assert (broken.broken_by, broken.lost_tokens) == ("the instructions changed", 900)
    assert [one.repeats for one in turns] == [1, 2, 3, 0]
    assert broken.is_loop and called.is_tool_call and called.saved_usd is None


def test_what_a_cache_saved_is_priced_at_the_service_tier_of_the_turn(
    reader: StoreClient, record: Callable[[Sequence[RequestRecord]], None]
) -> None:
    name = f"t-{uuid4().hex[:8]}"
    record(
        [
            turn(name, 0, service_tier="flex"),
            turn(name, 1, price_version="v1#batch"),
            turn(name, 2, service_tier="priority"),
        ]
    )
    tiers: Any = {"flex": {"input_text": 1_500_000}, "batch": {"input_text": 2_000_000}}
    card = PriceCard("claude", "v1", NOW - timedelta(days=9), RATES, service_tiers=tiers)
    turns = session_turns(reader, scope_of(name), name, "key_1", "s1", CardList((card,), ()))
    saved = [None if one.saved_usd is None else one.saved_usd * 10**6 for one in turns]
    assert saved == [900 * Decimal("1.2"), 900 * Decimal("1.7"), None], "priority has no price"


@pytest.mark.parametrize("by", ["session", "repo", "branch", "pr", "agent", "tool"])
def test_the_cost_report_by_what_agents_say_adds_up_to_the_tenants_total(
    reader: StoreClient, tenant: str, by: str
) -> None:
    scope = scope_of(tenant)
    whole = cost_report(reader, CostQuestion(scope.start, scope.end, (), tenant=tenant))
    report = cost_report(reader, CostQuestion(scope.start, scope.end, (by,), tenant=tenant), with_attempts=True)
    assert report.total.cost_pico_usd == whole.total.cost_pico_usd == 65 * 10**9
    found = {line.path[0]: line.sums.cost_pico_usd for line in report.lines}
    wanted = {
        "session": {"s1": 54, "s2": 1, "": 10},
        "repo": {"acme/shop": 15, "acme/api": 50},
        "branch": {"main": 15, "": 50},
        "pr": {"7": 15, "": 50},
        "agent": {"": 65},
        "tool": {"Bash": 3, "Bash,Read": 1, "github__search": 1, "": 60},
    }[by]
    assert found == {name: thousandths * 10**9 for name, thousandths in wanted.items()}
