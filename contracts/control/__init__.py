"""The control plane's tables: declarations only. `backends/control` opens them, `migrations` creates them."""

from contracts.control.access import AdminToken, ApiKey, FormerSecret, Issuer, Role, RoleGrant, User
from contracts.control.base import SCHEMA_HEAD, Base
from contracts.control.organisation import Project, Team, Tenant
from contracts.control.serving import Model, OutagePlaybook, Pool, Route, Target
from contracts.control.spending import Budget, BudgetEvent, BudgetState, Limit, Price, StandardCost
from contracts.control.watching import Alert, AuditEntry, Revision, Slo

__all__ = [
    "SCHEMA_HEAD",
    "AdminToken",
    "Alert",
    "ApiKey",
    "AuditEntry",
    "Base",
    "Budget",
    "BudgetEvent",
    "BudgetState",
    "FormerSecret",
    "Issuer",
    "Limit",
    "Model",
    "OutagePlaybook",
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
]
