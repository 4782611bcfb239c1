"""Translates a request's sampling parameters and grammar to vLLM's. Pure; sampling values have been checked before."""

import json
from collections.abc import Mapping
from typing import Final

from backends.engine.grammar_size import check_size
from contracts.engine.wire import Grammar, Sampling, Submit
from contracts.errors import InvalidRequest

# vLLM checks a grammar on its event loop, in a time that grows with the square of its size: 40 ms for 50 kB.
MAX_GRAMMAR_BYTES: Final = 1 << 16
_GREEDY_BELOW: Final = 1e-5  # vLLM's own bound


def sampling_fields(submit: Submit, context_tokens: int) -> dict[str, object]:
    """Return the fields of vLLM's SamplingParams. Tokens that another replica has already generated count as generated.

    Stop strings are left out: the host turns token ids into text and finds them there.
    """
    sampling: Sampling = submit.sampling
    given = len(submit.generated_ids)
    room = context_tokens - len(submit.token_ids)
    fields: dict[str, object] = {
        "n": sampling.n,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repetition_penalty": sampling.repetition_penalty,
        "seed": sampling.seed,
        "max_tokens": min(sampling.max_tokens, room) - given,
        "min_tokens": max(0, sampling.min_tokens - given),
        "ignore_eos": sampling.ignore_eos,
        "stop_token_ids": list(sampling.stop_token_ids),
        "logprobs": sampling.logprobs,
        "detokenize": False,
    }
    if sampling.n > 1 and sampling.temperature < _GREEDY_BELOW:
        # vLLM refuses several greedy choices, but the API allows them: sampling with top_k=1 is greedy too.
        fields |= {"temperature": 1.0, "top_k": 1, "top_p": 1.0, "min_p": 0.0}
    if sampling.logit_bias:
        fields["logit_bias"] = dict(sampling.logit_bias)
    return fields


def grammar_fields(grammar: Grammar | None) -> Mapping[str, object]:
    """Return the one field of vLLM's StructuredOutputsParams; empty without a grammar. Raises InvalidRequest."""
    if grammar is None:
        return {}
    size = len(grammar.text.encode())
    if size > MAX_GRAMMAR_BYTES:
        raise InvalidRequest(
            f"the {grammar.kind} has {size} bytes, more than {MAX_GRAMMAR_BYTES}; make it smaller",
            param="response_format",
            code="invalid_grammar",
        )
    check_size(grammar)
    match grammar.kind:
        case "json_schema":
            _json(grammar)
            return {"json": grammar.text}
        case "json_object":
            return {"json_object": True}
        case "regex":
            return {"regex": grammar.text}
        case "lark":
            return {"grammar": grammar.text}
        case "choice":
            choices = _json(grammar)
            if not isinstance(choices, list) or not choices or not all(isinstance(one, str) for one in choices):
                raise InvalidRequest("a choice must be a list of texts, at least one", code="invalid_grammar")
            return {"choice": choices}


def _json(grammar: Grammar) -> object:
    try:
        return json.loads(grammar.text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"the {grammar.kind} is no JSON: {error}"[:300], code="invalid_grammar") from error
