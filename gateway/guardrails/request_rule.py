"""Stages that look at what a request asks for rather than at its words: models, parameters, lengths."""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from contracts.api.requests import AnyRequest


class Objection(msgspec.Struct, frozen=True):
    """What a rule has against a request: what kind of thing, in words for the caller, and what would mend it.

    `mended` are top-level fields with their new values, `None` for those to be left out; no mending: it is refused.
    """

    kind: str
    message: str
    param: str | None = None
    mended: Mapping[str, object] | None = None


@runtime_checkable
class RequestRule(Protocol):
    """Judges a request by its fields, and says what it would have where the caller says nothing."""

    def judge(self, requested: str, request: AnyRequest, fields: Mapping[str, object]) -> Sequence[Objection]:
        """Judge a request for a name, by its top-level fields (a chat's, for what was translated to one)."""

    def defaults(self, request: AnyRequest) -> Mapping[str, object]:
        """Return fields to be set because the caller leaves them to us."""
