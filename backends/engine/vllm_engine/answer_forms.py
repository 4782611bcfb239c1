"""Choose the parsers of a model's output: our own by its template, or vLLM's by name."""

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
    """One request's answer format: a parser for each choice, the special tokens that are text, and the output
    constraint.

    `constraint` is the one field of vLLM's structured outputs, or nothing. `is_past_reasoning` says whether it applies
    from the first token on; `None`: vLLM determines it.
    """

    parser: Callable[[int], ChoiceParser | None]
    markers: frozenset[str] = frozenset()
    constraint: Mapping[str, object] = field(default_factory=dict)
    is_past_reasoning: bool | None = None


class AnswerForms(Protocol):
    """One model's."""

    def form(self, submit: Submit) -> AnswerForm:
        """Return a request's. Raises InvalidRequest."""


@dataclass(frozen=True, slots=True)
class TemplateForms:
    """By the chat template, as for every engine of ours."""

    format: AnswerFormat
    vocabulary: Vocabulary

    def form(self, submit: Submit) -> AnswerForm:
        """Return a request's. Raises InvalidRequest."""
        tail = self.vocabulary.tail(submit.token_ids, PROMPT_TAIL_TOKENS) if self.format.reasoning else ""

        def parser(index: int) -> ChoiceParser | None:
            found = self.format.parser(submit, index, tail)
            return None if found is None else TagParser(found)

        constraint = grammar_fields(self.format.grammar(submit))
        return AnswerForm(parser, self.format.markers(submit), constraint, True if constraint else None)
