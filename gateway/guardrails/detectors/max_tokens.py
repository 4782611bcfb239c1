"""Limits the answer length: a default if the caller sets no limit, and a maximum."""

from collections.abc import Mapping, Sequence

import msgspec

from contracts.api.chat import GenerationRequest, PositiveInt
from contracts.api.requests import AnyRequest
from contracts.errors import ConfigurationError
from gateway.guardrails.detector_dependencies import DetectorDependencies
from gateway.guardrails.request_rule import Objection
from gateway.guardrails.settings import read_settings

FIELDS = ("max_tokens", "max_completion_tokens")


class LengthSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings, in tokens of one choice: `default` if none are stated, and the maximum `most`."""

    default: PositiveInt | None = None
    most: PositiveInt | None = None


class AnswerLength:
    """Refuses or lowers limits above the maximum. A request without a limit gets the default, or the maximum."""

    def __init__(self, settings: LengthSettings) -> None:
        self._most = settings.most
        self._default = settings.default if settings.default is not None else settings.most

    def judge(self, requested: str, request: AnyRequest, fields: Mapping[str, object]) -> Sequence[Objection]:
        """Object to a limit above the maximum, in either of the two fields that can state it."""
        most = self._most
        if most is None or not isinstance(request, GenerationRequest):
            return ()
        stated = max(request.stated_limits, default=0)
        if stated <= most:
            return ()
        given = {name: most for name in FIELDS if isinstance(value := fields.get(name), int) and value > most}
        return (Objection("max_tokens", f"max_tokens is {stated}; at most {most} are allowed", FIELDS[0], given),)

    def defaults(self, request: AnyRequest) -> Mapping[str, object]:
        """Return the limit for a request without one."""
        if self._default is None or not isinstance(request, GenerationRequest) or request.output_limit is not None:
            return {}
        return {FIELDS[0]: self._default}


def build(settings: Mapping[str, object], dependencies: DetectorDependencies) -> AnswerLength:
    """Build the rule. Raises ConfigurationError if it is empty, or contradicts itself."""
    given = read_settings(settings, LengthSettings)
    if given.default is None and given.most is None:
        raise ConfigurationError("settings: give default or most")
    if given.default is not None and given.most is not None and given.default > given.most:
        raise ConfigurationError(f"settings: default is {given.default}, above most, {given.most}")
    return AnswerLength(given)
