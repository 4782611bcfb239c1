"""Converts LiteLLM's exceptions to TollkeeperErrors without tracebacks, keys or other requests' data.

LiteLLM's classes are recognized by name, because only `litellm_sdk` may import it. The HTTP client's and the operating
system's errors below them are found by following the chain of causes.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

from backends.http_client.retry_after import retry_after_seconds
from contracts.errors import (
    ConnectTimeout,
    TargetMisconfigured,
    TollkeeperError,
    UnsupportedParameter,
    UpstreamBroken,
    UpstreamError,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnreachable,
)

_DEFAULT_WAIT_SECONDS: Final = 1.0  # if a rate-limited reply has no Retry-After
_MAX_MESSAGE: Final = 500
_OVERLOADED: Final = frozenset({503, 529})
_NOT_FOUND: Final = "upstream_not_found"
_REFUSALS: Final = (
    ("ContextWindowExceededError", "context_length_exceeded", "which is too long for the model"),
    ("ContentPolicyViolationError", "content_policy_violation", "by its content policy"),
    ("RejectedRequestError", "content_policy_violation", "by its content policy"),
)
_NAMES: Final = re.compile(r"support parameters: [\[{]([^\]}]*)[\]}]")
_BAD_KEY: Final = ("api key not valid", "api_key_invalid", "api key expired")  # Gemini's, with status 400
_UNREACHABLE: Final = frozenset({"ClientConnectorError", "ConnectError", "ClientConnectorDNSError", "gaierror"})
_UNCONNECTED: Final = frozenset({"ConnectTimeout", "ConnectionTimeoutError"})  # httpx's, aiohttp's
_BROKEN: Final = frozenset(
    {"ServerDisconnectedError", "ClientPayloadError", "RemoteProtocolError", "ReadError", "JSONDecodeError"}
)
_SLOW: Final = frozenset({"Timeout", "TimeoutException", "ServerTimeoutError", "TimeoutError"})


def failure_of(error: Exception, model: str) -> TollkeeperError:
    """Return the error for an exception of a call, with the HTTP status of the provider's reply, if any."""
    error = getattr(error, "original_exception", None) or error
    chain = list(_chain(error))
    failure = _failure_in(error, chain, model)
    failure.upstream_status = _answered(chain)
    return failure


def _failure_in(error: Exception, chain: list[BaseException], model: str) -> TollkeeperError:
    kinds = {kind.__name__ for kind in type(error).__mro__}
    text = str(error)
    if "UnsupportedParamsError" in kinds:
        return _unsupported(text, model)
    said = f": {found}" if (found := _said_in(text)) else ""
    for name, code, what in _REFUSALS:
        if name in kinds:
            return UpstreamRejected(f"the provider refused the request, {what}{said}", code=code, param="messages")
    status = _status(chain)
    below = {kind.__name__ for one in chain for kind in type(one).__mro__}
    if "ImageFetchError" in kinds:
        return UpstreamRejected(
            "this provider takes images as data: URLs only; nothing is fetched for it",
            code="unsupported_image_url",
            param="messages",
        )
    own = _of_our_setup(kinds, below, text, chain, model)
    if own is not None:
        return own
    has_bad_key = status in (401, 403) or any(word in text.lower() for word in _BAD_KEY)
    if has_bad_key or kinds & {"AuthenticationError", "PermissionDeniedError"}:
        return TargetMisconfigured("the provider refused the credentials", code="upstream_credentials_refused")
    refused = _of_its_answer(kinds, said, chain)
    if refused is not None:
        return refused
    return _of_its_own(kinds | below, status, said, chain)


def _of_our_setup(
    kinds: set[str], below: set[str], text: str, chain: list[BaseException], model: str
) -> TollkeeperError | None:
    """Return the error if the call failed before a provider was called; otherwise `None`."""
    if "EgressRefused" in below:
        return TargetMisconfigured(
            "the provider host may not reach where this call leads: no target names it, or it is an inward address "
            "(TOLLKEEPER_PROVIDERS_HOSTS, TOLLKEEPER_PROVIDERS_INWARD); its log names it",
            code="egress_refused",
        )
    if "LLM Provider NOT provided" in text:
        return TargetMisconfigured(f"LiteLLM knows no provider of the model {model[:100]!r}", code=_NOT_FOUND)
    if "ImportError" in below:
        missing = next((one.name for one in chain if isinstance(one, ImportError)), None) or "a library"
        return TargetMisconfigured(f"the provider host lacks {missing}, which LiteLLM needs for {model[:100]!r}")
    if "LiteLLMUnknownProvider" in kinds or "Unsupported provider" in text:
        return UnsupportedParameter(
            f"{model[:100]!r} has nothing for this endpoint", code="unsupported_operation", param="model"
        )
    return None


