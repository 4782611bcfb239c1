"""Adds the demo's data (three tenants with a history) to a running installation, and removes it."""

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from sqlalchemy.orm import Session

from backends.control import erasure as in_control
from backends.control.budget_events import PassedThreshold, record_event
from backends.control.budget_recounts import recount_budget
from backends.control.changes import Author
from backends.control.current_budgets import current_budgets
from backends.control.organisation import TenantChange, update_tenant
from backends.control.rollouts import abort_rollout, delete_rollout
from backends.control.routes import delete_route
from backends.control.serving import delete_model, delete_pool, delete_target
from backends.secrets.secret_files import SecretFiles
from backends.store import erasure as in_store
from backends.store.address import StoreAddress
from backends.store.client import StoreClient
from backends.store.columns import arrow_batch
from contracts.control import Base, Model, Pool, Rollout, Route, Tenant
from contracts.errors import ConfigurationError
from contracts.recording.moments import unix_ns
from contracts.recording.names import ATTEMPTS, ENGINE_STEPS, GPU_SAMPLES, REQUESTS
from contracts.serving.rollouts import LIVE
from tollkeeper.control_client import ControlClient
from tollkeeper.installation import Installation
from tollkeeper.open_installation import open_control, open_installation
from tollkeeper.showcase.gpus import GPU
from tollkeeper.showcase.rows import (
    HOSTED,
    NEXT,
    OWN,
    POOLS,
    RATES,
    ROLLOUT,
    ROUTE,
    TENANTS,
    ShowcaseRows,
    showcase_rows,
)

_NAMES: Final = {"acme": "Acme Retail", "globex": "Globex Labs", "initech": "Initech"}
_THRESHOLDS: Final = (50, 80, 100)
USED_PERCENT: Final = {"acme": 93, "globex": 81, "initech": 41}  # percent of the monthly budget that is spent
_PICO_PER_USD: Final = 10**12
_LEAVES: Final = ("input_text", "cache_read_text", "output_text")


def fill_showcase(
    installation: Installation, now: datetime | None = None, *, prefix: str = "", has_gpus: bool = True
) -> ShowcaseRows:
    """Create tenants, teams, keys, models, prices, a route, limits, budgets, objectives and alert rules, then the rows.

    Returns the rows. `prefix` is prepended to tenants' names. Raises ConfigurationError if the demo's data exists
    already, because its rows would count twice. Without `has_gpus` there are no engine steps and GPU samples, for an
    installation with its own.
    """
    token = SecretFiles(installation.secrets).get("admin_token")
    assert token is not None, "the installation was never started"
    control_url = installation.address_of("control")
    assert control_url is not None, "the installation does not run"
    with ControlClient(control_url, token) as control:
        if has_showcase(control):
            raise ConfigurationError(f"{installation.data} has the showcase already; fill an installation that is new")
        keys = _configure(control, prefix)
        moment = now or datetime.now(UTC)
        rows = showcase_rows(moment, keys, prefix=prefix)
        _add_budgets(control, installation, rows, prefix)
    store_url = installation.address_of("store")
    assert store_url is not None
    address = StoreAddress.resolve(store_url, "tollkeeper", "writer", SecretFiles(installation.secrets))
    store = StoreClient(address)
    for table, records in (
        (REQUESTS, rows.requests),
        (ATTEMPTS, rows.attempts),
        (ENGINE_STEPS, rows.steps if has_gpus else []),
        (GPU_SAMPLES, rows.devices if has_gpus else []),
    ):
        if not records:
            continue
        batch: Any = arrow_batch(table, records)
        store.insert_arrow(
            table.name, batch, deduplication_token=f"{prefix}showcase-{moment.timestamp():.0f}-{table.name}"
        )
    store.close()
    return rows


def has_showcase(control: ControlClient) -> bool:
    """Return whether an installation has the demo's data."""
    return any(model["id"] == OWN for model in control.get_all("/v1/models"))


def _configure(control: ControlClient, prefix: str) -> dict[tuple[str, str], str]:
    _serve(control)
    keys: dict[tuple[str, str], str] = {}
    for name, teams in TENANTS.items():
        tenant = prefix + name
        base = f"/v1/tenants/{tenant}"
        control.post("/v1/tenants", {"id": tenant, "name": _NAMES[name]})
        for team in teams:
            control.post(f"{base}/teams", {"id": team, "name": team.capitalize()})
            made = control.post(f"{base}/keys", {"name": f"{team} service", "team": team})
            keys[name, team] = str(made["id"])
        limit = {"level": "tenant", "metric": "requests", "window": "minute", "amount": 600}
        control.post(f"{base}/limits", limit)
        control.post(f"{base}/limits", {**limit, "metric": "tokens", "amount": 200_000})
        for kind in ("budget_threshold", "slo_burn", "unpriced_usage"):
            rule = {"id": f"{tenant}-{kind.replace('_', '-')}", "tenant": tenant, "kind": kind}
            control.post("/v1/alert-rules", rule)
    control.post(f"/v1/tenants/{prefix}acme/teams/search/projects", {"id": "web", "name": "Web search"})
    for name, model, indicator, thresholds, target in (
        ("acme", OWN, "ttft", {"ttft": "500"}, "95"),
        ("globex", HOSTED, "availability", {}, "99"),
    ):
        slo = {
            "tenant": prefix + name,
            "model": model,
            "indicator": indicator,
            "thresholds_ms": thresholds,
            "target_percent": target,
        }
        control.put(f"/v1/slos/{prefix}{name}-{indicator}", slo)
    return keys


