"""Chooses the parsers for a model's output: ours, by its chat template, or vLLM's, by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from backends.engine.parsers.answer_format import PROMPT_TAIL_TOKENS, AnswerFormat
from backends.engine.torch_engine.detokenizer import Vocabulary
from backends.engine.vllm_engine.answer_text import ChoiceParser, TagParser
from backends.engine.vllm_engine.sampling import grammar_fields
from contracts.engine.wire import Submit


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """One request's answer format: the parser of each choice, special tokens to keep as text, and the output
    constraint.

    `constraint` is one field of vLLM's structured outputs, or empty. `is_past_reasoning`: whether it applies from the
    first token on; `None`: vLLM decides.
    """

    parser: Callable[[int], ChoiceParser | None]
    markers: frozenset[str] = frozenset()
    constraint: Mapping[str, object] = field(default_factory=dict)
    is_past_reasoning: bool | None = None


class AnswerForms(Protocol):
    """Creates the answer formats of one model's requests."""

    def form(self, submit: Submit) -> AnswerForm:
        """Return the answer format of a request. Raises InvalidRequest."""


@dataclass(frozen=True, slots=True)
class TemplateForms:
    """Creates answer formats by the chat template, as for our own engine."""

    format: AnswerFormat
    vocabulary: Vocabulary

    def form(self, submit: Submit) -> AnswerForm:
        """Return the answer format of a request. Raises InvalidRequest."""
        tail = self.vocabulary.tail(submit.token_ids, PROMPT_TAIL_TOKENS) if self.format.reasoning else ""

        def parser(index: int) -> ChoiceParser | None:
            found = self.format.parser(submit, index, tail)
            return None if found is None else TagParser(found)

        constraint = grammar_fields(self.format.grammar(submit))
        return AnswerForm(parser, self.format.markers(submit), constraint, True if constraint else None)
