"""The viewer: name, role, access, and number and time formats."""

from dataclasses import dataclass, field
from typing import Final
from zoneinfo import ZoneInfo

from analytics.access_scope import EVERYTHING, AccessScope
from contracts.control import Role

ADMINS: Final = frozenset({Role.OWNER, Role.ADMIN})
_WRITERS: Final = ADMINS | {Role.TEAM_LEAD}
_PRICING: Final = ADMINS | {Role.FINANCE}


@dataclass(frozen=True, slots=True)
class Viewer:
    """The person who views a page. `token`: their control plane token; `None` if they cannot change anything.

    `access`: the tenant and team that their queries are restricted to; `locale`: such as `en_US`; `currency`: in which
    amounts are shown; `is_local`: a local user of this machine without an account.
    """

    name: str
    role: Role
    access: AccessScope = EVERYTHING
    token: str | None = field(default=None, repr=False)
    zone: ZoneInfo = field(default_factory=lambda: ZoneInfo("UTC"))
    locale: str = "en_US"
    currency: str = "USD"
    is_local: bool = False

    @property
    def tenant(self) -> str | None:
        """Return the only tenant that this viewer sees; `None`: all tenants."""
        return self.access.tenant

    @property
    def team(self) -> str | None:
        """Return the only team that this viewer sees; `None`: all teams."""
        return self.access.team

    @property
    def can_write(self) -> bool:
        """Return whether the role may change anything; the control plane checks each change."""
        return self.token is not None and self.role in _WRITERS

    @property
    def can_price(self) -> bool:
        """Return whether the role may create and end price cards and rates, which apply to the whole installation."""
        return self.token is not None and self.role in _PRICING and self.tenant is None

    @property
    def standing(self) -> str:
        """Return the role and its tenant and team, as text: "admin of acme"."""
        role = self.role.value.replace("_", " ")
        if self.team is not None:
            return f"{role} of {self.tenant}/{self.team}"
        return role if self.tenant is None else f"{role} of {self.tenant}"
