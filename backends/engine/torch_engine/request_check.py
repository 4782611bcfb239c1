"""Validates requests before the engine accepts them. Each error names the field, the value and the limit."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from contracts.engine.wire import Sampling, Submit
from contracts.errors import InvalidRequest, UnknownModel

MAX_STOPS: Final = 64
MAX_STOP_CHARACTERS: Final = 4096
MAX_LOGPROBS: Final = 128
MAX_CHOICES: Final = 128  # OpenAI's limit of `n`
# Within these limits nothing overflows when it is applied to logits in float32.
MAX_TEMPERATURE: Final = 100.0  # below 1e-5 is greedy
MIN_TOP_P: Final = 1e-6
MIN_REPETITION_PENALTY: Final = 0.01
MAX_REPETITION_PENALTY: Final = 100.0
MAX_PENALTY: Final = 2.0
MAX_BIAS: Final = 100.0
_MAX_INT32: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """The limits that requests to one model are checked against."""

    model: str
    vocabulary: int
    context_tokens: int
    max_choices: int
    tokenizer_hash: str
    template_hash: str


def check_request(submit: Submit, limits: ModelLimits, adapters: Sequence[str]) -> None:
    """Raise InvalidRequest or UnknownModel if a request cannot be served."""
    if submit.model and submit.model != limits.model:
        raise UnknownModel(f"this engine serves {limits.model!r}, not {submit.model!r}", param="model")
    _check_hash("tokenizer", submit.tokenizer_hash, limits.tokenizer_hash)
    _check_hash("chat template", submit.template_hash, limits.template_hash)
    if submit.adapter and submit.adapter not in adapters:
        known = ", ".join(adapters) or "none"
        raise InvalidRequest(
            f"adapter {submit.adapter!r} is not loaded; loaded: {known}", param="model", code="unknown_adapter"
        )
    if submit.images:
        raise InvalidRequest(f"model {limits.model!r} does not accept images", param="messages")
    _check_tokens(submit, limits)
    _check_sampling(submit.sampling, limits)
    if submit.generated_ids and submit.sampling.n > 1:
        raise InvalidRequest("an answer of several choices cannot be continued", param="n")
    if len(submit.stop) > MAX_STOPS or any(len(stop) > MAX_STOP_CHARACTERS for stop in submit.stop):
        raise InvalidRequest(
            f"at most {MAX_STOPS} stop strings of {MAX_STOP_CHARACTERS} characters each are possible", param="stop"
        )


def _check_hash(what: str, rendered_with: str, ours: str) -> None:
    if rendered_with and rendered_with != ours:
        raise InvalidRequest(
            f"the request was rendered with another {what} ({rendered_with[:12]}) than this model's ({ours[:12]}); "
            "take the current one from the engine's hello",
            code="tokenizer_mismatch",
        )


def _check_tokens(submit: Submit, limits: ModelLimits) -> None:
    if not submit.token_ids:
        raise InvalidRequest("the prompt is empty", param="messages")
    total = len(submit.token_ids) + len(submit.generated_ids)
    if total >= limits.context_tokens:
        raise InvalidRequest(
            f"the prompt has {total} tokens; with at least one of output it exceeds the model's context of "
            f"{limits.context_tokens}",
            param="messages",
            code="context_length_exceeded",
        )
    for ids in (submit.token_ids, submit.generated_ids, submit.sampling.stop_token_ids, submit.sampling.logit_bias):
        wrong = next((one for one in ids if not 0 <= one < limits.vocabulary), None)
        if wrong is not None:
            raise InvalidRequest(
                f"token id {wrong} is outside the vocabulary of {limits.vocabulary}", code="token_out_of_range"
            )


def _check_sampling(sampling: Sampling, limits: ModelLimits) -> None:
    bounds: tuple[tuple[str, float, float, float], ...] = (
        ("max_tokens", sampling.max_tokens, 1, _MAX_INT32),
        ("temperature", sampling.temperature, 0, MAX_TEMPERATURE),
        ("top_k", sampling.top_k, 0, _MAX_INT32),
        ("top_p", sampling.top_p, MIN_TOP_P, 1),
        ("min_p", sampling.min_p, 0, 1),
        ("presence_penalty", sampling.presence_penalty, -MAX_PENALTY, MAX_PENALTY),
        ("frequency_penalty", sampling.frequency_penalty, -MAX_PENALTY, MAX_PENALTY),
        ("repetition_penalty", sampling.repetition_penalty, MIN_REPETITION_PENALTY, MAX_REPETITION_PENALTY),
        ("seed", sampling.seed or 0, -(2**63), 2**63 - 1),
        ("n", sampling.n, 1, limits.max_choices),
        ("min_tokens", sampling.min_tokens, 0, sampling.max_tokens),
        ("logprobs", sampling.logprobs or 0, 0, MAX_LOGPROBS),
    )
    for name, value, low, high in bounds:
        if not low <= value <= high:
            raise InvalidRequest(f"{name} is {value}; it must be within {low:.12g} to {high:.12g}", param=name)
    for token_id, bias in sampling.logit_bias.items():
        if not -MAX_BIAS <= bias <= MAX_BIAS:
            raise InvalidRequest(
                f"logit_bias of token {token_id} is {bias}; it must be within {-MAX_BIAS:g} to {MAX_BIAS:g}",
                param="logit_bias",
            )
