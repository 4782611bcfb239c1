"""Sections of the YAML file, built and checked: failures, routes, rollouts, guardrails, MCP servers and tools."""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

from contracts.errors import ConfigurationError
from contracts.guardrails.policy import GuardrailPolicy, policy_of
from contracts.mcp.plain import mcp_server_of, tool_rule_of
from contracts.mcp.servers import MAX_RULES, MAX_SERVERS, McpServerSpec, ToolRule
from contracts.serving.configuration import ModelSpec, PoolSpec
from contracts.serving.failures import DEFAULT_FAILURES, FailurePolicy, Playbook
from contracts.serving.rollout_checks import fault_of
from contracts.serving.rollouts import RolloutSpec, rollout_rules
from contracts.serving.route_checks import Serving, find_faults
from contracts.serving.routes import RouteSpec
from gateway.config.entries import ConfigurationFile, ConfiguredPool
from gateway.config.rules import Misplaced, Place

_SALT_BYTES: Final = 16


def pool_failures(number: int, pool: ConfiguredPool) -> FailurePolicy:
    """Return a pool's failure policy. Raises Misplaced."""
    try:
        return DEFAULT_FAILURES if pool.failures is None else pool.failures.policy()
    except ConfigurationError as error:
        raise Misplaced(("pools", number, "failures"), error.message) from error


def build_playbooks(parsed: ConfigurationFile, pools: Mapping[str, PoolSpec]) -> dict[str, Playbook]:
    """Return the playbooks by provider. Raises Misplaced if one names a provider that no target has."""
    providers = {target.provider or target.kind for pool in pools.values() for target in pool.targets}
    playbooks: dict[str, Playbook] = {}
    for number, given in enumerate(parsed.playbooks):
        try:
            playbook = given.playbook()
        except ConfigurationError as error:
            raise Misplaced(("playbooks", number), error.message) from error
        for field, name in [("provider", playbook.provider), *[("then", name) for name in playbook.then]]:
            if name not in providers:
                known = ", ".join(sorted(providers))
                raise Misplaced(("playbooks", number, field), f"no target is of provider {name!r}; known: {known}")
        playbooks[playbook.provider] = playbook
    return playbooks


def build_routes(
    file: ConfigurationFile, models: Mapping[str, ModelSpec], pools: Mapping[str, PoolSpec]
) -> dict[str, RouteSpec]:
    """Build the routes. Raises Misplaced on the first invalid one, naming the field."""
    routes: dict[str, RouteSpec] = {}
    places: dict[str, int] = {}
    for number, given in enumerate(file.routes):
        places[given.name] = number
        try:
            routes[given.name] = given.spec(given.name)
        except ConfigurationError as error:
            raise Misplaced(("routes", number), error.message) from error
    for fault in find_faults(Serving(routes, models, pools)):
        raise Misplaced(("routes", places[fault.route], *fault.place), fault.message)
    return routes


def build_rollouts(file: ConfigurationFile, serving: Serving) -> dict[str, RolloutSpec]:
    """Build the rollouts, by route. Raises Misplaced on the first invalid one.

    The rollout's name determines which participants get the candidate: a renamed rollout selects others.
    """
    found: dict[str, RolloutSpec] = {}
    for number, given in enumerate(file.rollouts):
        try:
            spec = RolloutSpec(
                id=given.name,
                route=given.route,
                incumbent=given.incumbent,
                candidate=given.candidate,
                rules=rollout_rules(given.rules()),
                salt=blake2b(given.name.encode(), digest_size=_SALT_BYTES).digest(),
            )
        except ConfigurationError as error:
            raise Misplaced(("rollouts", number), error.message) from error
        fault = fault_of(spec, serving)
        if fault is not None:
            raise Misplaced(("rollouts", number), fault.message)
        if spec.route in found:
            raise Misplaced(
                ("rollouts", number), f"route {spec.route!r} has the rollout {found[spec.route].id!r} already"
            )
        found[spec.route] = spec
    return found


def build_guardrails(parsed: ConfigurationFile) -> tuple[GuardrailPolicy, ...]:
    """Build the policies in order. Raises Misplaced if one is invalid."""
    found = []
    for number, given in enumerate(parsed.guardrails):
        try:
            found.append(policy_of(given.name, given.model_dump(exclude={"name"})))
        except ConfigurationError as error:
            raise Misplaced(("guardrails", number), error.message) from error
    return tuple(found)


def build_mcp_servers(file: ConfigurationFile) -> dict[str, McpServerSpec]:
    """Return the MCP servers by name. Raise Misplaced on the first invalid one."""
    if len(file.mcp_servers) > MAX_SERVERS:
        raise Misplaced(("mcp_servers",), f"there are {len(file.mcp_servers)} servers; {MAX_SERVERS} is the most")
    servers = {}
    for number, given in enumerate(file.mcp_servers):
        try:
            servers[given.name] = mcp_server_of(given.name, given.rules())
        except ConfigurationError as error:
            raise _misplaced(("mcp_servers", number), error) from error
    return servers


def build_tool_rules(file: ConfigurationFile) -> tuple[ToolRule, ...]:
    """Return the tool rules. Raise Misplaced on the first invalid one."""
    if len(file.tool_rules) > MAX_RULES:
        raise Misplaced(("tool_rules",), f"there are {len(file.tool_rules)} rules; {MAX_RULES} is the most")
    rules = []
    for number, given in enumerate(file.tool_rules):
        try:
            rules.append(tool_rule_of(given.name, given.rules()))
        except ConfigurationError as error:
            raise _misplaced(("tool_rules", number), error) from error
    return tuple(rules)


def _misplaced(place: Place, error: ConfigurationError) -> Misplaced:
    return Misplaced((*place, error.param) if error.param else place, error.message)
