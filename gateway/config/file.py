"""The single YAML file a gateway can run from: keys to prices, limits and budgets; neither database nor store.

What is wrong in it stops the start with the file's line and the field's name.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import ValidationError

from backends.processes.file_stamp import file_stamp
from contracts.access.identity import Identity
from contracts.access.keys import digest_of, is_well_formed
from contracts.errors import ConfigurationError
from contracts.pricing.prices import PriceBook, PriceCard, price_card
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
from gateway.config.failures import build_playbooks, pool_failures
from gateway.config.guardrails import build_guardrails
from gateway.config.rollouts import build_rollouts
from gateway.config.routes import build_routes
from gateway.config.rules import Misplaced, Place, build_rules
from gateway.config.targets import resolve_key

# Blocks whose values may be shown in a message; others may hold a key in the wrong place.
_SHOWN_BLOCKS: Final = ("tenants", "limits", "budgets", "routes", "playbooks", "rollouts")
_SHOWN_PARTS: Final = frozenset(("queue", "failures"))  # of a pool
_MAX_SHOWN: Final = 60


class FileSource:
    """Snapshots from a file: one at the start, and one whenever the file has changed, or `ask` has been called."""

    def __init__(self, path: Path, pepper: bytes) -> None:
        self.path = path
        self._pepper = pepper
        self._read = self._seen = file_stamp(path)
        self._is_asked = False

    def ask(self) -> None:
        """Let the next poll read the file, changed or not: what it refers to may have changed."""
        self._is_asked = True

    def load(self, revision: int = 0) -> Snapshot:
        """Read the file. Raises ConfigurationError naming line, field and remedy."""
        parsed, root = self._parse()
        policies: dict[KeyPolicy, KeyPolicy] = {DEFAULT_POLICY: DEFAULT_POLICY}  # equal ones share one object
        keys = [self._key_entry(given, _policy_of(given, policies)) for given in parsed.keys]
        with self._placed(root):
            rules = build_rules(parsed, keys)
            serving = _serving(parsed)
            issuers = tuple(_issuers(parsed, policies))
            playbooks = build_playbooks(parsed, serving.pools)
            rollouts = build_rollouts(parsed, serving)
            guardrails = build_guardrails(parsed)
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
        )

    def serving(self) -> Serving:
        """Read what is served, without the credentials that the file refers to. Raises as `load`."""
        parsed, root = self._parse()
        with self._placed(root):
            return _serving(parsed)

    def playbooks(self) -> dict[str, Playbook]:
        """Read what is done when providers are out, by provider. Raises as `load`."""
        parsed, root = self._parse()
        with self._placed(root):
            return build_playbooks(parsed, _serving(parsed).pools)

    @property
    def has_answered(self) -> bool:
        """Return true: what a poll takes is the reading of the file, however slow the disk."""
        return True

    def may_have_changed(self) -> bool:
        """Say whether the file is, or was at the last poll, another than was read, or is to be read again."""
        return self._is_asked or self._seen != self._read or file_stamp(self.path) != self._read

    def poll(self, known_revision: int) -> Snapshot | None:
        """Read the file where it has changed since it was read, and has not since the poll before: it may be half
        written. Raises RefusedSnapshot where it is wrong, once for each change.
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
        """Nothing to close."""

    @contextmanager
    def _placed(self, root: yaml.Node | None) -> Iterator[None]:
        try:
            yield
        except Misplaced as error:
            field = ".".join(map(str, error.place))
            raise ConfigurationError(
                f"{self.path}, line {_line_of(root, error.place)}: {field}: {error.message}"
            ) from error

    def _parse(self) -> tuple[ConfigurationFile, yaml.Node | None]:
        try:
            text = self.path.read_text()
            root = yaml.compose(text, Loader=yaml.SafeLoader)
            content = yaml.safe_load(text)
        except OSError as error:
            raise ConfigurationError(f"configuration file {self.path} cannot be read: {error.strerror}") from error
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            where = f", line {mark.line + 1}" if mark is not None else ""
            problem = getattr(error, "problem", None) or "not valid YAML"
            raise ConfigurationError(f"{self.path}{where}: {problem}") from error
        except ValueError as error:  # bytes that are not UTF-8, or a date that no calendar has
            raise ConfigurationError(f"{self.path}: {error}") from error
        try:
            parsed = ConfigurationFile.model_validate(content or {})
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(str(step) for step in first["loc"]) or "the file"
            line = _line_of(root, first["loc"])
            raise ConfigurationError(f"{self.path}, line {line}: {field}: {_complaint(first)}") from error
        for place, what, name in _repeated(parsed):
            raise ConfigurationError(f"{self.path}, line {_line_of(root, place)}: {what} {name!r} is given twice")
        return parsed, root

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
    return Serving(build_routes(parsed, models, pools), models, pools)


def _repeated(parsed: ConfigurationFile) -> Iterator[tuple[Place, str, str]]:
    """Find names given twice: the later entry would silently hide the earlier. Gives (place, kind, name)."""
    lists: list[tuple[Place, str, list[str]]] = [
        (("pools",), "pool", [pool.name for pool in parsed.pools]),
        (("models",), "model", [model.name for model in parsed.models]),
        (("routes",), "route", [route.name for route in parsed.routes]),
        (("rollouts",), "rollout", [rollout.name for rollout in parsed.rollouts]),
        (("guardrails",), "guardrail", [one.name for one in parsed.guardrails]),
        (("playbooks",), "playbook of", [playbook.provider for playbook in parsed.playbooks]),
        (("prices",), "price version", [price.version for price in parsed.prices]),
        (("tenants",), "tenant", [tenant.id for tenant in parsed.tenants]),
    ]
    for number, pool in enumerate(parsed.pools):
        lists.append((("pools", number, "targets"), "target", [target.name for target in pool.targets]))
    for place, what, names in lists:
        for index, name in enumerate(names):
            if name in names[:index]:
                yield (*place, index, "name"), what, name


def _complaint(first: Mapping[str, Any]) -> str:
    reason = str(first["msg"]).removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        return "there is no such field"
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
    """Give the tenants that are listed, and with the defaults those that only a key or an issuer names."""
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
                region=target.region,
                settings=target.settings,
            )
            for target in pool.targets
        ),
    )


def _card(price: ConfiguredPrice) -> PriceCard:
    return price_card(
        price.model,
        price.version,
        price.usd_per_mtok,
        valid_from=price.valid_from,
        valid_to=price.valid_to,
        provider=price.provider,
        tenant=price.tenant,
        batch_usd_per_mtok=price.batch_usd_per_mtok,
        service_tiers=price.service_tiers,
    )


def _line_of(node: yaml.Node | None, path: Place) -> int:
    """Find the line (from 1) of a field, or of the nearest thing around it that exists."""
    line = 1 if node is None else node.start_mark.line + 1
    for step in path:
        if isinstance(node, yaml.MappingNode):
            key, node = next(((key, value) for key, value in node.value if key.value == step), (None, None))
            line = line if key is None else key.start_mark.line + 1  # the value may begin on a later line
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            line = node.start_mark.line + 1
        else:
            break
    return line
