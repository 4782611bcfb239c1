"""The YAML file that a gateway can run from without a database: keys, models, prices, limits and budgets.

An error in the file stops the start; its message names the line and the field.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from backends.endpoints.source import check_source
from backends.processes.file_stamp import file_stamp
from backends.web.invalid_input import reason_of
from backends.yaml_document import YamlDocument
from contracts.access.identity import Identity
from contracts.access.keys import digest_of, is_well_formed
from contracts.errors import ConfigurationError
from contracts.pricing.prices import NewPrice, PriceBook, PriceCard, price_card
from contracts.pricing.unit_prices import with_units
from contracts.recording.moments import unix_ns
from contracts.rules.limits import QueueSpec, TenantSpec
from contracts.serving.caching import cache_policy
from contracts.serving.configuration import (
    DEFAULT_POLICY,
    IssuerSpec,
    KeyEntry,
    KeyPolicy,
    ModelSpec,
    PoolSpec,
    Snapshot,
    TargetSpec,
)
from contracts.serving.failures import Playbook
from contracts.serving.route_checks import Serving
from contracts.serving.sampling import sampling_policy
from gateway.config.directory import RefusedSnapshot
from gateway.config.entries import (
    AccessEntry,
    ConfigurationFile,
    ConfiguredKey,
    ConfiguredModel,
    ConfiguredPool,
    ConfiguredPrice,
)
from gateway.config.rules import Misplaced, Place, build_rules
from gateway.config.sections import (
    build_guardrails,
    build_mcp_servers,
    build_playbooks,
    build_rollouts,
    build_routes,
    build_tool_rules,
    pool_failures,
)
from gateway.config.suggestions import did_you_mean, known_fields
from gateway.config.targets import resolve_key

# Blocks whose values may be shown in a message; others may hold a key in the wrong place.
_SHOWN_BLOCKS: Final = ("tenants", "limits", "budgets", "routes", "playbooks", "rollouts", "tool_rules")
_SHOWN_PARTS: Final = frozenset(("queue", "failures"))  # of a pool
_MAX_SHOWN: Final = 60
log = logging.getLogger(__name__)
# Each section whose entries have names, with the kind and the field of the name.
_NAMED_SECTIONS: Final = (
    ("pools", "pool", "name"),
    ("models", "model", "name"),
    ("routes", "route", "name"),
    ("rollouts", "rollout", "name"),
    ("guardrails", "guardrail", "name"),
    ("mcp_servers", "MCP server", "name"),
    ("tool_rules", "tool rule", "name"),
    ("playbooks", "playbook of", "provider"),
    ("prices", "price version", "version"),
    ("tenants", "tenant", "id"),
)


class FileSource:
    """Snapshots from a file: one at the start, and one whenever the file has changed or `ask` was called.

    Without `has_callers` the gateway authenticates nobody: the file needs no keys, and its keys are not read.
    """

    def __init__(self, path: Path, pepper: bytes, *, has_callers: bool = True) -> None:
        self.path = path
        self._has_callers = has_callers
        self._pepper = pepper
        self._read = self._seen = file_stamp(path)
        self._is_asked = False

    def ask(self) -> None:
        """Make the next poll read the file even if it is unchanged, because files that it refers to may have
        changed.
        """
        self._is_asked = True

    def load(self, revision: int = 0) -> Snapshot:
        """Read the file. Raises ConfigurationError naming line, field and remedy."""
        parsed, document = self._parse()
        if idle := parsed.only_for_control():
            log.warning("sections_without_effect", extra={"path": str(self.path), "sections": ", ".join(idle)})
        policies: dict[KeyPolicy, KeyPolicy] = {DEFAULT_POLICY: DEFAULT_POLICY}  # equal ones share one object
        read = parsed.keys if self._has_callers else []
        keys = [self._key_entry(given, _policy_of(given, policies)) for given in read]
        with self._placed(document):
            rules = build_rules(parsed, keys)
            serving = _serving(parsed)
            issuers = tuple(_issuers(parsed, policies))
            playbooks = build_playbooks(parsed, serving.pools)
            rollouts = build_rollouts(parsed, serving)
            guardrails = build_guardrails(parsed)
            mcp_servers, mcp_rules = build_mcp_servers(parsed), build_tool_rules(parsed)
        return Snapshot(
            revision=revision,
            keys={entry.digest: entry for entry in keys},
            models=serving.models,
            pools=serving.pools,
            prices=PriceBook(map(_card, parsed.prices)),
            tenants=_tenants(parsed),
            limits=rules.limits,
            budgets=rules.budgets,
            issuers=issuers,
            routes=serving.routes,
            playbooks=playbooks,
            rollouts=rollouts,
            guardrails=guardrails,
            mcp_servers=mcp_servers,
            mcp_rules=mcp_rules,
        )

    def serving(self) -> Serving:
        """Read pools, models and routes, without the credentials that the file refers to. Raises as `load`."""
        parsed, document = self._parse()
        with self._placed(document):
            return _serving(parsed)

    def playbooks(self) -> dict[str, Playbook]:
        """Read the outage playbooks, by provider. Raises as `load`."""
        parsed, document = self._parse()
        with self._placed(document):
            return build_playbooks(parsed, _serving(parsed).pools)

    @property
    def has_answered(self) -> bool:
        """Return True: a poll takes only as long as reading the file."""
        return True

    def may_have_changed(self) -> bool:
        """Return whether the file differs from the version that was read, or differed at the last poll, or must be read
        again.
        """
        return self._is_asked or self._seen != self._read or file_stamp(self.path) != self._read

    def poll(self, known_revision: int) -> Snapshot | None:
        """Read the file if it has changed since the last read. A file that has also changed since the previous poll may
        be half written, and is read at a later poll.

        Raises RefusedSnapshot if it is invalid, once per change.
        """
        stamp = file_stamp(self.path)
        has_settled, self._seen = stamp == self._seen, stamp
        if not self._is_asked and (stamp == self._read or not has_settled):
            return None
        self._is_asked, self._read = False, stamp
        try:
            return self.load(known_revision + 1)
        except ConfigurationError as error:
            raise RefusedSnapshot(error.message) from error

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    @contextmanager
    def _placed(self, document: YamlDocument) -> Iterator[None]:
        try:
            yield
        except Misplaced as error:
            field = ".".join(map(str, error.place))
            raise ConfigurationError(
                f"{self.path}, line {document.line_of(error.place)}: {field}: {error.message}"
            ) from error

    def _parse(self) -> tuple[ConfigurationFile, YamlDocument]:
        document = YamlDocument.read(self.path)
        try:
            parsed = ConfigurationFile.model_validate(_without_own(document.content or {}))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(str(step) for step in first["loc"]) or "the file"
            line = document.line_of(first["loc"])
            raise ConfigurationError(f"{self.path}, line {line}: {field}: {_complaint(first)}") from error
        for place, message in _unservable(parsed, self._has_callers):
            field = ".".join(map(str, place))
            raise ConfigurationError(f"{self.path}, line {document.line_of(place)}: {field}: {message}")
        for place, what, name in _repeated(parsed):
            raise ConfigurationError(f"{self.path}, line {document.line_of(place)}: {what} {name!r} is given twice")
        return parsed, document

    def _key_entry(self, given: ConfiguredKey, policy: KeyPolicy) -> KeyEntry:
        key = resolve_key(given.key) if given.key.startswith(("env:", "file:")) else given.key
        if not is_well_formed(key):
            raise ConfigurationError(
                f"{self.path}: the key of tenant {given.tenant!r} is malformed; "
                "keys are 'tk-' and 43 letters, digits, '-' or '_'"
            )
        digest = digest_of(key, self._pepper)
        return KeyEntry(
            digest=digest,
            identity=Identity(given.tenant, given.team, given.project, given.id or f"key_{digest.hex()[:12]}"),
            expires_at_ns=None if given.expires_at is None else unix_ns(given.expires_at),
            models=_names(given.models),
            endpoints=_names(given.endpoints),
            policy=policy,
        )


def _serving(parsed: ConfigurationFile) -> Serving:
    models = {model.name: _model_spec(number, model) for number, model in enumerate(parsed.models)}
    pools = {pool.name: _pool_spec(number, pool) for number, pool in enumerate(parsed.pools)}
    for number, pool in enumerate(pools.values()):
        _check_discovery(number, pool)
    return Serving(build_routes(parsed, models, pools), models, pools)


def _check_discovery(number: int, pool: PoolSpec) -> None:
    for place, spec in enumerate(pool.targets):
        try:
            check_source(spec)
        except ConfigurationError as error:
            raise Misplaced(("pools", number, "targets", place), error.message) from error


def _unservable(parsed: ConfigurationFile, has_callers: bool) -> Iterator[tuple[Place, str]]:
    """Find what `tollkeeper apply` accepts but a gateway without a control plane cannot do. Yields (place, message)."""
    for section in ("keys", "pools", "models") if has_callers else ("pools", "models"):
        if not getattr(parsed, section):
            yield (section,), "required: list at least one"
    for number, key in enumerate(parsed.keys if has_callers else ()):
        if not key.key:
            yield ("keys", number, "key"), "a gateway without a control plane needs env:NAME, file:PATH or the key"
    for section in ("tenants", "models", "routes"):
        for number, entry in enumerate(getattr(parsed, section)):
            if not entry.is_active:
                message = "a gateway without a control plane serves all that it lists; remove the entry instead"
                yield (section, number, "is_active"), message
    for number, rollout in enumerate(parsed.rollouts):
        if rollout.steps is not None or rollout.promotes:
            name = "steps" if rollout.steps is not None else "promotes"
            yield ("rollouts", number, name), "steps need a control plane; set a fixed percent"


def _repeated(parsed: ConfigurationFile) -> Iterator[tuple[Place, str, str]]:
    """Find repeated names: the later entry would silently hide the earlier. Yields (place, kind, name)."""
    lists: list[tuple[Place, str, list[str]]] = [
        ((section,), kind, [getattr(one, field) for one in getattr(parsed, section)])
        for section, kind, field in _NAMED_SECTIONS
    ]
    for number, pool in enumerate(parsed.pools):
        lists.append((("pools", number, "targets"), "target", [target.name for target in pool.targets]))
    for place, what, names in lists:
        for index, name in enumerate(names):
            if name in names[:index]:
                yield (*place, index, "name"), what, name


def _without_own(content: object) -> object:
    """Leave out sections of the file's own, such as one of anchors."""
    if not isinstance(content, dict):
        return content
    return {name: value for name, value in content.items() if not str(name).startswith("x-")}


