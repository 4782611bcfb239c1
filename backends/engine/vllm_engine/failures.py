"""Converts vLLM's exceptions to our errors. Their texts name fields and limits, never content, and are shortened."""

from typing import Final

from contracts.errors import InvalidRequest, TollkeeperError, Unavailable

_SHOWN: Final = 300  # characters of vLLM's message
_DEAD: Final = "EngineDeadError"  # vllm/v1/engine/exceptions.py; vLLM is not imported here
_GRAMMAR_WORDS: Final = ("grammar", "schema", "structured", "regex", "xgrammar", "guidance")


def request_failure(error: BaseException, *, has_begun: bool) -> tuple[TollkeeperError, bool]:
    """Return the error of a request, and whether vLLM had started it: a refused request has no usage."""
    if isinstance(error, TollkeeperError):
        return error, has_begun
    if has_begun or type(error).__name__ == _DEAD:
        return Unavailable("vLLM could not compute a step of this request", code="engine_failure"), True
    if isinstance(error, ValueError | TypeError):
        words = first_line(error)
        code = "invalid_grammar" if any(word in words.lower() for word in _GRAMMAR_WORDS) else None
        return InvalidRequest(f"vLLM refuses the request: {words}", code=code), False
    return Unavailable("vLLM could not take this request; the host's log says why", code="engine_failure"), False


def engine_died(model: str) -> Unavailable:
    """Return the error of a model whose vLLM process has ended."""
    return Unavailable(
        f"vLLM's process for model {model!r} has died; its log says why. Load the model again, or use another replica",
        code="engine_failure",
    )


def first_line(error: BaseException) -> str:
    """Return the shortened message of an exception on one line; for a validation error, its findings."""
    found = getattr(error, "errors", None)
    text = "; ".join(str(one.get("msg", "")) for one in found()) if callable(found) else str(error)
    return (" ".join(text.split()).replace("Value error, ", "") or type(error).__name__)[:_SHOWN]
