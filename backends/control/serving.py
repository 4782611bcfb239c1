"""Models, pools and targets in the control database. A pool that serves a model always has a target."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Final, cast

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from backends.control.changes import Author, begin_change
from backends.control.route_guard import routes_kept
from backends.control.row_names import row_name
from backends.control.rules import FAILURES_SETTING, QUEUE_SETTING, failures_of, queue_spec
from contracts.control import Model, Pool, Route, Target
from contracts.errors import ConfigurationError, Conflict, InvalidRequest, NotFound
from contracts.serving.caching import cache_policy
from contracts.serving.configuration import ModelSpec
from contracts.serving.sampling import sampling_policy

SAMPLING_SETTINGS: Final = ("defaults", "pinned")  # keys in a model's settings
CACHE_SETTING: Final = "cache"  # key in a model's or tenant's settings


@dataclass(frozen=True, slots=True)
class NewTarget:
    """A new target: one replica's address and protocol. `key_ref` names a credential ("env:NAME", "file:PATH")."""

    id: str
    kind: str
    url: str = ""
    model: str = ""
    provider: str = ""
    key_ref: str = ""
    weight: int = 1
    settings: Mapping[str, object] = field(default_factory=dict)


def create_pool(session: Session, author: Author, pool_id: str, *, policy: str = "cost", region: str = "") -> Pool:
    """Add a pool without targets. Raises Conflict if the id is in use."""
    begin_change(session, author, "pool.create", pool_id, {"policy": policy, "region": region})
    if session.get(Pool, pool_id) is not None:
        raise Conflict(f"pool {pool_id!r} exists already; choose another id", param="id")
    pool = Pool(id=pool_id, policy=policy, region=region, settings={}, created_at=author.at)
    session.add(pool)
    session.flush()
    return pool


def list_pools(session: Session, *, after: str = "", limit: int = 100) -> list[Pool]:
    """Return up to `limit` pools whose ids sort after `after`."""
    return list(session.scalars(select(Pool).where(Pool.id > after).order_by(Pool.id).limit(limit)))


def get_pool(session: Session, pool_id: str) -> Pool:
    """Return a pool. Raises NotFound."""
    pool = session.get(Pool, pool_id)
    if pool is None:
        raise NotFound(
            f"pool {pool_id!r} does not exist; `tollkeeper pools list` shows those that do",
            rows=[row_name(Pool, pool_id)],
        )
    return pool


def update_pool(
    session: Session, author: Author, pool_id: str, *, policy: str | None = None, region: str | None = None
) -> Pool:
    """Change a pool's policy or region; `None` leaves one unchanged.

    Raises NotFound, and Conflict if a route or a live rollout depends on the region.
    """
    entry = begin_change(session, author, "pool.update", pool_id)
    pool = get_pool(session, pool_id)
    wanted = {"policy": policy or pool.policy, "region": pool.region if region is None else region}
    before = {"policy": pool.policy, "region": pool.region}
    changed = [name for name in wanted if wanted[name] != before[name]]
    entry.detail = {
        "before": {name: before[name] for name in changed},
        "after": {name: wanted[name] for name in changed},
    }
    with routes_kept(session):
        pool.policy, pool.region = wanted["policy"], wanted["region"]
        session.flush()
    return pool


def set_pool_queue(session: Session, author: Author, pool_id: str, queue: Mapping[str, object] | None) -> Pool:
    """Set a pool's queue settings; `None`: the default. Raises NotFound, and InvalidRequest on invalid settings."""
    return _set_pool_part(session, author, pool_id, QUEUE_SETTING, queue, queue_spec)


def set_pool_failures(session: Session, author: Author, pool_id: str, failures: Mapping[str, object] | None) -> Pool:
    """Set a pool's failure policy; `None`: the default. Raises NotFound, and InvalidRequest on an invalid policy."""
    return _set_pool_part(session, author, pool_id, FAILURES_SETTING, failures, failures_of)


def _set_pool_part(
    session: Session,
    author: Author,
    pool_id: str,
    part: str,
    stated: Mapping[str, object] | None,
    check: Callable[[Mapping[str, object]], object],
) -> Pool:
    entry = begin_change(session, author, "pool.update", pool_id)
    pool = get_pool(session, pool_id)
    before = pool.settings.get(part)
    others = {name: value for name, value in pool.settings.items() if name != part}
    settings = others if stated is None else {**others, part: dict(stated)}
    try:
        check(settings)
    except (ConfigurationError, TypeError) as error:
        message = error.message if isinstance(error, ConfigurationError) else f"{part} has a field that no {part} takes"
        raise InvalidRequest(message, param=part) from error
    entry.detail = {"before": {part: before}, "after": {part: settings.get(part)}}
    pool.settings = settings
    session.flush()
    return pool


