"""A detected abuse, and its texts for the caller, the operator and the record."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from algorithms.abuse.spec import AbuseAction, AbuseKind
from contracts.errors import AbuseThrottled

_WHAT: Final[Mapping[AbuseKind, str]] = {
    "flood": "{observed} nearly identical prompts in {window}, where {limit} are allowed",
    "probing": "{observed} prompts in {window} that vary little, each of them new, where {limit} are allowed",
    "harvest": "{observed} unlike prompts in {window} for long answers with probabilities, where {limit} are allowed",
    "address_sharing": "use from {observed} addresses in {window}, where {limit} are allowed",
    "agent_sharing": "use by {observed} user agents in {window}, where {limit} are allowed",
}
_REMEDY: Final[Mapping[AbuseKind, str]] = {
    "flood": "send each prompt once and store its answer",
    "probing": "ask for a higher limit if this is an evaluation",
    "harvest": "ask without logprobs, for shorter answers, or for a higher limit",
    "address_sharing": "use one key per location, or allow the key more addresses",
    "agent_sharing": "use one key per application, or allow the key more user agents",
}


_SPANS: Final[Mapping[int, str]] = {86_400: "a day", 3600: "an hour", 60: "a minute"}


@dataclass(frozen=True, slots=True)
class Detection:
    """One request above a rule's limit.

    `observed` is the count including it; `facts` are details without any prompt text.
    """

    kind: AbuseKind
    action: AbuseAction
    observed: int
    limit: int
    window_seconds: int
    retry_after_seconds: float = 0.0
    facts: Mapping[str, object] = field(default_factory=dict)

    def error(self) -> AbuseThrottled:
        """Return the error for the caller."""
        wait = max(self.retry_after_seconds, 1.0)
        return AbuseThrottled(
            f"this key is throttled: {detection_text(self.kind, self.observed, self.limit, self.window_seconds)}; "
            f"{remedy(self.kind)}; try again in {wait:.0f} s",
            retry_after_seconds=wait,
        )


def detection_text(kind: AbuseKind, observed: int, limit: int, window_seconds: int) -> str:
    """Return a phrase about what a rule counted."""
    return _WHAT[kind].format(observed=observed, limit=limit, window=_span(window_seconds))


def remedy(kind: AbuseKind) -> str:
    """Return what the caller can do to end it."""
    return _REMEDY[kind]


def _span(seconds: int) -> str:
    if seconds in _SPANS:
        return _SPANS[seconds]
    for unit, length in (("hours", 3600), ("minutes", 60)):
        if seconds % length == 0:
            return f"{seconds // length} {unit}"
    return f"{seconds} seconds"
