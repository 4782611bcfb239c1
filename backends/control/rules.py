"""Builds limits, budgets, tenants and queue settings for the gateways from rows."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from sqlalchemy import select

from backends.control.budget_states import RECOUNT
from backends.control.sound_rows import SoundRows
from contracts.control import Budget, BudgetState, Limit, PolicyHold, Tenant
from contracts.control.organisation import audits_requests, keeps_content
from contracts.errors import ConfigurationError
from contracts.recording.moments import unix_ns
from contracts.rules.holds import HoldSpec
from contracts.rules.limits import (
    BudgetAdjustment,
    BudgetSpec,
    Level,
    LimitSpec,
    Period,
    QueueSpec,
    Scope,
    TenantSpec,
    WhenAway,
    WhenUnpriced,
)
from contracts.rules.limits import Window as WindowWord
from contracts.rules.metrics import KIND_OF_WORD, MetricWord
from contracts.rules.objectives import Hook
from contracts.rules.rule_words import base_amount, pico_usd_of
from contracts.serving.failures import DEFAULT_FAILURES, FailurePolicy, failure_policy

QUEUE_SETTING = "queue"  # key in a pool's settings
FAILURES_SETTING = "failures"


def limit_spec(row: Limit) -> LimitSpec:
    """Build the limit in a row. Raises ConfigurationError if the row is invalid."""
    word = cast(MetricWord, row.metric)
    if word not in KIND_OF_WORD:
        raise ConfigurationError(f"metric {row.metric!r} is unknown; known: {', '.join(KIND_OF_WORD)}", param="metric")
    return LimitSpec(
        id=row.id,
        scope=Scope(row.tenant_id, cast(Level, row.level), row.subject, row.model),
        metric=KIND_OF_WORD[word].name,
        amount=base_amount(word, row.amount, row.amount_usd),
        window=cast(WindowWord, row.window) if row.window else None,
        when_away=cast(WhenAway, row.when_away),
        when_unpriced=cast(WhenUnpriced, row.when_unpriced),
    )


def budget_spec(row: Budget, time_zone: str) -> BudgetSpec:
    """Build a budget from its row, in its tenant's time zone. Raises ConfigurationError as `limit_spec` does."""
    if (row.amount_usd is None) == (row.gpu_milliseconds is None):
        raise ConfigurationError("a budget has either amount_usd or gpu_milliseconds, not both and not neither")
    if row.amount_usd is not None:
        amount = pico_usd_of(row.amount_usd)
    else:
        amount = base_amount("gpu_ms", row.gpu_milliseconds, None)
    return BudgetSpec(
        id=row.id,
        scope=Scope(row.tenant_id, cast(Level, row.level), row.subject, row.model),
        metric="gpu_ns" if row.amount_usd is None else "pico_usd",
        amount=amount,
        period=cast(Period, row.period),
        is_hard=row.is_hard,
        thresholds=tuple(row.thresholds),
        time_zone=time_zone,
        starts_at_ns=None if row.starts_at is None else unix_ns(row.starts_at),
        ends_at_ns=None if row.ends_at is None else unix_ns(row.ends_at),
        webhook_url=row.webhook_url,
        when_away=cast(WhenAway, row.when_away),
        when_unpriced=cast(WhenUnpriced, row.when_unpriced),
    )


def queue_spec(settings: Mapping[str, object]) -> QueueSpec | None:
    """Build a pool's queue from its settings; `None` if it has none.

    Raises ConfigurationError, TypeError or ValueError if they are invalid.
    """
    stated = settings.get(QUEUE_SETTING)
    return None if stated is None else QueueSpec(**cast("dict[str, Any]", stated))


def sound_queue(rows: SoundRows, pool_id: str, settings: Mapping[str, object]) -> QueueSpec | None:
    """Return a pool's queue settings; unreadable ones are listed in the faults, and the pool gets none."""
    try:
        return queue_spec(settings)
    except (ConfigurationError, TypeError, ValueError) as error:
        why = error.message if isinstance(error, ConfigurationError) else f"unreadable ({type(error).__name__})"
        rows.faults.append(f"the queue of pool {pool_id!r} is left out: {why}")
        return None


