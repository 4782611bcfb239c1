"""The one error tree. Every failure a caller may see is one of these, or is translated into one at a seam.

`code` is stable and machine-readable, `message` is safe to show (no prompt, key or stack trace),
`retryable` says whether the same request may succeed later, `status` is the HTTP status it becomes.
"""

from collections.abc import Sequence
from typing import ClassVar


class TollkeeperError(Exception):
    """The root. `param` names the offending field in the caller's words, where there is one.

    `should_retry` is what a client's automatic retry is told beyond the status; `None`: nothing. `reached_tokens` is
    how much of a streamed answer had passed when it failed. `upstream_status` is the status that a target answered
    with, if it answered; `is_unsent` says that the request was never sent to it. `quote` is the part of the message
    that a model's server wrote, `upstream_type` the type it gave its error; `upstream_code` its code, which the caller
    is shown if the server speaks the caller's own API.
    """

    code: ClassVar[str] = "internal_error"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False
    kind: ClassVar[str] = "server_error"  # OpenAI's `error.type`
    ends_with: ClassVar[str] = "length"  # the finish reason of a good answer that it cuts
    is_unsent: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_seconds: float | None = None,
        should_retry: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_seconds = retry_after_seconds
        self.should_retry = should_retry
        self.reached_tokens: int | None = None
        self.upstream_status: int | None = None
        self.upstream_type = ""
        self.upstream_code = ""
        self.quote = ""
        self._code = code

    @property
    def error_code(self) -> str:
        """Return the instance's own code where one was set, else the class's."""
        return self._code or self.code

    @property
    def log_message(self) -> str:
        """Return the message without the text of a model's server, which may repeat a prompt: fit for a log."""
        if not self.quote:
            return self.message
        own = self.message.replace(self.quote, "").rstrip(": ") or "the model's server reported an error"
        return own if self.upstream_status is None else f"{own}; status {self.upstream_status}"


class GatewayFault(TollkeeperError):
    """A fault of the gateway's own: its log has it under the request's id, and no target is to blame."""

    def __init__(self, message: str = "the gateway failed; the request id helps its operators find out why") -> None:
        super().__init__(message)


# What the caller sent is wrong.


class InvalidRequest(TollkeeperError):
    """The request cannot be understood or breaks a stated limit."""

    code = "invalid_request"
    status = 400
    kind = "invalid_request_error"


class UnsupportedParameter(InvalidRequest):
    """A field asks for what the target cannot do. Another target of the same pool may."""

    code = "unsupported_parameter"


class NotOffered(InvalidRequest):
    """A field or tool that this API has and no chat can carry. It may be dropped where a target's settings say so."""


class UnsupportedValue(InvalidRequest):
    """A field has another value than the model's route takes."""

    code = "unsupported_value"


class ThreadUnsupported(InvalidRequest):
    """A message asks for a conversation that is kept. Anthropic's SDKs know the code and send the whole history."""

    code = "thread_unsupported_request"


class MalformedBody(InvalidRequest):
    """The body is not the JSON it claims to be; the message gives the position."""

    code = "malformed_json"


class UnsupportedMediaType(InvalidRequest):
    """The content type is not one this endpoint reads."""

    code = "unsupported_media_type"
    status = 415


class BodyTooLarge(InvalidRequest):
    """The body exceeds the configured limit."""

    code = "body_too_large"
    status = 413


class BodyTooComplex(InvalidRequest):
    """The body holds more JSON values than one request may have."""

    code = "body_too_complex"


class HeadersTooLarge(InvalidRequest):
    """The request line and headers exceed the configured limit."""

    code = "headers_too_large"
    status = 431


class AmbiguousFraming(InvalidRequest):
    """The message's end cannot be told safely (RFC 9112, section 6.3): the connection is closed."""

    code = "ambiguous_framing"


class RequestTimeout(InvalidRequest):
    """The client did not finish sending its request in time."""

    code = "request_timeout"
    status = 408


