"""Reads bodies of POST /v1/responses; errors and unsupported fields are reported by name."""

from typing import Any, Final, get_args

import msgspec
from msgspec import UNSET, UnsetType

from contracts.api.chat import ReasoningEffort
from contracts.api.ignored_fields import IGNORED_FIELDS, without_ignored
from contracts.api.responses import (
    FIELD_ELSEWHERE,
    HOSTED_INCLUDES,
    INCLUDED_ALWAYS,
    ITEM_TYPES,
    LOGPROBS,
    MAX_METADATA_KEY,
    MAX_METADATA_PAIRS,
    MAX_METADATA_VALUE,
    MAX_PARTS,
    PART_TYPES,
    ContentPart,
    FunctionCallOutputItem,
    InputFile,
    InputImage,
    InputItem,
    ItemStatus,
    MessageItem,
    OutputRefusal,
    OutputText,
    ResponseRequest,
    Role,
    ServiceTier,
    Truncation,
    Verbosity,
)
from contracts.errors import InvalidRequest, MalformedBody, NotOffered
from gateway.apis.reading import Choices, invalid_field, read_body
from gateway.apis.responses.asked import AskedItem, AskedResponse
from gateway.apis.responses.tools import check_object, choose, read_tools

_MAX_SHOWN: Final = 60
_NULL: Final = b"null"
_CHOICES: Final[Choices] = {
    "role": get_args(Role),
    "type": PART_TYPES,
    "status": get_args(ItemStatus),
    "effort": get_args(ReasoningEffort),
    "summary": ("auto", "concise", "detailed", "none"),
    "generate_summary": ("auto", "concise", "detailed"),
    "verbosity": get_args(Verbosity),
    "truncation": get_args(Truncation),
    "service_tier": get_args(ServiceTier),
    "text.format.type": ("text", "json_object", "json_schema"),
}
# What is not offered, and what to do instead.
_NOT_OFFERED: Final = {
    "conversation": "use previous_response_id",
    "prompt": "prompt templates are not supported; send instructions and input",
    "context_management": "leave it out, and shorten the input if it is too long",
    "moderation": "leave it out",
    "access_programs": "leave it out",
    "image": "leave it out",
}
_INCLUDES: Final = (LOGPROBS, *INCLUDED_ALWAYS)


class _Peek(msgspec.Struct, frozen=True):
    type: str | None = None
    role: Any = None
    id: Any = None


_decoder: Final = msgspec.json.Decoder(ResponseRequest)
_peek: Final = msgspec.json.Decoder(_Peek)
_item_decoders: Final = {name: msgspec.json.Decoder(kind) for name, kind in ITEM_TYPES.items()}
_encode: Final = msgspec.json.Encoder().encode


def read_asked(content_type: str, body: bytes) -> AskedResponse:
    """Read the body of POST /v1/responses.

    Raises UnsupportedMediaType, MalformedBody (with the byte), or InvalidRequest (with field, value and limit).
    """
    try:
        request = _read(content_type, body)
    except InvalidRequest as error:
        if error.error_code == "unknown_parameter" and error.param in FIELD_ELSEWHERE:
            error.message += f"; in the Responses API it is {FIELD_ELSEWHERE[error.param]}"
        raise
    _refuse_not_offered(request)
    _check(request)
    _check_metadata(request.metadata)
    offered, shown_tools = read_tools(request, body)
    tools, tool_choice = choose(request, offered, body)
    return AskedResponse(
        request=request,
        items=_read_items(request, body),
        offered=offered,
        shown_tools=shown_tools,
        tools=tools,
        tool_choice=tool_choice,
    )


def _read(content_type: str, body: bytes) -> ResponseRequest:
    """Read a body. Only a body with an unknown field is searched for ignored fields."""
    try:
        return read_body(_decoder, content_type, body, _CHOICES)
    except InvalidRequest as error:
        if error.error_code != "unknown_parameter" or error.param not in IGNORED_FIELDS["responses"]:
            raise
    return read_body(_decoder, content_type, without_ignored("responses", body), _CHOICES)


def item_of(listed: dict[str, Any]) -> InputItem:
    """Return a stored item in its full form."""
    return msgspec.convert(listed, ITEM_TYPES[listed["type"]])


def _refuse_not_offered(request: ResponseRequest) -> None:
    if request.background:
        raise InvalidRequest(
            "background is true: responses run while the client waits; stream them, or use a batch", param="background"
        )
    if request.truncation == "auto":
        raise InvalidRequest(
            "truncation is 'auto': items are not dropped here; shorten the input, or leave truncation out",
            param="truncation",
        )
    for name, remedy in _NOT_OFFERED.items():
        if is_given(getattr(request, name)):
            raise NotOffered(f"{name} is not supported; {remedy}", param=name)


def is_given(value: msgspec.Raw | UnsetType) -> bool:
    """Return whether a field has a value; `null` is none."""
    return value is not UNSET and bytes(value).strip() != _NULL


