"""Reads the reply of a server to a request for other media: its bytes pass through, its units are counted."""

from typing import Final

import msgspec

from backends.llm.base import Sink
from backends.llm.http.http_reply import ReplyReader
from backends.llm.http.openai_replies import GENERATED, ReplyForm, broken
from contracts.api.media import (
    ImageAnswer,
    ImageRequest,
    MediaRequest,
    MediaUsage,
    ModerationAnswer,
    ModerationRequest,
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
_FORM: Final = ReplyForm("JSON object of the kind asked for", "", GENERATED.decoder)  # as errors name it
_MOST_BYTES: Final = 64 * 1024 * 1024
_images: Final = msgspec.json.Decoder(ImageAnswer).decode
_transcriptions: Final = msgspec.json.Decoder(TranscriptionAnswer).decode
_moderations: Final = msgspec.json.Decoder(ModerationAnswer).decode


class MediaReader(ReplyReader):
    """Accepts one reply, which comes whole."""

    def __init__(self, spec: TargetSpec, sink: Sink, request: MediaRequest, sent_credentials: tuple[str, ...]) -> None:
        super().__init__(spec, sink, request, sent_credentials=sent_credentials)
        self._media = request
        self._to: Sink = sink
        self._most_bytes = _MOST_BYTES
        self._form = _FORM

    def on_head(self, status: int, headers: dict[bytes, bytes]) -> None:
        """Accept the head. Raises UpstreamBroken on a compressed reply, which no client was told of."""
        super().on_head(status, headers)
        if status == 200 and headers.get(b"content-encoding", b"identity").strip().lower() != b"identity":
            raise UpstreamBroken(f"target {self._target!r} sent a compressed reply, which it was not asked for")

    def take_whole(self, body: bytes) -> None:
        """Accept the reply. Raises UpstreamBroken on what is none."""
        said = self._headers.get(b"content-type", b"").decode("latin-1")
        usage, method = self._counted(body, said.partition(";")[0].strip().lower())
        self.usage, self.count_method = usage, method
        self._to.report(usage, method)
        if not self._is_named:
            self._name("", "")
        self._to.media_type(said)
        self._to.whole(body)

    def _counted(self, body: bytes, kind: str) -> tuple[Usage, CountMethod]:
        """Return what the reply says was used, and how that is known."""
        request = self._media
        if isinstance(request, ImageRequest):
            return self._images_in(body, request)
        if isinstance(request, TranscriptionRequest):
            return self._sound_in(body, kind)
        if isinstance(request, ModerationRequest):
            moderated = self._read(body, _moderations)
            if moderated.results is None:
                raise self._without("results", body)
            self._name(moderated.model, None)
        elif not body or kind == _JSON:
            raise broken(self._message_in(body), f"target {self._target!r} sent no sound")
        return request.wanted, "exact"

    def _images_in(self, body: bytes, request: ImageRequest) -> tuple[Usage, CountMethod]:
        answer = self._read(body, _images)
        if answer.data is None:
            raise self._without("data", body)
        tier = image_variant(answer.quality or request.quality, answer.size or request.size)
        if tier:
            self.service_tier = tier
            self._to.answered_at(tier)
        tokens = _tokens_of(answer.usage, makes_images=True)
        return tokens.plus(Usage(images=len(answer.data))), "reported"

    def _sound_in(self, body: bytes, kind: str) -> tuple[Usage, CountMethod]:
        if kind != _JSON:  # a text, or subtitles: nothing tells how long the sound was
            return UNKNOWN_USAGE, "none"
        answer = self._read(body, _transcriptions)
        if answer.text is None:
            raise self._without("text", body)
        try:
            length = milliseconds_of(answer)
        except InvalidUsage:  # the answer stands, its usage stays unknown
            length = None
        usage = _tokens_of(answer.usage, makes_images=False).plus(Usage(milliseconds=length))
        return usage, "reported" if usage.is_known else "none"

    def _without(self, field: str, body: bytes) -> UpstreamBroken:
        return broken(self._message_in(body), f"target {self._target!r} sent a reply without {field}")


def _tokens_of(usage: MediaUsage | None, *, makes_images: bool) -> Usage:
    """Return the tokens of a usage object; unknown if it contradicts itself."""
    try:
        return media_tokens(usage, makes_images=makes_images)
    except InvalidUsage:
        return UNKNOWN_USAGE
