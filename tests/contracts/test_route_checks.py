"""Routes that cannot stand: named by what is wrong with them, and left out with all that leads to them."""

import pytest

from contracts.errors import ConfigurationError
from contracts.serving.configuration import ModelSpec, PoolSpec, TargetSpec
from contracts.serving.route_checks import MAX_DEPTH, Serving, find_faults, sound_routes
from contracts.serving.routes import Hours, route_spec


def serving(**rules):
    pool = PoolSpec("p", (TargetSpec("t", "p", "openai_http", provider="azure", region="eu"),))
    routes = {name: route_spec(name, given) for name, given in rules.items()}
    return Serving(routes, {"m": ModelSpec("m", "p")}, {"p": pool})


def leads(*to, **more):
    return {"choose": [{"route": name, "label": str(n)} for n, name in enumerate(to)], **more}


M = {"choose": [{"model": "m"}]}


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"choose": []}, "dead end"),
        ({"choose": [{}]}, "either a model or a route"),
        ({"choose": [{"model": "m", "route": "r"}]}, "either a model or a route"),
        ({"choose": [{"model": "m", "weight": 0}]}, "weight of 'm' must be 1"),
        ({"choose": [{"model": "m", "weight": -1}]}, "weight of 'm' must be 1"),
        ({"choose": [{"model": "m"}, {"model": "m"}]}, "two entries 'm'"),
        ({"choose": [{"model": "m", "when": {"tenants": ["a"]}}]}, "refuses_unmatched"),
        ({"choose": [{"model": "m", "when": {"min_prompt_tokens": 5, "max_prompt_tokens": 4}}]}, "no prompt fits"),
        ({"choose": [{"model": "m", "when": {"min_budget_left": 1.0001}}]}, "min_budget_left must be 0 to 1"),
        ({"choose": [{"model": "m", "when": {"min_budget_left": -0.1}}]}, "min_budget_left must be 0 to 1"),
        ({"choose": [{"model": "m", "when": {"ttft_objective_ms": 1, "slo_headroom": 2}}]}, "slo_headroom must be 0"),
        ({"choose": [{"model": "m", "when": {"slo_headroom": 0.5}}]}, "needs ttft_objective_ms"),
        ({"choose": [{"model": "m", "when": {"hours": "8-9"}}]}, "hours are written like"),
        ({"choose": [{"model": "m", "when": {"hours": "08:00-24:00"}}]}, "hours are written like"),
        ({"choose": [{"model": "m", "when": {"hours": "08:00-09:00", "time_zone": "Mars/Base"}}]}, "Mars/Base"),
        ({"choose": [{"model": "m", "when": {"max_cost_usd": "0"}}]}, "above 0"),
        ({"choose": [{"model": "m", "when": {"max_cost_usd": "NaN"}}]}, "above 0"),
        (
            {"choose": [{"model": "m", "when": {"intent": "code"}}, {"model": "m", "label": "x"}]},
            "the route knows none",
        ),
        ({**M, "cascade": {"min_mean_logprob": 0.1}}, "-100 to 0"),
        ({**M, "cascade": {"on_refusal": False, "on_schema_failure": False}}, "a condition to escalate"),
        ({**M, "latency_budget_ms": 0}, "latency_budget_ms must be 1"),
        ({**M, "colour": "red"}, "colour"),
        ({**M, "semantic": 5}, "semantic must be an object"),
        ({**M, "cache": {"ttl_seconds": -1}}, "ttl_seconds"),
    ],
)
def test_a_route_that_contradicts_itself_is_refused_by_name(rules, message):
    with pytest.raises(ConfigurationError) as refused:
        route_spec("r", rules)
    assert refused.value.message.startswith("route 'r'") and message in refused.value.message


@pytest.mark.parametrize(
    ("routes", "route", "place", "message"),
    [
        ({"m": M}, "m", (), "has the name of a model"),
        ({"r": {"choose": [{"model": "x"}]}}, "r", ("choose", 0, "model"), "leads to model 'x'"),
        ({"r": leads("x")}, "r", ("choose", 0, "route"), "leads to route 'x'"),
        ({"r": leads("r")}, "r", ("choose", 0), "comes to a loop: r -> r"),
        ({"r": leads("s"), "s": leads("r")}, "r", ("choose", 0), "comes to a loop: r -> s -> r"),
        ({"r": {**M, "regions": ["us"]}}, "r", ("choose", 0), "is a dead end at 'm'"),
        ({"r": {"choose": [{"model": "m", "provider": "aws"}]}}, "r", ("choose", 0), "provider 'aws'"),
        ({"r": leads("s", regions=["us"]), "s": {**M, "regions": ["eu"]}}, "r", ("choose", 0), "is a dead end at 'm'"),
    ],
)
def test_what_does_not_fit_together_is_found_at_its_place(routes, route, place, message):
    fault = next(fault for fault in find_faults(serving(**routes)) if fault.route == route)
    assert fault.place == place and message in fault.message


def test_a_sound_route_has_no_fault():
    rules = {"r": leads("s", regions=["eu", "us"]), "s": {"choose": [{"model": "m", "provider": "azure"}]}}
    assert find_faults(serving(**rules)) == []


def test_routes_that_lead_to_one_at_fault_are_left_out_with_it():
    kept, faults = sound_routes(serving(bad={"choose": [{"model": "x"}]}, to_bad=leads("bad"), good=M))
    assert list(kept) == ["good"] and [fault.route for fault in faults] == ["bad", "to_bad"]


def test_a_chain_of_routes_has_an_end():
    chain = {f"r{n}": leads(f"r{n + 1}") for n in range(MAX_DEPTH)} | {f"r{MAX_DEPTH}": M}
    [fault] = find_faults(serving(**chain))
    assert fault.route == "r0" and f"the maximum is {MAX_DEPTH} routes" in fault.message


def test_a_route_comes_to_so_many_models_and_no_more():
    fan = {"choose": [{"model": "m", "label": str(n)} for n in range(64)]}
    four, five = leads(*["fan"] * 4), leads(*["fan"] * 5)
    assert find_faults(serving(fan=fan, r=four)) == []
    assert "more than 256 models" in find_faults(serving(fan=fan, r=five))[0].message


def test_hours_run_over_midnight():
    night = Hours.parse("22:00-06:00")
    assert [night.holds_at(minute) for minute in (21 * 60 + 59, 22 * 60, 5 * 60 + 59, 6 * 60)] == [
        False,
        True,
        True,
        False,
    ]
