"""The detector of prompt injection: text from third parties that tries to take control of the model."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from algorithms.detectors.injection import DEFAULT_THRESHOLD, injection_in
from algorithms.detectors.injection_traces import TRACES
from contracts.guardrails.finding import Finding
from gateway.guardrails.detector_dependencies import DetectorDependencies
from gateway.guardrails.screening.expression import Expression
from gateway.guardrails.settings import read_settings

_OWN_ROLES: Final = frozenset({"system", "developer"})  # whose words are the application's
_MOST_KINDS: Final = 3  # signals that are named in a verdict


class InjectionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings. `threshold`: the minimum score of an attempt. `roles`: empty means all except the system's.

    `ignore` names signals that do not count, such as "system_turn" if users send transcripts.
    """

    threshold: Annotated[float, Meta(gt=0, le=1)] = DEFAULT_THRESHOLD
    roles: frozenset[str] = frozenset()
    ignore: frozenset[str] = frozenset()


class InjectionDetector:
    """Finds injection attempts in texts; see `algorithms.detectors.injection`."""

    patterns: tuple[str, ...] = ()

    def __init__(self, settings: InjectionSettings) -> None:
        self._settings = settings
        self._traces = Expression(*TRACES)

    def find(self, text: str, role: str, matching: Sequence[int] | None = None) -> Sequence[Finding]:
        """Return findings about the whole text, one for each of the strongest signals."""
        settings = self._settings
        if role in _OWN_ROLES if not settings.roles else role not in settings.roles:
            return ()
        if text.isascii() and self._traces.start(text) < 0:
            return ()
        suspicion = injection_in(text, settings.ignore)
        if suspicion.score < settings.threshold:
            return ()
        strongest = sorted(suspicion.signals, key=lambda name: (-suspicion.signals[name], name))
        return tuple(Finding(0, 0, name, suspicion.score) for name in strongest[:_MOST_KINDS])


def build(settings: Mapping[str, object], dependencies: DetectorDependencies) -> InjectionDetector:
    """Build the detector. Raises ConfigurationError on unknown or invalid settings."""
    return InjectionDetector(read_settings(settings, InjectionSettings))
