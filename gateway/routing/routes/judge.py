"""Judges whether a cascade's answer is good enough: refusals, schemas, log-probabilities."""

from collections.abc import Sequence
from typing import Final

import msgspec

from algorithms.json_shape import misfit
from contracts.api.chat import ChatRequest
from contracts.serving.routes import CascadePolicy
from gateway.routing.routes.refusal import begins_as_refusal

_BROKEN: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)


class _Schema(msgspec.Struct, frozen=True):
    schema: object = None


class _Format(msgspec.Struct, frozen=True):
    type: str = ""
    json_schema: _Schema = _Schema()


_formats: Final = msgspec.json.Decoder(_Format)


class HeldText(msgspec.Struct, frozen=True):
    """One complete answer. `logprobs` are of its tokens, empty if the model reported none."""

    text: str = ""
    refusal: str = ""
    finish_reason: str = ""
    calls_tools: bool = False
    logprobs: Sequence[float] = ()

    @property
    def mean_logprob(self) -> float | None:
        """Return the mean log-probability per token; `None` if unknown."""
        return sum(self.logprobs) / len(self.logprobs) if self.logprobs else None


def what_lacks(answer: HeldText, request: ChatRequest, policy: CascadePolicy) -> str:
    """Return why an answer is not good enough: "refusal", "schema" or "logprob"; empty if it is good enough.

    Unknown log-probabilities do not count as low.
    """
    if policy.on_refusal and _is_refusal(answer):
        return "refusal"
    if policy.on_schema_failure and not answer.calls_tools and _misses_schema(answer, request):
        return "schema"
    mean = answer.mean_logprob
    if policy.min_mean_logprob is not None and mean is not None and mean < policy.min_mean_logprob:
        return "logprob"
    return ""


def _is_refusal(answer: HeldText) -> bool:
    if answer.refusal or answer.finish_reason == "content_filter":
        return True
    return not answer.calls_tools and begins_as_refusal(answer.text)


def _misses_schema(answer: HeldText, request: ChatRequest) -> bool:
    """Return whether JSON was requested and the text is not JSON, or violates the schema. An undecidable case is no
    failure.
    """
    if not request.response_format:
        return False
    try:
        wanted = _formats.decode(request.response_format)
    except _BROKEN:
        return False
    if wanted.type not in ("json_object", "json_schema"):
        return False
    try:
        value: object = msgspec.json.decode(answer.text)
    except _BROKEN:
        return True
    if wanted.type == "json_object":
        return not isinstance(value, dict)
    return bool(misfit(wanted.json_schema.schema, value))