def _complaint(first: Mapping[str, Any]) -> str:
    reason = reason_of(first)
    if first["type"] == "extra_forbidden":
        known = known_fields(ConfigurationFile, first["loc"][:-1])
        return f"there is no such field{did_you_mean(str(first['loc'][-1]), known)}"
    value, place = first.get("input"), first["loc"]
    is_shown = place and (place[0] in _SHOWN_BLOCKS or not _SHOWN_PARTS.isdisjoint(map(str, place)))
    if not is_shown or not isinstance(value, str | int | float):
        return reason
    return f"{reason}, not {str(value)[:_MAX_SHOWN]!r}"


def _policy_of(given: AccessEntry, policies: dict[KeyPolicy, KeyPolicy]) -> KeyPolicy:
    policy = given.policy()
    return policies.setdefault(policy, policy)


def _names(allowed: Sequence[str] | None) -> frozenset[str] | None:
    return None if allowed is None else frozenset(allowed)


def _tenants(parsed: ConfigurationFile) -> dict[str, TenantSpec]:
    """Return the tenants that are listed, and with the defaults those that only a key or an issuer names."""
    named = [key.tenant for key in parsed.keys] + [issuer.tenant for issuer in parsed.issuers if issuer.tenant]
    listed = {
        tenant.id: TenantSpec(
            tenant.id,
            tenant.weight,
            tenant.time_zone,
            keeps_content=tenant.keeps_content,
            audits_requests=tenant.audits_requests,
        )
        for tenant in parsed.tenants
    }
    return {name: TenantSpec(name) for name in named} | listed


