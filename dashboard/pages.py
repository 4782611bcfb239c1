"""The list of pages, in navigation order. A page is defined in `dashboard/page.py`."""

from dashboard.views.admin import ADMIN
from dashboard.views.agents import AGENTS
from dashboard.views.books import BOOKS
from dashboard.views.budgets import BUDGETS
from dashboard.views.costs import COSTS
from dashboard.views.gpu import GPU
from dashboard.views.incident import INCIDENT
from dashboard.views.latency import LATENCY
from dashboard.views.overview import OVERVIEW
from dashboard.views.own_keys import OWN_KEYS
from dashboard.views.planner import PLANNER
from dashboard.views.playground import PLAYGROUND
from dashboard.views.preferences import PREFERENCES
from dashboard.views.reconciliation import RECONCILIATION
from dashboard.views.requests import REQUESTS
from dashboard.views.routing import ROUTING

PAGES = (
    *(
        OVERVIEW,
        COSTS,
        BOOKS,
        RECONCILIATION,
        AGENTS,
        GPU,
        LATENCY,
        REQUESTS,
        INCIDENT,
        ROUTING,
        BUDGETS,
        PLANNER,
        OWN_KEYS,
        PLAYGROUND,
        ADMIN,
    ),
    PREFERENCES,
)
