"""Pools, models, routes, issuers, playbooks, rollouts and guardrails as configuration."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError
from sqlalchemy import select

from backends.control.rules import FAILURES_SETTING, QUEUE_SETTING
from backends.web.invalid_input import describe_invalid
from contracts.control import (
    Guardrail,
    Issuer,
    McpServer,
    McpToolRule,
    Model,
    OutagePlaybook,
    Pool,
    Rollout,
    Route,
    Target,
)
from contracts.errors import Conflict, InvalidRequest, TollkeeperError
from contracts.serving.rollouts import LIVE
from gateway.config.entries import (
    ConfiguredGuardrail,
    ConfiguredIssuer,
    ConfiguredMcpServer,
    ConfiguredModel,
    ConfiguredPool,
    ConfiguredRollout,
    ConfiguredRoute,
    ConfiguredTarget,
    ConfiguredToolRule,
)
from gateway.config.fields.failure_fields import PlaybookFields, PlaybookRules
from gateway.config.fields.rollout_fields import RolloutFields
from gateway.config.fields.route_fields import RouteFields
from gateway.control import guardrails, issuers, mcp, models, playbooks, pools, rollouts, routes
from gateway.control.configuration.kind import Change, Context, ExistingObject, Kind, plain
from gateway.control.guardrails import GuardrailFields, GuardrailPatch, GuardrailRules
from gateway.control.issuers import IssuerBody, IssuerPatch
from gateway.control.models import ModelBody, ModelPatch
from gateway.control.playbooks import PlaybookPatch
from gateway.control.pools import PoolBody, PoolPatch, TargetBody, TargetPatch
from gateway.control.rollouts import ReasonBody, RolloutBody
from gateway.control.routes import RouteBody, RoutePatch


class Pools(Kind[ConfiguredPool]):
    """Pools of interchangeable targets. A pool's entry contains its targets."""

    section, noun, entry = "pools", "pool", ConfiguredPool

    def identity(self, entry: ConfiguredPool) -> str:
        return entry.name

    def current(self, context: Context) -> Iterable[ExistingObject[ConfiguredPool]]:
        targets: dict[str, list[ConfiguredTarget]] = {}
        for row in context.session.scalars(select(Target).order_by(Target.pool_id, Target.id)):
            targets.setdefault(row.pool_id, []).append(_target_entry(row))
        for pool in context.session.scalars(select(Pool).order_by(Pool.id)):
            stated: dict[str, Any] = {"name": pool.id, "policy": pool.policy, "region": pool.region}
            stated |= {"queue": pool.settings.get(QUEUE_SETTING), "failures": pool.settings.get(FAILURES_SETTING)}
            listed = targets.get(pool.id, [])
            entry = ConfiguredPool.model_validate({**stated, "targets": listed or [_NO_TARGET]})
            # A pool without targets cannot be written in the file, which asks for one.
            yield ExistingObject(
                entry if listed else entry.model_copy(update={"targets": []}), is_exported=bool(listed)
            )

    def completed(self, context: Context, entry: ConfiguredPool, before: ConfiguredPool) -> ConfiguredPool:
        return entry.model_copy(update={"targets": sorted(entry.targets, key=lambda target: target.name)})

    def create(self, context: Context, entry: ConfiguredPool) -> None:
        body = PoolBody(id=entry.name, policy=entry.policy, region=entry.region)
        pools.create(body, context.author, context.database)
        changed = {name for name in ("queue", "failures") if getattr(entry, name) is not None}
        self._set(context, entry, changed)
        for number, target in enumerate(entry.targets):
            with _at_target(number):
                self._add(context, entry, target)

    def change(self, context: Context, change: Change[ConfiguredPool]) -> None:
        entry = change.after
        self._set(context, entry, set(change.fields) - {"targets"})
        if "targets" not in change.fields:
            return
        known = {target.name: target for target in change.before.targets}
        for target in entry.targets:
            number = next(place for place, one in enumerate(change.given.targets) if one.name == target.name)
            with _at_target(number):
                if target.name not in known:
                    self._add(context, entry, target)
                elif plain(target) != plain(known[target.name]):
                    wanted = _target_body(entry, target).model_dump(exclude={"id"})
                    patch = TargetPatch.model_validate(wanted)
                    pools.update_target(
                        entry.name, target.name, patch, context.author, context.database, context.references
                    )
        for name in known.keys() - {target.name for target in entry.targets}:
            pools.delete_target(entry.name, name, context.author, context.database)

    def delete(self, context: Context, entry: ConfiguredPool) -> None:
        pools.delete(entry.name, context.author, context.database)

    def _set(self, context: Context, entry: ConfiguredPool, changed: set[str]) -> None:
        if changed:
            body = PoolPatch.model_validate({name: getattr(entry, name) for name in changed})
            pools.update(entry.name, body, context.author, context.database)

    def _add(self, context: Context, entry: ConfiguredPool, target: ConfiguredTarget) -> None:
        body = _target_body(entry, target)
        pools.create_target(entry.name, body, context.author, context.database, context.references)


