"""The one tree of errors. Every failure that a caller may see is one of these, or is translated into one at an
interface.

`code` is stable and machine-readable, `message` is safe to show (no prompt, key or stack trace), `retryable` states
whether the same request may succeed later, `status` is its HTTP status.
"""

from collections.abc import Sequence
from typing import ClassVar


class TollkeeperError(Exception):
    """The root. `param` names the field at fault in the caller's words, if there is one.

    `should_retry` overrides a client's automatic retry; `None`: the status decides. `reached_tokens` is how much of a
    streamed answer had been sent when it failed. `upstream_status` is the status that a target answered with, if it
    answered; `is_unsent` means that the request was never sent to it. `quote` is the part of the message that a model's
    server wrote, `upstream_type` the type and `upstream_code` the code of its error; the caller sees the code if the
    server speaks the caller's own API.
    """

    code: ClassVar[str] = "internal_error"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False
    kind: ClassVar[str] = "server_error"  # OpenAI's `error.type`
    ends_with: ClassVar[str] = "length"  # the finish reason of a successful answer that it cuts
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
        """Return the instance's own code if one was set, else that of the class."""
        return self._code or self.code

    @property
    def log_message(self) -> str:
        """Return the message for a log, without the text of a model's server, which may repeat a prompt."""
        if not self.quote:
            return self.message
        own = self.message.replace(self.quote, "").rstrip(": ") or "the model's server reported an error"
        return own if self.upstream_status is None else f"{own}; status {self.upstream_status}"


class GatewayFault(TollkeeperError):
    """An internal error of the gateway: its log has it under the request's id, and no target is at fault."""

    def __init__(
        self, message: str = "the gateway failed; give its operators the request id to find the cause"
    ) -> None:
        super().__init__(message)


# Errors of the caller's request.


class InvalidRequest(TollkeeperError):
    """The request cannot be parsed or breaks a stated limit."""

    code = "invalid_request"
    status = 400
    kind = "invalid_request_error"


class UnsupportedParameter(InvalidRequest):
    """A field asks for something that the target cannot do. Another target of the same pool may."""

    code = "unsupported_parameter"


class NotOffered(InvalidRequest):
    """A field or tool that no chat can carry. It can be dropped if a target's settings allow it."""


class UnsupportedValue(InvalidRequest):
    """A field has a value that the model or route does not allow."""

    code = "unsupported_value"


class ThreadUnsupported(InvalidRequest):
    """A message refers to a stored conversation. Anthropic's SDKs know this code and send the whole history."""

    code = "thread_unsupported_request"


class MalformedBody(InvalidRequest):
    """The body is not valid JSON; the message states the position."""

    code = "malformed_json"


class UnsupportedMediaType(InvalidRequest):
    """The endpoint does not accept the content type."""

    code = "unsupported_media_type"
    status = 415


class BodyTooLarge(InvalidRequest):
    """The body exceeds the configured limit."""

    code = "body_too_large"
    status = 413


class BodyTooComplex(InvalidRequest):
    """The body contains more JSON values than one request may have."""

    code = "body_too_complex"


class HeadersTooLarge(InvalidRequest):
    """The request line and headers exceed the configured limit."""

    code = "headers_too_large"
    status = 431


class AmbiguousFraming(InvalidRequest):
    """The message's end is ambiguous (RFC 9112, section 6.3): the connection is closed."""

    code = "ambiguous_framing"


class RequestTimeout(InvalidRequest):
    """The client did not finish sending its request in time."""

    code = "request_timeout"
    status = 408


class NotFound(InvalidRequest):
    """No such resource or path.

    `rows` are the missing rows of the control database, each by table and key, such as "pools/main".
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
    """The control database contains a value that cannot be read; the message names the row, and how to repair it."""

    code = "row_unreadable"


class EffectUnconfirmed(Conflict):
    """The change would affect the past; it needs the caller's confirmation of the effect stated in the message."""

    code = "effect_unconfirmed"


class ContentBlocked(InvalidRequest):
    """A guardrail blocks the request: the message names its stage, never what it found."""

    code = "content_blocked"


class ContentFiltered(TollkeeperError):
    """A guardrail ended an answer. It is not a failure: its usage is billed, and the answer ends normally."""

    code = "content_filter"
    status = 400  # not used in a reply: the answer's own status has been sent, or is 200
    kind = "invalid_request_error"
    ends_with = "content_filter"


# Identity and permissions of the caller.


class AuthenticationFailed(TollkeeperError):
    """The key is missing, malformed, unknown, revoked or expired."""

    code = "invalid_api_key"
    status = 401
    kind = "authentication_error"


class PermissionDenied(TollkeeperError):
    """The key is valid but may not do this."""

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
    """A key was used in a way that its abuse policy limits, and must wait."""

    code = "abuse_throttled"


