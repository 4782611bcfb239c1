"""The control plane's tables: declarations only. `backends/control` opens them, `migrations` creates them."""

from contracts.control.access import AdminToken, ApiKey, FormerSecret, Issuer, Role, RoleGrant, User, UserSession
from contracts.control.alerting import Alert, AlertChannel, AlertDelivery, AlertRule, AlertSilence, Lease
from contracts.control.base import SCHEMA_HEAD, Base
from contracts.control.organisation import Project, Team, Tenant
from contracts.control.promises import PolicyHold, Slo
from contracts.control.rates import CostRate
from contracts.control.serving import Model, OutagePlaybook, Pool, Route, Target
from contracts.control.spending import Budget, BudgetEvent, BudgetState, Limit, Price, StandardCost
from contracts.control.watching import AuditEntry, Revision

__all__ = [
    "SCHEMA_HEAD",
    "AdminToken",
    "Alert",
    "AlertChannel",
    "AlertDelivery",
    "AlertRule",
    "AlertSilence",
    "ApiKey",
    "AuditEntry",
    "Base",
    "Budget",
    "BudgetEvent",
    "BudgetState",
    "CostRate",
    "FormerSecret",
    "Issuer",
    "Lease",
    "Limit",
    "Model",
    "OutagePlaybook",
    "PolicyHold",
    "Pool",
    "Price",
    "Project",
    "Revision",
    "Role",
    "RoleGrant",
    "Route",
    "Slo",
    "StandardCost",
    "Target",
    "Team",
    "Tenant",
    "User",
    "UserSession",
]