def failures_of(settings: Mapping[str, object]) -> FailurePolicy:
    """Build a pool's failure policy from its settings. Raises ConfigurationError."""
    return failure_policy(cast("Mapping[str, object] | None", settings.get(FAILURES_SETTING)))


def sound_failures(rows: SoundRows, pool_id: str, settings: Mapping[str, object]) -> FailurePolicy:
    """Return a pool's failure policy; an unreadable one is listed in the faults, and the defaults apply."""
    try:
        return failures_of(settings)
    except (ConfigurationError, TypeError, ValueError) as error:
        why = error.message if isinstance(error, ConfigurationError) else f"unreadable ({type(error).__name__})"
        rows.faults.append(f"the failures of pool {pool_id!r} are as by default: {why}")
        return DEFAULT_FAILURES


def load_limits(rows: SoundRows) -> tuple[LimitSpec, ...]:
    """Return all limits; unreadable ones are left out and listed in the faults."""
    return tuple(rows.build("limit", select(Limit), (Limit.id,), lambda row: limit_spec(row[0])))


def load_budgets(rows: SoundRows) -> tuple[BudgetSpec, ...]:
    """Return all budgets, each in its tenant's time zone; unreadable ones are left out and listed in the faults."""
    adjustments = _load_adjustments(rows)
    wanted = select(Budget, Tenant.time_zone).join(Tenant, Tenant.id == Budget.tenant_id)

    def build(row: Any) -> BudgetSpec:
        return replace(budget_spec(row[0], row[1]), adjustments=adjustments.get(row[0].id, ()))

    return tuple(rows.build("budget", wanted, (Budget.id,), build))


def _load_adjustments(rows: SoundRows) -> dict[str, tuple[BudgetAdjustment, ...]]:
    """Return the recounts of budgets, by budget; unreadable ones are left out and listed in the faults."""
    columns = (BudgetState.budget_id, BudgetState.subject, BudgetState.period_start, BudgetState.settled)
    wanted = select(*columns).where(BudgetState.gateway == RECOUNT)
    found: dict[str, tuple[BudgetAdjustment, ...]] = {}
    for budget_id, adjustment in rows.build("budget recount", wanted, (BudgetState.budget_id,), _adjustment):
        found[budget_id] = (*found.get(budget_id, ()), adjustment)
    return found


def _adjustment(row: Any) -> tuple[str, BudgetAdjustment]:
    return row[0], BudgetAdjustment(row[1], unix_ns(row[2]), int(row[3]))


def load_holds(rows: SoundRows) -> tuple[HoldSpec, ...]:
    """Return the active holds of objectives at risk; unreadable ones are left out and listed in the faults."""
    wanted = select(PolicyHold).where(PolicyHold.is_active).order_by(PolicyHold.slo_id, PolicyHold.hook)
    return tuple(rows.build("policy hold", wanted, (PolicyHold.slo_id, PolicyHold.hook), lambda row: _hold(row[0])))


def _hold(row: PolicyHold) -> HoldSpec:
    hook = cast(Hook, row.hook)
    return HoldSpec(row.slo_id, hook, row.tenant_id, row.model, row.route, until_ns=unix_ns(row.until))


def load_tenants(rows: SoundRows) -> dict[str, TenantSpec]:
    """Return all tenants, including inactive ones, by id; unreadable ones are left out and listed in the faults."""
    wanted = select(Tenant.id, Tenant.weight, Tenant.time_zone, Tenant.is_active, Tenant.settings)
    specs = rows.build("tenant", wanted, (Tenant.id,), _tenant_spec)
    return {spec.id: spec for spec in specs}


def _tenant_spec(row: Any) -> TenantSpec:
    return TenantSpec(row[0], row[1], row[2], row[3], keeps_content(row[4]), audits_requests(row[4]))
