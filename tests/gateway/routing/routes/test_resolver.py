"""Which models a route leads to, in which order: conditions at their bounds, weights, pins that nothing leaves."""

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.recording.moments import unix_ns
from contracts.serving.configuration import ModelSpec, PoolSpec, TargetSpec
from contracts.serving.route_checks import Serving, sound_routes
from contracts.serving.routes import RouteSpec, route_spec
from gateway.routing.routes.facts import Reading, RequestFacts
from gateway.routing.routes.pace import PaceBook
from gateway.routing.routes.resolver import Resolver
from gateway.routing.routes.route_plan import plan_route
from gateway.routing.routes.turns import Turns
from tests.gateway.routing.routes.test_pace import answer

REGIONS = ("eu", "us", "ap", "")
ASKED = RequestFacts("acme", at_ns=unix_ns(datetime(2026, 11, 21, 9, 30, tzinfo=UTC)))  # a Saturday


@dataclass
class Standing:
    """What is said of every model, and of single ones."""

    tokens: int | None = None
    left: float | None = None
    cost: int | None = None
    ttft: dict = field(default_factory=dict)
    seconds: dict = field(default_factory=dict)
    due: tuple = ()
    probed: list = field(default_factory=list)
    left_out: list = field(default_factory=list)

    def prompt_tokens(self, model):
        return self.tokens

    def budget_left(self, model):
        return self.left

    def cost_pico_usd(self, model):
        return self.cost

    def ttft_seconds(self, model):
        return self.ttft.get(model.id)

    def answer_seconds(self, leg):
        return self.seconds.get(leg.model.id)

    def may_probe(self, model):
        return model.id in self.due

    def begin_probe(self, model):
        self.probed.append(model.id)

    def leave_out(self, model):
        self.left_out.append(model.id)


def serving_of(routes=(), **regions_of_models) -> Serving:
    """Models with one target for each of their regions."""
    pools = {
        name: PoolSpec(name, tuple(TargetSpec(f"{name}{n}", name, "scripted", region=r) for n, r in enumerate(regions)))
        for name, regions in (regions_of_models or {"a": ("",), "b": ("",), "c": ("",)}).items()
    }
    models = {name: ModelSpec(name, name) for name in pools}
    return Serving({route.id: route for route in routes}, models, pools)


def order_of(rules, asked=ASKED, standing=None, turns=None, serving=None):
    route = rules if isinstance(rules, RouteSpec) else route_spec("r", rules)
    plan = plan_route(route, serving or serving_of((route,)))
    return Resolver(asked, standing or Standing(), turns or Turns()).order(plan)


def models_of(rules, **more):
    return [leg.model.id for leg in order_of(rules, **more).legs]


def conditioned(**when):
    return {"choose": [{"model": "a", "when": when}], "fallbacks": [{"model": "b"}]}


AT = {"at_ns": ASKED.at_ns}


