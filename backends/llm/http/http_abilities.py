"""Features that an HTTP server lacks, by its target's settings. Requests that need them are refused here."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from backends.llm.base import ModelCall
from backends.llm.parameters import fields_of, refuse_named
from contracts.access.endpoints import Endpoint
from contracts.api.chat import ChatRequest
from contracts.errors import ConfigurationError, UnsupportedParameter
from contracts.serving.configuration import TargetSpec

# Types of a message's parts: OpenAI's, then vLLM's.
_KINDS: Final[Mapping[str, str]] = {
    "image_url": "images",
    "input_audio": "audio",
    "file": "files",
    "audio_url": "audio",
}


class _Takes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    images: bool = True
    audio: bool = True
    files: bool = True


class _Settings(msgspec.Struct, frozen=True):
    refuses: frozenset[str] = frozenset()
    takes: _Takes = _Takes()
    paths: dict[Endpoint, str] = {}


@dataclass(frozen=True, slots=True)
class Abilities:
    """The fields that a server refuses, and the kinds of content that it does not accept."""

    refuses: frozenset[str]
    takes_no: frozenset[str]

    def check(self, call: ModelCall) -> None:
        """Raise UnsupportedParameter with the field if the server does not support the request."""
        request = call.request
        if self.refuses:
            refuse_named(request.model, fields_of(call.body), self.refuses)
        if self.takes_no and isinstance(request, ChatRequest):
            self._check_content(request)

    def _check_content(self, request: ChatRequest) -> None:
        for place, message in enumerate(request.messages):
            if not isinstance(message.content, list):
                continue
            for number, part in enumerate(message.content):
                kind = _KINDS.get(part.type)
                if kind in self.takes_no:
                    where = f"messages[{place}].content[{number}]"
                    raise UnsupportedParameter(
                        f"{where} is of type {part.type!r}; {request.model!r} takes no {kind}", param=f"{where}.type"
                    )


def read_abilities(spec: TargetSpec) -> Abilities | None:
    """Read `settings.refuses` and `settings.takes`; `None` if they restrict nothing. Raises ConfigurationError."""
    given = _read(spec)
    takes_no = frozenset(kind for kind in _Takes.__struct_fields__ if not getattr(given.takes, kind))
    return Abilities(given.refuses, takes_no) if given.refuses or takes_no else None


def read_paths(spec: TargetSpec) -> Mapping[str, str] | None:
    """Read `settings.paths`: the server's path for each standard path; `None` if not set. Raises ConfigurationError."""
    given = _read(spec).paths
    for endpoint, path in given.items():
        if not path.startswith("/") or not path.isascii() or not path.isprintable() or " " in path:
            raise ConfigurationError(f"target {spec.id!r}, paths: {endpoint} must begin with a slash, such as /rerank")
    return {"/" + endpoint.replace(".", "/"): path for endpoint, path in given.items()} or None


def _read(spec: TargetSpec) -> _Settings:
    try:
        return msgspec.convert(spec.settings, _Settings)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"target {spec.id!r}, settings: {error}") from error
