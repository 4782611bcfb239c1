"""Usage as the provider reported it, in OpenAI's shape: what LiteLLM made up itself is left out."""

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
_TIERS: Final = ("service_tier", "speed")  # where Anthropic says at which service tier it has answered
_LIFETIMES: Final = "cache_creation_token_details"


def reported_usage(found: Mapping[str, Any], *, has_guessed: bool, is_complete: bool) -> dict[str, Any] | None:
    """Return OpenAI's usage object from LiteLLM's, `None` if the provider reported nothing.

    LiteLLM writes 0 for what was not reported, so a part of 0 is left out, as is a prompt without tokens; and where it
    would have counted by itself (`has_guessed`), an output of 0. Output counts of an answer that is not complete are of
    its beginning, and left out.
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
    """Return the total. What it exceeds its parts by is reasoning, unless it is the input of a provider's own tools."""
    tools = (found.get("prompt_tokens_details") or {}).get("tool_use_tokens") or 0
    surplus = (found.get("total_tokens") or 0) - prompt - completion - tools
    outside = surplus if surplus > 0 and reasoning in (None, surplus) else 0
    return prompt + completion + outside
