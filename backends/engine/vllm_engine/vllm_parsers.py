"""vLLM's own tool and reasoning parsers, used if the operator names one: they support more models than the built-in
ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser import ParserManager

from backends.engine.parsers.answer import AnswerPiece
from backends.engine.parsers.forced_call import NAMED, REQUIRED
from backends.engine.torch_engine.detokenizer import Vocabulary
from backends.engine.vllm_engine.answer_forms import AnswerForm
from backends.engine.vllm_engine.answer_text import ChoiceParser
from backends.engine.vllm_engine.failures import first_line
from backends.engine.vllm_engine.sampling import grammar_fields
from contracts.engine.wire import Submit
from contracts.errors import ConfigurationError, InvalidRequest

_CONSTRAINTS: Final = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")


@dataclass(frozen=True, slots=True)
class VllmForms:
    """One model's parsers. `special` are the texts of its special tokens, which some parsers look for."""

    parser: Any
    tokenizer: Any
    model_config: Any
    special: frozenset[str]
    has_reasoning: bool
    has_tools: bool

    @classmethod
    def named(cls, client: Any, vocabulary: Vocabulary, *, tool_parser: str, reasoning_parser: str) -> "VllmForms":
        """Find parsers by vLLM's names. Raises ConfigurationError if there is no such parser."""
        try:
            parser = ParserManager.get_parser(
                tool_parser_name=tool_parser or None,
                reasoning_parser_name=reasoning_parser or None,
                enable_auto_tools=bool(tool_parser),
            )
        except (TypeError, KeyError, ImportError) as error:
            raise ConfigurationError(f"vLLM has no such parser: {first_line(error)}") from error
        special = frozenset(map(vocabulary.token_text, vocabulary.special_ids))
        return cls(parser, client.tokenizer, client.model_config, special, bool(reasoning_parser), bool(tool_parser))

    def form(self, submit: Submit) -> AnswerForm:
        """Return how a request's answer is constrained and parsed. Raises InvalidRequest."""
        constraint = dict(grammar_fields(submit.grammar))
        if submit.tool_choice and (constraint or not self.has_tools):
            raise InvalidRequest(
                "tool_choice asks for a call; that needs a tool parser (--tool-call-parser) and no other field that "
                "says what the output must match",
                param="tool_choice",
            )
        looks_for_reasoning = self.has_reasoning and submit.parse_reasoning
        if not looks_for_reasoning and not (submit.tools and self.has_tools):
            return AnswerForm(_nobody, constraint=constraint, is_past_reasoning=True if constraint else None)
        request = self._request(submit)
        first = self._new(request)
        adjusted = first.adjust_request(request=request)
        if adjusted.structured_outputs is not None and not constraint:
            found = {name: getattr(adjusted.structured_outputs, name) for name in _CONSTRAINTS}
            constraint = {name: value for name, value in found.items() if value is not None}
        is_past: bool | None = None
        if constraint:
            is_past = bool(first.is_reasoning_end(submit.token_ids)) if looks_for_reasoning else True

        def parser(index: int) -> ChoiceParser:
            return _VllmParser(self._new(adjusted), adjusted, submit.token_ids, counts=looks_for_reasoning)

        return AnswerForm(parser, frozenset() if adjusted.skip_special_tokens else self.special, constraint, is_past)

    def _request(self, submit: Submit) -> ChatCompletionRequest:
        """Return the ChatCompletionRequest that vLLM's parsers expect. Raises InvalidRequest."""
        fields: dict[str, Any] = {"model": submit.model, "messages": [{"role": "user", "content": ""}]}
        try:
            if submit.tools and self.has_tools:
                fields["tools"] = msgspec.json.decode(submit.tools)
                fields["tool_choice"] = _tool_choice(submit.tool_choice)
            return ChatCompletionRequest(**fields)
        except ValueError as error:  # pydantic's and msgspec's are of this kind
            raise InvalidRequest(f"tools cannot be read: {first_line(error)}", param="tools") from error

    def _new(self, request: ChatCompletionRequest) -> Any:
        return self.parser(self.tokenizer, request.tools, chat_template_kwargs={}, model_config=self.model_config)


class _VllmParser:
    """The parser of one choice."""

    def __init__(self, parser: Any, request: ChatCompletionRequest, prompt: list[int], *, counts: bool) -> None:
        self._parser = parser
        self._request = request
        self._prompt = prompt
        self._reasoning = 0 if counts else None
        self.calls = 0

    @property
    def reasoning_tokens(self) -> int | None:
        """Return the number of tokens in steps that added only reasoning; `None` if reasoning is not parsed."""
        return self._reasoning

    def push(
        self,
        text: str,
        token_ids: Sequence[int],
        lengths: Sequence[int],
        *,
        is_given: bool = False,
        is_last: bool = False,
    ) -> AnswerPiece:
        """Parse new text and its tokens; return what they add to the answer. `is_last` also returns what is
        buffered.
        """
        delta = self._parser.parse_delta(text, list(token_ids), self._request, self._prompt, finished=is_last)
        if delta is None:
            return AnswerPiece()
        reasoning, content, calls = delta.reasoning or "", delta.content or "", delta.tool_calls
        if reasoning and not content and not calls and self._reasoning is not None and not is_given:
            self._reasoning += len(token_ids)
        self.calls += sum(call.id is not None for call in calls)
        packed = msgspec.json.encode([call.model_dump(exclude_none=True) for call in calls]) if calls else b""
        return AnswerPiece(content, reasoning, packed)


def _nobody(index: int) -> ChoiceParser | None:
    """Return no parser."""
    return None


def _tool_choice(choice: str) -> Any:
    if choice.startswith(NAMED):
        return {"type": "function", "function": {"name": choice.removeprefix(NAMED)}}
    return REQUIRED if choice == REQUIRED else "auto"