def delete_pool(session: Session, author: Author, pool_id: str) -> None:
    """Remove a pool with its targets. Raises NotFound, and Conflict while a model is served by it."""
    begin_change(session, author, "pool.delete", pool_id)
    pool = get_pool(session, pool_id)
    _refuse_while_serving(session, pool_id, "delete the model first")
    for target in list_targets(session, pool_id):
        session.delete(target)
    session.flush()  # deletes targets before their pool, as the database may not cascade
    session.delete(pool)
    session.flush()


def create_target(session: Session, author: Author, pool_id: str, new: NewTarget) -> Target:
    """Add a target to a pool. Raises NotFound or Conflict."""
    detail: dict[str, object] = {"kind": new.kind, "url": new.url, "weight": new.weight}
    begin_change(session, author, "target.create", f"{pool_id}/{new.id}", detail)
    get_pool(session, pool_id)
    if session.get(Target, (pool_id, new.id)) is not None:
        raise Conflict(f"pool {pool_id!r} has a target {new.id!r} already; choose another id", param="id")
    target = Target(
        pool_id=pool_id,
        id=new.id,
        kind=new.kind,
        url=new.url,
        model=new.model,
        provider=new.provider,
        key_ref=new.key_ref,
        weight=new.weight,
        settings=dict(new.settings),
    )
    session.add(target)
    session.flush()
    return target


def list_targets(session: Session, pool_id: str) -> list[Target]:
    """Return a pool's targets, in the order of their ids. Raises NotFound on the pool."""
    get_pool(session, pool_id)
    return list(session.scalars(select(Target).where(Target.pool_id == pool_id).order_by(Target.id)))


def get_target(session: Session, pool_id: str, target_id: str) -> Target:
    """Return a target. Raises NotFound on the pool or the target."""
    get_pool(session, pool_id)
    target = session.get(Target, (pool_id, target_id))
    if target is None:
        raise NotFound(f"pool {pool_id!r} has no target {target_id!r}", rows=[row_name(Target, pool_id, target_id)])
    return target


def replace_target(session: Session, author: Author, pool_id: str, wanted: NewTarget) -> Target:
    """Replace the target that has the id of `wanted`.

    Gateways send new requests to it from the next revision on; requests in progress finish at the previous one. Raises
    NotFound, and Conflict if a route or a live rollout depends on the former provider or kind.
    """
    entry = begin_change(session, author, "target.update", f"{pool_id}/{wanted.id}")
    target = get_target(session, pool_id, wanted.id)
    entry.detail = _target_changes(target, wanted)
    with routes_kept(session):
        for one in fields(NewTarget):
            if one.name not in ("id", "settings"):
                setattr(target, one.name, getattr(wanted, one.name))
        target.settings = dict(wanted.settings)
        session.flush()
    return target


def _target_changes(target: Target, wanted: NewTarget) -> dict[str, object]:
    """Return the changed columns before and after. Settings are listed by name only: their values can be long."""
    names = [one.name for one in fields(NewTarget) if one.name != "settings"]
    changed = [name for name in names if getattr(target, name) != getattr(wanted, name)]
    found: dict[str, object] = {
        "before": {name: getattr(target, name) for name in changed},
        "after": {name: getattr(wanted, name) for name in changed},
    }
    before, after = target.settings, wanted.settings
    settings = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    return {**found, "settings": settings} if settings else found


def delete_target(session: Session, author: Author, pool_id: str, target_id: str) -> None:
    """Remove a target. Raises Conflict on the last one of a pool that serves a model."""
    begin_change(session, author, "target.delete", f"{pool_id}/{target_id}")
    target = get_target(session, pool_id, target_id)
    if _count_targets(session, pool_id) == 1:
        _refuse_while_serving(session, pool_id, "add another target first")
    with routes_kept(session):
        session.delete(target)
        session.flush()


def create_model(
    session: Session,
    author: Author,
    model_id: str,
    pool_id: str,
    *,
    description: str = "",
    context_tokens: int | None = None,
    sampling: Mapping[str, Mapping[str, object]] | None = None,
) -> Model:
    """Add a model name for applications. `sampling` has the settings of `SAMPLING_SETTINGS` and `CACHE_SETTING`.

    Raises Conflict if the name is in use, InvalidRequest if the pool is unknown or has no targets, or if the sampling
    is invalid.
    """
    begin_change(session, author, "model.create", model_id, {"pool": pool_id})
    if session.get(Model, model_id) is not None:
        raise Conflict(f"model {model_id!r} exists already; choose another id", param="id")
    if session.get(Route, model_id) is not None:
        raise Conflict(f"route {model_id!r} has this name; choose another id", param="id")
    _check_pool_serves(session, pool_id)
    model = Model(
        id=model_id,
        pool_id=pool_id,
        description=description,
        context_tokens=context_tokens,
        is_active=True,
        settings=_with_sampling({}, sampling or {}),
        created_at=author.at,
    )
    _check_model(model)
    session.add(model)
    session.flush()
    return model


