"""Images of a chat for an engine host: bytes decoded from data URLs. Nothing is fetched over the network."""

import base64
import binascii
import re
from hashlib import sha256
from typing import Final

import msgspec

from contracts.engine.wire import Image
from contracts.errors import InvalidRequest, UnsupportedParameter

MAX_IMAGES: Final = 64
MAX_IMAGE_BYTES: Final = 20 << 20  # the limit of OpenAI's API
_DATA_URL: Final = re.compile(r"data:image/[\w.+-]{1,40};base64,")


class _ImageUrl(msgspec.Struct, frozen=True):
    url: str


_decoder: Final = msgspec.json.Decoder(_ImageUrl | str)


def image_of(model: str, stated: msgspec.Raw, where: str) -> Image:
    """Return the image of a content part's `image_url`. Raises InvalidRequest with the part and the limit."""
    field = f"{where}.image_url"
    try:
        found = _decoder.decode(stated)
    except (msgspec.MsgspecError, ValueError):
        raise InvalidRequest(f"{field} must hold a url", param=field) from None
    url = found if isinstance(found, str) else found.url
    head = _DATA_URL.match(url)
    if head is None:
        raise UnsupportedParameter(
            f"{field} must be a data URL with base64; {model!r} takes images as bytes only, as nothing is fetched",
            param=field,
        )
    try:
        data = base64.b64decode(url[head.end() :], validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest(f"{field} is not base64", param=field) from None
    if not 0 < len(data) <= MAX_IMAGE_BYTES:
        raise InvalidRequest(f"{field} has {len(data)} bytes; 1 to {MAX_IMAGE_BYTES} are possible", param=field)
    return Image(data=data, sha256=sha256(data).digest())
