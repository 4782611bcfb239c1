"""Allowed model names, in addition to keys' scopes."""

from collections.abc import Mapping, Sequence

import msgspec

from contracts.api.requests import AnyRequest
from contracts.errors import ConfigurationError
from gateway.guardrails.detector_dependencies import DetectorDependencies
from gateway.guardrails.request_rule import Objection
from gateway.guardrails.settings import read_settings


class ModelSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names of models and routes. An empty `allowed` allows all names that are not denied."""

    allowed: list[str] = []
    denied: list[str] = []


class AllowedModels:
    """Objects to requests for a model or route that is not allowed."""

    def __init__(self, settings: ModelSettings) -> None:
        self._allowed = frozenset(settings.allowed)
        self._denied = frozenset(settings.denied)

    def judge(self, requested: str, request: AnyRequest, fields: Mapping[str, object]) -> Sequence[Objection]:
        """Object if the requested name is not allowed."""
        if requested not in self._denied and (not self._allowed or requested in self._allowed):
            return ()
        others = f"; {', '.join(sorted(self._allowed))} may be" if self._allowed else ""
        return (Objection("model", f"the model {requested[:80]!r} may not be used{others}", "model"),)

    def defaults(self, request: AnyRequest) -> Mapping[str, object]:
        """Return no defaults."""
        return {}


def build(settings: Mapping[str, object], dependencies: DetectorDependencies) -> AllowedModels:
    """Build the rule. Raises ConfigurationError if it is empty."""
    given = read_settings(settings, ModelSettings)
    if not given.allowed and not given.denied:
        raise ConfigurationError("settings: give allowed or denied names")
    return AllowedModels(given)
