"""Usage as the provider reported it, in OpenAI's format; values that LiteLLM invented are left out."""

from collections.abc import Mapping
from typing import Any, Final

from contracts.metering.usage import MEDIA

_MEDIA_PARTS: Final = tuple(f"{medium}_tokens" for medium in MEDIA)
_INPUT_PARTS: Final = ("cached_tokens", "cache_write_tokens", *_MEDIA_PARTS)
_OUTPUT_PARTS: Final = (
    "reasoning_tokens",
    *_MEDIA_PARTS,
    *("accepted_prediction_tokens", "rejected_prediction_tokens"),
)
_TIERS: Final = ("service_tier", "speed")  # Anthropic's fields for the service tier of the answer
_LIFETIMES: Final = "cache_creation_token_details"


def reported_usage(found: Mapping[str, Any], *, has_guessed: bool, is_complete: bool) -> dict[str, Any] | None:
    """Return OpenAI's usage object from LiteLLM's; `None` if the provider reported nothing.

    LiteLLM writes 0 for values that were not reported, so parts of 0 and empty prompts are left out, and outputs of 0
    if LiteLLM would have counted them itself (`has_guessed`). Output counts of an incomplete answer are left out too.
    """
    prompt, completion = found.get("prompt_tokens") or None, found.get("completion_tokens")
    if prompt is None and not completion:
        return None
    details = found.get("completion_tokens_details") or {}
    if not is_complete or (has_guessed and not completion):
        completion, details = None, {}
    outputs = _parts(details, _OUTPUT_PARTS)
    inputs = _parts(found.get("prompt_tokens_details") or {}, _INPUT_PARTS)
    usage: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": completion}
    if prompt is not None and completion is not None:
        usage["total_tokens"] = _total(found, prompt, completion, outputs.get("reasoning_tokens"))
    if inputs:
        usage["prompt_tokens_details"] = inputs
    if outputs:
        usage["completion_tokens_details"] = outputs
    usage |= {name: found[name] for name in _TIERS if isinstance(found.get(name), str)}
    return {name: value for name, value in usage.items() if value is not None}


def _parts(details: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    parts: dict[str, Any] = {name: details[name] for name in names if details.get(name)}
    if isinstance(details.get(_LIFETIMES), Mapping) and parts.get("cache_write_tokens"):
        parts[_LIFETIMES] = dict(details[_LIFETIMES])
    return parts


def _total(found: Mapping[str, Any], prompt: int, completion: int, reasoning: int | None) -> int:
    """Return the total. A surplus over its parts is reasoning, unless it is input of the provider's own tools."""
    tools = (found.get("prompt_tokens_details") or {}).get("tool_use_tokens") or 0
    surplus = (found.get("total_tokens") or 0) - prompt - completion - tools
    outside = surplus if surplus > 0 and reasoning in (None, surplus) else 0
    return prompt + completion + outside
