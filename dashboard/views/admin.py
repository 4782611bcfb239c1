"""The admin page: tenants, keys, limits, models, routes, prices, users and audit log, all via the control plane."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from contracts.control import Role
from dashboard.controls import segmented
from dashboard.page import EVERYONE, Page
from dashboard.viewer import ADMINS
from dashboard.views.admin_audit import draw_audit
from dashboard.views.admin_guardrails import draw_guardrails
from dashboard.views.admin_keys import draw_keys
from dashboard.views.admin_limits import draw_limits
from dashboard.views.admin_organisation import draw_organisation
from dashboard.views.admin_parts import show_unreadable
from dashboard.views.admin_prices import draw_prices
from dashboard.views.admin_routes import draw_routes
from dashboard.views.admin_serving import draw_serving
from dashboard.views.admin_tools import draw_tools
from dashboard.views.admin_users import draw_users
from dashboard.visit import Visit

_LEADS: Final = ADMINS | {Role.TEAM_LEAD}
_BOOKS: Final = ADMINS | {Role.FINANCE}
_ABOUT = "Access, models, prices and limits. A change reaches every gateway within a second and is in the audit log."


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page, and the roles that may read what it shows (gateway/control/permissions.py)."""

    label: str
    draw: Callable[[Visit], None]
    roles: frozenset[Role] = EVERYONE
    is_platform: bool = False  # hidden from viewers who are restricted to a tenant


SECTIONS: Final[Mapping[str, Section]] = {
    "tenants": Section("Tenants & teams", draw_organisation),
    "keys": Section("Keys", draw_keys, _LEADS),
    "limits": Section("Limits", draw_limits),
    "routes": Section("Routes", draw_routes, _LEADS),
    "targets": Section("Models & targets", draw_serving, ADMINS, is_platform=True),
    "prices": Section("Prices", draw_prices, _BOOKS),
    "guardrails": Section("Guardrails", draw_guardrails, ADMINS),
    "tools": Section("Tools", draw_tools, ADMINS, is_platform=True),
    "users": Section("Users", draw_users, ADMINS),
    "audit": Section("Audit", draw_audit, _BOOKS),
}


def draw(visit: Visit) -> None:
    """Draw the section that the URL names."""
    viewer = visit.viewer
    offered = [
        name
        for name, section in SECTIONS.items()
        if viewer.role in section.roles and not (section.is_platform and viewer.tenant is not None)
    ]
    chosen = segmented("section", "Section", offered, default=offered[0], format_func=lambda name: SECTIONS[name].label)
    SECTIONS[chosen].draw(visit)
    show_unreadable(visit.unreadable)


ADMIN = Page("Admin", "admin", ":material/admin_panel_settings:", draw, filters=(), is_live=False, about=_ABOUT)
