"""Allowed model names, in addition to keys' scopes."""

from collections.abc import Mapping, Sequence

import msgspec

from contracts.api.requests import AnyRequest
from contracts.errors import ConfigurationError
from gateway.guardrails.means import Means
from gateway.guardrails.request_rule import Objection
from gateway.guardrails.settings import read_settings


class ModelSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names of models and routes; `allowed` empty: all that are not denied."""

    allowed: list[str] = []
    denied: list[str] = []


class AllowedModels:
    """Objects to names that are not allowed."""

    def __init__(self, settings: ModelSettings) -> None:
        self._allowed = frozenset(settings.allowed)
        self._denied = frozenset(settings.denied)

    def judge(self, requested: str, request: AnyRequest, fields: Mapping[str, object]) -> Sequence[Objection]:
        """Judge by the name alone."""
        if requested not in self._denied and (not self._allowed or requested in self._allowed):
            return ()
        others = f"; {', '.join(sorted(self._allowed))} may be" if self._allowed else ""
        return (Objection("model", f"the model {requested[:80]!r} may not be used{others}", "model"),)

    def defaults(self, request: AnyRequest) -> Mapping[str, object]:
        """Return no defaults."""
        return {}


def build(settings: Mapping[str, object], means: Means) -> AllowedModels:
    """Build the rule. Raises ConfigurationError if it is empty."""
    given = read_settings(settings, ModelSettings)
    if not given.allowed and not given.denied:
        raise ConfigurationError("settings: give allowed or denied names")
    return AllowedModels(given)
