"""One attempt at a target: why it was made, how far it came, and its usage."""

from typing import Final

from contracts.api.generation import Result
from contracts.errors import (
    EngineUnavailable,
    InvalidRequest,
    TargetMisconfigured,
    TollkeeperError,
    UpstreamRateLimited,
    UpstreamRejected,
    UpstreamUnreachable,
)
from contracts.metering.usage import UNKNOWN_USAGE, Usage
from contracts.pricing.prices import UNPRICED, Cost
from contracts.recording.records import AttemptReason, CountMethod
from contracts.serving.configuration import ModelSpec, TargetSpec
from gateway.replies.progress import Progress

NO_RESULT: Final = Result()
# Under names of this module: compiled code looks up another's in a table.
_UNKNOWN_USAGE: Final = UNKNOWN_USAGE
_UNPRICED: Final = UNPRICED

# What says that a target did no work for the request.
NEVER_BEGUN: Final = (
    EngineUnavailable,
    InvalidRequest,
    TargetMisconfigured,
    UpstreamRateLimited,
    UpstreamRejected,
    UpstreamUnreachable,
)


class Attempt(Progress):
    """One attempt at a target, and its tokens so far. Times are monotonic nanoseconds except `started_at_ns`, which is
    Unix time.
    """

    def __init__(
        self,
        number: int,
        target: TargetSpec,
        reason: AttemptReason,
        started_at_ns: int,  # Unix
        began_ns: int,
        *,
        model: ModelSpec | None = None,  # that it was asked as; none: the request's
        result: Result = NO_RESULT,
        usage: Usage = _UNKNOWN_USAGE,
    ) -> None:
        super().__init__()
        self.number = number
        self.target = target
        self.reason: AttemptReason = reason
        self.started_at_ns = started_at_ns
        self.began_ns = began_ns
        self.ended_ns = 0
        self.result = result
        self.error: TollkeeperError | None = None
        self.usage = usage
        self.count_method: CountMethod = "none"
        self.cost: Cost = _UNPRICED
        self.model = model
        self.is_free = False  # it failed and is not charged; known once it is settled
        # By its request for another model: nothing is held for it, or what is is settled by itself.
        self.is_left = False

    @property
    def was_begun(self) -> bool:
        """Return whether the target may have done work. It has not if it refused the request or was never reached."""
        return self.error is None or self.tokens > 0 or not isinstance(self.error, NEVER_BEGUN)

    @property
    def was_unseen(self) -> bool:
        """Return whether the gateway saw no token pass, and the only count is the one in the usage that the target
        reported.
        """
        result = self.result
        return self.first_at_ns is None and (
            result.engine_output_tokens is None
            and result.recompute_tokens is None
            and result.overrun_tokens is None
            and result.wasted_tokens is None
        )


def answering(attempts: list[Attempt]) -> list[Attempt]:
    """Return the attempts that make up the answer: the last one, and earlier ones whose output it continued."""
    if len(attempts) < 2:
        return attempts
    chain: list[Attempt] = []
    for attempt in reversed(attempts):
        chain.insert(0, attempt)
        if attempt.reason != "continuation":
            break
    return chain