@pytest.mark.parametrize(
    ("when", "asked", "standing", "holds"),
    [
        ({"tenants": ["acme"]}, {}, {}, True),
        ({"tenants": ["acm"]}, {}, {}, False),
        ({"tags": {"tier": "gold"}}, {"tags": {"tier": "gold", "x": "y"}}, {}, True),
        ({"tags": {"tier": "gold"}}, {"tags": {"tier": "golden"}}, {}, False),
        ({"tags": {"tier": "*"}}, {"tags": {"tier": "any"}}, {}, True),
        ({"tags": {"tier": "*"}}, {}, {}, False),
        ({"min_prompt_tokens": 10}, {}, {"tokens": 9}, False),
        ({"min_prompt_tokens": 10}, {}, {"tokens": 10}, True),
        ({"max_prompt_tokens": 10}, {}, {"tokens": 10}, True),
        ({"max_prompt_tokens": 10}, {}, {"tokens": 11}, False),
        ({"regions": ["eu"]}, {"region": "eu"}, {}, True),
        ({"regions": ["eu"]}, {}, {}, False),
        ({"days": ["sat"]}, {}, {}, True),
        ({"days": ["mon", "sun"]}, {}, {}, False),
        ({"hours": "09:30-10:00"}, {}, {}, True),
        ({"hours": "09:00-09:30"}, {}, {}, False),
        ({"hours": "22:00-09:31"}, {}, {}, True),
        ({"hours": "22:00-09:30"}, {}, {}, False),
        ({"hours": "10:30-10:31", "time_zone": "Europe/Berlin"}, {}, {}, True),
        ({"min_budget_left": 0.2}, {}, {"left": 0.2}, True),
        ({"min_budget_left": 0.2}, {}, {"left": 0.19}, False),
        ({"min_budget_left": 0.2}, {}, {"left": None}, True),
        ({"max_cost_usd": "0.000001"}, {}, {"cost": 1_000_000}, True),
        ({"max_cost_usd": "0.000001"}, {}, {"cost": 1_000_001}, False),
        ({"max_cost_usd": "1"}, {}, {"cost": None}, False),
        ({"ttft_objective_ms": 500}, {}, {"ttft": {"a": 0.5}}, True),
        ({"ttft_objective_ms": 500}, {}, {"ttft": {"a": 0.501}}, False),
        ({"ttft_objective_ms": 500, "slo_headroom": 0.2}, {}, {"ttft": {"a": 0.401}}, False),
        ({"ttft_objective_ms": 500, "slo_headroom": 0.2}, {}, {}, True),
    ],
)
def test_a_condition_holds_up_to_its_bound_and_no_further(when, asked, standing, holds):
    order = order_of(conditioned(**when), asked=replace(ASKED, **asked), standing=Standing(**standing))
    assert [leg.model.id for leg in order.legs] == (["a", "b"] if holds else ["b"])
    assert bool(order.skipped) is not holds


SEMANTIC = {"intents": [{"name": n, "utterances": [f"{n} {i}" for i in range(6)]} for n in ("code", "chat")]}


def test_what_a_prompt_reads_as_opens_the_entries_for_it_and_abstention_leaves_the_default():
    rules = {
        "semantic": SEMANTIC,
        "choose": [{"model": "a", "when": {"intent": "code"}}, {"model": "b", "when": {"intent": "chat"}}],
        "fallbacks": [{"model": "c"}],
    }
    for intent, expected in (("code", ["a", "c"]), ("chat", ["b", "c"]), (None, ["c"])):
        assert models_of(rules, asked=replace(ASKED, readings={"r": Reading(intent)})) == expected


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(1, 3))
def test_over_every_turn_each_entry_is_first_exactly_its_weight(weights, rounds):
    serving = serving_of(**{f"m{number}": ("",) for number in range(len(weights))})
    rules = {"choose": [{"model": f"m{number}", "weight": weight} for number, weight in enumerate(weights)]}
    turns = Turns()
    for _ in range(rounds):
        firsts = Counter(models_of(rules, turns=turns, serving=serving)[0] for _ in range(sum(weights)))
        assert firsts == {f"m{number}": weight for number, weight in enumerate(weights)}


def test_what_is_predicted_too_slow_goes_last_the_quickest_of_it_first():
    rules = {"choose": [{"model": "a"}], "fallbacks": [{"model": "b"}, {"model": "c"}], "latency_budget_ms": 1000}
    assert models_of(rules, standing=Standing(seconds={"a": 1.0, "b": 9})) == ["a", "c", "b"]
    late = order_of(rules, standing=Standing(seconds={"a": 1.001, "b": 9, "c": 5}))
    assert [leg.model.id for leg in late.legs] == ["a", "c", "b"] and late.late == ["a", "c", "b"]


def test_a_callers_shorter_budget_holds_and_a_longer_one_does_not():
    rules = {"choose": [{"model": "a"}], "fallbacks": [{"model": "b"}], "latency_budget_ms": 1000}
    standing = Standing(seconds={"a": 0.9, "b": 0.1})
    for budget, expected in ((899, ["b", "a"]), (900, ["a", "b"]), (5000, ["a", "b"])):
        assert models_of(rules, asked=replace(ASKED, latency_budget_ms=budget), standing=standing) == expected


def test_a_cascade_asks_in_its_order():
    rules = {"choose": [{"model": "a"}, {"model": "b", "weight": 9}], "cascade": {}}
    turns = Turns()
    assert all(models_of(rules, turns=turns) == ["a", "b"] for _ in range(5))


