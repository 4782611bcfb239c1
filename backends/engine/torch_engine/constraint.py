"""Constrained decoding as masks over the next token: JSON schema, JSON, regex, Lark grammar, choice.

Wraps llguidance: its matcher is advanced token by token, and its errors become ours.
"""

import json
import threading
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from backends.engine.grammar_size import check_size
from contracts.engine.wire import Grammar
from contracts.errors import InvalidRequest

_MAX_STEP_ITEMS: Final = 20_000  # parser items per mask: bounds its time, for which the whole step waits
_MAX_QUOTED: Final = 200


class Constraint:
    """The grammar matcher of one choice."""

    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher

    @property
    def is_complete(self) -> bool:
        """Return whether only the end token may follow."""
        return bool(self._matcher.is_stopped())

    def fill(self, bits: npt.NDArray[np.int32]) -> None:
        """Write the mask of allowed tokens: bit `i % 32` of word `i // 32` for token `i`."""
        self._matcher.unsafe_compute_mask_ptr(bits.ctypes.data, bits.nbytes)

    def accept(self, token_id: int) -> bool:
        """Advance by a token. Returns False if the grammar does not allow it."""
        return bool(self._matcher.consume_token(token_id))

    @property
    def is_too_complex(self) -> bool:
        """Return whether the matcher has failed, so that allowed tokens are unknown."""
        return bool(self._matcher.is_error())

    def copy(self) -> "Constraint":
        """Return an independent copy for a fork."""
        return Constraint(self._matcher.deep_copy())


class GrammarCompiler:
    """Compiles grammars for one tokenizer. The first use prepares it, which takes about a second."""

    def __init__(self, tokenizer_json: bytes, vocabulary: int, eos_token_ids: Sequence[int]) -> None:
        self._json = tokenizer_json.decode()
        self._vocabulary = vocabulary
        self._eos = list(eos_token_ids)
        self._tokenizer: LLTokenizer | None = None
        self._preparing = threading.Lock()  # several threads may compile

    def compile(self, grammar: Grammar, given: Sequence[int] = ()) -> Constraint:
        """Compile a grammar and advance it by tokens that were generated before. Raises InvalidRequest, naming the
        fault.
        """
        check_size(grammar)
        if not self._eos:
            raise InvalidRequest("this model names no end token, so it cannot follow a grammar", code="invalid_grammar")
        with self._preparing:
            if self._tokenizer is None:
                eos = self._eos if len(self._eos) > 1 else self._eos[0]
                self._tokenizer = LLTokenizer(self._json, n_vocab=self._vocabulary, eos_token=eos)
        source = _source(grammar)
        matcher = LLMatcher(self._tokenizer, source, log_level=0, limits=LLParserLimits(step_max_items=_MAX_STEP_ITEMS))
        if matcher.is_error():
            raise _invalid(grammar, matcher.get_error())
        if given and not matcher.consume_tokens(list(given)):
            raise InvalidRequest(
                f"the answer to be continued does not match its {grammar.kind}", code="invalid_continuation"
            )
        return Constraint(matcher)


def _source(grammar: Grammar) -> str:
    try:
        match grammar.kind:
            case "json_schema":
                return _from_schema(grammar.text)
            case "json_object":
                return _from_schema('{"type": "object"}')
            case "regex":
                return str(LLMatcher.grammar_from_regex(grammar.text))
            case "lark":
                return str(LLMatcher.grammar_from_lark(grammar.text))
            case "choice":
                return _from_choices(grammar)
    except (ValueError, RecursionError) as error:
        raise _invalid(grammar, str(error)) from error


def _from_schema(schema: str) -> str:
    # With free white space a model could indent forever; a schema may request it with x-guidance.
    return str(LLMatcher.grammar_from_json_schema(schema, {"whitespace_flexible": False}))


def _from_choices(grammar: Grammar) -> str:
    choices = json.loads(grammar.text)
    if not isinstance(choices, list) or not choices or not all(isinstance(one, str) and one for one in choices):
        raise ValueError("it must be a JSON array of at least one string, none of them empty")
    alternatives = " | ".join(json.dumps(one, ensure_ascii=False) for one in choices)
    return str(LLMatcher.grammar_from_lark(f"start: {alternatives}"))


def _invalid(grammar: Grammar, reason: str) -> InvalidRequest:
    first = " ".join(reason.split())[:_MAX_QUOTED]
    return InvalidRequest(
        f"the {grammar.kind} cannot be used: {first}", param="response_format", code="invalid_grammar"
    )
