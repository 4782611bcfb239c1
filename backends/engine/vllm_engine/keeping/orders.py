"""Messages between the host and vLLM's scheduler about pinning prompt prefixes, as plain lists."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from contracts.engine.wire import Submit

ORDER: Final = "tollkeeper_keep"  # of SamplingParams.extra_args
ANSWER: Final = "tollkeeper_kept"  # of an output's kv_transfer_params, which vLLM passes on unchanged


def order_fields(submit: Submit) -> dict[str, object]:
    """Return the fields of SamplingParams that ask the scheduler to pin a request's marked prefixes; empty without
    marks.

    Prompts with images are never pinned: vLLM counts more tokens for them than the caller who set the marks.
    """
    if not submit.kept_prefixes or submit.images:
        return {}
    prefixes = [[min(kept.tokens, len(submit.token_ids)), kept.ttl_seconds] for kept in submit.kept_prefixes]
    return {"extra_args": {ORDER: [submit.tenant, prefixes]}}


def read_order(sampling: Any) -> tuple[str, list[tuple[int, int]]] | None:
    """Return the tenant, and (tokens, seconds) of each prefix to pin, the shortest first; `None` if there is none."""
    order = (getattr(sampling, "extra_args", None) or {}).get(ORDER)
    if not order:
        return None
    tenant, prefixes = order
    return str(tenant), [(int(tokens), int(seconds)) for tokens, seconds in prefixes]


def read_answer(parameters: Mapping[str, Any] | None) -> Sequence[int] | None:
    """Return the number of pinned tokens of each prefix (0: not pinned); `None` if the output has no such answer."""
    if not parameters:
        return None
    return parameters.get(ANSWER)


def written_tokens(submit: Submit, kept: Sequence[int], cached_tokens: int) -> dict[int, int]:
    """Return the number of newly pinned tokens by time to live in seconds. Tokens that were cached before count as
    read.
    """
    written: dict[int, int] = {}
    known = cached_tokens
    for prefix, tokens in zip(submit.kept_prefixes, kept, strict=False):
        if tokens:
            written[prefix.ttl_seconds] = written.get(prefix.ttl_seconds, 0) + max(tokens - known, 0)
            known = max(known, tokens)
    return written
