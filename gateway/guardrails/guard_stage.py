"""A stage that is ready to inspect texts: its place in a policy, and the detector built from its settings."""

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from contracts.errors import ConfigurationError
from contracts.guardrails.detector import AwaitedDetector, Detector, DetectorOfRequests, Marker, Watch
from contracts.guardrails.finding import Finding, Side, Verdict, verdict_of
from contracts.guardrails.policy import StageSpec
from gateway.guardrails.detector_dependencies import DetectorDependencies
from gateway.guardrails.detectors.table import build_detector
from gateway.guardrails.request_rule import RequestRule

Looking = TypeVar("Looking", covariant=True)
Looks = Detector | DetectorOfRequests | AwaitedDetector | Watch | Marker | RequestRule

_INPUT_ONLY: Final = (Watch, RequestRule)


@dataclass(frozen=True, slots=True, eq=False)  # a stage is itself: settings have no hash
class GuardStage(Generic[Looking]):
    """One stage of a policy, for requests or for answers."""

    spec: StageSpec
    side: Side
    detector: Looking

    @property
    def acts(self) -> bool:
        """Return whether a finding changes or blocks the text."""
        return self.spec.action != "flag" and not self.spec.dry_run

    def verdict(self, findings: list[Finding]) -> Verdict:
        """Return the verdict on findings of this stage; there must be at least one."""
        spec = self.spec
        return verdict_of(spec.name, spec.detector, self.side, spec.action, findings, is_dry_run=spec.dry_run)


def build_stage(policy: str, spec: StageSpec, dependencies: DetectorDependencies) -> Looks:
    """Build a stage's detector. Raises ConfigurationError, naming the policy and the stage."""
    where = f"guardrail {policy!r}, stage {spec.name!r}"
    try:
        detector = build_detector(spec.detector, spec.settings, dependencies)
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error.message}") from error
    if isinstance(detector, Watch) and spec.action != "flag":
        raise ConfigurationError(f"{where}: {spec.detector!r} has its actions in its own settings; use action: flag")
    if isinstance(detector, _INPUT_ONLY) and spec.direction != "input":
        raise ConfigurationError(f"{where}: {spec.detector!r} inspects requests only; its direction must be input")
    return detector
