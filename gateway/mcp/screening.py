"""Runs guardrails on tool arguments and results: the input stages of the policies that cover the call.

The model that reads a result gets it as input, so the stages for prompts inspect it, under the role "tool". They
inspect a tool's definition under the role "definition". Output stages inspect only what models write.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from contracts.errors import ContentBlocked, Unavailable
from gateway.guardrails.guardrails import Guardrails
from gateway.guardrails.request_guard import RequestGuard, refusal
from gateway.guardrails.request_texts import RequestTexts
from gateway.mcp.servers import Tool

_encode: Final = msgspec.json.Encoder().encode
_definition: Final = msgspec.json.Decoder(dict[str, Any]).decode
_PART: Final = "given"


async def screened(guardrails: Guardrails, guard: RequestGuard, part: bytes, role: str, tool: str) -> bytes:
    """Return arguments or a result as JSON, with findings redacted. Raises ContentBlocked."""
    texts = RequestTexts(b'{"%b":%b}' % (_PART.encode(), part), role=role)
    try:
        await guardrails.examine_texts(guard, texts, len(part))
    except ContentBlocked as error:
        what = "the result" if role == "tool" else "the arguments"
        raise ContentBlocked(f"{what} of the tool {tool!r} were held back: {error.message}") from None
    if not texts.is_changed:
        return part
    return _encode(texts.fields[_PART])


async def screened_tools(guardrails: Guardrails, tenant: str, tools: Sequence[Tool]) -> list[Tool]:
    """Return the tools, with findings in their definitions redacted. Blocked tools are left out."""
    found = []
    for tool in tools:
        try:
            judged = await guardrails.judge_tool(tenant, tool.name, tool.definition.encoded)
        except Unavailable:  # a call of it says why
            continue
        if judged is not None and judged.blocked is not None:
            continue
        if judged is not None and judged.changed is not None:
            fields = _definition(judged.changed)
            fields.pop("name", None)
            tool = tool.with_fields(fields)
        found.append(tool)
    return found


async def check_definition(guardrails: Guardrails, guard: RequestGuard, tenant: str, tool: Tool) -> None:
    """Raise ContentBlocked if guardrails block the definition of the tool that is called."""
    judged = await guardrails.judge_tool(tenant, tool.name, tool.definition.encoded)
    if judged is not None and judged.blocked is not None:
        guard.note(list(judged.verdicts))
        raise ContentBlocked(
            f"the definition of the tool {tool.name!r} was held back: {refusal(judged.blocked).message}"
        )
