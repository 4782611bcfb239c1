"""Creates the objects of a new installation: a scripted model with a price, a tenant and a key.

Also adds the models of an engine host and of an upstream named in the environment. Safe to run at every start.
"""

from dataclasses import dataclass
from decimal import Decimal

from sqlalchemy import select
from sqlalchemy.orm import Session

from backends.control.changes import Author, begin_change
from backends.control.keys import KeyRequest, create_key
from backends.control.organisation import create_tenant
from backends.control.prices import BUILTIN_VERSIONS, NewStandardCost, create_price, create_standard_cost
from backends.control.serving import NewTarget, create_model, create_pool, create_target
from contracts.control import Model, Pool, Target, Tenant
from contracts.pricing.prices import NewPrice

DEMO_TENANT = "demo"
DEMO_POOL = "demo"
DEMO_MODEL = "scripted-1"
DEMO_PRICE_VERSION = "scripted-1/2026-11"
BUILTIN_POOL = "builtin"
BUILTIN_MODEL = "tollkeeper-5m"
_ENGINE_TARGET = "engine"
_BUILTIN_CONTEXT_TOKENS = 8192
# A standard cost: nobody sells this model. The order of magnitude of prices of small open models.
_BUILTIN_USD_PER_MTOK = (Decimal("0.02"), Decimal("0.002"), Decimal("0.10"))
UPSTREAM_POOL = "upstream"
_UPSTREAM_TARGET = "upstream-1"


@dataclass(frozen=True, slots=True)
class Upstream:
    """An OpenAI-compatible server from the environment; `key_ref` names its credential or is empty."""

    url: str
    model: str
    key_ref: str = ""


@dataclass(frozen=True, slots=True)
class EngineOffer:
    """One of our engine hosts: its URL, and the models and the embedder that it serves besides the built-in model."""

    url: str
    models: tuple[str, ...] = ()
    embedder: str = ""


def is_fresh(session: Session) -> bool:
    """Return whether the database has no tenant, model or pool yet."""
    return not any(session.scalars(select(table.id).limit(1)).first() for table in (Tenant, Model, Pool))


def add_demo(session: Session, author: Author, demo_key: str, pepper: bytes) -> None:
    """Add the demonstration's objects to a new database.

    Raises Conflict if another control plane of the same database has added them concurrently.
    """
    create_pool(session, author, DEMO_POOL)
    create_target(session, author, DEMO_POOL, NewTarget(id="scripted", kind="scripted"))
    create_model(session, author, DEMO_MODEL, DEMO_POOL, description="Plays a script; for trying things out")
    create_price(
        session,
        author,
        NewPrice(
            model=DEMO_MODEL,
            version=DEMO_PRICE_VERSION,
            usd_per_mtok={
                "input_text": Decimal("0.15"),
                "cache_read_text": Decimal("0.075"),
                "output_text": Decimal("0.60"),
            },
        ),
    )
    create_tenant(session, author, DEMO_TENANT, "Demo")
    create_key(session, author, KeyRequest(tenant_id=DEMO_TENANT, name="first key"), demo_key, pepper)


def add_engine(session: Session, author: Author, offer: EngineOffer, *, is_first: bool) -> bool:
    """Add an engine host's target and models; return whether anything changed.

    The built-in model and the embedder are added at an installation's first start only, with their standard costs: what
    an operator removes stays removed. Models that the operator names are added whenever they are missing, and the
    target's URL is updated.
    """
    named = [name for name in offer.models if name != BUILTIN_MODEL]
    wanted = [name for name in named if session.get(Model, name) is None]
    if is_first:
        wanted += [BUILTIN_MODEL] if BUILTIN_MODEL in offer.models else []
        wanted += [offer.embedder] if offer.embedder else []
    target = session.get(Target, (BUILTIN_POOL, _ENGINE_TARGET))
    if not wanted and (target is None or target.url == offer.url):
        return False
    if session.get(Pool, BUILTIN_POOL) is None:
        create_pool(session, author, BUILTIN_POOL)
    _point(session, author, target, offer.url)
    for name in wanted:
        context = _BUILTIN_CONTEXT_TOKENS if name == BUILTIN_MODEL else None
        create_model(session, author, name, BUILTIN_POOL, context_tokens=context)
        if name in (BUILTIN_MODEL, offer.embedder):
            _add_standard_cost(session, author, name)
    return True


def _point(session: Session, author: Author, target: Target | None, url: str) -> None:
    """Set the URL of the engine host's target; create the target if there is none."""
    if target is None:
        create_target(session, author, BUILTIN_POOL, NewTarget(id=_ENGINE_TARGET, kind="engine", url=url))
    elif target.url != url:
        begin_change(session, author, "target.update", f"{BUILTIN_POOL}/{_ENGINE_TARGET}", {"url": url})
        target.url = url
        session.flush()


def _add_standard_cost(session: Session, author: Author, model: str) -> None:
    # Versions are unique over all cards, so the embedder's contains its name.
    version = BUILTIN_VERSIONS + ("2026-11" if model == BUILTIN_MODEL else f"{model}/2026-11")
    create_standard_cost(session, author, NewStandardCost(model, version, *_BUILTIN_USD_PER_MTOK))


def add_upstream(session: Session, author: Author, upstream: Upstream) -> bool:
    """Add or update the upstream's target and model from the environment; return whether anything changed."""
    target = session.get(Target, (UPSTREAM_POOL, _UPSTREAM_TARGET))
    stated = (upstream.url, upstream.model, upstream.key_ref)
    is_model_known = session.get(Model, upstream.model) is not None
    if target is not None and (target.url, target.model, target.key_ref) == stated and is_model_known:
        return False
    if session.get(Pool, UPSTREAM_POOL) is None:
        create_pool(session, author, UPSTREAM_POOL)
    if target is None:
        wanted = NewTarget(
            id=_UPSTREAM_TARGET,
            kind="openai_http",
            url=upstream.url,
            model=upstream.model,
            key_ref=upstream.key_ref,
        )
        create_target(session, author, UPSTREAM_POOL, wanted)
    else:
        begin_change(session, author, "target.update", f"{UPSTREAM_POOL}/{_UPSTREAM_TARGET}", {"url": upstream.url})
        target.url, target.model, target.key_ref = stated
        session.flush()
    if not is_model_known:
        create_model(session, author, upstream.model, UPSTREAM_POOL)
    return True
