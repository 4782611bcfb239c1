"""What routing policies know of a request: the length of its prompt, and the keys of its blocks."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Protocol, cast

from algorithms.routing.ask import Ask
from algorithms.routing.block_map import KEY_MASK
from backends.llm.base import CachingTarget, ModelCall, PromptBlocks, Target
from contracts.engine.block_keys import chain, root_key
from contracts.serving.configuration import TargetSpec

# For servers that do not report tokens, prompts are identified by their text: 256 bytes are about 64 tokens.
_TEXT_BYTES: Final = 256
_TEXT_TOKENS: Final = 64
_MOST_TEXT_BYTES: Final = 131_072  # half a millisecond of hashing
_MESSAGES: Final = b'"messages"'


class Finder(Protocol):
    """Returns the adapter of a target."""

    def find(self, spec: TargetSpec) -> Target | None: ...


async def ask_of(
    call: ModelCall, specs: Sequence[TargetSpec], targets: Finder | None, session: str, output_tokens: int
) -> Ask:
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
    return estimated_ask(call.body, call.cache_salt, session, output_tokens, is_whole=is_whole)


def _exact(blocks: PromptBlocks, session: str, output_tokens: int, *, is_whole: bool) -> Ask:
    keys = [one & KEY_MASK for one in blocks.hashes]
    return Ask(max(blocks.tokens, 1), keys, blocks.block_tokens, output_tokens, session, is_whole)


def estimated_ask(body: bytes, cache_salt: str, session: str, output_tokens: int, *, is_whole: bool) -> Ask:
    """Return a request's demand on servers that do not report tokens, with keys of its text.

    The text starts with the messages: what precedes them differs between clients, not between turns. The tenant's salt
    is included, so that no tenant's prompts are matched with another's.
    """
    start = max(body.find(_MESSAGES), 0)
    text = body[start : start + _MOST_TEXT_BYTES]
    keys = chain(_root_of(cache_salt), text, _TEXT_BYTES)
    tokens = max((len(body) - start) * _TEXT_TOKENS // _TEXT_BYTES, 1)
    found = [int.from_bytes(key[:8], "little") & KEY_MASK for key in keys]
    return Ask(tokens, found, _TEXT_TOKENS, output_tokens, session, is_whole)


@lru_cache(maxsize=4096)  # as many as tenants with concurrent requests
def _root_of(cache_salt: str) -> bytes:
    return root_key(cache_salt)
