"""Converts a text completion to an engine host's input: each prompt unchanged, without a chat template."""

from typing import TYPE_CHECKING, Final

from backends.llm.host_inputs.engine_inputs import encode_entries
from backends.llm.host_inputs.engine_prompt import Prompt
from backends.llm.host_inputs.engine_sampling import grammar_of, refuse_unhonoured, room_for, sampling_of, stops_of
from backends.llm.parameters import IDLE, fields_of, unsupported
from contracts.api.completion import CompletionRequest
from contracts.engine.wire import ModelHello
from contracts.errors import InvalidRequest, UnsupportedParameter

if TYPE_CHECKING:
    from backends.tokenization.tokenizer import (
        PromptFormat,  # loads libraries that only gateways with engine hosts need
    )

_HONOURED: Final = IDLE.union(CompletionRequest.__struct_fields__) - {"echo", "service_tier", "speed"}


async def prompts_of(
    request: CompletionRequest, body: bytes, model: ModelHello, form: "PromptFormat", *, is_limit_asked: bool = True
) -> list[Prompt]:
    """Encode and check every prompt of a completion. Raises InvalidRequest with the field and the limit.

    `body` is the application's bytes, searched for unsupported fields. For `is_limit_asked` see `room_for`.
    """
    refuse_unhonoured(request, fields_of(body), _HONOURED)
    if (request.best_of or 1) > 1:
        raise UnsupportedParameter(
            f"best_of is {request.best_of}; {request.model!r} gives every answer it makes, so it may be 1 at most",
            param="best_of",
        )
    if request.suffix:
        raise unsupported(request.model, "suffix")
    if model.kind != "generate":
        raise InvalidRequest(f"the model {request.model!r} embeds; it does not complete", param="model")
    all_ids = await encode_entries(request.prompts, "prompt", model, request.model, form)
    grammar, stops = grammar_of(request), stops_of(request)
    prompts: list[Prompt] = []
    for place, ids in enumerate(all_ids):
        where = f"prompt[{place}]" if len(all_ids) > 1 else "prompt"
        _check_ids(request, where, ids, model)
        room = room_for(request, model, len(ids), is_limit_asked=is_limit_asked)
        sampling = sampling_of(request, room, request.logprobs)
        prompts.append(Prompt(ids, sampling, stops, grammar, b"", is_raw=True))
    return prompts


def _check_ids(request: CompletionRequest, where: str, ids: list[int], model: ModelHello) -> None:
    if not ids:
        raise InvalidRequest(f"{where} is empty, and {request.model!r} begins with nothing of its own", param="prompt")
    highest = max(ids)
    if model.vocabulary and highest >= model.vocabulary:
        raise InvalidRequest(
            f"{where} holds the token id {highest}; those of {request.model!r} are 0 to {model.vocabulary - 1}",
            param="prompt",
            code="token_out_of_range",
        )