@contextmanager
def _at_target(number: int) -> Iterator[None]:
    """Name a target in an error, by its place in the pool's entry."""
    try:
        yield
    except ValidationError as error:
        said = describe_invalid(error.errors(include_url=False))
        field = "" if said.param in (None, "body") else f".{said.param}"
        raise InvalidRequest(said.message, param=f"targets.{number}{field}") from error
    except TollkeeperError as error:
        fields = TargetBody.model_fields
        error.param = f"targets.{number}" + (f".{error.param}" if (error.param or "").split(".")[0] in fields else "")
        raise


_NO_TARGET = ConfiguredTarget(name="none", kind="scripted")


def _target_entry(row: Target) -> ConfiguredTarget:
    same = {name: getattr(row, name) for name in ("kind", "url", "model", "provider", "weight", "settings")}
    return ConfiguredTarget(name=row.id, key=row.key_ref, **same)


def _target_body(entry: ConfiguredPool, target: ConfiguredTarget) -> TargetBody:
    if target.region not in ("", entry.region):
        raise InvalidRequest(
            f"target {target.name!r} is in {target.region!r} and its pool in {entry.region!r}; the control plane keeps "
            "one region for a pool: write it there, and give other regions pools of their own",
            param="targets",
        )
    same = {name: getattr(target, name) for name in ("kind", "url", "model", "provider", "weight", "settings")}
    return TargetBody.model_validate({"id": target.name, "key_ref": target.key, **same})


class Models(Kind[ConfiguredModel]):
    """Names that applications ask for."""

    section, noun, entry = "models", "model", ConfiguredModel

    def identity(self, entry: ConfiguredModel) -> str:
        return entry.name

    def current(self, context: Context) -> Iterable[ExistingObject[ConfiguredModel]]:
        for row in context.session.scalars(select(Model).order_by(Model.id)):
            stated: dict[str, Any] = {name: value for name, value in row.settings.items() if value}
            known = {name: stated[name] for name in ("defaults", "pinned", "cache") if name in stated}
            own = {name: getattr(row, name) for name in ("description", "is_active", "context_tokens")}
            yield ExistingObject(ConfiguredModel.model_validate({"name": row.id, "pool": row.pool_id, **own, **known}))

    def create(self, context: Context, entry: ConfiguredModel) -> None:
        named = ("pool", "description", "context_tokens", "defaults", "pinned")
        own: dict[str, Any] = {name: getattr(entry, name) for name in named}
        if entry.cache is not None:
            own["cache"] = entry.cache
        body = ModelBody(id=entry.name, **own)
        models.create(body, context.author, context.database)
        if not entry.is_active:
            models.update(entry.name, ModelPatch(is_active=False), context.author, context.database)

    def change(self, context: Context, change: Change[ConfiguredModel]) -> None:
        wanted = {name: getattr(change.after, name) for name in change.fields}
        models.update(change.after.name, ModelPatch(**wanted), context.author, context.database)

    def delete(self, context: Context, entry: ConfiguredModel) -> None:
        models.delete(entry.name, context.author, context.database)


