"""The stages of the policies that cover a request, in order: rules and counters first, external services last."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Final, TypeVar

import msgspec

from contracts.errors import ConfigurationError
from contracts.guardrails.detector import AwaitedDetector, Detector, DetectorOfRequests, Marker, Watch
from contracts.guardrails.finding import About, Side
from contracts.guardrails.policy import GuardrailPolicy
from gateway.guardrails.detector_dependencies import DetectorDependencies
from gateway.guardrails.guard_stage import GuardStage, Looks, build_stage
from gateway.guardrails.request_rule import RequestRule
from gateway.guardrails.screening.screen import Screen
from gateway.guardrails.screening.spelling import AS_IS, Spelling
from gateway.guardrails.screening.stream_screen import StreamPlan, StreamScreen

_encode = msgspec.json.Encoder(order="sorted").encode
_CHOICES: Final = b'"choices"'
Built = TypeVar("Built")


class OutputPlan:
    """The stages that inspect answers. `streamed` are screens that inspect an answer piece by piece; those that change
    it come first. `whole` and `awaited` inspect the complete answer; if one of them can change it, all of it is held
    back (`holds_all`).
    """

    def __init__(
        self,
        stages: Sequence[GuardStage[Detector]],
        of_requests: Sequence[GuardStage[DetectorOfRequests]],
        awaited: Sequence[GuardStage[AwaitedDetector]],
    ) -> None:
        """Accept the stages. Raises ConfigurationError if an expression cannot be searched in a stream."""
        in_pieces = [stage for stage in stages if stage.detector.patterns]
        self._acting = StreamPlan(Screen([stage for stage in in_pieces if stage.acts]))
        self._watching = StreamPlan(Screen([stage for stage in in_pieces if not stage.acts]))
        self._of_requests = tuple(of_requests)
        self.whole = Screen([stage for stage in stages if not stage.detector.patterns])
        self.awaited = tuple(awaited)
        self._all = Screen(stages)
        self._streams = Streams(
            None if self._acting.is_empty else self._acting, None if self._watching.is_empty else self._watching
        )
        late = [*self.whole.stages, *awaited]
        self.waits = bool(late)
        self.holds_all = any(stage.acts for stage in late)
        self.acts = bool(self._acting.screen.stages) or self.holds_all or any(stage.acts for stage in of_requests)

    @property
    def is_empty(self) -> bool:
        """Return whether no stage inspects answers."""
        return not self.waits and not self._of_requests and self._acting.is_empty and self._watching.is_empty

    @property
    def is_immediate(self) -> bool:
        """Return whether all stages inspect an answer as it arrives, are the same for every request, and never wait."""
        return not self.waits and not self._of_requests

    def passes_whole(self, body: bytes) -> bool:
        """Return whether it is certain that no stage finds anything in a complete answer, without parsing its JSON.
        Only the part from its choices on is searched.
        """
        return self.is_immediate and self._all.finds_nothing_in(body, _CHOICES)

    def stream(self, spelling: Spelling = AS_IS) -> StreamScreen:
        """Return the screen of a new text, for the stages that change it and are the same for every request."""
        return self._acting.stream(spelling)

    def watch(self) -> StreamScreen:
        """Return the screen of a new text, for the stages that only inspect it and are the same for every request."""
        return self._watching.stream()

    def streams(self, about: About) -> "Streams":
        """Return the screens of one request's texts."""
        if not self._of_requests:
            return self._streams
        own = [GuardStage(one.spec, one.side, one.detector.for_request(about)) for one in self._of_requests]
        acting = StreamPlan(Screen([*self._acting.screen.stages, *(stage for stage in own if stage.acts)]))
        watching = StreamPlan(Screen([*self._watching.screen.stages, *(stage for stage in own if not stage.acts)]))
        return Streams(None if acting.is_empty else acting, None if watching.is_empty else watching)


@dataclass(frozen=True, slots=True)
class Streams:
    """The screens of a request's streamed texts: stages that change them, and stages that only inspect them."""

    acting: StreamPlan | None
    watching: StreamPlan | None


