"""Who may have a plan: whatever bounds a key, a tenant or an address holds with a plan as along all stages."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.gateway.apis.native import provider
from tests.gateway.request.pair import RULES, Pair, facts
from tests.gateway.request.test_planned_messages import SPOKEN, names

CALLERS: dict[str, dict[str, Any]] = {
    "any": {},
    "another model alone": {"models": ["other"]},
    "this model": {"models": ["mock"]},
    "no model": {"models": []},
    "chats alone": {"endpoints": ["chat.completions"]},
    "messages alone": {"endpoints": ["messages"]},
    "elsewhere": {"addresses": ["10.0.0.0/8"]},
    "here": {"addresses": ["127.0.0.0/8"]},
    "a batch": {"priority": "batch"},
    "little thought": {"max_thinking_tokens": 1},
    "no effort": {"max_reasoning_effort": "none"},
    "of a tenant that is not": {"tenant": "gone"},
    "expired": {"expires_at": datetime(2020, 1, 1, tzinfo=UTC)},
    "with a limit": {"tenant": "limited"},
    "with a budget": {"tenant": "poor"},
    "with a limit by end user": {"tenant": "watched"},
}
MOST: dict[str, Any] = {
    "limits": [
        *RULES["limits"],
        {"tenant": "limited", "metric": "requests", "window": "minute", "amount": 2, "level": "tenant"},
        {"tenant": "watched", "metric": "requests", "window": "minute", "amount": 2, "level": "user", "subject": "*"},
    ],
    "budgets": [
        *RULES["budgets"],
        {"tenant": "poor", "period": "month", "amount_usd": "0.0003", "level": "tenant"},
    ],
}
OWN = ("gaps", "gap_clock", "ttft_ns", "response_bytes", "prompt_marks")


def key_of(name: str) -> str:
    return "tk-" + "".join(one if one.isalnum() else "-" for one in name).ljust(43, "x")


@pytest.fixture
async def both(start_gateway, kit, upstream, monkeypatch):
    def answer(request):
        if request.line.startswith("POST /v1/messages"):
            return upstream.whole(json.dumps(provider.message({"type": "text", "text": "yes"})).encode())
        return upstream.whole(upstream.completion(prompt=17, output=9))

    upstream.answering(answer)
    target = kit.http_target(upstream.url, "u0", **SPOKEN)
    config = kit.configuration(("mock", [target]), ("other", [target]), **MOST)
    config["keys"] = [
        {"key": key_of(name), "id": f"key_{number}", "tenant": "acme", **bounds}
        for number, (name, bounds) in enumerate(CALLERS.items())
    ]
    return Pair(await start_gateway(config), await start_gateway(config), monkeypatch)


async def ask(both, kit, path, key, header):
    """Ask both as a caller; return the statuses that they answer with, which are the same."""
    sent = {"Authorization": f"Bearer {key}"} if header == "authorization" else {"Authorization": "", header: key}
    body: dict[str, Any] = {"model": "mock", "max_tokens": 50, "messages": [{"role": "user", "content": "hi"}]}
    body |= {"metadata": {"user_id": "ada"}} if path == "/v1/messages" else {"user": "ada"}
    data = kit.request(json.dumps(body).encode(), sent, path=path)
    short, long = [await each.ask(data) for each in (both.short, both.long)]
    assert (short.status, names(short)) == (long.status, names(long)), (path, header)
    return short


@pytest.mark.parametrize("header", ["authorization", "x-api-key", "api-key"])
async def test_whatever_bounds_a_caller_holds_alike(both, kit, header):
    for path in ("/v1/chat/completions", "/v1/messages"):
        for name in CALLERS:
            statuses = [(await ask(both, kit, path, key_of(name), header)).status for _ in range(4)]
            is_open = {"another model alone": 404, "no model": 404, "elsewhere": 403, "expired": 401}.get(name, 200)
            if name == ("messages alone" if path == "/v1/chat/completions" else "chats alone"):
                is_open = 403
            assert statuses[0] in (is_open, 429, 402), name
            assert set(statuses) == {is_open} or name in ("with a limit", "with a budget", "with a limit by end user")
    records = [[facts(one) for one in each.requests()] for each in (both.short, both.long)]
    for one, other in zip(*records, strict=True):
        assert {name: (one[name], other[name]) for name in one if one[name] != other[name] and name not in OWN} == {}
    assert any(both.taken) == (header != "api-key")
    for each in (both.short, both.long):
        assert each.gateway.admission.in_flight == each.gateway._dispatcher.open_grants == 0


def changed(snapshot, **fields):
    """Return a configuration whose keys all differ so."""
    keys = {digest: _with(entry, **fields) for digest, entry in snapshot.keys.items()}
    return replace(snapshot, keys=keys)


def _with(entry, **fields):
    import msgspec

    return msgspec.structs.replace(entry, **fields)


@pytest.mark.parametrize("header", ["authorization", "x-api-key"])
@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"revoked_at_ns": 1}, 401),
        ({"expires_at_ns": 1}, 401),
        ({"models": frozenset(("other",))}, 404),
        ({"endpoints": frozenset(("embeddings",))}, 403),
    ],
)
async def test_what_is_taken_from_a_caller_is_seen_at_the_next_request(both, kit, header, fields, status):
    for path in ("/v1/chat/completions", "/v1/messages"):
        for _ in range(2):
            assert (await ask(both, kit, path, key_of("any"), header)).status == 200
    assert both.taken[1] and both.taken[3]
    for each in (both.short, both.long):
        directory = each.gateway.directory
        directory.snapshot = changed(directory.snapshot, **fields)
    both.taken.clear()
    for path in ("/v1/chat/completions", "/v1/messages"):
        assert (await ask(both, kit, path, key_of("any"), header)).status == status
    assert both.taken == [False, False]


async def test_a_key_that_ends_while_its_plan_is_kept_is_refused_in_time(both, kit):
    for each in (both.short, both.long):
        directory = each.gateway.directory
        ends_ns = each.gateway._clock.wall_ns() + round(timedelta(seconds=0.5) / timedelta(microseconds=1)) * 1000
        directory.snapshot = changed(directory.snapshot, revoked_at_ns=ends_ns)
    plans = both.short.gateway._dispatcher.plans
    for _ in range(2):
        await both.short.ask(kit.request(model="mock", headers={"x-api-key": key_of("any"), "Authorization": ""}))
    assert all(kept.until_ns <= ends_ns for kept in plans.known.values())