def list_models(session: Session, *, after: str = "", limit: int = 100) -> list[Model]:
    """Return up to `limit` models whose ids sort after `after`."""
    return list(session.scalars(select(Model).where(Model.id > after).order_by(Model.id).limit(limit)))


def get_model(session: Session, model_id: str) -> Model:
    """Return a model. Raises NotFound."""
    model = session.get(Model, model_id)
    if model is None:
        raise NotFound(
            f"model {model_id!r} does not exist; `tollkeeper models list` shows those that do",
            rows=[row_name(Model, model_id)],
        )
    return model


def set_model_active(session: Session, author: Author, model_id: str, is_active: bool) -> Model:
    """Activate or deactivate a model. Raises NotFound, and Conflict if a route needs it."""
    begin_change(session, author, "model.update", model_id, {"is_active": is_active})
    model = get_model(session, model_id)
    with routes_kept(session):
        model.is_active = is_active
        session.flush()
    return model


def update_model(
    session: Session,
    author: Author,
    model_id: str,
    *,
    pool_id: str | None = None,
    description: str | None = None,
    context_tokens: int | None = None,
    is_unbounded: bool = False,
) -> Model:
    """Set a model's pool, description or context length; `None` leaves a field unchanged. `is_unbounded` removes the
    context length.

    Raises NotFound, InvalidRequest if the pool is unknown or has no targets, Conflict if a route depends on the pool.
    """
    entry = begin_change(session, author, "model.update", model_id)
    model = get_model(session, model_id)
    wanted = {
        "pool_id": model.pool_id if pool_id is None else pool_id,
        "description": model.description if description is None else description,
        "context_tokens": None if is_unbounded else model.context_tokens if context_tokens is None else context_tokens,
    }
    changed = [name for name in wanted if wanted[name] != getattr(model, name)]
    entry.detail = {
        "before": {name: getattr(model, name) for name in changed},
        "after": {name: wanted[name] for name in changed},
    }
    if "pool_id" in changed:
        _check_pool_serves(session, str(pool_id))
    with routes_kept(session):
        for name in changed:
            setattr(model, name, wanted[name])
        session.flush()
    return model


def set_model_sampling(
    session: Session, author: Author, model_id: str, sampling: Mapping[str, Mapping[str, object]]
) -> Model:
    """Set a model's defaults, pinned values and response cache; missing settings stay, an empty one is removed.

    Raises NotFound, and InvalidRequest on values that no request may have, or that are both default and pinned.
    """
    entry = begin_change(session, author, "model.update", model_id)
    model = get_model(session, model_id)
    before = {name: model.settings.get(name, {}) for name in sampling}
    model.settings = _with_sampling(model.settings, sampling)
    _check_model(model)
    entry.detail = {"before": before, "after": {name: dict(values) for name, values in sampling.items()}}
    session.flush()
    return model


def model_spec(model: Model) -> ModelSpec:
    """Build the model in a row. Raises ConfigurationError if its sampling or its cache is invalid."""
    defaults, pinned = (cast("Mapping[str, object] | None", model.settings.get(name)) for name in SAMPLING_SETTINGS)
    return ModelSpec(
        id=model.id,
        pool=model.pool_id,
        context_tokens=model.context_tokens,
        created_unix=int(model.created_at.timestamp()),
        sampling=sampling_policy(defaults, pinned),
        cache=cache_policy(cast("Mapping[str, object] | None", model.settings.get(CACHE_SETTING))),
    )


def _with_sampling(settings: Mapping[str, object], sampling: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
    found = {name: value for name, value in settings.items() if name not in sampling}
    return found | {name: dict(values) for name, values in sampling.items() if values}


def _check_model(model: Model) -> None:
    try:
        model_spec(model)
    except ConfigurationError as error:
        raise InvalidRequest(error.message, param=error.param) from error


def delete_model(session: Session, author: Author, model_id: str) -> None:
    """Remove a model; its pool stays. Raises NotFound, and Conflict if a route leads to it."""
    begin_change(session, author, "model.delete", model_id)
    with routes_kept(session):
        session.delete(get_model(session, model_id))
        session.flush()


def _check_pool_serves(session: Session, pool_id: str) -> None:
    if session.get(Pool, pool_id) is None:
        raise InvalidRequest(f"pool {pool_id!r} does not exist; create it first", param="pool")
    if not _count_targets(session, pool_id):
        raise InvalidRequest(f"pool {pool_id!r} has no targets; add one first", param="pool")


def _count_targets(session: Session, pool_id: str) -> int:
    return session.scalar(select(func.count()).select_from(Target).where(Target.pool_id == pool_id)) or 0


def _refuse_while_serving(session: Session, pool_id: str, remedy: str) -> None:
    model = session.scalars(select(Model.id).where(Model.pool_id == pool_id).limit(1)).first()
    if model is not None:
        raise Conflict(f"pool {pool_id!r} serves model {model!r}; {remedy}")
