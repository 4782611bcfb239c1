"""Pin the prompt prefixes that requests mark, inside vLLM's scheduler thread.

Accesses vLLM's objects by attribute names only, so it runs and is tested without vLLM.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from backends.engine.torch_engine.pinned_prefixes import PinnedPrefixes
from backends.engine.vllm_engine.keeping.held_blocks import HeldBlocks
from backends.engine.vllm_engine.keeping.orders import ANSWER, read_order

_SECOND_NS: Final = 1_000_000_000
_GROUP_BYTES: Final = 4
_MOST_ENDED: Final = 64  # above this number, requests that ended before their first token are removed
_WAITING: Final = ("WAITING", "PREEMPTED")


class PromptKeeper:
    """Pins marked prefixes: `expect` registers a request, `answer` pins its prefixes at its first output.

    Pinned blocks are released if a running request needs them. Costs a step nothing while no prefix is pinned or
    expected.
    """

    def __init__(self, manager: Any, block_size: int, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        """`manager` is vLLM's KVCacheManager."""
        self._manager = manager
        self._blocks = HeldBlocks(manager.block_pool, block_size, now_ns)
        self._holds = PinnedPrefixes(self._blocks)
        self._now_ns = now_ns
        self._expected: dict[str, Any] = {}
        self._allocate = manager.allocate_slots

    @property
    def kept(self) -> int:
        """Return the number of pinned blocks."""
        return len(self._holds)

    def expect(self, request: Any) -> None:
        """Register a request (vLLM's Request) if it has prefixes to pin."""
        if read_order(request.sampling_params) is None:
            return
        if len(self._expected) >= _MOST_ENDED:
            self._expected = {name: one for name, one in self._expected.items() if not one.is_finished()}
        self._expected[request.request_id] = request

    def expire(self) -> None:
        """Unpin the prefixes whose time to live has passed. Called before each step."""
        if self._holds:
            self._holds.expire(self._now_ns())
            self._lend()

    def answer(self, outputs: Mapping[int, Any]) -> None:
        """Pin the prefixes of prompts that have been computed, and report them in `outputs` (vLLM's
        EngineCoreOutputs).
        """
        if not self._expected:
            return
        for client in outputs.values():
            for output in client.outputs:
                request = self._expected.pop(output.request_id, None) if output.new_token_ids else None
                if request is not None:
                    output.kv_transfer_params = {**(output.kv_transfer_params or {}), ANSWER: self._keep(request)}
        self._lend()

    def let_go(self) -> None:
        """Unpin everything, so that the cache can be emptied."""
        self._holds.clear()
        self._lend()

    def _keep(self, request: Any) -> list[int]:
        """Pin a prompt's prefixes; return the number of pinned tokens of each."""
        order = read_order(request.sampling_params)
        assert order is not None
        tenant, prefixes = order
        size, keys = self._blocks.block_size, request.block_hashes
        kept: list[int] = []
        for tokens, seconds in prefixes:
            count = min(tokens, request.num_prompt_tokens) // size
            until_ns = self._now_ns() + seconds * _SECOND_NS
            is_kept = 0 < count <= len(keys) and self._holds.keep(keys[:count], tenant, until_ns)
            kept.append(count * size if is_kept else 0)
        return kept

    def _lend(self) -> None:
        """Replace vLLM's `allocate_slots` by `_allocate_kept` while blocks are pinned, and restore it otherwise."""
        if self._holds:
            self._manager.allocate_slots = self._allocate_kept
        else:
            self._manager.__dict__.pop("allocate_slots", None)

    def _allocate_kept(self, request: Any, num_new_tokens: int, *rest: Any, **options: Any) -> Any:
        """Allocate blocks; if there are too few, release pinned ones.

        For a queued request, pinned blocks are released only if it can then start. A running one gets them before vLLM
        preempts another request.
        """
        found = self._allocate(request, num_new_tokens, *rest, **options)
        if found is not None or not self._holds:
            return found
        hits = _hits(options.get("new_computed_blocks"))
        wanted = 1
        if request.status.name in _WAITING:
            tokens = request.num_tokens + options.get("num_lookahead_tokens", 0)
            wanted = max(1, -(-tokens // self._blocks.block_size) - len(hits) - self._blocks.free)
            if wanted > self._blocks.only_pinned(hits):
                return None
        while found is None and self._holds.give_up(wanted, hits):
            found = self._allocate(request, num_new_tokens, *rest, **options)
        return found


def _hits(blocks: Any) -> set[bytes]:
    """Return the keys of the cached blocks at the beginning of a request's prompt (`blocks`: vLLM's KVCacheBlocks)."""
    groups = blocks.blocks if blocks is not None else ()
    return {one.block_hash[:-_GROUP_BYTES] for one in (groups[0] if groups else ()) if one.block_hash is not None}