def _issuers(parsed: ConfigurationFile, policies: dict[KeyPolicy, KeyPolicy]) -> Iterator[IssuerSpec]:
    for number, given in enumerate(parsed.issuers):
        try:
            yield IssuerSpec(
                issuer=given.issuer,
                audience=given.audience,
                keys_url=given.keys_url,
                algorithms=tuple(given.algorithms),
                tenant=given.tenant,
                tenant_claim=given.tenant_claim,
                team_claim=given.team_claim,
                project_claim=given.project_claim,
                user_claim=given.user_claim,
                models=_names(given.models),
                endpoints=_names(given.endpoints),
                policy=_policy_of(given, policies),
            )
        except ConfigurationError as error:
            raise Misplaced(("issuers", number), error.message) from error


def _queue_spec(number: int, pool: ConfiguredPool) -> QueueSpec | None:
    try:
        return None if pool.queue is None else pool.queue.spec()
    except ConfigurationError as error:
        raise Misplaced(("pools", number, "queue"), error.message) from error


def _model_spec(number: int, model: ConfiguredModel) -> ModelSpec:
    try:
        sampling = sampling_policy(model.defaults.stated(), model.pinned.stated())
        cache = None if model.cache is None else cache_policy(model.cache.stated())
        return ModelSpec(model.name, model.pool, context_tokens=model.context_tokens, sampling=sampling, cache=cache)
    except ConfigurationError as error:
        raise Misplaced(("models", number), error.message) from error


def _pool_spec(number: int, pool: ConfiguredPool) -> PoolSpec:
    return PoolSpec(
        id=pool.name,
        policy=pool.policy,
        queue=_queue_spec(number, pool),
        failures=pool_failures(number, pool),
        targets=tuple(
            TargetSpec(
                id=target.name,
                pool=pool.name,
                kind=target.kind,
                url=target.url,
                model=target.model,
                provider=target.provider,
                key_ref=target.key,
                weight=target.weight,
                region=target.region or pool.region,
                settings=target.settings,
            )
            for target in pool.targets
        ),
    )


def _card(price: ConfiguredPrice) -> PriceCard:
    rates, service_tiers = with_units(price.usd_per_mtok, price.service_tiers, price.usd_per_unit)
    return price_card(
        NewPrice(
            price.model,
            price.version,
            rates,
            valid_from=price.valid_from,
            valid_to=price.valid_to,
            provider=price.provider,
            region=price.region,
            tenant=price.tenant,
            batch_usd_per_mtok=price.batch_usd_per_mtok,
            service_tiers=service_tiers,
            tiers=[(tier.above_input_tokens, tier.usd_per_mtok) for tier in price.tiers],
            usd_per_request=price.usd_per_request,
            batch_tiers={tier.above_input_tokens: tier.batch_usd_per_mtok for tier in price.tiers},
            service_tiers_above={tier.above_input_tokens: tier.service_tiers for tier in price.tiers},
        )
    )
