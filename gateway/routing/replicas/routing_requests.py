"""What routing policies know of a request: the length of its prompt, and the keys of its blocks."""

from collections.abc import Sequence
from typing import Final, Protocol, cast

from algorithms.routing.block_map import KEY_MASK
from algorithms.routing.policy_input import RoutingRequest
from backends.llm.base import CachingTarget, ModelCall, PromptBlocks, Target
from contracts.serving.configuration import TargetSpec

# Of servers that do not tell their tokens, prompts are known by their text: 256 bytes are some 64 tokens.
_TEXT_BYTES: Final = 256
_TEXT_TOKENS: Final = 64
_MOST_TEXT_BYTES: Final = 131_072
_MESSAGES: Final = b'"messages"'


class Finder(Protocol):
    """Returns the adapter of a target."""

    def find(self, spec: TargetSpec) -> Target | None: ...


async def routing_request_of(
    call: ModelCall, specs: Sequence[TargetSpec], targets: Finder | None, session: str, output_tokens: int
) -> RoutingRequest:
    """Return a request's demand on a pool: exact token counts for engine hosts, estimates from bytes for other servers.

    A prompt that is counted here is stored for the call, so that it is rendered once.
    """
    is_whole = not getattr(call.request, "stream", False)
    if targets is not None:
        for spec in specs:
            if spec.kind == "engine" and (target := targets.find(spec)) is not None:
                blocks = await cast(CachingTarget, target).prompt_blocks(call)
                if blocks is not None:
                    return _exact(blocks, session, output_tokens, is_whole=is_whole)
    return estimated_request(call.body, call.cache_salt, session, output_tokens, is_whole=is_whole)


def _exact(blocks: PromptBlocks, session: str, output_tokens: int, *, is_whole: bool) -> RoutingRequest:
    keys = [one & KEY_MASK for one in blocks.hashes]
    return RoutingRequest(max(blocks.tokens, 1), keys, blocks.block_tokens, output_tokens, session, is_whole)


def estimated_request(
    body: bytes, cache_salt: str, session: str, output_tokens: int, *, is_whole: bool
) -> RoutingRequest:
    """Return a request's demand on servers that do not report tokens, with keys of its text.

    The text starts with the messages: what precedes them differs between clients, not between turns. The tenant's salt
    is included, so that no tenant's prompts are matched with another's. Keys never leave this process, so its own
    seeded hash is enough.
    """
    start = max(body.find(_MESSAGES), 0)
    tokens = max((len(body) - start) * _TEXT_TOKENS // _TEXT_BYTES, 1)
    keys: list[int] = []
    key = hash(cache_salt) & KEY_MASK
    for end in range(start + _TEXT_BYTES, min(len(body), start + _MOST_TEXT_BYTES) + 1, _TEXT_BYTES):
        key = hash((key, body[end - _TEXT_BYTES : end])) & KEY_MASK
        keys.append(key)
    return RoutingRequest(tokens, keys, _TEXT_TOKENS, output_tokens, session, is_whole)