class Routes(Kind[ConfiguredRoute]):
    """Names that lead to models under conditions."""

    section, noun, entry = "routes", "route", ConfiguredRoute

    def identity(self, entry: ConfiguredRoute) -> str:
        return entry.name

    def current(self, context: Context) -> Iterable[ExistingObject[ConfiguredRoute]]:
        for row in context.session.scalars(select(Route).order_by(Route.id)):
            yield ExistingObject(
                ConfiguredRoute.model_validate({**row.rules, "name": row.id, "is_active": row.is_active})
            )

    def ordered(self, entries: Sequence[ConfiguredRoute]) -> Sequence[ConfiguredRoute]:
        """Return routes after the routes that they lead to."""
        by_name = {entry.name: entry for entry in entries}
        found: dict[str, ConfiguredRoute] = {}
        under_way: dict[str, None] = {}

        def visit(entry: ConfiguredRoute) -> None:
            if entry.name in found:
                return
            if entry.name in under_way:
                ring = " to ".join([*under_way, entry.name])
                raise InvalidRequest(f"routes lead to each other: {ring}; end one at a model", param=entry.name)
            under_way[entry.name] = None
            for way in (*entry.choose, *entry.fallbacks):
                if way.route in by_name:
                    visit(by_name[way.route])
            del under_way[entry.name]
            found[entry.name] = entry

        for entry in entries:
            visit(entry)
        return list(found.values())

    def create(self, context: Context, entry: ConfiguredRoute) -> None:
        routes.create(RouteBody(id=entry.name, rules=_route_rules(entry)), context.author, context.database)
        if not entry.is_active:
            routes.update(entry.name, RoutePatch(is_active=False), context.author, context.database)

    def change(self, context: Context, change: Change[ConfiguredRoute]) -> None:
        entry = change.after
        rules = _route_rules(entry) if change.fields - {"is_active"} else None
        is_active = entry.is_active if "is_active" in change.fields else None
        routes.update(entry.name, RoutePatch(rules=rules, is_active=is_active), context.author, context.database)

    def delete(self, context: Context, entry: ConfiguredRoute) -> None:
        routes.delete(entry.name, context.author, context.database)


def _route_rules(entry: ConfiguredRoute) -> RouteFields:
    return RouteFields.model_validate(entry.rules())


class Issuers(Kind[ConfiguredIssuer]):
    """Identity providers whose tokens are accepted in place of keys, by issuer and audience."""

    section, noun, entry = "issuers", "issuer", ConfiguredIssuer
    fixed = ("id",)

    def identity(self, entry: ConfiguredIssuer) -> str:
        return f"{entry.issuer} {entry.audience}"

    def current(self, context: Context) -> Iterable[ExistingObject[ConfiguredIssuer]]:
        texts = ("issuer", "audience", "keys_url", "tenant_claim", "team_claim", "project_claim", "user_claim")
        for row in context.session.scalars(select(Issuer).order_by(Issuer.id)):
            stated: dict[str, Any] = {name: getattr(row, name) for name in texts}
            stated |= {name: value for name, value in row.scopes.items() if value is not None}
            own = {"id": row.id, "tenant": row.tenant_id, "algorithms": row.algorithms}
            yield ExistingObject(ConfiguredIssuer.model_validate({**stated, **own}))

    def completed(self, context: Context, entry: ConfiguredIssuer, before: ConfiguredIssuer) -> ConfiguredIssuer:
        lists = {name: getattr(entry, name) for name in ("models", "endpoints", "addresses")}
        kept = {name: sorted(set(value)) for name, value in lists.items() if value is not None}
        return entry.model_copy(update={**kept, "id": entry.id or before.id})

    def create(self, context: Context, entry: ConfiguredIssuer) -> None:
        body = IssuerBody.model_validate({**_issuer_fields(entry), "id": entry.id or _slug_of(entry.issuer)})
        issuers.create(body, context.author, context.database)

    def change(self, context: Context, change: Change[ConfiguredIssuer]) -> None:
        stated = {name: value for name, value in _issuer_fields(change.after).items() if name in change.fields}
        body = IssuerPatch.model_validate(stated)
        issuers.update(change.before.id, body, context.author, context.database)

    def delete(self, context: Context, entry: ConfiguredIssuer) -> None:
        issuers.delete(entry.id, context.author, context.database)


