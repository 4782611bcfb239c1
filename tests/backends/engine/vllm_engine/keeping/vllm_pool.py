"""A pool of KV blocks that behaves as vLLM's does (vllm/v1/core/block_pool.py, 0.25.1), and who allocates from it."""

from dataclasses import dataclass, field
from types import SimpleNamespace

GROUP = b"\0\0\0\0"


@dataclass(eq=False)
class Block:
    number: int
    ref_cnt: int = 0
    block_hash: bytes | None = None


@dataclass
class Pool:
    """`free` is in the order of eviction. One block is vLLM's placeholder, which is never handed out."""

    num_gpu_blocks: int
    free: list[Block] = field(init=False)
    cached: dict[bytes, Block] = field(default_factory=dict)

    def __post_init__(self):
        self.free = [Block(number) for number in range(1, self.num_gpu_blocks)]

    def get_cached_block(self, block_hash, kv_cache_group_ids):
        assert kv_cache_group_ids == [0]
        found = self.cached.get(block_hash)
        return None if found is None else [found]

    def touch(self, blocks):
        for block in blocks:
            if block.ref_cnt == 0:
                self.free.remove(block)
            block.ref_cnt += 1

    def free_blocks(self, ordered_blocks):
        for block in ordered_blocks:
            block.ref_cnt -= 1
            assert block.ref_cnt >= 0
            if block.ref_cnt == 0:
                self.free.append(block)

    def get_num_free_blocks(self):
        return len(self.free)

    def new(self, count):
        taken, self.free = self.free[:count], self.free[count:]
        for block in taken:
            if block.block_hash is not None:
                del self.cached[block.block_hash[: -len(GROUP)]]
            block.block_hash, block.ref_cnt = None, 1
        return taken

    def reset(self):
        """Forget every prefix, as vLLM does: only while nobody holds a block."""
        if len(self.free) != self.num_gpu_blocks - 1:
            return False
        self.cached.clear()
        for block in self.free:
            block.block_hash = None
        return True


class Manager:
    """vLLM's KVCacheManager: prompts of `size` tokens a block are allocated whole, and cached at once."""

    def __init__(self, blocks, size=4):
        self.block_pool = Pool(blocks + 1)
        self.size = size
        self.tables = {}

    def hits(self, request):
        found = []
        for key in request.block_hashes[: (request.num_prompt_tokens - 1) // self.size]:
            block = self.block_pool.get_cached_block(key, [0])
            if block is None:
                break
            found += block
        return found

    def allocate_slots(self, request, num_new_tokens, new_computed_blocks=None, num_lookahead_tokens=0):
        pool, hits = self.block_pool, list(new_computed_blocks.blocks[0]) if new_computed_blocks else []
        held = self.tables.get(request.request_id, [])
        missing = -(-(request.num_tokens + num_lookahead_tokens) // self.size) - len(held) - len(hits)
        if missing > len(pool.free) - sum(1 for block in hits if not block.ref_cnt):
            return None
        pool.touch(hits)
        table = self.tables[request.request_id] = held + hits + pool.new(missing)
        for key, block in zip(request.block_hashes, table, strict=False):
            if key not in pool.cached:
                pool.cached[key], block.block_hash = block, key + GROUP
        return table

    def run(self, request):
        """Start a waiting request with what is cached of it, as the scheduler does; `None`: there is no room."""
        blocks = SimpleNamespace(blocks=(self.hits(request),))
        return self.allocate_slots(request, request.num_tokens, new_computed_blocks=blocks, num_lookahead_tokens=0)

    def end(self, request):
        self.block_pool.free_blocks(reversed(self.tables.pop(request.request_id)))


def request(name, first, tokens, keep=(), tenant="a", size=4, status="WAITING"):
    """vLLM's Request: `first` tells prompts apart, `keep` holds (tokens, seconds)."""
    extra = {"tollkeeper_keep": [tenant, [list(one) for one in keep]]} if keep else None
    return SimpleNamespace(
        request_id=name,
        num_prompt_tokens=tokens,
        num_tokens=tokens,
        block_hashes=[b"%d/%d" % (first, place) for place in range(tokens // size)],
        sampling_params=SimpleNamespace(extra_args=extra),
        status=SimpleNamespace(name=status),
        is_finished=lambda: False,
    )


def first_output(request):
    """vLLM's outputs of a step, by client: the request's first token."""
    output = SimpleNamespace(request_id=request.request_id, new_token_ids=[7], kv_transfer_params=None)
    return {0: SimpleNamespace(outputs=[output])}, output
