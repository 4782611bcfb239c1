"""Guardrails on arguments and results of tools: the input stages of the policies that cover the call.

A result is input for the model that reads it next, so the stages that inspect prompts inspect it, under the role
"tool". Output stages inspect what models write.
"""

from typing import Final

import msgspec

from contracts.errors import ContentBlocked
from gateway.guardrails.guardrails import Guardrails
from gateway.guardrails.request_guard import RequestGuard
from gateway.guardrails.request_texts import RequestTexts

_encode: Final = msgspec.json.Encoder().encode
_PART: Final = "given"
_OWN_NAMES: Final = frozenset(("role",))


async def screened(guardrails: Guardrails, guard: RequestGuard, part: bytes, role: str, tool: str) -> bytes:
    """Return arguments or a result, as JSON, with what was found cut out. Raises ContentBlocked."""
    body = b'{"part":{"role":"%b","%b":%b}}' % (role.encode(), _PART.encode(), part)
    texts = RequestTexts(body, _OWN_NAMES)  # what a field of a tool's is called says nothing of what it holds
    try:
        await guardrails.examine_texts(guard, texts, len(part))
    except ContentBlocked as error:
        what = "the result" if role == "tool" else "the arguments"
        raise ContentBlocked(f"{what} of the tool {tool!r} were held back: {error.message}") from None
    if not texts.is_changed:
        return part
    return _encode(texts.fields["part"][_PART])
