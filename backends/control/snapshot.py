"""What the data plane serves by, read from the control database as one immutable snapshot."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

from sqlalchemy import select
from sqlalchemy.orm import Session

from backends.control.changes import read_revision
from backends.control.prices import card_of_price, card_of_standard_cost
from backends.control.sound_rows import SoundRows
from contracts.configuration import KeyEntry, ModelSpec, PoolSpec, Snapshot, TargetSpec
from contracts.control import ApiKey, Model, Pool, Price, StandardCost, Target, Tenant
from contracts.errors import ConfigurationError
from contracts.identity import Identity
from contracts.moments import unix_ns
from contracts.prices import AnyCard, PriceBook

__all__ = ["load_snapshot", "read_revision"]


def load_snapshot(session: Session) -> Snapshot:
    """Read keys, models, pools and prices as they stand.

    Revoked keys and keys of inactive tenants are left out; expired ones stay, so that they can be told apart
    from unknown ones. Models that are not active, and pools without targets, are not served. A row that cannot be
    read is left out and named in `misconfigured`. The revision is read before the rest: a change that commits in
    between is read again at the next poll, never missed.
    """
    revision = read_revision(session)
    rows = SoundRows(session)
    keys = _load_keys(rows)
    pools = _load_pools(rows)
    models = _load_models(rows)
    prices = _load_prices(rows)
    return Snapshot(
        revision=revision,
        keys=keys,
        models={name: model for name, model in models.items() if model.pool in pools},
        pools=pools,
        prices=prices,
        misconfigured=tuple(rows.faults),
    )


def _load_keys(rows: SoundRows) -> dict[bytes, KeyEntry]:
    # Columns, not objects: 100,000 keys are read at every change.
    wanted = (
        select(
            ApiKey.digest,
            ApiKey.tenant_id,
            ApiKey.team_id,
            ApiKey.project_id,
            ApiKey.id,
            ApiKey.expires_at,
            ApiKey.scopes,
        )
        .join(Tenant, Tenant.id == ApiKey.tenant_id)
        .where(ApiKey.revoked_at.is_(None), Tenant.is_active)
    )
    return {entry.digest: entry for entry in rows.build("key", wanted, (ApiKey.id,), _key_entry)}


def _key_entry(row: tuple[Any, ...]) -> KeyEntry:
    digest_hex, tenant, team, project, key_id, expires_at, scopes = row
    return KeyEntry(
        digest=bytes.fromhex(digest_hex),
        identity=Identity(tenant, team, project, key_id),
        expires_at_ns=None if expires_at is None else unix_ns(expires_at),
        models=_scope(scopes, "models"),
        endpoints=_scope(scopes, "endpoints"),
    )


def _load_pools(rows: SoundRows) -> dict[str, PoolSpec]:
    pools: dict[str, Pool] = {pool.id: pool for pool in rows.build("pool", select(Pool), (Pool.id,), _entity)}
    targets: dict[str, list[TargetSpec]] = {}
    for target in rows.build("target", select(Target), (Target.pool_id, Target.id), _entity):
        if target.pool_id not in pools:  # its pool came after ours were read: the next poll reads both
            continue
        spec = TargetSpec(
            id=target.id,
            pool=target.pool_id,
            kind=target.kind,
            url=target.url,
            model=target.model,
            provider=target.provider,
            key_ref=target.key_ref,
            weight=target.weight,
            region=pools[target.pool_id].region,
            settings=target.settings,
        )
        targets.setdefault(target.pool_id, []).append(spec)
    return {
        pool_id: PoolSpec(id=pool_id, targets=tuple(of_pool), policy=pools[pool_id].policy)
        for pool_id, of_pool in targets.items()
    }


def _load_models(rows: SoundRows) -> dict[str, ModelSpec]:
    wanted = select(Model).where(Model.is_active)
    return {model.id: model for model in rows.build("model", wanted, (Model.id,), _model_spec)}


def _model_spec(row: tuple[Model]) -> ModelSpec:
    model = row[0]
    return ModelSpec(
        id=model.id,
        pool=model.pool_id,
        context_tokens=model.context_tokens,
        created_unix=int(model.created_at.timestamp()),
    )


def _load_prices(rows: SoundRows) -> PriceBook:
    # The older card first: where two contradict each other, the one that was there holds.
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
    """Leave out the cards that contradict older ones. The control plane refuses such; someone wrote around it."""
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


def _scope(scopes: Mapping[str, object], name: str) -> frozenset[str] | None:
    allowed = scopes.get(name)
    return None if allowed is None else frozenset(cast("list[str]", allowed))
