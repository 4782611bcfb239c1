"""Region pins through the whole gateway: whatever fails, is tried again, judged or kept, nothing is asked outside."""

from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from contracts.errors import ConfigurationError
from contracts.serving.pool_choices import POLICY_NAMES

REGIONS = ("eu", "us", "ap")
MODELS = ("a", "b", "c")
FAULTS: list[dict[str, Any]] = [{}, {}, {"fault": "error"}, {"fault": "refuse"}, {"fault": "break"}, {"first_ms": 40}]

_PHASES = (Phase.generate,)  # each example starts a gateway: making a failure small would take minutes

Strategy = st.SearchStrategy[Any]

targets = st.tuples(st.sampled_from(["", *REGIONS]), st.sampled_from(FAULTS))
pools = st.fixed_dictionaries({model: st.lists(targets, min_size=1, max_size=4) for model in MODELS})
policies = st.sampled_from(POLICY_NAMES)
pins = st.lists(st.sampled_from(REGIONS), max_size=2, unique=True)
entries: Strategy = st.fixed_dictionaries({"model": st.sampled_from(MODELS)}, optional={"regions": pins})
_always: dict[str, Strategy] = {
    "choose": st.lists(entries, min_size=1, max_size=3, unique_by=lambda entry: entry["model"]),
    "fallbacks": st.lists(entries, max_size=2),
    "regions": pins,
}
_perhaps: dict[str, Strategy] = {"cascade": st.just({}), "cache": st.just({}), "latency_budget_ms": st.just(1)}
routes: Strategy = st.fixed_dictionaries(_always, optional=_perhaps)


def configuration_of(kit, pools, policy, routes):
    made = []
    for model, listed in pools.items():
        specs = []
        for number, (region, fault) in enumerate(listed):
            specs.append(kit.scripted(f"{model}{number}", tokens=2, **fault) | {"region": region})
        made.append((model, specs))
    config = kit.configuration(*made)
    for pool in config["pools"]:
        failures = {"retries": 1, "backoff_seconds": 0.001, "breaker": None}
        pool |= {"policy": policy, "failures": failures | {"hedge": {"least_seconds": 0.005, "share": 1.0}}}
    config["routes"] = [{"name": f"r{number}", **rules} for number, rules in enumerate(routes)]
    return config


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture], phases=_PHASES)
@given(pools, policies, st.lists(routes, min_size=1, max_size=6), st.booleans())
async def test_no_try_of_a_pinned_route_is_outside_its_regions(start_gateway, kit, pools, policy, routes, stream):
    config = configuration_of(kit, pools, policy, routes)
    gateway = None
    while gateway is None and config["routes"]:  # what no target is left for is refused, each with its place
        try:
            gateway = await start_gateway(config)
        except ConfigurationError as refused:
            del config["routes"][int(refused.message.split("routes.")[1].split(".")[0].split(":")[0])]
    if gateway is None:
        return
    for pool in config["pools"]:
        firsts = gateway.gateway.health_book.pool(pool["name"]).firsts
        for _ in range(20):  # so that who is late is hedged
            firsts.add(1_000_000)
    pinned = {route["name"]: set(route["regions"]) for route in config["routes"]}
    for name in pinned:
        for number in range(2):
            await gateway.chat(model=name, stream=stream, messages=[{"role": "user", "content": f"{number // 2}"}])
    tried = {record.request_id: record.route for record in gateway.requests()}
    assert len(tried) == 2 * len(pinned)
    for record in [*gateway.requests(), *gateway.attempts()]:
        pin = pinned[tried[record.request_id]]
        assert not pin or not record.replica or record.region in pin
    await gateway.gateway.stop()
