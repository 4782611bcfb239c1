"""LiteLLM's exceptions as ours, told by their names and by what they were raised from."""

import pytest

from backends.providers.failures import failure_of
from contracts.errors import TollkeeperError

MODEL = "anthropic/claude"


def raised(name: str, text: str = "litellm.X: no", status: int | None = None, **facts: object) -> Exception:
    """An exception of a class with LiteLLM's name."""
    error: Exception = type(name, (Exception,), {})(text)
    if status is not None:
        error.status_code = status  # type: ignore[attr-defined]  # as LiteLLM's have it
    for fact, value in facts.items():
        setattr(error, fact, value)
    return error


def from_below(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


def told(error: Exception) -> tuple[str, bool]:
    found = failure_of(error, MODEL)
    return found.error_code, found.retryable


@pytest.mark.parametrize(
    ("error", "code", "is_retryable"),
    [
        (raised("ContextWindowExceededError", status=400), "context_length_exceeded", False),
        (raised("ContentPolicyViolationError", status=400), "content_policy_violation", False),
        (raised("BadRequestError", status=400), "upstream_rejected", False),
        (raised("UnprocessableEntityError", status=422), "upstream_rejected", False),
        (raised("BadRequestError", "API key not valid.", status=400), "upstream_credentials_refused", True),
        (raised("BadRequestError", "LLM Provider NOT provided", status=400), "upstream_not_found", True),
        (raised("LiteLLMUnknownProvider", status=400), "unsupported_operation", False),
        (raised("AuthenticationError", status=401), "upstream_credentials_refused", True),
        (raised("PermissionDeniedError", status=403), "upstream_credentials_refused", True),
        (raised("NotFoundError", status=404), "upstream_not_found", True),
        (raised("RateLimitError", status=429), "upstream_rate_limited", True),
        (raised("Timeout", status=408), "upstream_timeout", True),
        (raised("ServiceUnavailableError", status=503), "upstream_overloaded", True),
        (raised("InternalServerError", status=500), "upstream_error", True),
        (from_below(raised("InternalServerError", status=500), raised("X", status=529)), "upstream_overloaded", True),
        (from_below(raised("InternalServerError", status=500), raised("ClientConnectorError")),
         "upstream_unreachable", True),
        (from_below(raised("APIConnectionError", status=500), raised("ServerDisconnectedError")),
         "upstream_broken", True),
        (from_below(raised("APIConnectionError", status=500), ModuleNotFoundError(name="mcp")),
         "target_misconfigured", True),
        (raised("MidStreamFallbackError", original_exception=raised("RateLimitError")), "upstream_rate_limited", True),
        (raised("SomethingNew"), "upstream_broken", True),
    ],
)  # fmt: skip
def test_each_exception_has_its_error(error: Exception, code: str, is_retryable: bool) -> None:
    assert told(error) == (code, is_retryable)


@pytest.mark.parametrize(
    ("stated", "seconds"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("Thu, 01 Jan 1970 00:00:00 -0000", 0.0),  # no zone is stated
        ("Mon, 01 Jan 0001 00:00:00 -0000", 0.0),
        ("soon", 1.0),
        ("-1", 1.0),
        ("1e9", 1.0),
    ],
)
def test_a_limited_rate_says_how_long_to_wait(stated: str, seconds: float) -> None:
    error = raised("RateLimitError", status=429, litellm_response_headers={"retry-after": stated})
    assert failure_of(error, MODEL).retry_after_seconds == seconds


@pytest.mark.parametrize(
    "text",
    [
        'litellm.X: AnthropicException - {"type": "error", "error": {"type": "x", "message": "too many"}}. Handle it',
        'litellm.X: Vertex - b\'{"error": {"code": 400, "message": "too many"}}\'',
        'X: {"message": "too many"}',
        'X: {"error": "too many"}',
    ],
)
def test_the_provider_s_own_message_is_found(text: str) -> None:
    assert failure_of(raised("BadRequestError", text, 400), MODEL).message.endswith("(400): too many")


@pytest.mark.parametrize(
    "text", ["Traceback (most recent call last): /venv/x.py key=sk-1", "{", "{[" * 5000, '{"a": 1}']
)
def test_nothing_else_of_an_exception_is_told(text: str) -> None:
    message = failure_of(raised("BadRequestError", text, 400), MODEL).message
    assert message == "the provider refused the request (400)"


@pytest.mark.parametrize(
    ("text", "param"),
    [
        ("litellm.UnsupportedParamsError: anthropic does not support parameters: ['n', 'seed'], for model=x", "n"),
        ("litellm.UnsupportedParamsError: x does not support parameters: {'tools': 1}, for model=x", "tools"),
    ],
)
def test_a_parameter_that_is_not_supported_is_named(text: str, param: str) -> None:
    found: TollkeeperError = failure_of(raised("UnsupportedParamsError", text, 400), MODEL)
    assert (found.error_code, found.param) == ("unsupported_parameter", param)
    assert "drop_params" not in found.message