class NotFound(InvalidRequest):
    """No such resource or path.

    `rows` are the rows of the control database that were looked for, each by table and key, such as "pools/main".
    """

    code = "not_found"
    status = 404

    def __init__(
        self, message: str, *, rows: Sequence[str] = (), param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message, param=param, code=code)
        self.rows = rows


class MethodNotAllowed(InvalidRequest):
    """The path exists, the method does not."""

    code = "method_not_allowed"
    status = 405


class UnknownModel(NotFound):
    """No model or route of that name is visible to this key."""

    code = "model_not_found"


class Conflict(InvalidRequest):
    """The resource exists already or has changed since it was read."""

    code = "conflict"
    status = 409


class RowUnreadable(Conflict):
    """The control database holds a value that cannot be read; the message names the row, and how to repair it."""

    code = "row_unreadable"


class EffectUnconfirmed(Conflict):
    """The change would reach into the past; it is made where the caller confirms its effect, which the message says."""

    code = "effect_unconfirmed"


class ContentBlocked(InvalidRequest):
    """A guardrail does not let the request through: the message names its stage, never what it found."""

    code = "content_blocked"


class ContentFiltered(TollkeeperError):
    """A guardrail ended an answer. It is no failure: what was used is paid for, and the answer ends as a good one."""

    code = "content_filter"
    status = 400  # of no reply: the answer's own has been sent, or says 200
    kind = "invalid_request_error"
    ends_with = "content_filter"


# Who the caller is, and what they may do.


class AuthenticationFailed(TollkeeperError):
    """The key is missing, malformed, unknown, revoked or expired."""

    code = "invalid_api_key"
    status = 401
    kind = "authentication_error"


class PermissionDenied(TollkeeperError):
    """The key is good but may not do this."""

    code = "permission_denied"
    status = 403
    kind = "permission_error"


class LimitExceeded(TollkeeperError):
    """A rate or concurrency limit is reached; `retry_after_seconds` is computed from its window."""

    code = "rate_limit_exceeded"
    status = 429
    retryable = True
    kind = "rate_limit_error"


class AbuseThrottled(LimitExceeded):
    """A key was used in a way that its policy calls abuse, and is asked to wait."""

    code = "abuse_throttled"


class AddressNotAllowed(PermissionDenied):
    """The key may not be used from the caller's address."""

    code = "address_not_allowed"


class HostNotAllowed(PermissionDenied):
    """A request is addressed to a name that a loopback listener does not allow."""

    code = "host_not_allowed"


class BudgetExhausted(TollkeeperError):
    """A hard budget is spent. OpenAI names this case `insufficient_quota`."""

    code = "insufficient_quota"
    status = 429
    kind = "insufficient_quota"


# What stands behind us failed.


class UpstreamError(TollkeeperError):
    """A model behind the gateway failed."""

    code = "upstream_error"
    status = 502
    retryable = True
    kind = "api_error"


class UpstreamUnreachable(UpstreamError):
    """The target refused the connection or could not be resolved."""

    code = "upstream_unreachable"


class UpstreamTimeout(UpstreamError):
    """The target did not answer within the stated time."""

    code = "upstream_timeout"
    status = 504


class ConnectTimeout(UpstreamTimeout):
    """The target did not accept a connection in time: it has seen nothing of the request."""

    is_unsent = True


class UpstreamBroken(UpstreamError):
    """The target's answer ended early or is not what its protocol promises."""

    code = "upstream_broken"


class HostLost(UpstreamBroken):
    """The connection to the host that was answering ended: noted once for the host, not for each of its requests."""


class TargetMisconfigured(UpstreamError):
    """The target is set up wrong, with us or where it runs: it has begun nothing."""

    code = "target_misconfigured"


class EngineUnavailable(UpstreamError):
    """An engine host is away, still loading the model, or does not serve it."""

    code = "engine_unavailable"
    status = 503


class UpstreamRateLimited(UpstreamError):
    """The target limits the gateway's rate: the caller is told to wait as the target told us."""

    code = "upstream_rate_limited"
    status = 429
    kind = "rate_limit_error"


