"""Types of OpenAI's endpoints for other media: images, transcriptions, speech, moderations.

Bodies and answers, complete or streamed, are forwarded unchanged. Only fields that the gateway evaluates or counts are
typed: all four are billed by units.
"""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from contracts.api.chat import InputRequest
from contracts.errors import InvalidUsage
from contracts.metering.usage import UNKNOWN_USAGE, Usage
from contracts.pricing.service_tiers import image_variant

MAX_IMAGES: Final = 10  # per request
MEDIA_OPERATIONS: Final = frozenset({"image_generation", "transcription", "speech", "moderation"})
_MILLISECONDS: Final = 1000
_MOST_SECONDS: Final = 4_294_967  # as milliseconds they fit into a column

Made = Literal["text", "image", "sound"]
_Word = Annotated[str, Meta(max_length=20, pattern=r"^[A-Za-z0-9_.-]*$")]


class MediaRequest(InputRequest, frozen=True, kw_only=True):
    """The common fields of requests for other media. `media_type` is the body's, if that is not JSON."""

    @property
    def media_type(self) -> str:
        """Return the media type that the body is sent with."""
        return "application/json"

    @property
    def wanted(self) -> Usage:
        """Return the maximum units of the answer, as far as the request states them."""
        return UNKNOWN_USAGE

    @property
    def sound_bytes(self) -> int:
        """Return the size of audio whose duration is not known yet."""
        return 0


class ImageRequest(MediaRequest, frozen=True, kw_only=True):
    """The body of POST /v1/images/generations."""

    prompt: str
    n: Annotated[int, Meta(ge=1, le=MAX_IMAGES)] | None = None
    quality: _Word | None = None
    size: _Word | None = None
    stream: bool | None = None

    @property
    def is_streamed(self) -> bool:
        """Return whether partial images should be sent before the complete ones."""
        return self.stream is True

    @property
    def asked_tier(self) -> str:
        """Return the kind of image that is asked for, as price cards name it; empty if unspecified."""
        return image_variant(self.quality, self.size)

    @property
    def choice_count(self) -> int:
        """Return the number of images."""
        return self.n or 1

    @property
    def wanted(self) -> Usage:
        """Return the requested images, as usage."""
        return Usage(images=self.choice_count)


class SpeechRequest(MediaRequest, frozen=True, kw_only=True):
    """The body of POST /v1/audio/speech."""

    input: Annotated[str, Meta(min_length=1)]
    stream_format: Literal["audio", "sse"] | None = None

    @property
    def is_streamed(self) -> bool:
        """Return whether the audio should be sent as events. As audio it is always sent in pieces."""
        return self.stream_format == "sse"

    @property
    def wanted(self) -> Usage:
        """Return the characters to speak, as usage."""
        return Usage(characters=len(self.input))


class ModerationRequest(MediaRequest, frozen=True, kw_only=True):
    """The body of POST /v1/moderations. The default model is OpenAI's."""

    model: Annotated[str, Meta(min_length=1, max_length=200)] = "omni-moderation-latest"
    input: str | list[Any]

    @property
    def wanted(self) -> Usage:
        """Return one request, as usage."""
        return Usage(requests=1)


class TranscriptionRequest(MediaRequest, frozen=True, kw_only=True):
    """The form of POST /v1/audio/transcriptions. `texts` are its fields except the file, as JSON.

    `model_span` is the position of the model's name in the body.
    """

    form_type: str
    file_bytes: int
    texts: bytes
    model_span: tuple[int, int]
    stream: bool = False

    @property
    def is_streamed(self) -> bool:
        """Return whether the text should be sent in pieces."""
        return self.stream

    @property
    def media_type(self) -> str:
        """Return the form's media type, with its boundary."""
        return self.form_type

    @property
    def sound_bytes(self) -> int:
        """Return the size of the file."""
        return self.file_bytes

    def renamed(self, body: bytes, model: str) -> bytes:
        """Return the body with another model's name."""
        start, end = self.model_span
        return body[:start] + model.encode() + body[end:]


class _TokenParts(msgspec.Struct, frozen=True):
    text_tokens: int | None = None
    audio_tokens: int | None = None
    image_tokens: int | None = None


class MediaUsage(msgspec.Struct, frozen=True):
    """The `usage` object of images, sound and transcriptions: tokens, or a duration in seconds."""

    type: str | None = None
    seconds: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _TokenParts | None = None
    input_token_details: _TokenParts | None = None  # as transcriptions name it
    output_tokens_details: _TokenParts | None = None
    prompt_tokens: int | None = None  # as vLLM's transcriptions name it, like the next field
    completion_tokens: int | None = None


class ImageAnswer(msgspec.Struct, frozen=True):
    """A complete answer: only the fields needed for accounting."""

    data: list[msgspec.Raw] | None = None
    usage: MediaUsage | None = None
    quality: str | None = None
    size: str | None = None


class TranscriptionAnswer(msgspec.Struct, frozen=True):
    """A complete answer in JSON. `duration` is from "verbose_json", in seconds; some servers send it as text."""

    text: str | None = None
    usage: MediaUsage | None = None
    duration: float | str | None = None


class MediaEvent(TranscriptionAnswer, frozen=True):
    """An event of a stream: only the fields needed for accounting."""

    type: str | None = None
    quality: str | None = None
    size: str | None = None
    error: msgspec.Raw = msgspec.Raw()


class ModerationAnswer(msgspec.Struct, frozen=True):
    """A complete answer: only the fields needed for accounting."""

    results: list[msgspec.Raw] | None = None
    model: str | None = None


def milliseconds_of(answer: TranscriptionAnswer) -> int | None:
    """Return the duration of a transcription's audio in milliseconds, from its usage, else from its `duration`; `None`
    if neither states it.

    Raises InvalidUsage if it is not a valid duration.
    """
    said: float | str | None = None if answer.usage is None else answer.usage.seconds
    said = answer.duration if said is None else said
    if said is None:
        return None
    try:
        seconds = float(said)
    except ValueError as error:
        raise InvalidUsage("a transcription's duration is not a number of seconds") from error
    if not 0 <= seconds <= _MOST_SECONDS:
        raise InvalidUsage(f"a transcription's duration must be within 0 to {_MOST_SECONDS} seconds")
    return round(seconds * _MILLISECONDS)


def media_tokens(usage: MediaUsage | None, makes: Made) -> Usage:
    """Return the tokens that a usage object reports, as leaves. Raises InvalidUsage if its parts exceed the total.

    Tokens not reported as text count as the operation's own medium.
    """
    if usage is None:
        return UNKNOWN_USAGE
    given = usage.input_tokens_details or usage.input_token_details or _TokenParts()
    made = usage.output_tokens_details or _TokenParts()
    given_tokens = usage.prompt_tokens if usage.input_tokens is None else usage.input_tokens
    made_tokens = usage.completion_tokens if usage.output_tokens is None else usage.output_tokens
    rest = None if made_tokens is None else made_tokens - (made.text_tokens or 0)
    drawn = rest if makes == "image" and made.image_tokens is None else made.image_tokens
    spoken = rest if makes == "sound" and made.audio_tokens is None else made.audio_tokens
    return Usage(
        input_text=_rest(given_tokens, given.audio_tokens, given.image_tokens),
        input_audio=given.audio_tokens,
        input_image=given.image_tokens,
        output_text=_rest(made_tokens, drawn, spoken),
        output_audio=spoken,
        output_image=drawn,
    )


def _rest(whole: int | None, *parts: int | None) -> int | None:
    return None if whole is None else whole - sum(part or 0 for part in parts)
