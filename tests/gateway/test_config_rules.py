"""Limits, budgets, tenants, queues and what keys may do, in the single YAML file; and what is refused with its line."""

import textwrap

import pytest

from contracts.errors import ConfigurationError
from contracts.rules.limits import LimitSpec, QueueSpec, Scope, TenantSpec
from contracts.serving.configuration import DEFAULT_POLICY, KeyPolicy
from gateway.config.file import FileSource

KEY, OTHER = "tk-" + "A" * 43, "tk-" + "B" * 43
GOOD = f"""\
tenants:
  - {{id: acme, weight: 4, time_zone: Europe/Berlin}}
keys:
  - key: {KEY}
    id: key_app
    tenant: acme
    team: search
    project: ranking
    addresses: [10.0.0.0/8, "2001:db8::/32"]
    endpoints: [chat.completions]
    priority: interactive
    max_reasoning_effort: low
    max_thinking_tokens: 2000
  - {{key: {OTHER}, tenant: globex}}
pools:
  - name: p
    queue:
      max_in_flight: 8
      deadline_seconds: {{batch: 60}}
    targets:
      - {{name: t, kind: scripted}}
models:
  - {{name: m, pool: p}}
limits:
  - tenant: acme
    level: tenant
    metric: requests
    window: second
    amount: 10
  - tenant: acme
    level: tenant
    metric: requests
    window: minute
    amount: 600
  - {{tenant: acme, level: key, subject: "*", metric: usd, window: day, amount_usd: "0.000000000001"}}
  - {{tenant: acme, level: team, subject: search, metric: gpu_ms, window: hour, amount: 3}}
  - {{tenant: acme, level: conversation, metric: tokens, amount: 9}}
budgets:
  - id: main
    tenant: acme
    level: project
    subject: search/ranking
    model: m
    period: month
    amount_usd: 12.50
    thresholds: [50, 100]
  - tenant: globex
    level: tenant
    period: total
    gpu_milliseconds: 7
    is_hard: false
issuers:
  - {{issuer: https://id.example, audience: gateway, tenant: acme, priority: batch}}
"""
WITHOUT_ISSUERS = GOOD[: GOOD.index("issuers:")]


@pytest.fixture
def load(tmp_path):
    def read(text):
        path = tmp_path / "gateway.yaml"
        path.write_text(textwrap.dedent(text))
        return FileSource(path, b"pepper").load()

    return read


def test_limits_and_budgets_come_in_base_units_with_their_tenants_calendar(load):
    snapshot = load(GOOD)
    second, minute, usd, gpu, conversation = snapshot.limits
    assert second == LimitSpec("acme:tenant:requests:second", Scope("acme", "tenant"), "requests", 10, "second")
    assert minute.amount == 600 and minute.when_away == "share" and minute.when_unpriced == "refuse"
    assert (usd.metric, usd.amount) == ("pico_usd", 1)
    assert (gpu.metric, gpu.amount) == ("gpu_ns", 3_000_000)
    assert conversation.window is None
    main, total = snapshot.budgets
    assert (main.id, main.metric, main.amount) == ("main", "pico_usd", 12_500_000_000_000)
    assert (main.time_zone, main.thresholds, main.scope.model) == ("Europe/Berlin", (50, 100), "m")
    assert (total.metric, total.amount, total.is_hard, total.time_zone) == ("gpu_ns", 7_000_000, False, "UTC")


def test_tenants_queues_policies_and_issuers_are_read(load):
    snapshot = load(GOOD)
    assert snapshot.tenants["acme"] == TenantSpec("acme", 4, "Europe/Berlin")
    assert snapshot.tenants["globex"] == TenantSpec("globex")
    assert snapshot.pools["p"].queue == QueueSpec(max_in_flight=8, deadline_seconds={"batch": 60.0})
    app, plain = snapshot.keys.values()
    assert app.policy == KeyPolicy(("10.0.0.0/8", "2001:db8::/32"), "interactive", "low", 2000)
    assert app.endpoints == {"chat.completions"}
    assert plain.policy is DEFAULT_POLICY and plain.endpoints is None
    (issuer,) = snapshot.issuers
    assert (issuer.tenant, issuer.user_claim, issuer.policy.priority) == ("acme", "sub", "batch")


def test_a_rule_is_named_the_same_wherever_it_stands(load):
    block = """\
  - tenant: acme
    level: tenant
    metric: requests
    window: second
    amount: 10
"""
    moved = GOOD.replace(block, "").replace("budgets:\n", block + "budgets:\n")
    assert {limit.id for limit in load(moved).limits} == {limit.id for limit in load(GOOD).limits}


