"""Explains why a viewer's own request was slow. The only query of a restricted viewer that reads all tenants' data.

Engine steps are not stored by tenant, because one step computes for several. So they are read without a restriction,
but only for a request within the viewer's access, and only times and counts are returned, no names.
"""

from typing import Final

from analytics.access_scope import EVERYTHING, AccessScope
from analytics.explorer.single_request import SingleRequest
from analytics.explorer.slowest import SlowTokens, slowest_tokens
from contracts.errors import PermissionDenied
from dashboard.reader import answers, readers

_KEPT_SECONDS: Final = 10.0  # steps may be recorded after their request


def slowest_of_own(access: AccessScope, request: SingleRequest) -> SlowTokens:
    """Return the causes of the slowest tokens of a request.

    Raises PermissionDenied if the request is outside `access`, StoreUnavailable.
    """
    if access.tenant not in (None, request.tenant) or access.team not in (None, request.labels["team"]):
        raise PermissionDenied("this request is not yours")

    def ask() -> SlowTokens:
        with readers().borrow(EVERYTHING) as store:
            return slowest_tokens(store, request)

    return answers().get((slowest_of_own.__qualname__, request.request_id), _KEPT_SECONDS, ask)
