"""The detectors by their names in policies."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final, cast

from contracts.errors import ConfigurationError
from contracts.guardrails.detector import AnyDetector
from gateway.guardrails.detector_dependencies import DetectorDependencies
from gateway.guardrails.request_rule import RequestRule

Build = Callable[[Mapping[str, object], DetectorDependencies], AnyDetector | RequestRule]

# Import strings rather than imports: a detector's libraries load only where a policy asks for it.
DETECTORS: Final[Mapping[str, str]] = {
    "models": "gateway.guardrails.detectors.models:build",
    "parameters": "gateway.guardrails.detectors.parameters:build",
    "max_tokens": "gateway.guardrails.detectors.max_tokens:build",
    "deny": "gateway.guardrails.detectors.deny:build",
    "pii": "gateway.guardrails.detectors.pii:build",
    "secrets": "gateway.guardrails.detectors.secrets:build",
    "injection": "gateway.guardrails.detectors.injection:build",
    "canary": "gateway.guardrails.detectors.canary:build",
    "moderation": "gateway.guardrails.detectors.moderation:build",
    "classifier": "gateway.guardrails.detectors.classifier:build",
    "abuse": "gateway.guardrails.detectors.abuse:build",
}


def build_detector(
    kind: str, settings: Mapping[str, object], dependencies: DetectorDependencies
) -> AnyDetector | RequestRule:
    """Build a detector. Raises ConfigurationError if the kind is unknown, or its settings are invalid."""
    place = DETECTORS.get(kind)
    if place is None:
        raise ConfigurationError(f"there is no detector {kind[:80]!r}; there are {', '.join(sorted(DETECTORS))}")
    module, _, name = place.partition(":")
    build = cast(Build, getattr(import_module(module), name))
    return build(settings, dependencies)
