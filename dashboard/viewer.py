"""The viewer: name, role, access, and number and time formats."""

from dataclasses import dataclass, field
from typing import Final
from zoneinfo import ZoneInfo

from analytics.reach import EVERYTHING, Reach
from contracts.control import Role

ADMINS: Final = frozenset({Role.OWNER, Role.ADMIN})
_WRITERS: Final = ADMINS | {Role.TEAM_LEAD}
_PRICING: Final = ADMINS | {Role.FINANCE}


@dataclass(frozen=True, slots=True)
class Viewer:
    """A person in front of a page. `token` is what the control plane knows them by; `None`: they can change nothing.

    `reach` holds every question they ask; `locale` is a name as `en_US`; `currency` is what amounts are shown in.
    `is_local` is who sits at this machine and has not signed in.
    """

    name: str
    role: Role
    reach: Reach = EVERYTHING
    token: str | None = field(default=None, repr=False)
    zone: ZoneInfo = field(default_factory=lambda: ZoneInfo("UTC"))
    locale: str = "en_US"
    currency: str = "USD"
    is_local: bool = False

    @property
    def tenant(self) -> str | None:
        """Return the one tenant this viewer sees; `None`: all."""
        return self.reach.tenant

    @property
    def team(self) -> str | None:
        """Return the only team that this viewer sees; `None`: all teams."""
        return self.reach.team

    @property
    def can_write(self) -> bool:
        """Return whether the role may change anything; what exactly, the control plane decides at each change."""
        return self.token is not None and self.role in _WRITERS

    @property
    def can_price(self) -> bool:
        """Return whether the role may make and end price cards and rates: they are the whole installation's."""
        return self.token is not None and self.role in _PRICING and self.tenant is None

    @property
    def standing(self) -> str:
        """Name the role and how far it reaches, for people."""
        role = self.role.value.replace("_", " ")
        if self.team is not None:
            return f"{role} of {self.tenant}/{self.team}"
        return role if self.tenant is None else f"{role} of {self.tenant}"