@dataclass(frozen=True)
class GuardPlan:
    """All stages of one request. `digest` identifies the stages that its answer depends on."""

    digest: str
    rules: tuple[GuardStage[RequestRule], ...]
    watches: tuple[GuardStage[Watch], ...]
    input_stages: tuple[GuardStage[Detector], ...]
    awaited: tuple[GuardStage[AwaitedDetector], ...]
    markers: tuple[GuardStage[Marker], ...]
    output: OutputPlan
    of_requests: tuple[GuardStage[DetectorOfRequests], ...] = field(default=())

    @cached_property
    def input(self) -> Screen:
        """Return the screen that inspects requests' texts without waiting."""
        return Screen(self.input_stages)

    @cached_property
    def is_immediate(self) -> bool:
        """Return whether all stages inspect texts locally, without waiting."""
        return self.only_searches and self.output.is_immediate

    @cached_property
    def only_searches(self) -> bool:
        """Return whether the stages inspect nothing but the request's texts, and add nothing to them."""
        return not (self.rules or self.watches or self.awaited or self.markers or self.of_requests)

    @property
    def reads_texts(self) -> bool:
        """Return whether a stage inspects the texts of requests, or adds to them."""
        return bool(self.input_stages or self.watches or self.awaited or self.markers or self.of_requests)


class StageBox:
    """A cache of detectors by stage. Each is built once, and shared by the policies that have the same stage."""

    def __init__(self, dependencies: DetectorDependencies) -> None:
        self._dependencies = dependencies
        self._built: dict[bytes, Looks] = {}

    def build(self, policy: GuardrailPolicy) -> list[Looks]:
        """Build a policy's detectors, in their order. Raises ConfigurationError."""
        built = []
        for spec in policy.stages:
            name = _encode((policy.name, spec))
            if name not in self._built:
                self._built[name] = build_stage(policy.name, spec, self._dependencies)
            built.append(self._built[name])
        return built

    def keep(self, policies: Sequence[GuardrailPolicy]) -> list[Looks]:
        """Drop the detectors of all other policies, and return the dropped ones."""
        names = {_encode((policy.name, spec)) for policy in policies for spec in policy.stages}
        return [self._built.pop(name) for name in list(self._built) if name not in names]


def compile_plan(
    policies: Sequence[GuardrailPolicy], dependencies: DetectorDependencies, box: StageBox | None = None
) -> GuardPlan:
    """Build the plan of policies in order. Raises ConfigurationError, naming what is invalid."""
    box = box or StageBox(dependencies)
    found = [
        (policy, spec, detector)
        for policy in policies
        for spec, detector in zip(policy.stages, box.build(policy), strict=True)
    ]
    for policy, spec, detector in found:
        if spec.is_on("output") and spec.direction == "output" and isinstance(detector, Marker):
            if not isinstance(detector, Detector | DetectorOfRequests):
                raise ConfigurationError(f"guardrail {policy.name!r}, stage {spec.name!r} does nothing on answers")

    def those(kind: type[Built], side: Side) -> list[GuardStage[Built]]:
        return [
            GuardStage(spec, side, detector)
            for _, spec, detector in found
            if spec.is_on(side) and isinstance(detector, kind)
        ]

    try:
        output = OutputPlan(
            those(Detector, "output"),  # type: ignore[type-abstract]  # protocols that are checked as they run
            those(DetectorOfRequests, "output"),  # type: ignore[type-abstract]
            those(AwaitedDetector, "output"),  # type: ignore[type-abstract]
        )
    except ConfigurationError as error:
        names = ", ".join(repr(policy.name) for policy in policies)
        raise ConfigurationError(f"guardrail {names}: on answers, {error.message}") from error
    return GuardPlan(
        digest=blake2b(_encode(policies), digest_size=12).hexdigest(),
        rules=tuple(those(RequestRule, "input")),  # type: ignore[type-abstract]
        watches=tuple(those(Watch, "input")),  # type: ignore[type-abstract]
        input_stages=tuple(those(Detector, "input")),  # type: ignore[type-abstract]
        awaited=tuple(those(AwaitedDetector, "input")),  # type: ignore[type-abstract]
        markers=tuple(those(Marker, "input")),  # type: ignore[type-abstract]
        of_requests=tuple(those(DetectorOfRequests, "input")),  # type: ignore[type-abstract]
        output=output,
    )