class AddressNotAllowed(PermissionDenied):
    """The key may not be used from the caller's network address."""

    code = "address_not_allowed"


class HostNotAllowed(PermissionDenied):
    """A request names a host that a loopback listener does not allow."""

    code = "host_not_allowed"


class BudgetExhausted(TollkeeperError):
    """A hard budget is used up. OpenAI's code for this is `insufficient_quota`."""

    code = "insufficient_quota"
    status = 429
    kind = "insufficient_quota"


# Failures of targets.


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
    """The target did not accept a connection in time: it has received nothing of the request."""

    is_unsent = True


class UpstreamBroken(UpstreamError):
    """The target's answer ended early or violates its protocol."""

    code = "upstream_broken"


class HostLost(UpstreamBroken):
    """The connection to the answering host ended: logged once for the host, not for each of its requests."""


class TargetMisconfigured(UpstreamError):
    """The target is misconfigured, here or at its own side: it has started no work."""

    code = "target_misconfigured"


class EngineUnavailable(UpstreamError):
    """An engine host is unavailable, still loading the model, or does not serve it."""

    code = "engine_unavailable"
    status = 503


class UpstreamRateLimited(UpstreamError):
    """The target limits the gateway's rate: the caller gets the target's retry time."""

    code = "upstream_rate_limited"
    status = 429
    kind = "rate_limit_error"


class UpstreamOverloaded(UpstreamError):
    """The target is overloaded, or down for a while."""

    code = "upstream_overloaded"
    status = 503


class TargetsAway(UpstreamError):
    """Every target that may answer has an open circuit: `retry_after_seconds` is when one is tried."""

    code = "targets_away"
    status = 503


class UpstreamRejected(TollkeeperError):
    """The target refused the request itself; a retry would not help."""

    code = "upstream_rejected"
    status = 400
    kind = "invalid_request_error"


class ClientGone(TollkeeperError):
    """The caller closed the connection before the answer was complete (nginx's status 499)."""

    code = "client_closed_request"
    status = 499
    kind = "invalid_request_error"


class HedgeLost(TollkeeperError):
    """Another target produced the first token, and this one was no longer needed."""

    code = "hedge_lost"
    status = 499
    kind = "invalid_request_error"


class Shutdown(TollkeeperError):
    """The gateway was stopped and cut the answer at the end of its drain time."""

    code = "shutdown"
    status = 503
    retryable = True


class LostInCrash(TollkeeperError):
    """The gateway's process died while a target had the request. Only on the record: no client was left to answer."""

    code = "lost_in_crash"


# The gateway itself cannot serve now.


class Unavailable(TollkeeperError):
    """This process cannot serve the request at present."""

    code = "unavailable"
    status = 503
    retryable = True


class Draining(Unavailable):
    """The gateway is shutting down and accepts no new requests."""

    code = "draining"


class QueueFull(Unavailable):
    """The pool's queue is full, or the request's deadline passed in it: it was shed before it reached a model."""

    code = "overloaded"


class CountersUnavailable(Unavailable):
    """The counters shared by several gateways do not answer, and the rule says to refuse in that case."""

    code = "counters_unavailable"


class CountersForeign(CountersUnavailable):
    """The shared counters belong to another installation: nothing is counted there."""


class CountersSilent(CountersUnavailable):
    """The shared counters are connected and did not answer in time: they may be slow, hung or unreachable."""


class JournalFull(Unavailable):
    """The journal is full: admitting more requests would lose usage, so they are refused."""

    code = "journal_full"


class StoreUnavailable(Unavailable):
    """The telemetry store does not answer."""

    code = "store_unavailable"


class StoreRefused(TollkeeperError):
    """The telemetry store refuses a statement or batch; repeating it would not help."""

    code = "store_refused"


class ControlUnavailable(Unavailable):
    """The control-plane database does not answer."""

    code = "control_unavailable"


class EmbedderUnavailable(Unavailable):
    """The embedder does not run: features that need it use their fallback."""

    code = "embedder_unavailable"


class ObjectsUnavailable(Unavailable):
    """The database of files, batches and stored responses does not answer."""

    code = "objects_unavailable"


# Start and data.


class ConfigurationError(TollkeeperError):
    """A setting, file, port, directory or URL is unusable; the message says what to do about it.

    `about` names the object at fault, such as "route 'fast'", and `fault` is the message without that name.
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
    """A usage report contradicts itself, so its tokens cannot be split into disjoint leaves."""

    code = "invalid_usage"


class InvalidRecord(TollkeeperError):
    """A packed record cannot be decoded: unknown kind or version, or invalid content."""

    code = "invalid_record"
