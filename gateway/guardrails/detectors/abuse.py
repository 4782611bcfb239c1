"""Detects misuse of keys: floods, probing, harvesting and shared keys, by the rules of `algorithms.abuse.spec`."""

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from algorithms.abuse.key_watch import Use
from algorithms.abuse.spec import AbuseSpec, abuse_spec
from contracts.guardrails.finding import DEFINITION, About, Finding, Shown
from gateway.guardrails.detector_dependencies import DetectorDependencies
from gateway.identity.abuse.incidents import IncidentBook, Suspect
from gateway.identity.abuse.key_watches import KeyWatches

_log = logging.getLogger(__name__)

_NOT_ASKED: Final = frozenset({"system", "developer", DEFINITION, ""})


class AbuseWatch:
    """Counts requests by their key, and refuses those that must be throttled."""

    def __init__(self, spec: AbuseSpec, incidents: IncidentBook | None) -> None:
        self.watches = KeyWatches(spec)
        self._incidents = incidents

    def watch(self, shown: Sequence[Shown], about: About) -> Sequence[Finding]:
        """Count a request. Raises AbuseThrottled."""
        # A token of an identity provider is not a key: all its holders together would look like one that is shared.
        watch = self.watches.of(about.tenant, about.key_id) if about.key_id else None
        if watch is None:
            return ()
        # What was said before is in every request of a conversation: what is asked now is the last of it.
        asked = next((each.text for each in reversed(shown) if each.text and each.role not in _NOT_ASKED), "")
        use = Use(asked, about.at_ns, about.address, about.user_agent, about.wants_logprobs, about.output_limit)
        detections = watch.look(use)
        for detection in detections:
            suspect = Suspect(about.tenant, about.key_id)
            if self._incidents is not None and self._incidents.note(suspect, detection, about.at_ns):
                told = {"tenant": about.tenant, "key_id": about.key_id, "kind": detection.kind}
                _log.warning("abuse seen", extra={**told, "observed": detection.observed, "limit": detection.limit})
        for detection in detections:
            if detection.action == "throttle":
                raise detection.error()
        return tuple(Finding(0, 0, detection.kind) for detection in detections)


def build(settings: Mapping[str, object], dependencies: DetectorDependencies) -> AbuseWatch:
    """Build the detector. Raises ConfigurationError on unknown or invalid settings."""
    return AbuseWatch(abuse_spec(settings), dependencies.incidents)
