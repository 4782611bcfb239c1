"""The control plane's tables: declarations only. `backends/control` accesses them, `migrations` creates them."""

from contracts.control.abuse import AbuseIncident
from contracts.control.access import (
    AdminToken,
    ApiKey,
    DirectoryEntry,
    FormerSecret,
    Issuer,
    Role,
    RoleGrant,
    User,
    UserSession,
)
from contracts.control.alerting import Alert, AlertChannel, AlertDelivery, AlertRule, AlertSilence, Lease
from contracts.control.audit_log import AuditEntry, Revision
from contracts.control.base import SCHEMA_HEAD, Base
from contracts.control.books import BookAdjustment, BookDocument, BookEntry, BookPeriod, BookProfile
from contracts.control.guardrails import Guardrail
from contracts.control.known_secrets import KnownSecret
from contracts.control.mcp import McpServer, McpToken, McpToolRule
from contracts.control.organisation import Project, Team, Tenant
from contracts.control.provider_bills import ProviderBill, ProviderBillName, Reconciliation
from contracts.control.rates import CostRate
from contracts.control.rollouts import Rollout, RolloutObservation
from contracts.control.saved_views import VIEW_PARAMETERS, SavedView
from contracts.control.serving import Model, OutagePlaybook, Pool, Route, Target
from contracts.control.slos import PolicyHold, Slo
from contracts.control.spending import Budget, BudgetEvent, BudgetState, Limit, Price, StandardCost
from contracts.control.stored_keys import StoredKey

__all__ = [
    "SCHEMA_HEAD",
    "VIEW_PARAMETERS",
    "AbuseIncident",
    "AdminToken",
    "Alert",
    "AlertChannel",
    "AlertDelivery",
    "AlertRule",
    "AlertSilence",
    "ApiKey",
    "AuditEntry",
    "Base",
    "BookAdjustment",
    "BookDocument",
    "BookEntry",
    "BookPeriod",
    "BookProfile",
    "Budget",
    "BudgetEvent",
    "BudgetState",
    "CostRate",
    "DirectoryEntry",
    "FormerSecret",
    "Guardrail",
    "Issuer",
    "KnownSecret",
    "Lease",
    "Limit",
    "McpServer",
    "McpToken",
    "McpToolRule",
    "Model",
    "OutagePlaybook",
    "PolicyHold",
    "Pool",
    "Price",
    "Project",
    "ProviderBill",
    "ProviderBillName",
    "Reconciliation",
    "Revision",
    "Role",
    "RoleGrant",
    "Rollout",
    "RolloutObservation",
    "Route",
    "SavedView",
    "Slo",
    "StandardCost",
    "StoredKey",
    "Target",
    "Team",
    "Tenant",
    "User",
    "UserSession",
]