SECOND = "- tenant: acme\n    level: tenant\n    metric: requests\n"  # where the second limit begins
# (what is replaced, by what, the text whose line is named, words of the message)
WRONG = {
    "a negative amount": ("amount: 600", "amount: -1", "amount: -1", ["limits.1.amount", "'-1'"]),
    "an absurd amount": ("amount: 600", f"amount: {10**18}", "amount: 1000", ["limits.1.amount", str(10**18 - 1)]),
    "a share of a request": ("amount: 600", "amount: 0.5", "amount: 0.5", ["limits.1.amount", "'0.5'"]),
    "a wider window that allows less": (
        "amount: 600",
        "amount: 9",
        SECOND,
        ["9 requests per minute", "10 requests per second", "raise"],
    ),
    "the same limit twice": ("window: minute", "window: second", SECOND, ["counts the same"]),
    "a window for concurrency": (
        "metric: requests\n    window: minute",
        "metric: concurrency\n    window: minute",
        "window: minute",
        ["limits.1.window", "takes no window"],
    ),
    "no window": ("    window: minute\n", "", SECOND, ["needs a window"]),
    "an unknown window": ("window: minute", "window: week", "window: week", ["limits.1.window", "'week'"]),
    "an unknown metric": ("metric: tokens", "metric: tokns", "metric: tokns", ["limits.4.metric", "'tokns'"]),
    "an unknown level": ("level: project", "level: group", "level: group", ["budgets.0.level", "'group'"]),
    "an unknown period": ("period: month", "period: year", "period: year", ["budgets.0.period", "'year'"]),
    "an unknown currency": (
        "period: month",
        "period: month\n    currency: EUR",
        "currency: EUR",
        ["budgets.0.currency", "amounts are in USD", "'EUR'"],
    ),
    "an unknown tenant": ("- tenant: globex", "- tenant: globx", "tenant: globx", ["budgets.1.tenant", "'globx'"]),
    "an unknown model": ("model: m\n", "model: n\n", "model: n", ["budgets.0.model", "'n'", "known: m"]),
    "an unknown team": ("subject: search,", "subject: serch,", "subject: serch,", ["limits.3.subject", "'serch'"]),
    "a project without its team": ("search/ranking", "ranking", "subject: ranking", ["'team/project'"]),
    "money finer than a pico-USD": ("12.50", '"1e-13"', '"1e-13"', ["budgets.0.amount_usd"]),
    "a budget of nothing": ("12.50", "0", "amount_usd: 0", ["budgets.0.amount_usd", "must be above 0"]),
    "both amounts": (
        "gpu_milliseconds: 7",
        "gpu_milliseconds: 7\n    amount_usd: 1",
        "gpu_milliseconds: 7",
        ["either amount_usd or gpu_milliseconds"],
    ),
    "thresholds that fall": ("[50, 100]", "[100, 50]", "thresholds: [100", ["budgets.0.thresholds", "must rise"]),
    "an end before the start": (
        "period: month",
        "period: month\n    starts_at: 2026-02-01T00:00:00Z\n    ends_at: 2026-01-01T00:00:00Z",
        "ends_at:",
        ["budgets.0.ends_at", "ends before it begins"],
    ),
    "a rule's name twice": (
        "- tenant: globex\n",
        "- id: main\n    tenant: globex\n",
        "id: main\n    tenant: globex",
        ["'main' is given twice"],
    ),
    "a tenant twice": ("tenants:\n", "tenants:\n  - {id: acme}\n", "weight: 4", ["tenant 'acme'", "twice"]),
    "a weight of nothing": ("weight: 4", "weight: 0", "weight: 0", ["tenants.0.weight", "'0'"]),
    "an unknown time zone": ("Europe/Berlin", "Mars/Base", "Mars/Base", ["tenants.0.time_zone", "Mars/Base"]),
    "an impossible queue": ("max_in_flight: 8", "max_in_flight: 0", "max_in_flight: 0", ["queue.max_in_flight"]),
    "an unknown class": ("{batch: 60}", "{bulk: 60}", "{bulk: 60}", ["deadline_seconds", "batch"]),
    "what is not a network": ("10.0.0.0/8", "10.0.0.1/8", "10.0.0.1/8", ["keys.0.addresses.0", "not a network"]),
    "an unknown effort": ("effort: low", "effort: lots", "effort: lots", ["max_reasoning_effort"]),
    "a webhook that is none": (
        "period: month",
        "period: month\n    webhook_url: ftp://h/x",
        "webhook_url",
        ["budgets.0.webhook_url", "http://"],
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_with_a_rule_is_named_with_its_line(load, name, tmp_path):
    old, new, at, words = WRONG[name]
    assert old in WITHOUT_ISSUERS
    text = WITHOUT_ISSUERS.replace(old, new, 1)
    with pytest.raises(ConfigurationError) as refused:
        load(text)
    message = refused.value.message
    line = text[: text.rindex(at)].count("\n") + 1
    assert message.startswith(f"{tmp_path / 'gateway.yaml'}, line {line}:"), message
    assert all(word in message for word in words), message
    assert "\n" not in message and KEY not in message


def test_an_issuer_that_takes_tokens_for_anyone_is_refused(load):
    with pytest.raises(ConfigurationError, match=r"issuers\.0.*either tenant or tenant_claim"):
        load(GOOD.replace("tenant: acme, priority: batch", "priority: batch"))


def test_tokens_may_bring_tenants_and_teams_that_no_key_names(load):
    text = GOOD.replace("tenant: acme, priority", "tenant_claim: org, priority").replace(
        "subject: search,", "subject: x,"
    )
    assert load(text.replace("- tenant: globex", "- tenant: initech")).budgets[1].scope.tenant == "initech"
