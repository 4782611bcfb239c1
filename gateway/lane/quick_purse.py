"""Where an answer on the short way gets more output from: counters of this process, which answer at once."""

from contracts.errors import TollkeeperError
from gateway.limits.grant import Grant
from gateway.limits.limiter import Limiter


class QuickPurse:
    """One answer's purse, as its allowance asks it; `lacking_rule` is the id of what had no more to give."""

    __slots__ = ("_grant", "_limiter", "is_shared", "lacking_rule")

    def __init__(self, limiter: Limiter, grant: Grant) -> None:
        self.is_shared = False
        self.lacking_rule = ""
        self._limiter = limiter
        self._grant = grant

    def extend_now(self, tokens: int) -> bool:
        """Take more at once; say whether it was had."""
        return self._limiter.extend_now(self._grant, tokens)

    async def extend(self, tokens: int) -> bool:
        """Take more: nobody else is there to be asked."""
        return self.extend_now(tokens)

    def why_not(self) -> TollkeeperError:
        """Name the rule that has no more to give."""
        error, self.lacking_rule = self._limiter.what_lacks(self._grant)
        return error