def _issuer_fields(entry: ConfiguredIssuer) -> dict[str, Any]:
    stated = entry.model_dump(exclude={"id"})
    stated["tenant"] = entry.tenant or None
    stated["priority"] = None if entry.priority == "standard" else entry.priority
    return stated


def _slug_of(issuer: str) -> str:
    host = urlsplit(issuer).hostname or "issuer"
    return "".join(letter if letter.isalnum() else "-" for letter in host).strip("-")[:63]


class Playbooks(Kind[PlaybookFields]):
    """What happens while a whole provider is down."""

    section, noun, entry = "playbooks", "playbook", PlaybookFields

    def identity(self, entry: PlaybookFields) -> str:
        return entry.provider

    def current(self, context: Context) -> Iterable[ExistingObject[PlaybookFields]]:
        for row in context.session.scalars(select(OutagePlaybook).order_by(OutagePlaybook.provider)):
            yield ExistingObject(PlaybookFields.model_validate({**row.rules, "provider": row.provider}))

    def create(self, context: Context, entry: PlaybookFields) -> None:
        playbooks.create(entry, context.author, context.database)

    def change(self, context: Context, change: Change[PlaybookFields]) -> None:
        rules = PlaybookRules.model_validate(change.after.rules())
        playbooks.update(change.after.provider, PlaybookPatch(rules=rules), context.author, context.database)

    def delete(self, context: Context, entry: PlaybookFields) -> None:
        playbooks.delete(entry.provider, context.author, context.database)


class Rollouts(Kind[ConfiguredRollout]):
    """Candidates beside an incumbent. A running one is controlled by `tollkeeper rollouts`, not by its entry."""

    section, noun, entry = "rollouts", "rollout", ConfiguredRollout
    fixed = (
        *("route", "incumbent", "candidate", "percent", "steps", "promotes"),
        *("guards", "shadow", "tenants", "not_tenants"),
    )

    def identity(self, entry: ConfiguredRollout) -> str:
        return entry.name

    def current(self, context: Context) -> Iterable[ExistingObject[ConfiguredRollout]]:
        for row in context.session.scalars(select(Rollout).order_by(Rollout.id)):
            stated = RolloutFields.model_validate(row.rules)
            same = {name: getattr(stated, name) for name in ("promotes", "guards", "shadow", "tenants", "not_tenants")}
            own: dict[str, Any] = {
                "name": row.id,
                "route": row.route,
                "incumbent": row.incumbent,
                "candidate": row.candidate,
            }
            entry = _with_share(ConfiguredRollout(**own, **same, steps=stated.steps or None))
            yield ExistingObject(entry, is_prunable=row.state in LIVE, is_exported=row.state in LIVE)

    def completed(self, context: Context, entry: ConfiguredRollout, before: ConfiguredRollout) -> ConfiguredRollout:
        return _with_share(entry)

    def create(self, context: Context, entry: ConfiguredRollout) -> None:
        rules = RolloutFields.model_validate(entry.rules())
        own = {name: getattr(entry, name) for name in ("route", "incumbent", "candidate")}
        rollouts.create(RolloutBody(id=entry.name, rules=rules, **own), context.author, context.database)

    def change(self, context: Context, change: Change[ConfiguredRollout]) -> None:
        raise Conflict("a rollout cannot be changed; abort it and give the new one another name")

    def delete(self, context: Context, entry: ConfiguredRollout) -> None:
        reason = ReasonBody(reason="removed from the configuration")
        rollouts.abort(entry.name, reason, context.author, context.database)
        rollouts.delete(entry.name, context.author, context.database)


