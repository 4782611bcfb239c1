"""The targets of a snapshot, built once and kept while their specification is unchanged."""

import asyncio
import importlib
import logging
from collections.abc import Callable, Mapping
from functools import partial

from backends.llm.base import ADAPTERS, ModelCall, RenewedTarget, Target, TargetFactory, check_translated
from backends.secrets.credential_references import ReferenceRules, read_reference
from backends.secrets.sealed_references import is_stored, shown_reference, token_of
from contracts.api.generation import Continuation
from contracts.errors import ConfigurationError, TargetMisconfigured, TollkeeperError, UnsupportedParameter
from contracts.pricing.failure_billing import read_billing
from contracts.serving.configuration import PoolSpec, Snapshot, TargetSpec
from contracts.serving.discovery import discover_of

_log = logging.getLogger(__name__)


class TargetReplaced(TargetMisconfigured):
    """A reload removed or changed the target while a request waited. The error says nothing about the new target."""


class TargetRegistry:
    """Returns the adapter for a target's specification."""

    def __init__(
        self,
        factories: Mapping[str, TargetFactory] | None = None,
        open_sealed: Callable[[str], str] | None = None,  # what the control database keeps of providers' keys
        rules: ReferenceRules | None = None,  # for references; none: all are the operator's own
    ) -> None:
        self._factories = factories or {}  # by kind: of targets that share something
        self._rules = rules
        self._resolve = partial(resolve_key, open_sealed=open_sealed, rules=rules)
        self._targets: dict[tuple[str, str], Target] = {}
        self._broken: dict[tuple[str, str], str] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def get(self, spec: TargetSpec) -> Target:
        """Return a target.

        Raises TargetMisconfigured if its configuration cannot be used, TargetReplaced if it was removed or changed.
        """
        key = (spec.pool, spec.id)
        target = self._targets.get(key)
        if target is None:
            reason = self._broken.get(key)
            if reason is None:
                raise TargetReplaced(f"target {spec.id!r} cannot be used: it has been removed")
            raise TargetMisconfigured(f"target {spec.id!r} cannot be used: {reason}")
        if not is_same_place(target.spec, spec):
            raise TargetReplaced(
                f"target {spec.id!r} cannot be used: its region or provider has been changed since the request came"
            )
        return target

    def find(self, spec: TargetSpec) -> Target | None:
        """Return a target; `None` if it cannot be used, or if its region or provider has changed."""
        target = self._targets.get((spec.pool, spec.id))
        return target if target is not None and is_same_place(target.spec, spec) else None

    def can_continue(self, spec: TargetSpec, continuation: Continuation | None) -> bool:
        """Return whether a target can continue an answer that another started."""
        target = self.find(spec)
        return continuation is not None and target is not None and target.can_continue(continuation)

    async def count_input(self, call: ModelCall, pool: PoolSpec) -> int | None:
        """Count the prompt at a target that can; `None` if no target of the pool can.

        Raises UnsupportedParameter if every target would refuse the request.
        """
        refusal: UnsupportedParameter | None = None
        others = False  # which may answer it
        for spec in pool.targets:
            target = self.find(spec)
            try:
                check_translated(call, spec)
                count = await target.count_input(call) if target is not None else None
            except UnsupportedParameter as error:
                refusal = error
                continue
            if count is not None:
                return count
            others = others or target is not None
        if refusal is not None and not others:
            raise refusal
        return None

    def sync(self, snapshot: Snapshot, *, strict: bool = False) -> None:
        """Build new targets, close removed ones.

        A target that cannot be built raises ConfigurationError if `strict` (from a file), and nothing is changed;
        otherwise it is logged and skipped: one bad row must not disable the others.
        """
        wanted = {(spec.pool, spec.id): spec for pool in snapshot.pools.values() for spec in pool.targets}
        kept = {key: target for key, target in self._targets.items() if wanted.get(key) == target.spec}
        built: dict[tuple[str, str], Target] = {}
        broken: dict[tuple[str, str], str] = {}
        for key, spec in wanted.items():
            if key in kept:
                continue
            if discover_of(spec):
                broken[key] = f"no endpoint is known of {discover_of(spec)!r}"
                continue
            try:
                built[key] = self._build(spec)
            except TollkeeperError as error:
                if strict:
                    for target in built.values():
                        self._close(target)
                    raise
                broken[key] = error.message
                _log.error("target left out", extra={"target": spec.id, "pool": spec.pool, "reason": error.message})
        for key, target in self._targets.items():
            if key not in kept:
                self._close(target)
        self._targets, self._broken = kept | built, broken

    @property
    def broken(self) -> dict[str, str]:
        """Return the faults of targets by "pool/id": why a target was skipped, or that its renewed key is not
        in use.
        """
        faults = {key: target.fault for key, target in self._targets.items() if isinstance(target, RenewedTarget)}
        return {"/".join(key): reason for key, reason in (faults | self._broken).items() if reason}

    async def close(self) -> None:
        """Close all targets."""
        for target in self._targets.values():
            self._close(target)
        self._targets = {}
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _build(self, spec: TargetSpec) -> Target:
        read_billing(spec)
        if self._rules is not None:
            self._rules.check_target(spec.kind, spec.key_ref, spec.settings)
        factory = self._factories.get(spec.kind) or _factory_of(spec)
        return factory(spec, self._resolve)

    def _close(self, target: Target) -> None:
        task = asyncio.get_running_loop().create_task(target.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def is_same_place(one: TargetSpec, other: TargetSpec) -> bool:
    """Return whether two targets have the same region and provider: a request allowed at one is allowed at both."""
    if one is other:
        return True
    return one.region == other.region and (one.provider or one.kind) == (other.provider or other.kind)


def _factory_of(spec: TargetSpec) -> TargetFactory:
    import_string = ADAPTERS.get(spec.kind)
    if import_string is None:
        known = ", ".join(sorted(ADAPTERS))
        raise ConfigurationError(f"target {spec.id!r} has kind {spec.kind!r}; known kinds: {known}")
    module, _, name = import_string.partition(":")
    factory: TargetFactory = getattr(importlib.import_module(module), name)
    return factory


def resolve_key(
    key_ref: str, open_sealed: Callable[[str], str] | None = None, rules: ReferenceRules | None = None
) -> str:
    """Read the credential that `key_ref` refers to: "env:NAME", "file:PATH", or a stored key, which is decrypted.

    `rules` restrict references that were not written by the operator. Raises ConfigurationError.
    """
    if is_stored(key_ref):
        token = token_of(key_ref)
        if open_sealed is None:
            raise ConfigurationError(
                f"{shown_reference(key_ref)!r} is stored in the control database, and this process has no key to "
                f"decrypt it"
            )
        return open_sealed(token)
    return read_reference(key_ref, rules)
