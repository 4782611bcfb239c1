"""The budgets and alerts page: budgets and their state, alerts, rules, channels, silences and notifications."""

from typing import Final

from contracts.control import Role
from dashboard.controls import segmented
from dashboard.page import Page
from dashboard.panels import contained
from dashboard.views.alert_channels import draw_channels
from dashboard.views.alert_notices import draw_notices
from dashboard.views.alert_rules import draw_rules
from dashboard.views.alert_silences import draw_silences
from dashboard.views.alerts_raised import draw_alerts
from dashboard.views.budget_list import draw_budgets
from dashboard.visit import Visit

_TABS: Final = {
    "budgets": ("Budgets", draw_budgets),
    "alerts": ("Alerts", draw_alerts),
    "rules": ("Rules", draw_rules),
    "channels": ("Channels", draw_channels),
    "silences": ("Silences", draw_silences),
    "notices": ("Notifications", draw_notices),
}
_FOR_LEADS: Final = ("budgets", "alerts")  # rules and channels belong to a tenant or to the whole installation


def draw(visit: Visit) -> None:
    """Draw the chosen part of the page."""
    offered = _FOR_LEADS if visit.viewer.role is Role.TEAM_LEAD else tuple(_TABS)
    tab = segmented("tab", "Part", offered, default="budgets", format_func=lambda name: _TABS[name][0])
    with contained():
        _TABS[tab][1](visit)


BUDGETS = Page(
    "Budgets & alerts",
    "budgets",
    ":material/notifications:",
    draw,
    filters=("tenant", "team"),
    is_live=False,
    about="Budgets and their state; alerts, rules, channels and notifications.",
)
