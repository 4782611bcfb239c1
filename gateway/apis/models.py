"""GET /v1/models and GET /v1/models/{model}, in the format of the caller's API: OpenAI's, Anthropic's or Google's."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final
from urllib.parse import parse_qs, unquote

import msgspec

from contracts.errors import InvalidRequest, UnknownModel
from gateway.apis.gemini.errors import GEMINI_ERRORS
from gateway.apis.gemini.models import is_google, model_body, model_page
from gateway.apis.messages.operation import MESSAGES
from gateway.apis.rendering import OPENAI_ERRORS, ErrorShape, model_list, model_object
from gateway.wire.exchange import Exchange

PATH: Final = "/v1/models"
_DEFAULT_LIMIT: Final = 20
_MAX_LIMIT: Final = 1000
_encode: Final = msgspec.json.Encoder().encode


def is_anthropic(exchange: Exchange) -> bool:
    """Return whether the caller is a client of Anthropic's API, which names its version with each request."""
    return bool(exchange.header(b"anthropic-version"))


def models_errors(exchange: Exchange) -> ErrorShape:
    """Return the error format for the caller."""
    if is_google(exchange):
        return GEMINI_ERRORS
    return MESSAGES.errors if is_anthropic(exchange) else OPENAI_ERRORS


def models_body(exchange: Exchange, visible: Mapping[str, int]) -> bytes:
    """Return the list of models, or the one that the path names. `visible` has Unix times of creation by name.

    Raises UnknownModel, or InvalidRequest on an invalid page.
    """
    as_google, as_anthropic = is_google(exchange), is_anthropic(exchange)
    if exchange.path == PATH:
        if as_google:
            return model_page(visible)
        return _page(exchange, visible) if as_anthropic else model_list(list(visible.items()))
    name = unquote(exchange.path.removeprefix(PATH + "/"))  # SDKs write the slash in a name as %2F
    if name not in visible:
        raise UnknownModel(f"the model {name[:80]!r} does not exist or is not for this key", param="model")
    if as_google:
        return model_body(name)
    return _encode(_entry(name, visible[name])) if as_anthropic else model_object(name, visible[name])


def _entry(name: str, created_unix: int) -> dict[str, object]:
    created = datetime.fromtimestamp(created_unix, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"type": "model", "id": name, "display_name": name, "created_at": created}


def _page(exchange: Exchange, visible: Mapping[str, int]) -> bytes:
    """Return a page of the list: `limit`, and `after_id` or `before_id`, as Anthropic's API has them."""
    asked = {name: values[-1] for name, values in parse_qs(exchange.query, max_num_fields=100).items()}
    text = asked.get("limit", str(_DEFAULT_LIMIT))
    if not (text.isascii() and text.isdecimal() and len(text) < 6 and 1 <= int(text) <= _MAX_LIMIT):
        raise InvalidRequest(f"limit is {text[:60]!r}; it is a number from 1 to {_MAX_LIMIT}", param="limit")
    names, limit = list(visible), int(text)
    before, after = asked.get("before_id", ""), asked.get("after_id", "")
    if before in visible:
        start = max(names.index(before) - limit, 0)
        page, has_more = names[start : names.index(before)], start > 0
    else:
        start = names.index(after) + 1 if after in visible else 0
        page, has_more = names[start : start + limit], start + limit < len(names)
    ends = {"first_id": page[0] if page else None, "last_id": page[-1] if page else None}
    return _encode({"data": [_entry(name, visible[name]) for name in page], "has_more": has_more, **ends})
