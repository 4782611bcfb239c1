"""Operations for images, transcriptions, speech and moderations. Bodies and answers are sent on unchanged."""

from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from contracts.api.media import ImageRequest, ModerationRequest, SpeechRequest, TranscriptionRequest
from contracts.api.requests import AnyRequest
from contracts.errors import InvalidRequest
from contracts.guardrails.finding import Verdict
from gateway.apis.reading import read_body
from gateway.apis.rendering import ErrorShape
from gateway.guardrails.answer_filter import AnswerFilter
from gateway.replies.reply import JSON, Reply, ReplyFacts
from gateway.wire.exchange import lines_of
from gateway.wire.forms import FormReader, read_form

_FILE: Final = "file"
_MAX_FIELD_BYTES: Final = 16 * 1024  # of a form's text: a prompt is the longest
_MAX_FIELDS: Final = 100
_MAX_TYPE: Final = 200
_MAX_ANSWER_TYPE: Final = 100
_EVENTS: Final = b"text/event-stream"
_TRUTHS: Final = {"": False, "false": False, "0": False, "true": True, "1": True}  # as forms spell them

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode
_images: Final = msgspec.json.Decoder(ImageRequest)
_speech: Final = msgspec.json.Decoder(SpeechRequest)
_moderations: Final = msgspec.json.Decoder(ModerationRequest)


def read_image(content_type: str, body: bytes) -> ImageRequest:
    """Read the body of POST /v1/images/generations. Raises as `read_chat`."""
    return read_body(_images, content_type, body)


def read_speech(content_type: str, body: bytes) -> SpeechRequest:
    """Read the body of POST /v1/audio/speech. Raises as `read_chat`."""
    return read_body(_speech, content_type, body)


def read_moderation(content_type: str, body: bytes) -> ModerationRequest:
    """Read the body of POST /v1/moderations. Raises as `read_chat`, and on an empty input."""
    request = read_body(_moderations, content_type, body)
    if not request.input:
        raise InvalidRequest("input is empty; give a text, or a list of texts and images", param="input")
    return request


def read_transcription(content_type: str, body: bytes) -> TranscriptionRequest:
    """Read the form of POST /v1/audio/transcriptions.

    Raises UnsupportedMediaType, MalformedBody, or InvalidRequest (with field, value and limit).
    """
    form = _Form()
    read_form(content_type, body, form)
    texts = {name: _text(name, value) for name, value in form.texts.items()}
    if not texts.get("model"):
        raise InvalidRequest("model is required", param="model")
    if len(texts["model"]) > _MAX_TYPE:
        raise InvalidRequest(f"model has {len(texts['model'])} characters; at most {_MAX_TYPE}", param="model")
    if form.file_bytes is None:
        raise InvalidRequest("file is required: the sound, with a file name", param=_FILE)
    if not form.file_bytes:
        raise InvalidRequest("the file is empty", param=_FILE)
    stream = _TRUTHS.get(texts.get("stream", "").lower())
    if stream is None:
        raise InvalidRequest(f"stream is {texts['stream'][:20]!r}; it must be true or false", param="stream")
    if len(content_type) > _MAX_TYPE or not content_type.isascii() or not content_type.isprintable():
        raise InvalidRequest(f"the content type has more than {_MAX_TYPE} characters, or others than ASCII's")
    return TranscriptionRequest(
        model=texts["model"],
        user=texts.get("user"),
        form_type=content_type,
        file_bytes=form.file_bytes,
        texts=msgspec.json.encode(texts),
        model_span=form.model_span,
        stream=stream,
    )


def _text(name: str, value: bytearray) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise InvalidRequest(f"{name[:40]} contains bytes that are not UTF-8", param=name[:40]) from None


