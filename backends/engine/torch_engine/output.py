"""Converts sampled tokens to output: text deltas, the end of choices, and the account of a request."""

from dataclasses import dataclass

from backends.engine.parsers.answer import AnswerPiece
from backends.engine.torch_engine.detokenizer import Vocabulary
from backends.engine.torch_engine.sampler import ScoredToken
from backends.engine.torch_engine.sequence import Request, Sequence
from contracts.engine.wire import Delta, Finished, FinishReason, TokenLogprob
from contracts.errors import TollkeeperError
from contracts.metering.usage import Usage

_FIVE_MINUTES, _HOUR = 300, 3600  # seconds that prefixes may be pinned


@dataclass(frozen=True, slots=True)
class OutputMaker:
    """Applies sampled tokens to sequences."""

    vocabulary: Vocabulary
    eos_token_ids: frozenset[int]
    context_tokens: int

    def advance(self, sequence: Sequence, token_id: int, score: ScoredToken | None, now_ns: int) -> Delta:
        """Append a token to a sequence and return the delta. If it was the last, `finish_reason` is set on both."""
        request = sequence.request
        sequence.token_ids.append(token_id)
        sequence.sampling.note(token_id)
        if request.first_token_ns is None:
            request.first_token_ns = now_ns
        before = sequence.text.characters
        text, reason, stop = self._text_and_end(sequence, token_id)
        answer = AnswerPiece(text)
        if sequence.parser is not None:
            answer = sequence.parser.push(text, (sequence.text.characters - before,))
            if reason is not None:
                answer = answer.plus(sequence.parser.finish())
            if reason == "stop" and sequence.parser.calls:
                reason = "tool_calls"
        sequence.finish_reason = reason
        cached = None
        if not request.announced_cached:
            request.announced_cached = True
            cached = request.cached_tokens
        return Delta(
            request_id=request.submit.request_id,
            index=sequence.index,
            token_ids=[token_id],
            times_ns=[now_ns],
            content=answer.content,
            reasoning=answer.reasoning,
            tool_calls=answer.tool_calls,
            logprobs=[] if score is None else [self._logprob(token_id, score)],
            cached_tokens=cached,
            finish_reason=reason,
            stop=stop,
        )

    def _text_and_end(self, sequence: Sequence, token_id: int) -> tuple[str, FinishReason | None, str]:
        """Return the text that is certain after the token, the reason if it ends the choice, and the stop string if one
        did.
        """
        sampling, constraint = sequence.request.submit.sampling, sequence.constraint
        accepted = constraint is None or constraint.accept(token_id)
        is_eos = token_id in self.eos_token_ids and (not sampling.ignore_eos or constraint is not None)
        if is_eos or token_id in sampling.stop_token_ids:
            return sequence.text.flush(), "stop", ""
        piece = sequence.text.push(token_id, may_stop=sequence.outputs >= sampling.min_tokens)
        if piece.stopped:
            return piece.text, "stop", piece.stop
        if constraint is not None and (constraint.is_complete or not accepted):
            return piece.text + sequence.text.flush(), "stop" if accepted else "error", ""
        if sequence.outputs >= sequence.request.max_tokens or len(sequence.token_ids) >= self.context_tokens:
            return piece.text + sequence.text.flush(), "length", ""
        return piece.text, None, ""

    def _logprob(self, token_id: int, score: ScoredToken) -> TokenLogprob:
        text = self.vocabulary.token_text
        return TokenLogprob(
            token_id=token_id,
            text=text(token_id),
            logprob=score.logprob,
            top=[(other, text(other), logprob) for other, logprob in score.top],
        )


def finished(request: Request, reason: FinishReason, error: TollkeeperError | None = None) -> Finished:
    """Return a request's account: prompt tokens, cached ones, and all tokens generated here.

    Tokens that another replica generated before a continuation are billed there.
    """
    first = request.sequences[0]
    read = min(first.prompt, max(first.high_water, request.cached_tokens or 0))
    cached = min(request.cached_tokens or 0, read)
    started, written = request.scheduled_ns, request.written_tokens
    if sum(written.values()) > read - cached:
        written = {}  # the step that computed the prompt failed
    return Finished(
        request_id=request.submit.request_id,
        finish_reason=reason,
        usage=Usage(
            input_text=read - cached - sum(written.values()),
            cache_read_text=cached,
            cache_write_5m=written.get(_FIVE_MINUTES),
            cache_write_1h=written.get(_HOUR),
            output_text=request.generated - (request.reasoning or 0),
            output_reasoning=request.reasoning,
        ),
        gpu=request.time.share(request.kv_block_ns / 1e9) if request.time.total_ns else None,
        recompute_tokens=request.recompute_tokens,
        queue_ns=None if started is None else started - request.arrived_ns,
        prefill_ns=None if started is None or request.first_token_ns is None else request.first_token_ns - started,
        error_code="" if error is None else error.error_code,
        error_message="" if error is None else error.message,
    )


def refused(request_id: bytes, error: TollkeeperError) -> Finished:
    """Return the account of a refused request: no usage."""
    return Finished(
        request_id=request_id,
        finish_reason="error",
        usage=Usage(input_text=0, cache_read_text=0, output_text=0),
        error_code=error.error_code,
        error_message=error.message,
    )
