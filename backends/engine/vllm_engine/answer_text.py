"""Decodes the tokens of one choice to text, and detects its end."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from backends.engine.parsers.answer import AnswerParser, AnswerPiece
from backends.engine.torch_engine.detokenizer import TextStream
from contracts.engine.wire import FinishReason


class ChoiceParser(Protocol):
    """Separates reasoning, text and tool calls in one choice's output."""

    @property
    def calls(self) -> int:
        """Return the number of tool calls so far."""

    @property
    def reasoning_tokens(self) -> int | None:
        """Return the number of reasoning tokens; `None` if reasoning is not parsed."""

    def push(
        self,
        text: str,
        token_ids: Sequence[int],
        lengths: Sequence[int],
        *,
        is_given: bool = False,
        is_last: bool = False,
    ) -> AnswerPiece:
        """Parse further text and tokens, and return the output that is certain; with `is_last`, all of it.

        `lengths` are the characters of each token. `is_given`: another replica generated these tokens and counted them.
        """


class TagParser:
    """Adapts our own parsers, which read text only, to `ChoiceParser`."""

    def __init__(self, parser: AnswerParser) -> None:
        self._parser = parser

    @property
    def calls(self) -> int:
        """Return the number of tool calls so far."""
        return self._parser.calls

    @property
    def reasoning_tokens(self) -> int | None:
        """Return the number of reasoning tokens; `None` if reasoning is not parsed."""
        return self._parser.reasoning_tokens

    def push(
        self,
        text: str,
        token_ids: Sequence[int],
        lengths: Sequence[int],
        *,
        is_given: bool = False,
        is_last: bool = False,
    ) -> AnswerPiece:
        """Parse further text, and return the output that is certain; with `is_last`, all of it. Token ids
        are ignored.
        """
        piece = self._parser.push(text, lengths, is_given=is_given)
        return piece.plus(self._parser.finish()) if is_last else piece


@dataclass(slots=True)  # not frozen, which would double the time to create one for every token
class TextStep:
    """The output of one step for a choice. `taken` is the number of its tokens in the answer; those after a stop do not
    count.
    """

    taken: int
    content: str
    reason: FinishReason | None = None
    stop: str = ""
    reasoning: str = ""
    tool_calls: bytes = b""


_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "abort": "abort",
    "error": "error",
    "repetition": "stop",
}


@dataclass(slots=True, eq=False)
class ChoiceText:
    """Decodes one choice. `outputs` is its number of tokens, including those that another replica generated."""

    text: TextStream
    parser: ChoiceParser | None
    min_tokens: int = 0
    outputs: int = 0
    reason: FinishReason | None = None

    def give(self, token_ids: Sequence[int]) -> None:
        """Accept tokens of a continued answer, whose text another replica has returned."""
        for token_id in token_ids:
            self.outputs += 1
            before = self.text.characters
            piece = self.text.push(token_id, may_stop=self.outputs >= self.min_tokens)
            if self.parser is not None:
                self.parser.push(piece.text, (token_id,), (self.text.characters - before,), is_given=True)

    def push(self, token_ids: Sequence[int], finish_reason: str | None) -> TextStep:
        """Decode the tokens of one step. With finish reason "stop", the last token is an end token without text."""
        said = None if finish_reason is None else _REASONS.get(finish_reason, "stop")
        if len(token_ids) == 1 and said is None and self.parser is None:  # the usual case
            self.outputs += 1
            found = self.text.push(token_ids[0], may_stop=self.outputs >= self.min_tokens)
            if not found.stop:
                return TextStep(1, found.text)
            self.reason = "stop"
            return TextStep(1, found.text, "stop", found.stop)
        return self._push_all(token_ids, said, has_end=finish_reason == "stop")

    def _push_all(self, token_ids: Sequence[int], said: FinishReason | None, *, has_end: bool) -> TextStep:
        text, stop, lengths = "", "", []
        taken = 0
        for token_id in token_ids:
            taken += 1
            self.outputs += 1
            before = self.text.characters
            if not (has_end and taken == len(token_ids)):
                piece = self.text.push(token_id, may_stop=self.outputs >= self.min_tokens)
                text += piece.text
                stop = piece.stop
            lengths.append(self.text.characters - before)
            if stop:
                break
        reason: FinishReason | None = "stop" if stop else said
        if reason is not None and not stop:
            text += self.text.flush()
        answer = AnswerPiece(text)
        if self.parser is not None:
            answer = self.parser.push(text, token_ids[:taken], lengths, is_last=reason is not None)
            if reason == "stop" and self.parser.calls:
                reason = "tool_calls"
        self.reason = reason
        return TextStep(taken, answer.content, reason, stop, answer.reasoning, answer.tool_calls)