@dataclass(slots=True)
class _Form(FormReader):
    """The texts of a form, and the size of its file."""

    texts: dict[str, bytearray] = field(default_factory=dict)
    file_bytes: int | None = None
    model_span: tuple[int, int] = (0, 0)
    _name: str = ""
    _parts: int = 0

    def begin(self, name: str, filename: str | None) -> None:
        self._parts += 1
        if self._parts > _MAX_FIELDS:
            raise InvalidRequest(f"the form has more than {_MAX_FIELDS} fields")
        self._name = name
        if name == _FILE:
            if self.file_bytes is not None:
                raise InvalidRequest("file is given more than once", param=_FILE)
            self.file_bytes = 0
        elif name.endswith("[]"):  # a list's entries come one by one: guardrails see them as one text
            self.texts.setdefault(name, bytearray()).extend(b"\n")
        else:
            if name in self.texts:
                raise InvalidRequest(f"{name[:40]} is given more than once", param=name[:40])
            self.texts[name] = bytearray()

    def take(self, data: bytes, start: int, end: int, at: int) -> None:
        if self._name == _FILE:
            self.file_bytes = (self.file_bytes or 0) + end - start
            return
        text = self.texts.get(self._name)
        if text is None:
            return
        if self._name == "model":
            first = self.model_span[0] if text else at
            self.model_span = (first, at + end - start)
        text += data[start:end]
        if len(text) > _MAX_FIELD_BYTES:
            shown = self._name[:40]
            raise InvalidRequest(f"{shown} has more than {_MAX_FIELD_BYTES} bytes", param=shown)

    def end(self) -> None:
        """End a part, of which all is counted already."""


class MediaReply(Reply):
    """Sends one answer, complete or in pieces. The end of an answer in pieces is held back until the record is
    written.
    """

    def __init__(self, facts: ReplyFacts) -> None:
        super().__init__(facts)
        self._media_type = JSON
        self._is_in_pieces = False
        self._filter: AnswerFilter | None = None

    def filter_words(self, answer_filter: AnswerFilter) -> None:
        """Make guardrails inspect the words of a complete transcript."""
        self._filter = answer_filter

    async def inspect(self) -> Verdict | None:
        """Run the guardrails on a transcript; return the verdict that blocks it, or `None`. If they change its text,
        parts of the answer that repeat the text are left out.
        """
        through, body = self._filter, self._body
        if through is None or self._is_in_pieces or not body:
            return None
        is_json = self._media_type.lower().startswith(JSON)
        held = b'{"choices":[%b]}' % (body if is_json else _encode({"text": body.decode(errors="replace")}))
        judged = await through.judge_body(held)
        if through.blocked is not None:
            self._body = b'{"text":""}' if is_json else b""
        elif judged != held:
            [answer] = _decode(judged)["choices"]
            self._body = _encode({"text": answer.get("text", "")}) if is_json else answer["text"].encode()
        return through.blocked

    def media_type(self, name: str) -> None:
        """Store the media type of the answer that follows. An invalid type is replaced by
        `application/octet-stream`.
        """
        is_sound = 0 < len(name) <= _MAX_ANSWER_TYPE and name.isascii() and name.isprintable()
        self._media_type = name.encode() if is_sound else b"application/octet-stream"

    def piece(self, data: bytes) -> None:
        """Send a piece unchanged."""
        self._progress.note_piece(self._clock.monotonic_ns())
        self._is_in_pieces = True
        if self._exchange.is_started:
            self._exchange.write(data)
        else:
            self._exchange.start_lines(200, self._media_type, self._lines + lines_of(self._served), data)

    def errors(self, shape: ErrorShape) -> ErrorShape:
        """Return the error format for this answer. Audio that is being sent has no way to include an error."""
        return shape if self._media_type.lower().startswith(_EVENTS) else replace(shape, event=None)

    def conclude(self) -> None:
        """Send the answer, or its end."""
        if self._is_in_pieces:
            self._exchange.end(self._body or b"")
            return
        body = self._body or b""
        self._exchange.send_lines(200, self._media_type, body, self._lines + lines_of(self._served))


def media_reply(facts: ReplyFacts, request: AnyRequest) -> Reply:
    """Return the reply for one request."""
    return MediaReply(facts)
