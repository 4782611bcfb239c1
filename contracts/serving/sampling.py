"""Sampling settings of a route: defaults, and pinned values."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta

from contracts.api.chat import (
    ChatRequest,
    GenerationRequest,
    Penalty,
    PositiveInt,
    Probability,
    ReasoningEffort,
    RepetitionPenalty,
    Seed,
    Temperature,
    asked_effort,
)
from contracts.errors import ConfigurationError, UnsupportedValue

RequestT = TypeVar("RequestT", bound=GenerationRequest)

_MAX_STOPS: Final = 16


class SamplingValues(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Values of a request's fields, in the API's words; `None`: not stated."""

    temperature: Temperature | None = None
    top_p: Probability | None = None
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    min_p: Probability | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: RepetitionPenalty | None = None
    seed: Seed | None = None
    stop: str | list[str] | None = None
    max_tokens: PositiveInt | None = None
    reasoning_effort: ReasoningEffort | None = None

    def stated(self) -> dict[str, Any]:
        """Return the stated values, by field."""
        found = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}
        return {**found, "stop": [self.stop]} if isinstance(self.stop, str) else found


class SamplingPolicy:
    """A route's defaults and pinned values. A field has either one or the other."""

    __slots__ = ("defaults", "pinned")

    def __init__(self, defaults: SamplingValues, pinned: SamplingValues) -> None:
        """Accept the values. Raises ConfigurationError if a field is in both, or a stop string is empty."""
        self.defaults = defaults.stated()
        self.pinned = pinned.stated()
        both = self.defaults.keys() & self.pinned.keys()
        if both:
            raise ConfigurationError(f"{min(both)} is both a default and pinned; use one of them", param="defaults")
        for field, values in (("defaults", self.defaults), ("pinned", self.pinned)):
            stops = values.get("stop")
            if stops is not None and not (all(stops) and 0 < len(stops) <= _MAX_STOPS):
                raise ConfigurationError(f"stop must be 1 to {_MAX_STOPS} texts, none of them empty", param=field)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SamplingPolicy) and (self.defaults, self.pinned) == (other.defaults, other.pinned)

    @property
    def pinned_effort(self) -> ReasoningEffort | None:
        """Return the reasoning effort that replaces a request's own, in any field."""
        effort: ReasoningEffort | None = self.pinned.get("reasoning_effort")
        return effort

    @property
    def output_limit(self) -> int | None:
        """Return the maximum tokens of an answer that either sets."""
        limit: int | None = self.pinned.get("max_tokens", self.defaults.get("max_tokens"))
        return limit

    def apply(self, request: RequestT) -> tuple[RequestT, dict[str, object]]:
        """Return the request as it is to be served, and the fields that the policy sets because the caller did not.

        Raises UnsupportedValue if the caller's value differs from a pinned one: as OpenAI does for unsupported values,
        and so that no caller gets something other than requested.
        """
        set_fields: dict[str, object] = {}
        for values, is_pinned in ((self.pinned, True), (self.defaults, False)):
            for name, value in values.items():
                said = _said(request, name)
                if not said:
                    set_fields[name] = value
                elif is_pinned and any(one != value for one in said):
                    raise UnsupportedValue(
                        f"{name} cannot be set for the model {request.model!r}, which has a fixed value for it; "
                        "leave it out",
                        param=name,
                    )
        if not isinstance(request, ChatRequest):
            set_fields.pop("reasoning_effort", None)
        return msgspec.structs.replace(request, **set_fields) if set_fields else request, set_fields


def sampling_policy(
    defaults: Mapping[str, object] | None, pinned: Mapping[str, object] | None
) -> SamplingPolicy | None:
    """Build a policy from plain data; `None` if it is empty. Raises ConfigurationError, naming the field."""
    policy = SamplingPolicy(_values("defaults", defaults or {}), _values("pinned", pinned or {}))
    return policy if policy.defaults or policy.pinned else None


def _values(what: str, given: Mapping[str, object]) -> SamplingValues:
    try:
        return msgspec.convert(given, SamplingValues)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{what}: {error}", param=what) from error


def _said(request: GenerationRequest, name: str) -> list[object]:
    """Return a request's values of a field, from each place where it may be stated."""
    if name == "max_tokens":
        return list(request.stated_limits)
    if name == "reasoning_effort":
        effort = asked_effort(request) if isinstance(request, ChatRequest) else None
        return [] if effort is None else [effort]
    value = getattr(request, name)
    return [] if value is None else [[value] if name == "stop" and isinstance(value, str) else value]
