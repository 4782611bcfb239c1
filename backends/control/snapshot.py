"""Reads the gateways' configuration from the control database as one immutable snapshot.

The first read loads everything. Later ones load only changed keys and changed areas, and reuse the rest.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from backends.control.changes import Revisions, read_revision, read_revisions
from backends.control.guardrails import load_guardrails
from backends.control.issuers import load_issuers
from backends.control.key_entries import KeyBook, KeyReader, LoadedKeys
from backends.control.mcp import load_mcp_servers, load_tool_rules
from backends.control.playbooks import load_playbooks
from backends.control.prices import card_of_price, card_of_standard_cost
from backends.control.rollouts import load_rollouts
from backends.control.routes import load_routes
from backends.control.rules import load_budgets, load_holds, load_limits, load_tenants, sound_failures, sound_queue
from backends.control.serving import model_spec
from backends.control.sound_rows import SoundRows
from backends.control.stored_keys import load_stored, settings_with_sealed, with_sealed
from contracts.control import Model, Pool, Price, StandardCost, Target
from contracts.errors import ConfigurationError
from contracts.pricing.prices import AnyCard, PriceBook
from contracts.rules.holds import HoldSpec
from contracts.rules.limits import BudgetSpec, LimitSpec, TenantSpec
from contracts.serving.configuration import EMPTY_SNAPSHOT, ModelSpec, PoolSpec, Snapshot, TargetSpec

__all__ = ["Reading", "load_snapshot", "read_revision", "read_snapshot"]

_MAX_TENANTS_APART: Final = 500  # with more activated at once, all keys are read again


@dataclass(frozen=True, slots=True)
class Reading:
    """A snapshot, and what the next read builds on: the database's revisions, the loaded keys and the faults."""

    snapshot: Snapshot
    revisions: Revisions
    keys: LoadedKeys
    rule_faults: tuple[str, ...]
    serving_faults: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Rules:
    tenants: Mapping[str, TenantSpec]
    limits: tuple[LimitSpec, ...]
    budgets: tuple[BudgetSpec, ...]
    holds: tuple[HoldSpec, ...]
    faults: tuple[str, ...]


def load_snapshot(session: Session) -> Snapshot:
    """Read everything and return the snapshot; see `read_snapshot`."""
    return read_snapshot(session).snapshot


def read_snapshot(session: Session, last: Reading | None = None, *, is_whole: bool = False) -> Reading:
    """Read what changed since the last read; everything if there was none, or `is_whole` is set.

    Revoked keys are left out, and so are keys of tenants that were inactive when their keys were read; expired ones
    stay, to distinguish them from unknown ones. Inactive models, and pools without targets, are left out. An unreadable
    row is left out and listed in `misconfigured`. The revision is read first: a change that commits meanwhile is read
    again at the next poll, never missed.
    """
    revisions = read_revisions(session)
    known = None if last is None or is_whole or last.revisions.number > revisions.number else last
    if known is not None and known.revisions.rules == revisions.rules:
        rules = _rules_of(known)
    else:
        rules = _load_rules(session)
    keys = _load_keys(session, rules.tenants, last, known, revisions)
    is_serving_known = known is not None and known.revisions.serving == revisions.serving
    serving, serving_faults = (
        (known.snapshot, known.serving_faults) if known is not None and is_serving_known else _load_serving(session)
    )
    snapshot = Snapshot(
        revision=revisions.number,
        keys=keys.entries,
        models=serving.models,
        pools=serving.pools,
        prices=serving.prices,
        misconfigured=(*keys.faults.values(), *rules.faults, *serving_faults),
        tenants=rules.tenants,
        limits=rules.limits,
        budgets=rules.budgets,
        issuers=serving.issuers,
        routes=serving.routes,
        playbooks=serving.playbooks,
        holds=rules.holds,
        rollouts=serving.rollouts,
        guardrails=serving.guardrails,
        mcp_servers=serving.mcp_servers,
        mcp_rules=serving.mcp_rules,
    )
    return Reading(snapshot, revisions, keys, rules.faults, serving_faults)


def _load_keys(
    session: Session,
    tenants: Mapping[str, TenantSpec],
    last: Reading | None,
    known: Reading | None,
    revisions: Revisions,
) -> LoadedKeys:
    reader = KeyReader(session, LoadedKeys(KeyBook({}), {}) if last is None else last.keys)
    if known is None or known.revisions.number < revisions.keys_floor:
        return reader.read_all()
    before = known.snapshot.tenants
    apart = set() if before is tenants else set(_awakened(before, tenants))
    if len(apart) > _MAX_TENANTS_APART or not before.keys() <= tenants.keys():
        return reader.read_all()  # the keys of a removed or unreadable tenant must go
    return reader.read_changes(known.revisions.number, apart)


