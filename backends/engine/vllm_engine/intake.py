"""Checks submitted requests and converts them for vLLM."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from backends.engine.torch_engine.detokenizer import TextStream, Vocabulary
from backends.engine.torch_engine.request_check import ModelLimits, check_request
from backends.engine.vllm_engine.answer_forms import AnswerForms
from backends.engine.vllm_engine.answer_text import ChoiceText
from backends.engine.vllm_engine.generation import Generation
from backends.engine.vllm_engine.keeping.orders import order_fields
from backends.engine.vllm_engine.llm_client import Adapter, LlmPrompt, LlmRequest
from backends.engine.vllm_engine.sampling import sampling_fields
from contracts.engine.wire import Submit
from contracts.errors import InvalidRequest, Unavailable

MAX_IMAGES = 64


@dataclass(frozen=True, slots=True)
class Intake:
    """Builds one model's requests. `accept` may be called from any thread."""

    limits: ModelLimits
    vocabulary: Vocabulary
    answers: AnswerForms
    accepts_images: bool
    keeps_prompts: bool = False

    def accept(self, submit: Submit, adapters: Mapping[str, Adapter], now_ns: int) -> Generation:
        """Check a request and convert it for vLLM. Raises InvalidRequest, UnknownModel or Unavailable."""
        check_request(msgspec.structs.replace(submit, images=[]), self.limits, list(adapters))
        self._check_images(submit)
        form = self.answers.form(submit)
        _check_continuation(submit, has_grammar=bool(form.constraint))
        request = LlmRequest(
            name=submit.request_id.hex(),
            prompt=LlmPrompt([*submit.token_ids, *submit.generated_ids], submit.cache_salt, tuple(submit.images)),
            sampling=sampling_fields(submit, self.limits.context_tokens)
            | (order_fields(submit) if self.keeps_prompts else {}),
            constraint=form.constraint,
            is_past_reasoning=form.is_past_reasoning,
            adapter=adapters[submit.adapter] if submit.adapter else None,
            priority=submit.priority,
        )
        choices = []
        for index in range(submit.sampling.n):
            text = TextStream(self.vocabulary.stream(submit.token_ids, form.markers), submit.stop)
            choice = ChoiceText(text, form.parser(index), submit.sampling.min_tokens)
            choice.give(submit.generated_ids)
            choices.append(choice)
        return Generation(submit, request, self.vocabulary, choices, now_ns)

    def _check_images(self, submit: Submit) -> None:
        if not submit.images:
            return
        if not self.accepts_images:
            raise InvalidRequest(f"model {self.limits.model!r} does not accept images", param="messages")
        if len(submit.images) > MAX_IMAGES:
            raise InvalidRequest(
                f"the prompt has {len(submit.images)} images; at most {MAX_IMAGES} are possible", param="messages"
            )


def _check_continuation(submit: Submit, *, has_grammar: bool) -> None:
    """Raise InvalidRequest if an answer cannot be continued here, since its rest depends on more than its token ids."""
    if not submit.generated_ids:
        return
    sampling = submit.sampling
    reasons = (
        (has_grammar, "a grammar"),
        (sampling.presence_penalty or sampling.frequency_penalty, "penalties on what was generated"),
        (sampling.seed is not None and sampling.temperature > 0, "a seed"),
    )
    reason = next((name for applies, name in reasons if applies), None)
    if reason is not None:
        raise Unavailable(f"vLLM cannot go on with an answer that another replica began with {reason}")
