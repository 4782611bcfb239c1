"""The canary: a marker in system prompts, and the detector that finds it in answers.

For requests it adds the marker, and finds markers that a caller sends, which must have leaked earlier. In answers it
finds markers that are leaking now.
"""

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from algorithms.detectors.canary import CANARY_PATTERNS, canary_line, canary_marker, is_canary
from contracts.guardrails.finding import About, Finding
from gateway.guardrails.detector_dependencies import DetectorDependencies
from gateway.guardrails.screening.expression import Expression
from gateway.guardrails.settings import read_settings

_OWN_ROLES: Final = frozenset({"system", "developer"})


class CanarySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings. `name` distinguishes the markers of several policies; changing it changes the marker."""

    name: Annotated[str, Meta(min_length=1, max_length=63)] = "system-prompt"


class Canary:
    """Marks system prompts, and finds the markers of this installation."""

    patterns: tuple[str, ...] = CANARY_PATTERNS

    def __init__(self, settings: CanarySettings, secret: bytes) -> None:
        self._name = settings.name
        self._secret = secret
        self._forms = Expression(*CANARY_PATTERNS)

    def mark(self, about: About) -> str:
        """Return the line with the marker for the tenant and the day."""
        return canary_line(canary_marker(self._secret, about.tenant, self._name, about.at_ns))

    def find(self, text: str, role: str, matching: Sequence[int] | None = None) -> Sequence[Finding]:
        """Find markers, except in the application's own text."""
        if role in _OWN_ROLES:
            return ()
        return tuple(
            Finding(start, end, "canary", 1.0)
            for start, end in self._forms.spans(text)
            if is_canary(self._secret, text[start:end])
        )


def build(settings: Mapping[str, object], dependencies: DetectorDependencies) -> Canary:
    """Build the detector. Raises ConfigurationError on unknown or invalid settings."""
    known = read_settings(settings, CanarySettings)
    return Canary(known, hmac.digest(dependencies.pepper, b"guardrails canary", hashlib.sha256))
