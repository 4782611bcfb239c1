"""Messages between a request and vLLM's scheduler about pinning a prompt: plain lists both ways."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from contracts.engine.wire import Submit

ORDER: Final = "tollkeeper_keep"  # of SamplingParams.extra_args
ANSWER: Final = "tollkeeper_kept"  # of an output's kv_transfer_params, which vLLM hands on as they are


def order_fields(submit: Submit) -> dict[str, object]:
    """Return the fields of SamplingParams that order what a request wants kept; none if it wants nothing.

    A prompt with images has more tokens for vLLM than for who marked it: nothing of it can be kept.
    """
    if not submit.kept_prefixes or submit.images:
        return {}
    prefixes = [[min(kept.tokens, len(submit.token_ids)), kept.ttl_seconds] for kept in submit.kept_prefixes]
    return {"extra_args": {ORDER: [submit.tenant, prefixes]}}


def read_order(sampling: Any) -> tuple[str, list[tuple[int, int]]] | None:
    """Return the tenant, and (tokens, seconds) of each prefix to be kept, the shortest first; `None` without an
    order.
    """
    order = (getattr(sampling, "extra_args", None) or {}).get(ORDER)
    if not order:
        return None
    tenant, prefixes = order
    return str(tenant), [(int(tokens), int(seconds)) for tokens, seconds in prefixes]


def read_answer(parameters: Mapping[str, Any] | None) -> Sequence[int] | None:
    """Return for each prefix how many tokens of it are kept, 0: none; `None` if nothing was said."""
    if not parameters:
        return None
    return parameters.get(ANSWER)


def written_tokens(submit: Submit, kept: Sequence[int], cached_tokens: int) -> dict[int, int]:
    """Return how many tokens are newly kept, by for how many seconds: what the cache had already is read, not
    written.
    """
    written: dict[int, int] = {}
    known = cached_tokens
    for prefix, tokens in zip(submit.kept_prefixes, kept, strict=False):
        if tokens:
            written[prefix.ttl_seconds] = written.get(prefix.ttl_seconds, 0) + max(tokens - known, 0)
            known = max(known, tokens)
    return written