def _of_its_answer(kinds: set[str], said: str, chain: list[BaseException]) -> TollkeeperError | None:
    """Return the error if LiteLLM has a specific class for the provider's refusal; otherwise `None`."""
    if "PaymentRequiredError" in kinds:
        return TargetMisconfigured("the provider wants to be paid first", code="upstream_payment_required")
    if "NotFoundError" in kinds:
        return TargetMisconfigured(f"the provider does not know the model or the path (404){said}", code=_NOT_FOUND)
    if "RateLimitError" in kinds:
        wait = _wait(chain)
        return UpstreamRateLimited(
            "the provider is limiting the rate",
            retry_after_seconds=_DEFAULT_WAIT_SECONDS if wait is None else wait,
        )
    return None


def _of_its_own(kinds: set[str], status: int | None, said: str, chain: list[BaseException]) -> TollkeeperError:
    """Return the error for a failure of the provider or the network, or a refused request."""
    if kinds & _UNREACHABLE:
        return UpstreamUnreachable("the provider cannot be reached")
    if kinds & _UNCONNECTED:
        return ConnectTimeout("the provider did not accept a connection in time")
    if kinds & _SLOW:
        return UpstreamTimeout("the provider did not answer in time")
    if status in _OVERLOADED or "ServiceUnavailableError" in kinds:
        return UpstreamOverloaded(f"the provider is overloaded (status {status})", retry_after_seconds=_wait(chain))
    if kinds & _BROKEN:
        return UpstreamBroken("the provider's answer broke off or cannot be read")
    if kinds & {"BadRequestError", "UnprocessableEntityError"}:
        return UpstreamRejected(f"the provider refused the request ({status or 400}){said}")
    if status is not None and status >= 500 and "InternalServerError" in kinds:
        return UpstreamError(f"the provider failed with status {status}")
    return UpstreamBroken("the provider's answer broke off or cannot be read")


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ or one.__context__


def _status(chain: list[BaseException]) -> int | None:
    """Return the provider's own status. LiteLLM replaces some, but the original is in the chain of causes."""
    found = [getattr(one, "status_code", None) for one in chain]
    return next((status for status in reversed(found) if isinstance(status, int)), None)


def _answered(chain: list[BaseException]) -> int | None:
    """Return the status of an actual HTTP response; LiteLLM invents statuses for its own exceptions."""
    for one in chain:
        if type(one).__name__ == "HTTPStatusError":
            status = getattr(getattr(one, "response", None), "status_code", None)
        elif type(one).__name__ == "ClientResponseError":
            status = getattr(one, "status", None)
        elif type(one).__module__.startswith("openai"):
            status = getattr(one, "status_code", None)
        else:
            continue
        if isinstance(status, int):
            return status
    return None


def _wait(chain: list[BaseException]) -> float | None:
    """Return the provider's Retry-After in seconds; `None` if there is none."""
    for one in chain:
        for holder in (getattr(one, "litellm_response_headers", None), getattr(one, "response", None)):
            headers = getattr(holder, "headers", holder)
            stated = headers.get("retry-after") if isinstance(headers, Mapping) else None
            if isinstance(stated, str) and (wait := retry_after_seconds(stated)) is not None:
                return wait
    return None


def _unsupported(text: str, model: str) -> TollkeeperError:
    found = _NAMES.search(text)
    names = [name.strip(" '\"").split(":")[0].strip("'\"") for name in found[1].split(",")] if found else []
    if not any(names):
        sentence = text.removeprefix("litellm.UnsupportedParamsError: ").partition("\n")[0].partition(" To drop")[0]
        return UnsupportedParameter(f"{model[:100]!r} does not take the request: {sentence[:_MAX_MESSAGE]}")
    return UnsupportedParameter(f"{model[:100]!r} does not take {', '.join(names)}; leave it out", param=names[0])


def _said_in(text: str) -> str:
    """Return the provider's own message, which LiteLLM quotes as JSON."""
    start = text.find("{")
    if start < 0:
        return ""
    try:
        found, _ = json.JSONDecoder().raw_decode(text[start:])
    except (ValueError, RecursionError):
        return ""
    error = found.get("error", found) if isinstance(found, dict) else found
    message = (error.get("message") or error.get("detail")) if isinstance(error, dict) else error
    return message[:_MAX_MESSAGE] if isinstance(message, str) else ""
