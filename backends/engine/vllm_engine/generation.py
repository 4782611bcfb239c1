"""One generation in progress at vLLM: converts its outputs to deltas, and builds its account."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from backends.engine.torch_engine.detokenizer import Vocabulary
from backends.engine.vllm_engine.answer_text import ChoiceText
from backends.engine.vllm_engine.keeping.orders import read_answer, written_tokens
from backends.engine.vllm_engine.llm_client import LlmChoice, LlmOutput, LlmRequest, LlmTimes
from backends.engine.vllm_engine.step_metering import Account
from contracts.engine.wire import Delta, Finished, FinishReason, Submit, TokenLogprob
from contracts.errors import TollkeeperError
from contracts.metering.usage import UNKNOWN_USAGE, Usage

_SECOND_NS: Final = 1e9
_FIVE_MINUTES: Final = 300
_HOUR: Final = 3600


def _no_deadline() -> None:
    """Do nothing: there is no deadline to cancel."""


@dataclass(slots=True, eq=False)
class Generation:
    """A request and its choices. `is_over`: it has ended here, though vLLM may still compute it."""

    submit: Submit
    request: LlmRequest
    vocabulary: Vocabulary
    choices: list[ChoiceText]
    arrived_ns: int
    error: TollkeeperError | None = None
    is_over: bool = False
    is_at_vllm: bool = False  # whether it was sent to vLLM
    generated: int = 0
    surplus: int = 0  # tokens generated after an answer's end
    has_ended_choice: bool = False
    cached_tokens: int | None = None
    image_tokens: int | None = None  # tokens of images beyond their placeholders
    kept: Sequence[int] | None = None  # tokens of each marked prefix that were pinned; `None`: unknown
    scheduled_ns: int | None = None
    first_token_ns: int | None = None
    drop_deadline: Callable[[], None] = field(default=_no_deadline)

    def deltas(self, output: LlmOutput, now_ns: int) -> list[Delta]:
        """Return the deltas of one output. A choice with a stop string ends here, whatever vLLM reports."""
        times = output.metrics
        at_ns = now_ns
        if times is not None and times.last_token_ts:
            at_ns = round(times.last_token_ts * _SECOND_NS)
            if self.first_token_ns is None:
                self._note_begin(times)
        cached = None
        if self.cached_tokens is None and output.num_cached_tokens is not None:
            self.cached_tokens = cached = output.num_cached_tokens
            if self.submit.images and output.prompt_token_ids is not None:
                self.image_tokens = len(output.prompt_token_ids) - len(self.request.prompt.token_ids)
        if self.kept is None and self.submit.kept_prefixes:
            self.kept = read_answer(output.kv_transfer_params)
        deltas = []
        for one in output.outputs:
            choice = self.choices[one.index]
            if choice.reason is not None:
                self.surplus += len(one.token_ids)
                continue
            deltas.append(self._delta(one, choice, at_ns, cached))
            cached = None
        return deltas

    @property
    def is_complete(self) -> bool:
        """Return whether every choice has ended."""
        return all(choice.reason is not None for choice in self.choices)

    @property
    def reasoning(self) -> int | None:
        """Return the number of reasoning tokens; `None` if it is not parsed."""
        counts = [choice.parser.reasoning_tokens for choice in self.choices if choice.parser is not None]
        known = [count for count in counts if count is not None]
        return sum(known) if known else None

    def finished(self, reason: FinishReason, account: Account) -> Finished:
        """Return the account: prompt tokens, cached ones, and every generated token."""
        error = self.error
        return Finished(
            request_id=self.submit.request_id,
            finish_reason=reason,
            usage=self._usage(account),
            gpu=account.gpu,
            recompute_tokens=account.recompute_tokens,
            overrun_tokens=max(account.overrun_tokens, self.surplus),
            wasted_tokens=account.wasted_tokens,
            queue_ns=None if self.scheduled_ns is None else max(0, self.scheduled_ns - self.arrived_ns),
            prefill_ns=(
                None
                if self.scheduled_ns is None or self.first_token_ns is None
                else max(0, self.first_token_ns - self.scheduled_ns)
            ),
            error_code="" if error is None else error.error_code,
            error_message="" if error is None else error.message,
        )

    def _note_begin(self, times: LlmTimes) -> None:
        self.scheduled_ns = round(times.scheduled_ts * _SECOND_NS) or None
        self.first_token_ns = round(times.first_token_ts * _SECOND_NS) or None

    def _delta(self, one: LlmChoice, choice: ChoiceText, at_ns: int, cached: int | None) -> Delta:
        token_ids = list(one.token_ids)
        step = choice.push(token_ids, one.finish_reason)
        if step.taken < len(token_ids):
            self.surplus += len(token_ids) - step.taken
            token_ids = token_ids[: step.taken]
        self.generated += step.taken
        if step.reason is not None:
            self.has_ended_choice = True
        return Delta(
            request_id=self.submit.request_id,
            index=one.index,
            token_ids=token_ids,
            times_ns=[at_ns] * step.taken,
            content=step.content,
            reasoning=step.reasoning,
            tool_calls=step.tool_calls,
            logprobs=self._logprobs(one, token_ids) if one.logprobs else [],
            cached_tokens=cached,
            finish_reason=step.reason,
            stop=step.stop,
        )

    def _logprobs(self, one: LlmChoice, token_ids: list[int]) -> list[TokenLogprob]:
        wanted = self.submit.sampling.logprobs or 0
        text = self.vocabulary.token_text
        found = []
        for token_id, scores in zip(token_ids, one.logprobs or (), strict=False):
            ranked = sorted(scores.items(), key=lambda entry: -entry[1].logprob)[:wanted]
            top = [(other, text(other), score.logprob) for other, score in ranked]
            own = scores[token_id].logprob
            found.append(TokenLogprob(token_id=token_id, text=text(token_id), logprob=own, top=top))
        return found

    def _usage(self, account: Account) -> Usage:
        """Return the usage. If a request ended before its first token, its progress is known only from steps."""
        prompt = len(self.submit.token_ids)
        if not self.is_at_vllm:
            return Usage(input_text=0, cache_read_text=0, output_text=0)
        if self.cached_tokens is not None:
            read = prompt
        elif account.computed_tokens is not None:
            read = min(prompt, account.computed_tokens)
        else:
            return UNKNOWN_USAGE
        images = self.image_tokens or 0
        cached = min(self.cached_tokens or 0, read + images)
        uncached_text = max(0, read - cached)
        written = written_tokens(self.submit, self.kept or (), cached)
        if sum(written.values()) > uncached_text:
            written = {}  # the step that computed the prompt failed
        reasoning = self.reasoning
        return Usage(
            input_text=uncached_text - sum(written.values()),
            # Cached image tokens have no separate price, and count as cached text.
            input_image=None if self.image_tokens is None else read + images - cached - uncached_text,
            cache_read_text=cached,
            cache_write_5m=written.get(_FIVE_MINUTES),
            cache_write_1h=written.get(_HOUR),
            output_text=self.generated - (reasoning or 0),
            output_reasoning=reasoning,
        )