def _with_share(entry: ConfiguredRollout) -> ConfiguredRollout:
    """Return a rollout with its share written one way: a single plain step is a percent."""
    steps = entry.steps
    if not steps:
        return entry.model_copy(update={"steps": None})
    if len(steps) == 1 and not plain(steps[0]).keys() - {"percent"}:
        return entry.model_copy(update={"steps": None, "percent": steps[0].percent})
    return entry


class Guardrails(Kind[ConfiguredGuardrail]):
    """Policies that inspect requests and answers."""

    section, noun, entry = "guardrails", "guardrail", ConfiguredGuardrail

    def identity(self, entry: ConfiguredGuardrail) -> str:
        return entry.name

    def current(self, context: Context) -> Iterable[ExistingObject[ConfiguredGuardrail]]:
        for row in context.session.scalars(select(Guardrail).order_by(Guardrail.id)):
            yield ExistingObject(ConfiguredGuardrail.model_validate({**row.rules, "name": row.id}))

    def create(self, context: Context, entry: ConfiguredGuardrail) -> None:
        body = GuardrailFields(name=entry.name, rules=_guardrail_rules(entry))
        guardrails.create(body, context.author, context.database, context.references)

    def change(self, context: Context, change: Change[ConfiguredGuardrail]) -> None:
        body = GuardrailPatch(rules=_guardrail_rules(change.after))
        guardrails.update(change.after.name, body, context.author, context.database, context.references)

    def delete(self, context: Context, entry: ConfiguredGuardrail) -> None:
        guardrails.delete(entry.name, context.author, context.database)


class McpServers(Kind[ConfiguredMcpServer]):
    """MCP servers and the terms of their tools."""

    section, noun, entry = "mcp_servers", "mcp_server", ConfiguredMcpServer

    def identity(self, entry: ConfiguredMcpServer) -> str:
        return entry.name

    def current(self, context: Context) -> Iterable[ExistingObject[ConfiguredMcpServer]]:
        for row in context.session.scalars(select(McpServer).order_by(McpServer.id)):
            yield ExistingObject(ConfiguredMcpServer.model_validate({**row.rules, "name": row.id}))

    def create(self, context: Context, entry: ConfiguredMcpServer) -> None:
        body = mcp.ServerFields(name=entry.name, rules=mcp.ServerRules.model_validate(entry.rules()))
        mcp.create(body, context.author, context.database, context.references)

    def change(self, context: Context, change: Change[ConfiguredMcpServer]) -> None:
        body = mcp.ServerPatch(rules=mcp.ServerRules.model_validate(change.after.rules()))
        mcp.update(change.after.name, body, context.author, context.database, context.references)

    def delete(self, context: Context, entry: ConfiguredMcpServer) -> None:
        mcp.delete(entry.name, context.author, context.database)


class ToolRules(Kind[ConfiguredToolRule]):
    """Who may use which tools of MCP servers."""

    section, noun, entry = "tool_rules", "tool_rule", ConfiguredToolRule

    def identity(self, entry: ConfiguredToolRule) -> str:
        return entry.name

    def current(self, context: Context) -> Iterable[ExistingObject[ConfiguredToolRule]]:
        for row in context.session.scalars(select(McpToolRule).order_by(McpToolRule.id)):
            yield ExistingObject(ConfiguredToolRule.model_validate({**row.rules, "name": row.id}))

    def create(self, context: Context, entry: ConfiguredToolRule) -> None:
        body = mcp.RuleFields(name=entry.name, rules=mcp.RuleRules.model_validate(entry.rules()))
        mcp.create_rule(body, context.author, context.database)

    def change(self, context: Context, change: Change[ConfiguredToolRule]) -> None:
        body = mcp.RulePatch(rules=mcp.RuleRules.model_validate(change.after.rules()))
        mcp.update_rule(change.after.name, body, context.author, context.database)

    def delete(self, context: Context, entry: ConfiguredToolRule) -> None:
        mcp.delete_rule(entry.name, context.author, context.database)


def _guardrail_rules(entry: ConfiguredGuardrail) -> GuardrailRules:
    return GuardrailRules.model_validate(entry.model_dump(exclude={"name"}))
