"""Reads replies with images, audio or moderations: bytes are passed on unchanged, units are counted."""

from typing import Final

import msgspec

from backends.llm.base import Sink
from backends.llm.http.http_reply import ReplyReader
from backends.llm.http.openai_replies import GENERATED, ReplyForm, broken
from backends.llm.http.sse import EventSplitter, data_of
from contracts.api.media import (
    ImageAnswer,
    ImageRequest,
    Made,
    MediaEvent,
    MediaRequest,
    MediaUsage,
    ModerationAnswer,
    ModerationRequest,
    SpeechRequest,
    TranscriptionAnswer,
    TranscriptionRequest,
    media_tokens,
    milliseconds_of,
)
from contracts.errors import InvalidUsage, UpstreamBroken
from contracts.metering.usage import UNKNOWN_USAGE, Usage
from contracts.pricing.service_tiers import image_variant
from contracts.recording.records import CountMethod
from contracts.serving.configuration import TargetSpec

_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"
_FORM: Final = ReplyForm("JSON object of the kind asked for", "", GENERATED.decoder)  # the name in errors
_MOST_BYTES: Final = 64 * 1024 * 1024  # of a reply, or of an event, which may contain an image
_NO_ERROR: Final = (b"", b"null")
_DONE: Final = b"[DONE]"
_ENDS: Final = frozenset(("image_generation.completed", "transcript.text.done", "speech.audio.done"))
_images: Final = msgspec.json.Decoder(ImageAnswer).decode
_transcriptions: Final = msgspec.json.Decoder(TranscriptionAnswer).decode
_moderations: Final = msgspec.json.Decoder(ModerationAnswer).decode
_events: Final = msgspec.json.Decoder(MediaEvent).decode