def _awakened(before: Mapping[str, TenantSpec], after: Mapping[str, TenantSpec]) -> Iterator[str]:
    """Yield tenants that became active, whose keys may be missing. Keys of a deactivated tenant stay: every request
    checks the tenant.
    """
    for name, tenant in after.items():
        known = before.get(name)
        if tenant.is_active and (known is None or not known.is_active):
            yield name


def _rules_of(known: Reading) -> _Rules:
    snapshot = known.snapshot
    return _Rules(snapshot.tenants, snapshot.limits, snapshot.budgets, snapshot.holds, known.rule_faults)


def _load_rules(session: Session) -> _Rules:
    rows = SoundRows(session)
    tenants, limits, budgets, holds = load_tenants(rows), load_limits(rows), load_budgets(rows), load_holds(rows)
    return _Rules(tenants, limits, budgets, holds, tuple(rows.faults))


def _load_serving(session: Session) -> tuple[Snapshot, tuple[str, ...]]:
    rows = SoundRows(session)
    stored = load_stored(session)
    pools = _load_pools(rows, stored)
    models = {name: model for name, model in _load_models(rows).items() if model.pool in pools}
    routes = load_routes(rows, models, pools)
    serving = Snapshot(
        revision=EMPTY_SNAPSHOT.revision,
        keys=EMPTY_SNAPSHOT.keys,
        models=models,
        pools=pools,
        prices=_load_prices(rows),
        issuers=load_issuers(rows),
        routes=routes,
        playbooks=load_playbooks(rows),
        rollouts=load_rollouts(rows, routes, models, pools),
        guardrails=load_guardrails(rows),
        mcp_servers=load_mcp_servers(rows, stored),
        mcp_rules=load_tool_rules(rows),
    )
    return serving, tuple(rows.faults)


def _load_pools(rows: SoundRows, stored: Mapping[str, str]) -> dict[str, PoolSpec]:
    pools: dict[str, Pool] = {pool.id: pool for pool in rows.build("pool", select(Pool), (Pool.id,), _entity)}
    targets: dict[str, list[TargetSpec]] = {}
    for target in rows.build("target", select(Target), (Target.pool_id, Target.id), _entity):
        if target.pool_id not in pools:  # its pool was added after pools were read: the next poll reads both
            continue
        spec = TargetSpec(
            id=target.id,
            pool=target.pool_id,
            kind=target.kind,
            url=target.url,
            model=target.model,
            provider=target.provider,
            key_ref=with_sealed(target.key_ref, stored),
            weight=target.weight,
            region=pools[target.pool_id].region,
            settings=settings_with_sealed(target.settings, stored),
        )
        targets.setdefault(target.pool_id, []).append(spec)
    return {
        pool_id: PoolSpec(
            id=pool_id,
            targets=tuple(of_pool),
            policy=pools[pool_id].policy,
            queue=sound_queue(rows, pool_id, pools[pool_id].settings),
            failures=sound_failures(rows, pool_id, pools[pool_id].settings),
        )
        for pool_id, of_pool in targets.items()
    }


def _load_models(rows: SoundRows) -> dict[str, ModelSpec]:
    wanted = select(Model).where(Model.is_active)
    return {model.id: model for model in rows.build("model", wanted, (Model.id,), lambda row: model_spec(row[0]))}


def _load_prices(rows: SoundRows) -> PriceBook:
    # Oldest first: of two contradicting cards the older one is used.
    dated: list[tuple[datetime, AnyCard]] = rows.build(
        "price card", select(Price), (Price.version,), lambda row: (row[0].created_at, card_of_price(row[0]))
    )
    dated += rows.build(
        "standard cost card",
        select(StandardCost),
        (StandardCost.version,),
        lambda row: (row[0].created_at, card_of_standard_cost(row[0])),
    )
    cards = [card for _, card in sorted(dated, key=lambda pair: (pair[0], pair[1].version))]
    try:
        return PriceBook(cards)
    except ConfigurationError:
        return _consistent_book(cards, rows.faults)


def _consistent_book(cards: list[AnyCard], faults: list[str]) -> PriceBook:
    """Return the cards without those that contradict older ones, which only a write outside the control plane can
    create.
    """
    sound: list[AnyCard] = []
    for card in cards:
        rivals = [other for other in sound if other.model == card.model or other.version == card.version]
        try:
            PriceBook([*rivals, card])
        except ConfigurationError as error:
            faults.append(f"price card {card.version!r} is left out: {error.message}")
        else:
            sound.append(card)
    return PriceBook(sound)


def _entity(row: tuple[Any]) -> Any:
    return row[0]
