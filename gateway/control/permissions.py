"""Permissions of roles on the control plane: one table by path. Everything else is refused."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from contracts.control import Role


class ScopedRole(StrEnum):
    """A role together with its scope: the whole installation, one tenant, or one team."""

    OWNER = "owner"
    ADMIN = "admin"
    FINANCE = "finance"
    TENANT_ADMIN = "admin of a tenant"
    TENANT_FINANCE = "finance of a tenant"
    TEAM_LEAD = "team lead"
    DEVELOPER = "developer"
    DIRECTORY = "directory"

    @classmethod
    def of(cls, role: Role, tenant_id: str) -> "ScopedRole":
        """Return the scoped role for a role that is restricted to a tenant; an empty `tenant_id` means no
        restriction.
        """
        within = {Role.ADMIN: cls.TENANT_ADMIN, Role.FINANCE: cls.TENANT_FINANCE}
        over_all = {Role.OWNER: cls.OWNER, Role.ADMIN: cls.ADMIN, Role.FINANCE: cls.FINANCE}
        bound = {Role.DEVELOPER: cls.DEVELOPER, Role.DIRECTORY: cls.DIRECTORY}
        return {**(within if tenant_id else over_all), **bound}.get(role, cls.TEAM_LEAD)


_PLATFORM: Final = frozenset({ScopedRole.OWNER, ScopedRole.ADMIN})
_ADMINS: Final = _PLATFORM | {ScopedRole.TENANT_ADMIN}
_LEADS: Final = _ADMINS | {ScopedRole.TEAM_LEAD}
_FINANCE: Final = frozenset({ScopedRole.FINANCE, ScopedRole.TENANT_FINANCE})
_PRICING: Final = _PLATFORM | {ScopedRole.FINANCE}
_STAFF: Final = _LEADS | _FINANCE
_PEOPLE: Final = _STAFF | {ScopedRole.DEVELOPER}
_READING: Final = frozenset({"GET", "HEAD"})

# Health says nothing of what is kept here, the page that documents the API is for everyone, and who signs in has no
# token yet.
OPEN_PATHS: Final = frozenset(
    {"/health", "/ready", "/docs", "/openapi.json", "/sign-in", "/sign-in/oidc"},
)


@dataclass(frozen=True, slots=True)
class Permission:
    """The roles that may read and write below a path. A tenant or team in the path must also be the caller's own."""

    readers: frozenset[ScopedRole]
    writers: frozenset[ScopedRole] = frozenset()


# The longest path that a route's begins with decides. Bound callers see their own tenant or team in lists.
PERMISSIONS: Final[Mapping[str, Permission]] = {
    "/v1/tenants": Permission(_STAFF, _PLATFORM),
    "/v1/tenants/{tenant}/teams": Permission(_STAFF, _ADMINS),
    "/v1/tenants/{tenant}/keys": Permission(_LEADS, _LEADS),
    "/v1/tenants/{tenant}/limits": Permission(_STAFF, _LEADS),
    "/v1/tenants/{tenant}/budgets": Permission(_STAFF, _LEADS),
    "/v1/models": Permission(_LEADS, _PLATFORM),
    "/v1/routes": Permission(_LEADS, _PLATFORM),
    "/v1/rollouts": Permission(_PLATFORM, _PLATFORM),
    "/v1/guardrails": Permission(_PLATFORM, _PLATFORM),
    "/v1/mcp-servers": Permission(_PLATFORM, _PLATFORM),
    "/v1/tool-rules": Permission(_PLATFORM, _PLATFORM),
    "/v1/configuration": Permission(_PLATFORM, _PLATFORM),
    "/v1/pools": Permission(_PLATFORM, _PLATFORM),
    "/v1/stored-keys": Permission(_PLATFORM, _PLATFORM),
    "/v1/unreadable-rows": Permission(_PLATFORM, _PLATFORM),
    "/v1/playbooks": Permission(_PLATFORM, _PLATFORM),
    "/v1/prices": Permission(_ADMINS | _FINANCE, _PRICING),
    "/v1/standard-costs": Permission(_ADMINS | _FINANCE, _PRICING),
    "/v1/rates": Permission(_ADMINS | _FINANCE, _PRICING),
    "/v1/tokens": Permission(_ADMINS, _ADMINS),
    "/v1/accounts": Permission(_ADMINS, _ADMINS),
    "/v1/sessions": Permission(_PEOPLE, _PEOPLE),
    "/v1/self": Permission(_PEOPLE, _PEOPLE),
    "/v1/saved-views": Permission(_STAFF, _STAFF),
    "/v1/issuers": Permission(_PLATFORM, _PLATFORM),
    "/v1/audit": Permission(_ADMINS | _FINANCE),
    "/v1/slos": Permission(_STAFF, _ADMINS),
    "/v1/policy-holds": Permission(_STAFF),
    "/v1/alert-rules": Permission(_ADMINS | _FINANCE, _ADMINS),
    "/v1/alert-channels": Permission(_ADMINS | _FINANCE, _ADMINS),
    "/v1/alert-silences": Permission(_ADMINS | _FINANCE, _ADMINS),
    "/v1/alert-deliveries": Permission(_ADMINS | _FINANCE),
    "/v1/abuse": Permission(_ADMINS),
    "/v1/alerts": Permission(_STAFF, _LEADS | _FINANCE),
}


def permission_of(path: str) -> Permission | None:
    """Return the permission of a route, by its path with its parameters' names; `None` if the table has none."""
    parts = path.split("/")
    for length in range(len(parts), 1, -1):
        found = PERMISSIONS.get("/".join(parts[:length]))
        if found is not None:
            return found
    return None


def is_allowed(scoped_role: ScopedRole, method: str, path: str) -> bool:
    """Return whether a scoped role may use a method of a route. Whether the tenant in the path is the caller's own is
    checked elsewhere.
    """
    permission = permission_of(path)
    if permission is None:
        return False
    return scoped_role in (permission.readers if method in _READING else permission.writers)