class MediaReader(ReplyReader):
    """Receives one reply: whole, as pieces of audio, or as events.

    Events and audio are passed on as they arrive. The last events of a stream are passed on at the reply's end.
    """

    def __init__(self, spec: TargetSpec, sink: Sink, request: MediaRequest, sent_credentials: tuple[str, ...]) -> None:
        super().__init__(spec, sink, request, sent_credentials=sent_credentials)
        self._media = request
        self._to: Sink = sink
        self._most_bytes = _MOST_BYTES
        self._form = _FORM
        self._is_sound = False
        self._has_sound = False
        self._images = 0  # complete images in a stream
        self._end = b""  # a stream's last events

    def on_head(self, status: int, headers: dict[bytes, bytes]) -> None:
        """Process the head. Raises UpstreamBroken if the reply is compressed, or an unrequested stream."""
        super().on_head(status, headers)
        if status != 200:
            return
        if headers.get(b"content-encoding", b"identity").strip().lower() != b"identity":
            raise UpstreamBroken(f"target {self._target!r} sent a compressed reply, which it was not asked for")
        said, kind = self._kind()
        if kind == _EVENTS:
            if not self._media.is_streamed:
                raise UpstreamBroken(f"target {self._target!r} sent a stream of events, which it was not asked for")
            self._events = EventSplitter(_MOST_BYTES)
            self._lessons = 1 << 30  # look for no chunk shapes, which exist only for chats
        elif isinstance(self._media, SpeechRequest) and kind != _JSON:
            self._is_sound = True
        else:
            return
        if isinstance(self._media, SpeechRequest):  # all of its text is charged, even if the client stops listening
            self._count_units(self._media.wanted, "exact")
        self._name("", "")
        self._to.media_type(said)

    def on_body(self, data: bytes) -> bool:
        """Process a piece, and pass audio on."""
        if not self._is_sound:
            return super().on_body(data)
        self._has_sound = True
        self._to.piece(data)
        return True

    def take_event(self, event: bytes) -> None:
        """Process one complete server-sent event. Raises UpstreamBroken if it is an error or cannot be parsed."""
        data = data_of(event)
        if not data:  # a comment that keeps the connection alive
            return
        self.advances += 1
        if data == _DONE:
            self.is_done = True
            self._end += event
            return
        read = self._read(data, _events)
        if read.type == "error" or bytes(read.error) not in _NO_ERROR:
            raise broken(self._message_in(data), f"target {self._target!r} reported an error in its stream")
        is_end = read.type in _ENDS
        self._take_stated(read, is_end=is_end)
        if self._end and not is_end:
            self._end += event
            return
        event, self._end = (self._end, event) if is_end else (event, b"")
        if event:
            self._to.piece(event)

    def take_whole(self, body: bytes) -> None:
        """Process a whole reply. Raises UpstreamBroken if it is invalid."""
        if self._is_sound:
            if not self._has_sound:
                raise UpstreamBroken(f"target {self._target!r} sent no sound")
            self._to.whole(b"")
            return
        said, kind = self._kind()
        self._count_units(*self._counted(body, kind))
        if not self._is_named:
            self._name("", "")
        self._to.media_type(said)
        self._to.whole(body)

    def conclude(self) -> None:
        """Finish reading after the reply's end, and pass on a stream's last events. Raises the reply's error, if it
        failed.
        """
        super().conclude()
        if self._events is not None:
            self._to.whole(self._end if self.is_done else self._end + b"data: [DONE]\n\n")

    def _kind(self) -> tuple[str, str]:
        """Return the reply's content type, complete and without its parameters."""
        said = self._headers.get(b"content-type", b"").decode("latin-1")
        return said, said.partition(";")[0].strip().lower()

    def _count_units(self, usage: Usage, method: CountMethod) -> None:
        self.usage, self.count_method = usage, method
        self._to.report(usage, method)

    def _take_stated(self, read: MediaEvent, *, is_end: bool) -> None:
        """Count the usage that an event states, and detect the answer's end."""
        request = self._media
        if isinstance(request, ImageRequest):
            if not is_end:
                return
            self._images += 1
            self.is_done = self._images >= request.choice_count
            self._take_variant(read, request)
            tokens = _tokens_of(read.usage, "image").plus(_without_units(self.usage))
            self._count_units(tokens.plus(Usage(images=self._images)), "reported")
            return
        self.is_done = self.is_done or is_end
        if read.usage is None and read.duration is None:
            return
        if isinstance(request, SpeechRequest):
            self._count_units(request.wanted.plus(_tokens_of(read.usage, "sound")), "exact")
        else:
            self._count_units(*_sound_in(read))

    def _counted(self, body: bytes, kind: str) -> tuple[Usage, CountMethod]:
        """Return the usage of a whole reply, and how it was determined."""
        request = self._media
        if isinstance(request, ImageRequest):
            return self._images_in(body, request)
        if isinstance(request, TranscriptionRequest):
            return self._transcribed(body, kind)
        if isinstance(request, ModerationRequest):
            moderated = self._read(body, _moderations)
            if moderated.results is None:
                raise self._without("results", body)
            self._name(moderated.model, None)
        else:  # an object in place of sound
            raise broken(self._message_in(body), f"target {self._target!r} sent no sound")
        return request.wanted, "exact"

    def _images_in(self, body: bytes, request: ImageRequest) -> tuple[Usage, CountMethod]:
        answer = self._read(body, _images)
        if answer.data is None:
            raise self._without("data", body)
        self._take_variant(answer, request)
        return _tokens_of(answer.usage, "image").plus(Usage(images=len(answer.data))), "reported"

    def _take_variant(self, said: ImageAnswer | MediaEvent, request: ImageRequest) -> None:
        """Record the image's quality and size as the service tier."""
        tier = image_variant(said.quality or request.quality, said.size or request.size)
        if tier:
            self.service_tier = tier
            self._to.answered_at(tier)

    def _transcribed(self, body: bytes, kind: str) -> tuple[Usage, CountMethod]:
        if kind != _JSON:  # plain text or subtitles, without the audio's length
            return UNKNOWN_USAGE, "none"
        answer = self._read(body, _transcriptions)
        if answer.text is None:
            raise self._without("text", body)
        return _sound_in(answer)

    def _without(self, field: str, body: bytes) -> UpstreamBroken:
        return broken(self._message_in(body), f"target {self._target!r} sent a reply without {field}")


def _sound_in(answer: TranscriptionAnswer) -> tuple[Usage, CountMethod]:
    """Return the length of a transcription's audio, from its usage or duration."""
    try:
        length = milliseconds_of(answer)
    except InvalidUsage:  # the answer stands, its usage stays unknown
        length = None
    usage = _tokens_of(answer.usage, "text").plus(Usage(milliseconds=length))
    return usage, "reported" if usage.is_known else "none"


def _without_units(usage: Usage) -> Usage:
    """Return usage without its images, which are counted separately."""
    return msgspec.structs.replace(usage, images=None)


def _tokens_of(usage: MediaUsage | None, makes: Made) -> Usage:
    """Return the tokens of a usage object; unknown if it is contradictory."""
    try:
        return media_tokens(usage, makes)
    except InvalidUsage:
        return UNKNOWN_USAGE