class UpstreamOverloaded(UpstreamError):
    """The target has more to do than it can, or is down for a while."""

    code = "upstream_overloaded"
    status = 503


class TargetsAway(UpstreamError):
    """Every target that may answer is left alone after failures: `retry_after_seconds` tells when one is tried."""

    code = "targets_away"
    status = 503


class UpstreamRejected(TollkeeperError):
    """The target refused the request itself; another try would not help."""

    code = "upstream_rejected"
    status = 400
    kind = "invalid_request_error"


class ClientGone(TollkeeperError):
    """The caller closed the connection before the answer was complete (nginx's status 499)."""

    code = "client_closed_request"
    status = 499
    kind = "invalid_request_error"


class HedgeLost(TollkeeperError):
    """Another target gave the first token, and this one was no longer needed."""

    code = "hedge_lost"
    status = 499
    kind = "invalid_request_error"


class Shutdown(TollkeeperError):
    """The gateway was stopped and cut the answer at the end of its drain time."""

    code = "shutdown"
    status = 503
    retryable = True


class LostInCrash(TollkeeperError):
    """The gateway's process died while a target had the request. On the record only: nobody was left to answer."""

    code = "lost_in_crash"


# Our own side cannot serve now.


class Unavailable(TollkeeperError):
    """This process cannot serve the request at present."""

    code = "unavailable"
    status = 503
    retryable = True


class Draining(Unavailable):
    """The gateway is shutting down and accepts no new requests."""

    code = "draining"


class QueueFull(Unavailable):
    """The pool's queue is full, or the request's deadline passed in it: it was shed before any model saw it."""

    code = "overloaded"


class CountersUnavailable(Unavailable):
    """The counters that several gateways share do not answer, and the rule says to refuse then."""

    code = "counters_unavailable"


class CountersForeign(CountersUnavailable):
    """The shared counters belong to another installation: nothing is counted there."""


class CountersSilent(CountersUnavailable):
    """The shared counters are connected and did not answer in time: they may be late, hung or out of reach."""


class JournalFull(Unavailable):
    """The journal's bound is reached: admitting more would lose usage, so we refuse."""

    code = "journal_full"


class StoreUnavailable(Unavailable):
    """The telemetry store does not answer."""

    code = "store_unavailable"


class StoreRefused(TollkeeperError):
    """The telemetry store refuses a statement or batch as it is; the same one again would not help."""

    code = "store_refused"


class ControlUnavailable(Unavailable):
    """The control-plane database does not answer."""

    code = "control_unavailable"


class EmbedderUnavailable(Unavailable):
    """What makes vectors of texts does not run: what goes by meaning goes its other way."""

    code = "embedder_unavailable"


class ObjectsUnavailable(Unavailable):
    """The database of files, batches and kept answers does not answer."""

    code = "objects_unavailable"


# Start-up and data.


class ConfigurationError(TollkeeperError):
    """A setting, file, port, directory or URL is unusable; the message says what to do about it.

    `about` names the thing at fault, such as "route 'fast'", and `fault` is the message without that name.
    """

    code = "configuration_error"

    def __init__(self, fault: str, *, about: str = "", param: str | None = None, code: str | None = None) -> None:
        super().__init__(f"{about}: {fault}" if about else fault, param=param, code=code)
        self.about = about
        self.fault = fault


class ForeignStore(ConfigurationError):
    """A store belongs to another installation: nothing is read from it or written to it."""

    code = "foreign_store"


class NewerSchema(ConfigurationError):
    """A database was written by a newer version of Tollkeeper."""

    code = "newer_schema"


class InvalidUsage(TollkeeperError):
    """A usage report contradicts itself, so its tokens cannot be put in disjoint leaves."""

    code = "invalid_usage"


class InvalidRecord(TollkeeperError):
    """A packed record cannot be decoded: unknown kind, version or shape."""

    code = "invalid_record"
