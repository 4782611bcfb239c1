"""Limits and budgets of the YAML file, built and checked against one another and against what the file names."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from contracts.access.identity import Identity
from contracts.errors import ConfigurationError
from contracts.mcp.servers import is_tool_name
from contracts.recording.moments import unix_ns
from contracts.rules.limits import EACH, BudgetSpec, LimitSpec, Rule, Scope
from contracts.rules.metrics import KIND_OF_WORD, Metric
from contracts.rules.rule_words import (
    base_amount,
    contradiction_text,
    find_contradiction,
    limit_text,
    pico_usd_of,
)
from contracts.serving.configuration import KeyEntry
from gateway.config.entries import ConfigurationFile, ConfiguredBudget, ConfiguredLimit

Place: TypeAlias = tuple[int | str, ...]  # the way to a field: ("limits", 2, "window")


class Misplaced(Exception):
    """An error in the YAML file: `place` is the path of the field, `message` its text."""

    def __init__(self, place: Place, message: str) -> None:
        super().__init__(message)
        self.place = place
        self.message = message


@dataclass(frozen=True, slots=True)
class FileRules:
    """The limits and budgets of a file."""

    limits: tuple[LimitSpec, ...]
    budgets: tuple[BudgetSpec, ...]


def build_rules(file: ConfigurationFile, keys: Iterable[KeyEntry]) -> FileRules:
    """Build limits and budgets. Raises Misplaced on the first invalid one, naming the field."""
    known = _KnownNames(file, [entry.identity for entry in keys])
    zones = {tenant.id: tenant.time_zone for tenant in file.tenants}
    limits: list[LimitSpec] = []
    rivals: dict[tuple[Scope, Metric], list[LimitSpec]] = {}
    for number, limit in enumerate(file.limits):
        place = ("limits", number)
        spec = _limit_spec(place, limit, known.scope(place, limit))
        of_scope = rivals.setdefault((spec.scope, spec.metric), [])
        _refuse_beside(place, spec, of_scope)
        of_scope.append(spec)
        limits.append(spec)
    budgets: list[BudgetSpec] = []
    for number, budget in enumerate(file.budgets):
        place = ("budgets", number)
        time_zone = zones.get(budget.tenant, "UTC")
        budgets.append(_budget_spec(place, budget, known.scope(place, budget), time_zone))
    _refuse_same_ids(limits, budgets)
    return FileRules(tuple(limits), tuple(budgets))


class _KnownNames:
    """The names in the rest of the file, to detect rules that can never apply."""

    def __init__(self, file: ConfigurationFile, identities: list[Identity]) -> None:
        self._models = {model.name for model in file.models}
        self._mcp_servers = dict.fromkeys(server.name for server in file.mcp_servers)
        self._tenants = {tenant.id for tenant in file.tenants} | {who.tenant for who in identities}
        self._tenants |= {issuer.tenant for issuer in file.issuers}
        self._are_tenants_known = not any(issuer.tenant_claim for issuer in file.issuers)
        # Tokens bring teams, projects and ids of their own.
        self._are_subjects_known = not file.issuers
        self._subjects = {
            "team": {(who.tenant, who.team) for who in identities},
            "project": {(who.tenant, f"{who.team}/{who.project}") for who in identities},
            "key": {(who.tenant, who.key_id) for who in identities},
        }

    def scope(self, place: Place, rule: ConfiguredLimit | ConfiguredBudget) -> Scope:
        """Return the scope of a rule. Raises Misplaced."""
        if self._are_tenants_known and rule.tenant not in self._tenants:
            raise Misplaced((*place, "tenant"), f"tenant {rule.tenant!r} is neither in tenants nor that of a key")
        if rule.model and rule.model not in self._models and not is_tool_name(rule.model, self._mcp_servers):
            known = ", ".join(sorted(self._models))
            raise Misplaced((*place, "model"), f"model {rule.model!r} is not in models; known: {known}")
        subject = "" if rule.level in ("tenant", "conversation") and rule.subject == EACH else rule.subject
        try:
            scope = Scope(rule.tenant, rule.level, subject, rule.model)
        except ConfigurationError as error:
            raise Misplaced((*place, "subject"), error.message) from error
        if scope.level == "tag" and subject.startswith("="):
            raise Misplaced((*place, "subject"), f"a tag is named 'name=value' or 'name=*', not {subject!r}")
        of_level = self._subjects.get(scope.level)
        if of_level is not None and subject != EACH and (rule.tenant, subject) not in of_level:
            if self._are_subjects_known:
                raise Misplaced((*place, "subject"), _nobody_of(rule.tenant, scope.level, subject))
        return scope


def _nobody_of(tenant: str, level: str, subject: str) -> str:
    if level == "key":
        return f"tenant {tenant!r} has no key {subject!r}"
    return f"no key of tenant {tenant!r} is of {level} {subject!r}"


def _limit_spec(place: Place, limit: ConfiguredLimit, scope: Scope) -> LimitSpec:
    try:
        amount = base_amount(limit.metric, limit.amount, limit.amount_usd)
    except ConfigurationError as error:
        named = "amount_usd" if limit.amount is None else "amount"
        raise Misplaced((*place, named), error.message) from error
    try:
        return LimitSpec(
            id=limit.id or _name_of(scope, limit.metric, limit.window or ""),
            scope=scope,
            metric=KIND_OF_WORD[limit.metric].name,
            amount=amount,
            window=limit.window,
            when_away=limit.when_away,
            when_unpriced=limit.when_unpriced,
        )
    except ConfigurationError as error:
        raise Misplaced((*place, "window"), error.message) from error


def _budget_spec(place: Place, budget: ConfiguredBudget, scope: Scope, time_zone: str) -> BudgetSpec:
    in_money = budget.amount_usd is not None
    if in_money == (budget.gpu_milliseconds is not None):
        raise Misplaced((*place, "gpu_milliseconds"), "a budget has either amount_usd or gpu_milliseconds")
    try:
        amount = (
            base_amount("gpu_ms", budget.gpu_milliseconds, None)
            if budget.amount_usd is None
            else pico_usd_of(budget.amount_usd)
        )
        return BudgetSpec(
            id=budget.id or _name_of(scope, "usd" if in_money else "gpu_ms", budget.period),
            scope=scope,
            metric="pico_usd" if in_money else "gpu_ns",
            amount=amount,
            period=budget.period,
            is_hard=budget.is_hard,
            thresholds=tuple(budget.thresholds),
            time_zone=time_zone,
            starts_at_ns=None if budget.starts_at is None else unix_ns(budget.starts_at),
            ends_at_ns=None if budget.ends_at is None else unix_ns(budget.ends_at),
            webhook_url=budget.webhook_url,
            when_away=budget.when_away,
            when_unpriced=budget.when_unpriced,
        )
    except ConfigurationError as error:
        raise Misplaced((*place, "ends_at"), error.message) from error


def _name_of(scope: Scope, *more: str) -> str:
    """Return a rule's name from its scope: stable across restarts and independent of its position in the file."""
    return ":".join(part for part in (scope.tenant, scope.level, scope.subject, scope.model, *more) if part)


def _refuse_beside(place: Place, limit: LimitSpec, rivals: list[LimitSpec]) -> None:
    """Refuse a limit if an earlier one of the same scope and metric has the same window, or contradicts it."""
    for rival in rivals:
        if rival.window == limit.window:  # which of them holds would be anyone's guess
            raise Misplaced(place, f"limit {rival.id!r} counts the same: {limit_text(rival)}; leave one of them out")
    found = find_contradiction([*rivals, limit])
    if found is not None:
        raise Misplaced(place, contradiction_text(*found))


def _refuse_same_ids(limits: list[LimitSpec], budgets: list[BudgetSpec]) -> None:
    places: list[tuple[Place, Rule]] = [(("limits", number, "id"), limit) for number, limit in enumerate(limits)]
    places += [(("budgets", number, "id"), budget) for number, budget in enumerate(budgets)]
    seen: set[str] = set()
    for place, rule in places:
        if rule.id in seen:
            raise Misplaced(place, f"id {rule.id!r} is given twice; give one of them another id")
        seen.add(rule.id)
