"""Detects a model's format of reasoning and tool calls from its chat template, unless it is configured."""

from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import msgspec

from backends.engine.parsers import hermes, llama3_json
from backends.engine.parsers.answer import AnswerParser
from backends.engine.parsers.forced_call import chosen_tools, hermes_grammar, llama3_grammar
from backends.engine.parsers.hermes import HermesParser
from backends.engine.parsers.llama3_json import Llama3JsonParser
from backends.engine.parsers.reasoning import ReasoningParser, ReasoningTags
from backends.engine.parsers.tool_call import ToolCallParser
from contracts.engine.wire import Grammar, Submit
from contracts.errors import ConfigurationError, InvalidRequest

ToolFormat = Literal["hermes", "llama3_json"]
PROMPT_TAIL_TOKENS: Final = 16  # enough for a tag and the white space after it, even at a token per character

AUTO: Final = "auto"
NONE: Final = "none"
_KNOWN_TAGS: Final = (
    ReasoningTags("<think>", "</think>"),
    ReasoningTags("<seed:think>", "</seed:think>"),
    ReasoningTags("[THINK]", "[/THINK]"),
    ReasoningTags("<|START_THINKING|>", "<|END_THINKING|>"),
)
# Formats with the same tag, but other content than JSON.
_OTHER_INSIDE: Final = ("<function=", "<arg_key>")
_LLAMA3_SIGNS: Final = (llama3_json.TAG, '{"name": function name, "parameters":')


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """The formats to parse in one model's answers; `None`: not parsed."""

    reasoning: ReasoningTags | None = None
    tools: ToolFormat | None = None

    @classmethod
    def of(cls, chat_template: str, reasoning_tags: str = AUTO, tool_parser: str = AUTO) -> "AnswerFormat":
        """Choose formats by the chat template, or as configured: tags as `OPEN CLOSE`. Raises ConfigurationError."""
        return cls(_reasoning(chat_template, reasoning_tags), _tools(chat_template, tool_parser))

    def parser(self, submit: Submit, choice: int, prompt_tail: str) -> AnswerParser | None:
        """Return the parser of one choice; `None` if its text needs no parsing. Raises InvalidRequest.

        `prompt_tail` is the text of the prompt's last PROMPT_TAIL_TOKENS tokens, special tokens included.
        """
        reasoning = self._reasoning_parser(submit, prompt_tail)
        tools = self._tool_parser(submit)
        if reasoning is None and tools is None:
            return None
        return AnswerParser(submit.request_id, choice, reasoning, tools)

    def markers(self, submit: Submit) -> frozenset[str]:
        """Return the tags that the parsers need; if one is a special token, its text must be kept."""
        found: set[str] = set()
        if self._looks_for_reasoning(submit) and self.reasoning is not None:
            found |= {self.reasoning.open, self.reasoning.close}
        if submit.tools and self.tools is not None:
            found |= {hermes.OPEN, hermes.CLOSE} if self.tools == "hermes" else {llama3_json.TAG}
        return frozenset(found)

    def grammar(self, submit: Submit) -> Grammar | None:
        """Return the output constraint: the request's own, or one that forces a tool call. Raises InvalidRequest."""
        if not submit.tool_choice:
            return submit.grammar
        if submit.grammar is not None:
            raise InvalidRequest(
                "tool_choice asks for a call and another field says what the output must match; give one of them",
                param="tool_choice",
            )
        if self.tools is None:
            raise InvalidRequest(
                f"a tool call cannot be forced: how {submit.model!r} writes calls is not known from its chat template; "
                "TOLLKEEPER_ENGINE_TOOL_PARSER states it",
                param="tool_choice",
            )
        chosen = chosen_tools(read_tools(submit.tools) if submit.tools else {}, submit.tool_choice)
        return hermes_grammar(chosen) if self.tools == "hermes" else llama3_grammar(chosen)

    def _looks_for_reasoning(self, submit: Submit) -> bool:
        # An answer with a grammar must match it from the first token on, so it has no reasoning.
        return submit.parse_reasoning and submit.grammar is None and not submit.tool_choice

    def _reasoning_parser(self, submit: Submit, prompt_tail: str) -> ReasoningParser | None:
        if self.reasoning is None or not self._looks_for_reasoning(submit):
            return None
        return ReasoningParser(self.reasoning, is_open=prompt_tail.rstrip().endswith(self.reasoning.open))

    def _tool_parser(self, submit: Submit) -> ToolCallParser | None:
        if self.tools is None or not submit.tools:
            return None
        return HermesParser() if self.tools == "hermes" else Llama3JsonParser(read_tools(submit.tools))


def _reasoning(template: str, stated: str) -> ReasoningTags | None:
    if stated == NONE:
        return None
    if stated != AUTO:
        tags = stated.split()
        if len(tags) != 2 or tags[0] == tags[1]:
            raise ConfigurationError(
                f"reasoning tags {stated!r} are neither auto, none nor two tags with a space between them"
            )
        return ReasoningTags(*tags)
    return next((tags for tags in _KNOWN_TAGS if tags.close in template), None)


def _tools(template: str, stated: str) -> ToolFormat | None:
    for known in get_args(ToolFormat):
        if stated == known:
            return known  # type: ignore[no-any-return]  # one of the literal's own
    if stated not in (AUTO, NONE):
        raise ConfigurationError(f"tool parser {stated!r} is not one of auto, {', '.join(get_args(ToolFormat))}, none")
    if stated == NONE:
        return None
    if hermes.OPEN in template and not any(sign in template for sign in _OTHER_INSIDE):
        return "hermes"
    if any(sign in template for sign in _LLAMA3_SIGNS):
        return "llama3_json"
    return None


class _Function(msgspec.Struct, frozen=True):
    name: str
    parameters: dict[str, Any] | None = None


class _Tool(msgspec.Struct, frozen=True):
    function: _Function


_tools_decoder: Final = msgspec.json.Decoder(list[_Tool])


def read_tools(tools: bytes) -> dict[str, dict[str, Any]]:
    """Return the JSON schema of each function's parameters, by name. Raises InvalidRequest."""
    try:
        found = _tools_decoder.decode(tools)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"tools cannot be read: {str(error)[:200]}", param="tools") from error
    return {tool.function.name: tool.function.parameters or {"type": "object"} for tool in found}
