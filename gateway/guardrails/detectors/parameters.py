"""Allowed fields of a request."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from contracts.api.requests import AnyRequest
from contracts.errors import ConfigurationError
from gateway.guardrails.detector_dependencies import DetectorDependencies
from gateway.guardrails.request_rule import Objection
from gateway.guardrails.settings import read_settings

# Without these there is no request, or no answer to it.
_ALWAYS: Final = frozenset(
    ("model", "messages", "prompt", "input", "query", "documents", "text_1", "text_2", "stream", "stream_options")
)


class ParameterSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Top-level fields of a request. An empty `allowed` allows all fields that are not denied."""

    allowed: list[str] = []
    denied: list[str] = []


class AllowedParameters:
    """Objects to fields that are not allowed. The correction is to remove them."""

    def __init__(self, settings: ParameterSettings) -> None:
        self._allowed = frozenset(settings.allowed)
        self._denied = frozenset(settings.denied)

    def judge(self, requested: str, request: AnyRequest, fields: Mapping[str, object]) -> Sequence[Objection]:
        """Object to each field that is present, not null, and not allowed."""
        refused = [name for name, value in fields.items() if value is not None and not self._may(name)]
        return [
            Objection("parameter", f"{name[:80]!r} may not be set here; leave it out", name[:80], {name: None})
            for name in refused
        ]

    def defaults(self, request: AnyRequest) -> Mapping[str, object]:
        """Return no defaults."""
        return {}

    def _may(self, name: str) -> bool:
        if name in _ALWAYS:
            return True
        return name not in self._denied and (not self._allowed or name in self._allowed)


def build(settings: Mapping[str, object], dependencies: DetectorDependencies) -> AllowedParameters:
    """Build the rule. Raises ConfigurationError if it is empty, or denies a field that every request has."""
    given = read_settings(settings, ParameterSettings)
    if not given.allowed and not given.denied:
        raise ConfigurationError("settings: give allowed or denied fields")
    kept = sorted(_ALWAYS.intersection(given.denied))
    if kept:
        raise ConfigurationError(f"settings.denied: {kept[0]!r} cannot be denied; requests are made of it")
    return AllowedParameters(given)
