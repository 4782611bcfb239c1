"""Decide whether a failed attempt is charged: an error status is free, a server that fell silent may have billed us."""

from typing import Literal, TypeAlias

from contracts.errors import (
    ClientGone,
    EngineUnavailable,
    HedgeLost,
    InvalidRequest,
    TargetMisconfigured,
    TollkeeperError,
    UpstreamBroken,
    UpstreamError,
    UpstreamRateLimited,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from contracts.pricing.failure_billing import DEFAULT_BILLING, read_billing
from gateway.request.attempt import Attempt

Failure: TypeAlias = Literal["not_begun", "on_error", "on_timeout", "on_break", "on_cancel"]

# The target refused before any work on the prompt, or the request never reached it.
_NOT_BEGUN = (EngineUnavailable, InvalidRequest, TargetMisconfigured, UpstreamRateLimited, UpstreamUnreachable)


def failure_of(error: TollkeeperError) -> Failure:
    """Return the kind of failure, by which the target's billing settings decide whether an attempt is charged."""
    if isinstance(error, _NOT_BEGUN) or error.is_unsent:
        return "not_begun"
    status = error.upstream_status
    if status is not None and not 200 <= status < 300:
        return "on_error"
    if isinstance(error, UpstreamTimeout):
        return "on_timeout"
    if isinstance(error, ClientGone | HedgeLost):
        return "on_cancel"
    if status is None and isinstance(error, UpstreamRejected | UpstreamError) and not isinstance(error, UpstreamBroken):
        return "on_error"
    return "on_break"  # also a fault of the gateway: what the target had done by then is not known


def is_free(attempt: Attempt) -> bool:
    """Return whether an attempt costs the tenant nothing: it failed before any token, in a way that is not billed."""
    error = attempt.error
    if error is None or attempt.progress.tokens or attempt.result.usage.output_tokens:
        return False
    if attempt.progress.usage.output_tokens:
        return False
    failure = failure_of(error)
    if failure == "not_begun":
        return True
    if attempt.result.usage.total_tokens == 0:  # the target's own account: it has done nothing
        return True
    billing = read_billing(attempt.target) if attempt.target.settings else DEFAULT_BILLING
    return bool(getattr(billing, failure) == "free")