def test_a_request_that_no_entry_takes_may_be_taken_later_where_time_is_what_it_lacks():
    rules = {"choose": [{"model": "a", "when": {"hours": "22:00-06:00"}}], "refuses_unmatched": True}
    assert order_of(rules).legs == [] and order_of(rules).may_pass
    assert not order_of({**rules, "choose": [{"model": "a", "when": {"tenants": ["b"]}}]}).may_pass


names = st.sampled_from(["a", "b", "c"])
pins = st.lists(st.sampled_from(REGIONS[:3]), max_size=2, unique=True)
entries = st.fixed_dictionaries(
    {},
    optional={"regions": pins, "weight": st.integers(1, 5), "when": st.just({"tags": {"t": "*"}})},
)
leaves = st.tuples(entries, names).map(lambda pair: {**pair[0], "model": pair[1]})
further = st.tuples(entries, st.sampled_from(["inner", "deeper"])).map(lambda pair: {**pair[0], "route": pair[1]})
worlds = st.fixed_dictionaries({name: st.lists(st.sampled_from(REGIONS), min_size=1, max_size=3) for name in "abc"})


def rules_of(steps, extra):
    unique = {(entry.get("model"), entry.get("route")): entry for entry in steps}
    return st.fixed_dictionaries({"choose": st.just(list(unique.values())), "refuses_unmatched": st.just(True)} | extra)


def routes_of(ways):
    listed = st.lists(ways, min_size=1, max_size=3)
    return st.tuples(listed, st.lists(ways, max_size=2), pins).flatmap(
        lambda parts: rules_of(parts[0], {"fallbacks": st.just(parts[1]), "regions": st.just(parts[2])})
    )


@settings(max_examples=60)
@given(
    worlds,
    routes_of(leaves | further),
    routes_of(leaves),
    routes_of(leaves | further),
    st.booleans(),
    st.text(max_size=3),
)
def test_nothing_that_a_pinned_route_leads_to_is_outside_its_regions(
    world, top, deeper, inner, is_tagged, conversation
):
    routes = [route_spec(name, rules) for name, rules in (("top", top), ("deeper", deeper), ("inner", inner))]
    kept, _ = sound_routes(serving_of(routes, **world))
    serving = serving_of(kept.values(), **world)
    asked = replace(ASKED, tags={"t": "1"} if is_tagged else {}, conversation=conversation)
    for route in kept.values():
        plan = plan_route(route, serving)
        for leg in Resolver(asked, Standing(), Turns()).order(plan).legs:
            whole = serving.pools[leg.model.pool].targets
            ids = {target.id for target in leg.pool.targets}
            assert ids and ids == (leg.within if leg.within is not None else {target.id for target in whole})
            if route.regions:
                assert leg.regions is not None and leg.regions <= set(route.regions)
                assert all(target.region in route.regions for target in leg.pool.targets)


# probes of models whose answers came late

CHAIN = {"choose": [{"model": "a"}], "fallbacks": [{"model": "b"}, {"model": "c"}], "latency_budget_ms": 1_000}
OBJECTIVE = {"choose": [{"model": "a", "when": {"ttft_objective_ms": 100}}], "fallbacks": [{"model": "b"}]}