def _add_budgets(control: ControlClient, installation: Installation, rows: ShowcaseRows, prefix: str) -> None:
    """Create a monthly budget for each tenant, and set its spending to the rows' cost.

    No gateway has charged the rows. The analytics process would add them, but only within five minutes; this writes the
    same recount, so that it adds nothing later.
    """
    at = datetime.now(UTC)
    month = at.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    spent = dict.fromkeys((prefix + name for name in TENANTS), 0)
    for row in rows.requests:
        if row.started_at_ns >= unix_ns(month):
            spent[row.who.tenant] += row.charged_pico_usd or 0
    for name, used_percent in USED_PERCENT.items():
        # At least 1 USD: early in a month there is little spending.
        dollars = max(spent[prefix + name] * 100 / used_percent / _PICO_PER_USD, 1.0)
        budget = {
            "level": "tenant",
            "period": "month",
            "amount_usd": f"{dollars:.2f}",
            "thresholds": _THRESHOLDS,
            "when_unpriced": "allow",  # the demo's traffic continues
        }
        control.post(f"/v1/tenants/{prefix}{name}/budgets", budget)
    author = Author("tollkeeper demo", at)
    with open_control(installation.data, os.environ) as database, database.session() as session:
        for tenant, amount in spent.items():
            for current in current_budgets(session, at, tenant=tenant):
                assert current.start_ns is not None  # a monthly budget always has a period
                subject = current.spec.scope.subject
                recount_budget(session, author, tenant, current.spec.id, month, {subject: amount}, applies=True)
                for percent in current.spec.thresholds:
                    if amount * 100 >= current.spec.amount * percent:
                        passed = (current.spec.id, subject, current.start_ns, percent, current.spec.amount, amount)
                        record_event(session, PassedThreshold(*passed), at)


def _serve(control: ControlClient) -> None:
    carded = {str(row["version"]) for row in control.get_all("/v1/prices", "version")}
    for model, (pool, targets) in POOLS.items():
        control.post("/v1/pools", {"id": pool})
        for target in targets:
            control.post(f"/v1/pools/{pool}/targets", {"id": target, "kind": "scripted", "provider": "openai"})
        control.post(
            "/v1/models",
            {
                "id": model,
                "pool": pool,
                "description": f"Showcase, {len(targets)} target{'' if len(targets) == 1 else 's'}",
            },
        )
        rates = dict(zip(_LEAVES, RATES[model], strict=True))
        if f"{model}/showcase" not in carded:  # price cards remain after a reset, because bills refer to them
            control.post("/v1/prices", {"model": model, "version": f"{model}/showcase", "usd_per_mtok": rates})
    choose = [{"model": OWN, "weight": 9}, {"model": HOSTED, "weight": 1, "label": "canary"}]
    rules = {"choose": choose, "fallbacks": [{"model": "scripted-1"}]}
    control.post("/v1/routes", {"id": ROUTE, "rules": rules})
    control.post("/v1/rollouts", {"id": ROLLOUT, "route": ROUTE, "incumbent": OWN, "candidate": NEXT})
    rate = {"ownership": "reserved", "usd_per_hour": "2.40"}
    if not any(row["version"] == "showcase" for row in control.get_all("/v1/rates", "version")):
        control.post("/v1/rates", {"kind": "gpu", "subject": GPU, "version": "showcase", "rate": rate})


def remove_showcase(data: Path, environment: Mapping[str, str], say: Callable[[str], None]) -> int:
    """Delete the demo's tenants with all their rows, its models, pools, route and rollout; return the number of rows.

    The installation may run or not. Price cards and GPU rates remain, because bills may refer to them.
    """
    author = Author("tollkeeper demo", datetime.now(UTC))
    rows = 0
    with open_installation(data, "", environment) as opened:
        for tenant in TENANTS:
            with opened.database.session() as session:
                if session.get(Tenant, tenant) is None:
                    continue
                update_tenant(session, author, tenant, TenantChange(is_active=False))
            rows += in_store.erase_tenant(opened.store, opened.turns, tenant, say)
            with opened.database.session() as session:
                rows += in_control.erase_tenant(session, author, tenant)
        with opened.database.session() as session:
            served: list[tuple[type[Base], str, Callable[[Session, Author, str], None]]] = [
                (Rollout, ROLLOUT, delete_rollout),
                (Route, ROUTE, delete_route),
                *((Model, model, delete_model) for model in POOLS),
            ]
            rollout = session.get(Rollout, ROLLOUT)
            if rollout is not None and rollout.state in LIVE:
                abort_rollout(session, author, ROLLOUT)
            for table, name, delete in served:
                if session.get(table, name) is not None:
                    delete(session, author, name)
            for pool, targets in POOLS.values():
                if session.get(Pool, pool) is not None:
                    for target in targets:
                        delete_target(session, author, pool, target)
                    delete_pool(session, author, pool)
    return rows