def _check(request: ResponseRequest) -> None:
    if request.stream_options is not None and not request.stream:
        raise InvalidRequest("stream_options is only allowed when stream is true", param="stream_options")
    for place, name in enumerate(request.include or ()):
        if name in HOSTED_INCLUDES:
            raise InvalidRequest(
                f"include[{place}] is {name!r}: the tool it is of is not offered here", param=f"include[{place}]"
            )
        if name not in _INCLUDES:
            raise InvalidRequest(
                f"include[{place}] is {name[:_MAX_SHOWN]!r}; it is one of {', '.join(_INCLUDES)}",
                param=f"include[{place}]",
            )
    if request.top_logprobs and not request.wants_logprobs:
        raise InvalidRequest(
            f"top_logprobs is {request.top_logprobs} and include lacks {LOGPROBS!r}", param="top_logprobs"
        )
    form = request.text.format if request.text else None
    if form is not None and form.type == "json_schema":
        for name, is_stated in (("name", form.name is not None), ("schema", is_given(form.schema))):
            if not is_stated:
                raise InvalidRequest(f"text.format.{name} is required with json_schema", param=f"text.format.{name}")
        check_object(form.schema, "text.format.schema")


def _check_metadata(metadata: dict[str, str] | None) -> None:
    if metadata is None:
        return
    if len(metadata) > MAX_METADATA_PAIRS:
        raise InvalidRequest(
            f"metadata has {len(metadata)} pairs; at most {MAX_METADATA_PAIRS} are allowed", param="metadata"
        )
    for key, value in metadata.items():
        if len(key) > MAX_METADATA_KEY:
            raise InvalidRequest(
                f"metadata has a key of {len(key)} characters; at most {MAX_METADATA_KEY} are allowed", param="metadata"
            )
        if len(value) > MAX_METADATA_VALUE:
            raise InvalidRequest(
                f"metadata.{key} has {len(value)} characters; at most {MAX_METADATA_VALUE} are allowed",
                param=f"metadata.{key}",
            )


def _read_items(request: ResponseRequest, body: bytes) -> list[AskedItem]:
    given = request.input
    if isinstance(given, str):
        item = MessageItem(role="user", content=given)
        return [AskedItem(item, _encode({"role": "user", "content": given}))]
    if not given and request.previous_response_id is None:
        state = "empty" if given is not None else "not given"
        raise InvalidRequest(f"input is {state}; give a text, a list of items, or previous_response_id", param="input")
    items: list[AskedItem] = []
    parts = 0
    for place, raw in enumerate(given or ()):
        items.append(AskedItem(_read_item(raw, place, body), bytes(raw)))
        parts += _part_count(items[-1].item)
        if parts > MAX_PARTS:
            raise InvalidRequest(
                f"input has more than {MAX_PARTS} parts of content in its first {place + 1} items; at most "
                "{MAX_PARTS} are allowed",
                param="input",
            )
    return items


def _part_count(item: InputItem) -> int:
    """Return the number of parts of an item's content; a text is one."""
    content = item.content if isinstance(item, MessageItem) else getattr(item, "output", "")
    return 1 if isinstance(content, str) else len(content)


def _read_item(raw: msgspec.Raw, place: int, body: bytes) -> InputItem:
    where = f"input[{place}]"
    try:
        kind = _type_of(_peek.decode(raw))
        if kind not in _item_decoders:
            raise InvalidRequest(
                f"{where} is of type {kind[:_MAX_SHOWN]!r}; taken are {', '.join(_item_decoders)}",
                param=f"{where}.type",
            )
        item = _item_decoders[kind].decode(raw)
    except msgspec.ValidationError as error:
        raise invalid_field(str(error), body, _CHOICES, below=where) from None
    except RecursionError:
        raise MalformedBody("the body is nested too deeply") from None
    if isinstance(item, MessageItem):
        _check_parts(item.content, f"{where}.content", is_answer=item.role == "assistant")
    elif isinstance(item, FunctionCallOutputItem):
        _check_parts(item.output, f"{where}.output", is_answer=False)
    return item


def _type_of(peek: _Peek) -> str:
    """Return an item's type: the short form of a message has none, and a reference needs none."""
    if peek.type is not None:
        return peek.type
    return "item_reference" if peek.role is None and peek.id is not None else "message"


def _check_parts(content: str | list[ContentPart], where: str, *, is_answer: bool) -> None:
    """Refuse what no chat can carry, or not from this speaker."""
    if isinstance(content, str):
        return
    for number, part in enumerate(content):
        param = f"{where}[{number}]"
        is_said = isinstance(part, OutputText | OutputRefusal)
        if is_said and not is_answer:
            raise InvalidRequest(
                f"{param} is what only an assistant says; give input_text, input_image, input_file or input_audio",
                param=f"{param}.type",
            )
        if isinstance(part, InputImage | InputFile):
            _check_blob(part, param)


def _check_blob(part: InputImage | InputFile, param: str) -> None:
    if part.file_id is not None:
        raise InvalidRequest(
            f"{param} names a file by file_id, which models behind this gateway cannot read; send its contents as a "
            "data URL",
            param=f"{param}.file_id",
        )
    if isinstance(part, InputImage):
        if part.image_url is None:
            raise InvalidRequest(f"{param}.image_url is required", param=f"{param}.image_url")
    elif part.file_url is not None:
        raise InvalidRequest(
            f"{param} names a file by file_url, which is not fetched; send its contents as file_data",
            param=f"{param}.file_url",
        )
    elif part.file_data is None:
        raise InvalidRequest(f"{param}.file_data is required", param=f"{param}.file_data")