@pytest.mark.parametrize(
    ("rules", "standing", "models", "probed", "left_out"),
    [
        (CHAIN, {"seconds": {"a": 5}}, ["b", "c", "a"], [], ["a"]),
        (CHAIN, {"seconds": {"a": 5}, "due": ("a",)}, ["a", "b", "c"], ["a"], []),
        (CHAIN, {"seconds": {"a": 5, "b": 3}, "due": ("b",)}, ["b", "c", "a"], ["b"], ["a"]),
        (CHAIN, {"seconds": {"a": 5, "b": 3}, "due": ("a", "b")}, ["a", "c", "b"], ["a"], ["b"]),
        (CHAIN, {"seconds": {"b": 3}, "due": ("b",)}, ["a", "c", "b"], [], []),  # it would not have been asked
        (CHAIN, {"seconds": {"a": 5, "b": 3, "c": 4}}, ["b", "c", "a"], [], ["a", "b", "c"]),
        (CHAIN, {"seconds": {"a": 0.5}, "due": ("a",)}, ["a", "b", "c"], [], []),  # it is not late
        (OBJECTIVE, {"ttft": {"a": 5}}, ["b"], [], ["a"]),
        (OBJECTIVE, {"ttft": {"a": 5}, "due": ("a",)}, ["a", "b"], ["a"], []),
        (OBJECTIVE, {"ttft": {"a": 0.05}, "due": ("a",)}, ["a", "b"], [], []),
        (
            {**OBJECTIVE, "latency_budget_ms": 1_000},
            {"ttft": {"a": 5}, "seconds": {"a": 9, "b": 0.1}, "due": ("a",)},
            ["a", "b"],
            ["a"],
            [],
        ),
        (  # what is too slow for its entry is never a fallback, nor probed as one
            {"choose": [{"model": "b"}], "fallbacks": [{"model": "a", "when": {"ttft_objective_ms": 100}}]},
            {"ttft": {"a": 5}, "due": ("a",)},
            ["b"],
            [],
            ["a"],
        ),
    ],
)
def test_a_late_model_that_would_come_first_is_probed_when_that_is_due(rules, standing, models, probed, left_out):
    standing = Standing(**standing)
    assert models_of(rules, standing=standing) == models
    assert standing.probed == probed
    assert sorted(standing.left_out) == left_out


def test_a_look_at_a_route_probes_nothing():
    standing, plan = Standing(ttft={"a": 5}, due=("a",)), plan_route(route_spec("r", OBJECTIVE), serving_of())
    order = Resolver(ASKED, standing, Turns(), takes_turns=False).order(plan)
    assert ([leg.model.id for leg in order.legs], standing.probed) == (["b"], [])


class Played:
    """A route whose first model is slow until a moment, in time that is only counted."""

    def __init__(self, rules, recovers_at):
        self.plan = plan_route(route_spec("r", rules), serving_of())
        self.paces, self.turns, self.recovers_at = PaceBook(), Turns(), recovers_at

    def ask(self, at, states_budget=False):
        """Ask once; say which model answered."""

        class Now(Standing):
            def may_probe(_, model):
                return self.paces.is_probe_due(model.id, round(at * 1e9), states_budget=states_budget)

            def begin_probe(_, model):
                self.paces.begin_probe(model.id, round(at * 1e9))

            def leave_out(_, model):
                self.paces.leave_out(model.id)

            def ttft_seconds(_, model):
                return self.paces.ttft_seconds(model.id)

            def answer_seconds(_, leg):
                return self.paces.answer_seconds(leg.model.id, 10)

        model = Resolver(ASKED, Now(), self.turns).order(self.plan).legs[0].model.id
        ttft = 0.02 if model != "a" or at >= self.recovers_at else 3.0
        self.paces.learn(model, *answer(ttft, took=ttft + 0.1, ended=at + ttft + 0.1))
        return model


@pytest.mark.parametrize("rules", [CHAIN, OBJECTIVE])
@pytest.mark.parametrize("per_second", [0.1, 1, 10, 100])
def test_a_recovered_model_is_used_again_and_one_that_is_still_slow_costs_a_share(rules, per_second):
    played = Played(rules, recovers_at=300.0)
    asked = [(at, played.ask(at)) for at in [1 + n / per_second for n in range(round(400 * per_second))]]
    slow = [model for at, model in asked if 60 <= at < 300]
    most = max(len(slow) / 20, 240 / 30) + 1
    assert 1 <= slow.count("a") <= most, "one in twenty, or one in half a minute"
    back = min(at for at, model in asked if at >= 300 and model == "a")
    assert back <= 331
    assert {model for at, model in asked if at > 345} == {"a"}


def test_requests_with_a_budget_of_their_own_probe_only_where_nobody_else_comes():
    played = Played(CHAIN, recovers_at=10.0)
    for at in (1, 2, 3):
        played.ask(at)
    asked = [(at, played.ask(at, states_budget=True)) for at in range(10, 400)]
    assert min(at for at, model in asked if model == "a") in range(300, 310)
    assert {model for at, model in asked if at > 310} == {"a"}
