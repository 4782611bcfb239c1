"""The hashes of a prompt's blocks in an engine host's cache, computed before the call."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from backends.llm.base import ModelCall, PromptBlocks
from backends.llm.host_inputs.engine_formats import format_key
from backends.llm.host_inputs.engine_prompt import Prompt
from contracts.engine.block_keys import block_hashes
from contracts.engine.wire import ModelHello

_BLOCK_TOKENS: Final = 16  # if the host does not report it
_LONG_TOKENS: Final = 8_192  # takes 0.5 ms to hash; longer prompts are hashed in a thread


async def blocks_of(call: ModelCall, model: ModelHello, prompts: Sequence[Prompt], adapter: str) -> PromptBlocks:
    """Return the block keys of a request's first prompt, and the total tokens of all prompts; cached in
    `call.prepared`.
    """
    size = model.block_size or _BLOCK_TOKENS
    key = ("blocks", str(size), adapter, *format_key(model))
    known = call.prepared.get(key)
    if isinstance(known, PromptBlocks):
        return known
    first = prompts[0]
    tokens = sum([len(prompt.token_ids) for prompt in prompts])
    hash_blocks = partial(block_hashes, first.token_ids, size, call.cache_salt, adapter)
    hashes: list[int] = []
    if not first.images:
        hashes = hash_blocks() if len(first.token_ids) <= _LONG_TOKENS else await asyncio.to_thread(hash_blocks)
    found = call.prepared[key] = PromptBlocks(tokens, size, hashes)
    return found
