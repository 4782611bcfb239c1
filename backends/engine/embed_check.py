"""Validates requests for embeddings."""

from contracts.api.embedding import MAX_INPUTS
from contracts.engine.wire import Embed, ModelHello
from contracts.errors import InvalidRequest


def check_embed(embed: Embed, hello: ModelHello) -> None:
    """Raise InvalidRequest if a request exceeds a limit; the message names it."""
    if embed.tokenizer_hash and embed.tokenizer_hash != hello.tokenizer_hash:
        raise InvalidRequest(
            f"the request was tokenized with another tokenizer ({embed.tokenizer_hash[:12]}) than this model's "
            f"({hello.tokenizer_hash[:12]}); take the current one from the engine's hello",
            code="tokenizer_mismatch",
        )
    if not 0 < len(embed.inputs) <= MAX_INPUTS:
        raise InvalidRequest(f"{len(embed.inputs)} inputs; 1 to {MAX_INPUTS} are possible", param="input")
    if embed.dimensions is not None and not 0 < embed.dimensions <= hello.dimensions:
        raise InvalidRequest(
            f"dimensions is {embed.dimensions}; model {hello.id!r} gives 1 to {hello.dimensions}",
            param="dimensions",
        )
    for place, ids in enumerate(embed.inputs):
        if not ids:
            raise InvalidRequest(f"input {place} is empty", param="input")
        if len(ids) > hello.context_tokens:
            raise InvalidRequest(
                f"input {place} has {len(ids)} tokens; model {hello.id!r} takes at most {hello.context_tokens}",
                param="input",
                code="context_length_exceeded",
            )
        if not 0 <= min(ids) <= max(ids) < hello.vocabulary:
            raise InvalidRequest(
                f"input {place} has a token id outside the vocabulary of {hello.vocabulary}",
                param="input",
                code="token_out_of_range",
            )
