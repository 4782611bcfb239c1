"""What the data plane serves by, read from the control database as one immutable snapshot."""

from collections.abc import Mapping
from typing import cast

from sqlalchemy import select
from sqlalchemy.orm import Session

from backends.control.changes import read_revision
from backends.control.prices import load_cards
from contracts.configuration import KeyEntry, ModelSpec, PoolSpec, Snapshot, TargetSpec
from contracts.control import ApiKey, Model, Pool, Target, Tenant
from contracts.identity import Identity
from contracts.moments import unix_ns
from contracts.prices import PriceBook

__all__ = ["load_snapshot", "read_revision"]


def load_snapshot(session: Session) -> Snapshot:
    """Read keys, models, pools and prices as they stand.

    Revoked keys and keys of inactive tenants are left out; expired ones stay, so that they can be told apart
    from unknown ones. Models that are not active, and pools without targets, are not served. The revision is
    read before the rest: a change that commits in between is read again at the next poll, never missed.
    """
    revision = read_revision(session)
    pools = _load_pools(session)
    models = _load_models(session)
    return Snapshot(
        revision=revision,
        keys=_load_keys(session),
        models={name: model for name, model in models.items() if model.pool in pools},
        pools=pools,
        prices=PriceBook(load_cards(session)),
    )


def _load_keys(session: Session) -> dict[bytes, KeyEntry]:
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
    keys: dict[bytes, KeyEntry] = {}
    for digest_hex, tenant, team, project, key_id, expires_at, scopes in session.execute(wanted):
        digest = bytes.fromhex(digest_hex)
        keys[digest] = KeyEntry(
            digest=digest,
            identity=Identity(tenant, team, project, key_id),
            expires_at_ns=None if expires_at is None else unix_ns(expires_at),
            models=_scope(scopes, "models"),
            endpoints=_scope(scopes, "endpoints"),
        )
    return keys


def _load_pools(session: Session) -> dict[str, PoolSpec]:
    pools = {pool.id: pool for pool in session.scalars(select(Pool))}
    targets: dict[str, list[TargetSpec]] = {}
    for target in session.scalars(select(Target).order_by(Target.pool_id, Target.id)):
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


def _load_models(session: Session) -> dict[str, ModelSpec]:
    return {
        model.id: ModelSpec(
            id=model.id,
            pool=model.pool_id,
            context_tokens=model.context_tokens,
            created_unix=int(model.created_at.timestamp()),
        )
        for model in session.scalars(select(Model).where(Model.is_active))
    }


def _scope(scopes: Mapping[str, object], name: str) -> frozenset[str] | None:
    allowed = scopes.get(name)
    return None if allowed is None else frozenset(cast("list[str]", allowed))
