"""Reads a request for targets that speak its API: only fields that the gateway uses are parsed, the rest is sent
unchanged.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from backends.processes.native import mypyc_attr
from contracts.api.chat import TranslatedChat
from contracts.api.native import NATIVE_PATHS, NamedModel, NativeApi, NativeBody
from contracts.api.requests import AnyRequest
from contracts.errors import InvalidRequest
from contracts.serving.configuration import Snapshot
from gateway.apis.native.reach import NativeReach, Reach
from gateway.apis.native.unknown_fields import read_dropping
from gateway.wire.exchange import Exchange

_MAX_HEADER: Final = 4096
_UNTRANSLATED: Final = InvalidRequest("the request is for targets that speak its API")

# Most SDKs send the model first: a large body is not read through for it. Names beyond ASCII are read as all others.
_MODEL_FIRST: Final = re.compile(
    rb'[ \t\n\r]*\{[ \t\n\r]*"model"[ \t\n\r]*:[ \t\n\r]*"([\x20-\x21\x23-\x5b\x5d-\x7e]*)"'
)
_named: Final = msgspec.json.Decoder(NamedModel)

_JSON: Final = "application/json"

Reader = Callable[[str, bytes], AnyRequest]


class Readers:
    """The reader of one request, and the path at which a target that speaks the API answers it."""

    __slots__ = ("path", "translate", "untranslated")

    def __init__(self, translate: Reader, untranslated: Callable[[str, bytes], TranslatedChat], path: str) -> None:
        self.translate = translate
        self.untranslated = untranslated
        self.path = path


@mypyc_attr(allow_interpreted_subclasses=True)
class NativeReading:
    """Reads the requests of one API. `translate` translates a request to a chat, and refuses what no chat can express.
    `untranslated` parses only the fields that the gateway uses.

    `headers`: the client's headers that are sent to the target, each with its default. `path`: the target's path, if it
    differs from the API's usual one.
    """

    def __init__(
        self,
        api: NativeApi,
        translate: Reader,
        untranslated: Callable[[str, bytes], TranslatedChat],
        headers: tuple[tuple[bytes, str], ...],
        path: str = "",
    ) -> None:
        self.api = api
        self.untranslated = untranslated
        self.reach = NativeReach(api)
        self._headers = headers
        self._own = Readers(translate, untranslated, path or NATIVE_PATHS[api])

    def reaches(self, exchange: Exchange, snapshot: Snapshot) -> Reach:
        """Return how many of the targets that may answer speak the API."""
        name = self._model_in(exchange)
        return "none" if name is None else self.reach.of(name, snapshot)

    def model_of_all(self, exchange: Exchange, snapshot: Snapshot) -> str | None:
        """Return the requested model, if all targets that may answer speak the API; else `None`."""
        name = self._model_in(exchange)
        return name if name is not None and self.reach.of(name, snapshot) == "all" else None

    def reader_of_all(self, exchange: Exchange, model: str) -> Reader:
        """Return the reader of a request for a model found by `model_of_all`."""
        return partial(self._read, self._readers(exchange), model, "all", self._head_of(exchange))

    def reader(self, exchange: Exchange, snapshot: Snapshot) -> Reader:
        """Return the reader of a request, depending on the targets that may answer."""
        name, readers = self._model_in(exchange), self._readers(exchange)
        if name is None:
            return readers.translate  # which says what is wrong
        reach = self.reach.of(name, snapshot)
        translate = readers.translate
        if reach != "all" and self.reach.lets_drop(name, snapshot):
            translate = partial(read_dropping, readers.translate)
        if reach == "none":
            return translate
        return partial(
            self._read, Readers(translate, readers.untranslated, readers.path), name, reach, self._head_of(exchange)
        )

    def again(self, request: TranslatedChat, body: bytes) -> TranslatedChat:
        """Read a request again after the gateway has changed its body."""
        return self.untranslated(_JSON, body)

    def _model_in(self, exchange: Exchange) -> str | None:
        """Return the requested model; `None` if the body cannot be parsed."""
        return _model_in(exchange.body)

    def _readers(self, exchange: Exchange) -> Readers:
        return self._own

    def _read(self, readers: Readers, name: str, reach: Reach, head: str, content_type: str, body: bytes) -> AnyRequest:
        chat = readers.untranslated(content_type, body)
        if chat.model != name:
            raise InvalidRequest("the body has several fields named 'model'; send one", param="model")
        refusal: InvalidRequest | None = _UNTRANSLATED
        if reach == "some":
            try:
                translated = readers.translate(content_type, body)
                assert isinstance(translated, TranslatedChat)
                chat, refusal = translated, None
            except InvalidRequest as error:
                error.__traceback__ = None
                refusal = error
        fields = chat.chat_fields if refusal is _UNTRANSLATED else None
        native = NativeBody(api=self.api, path=readers.path, body=body, head=head, refusal=refusal, fields=fields)
        msgspec.structs.force_setattr(chat, "native", native)  # nobody has seen it yet; to copy it takes much longer
        return chat

    def _head_of(self, exchange: Exchange) -> str:
        lines = ""
        for name, otherwise in self._headers:
            value = exchange.header(name) or otherwise
            if value and len(value) <= _MAX_HEADER and value.isascii() and value.isprintable():
                lines += f"{name.decode()}: {value}\r\n"
        return lines


def _model_in(body: bytes) -> str | None:
    """Return the model that a body names, by its first field if that is it; `None` if the body cannot be read."""
    first = _MODEL_FIRST.match(body)
    if first is not None:
        return first.group(1).decode()
    try:
        return _named.decode(body).model
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
