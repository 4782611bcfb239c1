"""The answer to one text completion, rendered in OpenAI's older API."""

from collections.abc import Sequence
from typing import Final

import msgspec

from contracts.api.completion import CompletionRequest
from contracts.api.generation import Delta
from contracts.engine.wire import TokenLogprob
from gateway.apis.rendering import LEAST_LOGPROB, OpenAIRenderer, WholeText
from gateway.replies.reply import GeneratedReply, ReplyFacts

_encode: Final = msgspec.json.Encoder().encode
_TEXT_TAIL: Final = b',"logprobs":null,"finish_reason":null}]}\n\n'


class CompletionReply(GeneratedReply):
    """Receives the answer to one completion request."""

    def __init__(self, facts: ReplyFacts, request: CompletionRequest) -> None:
        renderer = CompletionRenderer(f"cmpl-{facts.request_id.hex}", facts.created_unix, request.model)
        super().__init__(facts, request, renderer)


class CompletionRenderer(OpenAIRenderer):
    """Renders a completion. Complete answers and stream chunks have the same `object` name."""

    def __init__(self, reply_id: str, created_unix: int, model: str) -> None:
        super().__init__(("text_completion", "text_completion"), reply_id, created_unix, model)
        self._offsets: dict[int, int] = {}  # by choice: characters of the tokens that were reported

    def new_choice(self) -> WholeText:
        """Return an empty choice of a complete answer, which deltas are added to."""
        return _WholeCompletion()

    def opening(self, index: int) -> bytes:
        """Render nothing: a choice begins with its text."""
        return b""

    def delta(self, delta: Delta) -> bytes:
        """Render a piece of one choice, with its finish reason if the delta has one; nothing if there is no text
        yet.
        """
        text, reason = delta.text, delta.finish_reason
        if not (text or reason or delta.logprobs):
            return b""
        head = self._text_heads.get(delta.index)
        if head is None:
            opening = b'"choices":[{"index":%d,"text":' % delta.index
            head = self._text_heads[delta.index] = self._prefix + opening
        if not (reason or delta.logprobs):
            return head + _encode(text) + _TEXT_TAIL
        logprobs = None
        if delta.logprobs:
            offset = self._offsets.get(delta.index, 0)
            logprobs = _logprobs(delta.logprobs, offset)
            self._offsets[delta.index] = offset + sum(len(token.text) for token in delta.logprobs)
        ends = b',"logprobs":%b,"finish_reason":%b}]}\n\n' % (_encode(logprobs), _encode(reason))
        return head + _encode(text) + ends


class _WholeCompletion(WholeText):
    __slots__ = ()

    def rendered(self, index: int) -> dict[str, object]:
        return {
            "index": index,
            "text": "".join(self._text),
            "logprobs": _logprobs(self._logprobs) if self._logprobs else None,
            "finish_reason": self.finish_reason,
        }


def _logprobs(tokens: Sequence[TokenLogprob], offset: int = 0) -> dict[str, object]:
    """Return log probabilities in the older format of parallel lists. `offset` is the position of the first token in
    the text.
    """
    offsets: list[int] = []
    for token in tokens:
        offsets.append(offset)
        offset += len(token.text)
    # JSON has no infinities, and OpenAI's own floor for what was practically impossible is -9999.
    return {
        "text_offset": offsets,
        "tokens": [token.text for token in tokens],
        "token_logprobs": [max(token.logprob, LEAST_LOGPROB) for token in tokens],
        "top_logprobs": [_top(token) for token in tokens] if any(token.top for token in tokens) else None,
    }


def _top(token: TokenLogprob) -> dict[str, float]:
    """Return the most likely tokens, and the chosen token if it is not among them."""
    found: dict[str, float] = {}
    for _, text, logprob in token.top:  # the likeliest first: of two tokens with one text it is the one to show
        found.setdefault(text, max(logprob, LEAST_LOGPROB))
    found.setdefault(token.text, max(token.logprob, LEAST_LOGPROB))
    return found
