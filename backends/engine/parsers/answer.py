"""Parses one choice of an answer while it is generated: reasoning, then text and tool calls."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

import msgspec

from backends.engine.parsers.reasoning import ReasoningParser
from backends.engine.parsers.tool_call import ToolCall, ToolCallParser, ToolPiece

_ID_CHARACTERS: Final = 24
_encoder: Final = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class AnswerPiece:
    """New output that will not change any more. `tool_calls` is JSON in OpenAI's streaming format, each call complete
    in one entry; or empty.
    """

    content: str = ""
    reasoning: str = ""
    tool_calls: bytes = b""

    def plus(self, later: "AnswerPiece") -> "AnswerPiece":
        """Return this piece joined with the following one."""
        calls = self.tool_calls and later.tool_calls and self.tool_calls[:-1] + b"," + later.tool_calls[1:]
        return AnswerPiece(
            self.content + later.content,
            self.reasoning + later.reasoning,
            calls or self.tool_calls or later.tool_calls,
        )


class AnswerParser:
    """Parses the text of one choice. Tokens are only counted: which step they belong to is known to the engine."""

    def __init__(
        self, request_id: bytes, choice: int, reasoning: ReasoningParser | None, tools: ToolCallParser | None
    ) -> None:
        self._seed = b"%b/%d/" % (request_id, choice)
        self._reasoning = reasoning
        self._tools = tools
        self.calls = 0

    @property
    def reasoning_tokens(self) -> int | None:
        """Return the number of reasoning tokens; `None` if reasoning is not parsed."""
        return None if self._reasoning is None else self._reasoning.tokens

    def push(self, text: str, lengths: Sequence[int] = (), *, is_given: bool = False) -> AnswerPiece:
        """Parse further text and return the output that is certain. `lengths` are the characters of each new token.

        Text may arrive later than its tokens. `is_given`: another replica generated these tokens and counted them.
        """
        if self._reasoning is None:
            return self._piece("", self._tools.push(text) if self._tools else ToolPiece(text))
        self._reasoning.note_tokens(lengths, 0 if is_given else 1)
        told = self._reasoning.push(text)
        return self._piece(told.reasoning, self._told_apart(told.content))

    def finish(self) -> AnswerPiece:
        """Return the remaining output at the end of the text."""
        reasoning, content = "", ""
        if self._reasoning is not None:
            told = self._reasoning.finish()
            reasoning, content = told.reasoning, told.content
        before = self._told_apart(content)
        after = self._tools.finish() if self._tools else ToolPiece()
        return self._piece(reasoning, ToolPiece(before.content + after.content, before.calls + after.calls))

    def _told_apart(self, content: str) -> ToolPiece:
        if self._tools is None or not content:
            return ToolPiece(content)
        return self._tools.push(content)

    def _piece(self, reasoning: str, told: ToolPiece) -> AnswerPiece:
        calls = _encoder.encode([self._rendered(call) for call in told.calls]) if told.calls else b""
        return AnswerPiece(told.content, reasoning, calls)

    def _rendered(self, call: ToolCall) -> dict[str, object]:
        index = self.calls
        self.calls += 1
        # Deterministic: a replica that continues this answer must number its calls in the same way.
        name = sha256(self._seed + str(index).encode()).hexdigest()[:_ID_CHARACTERS]
        return {
            "index": index,
            "id": f"call_{name}",
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
