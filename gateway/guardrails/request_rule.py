"""Stages that inspect a request's fields rather than its text: models, parameters, lengths."""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from contracts.api.requests import AnyRequest


class Objection(msgspec.Struct, frozen=True):
    """A rule's objection to a request: its kind, in words for the caller, and a correction.

    `mended` are top-level fields with their new values, `None` for fields to remove; without a correction the request
    is refused.
    """

    kind: str
    message: str
    param: str | None = None
    mended: Mapping[str, object] | None = None


@runtime_checkable
class RequestRule(Protocol):
    """Judges a request by its fields, and supplies defaults for missing ones."""

    def judge(self, requested: str, request: AnyRequest, fields: Mapping[str, object]) -> Sequence[Objection]:
        """Return the objections to a request for the name `requested`, by its top-level fields (those of a chat if the
        request was translated).
        """

    def defaults(self, request: AnyRequest) -> Mapping[str, object]:
        """Return values for fields that the caller has not set."""
