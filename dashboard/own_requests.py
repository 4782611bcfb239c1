"""Why a viewer's own request was slow: the one question of bound viewers that looks at what all tenants' requests did.

An engine's steps are not kept by tenant: each computes for several. So they are read as the one that sees the platform
reads them, for a request that was found within the viewer's reach, and what comes back are times and counts that name
nobody.
"""

from typing import Final

from analytics.explorer.single_request import SingleRequest
from analytics.explorer.slowest import SlowTokens, slowest_tokens
from analytics.reach import EVERYTHING, Reach
from contracts.errors import PermissionDenied
from dashboard.reader import answers, readers

_KEPT_SECONDS: Final = 10.0  # steps may come after their request


def slowest_of_own(reach: Reach, request: SingleRequest) -> SlowTokens:
    """Explain the slowest tokens of a request that was read within `reach`.

    Raises PermissionDenied on another's, StoreUnavailable.
    """
    if reach.tenant not in (None, request.tenant) or reach.team not in (None, request.labels["team"]):
        raise PermissionDenied("this request is not yours")

    def ask() -> SlowTokens:
        with readers().borrow(EVERYTHING) as store:
            return slowest_tokens(store, request)

    return answers().get((slowest_of_own.__qualname__, request.request_id), _KEPT_SECONDS, ask)
